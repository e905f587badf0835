"""A trained model on new files and on other labeled data: in Python and on the command line."""

import csv
import dataclasses
import json
import shutil
import warnings
from contextlib import contextmanager
from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

import deepsimplex as ds
from deepsimplex.datasets.image_files import read_files
from deepsimplex.experiments import (
    ConfigurationError,
    RunConfig,
    RunFolder,
    evaluate_on,
    folder_config,
    load_config,
    load_predictions,
    predict_files,
    train,
)
from deepsimplex.experiments.image_reading import ImageReading
from deepsimplex.experiments.training_run import _held_out, check_coverage, load_split
from tests.quick_runs import eager_classifiers, without_pictures

CLASSES = ("cat", 'dog, "=x"', "eel")
SIZE = (6, 5)


def picture(number: int, seed: int, size: tuple[int, int] = SIZE) -> Image.Image:
    """A noisy image of the color of its class."""
    pixels = np.random.default_rng([number, seed]).integers(0, 100, (*size, 3))
    pixels[..., number] += 120
    return Image.fromarray(pixels.astype("uint8"))


def save(path: Path, number: int, seed: int = 0, size: tuple[int, int] = SIZE) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    picture(number, seed, size).save(path)


@pytest.fixture(scope="module")
def photos(tmp_path_factory) -> Path:
    """Photos by class and patient: CLASS/PATIENT/NUMBER.png."""
    place = tmp_path_factory.mktemp("data") / "photos"
    for number, name in enumerate(CLASSES):
        for seed in range(40):
            save(place / name / f"p{number}{seed // 4}" / f"{seed}.png", number, seed)
    return place


@pytest.fixture(scope="module")
def model(photos) -> ds.SimplexClassifier:
    """A classifier with all that has a column."""
    (x, y), _ = ds.datasets.load(photos, test_fraction=0.0)
    keras.utils.set_random_seed(0)
    with eager_classifiers():
        classifier = ds.SimplexClassifier(ds.backbones.mlp([8]), class_names=CLASSES, head="gaussian")
        classifier.compile(keras.optimizers.Adam(0.02))
        classifier.fit(x[::2], y[::2], epochs=15, verbose=0)
        classifier.fit_density(x[::2], y[::2]).conformalize(x[1::2], y[1::2]).fit_unknown(x[1::2])
    return classifier


