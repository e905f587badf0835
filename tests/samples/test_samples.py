"""Samples of every kind: the same rows, draws and epochs from arrays, files and streams."""

import h5py
import keras
import numpy as np
import pandas as pd
import pytest
import tensorflow as tf

from deepsimplex.latent import LatentGaussian
from deepsimplex.samples import ArraySamples, Labels, Reservoir, Samples, is_stream

N = 300
X = np.random.default_rng(0).normal(size=(N, 4)).astype("float32")
y = np.random.default_rng(1).integers(0, 3, N)


class Batches(keras.utils.PyDataset):
    def __len__(self):
        return -(-N // 32)

    def __getitem__(self, index):
        rows = slice(32 * index, 32 * index + 32)
        return X[rows], y[rows]


def dataset(size=32, *columns):
    return tf.data.Dataset.from_tensor_slices(columns or (X, y)).batch(size)


def generator(size=32):
    return ((X[i : i + size], y[i : i + size]) for i in range(0, N, size))


@pytest.fixture(params=["array", "memory map", "h5py", "frame", "tf.data", "PyDataset", "generator"])
def samples(request, tmp_path):
    np.save(tmp_path / "X.npy", X)
    with h5py.File(tmp_path / "X.h5", "w") as file:
        yield {
            "array": lambda: Samples.of(X, y),
            "memory map": lambda: Samples.of(np.load(tmp_path / "X.npy", mmap_mode="r"), y),
            "h5py": lambda: Samples.of(file.create_dataset("X", data=X), y),
            "frame": lambda: Samples.of(pd.DataFrame(X), y),
            "tf.data": lambda: Samples.of(dataset()),
            "PyDataset": lambda: Samples.of(Batches()),
            "generator": lambda: Samples.of(generator()),
        }[request.param]()


@pytest.mark.parametrize("most", [7, 100, 1000, None])
def test_blocks_hold_all_rows_in_order(samples, most):
    blocks = list(samples.blocks(most))
    assert most is None or max(len(x) for x, _ in blocks) <= most
    for values, expected in zip(zip(*blocks, strict=True), (X, y), strict=True):
        np.testing.assert_array_equal(np.concatenate(values), expected)
    assert samples.num_rows == N


def test_spec_has_shapes_and_dtypes(samples):
    x, labels = samples.spec
    assert tuple(x.shape[1:]) == (4,)
    assert x.dtype == tf.float32
    assert tuple(labels.shape[1:]) == ()
    assert len(list(samples.blocks(50))) >= 6  # nothing is lost


def test_draws_are_the_same_from_every_container(samples):
    drawn = samples.draw(20, seed=0)
    expected = ArraySamples(X, y).draw(20, seed=0)
    np.testing.assert_array_equal(drawn.rows, expected.rows)
    np.testing.assert_array_equal(drawn.columns[0], X[drawn.rows])
    np.testing.assert_array_equal(drawn.columns[1], y[drawn.rows])
    assert drawn.given == N
    assert len(drawn.rows) == 20
    assert (np.diff(drawn.rows) > 0).all()


def test_draw_of_more_rows_than_given_takes_all(samples):
    np.testing.assert_array_equal(samples.draw(None, seed=0).rows, np.arange(N))


def test_map_is_applied_to_every_read(samples):
    mapped = samples.map(lambda x, y: (2 * x, y)).map(lambda x, y: (x + 1, y))
    np.testing.assert_allclose(mapped.draw(N, seed=0).columns[0], 2 * X + 1)


def test_every_row_is_drawn_as_often():
    rows = ArraySamples(np.arange(50))
    draws = np.concatenate([rows.draw(10, seed).columns[0] for seed in range(600)])
    assert np.abs(np.bincount(draws) - 120).max() < 4.5 * np.sqrt(120 * 0.8)


def test_reservoir_keeps_rows_of_rare_classes():
    rare = np.where(np.arange(N) == 123, 7, 0)
    reservoir = Reservoir(40, seed=0, per_class=1)
    for rows in np.array_split(np.arange(N), 7):
        reservoir.add((X[rows], rare[rows]), rare[rows])
    (x, labels), rows, given = reservoir.drawn()
    assert len(rows) in (40, 41)
    assert given == N
    np.testing.assert_array_equal(x, X[rows])
    np.testing.assert_array_equal(x[labels == 7], X[123:124])


def test_minibatches_of_arrays_are_shuffled():
    samples = Samples.of(X, y)
    assert samples.num_batches(64) == 4
    order = np.random.default_rng(0).permutation(N)
    for number, (x, labels) in enumerate(samples.batches(64, np.random.default_rng(0))):
        np.testing.assert_array_equal(x, X[order[64 * number : 64 * (number + 1)]])
        np.testing.assert_array_equal(labels, y[order[64 * number : 64 * (number + 1)]])


def test_unused_rows_are_never_read():
    used = np.arange(N) % 3 > 0
    samples = ArraySamples(np.where(used[:, None], X, np.nan), y, used=used)
    np.testing.assert_array_equal(samples.whole()[0], X[used])
    np.testing.assert_array_equal(samples.part(np.array([0, 5, 9])).whole()[1], y[used][[0, 5, 9]])
    assert np.isfinite(samples.draw(50, 0).columns[0]).all()


@pytest.mark.parametrize(("most", "sizes"), [(100, [96, 96, 96, 12]), (20, [20, 12] * 9 + [12]), (1000, [300])])
def test_small_batches_of_a_stream_are_joined_and_large_ones_are_cut(most, sizes):
    assert [len(x) for x, _ in Samples.of(dataset()).blocks(most)] == sizes


def test_stream_with_other_rows_in_a_later_pass_raises():
    sizes = iter([N, N - 1])
    changing = tf.data.Dataset.from_generator(
        lambda: iter(range(next(sizes))), output_signature=tf.TensorSpec([], tf.int64)
    ).batch(32)
    samples = Samples.of(changing, name="X")
    samples.whole()
    with pytest.raises(ValueError, match=r"^X must.*found 300 rows at first and then 299"):
        samples.whole()


@pytest.mark.parametrize("error", [TypeError, ValueError])
def test_errors_in_a_batch_name_its_number(error):
    def convert(x, y):
        if (x == X[70]).all(axis=1).any():
            raise error("no sample\nof mine")
        return x, y

    with pytest.raises(error, match=r"^no sample \(in batch 2 of the tf.data.Dataset X\)$"):
        Samples.of(dataset(), name="X").map(convert).whole()


def test_endless_stream_is_read_only_with_steps():
    samples = Samples.of(dataset().repeat())
    assert sum(len(x) for x, _ in samples.read(steps=3)) == 96
    with pytest.raises(ValueError, match="x must be a finite stream"):
        samples.whole()


@pytest.mark.parametrize(
    ("x", "labels", "error", "match"),
    [
        (X, y[1:], ValueError, r"x and y must.*found 300 and 299"),
        (X, 3, ValueError, r"x and y must.*found 300 and a single number"),
        ("X", y, ValueError, r"^x must.*found str"),
        (np.array(["2020-01-01"] * 2, "M8[D]"), [0, 1], TypeError, r"^x must.*found dtype datetime64"),
        (np.array(["a", None], object), [0, 1], TypeError, r"^x must.*found None in row 1"),
        (np.array([["a", 2.5]] * 2, object), [0, 1], TypeError, r"^x must.*found 2.5 in row 0"),
        (np.array([{}, None], object), [0, 1], TypeError, r"^x must.*found objects: {}"),
        (np.array([X, X[1:], None], object), [0, 1, 2], ValueError, r"^x must.*found an array of objects"),
        (np.full((2, 2), np.nan), [0, 1], ValueError, "x must be finite"),
        ((X, X[1:]), y, ValueError, r"the inputs of x must.*found 300, 299"),
        (np.empty((0, 3)), [], ValueError, r"^x must.*found shape \[0, 3\]"),
        (dataset(), y, ValueError, "y must not be given beside batches"),
        (dataset(32, X), None, ValueError, "a tf.data.Dataset must yield"),
        (X, None, ValueError, "y must be given"),
    ],
)
def test_invalid_samples_raise(x, labels, error, match):
    with pytest.raises(error, match=match):
        Samples.of(x, labels, labeled=True)


def test_epochs_of_arrays_are_drawn_in_the_given_order():
    class Reversed:
        def order(self, rows):
            return np.arange(rows)[::-1]

    reverse = Reversed()
    batches = Samples.of({"a": X, "b": X.astype("float64")}, y, np.ones(N)).for_keras(128, reverse.order)
    x, labels, weights = (np.concatenate(column) for column in zip(*_leaves(batches), strict=True))
    np.testing.assert_array_equal(x, X[::-1])
    np.testing.assert_array_equal(labels, y[::-1])
    assert weights.dtype == np.float32
    assert batches.cardinality() == 3


def _leaves(batches):
    return [(x["b"].numpy(), y.numpy(), w.numpy()) for x, y, w in batches]


def test_with_labels_replaces_labels_of_every_container(samples):
    def training_labels(labels, x=None):
        numbers = Labels.of(labels, 3).values
        return {"label": numbers}, np.where(numbers == 1, 2.0, 1.0).astype("float32")

    batches = samples.with_labels(training_labels, np.eye(3)).for_keras()
    if isinstance(batches, keras.utils.PyDataset):
        batches = [batches[index] for index in range(batches.num_batches)]
    columns = zip(*((x, y["label"], weight) for x, y, weight in batches), strict=True)
    x, labels, weights = (np.concatenate(column) for column in columns)
    np.testing.assert_array_equal(x, X)
    np.testing.assert_array_equal(labels, y)
    np.testing.assert_array_equal(weights, np.where(y == 1, 2, 1))


def test_checked_stream_raises_for_nan():
    broken = np.where(np.arange(N)[:, None] == 40, np.nan, X)
    for source in (dataset(32, broken), (broken[i : i + 32] for i in range(0, N, 32))):
        with pytest.raises((ValueError, tf.errors.InvalidArgumentError), match="x must be finite"):
            list(Samples.of(source).checked(lambda x: None).for_keras())


def test_split_takes_last_rows():
    train, held_out = Samples.of(X, LatentGaussian(X, np.ones((N, 1)))).split(0.25)
    assert (train.num_rows, held_out.num_rows) == (225, 75)
    np.testing.assert_array_equal(held_out.columns[1]["loc"], X[225:])
    with pytest.raises(ValueError, match="validation_split"):
        Samples.of(X).split(0.0)


def test_streams_are_recognized():
    assert is_stream(dataset())
    assert is_stream(Batches())
    assert is_stream(generator())
    assert not is_stream([X])
    assert Samples.of(dataset()).is_repeatable
    assert not Samples.of(generator()).is_repeatable


def test_draws_of_frames_are_frames():
    frame = pd.DataFrame({"a": np.arange(5.0), "b": np.arange(5)})
    (x, _), rows, _ = ArraySamples(frame, np.arange(5)).draw(2, seed=0)
    pd.testing.assert_frame_equal(x, frame.iloc[rows])


@pytest.mark.parametrize("samples", [ArraySamples(X, used=np.arange(N) > 5), Samples.of(X).map(lambda x: (2 * x,))])
def test_batches_for_keras_of_changed_samples_raise(samples):
    with pytest.raises(ValueError, match="map and used"):
        samples.for_keras()
