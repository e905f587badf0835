"""Labeled images, and their features under a frozen backbone: computed once, in blocks that are kept in files."""

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import keras
import numpy as np
import typer
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import track

import deepsimplex as ds

Array = NDArray[Any]
BLOCK, UNKNOWN = 500, 4000  # images of a file of features, and of a set of unknown ones


class Data(NamedTuple):
    """Images or features with class numbers; ``human`` counts people's answers, ``unknown`` holds other classes."""

    x: Array
    y: NDArray[np.int64]
    x_test: Array
    y_test: NDArray[np.int64]
    human: Array | None
    unknown: dict[str, Array]

    @property
    def num_classes(self) -> int:
        """Number of classes."""
        return int(self.y.max()) + 1


class Backbone(NamedTuple):
    """A file of a Keras model from images to features [N, d], and what images pass before it."""

    path: Path
    size: int | None = None
    scale: float = 1.0

    def load(self, shape: tuple[int, ...]) -> keras.Model:
        """Load the frozen network, with scaling and resizing in front, for images [H, W] or [H, W, C]."""
        body = keras.models.load_model(self.path, compile=False)
        body.trainable = False
        images = x = keras.Input(shape)
        if len(shape) == 2:
            x = keras.layers.Reshape((*shape, 1))(x)
        if self.scale != 1.0:
            x = keras.layers.Rescaling(self.scale)(x)
        if self.size is not None:
            x = keras.layers.Resizing(self.size, self.size, "bicubic")(x)
        if x.shape[-1] == 1 and body.input_shape[-1] == 3:
            x = keras.layers.Concatenate()([x, x, x])
        features = body(x, training=False)
        if len(features.shape) != 2:
            raise typer.BadParameter(f"--backbone must give features [N, d]; found {features.shape}")
        return keras.Model(images, features)

    def features(self, images: Array, name: str, folder: Path) -> Array:
        """Compute features [N, d], except blocks that are in the folder, in files named by a digest of their origin."""
        facts = hashlib.sha256(self.path.read_bytes() + repr((self.size, self.scale)).encode())
        network, parts = None, []
        steps = range(0, len(images), BLOCK)
        for start in track(steps, f"features of {name}", console=Console(stderr=True), transient=True):
            block = np.ascontiguousarray(images[start : start + BLOCK])
            digest = facts.copy()
            digest.update(repr((block.shape, block.dtype)).encode() + block.tobytes())
            path = folder / f"{digest.hexdigest()[:32]}.npy"
            if not path.exists():
                network = self.load(images.shape[1:]) if network is None else network
                np.save(fresh := path.with_name(f".{path.name}"), network.predict(block, batch_size=100, verbose=0))
                fresh.replace(path)
            parts.append(np.load(path, allow_pickle=False))
        return np.concatenate(parts)


def read(source: str) -> dict[str, Array]:
    """Read the arrays of a .npz file as they are, or a data set by its name with pixels from 0 to 255."""
    if source.endswith(".npz"):
        with np.load(source, allow_pickle=False) as archive:
            return {name.lower(): archive[name] for name in archive.files}
    loaded: Any = ds.datasets.load(source)
    (x, y), (x_test, y_test) = loaded
    return {"x_train": 255 * x, "y_train": y, "x_test": 255 * x_test, "y_test": y_test}


def load(source: str, unknown: Sequence[str]) -> Data:
    """Read known and unknown images, or features; uniform noise is added to images as another unknown set."""
    arrays = read(source)
    if missing := {"x_train", "y_train", "x_test", "y_test"} - arrays.keys():
        raise typer.BadParameter(f"--data must hold x_train, y_train, x_test, y_test: {source} lacks {sorted(missing)}")
    rng = np.random.default_rng(0)
    others = {}
    for entry in unknown:
        name, separator, other = entry.partition("=")
        if not separator:
            raise typer.BadParameter(f"--unknown must be NAME=FILE.npz or NAME=DATASET; found {entry}")
        x = read(other)["x_test"]
        others[name] = x[np.sort(rng.permutation(len(x))[:UNKNOWN])]
    shape = arrays["x_train"].shape[1:]
    if len(shape) > 1:
        others["noise"] = rng.integers(0, 256, (UNKNOWN, *shape), dtype=np.uint8)
    labels = (arrays[name].ravel().astype(np.int64) for name in ("y_train", "y_test"))
    y, y_test = labels
    return Data(arrays["x_train"], y, arrays["x_test"], y_test, arrays.get("human_counts_test"), others)


def with_features(data: Data, backbone: Backbone | None, folder: Path) -> Data:
    """Replace images by their features; without a backbone they must be features already."""
    if backbone is None:
        if data.x.ndim != 2:
            raise typer.BadParameter(f"--data must hold features [N, d] without --backbone; found {data.x.shape}")
        return data
    folder.mkdir(parents=True, exist_ok=True)
    return data._replace(
        x=backbone.features(data.x, "the training images", folder),
        x_test=backbone.features(data.x_test, "the test images", folder),
        unknown={name: backbone.features(x, name, folder) for name, x in data.unknown.items()},
    )