@pytest.fixture(scope="module")
def saved(model, tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("model") / "pets.keras"
    model.save(path)
    return path


@contextmanager
def user_warnings():
    """Yield the list of warnings to users, which are otherwise errors."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("ignore")
        warnings.simplefilter("always", UserWarning)
        yield caught


def read(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file, strict=True))


def test_predictions_of_files_equal_those_of_loaded_samples(model, photos):
    table = predict_files(model, photos)
    (x, y), _ = ds.datasets.load(photos, test_fraction=0.0)
    np.testing.assert_allclose(table.probabilities, model.predict_proba(x), atol=1e-6)
    np.testing.assert_array_equal(table.sets, model.predict_set(x))
    # Ranks among 1000 references: rounding may exchange two of them.
    np.testing.assert_allclose(table.familiarity, model.familiarity(x), atol=0.0015)
    np.testing.assert_allclose(table.unknown_score, model.unknown_score(x), atol=1e-6)
    np.testing.assert_array_equal(table.unknown, model.predict_or_unknown(x) == -1)
    assert table.files[0] == "cat/p00/0.png"
    columns = table.columns()
    assert np.mean(np.array(columns["class"]) == np.array(CLASSES)[y]) > 0.9
    assert json.loads(columns["set"][0]) == [name for name, held in zip(CLASSES, table.sets[0], strict=True) if held]


NAMES = [
    "=cmd.png",
    "+1.png",
    "-1.png",
    "@x.png",
    "'x.png",
    "\tx.png",
    "\rx.png",
    "\nx.png",
    "a,b.png",
    'q"q.png',
    "line\nbreak.png",
    "a;b.png",
    "ä 猫.png",
    "sub/=c.png",
    "a.PNG",
]


def test_any_file_name_is_one_row_and_no_formula(command, saved, tmp_path):
    for name in NAMES:
        save(tmp_path / "new" / name, 0)
    command("predict", saved, tmp_path / "new", "--output", tmp_path / "table.csv")
    rows = read(tmp_path / "table.csv")
    assert sorted(row["file"].removeprefix("'") if row["file"][0] == "'" else row["file"] for row in rows) == sorted(
        NAMES
    )
    for row in rows:
        assert not any(value and value[0] in "=+-@\t\r\n" for value in [*row.values(), *row])
        assert (row["class"], row["error"]) == ("cat", "")
        assert sum(float(row[f"probability_{name}"]) for name in CLASSES) == pytest.approx(1, abs=1e-5)
        assert row["unknown"] in ("true", "false")


def test_file_name_that_is_not_utf8_is_written(model, tmp_path):
    save(tmp_path / "new" / "b\udcff.png", 0)
    predict_files(model, tmp_path / "new", tmp_path / "table.csv")
    assert read(tmp_path / "table.csv")[0]["file"] == "b\\udcff.png"


def damage(place: Path) -> None:
    """Files that cannot be read, of every kind, beside a good one."""
    save(place / "good.png", 1)
    content = (place / "good.png").read_bytes()
    (place / "cut.png").write_bytes(content[:60])
    (place / "text\nfile.png").write_text("text")
    (place / "empty.jpg").write_bytes(b"")
    (place / "nothing.png").symlink_to("missing.png")
    Image.fromarray(np.zeros(SIZE, np.uint16)).save(place / "deep.png")


def test_unreadable_files_are_a_line_each_and_the_rest_is_predicted(command, saved, tmp_path):
    damage(tmp_path / "new")
    result = command("predict", saved, tmp_path / "new", "--output", tmp_path / "table.csv", code=1)
    rows = {row["file"]: row for row in read(tmp_path / "table.csv")}
    assert len(rows) == 6
    assert rows["good.png"]["class"] == CLASSES[1]
    failed = {name: row for name, row in rows.items() if row["error"]}
    assert failed.keys() == rows.keys() - {"good.png"}
    assert all(not value for row in failed.values() for name, value in row.items() if name not in ("file", "error"))
    lines = result.stderr.splitlines()
    assert len(lines) == 5
    assert all(line.startswith("deepsimplex: ") for line in lines)
    assert "1 of 6 files predicted" in result.stdout


def test_only_unreadable_files_give_a_table_of_errors(model, tmp_path):
    (tmp_path / "bad.png").write_text("text")
    table = predict_files(model, tmp_path)
    assert table.errors == ("it is damaged, or no image",)
    assert np.isnan(table.probabilities).all()
    assert list(table.columns()) == ["file", "class", *(f"probability_{name}" for name in CLASSES), "error"]


def test_images_of_other_sizes_are_scaled_with_one_warning(model, tmp_path):
    save(tmp_path / "a.png", 2, size=(30, 40))
    save(tmp_path / "b.png", 2, size=(60, 50))
    save(tmp_path / "c.png", 2)
    with user_warnings() as caught:
        table = predict_files(model, tmp_path)
    assert [str(each.message) for each in caught] == [
        "2 of 3 images, the first of 30 x 40 pixels, were scaled to 6 x 5 with antialiasing, as by datasets.load; "
        "antialias=false if training had none"
    ]
    as_in_training = [read_files([tmp_path / f"{name}.png"], SIZE, "rgb")[0].pixels / np.float32(255) for name in "abc"]
    np.testing.assert_allclose(table.probabilities, model.predict_proba(np.stack(as_in_training)), atol=1e-6)


def test_forms_of_files(model, tmp_path):
    save(tmp_path / "new" / "a.png", 0)
    save(tmp_path / "new" / "b.png", 1)
    (tmp_path / "list.csv").write_text('file,site\n"new/b.png",1\nnew/a.png,2\n')
    (tmp_path / "list.txt").write_text("new/b.png\nnew/a.png\n")
    given = [tmp_path / "new" / "b.png", tmp_path / "new" / "a.png"]
    for files in (tmp_path / "list.csv", tmp_path / "list.txt", given):
        assert predict_files(model, files).columns()["class"] == [CLASSES[1], "cat"]
    assert predict_files(model, tmp_path / "new").columns()["class"] == ["cat", CLASSES[1]]
    assert predict_files(model, given[0]).files == ("b.png",)


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (
            lambda place: place / "missing",
            FileNotFoundError,
            "an image, or a list of files; .*missing",
        ),
        (lambda place: place, ValueError, r"files must hold images \(\.bmp.*found none"),
        (lambda place: [], ValueError, "files must hold images"),
        (lambda place: (place / "l.csv", (place / "l.csv").write_text("name\na.png\n"))[0], ValueError, "'file'"),
    ],
)
def test_invalid_files_raise(model, tmp_path, make, error, message):
    with pytest.raises(error, match=message):
        predict_files(model, make(tmp_path))


def small(backbone: keras.Model, x: np.ndarray) -> ds.SimplexClassifier:
    with eager_classifiers():
        classifier = ds.SimplexClassifier(backbone, num_classes=2, head="gaussian")
        classifier.compile()
        classifier.fit(x, np.arange(len(x)) % 2, epochs=1, verbose=0)
    return classifier


@pytest.mark.parametrize(
    ("shape", "dtype", "top"),
    [((6, 5), "float32", 1.0), ((6, 5, 1), "float32", 255.0), ((6, 5, 3), "uint8", 255), ((6, 5, 3), "float32", 1.0)],
)
def test_color_and_scale_are_those_of_training(shape, dtype, top, tmp_path):
    pixels = np.random.default_rng(0).integers(0, 256, (8, *shape)).astype("uint8")
    x = (pixels * (top / 255)).astype(dtype)
    classifier = small(ds.backbones.mlp([4]), x)
    (tmp_path / "new").mkdir()
    for number, image in enumerate(pixels):  # in the order of their names
        Image.fromarray(image.squeeze()).save(tmp_path / "new" / f"{number}.png")
    classifier.save(tmp_path / "model.keras")
    expected = classifier.predict_proba(x)
    for model in (classifier, tmp_path / "model.keras"):
        np.testing.assert_allclose(predict_files(model, tmp_path / "new").probabilities, expected, atol=1e-5)


def any_size(axes: int | None) -> keras.Model:
    """A network that takes images of any size, with and without a stated input."""
    layers = [keras.layers.Conv2D(2, 3), keras.layers.GlobalAveragePooling2D()]
    return keras.Sequential(layers if axes is None else [keras.Input((None, None, axes)), *layers])


@pytest.mark.parametrize(("axes", "channels"), [(3, 3), (1, 1), (None, 3), (None, 1)])
def test_size_that_the_model_does_not_state_is_that_of_training(axes, channels, tmp_path):
    x = np.random.default_rng(0).random((8, 6, 7, channels), np.float32)
    classifier = small(any_size(axes), x)
    classifier.save(tmp_path / "any.keras")
    save(tmp_path / "new" / "a.png", 0, size=(6, 7))
    expected = predict_files(classifier, tmp_path / "new", image_size=(6, 7)).probabilities
    for model in (classifier, tmp_path / "any.keras"):
        np.testing.assert_allclose(predict_files(model, tmp_path / "new").probabilities, expected, atol=1e-6)
    if axes is not None:  # else the first images fix the size
        with user_warnings() as caught:
            predict_files(classifier, tmp_path / "new", image_size=4)
        assert "scaled to 4 x 4" in str(caught[0].message)


def test_size_that_nobody_knows_must_be_given(tmp_path):
    save(tmp_path / "a.png", 0, size=(6, 6))
    unfitted = ds.SimplexClassifier(any_size(3), num_classes=2)
    with pytest.raises(ValueError, match=r"image_size must be given, such as image_size=\[224, 224\]"):
        predict_files(unfitted, tmp_path)
    assert len(predict_files(unfitted, tmp_path, image_size=6, pixel_scale=255).files) == 1
    assert ImageReading.of(unfitted, image_size=6, pixel_scale=255).antialias


@pytest.mark.parametrize(("size", "suffix"), [((30, 20), "png"), ((30, 20), "jpg"), ((4, 3), "png"), ((9, 3), "png")])
def test_images_are_scaled_as_by_the_reader_of_training(size, suffix, tmp_path, monkeypatch):
    """That of Keras for batches, that of the package for arrays; in evaluations, too."""
    for number in range(2):
        for seed in range(4):
            path = tmp_path / "data" / f"c{number}" / f"{seed}.{suffix}"
            path.parent.mkdir(parents=True, exist_ok=True)
            noise = np.random.default_rng([number, seed]).integers(0, 256, (*size, 3))
            Image.fromarray(noise.astype("uint8")).save(path)
    options = {"image_size": SIZE, "batch_size": 8, "shuffle": False, "verbose": 0}
    batches = keras.utils.image_dataset_from_directory(tmp_path / "data", **options)
    (x, y), _ = ds.datasets.load(tmp_path / "data", image_size=SIZE, test_fraction=0.0, dtype="uint8")
    seen = []
    predict_all = ds.SimplexClassifier.predict_all
    monkeypatch.setattr(
        ds.SimplexClassifier, "predict_all", lambda self, x, **options: (seen.append(x), predict_all(self, x))[1]
    )
    for data, pixels, antialias in (((batches,), next(iter(batches))[0].numpy(), False), ((x, y), x, True)):
        backbone = keras.Sequential([keras.Input((*SIZE, 3)), keras.layers.Flatten()])
        announced = []
        with user_warnings(), eager_classifiers():
            model = ds.SimplexClassifier(backbone, class_names=["c0", "c1"])
            model.compile()
            model.fit(*data, verbose=0)
            model.save(tmp_path / "model.keras")
            predict_files(tmp_path / "model.keras", tmp_path / "data")
            evaluate_on(model, tmp_path / "data", announce=announced.append)
            predict_files(model, tmp_path / "data", antialias=not antialias)
        # Keras leaves fractions of gray levels, and decodes JPEG by another library.
        for read in seen[:2]:
            np.testing.assert_allclose(read, pixels, atol=0.501 if suffix == "png" else 6)
        if size[0] > 10:
            assert np.abs(seen[2].astype(float) - pixels).max() > 20
        assert f"{'with' if antialias else 'without'} antialiasing, as by" in announced[0]
        seen.clear()


def test_models_that_take_no_pixels_raise(tmp_path):
    save(tmp_path / "a.png", 0)
    table = small(ds.backbones.mlp([4]), np.random.default_rng(0).random((8, 3), np.float32))
    with pytest.raises(ValueError, match=r"model must take images.*shape \(None, 3\)"):
        predict_files(table, tmp_path)
    centered = small(ds.backbones.mlp([4]), np.random.default_rng(0).normal(size=(8, 6, 5)).astype("float32"))
    with pytest.raises(ValueError, match="pixel_scale must be given"):
        predict_files(centered, tmp_path)
    keras.Sequential([keras.Input((6, 5)), keras.layers.Flatten()]).save(tmp_path / "other.keras")
    with pytest.raises(ValueError, match=r"model must be a SimplexClassifier.*other\.keras"):
        predict_files(tmp_path / "other.keras", tmp_path)
    with pytest.raises(FileNotFoundError, match="missing"):
        predict_files(tmp_path / "missing", tmp_path)


def test_decisions_of_a_rule_are_a_column(model, photos):
    rule = ds.calibration.ExpectedCost(1 - np.eye(3), abstention=0.02)
    try:
        table = predict_files(model.set_decision(rule), photos)
    finally:
        model.set_decision(None)
    expected = rule.decide(table.probabilities)
    assert {*expected} >= {-1, 0}
    assert table.columns()["decision"] == [[*CLASSES, "abstain"][number] for number in expected]


class Counted(keras.layers.Layer):
    """A layer that counts how often it is computed, in graphs too."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = []

    def call(self, x):
        counted = tf.numpy_function(lambda array: (self.calls.append(len(array)), array)[1], [x], x.dtype)
        return tf.ensure_shape(counted, x.shape)


def test_new_data_pass_the_backbone_once(photos):
    """In tables of files, in evaluations and, of the classifier, with all that is fitted to it."""
    counted = Counted()
    backbone = keras.Sequential([keras.Input((*SIZE, 3)), keras.layers.Flatten(), counted])
    model = ds.SimplexClassifier(backbone, class_names=CLASSES)
    (x, y), _ = ds.datasets.load(photos, test_fraction=0.0)
    with eager_classifiers():
        model.compile()
    model.fit(x[::2], y[::2], verbose=0)
    model.fit_density(x[::2], y[::2]).set_priors([0.5, 0.3, 0.2], [0.3, 0.3, 0.4]).conformalize(x[1::2], y[1::2])
    model.set_decision(ds.calibration.ExpectedCost(1 - np.eye(3)))
    expected = {
        "probabilities": model.predict_proba(x),
        "prediction_set": model.predict_set(x),
        "decision": model.decide(x),
        "familiarity": model.familiarity(x),
        "unknown": model.unknown_score(x),
    }
    latent = model.predict_latent(x)
    for compute in (lambda: predict_files(model, photos), lambda: evaluate_on(model, photos)):
        counted.calls.clear()
        compute()
        assert sum(counted.calls) == len(x)
    predicted = model.predict_all(x)
    np.testing.assert_allclose(predicted.pop("latent")["loc"], latent.loc, atol=1e-6)
    assert predicted.keys() == expected.keys()
    for name, values in expected.items():
        np.testing.assert_allclose(predicted[name], values, atol=1e-6, err_msg=name)
    model.conformalize(x, y, groups=y % 2).set_decision(None)
    assert predicted.keys() - model.predict_all(x).keys() == {"prediction_set", "decision"}
    model.conformalize(x, y, 0.5)
    np.testing.assert_array_equal(model.predict_all(x)["prediction_set"], model.predict_set(x))


# Other labeled data


def test_evaluation_on_other_data_with_a_missing_class(command, saved, tmp_path):
    for seed in range(6):
        save(tmp_path / "clinic" / "cat" / f"{seed}.png", 0, seed)
        save(tmp_path / "clinic" / "eel" / f"{seed}.png", 2, seed, size=(12, 10))
    save(tmp_path / "clinic" / "wolf" / "a.png", 1)
    (tmp_path / "clinic" / "cat" / "bad.png").write_text("text")
    (tmp_path / "clinic" / CLASSES[1]).mkdir()
    output = tmp_path / "scores.json"
    with user_warnings():
        result = command("evaluate", saved, "--data", tmp_path / "clinic", "--output", output)
    assert f"no sample of class {CLASSES[1]}" in result.stdout
    warned = [line for line in result.stderr.splitlines() if "warning" in line]
    assert len(warned) == len(result.stderr.splitlines()) == 2  # of the other class and of the damaged file
    scores = json.loads(output.read_text())
    assert scores["samples_of_class"] == {"cat": 6, CLASSES[1]: 0, "eel": 6}
    assert (scores["samples"], scores["accuracy"]) == (12, 1.0)
    assert {"set_coverage", "unfamiliar_share", "unknown_share"} <= scores.keys()
    assert load_predictions(output.with_suffix(".npz")).class_names == CLASSES


def test_evaluation_on_one_label_writes_beside_the_model(saved, tmp_path):
    save(tmp_path / "one" / "eel" / "a.png", 2)
    scores = evaluate_on(saved, tmp_path / "one")
    assert scores["samples_of_class"] == {"cat": 0, CLASSES[1]: 0, "eel": 1}
    text = (saved.parent / "evaluation_one.json").read_text()
    written = json.loads(text, parse_constant=pytest.fail)  # no NaN
    assert written["accuracy"] == scores["accuracy"]


def test_evaluation_on_other_forms_of_data(model, photos, tmp_path):
    expected = evaluate_on(model, photos)["negative_log_likelihood"]
    data = ds.datasets.load(photos, test_fraction=0.0)
    np.savez(tmp_path / "pets.npz", x=data.x, y=data.y, class_names=data.class_names)
    rows = [(path, path.parts[-3]) for path in sorted(photos.rglob("*.png"))]
    with (tmp_path / "pets.csv").open("w", newline="") as file:
        csv.writer(file).writerows([("file", "label"), *rows])
    for other in (tmp_path / "pets.npz", tmp_path / "pets.csv"):
        assert evaluate_on(model, other)["negative_log_likelihood"] == pytest.approx(expected, abs=1e-5)


def test_evaluation_on_the_test_part_of_data(model, tmp_path):
    for part, count in (("train", 1), ("test", 3)):
        for number in (0, 2):
            for seed in range(count):
                save(tmp_path / "data" / part / CLASSES[number] / f"{seed}.png", number, seed + count)
    assert evaluate_on(model, tmp_path / "data")["samples"] == 6


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["evaluate"], "evaluate needs MODEL and --data"),
        (["evaluate", "runs"], "evaluate needs MODEL and --data"),
        (["evaluate", "{saved}", "--data", "missing"], "there is no folder or data set 'missing'"),
        (["evaluate", "{saved}", "--data", "digits"], "must hold classes cat"),
        (["evaluate", "{saved}", "--data", "{photos}", "colour=rgb"], "unknown key 'colour'"),
        (["evaluate", "{saved}", "--data", "{photos}", "announce=1"], "unknown key 'announce'"),
        (
            ["evaluate", "{saved}", "--data", "{photos}", "--output", "a.npz"],
            "output must be a file that ends in .json",
        ),
        (["predict", "{saved}", "{photos}", "--output", "."], "output must be a file that ends in .csv"),
        (["predict", "{saved}", "{photos}", "size=3"], "unknown key 'size'"),
        (["predict", "{saved}", "{photos}", "image_size=3.5"], "image_size must be"),
        (["predict", "{saved}", "{photos}", "--rejected", "2"], "rejected must be"),
        (["predict", "{saved}", "missing"], "files must be a folder of images, an image, a list of files or a table;"),
        (["predict", "{photos}", "{photos}"], "neither a .keras file nor a run folder"),
        (["train"], "train needs a folder"),
        (["train", "training.epochs=2"], "train needs a folder"),
        (["train", "missing", "epochs=3"], "there is no folder or data set 'missing'"),
        (["train", "{photos}x"], "photosx'; did you mean"),
        (
            ["train", "{photos}/cat/p00"],
            "p00 must hold one folder of images for each",
        ),
    ],
)
def test_invalid_command_is_one_line(command, saved, photos, tmp_path, monkeypatch, arguments, message):
    monkeypatch.chdir(tmp_path)
    result = command(*(text.format(saved=saved, photos=photos) for text in arguments), code=2)
    assert message in result.stderr
    assert len(result.stderr.splitlines()) == 1


