"""Gaussian-process classifiers as files and SavedModels: in other processes, damaged, with TensorFlow alone."""

import pickle
from pathlib import Path

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import load_wine
from sklearn.exceptions import NotFittedError

import deepsimplex as ds
from deepsimplex._utils import archives
from deepsimplex.estimators.saving import KEY
from deepsimplex.gp.gpflow_kernels import gpflow
from tests.fresh_process import run

pytestmark = pytest.mark.slow  # classifiers of every kind are fitted for all of them

X, y = load_wine(return_X_y=True)
# What a SavedModel takes is float32: the same numbers for both.
X = X.astype("float32").astype("float64")
X, X_TEST, y = X[::2], X[1::2][:37], y[::2]
NAMES = np.array(["rouge", "blanc", "rosé"])[y]
few = y < 2


def make(target="ilr", *arguments, **options):
    return ds.SimplexGaussianProcess(target, *arguments, **{"max_iter": 2, "random_state": 3, **options})


CLASSIFIERS = {
    "closed form": lambda: ds.SimplexGaussianProcess().fit(X, NAMES),
    "ilr": lambda: make(ds.targets.ILR(0.95)).fit(X, y),
    "texts": lambda: make("one_hot", kernel="matern32", ard=True, noise="learned").fit(X, NAMES),
    "two classes": lambda: make("ilr", readout="argmax").fit(X[few], NAMES[few].astype(object)),
    "an absent class": lambda: make("ilr", classes=np.array([2, 0, 1])).fit(X[few], y[few]),
    "mean": lambda: make({"name": "mean", "targets": ["ilr", ds.targets.ILR(0.9)]}, classes=("a", "b", "c")).fit(
        X, np.eye(3)[y]
    ),
    "dirichlet": lambda: make("dirichlet", kernel="matern52").fit(X, y),
    "casimac": lambda: make(ds.targets.CASIMAC("cityblock"), "collapsed", inducing=15).fit(X, y),
    "collapsed": lambda: make("dirichlet", "collapsed", inducing=X[::9]).fit(X, y),
    "stochastic": lambda: make("ilr", "stochastic", inducing=10, separate_inducing=True, epochs=2, batch_size=40).fit(
        X, y
    ),
    "softmax link": lambda: ds.CategoricalGaussianProcess("softmax", inducing=10, epochs=2, batch_size=40).fit(
        X, NAMES
    ),
    "categorical": lambda: ds.CategoricalGaussianProcess(
        mixing=True, inducing=15, separate_inducing=True, epochs=8, batch_size=20
    ).fit(X, y),
}
SERVED = ["closed form", "two classes", "dirichlet", "casimac", "stochastic", "softmax link", "categorical"]
# In closed form, inner products with inducing rows are served in single precision.
RTOL = {"closed form": 1e-5}
# Of one latent dimension and of more, of Gaussian and of categorical likelihoods.
DECIDING = ["two classes", "an absent class", "categorical"]


@pytest.fixture(scope="module")
def classifiers():
    return {name: make() for name, make in CLASSIFIERS.items()}


@pytest.fixture(scope="module")
def place(classifiers, tmp_path_factory) -> Path:
    """A folder with every classifier, saved and exported, and the samples of the test."""
    place = tmp_path_factory.mktemp("saved")
    for name, classifier in classifiers.items():
        classifier.save(place / f"{name}.npz")
    for name in SERVED:
        classifiers[name].export(place / "served" / name)
    np.save(place / "x.npy", X_TEST)
    return place


