"""Files of predictions watched for drift: formats, resumed states, the command, the picture and the board."""

import csv

import numpy as np
import pytest
from matplotlib.image import imread
from typer.testing import CliRunner

from deepsimplex import cli, evaluation, plots
from deepsimplex.evaluation import DriftMonitor
from deepsimplex.experiments import monitor, read_run, save_predictions
from deepsimplex.experiments import report_figures as figures
from deepsimplex.experiments.file_predictions import FilePredictions
from tests.event_files import events

RNG = np.random.default_rng(0)
NAMES = ["cat", 'do"g, a', "=fox"]
P = RNG.dirichlet([1.0, 1.0, 1.0], 400)
Y = (P.cumsum(axis=1) < RNG.random((400, 1))).sum(axis=1)
FAMILIARITY = RNG.random(400)
DAYS = {"reference": slice(200), "monday": slice(200, 300), "tuesday": slice(300, 400)}


def write_csv(path, p, labels=None, familiarity=None, names=NAMES, prefix="probability "):
    header = [*(f"{prefix}{name}" for name in names), "file"]
    columns = [*p.T.tolist(), ["a,b\n.png"] * len(p)]
    if labels is not None:
        header, columns = [*header, "label"], [*columns, labels]
    if familiarity is not None:
        header, columns = ["familiarity", *header], [familiarity.tolist(), *columns]
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([header, *zip(*columns, strict=True)])
    return path


def labels_of(rows):
    return [NAMES[k] if i % 2 else "" for i, k in enumerate(Y[rows])]


@pytest.fixture
def files(tmp_path):
    return {
        day: write_csv(tmp_path / f"{day}.csv", P[rows], labels_of(rows), FAMILIARITY[rows])
        for day, rows in DAYS.items()
    }


@pytest.fixture
def drifted(tmp_path):
    return write_csv(tmp_path / "drifted.csv", P[:200], None, 0.3 * FAMILIARITY[:200])


def test_state_goes_on_from_call_to_call(files, tmp_path):
    expected = DriftMonitor(P[:200], labels_of(DAYS["reference"]), FAMILIARITY[:200], classes=NAMES)
    for day in ("monday", "tuesday"):
        expected.update(P[DAYS[day]], labels_of(DAYS[day]), FAMILIARITY[DAYS[day]])
    lines = []
    options = {"state": tmp_path / "state" / "drift.npz", "announce": lines.append}
    assert monitor(files["reference"], [files["monday"]], **options).samples == 100
    report = monitor(files["reference"], [files["monday"], files["tuesday"]], **options)
    assert str(report) == str(expected.report())
    assert report.labels == 100
    assert [line.partition(": ")[2][:11] for line in lines] == ["100 samples", "watched bef", "100 samples"]
    assert str(monitor(files["reference"], **options)) == str(report)


@pytest.mark.parametrize("prefix", ["probability_", "p_"])
def test_formats_of_files_give_the_same_report(files, prefix, tmp_path):
    plain = {day: write_csv(tmp_path / f"plain_{day}.csv", P[rows], prefix=prefix) for day, rows in DAYS.items()}
    arrays = {day: tmp_path / f"{day}.npz" for day in DAYS}
    for day, rows in DAYS.items():
        np.savez(arrays[day], p=P[rows], class_names=NAMES)
    reports = [
        monitor(paths["reference"], [paths["monday"]], state=tmp_path / f"{k}.npz")
        for k, paths in enumerate([plain, arrays])
    ]
    assert reports[0] == reports[1]


def test_tables_of_predicted_files_are_watched(tmp_path):
    """With sets, with rows of files that cannot be read, and with a column of labels beside."""
    names, p, sets = tuple(NAMES), P[200:300].copy(), P[200:300] > 0.2
    errors = tuple("it is damaged" if i % 10 == 0 else "" for i in range(100))
    p[::10] = np.nan
    files = tuple(f"{i}.png" for i in range(100))
    table = FilePredictions(files, names, p, errors, sets=sets, familiarity=FAMILIARITY[200:300])
    columns = {**table.columns(), "label": [NAMES[k] for k in Y[200:300]]}
    table.write(tmp_path / "monday.csv")
    with (tmp_path / "labeled.csv").open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([columns, *zip(*columns.values(), strict=True)])
    reference = write_csv(tmp_path / "reference.csv", P[:200], labels_of(slice(200)), FAMILIARITY[:200])
    for day, labels in (("monday", 0), ("labeled", 90)):
        report = monitor(reference, [tmp_path / f"{day}.csv"], state=tmp_path / f"{day}.npz")
        assert (report.samples, report.labels) == (90, labels)
    kept = np.arange(100) % 10 > 0
    assert report.coverage == pytest.approx(sets[kept, Y[200:300][kept]].mean())
    assert str(monitor(reference, state=tmp_path / "labeled.npz")) == str(report)