# Training


def test_groups_reach_what_divides_samples_and_the_saved_predictions(photos, tmp_path, monkeypatch):
    seen = {}

    def record(kind, method):
        do = getattr(kind, method)

        def recorded(self, *arguments, groups=None, **options):
            seen[method] = groups
            return do(self, *arguments, groups=groups, **options)

        monkeypatch.setattr(kind, method, recorded)

    record(ds.heads.ClosedFormHead, "solve")
    record(ds.SimplexClassifier, "calibrate")
    record(ds.SimplexClassifier, "fit_density")
    data = {"name": str(photos), "options": {"groups": "folder"}, "validation_fraction": 0.4}
    backbone = {"name": "mlp", "hidden": []}  # nothing to train
    config = RunConfig(
        name="given",
        output=str(tmp_path),
        data=data,
        model={"backbone": backbone, "head": "closed_form"},
        training={"epochs": 1},
        calibration={"unknown": True, "method": "auto", "density": "gaussian", "coverage": 0.6},
    )
    with without_pictures(export=False, eager=True), user_warnings():  # of few samples
        run = train(config, verbose=0)
    loaded, split = ds.datasets.load(photos, groups="folder"), load_split(config)
    assert sorted([*seen["solve"], *split.groups_validation]) == sorted(loaded.groups)
    assert [*seen["fit_density"]] == [*split.groups] == [*seen["solve"]]
    halves = [{*split.groups_validation[rows]} for rows in _held_out(config, split)]
    assert {*seen["calibrate"]} == halves[0]
    assert not halves[0] & halves[1]
    assert halves[0] | halves[1] == {*split.groups_validation}
    assert len({*load_predictions(run.test_predictions).groups}) == len({*loaded.groups_test})
    assert "unknown_share" in run.read_metrics()


