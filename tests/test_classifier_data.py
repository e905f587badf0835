"""Data for fit other than arrays and tf.data: PyDatasets and generators, for every kind of target and head."""

import gc
import itertools
import time
import weakref

import keras
import numpy as np
import pandas
import pytest
import tensorflow as tf

import deepsimplex as ds
from deepsimplex.classifier.model import SeededEpochs


class Batches(keras.utils.PyDataset):
    """Batches of arrays, as users write them."""

    def __init__(self, x, y, weight=None, size=100, **kwargs):
        super().__init__(**kwargs)
        self.x, self.y, self.weight, self.size = x, y, weight, size
        self.ended = 0

    def __len__(self):
        return -(-len(self.x) // self.size)

    def __getitem__(self, index):
        rows = slice(index * self.size, (index + 1) * self.size)
        batch = (self.x[rows], self.y[rows])
        return batch if self.weight is None else (*batch, self.weight[rows])

    def on_epoch_end(self):
        self.ended += 1


def generator(x, y, size=100):
    while True:
        for start in range(0, len(x), size):
            yield x[start : start + size], y[start : start + size]


def make(target="vertices", loss=None, **options):
    keras.utils.set_random_seed(0)
    model = ds.SimplexClassifier(ds.backbones.mlp([16]), target, 10, **{"head": "gaussian", **options})
    # A few steps each: tracing them would take longer, and Adam half of each step.
    model.compile(keras.optimizers.SGD(0.05), loss, metrics=["accuracy"], run_eagerly=True)
    return model


def assert_same_weights(one, other):
    for left, right in zip(one.trainable_weights, other.trainable_weights, strict=True):
        np.testing.assert_allclose(left, right, atol=1e-5)


@pytest.fixture(scope="module")
def small(digits):
    (x, y), (x_test, y_test) = digits
    return (x[:200], y[:200]), (x_test[:60], y_test[:60])


@pytest.mark.slow
def test_streams_train_like_arrays(small):
    """One-hot labels here, class numbers below."""

    def form(y):
        return np.eye(10, dtype="float32")[y]

    (x, y), (x_test, y_test) = small
    arrays, from_dataset, from_generator = (make("ilr") for _ in range(3))
    expected = arrays.fit(x, form(y), epochs=2, batch_size=100, shuffle=False, verbose=0).history
    dataset = Batches(x, form(y))
    history = from_dataset.fit(
        dataset, epochs=2, shuffle=False, verbose=0, validation_data=Batches(x_test, y_test)
    ).history
    from_generator.fit(generator(x, form(y)), epochs=2, steps_per_epoch=2, verbose=0)
    assert_same_weights(from_dataset, arrays)
    assert_same_weights(from_generator, arrays)
    assert dataset.ended >= 2
    assert history["loss"] == pytest.approx(expected["loss"], rel=1e-4)
    assert history["val_loss"][-1] == pytest.approx(arrays.evaluate(x_test, y_test, verbose=0)[0], rel=1e-4)
    assert from_dataset.evaluate(Batches(x_test, y_test), verbose=0) == pytest.approx(
        arrays.evaluate(x_test, y_test, verbose=0), rel=1e-4
    )
    assert from_dataset.predict(Batches(x_test, y_test), verbose=0).shape == (60, 10)


@pytest.mark.slow
def test_distance_targets_train_from_streams_as_from_arrays(small):
    (x, y), _ = small
    arrays, *others = (make("casimac") for _ in range(6))
    arrays.fit(x, y, epochs=2, batch_size=100, shuffle=False, verbose=0)
    dataset = tf.data.Dataset.from_tensor_slices((x, y)).batch(100)
    streams = [
        (Batches(x, np.eye(10, dtype="float32")[y]), {"shuffle": False}),
        (Batches(x, y, workers=2, use_multiprocessing=True), {"shuffle": False}),
        (itertools.islice(generator(x, y), 2), {"shuffle": False}),
        (dataset, {"shuffle": False}),
        (dataset, {"shuffle": False, "steps_per_epoch": 2}),
    ]
    for model, (stream, options) in zip(others, streams, strict=True):
        model.fit(stream, epochs=2, verbose=0, **options)
        assert_same_weights(model, arrays)


class Trained(keras.layers.Layer):
    """Identity that notes the first feature of the samples of every training batch."""

    def __init__(self):
        super().__init__()
        self.batches = []

    def call(self, x, training=None):
        if training and hasattr(x, "numpy"):
            self.batches.append(x.numpy()[:, 0])
        return x


def noting(target="vertices"):
    layer = Trained()
    network = keras.Sequential([layer, keras.layers.Dense(2)])
    model = ds.SimplexClassifier(network, target, num_classes=2, head="gaussian")
    model.compile(keras.optimizers.SGD(0.01), run_eagerly=True)
    return model, layer.batches


@pytest.fixture
def numbered():
    """Samples that are known by their first feature."""
    x = np.stack([np.arange(80.0), np.random.default_rng(0).normal(size=80)], axis=1).astype("float32")
    return x, np.arange(80) % 2


@pytest.mark.parametrize(
    ("target", "workers"),
    [
        ("casimac", {}),
        ("vertices", {"workers": 3}),
        ("casimac", {"workers": 3}),
        ("vertices", {"workers": 2, "use_multiprocessing": True}),
    ],
)
def test_every_epoch_of_a_py_dataset_has_all_batches(target, workers, numbered, monkeypatch):
    """However late the order is drawn."""
    order = SeededEpochs.order

    def late(self, *arguments):
        time.sleep(0.02)
        return order(self, *arguments)

    monkeypatch.setattr(SeededEpochs, "order", late)
    model, batches = noting(target)
    model.fit(Batches(*numbered, size=16, **workers), epochs=3, verbose=0)
    epochs = np.array(batches).reshape(3, 80)
    for epoch in epochs:
        np.testing.assert_array_equal(np.sort(epoch), np.arange(80))
    assert len({tuple(epoch) for epoch in epochs}) == 3


@pytest.mark.parametrize("workers", [{}, {"workers": 2, "use_multiprocessing": True}])
def test_passes_of_a_py_dataset_may_take_several_epochs(workers, numbered):
    model, batches = noting()
    model.fit(Batches(*numbered, size=16, **workers), epochs=5, steps_per_epoch=3, verbose=0)
    for epoch in np.array(batches).reshape(3, 80):
        np.testing.assert_array_equal(np.sort(epoch), np.arange(80))


def noisy(x):
    return x + np.random.default_rng().normal(size=x.shape).astype("float32")


class AugmentedBatches(Batches):
    def __getitem__(self, index):
        x, y = super().__getitem__(index)
        return noisy(x), y


def mapped(x, y):
    dataset = tf.data.Dataset.from_tensor_slices((x, y)).batch(20)
    # Not a function of TensorFlow, which begins anew with every epoch once a seed was set.
    return dataset.map(lambda x, y: (tf.ensure_shape(tf.numpy_function(noisy, [x], tf.float32), [None, 2]), y))


class OtherBatches(Batches):
    """Half of the samples, the other half in the next epoch."""

    def __len__(self):
        return super().__len__() // 2

    def __getitem__(self, index):
        return super().__getitem__(index + len(self) * (self.ended % 2))


def shuffled(x, y):
    return tf.data.Dataset.from_tensor_slices((x, y)).shuffle(80)


CHANGING = {
    "map": mapped,
    "py_dataset": lambda x, y: AugmentedBatches(x, y, size=20),
    "threads": lambda x, y: AugmentedBatches(x, y, size=20, workers=2),
    "processes": lambda x, y: AugmentedBatches(x, y, size=20, workers=2, use_multiprocessing=True),
    "epochs": lambda x, y: OtherBatches(x, y, size=20),
    "drop_remainder": lambda x, y: shuffled(x, y).batch(30, drop_remainder=True),
}
ENDLESS = {
    "shuffled": lambda x, y: shuffled(x, y).repeat().batch(10),
    "map": lambda x, y: mapped(x, y).repeat(),
    "generator": lambda x, y: generator(x, y, 10),
    "augmented_generator": lambda x, y: ((noisy(x), y) for x, y in generator(x, y, 10)),
}


@pytest.mark.parametrize("make_stream", CHANGING.values(), ids=CHANGING)
def test_streams_of_changing_samples_with_distance_target_raise(make_stream, numbered):
    """Training on those of one pass would leave out all others; targets of labels see every batch."""
    model, _ = noting("casimac")
    for steps in (None, 2):
        with pytest.raises(ValueError, match=r"x must yield the same samples.*in a second pass.*'vertices'"):
            model.fit(make_stream(*numbered), epochs=3, steps_per_epoch=steps, verbose=0)
    model, batches = noting()
    model.fit(make_stream(*numbered), epochs=2, verbose=0)
    assert len(np.unique(np.concatenate(batches))) > 60


@pytest.mark.parametrize("make_stream", ENDLESS.values(), ids=ENDLESS)
def test_endless_streams_with_distance_target_raise(make_stream, numbered):
    """Their first batches are no training samples for all epochs."""
    model, _ = noting("casimac")
    with pytest.raises(ValueError, match=r"x must be a finite stream.*repeat\(\).*'vertices'"):
        model.fit(make_stream(*numbered), epochs=8, steps_per_epoch=2, verbose=0)


@pytest.mark.parametrize("steps", [None, 2])
@pytest.mark.parametrize("kind", ["data_set", "py_dataset"])
def test_distance_targets_train_on_all_samples_of_a_stream(kind, steps, numbered):
    model, batches = noting("casimac")
    stream = shuffled(*numbered).batch(10) if kind == "data_set" else Batches(*numbered, size=10)
    epochs = 8 if steps else 2
    model.fit(stream, epochs=epochs, steps_per_epoch=steps, verbose=0)
    assert len(np.concatenate(batches)) == epochs * (20 if steps else 80)
    np.testing.assert_array_equal(np.unique(np.concatenate(batches)), np.arange(80))
    expected = ds.targets.CASIMAC().fit(*numbered)
    np.testing.assert_allclose(model.target.transform(*numbered).loc, expected.transform(*numbered).loc, rtol=1e-5)


@pytest.mark.parametrize("target", ["casimac", ds.targets.Mean(["casimac", "vertices"])])
def test_soft_labels_with_distance_target_raise_and_name_what_takes_them(target, numbered):
    """Mixup, smoothing and distillation: their classes alone would be other labels."""
    x, y = numbered
    soft = np.float32(0.8) * np.eye(2, dtype="float32")[y] + np.float32(0.1)
    named = r"y must name one class per sample.*'vertices', 'ilr', 'dirichlet', 'one_hot'.*categorical_crossentropy"
    model, _ = noting(target)
    dataset = tf.data.Dataset.from_tensor_slices((x, soft)).batch(40)
    for data in ((x, soft), (dataset,), (Batches(x, soft, size=10),)):
        with pytest.raises(ValueError, match=named):
            model.fit(*data, steps_per_epoch=2, verbose=0)
    for chosen, loss in ((target, "categorical_crossentropy"), ("vertices", None), ("ilr", None), ("one_hot", None)):
        model, batches = noting(chosen)
        model.compile(loss=loss, run_eagerly=True)
        model.fit(dataset, verbose=0)
        assert len(batches) == 2


@pytest.mark.slow
def test_streams_with_sample_weights_and_class_weight(small):
    (x, y), _ = small
    weights = np.where(y == 3, 5.0, 1.0).astype("float32")
    arrays, weighted, by_class = make(), make(), make()
    arrays.fit(x, y, epochs=1, batch_size=100, shuffle=False, verbose=0, sample_weight=weights)
    weighted.fit(Batches(x, y, weights), epochs=1, shuffle=False, verbose=0)
    by_class.fit(Batches(x, y), epochs=1, shuffle=False, verbose=0, class_weight={3: 5.0})
    assert_same_weights(weighted, arrays)
    assert_same_weights(by_class, arrays)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("head", "kind"), [*[("variational", kind) for kind in (Batches, generator, "tf.data")], ("prototypes", Batches)]
)
def test_heads_adapt_to_streams(head, kind, small):
    (x, y), _ = small
    model = make("vertices", "sparse_categorical_crossentropy", head={"name": head, **_FEW[head]})
    streams = {"tf.data": tf.data.Dataset.from_tensor_slices((x, y)).batch(100)}
    stream = streams[kind] if isinstance(kind, str) else kind(x, y)
    options = {"steps_per_epoch": 2} if kind is generator else {}
    history = model.fit(stream, epochs=2, verbose=0, **options).history
    assert model.head.adapted
    assert history["loss"][-1] < history["loss"][0]
    if head == "variational":
        assert float(model.head.sample_count) == len(x)


