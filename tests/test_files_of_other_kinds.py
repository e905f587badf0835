"""Readers name whole files of another kind for what they are, and only other ones damaged."""

import joblib
import keras
import numpy as np
import pytest

import deepsimplex as ds
from deepsimplex.classifier.keras_files import load_model
from deepsimplex.experiments import load_predictions, monitor, save_predictions
from deepsimplex.experiments.drift_state import load_drift

X, Y = np.random.default_rng(0).normal(size=(20, 2)), np.arange(20) % 2
P = np.full((20, 2), 0.5)

KINDS = {
    "gp.npz": "is a saved classifier: deepsimplex.load loads it, 'deepsimplex evaluate FILE",
    "after.npz": "is what was fitted after training, without its classifier: AfterTraining.load",
    "predictions.npz": "is a file of predictions: 'deepsimplex report FILE'",
    "drift.npz": "is a state of deepsimplex monitor",
    "model.keras": "is a Keras model: deepsimplex.load loads it",
    "latents.npz": "is an archive of loc.npy, scale.npy",
    "array.npz": "is a single array: numpy.load reads it",
    "pickled.npz": "is a pickle, no file of deepsimplex: joblib.load reads what joblib.dump wrote",
    "pipe.joblib": "is a pickle, no file of deepsimplex",
    "small.joblib": "is a pickle, no file of deepsimplex",
    "text.npz": "is a text file",
    "weights.h5": "is an HDF5 file: keras.models.load_model",
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A file of every kind, and their first halves."""
    folder = tmp_path_factory.mktemp("files")
    classifier = ds.GLVQ(max_iter=2).fit(X, Y)
    classifier.save(folder / "gp.npz")
    ds.AfterTraining(classes=["a", "b"]).conformalize(P, ["a", "b"] * 10).save(folder / "after.npz")
    save_predictions(folder / "predictions.npz", Y, P)
    monitor(folder / "predictions.npz", [folder / "predictions.npz"], state=folder / "drift.npz")
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    model.save(folder / "model.keras")
    model.save_weights(folder / "model.weights.h5")
    (folder / "model.weights.h5").rename(folder / "weights.h5")
    np.savez(folder / "latents.npz", loc=X, scale=X)
    with (folder / "array.npz").open("wb") as file:
        np.save(file, X)
    joblib.dump(classifier, folder / "pickled.npz")
    joblib.dump(classifier, folder / "pipe.joblib")
    joblib.dump(classifier, folder / "small.joblib", compress=3)
    (folder / "text.npz").write_text("größe,kind\n1,a\n")
    for name in KINDS:
        content = (folder / name).read_bytes()
        (folder / f"half_{name}").write_bytes(content[: len(content) // 2])
    return folder


READERS = {
    "load": (lambda path: load_model(path) if path.suffix == ".keras" else ds.load(path), ("gp.npz", "model.keras")),
    "load_model": (load_model, ("model.keras",)),
    "AfterTraining.load": (ds.AfterTraining.load, ("after.npz",)),
    "load_predictions": (load_predictions, ("predictions.npz",)),
    "monitor": (monitor, ("predictions.npz",)),
    "load_drift": (load_drift, ("drift.npz",)),
}


@pytest.mark.parametrize("reader", READERS)
def test_files_of_other_kinds_are_named(reader, folder):
    read, accepted = READERS[reader]
    for name, message in KINDS.items():
        path = folder / name
        if name in accepted:
            read(path)
        elif reader == "monitor" and path.suffix != ".npz":
            continue  # its suffix is refused
        else:
            with pytest.raises(ValueError) as raised:  # noqa: PT011
                read(path)
            assert message in str(raised.value)
            assert "damaged" not in str(raised.value)


@pytest.mark.parametrize("reader", READERS)
def test_halves_of_archives_are_damaged(reader, folder):
    read, _ = READERS[reader]
    for name in ("gp.npz", "after.npz", "predictions.npz", "drift.npz", "latents.npz"):
        with pytest.raises(ValueError, match="damaged"):
            read(folder / f"half_{name}")
