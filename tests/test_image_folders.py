"""Folders of images with one subfolder per class: what is read, what is left out with a warning, what is an error."""

import os
import re
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from deepsimplex import datasets


def write_images(folder: Path, samples: int, size: tuple[int, int] = (6, 5)) -> np.ndarray:
    """Color images as .png files, different in every folder; returns their pixels."""
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng([*"/".join(folder.parts[-2:]).encode()])
    images = rng.integers(0, 256, (samples, *size, 3), dtype=np.uint8)
    for i, image in enumerate(images):
        Image.fromarray(image).save(folder / f"{i}.png")
    return images


@pytest.fixture
def photos(tmp_path):
    """A folder of three images each of cats and dogs."""
    for name in ("cat", "dog"):
        write_images(tmp_path / "photos" / name, 3)
    return tmp_path / "photos"


def count(folder: Path, **options) -> int:
    return sum(len(x) for x, _ in datasets.load(folder, test_fraction=0.4, **options))


def test_folder_with_train_and_test(tmp_path):
    cats, dogs = write_images(tmp_path / "train/cat", 3), write_images(tmp_path / "train/dog", 2)
    write_images(tmp_path / "test/cat", 1)
    write_images(tmp_path / "test/dog", 1)
    data = datasets.load(tmp_path, dtype="uint8")
    assert data.class_names == ("cat", "dog")
    np.testing.assert_array_equal(data.x, np.concatenate([cats, dogs]))
    np.testing.assert_array_equal(data.y, [0, 0, 0, 1, 1])
    np.testing.assert_array_equal(data.y_test, [0, 1])
    np.testing.assert_allclose(datasets.load(tmp_path).x, data.x / 255, rtol=1e-6)


def test_folder_of_classes_is_split_converted_to_gray_and_resized(tmp_path):
    write_images(tmp_path / "cat", 10)
    write_images(tmp_path / "dog", 5, size=(9, 9))
    data = datasets.load(tmp_path, image_size=(4, 7), color="grayscale", test_fraction=0.4)
    assert data.x.shape == (9, 4, 7)
    as_in_yaml = datasets.load(tmp_path, image_size=[4, 7], color="grayscale", test_fraction=0.4)
    np.testing.assert_array_equal(as_in_yaml.x, data.x)
    np.testing.assert_array_equal(np.bincount(data.y_test), [4, 2])
    assert 0 < data.x.min() < data.x.max() < 1


def test_invalid_folder_raises(tmp_path):
    with pytest.raises(ValueError, match="one folder of images for each of at least two classes"):
        datasets.load(tmp_path)
    write_images(tmp_path / "cat", 3)
    (tmp_path / "dog").mkdir()
    with pytest.raises(ValueError, match=r"class folder .*dog must.*found none"):
        datasets.load(tmp_path)
    (tmp_path / "dog").rmdir()
    write_images(tmp_path / "dog", 3, size=(9, 9))
    with pytest.raises(ValueError, match=r"image_size=.* must be given, as sizes differ: .*\(6, 5\).*\(9, 9\)"):
        datasets.load(tmp_path)
    with pytest.raises(ValueError, match=r"color must.*found 'gray'"):
        datasets.load(tmp_path, color="gray")
    for size in ((0, 3), (4,), 0, True, "4x4", [4.0, 4.0]):
        with pytest.raises(ValueError, match=rf"image_size must.*found {re.escape(repr(size))}"):
            datasets.load(tmp_path, image_size=size)
    damaged = tmp_path / "cat" / "1.png"
    damaged.write_bytes(damaged.read_bytes()[:60])
    with pytest.raises(ValueError, match=r"1 of 6 files cannot be read as images: .*1\.png"):
        datasets.load(tmp_path, image_size=(4, 4))
    damaged.write_bytes(b"text")
    with pytest.raises(ValueError, match=r"1 of 6 files cannot be read as images: .*1\.png"):
        datasets.load(tmp_path)


