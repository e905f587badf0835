"""The Gaussian processes against plain formulas, scikit-learn, GPflow and one another."""

import numpy as np
import pytest
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, Matern

from deepsimplex.gp import CollapsedGaussianProcess, ExactGaussianProcess, StochasticGaussianProcess
from deepsimplex.gp.gpflow_kernels import gpflow
from deepsimplex.gp.optimize import pack, unpack
from deepsimplex.gp.regression import observed_rows
from deepsimplex.latent import LatentGaussian
from tests.reference import gaussian_process as reference

N, DIMS, FEATURES = 40, 3, 2
NOISES = {
    "shared": np.full((N, 1), 0.2),
    "shared, uneven": np.linspace(0.1, 0.4, N)[:, None],
    "two values": np.where(np.arange(N)[:, None] % DIMS == np.arange(DIMS), 0.1, 0.5),
    "all different": np.random.default_rng(5).uniform(0.1, 0.5, (N, DIMS)),
}
each_noise = pytest.mark.parametrize("stds", NOISES.values(), ids=NOISES)


def data(stds):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(N, FEATURES)) * [1.0, 30.0] + [5.0, -2.0]
    loc = np.stack([np.sin(X[:, 0]), np.cos(X[:, 1] / 30.0), X[:, 0]], axis=1) + 0.1 * rng.normal(size=(N, DIMS))
    return X, LatentGaussian(4.0 * loc + 1.0, 4.0 * stds)


def scaled(X, observation):
    """Features, latents and variances as the processes see them."""
    width = np.sqrt(np.mean(np.square(observation.loc - observation.loc.mean(axis=0))))
    Z = (observation.loc - observation.loc.mean(axis=0)) / width
    return (X - X.mean(axis=0)) / X.std(axis=0), Z, np.square(observation.scale / width)


def kernel_of(process):
    """The kernel that a process ended with, by the plain formula."""
    kernel = process.posterior_.kernel
    theta = kernel.variance.numpy(), kernel.lengthscales.numpy()
    return lambda a, b: reference.rbf(a, b, *theta)


def objective_of(process, *arrays, **weights):
    """The objective of a process that is fitted to these arrays."""
    return process._objective(process, observed_rows(*arrays, **weights))


def assert_derivatives_are_right(objective):
    start = pack(objective.start)
    start += 0.2 * np.random.default_rng(1).normal(size=start.shape)
    derivatives = pack(objective.evaluate(unpack(start, objective.start))[1])
    expected = []
    for step in 1e-5 * np.eye(len(start)):
        above, below = (objective.evaluate(unpack(end, objective.start))[0] for end in (start + step, start - step))
        expected.append((above - below) / 2e-5)
    np.testing.assert_allclose(derivatives, expected, rtol=1e-5, atol=1e-5 * np.abs(expected).max())


@each_noise
def test_exact_likelihood_equals_multivariate_normal(stds):
    X, observation = data(stds)
    process = ExactGaussianProcess(max_iter=0).fit(X, observation)
    k, (x, Z, variances) = kernel_of(process), scaled(X, observation)
    expected = -reference.log_marginal_likelihood(k(x, x), Z, variances)
    assert process.objective_ == pytest.approx(expected, rel=1e-10)


# Each form of the target's noise and each way to use it, with either process.
@pytest.mark.parametrize(
    ("make", "name", "noise"),
    [
        *zip([ExactGaussianProcess] * 4, NOISES, ["target", "learned", "scaled", "learned"], strict=True),
        *zip([CollapsedGaussianProcess] * 4, NOISES, ["scaled", "target", "learned", "target"], strict=True),
    ],
)
def test_derivatives_agree_with_finite_differences(make, name, noise):
    options = {"inducing": 15} if make is CollapsedGaussianProcess else {}
    assert_derivatives_are_right(objective_of(make(noise=noise, ard=True, **options), *data(NOISES[name])))


