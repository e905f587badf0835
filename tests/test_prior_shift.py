"""Other class frequencies: exact reweighting, the likeliest ones, their interval and test, by simulation and oracle."""

import json

import numpy as np
import pytest
from scipy.optimize import minimize

from deepsimplex.calibration import PriorShift

Q = np.array([0.5, 0.3, 0.2])


def draw(rng, samples, w, q=Q):
    """Draw labels by frequencies w, and probabilities that are right for frequencies q."""
    y = rng.choice(len(w), samples, p=w)
    x = rng.normal(1.5 * np.eye(len(w))[y])
    p = q * np.exp(1.5 * x)
    return p / p.sum(axis=1, keepdims=True), y


def test_known_frequencies_reweight_exactly():
    """Of samples with known densities: the posterior for w is that for q by Bayes' rule."""
    w = [0.1, 0.1, 0.8]
    rng = np.random.default_rng(0)
    state = rng.bit_generator.state
    p, _ = draw(rng, 100, w)
    rng.bit_generator.state = state
    expected, _ = draw(rng, 100, w, q=np.array(w))
    shift = PriorShift(Q, w)
    np.testing.assert_allclose(shift.transform(p), expected, rtol=1e-12)
    single = shift.transform(p.astype(np.float32))
    assert single.dtype == np.float32
    np.testing.assert_allclose(single, expected, rtol=1e-5)
    np.testing.assert_allclose(PriorShift(1000 * Q, [1, 1, 8]).transform(p), expected, rtol=1e-12)
    assert shift.p_value_ is None
    np.testing.assert_array_equal(shift.lower_, shift.upper_)


def test_a_class_that_is_absent_has_no_probability():
    p = PriorShift(Q, [0.5, 0.5, 0]).transform([[0.0, 0.0, 1.0], [0.5, 0.3, 0.2]])
    np.testing.assert_allclose(p, [[0, 0, 1], [0.5, 0.5, 0]], atol=1e-9)


def test_estimate_is_the_likeliest():
    """As by a search over logits, and by expectation maximization as published, with one more sample of shares q."""
    p, _ = draw(np.random.default_rng(1), 400, [0.2, 0.2, 0.6])
    estimate = PriorShift(Q).fit(p).frequencies_

    def softmax(z):
        e = np.exp(np.append(z, 0.0))
        return e / e.sum()

    def negative_log_likelihood(z):
        return -np.sum(np.log(p @ (softmax(z) / Q))) - Q @ np.log(softmax(z))

    best = minimize(negative_log_likelihood, np.zeros(2), tol=1e-9)
    np.testing.assert_allclose(estimate, softmax(best.x), atol=1e-5)
    w = Q
    for _ in range(2000):
        posterior = p * w / Q
        w = (np.sum(posterior / posterior.sum(axis=1, keepdims=True), axis=0) + Q) / 401
    np.testing.assert_allclose(estimate, w, atol=1e-6)


@pytest.mark.parametrize("held_out", [None, 300])
def test_interval_covers_and_test_holds_its_level(held_out):
    """Of 50 draws: intervals of 95% about the frequencies of a shift, and false alarms of 10% without one."""
    rng, w = np.random.default_rng(2), np.array([0.2, 0.2, 0.6])
    covered, alarms, power = [], [], []
    for _ in range(50):
        q = Q if held_out is None else draw(rng, held_out, Q)[0].mean(axis=0)
        shift = PriorShift(q, held_out=held_out).fit(draw(rng, 120, w)[0])
        covered.append((shift.lower_ <= w) & (w <= shift.upper_))
        power.append(shift.p_value_ <= 0.1)
        alarms.append(PriorShift(q, held_out=held_out).fit(draw(rng, 120, Q)[0]).p_value_ <= 0.1)
    assert np.mean(covered, axis=0).min() > 0.88  # standard deviation 0.03
    assert np.mean(alarms) < 0.1 + 2 * np.sqrt(0.09 / 50)
    assert np.mean(power) > 0.95


def test_miscalibrated_probabilities_alone_raise_no_false_alarm():
    rng = np.random.default_rng(3)

    def overconfident(samples):
        p = draw(rng, samples, Q)[0] ** 2
        return p / p.sum(axis=1, keepdims=True)

    alarms = []
    for _ in range(100):
        q = overconfident(300).mean(axis=0)
        alarms.append(PriorShift(q, held_out=300).fit(overconfident(120)).p_value_ <= 0.1)
    assert np.mean(alarms) < 0.1 + 2 * np.sqrt(0.09 / 100)


def test_estimate_is_repeatable_and_survives_configuration():
    p, _ = draw(np.random.default_rng(4), 100, [0.2, 0.2, 0.6])
    shift, other = PriorShift(Q, held_out=50).fit(p), PriorShift(Q, held_out=50).fit(p)
    again = PriorShift.from_config(json.loads(json.dumps(shift.get_config())))
    assert shift.get_config() == other.get_config() == again.get_config()
    np.testing.assert_array_equal(again.transform(p), shift.transform(p))
    known = PriorShift(Q, [1, 2, 3])
    assert PriorShift.from_config(json.loads(json.dumps(known.get_config()))).get_config() == known.get_config()
    constant = PriorShift(Q).fit(np.tile(Q, (10, 1)))
    np.testing.assert_allclose(constant.frequencies_, Q)
    assert constant.p_value_ == 1.0


def test_invalid_frequencies_raise():
    p = np.tile(Q, (5, 1))
    for make, message in [
        (lambda: PriorShift([0.5, 0.5, 0]), "trained must be above 0 for every class; found 0 for class 2"),
        (lambda: PriorShift([0.5, -0.5]), r"trained must not be negative, nor all be 0; found \[0\.5, -0\.5\]"),
        (lambda: PriorShift(Q, [0, 0, 0]), "frequencies must not be negative, nor all be 0"),
        (lambda: PriorShift(Q, [0.5, 0.5]), "frequencies must have 3 rows, as many as classes; found 2"),
        (lambda: PriorShift([1.0]), "trained must have at least 2 rows; found 1"),
        (lambda: PriorShift([np.nan, 1]), "trained must be finite"),
        (lambda: PriorShift(Q, held_out=0), "held_out must be a whole number, at least 1; found 0"),
        (lambda: PriorShift(Q, level=1.0), r"level must.*found 1\.0"),
        (lambda: PriorShift(Q).fit(p[:3]), "p must have more rows than classes, at least 4; found 3"),
        (lambda: PriorShift(Q).fit(p[:, :2]), r"p must have shape \[N, 3\]"),
        (lambda: PriorShift(Q, Q).fit(p), "frequencies must not be given for fit"),
        (lambda: PriorShift(Q).transform(p), "not fitted"),
        (lambda: PriorShift([0.5, 0.5], [0.5, 0.5]).transform(p), r"p must have shape \[N, 2\], as in fit"),
    ]:
        with pytest.raises(ValueError, match=message):
            make()