def test_saved_predictions_are_watched(tmp_path):
    for day, rows in DAYS.items():
        save_predictions(tmp_path / f"{day}.npz", Y[rows], P[rows])
    report = monitor(tmp_path / "reference.npz", [tmp_path / "monday.npz"], state=tmp_path / "reference_drift.npz")
    assert (report.labels, report.familiarity) == (100, None)


def test_page_of_watched_predictions_has_figure_and_alarms(files, tmp_path):
    """The state lies beside the reference by default, and belongs to the page of these predictions alone."""
    for name, rows in {"model": DAYS["reference"], "other": DAYS["monday"]}.items():
        save_predictions(tmp_path / "run" / f"{name}.npz", Y[rows], P[rows], class_names=NAMES)
    drifted = write_csv(tmp_path / "drifted.csv", P[:200][P[:200, 0] > 0.4])
    report = monitor(tmp_path / "run" / "model.npz", [drifted])
    assert report.alarms == {name: count for name, count in report.alarms.items() if count >= report.alarm}
    runs = {name: read_run(tmp_path / "run" / f"{name}.npz") for name in ("model", "other")}
    assert str(runs["model"].drift.report()) == str(report)
    assert runs["other"].drift is None
    scores = {"model": evaluation.report(Y[:200], P[:200])}
    section = {one.title: one for one in figures.sections([runs["model"]], scores, 0.9, print)}["Drift"]
    [figure], [(name, table)] = section.figures, section.tables
    assert f"DRIFT after {report.alarm} samples" in figure.alt
    assert name == "model"
    alarms = {row[0]: row[1] for row in table.rows if row[1] != "none"}
    assert [*alarms.items()] == sorted(report.alarms.items(), key=lambda alarm: alarm[1])
    assert {"confidence", "true class", *alarms} == {row[0] for row in table.rows}
    [cells] = [row[3:] for row in table.rows if row[0] == "class cat"]
    assert cells == [*report.class_frequencies["cat"]]
    [cells] = [row[3:] for row in table.rows if row[0] == "true class"]
    assert cells[0] == pytest.approx(P[np.arange(200), Y[:200]].mean())
    assert np.isnan(cells[1])  # no labels in the stream


def test_command_tells_drift_by_its_status(files, drifted, tmp_path):
    figure, events_folder = tmp_path / "drift.png", tmp_path / "events"
    options = ["--state", str(tmp_path / "state.npz"), "--figure", str(figure), "--log-dir", str(events_folder)]
    done = CliRunner().invoke(cli.application, ["monitor", str(files["reference"]), str(files["monday"]), *options])
    assert done.exit_code == 0, done.output
    assert "no drift: 100 samples" in done.output
    assert imread(figure).std() > 0.05
    done = CliRunner().invoke(cli.application, ["monitor", str(files["reference"]), str(drifted), *options])
    assert done.exit_code == 1, done.output
    assert "DRIFT after" in done.output
    first, second = events(events_folder)
    assert ("drift/coverage", 100) in first
    assert ("pictures/drift", 300) in second
    assert second["drift/p_value", 300] < 0.05 < first["drift/p_value", 100]
    assert {"drift/evidence/familiarity", "drift/frequency/cat", "drift/confidence"} <= {tag for tag, _ in second}


def other_reference(files, tmp_path):
    return files["monday"], [files["tuesday"]], {}


def other_level(files, tmp_path):
    return files["reference"], [files["tuesday"]], {"level": 0.01}


def other_classes(files, tmp_path):
    path = write_csv(tmp_path / "x.csv", P[:5], None, FAMILIARITY[:5], names=["cat", "cow", "fox"])
    return files["reference"], [path], {}


def no_familiarity(files, tmp_path):
    return files["reference"], [write_csv(tmp_path / "x.csv", P[:5])], {}


def unknown_label(files, tmp_path):
    return files["reference"], [write_csv(tmp_path / "x.csv", P[:5], ["cow"] * 5, FAMILIARITY[:5])], {}


