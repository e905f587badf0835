"""Every figure of ``ds.plots``, drawn from real data: digits, iris and wine, with seeds and small models.

    python -m training.gallery [--output docs/pictures] [NAME ...]

Writes a PNG for each entry, which docs/gallery.md shows; prints each file and the seconds it took, with those of
learning what it draws, once for all that draw it.
"""

import functools
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import keras
import numpy as np
import typer
from matplotlib.figure import Figure
from numpy.typing import NDArray
from sklearn.datasets import load_digits, load_iris, load_wine
from sklearn.decomposition import PCA
from sklearn.ensemble import RandomForestClassifier
from sklearn.model_selection import cross_val_predict
from sklearn.preprocessing import StandardScaler

import deepsimplex as ds

FOLDER = Path("docs/pictures")


@functools.cache
def network() -> tuple[ds.SimplexClassifier, dict[str, list[float]]]:
    """A small network on the digits, its latents scaled by 150 held-out ones, and its learning curves."""
    keras.utils.set_random_seed(0)
    (x, y), _ = ds.datasets.load("digits")
    model = ds.SimplexClassifier(ds.backbones.mlp([64]), ds.targets.ILR(0.99), num_classes=10)
    model.compile(keras.optimizers.Adam(0.01), metrics=["accuracy"])
    learn, held = slice(150, None), slice(150)
    fit = model.fit(x[learn], y[learn], epochs=20, batch_size=256, validation_data=(x[held], y[held]), verbose=0)
    return model.calibrate(x[held], y[held], "latent"), fit.history


@functools.cache
def network_outputs() -> tuple[NDArray[Any], NDArray[Any], NDArray[Any], ds.LatentGaussian, NDArray[Any]]:
    """Test images, labels, class probabilities, the latents behind them, and scores."""
    model, _ = network()
    _, (x, y) = ds.datasets.load("digits")
    return x, y, model.predict_proba(x), model.predict_latent(x), model.target.scores(10)


@functools.cache
def wine_latents() -> tuple[ds.LatentGaussian, ds.LatentGaussian, NDArray[Any], NDArray[Any], NDArray[Any]]:
    """Targets of wines by distances, the Gaussians and probabilities of 12 others, and the labels of both."""
    X, y = load_wine(return_X_y=True)
    X = StandardScaler().fit_transform(X)[:, :2]  # two columns leave something to doubt
    order = np.random.default_rng(3).permutation(len(y))
    train, test = order[:-12], order[-12:]
    classifier = ds.SimplexGaussianProcess("casimac").fit(X[train], y[train])
    targets = ds.targets.CASIMAC("euclidean").fit_transform(X[train], y[train])
    return targets, classifier.predict_latent(X[test]), y[train], y[test], classifier.predict_proba(X[test])


@functools.cache
def forest() -> tuple[NDArray[Any], NDArray[Any], list[str]]:
    """Labels of wine, class probabilities of a forest that did not see them, and names."""
    data = load_wine()
    p = cross_val_predict(RandomForestClassifier(random_state=0), data.data, data.target, method="predict_proba")
    return data.target, p, ["first", "second", "third"]


@functools.cache
def metric() -> tuple[ds.GMLVQ, list[str]]:
    """A metric learned on wine, and the names of the features."""
    data = load_wine()
    return ds.GMLVQ().fit(data.data, data.target), list(data.feature_names)


def classwise_reliability() -> Figure:
    _, y, p, _, _ = network_outputs()
    return ds.plots.classwise_reliability(y, p, bins=10)


def confusion_matrix() -> Figure:
    _, y, p, _, _ = network_outputs()
    return ds.plots.confusion_matrix(y, p)


def decision_curve() -> Figure:
    y, p, _ = forest()
    X = load_wine().data[:, :2]  # less is known of two columns
    probabilities = {"forest": p, "LVQ1, two columns": cross_val_predict(ds.LVQ1(), X, y, method="predict_proba")}
    return ds.plots.decision_curve(
        {name: ds.evaluation.decision_curve(y, one, positive=1) for name, one in probabilities.items()}
    )


def decision_regions() -> Figure:
    data = load_iris()
    X, y = data.data[:, 2:], data.target_names[data.target]
    classifier = ds.GLVQ(prototypes_per_class=2).fit(X, y)
    return ds.plots.decision_regions(classifier, X, y, feature_names=data.feature_names[2:])


