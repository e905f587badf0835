"""The categorical likelihood against plain formulas, GPflow's own bound, and the shapes of its links."""

import numpy as np
import pytest
import tensorflow as tf
from scipy.special import log_softmax
from scipy.special import softmax as softmax_array
from sklearn.datasets import load_wine

from deepsimplex.geometry import helmert
from deepsimplex.gp import CategoricalProcess
from deepsimplex.gp.categorical import (
    CategoricalBound,
    Whitened,
    derivatives_by_means,
    labeled_rows,
    left_out_latents,
    left_out_likelihoods,
    projected,
)
from deepsimplex.gp.gpflow_kernels import gpflow
from deepsimplex.gp.inducing_points import inducing_points
from deepsimplex.gp.scaling import Scaling
from deepsimplex.readout import softmax
from deepsimplex.samples import ArraySamples
from tests.reference.gaussian_process import rbf, variational_two_classes

N, n = 60, 3


@pytest.fixture(scope="module")
def rings():
    rng = np.random.default_rng(0)
    X = rng.uniform(-2.0, 2.0, (N, 2))
    return X, np.digitize(np.hypot(*X.T), [0.9, 1.6])


def bound_of(X, labels, link, separate=False, sample_weight=None):
    """Nothing but q(u) is learned."""
    settings = {"inducing": 12, "learn_inducing": False, "separate_inducing": separate, "scale_features": False}
    return CategoricalBound(CategoricalProcess(link, **settings), labeled_rows(X, labels, sample_weight))


def natural_steps(bound, count, size):
    """Sums after natural steps by all samples, and the negative bounds before them."""
    sums, objectives, rows = bound.prior_sums(), [], bound.samples.whole()
    for number in range(1, count + 1):
        objective, _, sums = bound.step(bound.start, sums, size, number, *rows)
        objectives.append(float(objective))
    return sums, objectives


@pytest.mark.parametrize("link", ["ilr", "softmax"])
def test_derivatives_of_the_likelihood_agree_with_finite_differences(link):
    rng = np.random.default_rng(1)
    scores = helmert(n).T if link == "ilr" else np.eye(n)
    f, memberships = rng.normal(size=(4, scores.shape[1])), rng.dirichlet(np.ones(n), 4)

    def likelihood(latents):
        return np.sum(memberships * log_softmax(latents @ scores.T, axis=1), axis=1)

    first, curvature = derivatives_by_means(
        tf.constant((f @ scores.T)[None]), tf.constant(memberships), tf.constant(scores)
    )
    for dim, step in enumerate(1e-4 * np.eye(scores.shape[1])):
        above, at, below = likelihood(f + step), likelihood(f), likelihood(f - step)
        np.testing.assert_allclose(first[:, dim], (above - below) / 2e-4, rtol=1e-6, atol=1e-8)
        np.testing.assert_allclose(curvature[:, dim], -(above - 2 * at + below) / 1e-8, rtol=1e-4, atol=1e-6)


@pytest.fixture(scope="module")
def peer(rings):
    """GPflow's process with a softmax of as many latents as classes: its bound and class probabilities.

    Kernel and inducing points are those of either link.
    """
    X, y = rings
    bound = bound_of(X, np.eye(n)[y], "softmax")
    start = bound.posterior(bound.start, bound.prior_sums())
    peer = gpflow.models.SVGP(
        start.kernel, gpflow.likelihoods.Softmax(n), start.support.numpy(), num_latent_gps=n, q_diag=False
    )
    gpflow.set_trainable(peer.kernel, False)
    gpflow.set_trainable(peer.inducing_variable, False)
    peer.likelihood.num_monte_carlo_points = 200
    tf.random.set_seed(0)
    gpflow.optimizers.Scipy().minimize(
        peer.training_loss_closure((X, y[:, None]), compile=True), peer.trainable_variables, options={"maxiter": 60}
    )
    tf.random.set_seed(1)
    peer.likelihood.num_monte_carlo_points = 5000
    objective = -float(peer.elbo((X, y[:, None])))
    return objective, np.mean([peer.predict_y(X)[0].numpy() for _ in range(3)], axis=0)


