"""The papers' figures, drawn from the repetitions of a table, or from one fit.

    python -m training.tables.figures [TABLE ...] [--data FOLDER] [--results training/results]
        [--output docs/pictures]

writes the PNG of every figure whose data set exists. FOLDER is that of ``training.tables``, which draws the figures
of a table after it has measured it.
"""

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from matplotlib.figure import Figure
from numpy.typing import NDArray
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import deepsimplex as ds
from training.tables import casimac, gpd, ilr_gp_synthetic, sps
from training.tables.paper_table import DataFolder, MissingDataError, fitted, split, stratified_split

Repetitions = list[dict[str, Any]]
Draw = Callable[[Repetitions, DataFolder], Figure]
SCORES = ("error", "NLL", "ECE")
RELIABLE = ("eeg", "htru2", "magic", "letter")
"""Sets of the reliability diagrams; those of two classes have bands."""
BAND = 0.2
"""Opacity of the area of one standard deviation on either side of a mean."""


def _figure(columns: int, rows: int = 1, width: float = 3.6, height: float = 3.2) -> tuple[Figure, NDArray[Any]]:
    figure = Figure(figsize=(width * columns, height * rows), dpi=120, layout="constrained")
    return figure, figure.subplots(rows, columns, squeeze=False)


def _line(
    axes: Any,
    repetitions: Repetitions,
    score: str,
    place: Callable[[dict[str, Any]], float],
    label: str,
    style: str = "o-",
) -> None:
    """Means of a score and their standard deviations over repetitions, against a number of each row."""
    values: dict[float, list[float]] = {}
    for row in repetitions:
        values.setdefault(place(row), []).append(row["scores"][score])
    positions = sorted(values)
    means, deviations = (np.array([reduce(values[position]) for position in positions]) for reduce in (np.mean, np.std))
    axes.plot(positions, means, style, label=label, markersize=4)
    axes.fill_between(positions, means - deviations, means + deviations, alpha=BAND)


def _finish(axes: NDArray[Any], ylabel: str, xlabel: str, xscale: str | None = None) -> None:
    for one in axes.flat:
        if xscale:
            one.set_xscale(xscale)
        one.set_xlabel(xlabel)
        one.grid(color="0.9")
        one.spines[["top", "right"]].set_visible(False)
    axes[0, 0].set_ylabel(ylabel)
    axes[0, -1].legend(fontsize=8)


def _smoothing(row: dict[str, Any]) -> float:
    """The alpha, or 1 - lambda, that ends the name of a method."""
    name, value = row["method"].split()[-2:]
    return 1 - float(value) if name == "lambda" else float(value)


def _classes(row: dict[str, Any]) -> float:
    """The number of classes that begins the name of the data."""
    return float(row["data"].split()[0])


def _points(row: dict[str, Any]) -> float:
    """Number of inducing points of a row, "GPD, 400 inducing points"."""
    return float(row["method"].split()[1])


def quadrants(repetitions: Repetitions, data: DataFolder) -> Figure:
    """[CASIMAC] Fig. 5: class probabilities of four quadrants, as the mean of the classes' colors, of two methods."""
    setting = casimac.SETTINGS["quadrants"]
    X, y = casimac.quadrants(0, setting.train)
    figure, axes = _figure(2, width=5.0, height=4.2)
    for one, method in zip(axes[0], ("CASIMAC", "GPC"), strict=True):
        classifier = fitted(make_pipeline(StandardScaler(), casimac.METHODS[method](setting, 0)), X, y)
        ds.plots.decision_regions(classifier, X, y, colors="mixed", levels=[], feature_names=["$x_0$", "$x_1$"], ax=one)
        one.set_title(method, fontsize=10)
    return figure


def pine_calibration(repetitions: Repetitions, data: DataFolder) -> Figure:
    """[CASIMAC] Fig. 6: calibration curves of four classifiers on pine, and the areas of Table 4."""
    figure, axes = _figure(1, width=5.2, height=4.6)
    for method in casimac.COMPARED:
        y, p = casimac.tested("pine", method, 0, data)
        curve = ds.evaluation.reliability_curve(y, p, bins=10)
        area = ds.evaluation.area_deviation(y, p)
        filled, label = curve.counts > 0, f"{method}, area {area:.3f}"
        axes[0, 0].plot(curve.confidence[filled], curve.frequency[filled], "o-", markersize=4, label=label)
    axes[0, 0].plot([0, 1], [0, 1], "--", color="0.6")
    _finish(axes, "frequency of Soybean-mintill", "predicted probability")
    return figure


