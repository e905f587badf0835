"""Gaussian processes of gpytorch and GPflow, configured as in their documentation."""

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

import deepsimplex as ds

STEPS, RATE = 50, 0.1
BATCH, SVGP_RATE, DRAWS = 512, 0.02, 8
# Steps from one look at the test rows to the next: about two epochs of letter.
EVERY = 60


def gpytorch_dirichlet(X: NDArray[Any], y: NDArray[Any], X_test: NDArray[Any]) -> ds.LatentGaussian:
    """Latents of test rows by the exact Dirichlet GP of gpytorch's tutorial: a kernel for every class, Adam."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import gpytorch
        import torch

    torch.manual_seed(0)
    inputs, labels = torch.as_tensor(X), torch.as_tensor(y)
    likelihood = gpytorch.likelihoods.DirichletClassificationLikelihood(
        labels, alpha_epsilon=0.01, learn_additional_noise=True, dtype=torch.float64
    )
    classes = torch.Size((likelihood.num_classes,))

    class Model(gpytorch.models.ExactGP):
        def __init__(self) -> None:
            super().__init__(inputs, likelihood.transformed_targets, likelihood)
            self.mean_module = gpytorch.means.ConstantMean(batch_shape=classes)
            self.covar_module = gpytorch.kernels.ScaleKernel(
                gpytorch.kernels.RBFKernel(batch_shape=classes), batch_shape=classes
            )

        def forward(self, x: Any) -> Any:
            return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = Model().double()
        model.train()
        likelihood.train()
        optimizer = torch.optim.Adam(model.parameters(), lr=RATE)
        bound = gpytorch.mlls.ExactMarginalLogLikelihood(likelihood, model)
        for _ in range(STEPS):
            optimizer.zero_grad()
            loss = -bound(model(inputs), likelihood.transformed_targets).sum()
            loss.backward()
            optimizer.step()
        model.eval()
        with torch.no_grad():
            predicted = model(torch.as_tensor(X_test))
            return ds.LatentGaussian(predicted.mean.numpy().T.copy(), predicted.variance.sqrt().numpy().T.copy())


def gpflow_svgp(
    X: NDArray[Any], y: NDArray[Any], inducing: int, watch: Callable[[int, Callable[[Any], ds.LatentGaussian]], bool]
) -> None:
    """GPflow's sparse variational GP with a softmax likelihood, Adam over minibatches for everything.

    Parameters
    ----------
    X : ndarray, shape [N, d]
    y : ndarray, shape [N]
    inducing : int
    watch : callable
        Called every so many steps with their number and a function from features to latents, one of every class; the
        process ends when it returns True.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import gpflow
    from sklearn.cluster import kmeans_plusplus

    center, width = X.mean(axis=0), X.std(axis=0)
    X, n = (X - center) / width, int(y.max()) + 1
    tf.random.set_seed(0)
    points, _ = kmeans_plusplus(X, inducing, random_state=0)
    kernel = gpflow.kernels.SquaredExponential(variance=4.0, lengthscales=np.full(X.shape[1], X.shape[1] ** 0.5))
    model = gpflow.models.SVGP(
        kernel, gpflow.likelihoods.Softmax(n), points, num_latent_gps=n, num_data=len(X), whiten=True
    )
    model.likelihood.num_monte_carlo_points = DRAWS
    optimizer = tf.optimizers.Adam(SVGP_RATE)
    variables = list(model.trainable_variables)
    optimizer.build(variables)

    @tf.function
    def step(x: Any, labels: Any) -> None:
        with tf.GradientTape() as tape:
            loss = model.training_loss((x, labels))
        optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))

    def latent(rows: NDArray[Any]) -> ds.LatentGaussian:
        mean, variance = model.predict_f((rows - center) / width)
        return ds.LatentGaussian(mean.numpy(), np.sqrt(variance.numpy()))

    for number, (x, labels) in enumerate(_minibatches(X, y[:, None].astype(np.int64)), start=1):
        step(x, labels)
        if number % EVERY == 0 and watch(number, latent):
            return


def _minibatches(X: NDArray[Any], y: NDArray[Any]) -> Iterator[tuple[Any, Any]]:
    rng, size = np.random.default_rng(0), min(BATCH, len(X))
    while True:
        order = rng.permutation(len(X))
        for start in range(0, len(X) - size + 1, size):
            rows = order[start : start + size]
            yield tf.constant(X[rows]), tf.constant(y[rows])
