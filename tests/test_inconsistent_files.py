"""Files whose parts do not fit one another: one error that names the file, before anything is inflated or predicted."""

import io
import json
import zipfile

import h5py
import keras
import numpy as np
import pytest

import deepsimplex as ds
from deepsimplex._utils import archives
from deepsimplex._utils.archives import check_archive, load_arrays, save_arrays
from deepsimplex.datasets.npz_files import read_npz
from deepsimplex.estimators.saving import KEY
from deepsimplex.experiments import load_predictions

rng = np.random.default_rng(0)
Y = np.arange(30) % 3
X = rng.random((30, 3)) + np.eye(3)[Y]


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """The members of a file of a calibrated model."""
    keras.utils.set_random_seed(0)
    backbone = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)])
    classifier = ds.SimplexClassifier(backbone, "one_hot", 3, head="gaussian")
    path = tmp_path_factory.mktemp("model") / "model.keras"
    classifier.save(path)
    assert ds.load(path).num_classes == 3
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def written(path, members):
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return path


OTHERS = {
    "a layer": keras.saving.serialize_keras_object(keras.layers.Dense(3)),
    "an optimizer": keras.saving.serialize_keras_object(keras.optimizers.SGD()),
    "a class of another module": {"module": "os", "class_name": "system", "config": {}, "registered_name": None},
    "a text": "gaussian",
    "a number": 3,
}


@pytest.mark.parametrize("other", OTHERS)
@pytest.mark.parametrize("name", ["backbone", "target", "head", "readout"])
def test_configuration_with_invalid_part_raises(name, other, model, tmp_path):
    config = json.loads(model["config.json"])
    config["config"][name] = OTHERS[other]
    path = written(tmp_path / "changed.keras", {**model, "config.json": json.dumps(config).encode()})
    with pytest.raises(ValueError, match=r"filepath: '.*changed.keras' holds no model that can be made again \(\w+: "):
        ds.load(path)


@pytest.mark.parametrize("other", OTHERS)
@pytest.mark.parametrize("name", ["density", "calibration", "prediction_sets"])
def test_invalid_component_fitted_after_training_raises(name, other, model, tmp_path):
    content = io.BytesIO(model["model.weights.h5"])
    with h5py.File(content, "r+") as file:
        file["vars/after_training"] = np.frombuffer(json.dumps({name: OTHERS[other]}).encode(), np.uint8)
    path = written(tmp_path / "changed.keras", {**model, "model.weights.h5": content.getvalue()})
    with pytest.raises(ValueError, match=r"filepath: '.*changed.keras' holds no model that can be made again \(\w+: "):
        ds.load(path)


@pytest.mark.parametrize("key", ["dtype", "backbone", "target", "head", "readout"])
def test_configuration_without_part_raises(key, model, tmp_path):
    config = json.loads(model["config.json"])
    del config["config"][key]
    path = written(tmp_path / "changed.keras", {**model, "config.json": json.dumps(config).encode()})
    with pytest.raises(ValueError, match=rf"changed.keras' holds no model .*KeyError: '{key}'"):
        ds.load(path)


@pytest.mark.parametrize("content", [{}, {"config.json": b"{"}, {"config.json": b"[1]"}, {"model.weights.h5": b"HDF"}])
def test_missing_or_unreadable_member_raises(content, model, tmp_path):
    members = {**model, **content} if content else {"config.json": model["config.json"]}
    with pytest.raises(ValueError, match=r"changed.keras' holds no model"):
        ds.load(written(tmp_path / "changed.keras", members))


def missing(file, name):
    del file[name]


def other_shape(file, name):
    shape = file[name].shape
    del file[name]
    file[name] = np.zeros([size + 1 for size in shape] or [2], np.float32)


def strings(file, name):
    del file[name]
    file[name] = np.array([b"text"])


def not_finite(file, name):
    file[name][...] = np.nan


def infinite(file, name):
    file[name][...] = np.inf