def test_different_classes_in_train_and_test_raise(tmp_path):
    for place in ("train/cat", "train/dog", "test/cat", "test/eel"):
        write_images(tmp_path / place, 1)
    with pytest.raises(ValueError, match=r"same classes; found \['cat', 'dog'\] and \['cat', 'eel'\]"):
        datasets.load(tmp_path)


def test_hidden_and_system_files_are_not_read(photos):
    content = (photos / "cat/0.png").read_bytes()
    system = ["cat/.ipynb_checkpoints/0-checkpoint.png", "cat/._0.png", "cat/Thumbs.db", "dog/.DS_Store", ".git/0.png"]
    system += ["__MACOSX/cat/._0.png", "cat/more/.cache/0.png", "dog/@eaDir/0.png", "desktop.ini", ".0.png"]
    for name in system:
        (photos / name).parent.mkdir(parents=True, exist_ok=True)
        (photos / name).write_bytes(content)
    assert count(photos) == 6  # without a warning
    assert datasets.load(photos).class_names == ("cat", "dog")


def test_nested_folders_and_uppercase_suffixes_are_read(photos):
    write_images(photos / "cat/more/still", 2)
    (photos / "dog/0.png").rename(photos / "dog/0.PNG")
    assert count(photos) == 8


def sixteen_bits(path):
    Image.fromarray(np.arange(64, dtype=np.uint16).reshape(8, 8) * 64).save(path)


DAMAGED = {
    "text": (lambda path: path.write_text("text"), r"\(it is damaged, or no image\)"),
    "empty": (lambda path: path.write_bytes(b""), r"\(it is damaged, or no image\)"),
    "cut short": (lambda path: path.write_bytes(path.read_bytes()[:60]), r"\(image file is truncated"),
    "16 bits": (sixteen_bits, r"\(it has 16 bits a pixel, of which 8 would be lost"),
    "link to nothing": (lambda path: (path.unlink(), path.symlink_to("nothing.png")), r"\(\[Errno 2\]"),
}


def test_all_unreadable_images_are_named_at_once_or_left_out(photos):
    for folder in ("cat", "dog"):
        write_images(photos / folder, 8)
    for k, (damage, _) in enumerate(DAMAGED.values()):
        damage(photos / ("dog" if k % 2 else "cat") / f"{k}.png")
    with pytest.raises(ValueError, match=r'5 of 16 files cannot be read.*on_error="skip" leaves them out') as raised:
        datasets.load(photos)
    with pytest.warns(UserWarning, match=r"5 of 16 files cannot be read .* They were left out") as caught:
        assert count(photos, on_error="skip") == 11
    for k, (_, problem) in enumerate(DAMAGED.values()):
        for text in (str(raised.value), str(caught[0].message)):
            assert re.search(rf"/{k}\.png[^()]* {problem}", text)


def test_class_without_readable_image_raises(photos):
    for path in (photos / "cat").iterdir():
        path.write_text("text")
    with (
        pytest.warns(UserWarning, match="3 of 6 files cannot be read"),
        pytest.raises(ValueError, match=r"class folders must hold images that can be read; found none in .*cat"),
    ):
        datasets.load(photos, on_error="skip")
    with pytest.raises(ValueError, match="on_error must be one of raise, skip; found 'ignore'"):
        datasets.load(photos, on_error="ignore")


