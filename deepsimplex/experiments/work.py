"""The work of a run: targets, training, evaluation, export."""

import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import keras
import numpy as np
from rich.console import Console

from deepsimplex import datasets, evaluation
from deepsimplex._utils.atomic_files import replacing
from deepsimplex._utils.progress import rate_text
from deepsimplex.backbones import backbone
from deepsimplex.classifier import SimplexClassifier, load_model
from deepsimplex.experiments.backup import mend_backup
from deepsimplex.experiments.configuration import ConfigurationError, RunConfig, make_head
from deepsimplex.experiments.display import EpochDisplay
from deepsimplex.experiments.predictions import save_predictions
from deepsimplex.experiments.run_folder import RunFolder
from deepsimplex.heads import PrototypeGaussianProcess, VariationalGaussianProcess
from deepsimplex.latent import LatentGaussian
from deepsimplex.losses import LatentNLL
from deepsimplex.metrics import ExpectedCalibrationError
from deepsimplex.monitoring import CalibrationBoard
from deepsimplex.readout import READOUTS, Readout
from deepsimplex.targets import CASIMAC, Mean, Target, get_target


@dataclass(frozen=True)
class Split:
    """The samples of a run: what is learned from, what watches, what judges."""

    x: np.ndarray
    y: np.ndarray
    x_validation: np.ndarray
    y_validation: np.ndarray
    x_test: np.ndarray
    y_test: np.ndarray
    class_names: list[str]


def load_split(config: RunConfig) -> Split:
    """Load a configuration's data, in an order drawn from its seed, and hold the validation samples out."""
    data = datasets.load(config.data.name, **config.data.options)
    (x, y), (x_test, y_test) = data
    order = np.random.default_rng(config.seed).permutation(len(x))[: config.data.limit]
    fraction = config.data.validation_fraction
    held_out = round(fraction * len(order))
    if held_out == len(order) or (fraction > 0 and held_out == 0):
        raise ConfigurationError(
            f"data.validation_fraction {fraction} of {len(order)} samples leaves {len(order) - held_out} for training "
            f"and {held_out} for validation; both need at least one (0 holds none out)"
        )
    validation, training = order[:held_out], order[held_out:]
    return Split(x[training], y[training], x[validation], y[validation], x_test, y_test, list(data.class_names))


def make_target(config: RunConfig, show_progress: bool | None = None) -> Target:
    """The configuration's target, with its cache; ``show_progress`` as CASIMAC takes it."""
    return get_target(_completed(config.target, cache_dir=config.cache_dir, show_progress=show_progress))


def _completed(target: dict[str, Any], **options: Any) -> dict[str, Any]:
    """The target with options for its CASIMAC parts; what the configuration says of a part itself goes first."""
    if target["name"] == "mean":
        parts = [{"name": part} if isinstance(part, str) else part for part in target["targets"]]
        return {**target, "targets": [_completed(part, **options) for part in parts]}
    return {**options, **target} if target["name"] == "casimac" else target


def make_targets(config: RunConfig, console: Console) -> LatentGaussian:
    """Compute and cache the latents of the training samples, and nothing else; progress is shown in log files too."""
    split = load_split(config)
    target = make_target(config, show_progress=True)
    begun = time.monotonic()
    latent = target.fit_transform(split.x, split.y, len(split.class_names))
    seconds = time.monotonic() - begun
    norms = np.linalg.norm(latent.loc, axis=1)
    console.print(
        f"{len(latent)} latents of dimension {latent.latent_dim} in {seconds:.1f} s; "
        f"norms {norms.min():.3g} to {norms.max():.3g}, mean {norms.mean():.3g}"
    )
    if parts := _casimac_parts(target):
        console.print(_pairs_report(parts, len(latent), seconds))
    console.print(f"cached in {config.cache_dir}" if config.cache_dir else "not cached: cache_dir is null")
    return latent


def _casimac_parts(target: Target) -> list[CASIMAC]:
    if isinstance(target, Mean):
        return [part for inner in target.targets for part in _casimac_parts(inner)]
    return [target] if isinstance(target, CASIMAC) else []


def _pairs_report(parts: list[CASIMAC], num_samples: int, seconds: float) -> str:
    """How many pairs of samples the parts compared, and how fast; a rate only where all of them were computed."""
    distances = "1 distance" if len(parts) == 1 else f"{len(parts)} distances"
    loaded = sum(part.from_cache for part in parts)
    if loaded:
        return f"{loaded} of {distances} taken from the cache, or continued from it"
    pairs = num_samples * (num_samples - 1) // 2
    rate = rate_text(len(parts) * pairs / seconds, "pairs")
    return f"{pairs:.3g} pairs of samples per distance, {distances}: {rate}"


