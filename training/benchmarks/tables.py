"""Classifiers of tables, each with its defaults: boosting, forests, networks, logistic regression and ours.

    pip install -e '.[peers]'
    python -m training.benchmarks.tables [--data FOLDER] [--sets wine,iris] [--methods 'NAME;NAME'] [--splits 5]
        [--runs build/tables] [--table] [--output FOLDER]

15 sets, of FOLDER/NAME.npz (DEEPSIMPLEX_DATA names it as well), of scikit-learn or of the UCI repository: stratified
splits into 70% of the rows, at most 1000, to train on, and at most 4000 of the others to test on. Linear models and
networks get standardized columns. Seconds are those of a processor, in one thread. Every run of a method on a split is
written to a file of its own: what is interrupted goes on where it was. ``--table`` makes the tables of the runs that
exist, and measures nothing. Ranks are those of the default beside other packages. ``--output`` writes tables.json, and
tables_nll.json with the sets.
"""

import json
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from numpy.typing import NDArray
from scipy.stats import rankdata
from sklearn.datasets import load_breast_cancer
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from threadpoolctl import threadpool_limits

import deepsimplex as ds
from training.results import ResultTable, write_json
from training.tables.paper_table import DataFolder, MissingDataError

SETS = (
    *("wine", "iris", "thyroid", "glass", "alcohol", "climate", "breast", "wifi", "hiv", "htru2", "magic", "eeg"),
    *("letter", "drive_subset", "mocap_subset"),
)
TRAIN_ROWS, TRAIN_SHARE, TEST_ROWS = 1000, 0.7, 4000
OURS = "SimplexGaussianProcess()"
Scores = dict[str, float]
RISING = ("accuracy",)


def lightgbm(seed: int) -> Any:
    """LightGBM with its defaults."""
    from lightgbm import LGBMClassifier

    return LGBMClassifier(random_state=seed, n_jobs=1, verbose=-1)


def xgboost(seed: int) -> Any:
    """XGBoost with its defaults."""
    from xgboost import XGBClassifier

    return XGBClassifier(random_state=seed, n_jobs=1)


def catboost(seed: int) -> Any:
    """CatBoost with its defaults but for 500 rounds, which take half of the time."""
    from catboost import CatBoostClassifier

    return CatBoostClassifier(
        iterations=500, random_seed=seed, thread_count=1, verbose=False, allow_writing_files=False
    )


METHODS: dict[str, Callable[[int], Any]] = {
    OURS: lambda seed: ds.SimplexGaussianProcess(random_state=seed),
    "logistic regression": lambda seed: make_pipeline(StandardScaler(), LogisticRegression(max_iter=2000)),
    "random forest": lambda seed: RandomForestClassifier(random_state=seed),
    "HistGradientBoosting": lambda seed: HistGradientBoostingClassifier(random_state=seed),
    "MLPClassifier": lambda seed: make_pipeline(StandardScaler(), MLPClassifier(random_state=seed)),
    "LightGBM": lightgbm,
    "XGBoost": xgboost,
    "CatBoost": catboost,
    'SimplexGaussianProcess("ilr")': lambda seed: ds.SimplexGaussianProcess("ilr", random_state=seed),
    'SimplexGaussianProcess("ilr", ard=True)': lambda seed: ds.SimplexGaussianProcess(
        "ilr", ard=True, random_state=seed
    ),
    "CategoricalGaussianProcess()": lambda seed: ds.CategoricalGaussianProcess(random_state=seed),
    "SimplexNetworkClassifier": lambda seed: make_pipeline(
        StandardScaler(), ds.estimators.SimplexNetworkClassifier({"name": "mlp", "hidden": [64]}, epochs=60)
    ),
}
"""Unfitted classifiers by name, made with a seed."""
OTHERS = tuple(METHODS)[-4:]
"""Ours that are not the default, which are not ranked."""


def load(name: str, folder: DataFolder) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """Features [N, d] and class numbers [N]."""
    X, y = load_breast_cancer(return_X_y=True) if name == "breast" else folder.load(name)
    return np.asarray(X, np.float64), np.unique(y, return_inverse=True)[1]


def measure(name: str, method: str, seed: int, folder: DataFolder) -> Scores:
    """Scores of a method on a split of a set."""
    X, y = load(name, folder)
    size = min(int(TRAIN_SHARE * len(X)), TRAIN_ROWS)
    X, X_test, y, y_test = train_test_split(X, y, train_size=size, random_state=seed, stratify=y)
    X_test, y_test = X_test[:TEST_ROWS], y_test[:TEST_ROWS]
    classifier = METHODS[method](seed)
    with threadpool_limits(1), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        begun = time.process_time()
        classifier.fit(X, y)
        seconds = time.process_time() - begun
        p = np.asarray(classifier.predict_proba(X_test), np.float64)
    p = np.maximum(p, 1e-15)
    p /= p.sum(axis=1, keepdims=True)
    evaluation = ds.evaluation
    return {
        "accuracy": float(np.mean(p.argmax(axis=1) == y_test)),
        "NLL": float(evaluation.negative_log_likelihood(y_test, p)),
        "Brier": float(evaluation.brier_score(y_test, p)),
        "ECE": float(evaluation.expected_calibration_error(y_test, p)),
        "seconds": seconds,
        "rows": float(size),
    }


Runs = dict[tuple[str, str], list[Scores]]
"""Scores of the splits by set and method."""