@pytest.mark.slow
@pytest.mark.parametrize("link", ["ilr", "softmax"])
def test_natural_gradients_reach_the_bound_of_gpflow(link, rings, peer):
    """One link has GPflow's own likelihood; the other differs by a constant in every logit, which softmax ignores."""
    X, y = rings
    bound = bound_of(X, np.eye(n)[y], link)
    sums, objectives = natural_steps(bound, 150, 0.2)
    posterior = bound.posterior(bound.start, sums)
    latent = posterior.predict(X)
    assert latent.latent_dim == (n - 1 if link == "ilr" else n)
    objective, expected = peer
    p = softmax(latent, posterior.scores)
    if link == "softmax":
        assert np.mean(objectives[-50:]) == pytest.approx(objective, rel=0.03)
        np.testing.assert_allclose(p, expected, atol=0.05)
    else:
        # n - 1 processes of the same variance: the common part of n, which softmax does not see, is missing.
        np.testing.assert_allclose(p, expected, atol=0.06)


@pytest.mark.parametrize("separate", [False, True])
@pytest.mark.parametrize("link", ["ilr", "softmax"])
def test_converged_sums_agree_with_derivatives_of_the_likelihood(link, separate, rings):
    X, y = rings
    memberships = 0.8 * np.eye(n)[y] + 0.2 / n
    bound = bound_of(X, memberships, link, separate)
    (AAT, Az), _ = bound.converge(bound.start, bound.prior_sums(), 40)
    posterior = bound.posterior(bound.start, (AAT, Az))
    latent, scores = posterior.predict(X), posterior.scores
    f = latent.loc + latent.scale * np.random.default_rng(0).normal(size=(4000, *latent.loc.shape))
    p = softmax_array(f @ scores.T, axis=-1)
    first, weights = (memberships - p).mean(axis=0) @ scores, (p @ scores**2 - (p @ scores) ** 2).mean(axis=0)
    every_A = projected(posterior.kernel, bound.constants["points"], X)[0].numpy()
    for dim, gram in enumerate(AAT.numpy()):
        A = every_A[dim if separate else 0]
        expected = (A * weights[:, dim]) @ A.T
        np.testing.assert_allclose(gram, expected, atol=0.05 * np.abs(expected).max())
        expected = A @ (first + weights * latent.loc)[:, dim]
        np.testing.assert_allclose(Az[dim], expected, atol=0.1 * np.abs(expected).max())


def test_left_out_latents_agree_with_posterior_of_other_observations():
    """Observations of precisions at rows of A, each left out in turn: the weighted regression on all others."""
    rng = np.random.default_rng(2)
    A, precisions, z = rng.normal(size=(3, 7)), rng.uniform(0.1, 2.0, 7), rng.normal(size=7)

    def marginals(rows):
        B = np.eye(3) + (A[:, rows] * precisions[rows]) @ A[:, rows].T
        weights = np.linalg.solve(B, A[:, rows] @ (precisions * z)[rows])
        return A.T @ weights, np.einsum("mn,mn->n", A, np.linalg.solve(B, A))

    mean, variance = marginals(np.arange(7))
    parts = mean, variance, precisions * (z - mean), precisions
    left_out = left_out_latents(*(part[:, np.newaxis] for part in parts))
    for row in range(7):
        expected = [part[row] for part in marginals(np.delete(np.arange(7), row))]
        np.testing.assert_allclose([float(part[row, 0]) for part in left_out], expected, rtol=1e-9)


def test_leaving_out_too_precise_observation_is_bounded():
    """One row must not outweigh all others in the choice of the factor."""
    mean, variance = left_out_latents(*(np.array([[number]]) for number in (1.0, 2.0, -0.5, 0.9)))
    assert (float(mean[0, 0]), float(variance[0, 0])) == (5.0, 8.0)


