"""Calls of the public functions and classes of every room, with valid arguments."""

import functools
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import keras
import numpy as np
import yaml
from sklearn.linear_model import Ridge

import deepsimplex as ds
from deepsimplex import (
    backbones,
    calibration,
    datasets,
    distances,
    estimators,
    evaluation,
    experiments,
    geometry,
    heads,
    losses,
    metrics,
    plots,
    prototypes,
    readout,
    targets,
)

LATENT_PARTS = ("loc", "scale")
ALIASES: dict[str, tuple[str, ...]] = {
    **{"latent": (*LATENT_PARTS, "latents"), "loc": ("latents",), "memberships": ("membership",)},
    **{"probabilities": ("p",), "distance": ("matrix", "window"), "matrix": ("x",), "targets": ("target",)},
    **{"sets": ("y",), "num_classes": ("y", "y_pred", "class_names", "n"), "overrides": ("override", "file")},
    **{"X": ("x", "p"), "membership": ("assigned", "y"), "scores": ("labels",), "W": ("c",)},
    **{"name": ("backbone",), "path": ("config",), "omega": ("feature_names", "top", "shape")},
}


@dataclass
class Call:
    """A function with valid arguments.

    ``aliases`` are other names that a message may give an argument: those of its parts or its file. ``gives_nan``
    marks results whose NaN is documented.
    """

    name: str
    function: Callable[..., Any]
    arguments: dict[str, Any]
    slow: bool = False
    gives_nan: bool = False
    aliases: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def valid(self) -> dict[str, Any]:
        """The valid arguments."""
        return dict(self.arguments)


rng = np.random.default_rng(0)
Y = np.arange(30) % 3
X = rng.normal(size=(30, 4)) + Y[:, np.newaxis]
X32 = X.astype("float32")
P = 0.7 * rng.dirichlet(np.ones(3), 30) + 0.3 * np.eye(3)[Y]
SETS = P > 0.2
SCORES = geometry.vertices(3)
LATENT = {"loc": SCORES[Y] + rng.normal(size=(30, 2)), "scale": rng.uniform(0.1, 1, size=(30, 1))}
IMAGES = rng.uniform(size=(30, 6, 6)).astype("float32")
SIGNS = 2 * np.eye(3) - 1
READ = readout.softmax(LATENT)
WEIGHT = rng.uniform(size=30)
CLASSES = ["a", "b", "c"]


def call(function: Callable[..., Any], **arguments: Any) -> Call:
    """The call of a function; ``slow`` and ``gives_nan`` are those of the call."""
    slow, gives_nan = arguments.pop("slow", False), arguments.pop("gives_nan", False)
    return Call(function.__name__, function, arguments, slow, gives_nan)


def of(kind: type, method: str, made: dict[str, Any], used: dict[str, Any], **options: Any) -> Call:
    """The call of a constructor and then of a method."""

    def function(**arguments: Any) -> Any:
        made_with = {name: value for name, value in arguments.items() if name in made}
        used_with = {name: value for name, value in arguments.items() if name in used}
        return getattr(kind(**made_with), method)(**used_with)

    return Call(f"{kind.__name__}.{method}", function, made | used, **options)


def then(kind: Callable[..., Any], use: Callable[[Any], Any], **made: Any) -> Call:
    """The call of a constructor, whose object is then used."""
    slow = made.pop("slow", False)
    return Call(getattr(kind, "__name__", "SpectralConv2D"), lambda **arguments: use(kind(**arguments)), made, slow)