@pytest.mark.parametrize("orientation", range(1, 9))
def test_images_are_turned_upright(photos, orientation):
    upright = np.kron(np.arange(6, dtype=np.uint8).reshape(2, 3) * 40, np.ones((8, 8), np.uint8))
    stored = {
        1: upright,
        2: upright[:, ::-1],
        3: upright[::-1, ::-1],
        4: upright[::-1],
        5: upright.T,
        6: np.rot90(upright, 1),
        7: upright[::-1, ::-1].T,
        8: np.rot90(upright, -1),
    }[orientation]
    exif = Image.Exif()
    exif[0x0112] = orientation
    for name, suffix in (("cat", "jpg"), ("dog", "png")):
        for path in (photos / name).iterdir():
            path.unlink()
        for k in range(2):
            Image.fromarray(np.ascontiguousarray(stored) + k).save(photos / name / f"{k}.{suffix}", exif=exif)
    with pytest.warns(UserWarning, match="equal one of another class|equal a training image"):
        data = datasets.load(photos, dtype="uint8", color="grayscale", test_fraction=0.5)
    for image in (*data.x, *data.x_test):
        np.testing.assert_allclose(image.astype(int), upright, atol=3)


MODES = {
    "palette": lambda image: image.convert("P"),
    "gray": lambda image: image.convert("L"),
    "black and white": lambda image: image.convert("1"),
    "opaque": lambda image: image.convert("RGBA"),
    "CMYK": lambda image: image.convert("CMYK"),
    "palette with transparency in bytes": lambda image: image.convert("P"),
}


@pytest.mark.parametrize("mode", MODES)
def test_modes_of_pixels_are_converted(photos, mode):
    image = Image.fromarray(np.arange(90, dtype=np.uint8).reshape(6, 5, 3) * 2)
    converted = MODES[mode](image)
    options = {"transparency": bytes([255] * 256)} if mode.endswith("bytes") else {}
    path = photos / ("cat/9.jpg" if mode == "CMYK" else "cat/9.png")
    converted.save(path, **options)
    data = datasets.load(photos, dtype="uint8", test_fraction=0.4)
    expected = np.asarray(Image.open(path).convert("RGBA" if "bytes" in mode else "RGB"))[..., :3]
    assert any(np.array_equal(expected, image) for image in (*data.x, *data.x_test))


def transparent(path):
    Image.fromarray(np.full((6, 5, 4), 70, np.uint8)).save(path / "a.png")


def animated(path):
    frames = [Image.fromarray(np.full((6, 5, 3), k, np.uint8)) for k in (50, 100)]
    frames[0].save(path / "a.gif", save_all=True, append_images=frames[1:])


def loose(path):
    Image.new("RGB", (5, 6), (1, 2, 3)).save(path.parent / "a.png")


def link(path):
    (path / "a.link").symlink_to(path.parent / "dog")


def copied(path):
    for place in (path, path / "more"):
        place.mkdir(exist_ok=True)
        for k in range(20):
            (place / f"copy {k}.png").write_bytes((path / "0.png").read_bytes())


def in_two_classes(path):
    (path / "a.png").write_bytes((path.parent / "dog/0.png").read_bytes())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (transparent, r"1 of 7 images have transparent pixels, whose hidden colors are read; the first is .*a\.png"),
        (animated, r"1 of 7 images are animated: the first picture of each is read; the first is .*a\.gif"),
        (loose, r"images that lie in no folder of a class were left out: .*photos/a\.png"),
        (link, r"1 files were left out, the first is .*a\.link.* these are links"),
        (copied, r"test images of .* equal a training image, such as .*cat/.*\.png and .*cat/.*\.png"),
        (in_two_classes, r"1 of 7 images of .* equal one of another class, such as .*(cat/a.*dog/0|dog/0.*cat/a)"),
    ],
)
@pytest.mark.filterwarnings("ignore:1 of 3 test images .* equal a training image")
def test_what_may_surprise_warns(photos, change, message):
    change(photos / "cat")
    with pytest.warns(UserWarning, match=message) as caught:
        count(photos)
    assert {warning.filename for warning in caught} == {__file__}


