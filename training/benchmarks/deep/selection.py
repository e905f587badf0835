"""Choose the settings of the compared methods, six trials each, by training images that no trial trains on.

    python -m training.benchmarks.deep.selection --runs FOLDER --output FILE.json

trains every method of ``SETTINGS`` with each of its values on the small size's 20 000 images of Fashion-MNIST, and
scores the NLL of the last 10 000 training images; no test image is read. Then cross-entropy and ours of distances are
trained without two classes, which are not those that the benchmark holds out, and every density of their features
detects these among the last 10 000. Seeds are not the benchmark's. Trials that have a file in the folder are not run
again.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from sklearn.metrics import roc_auc_score

import deepsimplex as ds
from training.benchmarks.deep.images import SIZES, Data, near
from training.benchmarks.deep.methods import METHODS, SETTINGS, run_path, train
from training.results import Output, ResultTable, write_json

SIZE, HELD_OUT_CLASSES = SIZES["small"], (2, 7)  # pullover, sneaker
FIRST_SEED, UNSEEN = 100, 10_000
DETECTING = ("cross-entropy", "deepsimplex, distances")
DENSITIES: dict[str, Callable[[], ds.calibration.FeatureDensity]] = {
    "nearest neighbors, 1": lambda: ds.calibration.NeighborDistance(k=1),
    "nearest neighbors, 10": ds.calibration.NeighborDistance,
    "nearest neighbors, 50": lambda: ds.calibration.NeighborDistance(k=50),
    "Gaussians": ds.calibration.GaussianDensity,
    "relative Mahalanobis": ds.calibration.RelativeMahalanobis,
}


def main(
    method: Annotated[list[str] | None, typer.Option(help="some of the methods; default all")] = None,
    seeds: int = 2,
    runs: Annotated[Path, typer.Option(help="where the trials are kept")] = Path("runs/deep_selection"),
    output: Output = None,
) -> None:
    """Run the trials that are missing and print which value of every method has the best mean over the seeds."""
    names = list(method or SETTINGS)
    if unknown := set(names) - SETTINGS.keys():
        raise typer.BadParameter(f"method must be one of {', '.join(SETTINGS)}; found {', '.join(unknown)}")
    (x, y), _ = ds.datasets.load("fashion_mnist")
    data = Data(x[: SIZE.images], y[: SIZE.images], x[-UNSEEN:], y[-UNSEEN:], {})
    runs.mkdir(parents=True, exist_ok=True)
    table = ResultTable("training.benchmarks.deep.selection")
    for name in names:
        setting = SETTINGS[name]
        trials = {
            value: [_trial(runs, name, value, FIRST_SEED + seed, data) for seed in range(seeds)]
            for value in setting.trials
        }
        _add(table, name, setting.name, trials, "NLL", min)
    for name in [name for name in DETECTING if name in names]:
        detections = [_detections(runs, name, FIRST_SEED + seed, near(data, HELD_OUT_CLASSES)) for seed in range(seeds)]
        _add(
            table,
            name,
            "density",
            {density: [by_density[density] for by_density in detections] for density in DENSITIES},
            "AUROC",
            max,
        )
    table.write(output)


def _add(
    table: ResultTable, name: str, setting: str, trials: dict[str, list[float]], measure: str, best: Callable[..., str]
) -> None:
    """A row for every value, with its mean over the seeds."""
    means = {value: float(np.mean(values)) for value, values in trials.items()}
    winner = best(means, key=means.get)
    for value, mean in means.items():
        facts = {"seeds": len(trials[value]), "measure": measure, "mean": f"{mean:.4f}"}
        table.add(method=name, setting=setting, value=value, **facts, best="yes" if value == winner else "")


def _trial(runs: Path, name: str, value: str, seed: int, data: Data) -> float:
    """NLL of the images that were not trained on, from the trial's file or from a new one."""
    path = run_path(runs, f"{name}-{value}", seed)
    if not path.exists():
        trained = train(SETTINGS[name].trials[value], data, SIZE, "cnn", seed)
        nll = float(ds.evaluation.negative_log_likelihood(data.y_test, trained.probabilities(data.x_test)))
        write_json(path, {"NLL": nll})
        print(f"{path.stem}: NLL {nll:.4f}", flush=True)
    return float(json.loads(path.read_text())["NLL"])


def _detections(runs: Path, name: str, seed: int, data: Data) -> dict[str, float]:
    """AUROC of the held-out classes by every density of a method's features."""
    path = run_path(runs, f"{name}-density", seed)
    if not path.exists():
        trained = train(METHODS[name], data, SIZE, "cnn", seed)
        assert trained.features is not None
        known, inside, outside = map(trained.features, (data.x, data.x_test, data.others["held-out classes"]))
        unknown = np.repeat([False, True], [len(inside), len(outside)])
        auroc = {}
        for density, make in DENSITIES.items():
            fitted = make().fit(known, data.y, ds.calibration.feature_density.VARIANCE_SHARE)
            unfamiliar = -fitted.familiarity(np.concatenate([inside, outside]))
            auroc[density] = float(roc_auc_score(unknown, unfamiliar))
        write_json(path, auroc)
        print(f"{path.stem}: {auroc}", flush=True)
    return dict(json.loads(path.read_text()))


if __name__ == "__main__":
    typer.run(main)
