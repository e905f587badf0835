"""The benchmark of frozen backbones runs on few digits, and keeps features and runs."""

import json
from functools import partial, partialmethod

import keras
import numpy as np
import pytest
import typer

import deepsimplex as ds
from tests.quick_runs import eager_classifiers
from training.benchmarks.transfer import __main__ as benchmark
from training.benchmarks.transfer import costs, features, measures, methods, tuning

ROWS = 200


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """A convolutional backbone of three channels, and digits in files, with answers of people and without."""
    folder = tmp_path_factory.mktemp("transfer")
    initializer = keras.initializers.GlorotUniform(seed=0)
    convolution = keras.layers.Conv2D(32, 3, activation="relu", kernel_initializer=initializer)
    backbone = keras.Sequential([keras.Input((None, None, 3)), convolution, keras.layers.GlobalMaxPooling2D()])
    backbone.save(folder / "backbone.keras")
    (x, y), (x_test, y_test) = ds.datasets.load("digits")
    x, x_test = 16 * x, 16 * x_test
    known = {"X_train": x[:400], "y_train": y[:400], "x_test": x_test[:100], "y_test": y_test[:100, None]}
    np.savez(folder / "known.npz", **known, human_counts_test=9 * np.eye(10)[y_test[:100]] + 0.1)
    np.savez(folder / "flipped.npz", x_test=16 - x_test[:60])
    flat = {name: array.reshape(len(array), -1) for name, array in known.items()}
    np.savez(folder / "features.npz", **flat)
    return folder


@pytest.fixture
def quick(monkeypatch):
    """Few steps of few settings, run eagerly."""
    for name in (f"{methods.SOFTMAX}, weight decay", "last-layer Laplace"):
        method = methods.METHODS[name]
        monkeypatch.setitem(methods.METHODS, name, partial(method, settings=method.keywords["settings"][:2]))
    for module, name, value in (
        (features, "UNKNOWN", 50),
        (methods, "EPOCHS", 2),
        (methods, "NEIGHBORS", (1, 5)),
        (costs, "ROUNDS", 2),
        (keras.Sequential, "compile", partialmethod(keras.Sequential.compile, run_eagerly=True)),
        (ds, "SimplexClassifier", partial(ds.SimplexClassifier, head={"name": "closed_form", "inducing": 50})),
    ):
        monkeypatch.setattr(module, name, value)
    with eager_classifiers():
        yield


@pytest.mark.slow
@pytest.mark.usefixtures("quick")
def test_comparison_on_images_writes_table_and_figure_and_keeps_runs(files, tmp_path, monkeypatch):
    arguments = {
        "data": str(files / "known.npz"),
        "backbone": files / "backbone.keras",
        "size": 12,
        "scale": 0.5,
        "unknown": [f"flipped={files / 'flipped.npz'}"],
        "rows": [ROWS],
        "method": ["logistic regression", "softmax", "deepsimplex"],
        "runs": tmp_path,
        "output": tmp_path / "table.json",
    }
    benchmark.main(**arguments, seeds=2, picture=tmp_path / "figure.png")
    written = json.loads((tmp_path / "table.json").read_text())
    rows = written["rows"]
    assert [(row["rows"], row["method"]) for row in rows] == [(ROWS, method) for method in arguments["method"]]
    assert all(float(row["accuracy"].split()[0]) > 0.3 for row in rows if row["method"] != "softmax")
    assert float(rows[-1][measures.HUMAN].split()[0]) > float(rows[-1]["NLL"].split()[0]) > 0
    detection = [row[f"AUROC, noise: {', '.join(measures.SCORES)}"].split(", ") for row in rows]
    assert [len(scores) for scores in detection] == [2, 2, 3]
    assert [row["rejected"] for row in rows[:2]] == ["", ""]
    assert 0 <= float(rows[-1]["rejected"]) < 0.3
    ratio = np.mean([a["NLL"] for a in written["runs"][str(ROWS)]["deepsimplex"]])
    assert ratio == pytest.approx(float(rows[-1]["NLL"].split()[0]), abs=1e-4)
    assert len(written["notes"]) == 7
    assert (tmp_path / "figure.png").stat().st_size > 10_000
    monkeypatch.setattr(benchmark, "load", None)  # neither images nor features are needed again
    benchmark.main(**arguments, seeds=2)
    assert json.loads((tmp_path / "table.json").read_text())["rows"] == rows


