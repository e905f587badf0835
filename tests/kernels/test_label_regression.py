"""Regression on labels in closed form: left-out rows equal refitting; rows and classes come and go."""

import numpy as np
import pytest
from sklearn.datasets import load_digits, load_iris

from deepsimplex.kernels import KERNELS as STATIONARY
from deepsimplex.kernels import ClosedForm, FeatureKernel, LabelRegression, NoisePath, array_blocks, closed_form
from deepsimplex.kernels.kernel_choice import NOISES, KernelChoice, LabelLikelihood
from tests.reference import label_regression as reference

NOISE = 0.05
ROWS = 90


@pytest.fixture(scope="module")
def digits():
    X, y = load_digits(return_X_y=True)
    return X[:ROWS], y[:ROWS]


def regression_on(X, y, kernel, inducing, n=10):
    return LabelRegression(kernel, kernel.transform(inducing), n).add(X, np.eye(n)[y]).solve(NOISE)


@pytest.mark.parametrize("name", STATIONARY)
@pytest.mark.parametrize("transformation", ["raw", "unit", "root", "root_unit", "standardized"])
def test_prediction_equals_plain_formulas(digits, name, transformation):
    X, y = digits
    kernel = FeatureKernel.of(X, transformation, name, scale=0.7, linear=0.5)
    regression = regression_on(X[:60], y[:60], kernel, X[:20])
    U = kernel.transform(X)
    jitter = 1e-6 * np.mean(kernel.variance(U[:20]))
    values = [
        reference.kernel(*pair, name, kernel.lengthscale, 0.5, kernel.power) for pair in [(U[:20], U[:20]), (U, U[:20])]
    ]
    k_mm, k = values[0] + jitter * np.eye(20), values[1]
    mean, variance = reference.predict(k_mm, k[:60], np.eye(10)[y[:60]], NOISE, k[60:], kernel.variance(U[60:]))
    actual = regression.predict(X[60:])
    np.testing.assert_allclose(actual.mean, mean, atol=1e-8)
    np.testing.assert_allclose(actual.variance, variance, atol=1e-8)


@pytest.mark.parametrize("name", ["rbf", "matern12"])
@pytest.mark.parametrize("inducing", [20, ROWS])
@pytest.mark.parametrize("size", [1, 4, 40])
def test_left_out_rows_and_groups_equal_refitting(digits, name, inducing, size):
    """Also a group of more rows than inducing ones."""
    X, y = digits
    kernel = FeatureKernel.of(X, "unit", name)
    regression = regression_on(X, y, kernel, X[:inducing])
    groups = np.random.default_rng(0).permutation(ROWS) // size
    left_out = regression.leave_out(regression.basis(X), np.eye(10)[y], None if size == 1 else groups)
    for group in (0, 1):
        rows = groups == group
        refitted = regression_on(X[~rows], y[~rows], kernel, X[:inducing]).predict(X[rows])
        np.testing.assert_allclose(left_out.mean[rows], refitted.mean, atol=1e-8)
        np.testing.assert_allclose(left_out.variance[rows], refitted.variance, atol=1e-8)