@pytest.mark.parametrize("link", ["ilr", "softmax"])
def test_left_out_likelihoods_agree_with_fits_without_the_row(link, rings):
    """Sums over all rows without those of one row, in turn."""
    X, y = (part[:20] for part in rings)
    labels = 0.8 * np.eye(n)[y] + 0.2 / n
    memberships, bound = 1.5 * labels, bound_of(X, labels, link, sample_weight=np.full(20, 1.5))
    sums, _ = bound.converge(bound.start, bound.prior_sums(), 40)
    seed = tf.constant([0, 0], tf.int64)
    values = bound.start, bound.constants, Whitened.from_sums(*sums), seed
    likelihoods = left_out_likelihoods(bound.kernel, *values, X, memberships)
    posterior, rng = bound.posterior(bound.start, sums), np.random.default_rng(0)
    latent, scores = posterior.predict(X), posterior.scores
    A, unexplained = (part[0].numpy() for part in projected(posterior.kernel, bound.constants["points"], X))
    draws, expected = rng.normal(size=(4000, latent.latent_dim)), np.zeros(2)
    for row, (a, loc, scale) in enumerate(zip(A.T, latent.loc, latent.scale, strict=True)):
        p = softmax_array((loc + scale * draws) @ scores.T, axis=1)
        first = (memberships[row] - 1.5 * p).mean(axis=0) @ scores
        curvature = 1.5 * (p @ scores**2 - (p @ scores) ** 2).mean(axis=0)
        B = sums[0].numpy() + np.eye(len(a)) - curvature[:, None, None] * np.outer(a, a)
        Az = sums[1].numpy() - np.outer(first + curvature * loc, a)
        mean = np.linalg.solve(B, Az[..., None])[..., 0] @ a
        std = np.sqrt(np.linalg.solve(B, np.broadcast_to(a[:, None], (*Az.shape, 1)))[..., 0] @ a + unexplained[row])
        for place, factor in enumerate([0.1, 1.0]):
            p = softmax_array((mean + factor * std * draws) @ scores.T, axis=1).mean(axis=0)
            expected[place] += memberships[row] @ np.log(p)
    np.testing.assert_allclose(likelihoods.numpy()[[0, -1]], expected, rtol=0.05)


@pytest.mark.parametrize("settings", [{"epochs": 60}, {"epochs": 0}, {"link": "softmax", "epochs": 0}])
def test_left_out_rows_correct_cautious_variances(settings):
    """Three cultivars that hardly overlap: the bound's variances make probabilities too cautious."""
    X, y = load_wine(return_X_y=True)
    process, plain = (
        CategoricalProcess(**settings, scale_variances=scaled).fit(X[::2], y[::2]) for scaled in (True, False)
    )
    latent, bound, scores, y = process.predict(X[1::2]), plain.predict(X[1::2]), process.posterior_.scores, y[1::2]
    np.testing.assert_allclose(latent.loc, bound.loc, rtol=1e-8)
    np.testing.assert_allclose(latent.scale, process.std_factor_ * bound.scale, rtol=1e-8)
    nll, cautious_nll = (-np.log(softmax(each, scores)[np.arange(len(y)), y]).mean() for each in (latent, bound))
    assert 0.1 <= process.std_factor_ < 0.7
    assert nll < 0.8 * cautious_nll


def test_overlapping_classes_keep_variances():
    """Rows of two labels at random: variances matter little, and left-out rows choose between all factors."""
    rng = np.random.default_rng(0)
    process = CategoricalProcess(inducing=10).fit(rng.normal(size=(40, 2)), rng.integers(0, 2, 40))
    assert process.std_factor_ > 0.4


def test_minibatches_keep_the_prior_far_from_samples(rings):
    X, y = rings
    bound = bound_of(X, np.eye(n)[y], "ilr")
    sums, _ = natural_steps(bound, 20, 0.3)
    assert np.linalg.eigvalsh(sums[0].numpy()).min() > -1e-9
    posterior = bound.posterior(bound.start, sums)
    far, near = posterior.predict(np.array([[50.0, 50.0]])), posterior.predict(X)
    np.testing.assert_allclose(far.loc, 0.0, atol=1e-6)
    np.testing.assert_allclose(far.scale, 2.0, rtol=1e-6)
    assert near.scale.max() < 1.9
    assert near.scale.mean() < 1.5
    assert np.abs(near.loc).mean() > 0.5