@pytest.mark.slow
@pytest.mark.usefixtures("quick")
def test_features_of_a_user_need_no_backbone(files, tmp_path):
    """There is no noise among features."""
    names = [name for name in methods.METHODS if "dropout" not in name]
    benchmark.main(
        str(files / "features.npz"), method=names, rows=[ROWS], seeds=1, runs=tmp_path, output=tmp_path / "table.json"
    )
    rows = json.loads((tmp_path / "table.json").read_text())["rows"]
    assert [row["method"] for row in rows] == names
    chance = np.log(10)
    assert [row["method"] for row in rows if float(row["accuracy"]) > 0.8 and float(row["NLL"]) < 0.5 * chance] == [
        "logistic regression",
        "nearest neighbors",
        "deepsimplex",
    ]
    assert all(float(row["NLL"]) < 1.5 * chance for row in rows)  # two epochs of the others
    assert not [name for row in rows for name in row if name.startswith("AUROC")]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"method": ["boosting"]}, "boosting"),
        ({"rows": [401]}, "at most 400"),
        ({"data": "digits"}, r"without --backbone; found \(1437, 8, 8\)"),
        ({"unknown": ["flipped.npz"]}, "NAME=FILE"),
        ({"data": "flipped.npz"}, "lacks .'x_train', 'y_test', 'y_train'"),
    ],
)
def test_invalid_options_raise(files, tmp_path, monkeypatch, arguments, message):
    monkeypatch.chdir(files)
    with pytest.raises(typer.BadParameter, match=message):
        benchmark.main(**{"data": "features.npz", "seeds": 1, "runs": tmp_path, **arguments})


def test_features_are_computed_once_for_each_block_and_setting(files, tmp_path, monkeypatch):
    images = np.random.default_rng(0).integers(0, 256, (5, 6, 6), dtype=np.uint8)
    monkeypatch.setattr(features, "BLOCK", 2)
    backbone = features.Backbone(files / "backbone.keras")
    expected = backbone.load((6, 6)).predict(images, verbose=0)
    # sums of float32 over pixels of 255 depend on the size of a batch, by the machine
    same = partial(np.testing.assert_allclose, rtol=1e-5, atol=1e-6 * expected.max())
    same(backbone.features(images[:4], "four", tmp_path), expected[:4])
    assert len([*tmp_path.iterdir()]) == 2
    same(backbone.features(images, "five", tmp_path), expected)
    assert len([*tmp_path.iterdir()]) == 3
    half = backbone._replace(scale=0.5).features(images, "half", tmp_path)
    same(half, backbone.load((6, 6)).predict(images / 2, verbose=0))
    monkeypatch.setattr(features.Backbone, "load", None)
    np.testing.assert_array_equal(backbone._replace(scale=0.5).features(images, "half", tmp_path), half)


def blobs(num_classes, rows=60, num_features=3, seed=0):
    rng = np.random.default_rng(seed)
    y = np.arange(rows) % num_classes
    return methods.Training(rng.normal(size=(rows, num_features)) + y[:, None], y, num_classes, seed)


@pytest.mark.parametrize("present", [[0, 1], [0, 1, 2], [0, 2], [1, 2, 3]])
def test_logistic_regression_equals_scikit_learn_and_missing_classes_are_unlikely(present):
    data = blobs(len(present))
    data = data._replace(y=np.asarray(present)[data.y], num_classes=4)
    p = methods.logistic_regression(data, 2.0).probabilities(data.x)
    variance = np.var(data.x, axis=0).sum()
    expected = methods.LogisticRegression(C=2.0 / variance, max_iter=1000).fit(data.x, data.y).predict_proba(data.x)
    np.testing.assert_allclose(p[:, present], expected, atol=1e-6)
    np.testing.assert_allclose(p.sum(axis=1), 1)


