"""Gaussian-process classifiers on degenerate data: right answers, or errors that name the problem."""

import numpy as np
import pytest

import deepsimplex as ds
from deepsimplex.gp.gpflow_kernels import gpflow

RNG = np.random.default_rng(0)
y = np.arange(60) % 3
X = RNG.normal(size=(60, 2)) + 4.0 * np.eye(3)[y][:, :2]
WHOLE, MINIBATCHES = ["exact", "collapsed"], ["stochastic", "categorical"]
each_inference = pytest.mark.parametrize("inference", WHOLE + MINIBATCHES)
each_inference_of_all_rows = pytest.mark.parametrize("inference", WHOLE)


def make(inference, *arguments, **options):
    """A classifier; what minibatches learn differs by their random numbers."""
    options = {"inducing": 30, **options}
    if inference in MINIBATCHES:
        options = {"epochs": 20, "batch_size": 20, **options}
        options.pop("max_iter", None)
    else:
        options = {"max_iter": 20, **options}
    if inference == "categorical":
        return ds.CategoricalGaussianProcess(**options)
    return ds.SimplexGaussianProcess(*(arguments or ["ilr"]), inference=inference, **options)


def within(inference, exactly, *, by_minibatches):
    return by_minibatches if inference in MINIBATCHES else exactly


@pytest.mark.slow
@each_inference
def test_constant_feature_is_ignored(inference):
    atol = within(inference, 1e-6, by_minibatches=0.02)
    p = make(inference).fit(X, y).predict_proba(X)
    more = np.column_stack([X, np.full(60, 0.1)])
    np.testing.assert_allclose(make(inference).fit(more, y).predict_proba(more), p, atol=atol)


@each_inference
def test_constant_features_give_class_frequencies(inference):
    uneven = np.minimum(y, 1)
    p = make(inference).fit(np.full((60, 2), 0.1), uneven).predict_proba([[0.1, 0.1], [5.0, 0.1]])
    assert (p[:, 1] > p[:, 0]).all()
    even = make(inference).fit(np.full((60, 2), 0.1), y).predict_proba([[0.1, 0.1]])
    np.testing.assert_allclose(even, 1 / 3, atol=within(inference, 1e-6, by_minibatches=0.02))


@each_inference_of_all_rows
def test_duplicated_rows_hardly_change_probabilities(inference):
    """Twice every row with a variance twice as large is the same problem."""
    noise = ds.targets.ILR(0.99, noise_scale=0.5), ds.targets.ILR(0.99, noise_scale=0.5 * np.sqrt(2))
    once = make(inference, noise[0], inducing=60, max_iter=0).fit(X, y)
    twice = make(inference, noise[1], inducing=60, max_iter=0).fit(np.tile(X, (2, 1)), np.tile(y, 2))
    np.testing.assert_allclose(twice.predict_latent(X).loc, once.predict_latent(X).loc, rtol=1e-3, atol=1e-3)


@each_inference
def test_contradictory_duplicates_share_probability(inference):
    rows = np.repeat(X[:10], 6, axis=0)
    p = make(inference).fit(rows, np.tile([0, 1], 30)).predict_proba(X[:10])
    np.testing.assert_allclose(p, 0.5, atol=within(inference, 0.01, by_minibatches=0.03))


def test_duplicated_rows_with_small_noise_warn_of_jitter():
    kernel = gpflow.kernels.SquaredExponential(variance=1e12, lengthscales=50.0)
    target = ds.targets.ILR(0.99, noise_scale=1e-6)
    classifier = make("exact", target, kernel=kernel, max_iter=0)
    rows = np.repeat(np.linspace(0, 1, 15)[:, None], 4, axis=0)
    with pytest.warns(RuntimeWarning, match=r"singular to within round-off: added .* Duplicated rows") as warned:
        classifier.fit(rows, np.repeat([0, 1, 2], 20))
    assert warned[0].filename == __file__
    assert classifier.score(rows, np.repeat([0, 1, 2], 20)) > 0.9


@pytest.mark.slow
@pytest.mark.parametrize("inference", ["collapsed", "categorical"])  # minibatches of either likelihood learn alike
def test_duplicate_and_surplus_inducing_points(inference):
    p = make(inference, inducing=X).fit(X, y).predict_proba(X)
    atol = within(inference, 0.01, by_minibatches=0.05)
    for inducing in (500, np.tile(X, (2, 1))):
        np.testing.assert_allclose(make(inference, inducing=inducing).fit(X, y).predict_proba(X), p, atol=atol)


