"""Risk control: guarantees over simulated draws, against formulas written out, and errors."""

import json
import math

import numpy as np
import pytest
from scipy.special import expit

from deepsimplex.calibration import RiskControl
from deepsimplex.calibration.risk_control import p_values_of_risk

REPEATS = 200


def draw(rng, samples):
    """Probabilities that are right, and labels drawn from them."""
    p = rng.dirichlet(np.full(3, 0.3), samples)
    return p, np.argmax(np.log(p) + rng.gumbel(size=p.shape), axis=1)


def asks_cost(p, y, threshold):
    """An answer that is wrong costs 1, a question to a person .05."""
    answered = p.max(axis=1) >= threshold
    return np.where(answered, p.argmax(axis=1) != y, 0.05)


# Expected losses of samples with right probabilities, at a threshold.
EXPECTED = {
    "selective_error": lambda p, t: np.mean(1 - p.max(axis=1)[p.max(axis=1) >= t]),
    "miscoverage": lambda p, t: np.mean(np.sum(np.where(p >= t, 0, p), axis=1)),
    "false_negative_rate": lambda p, t: np.sum(np.where(p[:, 1] >= t, 0, p[:, 1])) / np.sum(p[:, 1]),
    asks_cost: lambda p, t: np.mean(np.where(p.max(axis=1) >= t, 1 - p.max(axis=1), 0.05)),
}


@pytest.mark.parametrize(
    ("risk", "bound", "samples", "method"),
    [
        ("selective_error", 0.1, 1000, "learn_then_test"),
        ("miscoverage", 0.1, 300, "learn_then_test"),
        ("false_negative_rate", 0.15, 300, "learn_then_test"),
        (asks_cost, 0.1, 400, "learn_then_test"),
        ("miscoverage", 0.1, 300, "conformal"),
        ("false_negative_rate", 0.15, 300, "conformal"),
    ],
)
def test_risk_of_new_samples_is_below_bound(risk, bound, samples, method):
    rng = np.random.default_rng(0)
    population = draw(rng, 20000)[0]
    thresholds = expit(np.linspace(8, -2, 101)) if callable(risk) else None
    control = RiskControl(bound, risk, method=method, thresholds=thresholds)
    risks = [EXPECTED[risk](population, control.fit(*draw(rng, samples)).threshold_) for _ in range(REPEATS)]
    if method == "conformal":  # in the mean, not vacuously
        assert bound - 0.02 < np.mean(risks) < bound + 2 * np.std(risks) / math.sqrt(REPEATS)
    else:
        assert np.mean(np.array(risks) <= bound) >= 0.9
        assert np.median(risks) > bound / 2


def test_threshold_equals_search_written_out():
    """Of one start: thresholds pass while the binomial tail of their errors is at most delta."""
    p, y = draw(np.random.default_rng(1), 150)
    thresholds = np.linspace(0, 0.5, 51)
    control = RiskControl(0.2, "miscoverage", delta=0.05, thresholds=thresholds).fit(p, y)
    passed = []
    for t in thresholds:
        errors = sum(row[k] < t for row, k in zip(p, y, strict=True))
        tail = sum(math.comb(150, k) * 0.2**k * 0.8 ** (150 - k) for k in range(errors + 1))
        if tail > 0.05:
            break
        passed.append(t)
    assert 1 < len(passed) < 51
    assert control.threshold_ == passed[-1]
    np.testing.assert_array_equal(control.predict(p), p >= passed[-1])
    assert control.risk_ == np.mean(~control.predict(p)[range(150), y])


