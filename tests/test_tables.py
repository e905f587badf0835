"""The scripts of the papers' tables, at a size that shows no figures."""

import numpy as np
import pytest
from sklearn.datasets import load_digits
from sklearn.preprocessing import MinMaxScaler, StandardScaler

from training.tables import ilr_gp


def test_a_split_tests_what_it_does_not_learn():
    learn, held = ilr_gp.split(178, 50, seed=1)
    assert (len(learn), len(held)) == (128, 50)
    np.testing.assert_array_equal(np.sort(np.concatenate([learn, held])), np.arange(178))


def test_certainty_that_is_right_errs_by_half_a_bin():
    assert ilr_gp.centred_calibration_error(np.array([0, 1]), np.eye(2)) == pytest.approx(0.05)
    p = np.array([[0.55, 0.45], [0.58, 0.42], [0.81, 0.19], [0.9, 0.1]])
    assert ilr_gp.centred_calibration_error(np.array([0, 1, 0, 0]), p) == pytest.approx(0.5 * 0.05 + 0.5 * 0.15)


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


def test_a_row_is_measured_and_judged():
    figures = ilr_gp.measure(ilr_gp.load("wine", None), 50, MinMaxScaler, seed=0, max_iterations=2)
    assert figures["ACC"] > 0.9
    assert figures["lambda"] in (0.9, 0.95, 0.99, 0.999, 0.9999, 0.999999)


def test_letter_is_learned_by_minibatches_with_the_lambda_of_the_paper():
    X, y = load_digits(return_X_y=True)
    settings = ilr_gp.LETTER | {"inducing": 20, "epochs": 3}
    figures = ilr_gp.measure((X[:400, 20:40], y[:400]), 100, StandardScaler, seed=0, **settings)
    assert figures["ACC"] > 0.6
    assert figures["lambda"] == 0.999999


def test_every_row_has_all_cells(monkeypatch, capsys, tmp_path):
    keys = (*ilr_gp.METRICS, ilr_gp.CENTRED, "lambda", "held-out NLL")
    monkeypatch.setattr(ilr_gp, "measure", lambda *arguments, **settings: dict.fromkeys(keys, 0.5))
    ilr_gp.main(data=tmp_path, seeds=2, noise="auto", ard=False, letter=True)
    rows = capsys.readouterr().out.splitlines()
    assert [row.count("|") for row in rows[:4]] == [11] * 4
    assert "glass: no glass.npz" in rows[4]