def test_copies_of_test_images_among_training_images_warn(tmp_path):
    for part in ("train", "test"):
        for name in ("cat", "dog"):
            write_images(tmp_path / part / name, 3)
    datasets.load(tmp_path)  # without a warning
    Image.open(tmp_path / "test/cat/1.png").save(tmp_path / "train/cat/copy.bmp")
    message = r"1 of 6 test images of .* equal a training image, such as .*test/cat/1\.png and .*train/cat/copy\.bmp"
    with pytest.warns(UserWarning, match=message):
        datasets.load(tmp_path)
    x, y = np.zeros((4, 2, 2), np.uint8) + np.arange(4, dtype=np.uint8)[:, None, None], [0, 1, 0, 1]
    np.savez(tmp_path / "a.npz", x_train=x, y_train=y, x_test=x[2:], y_test=y[2:])
    with pytest.warns(UserWarning, match=r"2 of 2 test images .* such as x_test\[0\] and x_train\[2\]"):
        datasets.load(tmp_path / "a.npz")


@pytest.mark.parametrize("names", [("Train", "TEST"), ("train", "test", "validation")])
def test_parts_in_any_case_are_recognized(tmp_path, names):
    for part in names:
        for name in ("cat", "dog"):
            write_images(tmp_path / part / name, 3)
    if len(names) > 2:
        with pytest.warns(UserWarning, match="validation: left out, as only train and test are read"):
            data = datasets.load(tmp_path)
    else:
        data = datasets.load(tmp_path)
    assert (data.class_names, len(data.x), len(data.x_test)) == (("cat", "dog"), 6, 6)


@pytest.mark.parametrize("names", [("train", "val"), ("training", "testing"), ("train",), ("Test", "valid")])
def test_other_parts_are_not_taken_for_classes(tmp_path, names):
    for part in names:
        for name in ("cat", "dog"):
            write_images(tmp_path / part / name, 3)
    with pytest.raises(ValueError, match="must hold a folder for each class, or train and test with such folders"):
        datasets.load(tmp_path)


@pytest.mark.skipif(os.name != "posix", reason="names of files are bytes")
def test_class_name_that_is_not_text_raises(photos):
    os.rename(os.fsencode(photos / "dog"), os.fsencode(photos) + b"/caf\xe9")
    with pytest.raises(ValueError, match=r"class folders of .* must be text in UTF-8; found 'caf.udce9'"):
        datasets.load(photos)


def test_other_files_in_a_folder_warn_once(tmp_path):
    write_images(tmp_path / "cat", 3)
    write_images(tmp_path / "dog", 3)
    for name in ("a.webp", "b.TIF", ".hidden"):
        (tmp_path / "dog" / name).touch()
    with pytest.warns(UserWarning, match=r"2 files were left out.*a\.webp.* \.tif, \.webp") as caught:
        assert len(datasets.load(tmp_path, test_fraction=0.5).x) == 3
    assert [warning.filename for warning in caught] == [__file__]


def test_two_links_to_one_class_folder_raise(tmp_path):
    write_images(tmp_path / "cat", 3)
    (tmp_path / "dog").symlink_to(tmp_path / "cat")
    with pytest.raises(ValueError, match=r"class folders must.*found .*cat and .*dog, which are one folder"):
        datasets.load(tmp_path)


def test_huge_image_raises_before_it_is_decoded(tmp_path, monkeypatch):
    write_images(tmp_path / "cat", 3)
    write_images(tmp_path / "dog", 3)
    Image.new("1", (9_000, 9_000)).save(tmp_path / "dog" / "0.png")
    convert = Image.Image.convert

    def small(image, *arguments):
        assert image.width < 9_000
        return convert(image, *arguments)

    monkeypatch.setattr(Image.Image, "convert", small)
    with pytest.raises(ValueError, match=r"cannot be read as images: .*0\.png \(it has 9000 x 9000 pixels"):
        datasets.load(tmp_path)


def test_links_from_test_to_train_raise(tmp_path):
    for name in ("a", "b"):
        write_images(tmp_path / "train" / name, 2)
    (tmp_path / "test").symlink_to(tmp_path / "train")
    with pytest.raises(ValueError, match="one folder by a link"):
        datasets.load(tmp_path)
