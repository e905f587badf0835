"""The benchmark of classifiers of tables runs at a small size, and its tables follow from the files of its runs."""

import json

import pytest
import typer

from training.benchmarks import tables as benchmark

METHODS = [benchmark.OURS, "logistic regression"]


def test_runs_are_resumed(tmp_path, monkeypatch):
    monkeypatch.setattr(benchmark, "TRAIN_ROWS", 60)
    arguments = {"data": tmp_path, "sets": "iris", "methods": ";".join(METHODS), "splits": 2, "runs": tmp_path / "runs"}
    benchmark.main(**arguments, table=False, output=tmp_path)
    paths = sorted((tmp_path / "runs").iterdir())
    assert len(paths) == 4
    times = [path.stat().st_mtime_ns for path in paths]
    paths[0].unlink()
    benchmark.main(**arguments, table=False, output=tmp_path)
    assert [path.stat().st_mtime_ns for path in paths[1:]] == times[1:]
    summary, by_set = (json.loads((tmp_path / name).read_text())["rows"] for name in ("tables.json", "tables_nll.json"))
    assert sorted(row["method"] for row in summary) == sorted(METHODS)
    assert all(row["accuracy"] > 0.8 for row in summary)
    for row in by_set:
        geometric_mean = next(one for one in summary if one["method"] == row["method"])["NLL, geometric mean"]
        assert row["iris"] == pytest.approx(geometric_mean)


def test_ranks_share_ties_and_errors_allow_for_splits():
    def splits(*values):
        return [{"NLL": value, "accuracy": 1.0 - value} for value in values]

    measured = {
        ("a", "one"): splits(0.1, 0.3),
        ("a", "other"): splits(0.2, 0.2),
        ("b", "one"): splits(0.1, 0.1),
        ("b", "other"): splits(0.3, 0.3),
    }
    assert benchmark.ranks(measured, "NLL") == {"one": 1.25, "other": 1.75}
    assert benchmark.ranks(measured, "accuracy") == {"one": 1.25, "other": 1.75}
    assert [benchmark.within_error(measured, method) for method in ("one", "other")] == [2, 1]


def test_sets_and_methods_without_all_splits_are_left_out(tmp_path):
    scores = json.dumps(dict.fromkeys(("NLL", "ECE", "Brier", "accuracy", "seconds", "rows"), 0.5))
    for name, method, seed in [("wine", "XGBoost", 0), ("wine", "XGBoost", 1), ("iris", "XGBoost", 0)]:
        benchmark._path(tmp_path, name, method, seed).write_text(scores)
    measured = benchmark.read(["wine", "iris"], ["XGBoost", "LightGBM"], 2, tmp_path)
    assert list(measured) == [("wine", "XGBoost")]


@pytest.mark.parametrize("option", ["sets", "methods"])
def test_unknown_names_raise(option):
    with pytest.raises(typer.BadParameter, match="'nothing' is unknown; known are"):
        benchmark.main(**{option: "nothing"})


def test_missing_sets_are_left_out(tmp_path, capsys):
    benchmark.run(["drive_subset"], METHODS, 1, benchmark.DataFolder(tmp_path), tmp_path)
    assert "drive_subset, logistic regression: left out, no drive_subset.npz" in capsys.readouterr().out
    assert not list(tmp_path.glob("*.json"))
