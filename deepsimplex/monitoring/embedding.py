"""Latent means for TensorBoard's embedding projector."""

import math
from pathlib import Path

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray
from tensorboard.plugins import projector

from deepsimplex._utils.atomic_files import replacing
from deepsimplex.monitoring.predictions import WatchedPredictions

NAME = "latent"
_LARGEST_SPRITE = 8192  # pixels on either side, TensorBoard's limit
_THUMBNAIL = 64


def _sprite(images: NDArray[np.floating]) -> tuple[NDArray[np.uint8], tuple[int, int]]:
    """Small images [N, H, W] or [N, H, W, 3] row by row in a square, [S h, S w, 3], and their (width, height)."""
    side = math.ceil(math.sqrt(len(images)))
    colors = np.repeat(images[..., None], 3, axis=-1) if images.ndim == 3 else images
    shrink = min(1.0, min(_THUMBNAIL, _LARGEST_SPRITE // side) / max(colors.shape[1:3]))
    height, width = (max(1, round(shrink * edge)) for edge in colors.shape[1:3])
    if shrink < 1.0:
        colors = tf.image.resize(colors, (height, width), method="area").numpy()
    cells = np.ones((side * side, height, width, 3))
    cells[: len(colors)] = colors
    sprite = cells.reshape(side, side, height, width, 3).swapaxes(1, 2).reshape(side * height, side * width, 3)
    return np.round(255 * np.clip(sprite, 0, 1)).astype(np.uint8), (width, height)


def write_embedding(folder: Path, found: WatchedPredictions) -> None:
    """Write latent means, a table of labels and predictions, and the images as a sprite, where there are any.

    The projector finds them by ``projector_config.pbtxt``, which is written last: it names whole files only.
    """
    assert found.latent is not None
    config = projector.ProjectorConfig()
    embedding = config.embeddings.add()
    embedding.tensor_name = NAME
    embedding.tensor_path, embedding.metadata_path = f"{NAME}.tsv", f"{NAME}_samples.tsv"
    with replacing(folder / embedding.tensor_path) as fresh:
        np.savetxt(fresh, found.latent["loc"], fmt="%.6g", delimiter="\t")
    names, assigned = found.class_names, found.probabilities.argmax(axis=1)
    rows = zip(found.labels, assigned, found.probabilities.max(axis=1), strict=True)
    table = ["confidence\tcorrect\tassigned\tlabel"]  # the last one is what the projector shows first
    table += [f"{p:.3f}\t{'yes' if y == k else 'no'}\t{names[k]}\t{names[y]}" for y, k, p in rows]
    with replacing(folder / embedding.metadata_path) as fresh:
        fresh.write_text("\n".join(table) + "\n", encoding="utf-8")
    if found.images is not None:
        sprite, size = _sprite(found.images)
        embedding.sprite.image_path = f"{NAME}_sprite.png"
        embedding.sprite.single_image_dim.extend(size)
        with replacing(folder / embedding.sprite.image_path) as fresh:
            fresh.write_bytes(tf.io.encode_png(sprite).numpy())
    projector.visualize_embeddings(str(folder), config)