def two_classes(seed=0):
    """Two noisy halves of a line, and the settings under which nothing but q(u) is learned."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-3.0, 3.0, (200, 1))
    y = (np.sin(1.5 * X[:, 0]) + 0.3 * rng.normal(size=200) > 0).astype(int)
    settings = {"inducing": X[:15], "learn_inducing": False, "scale_features": False, "learning_rate": 1e-12}
    return X, y, {**settings, "batch_size": 20}


@pytest.mark.slow
@pytest.mark.parametrize("epochs", [0, 20])
def test_two_classes_reach_bound_and_posterior_of_quadrature(epochs):
    X, y, settings = two_classes()
    process = CategoricalProcess(epochs=epochs, **settings).fit(X, y)
    kernel = process.posterior_.kernel
    variance, length = float(kernel.variance.numpy()), float(kernel.lengthscales.numpy())
    assert variance == pytest.approx(4.0)
    U = process.posterior_.support.numpy()
    K_uu = rbf(U, U, variance, length) + 1e-6 * variance * np.eye(len(U))
    signs = np.where(y == 0, 1.0, -1.0) * np.sign(helmert(2)[0, 0])
    objective, mean, std = variational_two_classes(
        np.full(len(X), variance), rbf(U, X, variance, length), K_uu, signs, np.sqrt(2.0)
    )
    assert process.objective_ == pytest.approx(objective, rel=0.01)
    latent = process.predict(X)
    np.testing.assert_allclose(latent.loc[:, 0], mean, atol=0.2 * std.min())
    np.testing.assert_allclose(latent.scale[:, 0], process.std_factor_ * std, rtol=0.03)


def test_final_passes_remove_noise_of_minibatches():
    X, y, settings = two_classes()
    order = np.random.default_rng(1).permutation(len(X))
    processes = [CategoricalProcess(epochs=5, **settings).fit(X[rows], y[rows]) for rows in (np.arange(len(X)), order)]
    first, second = (process.predict(X) for process in processes)
    assert np.abs((first.loc - second.loc) / first.scale).max() < 0.1 / processes[0].std_factor_
    assert processes[0].objective_ == pytest.approx(processes[1].objective_, rel=0.01)


def test_defaults_suffice_for_few_rows():
    """Twelve clusters of four rows: the bound of a thousand steps is 38.8, of as many minibatches of four rows 41.4."""
    rng = np.random.default_rng(0)
    centers, numbers = rng.uniform(-2.0, 2.0, (12, 2)), np.arange(96) % 12
    X, y = centers[numbers] + 0.15 * rng.normal(size=(96, 2)), numbers % 4
    process = CategoricalProcess(inducing=24).fit(X[:48], y[:48])
    assert process.n_iter_ == 300
    assert process.objective_ < 39.5
    p = softmax(process.predict(X[48:]), process.posterior_.scores)
    assert -np.log(p[np.arange(48), y[48:]]).mean() < 0.33


@pytest.mark.parametrize(
    ("settings", "num_batches", "expected"),
    [
        ({}, 1, (300, 64, 0.1, 1 / 3)),
        ({}, 5, (60, 64, 0.06, 0.2)),
        ({}, 200, (30, 64, 0.03, 0.1)),
        ({"batch_size": 8}, 2, (150, 8, 0.03, 0.1)),
        ({"epochs": 7, "learning_rate": 0.5, "natural_step": 0.9}, 1, (7, 64, 0.5, 0.9)),
    ],
)
def test_default_steps_follow_share_of_rows_in_batch(settings, num_batches, expected):
    chosen = CategoricalProcess(**settings)._minibatches(64, num_batches)
    numbers = (chosen.epochs, chosen.batch_size, chosen.learning_rate, chosen.natural_step)
    assert numbers == pytest.approx(expected)


def test_blocks_of_rows_hardly_change_the_fit(monkeypatch):
    X, y, settings = two_classes()
    whole = CategoricalProcess(epochs=3, **settings).fit(X, y)
    monkeypatch.setattr("deepsimplex.gp.categorical._BUDGET", 32 * 64)
    cuts, blocks = [], ArraySamples.blocks
    monkeypatch.setattr(ArraySamples, "blocks", lambda rows, most=None: cuts.append(most) or blocks(rows, most))
    pieces = CategoricalProcess(epochs=3, **settings).fit(X, y)
    assert cuts[1] == 64  # of 200 rows
    assert pieces.objective_ == pytest.approx(whole.objective_, rel=0.01)
    np.testing.assert_allclose(pieces.predict(X).loc, whole.predict(X).loc, atol=0.1)


@pytest.mark.slow
@pytest.mark.parametrize("link", ["ilr", "softmax"])
def test_rings_are_classified_and_seed_repeats(link, rings):
    X, y = rings
    settings = {"inducing": 30, "batch_size": 20, "epochs": 40}
    process = CategoricalProcess(link, mixing=True, **settings).fit(X, np.eye(n)[y])
    p = softmax(process.predict(X), process.posterior_.scores)
    assert np.mean(p.argmax(axis=1) == y) > 0.93
    assert -np.log(p[np.arange(N), y]).mean() < 0.35
    plain = helmert(n).T if link == "ilr" else np.eye(n)
    assert np.abs(process.posterior_.scores - plain).max() > 0.05
    again = CategoricalProcess(link, mixing=True, **settings).fit(X, np.eye(n)[y])
    np.testing.assert_array_equal(again.predict(X).loc, process.predict(X).loc)


@pytest.mark.slow
def test_soft_labels_are_memberships(rings):
    X, y = rings
    hard = CategoricalProcess(inducing=20, batch_size=30, epochs=30).fit(X, np.eye(n)[y])
    soft = CategoricalProcess(inducing=20, batch_size=30, epochs=30).fit(X, 0.7 * np.eye(n)[y] + 0.1)
    p_hard, p_soft = (softmax(process.predict(X), process.posterior_.scores) for process in (hard, soft))
    assert p_soft.max(axis=1).mean() < p_hard.max(axis=1).mean() - 0.05


@pytest.mark.slow
@pytest.mark.parametrize("unit", [1e-3, 1e3])
def test_predictions_do_not_depend_on_units(unit, rings):
    X, y = rings
    settings = {"inducing": 12, "batch_size": 20, "epochs": 10, "learning_rate": 0.1, "scale_features": False}
    plain = CategoricalProcess(**settings).fit(X, y).posterior_
    other = CategoricalProcess(**settings).fit(unit * X, y).posterior_
    assert np.abs(plain.support - inducing_points(12, X, Scaling.identity(2), 0, y)).max() > 0.3
    np.testing.assert_allclose(other.support / unit, plain.support, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(other.kernel.lengthscales / unit, plain.kernel.lengthscales, rtol=1e-6)
    np.testing.assert_allclose(other.predict(unit * X).loc, plain.predict(X).loc, rtol=1e-4, atol=1e-5)


def test_fixed_inducing_points_stay(rings):
    X, y = rings
    process = CategoricalProcess(inducing=X[:9], learn_inducing=False, scale_features=False, epochs=3).fit(X, y)
    np.testing.assert_array_equal(process.posterior_.support, X[:9])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"link": "ilrr"}, r"link must.*found 'ilrr'"),
        ({"epochs": -1}, r"epochs must.*found -1"),
        ({"learning_rate": -1.0}, r"learning_rate must.*found -1\.0"),
    ],
)
def test_invalid_arguments_raise(arguments, message):
    with pytest.raises(ValueError, match=message):
        CategoricalProcess(**arguments)


def test_missing_labels_raise(rings):
    X, y = rings
    with pytest.raises(ValueError, match=r"^y must.*found shape \(59, 3\)"):
        CategoricalProcess().fit(X, np.eye(n)[y[:-1]])


@pytest.mark.parametrize("inducing", [[0.0, 1.0], np.array([0.0, 1.0])])
def test_flat_inducing_points_of_one_feature_raise(inducing):
    X = np.linspace(0.0, 1.0, 20)[:, None]
    message = r"^inducing must.*found shape \(2,\).*np\.reshape\(inducing, \(-1, 1\)\)"
    with pytest.raises(ValueError, match=message):
        CategoricalProcess(inducing=inducing).fit(X, np.arange(20) % 2)


@pytest.mark.slow
@pytest.mark.parametrize("batch_size", [None, 100])
def test_two_rows_are_enough(batch_size):
    X = np.array([[0.0], [1.0]])
    process = CategoricalProcess(epochs=2, batch_size=batch_size).fit(X, [0, 1])
    p = softmax(process.predict(X), process.posterior_.scores)
    assert p[0, 0] > 0.6
    assert p[1, 1] > 0.6
