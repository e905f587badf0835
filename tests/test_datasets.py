"""Data sets by name, from archives, folders and tables, and errors for invalid ones."""

import gzip
import struct
import zipfile
from pathlib import Path

import keras
import numpy as np
import pytest

from deepsimplex import datasets
from deepsimplex.datasets import image_sets
from deepsimplex.datasets.image_sets import CIFAR_FILES, IDX_FILES, read_idx
from deepsimplex.datasets.loading import NAMES
from tests.local_data import LOCAL_DATA


def write_idx(path: Path, array: np.ndarray) -> None:
    header = bytes([0, 0, 8, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(header + array.tobytes(), compresslevel=1))


def make_images(samples: int, size: tuple[int, ...] = (4, 3), seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (samples, *size), dtype=np.uint8)


def mnist_arrays(seed: int) -> dict[str, np.ndarray]:
    labels = np.arange(20, dtype=np.uint8) % 10
    return {
        "x_train": make_images(20, seed=seed),
        "y_train": labels,
        "x_test": make_images(10, seed=seed + 1),
        "y_test": labels[:10],
    }


def write_mnist_like(place: Path, seed: int) -> np.ndarray:
    """A small copy, as .npz or as a folder of idx files; returns its training images."""
    arrays = mnist_arrays(seed)
    if place.suffix == ".npz":
        place.parent.mkdir(parents=True, exist_ok=True)
        np.savez(place, **arrays)
    else:
        for file, array in zip(IDX_FILES, arrays.values(), strict=True):
            write_idx(place / file, array)
    return arrays["x_train"]


@pytest.fixture
def no_copies(tmp_path, monkeypatch):
    """An empty Keras cache, no folder of copies, no Debian package, no network."""
    monkeypatch.setenv("KERAS_HOME", str(tmp_path / "keras"))
    monkeypatch.delenv("DEEPSIMPLEX_DATA", raising=False)
    monkeypatch.setattr(image_sets, "DEBIAN_FASHION_MNIST", tmp_path / "debian")

    def unreachable():
        raise Exception("URL fetch failure")  # as bare as Keras's own

    for module in (keras.datasets.mnist, keras.datasets.fashion_mnist, keras.datasets.cifar10):
        monkeypatch.setattr(module, "load_data", unreachable)
    return tmp_path


def test_digits_are_scaled_and_their_split_is_stratified_and_repeatable():
    data = datasets.load("digits")
    (x, y), (x_test, y_test) = data
    assert (x.shape, x_test.shape, x.dtype, y.dtype) == ((1437, 8, 8), (360, 8, 8), np.float32, np.int64)
    assert (float(x.min()), float(x.max())) == (0.0, 1.0)
    assert data.name == "digits"
    assert data.class_names == tuple("0123456789")
    shares = np.bincount(y_test) / np.bincount(np.concatenate([y, y_test]))
    np.testing.assert_allclose(shares, 0.2, atol=0.005)
    again = datasets.load("digits")
    np.testing.assert_array_equal(again.x_test, x_test)
    np.testing.assert_array_equal(again.y, y)


def test_digits_equal_those_of_scikit_learn():
    from sklearn.datasets import load_digits

    (x, y), (x_test, y_test) = datasets.load("digits", test_fraction=0.5, seed=3)
    ours = np.column_stack([np.concatenate([x, x_test]).reshape(-1, 64) * 16, np.concatenate([y, y_test])])
    theirs = np.column_stack([load_digits().data, load_digits().target])
    np.testing.assert_array_equal(ours[np.lexsort(ours.T)], theirs[np.lexsort(theirs.T)])
    assert len(x_test) == 899
    assert not np.array_equal(datasets.load("digits", test_fraction=0.5, seed=4).x_test, x_test)


def test_copies_are_searched_in_documented_order(no_copies, monkeypatch):
    copies = no_copies / "copies"
    monkeypatch.setenv("DEEPSIMPLEX_DATA", str(copies))
    # From the last place to the first: each new copy is preferred to the earlier ones.
    in_order = {
        "fashion_mnist": ["debian", "copies/fashion_mnist.npz", "copies/fashion-mnist", "keras/datasets/fashion-mnist"],
        "mnist": ["copies/mnist.npz", "copies/mnist", "keras/datasets/mnist.npz"],
    }
    for name, places in in_order.items():
        for seed, place in enumerate(places):
            x = write_mnist_like(no_copies / place, 10 * seed)
            np.testing.assert_array_equal(datasets.load(name, dtype="uint8").x, x, err_msg=place)


def test_data_folder_is_used_only_if_named_after_the_set(no_copies, monkeypatch):
    x = write_mnist_like(no_copies / "fashion-mnist", seed=5)
    monkeypatch.setenv("DEEPSIMPLEX_DATA", str(no_copies / "fashion-mnist"))
    np.testing.assert_array_equal(datasets.load("fashion_mnist", dtype="uint8").x, x)
    with pytest.raises(OSError, match="mnist could not be downloaded"):
        datasets.load("mnist")


def write_cifar10(folder: Path, seed: int) -> np.ndarray:
    """Two records in each file of the binary version; return the training images."""
    rng = np.random.default_rng(seed)
    folder.mkdir(parents=True)
    images = []
    for file in CIFAR_FILES:
        x = rng.integers(0, 256, (2, 32, 32, 3), dtype=np.uint8)
        planes = [np.concatenate([image[:, :, color].ravel() for color in range(3)]) for image in x]
        (folder / file).write_bytes(b"".join(bytes([k + 3]) + plane.tobytes() for k, plane in enumerate(planes)))
        images.append(x)
    return np.concatenate(images[:-1])


def test_copies_of_cifar10_are_searched_in_the_documented_order(no_copies, monkeypatch):
    monkeypatch.setenv("DEEPSIMPLEX_DATA", str(no_copies / "copies"))
    with pytest.raises(OSError, match=r"cifar10 could not be downloaded.*cifar-10-batches-bin"):
        datasets.load("cifar10")
    arrays = {"x_train": np.ones((4, 32, 32, 3), np.uint8), "x_test": np.zeros((2, 32, 32, 3), np.uint8)}
    (no_copies / "copies").mkdir()
    np.savez(no_copies / "copies/cifar10.npz", **arrays, y_train=[[0], [9], [1], [2]], y_test=[[0], [1]])
    assert datasets.load("cifar10").y.tolist() == [0, 9, 1, 2]
    for seed, place in enumerate(("copies/cifar-10-batches-bin", "keras/datasets/cifar-10-batches-bin")):
        x = write_cifar10(no_copies / place, seed)
        data = datasets.load("cifar10", dtype="uint8")
        np.testing.assert_array_equal(data.x, x, err_msg=place)
        assert data.y.tolist() == [3, 4] * 5
        assert data.class_names[data.y_test[0]] == "cat"
    damaged = no_copies / place / CIFAR_FILES[-1]
    damaged.write_bytes(damaged.read_bytes()[:-1])
    with pytest.raises(ValueError, match="must hold records of 3073 bytes"):
        datasets.load("cifar10")


def test_missing_data_set_is_downloaded_by_keras(no_copies, monkeypatch):
    arrays = mnist_arrays(0)
    parts = (arrays["x_train"], arrays["y_train"]), (arrays["x_test"], arrays["y_test"])
    monkeypatch.setattr(keras.datasets.mnist, "load_data", lambda: parts)
    data = datasets.load("mnist")
    np.testing.assert_array_equal(data.x, arrays["x_train"].astype(np.float32) / 255)
    assert data.class_names == tuple("0123456789")


def test_failed_download_lists_the_searched_paths(no_copies, monkeypatch):
    monkeypatch.setenv("DEEPSIMPLEX_DATA", str(no_copies / "copies"))
    with pytest.raises(OSError, match="URL fetch failure") as raised:
        datasets.load("fashion_mnist")
    for place in ("keras/datasets/fashion-mnist", "copies/fashion_mnist", "copies/fashion_mnist.npz", "debian"):
        assert str(no_copies / place) in str(raised.value)


def test_damaged_copy_raises(no_copies):
    write_mnist_like(no_copies / "debian", seed=0)
    write_mnist_like(no_copies / "keras/datasets/fashion-mnist", seed=1)
    damaged = no_copies / "keras/datasets/fashion-mnist" / IDX_FILES[0]
    damaged.write_bytes(damaged.read_bytes()[:-30])
    with pytest.raises(ValueError, match=f"{IDX_FILES[0]} is damaged or cut short"):
        datasets.load("fashion_mnist")


@pytest.mark.needs("Debian's package dataset-fashion-mnist")
def test_real_fashion_mnist(monkeypatch, tmp_path):
    monkeypatch.setenv("KERAS_HOME", str(tmp_path))
    monkeypatch.delenv("DEEPSIMPLEX_DATA", raising=False)
    data = datasets.load("fashion_mnist", dtype="uint8")
    assert (data.x.shape, data.x_test.shape, data.x.dtype) == ((60000, 28, 28), (10000, 28, 28), np.uint8)
    np.testing.assert_array_equal(np.bincount(data.y), 6000)
    np.testing.assert_array_equal(np.bincount(data.y_test), 1000)
    assert data.class_names[data.y[0]] == "Ankle boot"
    assert data.x.mean() == pytest.approx(72.94, abs=0.01)  # 0.2860, the published mean


@pytest.mark.skipif(not (LOCAL_DATA / "images" / "mnist.npz").is_file(), reason="needs DEEPSIMPLEX_TEST_DATA: MNIST")
def test_real_mnist(monkeypatch, tmp_path):
    monkeypatch.setenv("KERAS_HOME", str(tmp_path))
    monkeypatch.setenv("DEEPSIMPLEX_DATA", str(LOCAL_DATA / "images"))
    data = datasets.load("mnist")
    assert (data.x.shape, data.x.dtype) == ((60000, 28, 28), np.float32)
    assert data.x.mean() == pytest.approx(0.1307, abs=1e-4)  # the published mean
    np.testing.assert_array_equal(data.y[:5], [5, 0, 4, 1, 9])


def test_read_idx_of_any_number_of_dimensions(tmp_path):
    for size in [(), (3,), (3, 2, 2)]:
        array = make_images(5, size)
        write_idx(tmp_path / "a.gz", array)
        np.testing.assert_array_equal(read_idx(tmp_path / "a.gz"), array)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "be an idx file of unsigned bytes, starting with 00 00 08"),
        (b"\0\0\x0d\1\0\0\0\1\0\0\0\0", "be an idx file.*found 00 00 0d 01"),
        (b"\0\0\x08\1\0\0\0\5abc", r"hold 13 bytes for its shape \(5,\); found 11"),
        (b"\0\0\x08\1\0\0\0\2abc", "hold 10 bytes"),
        (b"\0\0\x08\3\0\0", r"hold 16 bytes for its shape \(0, 0, 0\); found 6"),
    ],
)
def test_invalid_idx_file_raises(tmp_path, content, message):
    path = tmp_path / "wrong.gz"
    path.write_bytes(gzip.compress(content))
    with pytest.raises(ValueError, match=rf"wrong\.gz must {message}"):
        read_idx(path)
    path.write_bytes(b"plain text")
    with pytest.raises(ValueError, match=r"wrong\.gz is damaged"):
        read_idx(path)


