"""The exact searches that leave pairs out: bounds that hold, answers as by brute force, and resumption."""

import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deepsimplex.distances import SSIM, CheckpointWarning, Embedding, _ssim_kernels, class_neighbors, landmarks
from deepsimplex.distances import checkpoint as checkpoints
from deepsimplex.distances.checkpoint import Checkpoint
from deepsimplex.distances.screening import sides
from deepsimplex.distances.search import Search
from deepsimplex.distances.ssim_screen import StructuralScreen
from tests.reference import distances as reference

KINDS = ["fashion", "digits", "color", "negative", "bright", "noise", "flat", "bytes"]


@pytest.fixture(autouse=True)
def many_landmarks(monkeypatch):
    """Landmarks for searches that are too small to be worth them."""
    monkeypatch.setattr(landmarks, "PAIRS_PER_SIMILARITY", 4)
    monkeypatch.setattr(landmarks, "FEWEST_LANDMARKS", 2)


@pytest.fixture
def images(request):
    """Images [N, H, W] or [N, H, W, C] of a kind, their labels, and their data range."""
    fashion, labels = request.getfixturevalue("fashion")
    x, y, data_range = fashion[:300], labels[:300], 1.0
    rng = np.random.default_rng(0)
    kind = request.param
    if kind == "digits":
        x, y = (part[:300] for part in request.getfixturevalue("digits"))
    elif kind == "color":
        x = np.stack([x, x[::-1], np.roll(x, 3, axis=2)], axis=-1)[:, 4:21, 2:23]
    elif kind == "negative":
        x, data_range = 2 * x - 1, 2.0
    elif kind == "bright":
        x = 0.97 + 0.02 * x
    elif kind == "noise":
        x = rng.uniform(size=(300, 9, 16))
    elif kind == "flat":
        x = np.where(rng.uniform(size=(300, 1, 1)) < 0.5, x, rng.uniform(size=(300, 1, 1)).astype(np.float32))
    elif kind == "bytes":
        x, data_range = np.round(x * 255).astype(np.uint8), 255.0
    x = x.copy()
    x[7], x[19] = x[5], x[100]  # duplicates, within a class or not
    return x, y, data_range


def screen_of(metric, x, y, **options):
    """The screen of a search, the search, and its sides."""
    options = {"queries": None, "query_labels": y, "own_positive": False, "classes": "all", "k": 1} | options
    search = Search(
        x=metric.check(x), y=y, num_classes=10, block_bytes=2**24, checkpoint=None, show_progress=False, **options
    )
    rows, columns = sides(search)
    nothing = Checkpoint(None, "")
    comparison = metric._comparison(search.x, search.queries)
    return StructuralScreen(comparison, search, rows, columns, "ssim", nothing), search, rows, columns


@pytest.mark.parametrize("images", KINDS, indirect=True)
@pytest.mark.parametrize("window", [3, 5, 7])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_scores_bound_every_distance_from_below(images, window, dtype):
    x, y, data_range = images
    metric = SSIM(window, data_range, dtype=dtype)
    screen, _, rows, columns = screen_of(metric, x, y)
    whole = slice(0, len(x))
    tile = screen.rows(whole), screen.columns(whole)
    scores = np.empty((screen.parts, len(x), len(x)), np.float32)
    screen.score(*tile, scores)
    true = SSIM(window, data_range, dtype="float64").pairwise(x[rows.indices], x[columns.indices])
    assert (true - (1 + scores.sum(axis=0, dtype=np.float64)) >= -screen.slack).all()
    # A bound that says nothing would hold as well.
    off = ~np.eye(len(x), dtype=bool)
    assert (1 + scores.sum(axis=0))[off].mean() > 0.2 * true[off].mean()
    # Every ceiling lets the pair itself pass.
    assert (scores.sum(axis=0) <= screen.ceilings(tile[0], true)).all()


@pytest.mark.parametrize("images", KINDS, indirect=True)
@pytest.mark.parametrize("window", [3, 7])
@pytest.mark.parametrize("k", [1, 4])
def test_search_finds_what_brute_force_finds(images, window, k):
    x, y, data_range = images
    metric = SSIM(window, data_range)
    for options in ({}, {"classes": "other"}, {"classes": "own", "own_positive": True}):
        exact = class_neighbors(x, y, metric, k, num_classes=10, block_bytes=2**16, **options)
        brute = class_neighbors(x, y, metric, k, num_classes=10, method="brute_force", **options)
        np.testing.assert_array_equal(exact.distances, brute.distances)
        np.testing.assert_array_equal(exact.indices, brute.indices)