_FEW = {"variational": {"inducing": 20}, "prototypes": {"prototypes_per_class": 1}}


@pytest.mark.slow
def test_composition_tau_of_streams_loses_no_batches(small):
    (x, y), _ = small
    soft = (0.9 * np.eye(10)[y] + 0.01).astype("float32")
    arrays, from_dataset, from_generator, from_labels = (make(loss=ds.losses.Composition(0.8)) for _ in range(4))
    arrays.fit(x, soft, epochs=2, batch_size=100, shuffle=False, verbose=0)
    from_dataset.fit(Batches(x, soft), epochs=2, shuffle=False, verbose=0)
    from_generator.fit(generator(x, soft), epochs=2, steps_per_epoch=2, verbose=0)
    for model in (from_dataset, from_generator):
        assert model.training_loss.tau == pytest.approx(arrays.training_loss.tau, rel=1e-5)
        assert_same_weights(model, arrays)
    from_labels.fit(generator(x, y), epochs=1, steps_per_epoch=2, verbose=0)
    hard = make(loss=ds.losses.Composition(0.8))
    hard.fit(x, y, epochs=1, batch_size=100, shuffle=False, verbose=0)
    assert_same_weights(from_labels, hard)


@pytest.mark.slow
def test_endless_streams_validate_with_steps(small):
    (x, y), (x_test, y_test) = small
    model = make("casimac")
    history = model.fit(
        x, y, epochs=1, verbose=0, validation_data=generator(x_test, y_test, 20), validation_steps=3
    ).history
    expected = model.evaluate(x_test, y_test, verbose=0)
    assert history["val_loss"][-1] == pytest.approx(expected[0], rel=1e-4)
    assert model.evaluate(generator(x_test, y_test, 20), steps=3, verbose=0) == pytest.approx(expected, rel=1e-4)