def _evaluation() -> list[Call]:
    e = evaluation
    scores = [e.accuracy, e.weighted_f1, e.weighted_precision, e.weighted_recall, e.negative_log_likelihood]
    calls = [call(score, y=Y, p=P) for score in (*scores, e.brier_score, e.proba_loss)]
    binned = [e.expected_calibration_error, e.adaptive_calibration_error, e.maximum_calibration_error, e.area_deviation]
    calls += [call(score, y=Y, p=P, bins=5, top_label=False) for score in binned]
    calls += [call(score, y=Y, p=P, bins=5) for score in (e.classwise_calibration_error, e.brier_decomposition)]
    curve: dict[str, Any] = {"y": Y, "p": P, "bins": 5, "top_label": False, "class_index": None, "binning": "width"}
    few = {"resamples": 5, "seed": 0}
    return [
        *calls,
        call(e.calibration_error_by_class, y=Y, p=P, bins=5),
        call(e.reliability_curve, gives_nan=True, **curve),
        call(e.reliability_curve, gives_nan=True, **curve | {"class_index": 1, "binning": "mass"}),
        call(e.reliability_band, gives_nan=True, **curve | {"lower": P * 0.5, "upper": np.minimum(P * 1.5, 1)}),
        call(e.top_k_accuracy, y=Y, p=P, k=2),
        call(e.uncertainty, p=P, by="entropy", y=None),
        call(e.uncertainty, p=P, by="likelihood", y=Y),
        call(e.out_of_distribution_auroc, inside=WEIGHT, outside=WEIGHT),
        call(e.bootstrap_interval, metric=e.accuracy, y=Y, p=P, level=0.9, stratified=False, limits=(0.0, 1.0), **few),
        call(e.coverage, y=Y, sets=SETS),
        call(e.set_size, y=Y, sets=SETS),
        call(e.coverage_by_class, gives_nan=True, y=Y, sets=SETS),
        call(e.coverage_by_size, gives_nan=True, y=Y, sets=SETS),
        call(e.risk_coverage_curve, y=Y, p=P, confidence=WEIGHT),
        call(e.area_under_risk_coverage, y=Y, p=P, confidence=WEIGHT),
        call(e.accuracy_at_coverage, y=Y, p=P, coverage=0.8, confidence=WEIGHT),
        call(
            e.report, gives_nan=True, slow=True, y=Y, p=P, bins=5, k=2, coverage=0.8, outside=P, sets=SETS,
            intervals=0.9, stratified=False, classes=None, **few,
        ),
        call(
            e.compare_reports, gives_nan=True, slow=True, y=Y, probabilities={"a": P, "b": P[:, ::-1]}, bins=5, k=2,
            coverage=0.8, level=0.9, **few,
        ),
        call(e.corrupt, images=IMAGES[:3], name="rotation", severity=1, seed=0),
        call(e.corrupt, images=IMAGES[:3], name="shot_noise", severity=2, seed=0),
        call(e.corrupt, images=IMAGES[:3], name="pixelation", severity=3, seed=0),
        call(e.ability_to_separate, membership=P, assigned=Y, classes=None),
        call(e.ability_to_separate, membership=P, assigned=np.array(CLASSES)[Y], classes=CLASSES),
        call(e.partition_accuracy, y=Y, membership=P, classes=None),
        call(e.standardized_memberships, scores=X, kind="softmax"),
        call(e.standardized_memberships, scores=X, kind="ranks", zero=None),
        call(e.standardized_memberships, scores=X, kind="shift", zero=-9.0),
        call(e.standardized_partition, gives_nan=True, y=Y, membership=P, assigned=Y, depth=1, classes=None),
        call(
            e.compare_partitions, gives_nan=True, y=Y, memberships={"a": P, "b": P[:, ::-1]}, assigned={"a": Y},
            depth=1, classes=None,
        ),
        Call("accuracy_at", e.risk_coverage_curve(Y, P).accuracy_at, {"coverage": 0.5}),
    ]  # fmt: skip


def _plots() -> list[Call]:
    classifier, gaussian = estimators.LVQ1(max_iter=2).fit(X[:, :2], Y), ds.LatentGaussian(**LATENT)
    reads: dict[str, Any] = {"p": READ, "latent": LATENT, "scores": None, "readout": "softmax", "level": 0.9}
    histories = {"one": {"loss": [2.0, 1.0], "val_loss": [2.0, 1.5]}, "two": {"loss": [2.0]}}
    regions: dict[str, Any] = {
        **{"classifier": classifier, "X": X[:, :2], "y": Y, "prototypes": X[:3, :2], "prototype_labels": Y[:3]},
        **{"class_names": CLASSES, "feature_names": ["u", "v"], "levels": [0.5], "colors": "likeliest"},
        **{"scale_features": True, "resolution": 8, "legend": True, "ax": None},
        **{"variance": lambda x: np.square(x).sum(axis=1), "variance_levels": [0.5, 1.0]},
    }
    calls = [
        call(plots.classwise_reliability, y=Y, p=P, bins=5, class_names=CLASSES, classes=[0, 2]),
        call(plots.confusion_matrix, y=Y, p=P, class_names=CLASSES, normalize="true", ax=None),
        call(plots.decision_regions, **regions),
        call(plots.latent_space, latent=gaussian, y=Y, classes=None, scores=SCORES, class_names=CLASSES, level=0.5),
        call(plots.latent_space, latent=gaussian, y=Y, classes=[0, 1, 2], scores=SCORES, level=None, ax=None),
        call(plots.learning_curves, histories=histories, columns=2),
        call(plots.prediction_sets, y=Y, sets=SETS, coverage=0.9, class_names=CLASSES),
        call(
            plots.predictions, images=IMAGES[:3], p=P[:3], y=Y[:3], class_names=CLASSES, columns=2, top=2,
            intervals=(P[:3] * 0.5, np.minimum(P[:3] * 1.5, 1)), familiarity=WEIGHT[:3],
        ),
        call(
            plots.prototype_images, prototypes=X[:3], labels=Y[:3], shape=(2, 2), wins=np.array([3, 2, 1]),
            class_names=CLASSES, columns=2,
        ),
        call(plots.relevance, omega=X[:4], feature_names=list("abcd"), shape=None, sort=True, top=2),
        call(plots.relevance, omega=X[:4], shape=(2, 2), sort=False, top=None),
        call(plots.reliability, y=Y, p=P, bins=5, ax=None, class_index=1),
        call(plots.reliability, y=Y, bins=5, **reads),
        call(plots.risk_coverage, curves={"a": evaluation.risk_coverage_curve(Y, P)}, ax=None),
        call(plots.simplex, p=P, y=Y, assigned=Y, class_names=CLASSES, lines=True, ax=None),
        call(
            plots.uncertain_images, images=IMAGES, p=P, y=Y, familiarity=WEIGHT, k=2, by="entropy",
            class_names=CLASSES, columns=2, top=2,
        ),
        call(plots.uncertain_images, images=IMAGES, k=1, **reads),
    ]  # fmt: skip
    for each in calls:
        each.slow = True
    return calls


