"""Training of a run: its samples, its classifier, the callbacks that write its files, and fits after training."""

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import keras
import numpy as np

from deepsimplex import datasets
from deepsimplex._utils.archives import fingerprint
from deepsimplex.backbones import backbone
from deepsimplex.calibration.conformal_sets import least_samples
from deepsimplex.classifier import SimplexClassifier
from deepsimplex.datasets.splits import split_rows
from deepsimplex.experiments.backup import Backup
from deepsimplex.experiments.configuration import DECISIONS, ConfigurationError, RunConfig
from deepsimplex.experiments.run_folder import RunFolder, Verbosity, recording_failure
from deepsimplex.losses import get_loss
from deepsimplex.metrics import ExpectedCalibrationError
from deepsimplex.monitoring import CalibrationBoard
from deepsimplex.targets import TARGETS, Target

BATCH = 512  # samples of a prediction at once


@dataclass(frozen=True)
class Split:
    """Training, validation and test samples of a run."""

    x: np.ndarray
    y: np.ndarray
    x_validation: np.ndarray
    y_validation: np.ndarray
    x_test: np.ndarray
    y_test: np.ndarray
    class_names: list[str]
    groups: np.ndarray | None = None  # of the training samples
    groups_test: np.ndarray | None = None
    feature_names: tuple[str, ...] | None = None  # of a table
    groups_validation: np.ndarray | None = None
    time_validation: np.ndarray | None = None

    def facts(self) -> dict[str, Any]:
        """Return the numbers of training and validation samples, a digest of their labels, and means of some samples.

        Another version of a reader of images may round pixels in another way, which moves a mean by little.
        """
        some = self.x[:: max(1, len(self.x) // 100)]
        return {
            "training": len(self.x),
            "validation": len(self.x_validation),
            "labels": fingerprint(self.y, self.y_validation),
            "means": some.reshape(len(some), -1).mean(axis=1, dtype=np.float64).tolist(),
        }


def load_split(config: RunConfig) -> Split:
    """Load the data of a configuration, shuffle them by its seed and hold the validation samples out."""
    data = datasets.load(config.data.name, **config.data.options)
    (x, y), (x_test, y_test) = data
    if not len(x_test):
        raise ConfigurationError(
            f"{data.name} must have test samples; found none: data.options.test_fraction must not be 0"
        )
    order = np.random.default_rng(config.seed).permutation(len(x))[: config.data.limit]
    fraction = config.data.validation_fraction
    by_row = [None if values is None else values[order] for values in (data.groups, data.time)]
    if fraction > 0 and any(values is not None for values in by_row):
        names = np.array(data.class_names)[y[order]]
        rows = split_rows(names, fraction, config.seed, f"training samples of {data.name}", *by_row)
        training, validation = (order[half] for half in rows)
    else:
        held_out = round(fraction * len(order))
        if held_out == len(order) or (fraction > 0 and held_out == 0):
            raise ConfigurationError(
                f"data.validation_fraction {fraction} of {len(order)} samples leaves {len(order) - held_out} for "
                f"training and {held_out} for validation; both need at least one (0 holds none out)"
            )
        validation, training = order[:held_out], order[held_out:]
    return Split(
        x[training],
        y[training],
        x[validation],
        y[validation],
        x_test,
        y_test,
        list(data.class_names),
        None if data.groups is None else data.groups[training],
        data.groups_test,
        data.feature_names,
        *(None if values is None else values[validation] for values in (data.groups, data.time)),
    )


def make_target(config: RunConfig, show_progress: bool | None = None) -> Target:
    """Make the target of a configuration, with its cache; ``show_progress`` as in ``targets.CASIMAC``."""
    search = {"cache_dir": config.cache_dir, "executor": config.distances.executor, "show_progress": show_progress}
    return TARGETS.get(config.target, **search)


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
        feature_names=split.feature_names,
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
    if rate is None:
        default = keras.optimizers.get(config.training.optimizer).learning_rate
        rate = float(keras.ops.convert_to_numpy(default))  # mirrored, in the scope of a strategy
    if config.training.schedule == "cosine":
        rate = keras.optimizers.schedules.CosineDecay(rate, steps_per_epoch * config.training.epochs)
    return keras.optimizers.get({"class_name": config.training.optimizer, "config": {"learning_rate": rate}})


@contextmanager
def precision(mixed: bool) -> Iterator[None]:
    """Set Keras' mixed precision if asked to, and restore the global policy afterwards."""
    policy = keras.config.dtype_policy()
    keras.config.set_dtype_policy("mixed_float16" if mixed else policy)
    try:
        yield
    finally:
        keras.config.set_dtype_policy(policy)


def fit(
    model: SimplexClassifier, config: RunConfig, split: Split, folder: RunFolder | None, epochs: int, verbose: Verbosity
) -> None:
    """Train from an epoch on, and write history, logs and backups to a folder; without one, print and write nothing."""
    # Test samples are for the final evaluation only: without validation samples there is no calibration board.
    validation = (split.x_validation, split.y_validation) if len(split.x_validation) else None
    files: Any = nullcontext([]) if folder is None else _callbacks(config, folder, validation)
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
            groups=split.groups if model.head.is_closed_form else None,
        )


@contextmanager
def _callbacks(config: RunConfig, folder: RunFolder, validation: Any) -> Iterator[list[Any]]:
    """Yield the callbacks that write history, logs and backups; close their files afterwards."""

    def log_epoch(epoch: int, logs: Mapping[str, float]) -> None:
        scores = ", ".join(f"{name} {value:.4g}" for name, value in logs.items())
        folder.append_to_log(f"epoch {epoch + 1} of {config.training.epochs}: {scores}")

    history = keras.callbacks.CSVLogger(str(folder.history), append=True)
    boards = [] if validation is None else [CalibrationBoard(folder.events, validation, seed=config.seed)]
    try:
        yield [
            # The logs before the backup, so that they contain every epoch that it counts as trained.
            history,
            keras.callbacks.TensorBoard(str(folder.events), write_graph=False),
            keras.callbacks.LambdaCallback(on_epoch_end=log_epoch),
            *boards,
            Backup(folder.backup),
        ]
    finally:
        for board in boards:
            board.close()
        if history.csv_file is not None:  # after an error: Keras closes it at the end of training only
            history.csv_file.close()


def fit_after_training(
    model: SimplexClassifier, config: RunConfig, split: Split, folder: RunFolder, log: Callable[[str], None]
) -> dict[str, str]:
    """Fit the configured density, calibration and sets to a trained model, which is saved already, and save it again.

    Those that it has are replaced. Returns why something cannot be fitted, by its key of the configuration.
    """
    is_closed_form = model.head.is_closed_form  # its fit has fitted the score of unknown samples
    fitted = list(_components(model, is_closed_form).values())
    model.set_decision(None).conformalize(None).calibrate(None).fit_density(
        None
    )  # in this order, none removes another with a warning
    rows, rows_of_sets = _held_out(config, split)
    held_out, for_sets = ((split.x_validation[k], split.y_validation[k]) for k in (rows, rows_of_sets))
    options: dict[str, Any] = {"batch_size": BATCH}
    together = None if split.groups_validation is None else split.groups_validation[rows]
    sets, allow_empty = config.calibration.sets, config.calibration.allow_empty
    steps: dict[str, tuple[Any, Callable[[Any], object]]] = {
        "density": (
            config.calibration.density,
            lambda method: model.fit_density(split.x, split.y, method, groups=split.groups, **options),
        ),
        "method": (
            config.calibration.method,
            lambda method: model.calibrate(*held_out, method, groups=together, **options),
        ),
        "coverage": (
            config.calibration.coverage,
            lambda share: model.conformalize(*for_sets, share, sets, allow_empty=allow_empty, **options),
        ),
    }
    if not is_closed_form:
        model.fit_unknown(None)
        unknown = config.calibration.unknown or None
        steps["unknown"] = unknown, lambda _: model.fit_unknown(split.x_validation, **options)
    steps["decision"] = config.calibration.decision, lambda rule: _set_decision(model, rule, for_sets)
    missing: dict[str, str] = {}
    for name, (value, step) in steps.items():
        if value is not None:
            with recording_failure(missing, f"calibration.{name}"):
                step(value)
    if any(component is not None for component in (*fitted, *_components(model, is_closed_form).values())):
        model.save(folder.model)
    if model.density is not None:
        log(f"density of {len(split.x)} training samples' features: {type(model.density).__name__}")
    if model.calibration is not None:
        log(f"calibrated on {len(held_out[0])} validation samples: {model.calibration!r}")
    if model.prediction_sets is not None:
        log(f"sets of classes from {len(for_sets[0])} validation samples: {model.prediction_sets!r}")
    if config.calibration.unknown and model.unknown is not None:
        log("score of unknown samples: fitted to samples that were left out of training")
    if model.decision_rule is not None:
        log(f"decisions by {model.decision_rule!r}")
    return missing


def _set_decision(model: SimplexClassifier, rule: Any, held_out: tuple[np.ndarray, np.ndarray]) -> None:
    decision = DECISIONS.get(rule)
    x, y = held_out if decision.fitted_attributes else (None, None)
    model.set_decision(decision, x, y, batch_size=BATCH)


def _components(model: SimplexClassifier, is_closed_form: bool = False) -> dict[str, Any]:
    """Return what is fitted after training by its key of the configuration; not what ``fit`` fits in closed form."""
    return {
        "density": model.density,
        "method": model.calibration,
        "coverage": model.prediction_sets,
        "unknown": None if is_closed_form else model.unknown,
        "decision": model.decision_rule,
    }


def _held_out(config: RunConfig, split: Split) -> tuple[np.ndarray, np.ndarray]:
    """Return the positions of validation samples for a calibration, and for sets and a rule: half of each class each.

    Sets fitted to the samples of the calibration would be too small. Without one of the two the other has all. Groups
    are in one half each; of samples in time the sets have the later half.
    """
    calibration = config.calibration
    if calibration.method is None or (calibration.coverage is None and calibration.decision is None):
        return np.arange(len(split.y_validation)), np.arange(len(split.y_validation))
    beside = split.groups_validation, split.time_validation
    if any(values is not None for values in beside):
        names = np.array(split.class_names)[split.y_validation]
        try:
            return split_rows(names, 0.5, config.seed, "the validation samples", *beside)
        except ValueError as error:
            raise ConfigurationError(
                f"calibration.method takes half of the validation samples, sets or a rule the others: {error}. Raise "
                "data.validation_fraction, or set one of the two to null"
            ) from error
    order = np.argsort(split.y_validation, kind="stable")
    return order[::2], order[1::2]


def check_coverage(config: RunConfig, split: Split) -> None:
    """Raise ConfigurationError, before training, if there are too few validation samples for the coverage of sets."""
    coverage, (_, for_sets) = config.calibration.coverage, _held_out(config, split)
    if coverage is not None and len(for_sets) < (least := least_samples(coverage)):
        beside = "" if config.calibration.method is None else " beside those of calibration.method"
        raise ConfigurationError(
            f"calibration.coverage {coverage:g} needs at least {least} validation samples{beside}; found "
            f"{len(for_sets)}. Raise data.validation_fraction, or lower the coverage"
        )


def check_decision(config: RunConfig, split: Split) -> None:
    """Raise ConfigurationError, before training, if a perfect classifier could not have the rule of decisions."""
    rule = config.calibration.decision
    if rule is None or type(decision := DECISIONS.get(rule)) not in DECISIONS.values():  # others may need errors
        return
    each = np.eye(len(split.class_names))
    try:
        if decision.fitted_attributes:
            y = split.y_validation[_held_out(config, split)[1]]
            decision.fit(each[y], np.array(split.class_names)[y], classes=split.class_names)
        decision.decide(each)
    except ValueError as error:
        beside = "" if config.calibration.method is None else ", half of which calibration.method takes"
        raise ConfigurationError(
            f"calibration.decision for {len(split.y_validation)} validation samples{beside}: {error}"
        ) from error


def not_fitted(model: SimplexClassifier, config: RunConfig) -> list[str]:
    """Return the keys of the configuration whose density, calibration or sets a model lacks."""
    wanted = config.calibration.model_dump()
    return [
        f"calibration.{key}"
        for key, fit in _components(model).items()
        if fit is None and wanted[key] not in (None, False)
    ]
