"""Classifiers trained on targets of approximate neighbors, at several recalls.

    python -m training.benchmarks.approximate_neighbors [--images 20000] [--epochs 6] [--seeds 3] [--output FILE.json]

The default classifier on Fashion-MNIST with the small convolutional network: targets of exact neighbors, and of those
among few candidates. "recall" is what the target measured on 256 images, "of all" the share over all images, and
"distance" by how much the sum of distances to the nearest that were found exceeds that of the exact ones.
"""

from typing import Annotated, Any

import keras
import numpy as np
import typer

import deepsimplex as ds
from training.results import Output, ResultTable

BATCH = 128
# Samples of each class that are evaluated; None is exact.
CANDIDATES = (None, 16, 12, 6, 4, 2, 1)


def accuracy_and_loss(candidates: int | None, seed: int, epochs: int, data: Any) -> tuple[float, float, Any]:
    """Train a classifier: accuracy and negative log-likelihood of the test images, and its target."""
    (x, y), (x_test, y_test) = data
    keras.backend.clear_session()
    keras.utils.set_random_seed(seed)
    method: Any = "exact" if candidates is None else "approximate"
    target = ds.targets.CASIMAC(method=method, candidates_per_class=candidates)
    backbone = ds.backbones.cnn([32, 64], units=128, dropout=0.3)
    model = ds.SimplexClassifier(backbone, target, num_classes=10, seed=seed)
    rate = keras.optimizers.schedules.CosineDecay(2e-3, -(-len(x) // BATCH) * epochs)
    model.compile(keras.optimizers.Adam(rate))
    model.fit(x, y, batch_size=BATCH, epochs=epochs, verbose=0)
    p = model.predict_proba(x_test, batch_size=500)
    return ds.evaluation.accuracy(y_test, p), ds.evaluation.negative_log_likelihood(y_test, p), target


def main(
    images: Annotated[int, typer.Option(help="training images")] = 20_000,
    epochs: int = 6,
    seeds: int = 3,
    output: Output = None,
) -> None:
    """Train, measure and print."""
    table = ResultTable("training.benchmarks.approximate_neighbors")
    loaded: Any = ds.datasets.load("fashion_mnist")
    (x, y), test = loaded
    x, y = x[:images], y[:images]
    exact = ds.distances.class_neighbors(x, y, classes="other").distances[:, :, 0]
    other = np.arange(10) != y[:, None]
    for candidates in CANDIDATES:
        distances = exact
        if candidates is not None:
            search = ds.distances.class_neighbors(x, y, classes="other", method="approximate", candidates=candidates)
            distances = search.distances[:, :, 0]
        scores = [accuracy_and_loss(candidates, seed, epochs, ((x, y), test)) for seed in range(seeds)]
        accuracy, loss = np.array([score[:2] for score in scores]).T
        table.add(
            candidates="exact" if candidates is None else candidates,
            recall=scores[0][2].recall_,
            **{
                "of all": float(np.mean(distances[other] == exact[other])),
                "distance": f"+{distances[other].sum() / exact[other].sum() - 1:.2%}",
                "accuracy": _shown(accuracy),
                "NLL": _shown(loss),
            },
        )
    table.write(output)


def _shown(values: np.ndarray) -> str:
    """Mean and standard error."""
    error = f" ± {values.std(ddof=1) / len(values) ** 0.5:.4f}" if len(values) > 1 else ""
    return f"{values.mean():.4f}{error}"


if __name__ == "__main__":
    typer.run(main)