def _calibration() -> list[Call]:
    c, weighted = calibration, {"p": P, "y": Y, "sample_weight": WEIGHT}
    sets = c.ConformalSets(coverage=0.5).fit(P, Y)
    conformal = {"coverage": 0.5, "by_class": False, "penalty": 0.01, "free_classes": 5, "seed": 0}
    calls = [Call("ConformalSets.predict", sets.predict, {"p": P})]
    calls += [
        of(c.ConformalSets, "fit", conformal | {"method": method}, {"p": P, "y": Y}) for method in ("lac", "raps")
    ]
    kinds: list[Any] = [c.TemperatureScaling, c.PlattScaling, c.IsotonicCalibration]
    for kind in kinds:
        fitted = kind().fit(P, Y)
        calls += [
            of(kind, "fit_transform", {}, weighted),
            Call(f"{kind.__name__}.transform", fitted.transform, {"p": P}),
        ]
    densities: list[Any] = [c.GaussianDensity, c.RelativeMahalanobis, c.NeighborDistance]
    for kind in densities:
        made = {"seed": 0} | ({"k": 3, "max_samples": 100} if kind is c.NeighborDistance else {})
        calls.append(of(kind, "fit", made, {"z": X, "y": Y}))
        calls += [Call(f"{kind.__name__}.familiarity", kind(**made).fit(X, Y).familiarity, {"z": X})]
        calls += [Call(f"{kind.__name__}.variance_factor", kind(**made).fit(X, Y).variance_factor, {"z": X})]
    scaling = {"latent": LATENT, "y": Y, "scores": None, "readout": "softmax", "sample_weight": WEIGHT}
    calls.append(of(c.LatentScaling, "fit", {}, scaling, slow=True))
    calls.append(Call("LatentScaling.transform", c.LatentScaling().fit(LATENT, Y).transform, {"latent": LATENT}))
    return calls


def _readout() -> list[Call]:
    r, common = readout, {"latent": LATENT, "scores": None, "method": "auto", "seed": 0}
    full = {"loc": LATENT["loc"], "scale": np.tile(np.eye(2), (30, 1, 1))}
    wide = {"loc": X[:, :3], "scale": np.abs(X[:, :3])}
    layers = [r.ArgmaxReadout, r.SoftmaxReadout]
    return [
        call(r.argmax, **common, num_points=None, log=False),
        call(r.argmax, **common | {"latent": full, "scores": SCORES}, num_points=8, log=True),
        call(r.argmax, **common | {"latent": wide, "scores": np.eye(3)}, num_points=None, log=False),
        call(r.argmax, slow=True, **common | {"latent": wide, "method": "quasi_monte_carlo"}, num_points=16, log=False),
        call(r.argmax_error, slow=True, **common, num_points=None),
        call(r.softmax, **common, num_points=None, log=False),
        call(r.softmax, **common | {"latent": full, "scores": SCORES}, num_points=8, log=True),
        call(r.softmax, **common | {"latent": wide, "scores": np.eye(3)}, num_points=None, log=False),
        call(r.class_intervals, slow=True, **common, level=0.9, readout="softmax", num_points=16),
        call(r.decision_function, latent=LATENT, j=0, k=1, scores=SCORES),
        call(r.method_for, latent=LATENT, scores=None, method="auto", readout="argmax"),
        call(r.monte_carlo_standard_error, p=P, num_points=16),
        Call("feature_gradients", r.feature_gradients, {"function": keras.ops.square, "x": X32, "batch_size": 8}),
        *(then(kind, lambda layer: layer.predict(LATENT), scores=None, method="auto", num_points=None, seed=0)
          for kind in layers),
        *(then(kind, lambda layer: layer.predict(LATENT), scores=SCORES, num_points=16, seed=0) for kind in layers),
        *(Call(f"{kind.__name__}.predict", kind().predict, {"latent": LATENT, "log": False}) for kind in layers),
        Call("intervals", r.SoftmaxReadout().intervals, {"latent": LATENT, "level": 0.9, "num_points": 16}),
    ]  # fmt: skip


