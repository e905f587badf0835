"""XGBoost after its training: calibration and sets by AfterTraining, beside scikit-learn's calibrations.

    pip install -e '.[peers]'
    python -m training.benchmarks.after_training [--repeats 200] [--output FILE.json]

Every repeat draws the rows anew: two fifths to train XGBoost, with its defaults; about a fifth to calibrate, the same
rows for every method; about a fifth for sets of coverage 0.9, 10 k - 1 rows, so that the expected coverage is 0.9; the
others to test on. Prints a Markdown table of means over the repeats, infinite where a calibration gives the true class
of a test row no probability; "above ours" is the NLL minus that of AfterTraining by its default method, and the
standard error of the difference.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Annotated, Any

import numpy as np
import typer
from numpy.typing import NDArray
from rich.progress import track
from sklearn.calibration import CalibratedClassifierCV
from sklearn.datasets import load_breast_cancer, load_digits, load_wine
from sklearn.frozen import FrozenEstimator
from xgboost import XGBClassifier

import deepsimplex as ds
from training.results import Output, ResultTable

SETS: dict[str, Callable[..., Any]] = {"breast cancer": load_breast_cancer, "digits": load_digits, "wine": load_wine}
METHODS = ("temperature", "bias_corrected_temperature", "platt")
PEER_METHODS = ("temperature", "sigmoid", "isotonic")
COVERAGE = 0.9


def parts(y: NDArray[np.int64], seed: int) -> list[NDArray[np.int64]]:
    """Return the rows to train on, to calibrate with, for sets, and to test on."""
    rng, fifth = np.random.default_rng(seed), len(y) // 5
    rows = rng.permutation(len(y))
    return np.split(rows, np.cumsum([2 * fifth, fifth, 10 * (fifth // 10 + 1) - 1]))


def measure(name: str, seed: int) -> Iterator[tuple[str, ds.evaluation.Report]]:
    """Yield the method and the report on the test rows, for every method, of one repeat."""
    X, y = SETS[name](return_X_y=True)
    train, held_out, further, test = parts(y, seed)
    model = XGBClassifier(n_jobs=1, random_state=0).fit(X[train], y[train])
    yield "XGBoost", ds.evaluation.report(y[test], model.predict_proba(X[test]))
    for method in METHODS:
        classifier = ds.AfterTraining(model).calibrate(X[held_out], y[held_out], method)
        classifier.conformalize(X[further], y[further], COVERAGE)
        yield f"AfterTraining, {method}", classifier.report(X[test], y[test])
    for method in PEER_METHODS:
        peer = CalibratedClassifierCV(FrozenEstimator(model), method=method).fit(X[held_out], y[held_out])
        yield f"scikit-learn, {method}", ds.evaluation.report(y[test], peer.predict_proba(X[test]))


def main(repeats: Annotated[int, typer.Option(min=2)] = 200, output: Output = None) -> None:
    """Train, calibrate, and print."""
    table = ResultTable("training.benchmarks.after_training")
    for name in SETS:
        reports = defaultdict[str, list[ds.evaluation.Report]](list)
        for seed in track(range(repeats), name):
            for method, report in measure(name, seed):
                reports[method].append(report)
        nll = {method: np.array([each.negative_log_likelihood for each in rows]) for method, rows in reports.items()}
        for method, rows in reports.items():
            above, is_finite = nll[method] - nll[f"AfterTraining, {METHODS[0]}"], np.isfinite(nll[method]).all()
            error = np.std(above, ddof=1) / np.sqrt(repeats) if is_finite else np.inf
            sets: list[Any] = [(each.set_coverage, each.set_size) for each in rows if each.set_coverage is not None]
            coverage, size = map(float, np.mean(sets, axis=0)) if sets else ("", "")
            table.add(
                set=name,
                method=method,
                NLL=float(nll[method].mean()) if is_finite else "infinite",  # which JSON has no number for
                **{"above ours": f"{above.mean():+.4f} ± {error:.4f}" if is_finite else ""},
                ECE=float(np.mean([each.expected_calibration_error for each in rows])),
                coverage=coverage,
                size=size,
            )
    table.write(output)


if __name__ == "__main__":
    typer.run(main)
