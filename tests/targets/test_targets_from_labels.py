"""ILR, Dirichlet and one-hot targets against their formulas."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import softmax

from deepsimplex.geometry import ilr_inverse, vertices
from deepsimplex.targets import ILR, Dirichlet, OneHot, Vertices
from tests.reference import targets as oracle

EACH = [ILR(), ILR(0.7, noise_scale=0.3), Dirichlet(), Dirichlet(0.5), OneHot(), Vertices()]


@pytest.mark.parametrize("n", [2, 3, 7])
@pytest.mark.parametrize("smoothing", [0.3, 0.99, 0.999999])
def test_ilr_centers(n, smoothing):
    table = ILR(smoothing).table(n)
    expected = [oracle.ilr_center(k, n, smoothing) for k in range(n)]
    np.testing.assert_allclose(table.loc, expected, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("n", [2, 3, 10, 100])
def test_ilr_centers_have_stated_distance(n):
    target = ILR(0.9)
    loc = target.table(n).loc
    distances = np.linalg.norm(loc[:, None] - loc[None], axis=-1)[~np.eye(n, dtype=bool)]
    np.testing.assert_allclose(distances, target.separation(n), rtol=1e-12)


@pytest.mark.parametrize(("n", "overlap"), [(2, 0.05), (3, 0.05), (5, 0.1), (10, 0.2)])
def test_ilr_noise_keeps_proposition_one(n, overlap):
    """At most the stated share of 200 000 draws from class 0 lies nearer another center; for n = 2 exactly that."""
    target = ILR(0.8, overlap)
    table, sigma = target.table(n), target.noise(n)[0, 0]
    draws = table.loc[0] + sigma * np.random.default_rng(n).standard_normal((200_000, n - 1))
    rate = np.mean(np.argmax(draws @ target.scores(n).T, axis=1) != 0)
    standard_error = np.sqrt(overlap * (1 - overlap) / 200_000)
    assert rate <= overlap + 4 * standard_error
    assert rate >= overlap / 2  # the union bound is loose, not empty
    if n == 2:
        assert rate == pytest.approx(overlap, abs=4 * standard_error)


def test_ilr_noise_as_given():
    assert ILR(noise_scale=0.25).noise(4).tolist() == [[0.25]]
    assert np.unique(ILR(noise_scale=0.25).table(4).scale).tolist() == [0.25]


def test_invalid_ilr_overlap_raises():
    with pytest.raises(ValueError, match=r"overlap must.*found 0.6"):
        ILR(overlap=0.6).fit(None, [0, 1])
    ILR(overlap=0.6).fit(None, [0, 1, 2])
    ILR(overlap=0.6, noise_scale=1.0).fit(None, [0, 1])


@settings(max_examples=50)
@given(st.integers(2, 6), st.floats(0.05, 0.999), st.integers(0, 2**32 - 1))
def test_ilr_latents_of_soft_labels_are_compositions(n, smoothing, seed):
    q = np.random.default_rng(seed).dirichlet(np.ones(n), size=4)
    latent = ILR(smoothing).fit_transform(None, q)
    np.testing.assert_allclose(ilr_inverse(latent.loc), smoothing * q + (1 - smoothing) / n, atol=1e-12)
    np.testing.assert_allclose(softmax(latent.loc @ ILR(smoothing).scores(n).T, axis=1), ilr_inverse(latent.loc))


@pytest.mark.parametrize("n", [2, 5])
@pytest.mark.parametrize("concentration", [1e-4, 0.01, 1.0])
def test_dirichlet_observations(n, concentration):
    table = Dirichlet(concentration).table(n)
    for k in range(n):
        mean, variance = oracle.dirichlet_observation(k, n, concentration)
        np.testing.assert_allclose(table.loc[k], mean, rtol=1e-13)
        np.testing.assert_allclose(table.scale[k] ** 2, variance, rtol=1e-13)


def test_dirichlet_observations_keep_the_moments_of_gamma_variables():
    """exp of the observation has mean and variance alpha, as Gamma(alpha, 1) does: what the approximation matches."""
    q = np.random.default_rng(0).dirichlet(np.ones(4), size=8)
    latent = Dirichlet(0.1).fit_transform(None, q)
    variance = latent.scale**2
    mean = np.exp(latent.loc + variance / 2)
    np.testing.assert_allclose(mean, q + 0.1, rtol=1e-12)
    np.testing.assert_allclose(np.expm1(variance) * mean**2, q + 0.1, rtol=1e-12)


@pytest.mark.parametrize("n", [2, 3, 10])
def test_dirichlet_readout_excludes_noise(n):
    assert Dirichlet(0.01).noise(n) is None
    assert Dirichlet(0.01).table(n).scale.min() > 0


def test_vertices():
    latent = Vertices().fit_transform(None, [2, 0], num_classes=4)
    np.testing.assert_array_equal(latent.loc, vertices(4)[[2, 0]])
    np.testing.assert_array_equal(Vertices().scores(4), vertices(4))
    assert Vertices().noise(4) is None
    np.testing.assert_array_equal(Vertices().fit_transform(None, [0, 1]).loc, [[1.0], [-1.0]])
    np.testing.assert_allclose(Vertices().transform(None, np.full((1, 3), 1 / 3)).loc, 0.0, atol=1e-15)


def test_one_hot():
    latent = OneHot().fit_transform(None, [2, 0], num_classes=4)
    assert latent.loc.tolist() == [[0, 0, 1, 0], [1, 0, 0, 0]]
    assert latent.scale.tolist() == [[0], [0]]
    assert OneHot().noise(4) is None


@pytest.mark.parametrize("target", EACH, ids=repr)
@pytest.mark.parametrize("n", [2, 4])
class TestEveryLabelTarget:
    def test_shapes_and_geometry(self, target, n):
        assert target.scores(n).shape == (n, target.latent_dim(n))
        assert target.scores(n).dtype == np.float64
        latent = target.fit_transform(None, [0, 1, 1], num_classes=n)
        assert latent.loc.shape == (3, target.latent_dim(n))
        assert latent.loc.dtype == latent.scale.dtype == np.float64
        assert (target.num_classes_, target.latent_dim_) == (n, target.latent_dim(n))
        np.testing.assert_array_equal(target.scores_, target.scores(n))

    def test_scores_are_largest_for_the_class(self, target, n):
        assert np.argmax(target.table(n).loc @ target.scores(n).T, axis=1).tolist() == list(range(n))

    def test_hard_labels_equal_one_hot_soft_labels(self, target, n):
        y = np.array([1, 0, 1, n - 1])
        hard, soft = target.fit_transform(None, y, n), target.fit_transform(None, np.eye(n)[y])
        np.testing.assert_array_equal(hard.loc, soft.loc)
        np.testing.assert_array_equal(hard.scale, soft.scale)

    def test_latents_are_looked_up_in_table(self, target, n):
        y = np.array([n - 1, 0])
        latent, table = target.fit(None, y, n).transform(None, y), target.table(n)
        np.testing.assert_array_equal(latent.loc, table.loc[y])
        np.testing.assert_array_equal(latent.scale, table.scale[y])


@pytest.mark.parametrize("target", [ILR(), Dirichlet(), OneHot(), Vertices()], ids=repr)
def test_transform_before_fit_raises(target):
    with pytest.raises(ValueError, match=r"call fit\(x, y\) first.*table"):
        target.transform(None, [0, 1])


def test_sample_count_mismatch_raises():
    with pytest.raises(ValueError, match=r"^y must.*found shape \(2,\)"):
        ILR().fit(np.zeros((3, 2)), [0, 1])
    with pytest.raises(ValueError, match=r"^y must.*found shape \(2,\)"):
        ILR().fit(None, [0, 1]).transform(np.zeros((3, 2)), [0, 1])


def test_labels_outside_of_fitted_classes_raise():
    with pytest.raises(ValueError, match=r"^y must.*found 2"):
        ILR().fit(None, [0, 1]).transform(None, [2])


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: ILR(1.0), r"smoothing must.*found 1.0"),
        (lambda: ILR(smoothing=0), r"smoothing must.*found 0"),
        (lambda: ILR(overlap=0.0), r"overlap must.*found 0"),
        (lambda: ILR(noise_scale=-1.0), r"noise_scale must.*found -1.0"),
        (lambda: ILR(smoothing="much"), r"smoothing must.*found 'much'"),
        (lambda: Dirichlet(0.0), r"concentration must.*found 0\.0"),
        (lambda: Dirichlet(np.nan), r"concentration must.*found nan"),
    ],
)
def test_invalid_parameters_raise(make, words):
    with pytest.raises(ValueError, match=words):
        make()
