"""Predictions for a test set, kept in a file, so that they can be looked at without the model and the data."""

import os
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from deepsimplex._utils.atomic_files import load_arrays, replacing, save_arrays
from deepsimplex._utils.validation import check_labels_and_probabilities, check_whole
from deepsimplex.evaluation import uncertainty
from deepsimplex.latent import LatentGaussian
from deepsimplex.readout import READOUTS

__all__ = ["Predictions", "load_predictions", "save_predictions"]

KEY = "deepsimplex predictions 1"
KEEP = 16
"""Images kept of the least certain samples, and as many of the surest mistakes: more than a page shows."""


@dataclass(frozen=True, eq=False)
class Predictions:
    """What a classifier said about a test set.

    Attributes
    ----------
    y : ndarray, shape [N], int64
        True class numbers.
    p : ndarray, shape [N, n]
        Class probabilities.
    class_names : tuple of str, length n
        The class numbers where none were given.
    latent : LatentGaussian, optional
        The Gaussians [N, L] that the probabilities were read out of.
    scores : ndarray, shape [n, L], optional
        Scores S of the readout; None with latents stands for the vertices.
    readout : str, optional
        Its name.
    images : ndarray, shape [M, H, W] or [M, H, W, 3], uint8, optional
        The few test images that were kept.
    image_rows : ndarray, shape [M], int64, optional
        The rows of ``p`` that they belong to, in rising order.

    Examples
    --------
    >>> save_predictions(folder / "forest.npz", [0, 1], [[0.9, 0.1], [0.4, 0.6]], class_names=["cat", "dog"])
    >>> load_predictions(folder / "forest.npz").class_names
    ('cat', 'dog')
    """

    y: NDArray[np.int64]
    p: NDArray[np.floating]
    class_names: tuple[str, ...]
    latent: LatentGaussian | None = None
    scores: NDArray[np.float64] | None = None
    readout: str | None = None
    images: NDArray[np.uint8] | None = None
    image_rows: NDArray[np.int64] | None = None

    @classmethod
    def of(
        cls,
        y: ArrayLike,
        p: ArrayLike,
        *,
        latent: LatentGaussian | dict[str, Any] | None = None,
        scores: ArrayLike | None = None,
        readout: str | None = None,
        images: ArrayLike | None = None,
        class_names: Sequence[str] | None = None,
        keep: int = KEEP,
    ) -> "Predictions":
        """Check predictions, as ``save_predictions`` takes them, and choose the images to keep."""
        labels, probabilities = check_labels_and_probabilities(y, p)
        check_whole(keep, "keep", 1)
        pixels, kept = None, None
        if images is not None:
            kept = _memorable(labels, probabilities, keep)
            pixels = _as_bytes(images, len(labels), kept)
        return cls(
            labels,
            probabilities,
            _check_class_names(class_names, probabilities.shape[1]),
            *_check_latent(latent, scores, readout, probabilities.shape),
            pixels,
            kept,
        )

    @property
    def names_classes(self) -> bool:
        """Whether the classes have names of their own, not their numbers alone."""
        return self.class_names != _numbers(self.p.shape[1])


