"""Optimization of the hyperparameters: failed factorizations, convergence, restarts and callbacks."""

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

from deepsimplex.gp import CollapsedGaussianProcess, ExactGaussianProcess
from deepsimplex.gp.cholesky import SingularError
from deepsimplex.gp.optimize import minimize, pack
from deepsimplex.gp.regression import observed_rows
from deepsimplex.latent import LatentGaussian

X = np.linspace(0.0, 6.0, 60)[:, None]


def barrier(values):
    """Least at 3, with nothing from 4.5 on; from 0, where it is almost straight, the second step goes beyond."""
    (x,) = values
    if x[0] > 4.5:
        raise SingularError("no factor")
    height = float(np.sqrt(1.0 + (x[0] - 3.0) ** 2))
    return height, [(x - 3.0) / height]


def test_singular_covariance_makes_line_search_backtrack():
    tried = []

    def evaluate(values):
        tried.append(values[0][0])
        return barrier(values)

    optimum = minimize(evaluate, [[np.zeros(1)]], 50)
    assert max(tried) > 4.5
    np.testing.assert_allclose(optimum.values[0], 3.0, atol=1e-2)


@pytest.mark.parametrize("failure", [SingularError, None])
def test_restarts_from_far_above_backtrack(failure):
    """The best so far is much lower than the wall must be."""
    reported = []

    def evaluate(values):
        (x,) = values
        if x[0] > 5.0:
            if failure is not None:
                raise failure("no factor")
            return np.nan, [np.full(1, np.nan)]
        return 1e4 * float((x[0] - 3.0) ** 2), [2e4 * (x - 3.0)]

    def report(iteration, value, values):
        reported.append(values[0][0])

    starts = [[np.full(1, x)] for x in (2.0, 9.0, -88.0)]  # the second is singular, the third far away
    assert minimize(evaluate, starts, 50, report).objective < 1e-3
    assert max(reported) <= 5.0
    assert min(reported) < 0.0


def test_singular_first_start_raises():
    with pytest.raises(SingularError):
        minimize(barrier, [[np.full(1, 6.0)]], 50)


def test_max_iter_too_small_warns():
    observation = LatentGaussian(np.sin(X), np.full((60, 1), 0.01))
    with pytest.warns(ConvergenceWarning, match="still moving after max_iter=2"):
        ExactGaussianProcess(max_iter=2).fit(X, observation)


def test_converged_searches_do_not_warn(recwarn):
    observation = LatentGaussian(np.sin(X), np.full((60, 1), 0.01))
    ExactGaussianProcess().fit(X, observation)
    ExactGaussianProcess(max_iter=0).fit(X, observation)
    assert not [warning for warning in recwarn if warning.category is ConvergenceWarning]


def test_restarts_move_logarithms_and_leave_inducing_points():
    observation = LatentGaussian(np.sin(X), np.full((60, 1), 0.3))
    process = CollapsedGaussianProcess(inducing=7, learn_inducing=True)
    objective = process._objective(process, observed_rows(X, observation))
    starts = [objective.random_start(np.random.default_rng(seed)) for seed in range(400)]
    for name, value in objective.start.items():
        moved = np.array([pack(start[name]) for start in starts]) - pack(value)
        np.testing.assert_allclose(moved.std(axis=0), 0.0 if name == "shift" else 1.0, atol=0.15)


@pytest.mark.parametrize(("noise", "start"), [("learned", 1e-3), ("scaled", 1.0)])
def test_noise_stated_too_small_is_learned(noise, start):
    """Stated as a hundred-thousandth of what it is."""
    rng, steps = np.random.default_rng(0), []
    observation = LatentGaussian(np.sin(X) + 0.3 * rng.normal(size=X.shape), np.full((60, 1), 3e-6))
    process = ExactGaussianProcess(noise=noise).fit(X, observation, callback=steps.append)
    assert steps[-1].hyperparameters["noise"] > 1.5 * start
    if noise == "learned":
        assert np.abs(process.predict(X).loc - np.sin(X)).max() < 0.3


def test_kept_steps_have_the_posterior_of_their_iteration():
    observation = LatentGaussian(np.sin(X) + 0.3 * np.cos(9.0 * X), np.full((60, 1), 0.1))
    kept, made = [], []

    def watch(step):
        kept.append(step)
        made.append(step.posterior().predict(X))

    process = ExactGaussianProcess(max_iter=4).fit(X, observation, callback=watch)
    for step, latent in zip(kept, made, strict=True):
        np.testing.assert_array_equal(step.posterior().predict(X).loc, latent.loc)
    assert np.abs(made[0].loc - made[-1].loc).max() > 1e-3
    np.testing.assert_allclose(made[-1].loc, process.predict(X).loc, rtol=1e-6, atol=1e-6)


def test_failing_callback_ends_the_fit():
    def fail(step):
        raise KeyboardInterrupt

    process = ExactGaussianProcess(max_iter=2)
    with pytest.raises(KeyboardInterrupt):
        process.fit(X, LatentGaussian(np.sin(X), np.full((60, 1), 0.01)), callback=fail)
    assert not hasattr(process, "posterior_")
