"""Labels and predictions from one pass over data of every kind."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC

import deepsimplex as ds

rng = np.random.default_rng(0)
Y = rng.integers(0, 3, 90)
X = (np.eye(3)[Y] + 0.3 * rng.normal(size=(90, 3))).astype(np.float32)
NAMES = np.array(["ant", "bee", "cow"])


class Batches(keras.utils.PyDataset):
    """Batches whose order changes in every pass."""

    def __init__(self, x, y):
        super().__init__()
        self.x, self.y, self.rng = x, y, np.random.default_rng(1)

    def __len__(self):
        return 9

    def __getitem__(self, index):
        rows = self.rng.integers(0, len(self.y), 10)
        return self.x[rows], self.y[rows]


def dataset(x, y):
    return tf.data.Dataset.from_tensor_slices((x, y)).shuffle(90).batch(20)


def generator(x, y):
    return ((x[rows], y[rows]) for rows in np.array_split(np.random.default_rng(2).permutation(len(y)), 4))


SOURCES = {"arrays": lambda x, y: (x, y), "dataset": dataset, "PyDataset": Batches, "generator": generator}


@pytest.fixture(scope="module")
def classifiers():
    logistic = LogisticRegression().fit(X, Y)
    named = make_pipeline(StandardScaler(), LogisticRegression()).fit(X, NAMES[Y])
    network = keras.Sequential([keras.Input((3,)), keras.layers.Dense(3, "softmax")])
    network.layers[-1].set_weights([5 * np.eye(3), np.zeros(3)])
    simplex = ds.SimplexClassifier(ds.backbones.mlp([8]), "vertices", class_names=[*NAMES])
    simplex.compile(keras.optimizers.Adam(0.05), run_eagerly=True)
    simplex.fit(X, Y, epochs=8, verbose=0)
    return {
        "logistic": logistic,
        "named": named,
        "network": network,
        "simplex": simplex,
        "after": ds.AfterTraining(named),
    }


# Every source with a classifier of arrays and one of streams; the others with samples at once and in batches.
PASSES = [(name, source) for name in ("named", "simplex") for source in SOURCES]
PASSES += [(name, source) for name in ("logistic", "network", "after") for source in ("arrays", "generator")]


@pytest.mark.parametrize(("name", "source"), PASSES)
def test_shuffled_data_give_the_right_accuracy(name, source, classifiers):
    model = classifiers[name]
    y = NAMES[Y] if name in ("named", "after") else Y
    report = ds.evaluation.report(model, SOURCES[source](X, y), bins=5)
    assert report.accuracy > 0.8
    assert report.samples == 90
    if source != "PyDataset":
        p = model.predict(X, verbose=0) if name == "network" else model.predict_proba(X)
        expected = ds.evaluation.report(Y, np.asarray(p), bins=5)
        assert report.as_dict() == pytest.approx(expected.as_dict(), abs=1e-5)
    names = range(3) if name in ("logistic", "network") else NAMES
    assert [*report.by_class.classes] == [*names]


@pytest.mark.parametrize("form", ["one_hot", "column", "names", "bytes"])
def test_forms_of_labels(form, classifiers):
    y = {"one_hot": np.eye(3)[Y], "column": Y[:, None], "names": NAMES[Y], "bytes": NAMES[Y].astype("S")}[form]
    expected = ds.evaluation.report(classifiers["simplex"], (X, Y))
    for data in ((X, y), dataset(X, y)):
        assert ds.evaluation.report(classifiers["simplex"], data).accuracy == expected.accuracy


def test_one_output_of_two_classes():
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1, "sigmoid")])
    y, p, classes, _ = ds.evaluation.labeled_predictions(model, (X, Y > 0))
    assert p.shape == (90, 2)
    np.testing.assert_allclose(p[:, 1:], model.predict(X, verbose=0))
    assert [*classes] == [0, 1]
    assert y.tolist() == (Y > 0).tolist()


def test_options_of_the_report_apply(classifiers):
    groups = np.arange(90) // 3
    ours = ds.evaluation.report(classifiers["named"], (X, NAMES[Y]), intervals=0.9, groups=groups, resamples=20)
    p = classifiers["named"].predict_proba(X)
    assert ours == ds.evaluation.report(Y, p, intervals=0.9, groups=groups, resamples=20)
    with pytest.raises(ValueError, match="groups must not be given beside batches"):
        ds.evaluation.report(classifiers["named"], dataset(X, NAMES[Y]), intervals=0.9, groups=groups)


@pytest.mark.parametrize(
    ("data", "error", "message"),
    [
        ((X,), ValueError, r"data must hold \(x, y\)"),
        ((X, Y, np.ones(90), 1), ValueError, r"\(x, y\).*found 4 columns"),
        ((X, Y, -np.ones(90)), ValueError, r"sample_weight must be finite, not negative"),
        (X, TypeError, "data must be.*found ndarray"),
        ((X, Y[:5]), ValueError, "y must hold one label for each of the 90 rows of p"),
        ((X, Y + 1), ValueError, r"y must hold one of the classes 0, 1, 2; found 3"),
        ((X, NAMES[Y]), ValueError, r"y must hold one of the classes 0, 1, 2; found"),
        (iter(()), ValueError, "hold|yield"),
        (dataset(X, Y).repeat(), ValueError, "data must be a finite stream"),
        (tf.data.Dataset.from_tensor_slices(X).batch(9), ValueError, "must yield"),
    ],
)
def test_invalid_data_raise(data, error, message, classifiers):
    with pytest.raises(error, match=message):
        ds.evaluation.report(classifiers["logistic"], data)


def test_classifier_without_probabilities_raises():
    with pytest.raises(TypeError, match=r"model must have predict_proba.*found LinearSVC"):
        ds.evaluation.report(LinearSVC().fit(X, Y), (X, Y))