@pytest.mark.slow
def test_seed_determines_order_of_py_dataset(small):
    (x, y), _ = small
    one, other, another = make(), make(), make(seed=3)
    for model in (one, other, another):
        model.fit(Batches(x, y, size=50), epochs=2, verbose=0)
    for left, right in zip(one.get_weights(), other.get_weights(), strict=True):
        np.testing.assert_array_equal(left, right)
    assert np.abs(one.get_weights()[0] - another.get_weights()[0]).max() > 1e-5


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ([np.nan] * 200, "must be finite and not negative; found nan in row 0"),
        ([-1.0] * 200, "must be finite and not negative; found -1.0 in row 0"),
        (np.ones((200, 2)), r"must have shape \[200\]"),
        (np.ma.masked_less(np.arange(200.0), 3), "must not be masked"),
    ],
)
def test_invalid_sample_weight_raises(weights, message, small):
    (x, y), _ = small
    with pytest.raises(ValueError, match=f"sample_weight {message}"):
        make().fit(x, y, sample_weight=weights, verbose=0)


def test_generator_without_steps_raises(small):
    (x, y), _ = small
    with pytest.raises(ValueError, match="steps_per_epoch must be given with a generator"):
        make(head="variational").fit(generator(x, y), verbose=0)


@pytest.mark.slow
def test_calibrate_with_stream(small):
    (x, y), (x_test, y_test) = small
    model = make()
    model.fit(x, y, epochs=2, verbose=0)
    expected = model.calibrate(x_test, y_test, "temperature").calibration.temperature_
    assert model.calibrate(Batches(x_test, y_test), method="temperature").calibration.temperature_ == pytest.approx(
        expected
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"y": [1]}, "y must not be given beside batches"),
        ({"validation_split": 0.1}, "validation_split must not be given beside batches"),
    ],
)
def test_arguments_contained_in_streams_raise(arguments, message, small):
    (x, y), _ = small
    with pytest.raises(ValueError, match=message):
        make().fit(Batches(x, y), verbose=0, **arguments)
    with pytest.raises(ValueError, match=r"call compile\(\) before fit"):
        ds.SimplexClassifier(ds.backbones.mlp([4]), "ilr", 10, head="gaussian").fit(x, y)


