"""Load labeled data by name, or from a file or a folder."""

import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from deepsimplex._utils.atomic_files import check_path
from deepsimplex._utils.messages import did_you_mean
from deepsimplex._utils.validation import check_choice
from deepsimplex.datasets.image_folders import read_folder
from deepsimplex.datasets.image_sets import IMAGE_SETS, read_image_set
from deepsimplex.datasets.labeled import DTYPES, LabeledData, Source, finish
from deepsimplex.datasets.npz_files import read_npz
from deepsimplex.datasets.tables import read_csv

NAMES = tuple(sorted(["digits", *IMAGE_SETS]))


def load(
    name: str | os.PathLike[str],
    *,
    dtype: str = "float32",
    test_fraction: float | None = None,
    seed: int = 0,
    image_size: Sequence[int] | None = None,
    color: str | None = None,
    on_error: str = "raise",
    target_column: str | int | None = None,
) -> LabeledData:
    """Load labeled data, split into a training and a test part.

    Parameters
    ----------
    name : str or path-like
        - "digits": scikit-learn's 1797 handwritten digits [N, 8, 8], no download;
        - "mnist", "fashion_mnist" [N, 28, 28]: from the Keras cache, the folder named by the environment variable
          DEEPSIMPLEX_DATA (NAME.npz, or NAME/ with the four idx .gz files), Debian's package dataset-fashion-mnist,
          or downloaded through ``keras.datasets``, whichever comes first;
        - "cifar10" [N, 32, 32, 3]: the same, with cifar10.npz or the binary version's folder cifar-10-batches-bin/;
        - a path to a .npz file with x_train, y_train, x_test, y_test, or x and y, and perhaps class_names;
        - a path to a folder with one subfolder of images per class, or with train/ and test/ of such. Images are turned
          upright by their EXIF orientation; hidden files and folders are not read;
        - a path to a .csv file with a header, of columns of numbers separated by commas, semicolons or tabs.
    dtype : {"float32", "uint8"}
        Images as float32 in [0, 1] (default), or as the integers 0..255 that the source holds. Tables are float32,
        not scaled.
    test_fraction : float, optional
        Share of every class held out for testing, for a source without a test part. The default is 0.2.
    seed : int
        Seed of that split, which is the same in every call. The default is 0.
    image_size : (height, width), optional
        Folders only: the size to scale images to. By default all must have the same.
    color : {"rgb", "grayscale"}, optional
        Folders only; "rgb" by default. Gray images are [N, H, W].
    on_error : {"raise", "skip"}
        Folders only: whether images that cannot be read raise an error that names them all, which is the default, or
        are left out with a warning.
    target_column : str or int, optional
        CSV only, where it is required: the column of labels, by its name in the header. Labels are names of classes,
        numbered in sorted order.

    Returns
    -------
    LabeledData
        Unpacks as ``(x, y), (x_test, y_test)``; also has ``class_names`` and ``name``.

    Raises
    ------
    ValueError
        When ``name`` is unknown, an option does not apply, a file is damaged or its content fails the checks.
    FileNotFoundError
        When a path does not exist.
    OSError
        When a data set is found nowhere and cannot be downloaded.

    Warns
    -----
    UserWarning
        When files or columns are left out, when images of a file or folder are both in the training and in the test
        part, or in two classes, and when single precision cannot resolve a column.

    Examples
    --------
    >>> (x, y), (x_test, y_test) = load("digits")
    >>> x.shape, x_test.shape, float(x.max())
    ((1437, 8, 8), (360, 8, 8), 1.0)
    """
    check_choice(dtype, "dtype", DTYPES)
    check_path(name, "name")
    label, kind = os.fspath(name), _kind(name)
    for option, is_given, home in (
        ("image_size", image_size is not None, "folder"),
        ("color", color is not None, "folder"),
        ("on_error", on_error != "raise", "folder"),
        ("target_column", target_column is not None, "csv"),
    ):
        if is_given and kind != home:
            raise ValueError(f"{option} applies to a {home} only; {label} is a {kind}")
    if kind == "name":
        source = _read_digits() if label == "digits" else read_image_set(label)
    elif kind == "folder":
        source = read_folder(name, image_size, color, on_error)
    else:
        source = read_npz(name) if kind == "npz" else read_csv(name, target_column)
    return finish(source, label, dtype, test_fraction, seed)


def _read_digits() -> Source:
    """scikit-learn's 1797 handwritten digits, 8 x 8; their gray levels 0..16 are scaled to [0, 1]."""
    from sklearn.datasets import load_digits

    digits = load_digits()
    return Source((digits.images / 16).astype(np.float32), digits.target)


def _kind(name: str | os.PathLike[str]) -> str:
    """One of "name", "folder", "npz" and "csv"."""
    label, path = os.fspath(name), Path(name)
    if label in NAMES:
        return "name"
    if path.is_dir():
        return "folder"
    kind = path.suffix.lower().removeprefix(".")
    if kind in ("npz", "csv"):
        if not path.is_file():
            raise FileNotFoundError(f"name must be a file that exists; found no {label}")
        return kind
    hint = did_you_mean(label, NAMES) or "."
    raise ValueError(
        f"name {label!r} is unknown{hint} Known are {', '.join(NAMES)}, and paths to a .npz file, to a .csv file and "
        "to a folder with one subfolder of images per class"
    )