def decision_regions_mixed() -> Figure:
    """[CASIMAC] Fig. 5."""
    data = load_wine()
    X = PCA(2, random_state=0).fit_transform(StandardScaler().fit_transform(data.data))
    classifier = ds.SimplexGaussianProcess(ds.targets.CASIMAC("euclidean")).fit(X[::3], data.target[::3])
    return ds.plots.decision_regions(
        classifier,
        X,
        data.target,
        colors="mixed",
        levels=[],
        class_names=["first", "second", "third"],
        feature_names=["principal component 1", "principal component 2"],
    )


def drift() -> Figure:
    """Digits after training on 400: 500 for reference, a stream of 500, and 397 at 70% of their brightness."""
    X, y = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(y))
    X, y = X[order], y[order]
    classifier = ds.SimplexGaussianProcess().fit(X[:400], y[:400]).fit_density(X[:400], y[:400])
    X[1400:] *= 0.7
    p, familiarity = classifier.predict_proba(X), classifier.familiarity(X)
    y[np.arange(len(y)) % 3 > 0] = -1  # a third is labeled
    reference, stream = slice(400, 900), slice(900, None)
    monitor = ds.evaluation.DriftMonitor(p[reference], y[reference], familiarity[reference], recent=300)
    monitor.update(p[stream], y[stream], familiarity[stream])
    return ds.plots.drift(monitor)


def latent_space() -> Figure:
    _, y, _, latent, scores = network_outputs()
    return ds.plots.latent_space(latent, y, scores=scores)


def latent_space_of_three() -> Figure:
    _, y, _, latent, scores = network_outputs()
    return ds.plots.latent_space(latent, y, only=[1, 8, 9], scores=scores)


def latent_space_of_targets() -> Figure:
    targets, _, y, _, _ = wine_latents()
    return ds.plots.latent_space(targets, y, only=[0, 1, 2])


def latent_space_of_gaussians() -> Figure:
    _, latent, _, y, _ = wine_latents()
    return ds.plots.latent_space(latent, y, only=[0, 1, 2], level=0.5)


def learning_curves() -> Figure:
    return ds.plots.learning_curves({"network": network()[1]})


def predictions() -> Figure:
    x, y, p, _, _ = network_outputs()
    return ds.plots.predictions(x[:8], p[:8], y[:8])


def prototype_images() -> Figure:
    X, y = load_digits(return_X_y=True)
    classifier = ds.GLVQ(prototypes_per_class=2).fit(X[:600], y[:600])
    return ds.plots.prototype_images(classifier.prototypes_, classifier.prototype_labels_)


def relevance() -> Figure:
    classifier, names = metric()
    return ds.plots.relevance(classifier, names)


def prediction_sets() -> Figure:
    """Sets of the forest's classes, with thresholds from the other half of the samples."""
    y, p, names = forest()
    half = np.arange(len(y)) % 2 == 0
    sets = ds.calibration.ConformalSets(0.95).fit(p[half], y[half]).predict(p[~half])
    return ds.plots.prediction_sets(y[~half], sets, coverage=0.95, class_names=names)


def reliability() -> Figure:
    _, y, p, _, _ = network_outputs()
    return ds.plots.reliability(y, p, bins=10)


def reliability_band() -> Figure:
    """[GPD] Fig. 6: odd digits against even ones, which overlap in two principal components of 64 pixels."""
    X, digit = load_digits(return_X_y=True)
    X, y = PCA(2, random_state=0).fit_transform(X), digit % 2
    order = np.random.default_rng(0).permutation(len(y))
    learn, test = order[:200], order[200:]
    classifier = ds.SimplexGaussianProcess(ds.targets.ILR(0.9)).fit(X[learn], y[learn])
    latent, scores = classifier.predict_latent(X[test]), classifier.target_.scores_
    return ds.plots.reliability(y[test], classifier.predict_proba(X[test]), bins=10, latent=latent, scores=scores)


def roc() -> Figure:
    return _curves(ds.plots.roc)


def precision_recall() -> Figure:
    return _curves(ds.plots.precision_recall)


def _curves(draw: Callable[..., Figure]) -> Figure:
    """Curves of a forest that sees two features of a wine alone."""
    data = load_wine()
    forest = RandomForestClassifier(random_state=0)
    p = cross_val_predict(forest, data.data[:, :2], data.target, method="predict_proba")
    scores = ds.evaluation.class_scores(data.target, p, intervals=0.95)
    return draw(data.target, p, scores=scores, class_names=["first", "second", "third"])