def test_halves_of_validation_samples_keep_order_of_time_and_whole_groups(photos):
    data = {"name": str(photos), "validation_fraction": 0.3}
    config = RunConfig(name="halves", data=data, calibration={"method": "temperature", "coverage": 0.6})
    split = load_split(config)
    rows = np.arange(len(split.y_validation))
    by_class = _held_out(config, split)
    assert np.abs(np.subtract(*(np.bincount(split.y_validation[half]) for half in by_class))).max() <= 1
    time = np.random.default_rng(0).permutation(len(rows)) // 2  # two samples of each time
    earlier, later = _held_out(config, dataclasses.replace(split, time_validation=time))
    assert time[earlier].max() < time[later].min()
    assert sorted([*earlier, *later]) == rows.tolist()
    assert len(later) == pytest.approx(len(rows) / 2, abs=2)
    groups = rows // 4
    grouped = dataclasses.replace(split, groups_validation=groups)
    for_calibration, for_sets = _held_out(config, grouped)
    assert not {*groups[for_calibration]} & {*groups[for_sets]}
    assert {*split.y_validation[for_calibration]} == {*split.y_validation[for_sets]} == {0, 1, 2}
    check_coverage(config, grouped)
    with pytest.raises(ValueError, match="groups of the validation samples must have at least 2 values"):
        check_coverage(config, dataclasses.replace(split, groups_validation=0 * groups))


