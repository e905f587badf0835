"""The commands of an experiment: make targets, train, evaluate, export."""

import shutil
import time
from collections.abc import Callable
from contextlib import ExitStack, nullcontext
from pathlib import Path
from typing import Any

import keras
import numpy as np

from deepsimplex._utils.messages import warn_caller
from deepsimplex._utils.progress import rate_text
from deepsimplex.classifier import SimplexClassifier
from deepsimplex.classifier.keras_files import load_model
from deepsimplex.classifier.several_workers import Workers, versions
from deepsimplex.experiments.backup import repair_backup
from deepsimplex.experiments.configuration import RunConfig, load_config
from deepsimplex.experiments.finished_runs import trained_runs
from deepsimplex.experiments.run_folder import RunFolder, Verbosity, into, printer, recording_failure
from deepsimplex.experiments.run_results import write_results
from deepsimplex.experiments.training_run import (
    Split,
    build_classifier,
    check_coverage,
    check_decision,
    fit,
    fit_after_training,
    load_split,
    make_target,
    not_fitted,
    precision,
)
from deepsimplex.experiments.worker_processes import concise_worker_errors, open_strategy
from deepsimplex.latent import LatentGaussian

AFTER_TRAINING = ("calibration", "export")  # sections that may change when a trained run is resumed
PLACES = ("output", "cache_dir", "distances")  # sections that do not change a model: where its files and neighbors are


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
    recalled = "" if recall is None else f"; recall of approximate neighbors {recall:.3f}, measured on some samples"
    if cached := sum(searches):
        return f"{cached} of {distances} taken from the cache, or continued from it{recalled}"
    if recalled:
        return f"{distances} searched{recalled}"
    pairs = num_samples * (num_samples - 1) // 2
    rate = rate_text(len(searches) * pairs / seconds, "pairs")
    return f"{pairs:.3g} pairs of samples per distance, {distances}: {rate}"


def train(config: RunConfig, *, resume: bool = False, verbose: Verbosity = "auto", strategy: Any = None) -> RunFolder:
    """Train, evaluate and export the classifier of a configuration; all files go to a new run folder.

    Several workers train one model when each calls this function: the first computes the targets, prints and writes the
    files, to which the others need no access.

    Parameters
    ----------
    config : RunConfig
    resume : bool
        Continue the newest run of this name if it is unfinished. It ends with the same weights as an uninterrupted run.
        A trained run that lacks something, or for which ``calibration`` or ``export`` are changed, is calibrated,
        exported and evaluated again, without training. Default False.
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

    Warns
    -----
    UserWarning
        When a density, a calibration or sets cannot be fitted to the trained model, or it cannot be exported or drawn.
        The rest is done, and ``metrics.json`` and reports say what is missing.

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
    with precision(config.training.mixed_precision), ExitStack() as lock, concise_worker_errors(workers):
        # Their folders of runs and of the cache may differ.
        same_json = config.model_dump_json(exclude={"output", "cache_dir"})
        workers.check_same({"versions": versions(), "configuration": same_json})
        path, trained = workers.on_chief(lambda: _run_to_resume(config, lock, log) if resume else (None, False))
        if trained:
            workers.on_chief(lambda: _take_up(config, RunFolder(Path(path)), log))
            return RunFolder(Path(path))
        keras.utils.set_random_seed(config.seed)
        split = load_split(config)
        check_coverage(config, split)
        check_decision(config, split)
        log(
            f"{config.name}: {len(split.x)} training, {len(split.x_validation)} validation, {len(split.x_test)} test "
            f"samples of shape {split.x.shape[1:]}, {len(split.class_names)} classes"
        )
        with nullcontext() if strategy is None else strategy.scope():
            model = build_classifier(config, split)
        path, epochs = workers.on_chief(lambda: _open_folder(config, path, lock, split))
        folder = RunFolder(Path(path))
        if workers.is_chief:
            log = into(folder, log)
        begun = time.monotonic()
        fit(model, config, split, folder if workers.is_chief else None, epochs, verbose)
        seconds = round(time.monotonic() - begun, 1)
        workers.on_chief(lambda: model.save(folder.model))  # before anything that may fail
        workers.on_chief(lambda: _finish(model, config, split, folder, log, training_seconds=seconds))
        return folder


def _run_to_resume(config: RunConfig, lock: ExitStack, log: Callable[[str], None]) -> tuple[str | None, bool]:
    """Return the path of the run to go on with, held until ``lock`` is closed, or None; and whether it is trained.

    The newest that was begun with this configuration.
    """
    runs = RunFolder.all(config)
    if not runs:
        log(f"no earlier run of {config.name!r} in {config.output!r}: beginning one")
        return None, False
    sections = sorted(RunConfig.model_fields.keys() - {*AFTER_TRAINING})
    folder = RunFolder.newest(runs, config, sections)
    lock.enter_context(folder.held())
    folder.describe(config)
    folder.check_same(config, sections, "leave --resume out to begin anew")
    trained = folder.model.exists() or folder.metrics.exists()
    if not trained:
        folder.change_config(**{section: getattr(config, section) for section in AFTER_TRAINING})
        log(f"resuming {folder.path}")
    return str(folder.path), trained


def _take_up(config: RunConfig, folder: RunFolder, log: Callable[[str], None]) -> None:
    """Finish a trained run that lacks something or is to be calibrated or exported in another way."""
    begun = load_config(folder.config)
    changed = [section for section in AFTER_TRAINING if getattr(begun, section) != getattr(config, section)]
    if folder.metrics.exists() and not changed and not folder.read_missing():
        shutil.rmtree(folder.backup, ignore_errors=True)  # a run that was killed may not have removed it
        log(f"{folder.path} is finished already: nothing to resume")
        return
    log(f"{folder.path} is trained already: calibrating, exporting and evaluating it")
    model, split = load_model(folder.model), load_split(config)
    folder.check_samples(split.facts())
    if folder.metrics.exists():  # until it is written again
        missing = dict.fromkeys(AFTER_TRAINING, "it was interrupted")
        folder.write_json(folder.metrics, {**folder.read_metrics(), "missing": missing})
    folder.change_config(**{section: getattr(config, section) for section in AFTER_TRAINING})
    _finish(model, config, split, folder, into(folder, log))


def _open_folder(config: RunConfig, path: str | None, lock: ExitStack, split: Split) -> tuple[str, int]:
    """Return the path of the run's folder, held until ``lock`` is closed, and the number of epochs that are trained."""
    if path is None:
        folder = RunFolder.create(config)
        lock.enter_context(folder.held())
    else:
        folder = RunFolder(Path(path))
    folder.check_samples(split.facts())
    epochs = repair_backup(folder.backup)
    folder.drop_history(epochs)
    return str(folder.path), epochs