def _geometry() -> list[Call]:
    g, compositions = geometry, P + 0.01
    mapped = {"tau": 1.0, "construction": "iterative"}
    return [
        *(call(function, x=compositions, y=P[::-1] + 0.1) for function in (g.aitchison_distance, g.aitchison_inner)),
        *(call(function, pi=compositions) for function in (g.alr, g.clr, g.ilr, g.closure)),
        call(g.aitchison_norm, x=compositions),
        call(g.perturb, x=compositions, y=P + 0.1),
        call(g.power, x=compositions, a=2.0),
        call(g.alr_inverse, a=X),
        call(g.ilr_inverse, z=X),
        call(g.to_probability_simplex, f=X, **mapped),
        call(g.from_probability_simplex, s=g.to_probability_simplex(X), **mapped),
        call(g.tau_from, latents=X),
        call(g.nearest_vertex, f=X, construction="iterative"),
        call(g.helmert, n=3),
        call(g.vertices, n=3, construction="iterative"),
        call(ds.LatentGaussian, **LATENT),
        call(ds.LatentGaussian, loc=X[:, :2], scale=np.tile(np.eye(2), (30, 1, 1))),
        Call("LatentGaussian.with_noise", ds.LatentGaussian(**LATENT).with_noise, {"noise": np.ones((1, 2))}),
        Call(
            "LatentGaussian.of", ds.LatentGaussian.of, {"value": LATENT}, aliases={"value": ("latent", *LATENT_PARTS)}
        ),
    ]


def _targets() -> list[Call]:
    t, fitted = targets, {"x": X, "y": Y, "num_classes": 3}
    casimac = {
        **{"distance": "euclidean", "repulsion_strength": 1.0, "repulsion_number": 1, "attraction_strength": 0.5},
        **{"attraction_number": 1, "gamma": None, "construction": "iterative", "normalize": True, "cache_dir": None},
        **{"show_progress": None},
    }
    calls = [
        of(t.CASIMAC, "fit_transform", casimac, fitted),
        of(t.ILR, "fit_transform", {"smoothing": 0.99, "overlap": 0.01, "noise_scale": None}, fitted),
        of(t.Dirichlet, "fit_transform", {"concentration": 0.01}, fitted),
        of(t.OneHot, "fit_transform", {}, fitted),
        of(t.Vertices, "fit_transform", {}, fitted),
        of(t.Mean, "fit_transform", {"targets": ["vertices", "casimac"], "cache_dir": None}, fitted),
        then(t.TARGETS.get, lambda target: target, identifier={"name": "ilr", "overlap": 0.1}),
    ]
    calls[-1].aliases = {"identifier": ("target", "name", "overlap")}
    for kind in (t.CASIMAC, t.ILR, t.Dirichlet):
        target = kind().fit(X, Y)
        for method in ("noise", "scores", "latent_dim"):
            calls.append(Call(f"{kind.__name__}.{method}", getattr(target, method), {"n": 3}))
        calls.append(Call(f"{kind.__name__}.transform", target.transform, {"x": X, "y": Y}))
    return calls


def _distances() -> list[Call]:
    d, pair = distances, {"X": X, "Y": X[:5]}
    search = {
        **{"x": X, "y": Y, "distance": "euclidean", "k": 2, "queries": X[:4], "query_labels": Y[:4], "num_classes": 3},
        **{
            "exclude_duplicates": False,
            "classes": "all",
            "method": "exact",
            "block_bytes": 4096,
            "show_progress": None,
        },
    }
    measured = d.Euclidean().pairwise(X, X)
    known = {"identifier": ("distance", "name", "window", "matrix")}
    return [
        call(d.class_neighbors, **search),
        call(d.class_neighbors, **search | {"distance": "cityblock", "checkpoint": None}),
        call(d.class_neighbors, slow=True, **search | {"method": "approximate", "candidates": 4}),
        call(d.class_neighbors, x=IMAGES, y=Y, distance={"name": "ssim", "window": 3}, k=1),
        call(d.class_neighbors, x=X, y=Y, distance=measured, k=1),
        call(d.neighbor_error, x=X, y=Y, distance="euclidean", max_samples=20, seed=0),
        Call("get_distance of a dict", d.get_distance, {"identifier": {"name": "ssim", "window": 3}}, aliases=known),
        Call("get_distance", d.get_distance, {"identifier": "euclidean"}, aliases=known),
        Call("Euclidean.pairwise", d.Euclidean().pairwise, pair),
        Call("Cityblock.pairwise", d.Cityblock().pairwise, pair),
        Call("Precomputed.pairwise", lambda matrix: d.Precomputed(matrix).pairwise(X, X),
             {"matrix": measured}),
        Call("CallableDistance.pairwise", d.CallableDistance(lambda a, b: abs(a - b).sum()).pairwise, pair),
        of(d.SSIM, "pairwise", {"window": 3, "data_range": 1.0, "dtype": "float32"}, {"X": IMAGES, "Y": IMAGES[:3]}),
    ]  # fmt: skip


