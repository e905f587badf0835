"""Risk control: guarantees over simulated draws, against formulas written out, and errors."""

import json
import math

import numpy as np
import pytest
from scipy.special import expit

from deepsimplex.calibration import RiskControl
from deepsimplex.calibration.risk_control import p_values_of_risk
from deepsimplex.evaluation import decision_curve, net_benefit

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
    "rejection_rate": lambda p, t: np.mean(p.max(axis=1) < t),
    asks_cost: lambda p, t: np.mean(np.where(p.max(axis=1) >= t, 1 - p.max(axis=1), 0.05)),
}


@pytest.mark.parametrize(
    ("risk", "bound", "samples", "method"),
    [
        ("selective_error", 0.1, 1000, "learn_then_test"),
        ("miscoverage", 0.1, 300, "learn_then_test"),
        ("false_negative_rate", 0.15, 300, "learn_then_test"),
        ("rejection_rate", 0.05, 300, "learn_then_test"),
        (asks_cost, 0.1, 400, "learn_then_test"),
        ("miscoverage", 0.1, 300, "conformal"),
        ("false_negative_rate", 0.15, 300, "conformal"),
    ],
)
def test_risk_of_new_samples_is_below_bound(risk, bound, samples, method):
    rng = np.random.default_rng(0)
    population = draw(rng, 20000)[0]
    thresholds = expit(np.linspace(8, -2, 101)) if callable(risk) else None
    control = RiskControl(bound, risk, method=method, thresholds=thresholds, positive=1)
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


@pytest.mark.parametrize("m", [60, 400, 1000])
def test_confidence_of_sensitivity_exceeds_the_one_asked_by_one_sample_at_most(m):
    """Of m positives the threshold is the k-th smallest probability: misses are Beta(k, m + 1 - k)."""
    from scipy.stats import beta, binom

    p = np.random.default_rng(0).random(m)
    control = RiskControl(0.05, "false_negative_rate").fit(np.column_stack([1 - p, p]), np.ones(m, int))
    k = 1 + np.flatnonzero(np.sort(p) == control.threshold_)[0]
    confidence = beta(k, m + 1 - k).cdf(0.05)
    assert confidence >= 0.9
    assert beta(k + 1, m - k).cdf(0.05) < 0.9
    assert confidence - 0.9 <= binom(m, 0.05).pmf(k)


def test_decisions_of_every_risk():
    p = np.array([[0.7, 0.2, 0.1], [0.4, 0.35, 0.25], [0.1, 0.3, 0.6], [0.34, 0.33, 0.33]])
    decided = {
        ("selective_error", 0.5): [0, -1, 2, -1],
        ("rejection_rate", 0.35): [0, 0, 2, -1],
        ("miscoverage", 0.36): [0, 0, 2, -1],
        ("miscoverage", 0.3): [0, -1, -1, -1],
        ("false_negative_rate", 0.3): [0, 1, 1, 1],
    }
    for (risk, threshold), expected in decided.items():
        control = RiskControl(0.1, risk)
        control.threshold_, control.risk_, control.positive_ = threshold, 0.0, 1
        for dtype in (np.float32, np.float64):
            np.testing.assert_array_equal(control.decide(p.astype(dtype)), expected, err_msg=risk)


def test_positive_class_by_name_or_number():
    p, y = draw(np.random.default_rng(5), 200)
    for names, positive, number in [
        (None, 2, 2),
        (["ant", "bee", "cat"], "cat", 2),
        (["ant", "bee", "cat"], 1, 1),
        ([2, 5, 1], 1, 2),
    ]:
        labels = y if names is None else np.array(names)[y]
        control = RiskControl(0.3, "false_negative_rate", positive=positive).fit(p, labels, classes=names)
        assert control.positive_ == number


@pytest.mark.parametrize("names", [None, [0, 1], ["0", "1"], [False, True]])
def test_positive_class_of_zero_and_one_is_one_by_default(names):
    y = np.array([0, 1] * 20)
    p = np.eye(2)[y]
    labels = y if names is None else np.array(names)[y]
    rule = RiskControl(0.3, "false_negative_rate").fit(p, labels, classes=names)
    assert rule.positive_ == 1
    assert RiskControl.from_config(rule.get_config()).positive_ == 1
    assert decision_curve(labels, p, [0.5], classes=names).net_benefit[0] == 0.5


@pytest.mark.parametrize("names", [["benign", "malignant"], [1, 2], [1, 0], [0, 1, 2], None])
def test_positive_class_of_other_names_must_be_given(names):
    n = 3 if names is None else len(names)
    y, p = np.arange(30) % n, np.eye(n)[np.arange(30) % n]
    labels = y if names is None else np.array(names)[y]
    message = f"positive must be one of {', '.join(map(str, names or range(3)))}; found None"
    for call in (
        RiskControl(0.3, "false_negative_rate").fit,
        lambda p, y, **options: decision_curve(y, p, **options),
        lambda p, y, **options: net_benefit(y, p, 0.5, **options),
    ):
        with pytest.raises(ValueError, match=message):
            call(p, labels, classes=names)


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
            r"^60 held-out samples cannot prove a bound of 0\.001 with confidence 0\.9, .*: at least 2302 are needed",
        ),
        (
            RiskControl(0.01, "rejection_rate", method="conformal", thresholds=[0.0]),
            r"^60 held-out samples cannot prove a bound of 0\.01, even .* at least 99 are needed",
        ),
        (RiskControl(0.01), r"^\d+ held-out samples that are accepted, of 60, .*bound of 0\.01 with confidence 0\.9"),
        (
            RiskControl(0.1, "rejection_rate", thresholds=[1.0]),
            r"^60 held-out samples have a risk of 1 at .*, 1: it",
        ),
        (RiskControl(0.1, "false_negative_rate", positive=3), r"positive must be one of 0, 1, 2; found 3"),
        (RiskControl(0.1, lambda p, y, t: 5.0 * (p.max(axis=1) < t), thresholds=[1.0]), r"losses in \[0, 1\]; found 5"),
        (RiskControl(0.1, lambda p, y, t: y[1:] / 2, thresholds=[1.0]), "losses of risk must have 60 rows"),
        (RiskControl(0.5, asks_cost, method="conformal", thresholds=[0.9, 0.5]), "losses that do not fall along"),
    ]:
        with pytest.raises(ValueError, match=message):
            control.fit(p, y)
    with pytest.raises(ValueError, match="not fitted"):
        RiskControl(0.1).predict(p)
    control = RiskControl(0.9, asks_cost, thresholds=[0.9]).fit(p, y)
    for method in (control.predict, control.decide):
        with pytest.raises(ValueError, match="risk must be one by name to decide"):
            method(p)
    with pytest.raises(ValueError, match=r"^0 held-out 2 samples cannot prove .* at least 22 are needed"):
        RiskControl(0.1, "false_negative_rate", positive=2).fit(p[y != 2], y[y != 2])
