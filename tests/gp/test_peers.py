"""Gaussian processes against gpytorch, an optional dependency."""

import warnings

import numpy as np
import pytest

import deepsimplex as ds

pytestmark = pytest.mark.peers


@pytest.fixture(scope="module")
def peers():
    """gpytorch and torch, whose imports warn of their own dependencies."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch = pytest.importorskip("torch")
        gpytorch = pytest.importorskip("gpytorch")
    return gpytorch, torch


@pytest.mark.parametrize("concentration", [1.0, 0.1, 0.01, 0.0001, 1e-8])
@pytest.mark.parametrize("classes", [2, 5])
def test_dirichlet_targets_are_those_of_gpytorch(peers, concentration, classes):
    gpytorch, torch = peers
    y = np.random.default_rng(0).permutation(np.tile(np.arange(classes), 4))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        likelihood = gpytorch.likelihoods.DirichletClassificationLikelihood(
            torch.as_tensor(y), alpha_epsilon=concentration, dtype=torch.float64
        )
    latent = ds.targets.Dirichlet(concentration).fit_transform(None, y)
    variances = likelihood.noise_covar.noise.detach().numpy().T
    np.testing.assert_allclose(latent.loc, likelihood.transformed_targets.numpy().T, rtol=1e-12)
    np.testing.assert_allclose(np.square(latent.scale), variances, rtol=1e-12)
