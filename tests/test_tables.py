"""The scripts of the papers' tables, at a size that shows no figures."""

import json

import numpy as np
import pytest
import typer
from sklearn.datasets import load_digits, load_iris
from sklearn.preprocessing import MinMaxScaler, StandardScaler
from typer.testing import CliRunner

import deepsimplex as ds
from deepsimplex.datasets.mnist import DEBIAN_FASHION_MNIST
from tests.quick_runs import eager_classifiers
from training.results import Output, ResultTable
from training.tables import gplvq, ilr_gp, prototypes


def test_the_folder_of_the_output_is_there_as_a_command_starts(tmp_path):
    application = typer.Typer()

    @application.command()
    def measure(output: Output = None) -> None:
        assert output is None or output.parent.is_dir()
        ResultTable("training.nothing").write(output)

    path = tmp_path / "new" / "folder" / "table.json"
    for arguments in ([], ["--output", str(path)]):
        assert CliRunner().invoke(application, arguments).exit_code == 0
    assert json.loads(path.read_text())["rows"] == []


def test_a_split_tests_what_it_does_not_learn():
    learn, held = ilr_gp.split(178, 50, seed=1)
    assert (len(learn), len(held)) == (128, 50)
    np.testing.assert_array_equal(np.sort(np.concatenate([learn, held])), np.arange(178))


def test_certainty_that_is_right_errs_by_half_a_bin():
    assert ilr_gp.centered_calibration_error(np.array([0, 1]), np.eye(2)) == pytest.approx(0.05)
    p = np.array([[0.55, 0.45], [0.58, 0.42], [0.81, 0.19], [0.9, 0.1]])
    assert ilr_gp.centered_calibration_error(np.array([0, 1, 0, 0]), p) == pytest.approx(0.5 * 0.05 + 0.5 * 0.15)


@pytest.mark.parametrize(
    ("metric", "ours", "expected"),
    [
        ("ACC", [0.9, 0.9], "better"),
        ("ACC", [0.84, 0.84], "within"),
        ("ACC", [0.7, 0.7], "WORSE"),
        ("NLL", [0.7, 0.7], "better"),
        ("NLL", [0.88, 1.0], "within"),
        ("NLL", [0.95, 0.95], "WORSE"),
    ],
)
def test_verdicts_allow_for_the_errors_of_both(metric, ours, expected):
    assert ilr_gp.verdict(metric, np.array(ours), mean=0.85, deviation=0.02) == expected


@pytest.mark.slow
def test_a_row_is_measured_and_judged():
    figures = ilr_gp.measure(ilr_gp.load("wine", None), 50, MinMaxScaler, seed=0, max_iter=2)
    assert figures["ACC"] > 0.9
    assert figures["lambda"] in (0.9, 0.95, 0.99, 0.999, 0.9999, 0.999999)


@pytest.mark.slow
def test_letter_is_learned_by_minibatches_with_the_lambda_of_the_paper():
    X, y = load_digits(return_X_y=True)
    settings = ilr_gp.LETTER | {"inducing": 20, "epochs": 3}
    figures = ilr_gp.measure((X[:400, 20:40], y[:400]), 100, StandardScaler, seed=0, **settings)
    assert figures["ACC"] > 0.6
    assert figures["lambda"] == 0.999999


def test_every_row_has_all_cells(monkeypatch, capsys, tmp_path):
    keys = (*ilr_gp.METRICS, ilr_gp.CENTERED, "lambda", "held-out NLL")
    monkeypatch.setattr(ilr_gp, "measure", lambda *arguments, **settings: dict.fromkeys(keys, 0.5))
    ilr_gp.main(
        data=tmp_path, seeds=2, noise="auto", ard=False, names=list(ilr_gp.PAPER), output=tmp_path / "table.json"
    )
    printed = capsys.readouterr().out.splitlines()
    assert [line.count("|") for line in printed[:4]] == [11] * 4
    assert "glass: no glass.npz" in printed[4]
    rows = json.loads((tmp_path / "table.json").read_text())["rows"]
    assert [row["data"] for row in rows] == ["wine, [0, 1] (chosen)", "wine, z-score"]


def test_the_spirals_are_as_they_were_fixed():
    X, y = gplvq.spirals()
    assert (X.shape, y.sum()) == ((100, 2), 50)
    np.testing.assert_array_equal(gplvq.spirals()[0], X)
    folds = gplvq.splits((X, y), runs=1)
    assert len(folds) == 10
    assert gplvq.errors(gplvq.process(1.5), folds).test == 0.0
    both = [gplvq.errors(maker, folds[:3]).test for maker in gplvq.swept(6, 1.5)]
    assert max(both) < 0.2


