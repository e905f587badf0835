"""The page that compares runs: its inputs, its contents, and its appearance in a browser."""

import math
import shutil
import subprocess
import sys
import zipfile
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
import yaml
from matplotlib.figure import Figure
from sklearn.datasets import load_iris
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB

import deepsimplex as ds
from deepsimplex import evaluation
from deepsimplex.evaluation.report_comparison import HIGHER_IS_BETTER
from deepsimplex.experiments import (
    Predictions,
    RunFolder,
    finished_runs,
    read_run,
    read_runs,
    report_page,
    save_predictions,
)
from deepsimplex.experiments import report_figures as figures
from deepsimplex.experiments.drift_state import drift_file, save_drift
from deepsimplex.experiments.finished_runs import flat_configuration

ROOT = Path(__file__).parents[2]
QUICK = {"resamples": 20}


class Page(HTMLParser):
    """Elements of a page with their attributes, in order, and its text."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))

    def handle_data(self, data):
        self.text += data

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.elements if name == tag]


@pytest.fixture(scope="module")
def iris() -> dict[str, Predictions]:
    """Two classifiers of iris, trained on one half and tested on the other."""
    X, y = load_iris(return_X_y=True)
    models = {"bayes": GaussianNB(), "logistic": LogisticRegression(C=0.05, max_iter=1000)}
    return {
        name: Predictions.of(
            y[1::2], model.fit(X[::2, :2], y[::2]).predict_proba(X[1::2, :2]), class_names=load_iris().target_names
        )
        for name, model in models.items()
    }


@pytest.fixture(scope="module")
def inputs(iris, tmp_path_factory) -> tuple[Path, Path]:
    """A run's folder, and a file of predictions."""
    place = tmp_path_factory.mktemp("inputs")
    folder = make_run(place / "runs" / "digits" / "001", iris["bayes"])
    save_predictions(place / "logistic.npz", iris["logistic"].y, iris["logistic"].p)
    return folder.path, place / "logistic.npz"


@pytest.fixture(scope="module")
def page(inputs, tmp_path_factory) -> Path:
    """The page that compares them, which several tests read."""
    path = tmp_path_factory.mktemp("page") / "report.html"
    return ds.experiments.write_report(path, inputs, title="Two of iris", level=0.9, seed=4, **QUICK)


@pytest.fixture
def without_figures(monkeypatch):
    """A page with one empty figure of each run: figures take most of the time."""

    def empty(runs, reports, level, announce, further):
        drawn = (figures.embed(Figure(figsize=(1, 1)), f"Nothing of {run.name}", run.name) for run in runs)
        return [figures.Section("Nothing", "", tuple(drawn))]

    monkeypatch.setattr(report_page, "drawn_sections", empty)
    monkeypatch.setattr(report_page, "partition_figures", lambda comparison: ())


text_alone = pytest.mark.usefixtures("without_figures")


def make_run(parent: Path, predictions: Predictions, **changes: str) -> RunFolder:
    """A finished run's folder, with what a report reads and nothing else."""
    folder = RunFolder(parent)
    parent.mkdir(parents=True)
    config = {"name": "digits", "seed": 0, "training": {"epochs": 2, "learning_rate": 0.1}, **changes}
    folder.write_text(folder.config, yaml.safe_dump(config))
    folder.write_json(folder.versions, {"python": "3.12.1", "keras": "3.15"})
    folder.write_text(folder.history, "epoch,accuracy,loss,val_loss\n0,0.5,2.0,2.1\n1,0.75,1.0,NA\n")
    save_predictions(folder.test_predictions, predictions.y, predictions.p, class_names=predictions.class_names)
    folder.write_json(folder.metrics, {"accuracy": 0.5, "training_seconds": 75.2})
    return folder


@text_alone
def test_page_says_what_a_run_lacks(iris, tmp_path):
    folder = make_run(tmp_path / "runs" / "digits" / "001", iris["bayes"])
    missing = {"calibration.method": "y must hold <both> classes", "export": "it failed"}
    folder.write_json(folder.metrics, {"accuracy": 0.5, "missing": missing})
    run = read_run(folder.path)
    assert (run.missing, run.drift) == (missing, None)
    save_drift(drift_file(folder.test_predictions), evaluation.DriftMonitor([[0.5, 0.5], [0.4, 0.6]]), [])
    [said] = read_run(folder.path).missing.keys() - missing.keys()
    assert said == "drift"
    drift_file(folder.test_predictions).unlink()
    report = ds.experiments.write_report(tmp_path / "page.html", [folder.path, save_coin(tmp_path)], **QUICK)
    text = "digits/001 is incomplete: calibration.method (y must hold <both> classes); export (it failed)."
    assert text in Page(report).text
    assert Page(report).text.count("is incomplete") == 1


