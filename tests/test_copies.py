"""What was fitted is the same in every copy of a classifier, whichever way it is copied."""

import copy
import functools
import io
import pickle
import re

import joblib
import keras
import numpy as np
import pytest
import tensorflow as tf
from sklearn.base import clone
from sklearn.linear_model import BayesianRidge

import deepsimplex as ds

rng = np.random.default_rng(0)
Y = np.arange(60) % 3
X = (np.eye(3, 4)[Y] + rng.normal(size=(60, 4))).astype("float32")
HELD = X + 0.1
BYTES = (20 * np.abs(X)).astype("uint8")


def network():
    return keras.Sequential([keras.Input((4,)), keras.layers.Dense(3)])


def unfitted(head="gaussian", target="vertices", loss=None, frozen=False, **options):
    backbone = network()
    backbone.trainable = not frozen
    model = ds.SimplexClassifier(backbone, target, head=head, class_names=["ant", "bee", "cat"], **options)
    model.compile("sgd", loss, ["accuracy"], run_eagerly=True)
    return model


def make(x=X, density=None, calibration=None, priors=False, sets=None, rule=None, class_weight=None, **options):
    """A fitted classifier, with density, calibration, class frequencies, prediction sets and rule as asked for."""
    model = unfitted(**options)
    model.fit(x, Y, batch_size=60, verbose=0, class_weight=class_weight)
    if density is not None:
        model.fit_density(X, Y, density)
    if calibration is not None:
        model.calibrate(HELD, Y, calibration)
    if priors:
        model.set_priors([1, 2, 3], trained=[20, 20, 20])
    if sets is not None:
        model.conformalize(X, Y, 0.8, sets, by_class=sets == "aps", left_out=model.head.is_closed_form)
    if rule is not None:
        model.set_decision(rule, *((X, Y) if rule.fitted_attributes else ()))
    return model


MODELS = {
    "variational": lambda: make(
        head={"name": "variational", "inducing": 5},
        density="nearest_neighbors",
        calibration="temperature",
        priors=True,
        sets="lac",
        rule=ds.calibration.RiskControl(0.4, "false_negative_rate", positive="bee"),
    ),
    "prototypes": lambda: make(
        head="prototypes",
        density="gaussian",
        calibration="platt",
        sets="aps",
        rule=ds.calibration.ExpectedCost(1 - np.eye(3), abstention=[0.3, 0.2, 0.1]),
    ),
    "ilr": lambda: make(target="ilr", density="relative_mahalanobis", calibration="isotonic"),
    "latent calibration": lambda: make(head="prototypes", calibration="latent", sets="raps"),
    "composition": lambda: make(target="casimac", loss=ds.losses.Composition()),
    "bytes, class weights": lambda: make(x=BYTES, class_weight={0: 2.0, 1: 0.5}),
    "closed form": lambda: make(
        frozen=True, head={"name": "closed_form", "inducing": 40}, calibration="temperature", sets="lac"
    ),
    "embedding": lambda: make(target=ds.targets.CASIMAC(ds.distances.Embedding(network()))),
}


@pytest.fixture(scope="module")
def models():
    made = {}

    def model(name):
        if name not in made:
            keras.utils.set_random_seed(len(made))
            made[name] = MODELS[name]()
        return made[name]

    return model


@pytest.fixture(scope="module")
def seen(models):
    """What a user sees of the model of a name."""
    return functools.cache(lambda name: outputs(models(name)))


def reconstructed(model):
    return type(model).from_config(model.get_config())


def from_json(model):
    return keras.models.model_from_json(model.to_json())


def other(model):
    """A model of the same architecture with other weights, calibrated too."""
    return keras.models.clone_model(model).calibrate(HELD, np.roll(Y, 1), "platt")


def by_weights(make_twin):
    def copied(model, folder):
        twin = make_twin(model)
        twin.set_weights(model.get_weights())
        return twin

    return copied


def by_weights_file(make_twin):
    def copied(model, folder):
        twin = make_twin(model)
        model.save_weights(folder / "model.weights.h5")
        twin.load_weights(folder / "model.weights.h5")
        return twin

    return copied