@pytest.mark.parametrize("images", ["fashion", "color"], indirect=True)
@pytest.mark.parametrize("classes", ["all", "own", "other"])
def test_search_for_queries_finds_what_brute_force_finds(images, classes):
    x, y, data_range = images
    arguments = {"queries": x[200:], "query_labels": y[200:], "num_classes": 10, "classes": classes}
    for metric in (SSIM(5, data_range), "euclidean", "cityblock"):
        exact, brute = (
            class_neighbors(x[:210], y[:210], metric, 2, own_positive=True, method=method, **arguments)
            for method in ("exact", "brute_force")
        )
        np.testing.assert_array_equal(exact.distances, brute.distances)
        np.testing.assert_array_equal(exact.indices, brute.indices)
        own = np.isfinite(exact.distances[np.arange(100), y[200:]]).any()
        others = np.isfinite(exact.distances[y[200:][:, None] != np.arange(10)]).any()
        assert (own, others) == (classes != "other", classes != "own")


def test_few_pairs_are_evaluated_to_the_end(fashion, monkeypatch):
    # Ten noisy copies of each image, in classes that do not depend on it: the nearest are near.
    rng = np.random.default_rng(0)
    x = np.clip(np.repeat(fashion[0][:60], 10, axis=0) + rng.normal(0, 0.02, size=(600, 28, 28)), 0, 1)
    y = np.arange(600) % 3
    finished, pairs = [], []
    evaluate = _ssim_kernels.evaluate_pairs

    def counting(some, *arguments):
        values = evaluate(some, *arguments)
        pairs.append(some.shape[1])
        finished.append(np.isfinite(values).sum())
        return values

    monkeypatch.setattr(_ssim_kernels, "evaluate_pairs", counting)
    class_neighbors(x, y, SSIM(5), classes="other")
    total = (len(x) ** 2 - np.bincount(y) @ np.bincount(y)) / 2
    assert sum(pairs) < 0.3 * total
    assert sum(finished) < 0.1 * total


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32 - 1), st.sampled_from([3, 5]), st.sampled_from(["noise", "binary", "signed", "duplicates"]))
def test_structural_similarity_is_a_positive_definite_kernel(seed, window, kind):
    rng = np.random.default_rng(seed)
    x = rng.uniform(-1, 1, size=(12, 6, 7))
    if kind == "binary":
        x = np.round((x + 1) / 2)
    elif kind == "noise":
        x = 0.5 + 0.01 * x
    elif kind == "duplicates":
        x[6:] = x[:6]
    gram = 1 - SSIM(window, 2.0, dtype="float64").pairwise(x, x)
    assert np.linalg.eigvalsh(gram).min() > -1e-12 * len(x)


@pytest.mark.parametrize("window", [3, 5, 7, 13])
@pytest.mark.parametrize("channels", [1, 3])
def test_double_precision_equals_scikit_image(fashion, window, channels):
    x = fashion[0][:40].astype(np.float64)
    if channels > 1:
        x = np.stack([x, x[::-1], np.roll(x, 2, axis=1)], axis=-1)
    expected = reference.pairwise(reference.ssim(window), x[:5], x)
    np.testing.assert_allclose(SSIM(window, dtype="float64").pairwise(x[:5], x), expected, atol=1e-12)
    np.testing.assert_allclose(SSIM(window).pairwise(x[:5], x), expected, atol=1e-4)


def test_accelerated_search_finds_the_same(fashion, monkeypatch):
    from deepsimplex.distances import ssim

    x, y = fashion[0][:200].copy(), fashion[1][:200]
    x[30] = x[3]
    plain = class_neighbors(x, y, SSIM(7), 2)
    monkeypatch.setattr(ssim, "has_accelerator", lambda: True)
    accelerated = class_neighbors(x, y, SSIM(7), 2)
    np.testing.assert_allclose(accelerated.distances, plain.distances, atol=1e-4)
    assert (accelerated.indices == plain.indices).mean() > 0.99
    assert accelerated.distances[30, y[3], 0] == 0


class Cut(Exception):
    """Stands for a kill."""


