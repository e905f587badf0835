"""Gaussian-process classifiers of rows that do not fit into memory: memory maps and tf.data data sets."""

import re
import tracemalloc

import keras
import numpy as np
import pytest
import tensorflow as tf
from sklearn.exceptions import NotFittedError

import deepsimplex as ds

N = 400
X = np.random.default_rng(0).normal(size=(N, 4)).astype("float32")
y = np.array(["ant", "bee", "cat"])[np.argmax(X[:, :3], axis=1)]
WEIGHTS = np.random.default_rng(1).integers(0, 3, N).astype(float)
SETTINGS = {"inducing": 12, "epochs": 2}


def stochastic(**settings):
    options = {"target": "ilr", "inference": "stochastic", "readout": "argmax"}
    return ds.SimplexGaussianProcess(**options | SETTINGS | settings)


def categorical(**settings):
    return ds.CategoricalGaussianProcess(**SETTINGS | settings)


each_process = pytest.mark.parametrize("make", [stochastic, categorical])


def latents(classifier, features=X):
    """Means and standard deviations, which cost less than probabilities."""
    latent = classifier.predict_latent(features)
    return latent.loc, latent.scale


def dataset(*arrays, size=64):
    return tf.data.Dataset.from_tensor_slices(arrays).batch(size)


