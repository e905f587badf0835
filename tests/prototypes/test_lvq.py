"""Prototypes on arrays: against loops and finite differences, and invariances."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import log_softmax

from deepsimplex.heads.prototype_initialization import INITIALIZATIONS, initial_prototypes
from deepsimplex.prototypes import fit_glvq, fit_gmlvq, fit_lvq
from deepsimplex.prototypes.class_scores import (
    finite_squared_distances,
    fitted_temperature,
    nearest_of_classes,
    relative_scores,
)
from deepsimplex.prototypes.metric_learning import discriminant_directions, rank_penalty, within_class_whitening
from deepsimplex.prototypes.relative_distance import LocalRelativeDistanceCost, RelativeDistanceCost, activate
from tests.reference import lvq as reference

each_activation = pytest.mark.parametrize("activation", ["linear", "sigmoid"])
each_fit = pytest.mark.parametrize("fit", [fit_glvq, fit_gmlvq])
seeds = st.integers(0, 2**32 - 1)


def problem(seed, N=25, d=3, per_class=2, n=3):
    rng = np.random.default_rng(seed)
    labels = rng.permutation(np.repeat(np.arange(n), per_class))
    return rng.normal(size=(N, d)), np.arange(N) % n, rng.normal(size=(n * per_class, d)), labels


def differences(function, at, step=1e-6):
    """Central ones, by every element of an array."""
    slope = np.empty(at.shape)
    for index in np.ndindex(at.shape):
        further = np.zeros(at.shape)
        further[index] = step
        slope[index] = (function(at + further) - function(at - further)) / (2 * step)
    return slope


def well_apart(seed):
    """Classes around corners, and their means."""
    rng = np.random.default_rng(seed)
    y = np.arange(90) % 3
    X = rng.normal(size=(90, 4)) + 3.0 * np.eye(3, 4)[y]
    return X, y, *initial_prototypes(X, y, 1)


@pytest.mark.parametrize(("second", "window"), [(False, None), (True, None), (True, 0.3)])
@pytest.mark.parametrize("seed", range(4))
def test_lvq_steps_equal_reference(second, window, seed):
    X, y, W, labels = problem(seed)
    order = np.random.default_rng(seed).permutation(len(X))
    rng = np.random.default_rng(seed)
    fit = fit_lvq(X, y, W, labels, also_correct=second, window=window, learning_rate=0.3, max_iter=1, rng=rng)
    rates = 0.3 * (1 - np.arange(len(X)) / len(X))
    expected = reference.present(X[order], y[order], W, labels, rates, second, window)
    np.testing.assert_allclose(fit.prototypes, expected, rtol=1e-10, atol=1e-12)
    nearest = np.argmin(finite_squared_distances(X, expected), axis=1)
    assert (fit.omega, fit.objective, fit.n_iter) == (None, np.sum(labels[nearest] != y), 1)


def test_learning_rate_without_decay_is_constant():
    X, y, W, labels = problem(1)
    options = {"learning_rate": 0.1, "decay": False, "max_iter": 3}
    moved = fit_lvq(X, y, W, labels, **options, rng=np.random.default_rng(5)).prototypes
    rng, expected = np.random.default_rng(5), W
    for _ in range(3):
        order = rng.permutation(len(X))
        expected = reference.present(X[order], y[order], expected, labels, np.full(len(X), 0.1))
    np.testing.assert_allclose(moved, expected, rtol=1e-10, atol=1e-12)


@each_activation
@pytest.mark.parametrize("shape", [None, (1, 3), (2, 3), (3, 3), (6, 1, 3), (6, 2, 3), (6, 3, 3)])
def test_cost_equals_reference_and_gradient_finite_differences(activation, shape):
    X, y, W, labels = problem(0 if shape is None else len(shape), N=40)
    Omega = None if shape is None else np.random.default_rng(shape[-2]).normal(size=shape)
    kind = LocalRelativeDistanceCost if Omega is not None and Omega.ndim == 3 else RelativeDistanceCost
    cost = kind(X, y, labels, activation, 3.0)
    value, by_prototype, by_omega = cost(W, Omega)

    def phi(mu):
        return float(activate(np.array([mu]), activation, 3.0)[0][0])

    assert value == pytest.approx(reference.cost(X, y, W, labels, phi, Omega), rel=1e-8)
    by_differences = differences(lambda w: cost(w, Omega)[0], W)
    np.testing.assert_allclose(by_prototype, by_differences, rtol=1e-6, atol=1e-6)
    if Omega is None:
        assert by_omega is None
        return
    by_differences = differences(lambda omega: cost(W, omega)[0], Omega)
    np.testing.assert_allclose(by_omega, by_differences, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("shape", [(3, 3), (2, 4), (1, 3)])
def test_rank_penalty_is_zero_for_rotations_and_gradient_equals_finite_differences(shape):
    A = np.random.default_rng(0).normal(size=shape)
    penalty, slope = rank_penalty(A)
    by_differences = differences(lambda A: rank_penalty(A)[0], A)
    np.testing.assert_allclose(slope, by_differences, rtol=1e-6, atol=1e-6)
    assert penalty > 0 or shape[0] == 1
    rotation = np.linalg.qr(A.T)[0].T
    assert rank_penalty(7.0 * rotation)[0] == pytest.approx(0.0, abs=1e-9)
    assert rank_penalty(1e3 * A)[0] == pytest.approx(penalty, abs=1e-9)
    lost = np.vstack([A[:1]] * shape[0])
    assert np.isfinite(rank_penalty(lost)[0])
    assert np.isfinite(rank_penalty(lost)[1]).all()


@settings(max_examples=30, deadline=None)
@given(seed=seeds, scale=st.floats(0.1, 10.0))
def test_cost_is_invariant_to_order_shift_rotation_and_scale(seed, scale):
    X, y, W, labels = problem(seed)
    rng = np.random.default_rng(seed)
    order, rotation = rng.permutation(len(X)), np.linalg.qr(rng.normal(size=(3, 3)))[0]
    Omega, shift = rng.normal(size=(2, 3)), rng.normal(size=3)
    plain, by_prototype, by_omega = RelativeDistanceCost(X, y, labels)(W, Omega)

    def same(X, y, W, Omega):
        value, *gradient = RelativeDistanceCost(X, y, labels)(W, Omega)
        assert value == pytest.approx(plain, rel=1e-5)
        return gradient

    np.testing.assert_allclose(same(X[order], y[order], W, Omega)[1], by_omega, rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(same(X + shift, y, W + shift, Omega)[0], by_prototype, rtol=1e-4, atol=1e-6)
    same(scale * X, y, scale * W, Omega)
    same(X, y, W, scale * Omega)
    same(X, y, W, np.linalg.qr(rng.normal(size=(2, 2)))[0] @ Omega)
    same(X @ rotation.T, y, W @ rotation.T, Omega @ rotation.T)


def test_cost_does_not_depend_on_block_size(monkeypatch):
    X, y, W, labels = problem(0, N=50)
    Omega = np.random.default_rng(1).normal(size=(2, 3))
    cost = RelativeDistanceCost(X, y, labels, "linear")
    value, *gradient = cost(W, Omega)
    monkeypatch.setattr("deepsimplex.prototypes.relative_distance._ROWS", 7)
    again, *other = cost(W, Omega)
    assert again == pytest.approx(value, rel=1e-12)
    np.testing.assert_allclose(other[0], gradient[0], rtol=1e-10)
    np.testing.assert_allclose(other[1], gradient[1], rtol=1e-10)


def test_coinciding_samples_and_prototypes_are_finite():
    X, y = np.array([[0.0, 0.0], [0.0, 0.0], [1.0, 0.0], [1.0, 1.0]]), np.array([0, 1, 0, 1])
    W, labels = np.zeros((4, 2)), np.array([0, 0, 1, 1])
    for Omega in (None, np.eye(2), np.zeros((2, 2))):
        value, by_prototype, _ = RelativeDistanceCost(X, y, labels, "linear")(W, Omega)
        assert value == pytest.approx(0.0, abs=1e-8)
        assert np.isfinite(by_prototype).all()
    for fit in (fit_glvq, fit_gmlvq):
        assert np.isfinite(fit(X, y, W, labels, activation="linear").prototypes).all()


@pytest.mark.parametrize("initialization", INITIALIZATIONS)
def test_initial_prototypes_lie_in_their_class(initialization):
    X, y, *_ = problem(0, N=60)
    W, labels = initial_prototypes(X, y, 4, initialization, np.random.default_rng(0))
    assert labels.tolist() == [0] * 4 + [1] * 4 + [2] * 4
    assert len(np.unique(W, axis=0)) == 12
    for w, label in zip(W, labels, strict=True):
        if initialization == "means":
            assert (np.abs(w) <= np.abs(X[y == label]).max(axis=0)).all()
        else:
            assert (X[y == label] == w).all(axis=1).any()
    again, _ = initial_prototypes(X, y, 4, initialization, np.random.default_rng(0))
    np.testing.assert_array_equal(again, W)
    single, _ = initial_prototypes(X, y, 1, "means")
    np.testing.assert_allclose(single, [X[y == label].mean(axis=0) for label in range(3)], rtol=1e-12)


@pytest.mark.parametrize("initialization", INITIALIZATIONS)
def test_class_has_at_most_as_many_prototypes_as_distinct_samples(initialization):
    X = np.array([[0.0], [0.0], [1.0], [5.0], [6.0], [7.0], [8.0]])
    W, labels = initial_prototypes(X, np.array([0, 0, 0, 2, 2, 2, 2]), 3, initialization)
    assert labels.tolist() == [0, 0, 2, 2, 2]
    assert sorted(W[:2].ravel()) == [0.0, 1.0]


def test_invalid_initialization_raises():
    with pytest.raises(ValueError, match=r"initialization must.*found 'mean'; did you mean 'means'\?"):
        initial_prototypes(np.eye(2), np.array([0, 1]), 1, "mean")


def test_whitening_gives_unit_variance_within_classes():
    rng = np.random.default_rng(0)
    y = np.arange(3000) % 3
    X = rng.normal(size=(3000, 4)) @ rng.normal(size=(4, 4)) + 5.0 * np.eye(3, 4)[y]
    whitened = X @ within_class_whitening(X, y, np.ones(len(X)))
    residuals = whitened - np.stack([whitened[y == label].mean(axis=0) for label in range(3)])[y]
    np.testing.assert_allclose(residuals.T @ residuals / 3000, np.eye(4), atol=0.02)
    for rank in (1, 2, 3):
        directions = discriminant_directions(whitened, y, rank, np.ones(len(X)))
        np.testing.assert_allclose(directions @ directions.T, np.eye(rank), atol=1e-10)
    means = np.stack([whitened[y == label].mean(axis=0) for label in range(3)])
    means -= means.mean(axis=0)
    plane = discriminant_directions(whitened, y, 2, np.ones(len(X)))
    np.testing.assert_allclose(means @ plane.T @ plane, means, atol=1e-9)


@each_fit
def test_fit_decreases_cost_and_reports_every_iteration(fit):
    X, y, W, labels = well_apart(0)
    steps = []
    start = fit(X, y, W, labels, max_iter=0)
    np.testing.assert_allclose(start.prototypes, W, atol=1e-12)
    learned = fit(X, y, W, labels, report=steps.append)
    objectives = [step.objective for step in steps]
    assert learned.objective == objectives[-1] < start.objective
    assert (np.diff(objectives) <= 0).all()
    assert [step.n_iter for step in steps] == list(range(1, learned.n_iter + 1))
    cost = RelativeDistanceCost(X - X.mean(axis=0), y, labels)
    value, *_ = cost(learned.prototypes - X.mean(axis=0), learned.omega)
    assert value == pytest.approx(learned.objective, rel=1e-6)


@each_fit
@pytest.mark.parametrize("units", [1e-9, 1e9])
def test_fit_is_invariant_to_scale_and_shift(fit, units):
    X, y, W, labels = well_apart(1)
    learned = fit(X, y, W, labels, activation="linear", max_iter=20)
    other = fit(units * (X + 3.0), y, units * (W + 3.0), labels, activation="linear", max_iter=20)
    assert other.objective == pytest.approx(learned.objective, rel=1e-5)
    np.testing.assert_allclose(other.prototypes / units - 3.0, learned.prototypes, atol=1e-2)


def test_gmlvq_is_invariant_to_linear_maps():
    """Up to the shrinkage of the covariance, which so many samples hardly need."""
    rng = np.random.default_rng(0)
    y = np.arange(2000) % 3
    X = rng.normal(size=(2000, 3)) + 2.0 * np.eye(3)[y]
    M = rng.normal(size=(3, 3))
    learned = []
    for features in (X, X @ M.T):
        W, labels = initial_prototypes(features, y, 1)
        learned.append(fit_gmlvq(features, y, W, labels, activation="linear", regularization=1.0, tol=1e-10))
    assert learned[1].objective == pytest.approx(learned[0].objective, rel=1e-3)


def test_local_metrics_end_where_the_penalized_cost_is_flat():
    """Of one prototype for each class, and two; the start is that of one metric for all."""
    X, y, W, labels = problem(3, N=30, per_class=1)
    start = fit_gmlvq(X, y, W, labels, local=True, regularization=2.0, max_iter=0)
    np.testing.assert_array_equal(start.omega[1:], start.omega[:-1])
    assert start.omega.shape == (3, 3, 3)
    single = fit_gmlvq(X, y, W, labels, regularization=2.0, max_iter=0)
    np.testing.assert_allclose(start.omega[0], single.omega, rtol=1e-10)
    assert start.objective == pytest.approx(single.objective, rel=1e-6)
    steps = []
    learned = fit_gmlvq(X, y, W, labels, local=True, regularization=2.0, tol=1e-12, report=steps.append)
    objectives = [step.objective for step in steps]
    assert (np.diff(objectives) <= 0).all()
    again = fit_gmlvq(X, y, learned.prototypes, labels, local=True, rank=2, max_iter=5)
    assert again.omega.shape == (3, 2, 3)
    assert learned.objective < start.objective
    assert np.mean(np.sum(learned.omega**2, axis=(1, 2))) == pytest.approx(1.0)


def test_rank_bounds_rank_of_omega():
    X, y, W, labels = well_apart(2)
    for rank in (1, 2, 4):
        omega = fit_gmlvq(X, y, W, labels, activation="linear", rank=rank, regularization=1.0).omega
        assert omega.shape == (rank, 4)
        assert np.sum(omega**2) == pytest.approx(1.0)
        assert np.linalg.matrix_rank(omega) == rank


def test_regularization_keeps_directions():
    X, y, W, labels = well_apart(3)

    def least_share(regularization):
        omega = fit_gmlvq(X, y, W, labels, activation="linear", regularization=regularization, tol=1e-9).omega
        return np.linalg.svd(omega)[1].min() / np.linalg.norm(omega)

    assert least_share(0.0) < least_share(1.0) < least_share(1e5)


def test_nearest_of_classes_and_relative_scores_equal_definition():
    D = np.abs(np.random.default_rng(0).normal(size=(20, 6)))
    labels = np.array([0, 2, 2, 0, 3, 3])
    nearest, which = nearest_of_classes(D, labels, 4)
    scores = relative_scores(nearest)
    for i in range(20):
        for c in (0, 2, 3):
            same, other = D[i, labels == c].min(), D[i, labels != c].min()
            assert nearest[i, c] == D[i, which[i, c]] == same
            assert scores[i, c] == pytest.approx((other - same) / (other + same))
    assert np.isinf(nearest[:, 1]).all()
    assert (scores[:, 1] == -np.inf).all()


def test_scores_of_zero_distances_and_a_single_class_are_finite():
    scores = relative_scores(np.array([[0.0, 0.0, 1.0], [0.0, 2.0, 0.0]]))
    np.testing.assert_array_equal(scores, [[0.0, 0.0, -1.0], [0.0, -1.0, 0.0]])
    np.testing.assert_array_equal(relative_scores(np.array([[np.inf, 2.0], [np.inf, 0.0]]))[:, 1], 1.0)


def test_temperature_maximizes_likelihood():
    rng = np.random.default_rng(0)
    scores = rng.uniform(-1, 1, size=(400, 3))
    y = np.array([rng.choice(3, p=np.exp(log_softmax(row / 0.3))) for row in scores])
    T = fitted_temperature(scores, y)
    counts = np.bincount(y)
    targets = (np.eye(3)[y] * counts + 1 / 3) / (counts[y] + 1)[:, None]
    losses = [-np.sum(targets * log_softmax(scores / t, axis=1)) for t in (0.999 * T, T, 1.001 * T)]
    assert losses[1] < min(losses[0], losses[2])
    assert pytest.approx(0.3, rel=0.2) == T


def test_temperature_of_separable_samples_is_smoothed():
    y = np.arange(40) % 2
    T = fitted_temperature(np.where(np.eye(2)[y] > 0, 0.5, -0.5), y)
    assert 1 / (1 + np.exp(-1 / T)) == pytest.approx(41 / 42, rel=1e-6)


def test_invalid_activation_raises():
    with pytest.raises(ValueError, match=r"activation must.*found 'sigmoidal'; did you mean"):
        activate(np.zeros(1), "sigmoidal")
    with pytest.raises(ValueError, match=r"steepness must.*found 0"):
        activate(np.zeros(1), "sigmoid", 0)
    phi, slope = activate(np.array([-1.0, 1.0]), "sigmoid", 1e6)
    np.testing.assert_array_equal((phi, slope), ([0.0, 1.0], [0.0, 0.0]))