def by_checkpoint(model, folder):
    twin = keras.models.clone_model(model)
    path = tf.train.Checkpoint(model=model).save(folder / "checkpoint")
    tf.train.Checkpoint(model=twin).restore(path).assert_existing_objects_matched()
    return twin


def saved(model, folder):
    model.save(folder / "model.keras")
    return ds.load(folder / "model.keras")


COPIES = {
    "save": saved,
    "pickle": lambda model, folder: pickle.loads(pickle.dumps(model)),
    "checkpoint": by_checkpoint,
    "deepcopy": lambda model, folder: copy.deepcopy(model),
    **{
        f"set_weights of {f.__name__}": by_weights(f)
        for f in (keras.models.clone_model, reconstructed, from_json, other)
    },
    **{f"load_weights of {f.__name__}": by_weights_file(f) for f in (keras.models.clone_model, other)},
}


def outputs(model):
    """Everything that a user sees of a classifier."""
    seen = {"p": np.asarray(model(X)), "names": model.class_names}
    seen |= {"adapted": model.head.adapted, "pixel scale": float(model.class_probabilities.pixel_scale.numpy())}
    seen |= {"class weights": model.unweighted_readout.class_weight.numpy()}
    seen |= {"tau": float(model.class_probabilities.tau.numpy()), "target": model.target.state()}
    seen["fitted"] = {name: part and part.get_config() for name, part in model.after_training.components().items()}
    seen |= {"head": model.head.state(), "unknown": model.unknown and model.unknown.numbers_}
    if model.prediction_sets is not None:
        seen["sets"] = model.predict_set(X)
    if model.decision_rule is not None:
        seen["decision"] = model.decide(X)
    if model.density is not None:
        seen["familiarity"] = np.asarray(model.density.familiarity(model.backbone(X)))
    return seen


# Two models hold all parts between them; of the others, which hold fewer or others of their kind, one copy for each
# form of their state: configuration and weights, arrays, a file of weights, a checkpoint.
EVERY_WAY = ["variational", "prototypes"]
EVERY_FORM = ["save", "set_weights of clone_model", "load_weights of clone_model", "checkpoint"]


@pytest.mark.parametrize(
    ("name", "way"), [(name, way) for name in MODELS for way in COPIES if name in EVERY_WAY or way in EVERY_FORM]
)
@pytest.mark.filterwarnings("ignore:.*_weights changes the outputs, and removes the calibration")
def test_copies_are_equal(name, way, models, seen, tmp_path):
    model = models(name)
    twin = COPIES[way](model, tmp_path)
    assert twin is not model
    keras.tree.map_structure(np.testing.assert_array_equal, outputs(twin), seen(name))


@pytest.mark.parametrize("name", ["variational", "prototypes"])
@pytest.mark.parametrize("way", ["save", "pickle", "set_weights of clone_model", "load_weights of clone_model"])
def test_head_of_a_copy_is_not_adapted_again(name, way, models, tmp_path, monkeypatch):
    twin = COPIES[way](models(name), tmp_path)
    monkeypatch.setattr(type(twin.head), "adapt", lambda *args, **options: pytest.fail("adapted again"))
    twin.compile(keras.optimizers.SGD(0.0), run_eagerly=True)
    with pytest.warns(UserWarning, match="training changes the"):
        twin.fit(X, Y, batch_size=60, verbose=0)
    for weight, before in zip(twin.trainable_weights, models(name).trainable_weights, strict=True):
        np.testing.assert_array_equal(weight, before)


@pytest.mark.parametrize("copied", [keras.models.clone_model, reconstructed, from_json])
def test_configuration_holds_nothing_fitted(copied, models):
    twin = copied(models("variational"))
    assert not any(twin.after_training.components().values())
    assert not twin.head.adapted
    assert np.isfinite(twin(X)).all()


