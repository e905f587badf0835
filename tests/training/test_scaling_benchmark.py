"""The scaling benchmark runs on few images, and its fits recover known growth."""

import json

import numpy as np
import pytest

from training.benchmarks import scaling


def rows(power, each, fixed):
    return [
        {"images": n, "core seconds": 3e-4 * n**power, "peak MiB": (each * n + fixed) / 2**20}
        for n in (15_000, 60_000, 240_000)
    ]


def test_growth_exponent_is_fitted():
    measured = rows(1.6, 1000.0, 2e7)
    np.testing.assert_allclose(scaling.exponent(measured, "core seconds"), (1.6, 3e-4), rtol=1e-9)
    np.testing.assert_allclose(scaling.slope(measured), (1000.0, 2e7), rtol=1e-9)


def test_variants_differ_and_keep_every_pixel():
    images = np.random.default_rng(0).integers(0, 256, (3, 28, 28), dtype=np.uint8)
    made = [scaling.variant(images, number) for number in range(9)]
    np.testing.assert_array_equal(made[0], images)
    np.testing.assert_array_equal(made[1], images[:, :, ::-1])
    assert len({part.tobytes() for part in made}) == 9
    np.testing.assert_array_equal(np.sort(made[8], axis=None), np.sort(images, axis=None))


@pytest.mark.slow
@pytest.mark.usefixtures("digits_as_fashion_mnist")
def test_scaling(capsys, monkeypatch, tmp_path):
    monkeypatch.setattr(scaling, "FEW", 100)
    monkeypatch.setattr(scaling, "ASKED", 50)
    monkeypatch.setattr(scaling, "alone", scaling.measure)
    monkeypatch.setattr(scaling, "STAGES", {name: scaling.STAGES[name] for name in [*scaling.STAGES][:2]})
    monkeypatch.setenv("OMP_WAIT_POLICY", "passive")
    output, costs = tmp_path / "scaling.json", tmp_path / "costs.json"
    scaling.main("300,2200", 300, 0.05, tmp_path, output, costs)
    written = json.loads(output.read_text())
    assert [(row["stage"], row["images"]) for row in written["rows"]] == [
        ("targets, exact", 300),
        ("targets, approximate", 300),
        ("targets, approximate", 2200),
    ]
    assert written["rows"][-1]["found"].startswith("recall 0.9") or written["rows"][-1]["found"] == "recall 1.000"
    assert "0% of the nearest neighbors in the own class are copies" in written["notes"][0]
    assert "targets, approximate: core seconds grow as N^" in capsys.readouterr().out
    assert [row["images"] for row in json.loads(costs.read_text())["rows"]] == ["1e6", "1e7", "1e8"]
    known = scaling.stage_rows(300, tmp_path / "300", 300, written["rows"])
    monkeypatch.setattr(scaling, "alone", lambda *_: pytest.fail("measured again"))
    assert list(known) == written["rows"][:2]
