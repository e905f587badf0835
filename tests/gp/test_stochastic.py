"""Minibatches against the bound over all samples."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from sklearn.datasets import load_iris
from sklearn.exceptions import ConvergenceWarning

import deepsimplex as ds
from deepsimplex.gp import CollapsedGaussianProcess, StochasticGaussianProcess
from deepsimplex.gp.collapsed_bound import block_sums
from deepsimplex.gp.optimize import pack, unpack
from deepsimplex.gp.regression import observed_rows
from deepsimplex.gp.stochastic import Minibatches
from deepsimplex.latent import LatentGaussian
from deepsimplex.samples import ArraySamples
from tests.gp.test_regression import NOISES, data


def objective_of(stds, noise):
    process = StochasticGaussianProcess(inducing=8, noise=noise, ard=True)
    return process._objective(process, observed_rows(*data(stds)))


# Each form of the target's noise and each way to use it, once.
@pytest.mark.slow
@pytest.mark.parametrize(("name", "noise"), list(zip(NOISES, ["target", "learned", "scaled", "target"], strict=True)))
def test_natural_step_by_all_samples_gives_gradient_of_collapsed_bound(name, noise):
    objective = objective_of(NOISES[name], noise)
    expected, derivatives = objective.evaluate(objective.start)
    sums = tuple(part + 1.0 for part in objective.sums(objective.start))
    value, by_batch, moved = objective.step(objective.start, sums, 1.0, 1, *objective.samples.whole())
    assert value.numpy() == pytest.approx(expected, rel=1e-9)
    for name, derivative in derivatives.items():
        gradient = pack(derivative)
        np.testing.assert_allclose(
            pack(by_batch[name]), gradient, rtol=1e-6, atol=1e-7 * (1.0 + np.abs(gradient).max())
        )
    np.testing.assert_allclose(pack(moved), pack(objective.sums(objective.start)), rtol=1e-9, atol=1e-9)


def test_sums_of_minibatches_are_those_of_all_samples_on_average():
    objective = objective_of(NOISES["two values"], "target")
    whole, rng = objective.sums(objective.start), np.random.default_rng(0)
    first, second = (list(objective.samples.batches(10, rng)) for _ in range(2))
    assert len(first) == 4
    parts = [block_sums(*objective.model, objective.start, objective.constants, *batch) for batch in first]
    for expected, *batch_sums in zip(whole, *parts, strict=True):
        np.testing.assert_allclose(sum(part.numpy() for part in batch_sums), expected, rtol=1e-9, atol=1e-9)
    first, second = (np.concatenate([batch[0] for batch in batches]) for batches in (first, second))
    assert not np.array_equal(first, second)
    np.testing.assert_array_equal(np.sort(first, axis=0), np.sort(second, axis=0))


def test_adam_agrees_with_keras():
    """Along a half cosine to a twentieth, by gradients of the mean over samples."""
    start = {"kernel": [np.array(0.5), np.array([1.0, -2.0])], "noise": np.array(0.1)}
    samples = ArraySamples(np.ones((20, 1)))
    gradients = [unpack(np.random.default_rng(number).normal(size=4), start) for number in range(8)]
    minibatches = Minibatches(epochs=4, batch_size=10, learning_rate=0.1, natural_step=0.5)

    def step(values, sums, size, number, x):
        assert (size, len(x)) == (0.5, 10)
        return float(number), gradients[min(number, 8) - 1], sums

    *_, (epoch, mean, values, _, _) = minibatches.train(step, start, (), samples, 0)
    assert (epoch, mean) == (4, 7.5)
    optimizer, variable = keras.optimizers.Adam(), keras.Variable(pack(start), dtype="float64")
    for number, gradient in enumerate(gradients):
        optimizer.learning_rate = 0.1 * (0.95 * 0.5 * (1.0 + np.cos(np.pi * number / 8)) + 0.05)
        optimizer.apply([tf.constant(pack(gradient) / 20)], [variable])
    np.testing.assert_allclose(pack(values), variable, rtol=1e-4)  # of steps in single precision


@pytest.mark.parametrize("bad", [2, 5, 9])
def test_training_goes_back_to_the_last_finite_state(bad):
    """The ninth step is that after the last, at which the result of the eighth is checked."""
    start, samples = {"kernel": [np.zeros(2)]}, ArraySamples(np.ones((20, 1)))
    states = []

    def step(values, sums, size, number, x):
        states.append((values["kernel"][0].copy(), sums))
        gradient = np.full(2, np.nan if number == bad else 1.0)
        return float(number), {"kernel": [gradient]}, (sums[0] + 1.0,)

    minibatches = Minibatches(epochs=4, batch_size=10, learning_rate=0.1, natural_step=0.5)
    with pytest.warns(ConvergenceWarning, match=rf"after step {bad - 1}, .*Lower the learning_rate; found 0\.1"):
        epochs = list(minibatches.train(step, start, (0.0,), samples, 0))
    epoch, _, values, sums, is_last = epochs[-1]
    assert (epoch, is_last, len(states)) == (min(4, (bad + 1) // 2), True, bad)
    np.testing.assert_array_equal(values["kernel"][0], states[bad - 2][0])
    assert sums == states[bad - 2][1]


def test_start_that_is_not_finite_raises():
    def step(values, sums, size, number, x):
        return np.nan, values, sums

    minibatches = Minibatches(epochs=1, batch_size=None, learning_rate=0.1, natural_step=0.5)
    with pytest.raises(ValueError, match="not finite at the start: are features too large"):
        list(minibatches.train(step, {"kernel": [np.zeros(2)]}, (), ArraySamples(np.ones((20, 1))), 0))


DIVERGENT = {
    "stochastic": ds.SimplexGaussianProcess("ilr", inference="stochastic", inducing=10, epochs=2, learning_rate=1e4),
    "categorical": ds.CategoricalGaussianProcess(inducing=10, epochs=2, batch_size=15, learning_rate=1e4),
}


@pytest.mark.parametrize("classifier", DIVERGENT.values(), ids=DIVERGENT)
def test_diverging_classifiers_warn_and_predict(classifier):
    X, y = load_iris(return_X_y=True)
    reported = []
    with pytest.warns(ConvergenceWarning, match="Lower the learning_rate; found 10000"):
        classifier.fit(X, y, callback=lambda step: reported.append(step.iteration))
    assert (classifier.n_iter_, reported) == (1, [1])
    assert classifier.score(X, y) > 0.9


@pytest.mark.slow
def test_minibatches_approach_the_bound_of_all_samples():
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
        ({"epochs": -1}, r"epochs must.*found -1"),
        ({"batch_size": 0}, r"batch_size must.*found 0"),
        ({"learning_rate": 0.0}, r"learning_rate must.*found 0\.0"),
        ({"natural_step": 1.5}, r"natural_step must.*found 1\.5"),
    ],
)
def test_invalid_settings_raise(arguments, message):
    with pytest.raises(ValueError, match=message):
        StochasticGaussianProcess(**arguments)
