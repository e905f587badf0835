"""Evaluate a trained model on other labeled data."""

import json
import os
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import numpy as np

from deepsimplex._utils.atomic_files import check_output, replacing
from deepsimplex.datasets.loading import load_tested
from deepsimplex.evaluation.json_values import json_value
from deepsimplex.experiments.image_reading import ImageReading, input_shape, is_image_shape
from deepsimplex.experiments.run_results import scores_of
from deepsimplex.experiments.saved_predictions import save_predictions
from deepsimplex.experiments.table_predictions import (
    AnyModel,
    check_count,
    class_names_of,
    features_of,
    load_any_classifier,
    named_columns,
)
from deepsimplex.experiments.training_run import BATCH


def evaluate_on(
    model: AnyModel,
    data: str | os.PathLike[str],
    output: str | os.PathLike[str] | None = None,
    *,
    pixel_scale: float | None = None,
    antialias: bool | None = None,
    announce: Callable[[str], object] = lambda text: None,
    **options: Any,
) -> dict[str, Any]:
    """Evaluate a trained model on other labeled data, such as those of another clinic.

    Parameters
    ----------
    model : path-like, SimplexClassifier or scikit-learn classifier of deepsimplex
        As in ``predict_files``, or the .npz file of a classifier's ``save``.
    data : path-like
        As in ``datasets.load``. All samples count, or those of a test part if the data have one. Their classes are
        matched with the model's by name: some may be missing, and others are left out with a warning. Images are read
        and scaled as in training; those that cannot be read are left out with a warning.
    output : path-like, optional
        JSON file of the scores, beside which an .npz file of the same name gets the predictions, for
        ``write_report``. Default: "evaluation_DATA.json" beside the file of the model; none for a model in memory.
    pixel_scale, antialias : optional
        As in ``predict_files``.
    announce : callable
        Called with the report and the paths written, such as ``print``. Default: nothing is shown.
    **options
        Of ``datasets.load``: image_size, color, target_column, ...

    Returns
    -------
    dict
        The scores of ``evaluation.report``, "samples_of_class", and as far as the model has a density or a score of
        unknown samples "unfamiliar_share" and "unknown_share".

    Raises
    ------
    FileNotFoundError, ValueError
        When model or data cannot be loaded, or have no class in common.

    Examples
    --------
    >>> import deepsimplex as ds
    >>> (x, y), _ = ds.datasets.load("digits")
    >>> model = ds.SimplexClassifier(ds.backbones.mlp([16]), num_classes=10)
    >>> model.compile()
    >>> history = model.fit(x, y, epochs=2, verbose=0)
    >>> evaluate_on(model, "digits")["samples"]
    1797
    """
    classifier, path = load_any_classifier(model)
    class_names = class_names_of(classifier)
    is_network = isinstance(classifier, keras.Model)
    source = Path(data).expanduser()
    if output is None and path is not None:
        output = path.parent / f"evaluation_{source.resolve().stem}.json"
    target = None if output is None else check_output(output, ".json")
    is_files = source.is_dir() or source.suffix.lower() == ".csv"
    reading = None
    if is_network and is_image_shape(input_shape(classifier)):
        size, color = options.pop("image_size", None), options.pop("color", None)
        reading = ImageReading.of(classifier, size, color, pixel_scale, antialias)
    if is_files and reading is not None:
        options = {
            "image_size": reading.size,
            "color": reading.color,
            "antialias": reading.antialias,
            "on_error": "skip",
            **options,
        }
        announce(f"images of other sizes are {reading}")
    as_bytes = reading is not None and (is_files or reading.pixel_scale == 1)
    loaded = load_tested(data, class_names, dtype="uint8" if as_bytes else "float32", **options)
    x = reading.samples(loaded.x) if reading is not None and as_bytes else loaded.x
    if loaded.feature_names is not None:
        names, count = features_of(classifier)
        if names is None:
            check_count(loaded.feature_names, count, data)
        else:
            x = x[:, named_columns(loaded.feature_names, names, data)]
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "X does not have valid feature names")  # they were checked
        predicted = classifier.predict_all(x, **({"batch_size": BATCH} if is_network else {}))
    report, scores = scores_of(loaded.y, predicted, class_names)
    counts = dict(zip(class_names, np.bincount(loaded.y, minlength=len(class_names)).tolist(), strict=True))
    scores |= {"samples_of_class": counts, "data": os.fspath(data)}
    if missing := [name for name, count in counts.items() if not count]:
        announce(f"no sample of class {', '.join(missing)} in {data}")
    announce(str(report))
    if target is not None:
        with replacing(target) as fresh:
            fresh.write_text(json.dumps(json_value(scores), indent=2, allow_nan=False) + "\n", encoding="utf-8")
        images = x if x.ndim >= 3 and reading is not None and reading.pixel_scale in (1, 255) else None
        predictions = target.with_suffix(".npz")
        save_predictions(
            predictions,
            loaded.y,
            predicted["probabilities"],
            images=images,
            class_names=class_names,
            groups=loaded.groups,
        )
        announce(f"scores in {target}, predictions in {predictions}")
    return scores