@pytest.mark.parametrize("prefix", ["x", "X"])
def test_archive_with_a_test_part(tmp_path, prefix):
    arrays = {key.replace("x", prefix): value for key, value in mnist_arrays(0).items()}
    np.savez(tmp_path / "images.npz", **arrays, class_names=[f"class {k}" for k in range(10)])
    data = datasets.load(tmp_path / "images.npz")
    np.testing.assert_array_equal(data.x, arrays[f"{prefix}_train"].astype(np.float32) / 255)
    np.testing.assert_array_equal(data.y_test, arrays["y_test"])
    assert data.class_names[9] == "class 9"
    with pytest.raises(ValueError, match=r"test_fraction must be left out: .*has a test set"):
        datasets.load(tmp_path / "images.npz", test_fraction=0.3)


def test_archive_of_a_table_is_split_and_not_scaled(tmp_path):
    rng = np.random.default_rng(0)
    X, y = rng.normal(100, 50, (60, 4)), np.repeat([0, 1, 2], [30, 20, 10])
    np.savez(tmp_path / "table.npz", X=X, y=y[:, None])
    data = datasets.load(str(tmp_path / "table.npz"), test_fraction=0.5, seed=1)
    assert (data.x.dtype, len(data.x), len(data.x_test)) == (np.float32, 30, 30)
    np.testing.assert_array_equal(np.bincount(data.y_test), [15, 10, 5])
    everything = np.concatenate([data.x, data.x_test])
    np.testing.assert_allclose(np.sort(everything, axis=0), np.sort(X, axis=0), rtol=1e-6)
    for row, label in zip(data.x_test, data.y_test, strict=True):
        assert y[np.abs(X - row).sum(axis=1).argmin()] == label