def test_configuration_of_a_folder(photos, tmp_path):
    config = folder_config(photos, ["training.epochs=2"])
    assert (config.name, config.data.options) == ("photos", {"image_size": [6, 5], "color": "rgb", "on_error": "skip"})
    assert (config.training.epochs, config.calibration.unknown, config.calibration.coverage) == (2, True, 0.9)
    (tmp_path / "copy.yaml").write_text(config.as_yaml())
    assert load_config(tmp_path / "copy.yaml") == config
    for number in range(2):
        for seed in range(3):
            path = tmp_path / "-Röntgen 1" / f"c{number}" / f"{seed}.png"
            save(path, number, seed, size=(200, 100))
            Image.open(path).convert("L").save(path)
    config = folder_config(tmp_path / "-Röntgen 1")
    assert (config.name, config.data.options) == (
        "R_ntgen_1",
        {**config.data.options, "image_size": [64, 32], "color": "grayscale"},
    )
    assert config.calibration.coverage is None  # too few


@pytest.mark.parametrize("overrides", [[], ["training.epochs=2"], ["target_column=kid"], ["target_column=null"]])
def test_configuration_of_a_table_needs_the_column_of_labels(overrides, tmp_path):
    (tmp_path / "my table.csv").write_text("length;the kind\n" + "1;a\n2;b\n" * 200)
    message = r"my table.csv' 'target_column=the kind'; found target_column=.* the columns length, the kind"
    with pytest.raises(ds.experiments.ConfigurationError, match=message) as raised:
        folder_config(tmp_path / "my table.csv", overrides)
    assert raised.value.__notes__ == ["See docs/guides/tables.md#in-a-shell"]
    config = folder_config(tmp_path / "my table.csv", ["target_column=the kind"])
    assert (config.name, config.data.options) == ("my_table", {"target_column": "the kind"})
    assert config.model.backbone == {"name": "mlp", "normalize": True}
    assert config.calibration.coverage == 0.9


