"""Configuration of a run on a folder of images or on a table, without a YAML file."""

import os
import re
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from deepsimplex._utils.messages import guided, listed
from deepsimplex.calibration.conformal_sets import least_samples
from deepsimplex.datasets.image_files import list_images, read_files
from deepsimplex.datasets.image_lists import is_table, listed_files
from deepsimplex.datasets.tables import read_table
from deepsimplex.experiments.configuration import (
    ConfigurationError,
    RunConfig,
    check_members,
    checked_config,
    read_options,
)

LONGEST_SIDE = 64  # of the images that a network is trained on
MOST_LOOKED_AT = 50  # images, for their usual size and color
VALIDATION_FRACTION = 0.2
COVERAGE = 0.9


def folder_config(data: str | os.PathLike[str], overrides: Sequence[str] = ()) -> RunConfig:
    """Make a configuration for images or a table without a YAML file, by their number and sizes.

    A convolutional network is trained on images of the size of most of them, at most 64 pixels a side, in gray if all
    are gray; files that cannot be read are left out with a warning. A fifth of the training samples validates; the
    density and the score of unknown samples are fitted, and the probabilities calibrated; sets of classes with a
    coverage of 0.9 too, where there are enough samples. Of a table a perceptron is trained, which normalizes columns.

    Parameters
    ----------
    data : path-like
        A folder of images by class, a .csv file that lists them or a .csv table, as in ``datasets.load``; or a name of
        it.
    overrides : sequence of str
        As in ``load_config``; "target_column=NAME", which tables need, is short for "data.options.target_column=NAME".

    Returns
    -------
    RunConfig
        Named after the folder; ``as_yaml`` writes it as a file to go on from.

    Raises
    ------
    ConfigurationError
        As ``load_config``, and for a table without the column of labels.

    Examples
    --------
    >>> folder_config("digits", ["training.epochs=3"]).model.backbone["name"]
    'cnn'
    """
    return check_members(read_folder(data, overrides), f"configuration for {data}")


def read_folder(data: str | os.PathLike[str], overrides: Sequence[str] = ()) -> RunConfig:
    """Make the same configuration without its last checks, which need Keras: ``check_members`` has them.

    Examples
    --------
    >>> read_folder("digits", ["training.epochs=3"]).training.epochs
    3
    """
    place = Path(data).expanduser()
    overrides = [re.sub("^target_column=", "data.options.target_column=", override) for override in overrides]
    named = place.resolve() if place.exists() else place
    name = re.sub(r"[^A-Za-z0-9_.-]", "_", named.name if named.is_dir() else named.stem).lstrip("_.-") or "images"
    rows = _labeled_rows(place, overrides) if is_table(place) else 0
    files = [] if rows else _image_files(place)
    options: dict[str, Any] = {}
    if files:
        size, color = _usual_size_and_color(files)
        options = {"image_size": size, "color": color, "on_error": "skip"}
    small = not files or max(size) < 48
    backbone = {"name": "cnn", "filters": [32, 64] if small else [32, 64, 128], "dropout": 0.2}
    samples = rows or len(files)
    validated = int(VALIDATION_FRACTION * 0.8 * samples) if samples else 2 * least_samples(COVERAGE)
    content: dict[str, Any] = {
        "name": name,
        "data": {"name": os.path.expanduser(data), "options": options, "validation_fraction": VALIDATION_FRACTION},
        "model": {"backbone": {"name": "mlp", "normalize": True} if rows else backbone},
        "training": {"epochs": 30, "schedule": "cosine"},
        "calibration": {
            "density": "nearest_neighbors",
            "method": "temperature",
            "coverage": COVERAGE if validated // 2 >= least_samples(COVERAGE) else None,
            "unknown": True,
        },
    }
    return checked_config(content, overrides, f"configuration for {data}")


def _labeled_rows(table: Path, overrides: Sequence[str]) -> int:
    """Return the number of rows of a table, which must have the column of labels that the overrides name."""
    header, lines = read_table(table, "")
    target = read_options(overrides).get("data", {}).get("options", {}).get("target_column")
    if str(target) not in header:
        raise guided(
            "tables.md#in-a-shell",
            f"{table} lists no images in a column 'file', and a table needs the name of its column of labels, as in "
            f"{shlex.join(['deepsimplex', 'train', str(table), f'target_column={header[-1]}'])}; found "
            f"target_column={target} and the columns {listed(header)}",
            ConfigurationError,
        )
    return len(lines)


def _image_files(place: Path) -> list[Path]:
    """Return the image files of a folder or a list; none of data by name and of archives."""
    if place.is_dir():
        return list_images(place)[0]
    return listed_files(place, read_table(place, "file")) if place.suffix.lower() == ".csv" and place.is_file() else []


def _usual_size_and_color(files: Sequence[Path]) -> tuple[list[int], str]:
    """Return the median (height, width) of some images, scaled to at most 64 pixels a side, and their color."""
    some = files[:: -(-len(files) // MOST_LOOKED_AT)]
    read = list(read_files(some, None, "rgb"))
    images = [image.pixels for image in read if image.pixels is not None]
    if not images:
        raise ConfigurationError(
            f"files must be images; none of {len(some)} can be read, such as {some[0]}: {read[0].remark}"
        )
    height, width = np.median([image.shape[:2] for image in images], axis=0)
    factor = min(1.0, LONGEST_SIDE / max(height, width))
    is_gray = all((image[..., :1] == image).all() for image in images)
    return [max(1, round(side * factor)) for side in (height, width)], "grayscale" if is_gray else "rgb"