@pytest.mark.parametrize(
    ("make", "noise", "stds"),
    [
        (ExactGaussianProcess, "learned", NOISES["shared, uneven"]),
        (ExactGaussianProcess, "scaled", NOISES["two values"]),
        (lambda **settings: CollapsedGaussianProcess(inducing=15, **settings), "learned", NOISES["shared"]),
        (lambda **settings: CollapsedGaussianProcess(inducing=15, **settings), "scaled", NOISES["two values"]),
        (lambda **k: CollapsedGaussianProcess(inducing=15, separate_inducing=True, **k), "target", NOISES["shared"]),
    ],
)
def test_integer_weights_are_repeated_rows(make, noise, stds):
    """The objective, its derivatives and the predictions; rows of weight 0 are left out."""
    X, observation = data(stds)
    weights = np.arange(N) % 4
    every, kept = np.repeat(np.arange(N), weights), weights > 0
    process = make(noise=noise, max_iter=0)
    alone = objective_of(process, X[kept], observation[kept], sample_weight=weights[kept])
    value, derivatives = alone.evaluate(alone.start)
    repeated = objective_of(process, X[every], observation[every])
    expected, by_repeated = repeated.evaluate(repeated.start)
    assert value == pytest.approx(expected, rel=1e-9)
    np.testing.assert_allclose(pack(derivatives), pack(by_repeated), rtol=1e-6, atol=1e-8)
    latents = [
        make(noise=noise, max_iter=0).fit(X, observation, sample_weight=weights).predict(X),
        make(noise=noise, max_iter=0).fit(X[every], observation[every]).predict(X),
    ]
    np.testing.assert_allclose(latents[0].loc, latents[1].loc, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(latents[0].scale, latents[1].scale, rtol=1e-6, atol=1e-6)


@pytest.mark.slow
def test_derivatives_by_inducing_points_agree_with_finite_differences():
    process = CollapsedGaussianProcess(inducing=6, learn_inducing=True)
    assert_derivatives_are_right(objective_of(process, *data(NOISES["two values"])))


# Each form of the target's noise and each way to use it, once.
@pytest.mark.slow
@pytest.mark.parametrize(("name", "noise"), list(zip(NOISES, ["target", "learned", "scaled", "target"], strict=True)))
def test_derivatives_of_separate_inducing_points_agree_with_finite_differences(name, noise):
    process = CollapsedGaussianProcess(inducing=6, noise=noise, learn_inducing=True, separate_inducing=True)
    assert_derivatives_are_right(objective_of(process, *data(NOISES[name])))


@each_noise
def test_exact_predictions_equal_formula(stds):
    X, observation = data(stds)
    process = ExactGaussianProcess(max_iter=5).fit(X, observation)
    k, (x, Z, variances) = kernel_of(process), scaled(X, observation)
    new = np.random.default_rng(9).normal(size=(7, FEATURES))
    mean, variance = reference.predict(k(x, x), k(x, new), np.diag(k(new, new)), Z, variances)
    latent = process.predict(new * X.std(axis=0) + X.mean(axis=0))
    width = np.sqrt(np.mean(np.square(observation.loc - observation.loc.mean(axis=0))))
    np.testing.assert_allclose(latent.loc, width * mean + observation.loc.mean(axis=0), rtol=1e-9)
    assert latent.covariance == ("isotropic" if stds.shape[1] == 1 else "diagonal")
    np.testing.assert_allclose(np.broadcast_to(latent.scale, latent.loc.shape), width * np.sqrt(variance), rtol=1e-7)


@pytest.mark.parametrize(
    ("name", "peer"),
    [("rbf", RBF), ("matern32", lambda s: Matern(s, nu=1.5)), ("matern52", lambda s: Matern(s, nu=2.5))],
)
def test_likelihood_is_no_worse_than_that_of_scikit_learn(name, peer):
    """On the same problem, with the same kernels and one variance of noise."""
    X, observation = data(NOISES["shared"])
    process = ExactGaussianProcess(name).fit(X, observation)
    x, Z, variances = scaled(X, observation)
    regressor = GaussianProcessRegressor(ConstantKernel() * peer(1.0), alpha=variances[:, 0], n_restarts_optimizer=3)
    regressor.fit(x, Z)
    assert -process.objective_ > regressor.log_marginal_likelihood_value_ - 0.05


@each_noise
def test_collapsed_bound_equals_formula(stds):
    X, observation = data(stds)
    process = CollapsedGaussianProcess(inducing=15, max_iter=0).fit(X, observation)
    k, (x, Z, variances) = kernel_of(process), scaled(X, observation)
    U = process.posterior_.support.numpy()
    K_uu = k(U, U) + 1e-6 * np.diag(np.diag(k(U, U)))
    expected = reference.titsias_bound(np.diag(k(x, x)), k(U, x), K_uu, Z, variances)
    assert process.objective_ == pytest.approx(-expected, rel=1e-8)


@each_noise
def test_bound_of_separate_inducing_points_is_sum_over_dimensions(stds):
    X, observation = data(stds)
    process = CollapsedGaussianProcess(inducing=9, separate_inducing=True, max_iter=0).fit(X, observation)
    k, (x, Z, variances) = kernel_of(process), scaled(X, observation)
    expected = 0.0
    variances = np.broadcast_to(variances, Z.shape)
    for dim, U in enumerate(process.posterior_.support.numpy()):
        K_uu = k(U, U) + 1e-6 * np.diag(np.diag(k(U, U)))
        one = slice(dim, dim + 1)
        expected += reference.titsias_bound(np.diag(k(x, x)), k(U, x), K_uu, Z[:, one], variances[:, one])
    assert process.objective_ == pytest.approx(-expected, rel=1e-8)
    supports = process.posterior_.support.numpy()
    assert supports.shape == (DIMS, 9, FEATURES)
    assert np.abs(supports[0] - supports[1]).max() > 0.1


@pytest.mark.slow
@each_noise
def test_equal_separate_inducing_points_agree_with_shared_ones(stds):
    X, observation = data(stds)
    shared, separate = (
        CollapsedGaussianProcess(inducing=X[:12], separate_inducing=separately, max_iter=0).fit(X, observation)
        for separately in (False, True)
    )
    assert separate.objective_ == pytest.approx(shared.objective_, rel=1e-10)
    one, other = shared.predict(X + 0.1), separate.predict(X + 0.1)
    np.testing.assert_allclose(other.loc, one.loc, rtol=1e-8)
    np.testing.assert_allclose(other.scale, np.broadcast_to(one.scale, other.scale.shape), rtol=1e-8)


def test_collapsed_process_agrees_with_gpflow():
    X, observation = data(NOISES["shared"])
    process = CollapsedGaussianProcess(inducing=10, max_iter=3).fit(X, observation)
    x, Z, variances = scaled(X, observation)
    posterior = process.posterior_
    model = gpflow.models.SGPR(
        (x, Z), posterior.kernel, posterior.support.numpy(), noise_variance=float(variances[0, 0])
    )
    assert process.objective_ == pytest.approx(-float(model.elbo()), rel=2e-4)
    mean, variance = model.predict_f(x)
    latent = process.predict(X)
    width = posterior.latents.width[0]
    np.testing.assert_allclose(latent.loc, width * mean + observation.loc.mean(axis=0), atol=1e-4 * width)
    np.testing.assert_allclose(latent.scale, width * np.sqrt(variance[:, :1]), rtol=1e-3)


@pytest.mark.slow
@each_noise
def test_with_the_data_as_inducing_points_collapsed_is_exact(stds):
    X, observation = data(stds)
    exact = ExactGaussianProcess(max_iter=10).fit(X, observation)
    collapsed = CollapsedGaussianProcess(exact.posterior_.kernel, inducing=X, max_iter=0).fit(X, observation)
    assert collapsed.objective_ == pytest.approx(exact.objective_, abs=1e-2)
    assert collapsed.objective_ >= exact.objective_ - 1e-8  # it is a bound
    new = X + 0.1
    np.testing.assert_allclose(collapsed.predict(new).loc, exact.predict(new).loc, atol=5e-3)
    np.testing.assert_allclose(collapsed.predict(new).scale, exact.predict(new).scale, rtol=5e-3, atol=1e-3)


@pytest.mark.slow
def test_blocks_of_rows_do_not_change_bound(monkeypatch):
    X, observation = data(NOISES["two values"])
    whole = CollapsedGaussianProcess(inducing=8, max_iter=0).fit(X, observation)
    monkeypatch.setattr("deepsimplex.gp.collapsed_bound._BUDGET", 8 * 7)
    monkeypatch.setattr("deepsimplex.gp.posterior._BUDGET", 3 * 8 * 5)
    pieces = CollapsedGaussianProcess(inducing=8, max_iter=0).fit(X, observation)
    assert pieces.objective_ == pytest.approx(whole.objective_, rel=1e-12)
    np.testing.assert_allclose(pieces.predict(X).loc, whole.predict(X).loc, rtol=1e-10)
    process = CollapsedGaussianProcess(inducing=8, ard=True)
    assert_derivatives_are_right(objective_of(process, X, observation))


def test_zero_rows_give_zero_latents():
    for stds, covariance in ((NOISES["shared"], "isotropic"), (NOISES["two values"], "diagonal")):
        latent = ExactGaussianProcess(max_iter=0).fit(*data(stds)).predict(np.empty((0, FEATURES)))
        assert latent.loc.shape == (0, DIMS)
        assert latent.covariance == covariance


def test_fit_does_not_depend_on_row_order():
    X, observation = data(NOISES["shared, uneven"])
    order = np.random.default_rng(2).permutation(N)
    one = ExactGaussianProcess().fit(X, observation).predict(X)
    other = ExactGaussianProcess().fit(X[order], observation[order]).predict(X)
    np.testing.assert_allclose(other.loc, one.loc, rtol=1e-4, atol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("separate", [False, True])
def test_inducing_points_do_not_depend_on_row_order(separate):
    X, observation = data(NOISES["two values"])
    X[10:20], y = X[:10], np.arange(N) % 3
    order = np.random.default_rng(2).permutation(N)
    one, other = (
        CollapsedGaussianProcess(inducing=8, separate_inducing=separate).fit(X[rows], observation[rows], y[rows])
        for rows in (np.arange(N), order)
    )
    np.testing.assert_allclose(other.posterior_.support, one.posterior_.support, rtol=1e-12)
    np.testing.assert_allclose(other.predict(X).loc, one.predict(X).loc, rtol=1e-3, atol=1e-3)


def test_restarts_are_repeatable_and_never_worse():
    X, observation = data(NOISES["shared"])
    once = ExactGaussianProcess().fit(X, observation).objective_
    twice = [ExactGaussianProcess(n_restarts=2, random_state=4).fit(X, observation).objective_ for _ in range(2)]
    assert twice[0] == twice[1]
    assert twice[0] <= once + 1e-9


@pytest.mark.slow
def test_fixed_hyperparameters_are_not_optimized():
    X, observation = data(NOISES["shared"])
    kernel = gpflow.kernels.Matern52(lengthscales=0.7)
    gpflow.set_trainable(kernel, False)
    inducing = X[:8]
    for process in (
        ExactGaussianProcess(kernel, noise="target"),
        CollapsedGaussianProcess(kernel, noise="target", inducing=inducing),
        StochasticGaussianProcess(kernel, noise="target", inducing=inducing, learn_inducing=False, epochs=2),
    ):
        process.fit(X, observation)
        assert process.posterior_.kernel.lengthscales.numpy() == 0.7
        assert np.isfinite(process.objective_)
    unmoved = ExactGaussianProcess(ard=True, max_iter=0).fit(X, observation).posterior_.kernel
    assert unmoved.variance.numpy() == pytest.approx(1.0)
    assert np.ptp(unmoved.lengthscales.numpy()) == 0.0


@pytest.mark.slow
def test_callback_receives_every_step():
    X, observation = data(NOISES["shared"])
    steps = []
    process = ExactGaussianProcess(noise="learned", ard=True).fit(X, observation, callback=steps.append)
    assert [step.iteration for step in steps] == list(range(1, len(steps) + 1))
    assert steps[-1].objective == pytest.approx(process.objective_)
    assert steps[0].objective > steps[-1].objective
    assert {name: value.shape for name, value in steps[-1].hyperparameters.items()} == {
        "variance": (),
        "lengthscales": (FEATURES,),
        "noise": (),
    }
    X_test = X + 0.1
    last = []
    ExactGaussianProcess(noise="learned", ard=True).fit(
        X, observation, callback=lambda step: last.append(step.posterior().predict(X_test))
    )
    np.testing.assert_allclose(last[-1].loc, process.predict(X_test).loc, rtol=1e-6, atol=1e-6)
    assert np.abs(last[0].loc - last[-1].loc).max() > 1e-3