def alcohol_simplex(repetitions: Repetitions, data: DataFolder) -> Figure:
    """[CASIMAC] Fig. 7 and Table 5: latents of alcohol-3 on the simplex, of training and test, and the confusions."""
    setting = casimac.SETTINGS["alcohol-3"]
    X, y = casimac.load("alcohol-3", data)
    train, test = stratified_split(y, setting.train, 0)
    X = StandardScaler().fit(X[train]).transform(X)
    classifier = fitted(casimac.casimac(setting, 0), X[train], y[train])
    target = casimac.casimac(setting, 0).target
    latents = {
        "training samples": (target.fit_transform(X[train], y[train]).loc, y[train]),
        "test samples": (classifier.predict_latent(X[test]).loc, y[test]),
    }
    figure, axes = _figure(3, width=4.4, height=4.2)
    names = ["class 1", "class 2", "class 3"]
    for one, (title, (loc, classes)) in zip(axes[0], latents.items(), strict=False):
        ds.plots.simplex(ds.geometry.to_probability_simplex(loc), classes, class_names=names, ax=one)
        one.set_title(title, fontsize=10)
    ds.plots.confusion_matrix(y[test], classifier.predict_proba(X[test]), class_names=names, ax=axes[0, 2])
    return figure


def smoothing(repetitions: Repetitions, data: DataFolder) -> Figure:
    """[ILR-GP] Fig. 5 and 8: scores by lambda and by alpha, a line for each overlap."""
    figure, axes = _figure(len(SCORES), 2)
    for row, (method, xlabel) in zip(axes, (("ILR", r"$1 - \lambda$"), ("GPD", r"$\alpha$")), strict=True):
        for one, score in zip(row, SCORES, strict=True):
            for deviation in ilr_gp_synthetic.DEVIATIONS:
                name = f"standard deviation {deviation:g}"
                rows = [r for r in repetitions if r["data"] == name and r["method"].startswith(method)]
                _line(one, rows, score, _smoothing, name)
            one.set_title(f"{method}, {score}", fontsize=10)
        _finish(row[None], "", xlabel, "log")
    return figure


def growth(repetitions: Repetitions, data: DataFolder) -> Figure:
    """[ILR-GP] Fig. 6: scores by the number of classes."""
    figure, axes = _figure(len(SCORES))
    for one, score in zip(axes[0], SCORES, strict=True):
        for method in dict.fromkeys(row["method"] for row in repetitions):
            _line(one, [r for r in repetitions if r["method"] == method], score, _classes, method)
        one.set_title(score, fontsize=10)
    _finish(axes, "", "classes")
    return figure


def target_noise(repetitions: Repetitions, data: DataFolder) -> Figure:
    """[ILR-GP] Fig. 7: how often a draw of the noisy target lies with another class."""
    figure, axes = _figure(1, width=5.6, height=4.2)
    for method in dict.fromkeys(row["method"] for row in repetitions):
        style = "o-" if method.startswith("GPD") else "s:"
        _line(axes[0, 0], [r for r in repetitions if r["method"] == method], "error", _classes, method, style)
    _finish(axes, "error", "classes", "log")
    return figure


def concentration(repetitions: Repetitions, data: DataFolder) -> Figure:
    """[GPD] Fig. 3: MNLL of training and of test rows by alpha."""
    names = list(dict.fromkeys(row["data"] for row in repetitions))
    figure, axes = _figure(len(names))
    for one, name in zip(axes[0], names, strict=True):
        rows = [r for r in repetitions if r["data"] == name]
        _line(one, rows, "MNLL", _smoothing, "test rows")
        _line(one, rows, "MNLL of training rows", _smoothing, "training rows")
        one.set_title(name, fontsize=10)
    _finish(axes, "MNLL", r"$\alpha$", "log")
    return figure


def _beside(axes: Any, scores: Iterable[tuple[str, str, float]]) -> None:
    """Means and standard deviations of (method, data, score) over repetitions, methods beside each other."""
    values: dict[str, dict[str, list[float]]] = {}
    for method, name, score in scores:
        values.setdefault(method, {}).setdefault(name, []).append(score)
    names = list(next(iter(values.values())))
    for shift, (method, by_name) in zip(np.linspace(-0.25, 0.25, len(values)), values.items(), strict=True):
        means, deviations = ([reduce(by_name[name]) for name in names] for reduce in (np.mean, np.std))
        axes.errorbar(np.arange(len(names)) + shift, means, yerr=deviations, fmt="o", markersize=4, label=method)
    axes.set_xticks(range(len(names)), names)


def comparison(repetitions: Repetitions, data: DataFolder) -> Figure:
    """[GPD] Fig. 4: every method's scores on every data set."""
    scores = ("error", "MNLL", "ECE")
    figure, axes = _figure(len(scores))
    for one, score in zip(axes[0], scores, strict=True):
        _beside(one, [(row["method"], row["data"], row["scores"][score]) for row in repetitions])
        one.set_title(score, fontsize=10)
        one.set_yscale("log" if score == "MNLL" else "linear")
    _finish(axes, "", "")
    return figure


def seconds(repetitions: Repetitions, data: DataFolder) -> Figure:
    """[GPD] Fig. 5: seconds of a fit of every method on every data set."""
    figure, axes = _figure(1, width=6.4, height=4.2)
    _beside(axes[0, 0], [(method, row["data"], row["scores"][method]) for method in gpd.TIMED for row in repetitions])
    axes[0, 0].set_yscale("log")
    _finish(axes, "seconds", "")
    return figure