@pytest.mark.parametrize("size", [1, 3])
def test_weighted_rows_equal_repeated_rows(digits, size):
    """In sums, left-out rows and groups, changes of the variance, and the choice of kernel and noise."""
    X, y = digits
    counts = np.random.default_rng(0).integers(1, 4, size=ROWS)
    Y, kernel = np.eye(10)[y], FeatureKernel.of(X, "unit")
    rows = np.repeat(np.arange(ROWS), counts)
    groups = np.arange(ROWS) // size
    weighted = LabelRegression(kernel, kernel.transform(X[:30]), 10).add(X, Y * counts[:, None]).solve(NOISE)
    repeated = LabelRegression(kernel, kernel.transform(X[:30]), 10).add(X[rows], Y[rows]).solve(NOISE)
    np.testing.assert_allclose(weighted.gram, repeated.gram, atol=1e-9)
    left_out = weighted.leave_out(weighted.basis(X), Y * counts[:, None], None if size == 1 else groups)
    expected = repeated.leave_out(repeated.basis(X[rows]), Y[rows], groups[rows])
    for actual, plain in zip(left_out, expected, strict=True):
        np.testing.assert_allclose(actual[rows], plain, atol=1e-8)
    phi, heavy = weighted.basis(X[:9])[0], Y[:9] * counts[:9, None]
    before, change = weighted.reduction(), weighted.reduction_change(phi, heavy)
    after = weighted.add(X[:9], heavy).solve(NOISE).reduction()
    np.testing.assert_allclose(before + change @ change.T, after, atol=1e-7 * np.abs(after).max())
    doubled = ClosedForm.solve(array_blocks(X, 2.0 * Y), 10, 30, kernel, NOISE)
    twice = np.repeat(np.arange(ROWS), 2)
    plain = LabelRegression(kernel, doubled.regression.points, 10).add(X[twice], Y[twice]).solve(NOISE)
    np.testing.assert_allclose(doubled.regression.predict(X).mean, plain.predict(X).mean, atol=1e-8)
    assert doubled.scale(np.eye(10)) == pytest.approx(
        np.sqrt(np.mean(np.square(Y - doubled.left_out.mean) / (doubled.left_out.variance + NOISE / 2)[:, None]))
    )


def test_noise_path_equals_solving_for_each_noise(digits):
    X, y = digits
    Y, groups = np.eye(10)[y], np.arange(ROWS) // 3
    regression = regression_on(X, y, FeatureKernel.of(X, "raw"), X[:30])
    basis = regression.basis(X)
    path = NoisePath(regression.gram, regression.moments, basis[0], Y, groups)
    for noise in (1e-3, 1.0):
        expected = regression.solve(noise).leave_out(basis, Y, groups).mean
        np.testing.assert_allclose(path(noise), expected, atol=1e-8)


def test_added_and_removed_rows_and_new_classes_equal_refitting(digits):
    X, y = digits
    kernel = FeatureKernel.of(X, "standardized", "matern32", linear=0.3)
    known = y < 9
    grown = regression_on(X[known], y[known], kernel, X[:25], n=9)
    grown.add(X[~known], np.eye(10)[y[~known]]).solve(NOISE)
    refitted = regression_on(X, y, kernel, X[:25])
    np.testing.assert_allclose(grown.predict(X).mean, refitted.predict(X).mean, atol=1e-8)
    forgotten = grown.add(X[:10], np.eye(10)[y[:10]], sign=-1)
    forgotten = forgotten.without_inducing(range(10)).solve(NOISE)
    refitted = regression_on(X[10:], y[10:], kernel, X[10:25])
    assert forgotten.num_rows == ROWS - 10
    for actual, expected in zip(forgotten.predict(X), refitted.predict(X), strict=True):
        np.testing.assert_allclose(actual, expected, atol=1e-8)


@pytest.mark.parametrize("weights", [1.0, np.linspace(0.5, 3.0, 150)])
@pytest.mark.parametrize("columns", [1, 4])
def test_inducing_rows_added_beside_equal_and_close_ones_equal_refitting(columns, weights):
    """Of iris, one column of which has few values: labels and weights do not follow from the sums."""
    X, y = load_iris(return_X_y=True)
    order = np.random.default_rng(0).permutation(150)
    X, Y = X[order, :columns], np.eye(3)[y[order]] * np.reshape(weights, (-1, 1))
    kernel = FeatureKernel.of(X, "raw", "rbf", 1.0, linear=0.3)
    U = kernel.transform(X)
    grown = LabelRegression(kernel, U[:50], 3).add(X[:50], Y[:50])
    for start in range(50, 150, 25):
        grown = grown.add_inducing(U[start : start + 25], Y[start : start + 25])
    expected = LabelRegression(kernel, U, 3).add(X, Y).solve(NOISE).predict(X)
    for actual, value in zip(grown.solve(NOISE).predict(X), expected, strict=True):
        np.testing.assert_allclose(actual, value, atol=1e-6)