@pytest.fixture
def cut_short(monkeypatch):
    """Ends the search after some tiles; the state is written after every tile."""
    monkeypatch.setattr(checkpoints, "SECONDS_BETWEEN", 0.0)
    from deepsimplex.distances import screening

    visit = screening._visit
    visits = []

    def visiting(*arguments):
        visits.append(1)
        if len(visits) == visiting.last:
            raise Cut
        return visit(*arguments)

    visiting.last, visiting.visits = np.inf, visits
    monkeypatch.setattr(screening, "_visit", visiting)
    return visiting


@pytest.mark.parametrize("distance", ["euclidean", "cityblock", SSIM(5)], ids=str)
def test_search_goes_on_where_it_was_cut_short(fashion, tmp_path, cut_short, distance):
    x, y = fashion
    arguments = {"x": x, "y": y, "distance": distance, "k": 2, "block_bytes": 2**16}
    whole = class_neighbors(**arguments)
    tiles = len(cut_short.visits)
    cut_short.visits.clear()
    cut_short.last = tiles // 2
    with pytest.raises(Cut):
        class_neighbors(**arguments, checkpoint=tmp_path / "state")
    assert list((tmp_path / "state").glob("*.npz"))
    cut_short.visits.clear()
    cut_short.last = np.inf
    resumed = class_neighbors(**arguments, checkpoint=tmp_path / "state")
    assert len(cut_short.visits) == tiles - (tiles // 2 - 1)
    np.testing.assert_array_equal(resumed.distances, whole.distances)
    np.testing.assert_array_equal(resumed.indices, whole.indices)
    assert not (tmp_path / "state").exists()


def test_landmarks_are_not_compared_again(fashion, tmp_path, cut_short, monkeypatch):
    x, y = fashion
    blocks = []
    similarities = _ssim_kernels.band_block
    monkeypatch.setattr(_ssim_kernels, "band_block", lambda *a: blocks.append(1) or similarities(*a))
    cut_short.last = 1
    with pytest.raises(Cut):
        class_neighbors(x, y, SSIM(5), checkpoint=tmp_path)
    assert blocks
    blocks.clear()
    cut_short.last = np.inf
    class_neighbors(x, y, SSIM(5), checkpoint=tmp_path)
    assert not blocks


def test_blocks_of_any_metric_are_resumed(fashion, tmp_path, monkeypatch):
    monkeypatch.setattr(checkpoints, "SECONDS_BETWEEN", 0.0)
    x, y = fashion[0][:60], fashion[1][:60]
    whole = class_neighbors(x, y, "euclidean", method="brute_force")
    from deepsimplex.distances import _selection_kernels

    merge, merges = _selection_kernels.merge_block, []

    def merging(*arguments):
        merges.append(1)
        if len(merges) == 6:
            raise Cut
        merge(*arguments)

    monkeypatch.setattr(_selection_kernels, "merge_block", merging)
    with pytest.raises(Cut):
        class_neighbors(x, y, "euclidean", method="brute_force", checkpoint=tmp_path)
    resumed = class_neighbors(x, y, "euclidean", method="brute_force", checkpoint=tmp_path)
    assert len(merges) == 6 + (10 - 5)
    np.testing.assert_array_equal(resumed.distances, whole.distances)


@pytest.mark.slow
def test_search_survives_a_kill(fashion, tmp_path, cut_short):
    x, y = fashion
    np.savez(tmp_path / "data.npz", x=x, y=y)
    program = f"""
import sys, time, numpy as np
from deepsimplex.distances import SSIM, checkpoint, class_neighbors, landmarks, screening
checkpoint.SECONDS_BETWEEN = 0.0
landmarks.PAIRS_PER_SIMILARITY = 4
data = np.load({str(tmp_path / "data.npz")!r})
visit, visits = screening._visit, []
def slowly(*arguments):
    visits.append(1)
    if sys.argv[1] == "slowly" and len(visits) > 5:
        print("killme", flush=True)
        time.sleep(60)
    visit(*arguments)
screening._visit = slowly
found = class_neighbors(
    data["x"], data["y"], SSIM(5), 2, block_bytes=2**16, checkpoint={str(tmp_path / "state")!r}
)
np.savez({str(tmp_path / "found.npz")!r}, distances=found.distances, visits=len(visits))
"""
    with subprocess.Popen([sys.executable, "-c", program, "slowly"], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline().strip() == "killme"
        os.kill(process.pid, signal.SIGKILL)
    assert not (tmp_path / "found.npz").exists()
    subprocess.run([sys.executable, "-c", program, "on"], check=True, timeout=300)
    found = np.load(tmp_path / "found.npz")
    whole = class_neighbors(x, y, SSIM(5), 2, block_bytes=2**16)
    np.testing.assert_array_equal(found["distances"], whole.distances)
    assert found["visits"] == len(cut_short.visits) - 5


@pytest.mark.parametrize("damage", ["cut", "flipped"])
def test_damaged_state_is_noticed(fashion, tmp_path, cut_short, damage):
    x, y = fashion[0][:300], fashion[1][:300]
    cut_short.last = 4
    with pytest.raises(Cut):
        class_neighbors(x, y, "euclidean", block_bytes=2**14, checkpoint=tmp_path)
    (path,) = tmp_path.glob("search-*.npz")
    content = bytearray(path.read_bytes())
    if damage == "cut":
        path.write_bytes(content[:-200])
    else:
        content[len(content) // 2] ^= 255
        path.write_bytes(content)
    cut_short.last = np.inf
    with pytest.warns(CheckpointWarning, match="cannot be resumed from"):
        found = class_neighbors(x, y, "euclidean", block_bytes=2**14, checkpoint=tmp_path)
    np.testing.assert_array_equal(found.distances, class_neighbors(x, y, "euclidean").distances)


def test_searches_share_a_folder_and_leave_it_tidy(fashion, tmp_path, cut_short):
    x, y = fashion[0][:300], fashion[1][:300]
    np.savez(tmp_path / "mine.npz", x=x)
    for k in (1, 2):
        cut_short.visits.clear()
        cut_short.last = 4
        with pytest.raises(Cut):
            class_neighbors(x, y, "euclidean", k, block_bytes=2**14, checkpoint=tmp_path)
    assert len(list(tmp_path.glob("search-*.npz"))) == 2
    cut_short.last = np.inf
    for k in (1, 2):
        found = class_neighbors(x, y, "euclidean", k, block_bytes=2**14, checkpoint=tmp_path)
        np.testing.assert_array_equal(found.distances, class_neighbors(x, y, "euclidean", k).distances)
    assert [path.name for path in tmp_path.iterdir()] == ["mine.npz"]


def test_a_disk_that_fills_up_costs_the_state_only(fashion, tmp_path, cut_short, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    x, y = fashion[0][:300], fashion[1][:300]
    monkeypatch.setattr(checkpoints, "save_arrays", full)
    with pytest.warns(CheckpointWarning, match="cannot be kept") as warned:
        found = class_neighbors(x, y, "euclidean", block_bytes=2**14, checkpoint=tmp_path)
    assert len(warned) == 1
    np.testing.assert_array_equal(found.distances, class_neighbors(x, y, "euclidean").distances)


def test_checkpoints_that_cannot_be_are_refused(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match="checkpoint is not a folder"):
        class_neighbors([[0.0], [1.0]], [0, 1], checkpoint=tmp_path / "file")
    with pytest.raises(ValueError, match="needs a metric that a key can name"):
        class_neighbors([[0.0], [1.0]], [0, 1], lambda a, b: 0.0, checkpoint=tmp_path)


def test_approximate_search_measures_its_recall(fashion):
    x, y = fashion
    exact = class_neighbors(x, y, SSIM(5), 2, classes="other")
    recalls = []
    for candidates in (2, 10, 600):
        found = class_neighbors(x, y, SSIM(5), 2, classes="other", method="approximate", candidates=candidates)
        wanted = np.isfinite(exact.distances)
        hits = (found.distances <= exact.distances[:, :, -1:] + 1e-12)[wanted].mean()
        assert abs(found.recall - hits) < 0.05
        recalls.append(found.recall)
        again = class_neighbors(x, y, SSIM(5), 2, classes="other", method="approximate", candidates=candidates)
        np.testing.assert_array_equal(found.indices, again.indices)
        assert again.recall == found.recall
    assert recalls[0] < recalls[1] < recalls[2] == 1.0
    np.testing.assert_array_equal(found.distances, exact.distances)
    np.testing.assert_array_equal(found.indices, exact.indices)
    assert exact.recall == 1.0


@pytest.mark.parametrize("distance", ["euclidean", "cityblock", "function"])
def test_approximate_search_under_any_metric(distance):
    rng = np.random.default_rng(0)
    # More samples than an exhaustive index takes, so that cells are made.
    count = 150 if distance == "function" else 5000
    x, y = rng.normal(size=(count, 4)), rng.integers(0, 2, count)
    metric = reference.euclidean if distance == "function" else distance
    exact = class_neighbors(x, y, metric)
    begun = time.perf_counter()
    found = class_neighbors(x, y, metric, method="approximate")
    assert time.perf_counter() - begun < 60
    assert 0.8 < found.recall <= 1
    assert (found.distances >= exact.distances - 1e-12).all()
    queries = class_neighbors(x, y, metric, queries=x[:20], query_labels=y[:20], method="approximate")
    assert (queries.distances[np.arange(20), y[:20]] == 0).all()
    positive = class_neighbors(
        x, y, metric, queries=x[:20], query_labels=y[:20], own_positive=True, method="approximate"
    )
    assert (positive.distances > 0).all()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"method": "fast"}, "method must be one of exact, brute_force, approximate"),
        ({"classes": "mine"}, "classes must be one of all, own, other"),
        ({"classes": "own", "queries": [[1.0]]}, "classes='own' needs query_labels"),
        ({"method": "approximate", "candidates": 1, "k": 2}, "candidates must be a whole number, at least k=2"),
        ({"method": "approximate", "candidates": True}, "candidates must be"),
        ({"candidates": 8}, "candidates belong to method='approximate'; found 8"),
    ],
)
def test_bad_options_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        class_neighbors(**{"x": [[0.0], [1.0]], "y": [0, 1], **arguments})