def _finish(
    model: SimplexClassifier,
    config: RunConfig,
    split: Split,
    folder: RunFolder,
    log: Callable[[str], None],
    **figures: Any,
) -> None:
    """Fit what is fitted after training to a saved model, export and evaluate it. What fails is recorded as missing."""
    missing = fit_after_training(model, config, split, folder, log)
    with recording_failure(missing, "export"):
        shutil.rmtree(folder.served, ignore_errors=True)  # one of another calibration
        model.export(folder.served, input_dtype=config.export.input_dtype)
    write_results(model, split, folder, log, missing, **figures)
    shutil.rmtree(folder.backup, ignore_errors=True)


def finished_run(config: RunConfig, changeable: set[str]) -> RunFolder:
    """Return the newest run of the configuration's name that has a model and was begun with this configuration.

    Raises
    ------
    ConfigurationError
        When there is none, or a section of its configuration differs that is not ``changeable``.
    """
    sections = sorted(RunConfig.model_fields.keys() - {*PLACES, *changeable})
    folder = RunFolder.newest(trained_runs(config), config, sections)
    folder.describe(config)
    hint = "train a model with this one first; 'deepsimplex train --resume' changes calibration and export alone"
    folder.check_same(config, sections, hint)
    return folder


def evaluate(config: RunConfig, *, verbose: Verbosity = "auto") -> RunFolder:
    """Evaluate the newest trained model of a configuration on its test samples, and write its results again.

    The model is evaluated as it is: ``train(config, resume=True)`` fits another calibration to it.

    Parameters
    ----------
    config : RunConfig
    verbose : {"auto", 0, 1, 2}
        0 prints nothing. Default "auto".

    Raises
    ------
    ConfigurationError
        When there is no model, or it was made with another configuration. Only ``output``, ``cache_dir`` and
        ``distances`` may differ: they do not change the model.

    Examples
    --------
    >>> from deepsimplex.experiments import load_config
    >>> evaluate(load_config("configs/digits.yaml"))  # doctest: +SKIP
    RunFolder(path=PosixPath('runs/digits/001'))
    """
    folder = finished_run(config, set())
    model, split = load_model(folder.model), load_split(config)
    folder.check_samples(split.facts())
    lacking = not_fitted(model, config) + ([] if folder.served.exists() else ["export"])
    missing = {**dict.fromkeys(lacking, "the run ended before"), **folder.read_missing()}
    missing.pop("figures", None)  # which are drawn again
    write_results(model, split, folder, printer(verbose), missing)
    return folder


def export(config: RunConfig, *, verbose: Verbosity = "auto") -> RunFolder:
    """Export the newest trained model of a configuration as a SavedModel.

    Parameters
    ----------
    config : RunConfig
        ``export.input_dtype`` sets the input of the SavedModel, and is written to the run's configuration.
    verbose : {"auto", 0, 1, 2}
        0 prints nothing. Default "auto".

    Raises
    ------
    ConfigurationError
        When there is no model, or it was made with another configuration but for ``export``, ``output``, ``cache_dir``
        and ``distances``.

    Warns
    -----
    UserWarning
        When the model lacks a density, calibration or sets of the configuration.

    Examples
    --------
    >>> from deepsimplex.experiments import load_config
    >>> export(load_config("configs/digits.yaml", ["export.input_dtype=uint8"]))  # doctest: +SKIP
    RunFolder(path=PosixPath('runs/digits/001'))
    """
    folder = finished_run(config, {"export"})
    model, missing = load_model(folder.model), folder.read_missing()
    if lacking := not_fitted(model, config):
        warn_caller(f"the model of run {folder.path} is exported without {', '.join(lacking)}, which was not fitted")
    model.export(folder.served, input_dtype=config.export.input_dtype)
    folder.change_config(export=config.export)
    if missing.pop("export", None):
        folder.write_json(folder.metrics, {**folder.read_metrics(), "missing": missing})
    printer(verbose)(f"SavedModel for {config.export.input_dtype or 'float32'} images in {folder.served}")
    return folder
