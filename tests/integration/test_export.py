"""Exported SavedModels: loaded by TensorFlow alone, any batch size, damaged files."""

import json
import shutil
from pathlib import Path

import keras
import numpy as np
import pytest

import deepsimplex as ds
from deepsimplex.export.saved_model import CHECKSUMS
from tests.eager_steps import eagerly
from tests.fresh_process import run

pytestmark = pytest.mark.slow  # classifiers of every kind are fitted for all of them


@pytest.fixture(scope="module")
def data(four):
    (x, y), (x_test, _) = four
    return x[:200], y[:200], x_test[:23]


KINDS = [("casimac", "isotropic"), ("casimac", "diagonal"), ("ilr", "isotropic")]
each_kind = pytest.mark.parametrize("kind", KINDS, ids="-".join)


@pytest.fixture(scope="module")
def classifiers(data) -> dict[tuple[str, str], ds.SimplexClassifier]:
    """A classifier of each readout that is served: exact, sampled, softmax."""
    x, y, _ = data
    models = {}
    for target, covariance in KINDS:
        keras.utils.set_random_seed(0)
        names = ["null", "eins", "zwei", "fünf"]
        model = ds.SimplexClassifier(ds.backbones.mlp([16]), target, 4, covariance=covariance, class_names=names)
        model.compile()
        with eagerly(model):
            model.fit(x, y, epochs=3, batch_size=50, verbose=0)
        models[target, covariance] = model
    return models


@pytest.fixture(scope="module")
def served_models(classifiers, tmp_path_factory) -> dict[tuple[str, str], Path]:
    place = tmp_path_factory.mktemp("served")
    for kind, model in classifiers.items():
        model.export(place / "-".join(kind))
    return {kind: place / "-".join(kind) for kind in classifiers}


@pytest.fixture(scope="module")
def classifier(classifiers):
    """One of them, where any would do: its readout is the exact one, without points."""
    return classifiers["casimac", "isotropic"]


@pytest.fixture(scope="module")
def served(served_models) -> Path:
    return served_models["casimac", "isotropic"]


SERVE_WITH_TENSORFLOW_ALONE = """
import pathlib, sys
class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("deepsimplex", "tensorflow_probability", "gpflow"):
            raise ImportError(name + " is blocked")
sys.meta_path.insert(0, Blocked())
import numpy as np, tensorflow as tf
for path in sys.argv[2:]:
    model = tf.saved_model.load(path)
    signature = model.signatures["serving_default"]
    assert list(signature.structured_input_signature[1]) == ["image"]
    outputs = signature(image=tf.constant(np.load(sys.argv[1])))
    again = signature(image=tf.constant(np.load(sys.argv[1])))
    for name in outputs:
        assert (outputs[name].numpy() == again[name].numpy()).all(), name
    np.savez(pathlib.Path(path).name + ".npz", **{name: value.numpy() for name, value in outputs.items()})
assert "deepsimplex" not in sys.modules
"""


def test_saved_model_runs_with_tensorflow_alone_at_any_batch_size(classifiers, served_models, data, tmp_path):
    x = data[2]
    np.save(tmp_path / "x.npy", x)
    run(SERVE_WITH_TENSORFLOW_ALONE, "x.npy", *served_models.values(), folder=tmp_path)
    for kind, classifier in classifiers.items():
        outputs = np.load(tmp_path / f"{'-'.join(kind)}.npz")
        assert sorted(outputs) == ["class_id", "class_probabilities", "latent_mean", "latent_scale"]
        p = classifier.predict_proba(x)
        np.testing.assert_allclose(outputs["class_probabilities"], p, atol=1e-5)
        np.testing.assert_array_equal(outputs["class_id"], outputs["class_probabilities"].argmax(axis=1))
        latent = classifier.predict_latent(x)
        np.testing.assert_allclose(outputs["latent_mean"], latent.loc, atol=1e-5)
        np.testing.assert_allclose(outputs["latent_scale"], latent.scale, atol=1e-5)