SERVE_THEN_LOAD = """
import pathlib, sys
deciding = sys.argv[1:]
# So that TensorFlow, too, finds no Keras.
blocked = ("deepsimplex", "keras", "gpflow", "tensorflow_probability", "tf_keras")
imported = {name: sys.modules.pop(name) for name in blocked if name in sys.modules}
assert "deepsimplex" not in imported
sys.modules.update(dict.fromkeys(blocked))
import numpy as np, tensorflow as tf
X = np.load("x.npy")
x = X.astype("float32")
for path in pathlib.Path("served").iterdir():
    signature = tf.saved_model.load(str(path)).signatures["serving_default"]
    assert list(signature.structured_input_signature[1]) == ["features"]
    parts = [signature(features=tf.constant(rows)) for rows in (x[:1], x[1:])]
    np.savez(
        pathlib.Path("outputs") / (path.name + ".npz"),
        **{name: np.concatenate([part[name].numpy() for part in parts]) for name in parts[0]},
    )
for name in blocked:
    del sys.modules[name]
sys.modules.update(imported)
import deepsimplex as ds
for path in sorted(pathlib.Path(".").glob("*.npz")):
    loaded = ds.load(path)
    np.savez(
        pathlib.Path("loaded") / path.name,
        p=loaded.predict_proba(X), loc=loaded.predict_latent(X).loc, labels=np.asarray(loaded.predict(X), dtype=str),
        **({"decision": loaded.decision_function(X)} if path.stem in deciding else {}),
    )
"""


@pytest.fixture(scope="module")
def elsewhere(place) -> Path:
    """The same folder with what another process predicts, first with TensorFlow alone and then from the files."""
    for name in ("loaded", "outputs"):
        (place / name).mkdir()
    run(SERVE_THEN_LOAD, *DECIDING, folder=place)
    return place


