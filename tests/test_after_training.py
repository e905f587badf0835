"""Order of dependence of what is fitted after training, for any classifier of the protocol."""

import numpy as np
import pytest

from deepsimplex.calibration import ConformalSets, ExpectedCost, RiskControl
from deepsimplex.calibration.after_training import FittedComponents


class Softmax:
    """Probabilities softmax(2 x) of samples x [N, 3], with labels drawn from softmax(x)."""

    _variance_share = None

    def __init__(self, density_changes_probabilities=False):
        self._density_changes_probabilities = density_changes_probabilities
        self.after_training = FittedComponents(self)

    def _labeled_arrays(self, x, y, sample_weight):
        return x, np.asarray(y), sample_weight

    def _uncalibrated_outputs(self, x, power=2.0):
        p = np.exp(power * x)
        return {"probabilities": p / p.sum(axis=1, keepdims=True)}

    def _density_features(self, x, power=2.0):
        return x

    def _class_labels(self):
        return ["ant", "bee", "cat"]

    def _left_out_outputs(self, x, y):
        return self._uncalibrated_outputs(x, power=1.0), np.asarray(y), None

    def _training_samples(self, x):
        return np.zeros(0, bool)

    def _without_priors(self, x, **options):
        p, calibration = self._uncalibrated_outputs(x, **options)["probabilities"], self.after_training.calibration
        return p if calibration is None else calibration.apply_probabilities(p)

    def predict_proba(self, x, **options):
        p, priors = self._without_priors(x, **options), self.after_training.priors
        return p if priors is None else priors.apply_probabilities(p)


def draw(samples=600):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(samples, 3))
    p = Softmax()._uncalibrated_outputs(x, power=1.0)["probabilities"]
    return x, np.array([rng.choice(3, p=row) for row in p])


def fitted(density_changes_probabilities=False) -> FittedComponents:
    x, y = draw()
    after = Softmax(density_changes_probabilities).after_training
    return (
        after.fit_density(x, y)
        .calibrate(x[::2], y[::2], "temperature")
        .set_priors({"cat": 1, "ant": 2, "bee": 2})
        .conformalize(x[1::2], y[1::2], coverage=0.8, seed=3)
        .set_decision(RiskControl(0.3, "false_negative_rate", positive="bee"), x[1::2], y[1::2])
    )


def test_calibration_and_sets_of_a_classifier_without_latents():
    x, y = draw()
    after = fitted()
    assert after.calibration.temperature_ == pytest.approx(2, rel=0.2)
    assert after.prediction_sets.seed == 3
    assert after.predict_set(x)[np.arange(len(y)), y].mean() == pytest.approx(0.8, abs=0.03)
    np.testing.assert_array_equal(after.familiarity(x), after.density.familiarity(x))
    served = after.served(after.classifier.predict_proba(x), x)
    np.testing.assert_array_equal(served["prediction_set"], after.predict_set(x))
    np.testing.assert_array_equal(served["familiarity"], after.familiarity(x))
    np.testing.assert_array_equal(served["decision"], after.decide(x))
    assert after.decision_rule.positive_ == 1
    assert np.mean(after.decide(x)[y == 1] == 1) > 0.7
    assert after.probability_maps == [after.calibration, after.priors]
    np.testing.assert_array_equal(after.priors.frequencies_, [0.4, 0.4, 0.2])
    # The mean over held-out samples of what is calibrated is what frequencies replace.
    np.testing.assert_allclose(after.priors.trained, after.classifier._without_priors(x[::2]).mean(axis=0), rtol=1e-12)
    p = after.classifier._without_priors(x) * after.priors.frequencies_ / after.priors.trained
    np.testing.assert_allclose(after.classifier.predict_proba(x), p / p.sum(axis=1, keepdims=True), rtol=1e-12)


def test_options_of_predictions_reach_the_classifier():
    after = Softmax().after_training.calibrate(*draw(), "temperature", power=1.0)
    assert after.calibration.temperature_ == pytest.approx(1, rel=0.2)


