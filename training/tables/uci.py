"""Data sets of the UCI Machine Learning Repository: downloaded once, read from their archives, and checked.

The checksum of a set is the SHA-256 of its features, float32, and its class numbers, int32, in the repository's order.
"""

import hashlib
import os
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import keras
import numpy as np
from numpy.typing import NDArray

Arrays = tuple[NDArray[np.float32], NDArray[np.int32]]
Rows = list[list[str]]
AMINO_ACIDS = "ARNDCQEGHILKMFPSTWYV"
ADDRESS = "https://archive.ics.uci.edu/static/public"


def numbers(rows: Rows) -> NDArray[np.float32]:
    """Text as numbers, with decimal points or commas."""
    return np.array([[float(text.replace(",", ".")) for text in row] for row in rows]).astype(np.float32)


def class_numbers(names: list[str]) -> NDArray[np.int32]:
    """Positions of the names among all names, sorted."""
    return np.unique(names, return_inverse=True)[1].astype(np.int32)


def class_last(rows: Rows) -> Arrays:
    """Features, then the class."""
    return numbers([row[:-1] for row in rows]), class_numbers([row[-1] for row in rows])


def class_first(rows: Rows) -> Arrays:
    """The class, then features."""
    return numbers([row[1:] for row in rows]), class_numbers([row[0] for row in rows])


def one_hot_classes(rows: Rows) -> Arrays:
    """Ten features, then a column for each of five classes."""
    values = numbers(rows)
    return values[:, :10], values[:, 10:].argmax(axis=1).astype(np.int32)


def cleavage(rows: Rows) -> Arrays:
    """Eight amino acids, one-hot, and 1 where the protein is cleaved between the middle ones."""
    acids = np.array([[AMINO_ACIDS.index(acid) for acid in row[0]] for row in rows])
    cleaved = np.array([row[1] == "1" for row in rows])
    return np.eye(20, dtype=np.float32)[acids].reshape(len(rows), -1), cleaved.astype(np.int32)


@dataclass(frozen=True)
class UCIData:
    """An archive of the repository, the files in it that hold rows of text, and how these become arrays."""

    archive: str
    files: tuple[str, ...]
    checksum: str
    arrays: Callable[[Rows], Arrays] = class_last
    delimiter: str | None = ","
    header: int = 0
    skipped_columns: int = 0

    def load(self) -> Arrays:
        """Read the archive, after a download unless it was downloaded before.

        Raises
        ------
        OSError
            If the download fails.
        ValueError
            If the arrays are others than the checksum's.
        """
        number, name = self.archive.split("/")
        try:
            path = keras.utils.get_file(f"uci-{number}.zip", f"{ADDRESS}/{self.archive}.zip")
        except Exception as error:  # Keras raises a bare Exception when a download fails
            raise OSError(f"{name} could not be downloaded ({error})") from error
        return self.read(path)

    def read(self, path: str | os.PathLike[str]) -> Arrays:
        """Read the archive's files, in any folder of it, and compare the arrays with the checksum."""
        rows: Rows = []
        with zipfile.ZipFile(path) as archive:
            members = {Path(member).name: member for member in archive.namelist()}
            for file in self.files:
                lines = archive.read(members[file]).decode("latin-1").splitlines()[self.header :]
                # Lines of @ are the header of an ARFF file.
                cells = [line.split(self.delimiter) for line in lines if line.strip() and not line.startswith("@")]
                rows += [[text.strip() for text in row[self.skipped_columns :]] for row in cells]
        X, y = self.arrays(rows)
        actual = checksum(X, y)
        if actual != self.checksum:
            raise ValueError(f"{path} must hold arrays of the checksum {self.checksum}; found {actual}")
        return X, y


def checksum(X: NDArray, y: NDArray) -> str:
    """SHA-256 of features and class numbers."""
    return hashlib.sha256(X.astype("<f4").tobytes() + y.astype("<i4").tobytes()).hexdigest()


SETS = {
    "alcohol": UCIData(
        "496/alcohol+qcm+sensor+dataset",
        tuple(f"QCM{sensor}.csv" for sensor in (3, 6, 7, 10, 12)),
        "3fabdb4dfeeef6096d61e83464085a755d1870e6bbc99cb5cba7307901ad087c",
        one_hot_classes,
        delimiter=";",
        header=1,
    ),
    "climate": UCIData(
        "252/climate+model+simulation+crashes",
        ("pop_failures.dat",),
        "9fbc2ec0e9c47d2647109ae52f736c7416e02959bd0e8694ea655fa21b7aa36c",
        delimiter=None,
        header=1,
        skipped_columns=2,
    ),
    "eeg": UCIData(
        "264/eeg+eye+state",
        ("EEG Eye State.arff",),
        "222cca9788706e67f73ab26d192838106b74af4e1cc0d8d69e0d3fd73e70ef56",
    ),
    "glass": UCIData(
        "42/glass+identification",
        ("glass.data",),
        "ad1b21cd745c8baa25dc32f811f67bfc071dcb5f8a87e0254d4d80b15d4275cd",
        skipped_columns=1,
    ),
    "hiv": UCIData(
        "330/hiv+1+protease+cleavage",
        ("746Data.txt", "1625Data.txt", "impensData.txt", "schillingData.txt"),
        "b08af7725486e25f5c52ea3906e9dc758a229767097e6cdd6c6ac131ba884980",
        cleavage,
    ),
    "htru2": UCIData("372/htru2", ("HTRU_2.csv",), "3c98b043806938c6591f9044e406f787864155965ef4785091e1b89b2b9f7f73"),
    "letter": UCIData(
        "59/letter+recognition",
        ("letter-recognition.data",),
        "6990e2864eff7b0369ec1f1d0879b9b9d043e7a15259ce40008d856a412d0148",
        class_first,
    ),
    "magic": UCIData(
        "159/magic+gamma+telescope",
        ("magic04.data",),
        "daf4c277144566898d3fa42b3c74edbae844969d7811ebc460fb72efcf39afb2",
    ),
    "thyroid": UCIData(
        "102/thyroid+disease",
        ("new-thyroid.data",),
        "b724e7f67c59ce2d2cb6e210e4569950d8136ce561594f32417fe6d126fbe41d",
        class_first,
    ),
    "wifi": UCIData(
        "422/wireless+indoor+localization",
        ("wifi_localization.txt",),
        "ad0acdcaad6d7e5b9e462d94b924c9bf015d8031e2ae8cf004133c4ae9be9c5d",
        delimiter=None,
    ),
}
"""Data sets by their names in the papers."""
