"""The benchmark of neighbors runs on few samples."""

import json
import re

import pytest

from training.benchmarks import neighbors


@pytest.mark.slow
@pytest.mark.usefixtures("digits_as_fashion_mnist")
def test_neighbors(capsys, monkeypatch, tmp_path):
    sizes = {"PEER_PAIRS": 20, "AGREEMENT_PAIRS": 20, "WINDOWS": (5,), "COMPARED_WINDOWS": (5, 13)}
    for name, value in sizes.items():
        monkeypatch.setattr(neighbors, name, value)
    neighbors.main(samples=150, fewer=80, repeats=1, output=tmp_path / "neighbors.json")
    printed = capsys.readouterr().out
    assert len(re.findall(r"neighbors as by brute force, 150 images.* 100\.00%", printed)) == 3
    differences = [
        float(value) for value in re.findall(r"difference to scikit-image.*float(?:32|64) \| (\S+)", printed)
    ]
    assert len(differences) == 4
    assert max(differences) < 1e-4
    for column in ("times", "minutes", "GiB", "growth from 80 images"):
        assert column in printed
    rows = json.loads((tmp_path / "neighbors.json").read_text())["rows"]
    assert len(rows) == len(re.findall(r"^\| ", printed, flags=re.MULTILINE)) - 1  # but for the head