def bad_probabilities(files, tmp_path):
    return files["reference"], [write_csv(tmp_path / "x.csv", 2 * P[:5], None, FAMILIARITY[:5])], {}


def text(content, suffix=".csv"):
    def case(files, tmp_path):
        path = tmp_path / f"x{suffix}"
        path.write_bytes(content)
        return files["reference"], [path], {}

    return case


def damaged_state(files, tmp_path):
    (tmp_path / "drift.npz").write_bytes(b"PK")
    return files["reference"], [files["tuesday"]], {}


@pytest.mark.parametrize(
    ("case", "words"),
    [
        (other_reference, "another reference"),
        (other_level, r"level = 0\.05, not 0\.01"),
        (other_classes, r"x\.csv must hold the classes.*cow"),
        (no_familiarity, r"x\.csv: familiarity must be given"),
        (unknown_label, r"x\.csv: y must hold.*cow"),
        (bad_probabilities, r"x\.csv: every row of p must sum to 1"),
        (damaged_state, r"state .*drift\.npz is damaged"),
        (text(b""), r"x\.csv must .*header"),
        (text(b"probability a,probability b\n"), r"x\.csv must have .*0 rows"),
        (text(b"file,class\na,b\n"), r"x\.csv must have .*\['file', 'class'\]"),
        (text(b"probability a,probability b\n0.5\n"), r"x\.csv: row 0 must have 2 cells; found 1"),
        (text(b"probability a,probability b\n0.5,x\n"), r"x\.csv: column 'probability b' must hold numbers"),
        (text(b"p_a,p_b,error\n,,damaged\n"), r"x\.csv must have .*1 rows, all with an error"),
        (text(b'p_cat,"p_do""g, a",p_=fox,set\n0.5,0.5,0,"[""cow""]"\n'), r"column 'set' must hold .*cow"),
        (text(b'p_cat,"p_do""g, a",p_=fox,set\n0.5,0.5,0,cat\n'), r"column 'set' must hold JSON"),
        (text(b"\xff\xfe\x00"), r"x\.csv must be a table"),
        (text(b"no archive", ".npz"), r"x\.npz is a text file"),
        (text(b"PK\x03", ".npz"), r"x\.npz is damaged"),
        (text(b"", ".txt"), r"found .*x\.txt"),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_invalid_files_raise_and_keep_the_state(case, words, files, tmp_path):
    state = tmp_path / "drift.npz"
    before = monitor(files["reference"], [files["monday"]], state=state)
    reference, predictions, options = case(files, tmp_path)
    with pytest.raises(ValueError, match=words):
        monitor(reference, predictions, state=state, **options)
    if case is not damaged_state:
        assert str(monitor(files["reference"], state=state)) == str(before)


def test_missing_file_raises(tmp_path):
    with pytest.raises(FileNotFoundError, match="nowhere"):
        monitor(tmp_path / "nowhere.csv")


def test_figure_shows_evidence_means_frequencies_and_coverage():
    names = np.array(["a", "b", "$c"])
    watched = DriftMonitor(P[:200], names[Y[:200]], FAMILIARITY[:200], classes=names)
    with pytest.raises(ValueError, match="found none"):
        plots.drift(watched)
    watched.update(P[200:], names[Y[200:]], 0.3 * FAMILIARITY[200:])
    figure = plots.drift(watched)
    evidence, means, frequencies, coverage = figure.axes
    assert evidence.get_title() == f"drift after {watched.report().alarm} samples: familiarity"
    np.testing.assert_allclose(evidence.lines[1].get_ydata() * np.log(10), watched.log_evidence[:, 1])
    assert evidence.lines[-1].get_ydata()[0] == pytest.approx(np.log10(20))
    assert means.lines[2].get_ydata()[-1] == pytest.approx(0.3 * FAMILIARITY[300:].mean())
    assert [bar.get_height() for bar in frequencies.patches][3:] == pytest.approx(P[200:].mean(axis=0))
    assert [label.get_text() for label in frequencies.get_xticklabels()] == ["a", "b", "\\$c"]
    assert coverage.lines[0].get_ydata()[-1] == pytest.approx(watched.report().coverage)
    unlabeled = DriftMonitor(P[:200])
    unlabeled.update(P[200:201])
    assert not plots.drift(unlabeled).axes[3].axison
