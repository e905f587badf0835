"""Exports of the scikit-learn classifiers, run by TensorFlow and onnxruntime, equal to predict_proba."""

import numpy as np
import onnxruntime
import pytest
from sklearn.datasets import load_wine

import deepsimplex as ds

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore:prototypes .* are the nearest of no")]
CLASSIFIERS = {
    "GLVQ": ds.GLVQ(prototypes_per_class=2),
    "GMLVQ": ds.GMLVQ(rank=3),
    "LGMLVQ": ds.LGMLVQ(rank=3, max_iter=3),
    "LVQ1": ds.LVQ1(max_iter=5),
    "LVQ2": ds.LVQ2(max_iter=5, scale_features=False),
    "GPLVQ": ds.GPLVQ(max_iter=2),
    "network": ds.estimators.SimplexNetworkClassifier({"name": "mlp", "hidden": [4]}, "vertices", epochs=1),
    "an absent class": ds.GLVQ(classes=[0, 1, 2, 3]),
    "an absent class of GPLVQ": ds.GPLVQ(classes=[0, 1, 2, 3], prototypes_per_class=1, max_iter=1),
}


def wine():
    X, y = load_wine(return_X_y=True)
    return X.astype("float32"), y


def assert_served(classifier, X, folder, atol=1e-9):
    """Both formats have the outputs of the classifier."""
    classifier.export(folder / "m.onnx", format="onnx")
    session = onnxruntime.InferenceSession(folder / "m.onnx")
    names = [each.name for each in session.get_outputs()]
    classifier.export(folder / "m", class_names=[f"class {label}" for label in classifier.classes_])
    served = ds.export.load_served(folder / "m")
    assert served.class_names[0] == "class 0"
    latent = ["latent_mean", "latent_scale"] if hasattr(classifier, "predict_latent") else []
    for outputs in (dict(zip(names, session.run(None, {"features": X}), strict=True)), served.predict(X)):
        unknown = ["unknown"] if hasattr(classifier, "known_quantiles_") else []
        assert sorted(outputs) == ["class_id", "class_probabilities", *latent, *unknown]
        p = classifier.predict_proba(X)
        np.testing.assert_allclose(outputs["class_probabilities"], p, atol=atol)
        np.testing.assert_array_equal(outputs["class_id"], p.argmax(axis=1))
        if unknown:
            np.testing.assert_allclose(outputs["unknown"], classifier.unknown_score(X), atol=1e-6)
        if latent:
            np.testing.assert_allclose(outputs["latent_mean"], classifier.predict_latent(X).loc, atol=atol)
            np.testing.assert_allclose(outputs["latent_scale"], classifier.predict_latent(X).scale, atol=atol)


@pytest.mark.parametrize("name", CLASSIFIERS)
def test_classifiers_are_served(name, tmp_path):
    X, y = wine()
    atol = 1e-5 if name == "network" else 1e-9  # layers are float32
    classifier = CLASSIFIERS[name].fit(X[::2], y[::2])
    if name != "network":
        classifier.fit_unknown(X[1::2])
    assert_served(classifier, X[1::2], tmp_path, atol)


@pytest.mark.parametrize("classifier", [ds.GLVQ(classes=[0, 1, 2]), ds.GPLVQ(classes=[0, 1, 2], max_iter=1)])
def test_single_class_is_served(classifier, tmp_path):
    X, y = wine()
    assert_served(classifier.fit(X[y == 0], y[y == 0]).fit_unknown(X[:5]), X[:5], tmp_path)
    assert (classifier.unknown_score(X) == 0).all()  # there is no other class to be near to


@pytest.mark.parametrize("method", ["temperature", "isotonic"])
def test_two_calibrated_classes_are_served(method, tmp_path):
    X, y = wine()
    classifier = ds.GPLVQ(max_iter=1).fit(X[::2], (y[::2] > 0).astype(int))
    assert_served(classifier.calibrate(X[1::2], (y[1::2] > 0).astype(int), method), X[1::2], tmp_path)


def test_scores_at_small_temperature_are_precise(tmp_path):
    """In single precision they would err by 1e-7 / temperature."""
    X, y = wine()
    classifier = ds.GLVQ().fit(X, y)
    classifier.temperature_ = 1e-4
    assert_served(classifier, X, tmp_path)


def test_familiarity_is_served(tmp_path):
    X, y = wine()
    classifier = ds.GLVQ(max_iter=5).fit(X[::2], y[::2]).fit_density(X[::2], y[::2])
    classifier.export(tmp_path / "c.onnx", format="onnx")
    session = onnxruntime.InferenceSession(tmp_path / "c.onnx")
    (served,) = session.run(["familiarity"], {"features": X[1::2].astype("float32")})
    np.testing.assert_allclose(served, classifier.familiarity(X[1::2]), atol=2e-3)


def test_invalid_export_arguments_raise_before_writing(tmp_path):
    X, y = wine()
    classifier = ds.GLVQ()
    with pytest.raises(ValueError, match="not fitted"):
        classifier.export(tmp_path / "m")
    classifier.fit(X, y)
    with pytest.raises(ValueError, match=r"format must.*found 'litert'"):
        classifier.export(tmp_path / "m", format="litert")
    with pytest.raises(ValueError, match="class_names must hold 3 different names"):
        classifier.export(tmp_path / "m", class_names=["a"])
    assert list(tmp_path.iterdir()) == []
