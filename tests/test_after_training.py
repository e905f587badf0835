"""Order of dependence of density, calibration and prediction sets, for any classifier of the protocol."""

import numpy as np
import pytest

from deepsimplex.calibration import ConformalSets
from deepsimplex.calibration.after_training import FittedComponents


class Softmax:
    """Probabilities softmax(2 x) of samples x [N, 3], with labels drawn from softmax(x)."""

    _variance_share = None

    def __init__(self, has_latents=False):
        self._has_latents, self.after_training = has_latents, FittedComponents(self)

    def _labeled_arrays(self, x, y, sample_weight):
        return x, np.asarray(y), sample_weight

    def _uncalibrated_outputs(self, x, power=2.0):
        p = np.exp(power * x)
        return {"probabilities": p / p.sum(axis=1, keepdims=True)}

    def _density_features(self, x, power=2.0):
        return x

    def predict_proba(self, x, **options):
        p, calibration = self._uncalibrated_outputs(x, **options)["probabilities"], self.after_training.calibration
        return p if calibration is None else calibration.apply_probabilities(p)


def draw(samples=600):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(samples, 3))
    p = Softmax()._uncalibrated_outputs(x, power=1.0)["probabilities"]
    return x, np.array([rng.choice(3, p=row) for row in p])


def fitted(has_latents=False) -> FittedComponents:
    x, y = draw()
    after = Softmax(has_latents).after_training
    return (
        after.fit_density(x, y)
        .calibrate(x[::2], y[::2], "temperature")
        .conformalize(x[1::2], y[1::2], coverage=0.8, seed=3)
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
    assert after.maps_probabilities


def test_options_of_predictions_reach_the_classifier():
    after = FittedComponents(Softmax()).calibrate(*draw(), "temperature", power=1.0)
    assert after.calibration.temperature_ == pytest.approx(1, rel=0.2)


@pytest.mark.filterwarnings("ignore:calibrate changes the probabilities")
def test_calibration_is_fitted_to_uncalibrated_probabilities():
    x, y = draw()
    after = fitted()
    temperature = after.calibration.temperature_
    assert after.calibrate(x[::2], y[::2], "temperature").calibration.temperature_ == temperature


def test_changes_remove_dependent_components_with_a_warning():
    x, y = draw()
    after = fitted(has_latents=True)
    with pytest.warns(UserWarning, match="calibrate changes the probabilities, .*: call conformalize again"):
        after.calibrate(x, y)
    assert after.density is not None
    assert after.prediction_sets is None
    with pytest.warns(UserWarning, match="fit_density changes the outputs, .*: call calibrate again"):
        after.fit_density(None)
    assert set(after.components().values()) == {None}
    after = fitted(has_latents=True)
    with pytest.warns(UserWarning, match="training changes") as warned:
        assert after.remove("training")
    methods = [str(warning.message).split("call ")[1].split()[0] for warning in warned]
    assert methods == ["fit_density", "calibrate", "conformalize"]
    assert not after.remove("training")


@pytest.mark.filterwarnings("error")
def test_density_without_latents_leaves_calibration_and_sets():
    after = fitted()
    before = after.components()
    after.fit_density(None)
    assert after.components() == {**before, "density": None}
    assert after.served(after.classifier.predict_proba(draw()[0]), None).keys() == {"prediction_set"}


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
    after, other = fitted(), FittedComponents(Softmax())
    assert other.state() == {}
    other.load_state(after.state())
    x = draw()[0]
    np.testing.assert_array_equal(other.familiarity(x), after.familiarity(x))
    for name in ("calibration", "prediction_sets"):
        assert getattr(other, name).get_config() == getattr(after, name).get_config()
    after.calibration = ConformalSets()
    with pytest.raises(ValueError, match="calibration must be a Calibration; found ConformalSets"):
        other.load_state(after.state())


def test_predictions_of_unfitted_components_raise():
    after = FittedComponents(Softmax())
    with pytest.raises(ValueError, match="predict_set needs conformalize"):
        after.predict_set(np.zeros((2, 3)))
    with pytest.raises(ValueError, match="familiarity needs fit_density"):
        after.familiarity(np.zeros((2, 3)))
    p = np.full((2, 3), 1 / 3)
    assert not after.maps_probabilities
    assert after.served(p, p) == {}
