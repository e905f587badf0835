"""Evaluation of a trained model on the test samples of a run: metrics, figures and predictions in its folder."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from deepsimplex import evaluation
from deepsimplex._utils.atomic_files import replacing
from deepsimplex._utils.messages import warn_caller
from deepsimplex.classifier import SimplexClassifier
from deepsimplex.experiments.explained_images import explain_images, save_explained
from deepsimplex.experiments.finished_runs import REJECTED, UNFAMILIAR
from deepsimplex.experiments.run_folder import RunFolder, recording_failure
from deepsimplex.experiments.saved_predictions import save_predictions
from deepsimplex.experiments.training_run import BATCH, Split
from deepsimplex.export.model_card import write_card


def write_results(
    model: SimplexClassifier,
    split: Split,
    folder: RunFolder,
    log: Callable[[str], None],
    missing: dict[str, str],
    **figures: Any,
) -> None:
    """Write metrics, with further ``figures``, pictures and predictions of the test samples, and log the paths.

    ``missing`` says what the run lacks and why. It is written with the metrics, and a warning is issued.
    """
    predicted = model.predict_all(split.x_test, batch_size=BATCH)
    probabilities = predicted["probabilities"]
    figures |= {} if (recall := model.target.recall()) is None else {"neighbor_recall": recall}
    if diverged := int((~np.isfinite(probabilities)).any(axis=1).sum()):
        missing["evaluation"] = (
            f"training has diverged: class probabilities of {diverged} of {len(probabilities)} test samples are NaN or "
            "infinite. Train anew with a smaller learning rate"
        )
    else:
        figures |= _evaluate(model, split, predicted, folder, log, missing)
    earlier = {name: value for name, value in folder.read_metrics().items() if name == "training_seconds"}
    metrics = {**earlier, **figures, "test_samples": len(split.x_test)}
    folder.write_json(folder.metrics, {**metrics, "missing": missing} if missing else metrics)
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
    for name, why in missing.items():
        log(f"{'missing':>20}  {name}: {why}")
    if missing:
        listed = "; ".join(f"{name} ({why})" for name, why in missing.items())
        advice = (
            ""
            if diverged
            else ". 'deepsimplex train --resume' makes it without training, with another calibration or export too"
        )
        warn_caller(f"run {folder.path} lacks {listed}{advice}")


def _evaluate(
    model: SimplexClassifier,
    split: Split,
    predicted: Mapping[str, Any],
    folder: RunFolder,
    log: Callable[[str], None],
    missing: dict[str, str],
) -> dict[str, Any]:
    """Return and log the scores of test samples, and write pictures and predictions."""
    report, scores = scores_of(split.y_test, predicted, model.class_names)
    with recording_failure(missing, "figures"):
        _draw(split, predicted["probabilities"], folder)
    if split.x_test.ndim >= 3:
        with recording_failure(missing, "saliency"):
            content = explain_images(model, split.x_test, split.y_test, predicted)
            save_explained(folder.explained_images, content)
    save_test_predictions(model, split, predicted, folder)
    if folder.served.exists():
        name, sizes = folder.path.resolve().parts[-2:], f"{len(split.x)} training, {len(split.x_test)} test samples"
        write_card(model.card(report, name="/".join(name), data=f"{sizes} of {name[0]}"), folder.served)
    log(str(report))
    return scores


def scores_of(
    y: np.ndarray, predicted: Mapping[str, Any], class_names: Sequence[str]
) -> tuple[evaluation.Report, dict[str, Any]]:
    """Return the report of ``predict_all``, and its scores with the shares of unfamiliar and of unknown samples."""
    names, sets = np.array(class_names), predicted.get("prediction_set")
    report = evaluation.report(names[y], predicted["probabilities"], sets=sets, classes=class_names)
    scores = report.as_dict()
    if "familiarity" in predicted:
        scores["unfamiliar_share"] = float((predicted["familiarity"] < UNFAMILIAR).mean())
    if "unknown" in predicted:
        scores["unknown_share"] = float((predicted["unknown"] > 1.0 - REJECTED).mean())
    return report, scores


def save_test_predictions(
    model: SimplexClassifier, split: Split, predicted: Mapping[str, Any], folder: RunFolder
) -> None:
    # Probabilities that are mapped after the readout are not the readout of the latents.
    read_out = not model.after_training.probability_maps
    save_predictions(
        folder.test_predictions,
        split.y_test,
        predicted["probabilities"],
        latent=predicted["latent"],
        scores=model.readout.scores,
        readout=model.readout if read_out else None,
        images=split.x_test if split.x_test.ndim >= 3 else None,
        class_names=split.class_names,
        groups=split.groups_test,
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