def save_coin(folder: Path) -> Path:
    save_predictions(folder / "coin.npz", [0, 1], [[0.5, 0.5], [0.5, 0.5]])
    return folder / "coin.npz"


def test_read_run_of_a_run_folder(iris, tmp_path):
    folder = make_run(tmp_path / "runs" / "digits" / "001", iris["bayes"])
    run = read_run(folder.path)
    assert (run.name, run.epochs, run.metrics["training_seconds"]) == ("digits/001", 2, 75.2)
    assert run.history["accuracy"] == [0.5, 0.75]
    assert run.history["val_loss"][0] == 2.1
    assert math.isnan(run.history["val_loss"][1])
    assert run.versions == {"python": "3.12.1", "keras": "3.15"}
    assert flat_configuration(run)["training.learning_rate"] == "0.1"
    np.testing.assert_array_equal(run.predictions.p, iris["bayes"].p)


def test_read_run_of_a_name_takes_the_newest_finished_run(iris, tmp_path):
    for number in ("001", "002", "003"):
        make_run(tmp_path / "digits" / number, iris["bayes"])
    (tmp_path / "digits" / "003" / "metrics.json").unlink()
    assert read_run(tmp_path / "digits").name == "digits/002"


def test_runs_of_equal_names_are_named_by_their_paths(iris, tmp_path):
    for place in ("one", "two"):
        make_run(tmp_path / place / "digits" / "001", iris["bayes"])
        save_predictions(tmp_path / place / "forest.npz", [0], [[0.5, 0.5]])
    paths = [tmp_path / place / name for place in ("one", "two") for name in ("digits", "forest.npz")]
    names = [run.name for run in read_runs(paths)]
    assert len(set(names)) == 4
    assert all(place in name for place, name in zip(["one", "one", "two", "two"], names, strict=True))
    assert [run.name for run in read_runs({"a": paths[0], "b": iris["bayes"]})] == ["a", "b"]
    with pytest.raises(ValueError, match=r"found .*001 twice"):
        read_runs([paths[0], paths[0] / "001"])


def test_missing_run_raises_with_similar_names(iris, tmp_path):
    make_run(tmp_path / "runs" / "digits" / "001", iris["bayes"])
    with pytest.raises(FileNotFoundError, match=r"no run .*runs/digts': .*; did you mean 'digits'"):
        read_run(tmp_path / "runs" / "digts")
    with pytest.raises(FileNotFoundError, match=r"no '002' in .*/digits'; did you mean '001'"):
        read_run(tmp_path / "runs" / "digits" / "002")
    with pytest.raises(FileNotFoundError, match=r"no run .*runs/x/001': no 'x' in .*/runs'; there are digits"):
        read_run(tmp_path / "runs" / "x" / "001")
    (tmp_path / "runs" / "empty").mkdir()
    with pytest.raises(ValueError, match=r"neither a run folder.*found no run in it"):
        read_run(tmp_path / "runs" / "empty")
    with pytest.raises(ValueError, match=r"found no run in it; there are .*digits"):
        read_run(tmp_path / "runs")


def test_run_without_predictions_raises_with_the_command_to_run(iris, tmp_path):
    older, newer = (make_run(tmp_path / "digits" / number, iris["bayes"]) for number in ("001", "002"))
    for folder in (older, newer):
        folder.model.touch()
        folder.test_predictions.unlink()
    with pytest.raises(ValueError, match=r"'deepsimplex evaluate --config .*002/config.yaml' writes those"):
        read_run(newer.path)
    with pytest.raises(ValueError, match=r"writes those of the newest run of a name, .*002"):
        read_run(older.path)
    newer.metrics.unlink()
    with pytest.raises(ValueError, match="unfinished; 'deepsimplex train --resume --config"):
        read_run(newer.path)
    older.metrics.unlink()
    with pytest.raises(ValueError, match="found 2 unfinished runs in it"):
        read_run(tmp_path / "digits")


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("predictions.npz", "PK\x03", "predictions.npz is damaged"),
        ("history.csv", "epoch,loss\n0,1.0\n1,", "history.csv must hold a row of numbers"),
        ("history.csv", "epoch,loss,accuracy\n0,1.0\n", "history.csv must hold a row of numbers"),
        ("versions.json", "{", "versions.json must hold names and versions"),
        ("config.yaml", "a: [", "config.yaml is not readable as YAML"),
    ],
)
def test_damaged_file_of_a_run_raises(iris, tmp_path, file, content, message):
    folder = make_run(tmp_path / "digits" / "001", iris["bayes"])
    (folder.path / file).write_text(content)
    with pytest.raises(ValueError, match=message):
        ds.experiments.write_report(tmp_path / "report.html", [folder.path], **QUICK)
    assert not (tmp_path / "report.html").exists()


