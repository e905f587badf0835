"""Models and samples are freed when no longer needed: fits in a loop do not fill the memory."""

import gc
import weakref

import keras
import numpy as np
import pytest
import tensorflow as tf

import deepsimplex as ds

X = np.random.default_rng(0).normal(size=(60, 4)).astype("float32")
y = np.argmax(X[:, :3], axis=1)


def network():
    return keras.Sequential([keras.Input((4,)), keras.layers.Dense(4)])


def classifier(target="ilr", loss=None, **arguments):
    model = ds.SimplexClassifier(network(), target, class_names=list("abc"), **{"head": "gaussian", **arguments})
    model.compile("sgd", loss)
    return model


def fit_arrays():
    model = classifier()
    model.fit(X, y, verbose=0)
    model.predict(X, verbose=0)
    return model


def fit_stream():
    model = classifier("vertices", "sparse_categorical_crossentropy")
    model.fit(tf.data.Dataset.from_tensor_slices((X, y)).batch(30), verbose=0)
    return model


def fit_casimac():
    model = classifier("casimac", ds.losses.Composition(0.98), head={"name": "prototypes", "prototypes_per_class": 1})
    model.fit(X, y, validation_split=0.5, verbose=0)
    model.calibrate(X, y)
    return model


@pytest.mark.slow
@pytest.mark.parametrize("fit", [fit_arrays, fit_stream, fit_casimac])
def test_deleted_classifiers_are_garbage_collected(fit):
    kept = weakref.ref(fit())
    gc.collect()
    assert kept() is None


@pytest.mark.parametrize(
    "gaussian_process",
    [
        ds.SimplexGaussianProcess("ilr", max_iter=2),
        ds.SimplexGaussianProcess("ilr", inference="collapsed", inducing=5, max_iter=2),
        ds.SimplexGaussianProcess("ilr", inference="stochastic", inducing=5, epochs=1),
        ds.CategoricalGaussianProcess(inducing=5, epochs=1),
    ],
    ids=["exact", "collapsed", "stochastic", "categorical"],
)
def test_gaussian_process_fits_do_not_leak_objects(gaussian_process):
    def objects_after(fits):
        for _ in range(fits):
            gaussian_process.fit(X, y).predict_proba(X)
        gc.collect()
        return len(gc.get_objects())

    after_some = objects_after(2)
    assert objects_after(3) - after_some < 30
