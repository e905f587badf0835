"""The scripts of the papers' tables run at a small size."""

import json
import re
from dataclasses import replace
from functools import partial
from pathlib import Path
from zipfile import BadZipFile

import numpy as np
import pytest
import typer
from sklearn.datasets import load_digits
from typer.testing import CliRunner

import deepsimplex as ds
from tests.quick_runs import eager_classifiers
from training.benchmarks import prototypes
from training.results import Output, ResultTable
from training.tables import casimac, fashion_mnist, figures, gpd, gplvq, ilr_gp, ilr_gp_synthetic
from training.tables.__main__ import TABLES, reproduce
from training.tables.paper_table import DataFolder, MissingDataError, PaperTable, Printed, split
from training.tables.uci import UCIData


def test_output_folder_is_created_at_start(tmp_path):
    application = typer.Typer()

    @application.command()
    def measure(output: Output = None) -> None:
        assert output is None or output.parent.is_dir()
        ResultTable("training.nothing").write(output)

    path = tmp_path / "new" / "folder" / "table.json"
    for arguments in ([], ["--output", str(path)]):
        assert CliRunner().invoke(application, arguments).exit_code == 0
    assert json.loads(path.read_text())["rows"] == []


def test_split_is_disjoint():
    learn, held = split(178, 50, seed=1)
    assert (len(learn), len(held)) == (128, 50)
    np.testing.assert_array_equal(np.sort(np.concatenate([learn, held])), np.arange(178))


@pytest.mark.parametrize("classes", [2, 3])
def test_calibration_error_of_correct_certain_predictions_is_half_a_bin(classes):
    assert ilr_gp.centered_calibration_error(np.arange(classes), np.eye(classes)) == pytest.approx(0.05)


def test_calibration_error_uses_bin_centers():
    p = np.array([[0.55, 0.4, 0.05], [0.58, 0.4, 0.02], [0.81, 0.1, 0.09], [0.9, 0.05, 0.05]])
    assert ilr_gp.centered_calibration_error(np.array([0, 1, 0, 0]), p) == pytest.approx(0.5 * 0.05 + 0.5 * 0.15)


def test_binary_calibration_error_uses_bin_centers():
    p = np.array([[0.95, 0.05], [0.93, 0.07], [0.45, 0.55], [0.42, 0.58]])
    assert ilr_gp.centered_calibration_error(np.array([0, 0, 1, 0]), p) == pytest.approx(0.5 * 0.05 + 0.5 * 0.05)
    assert ilr_gp.centered_calibration_error(np.array([1, 0, 1, 1]), p) == pytest.approx(0.5 * 0.45 + 0.5 * 0.45)


@pytest.mark.parametrize(
    ("score", "ours", "expected"),
    [
        ("accuracy", [0.9, 0.9], "better"),
        ("accuracy", [0.84, 0.84], "within"),
        ("accuracy", [0.7, 0.7], "behind"),
        ("NLL", [0.7, 0.7], "better"),
        ("NLL", [0.88, 1.0], "within"),
        ("NLL", [0.95, 0.95], "behind"),
    ],
)
def test_verdict_allows_for_both_standard_errors(score, ours, expected):
    table = PaperTable("", 5, {}, lambda *_: {}, rounding=0.005)
    assert table.verdict(score, np.array(ours), Printed(0.85, 0.02)) == expected


@pytest.mark.parametrize(
    ("lead", "expected"), [(0.0, "within"), (4e-4, "within"), (-4e-4, "within"), (6e-4, "better"), (-6e-4, "behind")]
)
@pytest.mark.parametrize(("score", "sign"), [("accuracy", 1), ("error", -1)])
def test_means_equal_within_rounding_are_ties(score, sign, lead, expected):
    table = PaperTable("", 5, {}, lambda *_: {})
    assert table.verdict(score, np.full(3, 0.3 + sign * lead), Printed(0.3)) == expected


