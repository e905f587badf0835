"""The commands of an experiment: make targets, train, evaluate, export."""

import shutil
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from typing import Any

import keras
import numpy as np

from deepsimplex import evaluation
from deepsimplex._utils.atomic_files import replacing
from deepsimplex._utils.progress import rate_text
from deepsimplex.backbones import backbone
from deepsimplex.classifier import SimplexClassifier
from deepsimplex.classifier.keras_files import load_model
from deepsimplex.classifier.several_workers import Workers
from deepsimplex.experiments.backup import repair_backup
from deepsimplex.experiments.configuration import ConfigurationError, RunConfig
from deepsimplex.experiments.finished_runs import UNFAMILIAR
from deepsimplex.experiments.run_folder import RunFolder, Verbosity, into, printer
from deepsimplex.experiments.saved_predictions import save_predictions
from deepsimplex.experiments.training_run import Split, files_of_training, fit_after_training, load_split
from deepsimplex.experiments.worker_processes import (
    check_same_run,
    concise_worker_errors,
    folder_of_chief,
    open_strategy,
)
from deepsimplex.latent import LatentGaussian
from deepsimplex.losses import get_loss
from deepsimplex.metrics import ExpectedCalibrationError
from deepsimplex.targets import TARGETS, Target

BATCH = 1024


def make_target(config: RunConfig, show_progress: bool | None = None) -> Target:
    """Make the target of a configuration, with its cache; ``show_progress`` as in ``targets.CASIMAC``."""
    search = {"cache_dir": config.cache_dir, "executor": config.distances.executor, "show_progress": show_progress}
    return TARGETS.get(config.target, **search)


def make_targets(config: RunConfig, *, verbose: Verbosity = "auto") -> LatentGaussian:
    """Compute and cache the latents of the training samples of a configuration.

    Parameters
    ----------
    config : RunConfig
    verbose : {"auto", 0, 1, 2}
        0 prints nothing; otherwise progress, in log files too, and a summary. Default "auto".

    Raises
    ------
    ValueError, OSError
        When the data cannot be loaded, the target cannot use them or the cache cannot be written.

    Examples
    --------
    >>> from deepsimplex.experiments import load_config
    >>> config = load_config("configs/digits.yaml", ["data.limit=50", "cache_dir=null"])
    >>> make_targets(config, verbose=0).loc.shape
    (50, 9)
    """
    log = printer(verbose)
    split = load_split(config)
    target = make_target(config, show_progress=bool(verbose))
    begun = time.monotonic()
    latent = target.fit_transform(split.x, split.y, len(split.class_names))
    seconds = time.monotonic() - begun
    norms = np.linalg.norm(latent.loc, axis=1)
    log(
        f"{len(latent)} latents of dimension {latent.latent_dim} in {seconds:.1f} s; "
        f"norms {norms.min():.3g} to {norms.max():.3g}, mean {norms.mean():.3g}"
    )
    if searches := target.searches():
        log(_search_summary(searches, len(latent), seconds, target.recall()))
    log(f"cached in {config.cache_dir}" if config.cache_dir else "not cached: cache_dir is null")
    return latent


def _search_summary(searches: list[bool], num_samples: int, seconds: float, recall: float | None) -> str:
    """Number of pairs of samples compared and their rate, or how many distances were cached; recall, if approximate."""
    distances = "1 distance" if len(searches) == 1 else f"{len(searches)} distances"
    found = "" if recall is None else f"; recall of approximate neighbors {recall:.3f}, measured on some samples"
    if cached := sum(searches):
        return f"{cached} of {distances} taken from the cache, or continued from it{found}"
    if found:
        return f"{distances} searched{found}"
    pairs = num_samples * (num_samples - 1) // 2
    rate = rate_text(len(searches) * pairs / seconds, "pairs")
    return f"{pairs:.3g} pairs of samples per distance, {distances}: {rate}"