@each_kind
def test_load_served_gives_class_names_and_outputs(kind, classifiers, served_models, data):
    classifier, model = classifiers[kind], ds.export.load_served(served_models[kind])
    assert model.class_names == classifier.class_names
    assert [(name, spec.dtype.name) for name, spec in model.inputs.items()] == [("image", "float32")]
    outputs = model.predict(data[2].astype("float64"))
    np.testing.assert_allclose(outputs["class_probabilities"], classifier.predict_proba(data[2]), atol=1e-5)
    with pytest.raises(ValueError, match="samples must be of dtype float32"):
        model.predict((255 * data[2]).astype("uint8"))


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (
            lambda x: x[:, :7],
            ValueError,
            r"samples must.*found shape \[23, 7, 8\]",
        ),
        (lambda x: x[0], ValueError, r"shape \['N', 8, 8\], as exported; found shape \[8, 8\]"),
        (lambda x: x[:0], ValueError, r"samples must.*found 0"),
        (
            lambda x: np.where(np.arange(23)[:, None, None] == 7, np.nan, x),
            ValueError,
            "finite .* at index 7",
        ),
        (lambda x: 1e300 * (1 + x.astype(float)), ValueError, "finite in float32; found NaN or infinity"),
        (lambda x: x.astype(str), TypeError, r"samples must.*found dtype <U"),
    ],
)
def test_served_model_checks_samples(change, error, message, served, data):
    model = ds.export.load_served(served)
    with pytest.raises(error, match=message):
        model.predict(change(data[2]))


def test_uint8_images_are_scaled(classifier, data, tmp_path):
    pixels = np.round(255 * data[2]).astype("uint8")
    classifier.export(tmp_path / "bytes", input_dtype="uint8")
    outputs = ds.export.load_served(tmp_path / "bytes").predict(pixels)
    expected = classifier.predict_proba(pixels.astype("float32") / 255)
    np.testing.assert_allclose(outputs["class_probabilities"], expected, atol=1e-5)
    with pytest.raises(ValueError, match=r"input_dtype must.*found 'bytes'"):
        classifier.export(tmp_path / "bytes", input_dtype="bytes")


def test_saved_model_cli_runs(served, data, tmp_path):
    """TensorFlow's command, called in this process: another one would spend its time importing TensorFlow."""
    from tensorflow.python.tools import saved_model_cli

    np.save(tmp_path / "x.npy", data[2])
    arguments = [
        *("run", "--dir", str(served), "--tag_set", "serve", "--signature_def", "serving_default"),
        *("--inputs", f"image={tmp_path / 'x.npy'}", "--outdir", str(tmp_path)),
    ]
    saved_model_cli.create_parser().parse_args(arguments).func()
    assert np.load(tmp_path / "class_probabilities.npy").shape == (23, 4)


@pytest.mark.parametrize(
    "damage",
    [
        lambda folder: cut_short(folder / "saved_model.pb"),
        lambda folder: cut_short(next((folder / "variables").glob("*.data*"))),
        lambda folder: (folder / "fingerprint.pb").unlink(),
        lambda folder: cut_short(folder / "assets.extra" / "class_names.json"),
        lambda folder: cut_short(folder / "assets.extra" / "checksums.json"),
    ],
)
def test_damaged_saved_model_raises(damage, served, tmp_path):
    folder = tmp_path / "damaged"
    shutil.copytree(served, folder)
    ds.export.load_served(folder)
    damage(folder)
    with pytest.raises(ValueError, match=r"^filepath: '.*damaged' (is damaged: |has no readable assets.extra)"):
        ds.export.load_served(folder)