def _losses() -> list[Call]:
    outputs = {k: v.astype("float32") for k, v in LATENT.items()}
    observed = {**outputs, "scale": 0.1 * outputs["scale"]}

    def computed(loss: Any) -> Any:
        return loss(observed, outputs)

    return [
        then(losses.LatentNLL, computed, beta=0.5),
        then(losses.GLVQ, lambda loss: loss(Y, X32[:, :3]), activation="sigmoid", steepness=2.0),
        then(losses.Composition, lambda loss: loss.tau, mass=None, tau=1.0),
        then(losses.Hybrid, lambda loss: loss.weight, weight=0.5, latent=None),
        call(losses.composition_scale, loc=LATENT["loc"], labels=Y, scores=SCORES, mass=0.5),
        call(losses.composition, loc=LATENT["loc"], scores=SCORES, tau=1.0),
        Call("get_loss", losses.get_loss, {"identifier": {"name": "latent_nll", "beta": 0.5}},
             aliases={"identifier": ("loss", "name", "beta")}),
    ]  # fmt: skip


def _metrics() -> list[Call]:
    m, updated = metrics, {"y_true": Y, "y_pred": P, "sample_weight": WEIGHT}

    def update(kind: type, **made: Any) -> Call:
        def function(y_true: Any, y_pred: Any, sample_weight: Any, **made: Any) -> Any:
            metric = kind(**made)
            metric.update_state(y_true, y_pred, sample_weight)
            return metric.result()

        return Call(kind.__name__, function, made | updated, gives_nan=True)  # a graph cannot raise

    return [
        update(m.BrierScore),
        update(m.NegativeLogLikelihood),
        update(m.ExpectedCalibrationError, bins=5),
        update(m.ClasswiseCalibrationError, bins=5, num_classes=3),
    ]


