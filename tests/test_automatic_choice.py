"""Choice of a calibration: what samples support is chosen, and kept in files."""

import json

import keras
import numpy as np
import pytest
from scipy.special import softmax
from sklearn.model_selection import StratifiedKFold

import deepsimplex as ds
from deepsimplex.calibration import AutomaticCalibration, MatrixScaling, TemperatureScaling, VectorScaling
from tests.test_calibration import simulated


def mixed_up(samples, seed):
    """Probabilities in which the evidence of every class counts for the next one too, and labels."""
    p, y = simulated(4, samples, seed)
    return softmax(np.log(p) @ (np.eye(4) + 0.8 * np.roll(np.eye(4), 1, axis=1)), axis=1), y


def test_method_follows_samples():
    for (p, y), name, kind in [
        (mixed_up(400, 3), "matrix", MatrixScaling),
        (simulated(3, 160, seed=2, temperature=3.0), "vector", VectorScaling),
        (simulated(3, 800, seed=2, temperature=3.0), "temperature", TemperatureScaling),
    ]:
        calibration, alone = AutomaticCalibration().fit(p, y), kind().fit(p, y)
        assert min(calibration.scores_, key=calibration.scores_.get) == name
        np.testing.assert_array_equal(calibration.transform(p), alone.transform(p))
        assert repr(calibration) == f"AutomaticCalibration({alone!r})"


def test_scores_are_losses_of_left_out_samples_and_one_more_of_every_class():
    p, y = simulated(3, 90, seed=8, temperature=2.0)
    scores = AutomaticCalibration(folds=3, seed=1).fit(p, y).scores_
    loss = 0.0
    for others, fold in StratifiedKFold(3, shuffle=True, random_state=1).split(p, y):
        q = VectorScaling().fit(p[others], y[others]).transform(p[fold])
        for row, k in zip(q, y[fold], strict=True):
            count = np.sum(y == k)
            loss -= (count * np.log(row[k]) + np.mean(np.log(row))) / (count + 1)
    assert scores["vector"] == pytest.approx(loss / 90)


def test_folds_keep_groups_together():
    """Copies of a sample in other folds give away how it is to be calibrated."""
    p, y = simulated(4, 40, seed=4)
    groups, (p, y) = np.repeat(np.arange(40), 10), (np.repeat(p, 10, axis=0), np.repeat(y, 10))
    rows = np.random.default_rng(0).permutation(400)
    alone = AutomaticCalibration().fit(p, y)
    together = AutomaticCalibration().fit(p[rows], y[rows], groups=groups[rows])
    assert together.scores_["matrix"] > alone.scores_["matrix"] + 0.05
    weights, shifted = np.repeat([1.0, 0.0], [400, 4]), np.append(groups, [50, 51, 52, 53])
    weighted = AutomaticCalibration().fit(np.append(p, p[:4], axis=0), np.append(y, y[:4]), weights, groups=shifted)
    assert weighted.scores_.keys() == {"temperature", "vector", "matrix"}
    assert AutomaticCalibration().fit(p, y, groups=np.arange(400) % 4).scores_ == {}  # fewer groups than folds
    np.testing.assert_array_equal(
        TemperatureScaling().fit(p, y, groups=groups).transform(p), TemperatureScaling().fit(p, y).transform(p)
    )
    for calibration in (AutomaticCalibration(), TemperatureScaling()):
        with pytest.raises(ValueError, match="groups must have a value for each row of p"):
            calibration.fit(p, y, groups=groups[:5])


def test_few_samples_or_many_classes_give_temperature():
    p, y = mixed_up(400, 4)
    few = np.flatnonzero((y != 3) | (np.cumsum(y == 3) <= 9))
    calibration = AutomaticCalibration().fit(p[few], y[few])
    assert type(calibration.chosen_) is TemperatureScaling
    assert calibration.scores_ == {}
    assert AutomaticCalibration(folds=4).fit(p[few], y[few]).scores_.keys() == {"temperature", "vector", "matrix"}
    many = np.arange(204) % 51
    p = 0.5 * np.eye(51)[many] + 0.5 / 51
    p[0] = p[1]
    assert AutomaticCalibration(folds=2).fit(p, many).scores_ == {}


def test_certain_errors_are_expected_where_none_was_held_out():
    """A probability of zero of the true class, once in 400 new samples: an infinite NLL after temperature scaling."""
    rng = np.random.default_rng(6)
    votes = rng.dirichlet([0.2, 0.2], 200)
    y = np.argmax(np.log(votes + 1e-9) + rng.gumbel(size=votes.shape), axis=1)
    p = np.where(np.abs(votes - np.eye(2)[y]) < 0.05, np.eye(2)[y], votes)  # confident ones become certain
    calibrated = AutomaticCalibration().fit(p, y).transform(np.eye(2))
    assert calibrated.min() > 1e-4


def test_choice_survives_files():
    p, y = mixed_up(400, 7)
    calibration = ds.calibration.CALIBRATIONS.get({"name": "auto", "seed": 3}).fit(p, y)
    again = keras.saving.deserialize_keras_object(
        json.loads(json.dumps(keras.saving.serialize_keras_object(calibration)))
    )
    assert again.get_config() == calibration.get_config()
    assert type(again.chosen_) is MatrixScaling
    assert again.scores_ == calibration.scores_
    np.testing.assert_array_equal(again.transform(p), calibration.transform(p))


def test_labels_of_other_samples_raise():
    p, _ = mixed_up(200, 9)
    with pytest.raises(ValueError, match="no likelier under their probabilities than by chance"):
        AutomaticCalibration().fit(p, p.argmin(axis=1))


@pytest.mark.filterwarnings("error")
def test_folds_of_right_answers_do_not_warn():
    """Every fold without the wrong sample has only right answers, of which temperature scaling alone would warn."""
    y = np.arange(60) % 3
    p = 0.3 * np.eye(3)[y] + 0.7 / 3
    p[0] = p[1]
    assert np.isfinite(list(AutomaticCalibration().fit(p, y).scores_.values())).all()
