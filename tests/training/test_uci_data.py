"""Data sets of the UCI repository: its formats are read, and arrays other than the checksum's are refused."""

import zipfile
from dataclasses import replace
from pathlib import Path

import keras
import numpy as np
import pytest

from tests.local_data import LOCAL_DATA
from training.tables.paper_table import DataFolder, MissingDataError
from training.tables.uci import AMINO_ACIDS, SETS, UCIData, checksum

ROWS = {
    "alcohol": ("a;b;c;d;e;f;g;h;i;j;1;2;3;4;5", "-10,06;1;2;3;4;5;6;7;8;9,5;0;0;1;0;0"),
    "climate": (" Study Run a b outcome", "  1   2 0.25 5e-01 1\n  1   3 0.5  0.75 0"),
    "eeg": ("@RELATION EEG\n\n@DATA", "4329.23,4009.23,0\n4324.62,4004.62,1"),
    "glass": ("", "1,1.52101,13.64,1\n2,1.51761,13.89,7\n3,1.5,13.5,3"),
    "hiv": ("", "AAAMKRHG,-1\nVVVVVVVV,1"),
    "letter": ("", "T,2,8\nI,5,12"),
    "magic": ("", "28.7967,16.0021,g\n31.6,11.7,h"),
    "wifi": ("", "-64\t-56\t1\n-68\t-57\t4"),
}
ARRAYS = {
    "alcohol": ([[-10.06, 1, 2, 3, 4, 5, 6, 7, 8, 9.5]] * 5, [2] * 5),
    "climate": ([[0.25, 0.5], [0.5, 0.75]], [1, 0]),
    "eeg": ([[4329.23, 4009.23], [4324.62, 4004.62]], [0, 1]),
    "glass": ([[1.52101, 13.64], [1.51761, 13.89], [1.5, 13.5]], [0, 2, 1]),
    "letter": ([[2, 8], [5, 12]], [1, 0]),
    "magic": ([[28.7967, 16.0021], [31.6, 11.7]], [0, 1]),
    "wifi": ([[-64, -56], [-68, -57]], [0, 1]),
}


def archive(path: Path, source: UCIData, header: str, rows: str) -> Path:
    """An archive with the same text in each of its files, which lie in a folder."""
    with zipfile.ZipFile(path, "w") as written:
        for file in source.files:
            written.writestr(f"folder/{file}", f"{header}\n{rows}\n\n" if header else f"{rows}\n")
    return path


@pytest.mark.parametrize("name", ARRAYS)
def test_formats_are_read(name, tmp_path):
    path = archive(tmp_path / "archive.zip", SETS[name], *ROWS[name])
    X, y = np.array(ARRAYS[name][0], np.float32), np.array(ARRAYS[name][1])
    read = replace(SETS[name], checksum=checksum(X, y)).read(path)
    np.testing.assert_array_equal(read[0], X)
    np.testing.assert_array_equal(read[1], y)
    with pytest.raises(ValueError, match=r"archive\.zip must hold arrays of the checksum"):
        SETS[name].read(path)


def test_amino_acids_are_one_hot(tmp_path):
    path = archive(tmp_path / "archive.zip", SETS["hiv"], *ROWS["hiv"])
    places = [[AMINO_ACIDS.index(acid) for acid in text] for text in ("AAAMKRHG", "VVVVVVVV")] * 4
    X, y = np.eye(20)[places].reshape(8, 160), np.array([0, 1] * 4)
    read = replace(SETS["hiv"], checksum=checksum(X, y)).read(path)
    np.testing.assert_array_equal(read[0], X)
    np.testing.assert_array_equal(read[1], y)


@pytest.mark.skipif(not LOCAL_DATA.is_dir(), reason="needs DEEPSIMPLEX_TEST_DATA: tables of the UCI repository")
@pytest.mark.parametrize("name", SETS)
def test_checksums_of_real_data(name):
    with np.load(LOCAL_DATA / f"{name}.npz") as arrays:
        assert checksum(arrays["X"], arrays["y"]) == SETS[name].checksum


def test_failed_download_skips_the_set(tmp_path, monkeypatch):
    def unreachable(*_):
        raise Exception("URL fetch failure")  # as bare as Keras's own

    monkeypatch.setattr(keras.utils, "get_file", unreachable)
    with pytest.raises(MissingDataError, match=r"no wifi\.npz .* wireless\+indoor.* could not be downloaded"):
        DataFolder(tmp_path).load("wifi")
    path = archive(tmp_path / "uci.zip", SETS["wifi"], *ROWS["wifi"])
    monkeypatch.setattr(keras.utils, "get_file", lambda name, address: str(path))
    X, y = np.array(ARRAYS["wifi"][0]), np.array(ARRAYS["wifi"][1])
    monkeypatch.setitem(SETS, "wifi", replace(SETS["wifi"], checksum=checksum(X, y)))
    np.testing.assert_array_equal(DataFolder(tmp_path).load("wifi")[1], y)
