"""Readouts: accuracy and speed, compared with casimac's Monte Carlo.

    pip install -e '.[peers]'
    python -m training.benchmarks.readouts [--repeats 5] [--output FILE.json]

Everything is measured in one run; speeds are ratios within it, medians of alternating measurements. Accuracy is
against dense quadrature with SciPy's distribution functions, against 2^20 Sobol points with an estimated error, and,
for the diagonal scale, against Genz's method with 2^17 points.
"""

import statistics
from collections.abc import Callable, Iterator
from typing import Annotated, Any

import keras
import numpy as np
import tensorflow as tf
import typer
from casimac import CASIMAClassifier
from numpy.typing import NDArray
from scipy.special import log_ndtr, logsumexp, softmax
from scipy.stats import norm
from scipy.stats.qmc import MultivariateNormalQMC

import deepsimplex as ds
from training.benchmarks.resources import EpochSeconds, PeakMemory, seconds
from training.results import Measurement, Output, ResultTable

ROWS = 10_000
PEER_ROWS, PEER_DRAWS = 500, 1000
BATCH, STEPS = 128, 200
CLASSES = (10, 100, 1000)
FEW_CLASSES = 10  # beside casimac, and of the diagonal scale
REFERENCE_POINTS, SCRAMBLINGS = 2**15, 32


def latents(rows: int, n: int, covariance: str, seed: int = 0) -> ds.LatentGaussian:
    """Gaussians as a network emits them: means around the vertices, standard deviations of a third of their size."""
    rng = np.random.default_rng(seed)
    loc = ds.geometry.vertices(n)[rng.integers(0, n, rows)] * rng.uniform(0.2, 1.2, (rows, 1))
    loc = loc + 0.3 * rng.normal(size=loc.shape) / np.sqrt(n - 1)
    scale = np.exp(rng.uniform(np.log(0.1), np.log(1.0), (rows, 1 if covariance == "isotropic" else n - 1)))
    return ds.LatentGaussian(loc, scale)


def single(latent: ds.LatentGaussian) -> ds.LatentGaussian:
    """Convert them to float32."""
    return ds.LatentGaussian(latent.loc.astype("float32"), latent.scale.astype("float32"))


def log_probabilities(mean: NDArray[Any], deviation: float) -> NDArray[Any]:
    """Log-probabilities of independent scores [n] of one standard deviation, by a dense trapezoidal rule."""
    a = (mean - mean.max()) / deviation
    u, step = np.linspace(max(0.5 * a.min(), -60.0) - 12.0, 12.0, 20_001, retstep=True)
    log_cdf = log_ndtr(u - a[:, None])
    log_p = logsumexp(norm.logpdf(u - a[:, None]) + log_cdf.sum(axis=0) - log_cdf, axis=1) + np.log(step)
    return log_p - logsumexp(log_p)


def exact(latent: ds.LatentGaussian) -> NDArray[Any]:
    """Log-probabilities of isotropic latents, by the rule above."""
    n = latent.latent_dim + 1
    means = latent.loc.astype(float) @ ds.geometry.vertices(n).T
    deviations = latent.scale[:, 0].astype(float) * (n / (n - 1)) ** 0.5
    return np.array([log_probabilities(mean, deviation) for mean, deviation in zip(means, deviations, strict=True)])


def isotropic_accuracy() -> Iterator[Measurement]:
    """Largest errors of the isotropic readout, and the memory of a thousand classes."""
    for n in CLASSES:
        latent = latents(50 if n < 1000 else 20, n, "isotropic")
        for kind in (latent, single(latent)):
            error = np.abs(ds.readout.argmax(kind) - np.exp(exact(kind))).max()
            yield f"isotropic, n = {n}, {kind.loc.dtype}: largest error", f"{error:.1e}"
    with PeakMemory() as memory:
        ds.readout.argmax(latents(1000, CLASSES[-1], "isotropic"))
    yield f"isotropic, n = {CLASSES[-1]}, 1000 rows, float64: memory", f"{memory.gibibytes:.2f} GiB"


def logarithms() -> Iterator[Measurement]:
    """Log-probabilities of classes that lie up to 40 standard deviations behind."""
    rng = np.random.default_rng(1)
    means = -np.concatenate([np.zeros((20, 1)), rng.uniform(0.0, 40.0, (20, 8)), np.full((20, 1), 40.0)], axis=1)
    means = means.astype("float32").astype("float64")  # numbers that both dtypes hold
    expected = np.array([log_probabilities(mean, 1.0) for mean in means])
    for dtype in ("float64", "float32"):
        latent = ds.LatentGaussian(means.astype(dtype), np.ones((20, 1), dtype))
        log_p = ds.readout.argmax(latent, np.eye(10), log=True)
        error = (np.abs(log_p - expected) / np.maximum(np.abs(expected), 1.0)).max()
        yield f"log-probability, margins up to 40 standard deviations, {dtype}: relative", f"{error:.1e}"


