"""Predictions of a test set in a file, for reports without the model and the data."""

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from deepsimplex._utils.archives import load_arrays, naming_damage, save_arrays
from deepsimplex._utils.atomic_files import replacing
from deepsimplex._utils.validation import (
    check_array,
    check_class_names,
    check_groups,
    check_labels,
    check_probabilities,
    check_whole,
    unmasked,
)
from deepsimplex.evaluation import uncertainty
from deepsimplex.latent import LatentGaussian

if TYPE_CHECKING:
    import keras

KEY = "deepsimplex predictions 1"
KEEP = 16
"""Number of images kept of the least certain samples, and of the most confident mistakes."""


@dataclass(frozen=True, eq=False)
class Predictions:
    """Predictions of a classifier for a test set.

    Attributes
    ----------
    y : ndarray, shape [N], int64
        True class numbers.
    p : ndarray, shape [N, n]
        Class probabilities.
    class_names : tuple of str, length n
        The class numbers if none were given.
    latent : LatentGaussian, optional
        The Gaussians [N, L] that the probabilities were read out of.
    scores : ndarray, shape [n, L], optional
        Scores S of the readout; None with latents stands for the vertices.
    readout : keras.layers.Layer, optional
        The readout.
    images : ndarray, shape [M, H, W] or [M, H, W, 3], uint8, optional
        The few test images that were kept.
    image_rows : ndarray, shape [M], int64, optional
        The rows of ``p`` that they belong to, ascending.
    groups : ndarray, shape [N], int64, optional
        Number of the group of each sample, such as its patient.

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
    readout: "keras.layers.Layer | None" = None
    images: NDArray[np.uint8] | None = None
    image_rows: NDArray[np.int64] | None = None
    groups: NDArray[np.int64] | None = None

    @classmethod
    def of(
        cls,
        y: ArrayLike,
        p: ArrayLike,
        *,
        latent: LatentGaussian | dict[str, Any] | None = None,
        scores: ArrayLike | None = None,
        readout: "str | keras.layers.Layer | None" = None,
        images: ArrayLike | None = None,
        class_names: Sequence[Any] | None = None,
        groups: ArrayLike | None = None,
        keep: int = KEEP,
    ) -> "Predictions":
        """Check predictions and choose the images to keep; arguments as in ``save_predictions``."""
        probabilities = check_probabilities(p)
        samples, n = probabilities.shape
        names = check_class_names(class_names, n, "class_names")
        # Names that are text leave numbers for numbers.
        kind = np.asarray(unmasked(y, "y").ravel().tolist()).dtype.kind
        numbered = class_names is None or (kind in "biuf" and all(isinstance(name, str) for name in names))
        hint = "Pass the names of the classes, in the order of the columns, as class_names"
        labels, _ = check_labels(y, n, rows=samples, of="p", classes=None if numbered else names, hint=hint)
        check_whole(keep, "keep", 1)
        pixels, rows = None, None
        if images is not None:
            # The least certain samples and the surest mistakes.
            least_certain = np.argsort(-uncertainty(probabilities), kind="stable")[:keep]
            most_wrong = np.argsort(-uncertainty(probabilities, "likelihood", labels), kind="stable")[:keep]
            rows = np.union1d(least_certain, most_wrong).astype(np.int64)
            pixels = _as_bytes(images, len(labels), rows)
        return cls(
            labels,
            probabilities,
            tuple(map(str, names)),
            *_check_latent(latent, scores, readout, probabilities.shape),
            pixels,
            rows,
            None if groups is None else _group_numbers(groups, len(labels)),
        )

    @property
    def names_classes(self) -> bool:
        """Whether the classes have names other than their numbers."""
        return self.class_names != tuple(map(str, range(self.p.shape[1])))


def save_predictions(
    path: str | os.PathLike[str],
    y: ArrayLike,
    p: ArrayLike,
    *,
    latent: LatentGaussian | dict[str, Any] | None = None,
    scores: ArrayLike | None = None,
    readout: "str | keras.layers.Layer | None" = None,
    images: ArrayLike | None = None,
    class_names: Sequence[Any] | None = None,
    groups: ArrayLike | None = None,
    keep: int = KEEP,
) -> None:
    """Write any classifier's predictions for a test set to an .npz file for ``deepsimplex report``.

    Parameters
    ----------
    path : path-like
        Written atomically.
    y : array_like, shape [N] or [N, 1]
        True classes: numbers 0..n-1, or names that ``class_names`` holds.
    p : array_like, shape [N, n]
        Class probabilities; their precision is kept.
    latent : LatentGaussian or dict, optional
        The Gaussians over latents [N, L] that the probabilities were read out of.
    scores : array_like, shape [n, L], optional
        Scores S of the readout. Default: the vertices of the simplex, L = n - 1.
    readout : str or keras.layers.Layer, optional
        The readout: "argmax", "softmax", "module:Class", or a layer. Default None: not known, no intervals.
    images : array_like, shape [N, H, W], [N, H, W, 1] or [N, H, W, 3], optional
        The test images, uint8 or in [0, 1]. Only a few are kept, as uint8.
    class_names : sequence, length n, optional
        The name of each column of ``p``, saved as text: ``model.classes_``. Default: the class numbers.
    groups : array_like, shape [N], optional
        Group of each sample, such as its patient: the report resamples whole groups for its intervals. Default None.
    keep : int
        Number of images kept of the samples with the largest entropy, and as many of those with the smallest
        probability of the true class. Default 16.

    Raises
    ------
    TypeError, ValueError
        When an argument has another type, shape or range.
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
        y,
        p,
        latent=latent,
        scores=scores,
        readout=readout,
        images=images,
        class_names=class_names,
        groups=groups,
        keep=keep,
    )
    names = ("y", "p", "class_names", "scores", "images", "image_rows", "groups")
    arrays = {name: np.asarray(value) for name in names if (value := getattr(predictions, name)) is not None}
    if predictions.latent is not None:
        arrays |= {f"latent_{name}": array for name, array in predictions.latent.as_dict().items()}
    if predictions.readout is not None:
        from deepsimplex.readout import READOUTS  # imported where needed: it imports Keras

        arrays["readout"] = np.array(READOUTS.name_of(predictions.readout))
        arrays["readout_config"] = np.array(json.dumps(predictions.readout.get_config()))
    with replacing(path) as fresh:
        save_arrays(fresh, KEY, arrays)