def test_other_weights_remove_what_was_fitted(models, tmp_path):
    model, plain = other(models("variational")), keras.models.clone_model(models("variational"))
    calibration = model.calibration
    model.set_weights(model.get_weights()[: len(model.weights)])
    assert model.calibration is calibration
    model.save_weights(tmp_path / "calibrated.weights.h5")
    plain.save_weights(tmp_path / "plain.weights.h5")
    with pytest.warns(UserWarning, match="load_weights changes the outputs, and removes the calibration"):
        model.load_weights(tmp_path / "plain.weights.h5")
    assert model.calibration is None
    model.load_weights(tmp_path / "calibrated.weights.h5")
    assert model.calibration.get_config() == calibration.get_config()
    with pytest.warns(UserWarning, match="set_weights changes the outputs, and removes the calibration"):
        model.set_weights(plain.get_weights())
    assert model.calibration is None


@pytest.mark.filterwarnings("ignore:.*could not be loaded")
def test_file_of_a_model_of_other_classes_gives_weights_alone(models, tmp_path):
    models("prototypes").save_weights(tmp_path / "model.weights.h5")
    model = ds.SimplexClassifier(network(), "vertices", 4, head="gaussian")
    model.load_weights(tmp_path / "model.weights.h5", skip_mismatch=True)
    np.testing.assert_array_equal(model.backbone.get_weights()[0], models("prototypes").backbone.get_weights()[0])
    assert model.calibration is None
    assert model(X).shape == (60, 4)


def test_predictions_follow_the_weights(models):
    """Traced functions hold a calibration."""
    model, plain = keras.models.clone_model(models("variational")), unfitted("gaussian")
    model.run_eagerly = False
    before = model.predict(X, verbose=0)
    model.set_weights(models("variational").get_weights())
    assert np.abs(model.predict(X, verbose=0) - before).max() > 0.01
    np.testing.assert_allclose(model.predict(X, verbose=0), models("variational")(X), rtol=1e-5)
    assert len(plain.get_weights()) == len(plain.weights)


@pytest.mark.parametrize("others", [[np.zeros(3)], [np.zeros(3), np.zeros(3)], [np.frombuffer(b'["a"]', np.uint8)]])
def test_weights_with_other_arrays_raise(others):
    model = unfitted()
    before = model.get_weights()
    with pytest.raises(ValueError, match=rf"weights must be what .*; found {len(before) + len(others)} arrays"):
        model.set_weights([weight + 1 for weight in before] + others)
    np.testing.assert_array_equal(model.get_weights()[0], before[0])


def test_weights_of_a_model_without_shapes_raise():
    model = ds.SimplexClassifier(ds.backbones.mlp([2]), "vertices", num_classes=3)
    with pytest.raises(ValueError, match=r"^set_weights needs a model that has seen samples"):
        model.set_weights(unfitted().get_weights())


def test_loss_of_a_copy_is_that_of_the_model(models):
    model = models("composition")
    for twin in (keras.models.clone_model(model), unfitted(target="casimac", loss=ds.losses.Composition())):
        twin.set_weights(model.get_weights())
        with pytest.warns(UserWarning, match=r"the loss 'composition' needs the target's training.* It is left out"):
            assert twin.evaluate(X, Y, verbose=0, return_dict=True).keys() == {"accuracy"}
        twin.target.fit(X, Y)
        assert twin.evaluate(X, Y, verbose=0) == model.evaluate(X, Y, verbose=0)
    twin.compile(loss=ds.losses.Composition(mass=0.7), metrics=["accuracy"], run_eagerly=True)
    with pytest.warns(UserWarning, match=r"the loss 'composition' needs what fit computes"):
        assert twin.evaluate(X, Y, verbose=0, return_dict=True).keys() == {"accuracy"}
    without_metrics = ds.SimplexClassifier(network(), "casimac", 3)
    without_metrics.compile()
    with pytest.raises(ValueError, match=r"evaluate needs metrics in compile, .* or the loss, but"):
        without_metrics.evaluate(X, Y, verbose=0)


def test_pixel_scale_is_that_of_the_first_fit(models):
    model = keras.models.clone_model(models("bytes, class weights"))
    model.set_weights(models("bytes, class weights").get_weights())
    model.fit(X, Y, batch_size=60, verbose=0)
    assert float(model.class_probabilities.pixel_scale.numpy()) == 1.0