@pytest.mark.filterwarnings("ignore:prototypes .* are the nearest of no training sample:UserWarning")
def test_the_thesiss_tables_have_all_cells(monkeypatch, capsys, tmp_path):
    rng = np.random.default_rng(0)
    digits = rng.choice([2, 5, 9], 90)
    images = rng.integers(0, 50, (90, 6, 6)) + 20 * digits[:, None, None]
    (tmp_path / "images").mkdir()
    np.savez(tmp_path / "images" / "mnist.npz", X_train=images.astype(np.uint8), y_train=digits)
    X, y = load_iris(return_X_y=True)
    np.savez(tmp_path / "iris.npz", X=X, y=y)
    found = []
    monkeypatch.setattr(gplvq, "errors", lambda maker, folds: found.append(len(folds)) or gplvq.Errors(0.25, 0.5))
    tables = [*gplvq.spirals_tables(1), *gplvq.iris_tables(tmp_path, 1), *gplvq.iris_tables(None, 1)]
    tables += gplvq.mnist_tables(tmp_path, 1, components=(1, 5), number=40)
    assert set(found) == {10}
    assert [table.row_count for table in tables] == [11, 10, 4, 11, 4, 11, 4, 3, 11, 4, 11, 4, 3, 2, 4]
    monkeypatch.undo()
    projected = gplvq.splits(gplvq.mnist(tmp_path, 40), runs=1)[0].projected(3)
    assert projected.leading(2).X_held.shape[1] == 2
    assert gplvq.errors(gplvq.ours(scale_features=False), [projected]).test < 0.1
    monkeypatch.setattr(gplvq, "iris_tables", lambda folder, runs: [gplvq.table("iris", ["error"], [["0.25"]])])
    gplvq.main(data=None, part=gplvq.Part.IRIS, runs=1)
    gplvq.main(data=None, part=gplvq.Part.MNIST, runs=1)
    printed = capsys.readouterr().out
    assert "0.25" in printed
    assert "MNIST: no --data" in printed


@pytest.mark.slow
def test_gmlvq_is_measured_beside_linear_discriminant_analysis(tmp_path):
    X, y = load_digits(n_class=3, return_X_y=True)
    np.savez(tmp_path / "letter.npz", X=np.tile(X[:200, 20:30], (76, 1)), y=np.tile(y[:200], 76))
    table = prototypes.tables_table(tmp_path, repeats=1)
    assert len(table.rows) == 7
    assert min(row["accuracy"] for row in table.rows[:4]) > 0.95


@pytest.mark.slow
def test_prototypes_tell_two_from_nine(tmp_path, monkeypatch):
    """Those of pixels; so few steps do not give a network the averages that it predicts with."""
    digits = load_digits()
    folder = tmp_path / "images"
    folder.mkdir()
    x, y = np.kron(digits.images * 15, np.ones((2, 2))).astype(np.uint8), digits.target  # 16 pixels a side
    np.savez(folder / "mnist.npz", X_train=x[:350], y_train=y[:350], X_test=x[900:], y_test=y[900:])
    for name, few in (("of_pixels", 6), ("of_features", 1)):
        learn = getattr(prototypes, name)
        monkeypatch.setattr(prototypes, name, lambda x, y, epochs=0, learn=learn, few=few: learn(x, y, few))
    with eager_classifiers():
        table = prototypes.mnist_table(tmp_path, number=60, folds=2)
    errors = [float(row["error"].rstrip("%")) for row in table.rows]
    assert len(errors) == 3
    assert errors[0] < 10


@pytest.mark.slow
@pytest.mark.skipif(not DEBIAN_FASHION_MNIST.is_dir(), reason="needs Debian's package dataset-fashion-mnist")
def test_both_ends_of_a_network_are_measured(monkeypatch):
    """On every third pixel and few images, in smaller steps."""
    (x, y), (x_test, y_test) = ds.datasets.load("fashion_mnist")
    data = (x[:, ::3, ::3], y), (x_test[:500, ::3, ::3], y_test[:500])
    monkeypatch.setattr(ds.datasets, "load", lambda name: data)
    monkeypatch.setattr(prototypes, "BATCH_SIZE", 32)
    table = prototypes.fashion_table(seeds=1, epochs=2, limit=2400)
    accuracies = [row["accuracy"] for row in table.rows]
    assert len(accuracies) == 2
    assert min(accuracies) > 0.6