def _estimators() -> list[Call]:
    e, weighted = estimators, {"X": X, "y": Y, "sample_weight": WEIGHT}
    shared: dict[str, Any] = {"scale_features": True, "classes": None, "random_state": 0}
    lvq = {"prototypes_per_class": 1, "initialization": "means", "class_weight": None, "max_iter": 2, **shared}
    online = lvq | {"learning_rate": 0.05, "decay": True}
    descent = lvq | {"activation": "sigmoid", "steepness": 2.0, "tol": 1e-6}
    process = {"kernel": "rbf", "ard": False, "inducing": 5, "separate_inducing": False, "epochs": 1, **shared}
    process |= {"batch_size": None, "learning_rate": 0.03}
    gaussian = process | {"target": "ilr", "smoothing": None, "noise": "auto", "max_iter": 2, "n_restarts": 0}
    gaussian |= {"readout": None, "learn_inducing": None}
    network = {"backbone": "mlp", "target": "ilr", "head": "gaussian", "readout": None, "optimizer": "adam", **shared}
    network |= {"loss": None, "epochs": 1, "batch_size": 32, "fit_options": None}
    regression = {"regressor": Ridge(), "target": "ilr", "cv": 2, "readout": None, **shared}
    made: list[tuple[type, dict[str, Any], bool]] = [
        (e.LVQ1, online, False),
        (e.LVQ2, online | {"window": 0.3}, False),
        (e.GLVQ, descent, False),
        (e.GMLVQ, descent | {"rank": 2, "regularization": 8.0}, False),
        (e.GPLVQ, online | {"lengthscale": "median", "noise_variance": 0.03}, False),
        (e.LatentRegressionClassifier, regression, False),
        (e.SimplexGaussianProcess, gaussian | {"inference": "exact"}, True),
        (e.SimplexGaussianProcess, gaussian | {"inference": "collapsed"}, True),
        (e.SimplexGaussianProcess, gaussian | {"inference": "stochastic"}, True),
        (e.CategoricalGaussianProcess, process | {"link": "ilr", "mixing": False, "learn_inducing": True}, True),
        (e.SimplexNetworkClassifier, network, True),
    ]
    calls = []
    for kind, arguments, slow in made:
        calls.append(then(kind, lambda model: model.fit(X, Y).predict_proba(X), slow=slow, **arguments))
        short = {
            name: value
            for name, value in arguments.items()
            if name in ("max_iter", "epochs", "inducing", "cv", "regressor")
        }

        def fitted(kind: type = kind, short: dict[str, Any] = short, **used: Any) -> Any:
            return kind(**short).fit(**used).predict_proba(X)

        calls.append(Call(f"{kind.__name__}.fit", fitted, weighted, slow))
    models: list[Any] = [e.GMLVQ(max_iter=2), e.GPLVQ(max_iter=2), e.SimplexGaussianProcess(max_iter=2)]
    models += [e.LatentRegressionClassifier(Ridge(), "ilr"), e.SimplexNetworkClassifier(epochs=1)]
    for model in models:
        model.fit(X, Y)
        for method in ("predict", "predict_proba", "decision_function", "predict_latent"):
            if hasattr(model, method):
                calls.append(Call(f"{type(model).__name__}.{method}", getattr(model, method), {"X": X}))
    explained = [model for model in models if hasattr(model, "explain")]
    calls += [Call(f"{type(model).__name__}.explain", model.explain, {"X": X, "k": 1}) for model in explained]
    calibrated, spread = e.GMLVQ(max_iter=2).fit(X, Y), e.SimplexGaussianProcess(max_iter=2).fit(X, Y)
    sets = {"coverage": 0.5, "method": "lac", "by_class": False, "random_state": 0}
    calls += [
        Call("calibrate", calibrated.calibrate, {"X": X, "y": Y, "method": "temperature", "sample_weight": WEIGHT}),
        Call("conformalize", e.GMLVQ(max_iter=2).fit(X, Y).conformalize, {"X": X, "y": Y} | sets),
        Call("fit_density", e.GMLVQ(max_iter=2).fit(X, Y).fit_density, {"X": X, "y": Y, "method": "nearest_neighbors"}),
        Call("class_intervals", spread.class_intervals, {"X": X[:3], "level": 0.9}, slow=True),
        Call("SimplexGaussianProcess.decision_function", spread.decision_function, {"X": X, "pair": (0, 1)}),
        call(e.least_squares_gaussian_process, gives_nan=True, platt=False, random_state=0),
        call(e.nystroem_kernel_ridge, n_components=5, cv=2, platt=True, random_state=0),
    ]
    return calls


def _classifier() -> list[Call]:
    mlp = functools.partial(ds.backbones.mlp, [4])

    def model() -> ds.SimplexClassifier:
        made = ds.SimplexClassifier(mlp(), "vertices", num_classes=3, head="gaussian", class_names=CLASSES)
        made.compile("adam", run_eagerly=True)
        made.fit(X32, Y, epochs=1, verbose=0)
        return made

    def construct(**arguments: Any) -> Any:
        made = ds.SimplexClassifier(mlp(), **arguments)
        return made(X32)

    fitted, batch = model(), {"batch_size": 16}
    constructed = {
        **{"target": "vertices", "num_classes": 3, "covariance": None, "head": "gaussian", "readout": None},
        **{"class_names": CLASSES, "seed": 0},
    }
    calls = [
        Call(method, getattr(fitted, method), {"x": X32} | batch) for method in ("predict_proba", "predict_latent")
    ]
    calls += [Call("predict_features", fitted.predict_features, {"x": X32} | batch)]
    calls += [Call("SimplexClassifier", construct, constructed)]
    calls += [Call("evaluate", fitted.evaluate, {"x": X32, "y": Y, "sample_weight": WEIGHT} | batch)]
    training = {"x": X32, "y": Y, "epochs": 1, "validation_split": 0.0, "sample_weight": WEIGHT} | batch
    calls += [Call("fit", model().fit, training)]
    calls += [
        Call("calibrate", model().calibrate, {"x": X32, "y": Y, "method": "temperature", "sample_weight": WEIGHT})
    ]
    calls += [Call("conformalize", model().conformalize, {"x": X32, "y": Y, "coverage": 0.5, "method": "lac"})]
    calls += [Call("fit_density", model().fit_density, {"x": X32, "y": Y, "method": "nearest_neighbors"})]
    for each in calls:
        each.slow = True
        each.aliases = {"x": ("p",), "y": (*LATENT_PARTS, "latent")}
    return calls


FOLDER = Path(tempfile.mkdtemp())