@pytest.mark.slow
def test_folder_is_trained_and_new_files_are_predicted(command, photos, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with without_pictures(export=False, eager=True), warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        small = ["training.epochs=3", "training.batch_size=16", "training.learning_rate=0.03"]
        small += ["model.backbone={name: mlp, hidden: [8]}", "model.head=gaussian"]
        result = command("train", photos, *small, "--groups", "folder")
        assert "image_size [6, 5]" in result.stdout
        assert "deepsimplex predict runs/photos/001 FOLDER" in result.stdout
        run = RunFolder(Path("runs/photos/001"))
        save(tmp_path / "new" / "a.png", 0, size=(40, 30))
        command("predict", "runs/photos", "new")
        assert {"set", "familiarity", "unknown"} <= read(tmp_path / "predictions.csv")[0].keys()
        command("evaluate", "runs/photos", "--data", photos)
        assert json.loads((run.path / "evaluation_photos.json").read_text())["samples"] == 120
        assert "unknown_share" in run.read_metrics()
        command(
            "train",
            photos,
            *small,
            "--groups",
            "folder",
            "--resume",
            "calibration.unknown=false",
            "calibration.decision={name: risk_control, bound: 0.5}",
        )
        command("predict", "runs/photos", "new")
        assert "unknown" not in read(tmp_path / "predictions.csv")[0]
        assert read(tmp_path / "predictions.csv")[0]["decision"] in ("cat", "abstain")
    assert "unknown_share" not in run.read_metrics()
    assert ds.load(run.model).unknown is None


def test_predictions_do_not_replace_the_list_of_files(command, saved, photos, tmp_path):
    file = next(photos.rglob("*.png"))
    table = tmp_path / "predictions.csv"
    table.write_text(f"file,label\n{file},one\n")
    result = command("predict", saved, table, "--output", table, code=2)
    assert "output must not be the file of samples" in result.stderr
    with pytest.raises(ValueError, match="output must not be the file of samples"):
        predict_files(saved, table, table)
    assert table.read_text().startswith("file,label")


def test_paths_begin_with_the_home_folder(photos, monkeypatch):
    monkeypatch.setenv("HOME", str(photos.parent))
    place = f"~/{photos.name}"
    (x, _), _ = ds.datasets.load(place)
    (expected, _), _ = ds.datasets.load(photos)
    np.testing.assert_array_equal(x, expected)
    assert folder_config(place).data.name == str(photos)


def test_folders_with_a_dot_have_runs_of_their_own(photos, tmp_path):
    names = [folder_config(shutil.copytree(photos, tmp_path / name)).name for name in ("site.1", "site.2")]
    assert names == ["site.1", "site.2"]


def test_unreadable_images_say_why(tmp_path):
    (tmp_path / "photos" / "a").mkdir(parents=True)
    Image.fromarray(np.full((8, 8), 40000, np.uint16)).save(tmp_path / "photos" / "a" / "0.png")
    with pytest.raises(ConfigurationError, match="16 bits"):
        folder_config(tmp_path / "photos")