@pytest.mark.slow
def test_page_contains_all_scores_and_intervals(iris, page):
    page = Page(page)
    for predictions in iris.values():
        scores = evaluation.report(predictions.y, predictions.p, intervals=0.9, seed=4, **QUICK)
        for score, interval in scores.intervals.items():
            assert report_page.number(getattr(scores, score)) in page.text
            assert f"{report_page.number(interval.lower)} to {report_page.number(interval.upper)}" in page.text
    partitions = evaluation.compare_partitions(iris["bayes"].y, {name: each.p for name, each in iris.items()})
    for partition in partitions.partitions.values():
        assert all(report_page.number(value) in page.text for value in partition.measures().values())
    assert "2 runs on the same 75 test samples of 3 classes." in page.text
    assert "90% interval from 20 bootstrap resamples" in page.text


@text_alone
def test_best_scores_and_equivalent_ones_are_marked(iris, tmp_path):
    probabilities = {name: each.p for name, each in iris.items()}
    comparison = evaluation.compare_reports(iris["bayes"].y, probabilities, resamples=100)
    marks = {}
    for score in (*HIGHER_IS_BETTER, "brier_uncertainty"):
        marks[score] = [report_page.mark(name, score, comparison) for name in iris]
    for score in HIGHER_IS_BETTER:
        for name, mark in zip(iris, marks[score], strict=True):
            value = getattr(comparison.reports[name], score)
            best = value == getattr(comparison.reports[comparison.best[score]], score)
            assert mark == ("best" if best else "" if comparison.differs(name, score) else "same")
    assert {"best", "same", ""} == {mark for row in marks.values() for mark in row}
    assert marks["brier_uncertainty"] == ["", ""]

    page = Page(ds.experiments.write_report(tmp_path / "report.html", iris, resamples=100))
    titles = [attributes.get("title") for attributes in page.all("abbr")]
    shown = [mark for row in marks.values() for mark in row]
    assert titles.count("best of the row") == shown.count("best")
    assert titles.count("does not differ significantly from the best") == shown.count("same")
    assert len([one for one in page.all("span") if one.get("class") == "interval"]) == sum(
        len(each.intervals) for each in comparison.reports.values()
    )
    alone = Page(ds.experiments.write_report(tmp_path / "alone.html", {"bayes": iris["bayes"]}, **QUICK))
    assert "best of the row" not in [attributes.get("title") for attributes in alone.all("abbr")]


@text_alone
@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"turned": 4}, "The labels of bayes and other differ for 4 of 75 test samples"),
        ({"rows": 40}, "bayes was tested on 75 samples of 3 classes, other on 40 samples of 3 classes"),
        ({"class_names": ["a", "b", "c"]}, "bayes and other have classes of different names."),
    ],
)
def test_runs_on_different_test_sets_are_not_compared(iris, tmp_path, change, sentence):
    predictions, rows = iris["bayes"], change.get("rows", 75)
    y = predictions.y.copy()
    y[: change.get("turned", 0)] += 1
    names = change.get("class_names", predictions.class_names)
    other = Predictions.of(y[:rows], iris["logistic"].p[:rows], class_names=names)
    page = Page(ds.experiments.write_report(tmp_path / "report.html", {"bayes": predictions, "other": other}, **QUICK))
    assert sentence in page.text
    assert "Not compared" in page.text
    assert "Standardized partitions" not in page.text
    assert "★" not in page.text
    for run in (predictions, other):
        assert report_page.number(evaluation.accuracy(run.y, run.p)) in page.text