def save_predictions(
    path: str | os.PathLike[str],
    y: ArrayLike,
    p: ArrayLike,
    *,
    latent: LatentGaussian | dict[str, Any] | None = None,
    scores: ArrayLike | None = None,
    readout: str | None = None,
    images: ArrayLike | None = None,
    class_names: Sequence[str] | None = None,
    keep: int = KEEP,
) -> None:
    """Write any classifier's predictions for a test set to an .npz file that ``deepsimplex report`` takes.

    Parameters
    ----------
    path : path-like
        Written whole or not at all.
    y : array_like, shape [N] or [N, 1]
        True class numbers 0..n-1.
    p : array_like, shape [N, n]
        Class probabilities; their precision is kept.
    latent : LatentGaussian or dict, optional
        The Gaussians over latents [N, L] that they were read out of.
    scores : array_like, shape [n, L], optional
        Scores S of the readout. Default: the vertices of the simplex, L = n - 1.
    readout : {"argmax", "softmax"}, optional
        How the probabilities were read out of the latents. Default: not known, and no intervals are drawn of them.
    images : array_like, shape [N, H, W], [N, H, W, 1] or [N, H, W, 3], optional
        The test images, uint8 or in [0, 1]. Only a few are kept, in uint8.
    class_names : sequence of str, length n, optional
        Default: the class numbers.
    keep : int
        Images kept of the samples whose probabilities have the largest entropy, and as many of those whose true class
        has the smallest probability. Default 16.

    Raises
    ------
    TypeError, ValueError
        When an argument breaks the above.
    OSError
        When the file cannot be written.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from sklearn.ensemble import RandomForestClassifier
    >>> X, y = load_iris(return_X_y=True)
    >>> forest = RandomForestClassifier(20, random_state=0).fit(X[::2], y[::2])
    >>> save_predictions(folder / "forest.npz", y[1::2], forest.predict_proba(X[1::2]))
    >>> load_predictions(folder / "forest.npz").p.shape
    (75, 3)
    """
    predictions = Predictions.of(
        y, p, latent=latent, scores=scores, readout=readout, images=images, class_names=class_names, keep=keep
    )
    arrays: dict[str, Any] = {
        "y": predictions.y,
        "p": predictions.p,
        "class_names": np.array(predictions.class_names),
        "scores": predictions.scores,
        "readout": None if predictions.readout is None else np.array(predictions.readout),
        "images": predictions.images,
        "image_rows": predictions.image_rows,
    }
    if predictions.latent is not None:
        arrays |= {"latent_loc": predictions.latent.loc, "latent_scale": predictions.latent.scale}
    with replacing(path) as fresh:
        save_arrays(fresh, KEY, {name: array for name, array in arrays.items() if array is not None})


def load_predictions(path: str | os.PathLike[str]) -> Predictions:
    """Read predictions that ``save_predictions`` wrote, or arrays of the same names from ``numpy.savez``.

    Parameters
    ----------
    path : path-like
        An .npz file with ``y`` and ``p`` and, if there are any, ``class_names``, ``latent_loc``, ``latent_scale``,
        ``scores`` and ``readout``, ``images`` and ``image_rows``. Nothing in it is unpickled.

    Returns
    -------
    Predictions

    Raises
    ------
    OSError
        When the file is not there or cannot be read.
    ValueError
        When it is damaged, or does not hold predictions; the message names the file.

    Examples
    --------
    >>> np.savez(folder / "other.npz", y=[0, 1], p=[[0.9, 0.1], [0.4, 0.6]])
    >>> load_predictions(folder / "other.npz").class_names
    ('0', '1')
    """
    file = Path(path).expanduser()
    try:
        arrays = _read(file)
    except OSError:  # not there, or not to be read
        raise
    except Exception as error:  # a damaged archive raises anything, from BadZipFile to MemoryError
        raise ValueError(f"{file} is damaged, or no .npz file of plain arrays ({error}); write it again") from error
    if missing := [name for name in ("y", "p") if name not in arrays]:
        raise ValueError(
            f"{file} must hold the arrays y [N] and p [N, n]; {' and '.join(missing)} not among "
            f"{', '.join(sorted(arrays)) or 'no arrays'}"
        )
    try:
        return _from_arrays(arrays)
    except (TypeError, ValueError) as error:
        raise type(error)(f"{file}: {error}") from error


def _read(file: Path) -> dict[str, NDArray[Any]]:
    """The arrays of an archive, by its digest if it has one; without, the archive's own check sums must do."""
    with zipfile.ZipFile(file) as archive:
        signed = "digest.npy" in archive.namelist()
    if signed:
        return load_arrays(file, KEY)
    with file.open("rb") as opened, np.load(opened, allow_pickle=False) as archive:
        return {name: archive[name] for name in archive.files}


