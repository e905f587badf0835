"""Data sets known by name, and the places where copies of them are looked for."""

import os
from pathlib import Path

import numpy as np

from deepsimplex.datasets.archive import read_npz
from deepsimplex.datasets.idx import FILES, read_idx_folder
from deepsimplex.datasets.source import Source

NAMES = ("digits", "fashion_mnist", "mnist")
ENVIRONMENT_VARIABLE = "DEEPSIMPLEX_DATA"
DEBIAN_FASHION_MNIST = Path("/usr/share/datasets/fashion-mnist")
CLASS_NAMES = {
    "mnist": tuple("0123456789"),
    "fashion_mnist": (
        "T-shirt/top",
        "Trouser",
        "Pullover",
        "Dress",
        "Coat",
        "Sandal",
        "Shirt",
        "Sneaker",
        "Bag",
        "Ankle boot",
    ),
}


def read_digits() -> Source:
    """scikit-learn's 1797 handwritten digits, 8 x 8; their gray levels 0..16 are scaled to [0, 1]."""
    from sklearn.datasets import load_digits

    digits = load_digits()
    return Source((digits.images / 16).astype(np.float32), digits.target)


def keras_cache() -> Path:
    """The folder in which ``keras.datasets`` keeps its downloads."""
    home = Path.home() if os.access(Path.home(), os.W_OK) else Path("/tmp")
    return Path(os.environ.get("KERAS_HOME", home / ".keras")).expanduser() / "datasets"


def places(name: str) -> list[Path]:
    """Where a copy of "mnist" or "fashion_mnist" may lie, in the order of search: .npz files and idx folders."""
    spellings = (name, name.replace("_", "-")) if "_" in name else (name,)
    found = [keras_cache() / "mnist.npz" if name == "mnist" else keras_cache() / "fashion-mnist"]
    if os.environ.get(ENVIRONMENT_VARIABLE):
        root = Path(os.environ[ENVIRONMENT_VARIABLE]).expanduser()
        found += [root / spelling for spelling in spellings]
        found += [root / f"{spelling}.npz" for spelling in spellings]
        # All such sets name their files alike: without a folder of the set's name they could be those of another.
        found += [root] if root.name in spellings else []
    if name == "fashion_mnist":
        found.append(DEBIAN_FASHION_MNIST)
    return found


def read_mnist_like(name: str) -> Source:
    """Read the first copy found, or download one through Keras.

    Raises
    ------
    ValueError
        When the copy is damaged: the next one is not taken silently.
    OSError
        When there is none and the download fails, listing the places.
    """
    for place in places(name):
        if place.suffix == ".npz" and place.is_file():
            source = read_npz(place)
            break
        if all((place / file).is_file() for file in FILES):
            source = read_idx_folder(place)
            break
    else:
        source = _download(name)
    return Source(source.x, source.y, source.test, CLASS_NAMES[name])


def _download(name: str) -> Source:
    import keras

    try:
        (x, y), test = getattr(keras.datasets, name).load_data()
    except Exception as error:  # Keras raises a bare Exception when a download fails
        looked = [str(place) for place in places(name)]
        raise OSError(
            f"{name} could not be downloaded ({error}), and no copy was found in {', '.join(looked)}. Put one there, "
            f"or set {ENVIRONMENT_VARIABLE} to a folder that holds {name}.npz or {name}/ with {', '.join(FILES)}"
        ) from error
    return Source(x, y, test)