def load_predictions(path: str | os.PathLike[str]) -> Predictions:
    """Read predictions that ``save_predictions`` wrote.

    Parameters
    ----------
    path : path-like
        An .npz file. Nothing in it is unpickled.

    Returns
    -------
    Predictions

    Raises
    ------
    OSError
        When the file does not exist or cannot be read.
    ValueError
        When it is damaged, or holds something else; the message names the file.

    Examples
    --------
    >>> save_predictions(folder / "coin.npz", [0, 1], [[0.5, 0.5], [0.5, 0.5]])
    >>> load_predictions(folder / "coin.npz").class_names
    ('0', '1')
    """
    file = Path(path).expanduser()
    with naming_damage(file, "p.npy", "is damaged, or no file of save_predictions", "write it again"):
        arrays = load_arrays(file, KEY)
    latent, readout = None, None
    if "latent_loc" in arrays:
        latent = LatentGaussian(arrays["latent_loc"], arrays["latent_scale"])
    if "readout" in arrays:
        from deepsimplex.readout import READOUTS

        readout = READOUTS.find(str(arrays["readout"])).from_config(json.loads(str(arrays["readout_config"])))
    return Predictions(
        arrays["y"],
        arrays["p"],
        tuple(arrays["class_names"].tolist()),
        latent,
        readout=readout,
        **{name: arrays.get(name) for name in ("scores", "images", "image_rows", "groups")},
    )


def _check_latent(
    latent: LatentGaussian | dict[str, Any] | None, scores: ArrayLike | None, readout: Any, shape: Any
) -> "tuple[LatentGaussian | None, NDArray[np.float64] | None, keras.layers.Layer | None]":
    """Check that latents, scores and readout fit one another and p of such a shape."""
    if latent is None:
        if scores is not None or readout is not None:
            raise ValueError("scores and readout say how p was read out of latents; found them without latent")
        return None, None, None
    gaussians = LatentGaussian.of(latent).numpy()
    samples, n = shape
    if len(gaussians) != samples:
        raise ValueError(f"latent must hold a Gaussian for each of the {samples} rows of p; found {len(gaussians)}")
    dims = gaussians.latent_dim
    if scores is not None:
        scores = check_array(scores, "scores", "[n, L]", rows=n, columns=dims, of="classes")
    elif dims != n - 1:
        raise ValueError(
            f"scores [n, L] must be given with latents of dimension {dims} and {n} classes: without, L must be {n - 1}"
        )
    if readout is not None:
        from deepsimplex.readout import READOUTS

        readout = READOUTS.get(readout)
    return gaussians, scores, readout


def _group_numbers(groups: ArrayLike, samples: int) -> NDArray[np.int64]:
    return np.unique(check_groups(groups, samples, "row of p"), return_inverse=True)[1].astype(np.int64)


def _as_bytes(images: ArrayLike, samples: int, rows: NDArray[np.integer]) -> NDArray[np.uint8]:
    """Return some of the images as uint8 [M, H, W] or [M, H, W, 3]."""
    from deepsimplex.plots.image_predictions import check_images  # imported here: it imports matplotlib

    given = unmasked(images, "images")
    if given.ndim == 0 or len(given) != samples:
        raise ValueError(f"images must hold one for each of the {samples} rows of p; found shape {given.shape}")
    return np.round(255 * check_images(given[rows], len(rows))).astype(np.uint8)