def inducing(repetitions: Repetitions, data: DataFolder) -> Figure:
    """[GPD] Fig. 5: error and seconds by the number of inducing points, beside GPC with 200."""
    figure, axes = _figure(2)
    for one, score in zip(axes[0], ("error", "seconds"), strict=True):
        _line(one, [r for r in repetitions if r["method"].startswith("GPD")], score, _points, "GPD")
        gpc = [r for r in repetitions if r["method"].startswith("GPC")]
        mean = np.mean([r["scores"][score] for r in gpc])
        one.axhline(mean, linestyle="--", color="0.4", label=gpc[0]["method"])
        one.set_title(score, fontsize=10)
    _finish(axes, "", "inducing points")
    return figure


def reliability_bands(repetitions: Repetitions, data: DataFolder) -> Figure:
    """[GPD] Fig. 6 and 7: reliability, between quantiles of the probabilities where classes are two."""
    methods = ("GPC", "GPD", "GPR", "GPR, Platt")
    figure, axes = _figure(len(RELIABLE), len(methods), width=4.0, height=4.2)
    for column, name in zip(axes.T, RELIABLE, strict=True):
        X, y = data.load(name)
        train, test = split(len(X), gpd.TEST[name], 0)
        X = StandardScaler().fit(X[train]).transform(X)
        for one, method in zip(column, methods, strict=True):
            classifier = fitted(gpd.METHODS[method](0), X[train], y[train])
            band = {}
            if method in ("GPC", "GPD") and len(classifier.classes_) == 2:
                band = {"latent": classifier.predict_latent(X[test]), "scores": classifier.scores_}
            ds.plots.reliability(y[test], classifier.predict_proba(X[test]), bins=10, ax=one, **band)
            one.set_title(f"{method}, {name}", fontsize=10)
    return figure


def partitions(repetitions: Repetitions, data: DataFolder) -> Figure:
    """[SPS] Fig. 1 to 3: memberships as they are, and standardized with lines to the true and the assigned classes."""
    figure, axes = _figure(3, len(sps.METHODS), width=4.4, height=4.0)
    rng = np.random.default_rng(0)
    train, (X, y) = (sps.draw(rng, 27) for _ in range(2))
    for row, method in zip(axes, sps.METHODS, strict=True):
        p = sps.METHODS[method](0).fit(*train).predict_proba(X)
        ds.plots.simplex(p, y, ax=row[0])
        row[0].set_title(method, fontsize=10)
        partition = ds.evaluation.standardized_partition(y, p)
        ds.plots.simplex(partition, lines="true", ax=row[1])
        row[1].set_title(f"{method}, standardized: Ac {partition.accuracy:.3f}", fontsize=10)
        ds.plots.simplex(partition, lines="assigned", ax=row[2])
        row[2].set_title(f"{method}, standardized: AS {partition.ability_to_separate:.3f}", fontsize=10)
    return figure


FIGURES: dict[str, tuple[str, Draw]] = {
    "casimac_quadrants": ("casimac_1", quadrants),
    "casimac_pine": ("casimac_3", pine_calibration),
    "casimac_alcohol": ("casimac_5", alcohol_simplex),
    "ilr_gp_smoothing": ("ilr_gp_fig_5", smoothing),
    "ilr_gp_growth": ("ilr_gp_fig_6", growth),
    "ilr_gp_noise": ("ilr_gp_fig_7", target_noise),
    "gpd_comparison": ("gpd_4", comparison),
    "gpd_seconds": ("gpd_5", seconds),
    "gpd_inducing": ("gpd_5_inducing", inducing),
    "gpd_alpha": ("gpd_3", concentration),
    "gpd_reliability": ("gpd_4", reliability_bands),
    "sps_partitions": ("sps_1", partitions),
}
"""The table of every figure, and the function that draws it."""


def draw(table: str, results: Path, output: Path, data: DataFolder) -> None:
    """Write the figures of a table, NAME.png, or a line that says which data set is missing."""
    output.mkdir(parents=True, exist_ok=True)
    repetitions = json.loads((results / f"{table}.json").read_text(encoding="utf-8"))["repetitions"]
    for name, function in ((name, function) for name, (of, function) in FIGURES.items() if of == table):
        try:
            function(repetitions, data).savefig(output / f"{name}.png")
        except MissingDataError as error:
            print(f"{name}: {error}", flush=True)


def main(
    names: Annotated[list[str] | None, typer.Argument(help="tables; default all that have figures")] = None,
    data: Annotated[Path | None, typer.Option(help="a folder of NAME.npz files that hold X and y")] = None,
    results: Annotated[Path, typer.Option(help="where NAME.json is")] = Path("training/results"),
    output: Annotated[Path, typer.Option(help="where NAME.png is written")] = Path("docs/pictures"),
) -> None:
    """Draw the figures of measured tables."""
    tables = dict.fromkeys(table for table, _ in FIGURES.values())
    if unknown := set(names or ()) - tables.keys():
        raise typer.BadParameter(f"NAMES must be among {', '.join(tables)}; found {', '.join(sorted(unknown))}")
    for table in names or tables:
        draw(table, results, output, DataFolder(data))


if __name__ == "__main__":
    typer.run(main)