@pytest.mark.parametrize("name", STATIONARY)
def test_reduction_gives_variances_and_follows_added_and_removed_rows(digits, name):
    X, y = digits
    kernel = FeatureKernel.of(X, "unit", name, scale=0.5)
    regression = regression_on(X[:70], y[:70], kernel, X[:25])
    before, U = regression.reduction(), kernel.transform(X)
    k = kernel(U, regression.points)
    variance = kernel.variance(U) - np.sum((k @ before) * k, axis=1)
    np.testing.assert_allclose(variance, regression.predict(X).variance, atol=1e-8)
    phi = regression.basis(X[70:])[0]
    change = regression.reduction_change(phi, np.eye(10)[y[70:]])
    regression.add_basis(phi, np.eye(10)[y[70:]])
    after = regression.solve(NOISE).reduction()
    np.testing.assert_allclose(before + change @ change.T, after, atol=1e-7 * np.abs(after).max())
    change = regression.reduction_change(phi, np.eye(10)[y[70:]], sign=-1)
    np.testing.assert_allclose(after - change @ change.T, before, atol=1e-7 * np.abs(after).max())


def test_basis_of_inducing_rows_equals_that_of_their_features(digits):
    X, y = digits
    regression = regression_on(X, y, FeatureKernel.of(X, "raw", "matern32"), X[:40])
    for actual, expected in zip(regression.basis_of_points(), regression.basis(X[:40]), strict=True):
        np.testing.assert_allclose(actual, expected, atol=1e-9)


@pytest.mark.parametrize("seed", range(3))
def test_rows_of_length_one_are_preferred_where_left_out_rows_do_not_tell(seed):
    """Lengths say nothing of the class here; where they say everything they are kept."""
    rng = np.random.default_rng(seed)
    X = np.abs(rng.normal(size=(150, 5))) + 0.1
    choice = KernelChoice(X, np.eye(2)[(X[:, 0] > X[:, 1]) * 1], np.arange(80))
    assert choice.transformation().endswith("unit")
    lengths = np.linalg.norm(X, axis=1)
    assert (
        not KernelChoice(X, np.eye(2)[(lengths > np.median(lengths)) * 1], np.arange(80))
        .transformation()
        .endswith("unit")
    )


def test_regression_without_fold_equals_refitting(digits):
    X, y = digits
    Y, kernel = np.eye(10)[y], FeatureKernel.of(X, "raw", "matern12")
    result = ClosedForm.solve(array_blocks(X, y), 10, 30, kernel, NOISE)
    fold, inducing = result.folds[0], result.regression.points
    kept = result.used.copy()
    kept[np.flatnonzero(result.used)[fold.is_held]] = False
    refitted = LabelRegression(kernel, inducing, 10).add(X[kept], Y[kept]).solve(NOISE)
    np.testing.assert_allclose(fold.held, refitted.predict(X[result.used & ~kept]).mean, atol=1e-8)
    np.testing.assert_allclose(fold.kept, refitted.leave_out(refitted.basis(X[kept]), Y[kept]).mean, atol=1e-8)


def test_blocks_do_not_change_the_solution(digits, monkeypatch):
    """Also where there are more rows than are left out, and with groups that lie in several blocks."""
    X, y = digits
    kernel = FeatureKernel.of(X, "raw")
    whole = ClosedForm.solve(array_blocks(X, y), 10, 30, kernel, NOISE)
    blocks = ClosedForm.solve(array_blocks(X, y, size=7), 10, 30, kernel, NOISE)
    np.testing.assert_array_equal(whole.left_out.mean, blocks.left_out.mean)
    monkeypatch.setattr("deepsimplex.kernels.closed_form.ROWS", 40)
    part = ClosedForm.solve(array_blocks(X, y, size=7), 10, 30, kernel, NOISE)
    assert len(part.labels) == 40
    assert part.regression.num_rows == ROWS
    again = LabelRegression(kernel, part.regression.points, 10).add(X, np.eye(10)[y]).solve(NOISE)
    np.testing.assert_allclose(part.regression.predict(X).mean, again.predict(X).mean, atol=1e-8)
    grouped = ClosedForm.solve(array_blocks(X, y, np.arange(ROWS) % 9, size=7), 10, 30, kernel, NOISE)
    assert len(grouped.labels) == 40  # four groups of ten


