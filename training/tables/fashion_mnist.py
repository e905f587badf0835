"""[CASIMAC] Table 6: a network of 80 318 weights on Fashion-MNIST, naive and informed, from the configurations."""

import tempfile
from pathlib import Path

import deepsimplex as ds
from deepsimplex.experiments import load_config, load_predictions, train
from training.tables.paper_table import DataFolder, PaperTable, Printed, Scores

CONFIGURATIONS = Path("configs")
DEFAULT_LOSS = "training.loss=null"
METHODS = {
    "naive": ("fashion_mnist_naive.yaml", []),
    "informed": ("fashion_mnist_informed.yaml", []),
    "naive, default loss": ("fashion_mnist_naive.yaml", [DEFAULT_LOSS]),
    "informed, default loss": ("fashion_mnist_informed.yaml", [DEFAULT_LOSS]),
}


def measure(name: str, method: str, repetition: int, data: DataFolder, *changes: str) -> Scores:
    """Train a configuration, and score its test predictions; ``changes`` are made to it."""
    file, own = METHODS[method]
    with tempfile.TemporaryDirectory() as folder:
        settings = [*own, f"seed={repetition}", f"output={folder}", *changes]
        config = load_config(str(CONFIGURATIONS / file), settings)
        run = train(config, verbose=2)
        predicted = load_predictions(run.test_predictions)
    report = ds.evaluation.report(predicted.y, predicted.p)
    top = {f"top-{k}": float(ds.evaluation.top_k_accuracy(predicted.y, predicted.p, k)) for k in range(1, 6)}
    return top | {"NLL": report.negative_log_likelihood, "ECE": report.expected_calibration_error}


def _printed(*accuracies: float) -> dict[str, Printed]:
    return {f"top-{k}": Printed(accuracy) for k, accuracy in enumerate(accuracies, 1)}


NAIVE = _printed(0.874, 0.961, 0.984, 0.990, 0.993)
INFORMED = _printed(0.880, 0.961, 0.984, 0.993, 0.996)

TABLES = {
    "casimac_6": PaperTable(
        "[CASIMAC] Table 6: Fashion-MNIST, top-1 to top-5 accuracy",
        1,
        {
            ("fashion_mnist", "naive"): NAIVE,
            ("fashion_mnist", "naive, default loss"): NAIVE,
            ("fashion_mnist", "informed"): INFORMED,
            ("fashion_mnist", "informed, default loss"): INFORMED,
        },
        measure,
        notes=(
            "The paper maximizes the likelihood of the latents, and does not state epochs, batches and learning rate; "
            "a plain likelihood trains the means badly, so that beta is 1 here, which trains them by squared errors. "
            "The default loss trains the class probabilities of the same network.",
            "Every row is one training; the paper states neither repetitions nor standard deviations.",
        ),
    )
}