@pytest.mark.slow
@pytest.mark.parametrize("target", ["vertices", "casimac"])
def test_memory_map_trains_like_array(tmp_path, target):
    """Without a copy of all of it: its batches are read from the file."""
    (x, y), _ = ds.datasets.load("digits")
    x, y = np.round(255 * x[:200] / x.max()).astype(np.uint8), y[:200]
    file = np.lib.format.open_memmap(tmp_path / "x.npy", mode="w+", dtype=x.dtype, shape=x.shape)
    file[:] = x
    outcomes = []
    for samples in (x, np.load(tmp_path / "x.npy", mmap_mode="r")):
        keras.utils.set_random_seed(0)
        backbone = keras.Sequential([keras.Input((8, 8)), keras.layers.Rescaling(1 / 255), keras.layers.Flatten()])
        model = ds.SimplexClassifier(backbone, target, 10, head="gaussian")
        loss = None if target == "casimac" else "sparse_categorical_crossentropy"
        model.compile("sgd", loss, run_eagerly=True)
        model.fit(samples, y, epochs=2, batch_size=64, verbose=0)
        predicted = model.predict(samples, batch_size=64, verbose=0)
        outcomes.append([*model.get_weights(), predicted, model.fit_density(samples, y).familiarity(samples[:50])])
    for array, mapped in zip(*outcomes, strict=True):
        np.testing.assert_array_equal(array, mapped)
    assert isinstance(samples, np.memmap)