def test_string_labels_are_numbered_in_sorted_order(tmp_path):
    np.savez(tmp_path / "a.npz", x=np.zeros((6, 2)), y=["dog", "cat", "dog", "cat", "eel", "eel"])
    data = datasets.load(tmp_path / "a.npz", test_fraction=0.5)
    assert data.class_names == ("cat", "dog", "eel")
    np.testing.assert_array_equal(np.sort(data.y), [0, 1, 2])


@pytest.mark.parametrize("labels", [[1, 2, 10], [-1, 1], [0.0, 2.0]])
def test_whole_numbers_as_labels_are_numbered_in_their_order(tmp_path, labels):
    y = np.resize(labels, 12)
    np.savez(tmp_path / "a.npz", x=np.c_[y, y], y=y)
    data = datasets.load(tmp_path / "a.npz", test_fraction=0.5)
    assert data.class_names == tuple(str(int(label)) for label in labels)
    np.testing.assert_array_equal(np.array(labels)[data.y], data.x[:, 0])


def test_integer_and_float_images_are_equal(tmp_path):
    arrays = mnist_arrays(0)
    expected = arrays["x_train"].astype(np.float32) / 255
    forms = {"int64": arrays["x_train"].astype(np.int64), "float64": arrays["x_train"] / 255}
    for form, x in forms.items():
        np.savez(tmp_path / "a.npz", **{**arrays, "x_train": x})
        data = datasets.load(tmp_path / "a.npz")
        assert data.x.dtype == np.float32
        np.testing.assert_allclose(data.x, expected, rtol=1e-6, err_msg=form)
    with pytest.raises(ValueError, match='dtype="uint8" needs a source of integer images'):
        datasets.load(tmp_path / "a.npz", dtype="uint8")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"x_train": np.full((20, 4, 3), np.nan)}, r"training samples of .* must.*found nan at .0,"),
        ({"x_test": np.where(np.arange(120).reshape(10, 4, 3) == 40, np.inf, 0)}, "test samples of.* found inf at .3,"),
        ({"x_train": np.full((20, 4, 3), 7.0)}, r"must lie in \[0, 1\], as they are float64; found 7.0 to 7.0"),
        ({"x_train": np.full((20, 4, 3), -1)}, r"must lie in \[0, 255\]"),
        ({"y_train": np.arange(19) % 10}, "one label per sample; found 20 samples and labels"),
        ({"y_train": np.arange(20) % 10 * 2}, r"classes \[1, 3, 5, 7, 9\] of .* no training sample"),
        ({"y_train": np.arange(20) % 9}, r"classes \[9\] of .* no training sample"),
        ({"y_train": np.arange(20) % 9 + 0.5}, r"labels of .* must.*found 0\.5 in row 0"),
        ({"class_names": ["a", "b"]}, r"training labels of .* must.*found 2 in row 2"),
        ({"y_train": np.zeros(20, int), "y_test": np.zeros(10, int)}, "at least two classes"),
        ({"x_test": np.zeros((10, 5, 5))}, "must have the same shape"),
        ({"x_train": np.zeros((20, 2, 2, 2, 2))}, "must be numbers of shape"),
        ({"x_train": np.zeros((20, 4, 3), object)}, "cannot be read as a .npz archive without pickled objects"),
    ],
)
def test_invalid_arrays_raise(tmp_path, change, message):
    np.savez(tmp_path / "a.npz", **{**mnist_arrays(0), **change})
    with pytest.raises(ValueError, match=message):
        datasets.load(tmp_path / "a.npz")