@pytest.mark.filterwarnings("ignore:calibrate changes the probabilities")
def test_calibration_is_fitted_to_uncalibrated_probabilities():
    x, y = draw()
    after = fitted()
    temperature = after.calibration.temperature_
    assert after.calibrate(x[::2], y[::2], "temperature").calibration.temperature_ == temperature


def methods_of(warned) -> list[str]:
    return [str(warning.message).split("call ")[1].split()[0] for warning in warned]


def test_changes_remove_dependent_components_with_a_warning():
    x, y = draw()
    after = fitted(density_changes_probabilities=True)
    with pytest.warns(UserWarning, match="calibrate changes the probabilities, and removes") as warned:
        after.calibrate(x, y)
    assert methods_of(warned) == ["set_priors", "conformalize", "set_decision"]
    assert after.density is not None
    assert after.prediction_sets is after.priors is after.decision_rule is None
    after.conformalize(x, y).set_decision(RiskControl(0.3, "miscoverage"), x, y)
    with pytest.warns(UserWarning, match="set_priors changes the probabilities, and removes") as warned:
        after.set_priors([1, 2, 3])
    assert methods_of(warned) == ["conformalize", "set_decision"]
    assert after.calibration is not None
    assert after.prediction_sets is after.decision_rule is None
    with pytest.warns(UserWarning, match="fit_density changes the ") as warned:
        after.fit_density(None)
    assert methods_of(warned) == ["calibrate", "set_priors"]
    assert set(after.components().values()) == {None}
    after = fitted(density_changes_probabilities=True)
    with pytest.warns(UserWarning, match="training changes") as warned:
        assert after.remove("training")
    assert methods_of(warned) == ["fit_density", "calibrate", "set_priors", "conformalize", "set_decision"]
    assert not after.remove("training")


@pytest.mark.filterwarnings("error")
def test_rule_that_is_fitted_to_no_samples_stays():
    after = Softmax().after_training.set_decision(ExpectedCost(1 - np.eye(3)))
    after.calibrate(*draw()).set_priors([1, 2, 3]).set_priors(None)
    assert not after.calibrate(None).remove("training")
    assert after.decision_rule is not None
    assert after.set_decision(None).decision_rule is None


@pytest.mark.filterwarnings("error")
def test_density_without_latents_leaves_calibration_and_sets():
    after = fitted()
    before = after.components()
    after.fit_density(None)
    assert after.components() == {**before, "density": None}
    assert after.served(after.classifier.predict_proba(draw()[0]), None).keys() == {"prediction_set", "decision"}


@pytest.mark.parametrize("method", ["fit_density", "calibrate", "conformalize"])
def test_failed_fits_change_nothing(method):
    after = fitted()
    before = after.components()
    x, y = draw()
    for samples, labels in [(x, y[1:]), (None, y), (x, y + 1.5)]:
        with pytest.raises(ValueError, match=r"y must|samples"):
            getattr(after, method)(samples, labels)
        assert after.components() == before


def test_state_is_restored_and_checked():
    after, other = fitted(), Softmax().after_training
    assert other.state() == {}
    other.load_state(after.state())
    x = draw()[0]
    np.testing.assert_array_equal(other.familiarity(x), after.familiarity(x))
    np.testing.assert_array_equal(other.decide(x), after.decide(x))
    for name in ("calibration", "priors", "prediction_sets", "decision_rule"):
        assert getattr(other, name).get_config() == getattr(after, name).get_config()
    after.calibration = ConformalSets()
    with pytest.raises(ValueError, match="calibration must be a Calibration; found ConformalSets"):
        other.load_state(after.state())


def test_predictions_of_unfitted_components_raise():
    after = Softmax().after_training
    with pytest.raises(ValueError, match="predict_set needs conformalize"):
        after.predict_set(np.zeros((2, 3)))
    with pytest.raises(ValueError, match="familiarity needs fit_density"):
        after.familiarity(np.zeros((2, 3)))
    with pytest.raises(ValueError, match="decide needs set_decision with a rule first"):
        after.decide(np.zeros((2, 3)))
    p = np.full((2, 3), 1 / 3)
    assert not after.probability_maps
    assert after.served(p, p) == {}
    with pytest.raises(ValueError, match=r"set_groups.*call conformalize with held-out samples first"):
        after.report(np.zeros((2, 3)), [0, 1], set_groups=["a", "b"])