def test_predict_memory_maps_of_several_inputs_and_byte_orders(tmp_path, few):
    x, y = few[0]
    swapped = np.lib.format.open_memmap(tmp_path / "x.npy", mode="w+", dtype=">f4", shape=x.shape)
    swapped[:] = x
    one, other = keras.Input((8, 8)), keras.Input((8, 8))
    features = keras.layers.Flatten()(keras.layers.Subtract()([one, other]))
    model = ds.SimplexClassifier(keras.Model([one, other], features), "vertices", 10, head="gaussian")
    model.compile("sgd", "sparse_categorical_crossentropy")
    wanted = model.predict([x, x[::-1].copy()], verbose=0)
    for samples in ([swapped, x[::-1].copy()], (swapped, swapped[::-1])):
        np.testing.assert_allclose(model.predict(samples), wanted, rtol=1e-5)
    model.fit([swapped, swapped[::-1]], y, verbose=0)
    assert np.isfinite(model.get_weights()[0]).all()


@pytest.mark.slow
def test_memory_maps_are_closed_after_use(tmp_path, few):
    x, y = few[0]
    np.save(tmp_path / "x.npy", x)
    samples = np.load(tmp_path / "x.npy", mmap_mode="r")
    model = make()
    model.fit(samples, y, verbose=0)
    model.predict(samples, verbose=0)
    kept = weakref.ref(samples)
    del samples
    gc.collect()
    assert kept() is None