def test_names_are_unique():
    inputs = keras.Input((4,))
    average = keras.layers.Average()([unfitted()(inputs), unfitted()(inputs)])
    assert keras.Model(inputs, average)(X).shape == (60, 3)
    assert unfitted(name="classifier").name == "classifier"


def test_weights_file_of_a_model_around_a_classifier_holds_its_calibration(models, tmp_path):
    inputs = keras.Input((4,))
    around = keras.Model(inputs, models("prototypes")(inputs))
    twin = keras.models.clone_model(around)
    around.save_weights(tmp_path / "model.weights.h5")
    twin.load_weights(tmp_path / "model.weights.h5")
    np.testing.assert_allclose(twin(X), models("prototypes")(X), rtol=1e-5)


# Classifiers of scikit-learn's interface


def embedding_network():
    return ds.estimators.SimplexNetworkClassifier(
        target=ds.targets.CASIMAC(ds.distances.Embedding(network())),
        head=ds.heads.GaussianHead(2),
        loss=ds.losses.LatentNLL(),
        optimizer=keras.optimizers.SGD(0.1),
        epochs=1,
    )


ESTIMATORS = {
    "closed form": ds.SimplexGaussianProcess,
    "exact": lambda: ds.SimplexGaussianProcess("ilr", max_iter=1),
    "collapsed": lambda: ds.SimplexGaussianProcess("casimac", "collapsed", inducing=5, max_iter=1),
    "categorical": lambda: ds.CategoricalGaussianProcess(inducing=5, epochs=1),
    "regression": lambda: ds.LatentRegressionClassifier(BayesianRidge()),
    "prototypes": lambda: ds.GLVQ(max_iter=5),
    "prototype process": lambda: ds.GPLVQ(max_iter=1),
    "network": lambda: ds.estimators.SimplexNetworkClassifier(epochs=1),
    "network of Keras' objects": embedding_network,
}


def with_skops(classifier):
    skops = pytest.importorskip("skops.io")
    content = skops.dumps(classifier)
    return skops.loads(content, trusted=skops.get_untrusted_types(data=content))


def with_joblib(classifier):
    file = io.BytesIO()
    joblib.dump(classifier, file)
    return joblib.load(file)


WAYS = {
    "pickle": lambda classifier: pickle.loads(pickle.dumps(classifier)),
    "deepcopy": copy.deepcopy,
    "joblib": with_joblib,
    "skops": with_skops,
}


@pytest.fixture(scope="module")
def classifiers():
    def made(name):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("warnings.warn", lambda *arguments, **options: None)  # fits of one step
            labels = np.array(["ant", "bee", "cat"])[Y]
            made = ESTIMATORS[name]().fit(X, labels)
            made.fit_density(X, labels).calibrate(X, labels[::-1], "platt").set_priors({"ant": 1, "bee": 2, "cat": 2})
            rule = ds.calibration.RiskControl(0.4, "false_negative_rate", positive="cat")
            if "prototype" in name:
                made.fit_unknown(X)
            left_out = name == "closed form"
            return made.conformalize(X, labels, 0.8, left_out=left_out).set_decision(rule, X, labels)

    return functools.cache(made)


# All ways ask a classifier for the same state: each is tried with arrays, and with networks and objects of Keras.
TRIED = ["closed form", "network of Keras' objects"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("way", "name"), [(way, name) for name in ESTIMATORS for way in WAYS if way == "pickle" or name in TRIED]
)
def test_copies_of_estimators_are_equal(way, name, classifiers):
    classifier = classifiers(name)
    twin = WAYS[way](classifier)
    unknown = ["unknown_score"] if hasattr(classifier, "known_quantiles_") else []
    for method in ("predict", "predict_proba", "predict_set", "decide", "familiarity", *unknown):
        np.testing.assert_array_equal(getattr(twin, method)(X), getattr(classifier, method)(X), err_msg=method)
    described, expected = (re.sub("0x[0-9a-f]+", "", repr(clone(one))) for one in (twin, classifier))
    assert described == expected
