"""Load labeled data by name, or from a file or a folder."""

import inspect
import os
import warnings
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from deepsimplex._utils.atomic_files import check_path
from deepsimplex._utils.messages import did_you_mean
from deepsimplex._utils.parameters import check_arguments
from deepsimplex._utils.validation import check_choice
from deepsimplex.datasets.image_folders import class_folders, read_folder
from deepsimplex.datasets.image_lists import is_image_list, read_list
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
    image_size: int | Sequence[int] | None = None,
    color: str | None = None,
    on_error: str = "raise",
    target_column: str | int | None = None,
    groups: str | ArrayLike | None = None,
    time: str | ArrayLike | None = None,
    class_names: Sequence[str] | None = None,
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
        - a path to a .csv file with a header, of columns of numbers separated by commas, semicolons or tabs;
        - a path to a .csv file with a column "file" of images, relative to its folder, and a column "label"; perhaps
          also "group", as for ``groups``, and "split" with "train" or "test".
    dtype : {"float32", "uint8"}
        Images as float32 in [0, 1] (default), or as the integers 0..255 that the source holds. Tables are float32,
        not scaled.
    test_fraction : float, optional
        Share of every class held out for testing, for a source without a test part. The default is 0.2; 0 holds none
        out and keeps the order.
    seed : int
        Seed of that split, which is the same in every call. The default is 0.
    image_size : int or (height, width), optional
        Folders and lists of images only: the size to scale images to, antialiased. By default all must have
        the same.
    color : {"rgb", "grayscale"}, optional
        Folders and lists of images only; "rgb" by default. Gray images are [N, H, W].
    on_error : {"raise", "skip"}
        Folders and lists of images only: whether images that cannot be read raise an error that names them all, which
        is the default, or are left out with a warning.
    target_column : str or int, optional
        CSV only, where it is required but for a list of images: the column of labels, by its name in the header. Labels
        are names of classes, numbered in sorted order.
    groups : str or array_like, shape [N], optional
        Groups of the samples, such as patients: samples of one group are all held out or all trained on. A random split
        of several images of a patient tests on what was learned. For a .csv the name of a column, which is then no
        feature; for an .npz the name of an array; for a folder a regular expression with one group in parentheses,
        searched in the path below the folder, such as "(patient[0-9]+)", or "folder", the folder inside that of the
        class. An array has a value for each sample, those of a test part last (not for folders). The default is None.
    time : str or array_like, shape [N], optional
        Times of the samples, given as ``groups``: the latest are held out, samples of equal time together; with
        ``groups`` the groups of the latest samples. Numbers, or dates such as 2024-05-31. The default is None.
    class_names : sequence of str, optional
        The classes by number, such as those of a trained model; data may lack some, and other classes are left out with
        a warning. By default those of the data.

    Returns
    -------
    LabeledData
        Unpacks as ``(x, y), (x_test, y_test)``; also has ``class_names`` and ``name``.

    Raises
    ------
    ValueError
        When ``name`` is unknown, an option does not apply, a file is damaged or its content fails the checks; when a
        group is in both parts of a source that has a test part.
    FileNotFoundError
        When a path does not exist.
    OSError
        When a data set is found nowhere and cannot be downloaded.

    Warns
    -----
    UserWarning
        When files or columns are left out, when images of a file or folder are both in the training and in the test
        part, or in two classes, when a class has no test sample as its groups cannot be divided, and when single
        precision cannot resolve a column.

    Examples
    --------
    >>> (x, y), (x_test, y_test) = load("digits")
    >>> x.shape, x_test.shape, float(x.max())
    ((1437, 8, 8), (360, 8, 8), 1.0)
    """
    source = _read(name, dtype, image_size, color, on_error, target_column, groups, time, class_names)
    return finish(source, os.fspath(name), dtype, test_fraction, seed, class_names)


KNOWN = inspect.signature(load).parameters
READ_OPTIONS = ("image_size", "color", "on_error", "target_column", "groups", "time")


def load_tested(
    name: str | os.PathLike[str],
    class_names: Sequence[str],
    *,
    dtype: str = "float32",
    antialias: bool = True,
    **options: Any,
) -> LabeledData:
    """Load all samples, or the test part of a source that has one, as training samples, for a model's evaluation.

    ``class_names`` are those of the model, ``antialias`` is as in ``read_images``; further options as in ``load``.
    """
    check_arguments(options, {each: KNOWN[each] for each in READ_OPTIONS}, "the data")
    given = {each: options.get(each, KNOWN[each].default) for each in READ_OPTIONS}
    source = _read(name, dtype, class_names=class_names, antialias=antialias, **given)
    if source.test is not None:
        (x, y), rows = source.test, slice(len(source.x), None)
        by_row = {each: None if (v := getattr(source, each)) is None else v[rows] for each in ("groups", "time")}
        naming = source.name_of
        source = replace(source, x=x, y=y, test=None, name_of=naming and (lambda k: naming(k + rows.start)), **by_row)
    return finish(source, os.fspath(name), dtype, 0.0, 0, class_names)


def _read(
    name: str | os.PathLike[str],
    dtype: str,
    image_size: int | Sequence[int] | None,
    color: str | None,
    on_error: str,
    target_column: str | int | None,
    groups: str | ArrayLike | None,
    time: str | ArrayLike | None,
    class_names: Sequence[str] | None,
    antialias: bool = True,
) -> Source:
    check_choice(dtype, "dtype", DTYPES)
    check_path(name, "name")
    label = name = os.path.expanduser(name)
    kind = source_kind(name)
    images = ("folder", "list of images")
    for option, is_given, homes in (
        ("image_size", image_size is not None, images),
        ("color", color is not None, images),
        ("on_error", on_error != "raise", images),
        ("target_column", target_column is not None, ("csv", "list of images")),
        ("groups by name", isinstance(groups, str), ("npz", "csv", *images)),
        ("time by name", isinstance(time, str), ("npz", "csv", *images)),
    ):
        if is_given and kind not in homes:
            raise ValueError(f"{option} applies to a {' or a '.join(homes)} only; {label} is a {kind}")
    if kind == "name":
        source = _read_digits() if label == "digits" else read_image_set(label)
        return replace(source, groups=groups, time=time)
    if kind == "folder":
        return read_folder(name, image_size, color, on_error, groups, time, class_names, antialias)
    if kind == "list of images":
        return read_list(name, image_size, color, on_error, target_column, groups, time, antialias)
    return read_npz(name, groups, time) if kind == "npz" else read_csv(name, target_column, groups, time)


def _read_digits() -> Source:
    """scikit-learn's 1797 handwritten digits, 8 x 8; their gray levels 0..16 are scaled to [0, 1]."""
    from sklearn.datasets import load_digits

    digits = load_digits()
    return Source((digits.images / 16).astype(np.float32), digits.target)


def check_source(name: str | os.PathLike[str], class_names: Sequence[str] | None = None) -> None:
    """Raise for a source that does not exist, and for a folder without folders of classes; warn of nothing."""
    if source_kind(name) == "folder":
        with warnings.catch_warnings(action="ignore"):
            class_folders(Path(name).expanduser(), class_names)


def source_kind(name: str | os.PathLike[str]) -> str:
    """Return "name", "folder", "npz", "csv" or "list of images", or raise for what is none of them."""
    label, path = os.fspath(name), Path(name).expanduser()
    if label in NAMES:
        return "name"
    if path.is_dir():
        return "folder"
    kind = path.suffix.lower().removeprefix(".")
    if kind in ("npz", "csv"):
        if not path.is_file():
            raise FileNotFoundError(f"name must be a file that exists; found no {label}")
        return "list of images" if kind == "csv" and is_image_list(path) else kind
    folders = [str(place) for place in path.parent.glob("*") if place.is_dir()]
    raise ValueError(
        f"there is no folder or data set {label!r}{did_you_mean(label, [*NAMES, *folders]) or '.'} name may be "
        f"{', '.join(NAMES)}, or the path of a .npz file, a .csv file or a folder with a subfolder of images per class"
    )
