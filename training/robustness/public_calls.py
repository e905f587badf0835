"""Calls of the public functions and classes of every room with valid arguments, from ``__all__`` and signatures.

An argument is the one that ``VARIANTS`` has for the call, else the one that ``VALUES`` has for its name, else its
default. Calls that need files or a trained network are written by hand.
"""

import dataclasses
import functools
import inspect
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

import keras
import numpy as np
import tensorflow as tf
import yaml
from sklearn.linear_model import Ridge

import deepsimplex as ds
from deepsimplex import datasets, estimators, evaluation, experiments, geometry, losses, readout

LATENT_PARTS = ("loc", "scale")
ALIASES: dict[str, tuple[str, ...]] = {
    **{"latent": (*LATENT_PARTS, "latents"), "loc": ("latents",), "memberships": ("membership",)},
    **{"probabilities": ("p",), "distance": ("matrix", "window"), "matrix": ("x",), "targets": ("target",)},
    **{"sets": ("y",), "num_classes": ("y", "y_pred", "class_names", "n"), "overrides": ("override", "file")},
    **{"X": ("x", "z", "p"), "membership": ("assigned", "y"), "scores": ("labels",), "W": ("c",)},
    **{"name": ("backbone",), "path": ("config",), "omega": ("feature_names", "top", "shape")},
    "identifier": ("distance", "name", "window", "matrix", "loss", "beta", "target", "overlap"),
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
FULL = {"loc": LATENT["loc"], "scale": np.tile(np.eye(2), (30, 1, 1))}
WIDE = {"loc": X[:, :3], "scale": np.abs(X[:, :3])}
IMAGES = rng.uniform(size=(30, 6, 6)).astype("float32")
SIGNS = 2 * np.eye(3) - 1
WEIGHT = rng.uniform(size=30)
CLASSES = ["a", "b", "c"]

VALUES: dict[str, Any] = {
    **{"X": X, "x": X, "Y": X[:5], "y": Y, "z": X, "p": P, "pi": P + 0.01, "f": X, "a": X, "n": 3, "latents": X},
    **{"latent": LATENT, "sample_weight": WEIGHT, "y_true": Y, "y_pred": P, "sets": SETS, "images": IMAGES[:3]},
    **{"membership": P, "memberships": {"a": P, "b": P[:, ::-1]}, "probabilities": {"a": P, "b": P[:, ::-1]}},
    **{"c": X},
    **{"inside": WEIGHT, "outside": WEIGHT, "confidence": WEIGHT, "lower": P * 0.5, "upper": np.minimum(P * 1.5, 1)},
    **{"metric": evaluation.accuracy, "bins": 5, "k": 1, "resamples": 5, "level": 0.9, "limits": (0.0, 1.0)},
    **{"num_classes": 3, "latent_dim": 2, "max_iter": 2, "epochs": 1, "inducing": 5, "cv": 2, "regressor": Ridge()},
    **{"n_components": 5, "max_samples": 20, "class_names": CLASSES, "columns": 2, "top": 2, "num_points": 16},
    **{"hidden": (4,), "filters": (2, 2), "units": 4, "dropout": 0.1, "kernel_size": 3, "beta": 0.5, "mass": 0.5},
    **{
        "labels": Y[:3],
        "W": X[:3],
        "weights": WEIGHT,
        "noise": 0.1,
        "noise_variance": 0.1,
        "lengthscale": 1.0,
        "number": 1,
        "window": 3,
    },
    **{"loc": LATENT["loc"], "tau": 1.0, "function": keras.ops.square, "matrix": np.abs(X[:, :1] - X[:, 0])},
    "decision_curve.curves": {"a": evaluation.decision_curve(Y, P, positive=1)},
    "evaluation.positive": 1,
    **{"curves": {"a": evaluation.risk_coverage_curve(Y, P)}, "histories": {"one": {"loss": [2.0, 1.0]}}},
    **{"j": 0, "identifier": {"name": "ssim", "window": 3}, "targets": ["vertices", "casimac"], "omega": X[:4]},
    **{"geometry.x": P + 0.01, "geometry.y": P[::-1] + 0.1, "geometry.z": X, "power.a": 2.0},
    **{"from_probability_simplex.s": geometry.to_probability_simplex(X), "report.outside": P, "report.sets": SETS},
    **{"feature_gradients.x": X32, "decision_function.k": 1, "heads.x": X32, "losses.scores": SCORES},
    **{"composition_tau.labels": Y, "get_loss.identifier": {"name": "latent_nll", "beta": 0.5}},
    **{"backbone.name": "mlp", "ResidualBlock.filters": 2, "SpectralConv2D.filters": 2},
    **{"SSIM.X": IMAGES, "SSIM.Y": IMAGES[:3], "estimators.window": 0.3, "top_k_accuracy.k": 2, "report.k": 2},
    **{"CallableDistance.function": lambda a, b: abs(a - b).sum()},
    **{
        "plots.latent": None,
        "losses.latent": None,
        "heads.metric": "euclidean",
        "LayerHead.layer": ds.heads.GaussianHead(2),
        "fit_lvq.window": None,
        "Precomputed.Y": X,
    },
    **{"estimators.noise": "auto", "calibrate.method": "platt"},
    **{"AfterTraining.classifier": estimators.GLVQ(max_iter=2).fit(X, Y), "estimators.features": None},
    "integrated_gradients.function": lambda x: tf.reduce_sum(x**3, axis=1),
    **{"integrated_gradients.x": X32, "ClosedFormHead.features": X},
    **{"UnknownScore.log_p": np.log(P), "UnknownScore.variance": WEIGHT, "UnknownScore.numbers": None},
    **{"saliency.labels": Y, "saliency.steps": 2, "estimate_priors.trained": [0.2, 0.3, 0.5]},
    "LeftOutSoftmax.left_out": ds.readout.LeftOutLatents(SCORES[Y], np.ones((30, 1)), np.eye(3)[Y], np.arange(30), []),
    **{"losses.tau": 1.0, "GPLVQ.lengthscale": "median", "estimators.num_classes": None, "calibration.k": 3},
}
"""Valid values by the name of the parameter, or by FUNCTION.name, CLASS.name or ROOM.name, which come first."""

REGIONS: dict[str, Any] = {
    **{"classifier": estimators.LVQ1(max_iter=2).fit(X[:, :2], Y), "X": X[:, :2], "prototypes": X[:3, :2]},
    **{"prototype_labels": Y[:3], "feature_names": ["u", "v"], "levels": [0.5], "resolution": 8},
}
READ: dict[str, Any] = {"p": readout.softmax(LATENT), "latent": LATENT, "readout": "softmax"}
SEARCH: dict[str, Any] = {"queries": X[:4], "query_labels": Y[:4], "k": 2, "block_bytes": 4096}
WATCHED = ds.evaluation.DriftMonitor(P)
WATCHED.update(P)
VARIANTS: dict[str, list[dict[str, Any]]] = {
    "ExchangeabilityTest": [{"reference": WEIGHT}],
    "net_benefit": [{"threshold": 0.3, "positive": 1}],
    "saliency": [{"images": IMAGES[:3], "maps": IMAGES[:3], "titles": ["a", "b", "c"]}],
    "drift": [{"monitor": WATCHED}],
    "RiskControl": [{"bound": 0.8}, {"bound": 0.2, "risk": "rejection_rate"}],
    "PriorShift": [{"trained": [0.2, 0.3, 0.5]}],
    "ExpectedCost": [{"costs": 1.0 - np.eye(3)}],
    "mean_cost": [{"decisions": Y, "costs": 1.0 - np.eye(3)}],
    "labeled_predictions": [{"model": REGIONS["classifier"], "data": (X[:, :2], Y)}],
    "reliability_curve": [{}, {"class_index": 1, "binning": "mass"}],
    "uncertainty": [{"by": "entropy", "y": None}, {"by": "likelihood"}],
    "ability_to_separate": [{"assigned": Y}, {"assigned": np.array(CLASSES)[Y], "classes": CLASSES}],
    "standardized_memberships": [{"scores": X, "kind": kind} for kind in ("softmax", "ranks")]
    + [{"scores": X, "kind": "shift", "zero": -9.0}],
    "standardized_partition": [{"assigned": Y}],
    "compare_partitions": [{"assigned": {"a": Y}}],
    "decision_regions": [REGIONS],
    "latent_space": [{"latent": ds.LatentGaussian(**LATENT), **change} for change in ({}, {"level": None})],
    "predictions": [{"p": P[:3], "y": Y[:3], "intervals": (P[:3] * 0.5, P[:3]), "familiarity": WEIGHT[:3]}],
    "uncertain_images": [{"images": IMAGES, "familiarity": WEIGHT}, {"images": IMAGES, **READ}],
    "prototype_images": [{"prototypes": X[:3], "shape": (2, 2), "wins": np.array([3, 2, 1])}],
    "relevance": [{"feature_names": list("abcd")}, {"shape": (2, 2), "top": None}],
    "reliability": [{"class_index": 1}, READ],
    "simplex": [{"assigned": Y, "lines": True}],
    "classwise_reliability": [{"only": [0, 2]}],
    "argmax": [
        {"num_points": None},
        {"latent": FULL, "scores": SCORES, "log": True},
        {"latent": WIDE, "scores": np.eye(3), "num_points": None},
        {"latent": WIDE, "scores": np.eye(3), "method": "quasi_monte_carlo"},
    ],
    "softmax": [{"num_points": None}, {"latent": FULL, "scores": SCORES, "log": True}],
    "class_neighbors": [
        SEARCH,
        SEARCH | {"method": "approximate", "candidates": 4},
        {"x": IMAGES, "distance": {"name": "ssim", "window": 3}},
        {"distance": np.abs(X[:, :1] - X[:, 0])},
    ],
    "get_distance": [{}, {"identifier": "euclidean"}],
    "ConformalSets": [{"method": method} for method in ("lac", "raps")],
    "LatentScaling.fit": [{"readout": "softmax"}],
    "SimplexGaussianProcess": [{"target": "ilr", "inference": name} for name in ("exact", "collapsed", "stochastic")],
    "fit_lvq": [{}, {"also_correct": True, "window": 0.3}],
    "fit_gplvq": [{"y": SIGNS[:, Y], "c": SIGNS}],
    "initial_prototypes": [{"initialization": kind} for kind in ("means", "samples", "k-means++")],
    "SpectralConv2D": [{"bound": 0.9}],
    "nystroem_kernel_ridge": [{"gammas": (0.1,), "penalties": (1.0,)}],
}
"""Arguments that differ from ``VALUES``, for each call of a function, CLASS or CLASS.method."""

SLOW = {"plots", "backbones", "heads"}
SLOW |= {"report", "compare_reports", "argmax_error", "class_intervals", "LatentScaling", "SimplexGaussianProcess"}
SLOW |= {"CategoricalGaussianProcess", "SimplexNetworkClassifier", "nystroem_kernel_ridge"}
GIVES_NAN = {"metrics", "reliability_curve", "reliability_band", "report", "compare_reports", "coverage_by_class"}
GIVES_NAN |= {
    "coverage_by_size",
    "standardized_partition",
    "predict_or_unknown",
    "compare_partitions",
    "least_squares_gaussian_process",
}
BASES = {"Distance", "Embedding", "Head", "Head.explain", "Readout", "ClassifierLoss", "LatentLoss"}
BASES |= {"pretrained", "AfterTraining.fit", "LatentRegressionClassifier.saliency"}
"""Not called: classes to derive from, those that need a network or KerasHub, and methods that only raise."""
METHODS = (
    *("fit", "fit_transform", "transform", "predict", "predict_proba", "predict_latent", "decision_function"),
    *("explain", "class_intervals", "calibrate", "conformalize", "predict_set", "fit_density", "familiarity"),
    *("variance_factor", "pairwise", "update_state", "intervals", "scores", "noise", "latent_dim", "adapt"),
    *("fit_unknown", "unknown_score", "predict_or_unknown", "estimate_priors", "saliency"),
)


def arguments(function: Callable[..., Any], room: str, *names: str) -> Iterator[dict[str, Any]]:
    """Valid arguments of each call of a function, but for callbacks and arguments that only Keras reads.

    ``names`` are those that ``VALUES`` may have before a dot.
    """
    chosen = {}
    for name, parameter in inspect.signature(function).parameters.items():
        read_by_keras = room in ("losses", "metrics") and name in ("name", "dtype", "reduction")
        callback = name in ("announce", "backbone", "callback", "report") and parameter.default is None
        if (
            not read_by_keras
            and not callback
            and parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
        ):
            keys = [f"{prefix}.{name}" for prefix in (*names, room)] + [name]
            known = [VALUES[key] for key in keys if key in VALUES]
            chosen[name] = known[0] if known else parameter.default
    for variant in VARIANTS.get(".".join(reversed(names)), [{}]):
        yield chosen | variant


def used(made: Any, room: str) -> Any:
    """Create an object of a room with valid arguments."""
    if room == "backbones":
        return made(IMAGES[:2, ..., np.newaxis])
    if room == "heads":
        if isinstance(made, ds.heads.ClosedFormHead):
            made.solve(X32, Y)
        return made(X32)
    if isinstance(made, losses.GLVQ):
        return made(Y, X32[:, :3])
    if isinstance(made, losses.LatentNLL):
        outputs = {key: value.astype("float32") for key, value in LATENT.items()}
        return made(outputs, outputs)
    for method in ("fit", "pairwise", "predict", "update_state"):
        if hasattr(made, method) and f"{type(made).__name__}.{method}" not in BASES:
            return getattr(made, method)(**next(arguments(getattr(made, method), room, method, type(made).__name__)))
    return made.get_config() if hasattr(made, "get_config") else made


def class_calls(kind: type, room: str) -> Iterator[Call]:
    """Calls of a constructor, whose object is then used, and of the methods of an object."""
    name = kind.__name__
    for made in arguments(kind, room, name):
        yield Call(name, lambda **made: used(kind(**made), room), made)
    made = next(arguments(kind, room, name))
    instance = kind(**made)
    used(instance, room)
    for method in METHODS:
        defined = getattr(instance, method, None)
        if callable(defined) and not {getattr(defined, "__qualname__", ""), f"{name}.{method}"} & BASES:
            bound = getattr(kind(**made) if method in ("fit", "fit_transform", "adapt") else instance, method)
            for chosen in arguments(bound, room, method, name):
                yield Call(f"{name}.{method}", bound, chosen)


def room_calls(room: str) -> list[Call]:
    """Calls of everything that a room's ``__all__`` offers, but for base classes, errors, warnings and results."""
    module: ModuleType = getattr(ds, room)
    calls: list[Call] = []
    for name in getattr(module, "__all__", None) or vars(module):
        member = getattr(module, name)
        if not getattr(member, "__module__", "").startswith("deepsimplex") or name.startswith("_") or name in BASES:
            continue
        if inspect.isfunction(member):
            function = functools.partial(_then_used, member) if room == "backbones" else member
            calls += [Call(name, function, chosen) for chosen in arguments(member, room, name) if name != "load"]
        elif inspect.isclass(member) and not inspect.isabstract(member):
            result = dataclasses.is_dataclass(member) and not hasattr(member, "fit")
            if not result and not issubclass(member, tuple | Exception):
                calls += class_calls(member, room)
    for call in calls:
        marks = {room, *call.name.split(".")}
        call.slow, call.gives_nan = bool(marks & SLOW), bool(marks & GIVES_NAN)
        if room == "heads":
            call.aliases = {"x": ("samples",), "y": ("labels",)}
    return calls


def _then_used(network: Callable[..., Any], **chosen: Any) -> Any:
    return used(network(**chosen), "backbones")


def _latent() -> list[Call]:
    of = Call("LatentGaussian.of", ds.LatentGaussian.of, {"value": LATENT})
    of.aliases = {"value": ("latent", *LATENT_PARTS)}
    return [
        *(Call("LatentGaussian", ds.LatentGaussian, latent) for latent in (LATENT, FULL)),
        Call("LatentGaussian.with_noise", ds.LatentGaussian(**LATENT).with_noise, {"noise": np.ones((1, 2))}),
        of,
    ]


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
        **{"class_names": CLASSES, "feature_names": ["a", "b", "c", "d"], "seed": 0},
    }
    calls = [
        Call(method, getattr(fitted, method), {"x": X32} | batch) for method in ("predict_proba", "predict_latent")
    ]
    calls += [Call("predict_features", fitted.predict_features, {"x": X32} | batch)]
    calls += [Call("SimplexClassifier", construct, constructed)]
    calls += [Call("evaluate", fitted.evaluate, {"x": X32, "y": Y, "sample_weight": WEIGHT} | batch)]
    training = {"x": X32, "y": Y, "epochs": 1, "validation_split": 0.0, "sample_weight": WEIGHT} | batch
    calls += [Call("fit", model().fit, training)]
    calls += [Call("calibrate", model().calibrate, {"x": X32, "y": Y, "method": "platt", "sample_weight": WEIGHT})]
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


ROOMS: dict[str, Callable[[], list[Call]]] = {
    **{
        room: functools.partial(room_calls, room)
        for room in ("evaluation", "plots", "calibration", "readout", "geometry", "targets", "distances", "losses")
    },
    **{room: functools.partial(room_calls, room) for room in ("metrics", "prototypes", "backbones", "heads")},
    "estimators": functools.partial(room_calls, "estimators"),
    "latent": _latent,
    "datasets, load": _datasets,
    "experiments": _experiments,
    "classifier": _classifier,
}
"""Functions that create the calls of every room."""
