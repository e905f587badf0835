"""Compositions of latents, and the scale at which they have a given mass."""

import numpy as np
import pytest

import deepsimplex as ds
from deepsimplex.losses import composition, composition_tau

S = ds.geometry.vertices(4)


def latents(samples=50, seed=0):
    """Latents of CASIMAC: repelled by every other class at a random distance."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(4, size=samples)
    distances = rng.uniform(0.1, 3.0, size=(samples, 4))
    distances[np.arange(samples), labels] = 0.0
    return -distances @ S, labels


def test_composition_equals_map_to_probability_simplex():
    loc, _ = latents()
    np.testing.assert_allclose(composition(loc, S, 1.7), ds.geometry.to_probability_simplex(loc, tau=1.7), rtol=1e-12)
    np.testing.assert_allclose(composition(loc, S, 1.7).sum(axis=1), 1.0, rtol=1e-12)


def test_latent_is_proportional_to_ilr_of_composition():
    z = np.random.default_rng(1).normal(size=(20, 3))
    V = ds.geometry.helmert(4)
    np.testing.assert_allclose(ds.geometry.ilr(composition(z, V.T, 2.5)), 2.5 * z, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("units", [1e-6, 1.0, 1e6])
@pytest.mark.parametrize("mass", [0.26, 0.9, 0.98, 0.9999])
def test_scale_reaches_mass_in_any_units(mass, units):
    loc, labels = latents()
    tau = composition_tau(units * loc, labels, S, mass)
    shares = composition(units * loc, S, tau)
    assert shares[np.arange(50), labels].mean() == pytest.approx(mass, abs=1e-10)
    assert tau == pytest.approx(composition_tau(loc, labels, S, mass) / units, rel=1e-6)


def test_mass_of_soft_labels_is_expected_composition():
    memberships = np.random.default_rng(2).dirichlet(np.ones(4), size=30)
    loc = ds.targets.ILR(0.99).latents(memberships).loc
    scores = ds.targets.ILR(0.99).scores(4)
    tau = composition_tau(loc, memberships, scores, 0.4)
    assert np.mean(np.sum(memberships * composition(loc, scores, tau), axis=1)) == pytest.approx(0.4, abs=1e-10)


def test_unreachable_mass_raises():
    loc, labels = latents()
    soft = 0.8 * np.eye(4)[labels] + 0.05
    with pytest.raises(ValueError, match=r"mass 0.98 cannot be reached.*above 1/n = 0.25 and below 0.85"):
        composition_tau(loc, soft, S)
    # Two classes at distance zero share what there is, in the precision of the latents.
    tied = np.repeat(S[:1] + S[1:2], 2, axis=0)
    for precision in ("float32", "float64"):
        with pytest.raises(ValueError, match=r"below 0.5"):
            composition_tau(tied.astype(precision), [0, 1], S, 0.6)
    with pytest.raises(ValueError, match=r"below 0.25"):
        composition_tau(np.zeros((2, 3)), [0, 1], S, 0.6)
    with pytest.raises(ValueError, match=r"cannot be reached"):
        composition_tau(-S, np.arange(4), S, 0.6)  # every latent lies opposite its class


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"mass": 0.25}, r"mass must.*found 0.25"),
        ({"mass": 1.0}, r"mass must.*found 1\.0"),
        ({"labels": [0, 1]}, r"labels must.*found shape \(2,\)"),
        ({"labels": np.full(50, 4)}, r"labels must.*found 4 in row 0"),
        ({"loc": np.zeros((50, 2))}, r"loc must.*found shape \(50, 2\)"),
        ({"loc": np.zeros(50)}, r"loc must.*found shape \(50,\)"),
        ({"loc": np.full((50, 3), np.nan)}, "loc must be finite"),
        ({"scores": np.ones(3)}, r"scores must.*found shape \(3,\)"),
    ],
)
def test_invalid_arguments_raise(arguments, message):
    loc, labels = latents()
    with pytest.raises(ValueError, match=message):
        composition_tau(**{"loc": loc, "labels": labels, "scores": S, "mass": 0.9, **arguments})


def test_nonpositive_scale_raises():
    with pytest.raises(ValueError, match=r"tau must.*found 0\.0"):
        composition(S, S, 0.0)