def build_classifier(config: RunConfig, split: Split) -> SimplexClassifier:
    """Build and compile the classifier of a configuration for the given samples."""
    model = SimplexClassifier(
        backbone=backbone(**config.model.backbone),
        target=make_target(config),
        num_classes=len(split.class_names),
        covariance=config.model.covariance,
        head=config.model.head,
        readout=config.model.readout,
        class_names=split.class_names,
        seed=config.seed,
    )
    model.build((None, *split.x.shape[1:]))
    model.compile(
        optimizer=_optimizer(config, steps_per_epoch=-(-len(split.x) // config.training.batch_size)),
        loss=get_loss(config.training.loss),
        metrics=["accuracy", ExpectedCalibrationError()],
    )
    return model


def _optimizer(config: RunConfig, steps_per_epoch: int) -> keras.optimizers.Optimizer:
    rate: Any = config.training.learning_rate
    if config.training.schedule == "cosine":
        rate = keras.optimizers.schedules.CosineDecay(rate, steps_per_epoch * config.training.epochs)
    return keras.optimizers.get({"class_name": config.training.optimizer, "config": {"learning_rate": rate}})


def train(config: RunConfig, *, resume: bool = False, verbose: Verbosity = "auto", strategy: Any = None) -> RunFolder:
    """Train, evaluate and export the classifier of a configuration; all files go to a new run folder.

    Several workers train one model when each calls this function: the first computes the targets, prints and writes the
    files, to which the others need no access.

    Parameters
    ----------
    config : RunConfig
    resume : bool
        Continue the newest run of this name if it is unfinished. It ends with the same weights as an uninterrupted run.
        Default False.
    verbose : {"auto", 0, 1, 2}
        As in Keras' fit; 0 prints nothing at all. Default "auto": a bar on a terminal, a line per epoch elsewhere.
    strategy : tf.distribute.Strategy, optional
        Default None: the workers that the environment variable TF_CONFIG names, or all GPUs, or the one device.

    Returns
    -------
    RunFolder

    Raises
    ------
    ConfigurationError
        When the run to resume was begun with another configuration, or its backup is damaged; when TF_CONFIG is
        malformed, or another worker is lost.
    ValueError, OSError
        When the data cannot be loaded, the target cannot use them or the folder cannot be written. A run that fails
        before training begins leaves no folder.

    Examples
    --------
    >>> from deepsimplex.experiments import load_config
    >>> config = load_config("configs/digits.yaml", ["training.epochs=3"])
    >>> train(config)  # doctest: +SKIP
    RunFolder(path=PosixPath('runs/digits/001'))
    """
    strategy = strategy or open_strategy()
    workers = Workers(strategy)
    log = printer(verbose if workers.is_chief else 0)
    with _precision(config.training.mixed_precision), ExitStack() as lock, concise_worker_errors(workers):
        check_same_run(workers, config)
        # The chief's ``resume`` is decisive.
        folder, finished = folder_of_chief(
            workers, lambda: _finished(_run_to_resume(config, lock, log)) if resume else (None, 0)
        )
        if folder is not None and finished:
            return folder
        keras.utils.set_random_seed(config.seed)
        split = load_split(config)
        log(
            f"{config.name}: {len(split.x)} training, {len(split.x_validation)} validation, {len(split.x_test)} test "
            f"samples of shape {split.x.shape[1:]}, {len(split.class_names)} classes"
        )
        scope: Any = nullcontext() if strategy is None else strategy.scope()
        with scope:
            model = build_classifier(config, split)
        place, epochs = folder_of_chief(workers, lambda: _open_folder(config, folder, lock))
        assert place is not None
        if workers.is_chief:
            log = into(place, log)
        begun = time.monotonic()
        _fit(model, config, split, place if workers.is_chief else None, epochs, verbose)
        seconds = time.monotonic() - begun
        # The others wait, since a worker that has exited would count as lost.
        workers.from_chief(lambda: _finish(model, config, split, place, log, training_seconds=round(seconds, 1)))
        return place


def _open_folder(config: RunConfig, folder: RunFolder | None, lock: ExitStack) -> tuple[RunFolder, int]:
    """Return the folder of the run, held until ``lock`` is closed, and the number of epochs that are trained."""
    if folder is None:
        folder = RunFolder.create(config)
        lock.enter_context(folder.held())
    epochs = repair_backup(folder.backup)
    folder.drop_history(epochs)
    return folder, epochs


def _fit(
    model: SimplexClassifier, config: RunConfig, split: Split, folder: RunFolder | None, epochs: int, verbose: Verbosity
) -> None:
    """Train from an epoch on; a worker without a folder writes and prints nothing."""
    # Test samples are for the final evaluation only: without validation samples there is no calibration board.
    validation = (split.x_validation, split.y_validation) if len(split.x_validation) else None
    files: Any = nullcontext([]) if folder is None else files_of_training(config, folder, validation)
    with files as callbacks:
        model.fit(
            split.x,
            split.y,
            batch_size=config.training.batch_size,
            epochs=config.training.epochs,
            initial_epoch=epochs,
            validation_data=validation,
            verbose=0 if folder is None else (1 if sys.stdout.isatty() else 2) if verbose == "auto" else verbose,
            callbacks=callbacks,
        )


def _finish(
    model: SimplexClassifier,
    config: RunConfig,
    split: Split,
    folder: RunFolder,
    log: Callable[[str], None],
    **figures: Any,
) -> dict[str, np.ndarray]:
    """Save, evaluate and export a trained model."""
    model.save(folder.model)
    fit_after_training(model, config, split, folder, log)
    model.export(folder.served, input_dtype=config.export.input_dtype)
    _evaluate(model, split, folder, log, **figures)
    shutil.rmtree(folder.backup, ignore_errors=True)
    return {}


@contextmanager
def _precision(mixed: bool) -> Iterator[None]:
    """Set Keras' mixed precision if asked to, and restore the global policy afterwards."""
    found = keras.config.dtype_policy()
    keras.config.set_dtype_policy("mixed_float16" if mixed else found)
    try:
        yield
    finally:
        keras.config.set_dtype_policy(found)


def _finished(folder: RunFolder | None) -> tuple[RunFolder | None, int]:
    return folder, int(folder is not None and folder.metrics.exists())


def _run_to_resume(config: RunConfig, lock: ExitStack, log: Callable[[str], None]) -> RunFolder | None:
    """Return the newest run of this name, held until ``lock`` is closed, or None if there is none."""
    runs = RunFolder.all(config)
    if not runs:
        log(f"no earlier run of {config.name!r} in {config.output!r}: beginning one")
        return None
    folder = runs[-1]
    lock.enter_context(folder.held())
    folder.describe(config)
    folder.check_same(config, sorted(RunConfig.model_fields.keys() - {"export"}), "leave --resume out to begin anew")
    if finished := folder.metrics.exists():
        shutil.rmtree(folder.backup, ignore_errors=True)  # of a run that was killed before it removed it
    log(f"{folder.path} is finished already: nothing to resume" if finished else f"resuming {folder.path}")
    return folder


def finished_run(config: RunConfig) -> RunFolder:
    """Return the newest run of the configuration's name that has a model."""
    for folder in reversed(RunFolder.all(config)):
        if folder.model.exists():
            return folder
    raise ConfigurationError(
        f"there is no trained model of {config.name!r} in {config.output!r}; run 'deepsimplex train' first"
    )


def evaluate(config: RunConfig, *, verbose: Verbosity = "auto") -> RunFolder:
    """Evaluate the newest trained model of a configuration on its test samples, and write its results again.

    Parameters
    ----------
    config : RunConfig
    verbose : {"auto", 0, 1, 2}
        0 prints nothing. Default "auto".

    Raises
    ------
    ConfigurationError
        When there is no model, or it was trained with other data or another target: test samples of the one may be
        training samples of the other.

    Examples
    --------
    >>> from deepsimplex.experiments import load_config
    >>> evaluate(load_config("configs/digits.yaml"))  # doctest: +SKIP
    RunFolder(path=PosixPath('runs/digits/001'))
    """
    folder = finished_run(config)
    folder.check_same(config, ["data", "target"], "train a model with this one first")
    _evaluate(load_model(folder.model), load_split(config), folder, printer(verbose))
    return folder


def export(config: RunConfig, *, verbose: Verbosity = "auto") -> RunFolder:
    """Export the newest trained model of a configuration as a SavedModel.

    Parameters
    ----------
    config : RunConfig
        ``export.input_dtype`` sets the input of the SavedModel, and is written to the run's own configuration.
    verbose : {"auto", 0, 1, 2}
        0 prints nothing. Default "auto".

    Raises
    ------
    ConfigurationError
        When there is no model.

    Examples
    --------
    >>> from deepsimplex.experiments import load_config
    >>> export(load_config("configs/digits.yaml", ["export.input_dtype=uint8"]))  # doctest: +SKIP
    RunFolder(path=PosixPath('runs/digits/001'))
    """
    folder = finished_run(config)
    load_model(folder.model).export(folder.served, input_dtype=config.export.input_dtype)
    folder.change_config(export=config.export)
    printer(verbose)(f"SavedModel for {config.export.input_dtype} images in {folder.served}")
    return folder


def _evaluate(
    model: SimplexClassifier, split: Split, folder: RunFolder, log: Callable[[str], None], **figures: Any
) -> None:
    probabilities = model.predict_proba(split.x_test, batch_size=BATCH)
    sets = None if model.prediction_sets is None else model.prediction_sets.predict(probabilities)
    report = evaluation.report(split.y_test, probabilities, sets=sets)
    if model.density is not None:
        unfamiliar = model.familiarity(split.x_test, batch_size=BATCH) < UNFAMILIAR
        figures["unfamiliar_share"] = float(unfamiliar.mean())
    figures |= {} if (recall := model.target.recall()) is None else {"neighbor_recall": recall}
    _draw(split, probabilities, folder)
    _save_predictions(model, split, probabilities, folder)
    # Keep values that are not computed here, such as the training time.
    metrics = {**folder.read_metrics(), **report.as_dict(), "test_samples": len(split.x_test), **figures}
    folder.write_json(folder.metrics, metrics)
    log(str(report))
    for what, path in {
        "model": folder.model,
        "SavedModel": folder.served,
        "reliability diagram": folder.reliability,
        "predictions": folder.test_predictions,
        "metrics": folder.metrics,
        "TensorBoard events": folder.events,
    }.items():
        if path.exists():
            log(f"{what:>20}  {path}")


def _save_predictions(model: SimplexClassifier, split: Split, probabilities: np.ndarray, folder: RunFolder) -> None:
    # Probabilities calibrated after the readout are not the readout of the latents.
    read_out = model.calibration is None or not model.calibration.maps_probabilities
    save_predictions(
        folder.test_predictions,
        split.y_test,
        probabilities,
        latent=model.predict_latent(split.x_test, batch_size=BATCH),
        scores=model.readout.scores,
        readout=model.readout if read_out else None,
        images=split.x_test if split.x_test.ndim >= 3 else None,
        class_names=split.class_names,
    )


def _draw(split: Split, probabilities: np.ndarray, folder: RunFolder) -> None:
    from deepsimplex import plots  # imported here: it imports matplotlib

    figures = {folder.reliability: plots.reliability(split.y_test, probabilities)}
    if split.x_test.ndim >= 3:
        figures[folder.uncertain_images] = plots.uncertain_images(
            split.x_test, probabilities, split.y_test, by="confidence", class_names=split.class_names
        )
    for path, figure in figures.items():
        with replacing(path) as fresh:
            figure.savefig(fresh, dpi=150)