def test_report_scores_the_sets_that_are_passed():
    after, (x, y) = fitted(), draw(50)
    assert after.report(x, y, sets=np.ones((50, 3), bool)).set_size == 3.0
    fitted_sets = after.report(x, y)
    assert fitted_sets.set_size < 3.0
    assert after.report(x, y, sets=None) == fitted_sets
    with pytest.raises(ValueError, match=r"set_groups.*leave them out beside sets"):
        after.report(x, y, sets=np.ones((50, 3), bool), set_groups=y)


def test_left_out_samples_stand_for_held_out_ones():
    """Their probabilities are the classifier's own, and then go the way of all others."""
    x, y = draw()
    after = Softmax().after_training.set_priors([1, 1, 2], trained=[2, 1, 1])
    p = after.priors.apply_probabilities(after.classifier._uncalibrated_outputs(x, power=1.0)["probabilities"])
    rule = RiskControl(0.3, "miscoverage")
    assert after.set_decision(rule, x, y, left_out=True).decision_rule.threshold_ == rule.fit(p, y).threshold_
    with pytest.raises(TypeError, match="left_out must be True or False; found 'yes'"):
        after.conformalize(x, y, left_out="yes")


def test_estimated_priors_are_set():
    x, y = draw(3000)
    after = Softmax().after_training.calibrate(x[::2], y[::2], "bias_corrected_temperature")
    new = x[1::2][y[1::2] != 0]
    shift = after.estimate_priors(new)
    assert shift.held_out == 1500
    assert after.priors is None
    assert after.set_priors(shift).priors is shift
    before = shift.frequencies_
    # Estimates are made from probabilities without the frequencies that are set.
    np.testing.assert_array_equal(after.estimate_priors(new).frequencies_, before)
    np.testing.assert_allclose(before[0], 0, atol=0.1)


def test_invalid_priors_and_rules_change_nothing():
    x, y = draw()
    plain, after = Softmax().after_training, fitted()
    for method in (plain.estimate_priors, plain.set_priors):
        with pytest.raises(ValueError, match=r"needs the frequencies that .*: call calibrate with held-out"):
            method([0.2, 0.3, 0.5])
    before = after.components()
    for call, error, message in [
        (lambda: after.set_priors([0.5, 0.5]), ValueError, "frequencies must have 3 rows"),
        (lambda: after.set_priors([-1, 1, 1]), ValueError, r"frequencies must not be negative.*found \[-1"),
        (lambda: after.set_priors({"ant": 1}), ValueError, r"frequencies must hold every class.*found \['ant'\]"),
        (lambda: after.set_priors([1, 1, 1], trained=[0, 1, 1]), ValueError, "trained must be above 0.*class 0"),
        (lambda: after.estimate_priors(x[:3]), ValueError, "p must have more rows than classes, at least 4; found 3"),
        (lambda: after.set_decision("cheapest"), TypeError, "rule must be a DecisionRule.*found 'cheapest'"),
        (lambda: after.set_decision(RiskControl(0.1)), ValueError, r"RiskControl is not.*set_decision\(rule, X, y\)"),
        (lambda: after.set_decision(ExpectedCost(np.eye(2))), ValueError, "costs must be those of the 3 classes"),
        (lambda: after.set_decision(ExpectedCost(np.eye(3)), x, y), ValueError, "x and y must not be given"),
        (lambda: after.set_decision(None, x, y), ValueError, "x and y must not be given"),
        (lambda: after.set_decision(RiskControl(1e-5), x, y), ValueError, "prove a bound of 1e-05"),
        (
            lambda: after.set_decision(RiskControl(0.1, "false_negative_rate", positive="dog"), x, y),
            ValueError,
            "positive must be one of ant, bee, cat; found 'dog'",
        ),
        (
            lambda: after.set_decision(RiskControl(0.9, lambda p, y, t: p[:, 0], thresholds=[0.5]), x, y),
            ValueError,
            "risk must be one by name to decide",
        ),
    ]:
        with pytest.raises(error, match=message):
            call()
        assert after.components() == before
