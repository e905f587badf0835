"""Gaussian-process classifiers: speed and likelihood beside gpytorch's and GPflow's.

    pip install -e '.[peers]'
    python -m training.benchmarks.gaussian_processes --letter letter.npz [--parts exact,letter,classes,memory]

``letter.npz`` holds the letter recognition data of UCI as arrays X [20000, 16] and y. Everything is measured in one
run; speeds are ratios within it. Evaluation of test rows on the way is not counted.
"""

import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import tensorflow as tf
import typer
from numpy.typing import NDArray
from sklearn.datasets import load_digits, make_blobs

import deepsimplex as ds
from training.benchmarks.memory import PeakMemory
from training.benchmarks.neighbours import line

TRAIN, LETTER_TRAIN, INDUCING = 1200, 15_000, 200
PEER_STEPS, PEER_RATE = 50, 0.1
# The likelihood to be reached on letter, on so many test rows, and when to give up.
GOAL, TEST_ROWS, PATIENCE = 0.30, 2500, 600.0
CLASSES = (5, 20, 100)

Data = tuple[NDArray[Any], NDArray[Any], NDArray[Any], NDArray[Any]]


def split(X: NDArray[Any], y: NDArray[Any], train: int) -> Data:
    """The first rows of a random order to train, the others to test."""
    order = np.random.default_rng(0).permutation(len(X))
    return X[order[:train]], y[order[:train]], X[order[train:]], y[order[train:]]


def exact(repeats: int) -> None:
    """ILR to convergence beside gpytorch's Dirichlet GP, on digits."""
    digits = load_digits()
    X, y, X_test, y_test = split(digits.data / 16.0, digits.target, TRAIN)
    own, peer, scores = [], [], {}
    for _ in range(repeats):
        begun = time.perf_counter()
        classifier = ds.SimplexGaussianProcess(
            ds.targets.ILR(0.999999), noise="learned", scale_features=False, readout="softmax"
        ).fit(X, y)
        own.append(time.perf_counter() - begun)
        scores["ILR"] = ds.evaluation.negative_log_likelihood(y_test, classifier.predict_proba(X_test))
        begun = time.perf_counter()
        latent = dirichlet_peer(X, y, X_test)
        peer.append(time.perf_counter() - begun)
        scores["gpytorch"] = ds.evaluation.negative_log_likelihood(y_test, ds.readout.softmax(latent, np.eye(10)))
    ratio = np.median(np.array(peer) / np.array(own))
    line(f"digits, {TRAIN} rows: exact ILR to convergence", f"{np.median(own):.1f} s, NLL {scores['ILR']:.3f}")
    line(f"the same, gpytorch, Dirichlet, {PEER_STEPS} steps", f"{np.median(peer):.1f} s, NLL {scores['gpytorch']:.3f}")
    line("ratio", f"{ratio:.1f} times")


def dirichlet_peer(X: NDArray[Any], y: NDArray[Any], X_test: NDArray[Any]) -> ds.LatentGaussian:
    """Latents of gpytorch's exact Dirichlet GP, as its tutorial has it, with one kernel for all classes."""
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

        model = Model().double()
        model.train()
        likelihood.train()
        optimizer = torch.optim.Adam(model.parameters(), lr=PEER_RATE)
        bound = gpytorch.mlls.ExactMarginalLogLikelihood(likelihood, model)
        for _ in range(PEER_STEPS):
            optimizer.zero_grad()
            loss = -bound(model(inputs), likelihood.transformed_targets).sum()
            loss.backward()
            optimizer.step()
        model.eval()
        with torch.no_grad():
            found = model(torch.as_tensor(X_test))
            return ds.LatentGaussian(found.mean.numpy().T.copy(), found.variance.sqrt().numpy().T.copy())