def build_classifier(config: RunConfig, split: Split) -> SimplexClassifier:
    """The configuration's classifier, built and compiled for the samples at hand."""
    features, target = backbone(**config.model.backbone), make_target(config)
    model = SimplexClassifier(
        backbone=features,
        target=target,
        num_classes=len(split.class_names),
        head=_head(config, split, features, target),
        covariance=config.model.covariance,
        readout=config.model.readout,
        class_names=split.class_names,
        objective=config.model.objective,
        hybrid_weight=config.model.hybrid_weight,
        composition_mass=config.model.composition_mass,
        seed=config.seed,
    )
    model.build((None, *split.x.shape[1:]))
    model.compile(
        optimizer=_optimizer(config, _steps_per_epoch(config, split)),
        loss=LatentNLL(beta=config.training.beta) if model.objective.latent_weight > 0 else None,
        metrics=["accuracy", ExpectedCalibrationError()],
    )
    return model


def _head(
    config: RunConfig, split: Split, features: keras.Model, target: Target
) -> VariationalGaussianProcess | PrototypeGaussianProcess | None:
    """The head that the configuration names, started among the training samples; None for the Gaussian head."""
    if config.model.head is None:
        return None
    head = make_head(config.model.head, len(split.class_names), len(split.x), target)
    if isinstance(head, PrototypeGaussianProcess):
        return head.adapt(split.x, split.y, features, seed=config.seed)
    return head.initialize_from(split.x, features, seed=config.seed)


