"""Minibatches against the bound over all samples."""

import numpy as np
import pytest
import tensorflow as tf

from deepsimplex.gp import CollapsedGaussianProcess, StochasticGaussianProcess
from deepsimplex.gp.rows import observed_rows
from deepsimplex.gp.stochastic import Rates, Schedule, State, bound_step
from deepsimplex.latent import LatentGaussian
from tests.gp.test_regression import NOISES, data, each_noise


def batches_of(problem, size):
    return Schedule(1, size, 0.1, 0.1).batches(problem.rows, np.random.default_rng(0))


def problem_of(deviations, noise):
    return StochasticGaussianProcess(inducing=8, noise=noise, ard=True)._problem(observed_rows(*data(deviations)))


@pytest.mark.slow
@each_noise
@pytest.mark.parametrize("noise", ["target", "learned", "scaled"])
def test_a_batch_of_all_samples_and_a_whole_natural_step_give_the_gradient_of_the_collapsed_bound(deviations, noise):
    problem = problem_of(deviations, noise)
    value, expected = CollapsedGaussianProcess()._evaluate(problem, problem.start)
    state = State.initial(problem.start, [part + 1.0 for part in problem.sums(problem.start)])
    (batch,) = batches_of(problem, 1000)
    rates = Rates(*(tf.constant(x, tf.float64) for x in (1.0, 0.1, 1.0, problem.rows.num_rows)))
    found, after = bound_step(problem.model)(problem.frame, state, rates, *batch)
    assert found.numpy() == pytest.approx(value, rel=1e-9)
    for start, moved, moment, gradient in zip(problem.start, after.values, after.first, expected, strict=True):
        gradient_found = moment.numpy() / 0.1 * problem.rows.num_rows  # the first of Adam's moments holds a tenth of it
        np.testing.assert_allclose(gradient_found, gradient, rtol=1e-6, atol=1e-7 * (1.0 + np.abs(gradient).max()))
        # Adam's first step is as long as its learning rate.
        steps = np.sign(gradient_found) * (np.abs(gradient_found) > 1e-2)
        np.testing.assert_allclose((start - moved.numpy()) * np.abs(steps), 0.1 * steps, atol=2e-3)


def test_sums_of_minibatches_are_those_of_all_samples_on_average():
    problem = problem_of(NOISES["two values"], "target")
    whole = [part.numpy() for part in problem.sums(problem.start)]
    batches, values = batches_of(problem, 10), [tf.constant(value) for value in problem.start]
    assert len(batches) == 4
    parts = [problem.model.block(values, problem.frame, *batch)[0] for batch in batches]
    for expected, *found in zip(whole, *parts, strict=True):
        np.testing.assert_allclose(sum(part.numpy() for part in found), expected, rtol=1e-9, atol=1e-9)
    first, second = (np.concatenate([batch[0] for batch in batches]) for _ in range(2))
    assert not np.array_equal(first, second)
    np.testing.assert_array_equal(np.sort(first, axis=0), np.sort(second, axis=0))


@pytest.mark.slow
def test_minibatches_come_near_the_bound_of_all_samples():
    rng = np.random.default_rng(0)
    X = rng.uniform(-3.0, 3.0, (300, 1))
    observation = LatentGaussian(np.sin(3.0 * X) + 0.1 * rng.normal(size=(300, 1)), np.zeros((300, 1)))
    settings = {"inducing": 25, "learn_inducing": True}
    whole = CollapsedGaussianProcess(**settings).fit(X, observation)
    steps = []
    parts = StochasticGaussianProcess(**settings, batch_size=50, epochs=60).fit(X, observation, callback=steps.append)
    assert parts.objective_ < whole.objective_ + 0.04 * 300
    assert [step.iteration for step in steps] == list(range(1, 61))
    assert steps[-1].objective < steps[0].objective
    test = np.linspace(-3.0, 3.0, 50)[:, None]
    np.testing.assert_allclose(parts.predict(test).loc, whole.predict(test).loc, atol=0.05)
    one, other = (StochasticGaussianProcess(**settings, batch_size=50, epochs=3).fit(X, observation) for _ in range(2))
    np.testing.assert_array_equal(one.predict(test).loc, other.predict(test).loc)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"epochs": -1}, "epochs must be"),
        ({"batch_size": 0}, "batch_size must be"),
        ({"learning_rate": 0.0}, "learning_rate must be a number above 0"),
        ({"natural_step": 1.5}, "natural_step must be a number above 0 and at most 1"),
    ],
)
def test_what_is_wrong_is_said(arguments, message):
    with pytest.raises(ValueError, match=message):
        StochasticGaussianProcess(**arguments)