def nll(latent: ds.LatentGaussian, scores: NDArray[Any], y: NDArray[Any]) -> float:
    """Of test rows; several deviations per row by Sobol points, which is precise enough here and not the point."""
    sampled: dict[str, Any] = (
        {} if latent.covariance == "isotropic" else {"method": "quasi_monte_carlo", "num_points": 128}
    )
    return ds.evaluation.negative_log_likelihood(y, ds.readout.softmax(latent, scores, **sampled))


class Race:
    """Seconds until the likelihood of test rows reaches the goal, evaluations left out."""

    def __init__(self, name: str, y: NDArray[Any]) -> None:
        self.name, self._y = name, y
        self._begun, self._away = time.perf_counter(), 0.0
        self.seconds, self.best = float("nan"), float("inf")

    def look(self, latent: Callable[[], tuple[ds.LatentGaussian, NDArray[Any]]]) -> bool:
        """Evaluate, and say whether the race is over."""
        now = time.perf_counter()
        passed = now - self._begun - self._away
        score = nll(*latent(), self._y)
        self.best = min(self.best, score)
        if score <= GOAL:
            self.seconds = passed
        self._away += time.perf_counter() - now
        return score <= GOAL or passed > PATIENCE

    def result(self) -> None:
        """One line."""
        reached = f"{self.seconds:.1f} s" if np.isfinite(self.seconds) else f"not in {PATIENCE:.0f} s"
        line(f"letter, {INDUCING} inducing points: {self.name} to NLL {GOAL:.2f}", f"{reached} (best {self.best:.3f})")


class Over(Exception):
    """The race is over."""


def letter(path: Path) -> None:
    """Time to a likelihood: stochastic and categorical ILR beside GPflow's SVGP with a softmax."""
    with np.load(path, allow_pickle=False) as archive:
        X, y, X_test, y_test = split(archive["X"].astype(float), archive["y"], LETTER_TRAIN)
    X_test, y_test = X_test[:TEST_ROWS], y_test[:TEST_ROWS]
    common: dict[str, Any] = {"inducing": INDUCING, "ard": True}
    target = ds.targets.ILR(0.999999)
    observation = target.fit_transform(None, y, num_classes=26)

    def run(name: str, fit: Callable[[Callable[[Any], None]], Any], scores: NDArray[Any] | None) -> Race:
        race = Race(name, y_test)

        def watch(step: Any) -> None:
            def there() -> tuple[ds.LatentGaussian, NDArray[Any]]:
                posterior = step.posterior()
                return posterior.predict(X_test), posterior.scores if scores is None else scores

            if step.iteration % 2 == 0 and race.look(there):
                raise Over

        with suppress(Over):
            fit(watch)
        race.result()
        return race

    stochastic = ds.gp.StochasticGaussianProcess(noise="learned", epochs=60, learning_rate=0.05, **common)
    categorical = ds.gp.CategoricalProcess("ilr", epochs=30, **common)
    races = [
        run("stochastic ILR", lambda watch: stochastic.fit(X, observation, y, watch), target.scores_),
        run("categorical ILR", lambda watch: categorical.fit(X, np.eye(26)[y], watch), None),
    ]
    peer = svgp_peer(X, y, X_test, y_test)
    peer.result()
    slow = peer.seconds if np.isfinite(peer.seconds) else PATIENCE
    for race in races:
        more = "" if np.isfinite(peer.seconds) else "more than "
        line(f"ratio of {peer.name} to {race.name}", f"{more}{slow / race.seconds:.1f} times")