def test_rows_list_choices_and_compare_only_comparable_methods():
    cells = {("wine", "ours"): {"error": Printed(0.1)}}
    repetitions = [{"error": 0.3, "lambda or alpha": chosen} for chosen in (0.999999, 0.95, 0.95)]
    row = {"data": "wine", "method": "ours", "error": "0.300 ± 0.000 (paper 0.1: behind)"}
    row["lambda or alpha"] = "0.95, 0.999999"
    table = PaperTable("", 3, cells, lambda *_: {})
    assert table.row(("wine", "ours"), repetitions) == row
    other = replace(table, comparable=False).row(("wine", "ours"), repetitions)
    assert other == row | {"error": "0.300 ± 0.000 (paper 0.1)"}


@pytest.mark.parametrize("error", [OSError("no network"), ValueError("another checksum"), BadZipFile("no zip")])
def test_incomplete_download_raises_missing_data(tmp_path, monkeypatch, error):
    def load(self):
        raise error

    monkeypatch.setattr(UCIData, "load", load)
    with pytest.raises(MissingDataError, match=f"no glass.npz in {tmp_path}; {error}"):
        DataFolder(tmp_path).load("glass")


def test_single_repetition_uses_standard_deviation_of_paper():
    table = PaperTable("", 4, {}, lambda *_: {})
    assert table.verdict("error", np.array([0.2]), Printed(0.15, 0.03)) == "within"
    assert table.verdict("error", np.array([0.25]), Printed(0.15, 0.03)) == "behind"


def test_paper_value_without_standard_deviation_uses_ours():
    table = PaperTable("", 1, {}, lambda *_: {})
    assert table.verdict("error", np.array([0.1, 0.3]), Printed(0.15)) == "within"
    assert table.verdict("error", np.array([0.2, 0.2]), Printed(0.15)) == "behind"


def test_every_table_has_a_placeholder_in_docs():
    page = (Path(__file__).parents[2] / "docs" / "reproduction.md").read_text(encoding="utf-8")
    places = re.findall(r"^## (.*)\n\n<!-- results (\w+) -->$", page, re.MULTILINE)
    assert places == [(table.title, name) for name, table in TABLES.items()]


def test_paper_values_are_parsed_as_printed():
    cells = casimac.TABLES["casimac_3"].cells
    assert len([printed for printed in cells.values() if printed]) == 20
    assert cells["alcohol", "kNN"]["log-loss"] == Printed(1.752, 1.442)
    assert cells["pine", "CASIMAC"]["area deviation"] == Printed(0.019)
    cells = ilr_gp.TABLES["ilr_gp_3"].cells
    assert cells["magic", "Collapsed-ILR"]["NLL"] == Printed(0.32, 0.005)
    cells = gplvq.TABLES["gplvq_5_8"].cells
    assert cells["2 against 9, 3 components", "LVQ"] == {"train error": Printed(0.035), "test error": Printed(0.038)}
    assert cells["2 against 9, 40 components", "GPLVQ"]["train error"] == Printed(0.49)


@pytest.mark.parametrize(
    ("name", "theirs", "added"),
    [
        ("gplvq_5_4", "iris, 2 prototypes, alpha 0.5", "iris, 3 prototypes, alpha 0.5"),
        ("gplvq_5_6", "iris, 2 prototypes", "iris, 3 prototypes"),
    ],
)
def test_rows_with_other_number_of_prototypes_have_no_thesis_value(name, theirs, added):
    cells = TABLES[name].cells
    assert cells[theirs, "GPLVQ"]
    assert not any(printed for (data, _), printed in cells.items() if data == added)