@pytest.mark.parametrize(
    ("inference", "target"),
    [
        *(("exact", target) for target in ("ilr", "dirichlet", "one_hot", "casimac")),
        *(("collapsed", target) for target in ("ilr", "casimac")),
        *((inference, "ilr") for inference in MINIBATCHES),
    ],
)
def test_class_with_one_member_is_predicted(inference, target):
    labels = np.minimum(y, 1)
    labels[7] = 2
    p = make(inference, target).fit(X, labels).predict_proba(X)
    assert p.shape == (60, 3)
    assert np.argmax(p[:, 2]) == 7
    np.testing.assert_allclose(p.sum(axis=1), 1.0, rtol=1e-9)


@each_inference
def test_single_present_class_is_predicted(inference):
    p = make(inference, classes=[0, 1, 2]).fit(X, np.zeros(60, dtype=int)).predict_proba(X)
    assert (p[:, 0] > 0.9).all()


# Both inferences check their features alike: one of them is shown every dtype.
@pytest.mark.slow
@pytest.mark.parametrize(
    ("inference", "dtypes"),
    [("exact", ["float16", "float32", "int8", "uint16", "object", ">f8", "bool"]), ("collapsed", ["float16", "bool"])],
)
def test_features_of_every_real_dtype(inference, dtypes):
    expected = {}
    for dtype in dtypes:
        features = (4 * X).round().clip(0, 100).astype(dtype)
        key = features.astype("float64").tobytes()
        if key not in expected:
            expected[key] = make(inference, max_iter=0).fit(features.astype("float64"), y).predict_proba(features)
        p = make(inference, max_iter=0).fit(features, y).predict_proba(features)
        np.testing.assert_allclose(p, expected[key], rtol=1e-9, err_msg=dtype)


@each_inference
@pytest.mark.parametrize(
    ("features", "labels", "message"),
    [
        (np.where(X > 4, np.nan, X), y, "Input X contains NaN"),
        (np.where(X > 4, np.inf, X), y, "Input X contains infinity"),
        (X[:1], y[:1], "Found array with 1 sample"),
        (X[:0], y[:0], "Found array with 0 sample"),
        (X[:, :0], y, "Found array with 0 feature"),
        (X[:, 0], y, "Expected 2D array, got 1D array"),
        (X[:, :, None], y, "Found array with dim 3"),
        (np.full((60, 2), "a"), y, r"^X must.*found dtype <U1"),
        (X + 1j, y, "Complex data not supported"),
        (X, y[:20], r"^X and y must.*found 60 and 20"),
        (X, np.where(y > 1, np.nan, y), "Input y contains NaN"),
        (X, X[:, 0], "Unknown label type: continuous"),
        (X, np.array([1, "a", None] * 20, dtype=object), r"^y must not be missing; found None in row 2"),
        (X, np.zeros(60), r"^y must.*found one class alone"),
    ],
)
def test_invalid_data_raise(inference, features, labels, message):
    with pytest.raises((TypeError, ValueError), match=message):
        make(inference).fit(features, labels)


@each_inference
def test_invalid_features_in_predict_raise(inference):
    classifier = make(inference, max_iter=0, epochs=0).fit(X, y)
    for features, message in [
        (np.where(X > 4, np.nan, X), "Input X contains NaN"),
        (X[:, 0], "Expected 2D array, got 1D array"),
        (X[:, :1], "X has 1 features, but .* is expecting 2 features"),
        (X[:0], "Found array with 0 sample"),
    ]:
        with pytest.raises(ValueError, match=message):
            classifier.predict_proba(features)


@pytest.mark.parametrize("inference", ["collapsed", *MINIBATCHES])
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"inducing": 0}, r"^inducing, .*must.*found 0"),
        ({"inducing": 2}, r"^inducing must.*found 2"),
        ({"inducing": X[:9, :1]}, r"^inducing must.*found shape \(9, 1\)"),
    ],
)
def test_invalid_inducing_points_raise(inference, options, message):
    with pytest.raises(ValueError, match=message):
        make(inference, **options).fit(X, y)


@pytest.mark.parametrize(
    ("inference", "options", "message"),
    [
        ("exact", {"max_iter": -1}, r"^max_iter must.*found -1"),
        ("exact", {"n_restarts": 0.5}, r"^n_restarts must.*found 0\.5"),
        *(
            (inference, options, message)
            for inference in MINIBATCHES
            for options, message in [
                ({"epochs": -1}, r"^epochs must.*found -1"),
                ({"batch_size": 0}, r"^batch_size must.*found 0"),
                ({"learning_rate": 0.0}, r"^learning_rate must.*found 0\.0"),
            ]
        ),
        ("categorical", {"link": "logit"}, r"^link must.*found 'logit'"),
    ],
)
def test_invalid_settings_raise(inference, options, message):
    with pytest.raises(ValueError, match=message):
        make(inference, **options).fit(X, y)