def test_approximate_search_needs_features():
    with pytest.raises(ValueError, match=r"needs samples \[N, ...\].*'precomputed'"):
        class_neighbors(np.zeros((3, 1)), [0, 1, 0], np.ones((3, 3)), method="approximate")


def test_approximate_search_keeps_no_state(tmp_path):
    with pytest.raises(ValueError, match="checkpoint belongs to exact searches"):
        class_neighbors([[0.0], [1.0]], [0, 1], method="approximate", checkpoint=tmp_path)


@pytest.mark.parametrize(("offset", "scale"), [(1e8, 1.0), (0.0, 1e60), (0.0, 1e-60)])
def test_approximate_search_does_not_mind_where_samples_lie(offset, scale):
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(400, 4)) * scale + offset, rng.integers(0, 2, 400)
    assert class_neighbors(x, y, method="approximate").recall > 0.99


def test_approximate_search_looks_through_a_model(fashion):
    class Half:
        passed = 0

        def predict(self, x, batch_size, verbose):
            self.passed += len(x)
            return x.reshape(len(x), -1)[:, ::2]

    model = Half()
    found = class_neighbors(*fashion, Embedding(model), method="approximate")
    assert model.passed == len(fashion[0])
    exact = class_neighbors(*fashion, Embedding(model))
    assert found.recall == 1.0
    np.testing.assert_array_equal(found.indices, exact.indices)