def test_damaged_or_other_archive_raises(tmp_path):
    path = tmp_path / "a.npz"
    np.savez(path, first=np.zeros(3))
    with pytest.raises(ValueError, match=r"must hold x_train, y_train.*found \['first'\]"):
        datasets.load(path)
    with open(path, "wb") as file:
        np.save(file, np.zeros(3))
    with pytest.raises(ValueError, match="single array"):
        datasets.load(path)
    np.savez_compressed(path, **mnist_arrays(0))
    whole = path.read_bytes()
    for content in (b"", b"text", whole[:50], whole[: len(whole) // 2], whole[:-10]):
        path.write_bytes(content)
        with pytest.raises(ValueError, match=r"a\.npz cannot be read"):
            datasets.load(path)
    # A byte changed inside the data: the archive's own check sums notice.
    middle = whole.index(b"x_train") + 200
    path.write_bytes(whole[:middle] + bytes([whole[middle] ^ 0xFF]) + whole[middle + 1 :])
    with pytest.raises(ValueError, match=r"a\.npz cannot be read"):
        datasets.load(path)


@pytest.mark.parametrize(
    ("y", "options", "message"),
    [
        (
            [0, 0, 0, 1],
            {},
            r"a\.npz cannot be split with test_fraction 0.2: .*1 of 2 classes have one",
        ),
        (
            [0, 0, 1, 1],
            {"test_fraction": 0.2},
            r"a\.npz cannot be split with test_fraction 0.2: .*test_size = 1 .*number of classes = 2",
        ),
        ([0, 0, 1, 1], {"test_fraction": 0.9}, r"a\.npz cannot be split with test_fraction 0.9: .*test_size=4 "),
        ([0, 0, 1, 1], {"test_fraction": 1.0}, r"test_fraction must.*found 1.0"),
    ],
)
def test_impossible_split_raises(tmp_path, y, options, message):
    np.savez(tmp_path / "a.npz", x=np.zeros((4, 2)), y=y)
    with pytest.raises(ValueError, match=message):
        datasets.load(tmp_path / "a.npz", **options)


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("fashon-mnist", "did you mean 'fashion_mnist'"),
        ("digit", "did you mean 'digits'"),
        ("imagenet", "no folder or data set"),
    ],
)
def test_unknown_name_raises_with_the_nearest_name(name, hint):
    with pytest.raises(ValueError, match=hint) as raised:
        datasets.load(name)
    for part in (*NAMES, ".npz", ".csv", "folder"):
        assert part in str(raised.value)