def svgp_peer(X: NDArray[Any], y: NDArray[Any], X_test: NDArray[Any], y_test: NDArray[Any]) -> Race:
    """GPflow's own way: SVGP with a softmax likelihood, Adam over minibatches for everything."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import gpflow
    from sklearn.cluster import kmeans_plusplus

    centre, width = X.mean(axis=0), X.std(axis=0)
    X, X_test = (X - centre) / width, (X_test - centre) / width
    race = Race("GPflow's SVGP, softmax", y_test)
    tf.random.set_seed(0)
    points, _ = kmeans_plusplus(X, INDUCING, random_state=0)
    kernel = gpflow.kernels.SquaredExponential(variance=4.0, lengthscales=np.full(X.shape[1], X.shape[1] ** 0.5))
    model = gpflow.models.SVGP(
        kernel, gpflow.likelihoods.Softmax(26), points, num_latent_gps=26, num_data=len(X), whiten=True
    )
    model.likelihood.num_monte_carlo_points = 8
    optimizer = tf.optimizers.Adam(0.02)
    variables = list(model.trainable_variables)
    optimizer.build(variables)

    @tf.function
    def step(x: Any, labels: Any) -> None:
        with tf.GradientTape() as tape:
            loss = model.training_loss((x, labels))
        optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))

    def latent() -> tuple[ds.LatentGaussian, NDArray[Any]]:
        mean, variance = model.predict_f(X_test)
        return ds.LatentGaussian(mean.numpy(), np.sqrt(variance.numpy())), np.eye(26)

    for number, (x, labels) in enumerate(minibatches(X, y[:, None].astype(np.int64), 512), start=1):
        step(x, labels)
        if number % 60 == 0 and race.look(latent):
            break
    return race


def minibatches(X: NDArray[Any], y: NDArray[Any], size: int) -> Iterator[tuple[Any, Any]]:
    """Without end."""
    rng = np.random.default_rng(0)
    while True:
        order = rng.permutation(len(X))
        for start in range(0, len(X) - size + 1, size):
            rows = order[start : start + size]
            yield tf.constant(X[rows]), tf.constant(y[rows])


def classes(repeats: int) -> None:
    """Fit and probabilities of exact ILR for more and more classes of the same number of rows."""
    times: dict[int, list[float]] = {n: [] for n in CLASSES}
    for _ in range(repeats + 1):
        for n in CLASSES:
            X, y = make_blobs(2 * TRAIN, 16, centers=n, cluster_std=3.0, random_state=0)
            begun = time.perf_counter()
            classifier = ds.SimplexGaussianProcess(noise="learned").fit(X[:TRAIN], y[:TRAIN])
            classifier.predict_proba(X[TRAIN:])
            times[n].append(time.perf_counter() - begun)
    medians = {n: float(np.median(found[1:])) for n, found in times.items()}  # the first traces
    for n, median in medians.items():
        line(f"exact ILR, {TRAIN} rows, {n} classes: fit and predict_proba", f"{median:.1f} s")
    line(f"ratio of {CLASSES[-1]} classes to {CLASSES[0]}", f"{medians[CLASSES[-1]] / medians[CLASSES[0]]:.2f} times")


def memory(path: Path) -> None:
    """Of collapsed processes on letter."""
    with np.load(path, allow_pickle=False) as archive:
        X, y, *_ = split(archive["X"].astype(float), archive["y"], LETTER_TRAIN)
    for target in ("ilr", "dirichlet"):
        with PeakMemory() as peak:
            ds.SimplexGaussianProcess(target, "collapsed", inducing=INDUCING, max_iterations=3).fit(X, y)
        line(f"letter, collapsed, {target}: memory above imports and data", f"{peak.gibibytes:.2f} GiB")


def main(
    letter_file: Annotated[Path | None, typer.Option("--letter")] = None,
    parts: Annotated[str, typer.Option(help="Some of exact, letter, classes, memory.")] = "exact,classes,memory,letter",
    repeats: Annotated[int, typer.Option(min=1)] = 3,
) -> None:
    """Print a line for every figure."""
    runs: dict[str, Callable[[], None]] = {"exact": lambda: exact(repeats), "classes": lambda: classes(repeats)}
    if letter_file is not None:
        found = letter_file
        runs |= {"memory": lambda: memory(found), "letter": lambda: letter(found)}
    for part in parts.split(","):
        if part not in runs:
            raise typer.BadParameter(f"{part!r} is unknown, or needs --letter; there are {', '.join(runs)}")
    for part in parts.split(","):
        runs[part]()


if __name__ == "__main__":
    typer.run(main)
