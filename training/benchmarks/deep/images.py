"""Labeled images, whole or in part, their test images corrupted, and images of other kinds."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

import deepsimplex as ds
from training.benchmarks.deep.corruptions import CORRUPTIONS, corrupt

Images = NDArray[np.float32]
CORRUPTED, FAR = 2000, 2000  # images of each kind
SEVERITIES = (1, 2, 3)
# Near the others, they are taken out of training: coat and shirt, cat and dog, girl and woman, 4 and 9.
HELD_OUT_CLASSES = {"fashion_mnist": (4, 6), "cifar10": (3, 5), "cifar100": (35, 98), "digits": (4, 9)}


class Size(NamedTuple):
    """Numbers of training images and epochs; ``augmented``: every epoch mirrors and shifts the images anew."""

    images: int
    epochs: int
    augmented: bool = False


SIZES = {"smoke": Size(1000, 2), "few": Size(10_000, 12), "small": Size(20_000, 6), "full": Size(60_000, 15)}


class Data(NamedTuple):
    """Images in [0, 1] and labels; ``others`` by name are of classes that are not among the labels.

    ``people`` [N, n] are the shares of people who chose each class of a test image, if they are known;
    ``corrupt``: the first test images are predicted under every corruption, too.
    """

    x: Images
    y: NDArray[np.int64]
    x_test: Images
    y_test: NDArray[np.int64]
    others: dict[str, Images]
    people: NDArray[np.float64] | None = None
    corrupt: bool = False

    @property
    def num_classes(self) -> int:
        """Number of classes that are trained on."""
        return int(self.y.max()) + 1


def far(data: Data, folder: Path) -> Data:
    """Add MNIST, KMNIST and noise as other images, except sets of another shape or not in the folder."""
    others: dict[str, Images] = {}
    shape = data.x.shape[1:]
    for name, file in {"MNIST": "mnist.npz", "KMNIST": "kmnist_test.npz"}.items():
        if shape != (28, 28):
            print(f"images of {name} are not of shape {shape}: no {name}")
            continue
        path = folder / "images" / file
        if not path.exists():
            print(f"{path} does not exist: no {name}")
            continue
        with np.load(path, allow_pickle=False) as archive:
            key = "X_test" if "X_test" in archive else "x_test"
            others[name] = archive[key][:FAR].reshape(-1, 28, 28).astype(np.float32) / 255
    others["noise"] = np.random.default_rng(0).random((FAR, *shape), dtype=np.float32)
    return data._replace(others=others)


def near(data: Data, held_out: tuple[int, ...]) -> Data:
    """Hold two classes out of training; their test images are the other images."""
    kept = [label for label in range(data.num_classes) if label not in held_out]
    number = np.full(data.num_classes, -1)
    number[kept] = np.arange(len(kept))
    inside, inside_test = number[data.y] >= 0, number[data.y_test] >= 0
    return Data(
        data.x[inside],
        number[data.y[inside]],
        data.x_test[inside_test],
        number[data.y_test[inside_test]],
        {"held-out classes": data.x_test[~inside_test]},
    )


def load(name: str, size: Size, folder: Path, held_out: bool, corrupt: bool = False) -> Data:
    """The images of a benchmark, from a file of the folder if it has one of this name."""
    path, people = folder / "images" / f"{name}.npz", None
    if path.exists():
        with np.load(path, allow_pickle=False) as archive:
            x, x_test = (archive[part].astype(np.float32) / 255 for part in ("x_train", "x_test"))
            y, y_test = (archive[part].astype(np.int64) for part in ("y_train", "y_test"))
            if "human_counts_test" in archive:
                counts = archive["human_counts_test"].astype(np.float64)
                people = counts / counts.sum(axis=1, keepdims=True)
    else:
        loaded: Any = ds.datasets.load(name)
        (x, y), (x_test, y_test) = loaded
    data = Data(x[: size.images], y[: size.images], x_test, y_test, {}, people, corrupt)
    return near(data, HELD_OUT_CLASSES[name]) if held_out else far(data, folder)


def corrupted(data: Data) -> Iterator[tuple[str, Images]]:
    """The first test images under every corruption at every severity."""
    for name in CORRUPTIONS:
        for severity in SEVERITIES:
            yield f"{name}-{severity}", corrupt(data.x_test[:CORRUPTED], name, severity)