def test_laplace_variance_equals_that_of_the_full_covariance(monkeypatch):
    """The covariance is the inverse of the Kronecker product plus the prior's precision."""
    data, rng = blobs(3), np.random.default_rng(1)
    layer = methods.Linear(rng.normal(size=(3, 3)), rng.normal(size=3))
    monkeypatch.setattr(methods, "softmax_layer", lambda data: layer)
    setting = methods.total_variance(data.x) / 0.7
    p, x = layer.probabilities(data.x), np.column_stack([data.x, np.ones(60)])
    outputs = np.mean([np.diag(row) - np.outer(row, row) for row in p], axis=0)
    covariance = np.linalg.inv(np.kron(x.T @ x, outputs) + 0.7 * np.eye(12)).reshape(4, 3, 4, 3)
    variance = np.einsum("nd,dkek,ne->nk", x, covariance, x)
    expected = methods.softmax((data.x @ layer.kernel + layer.bias) / np.sqrt(1 + np.pi / 8 * variance), axis=1)
    np.testing.assert_allclose(methods.laplace(data, setting).probabilities(data.x), expected, rtol=1e-6)


def test_setting_and_temperature_come_from_held_out_tenth():
    data = blobs(2, rows=400)
    rows = []

    def fit(part, setting):
        rows.append(len(part.x))
        w = setting * np.array([[-1.0, 1.0]] * 3)
        return methods.Linear(w, -w.sum(axis=0) / 2)

    classifier = methods.with_temperature(data, fit, [-1.0, 3.0])
    assert rows == [360, 360, 400]
    setting, temperature = classifier.choice.split(", temperature ")
    assert setting == "3"
    assert 5 < float(temperature) < 15
    p = classifier.probabilities(data.x)
    scaling = ds.calibration.TemperatureScaling().fit(p, data.y)
    nll, temperature = methods.best_temperature(data.y, p)
    assert temperature == pytest.approx(scaling.temperature_, rel=1e-3)
    assert nll == pytest.approx(ds.evaluation.negative_log_likelihood(data.y, scaling.transform(p)))


def test_nearest_neighbors_choose_their_number_by_left_out_rows():
    rng = np.random.default_rng(0)
    angles = rng.uniform(0, 2 * np.pi, 300)
    y = (rng.random(300) < np.where(angles < np.pi, 0.8, 0.2)).astype(int)
    x = np.column_stack([np.cos(angles), np.sin(angles)])
    classifier = methods.nearest_neighbors(methods.Training(x, y, 2, 0))
    assert int(classifier.choice.removeprefix("k = ")) >= 10  # noisy labels of smooth probabilities
    np.testing.assert_allclose(classifier.probabilities(np.array([[0.0, 1.0]]))[0, 1], 0.8, atol=0.12)


@pytest.mark.slow
@pytest.mark.usefixtures("quick")
def test_costs_are_measured_once(files, tmp_path, monkeypatch):
    monkeypatch.setattr(costs, "in_fresh_process", lambda work: work(400, 8, 20))
    arguments = {"data": str(files / "known.npz"), "backbone": files / "backbone.keras", "rows": 100, "runs": tmp_path}
    costs.main(**arguments, with_large=True, output=tmp_path / "costs.json")
    rows = json.loads((tmp_path / "costs.json").read_text())["rows"]
    results = {row["measured"]: row["result"] for row in rows}
    assert len(results) == 14
    differences = [float(result) for name, result in results.items() if "largest difference" in name]
    assert len(differences) == 2
    assert max(differences) < 1e-6
    for name in ("fits", "additions", "serving", "large"):
        monkeypatch.setattr(costs, name, None)
    costs.main(**arguments, with_large=True, output=tmp_path / "again.json")
    assert json.loads((tmp_path / "again.json").read_text())["rows"] == rows


@pytest.mark.slow
@pytest.mark.usefixtures("quick")
@pytest.mark.filterwarnings("ignore:training changes the latents")
def test_backbones_are_tuned_once(files, tmp_path, monkeypatch):
    arguments = {"data": str(files / "known.npz"), "backbone": files / "backbone.keras", "rows": ROWS, "seeds": 1}
    arguments |= {"test_rows": 60, "runs": tmp_path, "epochs": 2, "rate": 0.003, "output": tmp_path / "table.json"}
    tuning.main(**arguments)
    rows = json.loads((tmp_path / "table.json").read_text())["rows"]
    accuracy = {row["method"]: float(row["accuracy"].split()[0]) for row in rows}
    assert list(accuracy) == ["softmax, frozen", "softmax, tuned", "deepsimplex, frozen", "deepsimplex, tuned"]
    assert accuracy["softmax, frozen"] != accuracy["softmax, tuned"]
    assert accuracy["deepsimplex, frozen"] > 0.5 < accuracy["deepsimplex, tuned"]
    monkeypatch.setattr(tuning, "run", None)
    tuning.main(**arguments)