def test_fresh_process_predicts_the_same(classifiers, elsewhere):
    for name, classifier in classifiers.items():
        loaded = np.load(elsewhere / "loaded" / f"{name}.npz")
        np.testing.assert_allclose(loaded["p"], classifier.predict_proba(X_TEST), rtol=1e-12, err_msg=name)
        if name in DECIDING:
            np.testing.assert_allclose(loaded["decision"], classifier.decision_function(X_TEST), rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(loaded["loc"], classifier.predict_latent(X_TEST).loc, rtol=1e-10, atol=1e-12)
        np.testing.assert_array_equal(loaded["labels"], classifier.predict(X_TEST).astype(str))


def test_saved_model_predicts_the_same_with_tensorflow_only(classifiers, elsewhere):
    for name in SERVED:
        classifier, outputs = classifiers[name], np.load(elsewhere / "outputs" / f"{name}.npz")
        assert sorted(outputs) == ["class_id", "class_probabilities", "latent_mean", "latent_scale"]
        p, latent = classifier.predict_proba(X_TEST), classifier.predict_latent(X_TEST)
        rtol = RTOL.get(name, 1e-6)
        np.testing.assert_allclose(outputs["class_probabilities"], p, rtol=rtol, err_msg=name)
        np.testing.assert_array_equal(outputs["class_id"], p.argmax(axis=1))
        np.testing.assert_allclose(outputs["latent_mean"], latent.loc, rtol=rtol, atol=1e-9)
        np.testing.assert_allclose(outputs["latent_scale"], latent.scale, rtol=rtol)


@pytest.mark.parametrize("name", SERVED)
def test_load_served_loads_estimators(name, classifiers, place):
    classifier, served = classifiers[name], ds.export.load_served(place / "served" / name)
    assert served.class_names == [str(label) for label in classifier.classes_]
    p = served.predict(X_TEST)["class_probabilities"]
    np.testing.assert_allclose(p, classifier.predict_proba(X_TEST), rtol=RTOL.get(name, 1e-6))


@pytest.mark.parametrize(
    "name", ["texts", "an absent class", "mean", "casimac", "collapsed", "stochastic", "softmax link", "categorical"]
)
def test_loaded_classifiers_can_be_cloned_and_fitted(name, classifiers, place):
    classifier, loaded = classifiers[name], ds.load(place / f"{name}.npz")
    assert type(loaded) is type(classifier)
    assert repr(loaded.get_params()) == repr(classifier.get_params())
    assert loaded.classes_.dtype == classifier.classes_.dtype
    np.testing.assert_array_equal(loaded.classes_, classifier.classes_)
    if isinstance(classifier, ds.SimplexGaussianProcess):
        assert loaded.regressor_.objective_ == classifier.regressor_.objective_
        assert loaded.target_.get_config() == classifier.target_.get_config()
        np.testing.assert_array_equal(loaded.target_.scores_, classifier.target_.scores_)
    if isinstance(classifier, ds.CategoricalGaussianProcess):
        assert loaded.regressor_.std_factor_ == classifier.regressor_.std_factor_ < 1.0
    data = (X[few], y[few]) if len(set(y[few])) == len(classifier.classes_) else (X, classifier.classes_[y])
    again = [clone(one).fit(*data).predict_proba(X_TEST) for one in (classifier, loaded)]
    np.testing.assert_array_equal(*again)
    copied = pickle.loads(pickle.dumps(loaded))
    np.testing.assert_allclose(copied.predict_proba(X_TEST), loaded.predict_proba(X_TEST), rtol=1e-10)


def test_loaded_intervals_are_equal(classifiers, place):
    expected = np.stack(classifiers["ilr"].class_intervals(X_TEST[:5]))
    intervals = np.stack(ds.load(place / "ilr.npz").class_intervals(X_TEST[:5]))
    np.testing.assert_allclose(intervals, expected, rtol=1e-9)


def test_casimac_target_is_saved_without_samples(place):
    target = ds.load(place / "casimac.npz").target_
    assert target.num_classes_ == 3
    with pytest.raises(ValueError, match="do not carry them"):
        target.transform(X_TEST, y[:37])


def test_feature_names_are_saved(tmp_path):
    classifier = make(max_iter=0).fit(X[:, :2], y)
    classifier.feature_names_in_ = np.array(["alcohol", "malic acid"], dtype=object)  # as of a data frame
    classifier.save(tmp_path / "named.npz")
    loaded = ds.load(tmp_path / "named.npz")
    assert loaded.feature_names_in_.dtype == object
    np.testing.assert_array_equal(loaded.feature_names_in_, classifier.feature_names_in_)


def test_other_fitted_attributes_are_saved(tmp_path):
    """Later classifiers may have other fitted attributes."""
    classifier = make(max_iter=0).fit(X, y)
    left = {"found_": {0.9: -1.5, None: float("inf"), "all": (1, [True, "two"])}, "chosen_": np.float64(0.9)}
    vars(classifier).update(left)
    classifier.save(tmp_path / "left.npz")
    loaded = ds.load(tmp_path / "left.npz")
    assert {key: getattr(loaded, key) for key in left} == left
    classifier.found_ = {(0, 1): object()}
    with pytest.raises(ValueError, match=r"found_\[.*\] cannot be saved: .* found a object"):
        classifier.save(tmp_path / "left.npz")


def cannot_be_saved():
    texts = np.array(["2020-01-01", "2021-01-01", "2022-01-01"])
    yield "filepath must end in .npz", make(max_iter=0).fit(X, y), "model.keras"
    yield "kernel is a Matern12 object", make(max_iter=0, kernel=gpflow.kernels.Matern12()).fit(X, y), "model.npz"
    yield (
        "kernel is a SquaredExponential object",
        make(max_iter=0, kernel=gpflow.kernels.SquaredExponential(active_dims=[0])).fit(X, y),
        "model.npz",
    )
    yield (
        "kernel is a .* object, which arrays cannot hold: .* by name",
        make(max_iter=0, kernel=gpflow.kernels.SquaredExponential()).fit(X, y),
        "model.npz",
    )
    yield (
        "random_state cannot be saved: .* number",
        make(max_iter=0, random_state=np.random.RandomState(0)).fit(X, y),
        "model.npz",
    )
    yield (
        "classes_ cannot be saved: .* datetime64",
        make(max_iter=0).fit(X, texts.astype("datetime64[D]")[y]),
        "model.npz",
    )
    yield "found a Own, which pickle", Own("ilr", max_iter=0).fit(X, y), "model.npz"


class Own(ds.SimplexGaussianProcess):
    pass


def test_unsupported_values_raise_and_keep_earlier_file(tmp_path):
    for message, classifier, name in cannot_be_saved():
        (tmp_path / name).write_text("earlier")
        with pytest.raises(ValueError, match=message):
            classifier.save(tmp_path / name)
        assert (tmp_path / name).read_text() == "earlier"
        latent = pickle.loads(pickle.dumps(classifier)).predict_latent(X_TEST)
        np.testing.assert_allclose(latent.loc, classifier.predict_latent(X_TEST).loc, rtol=1e-9)


def test_custom_kernels_are_exported(tmp_path):
    classifier = make(max_iter=0, kernel=gpflow.kernels.Matern12(active_dims=[0, 3]) + gpflow.kernels.Constant())
    classifier.fit(X, y)
    classifier.export(tmp_path / "served", class_names=["a", "b", "c"])
    served = ds.export.load_served(tmp_path / "served")
    assert served.class_names == ["a", "b", "c"]
    p = served.predict(X_TEST)["class_probabilities"]
    np.testing.assert_allclose(p, classifier.predict_proba(X_TEST), rtol=1e-6)
    for names in (["a", "b"], ["a", "b", "a"], "abc"):
        with pytest.raises(ValueError, match="class_names must hold 3 different names, one for each column of prob"):
            classifier.export(tmp_path / "served", class_names=names)


def test_save_expands_home_folder(tmp_path, monkeypatch):
    (tmp_path / "home").mkdir()
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path / "elsewhere")
    classifier = make(max_iter=0).fit(X, y)
    classifier.save("~/models/wine.npz")
    classifier.export("~/models/wine")
    p = classifier.predict_proba(X_TEST)
    np.testing.assert_allclose(ds.load("~/models/wine.npz").predict_proba(X_TEST), p, rtol=1e-12)
    served = ds.export.load_served("~/models/wine").predict(X_TEST)
    np.testing.assert_allclose(served["class_probabilities"], p, rtol=1e-6)
    assert sorted(path.name for path in (tmp_path / "home" / "models").iterdir()) == ["wine", "wine.npz"]
    assert not list((tmp_path / "elsewhere").iterdir())