def risk_coverage() -> Figure:
    y, p, _ = forest()
    features = load_wine().data
    others = {"GMLVQ": ds.GMLVQ(), "LVQ1": ds.LVQ1()}
    probabilities = {name: cross_val_predict(one, features, y, method="predict_proba") for name, one in others.items()}
    return ds.plots.risk_coverage(
        {name: ds.evaluation.risk_coverage_curve(y, one) for name, one in (probabilities | {"forest": p}).items()}
    )


def saliency() -> Figure:
    model, _ = network()
    x, y, p, _, _ = network_outputs()
    doubtful = np.argsort(p.max(axis=1), kind="stable")[:4]
    titles = [f"{p[i].argmax()} ({p[i].max():.2f}), true {y[i]}" for i in doubtful]
    return ds.plots.saliency(x[doubtful], model.saliency(x[doubtful]), titles)


def simplex() -> Figure:
    """[SPS] Fig. 1: memberships of a forest as they are, and scaled."""
    y, p, names = forest()
    figure = Figure(figsize=(8.8, 4.2), dpi=110, layout="constrained")
    left, right = figure.subplots(1, 2)
    ds.plots.simplex(p, y, class_names=names, ax=left)
    left.set_title("class probabilities of a forest", fontsize=10)
    ds.plots.simplex(ds.evaluation.standardized_partition(y, p), class_names=names, ax=right)
    right.set_title(f"standardized: {right.get_title()}", fontsize=10)
    return figure


def simplex_of_four() -> Figure:
    X, y = load_digits(return_X_y=True)
    rows = np.isin(y, [1, 7, 8, 9])
    X, (classes, y) = X[rows], np.unique(y[rows], return_inverse=True)
    p = ds.GLVQ().fit(X[:200], y[:200]).predict_proba(X[200:])
    return ds.plots.simplex(p, y[200:], class_names=[str(name) for name in classes])


def simplex_of_readout() -> Figure:
    _, _, _, y, p = wine_latents()
    return ds.plots.simplex(p, y)


def uncertain_images() -> Figure:
    x, y, p, latent, scores = network_outputs()
    return ds.plots.uncertain_images(x, p, y, latent=latent, scores=scores)


# A row for every figure; the name of a function of ds.plots is that of its first entry.
ENTRIES: dict[str, Callable[[], Figure]] = {
    "classwise_reliability": classwise_reliability,
    "confusion_matrix": confusion_matrix,
    "decision_curve": decision_curve,
    "decision_regions": decision_regions,
    "decision_regions_mixed": decision_regions_mixed,
    "drift": drift,
    "latent_space": latent_space,
    "latent_space_of_gaussians": latent_space_of_gaussians,
    "latent_space_of_targets": latent_space_of_targets,
    "latent_space_of_three": latent_space_of_three,
    "learning_curves": learning_curves,
    "precision_recall": precision_recall,
    "prediction_sets": prediction_sets,
    "predictions": predictions,
    "prototype_images": prototype_images,
    "relevance": relevance,
    "reliability": reliability,
    "reliability_band": reliability_band,
    "risk_coverage": risk_coverage,
    "roc": roc,
    "saliency": saliency,
    "simplex": simplex,
    "simplex_of_four": simplex_of_four,
    "simplex_of_readout": simplex_of_readout,
    "uncertain_images": uncertain_images,
}


def plot_name(entry: str) -> str:
    """Name of the function of ``ds.plots`` that an entry draws: the longest that the entry begins with."""
    return max((name for name in ds.plots.__all__ if entry.startswith(name)), key=len)


def main(
    names: Annotated[list[str] | None, typer.Argument(help="entries to draw; all by default")] = None,
    output: Annotated[Path, typer.Option(help="folder to write to")] = FOLDER,
) -> None:
    """Draw the figures."""
    chosen = names or list(ENTRIES)
    for name in chosen:
        if name not in ENTRIES:
            raise typer.BadParameter(f"{name!r} is no entry of the gallery; known are {', '.join(ENTRIES)}")
    output.mkdir(parents=True, exist_ok=True)
    for name in chosen:
        begun = time.perf_counter()
        path = output / f"{name}.png"
        ENTRIES[name]().savefig(path)
        print(f"{path}  {time.perf_counter() - begun:.1f} s", flush=True)


if __name__ == "__main__":
    typer.run(main)