def test_hard_labels_equal_one_hot_labels(digits):
    X, y = digits
    kernel = FeatureKernel.of(X, "raw")
    hard, soft = (ClosedForm.solve(array_blocks(X, labels), 10, 30, kernel, NOISE) for labels in (y, np.eye(10)[y]))
    np.testing.assert_array_equal(hard.left_out.mean, soft.left_out.mean)
    blurred = ClosedForm.solve(array_blocks(X, 0.9 * np.eye(10)[y] + 0.01), 10, 30, kernel, NOISE)
    assert 0 < np.abs(blurred.left_out.mean - hard.left_out.mean).max() < 0.2


def test_class_of_one_row_is_left_out_of_the_readout(digits):
    X, y = digits
    rows = np.concatenate([np.flatnonzero(y < 9), np.flatnonzero(y == 9)[:1]])
    result = ClosedForm.solve(array_blocks(X[rows], y[rows]), 10)
    np.testing.assert_array_equal(result.used, y[rows] < 9)
    for groups, message in ((y, "^y must have.*two samples, or groups"), (np.zeros(ROWS), "^groups must have")):
        with pytest.raises(ValueError, match=message):
            ClosedForm.solve(array_blocks(X, y, groups), 10)


@pytest.mark.parametrize("scale", [0.0, 1e-20, 1e20])
def test_equal_and_extreme_rows_give_finite_predictions(scale):
    X = scale * np.random.default_rng(0).normal(size=(12, 3))
    result = ClosedForm.solve(array_blocks(X, np.arange(12) % 3), 3)
    assert all(np.isfinite(values).all() for values in (*result.left_out, *result.regression.predict(X)))


def test_kernel_choice_sees_what_features_need():
    """Labels that depend on the sign of a product need a short lengthscale; on proportions, rows of length one."""
    rng = np.random.default_rng(0)
    X = np.abs(rng.normal(size=(200, 4)))
    y = (X[:, 0] > X[:, 1]).astype(int)
    scaled = X * np.exp(2 * rng.normal(size=(200, 1)))
    result = ClosedForm.solve(array_blocks(scaled, y), 2)
    assert result.regression.kernel.unit == 1.0
    assert np.mean(result.left_out.mean.argmax(axis=1) == y) > 0.9


def test_features_that_are_not_finite_raise(digits):
    X, y = digits
    with pytest.raises(ValueError, match="finite"):
        ClosedForm.solve(array_blocks(np.where(X == 3, np.nan, X), y), 10)


@pytest.mark.parametrize("size", [1, 2])
def test_rows_whose_class_has_others_that_are_not_drawn_can_be_left_out(size, monkeypatch):
    monkeypatch.setattr(closed_form, "ROWS", 40)
    numbers = np.arange(200)
    groups = None if size == 1 else numbers // size
    y, X = numbers // size % 20, np.random.default_rng(0).normal(size=(200, 3))
    result = ClosedForm.solve(array_blocks(X, y, groups, size=50), 20, inducing=30)
    assert len(result.used) <= 40
    assert (np.unique(y[result.rows[::size]], return_counts=True)[1] == 1).any()
    assert result.used.all()


@pytest.mark.parametrize("groups", [None, np.arange(150) // 3])
def test_choice_of_a_noise_counts_the_likelihood_of_used_rows_alone(groups):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(150, 3))
    labels = (X[:, 0] + 0.5 * rng.normal(size=150) > 0).astype(int) + (X[:, 1] > 0.5)
    labels[:50] = rng.integers(3, size=50)  # inducing rows, of which the labels would need far more noise
    Y, used = np.eye(3)[labels], np.arange(150) >= 50
    kernel, number = KernelChoice(X, Y, np.arange(50), groups, used, ["raw"]).best("raw")
    regression = LabelRegression(kernel, kernel.transform(X[:50]), 3).add(X, Y)
    basis = regression.basis(X)

    def loss(number, used):
        left_out = regression.solve(NOISES[number]).leave_out(basis, Y, groups).mean
        return LabelLikelihood(Y, used)(left_out)

    assert loss(number, used) <= min(loss(number - 1, used), loss(number + 1, used)) + 1e-6
    assert loss(number, None) > loss(number, used) + 0.1