@pytest.mark.parametrize("window", [5, 25])
def test_hard_images_are_compared_well(window):
    """Half dark, half bright and nearly flat: there float32 is at its worst."""
    rng = np.random.default_rng(0)
    x = np.where(np.arange(64) < 32, 0.0, 1.0) + rng.normal(0, 1e-3, size=(30, 64, 64))
    x = np.clip(np.where(rng.uniform(size=(30, 1, 1)) < 0.5, x, x.transpose(0, 2, 1)), 0, 1)
    y = np.arange(30) % 3
    true = SSIM(window, dtype="float64").pairwise(x, x)
    np.testing.assert_allclose(SSIM(window).pairwise(x, x), true, atol=5e-4)
    exact, brute = (class_neighbors(x, y, SSIM(window), 2, method=method) for method in ("exact", "brute_force"))
    np.testing.assert_array_equal(exact.distances, brute.distances)
    np.testing.assert_array_equal(exact.indices, brute.indices)


def test_bright_images_far_from_zero():
    x = np.random.default_rng(0).uniform(size=(12, 9, 9))
    for offset in (1e3, 1e6):
        D = SSIM(3, dtype="float64").pairwise(x + offset, x + offset)
        np.testing.assert_allclose(SSIM(3).pairwise(x + offset, x + offset), D, atol=1e-4)
    with pytest.raises(ValueError, match=r"X must lie within 1e\+08 times data_range=1 of zero; found 1e\+09"):
        SSIM(3).pairwise(x + 1e9, x)