def test_save_before_fit_raises(tmp_path):
    for write in (make().save, make().export):
        with pytest.raises(NotFittedError):
            write(tmp_path / "model.npz")
    assert not list(tmp_path.iterdir())


def cut_short(path):
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def altered(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def from_another_version(path):
    arrays = archives.load_arrays(path, KEY)
    archives.save_arrays(path, "deepsimplex classifier 0", arrays)


DAMAGED, OTHER_ARRAYS = "is damaged, or no classifier", "is an archive of x.npy"
DAMAGES = {
    "cut short": (cut_short, DAMAGED),
    "altered": (altered, DAMAGED),
    "of another version": (from_another_version, DAMAGED),
    "empty": (lambda path: path.write_bytes(b""), DAMAGED),
    "text": (lambda path: path.write_text("no archive"), "is a text file"),
    "other arrays": (lambda path: np.savez(path, x=np.zeros(3)), OTHER_ARRAYS),
    "objects": (lambda path: np.savez(path, x=np.array([object], dtype=object)), OTHER_ARRAYS),
    "one array": (lambda path: np.save(path.open("wb"), np.zeros(3)), "is a single array"),
}


@pytest.mark.parametrize(("damage", "message"), DAMAGES.values(), ids=DAMAGES)
@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_invalid_file_raises(damage, message, place, tmp_path):
    path = tmp_path / "damaged.npz"
    path.write_bytes((place / "ilr.npz").read_bytes())
    ds.load(path)
    damage(path)
    with pytest.raises(ValueError, match=rf"filepath: '.*damaged.npz' {message}"):
        ds.load(path)


def test_missing_file_raises(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"there is no classifier at .*nothing\.npz"):
        ds.load(tmp_path / "nothing.npz")


def test_unknown_parameters_raise(classifiers, tmp_path, monkeypatch):
    parameters = {**classifiers["ilr"].get_params(deep=False), "depth": 3}
    monkeypatch.setattr(classifiers["ilr"], "get_params", lambda deep: parameters, raising=False)
    classifiers["ilr"].save(tmp_path / "later.npz")
    with pytest.raises(
        ValueError, match=r"later.npz' is damaged, or no .* has no parameters depth of SimplexGaussianProcess"
    ):
        ds.load(tmp_path / "later.npz")
