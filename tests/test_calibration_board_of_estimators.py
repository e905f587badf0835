"""The board of estimators: its event files are read back."""

import functools
import io

import numpy as np
import pytest
from PIL import Image
from sklearn.datasets import load_wine

import deepsimplex as ds
from tests.event_files import SCORES, events

X, y = load_wine(return_X_y=True)
X, X_TEST, NAMES, NAMES_TEST = X[::2], X[1::2], np.array(["c", "a", "b"])[y[::2]], np.array(["c", "a", "b"])[y[1::2]]


ONCE = {"validation_samples"}
"""Tags that are written at step 0, when a fit has ended."""


def make(**options):
    return ds.SimplexGaussianProcess("ilr", **{"noise": "learned", "max_iter": 6, **options})


def few_epochs(epochs):
    options = {"inducing": 10, "epochs": epochs, "batch_size": 40}
    return {
        "stochastic": make(inference="stochastic", **options),
        "categorical": ds.CategoricalGaussianProcess(link="softmax", **options),
    }


@pytest.mark.slow
def test_every_iteration_is_written(tmp_path):
    with ds.monitoring.CalibrationBoard(tmp_path / "events", (X_TEST, NAMES_TEST)) as board:
        classifier = make(classes=["a", "c", "b"]).fit(X, NAMES, callback=board)
    (written,) = events(tmp_path / "events" / "calibration")
    assert {tag for tag, step in written if step == 0} == ONCE
    written = {key: value for key, value in written.items() if key[0] not in ONCE}
    tags, steps = {tag for tag, _ in written}, sorted({step for _, step in written})
    kinds = ("calibration_of_class", "sensitivity_of_class")
    class_tags = {f"{kind}/{k}_{name}" for kind in kinds for k, name in enumerate("abc")}
    every_step = {"objective", "kernel/variance", "kernel/lengthscales", "noise", "confidence", *SCORES, *class_tags}
    at_the_end = {"latent/norm", "latent/scale", "pictures/reliability", "pictures/simplex"}
    at_the_end |= {"pictures/reliability_band"}
    assert tags == every_step | at_the_end
    assert steps == list(range(1, len(steps) + 1))
    assert written.keys() == {(tag, step) for tag in every_step for step in steps} | {
        (tag, steps[-1]) for tag in at_the_end
    }
    last = {tag: float(written[tag, steps[-1]]) for tag in every_step - {"confidence"}}
    kernel = classifier.regressor_.posterior_.kernel
    assert last["objective"] == pytest.approx(classifier.regressor_.objective_ / len(X), rel=1e-5)
    assert last["kernel/variance"] == pytest.approx(float(kernel.variance.numpy()), rel=1e-5)
    assert last["kernel/lengthscales"] == pytest.approx(float(kernel.lengthscales.numpy()), rel=1e-5)
    numbers = np.array([classifier.classes_.tolist().index(name) for name in NAMES_TEST])
    report = ds.evaluation.report(numbers, classifier.predict_proba(X_TEST)).as_dict()
    for tag in SCORES:
        assert last[tag] == pytest.approx(report[tag.split("/")[1]], rel=1e-4, abs=1e-6), tag
    _, _, png = written["pictures/reliability", steps[-1]]
    assert Image.open(io.BytesIO(png)).size > (200, 200)
    assert written["objective", 1] > last["objective"]


@pytest.mark.slow
def test_lengthscales_are_written_as_scalars_or_histogram(tmp_path):
    board = ds.monitoring.CalibrationBoard(tmp_path / "few", every=2)
    make(ard=True, inference="collapsed", inducing=10).fit(X, NAMES, callback=board)
    (written,) = events(tmp_path / "few" / "calibration")  # flushed, though not closed
    assert {tag for tag, _ in written} >= {f"kernel/lengthscales/{index}" for index in range(13)}
    wide = np.concatenate([X, X[:, :5] ** 2], axis=1)
    with ds.monitoring.CalibrationBoard(tmp_path / "many") as board:
        make(ard=True, max_iter=2).fit(wide, NAMES, callback=board)
    (written,) = events(tmp_path / "many" / "calibration")
    assert written["kernel/lengthscales", 1].shape[1] == 3  # left, right, count
    assert written["kernel/lengthscales", 1][:, 2].sum() == 18


def test_every_fit_writes_a_new_file(tmp_path):
    board = ds.monitoring.CalibrationBoard(tmp_path)
    for _ in range(2):
        make(max_iter=2).fit(X, NAMES, callback=board)
    board.close()
    with ds.monitoring.CalibrationBoard(tmp_path) as again:
        make(max_iter=1).fit(X, NAMES, callback=again)
    first, second, third = events(tmp_path / "calibration")
    assert {key: value for key, value in first.items() if key[1]} == {k: v for k, v in second.items() if k[1]}
    assert {step for tag, step in third if tag not in ONCE} == {1}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["exact", "stochastic", "categorical"])