FRAME = pandas.DataFrame(np.random.default_rng(0).normal(size=(40, 2)), columns=["length", "width"])
PARITY = (FRAME["length"] > 0).astype(int).to_numpy()


def of_tables(**options):
    """Fitted in closed form."""
    model = ds.SimplexClassifier(keras.Sequential([keras.Input((2,))]), class_names=["odd", "even"], **options)
    model.compile(metrics=["accuracy"])
    return model


@pytest.fixture(scope="module")
def fitted_to_frame():
    model = of_tables()
    model.fit(FRAME, PARITY, verbose=0)
    return model


def test_frames_with_other_columns_raise(fitted_to_frame, tmp_path):
    swapped = FRAME[["width", "length"]]
    with pytest.raises(ValueError, match=r"^x must have the columns of fit"):
        of_tables().fit(FRAME, PARITY, validation_data=(swapped, PARITY))
    fitted_to_frame.save(tmp_path / "model.keras")
    for model in (fitted_to_frame, keras.saving.load_model(tmp_path / "model.keras")):
        assert model.feature_names == ["length", "width"]
        p = model.predict_proba(FRAME)
        np.testing.assert_array_equal(model.predict_proba(FRAME.set_axis([0, 1], axis=1)), p)
        np.testing.assert_array_equal(model.predict_proba(FRAME.to_numpy()), p)
        message = r"^x must have the columns of fit, in their order; found 'width' in place of 'length'. Pass x\[model"
        for method in (model.predict, model.predict_on_batch, model.predict_features, model.predict_latent):
            with pytest.raises(ValueError, match=message):
                method(swapped)
        for method in (model.evaluate, model.calibrate, model.conformalize, model.partial_fit, model.fit):
            with pytest.raises(ValueError, match=message):
                method(swapped, PARITY)
        with pytest.raises(ValueError, match=message):
            model.fit(FRAME, PARITY, validation_data=(swapped, PARITY))
        with pytest.raises(ValueError, match=r"found 'depth' in place of 'width'$"):
            model.predict(FRAME.rename(columns={"width": "depth"}))
        with pytest.raises(ValueError, match=r"found no column 'width'$"):
            model.predict(FRAME[["length"]])
        with pytest.raises(ValueError, match=r"found 'depth'. Pass"):
            model.predict(FRAME.assign(depth=1.0))


def test_given_feature_names_are_those_of_frames():
    model = of_tables(feature_names=["width", "length"])
    with pytest.raises(ValueError, match="found 'length' in place of 'width'"):
        model.fit(FRAME, PARITY)


def test_names_of_classes_as_labels_raise(fitted_to_frame):
    names = np.array(fitted_to_frame.class_names)[PARITY]
    for method in (fitted_to_frame.fit, fitted_to_frame.evaluate, fitted_to_frame.calibrate):
        with pytest.raises(TypeError, match=r"found '(odd|even)' in row 0.*\[model\.class_names\.index\(name\) for"):
            method(FRAME, names)
        with pytest.raises(TypeError, match=r"numpy\.unique.*alphabetical order, which class_names must follow"):
            method(FRAME, np.char.upper(names))
        with pytest.raises(ValueError, match="y must not be missing; found None in row 1"):
            method(FRAME, [names[0], None, *names[2:]])


def test_head_that_is_not_solved_raises():
    model = of_tables()
    x = FRAME.to_numpy()
    for method in (model.predict, model.predict_proba, model.predict_latent, model.predict_on_batch):
        with pytest.raises(ValueError, match=r"predictions need fit first.*not solved"):
            method(x)
    for method in (model.calibrate, model.conformalize):
        with pytest.raises(ValueError, match=r"predictions need fit first.*not solved"):
            method(x, PARITY)
    assert model.predict_features(x).shape == x.shape


def test_predictions_before_fit_do_not_fix_the_batch_size():
    model = of_tables(head="variational")
    assert len(model.predict(FRAME)) == 40
    assert len(model.predict(FRAME[:7])) == 7