def test_conformal_threshold_equals_search_written_out():
    p, y = draw(np.random.default_rng(2), 150)
    thresholds = np.linspace(0, 0.5, 51)
    control = RiskControl(0.2, "false_negative_rate", method="conformal", thresholds=thresholds, positive=2).fit(p, y)
    of_class = p[y == 2, 2]
    safe = [t for t in thresholds if (np.sum(of_class < t) + 1) / (len(of_class) + 1) <= 0.2]
    assert control.threshold_ == safe[-1]
    np.testing.assert_array_equal(control.predict(p), p[:, 2] >= safe[-1])
    names = ["healthy", "ill", "dead"]
    by_name = RiskControl(0.2, "false_negative_rate", method="conformal", thresholds=thresholds, positive="dead")
    by_name.fit(p, np.array(names)[y], classes=names)
    assert (by_name.threshold_, by_name.positive_) == (control.threshold_, 2)
    again = RiskControl.from_config(json.loads(json.dumps(by_name.get_config())))
    np.testing.assert_array_equal(again.predict(p), control.predict(p))


def test_p_values_of_hoeffding_and_bentkus():
    """As published: of the mean loss r over m samples, min(exp(-m kl(min(r, a), a)), e P(Bin(m, a) <= ceil(m r)))."""
    for r, m, a in [(0.0, 50, 0.1), (0.03, 217, 0.08), (0.25, 40, 0.3), (0.4, 30, 0.2)]:
        low = min(r, a)
        kl = (low * math.log(low / a) if low else 0.0) + (1 - low) * math.log((1 - low) / (1 - a))
        tail = sum(math.comb(m, k) * a**k * (1 - a) ** (m - k) for k in range(math.ceil(m * r) + 1))
        expected = min(math.exp(-m * kl), math.e * tail, 1)
        assert p_values_of_risk(np.array([r]), np.array([m]), a)[0] == pytest.approx(expected, rel=1e-9)


def test_accepted_samples_are_nearly_as_many_as_allowed():
    """At most so many are accepted whose expected error rate is the bound; tests of 2000 samples come close to it."""
    rng = np.random.default_rng(3)
    p = draw(rng, 20000)[0]
    error = np.sort(1 - p.max(axis=1))
    most = np.mean(np.cumsum(error) / np.arange(1, 20001) <= 0.1)
    accepted = RiskControl(0.1).fit(*draw(rng, 2000)).predict(p)
    assert most - 0.1 < accepted.mean() <= most


def test_invalid_risk_control_raises():
    p, y = draw(np.random.default_rng(4), 60)
    for arguments, message in [
        ({"bound": 1.0}, r"bound must.*found 1\.0"),
        ({"bound": 0.1, "delta": 0}, r"delta must.*found 0"),
        ({"bound": 0.1, "risk": "miscover"}, r"risk must.*found 'miscover'; did you mean 'miscoverage'"),
        ({"bound": 0.1, "method": "conformal"}, r"method must be 'learn_then_test' for risk='selective_error'"),
        ({"bound": 0.1, "risk": asks_cost}, "thresholds must be given, safest first"),
    ]:
        with pytest.raises(ValueError, match=message):
            RiskControl(**arguments)
    for control, message in [
        (
            RiskControl(0.001, "miscoverage"),
            r"no threshold is safe for bound = 0\.001: the risk at the safest, 0, is 0 for the 60",
        ),
        (RiskControl(0.1, "false_negative_rate", positive=3), r"positive must be a class of p, among 0, 1, 2; found 3"),
        (RiskControl(0.1, lambda p, y, t: 5.0 * (p.max(axis=1) < t), thresholds=[1.0]), r"losses in \[0, 1\]; found 5"),
        (RiskControl(0.1, lambda p, y, t: y[1:] / 2, thresholds=[1.0]), "losses of risk must have 60 rows"),
        (RiskControl(0.5, asks_cost, method="conformal", thresholds=[0.9, 0.5]), "losses that do not fall along"),
    ]:
        with pytest.raises(ValueError, match=message):
            control.fit(p, y)
    with pytest.raises(ValueError, match="not fitted"):
        RiskControl(0.1).predict(p)
    with pytest.raises(ValueError, match="predict needs a risk by name"):
        RiskControl(0.9, asks_cost, thresholds=[0.9]).fit(p, y).predict(p)