def test_interrupted_table_is_resumed(tmp_path, capsys):
    measured = []

    def measure(data, method, repetition, folder):
        if data == "elsewhere":
            folder.load("elsewhere")
        if len(measured) == 3:
            raise KeyboardInterrupt
        measured.append((method, repetition))
        return {"accuracy": 0.5 + 0.1 * repetition, "seconds": 1.0}

    cells = {("wine", "ours"): {"accuracy": Printed(0.3, 0.1)}, ("wine", "theirs"): {}, ("elsewhere", "ours"): {}}
    table = PaperTable("[X] Table 1", 2, cells, measure, notes=["As it is."])
    runs, path = tmp_path / "runs", tmp_path / "table.json"
    with pytest.raises(KeyboardInterrupt):
        reproduce("x_1", table, DataFolder(tmp_path), runs, path)
    assert not path.exists()
    measured.pop(0)
    reproduce("x_1", table, DataFolder(tmp_path), runs, path)
    assert measured == [("ours", 1), ("theirs", 0), ("theirs", 1)]
    written = json.loads(path.read_text())
    assert written["command"] == "make reproduce TABLE=x_1"
    assert [row["accuracy"] for row in written["rows"]] == [
        "0.550 ± 0.050 (paper 0.3 ± 0.1: better)",
        "0.550 ± 0.050",
    ]
    assert written["notes"][0] == "As it is."
    assert "elsewhere is left out: no elsewhere.npz" in written["notes"][1]
    assert len(written["repetitions"]) == 4
    assert "| wine | theirs | 0.550 ± 0.050 | 1.000 ± 0.000 |" in capsys.readouterr().out
    reproduce("x_1", table, DataFolder(tmp_path), runs, path, repetitions=1)
    assert "1 of the paper's 2 repetitions." in json.loads(path.read_text())["notes"]


def test_selected_rows_are_measured_and_others_kept(tmp_path):
    cells = {("wine", "ours"): {}, ("wine", "theirs"): {}, ("iris", "ours"): {}}
    table = PaperTable("", 2, cells, lambda *_: {"a": 1.0})
    path = tmp_path / "table.json"
    for repetitions, method in [(1, "theirs"), (2, "iris")]:
        reproduce("x_1", table, DataFolder(tmp_path), tmp_path, path, repetitions, [method])
    written = json.loads(path.read_text())
    assert [(row["data"], row["method"]) for row in written["rows"]] == [("wine", "theirs"), ("iris", "ours")]
    assert written["notes"] == ["wine, ours: not measured.", "wine, theirs: 1 of 2 repetitions."]
    assert len(written["repetitions"]) == 3


def test_kept_repetitions_keep_their_scores(tmp_path):
    table = PaperTable("", 3, {("wine", "ours"): {}, ("iris", "ours"): {}}, lambda *cell: {"a": float(cell[2])})
    path = tmp_path / "table.json"
    reproduce("x_1", table, DataFolder(tmp_path), tmp_path, path)
    (tmp_path / "wine-ours-1.json").unlink()
    reproduce("x_1", table, DataFolder(tmp_path), tmp_path, path, only=["iris"])
    written = json.loads(path.read_text())
    numbers = [(item["repetition"], item["scores"]["a"]) for item in written["repetitions"] if item["data"] == "wine"]
    assert numbers == [(0, 0.0), (2, 2.0)]
    assert written["notes"] == ["wine, ours: 2 of 3 repetitions."]


def test_repetitions_are_saved_in_separate_files(tmp_path, monkeypatch):
    for name, table in TABLES.items():
        few = replace(table, measure=lambda *cell: {"error": 0.5})
        reproduce(name, few, DataFolder(tmp_path), tmp_path / name, tmp_path / f"{name}.json", repetitions=1)
        assert len(list((tmp_path / name).glob("*-0.json"))) == len(table.cells)