def test_missing_file_raises(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"name must.*found no .*none\.npz"):
        datasets.load(tmp_path / "none.npz")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"image_size": (8, 8)}, "image_size applies to a folder or a list of images only; digits is a name"),
        ({"color": "rgb"}, "color applies to a folder or a list of images only"),
        ({"on_error": "skip"}, "on_error applies to a folder or a list of images only"),
        ({"target_column": "y"}, "target_column applies to a csv or a list of images only"),
        ({"dtype": "float64"}, r"dtype must.*found 'float64'"),
        ({"dtype": "uint8"}, 'dtype="uint8" needs a source of integer images; digits holds float32'),
    ],
)
def test_inapplicable_option_raises(options, message):
    with pytest.raises(ValueError, match=message):
        datasets.load("digits", **options)


def test_archive_with_a_false_header_raises(tmp_path):
    np.savez(tmp_path / "a.npz", x=np.zeros((4, 2)), y=np.arange(4) % 2)
    with zipfile.ZipFile(tmp_path / "a.npz") as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    lie = members["x.npy"].replace(b"(4, 2)", b"(9999999999, 2)").replace(b"         \n", b"\n")
    assert len(lie) == len(members["x.npy"])
    with zipfile.ZipFile(tmp_path / "lie.npz", "w") as archive:
        archive.writestr("x.npy", lie)
        archive.writestr("y.npy", members["y.npy"])
    with pytest.raises(ValueError, match=r"x\.npy holds 192 bytes, .* says 160000000112: shape \(9999999999, 2\)"):
        datasets.load(tmp_path / "lie.npz")


def test_class_names_without_an_axis_raise(tmp_path):
    np.savez(tmp_path / "a.npz", x=np.zeros((4, 2)), y=np.arange(4) % 2, class_names=np.array("cat"))
    with pytest.raises(ValueError, match=r"class_names in .*npz must.*found shape \(\)"):
        datasets.load(tmp_path / "a.npz")


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"class_names": ["a", "a"]}, r"class_names in .*\.npz must.*found \['a', 'a'\]"),
        ({"class_names": [1.5, np.nan]}, "must be different names"),
        ({"class_names": ["a", "caf\udce9"]}, "must be text in UTF-8; found .* in row 1"),
        ({"y": np.array([b"a\xff", b"b"] * 10)}, r"labels of .* must.*found .* in row 0"),
        ({"y": np.array(["a", "nan"] * 10)}, r"labels of .* must.*found 'nan' in row 1"),
        ({"y": np.arange(20) * 2**40}, "20 of 20 classes have one"),
        ({"x": np.float32(1)}, r"samples of .* must.*found a single value"),
    ],
)
def test_invalid_names_and_labels_of_archives_raise(tmp_path, arrays, message):
    np.savez(tmp_path / "a.npz", **{"x": np.zeros((20, 2)), "y": np.arange(20) % 2, **arrays})
    with pytest.raises(ValueError, match=message):
        datasets.load(tmp_path / "a.npz")


def test_class_names_in_bytes_are_decoded(tmp_path):
    np.savez(tmp_path / "a.npz", x=np.zeros((20, 2)), y=np.arange(20) % 2, class_names=[b"a", b"b"])
    assert datasets.load(tmp_path / "a.npz").class_names == ("a", "b")