def run(sets: list[str], methods: list[str], splits: int, folder: DataFolder, runs: Path) -> None:
    """Measure what has no file yet."""
    runs.mkdir(parents=True, exist_ok=True)
    for name in sets:
        for method in methods:
            for seed in range(splits):
                path = _path(runs, name, method, seed)
                if path.is_file():
                    continue
                try:
                    scores = measure(name, method, seed, folder)
                except (MissingDataError, ImportError) as error:
                    print(f"{name}, {method}: left out, {error}", flush=True)
                    break
                write_json(path, scores)
                print(f"{name}, {method}, {seed}: {scores}", flush=True)


def _path(runs: Path, name: str, method: str, seed: int) -> Path:
    kept = "".join(letter for letter in method if letter.isalnum())
    return runs / f"{name}-{kept}-{seed}.json"


def read(sets: list[str], methods: list[str], splits: int, runs: Path) -> Runs:
    """Scores of the runs that exist, of sets on which all methods that were run at all have all splits."""
    measured: Runs = {}
    for name in sets:
        for method in methods:
            paths = [_path(runs, name, method, seed) for seed in range(splits)]
            if all(path.is_file() for path in paths):
                measured[name, method] = [json.loads(path.read_text()) for path in paths]
    counts = {method: sum((name, method) in measured for name in sets) for method in methods}
    complete = [method for method in methods if counts[method] == max(counts.values())]
    names = [name for name in sets if all((name, method) in measured for method in complete)]
    return {(name, method): measured[name, method] for name in names for method in complete}


def ranks(measured: Runs, score: str) -> dict[str, float]:
    """Mean rank of every method over the sets, by the means of the splits."""
    names, methods = ([*dict.fromkeys(part)] for part in zip(*measured, strict=True))
    sign = -1.0 if score in RISING else 1.0
    placed = [rankdata([sign * mean(measured[name, method], score) for method in methods]) for name in names]
    return dict(zip(methods, np.mean(placed, axis=0).tolist(), strict=True))


def mean(splits: list[Scores], score: str) -> float:
    """Mean over splits."""
    return float(np.mean([scores[score] for scores in splits]))


def within_error(measured: Runs, method: str) -> int:
    """Number of sets on which a method has the least NLL, or is within a standard error of the difference to it."""
    count = 0
    names, methods = ([*dict.fromkeys(part)] for part in zip(*measured, strict=True))
    for name in names:
        best = min(methods, key=lambda other: mean(measured[name, other], "NLL"))
        pairs = zip(measured[name, method], measured[name, best], strict=True)
        lead = np.array([one["NLL"] - other["NLL"] for one, other in pairs])
        count += bool(lead.mean() <= lead.std(ddof=min(1, len(lead) - 1)) / len(lead) ** 0.5)
    return count


def tables(measured: Runs) -> tuple[ResultTable, ResultTable]:
    """The table of the methods, and that of their NLL by set."""
    names, methods = ([*dict.fromkeys(part)] for part in zip(*measured, strict=True))
    ranked = {key: scores for key, scores in measured.items() if key[1] not in OTHERS}
    by_score = {score: ranks(ranked, score) for score in ("NLL", "ECE", "accuracy")}
    large = [name for name in names if measured[name, methods[0]][0]["rows"] >= TRAIN_ROWS]
    summary, by_set = (ResultTable("training.benchmarks.tables") for _ in range(2))
    for method in sorted(methods, key=lambda method: by_score["NLL"].get(method, np.inf)):
        scores = {
            score: [mean(measured[name, method], score) for name in names]
            for score in ("NLL", "Brier", "ECE", "accuracy")
        }
        seconds = [mean(measured[name, method], "seconds") for name in large]
        best = f"{within_error(ranked, method)} of {len(names)}" if method in by_score["NLL"] else None
        summary.add(
            **{
                "method": method,
                "rank by NLL": by_score["NLL"].get(method),
                "NLL, geometric mean": float(np.exp(np.mean(np.log(scores["NLL"])))),
                "best, or within an error": best,
                "rank by ECE": by_score["ECE"].get(method),
                "ECE": float(np.mean(scores["ECE"])),
                "Brier": float(np.mean(scores["Brier"])),
                "rank by accuracy": by_score["accuracy"].get(method),
                "accuracy": float(np.mean(scores["accuracy"])),
                "seconds, 1000 rows": float(np.median(seconds)) if seconds else None,
            }
        )
    for method in methods:
        by_set.add(method=method, **{name: mean(measured[name, method], "NLL") for name in names})
    return summary, by_set


def listed(given: str | None, known: tuple[str, ...], separator: str = ",") -> list[str]:
    """The names in a list, by default all that are known."""
    chosen = [*known] if given is None else given.split(separator)
    if unknown := [name for name in chosen if name not in known]:
        raise typer.BadParameter(f"{unknown[0]!r} is unknown; known are {', '.join(known)}")
    return chosen


def main(
    data: Annotated[Path | None, typer.Option(help="folder of NAME.npz")] = None,
    sets: Annotated[str | None, typer.Option(help=f"some of {', '.join(SETS)}")] = None,
    methods: Annotated[str | None, typer.Option(help=f"some of {'; '.join(METHODS)}")] = None,
    splits: Annotated[int, typer.Option(min=1)] = 5,
    runs: Annotated[Path, typer.Option(help="folder of a file for every run")] = Path("build/tables"),
    table: Annotated[bool, typer.Option(help="only make the tables")] = False,
    output: Annotated[Path | None, typer.Option(help="folder for the tables")] = None,
) -> None:
    """Measure and print."""
    chosen, names = listed(methods, tuple(METHODS), ";"), listed(sets, SETS)
    if not table:
        run(names, chosen, splits, DataFolder(data), runs)
    summary, by_set = tables(read(names, chosen, splits, runs))
    if output is not None:
        output.mkdir(parents=True, exist_ok=True)
        summary.write(output / "tables.json")
        by_set.write(output / "tables_nll.json")


if __name__ == "__main__":
    typer.run(main)