@pytest.mark.parametrize("change", [missing, other_shape, strings, not_finite, infinite])
def test_inconsistent_weights_raise(change, model, tmp_path):
    names = []
    with h5py.File(io.BytesIO(model["model.weights.h5"])) as file:
        file.visititems(lambda name, item: names.append(name) if isinstance(item, h5py.Dataset) else None)
    assert len(names) >= 4
    for name in names:
        content = io.BytesIO(model["model.weights.h5"])
        with h5py.File(content, "r+") as file:
            change(file, name)
        path = written(tmp_path / "changed.keras", {**model, "model.weights.h5": content.getvalue()})
        with pytest.raises(ValueError, match=r"changed.keras' holds (no model|weights that are NaN or infinite)"):
            ds.load(path)


CLASSIFIERS = {
    "exact": lambda: ds.SimplexGaussianProcess("ilr", max_iter=1),
    "prototypes": lambda: ds.GLVQ(max_iter=2),
    "variational": lambda: ds.GPLVQ(max_iter=2),
}


@pytest.fixture(scope="module", params=CLASSIFIERS)
def arrays(request, tmp_path_factory):
    """The arrays of a file of an estimator."""
    path = tmp_path_factory.mktemp("estimator") / "estimator.npz"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("warnings.warn", lambda *arguments, **options: None)  # fits of one step
        CLASSIFIERS[request.param]().fit(X, Y).save(path)
    return load_arrays(path, KEY)


def test_inconsistent_arrays_with_valid_checksum_raise(arrays, tmp_path):
    """Changed arrays raise, unless predictions do not depend on them, as on counts of training steps."""
    path = tmp_path / "changed.npz"
    save_arrays(path, KEY, arrays)
    expected = ds.load(path).predict_proba(X)
    refused = 0
    for name, array in arrays.items():
        others = [None, np.array(["text"])]
        if array.dtype.kind == "f":
            others += [np.full_like(array, np.nan), np.concatenate([np.atleast_1d(array)] * 3)]
        for other in others:
            save_arrays(path, KEY, {key: value for key, value in {**arrays, name: other}.items() if value is not None})
            try:
                loaded = ds.load(path)
            except ValueError as error:
                assert str(error).startswith(f"filepath: {str(path)!r} is damaged, or no classifier")  # noqa: PT017
                refused += 1
            else:
                assert name != "about"
                np.testing.assert_array_equal(loaded.predict_proba(X), expected)
    assert refused >= 2 * len(arrays)


def test_inconsistent_description_raises(arrays, tmp_path):
    path = tmp_path / "changed.npz"
    about = json.loads(str(arrays["about"]))
    described = ["{", "[1]", json.dumps({**about, "class": "PCA"}), json.dumps({**about, "class": "Saved"})]
    described += [json.dumps({**about, "attributes": {**about["attributes"], "n_features_in_": 7}})]
    for text in described:
        save_arrays(path, KEY, {**arrays, "about": np.array(text)})
        with pytest.raises(ValueError, match=r"filepath: '.*changed.npz' is damaged, or no classifier"):
            ds.load(path)


READERS = {".keras": ds.load, ".npz": ds.load, "_data.npz": read_npz, "_predictions.npz": load_predictions}


@pytest.mark.parametrize("ending", READERS)
def test_oversized_member_raises_before_decompression(ending, tmp_path, monkeypatch):
    path = tmp_path / f"bomb{ending}"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("x.npy", bytes(10**6))
    monkeypatch.setattr(archives, "ALWAYS", 10**5)
    monkeypatch.setattr(zipfile.ZipFile, "open", None)  # nothing of it is read
    with pytest.raises(ValueError, match=r"bomb.*states 1000000 bytes inflated from"):
        READERS[ending](path)


@pytest.mark.parametrize("ending", [ending for ending in READERS if ending != ".keras"])
def test_header_with_other_size_raises(ending, tmp_path):
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": "<f8", "fortran_order": False, "shape": (10**14,)})
    path = written(tmp_path / f"forged{ending}", {"x.npy": header.getvalue()})
    with pytest.raises(ValueError, match=r"forged.*its header says 80000000000"):
        READERS[ending](path)


def test_valid_archives_are_accepted(tmp_path, monkeypatch):
    monkeypatch.setattr(archives, "ALWAYS", 1000)
    np.savez_compressed(tmp_path / "numbers.npz", x=rng.random((100, 100)), y=np.array(["a", "b"]))
    check_archive(tmp_path / "numbers.npz")
    (tmp_path / "no archive").write_text("text")
    check_archive(tmp_path / "no archive")