def _steps_per_epoch(config: RunConfig, split: Split) -> int:
    return -(-len(split.x) // config.training.batch_size)


def _optimizer(config: RunConfig, steps_per_epoch: int) -> keras.optimizers.Optimizer:
    rate: Any = config.training.learning_rate
    if config.training.schedule == "cosine":
        rate = keras.optimizers.schedules.CosineDecay(rate, steps_per_epoch * config.training.epochs)
    return keras.optimizers.get({"class_name": config.training.optimizer, "config": {"learning_rate": rate}})


def train(config: RunConfig, console: Console, resume: bool = False) -> RunFolder:
    """Train, evaluate and export; everything lands in a run folder.

    Parameters
    ----------
    config : RunConfig
    console : rich.console.Console
        Where progress and results are shown.
    resume : bool
        Go on with the newest run of this name if it is unfinished; it ends with the weights of an uninterrupted one.

    Returns
    -------
    RunFolder

    Raises
    ------
    ConfigurationError
        When the run to resume was begun with another configuration, or its backup is damaged.
    ValueError, OSError
        When data cannot be loaded, the target cannot use them or the folder cannot be written. A run that fails before
        training begins leaves no folder.
    """
    folder = _run_to_resume(config, console) if resume else None
    if folder is not None and folder.metrics.exists():
        return folder
    with _precision(config.training.mixed_precision):
        return _train(config, console, folder)


def _train(config: RunConfig, console: Console, folder: RunFolder | None) -> RunFolder:
    """Train from the start (no folder), or go on in the folder of an unfinished run."""
    keras.utils.set_random_seed(config.seed)
    split = load_split(config)
    console.print(
        f"{config.name}: {len(split.x)} training, {len(split.x_validation)} validation, {len(split.x_test)} test "
        f"samples of shape {split.x.shape[1:]}, {len(split.class_names)} classes"
    )
    model = build_classifier(config, split)
    if folder is None:
        folder = RunFolder.create(config)
    folder.drop_history(mend_backup(folder.backup, _steps_per_epoch(config, split)))
    begun = time.monotonic()
    display = EpochDisplay(console)
    history = keras.callbacks.CSVLogger(str(folder.history), append=True)
    # Test samples judge in the end and watch nothing: a run without validation samples has no such board.
    watched = (split.x_validation, split.y_validation) if len(split.x_validation) else None
    boards = [] if watched is None else [CalibrationBoard(folder.events, watched, seed=config.seed)]
    try:
        model.fit(
            split.x,
            split.y,
            batch_size=config.training.batch_size,
            epochs=config.training.epochs,
            validation_data=watched,
            verbose=0,
            callbacks=[
                # The logs before the backup: an epoch that counts as trained is in them.
                history,
                keras.callbacks.TensorBoard(str(folder.events), write_graph=False),
                *boards,
                keras.callbacks.BackupAndRestore(str(folder.backup), double_checkpoint=True, delete_checkpoint=False),
                display,
            ],
        )
    finally:
        display.close()
        for board in boards:
            board.close()
        if history.csv_file is not None:  # after an error: Keras closes it at the end of training only
            history.csv_file.close()
    seconds = time.monotonic() - begun
    model.save(folder.model)
    if config.calibration.method is not None:
        _calibrate(model, config.calibration.method, split, folder, console)
    model.export(folder.served, input_dtype=config.export.input_dtype)
    _evaluate(model, split, folder, console, training_seconds=round(seconds, 1))
    shutil.rmtree(folder.backup, ignore_errors=True)
    return folder


def _calibrate(model: SimplexClassifier, method: str, split: Split, folder: RunFolder, console: Console) -> None:
    """Calibrate a model that is saved already, and save it again: what cannot be calibrated is not lost."""
    try:
        model.calibrate(split.x_validation, split.y_validation, method, batch_size=1024)
    except ValueError as error:
        raise ConfigurationError(
            f"calibration.method {method}: {error}. The model is in {folder.model}, without a calibration"
        ) from error
    model.save(folder.model)
    console.print(f"calibrated on {len(split.x_validation)} validation samples: {model.calibration!r}", highlight=False)


@contextmanager
def _precision(mixed: bool) -> Iterator[None]:
    """Work under Keras' mixed precision if asked to; the global policy is then what it was."""
    found = keras.config.dtype_policy()
    try:
        if mixed:
            keras.config.set_dtype_policy("mixed_float16")
        yield
    finally:
        keras.config.set_dtype_policy(found)


def _run_to_resume(config: RunConfig, console: Console) -> RunFolder | None:
    """The newest run of this name, or None where there is none."""
    runs = RunFolder.all(config)
    if not runs:
        console.print(f"no earlier run of {config.name!r} in {config.output!r}: beginning one")
        return None
    folder = runs[-1]
    trained_with = [section for section in RunConfig.model_fields if section != "export"]
    folder.check_same(config, trained_with, "leave --resume out to begin anew")
    if folder.metrics.exists():
        console.print(f"{folder.path} is finished already: nothing to resume")
    else:
        console.print(f"resuming {folder.path}")
    return folder


def finished_run(config: RunConfig) -> RunFolder:
    """The newest run of this configuration's name that has a model; runs that were cut short are passed over."""
    for folder in reversed(RunFolder.all(config)):
        if folder.model.exists():
            return folder
    raise ConfigurationError(
        f"there is no trained model of {config.name!r} in {config.output!r}; run 'deepsimplex train' first"
    )


def evaluate(config: RunConfig, console: Console) -> RunFolder:
    """Evaluate the newest trained model of a configuration on its test samples.

    Raises
    ------
    ConfigurationError
        When there is no model, or it was trained with other data or another target: test samples of the one may be
        training samples of the other.
    """
    folder = finished_run(config)
    folder.check_same(config, ["data", "target"], "train a model with this one first")
    _evaluate(load_model(folder.model), load_split(config), folder, console)
    return folder


def export(config: RunConfig, console: Console) -> RunFolder:
    """Export the newest trained model of a configuration as a SavedModel; the run's configuration tells its input."""
    folder = finished_run(config)
    load_model(folder.model).export(folder.served, input_dtype=config.export.input_dtype)
    folder.change_config(export=config.export)
    console.print(f"SavedModel for {config.export.input_dtype} images in {folder.served}")
    return folder


def _evaluate(model: SimplexClassifier, split: Split, folder: RunFolder, console: Console, **also: Any) -> None:
    probabilities = model.predict_proba(split.x_test, batch_size=1024)
    report = evaluation.report(split.y_test, probabilities)
    _draw(split, probabilities, folder)
    _keep_predictions(model, split, probabilities, folder)
    # What an earlier evaluation cannot know again, such as the training time, stays.
    figures = {**folder.read_metrics(), **report.as_dict(), "test_samples": len(split.x_test), **also}
    folder.write_json(folder.metrics, figures)
    console.print(str(report), highlight=False)
    for what, path in {
        "model": folder.model,
        "SavedModel": folder.served,
        "reliability diagram": folder.reliability,
        "predictions": folder.test_predictions,
        "metrics": folder.metrics,
        "TensorBoard events": folder.events,
    }.items():
        if path.exists():
            console.print(f"{what:>20}  {path}", highlight=False)


def _keep_predictions(model: SimplexClassifier, split: Split, probabilities: np.ndarray, folder: RunFolder) -> None:
    """Keep what a report needs of the test set, so that it needs neither the model nor the data."""
    # Probabilities that were calibrated themselves are not what a readout makes of the latents.
    read_out = model.calibration is None or not model.calibration.maps_probabilities
    save_predictions(
        folder.test_predictions,
        split.y_test,
        probabilities,
        latent=model.predict_latent(split.x_test, batch_size=1024),
        scores=model.readout.scores,
        readout=READOUTS.name_of(model.readout) if read_out and isinstance(model.readout, Readout) else None,
        images=split.x_test if split.x_test.ndim >= 3 else None,
        class_names=split.class_names,
    )


def _draw(split: Split, probabilities: np.ndarray, folder: RunFolder) -> None:
    from deepsimplex import plots  # matplotlib comes in here and not before

    figures = {folder.reliability: plots.reliability(split.y_test, probabilities)}
    if split.x_test.ndim >= 3:
        figures[folder.predictions] = plots.uncertain_images(
            split.x_test, probabilities, split.y_test, by="confidence", class_names=split.class_names
        )
    for path, figure in figures.items():
        with replacing(path) as fresh:
            figure.savefig(fresh, dpi=150)