class Watched:
    """Rows of an array, of which it is noted how many are read at once."""

    def __init__(self, array):
        self.array, self.shape, self.dtype, self.most = array, array.shape, array.dtype, 0

    def __len__(self):
        return len(self.array)

    def __getitem__(self, rows):
        self.most = max(self.most, np.size(self.array[rows]) // self.shape[1])
        return self.array[rows]


@pytest.fixture
def small_blocks(monkeypatch):
    """At most fifty rows at once."""
    for module in ("_utils.batching", "samples.columns"):
        monkeypatch.setattr(f"deepsimplex.{module}.rows_at_once", lambda columns: 50)
    for module in ("collapsed_bound", "categorical"):
        monkeypatch.setattr(f"deepsimplex.gp.{module}._BUDGET", 50 * 12)


@pytest.mark.slow
@each_process
def test_memory_map_fit_equals_array_fit(make, tmp_path):
    np.save(tmp_path / "X.npy", X)
    mapped = np.load(tmp_path / "X.npy", mmap_mode="r")
    from_array, from_map = (make().fit(x, y, WEIGHTS) for x in (X, mapped))
    for moment, expected in zip(latents(from_map, mapped), latents(from_array, X), strict=True):
        np.testing.assert_array_equal(moment, expected)
    assert from_map.score(mapped, y) == from_array.score(X, y) > 0.8


@pytest.mark.slow
@each_process
def test_rows_are_read_in_blocks_only(make, small_blocks):
    rows, labels, weights = Watched(X[:160]), y[:160], WEIGHTS[:160]
    watched = make(batch_size=25).fit(rows, labels, weights)
    p = watched.predict_proba(rows)
    np.testing.assert_array_equal(watched.predict(rows), watched.classes_[p.argmax(axis=1)])
    from_array = make(batch_size=25).fit(rows.array, labels, weights)
    np.testing.assert_array_equal(latents(watched, rows)[0], latents(from_array, rows.array)[0])
    assert rows.most == 50


@pytest.mark.slow
def test_smoothing_is_selected_in_blocks(small_blocks, monkeypatch):
    monkeypatch.setattr(ds.targets.ILR, "candidates", ds.targets.target.Candidates("smoothing", (0.5, 0.99)))
    rows = Watched(X)
    settings = {"smoothing": "validate", "epochs": 0, "learn_inducing": False}
    classifier = stochastic(**settings).fit(rows, y)
    assert rows.most == 50
    assert len(classifier.smoothing_scores_) == 2
    assert classifier.smoothing_scores_ == stochastic(**settings).fit(X, y).smoothing_scores_


@pytest.mark.slow
def test_fit_uses_less_memory_than_the_rows(tmp_path, monkeypatch):
    """In double precision they are 16 MB."""
    rows = np.lib.format.open_memmap(tmp_path / "X.npy", mode="w+", dtype="float32", shape=(20_000, 100))
    rows[:] = np.random.default_rng(0).normal(size=rows.shape)
    labels = (rows[:, 0] > 0).astype(int)
    monkeypatch.setattr("deepsimplex.gp.scaling.SAMPLE", 1000)
    monkeypatch.setattr("deepsimplex.gp.gpflow_kernels._ROWS", 100)
    for module in ("_utils.batching", "samples.columns"):
        monkeypatch.setattr(f"deepsimplex.{module}.rows_at_once", lambda columns: 1000)
    monkeypatch.setattr("deepsimplex.gp.collapsed_bound._BUDGET", 1000 * 12)
    classifier = stochastic(batch_size=1000, epochs=1).fit(rows[:2000], labels[:2000])  # traces its functions
    tracemalloc.start()
    try:
        classifier.fit(rows, labels).predict(rows)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 8e6


@pytest.mark.slow
def test_single_batch_fit_equals_array_fit():
    """But for the order of the rows, which sums do not have."""
    weighted = dataset(X, y, WEIGHTS, size=N)
    from_dataset = stochastic(epochs=5).fit(weighted)
    from_array = stochastic(epochs=5, batch_size=N).fit(X, y, WEIGHTS)
    np.testing.assert_allclose(latents(from_dataset)[0], latents(from_array)[0], rtol=1e-6, atol=1e-8)
    np.testing.assert_array_equal(from_dataset.classes_, from_array.classes_)
    assert from_dataset.n_features_in_ == 4
    # Without epochs nothing is drawn by batches.
    from_dataset, from_array = categorical(epochs=0).fit(weighted), categorical(epochs=0).fit(X, y, WEIGHTS)
    np.testing.assert_allclose(latents(from_dataset)[0], latents(from_array)[0], rtol=1e-6, atol=1e-8)


@pytest.mark.slow
@each_process
def test_shuffled_batches_with_seed_are_reproducible(make):
    def fitted(*arrays):
        shuffled = tf.data.Dataset.from_tensor_slices(arrays).shuffle(N, seed=1).batch(40)
        return make().fit(shuffled)

    classifier = fitted(X, y)
    assert classifier.score(X, y) > 0.8
    loc, _ = latents(classifier)
    np.testing.assert_array_equal(latents(fitted(X, y))[0], loc)
    classes = np.unique(y, return_inverse=True)[1]
    for labels in (classes[:, None], np.eye(3)[classes]):
        np.testing.assert_allclose(latents(fitted(X, labels))[0], loc, rtol=1e-6, atol=1e-9)


class Batches(keras.utils.PyDataset):
    """The first ``size`` * ``num_batches`` rows in batches."""

    num_batches, size = 5, 64

    def __getitem__(self, index):
        rows = slice(self.size * index, self.size * (index + 1))
        return X[rows], y[rows], WEIGHTS[rows]


@each_process
def test_py_dataset_fit_equals_dataset_fit(make):
    expected = make().fit(dataset(X[:320], y[:320], WEIGHTS[:320]))
    np.testing.assert_array_equal(latents(make().fit(Batches()))[0], latents(expected)[0])


def test_generators_raise():
    with pytest.raises(ValueError, match=r"X must be a finite .* a generator cannot be read again"):
        stochastic().fit(iter([(X, y)]))


@each_process
def test_batches_of_zero_weight_are_ignored(make):
    weights = np.where(np.arange(N) // 64 == 2, 0.0, 1.0)
    used, soft = weights > 0, np.eye(3)[np.unique(y, return_inverse=True)[1]]
    loc, _ = latents(make().fit(dataset(X, soft, weights)))
    np.testing.assert_allclose(latents(make().fit(dataset(X[used], y[used])))[0], loc, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize(
    ("classifier", "arguments", "message"),
    [
        (
            ds.SimplexGaussianProcess("ilr", "exact"),
            {},
            "inference='exact' must have all rows at once; found a stream",
        ),
        (
            ds.SimplexGaussianProcess("ilr", "collapsed"),
            {},
            "inference='collapsed' must have all rows at once",
        ),
        (stochastic(target="casimac"), {}, "target=CASIMAC(distance=Euclidean()) must have all rows at once"),
        (stochastic(smoothing="validate"), {}, "smoothing='validate' must have all rows at once"),
        (stochastic(batch_size=8), {}, "batch_size must not be given beside batches"),
        (categorical(batch_size=8), {}, "batch_size must not be given beside batches"),
        (stochastic(), {"y": y}, "y must not be given beside batches"),
        (categorical(), {"sample_weight": WEIGHTS}, "sample_weight must not be given beside batches"),
    ],
)
def test_settings_that_need_all_rows_raise_before_reading(classifier, arguments, message):
    def unread():
        raise AssertionError("read")
        yield

    signature = (tf.TensorSpec((None, 4), tf.float32), tf.TensorSpec((None,), tf.int64))
    with pytest.raises(ValueError, match=re.escape(message)):
        classifier.fit(tf.data.Dataset.from_generator(unread, output_signature=signature), **arguments)
    with pytest.raises(NotFittedError):
        classifier.predict(X)


def generator(*batches, columns=4, endless=True):
    """A data set of batches as they are; or one of a generator that ends for good."""
    signature = (tf.TensorSpec((None, columns), tf.float32), tf.TensorSpec((None,), tf.int64))
    once = iter(batches)
    return tf.data.Dataset.from_generator(lambda: batches if endless else once, output_signature=signature)


LABELS = np.arange(20) % 2
BATCH = X[:20], LABELS


def damaged(value):
    features = X[:20].copy()
    features[13, 2] = value
    return features, LABELS


BATCH_1 = " (in batch 1 of the tf.data.Dataset X)"
DAMAGED = {
    "NaN": (lambda: generator(BATCH, damaged(np.nan)), r"contains NaN in column 2, first in row 13\..*" + BATCH_1),
    "infinity": (
        lambda: generator(BATCH, damaged(-np.inf)),
        r"contains infinity in column 2, first in row 13\..*" + BATCH_1,
    ),
    "labels missing": (lambda: generator(BATCH, (X[:20], LABELS[:7])), "as many rows; found 20 and 7" + BATCH_1),
    "ragged": (
        lambda: generator(BATCH, (X[:20, :3], LABELS), columns=None),
        "X has 3 features, but .* is expecting 4 features as input." + BATCH_1,
    ),
    "not as promised": (lambda: generator(BATCH, (X[:20, :3], LABELS)), r"of shape \(20, 3\) where .*" + BATCH_1),
    "unknown label": (lambda: generator(BATCH, (X[:20], LABELS + 5)), r"y holds .* not: \[5, 6\], .* row 0" + BATCH_1),
    "NaN label": (lambda: dataset(X, np.where(y == "cat", np.nan, 1.0)), "Input y contains NaN. .in batch 0 of"),
    "continuous labels": (lambda: dataset(X, X[:, 0]), "Unknown label type: continuous.* .in batch 0 of"),
    "negative weights": (lambda: dataset(X, y == "cat", -WEIGHTS), "sample_weight must be finite and not negative"),
    "weights of zero": (lambda: dataset(X, y == "cat", 0 * WEIGHTS), r"^X must.*found 0"),
    "text": (lambda: dataset(np.stack([y] * 4, axis=1), y), r"^X must.*found dtype string"),
    "exhausted": (lambda: generator(BATCH, BATCH, endless=False), r"^X must.*found 40 rows at first and then 0"),
    "empty": (lambda: dataset(X[:0], y[:0]), r"^X must.*found 0"),
    "endless": (lambda: dataset(X, y).repeat(), "X must be a finite tf.data.Dataset"),
    "unlabeled": (lambda: dataset(X), r"^X must.*found \(TensorSpec\(shape=\(None, 4\)"),
    "several inputs": (lambda: dataset({"a": X}, y), r"^X must.*found \(\{'a'"),
    "not batched": (lambda: dataset(X, y).unbatch(), r"^X must.*found shapes \(4,\) and \(\)"),
    "a single feature": (lambda: dataset(WEIGHTS, y), r"^X must.*found shapes \(None,\) and \(None,\)"),
}


@each_process
@pytest.mark.parametrize(("data", "message"), DAMAGED.values(), ids=DAMAGED)
def test_invalid_batches_raise_with_batch_number(make, data, message):
    message = message.replace(BATCH_1, re.escape(BATCH_1))
    with pytest.raises((TypeError, ValueError), match=message) as raised:
        make(classes=[0, 1] if "not: " in message else None).fit(data())
    assert len(str(raised.value).splitlines()) == 1


def test_invalid_rows_raise_with_row_number(small_blocks):
    features = X.copy()
    features[357, 1] = np.nan
    with pytest.raises(ValueError, match="Input X contains NaN in column 1, first in row 357"):
        stochastic().fit(features, y)
    with pytest.raises(ValueError, match=r"y holds labels that classes=.* does not: \['cat'\], the first in row"):
        stochastic(classes=["ant", "bee"]).fit(X, y)
    classifier = stochastic(epochs=0).fit(X, y)
    with pytest.raises(ValueError, match="Input X contains NaN in column 1, first in row 357"):
        classifier.predict(features)
    with pytest.raises(TypeError, match=r"^X must.*found a stream"):
        classifier.predict(dataset(X))


def test_data_sets_in_other_classifiers_raise():
    with pytest.raises(TypeError, match=r"^X must.*found a stream"):
        ds.LVQ1().fit(dataset(X, y), None)