def _written(write: Callable[..., Any], read: Callable[[Path], Any], kind: str) -> Callable[..., Any]:
    def function(**arguments: Any) -> Any:
        path = FOLDER / f"odd{kind}"
        try:
            write(path, **arguments)
        except Exception:  # NumPy cannot write it
            return None
        return read(path)

    return function


def _datasets() -> list[Call]:
    def write_csv(path: Path, rows: Any, separator: str, header: str) -> None:
        lines = [separator.join(map(str, row)) for row in rows]
        path.write_text("\n".join([header, *lines]))

    arrays = {"x_train": X, "y_train": Y, "x_test": X, "y_test": Y, "class_names": np.array(CLASSES)}
    rows = [[*row, label] for row, label in zip(X.tolist(), Y.tolist(), strict=True)]
    whole = (str(FOLDER),)  # an odd file may be refused by its name
    loaded = {"name": "digits", "dtype": "float32", "test_fraction": 0.2, "seed": 0}
    npz = FOLDER / "whole.npz"
    np.savez(npz, x=IMAGES, y=Y)
    estimators.GMLVQ(max_iter=2).fit(X, Y).save(FOLDER / "model.npz")

    def read_csv(path: Path) -> Any:
        return datasets.load(path, target_column="y")

    def write_bytes(path: Path, content: Any) -> None:
        path.write_bytes(content if isinstance(content, bytes) else str(content).encode())

    known = dict.fromkeys((*arrays, "rows", "separator", "header", "content"), whole)
    content = {"content": (FOLDER / "model.npz").read_bytes()}
    return [
        Call("load", datasets.load, loaded | {"image_size": None, "color": None, "target_column": None}, slow=True),
        Call("load npz", lambda **options: datasets.load(npz, **options),
             {"dtype": "float32", "test_fraction": 0.2, "seed": 0}),
        Call("npz", _written(lambda path, **a: np.savez(path, **a), datasets.load, ".npz"), arrays, aliases=known),
        Call("csv", _written(write_csv, read_csv, ".csv"), {"rows": rows, "separator": ",", "header": "a,b,c,d,y"},
             aliases=known),
        Call("predictions", _written(lambda path, **a: np.savez(path, **a), experiments.load_predictions, ".npz"),
             {"y": Y, "p": P, "latent_loc": LATENT["loc"], "latent_scale": LATENT["scale"]},
             aliases=dict.fromkeys(("y", "p", "latent_loc", "latent_scale"), whole)),
        Call("ds.load", ds.load, {"filepath": FOLDER / "model.npz"}, aliases={"filepath": whole}),
        *(Call(f"ds.load {kind}", _written(write_bytes, ds.load, kind), content, aliases=known)
          for kind in (".npz",)),
    ]  # fmt: skip


def _experiments() -> list[Call]:
    def load(**settings: Any) -> Any:
        nested: dict[str, Any] = {}
        for key, value in settings.items():
            *sections, last = key.split(".")
            place = nested
            for section in sections:
                place = place.setdefault(section, {})
            place[last] = value
        path = FOLDER / "config.yaml"
        try:
            path.write_text(yaml.safe_dump(nested))
        except yaml.YAMLError:
            path.write_text(yaml.safe_dump({"name": str(settings)}))
            return None
        return experiments.load_config(path)

    def load_text(text: Any) -> Any:
        path = FOLDER / "text.yaml"
        path.write_bytes(text if isinstance(text, bytes) else str(text).encode())
        return experiments.load_config(path)

    settings = {
        **{"name": "odd", "seed": 0, "output": "runs", "cache_dir": None, "data.name": "digits", "data.options": {}},
        **{"data.limit": 64, "data.validation_fraction": 0.2, "target.name": "ilr", "target.overlap": 0.1},
        **{"model.backbone": {"name": "mlp", "hidden": [8], "dropout": 0.1}, "model.head": {"name": "gaussian"}},
        **{"model.covariance": "isotropic", "model.readout": {"name": "softmax", "num_points": 16}},
        **{"training.epochs": 3, "training.batch_size": 8, "training.optimizer": "adam", "training.schedule": "cosine"},
        **{"training.learning_rate": 0.1, "training.loss": {"name": "latent_nll", "beta": 0.5}},
        **{"calibration.density": "gaussian", "calibration.method": "temperature", "calibration.coverage": 0.9},
        **{"export.input_dtype": "float32", "training.mixed_precision": False},
    }
    last = {key: (key.split(".")[-1], key.split(".")[0]) for key in settings}
    whole = FOLDER / "whole.yaml"
    load(**settings)
    (FOLDER / "config.yaml").rename(whole)
    saved = {"y": Y, "p": P, "latent": LATENT, "scores": None, "readout": "softmax", "images": IMAGES}
    return [
        Call("load_config", load, settings, aliases=last),
        Call("load_config text", load_text, {"text": whole.read_text()}, aliases={"text": (str(FOLDER),)}),
        Call("load_config overrides", experiments.load_config, {"path": whole, "overrides": ["training.epochs=3"]}),
        Call("Predictions.of", experiments.Predictions.of, saved | {"class_names": CLASSES, "keep": 2}),
        Call("save_predictions", lambda **a: experiments.save_predictions(FOLDER / "saved.npz", **a),
             saved | {"class_names": CLASSES, "keep": 2}),
    ]  # fmt: skip