@text_alone
def test_runs_with_different_classes_or_without_names(iris, tmp_path):
    two = Predictions.of([0, 1, 1], [[0.9, 0.1], [0.3, 0.7], [0.6, 0.4]])
    page = Page(ds.experiments.write_report(tmp_path / "report.html", {"bayes": iris["bayes"], "two": two}, **QUICK))
    assert "two on 3 samples of 2 classes" in page.text
    unnamed = Predictions.of(iris["bayes"].y, iris["logistic"].p)
    page = Page(
        ds.experiments.write_report(tmp_path / "report.html", {"bayes": unnamed, "named": iris["bayes"]}, **QUICK)
    )
    assert "Standardized partitions" in page.text
    assert "versicolor" in page.text


@pytest.mark.slow
@pytest.mark.parametrize("n", [2, 3])
def test_page_of_a_single_test_sample(tmp_path, n):
    one = Predictions.of([1], [[0.25, 0.75] + [0.0] * (n - 2)])
    page = Page(ds.experiments.write_report(tmp_path / "report.html", {"one": one}, **QUICK))
    assert "1 test sample of" in page.text
    assert "Caution: 100% of the 1 samples of 'one' are alone in their region" in page.text


def class_shares(run, level):
    """A table of each class's share of the test samples."""
    shares = np.bincount(run.predictions.y, minlength=run.predictions.p.shape[1]) / len(run.predictions.y)
    return figures.PageTable(["class", "share"], [*zip(run.predictions.class_names, shares.tolist(), strict=True)])


def test_further_sections_have_figures_or_tables(iris, tmp_path, monkeypatch):
    def first_run_alone(run, level):
        return (Figure(figsize=(2, 1)), "an empty picture") if run.name == "bayes" else None

    monkeypatch.setattr(figures, "_sections_by_run", lambda *_: ())
    sections = [
        ds.experiments.PageSection("Shares <of> each class", "How many samples are of each class.", class_shares),
        ds.experiments.PageSection("Nothing", "A picture of nothing.", first_run_alone, "None was drawn of"),
        ds.experiments.PageSection("Left out", "Nothing of any run.", lambda run, level: None),
    ]
    page = Page(ds.experiments.write_report(tmp_path / "report.html", iris, sections=sections, **QUICK))
    for text in ("Shares <of> each class", "How many samples are of each class.", "versicolor", "0.3333"):
        assert text in page.text
    assert "A picture of nothing. None was drawn of: logistic." in page.text
    assert "Nothing of bayes: an empty picture" in [image["alt"] for image in page.all("img")]
    assert "Left out" not in page.text


