"""The least certain and the least familiar test images of a run, with the pixels that make them so, in a file."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from deepsimplex._utils.archives import load_arrays, naming_damage, save_arrays
from deepsimplex._utils.atomic_files import replacing
from deepsimplex.evaluation import uncertainty

if TYPE_CHECKING:  # they import Keras, which reports do not need to find their runs
    from deepsimplex.classifier import SimplexClassifier
    from deepsimplex.classifier.saliency_maps import Explained

KEY = "deepsimplex explained images 1"
EXPLAINED = 6
"""Number of images of each kind."""
KINDS = ("uncertain", "unfamiliar")


@dataclass(frozen=True, eq=False)
class ExplainedImages:
    """Images with their saliency maps.

    Attributes
    ----------
    images : ndarray, shape [K, H, W] or [K, H, W, C]
    maps : ndarray, shape [K, H, W]
    titles : tuple of str, length K
        What is predicted, and the classes of the nearest prototypes if the head has them.
    """

    images: NDArray[np.generic]
    maps: NDArray[np.floating]
    titles: tuple[str, ...]


def explain_images(
    model: "SimplexClassifier", x: NDArray[np.generic], y: NDArray[np.int64], predicted: Mapping[str, Any]
) -> dict[str, ExplainedImages]:
    """Compute saliency maps of the test images of largest entropy and, with a density, of least familiarity.

    Parameters
    ----------
    model : SimplexClassifier
    x : ndarray, shape [N, H, W] or [N, H, W, C]
        The mean of these images is the baseline.
    y : ndarray, shape [N]
        True class numbers.
    predicted : mapping
        ``model.predict_all(x)``.

    Returns
    -------
    dict of str to ExplainedImages
        By "uncertain" and "unfamiliar".
    """
    names, baseline, p = model.class_names, x.mean(axis=0), predicted["probabilities"]

    def explained(rows: NDArray[np.int64], of: "Explained", heads: list[str]) -> ExplainedImages:
        nearest = [""] * len(rows)
        if hasattr(model.head, "prototypes"):
            nearest = [f"\nnear {', '.join(labels)}" for labels in model.explain(x[rows]).labels]
        maps = model.saliency(x[rows], of, baseline=baseline)
        return ExplainedImages(x[rows], maps, tuple(map("".join, zip(heads, nearest, strict=True))))

    assigned = [f"{names[k]}, true {names[label]}" for k, label in zip(p.argmax(axis=1), y, strict=True)]
    rows = np.argsort(-uncertainty(p), kind="stable")[:EXPLAINED]
    content = {"uncertain": explained(rows, "probability", [f"{p[i].max():.2f} {assigned[i]}" for i in rows])}
    if "familiarity" in predicted:
        familiarity = predicted["familiarity"]
        rows = np.argsort(familiarity, kind="stable")[:EXPLAINED]
        heads = [f"familiarity {familiarity[i]:.3f}\n{assigned[i]}" for i in rows]
        content["unfamiliar"] = explained(rows, "familiarity", heads)
    return content


def save_explained(path: str | os.PathLike[str], content: Mapping[str, ExplainedImages]) -> None:
    """Write explained images to an .npz file, atomically."""
    arrays = {
        f"{kind}_{name}": np.asarray(getattr(each, name))
        for kind, each in content.items()
        for name in ("images", "maps", "titles")
    }
    with replacing(path) as fresh:
        save_arrays(fresh, KEY, arrays)


def load_explained(path: str | os.PathLike[str]) -> dict[str, ExplainedImages]:
    """Read what ``save_explained`` wrote; nothing in the file is unpickled."""
    with naming_damage(Path(path), "digest.npy", "is damaged", "'deepsimplex evaluate' writes it again"):
        arrays = load_arrays(path, KEY)
    return {
        kind: ExplainedImages(
            arrays[f"{kind}_images"], arrays[f"{kind}_maps"], tuple(arrays[f"{kind}_titles"].tolist())
        )
        for kind in KINDS
        if f"{kind}_images" in arrays
    }