@pytest.mark.parametrize(
    ("name", "cell"),
    [
        ("casimac_1", ("quadrants", "CASIMAC")),
        ("casimac_1", ("quadrants", "GPC")),
        ("ilr_gp_1", ("10 classes", "GPD, alpha 0.1")),
        ("ilr_gp_fig_7", ("5 classes", "GPD, alpha 0.01")),
        ("sps_1", ("27 observations of each class", "neural network")),
        ("gplvq_5_3", ("spirals", "LVQ")),
    ],
)
def test_small_cells_are_measured(name, cell, monkeypatch):
    monkeypatch.setattr(ilr_gp_synthetic, "TEST", 200)
    scores = TABLES[name].measure(*cell, 0, DataFolder())
    assert all(np.isfinite(value) for value in scores.values())
    assert scores == TABLES[name].measure(*cell, 0, DataFolder())
    assert scores.get("error", 1 - scores.get("accuracy", scores.get("correctness", 1.0))) < 0.5


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "cell"),
    [("ilr_gp_3", ("wine", "Exact-ILR")), ("ilr_gp_fig_5", ("standard deviation 0.5", "ILR, lambda 0.99"))],
)
def test_processes_are_measured(name, cell):
    scores = TABLES[name].measure(*cell, 0, DataFolder())
    assert scores.get("accuracy", 1 - scores.get("error", 0.0)) > 0.6
    assert scores["NLL"] < 1.0


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:prototypes .* are the nearest of no training sample:UserWarning")
def test_methods_are_measured_on_local_copies(tmp_path, monkeypatch):
    """Digits under other names, at a size that shows no figures."""
    X, y = load_digits(n_class=4, return_X_y=True)
    X, y = X[:420, 20:40].astype(np.float32), y[:420]
    np.savez(tmp_path / "letter.npz", X=X, y=y)
    np.savez(tmp_path / "pine.npz", X=X, y=y + casimac.SOYBEAN_MINTILL - 2)
    np.savez(tmp_path / "alcohol.npz", X=X, y=y)
    monkeypatch.setitem(casimac.SETTINGS, "pine", replace(casimac.SETTINGS["pine"], train=100))
    monkeypatch.setitem(gpd.TEST, "letter", 100)
    monkeypatch.setitem(ilr_gp.DATA, "letter", ilr_gp.DataSet(100, inducing=10))
    monkeypatch.setitem(gpd.SPARSE, "inducing", 10)
    monkeypatch.setitem(ilr_gp.SEPARATE_SETTINGS, "epochs", 4)
    ridge, process = ds.estimators.nystroem_kernel_ridge, ds.CategoricalGaussianProcess
    monkeypatch.setattr(ds.estimators, "nystroem_kernel_ridge", partial(ridge, gammas=[0.03, 0.1], penalties=[0.1]))
    monkeypatch.setattr(ds, "CategoricalGaussianProcess", partial(process, epochs=3))
    for name in ("GPR", "NKRR, Platt"):
        monkeypatch.delitem(gpd.TIMED, name)
    cells = [("casimac_3", ("pine", method)) for method in casimac.COMPARED]
    cells += [("casimac_5", ("alcohol-3", "CASIMAC")), ("gpd_3", ("letter", "alpha 0.01"))]
    cells += [("gpd_5", ("letter", "a fit of each")), ("gpd_5_inducing", ("letter", "GPC, 200 inducing points"))]
    cells += [("gpd_4", ("letter", method)) for method in ("GPC", "GPR, Platt", "NKRR, Platt")]
    cells += [("ilr_gp_3", ("letter", method)) for method in ("GPD", "GPD" + ilr_gp.LEARNED, "GPD" + ilr_gp.SEPARATE)]
    for name, cell in cells:
        assert cell in TABLES[name].cells
        scores = TABLES[name].measure(*cell, 0, DataFolder(tmp_path))
        assert scores.get("accuracy", 1 - scores.get("error", 0.0)) > 0.6, cell


@pytest.mark.slow
def test_figures_are_drawn(tmp_path, monkeypatch, capsys):
    """Those of fits from digits under other names."""
    X, y = load_digits(n_class=3, return_X_y=True)
    X = X[:, 20:40].astype(np.float32)
    for name, labels in {"eeg": y % 2, "pine": y + casimac.SOYBEAN_MINTILL - 1, "alcohol": y}.items():
        np.savez(tmp_path / f"{name}.npz", X=X, y=labels)
    monkeypatch.setitem(casimac.SETTINGS, "pine", replace(casimac.SETTINGS["pine"], train=100))
    monkeypatch.setitem(gpd.TEST, "eeg", 100)
    monkeypatch.setitem(gpd.SPARSE, "inducing", 10)
    monkeypatch.setattr(figures, "RELIABLE", ("eeg",))
    results = Path(__file__).parents[2] / "training" / "results"
    for table in dict.fromkeys(table for table, _ in figures.FIGURES.values()):
        figures.draw(table, results, tmp_path / "drawn", DataFolder(tmp_path))
    assert {path.stem for path in (tmp_path / "drawn").iterdir()} == set(figures.FIGURES)
    (tmp_path / "pine.npz").unlink()
    figures.draw("casimac_3", results, tmp_path / "other", DataFolder(tmp_path))
    assert not list((tmp_path / "other").iterdir())
    assert capsys.readouterr().out.startswith("casimac_pine: no pine.npz in")