def _prototypes() -> list[Call]:
    p, W, labels = prototypes, X[:3], Y[:3]
    fitted = {"X": X, "y": Y, "W": W, "labels": labels, "max_iter": 2, "weights": WEIGHT}
    descent = {"activation": "sigmoid", "steepness": 2.0, "tol": 1e-6}
    online = {"learning_rate": 0.05, "decay": True}
    latents = {"X": X, "y": SIGNS[:, Y], "W": W, "c": SIGNS, "max_iter": 2, "weights": WEIGHT}
    calls = [
        call(p.fit_glvq, **fitted, **descent),
        call(p.fit_gmlvq, **fitted, **descent, rank=2, regularization=1.0),
        call(p.fit_lvq, **fitted, **online, also_correct=False, window=None),
        call(p.fit_lvq, **fitted, **online, also_correct=True, window=0.3),
        call(p.fit_gplvq, **latents, **online, lengthscale=1.0, noise_variance=0.1),
    ]
    for kind in ("means", "samples", "k-means++"):
        calls.append(call(p.initial_prototypes, X=X, y=Y, number=1, initialization=kind, weights=WEIGHT))
    return calls


def _networks() -> list[Call]:
    b, h, images = backbones, heads, IMAGES[..., np.newaxis]

    def on_images(network: Any) -> Any:
        return network(images[:2])

    def on_features(layer: Any) -> Any:
        return layer(X32)

    adapted = {"x": X32, "y": Y, "seed": 0}
    gaussian_process = {"num_classes": 3, "kernel": "rbf", "ard": False, "variance": 1.0, "scale_floor": 1e-3}
    named = Call("backbone", b.backbone, {"name": "mlp", "hidden": [4], "dropout": 0.1})
    scored = {"num_classes": 3, "prototypes_per_class": 1, "metric": "euclidean", "rank": None}
    variational = {"inducing": 4, "num_samples": None, "covariance": "isotropic", "mean_function": "linear"}
    per_class = {"prototypes_per_class": 2, "target": "vertices", "noise_variance": 0.1, "learn_latents": None}
    per_class |= {"noise_floor": 1e-3, "initialization": "k-means++"}
    calls = [
        named,
        then(b.mlp, on_features, hidden=(4,), activation="relu", dropout=0.1),
        then(b.cnn, on_images, filters=(2, 2), units=4, dropout=0.1, spectral_bound=None),
        then(b.resnet, on_images, filters=(2,), blocks=1, dropout=0.1, spectral_bound=0.9),
        then(b.ResidualBlock, on_images, filters=2, strides=1, dropout=0.1, spectral_bound=None),
        then(functools.partial(b.SpectralConv2D, kernel_size=3), on_images, filters=2, bound=0.9, power_iterations=1),
        then(h.GaussianHead, on_features, latent_dim=2, covariance="isotropic", scale_floor=1e-3),
        then(h.VariationalGaussianProcess, on_features, **gaussian_process, **variational, jitter=1e-6, latent_dim=2),
        then(h.PrototypeGaussianProcess, on_features, **gaussian_process, **per_class),
        then(h.PrototypeScores, on_features, **scored, initialization="means"),
        of(h.PrototypeScores, "adapt", scored, adapted),
        of(h.PrototypeGaussianProcess, "adapt", {"num_classes": 3, "prototypes_per_class": 2}, adapted),
        of(h.VariationalGaussianProcess, "adapt", {"num_classes": 3, "inducing": 4}, adapted),
    ]
    for each in calls:
        each.slow = True
        each.aliases = {"x": ("samples",), "y": ("labels",)}
    return calls


ROOMS: dict[str, Callable[[], list[Call]]] = {
    "evaluation": _evaluation,
    "plots": _plots,
    "calibration": _calibration,
    "readout": _readout,
    "geometry, latent": _geometry,
    "targets": _targets,
    "distances": _distances,
    "losses": _losses,
    "metrics": _metrics,
    "prototypes": _prototypes,
    "backbones, heads": _networks,
    "datasets, load": _datasets,
    "experiments": _experiments,
    "estimators": _estimators,
    "classifier": _classifier,
}
"""What makes the calls of every room."""