def softmax_accuracy() -> Iterator[Measurement]:
    """The exact softmax readout against 2^20 Sobol points, whose error is estimated from scramblings."""
    latent, V = latents(20, 10, "isotropic"), ds.geometry.helmert(10)
    latent = ds.LatentGaussian(4.0 * latent.loc, 3.0 * latent.scale)
    p = ds.readout.softmax(latent, V.T)
    worst, allowed = 0.0, 0.0
    for row in range(len(latent)):
        means = []
        for seed in range(SCRAMBLINGS):
            points = MultivariateNormalQMC(np.zeros(9), seed=seed).random(REFERENCE_POINTS)
            means.append(softmax((latent.loc[row] + latent.scale[row] * points) @ V, axis=1))
        means = np.mean(means, axis=1)
        error = np.std(means, axis=0, ddof=1) / np.sqrt(SCRAMBLINGS)
        differences = np.abs(p[row] - np.mean(means, axis=0))
        worst, allowed = max(worst, (differences / error).max()), max(allowed, error.max())
    points = REFERENCE_POINTS * SCRAMBLINGS
    yield (
        f"softmax, isotropic, n = 10: distance to {points} Sobol points",
        f"at most {worst:.1f} of their standard errors",
    )
    yield "the largest of these standard errors", f"{allowed:.1e}"


class _Given:
    """A regressor that returns the latents it was given, for casimac: samples are row numbers."""

    def __init__(self, latent: ds.LatentGaussian) -> None:
        self.latent = latent

    def fit(self, X: Any, y: Any) -> "_Given":
        return self

    def predict(self, X: Any, return_std: bool = False) -> Any:
        rows = np.asarray(X)[:, 0].astype(int)
        return (self.latent.loc[rows], self.latent.scale[rows]) if return_std else self.latent.loc[rows]


def peer(latent: ds.LatentGaussian, n: int) -> Callable[[], NDArray[Any]]:
    """casimac's class probabilities of the first rows, by its Monte Carlo."""
    rows = np.arange(PEER_ROWS, dtype=float)[:, None]
    model = CASIMAClassifier(lambda: _Given(latent), proba_calc_method="MC", proba_NMC=PEER_DRAWS, random_state=0)
    model.fit(np.arange(2.0 * n)[:, None], np.repeat(np.arange(n), 2))
    return lambda: model.predict_proba(rows)


def against_casimac(covariance: str, repeats: int) -> Iterator[Measurement]:
    """Ratio of casimac's time to ours, for as many rows of ten classes."""
    latent = latents(ROWS, FEW_CLASSES, covariance)
    sampled = peer(latent, FEW_CLASSES)
    ours = single(latent)
    ds.readout.argmax(ours)  # traced
    ratios = [seconds(sampled) * (ROWS / PEER_ROWS) / seconds(ds.readout.argmax, ours) for _ in range(repeats)]
    taken = seconds(ds.readout.argmax, ours)
    what = f"{covariance}, n = {FEW_CLASSES}, {ROWS} rows, float32: speed over casimac, {PEER_DRAWS} draws"
    yield what, f"{statistics.median(ratios):.0f} times ({1e3 * taken:.0f} ms)"
    # casimac numbers classes by the same vertices but for a sign.
    reference = ds.readout.argmax(latent[:PEER_ROWS], num_points=None if covariance == "isotropic" else 2**11)
    error = np.abs(sampled() - reference).max()
    yield f"casimac's largest error there, {covariance}", f"{error:.3f}"


def diagonal_accuracy() -> Iterator[Measurement]:
    """Error of the default number of points."""
    latent = latents(50, FEW_CLASSES, "diagonal", seed=3)
    reference = ds.readout.argmax(latent, num_points=4 * REFERENCE_POINTS)
    for kind in (latent, single(latent)):
        # Of arrays a graph would be traced for every seed.
        tensors = {"loc": tf.constant(kind.loc), "scale": tf.constant(kind.scale)}
        answers = [ds.readout.argmax(tensors, seed=seed).numpy() for seed in range(5)]
        errors = [np.abs(answer - reference).max() for answer in answers]
        result = f"{statistics.median(errors):.1e} (median of five seeds; worst {max(errors):.1e})"
        yield f"diagonal, n = {FEW_CLASSES}, default points, {kind.loc.dtype}: largest error", result


def training_step(repeats: int) -> Iterator[Measurement]:
    """Steps of the paper's backbone through the exact readout over steps with softmax cross-entropy."""
    rng = np.random.default_rng(0)
    x = rng.random((BATCH * STEPS, 784), dtype=np.float32)
    y = rng.integers(0, 10, len(x))
    ours = ds.SimplexClassifier(ds.backbones.mlp([100], activation="sigmoid"), "one_hot", 10, readout="argmax")
    ours.compile("adam", "sparse_categorical_crossentropy")
    habit = keras.Sequential([ds.backbones.mlp([100], activation="sigmoid"), keras.layers.Dense(10)])
    habit.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))

    def epoch(model: keras.Model) -> float:
        """Seconds of a step in the second epoch, which excludes preparation and tracing."""
        watch = EpochSeconds()
        model.fit(x, y, batch_size=BATCH, epochs=2, verbose=0, callbacks=[watch])
        return watch.seconds[1]

    times = [(epoch(ours), epoch(habit)) for _ in range(2 * repeats)]
    ratio = statistics.median(a / b for a, b in times)
    step = 1e3 * statistics.median(b for _, b in times) / STEPS
    yield f"training step, class objective, isotropic, batch {BATCH}", f"{ratio:.2f} times ({step:.2f} ms of the other)"


def main(
    repeats: Annotated[int, typer.Option(help="measurements to take medians of")] = 5,
    output: Output = None,
) -> None:
    """Measure and print."""
    table = ResultTable("training.benchmarks.readouts")
    table.measure(isotropic_accuracy())
    table.measure(logarithms())
    table.measure(softmax_accuracy())
    for covariance in ("isotropic", "diagonal"):
        table.measure(against_casimac(covariance, repeats))
    table.measure(diagonal_accuracy())
    table.measure(training_step(repeats))
    table.write(output)


if __name__ == "__main__":
    typer.run(main)
