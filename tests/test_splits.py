"""Splits by group and by time, lists of images in a CSV file, and classes that are given."""

import csv
from datetime import date, timedelta
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from deepsimplex import datasets
from deepsimplex.datasets.splits import split_rows
from deepsimplex.experiments import RunConfig
from deepsimplex.experiments.training_run import load_split


def save(path: Path, seed: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.random.default_rng(seed).integers(0, 256, (4, 5, 3)).astype("uint8")).save(path)


PATIENTS = 10
IMAGES = 4


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Path:
    """The same images in every form: a folder, a list, a table and an archive."""
    place = tmp_path_factory.mktemp("data")
    rows = []
    for k in range(2 * PATIENTS * IMAGES):
        patient = f"p{k // IMAGES:02d}"
        day = date(2024, 1, 1) + timedelta(days=7 * k % 90)
        name = f"photos/{'sick' if k % 2 else 'well'}/{patient}/{patient}_{day}_{k}.png"
        save(place / name, k)
        rows.append([name, "sick" if k % 2 else "well", patient, str(day), k])
    with (place / "list.csv").open("w", newline="") as file:
        csv.writer(file).writerows([["file", "label", "patient", "day", "k"], *rows])
    with (place / "table.csv").open("w", newline="") as file:
        numbers = [(k, 1 + k % 3, label, k // IMAGES, day[5:7] + day[8:]) for _, label, _, day, k in rows]
        csv.writer(file).writerows([["k", "one", "label", "group", "day"], *numbers])
    _, label, group, day, k = map(np.array, zip(*rows, strict=True))
    np.savez(place / "data.npz", x=k[:, None] + np.zeros(2), y=label, group=group, day=day)
    return place


FORMS = {
    "photos": {"groups": r"/(p\d+)/", "time": r"_([-\d]+)_"},
    "list.csv": {"groups": "patient", "time": "day"},
    "table.csv": {"target_column": "label", "groups": "group", "time": "day"},
    "data.npz": {"groups": "group", "time": "day"},
}


def options_of(form: str, *left_out: str) -> dict[str, str]:
    return {name: value for name, value in FORMS[form].items() if name not in left_out}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("seed", [0, 1])
def test_a_group_is_in_one_part(place, form, seed):
    data = datasets.load(place / form, seed=seed, **options_of(form, "time"))
    assert len(data.groups) == len(data.x)
    assert not {*data.groups} & {*data.groups_test}
    assert len({*data.groups} | {*data.groups_test}) == 2 * PATIENTS
    assert len(data.x_test) == 0.2 * 2 * PATIENTS * IMAGES
    np.testing.assert_array_equal(np.bincount(data.y_test), [8, 8])
    again = datasets.load(place / form, seed=seed, **options_of(form, "time"))
    np.testing.assert_array_equal(again.groups_test, data.groups_test)
    assert data.time is None


@pytest.mark.parametrize("form", FORMS)
def test_the_latest_are_tested(place, form):
    data = datasets.load(place / form, **options_of(form, "groups"))
    assert data.time.max() < data.time_test.min()
    assert len(data.x_test) >= 0.2 * 2 * PATIENTS * IMAGES
    assert (np.diff(data.time) >= 0).all()


@pytest.mark.parametrize("form", FORMS)
def test_groups_and_time_hold_out_the_groups_of_the_latest(place, form):
    data = datasets.load(place / form, **FORMS[form])
    assert not {*data.groups} & {*data.groups_test}
    last = {group: data.time[data.groups == group].max() for group in data.groups}
    last_test = [data.time_test[data.groups_test == group].max() for group in data.groups_test]
    assert max(last.values()) < min(last_test)


def test_column_group_of_a_list_is_used_unasked(place):
    (place / "grouped.csv").write_text((place / "list.csv").read_text().replace("patient", "group", 1))
    data = datasets.load(place / "grouped.csv")
    assert not {*data.groups} & {*data.groups_test}
    assert datasets.load(place / "list.csv").groups is None


def test_folder_names_the_group(place):
    by_folder = datasets.load(place / "photos", groups="folder")
    by_pattern = datasets.load(place / "photos", groups=r"/(p\d+)/")
    np.testing.assert_array_equal(by_folder.groups_test, by_pattern.groups_test)


@pytest.mark.parametrize("groups", [np.arange(1797) // 10, [f"p{k % 50}" for k in range(1797)]])
def test_groups_of_data_by_name_are_an_array(groups):
    data = datasets.load("digits", groups=groups)
    assert not {*data.groups} & {*data.groups_test}
    assert len({*data.y_test}) == 10


def test_tables_without_groups_and_times_as_features(place):
    assert datasets.load(place / "table.csv", **FORMS["table.csv"]).x.shape[1] == 2


@given(
    groups=st.lists(st.integers(0, 8), min_size=20, max_size=60),
    classes=st.integers(1, 4),
    fraction=st.sampled_from([0.1, 0.2, 0.5, 0.8]),
    seed=st.integers(0, 5),
)
@settings(max_examples=100)
def test_splits_by_group_divide_all_rows(groups, classes, fraction, seed):
    groups = np.array(groups)
    y = np.random.default_rng(seed).integers(0, classes, len(groups))
    try:
        train, test = split_rows(y, fraction, seed, "data", groups)
    except ValueError as error:
        assert "groups of data must" in str(error)  # noqa: PT017, it may raise or not
        return
    except UserWarning as warning:
        assert "have no sample held out" in str(warning)  # noqa: PT017
        return
    np.testing.assert_array_equal(np.sort([*train, *test]), np.arange(len(y)))
    assert not {*groups[train]} & {*groups[test]}
    assert {*y[train]} == {*y[test]} == {*y}


def test_share_of_groups_is_near_the_wanted_one():
    rng = np.random.default_rng(0)
    groups = rng.integers(0, 200, 3000)
    y = (groups % 7 == 0) * 2 + rng.integers(0, 2, 3000)
    for fraction in (0.1, 0.25, 0.4, 0.7):
        _, test = split_rows(y, fraction, 0, "data", groups)
        shares = np.bincount(y[test]) / np.bincount(y)
        np.testing.assert_allclose(shares, fraction, atol=0.03)


def test_class_of_one_group_is_trained_on_with_a_warning():
    groups, y = np.repeat([0, 1, 2, 3], 5), np.repeat([0, 0, 0, 1], 5)
    with pytest.warns(UserWarning, match=r"classes 1 of data have no sample held out"):
        train, _ = split_rows(y, 0.3, 0, "data", groups)
    assert {*y[train]} == {0, 1}


def test_nothing_is_held_out_at_a_fraction_of_zero(place):
    for form, options in FORMS.items():
        plain = {name: value for name, value in options.items() if name == "target_column"}
        data = datasets.load(place / form, test_fraction=0.0, **plain)
        assert (len(data.x), len(data.x_test)) == (2 * PATIENTS * IMAGES, 0)
        assert data.x_test.shape[1:] == data.x.shape[1:]
    np.testing.assert_array_equal(data.x[:, 0], np.arange(2 * PATIENTS * IMAGES))


# A group in both parts of a source


def test_group_in_both_given_parts_raises(tmp_path):
    rows = []
    for k in range(12):
        part, name = ("train", "test")[k % 2], f"{'ab'[k // 6]}"
        save(tmp_path / "data" / part / name / f"p{k // 2}" / f"{k}.png", k)
        rows.append([f"data/{part}/{name}/p{k // 2}/{k}.png", name, f"p{k // 2}", part])
    with pytest.raises(ValueError, match=r"groups of .*data must be in one part each; found 6 in training.*'p0', 'p1'"):
        datasets.load(tmp_path / "data", groups="folder")
    with (tmp_path / "list.csv").open("w", newline="") as file:
        csv.writer(file).writerows([["file", "label", "group", "split"], *rows])
    with pytest.raises(ValueError, match=r"groups of .*list\.csv must be in one part each"):
        datasets.load(tmp_path / "list.csv")
    arrays = {"x_train": np.zeros((4, 2)), "y_train": [0, 1, 0, 1], "x_test": np.ones((2, 2)), "y_test": [0, 1]}
    np.savez(tmp_path / "a.npz", **arrays, site_train=[1, 1, 2, 3], site_test=[3, 4])
    with pytest.raises(ValueError, match=r"a\.npz must be in one part each; found 1 in training and in test: 3"):
        datasets.load(tmp_path / "a.npz", groups="site")
    np.savez(tmp_path / "a.npz", **arrays, site_train=[1, 1, 2, 3], site_test=[5, 4])
    assert datasets.load(tmp_path / "a.npz", groups="site").groups_test.tolist() == [5, 4]


def test_split_of_a_list_is_taken(tmp_path):
    rows = [["file", "label", "split"]]
    for k in range(6):
        save(tmp_path / f"{k}.png", k)
        rows.append([f"{k}.png", "ab"[k % 2], "test" if k < 2 else "train"])
    with (tmp_path / "list.csv").open("w", newline="") as file:
        csv.writer(file).writerows(rows)
    data = datasets.load(tmp_path / "list.csv", dtype="uint8")
    np.testing.assert_array_equal(data.x_test[0], np.asarray(Image.open(tmp_path / "0.png")))
    assert (len(data.x), len(data.x_test), data.class_names) == (4, 2, ("a", "b"))


@pytest.mark.parametrize(
    ("form", "options", "message"),
    [
        ("photos", {"groups": "(x"}, r"groups of a folder must be 'folder' or a regular expression; found '\(x'"),
        ("photos", {"groups": "p"}, "must have one group in parentheses"),
        ("photos", {"groups": np.arange(80)}, "groups of a folder must"),
        ("photos", {"time": r"(nowhere)"}, r"time '\(nowhere\)' must be found in the path of every image; 80 of 80"),
        ("photos", {"time": r"/(p\d+)/"}, "time must be numbers, or dates as 2024-05-31.*found 'p00' in row 0"),
        (
            "data.npz",
            {"time": ["2024-05-31"] * 79 + ["2024"]},
            "time must be numbers, or dates.*found '2024-05-31' in row 0",
        ),
        (
            "data.npz",
            {"time": np.array(["2024-05-31"] * 79 + ["NaT"], "datetime64[D]")},
            "time must be.*'NaT' in row 79",
        ),
        ("list.csv", {"groups": "site"}, "groups must name a column of .*found 'site'"),
        ("list.csv", {"target_column": "kind"}, "target_column must name a column"),
        ("table.csv", {"target_column": "label", "time": "hour"}, "time must name a column of .*found 'hour'"),
        ("table.csv", {"target_column": "label", "groups": "label"}, "other columns than target_column"),
        ("data.npz", {"groups": "site"}, "must name arrays of .*found no 'site'"),
        ("data.npz", {"groups": np.zeros(80)}, "groups of .* must have at least 2 values"),
        ("data.npz", {"time": np.zeros(80)}, "time of .* must have at least 2 values"),
        ("data.npz", {"groups": np.arange(3)}, "groups must have a value for each sample"),
        ("data.npz", {"time": np.arange(3)}, "time must have a value for each sample"),
        ("data.npz", {"groups": ["", *map(str, range(79))]}, "groups must not be missing; found '' in row 0"),
    ],
)
def test_invalid_groups_and_times_raise(place, form, options, message):
    with pytest.raises(ValueError, match=message):
        datasets.load(place / form, **options)
    with pytest.raises(ValueError, match="groups by name applies to"):
        datasets.load("digits", groups="site")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("file,label\n", "must hold rows"),
        ("file,label\n0.png,\n", r"column 'label' of .*found '' in line 2"),
        ("file,label\n0.png,a\n0.png,b\n", "must list every file once"),
        ("file,label\n0.png,a\nmissing.png,b\n", r"1 of 2 files cannot be read as images: .*missing\.png"),
        ("file,label,split\n0.png,a,train\n1.png,b,training\n", "'split' of .*must hold 'train' and 'test'"),
        ("file,label\n0.png,a\n1.png,a\n", "must have at least two classes"),
        ("file,label\n0.png\n", "every line of"),
    ],
)
def test_invalid_list_raises(tmp_path, text, message):
    save(tmp_path / "0.png", 0)
    save(tmp_path / "1.png", 1)
    (tmp_path / "list.csv").write_text(text)
    with pytest.raises(ValueError, match=message):
        datasets.load(tmp_path / "list.csv")


def test_list_with_unusual_file_names(tmp_path):
    names = ["a,b.png", 'q"q.png', "line\nbreak.png", "=x.png", "ä 猫.png", str(tmp_path / "absolute.png")]
    for k, name in enumerate(names):
        save(tmp_path / name, k)
    with (tmp_path / "list.csv").open("w", newline="", encoding="utf-8-sig") as file:
        writer = csv.writer(file, delimiter=";")
        writer.writerows([("label", "file"), *(("ab"[k % 2], name) for k, name in enumerate(names))])
    data = datasets.load(tmp_path / "list.csv", test_fraction=0.0, dtype="uint8")
    for name, pixels in zip(names, data.x, strict=True):
        np.testing.assert_array_equal(pixels, np.asarray(Image.open(tmp_path / name)))


def test_damaged_files_of_a_list_are_left_out_on_request(tmp_path):
    for k in range(4):
        save(tmp_path / f"{k}.png", k)
    (tmp_path / "bad.png").write_text("text")
    rows = "".join(
        f"{name}.png,{label},p{name}\n" for name, label in [(0, "a"), ("bad", "b"), (1, "b"), (2, "a"), (3, "b")]
    )
    (tmp_path / "list.csv").write_text(f"file,label,group\n{rows}")
    with pytest.warns(UserWarning, match=r"1 of 5 files cannot be read"):
        data = datasets.load(tmp_path / "list.csv", on_error="skip", test_fraction=0.0)
    assert (data.y.tolist(), data.groups.tolist()) == ([0, 1, 0, 1], ["p0", "p1", "p2", "p3"])


# Classes of a model


def test_given_classes_number_the_labels(place, tmp_path):
    names = ("sick", "unheard", "well")
    plain = datasets.load(place / "photos", test_fraction=0.0)
    data = datasets.load(place / "photos", test_fraction=0.0, class_names=names)
    assert data.class_names == names
    np.testing.assert_array_equal(data.y, np.where(plain.y == 0, 0, 2))
    with pytest.warns(UserWarning, match="folders of .* that are none of the classes were left out: sick"):
        data = datasets.load(place / "photos", test_fraction=0.0, class_names=["well", "other"])
    assert {*data.y} == {0}
    with pytest.warns(UserWarning, match="40 samples of .* were left out, of classes not among class_names: sick"):
        data = datasets.load(place / "list.csv", test_fraction=0.0, class_names=["other", "well"])
    assert {*data.y} == {1}
    with pytest.raises(ValueError, match="must hold folders of the classes x, y"):
        datasets.load(place / "photos", class_names=["x", "y"])
    with pytest.raises(ValueError, match="must hold classes x, y; found sick, well"):
        datasets.load(place / "list.csv", class_names=["x", "y"])


# In a configuration


@pytest.mark.parametrize("left_out", ["time", "groups"])
def test_validation_samples_are_split_as_test_samples(place, left_out):
    data = {"name": str(place / "photos"), "options": options_of("photos", left_out), "validation_fraction": 0.25}
    config = RunConfig(name="a", data=data)
    split = load_split(config)
    loaded = datasets.load(data["name"], **data["options"])
    assert len(split.x) + len(split.x_validation) == len(loaded.x)
    if left_out == "time":
        of_validation = {
            group
            for group, x in zip(loaded.groups, loaded.x, strict=True)
            if (split.x_validation == x).all((1, 2, 3)).any()
        }
        assert of_validation
        assert not of_validation & {*split.groups}
        assert not {*split.groups} & {*split.groups_test}
    else:
        is_validated = np.array([(split.x_validation == x).all((1, 2, 3)).any() for x in loaded.x])
        assert loaded.time[~is_validated].max() < loaded.time[is_validated].min()
