"""Training that diverges gives a loss of NaN, so that Keras' callbacks can stop it: no step raises an error."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import deepsimplex as ds

Y = np.arange(20) % 3
X = (np.eye(3, 4)[Y] + np.random.default_rng(0).normal(size=(20, 4))).astype("float32")
HEADS = {
    "variational": {"head": {"name": "variational", "inducing": 5}},
    "given features": {
        "head": {"name": "variational", "inducing": 5, "covariance": "diagonal", "normalize_features": False}
    },
    "prototypes": {"head": {"name": "prototypes", "prototypes_per_class": 2}},
    **{covariance: {"covariance": covariance} for covariance in ("isotropic", "diagonal", "full")},
}
LOSSES = {
    "latent": ds.losses.LatentNLL,
    "composition": ds.losses.Composition,
    "hybrid": ds.losses.Hybrid,
    "cross-entropy": lambda: "sparse_categorical_crossentropy",
    "squared error": lambda: "mse",
    "focal": keras.losses.CategoricalFocalCrossentropy,
}
METRICS = [ds.metrics.ExpectedCalibrationError, ds.metrics.BrierScore, ds.metrics.NegativeLogLikelihood]
CASES = [(head, "latent") for head in HEADS] + [("isotropic", loss) for loss in LOSSES if loss != "latent"]


@pytest.mark.parametrize(("head", "loss"), CASES)
def test_diverged_training_is_stopped(head, loss, capsys):
    keras.utils.set_random_seed(0)
    backbone = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3)])
    model = ds.SimplexClassifier(backbone, "vertices", 3, **HEADS[head])
    metrics = ["accuracy", *(metric() for metric in METRICS if loss == "latent")]  # which see no loss
    model.compile(keras.optimizers.SGD(1e30), LOSSES[loss](), metrics, run_eagerly=True)
    callbacks = [keras.callbacks.TerminateOnNaN()]
    history = model.fit(X, Y, batch_size=20, epochs=4, verbose=0, callbacks=callbacks, validation_data=(X, Y))
    assert len(history.epoch) < 4
    assert not np.isfinite(history.history["loss"][-1])
    assert np.isnan(model.predict(X, verbose=0)).all()
    assert "Invalid loss, terminating training" in capsys.readouterr().out


READOUTS = {
    "argmax": ds.readout.ArgmaxReadout,
    "quasi Monte Carlo": lambda: ds.readout.ArgmaxReadout(method="quasi_monte_carlo"),
    "Monte Carlo": lambda: ds.readout.ArgmaxReadout(method="monte_carlo"),
    "softmax": ds.readout.SoftmaxReadout,
}


@pytest.mark.parametrize("part", ["loc", "scale"])
@pytest.mark.parametrize("readout", READOUTS)
def test_probabilities_of_nan_are_nan(readout, part):
    layer = READOUTS[readout]()
    for scale in (np.ones((3, 1)), np.ones((3, 2)), np.tile(np.eye(2), (3, 1, 1))):
        latent = {"loc": np.ones((3, 2), "float32"), "scale": scale.astype("float32")}
        latent[part][1] = np.nan
        p = np.asarray(layer({name: tf.constant(value) for name, value in latent.items()}))
        np.testing.assert_array_equal(np.isnan(p), [[False] * 3, [True] * 3, [False] * 3])