def test_classifier_of_a_step_does_not_change(name, tmp_path):
    steps = []
    classifier = {"exact": make(max_iter=3), **few_epochs(2)}[name]

    def watch(step):
        step.classifier().save(tmp_path / f"{step.iteration}.npz")
        steps.append((step.classifier(), step.classifier().predict_proba(X_TEST)))

    classifier.fit(X, NAMES, callback=watch)
    for number, (kept, p) in enumerate(steps, start=1):
        np.testing.assert_array_equal(kept.predict_proba(X_TEST), p)
        saved = ds.load(tmp_path / f"{number}.npz")
        np.testing.assert_allclose(saved.predict_proba(X_TEST), p, rtol=1e-12)
    assert np.abs(steps[0][1] - steps[-1][1]).max() > 1e-3
    np.testing.assert_allclose(steps[-1][1], classifier.predict_proba(X_TEST), rtol=1e-6)


@pytest.fixture(scope="module")
def whole_fits(tmp_path_factory):
    """Events of every iteration, by the name of a classifier."""
    return functools.cache(lambda name: written_of(name, 1, tmp_path_factory.mktemp(name)))


def written_of(name, every, folder):
    data = (X_TEST, NAMES_TEST)
    with ds.monitoring.CalibrationBoard(folder, data, every=every, pictures=name == "stochastic") as board:
        few_epochs(EPOCHS[name])[name].fit(X, NAMES, callback=board)
    (written,) = events(folder / "calibration")
    return written


EPOCHS = {"stochastic": 4, "categorical": 3}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "every", "iterations"),
    [("stochastic", 2, {1, 3, 4}), ("categorical", 5, {1, 3})],
)
def test_last_iteration_is_always_written(name, every, iterations, whole_fits, tmp_path):
    whole, some = whole_fits(name), written_of(name, every, tmp_path)
    assert {step for tag, step in whole if tag not in ONCE} == set(range(1, EPOCHS[name] + 1))
    assert {tag for tag, _ in whole} >= {
        "objective",
        "kernel/variance",
        "score/negative_log_likelihood",
        "score/accuracy",
    }
    assert some.keys() == {(tag, step) for tag, step in whole if step in iterations | {0}}
    for key, value in some.items():
        if key[0].startswith("pictures/") or key[0] in ONCE:
            continue  # round-off may move a point
        np.testing.assert_allclose(value, whole[key], rtol=1e-6)


def test_failing_board_keeps_the_fit():
    class Board:
        def __call__(self, step):
            pass

        def fit_ended(self, classifier):
            raise OSError("no space left")

    classifier = make(max_iter=2)
    with pytest.raises(OSError, match="no space left"):
        classifier.fit(X, NAMES, callback=Board())
    assert classifier.predict_proba(X_TEST).shape == (len(X_TEST), 3)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["exact", "categorical"])
def test_kept_step_returns_the_classifier_of_its_iteration(name):
    classifier, steps, made = {"exact": make(max_iter=2), **few_epochs(2)}[name], [], []

    def watch(step):
        steps.append(step)
        made.append(step.classifier().predict_proba(X_TEST))

    classifier.fit(X, NAMES, callback=watch)
    for step, p in zip(steps, made, strict=True):
        np.testing.assert_array_equal(step.classifier().predict_proba(X_TEST), p)
    np.testing.assert_allclose(made[-1], classifier.predict_proba(X_TEST), rtol=1e-6)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"every": 0}, ValueError, r"every must.*found 0"),
        ({"every": 1.5}, ValueError, r"every must.*found 1\.5"),
        ({"validation_data": X}, TypeError, r"validation_data must.*found ndarray"),
        (
            {"validation_data": (X, NAMES[1:])},
            ValueError,
            r"validation_data must.*found x of shape \(89, 13\) and y of shape \(88,\)",
        ),
        (
            {"validation_data": (X, ["d"] * len(X))},
            ValueError,
            r"labels of validation_data must.*found 'd' in row 0",
        ),
    ],
)
def test_invalid_argument_raises(arguments, error, message, tmp_path):
    with pytest.raises(error, match=message):
        make().fit(X, NAMES, callback=ds.monitoring.CalibrationBoard(tmp_path, **arguments))


def test_unwritable_folder_raises(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match="log_dir is not a folder that can be written"):
        ds.monitoring.CalibrationBoard(tmp_path / "file")
