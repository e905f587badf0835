"""The mean of targets: averages of latents, of independent noises, and what may be averaged."""

import numpy as np
import pytest

from deepsimplex.geometry import nearest_vertex
from deepsimplex.targets import CASIMAC, ILR, Dirichlet, Mean, OneHot

X = np.random.default_rng(3).standard_normal((15, 4))
Y = np.arange(15) % 3


def test_mean_target_averages_latents():
    """f = (f_1 + f_2 + f_3) / 3 [CASIMAC sec. 3.4], on training samples and on others."""
    members = [CASIMAC("euclidean"), CASIMAC("cityblock", gamma=0.5), CASIMAC(repulsion_number=3)]
    mean = Mean(members)
    latent = mean.fit_transform(X, Y)
    np.testing.assert_allclose(latent.loc, sum(t.fit_transform(X, Y).loc for t in members) / 3, rtol=1e-12)
    assert not latent.scale.any()
    np.testing.assert_array_equal(nearest_vertex(latent.loc), Y)
    others = mean.transform(X[:4] + 0.5, Y[:4])
    np.testing.assert_allclose(others.loc, sum(t.transform(X[:4] + 0.5, Y[:4]).loc for t in members) / 3, rtol=1e-12)
    assert (mean.needs_samples, mean.default_readout, mean.noise(3), mean.latent_dim_) == (True, "argmax", None, 2)


def test_mean_of_one_target_equals_the_target():
    alone, mean = CASIMAC(), Mean([CASIMAC()])
    np.testing.assert_array_equal(mean.fit_transform(X, Y).loc, alone.fit_transform(X, Y).loc)


def test_variances_of_independent_noises_are_averaged():
    """Checked by simulation: the mean of draws from two targets has the stated mean and standard deviation."""
    members = [ILR(0.9, noise_scale=1.0), ILR(0.5, noise_scale=2.0)]
    mean = Mean(members)
    table = mean.table(3)
    rng = np.random.default_rng(0)
    draws = sum(t.table(3).loc[1] + t.noise(3) * rng.standard_normal((100_000, 2)) for t in members) / 2
    np.testing.assert_allclose(draws.mean(axis=0), table.loc[1], atol=0.02)
    np.testing.assert_allclose(draws.std(axis=0), table.scale[1, 0], rtol=0.02)
    np.testing.assert_allclose(mean.noise(3), [[np.sqrt(5) / 2]], rtol=1e-12)


def test_mean_of_dirichlet_scales_is_diagonal():
    mean = Mean([Dirichlet(0.01), Dirichlet(0.1)])
    latent = mean.fit_transform(None, Y)
    expected = np.sqrt(sum(t.fit_transform(None, Y).scale ** 2 for t in mean.targets)) / 2
    np.testing.assert_allclose(latent.scale, expected, rtol=1e-12)
    assert not mean.needs_samples
    assert mean.default_readout == "softmax"


def test_soft_labels_and_tables_of_label_targets():
    mean = Mean(["ilr", {"name": "ilr", "smoothing": 0.5}])
    np.testing.assert_array_equal(mean.fit_transform(None, np.eye(3)).loc, mean.table(3).loc)


@pytest.mark.parametrize(
    ("targets", "words"),
    [
        ([], r"targets must.*found \[\]"),
        ("ilr", r"targets must.*found 'ilr'"),
        ([ILR(), CASIMAC()], r"targets must.*found argmax, softmax"),
        ([ILR(), Dirichlet()], r"targets must.*found ILR\(\) and Dirichlet\(\), whose scores"),
        ([CASIMAC(), CASIMAC(construction="helmert")], "share one latent space"),
        ([CASIMAC(), OneHot()], "share one latent space"),
    ],
)
def test_targets_of_different_latent_spaces_raise(targets, words):
    with pytest.raises(ValueError, match=words):
        Mean(targets)


def test_mean_of_distance_targets_has_no_table():
    assert Mean([CASIMAC()]).table(3) is None


def test_all_targets_are_checked_before_computing(monkeypatch):
    monkeypatch.setattr(CASIMAC, "_latents", lambda *_: pytest.fail("computed before all checks"))
    mean = Mean([CASIMAC(), CASIMAC(gamma=0.5)])
    with pytest.raises(ValueError, match="single one of class 1"):
        mean.fit_transform([[0.0], [1.0], [2.0]], [0, 0, 1])


def test_transform_before_fit_raises():
    mean = Mean([CASIMAC()])
    assert not mean.is_fitted
    with pytest.raises(ValueError, match=r"call fit\(x, y\)"):
        mean.transform(X, Y)
    assert mean.fit(X, Y).is_fitted