@pytest.mark.parametrize("kind", ["class_names", "missing", "single", "many"])
def test_scores_of_each_class_are_on_the_page(kind, iris, tmp_path, monkeypatch):
    monkeypatch.setattr(
        figures, "embed", lambda figure, alt, caption="": figures.EmbeddedFigure("", alt, 9, 9, caption)
    )
    n = {"many": 25}.get(kind, 3)
    rng = np.random.default_rng(0)
    y, p = rng.integers(0, n - (kind == "missing"), 60), rng.dirichlet(np.ones(n), 60)
    y = np.zeros_like(y) if kind == "single" else y
    names = ["<i>a</i>", "b & c", "$d$"] if kind == "class_names" else None
    predictions = Predictions.of(y, p, class_names=names, groups=np.arange(60) // 3)
    page = Page(ds.experiments.write_report(tmp_path / "report.html", {"one": predictions}, level=0.9, **QUICK))
    scores = evaluation.class_scores(y, p, intervals=0.9, groups=np.arange(60) // 3, **QUICK)
    for name in ("sensitivity", "specificity", "positive_predictive_value", "average_precision"):
        for value, bounds in zip(getattr(scores, name), scores.intervals[name], strict=True):
            interval = "" if np.isnan(bounds[0]) else " to ".join(map(report_page.number, bounds))
            text = report_page.number(value) + interval
            assert text in page.text, name
    assert "whole groups at a time" in page.text
    assert not page.all("i")
    notes = {"missing": "No sample is of class 2", "single": "All samples are of one class", "many": "one: 25 rows"}
    assert notes.get(kind, "<i>a</i>" if names else "") in page.text


def test_groups_of_predictions_are_saved(tmp_path):
    groups = np.array(["b", "a", "b"], object)
    save_predictions(tmp_path / "p.npz", [0, 1, 0], np.eye(2)[[0, 1, 0]], groups=groups)
    assert read_run(tmp_path / "p.npz").predictions.groups.tolist() == [1, 0, 1]
    with pytest.raises(ValueError, match=r"groups must.*found shape \(2,\)"):
        save_predictions(tmp_path / "p.npz", [0, 1, 0], np.eye(2)[[0, 1, 0]], groups=groups[:2])


@text_alone
def test_samples_of_one_group_are_resampled_and_said(iris, tmp_path):
    y, p = iris["bayes"].y, iris["bayes"].p
    one = Predictions.of(y, p, groups=["ward 3"] * len(y))
    page = Page(ds.experiments.write_report(tmp_path / "report.html", {"one": one}, **QUICK))
    assert "the test samples, which are of one group: others may differ by more." in page.text
    lower, upper = evaluation.bootstrap_interval(evaluation.accuracy, y, p, **QUICK)
    assert f"{report_page.number(lower)} to {report_page.number(upper)}" in page.text


@text_alone
def test_names_are_escaped(iris, tmp_path):
    evil = '<script>alert("x")</script>&$a$_'
    names = [evil, "<b>b</b>", "$c$"]
    predictions = Predictions.of(iris["bayes"].y, iris["bayes"].p, class_names=names)
    folder = make_run(tmp_path / "runs" / "digits" / "001", predictions, title=evil)
    path = ds.experiments.write_report(
        tmp_path / "report.html", {evil: predictions, "run": folder.path}, title=evil, **QUICK
    )
    page = Page(path)
    assert not page.all("script")
    assert not page.all("b")
    assert evil in page.text
    assert "<script" not in path.read_text()


def test_page_has_no_external_links_and_every_image_an_alt_text(page):
    page = Page(page)
    links = [attributes[key] for _, attributes in page.elements for key in ("src", "href") if key in attributes]
    assert all(link.startswith(("data:", "#")) for link in links)
    images = page.all("img")
    # Partition, ROC, precision-recall, reliability twice, simplex, confusion; risk, learning curves.
    assert len(images) == 2 * 7 + 2
    assert all(len(image["alt"]) > 20 and int(image["width"]) > 100 for image in images)
    assert {link[1:] for link in links if link.startswith("#")} <= {
        attributes.get("id") for _, attributes in page.elements
    }
    assert "url(" not in page.text.replace("data:", "")
    assert not page.all("script")


@pytest.mark.slow
def test_failed_page_keeps_the_earlier_one(iris, tmp_path, monkeypatch):
    page = tmp_path / "report.html"
    page.write_text("earlier")

    def fail(*_, **__):
        raise ValueError("this picture fails")

    monkeypatch.setattr(figures.plots, "confusion_matrix", fail)
    with pytest.raises(ValueError, match="bayes, confusion matrix: this picture fails"):
        ds.experiments.write_report(page, iris, **QUICK)
    assert page.read_text() == "earlier"
    assert [path.name for path in tmp_path.iterdir()] == ["report.html"]


@pytest.mark.parametrize(
    ("path", "given", "options", "error", "message"),
    [
        ("a.html", {}, {}, ValueError, "at least one run"),
        ("a.html", "runs/digits", {}, TypeError, "a sequence or a mapping of runs; found one str"),
        ("a.html", [Predictions.of([0], [[0.5, 0.5]])], {}, ValueError, "mapping {name: predictions}"),
        ("a.html", {}, {"level": 95}, ValueError, r"level must.*found 95"),
        ("a.html", {}, {"resamples": 0}, ValueError, r"resamples must.*found 0"),
        ("a.html", {}, {"seed": -1}, ValueError, r"seed must.*found -1"),
        (".", {}, {}, ValueError, "the page must be a file, such as .*/report.html; found .*, a folder"),
        ("/proc/nowhere/a.html", {}, {}, OSError, "folder of the page is not a folder that can be written"),
    ],
)
def test_invalid_argument_raises(tmp_path, path, given, options, error, message):
    with pytest.raises(error, match=message):
        ds.experiments.write_report(tmp_path / path, given, **options)


@text_alone
def test_differing_keys_come_first(iris, tmp_path):
    first = make_run(tmp_path / "a" / "001", iris["bayes"])
    second = make_run(tmp_path / "b" / "001", iris["bayes"], training={"epochs": 2, "beta": 0.5})
    second.write_json(second.versions, {"python": "3.12.1", "keras": "3.16"})
    runs = read_runs([first.path, second.path])
    assert report_page.differing([flat_configuration(run) for run in runs]) == {
        "training.learning_rate": ["0.1", "–"],
        "training.beta": ["–", "0.5"],
    }
    page = Page(ds.experiments.write_report(tmp_path / "report.html", [first.path, second.path], **QUICK))
    assert page.text.index("Keys that differ") < page.text.index("a/001: configuration")
    assert "Versions that differ" in page.text
    assert "1 min 15 s" in page.text


def test_large_figures_are_embedded_as_png():
    figure = Figure(figsize=(3, 2))
    ax = figure.add_subplot()
    ax.plot([0, 1], [0, 1])
    small = figures.embed(figure, "a line")
    assert small.uri.startswith("data:image/svg+xml;base64,")
    ax.scatter(*np.random.default_rng(0).normal(size=(2, 5000)))
    large = figures.embed(figure, "points")
    assert large.uri.startswith("data:image/png;base64,")
    assert (large.width, large.height) == (288, 192)


@pytest.mark.slow
def test_report_command_writes_the_page_and_prints_its_steps(inputs, page, tmp_path, command):
    """The same call writes the same page."""
    folder, predictions = inputs
    written = tmp_path / "pages" / "report.html"
    printed = command(
        "report",
        *(str(folder.parent), str(predictions)),
        *("--output", str(written), "--title", "Two of iris", "--resamples", "20", "--level", "0.9", "--seed", "4"),
    ).stdout
    assert "read 2 runs: digits/001, logistic" in printed
    assert "scores of logistic, with intervals from 20 resamples" in printed
    assert "picture: confusion matrix" in printed
    assert str(written) in printed
    assert written.read_bytes() == page.read_bytes()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nowhere"], "there is no run 'nowhere'"),
        (["pyproject.toml"], "pyproject.toml is a text file: it holds no arrays"),
        (["pyproject.toml", "--level", "2"], "level must be a number above 0 and below 1; found 2.0"),
    ],
)
def test_errors_are_one_line_without_traceback(command, tmp_path, monkeypatch, arguments, message):
    monkeypatch.chdir(ROOT)
    (line,) = command("report", *arguments, "--output", tmp_path / "report.html", code=2).stderr.splitlines()
    assert line.startswith("deepsimplex: ")
    assert message in line
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_wheel_contains_the_template(tmp_path):
    for part in ("pyproject.toml", "README.md"):
        shutil.copy(ROOT / part, tmp_path)
    shutil.copytree(ROOT / "deepsimplex", tmp_path / "deepsimplex", ignore=shutil.ignore_patterns("__pycache__"))
    build = "from setuptools import build_meta; build_meta.build_wheel('.')"
    subprocess.run([sys.executable, "-c", build], check=True, capture_output=True, cwd=tmp_path)
    (wheel,) = tmp_path.glob("*.whl")
    carried = {name for name in zipfile.ZipFile(wheel).namelist() if "experiments/templates" in name}
    assert carried == {f"deepsimplex/experiments/templates/page.{kind}" for kind in ("css", "html")}


@pytest.mark.slow
def test_only_the_worst_of_many_classes_have_a_diagram(tmp_path):
    rng = np.random.default_rng(0)
    predictions = Predictions.of(rng.integers(0, 21, 100), rng.dirichlet(np.full(21, 0.1), 100))
    page = Page(ds.experiments.write_report(tmp_path / "report.html", {"many": predictions}, **QUICK))
    assert any("the 20 of 21 classes with the largest error" in image["alt"] for image in page.all("img"))


def test_facts_include_sets_and_familiarity_if_given():
    predictions = Predictions.of([0, 1], [[0.5, 0.5], [0.5, 0.5]])
    runs = [
        finished_runs.Run("with", predictions, metrics={"set_coverage": 0.9, "unfamiliar_share": 0.5}),
        finished_runs.Run("without", predictions),
    ]
    rows = report_page.facts(runs)
    assert rows["coverage of the sets"] == ["0.9000", "–"]
    assert rows["share of samples below familiarity 0.01"] == ["0.5000", "–"]
    assert "mean size of the sets" not in rows
    assert "share of samples below familiarity 0.01" not in report_page.facts(runs[1:])