def _from_arrays(arrays: dict[str, NDArray[Any]]) -> Predictions:
    """Predictions of arrays as a file holds them."""
    latent = {key: arrays.get(f"latent_{key}") for key in ("loc", "scale")}
    if (latent["loc"] is None) != (latent["scale"] is None):
        raise ValueError("latent_loc and latent_scale belong together; found one of them")
    found = Predictions.of(
        arrays["y"],
        arrays["p"],
        latent=None if latent["loc"] is None else latent,
        scores=arrays.get("scores"),
        readout=str(arrays["readout"]) if "readout" in arrays else None,
        class_names=[str(name) for name in np.atleast_1d(arrays["class_names"])] if "class_names" in arrays else None,
    )
    images = arrays.get("images")
    if images is None:
        return found
    rows = arrays.get("image_rows", np.arange(len(images)))
    inside = rows.dtype.kind in "iu" and rows.ndim == 1 and np.all((rows >= 0) & (rows < len(found.y)))
    if not inside or len(rows) != len(images) or np.any(np.diff(rows) <= 0):
        raise ValueError(
            f"image_rows must hold a row of p for each of the {len(images)} images, in rising order; found {rows}"
        )
    pixels = _as_bytes(images, len(images), np.arange(len(images)))
    return replace(found, images=pixels, image_rows=rows.astype(np.int64))


def _numbers(n: int) -> tuple[str, ...]:
    return tuple(str(k) for k in range(n))


def _check_class_names(class_names: Sequence[str] | None, n: int) -> tuple[str, ...]:
    if class_names is None:
        return _numbers(n)
    names = tuple(str(name) for name in class_names)
    if isinstance(class_names, str) or len(names) != n or len(set(names)) != n:
        raise ValueError(f"class_names must hold {n} different names, one for each column of p; found {class_names!r}")
    return names


def _check_latent(
    latent: LatentGaussian | dict[str, Any] | None, scores: ArrayLike | None, readout: str | None, shape: Any
) -> tuple[LatentGaussian | None, NDArray[np.float64] | None, str | None]:
    """Latents, scores and readout that fit together and to p of such a shape."""
    if latent is None:
        if scores is not None or readout is not None:
            raise ValueError("scores and readout say how p was read out of latents; found them without latent")
        return None, None, None
    gaussians = LatentGaussian.of(latent).numpy()
    samples, n = shape
    if len(gaussians) != samples:
        raise ValueError(f"latent must hold a Gaussian for each of the {samples} rows of p; found {len(gaussians)}")
    if readout is not None:
        READOUTS.get(readout)
    table = None if scores is None else np.asarray(scores, np.float64)
    expected = (n, gaussians.latent_dim)
    if table is None and gaussians.latent_dim != n - 1:
        raise ValueError(
            f"scores [n, L] must be given with latents of dimension {gaussians.latent_dim} and {n} classes: without, L "
            f"must be {n - 1}"
        )
    if table is not None and (table.shape != expected or not np.all(np.isfinite(table))):
        raise ValueError(f"scores must be finite and of shape {expected}; found shape {table.shape}")
    return gaussians, table, readout


def _as_bytes(images: ArrayLike, samples: int, rows: NDArray[np.integer]) -> NDArray[np.uint8]:
    """Some of the images as uint8 [M, H, W] or [M, H, W, 3]."""
    from deepsimplex.plots.image_predictions import check_images  # matplotlib comes in here and not before

    given = np.asarray(images)
    if given.ndim == 0 or len(given) != samples:
        raise ValueError(f"images must hold one for each of the {samples} rows of p; found shape {given.shape}")
    return np.round(255 * check_images(given[rows], len(rows))).astype(np.uint8)


def _memorable(y: NDArray[np.int64], p: NDArray[np.floating], keep: int) -> NDArray[np.int64]:
    """The rows that readers want to see: the least certain ones, and the surest mistakes."""
    least_certain = np.argsort(-uncertainty(p), kind="stable")[:keep]
    most_wrong = np.argsort(-uncertainty(p, "likelihood", y), kind="stable")[:keep]
    return np.union1d(least_certain, most_wrong).astype(np.int64)
