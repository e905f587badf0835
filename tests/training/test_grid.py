"""The grid of targets, regressors and readouts: measured rows, and refusals in a sentence."""

import json

import pytest

from training.grid import READOUTS, TARGETS, main


@pytest.mark.slow
def test_grid_measures_rows_and_rejects_invalid_combinations(tmp_path):
    main(data="wine", seeds=1, only="Bayesian ridge", output=tmp_path / "grid.json")
    written = json.loads((tmp_path / "grid.json").read_text())
    rows, notes = written["rows"], written["notes"]
    image_targets = [name for name in TARGETS if "SSIM" in name or name == "mean of both"]
    assert len(rows) == len(READOUTS) * (len(TARGETS) - len(image_targets))
    assert all(row["accuracy"] > 0.9 and 0 < row["NLL"] < 0.8 for row in rows)
    assert [note.split(", with")[0] for note in notes] == image_targets
    assert all("refused: x must hold images" in note for note in notes)