def cut_short(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def test_missing_saved_model_raises(tmp_path):
    with pytest.raises(FileNotFoundError, match="there is no SavedModel folder"):
        ds.export.load_served(tmp_path / "nothing")


def test_failed_export_keeps_earlier_saved_model(classifier, served, tmp_path, monkeypatch):
    path = tmp_path / "served"
    shutil.copytree(served, path)
    before = json.loads((path / CHECKSUMS).read_text())

    def full_disk(*arguments, **options):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("deepsimplex.export.saved_model._checksums", full_disk)
        with pytest.raises(OSError, match="No space left"):
            classifier.export(path)
    assert [entry.name for entry in tmp_path.iterdir()] == ["served"]
    assert json.loads((path / CHECKSUMS).read_text()) == before
    ds.export.load_served(path)
    classifier.export(path)  # and replaces it where it can
    ds.export.load_served(path)


def test_export_does_not_replace_other_folders(classifier, tmp_path):
    precious = tmp_path / "folder" / "data" / "precious.txt"
    precious.parent.mkdir(parents=True)
    precious.write_text("precious")
    with pytest.raises(FileExistsError, match="is no SavedModel"):
        classifier.export(tmp_path / "folder")
    with pytest.raises(FileExistsError, match="is no SavedModel"):
        classifier.export(precious)
    assert precious.read_text() == "precious"
    (tmp_path / "empty").mkdir()
    classifier.export(tmp_path / "empty")
    ds.export.load_served(tmp_path / "empty")


@each_kind
def test_predictions_reloaded_and_served_agree(kind, classifiers, served_models, data, tmp_path):
    """predict_proba, the reloaded .keras and the SavedModel: one model, three ways, 1e-5."""
    classifier = classifiers[kind]
    p = classifier.predict_proba(data[2])
    served = ds.export.load_served(served_models[kind]).predict(data[2])
    np.testing.assert_allclose(served["class_probabilities"], p, atol=1e-5)
    classifier.save(tmp_path / "model.keras")
    np.testing.assert_allclose(ds.load(tmp_path / "model.keras")(data[2]), p, atol=1e-5)


def test_model_of_integer_pixels_is_served_unscaled(data, tmp_path):
    x, y, x_test = data
    x, x_test = (np.round(255 * images).astype("uint8") for images in (x, x_test))
    inputs = keras.Input((8, 8))
    scaled = keras.layers.Flatten()(keras.layers.Rescaling(1 / 255)(inputs))
    model = ds.SimplexClassifier(
        keras.Model(inputs, keras.layers.Dense(16, activation="relu")(scaled)), "ilr", 4, head="gaussian"
    )
    model.compile()
    with eagerly(model):
        model.fit(x, y, epochs=1, batch_size=50, verbose=0)
    model.save(tmp_path / "model.keras")
    ds.load(tmp_path / "model.keras").export(tmp_path / "served", input_dtype="uint8")
    served = ds.export.load_served(tmp_path / "served")
    np.testing.assert_allclose(served.predict(x_test)["class_probabilities"], model.predict_proba(x_test), atol=1e-5)
    with pytest.raises(ValueError, match=r"samples must.*found -1"):
        served.predict(x_test.astype(int) - 1 - x_test.min())


def test_mixed_precision_models_are_served(data, tmp_path):
    x, y, x_test = data
    keras.mixed_precision.set_global_policy("mixed_float16")
    try:
        model = ds.SimplexClassifier(ds.backbones.mlp([8]), "casimac", 4, head="gaussian")
        model.compile()
        with eagerly(model):
            model.fit(x, y, epochs=1, batch_size=50, verbose=0)
        p = model.predict_proba(x_test)
        model.export(tmp_path / "served")
    finally:
        keras.mixed_precision.set_global_policy("float32")
    outputs = ds.export.load_served(tmp_path / "served").predict(x_test)
    assert outputs["class_probabilities"].dtype == np.float32
    np.testing.assert_allclose(outputs["class_probabilities"], p, atol=1e-5)


def test_export_expands_home_folder(classifier, data, tmp_path, monkeypatch):
    """And a reloaded model can be exported."""
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path / "elsewhere")
    classifier.save("~/model.keras")
    reloaded = ds.load("~/model.keras")
    reloaded.export("~/served")
    p = classifier.predict_proba(data[2])
    np.testing.assert_allclose(reloaded.predict_proba(data[2]), p, atol=1e-5)
    served = ds.export.load_served("~/served").predict(data[2])
    np.testing.assert_allclose(served["class_probabilities"], p, atol=1e-5)
    with pytest.raises(FileExistsError, match="pass overwrite=True"):
        classifier.save("~/model.keras", overwrite=False)
    assert not list((tmp_path / "elsewhere").iterdir())


def test_export_of_unbuilt_model_raises(tmp_path):
    model = ds.SimplexClassifier(ds.backbones.mlp([4]), "ilr", 3, head="gaussian")
    with pytest.raises(ValueError, match="fit it or call it on one first"):
        model.export(tmp_path / "served")