@pytest.mark.slow
def test_network_of_paper_is_measured_from_configuration():
    """On digits."""
    changes = ["data.name=digits", "training.epochs=3", "cache_dir=null", "training.learning_rate=0.02"]
    scores = fashion_mnist.measure("fashion_mnist", "naive", 0, DataFolder(), *changes)
    assert 0.6 < scores["top-1"] < scores["top-2"] <= scores["top-5"] <= 1.0


def test_spirals_are_reproducible():
    X, y = gplvq.spirals()
    assert (X.shape, y.sum()) == ((100, 2), 50)
    np.testing.assert_array_equal(gplvq.spirals()[0], X)
    parts = gplvq.folds("spirals", False, 0, DataFolder())
    assert len(parts) == 10
    case = gplvq.Case("spirals", 6, 1.5)
    assert gplvq.errors("GP", case, parts, 0)["test error"] == 0.0
    assert gplvq.errors("GPLVQ", case, parts[:3], 0)["test error"] < 0.2


@pytest.mark.filterwarnings("ignore:prototypes .* are the nearest of no training sample:UserWarning")
def test_two_and_nine_are_classified_from_principal_components(tmp_path):
    rng = np.random.default_rng(0)
    digits = rng.choice([2, 5, 9], 90)
    images = rng.integers(0, 50, (90, 6, 6)) + 20 * digits[:, None, None]
    (tmp_path / "images").mkdir()
    np.savez(tmp_path / "images" / "mnist.npz", X_train=images.astype(np.uint8), y_train=digits)
    parts = gplvq.folds("mnist", True, 0, DataFolder(tmp_path))
    assert parts[0].leading(2).X_held.shape[1] == 2
    case = gplvq.CASES["2 against 9, 5 components"]
    assert gplvq.errors("GPLVQ, ours", case, [part.leading(5) for part in parts[:2]], 0)["test error"] < 0.1


@pytest.mark.slow
def test_gmlvq_is_compared_with_linear_discriminant_analysis(tmp_path):
    X, y = load_digits(n_class=3, return_X_y=True)
    np.savez(tmp_path / "letter.npz", X=np.tile(X[:200, 20:30], (76, 1)), y=np.tile(y[:200], 76))
    table = prototypes.tables_table(tmp_path, repeats=1)
    assert len(table.rows) == 7
    assert min(row["accuracy"] for row in table.rows[:4]) > 0.95


@pytest.mark.slow
def test_prototypes_classify_two_and_nine(tmp_path, monkeypatch):
    """Those of pixels; so few steps do not give a network the averages that it predicts with."""
    digits = load_digits()
    folder = tmp_path / "images"
    folder.mkdir()
    x, y = np.kron(digits.images * 15, np.ones((2, 2))).astype(np.uint8), digits.target  # 16 pixels a side
    np.savez(folder / "mnist.npz", X_train=x[:350], y_train=y[:350], X_test=x[900:], y_test=y[900:])
    for name, few in (("pixel_prototypes", 6), ("feature_prototypes", 1)):
        learn = getattr(prototypes, name)
        monkeypatch.setattr(prototypes, name, lambda x, y, epochs=0, learn=learn, few=few: learn(x, y, few))
    with eager_classifiers():
        table = prototypes.mnist_table(tmp_path, number=60, folds=2)
    errors = [float(row["error"].rstrip("%")) for row in table.rows]
    assert len(errors) == 3
    assert errors[0] < 10


@pytest.mark.slow
def test_both_network_heads_are_measured(digits, monkeypatch):
    """On few small images, in smaller steps."""
    data = digits
    monkeypatch.setattr(ds.datasets, "load", lambda name: data)
    monkeypatch.setattr(prototypes, "BATCH_SIZE", 32)
    table = prototypes.fashion_table(seeds=1, epochs=2, limit=2400)
    accuracies = [row["accuracy"] for row in table.rows]
    assert len(accuracies) == 2
    assert min(accuracies) > 0.6
