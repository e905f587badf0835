"""The examples of the README and of the documentation's pages run, and their statements hold."""

import ast
import json
import re
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
PAGES = [
    ROOT / "README.md",
    *(ROOT / "docs" / f"{name}.md" for name in ("index", "getting_started")),
    *sorted((ROOT / "docs" / "guides").glob("*.md")),
]


class Example(NamedTuple):
    """A block of Python on a page."""

    page: str
    number: int
    line: int
    text: str


def examples_of(path: Path) -> list[Example]:
    text = path.read_text(encoding="utf-8")
    blocks = re.finditer(r"^```python\n(.*?)^```", text, flags=re.DOTALL | re.MULTILINE)
    return [Example(path.stem, i, text[: m.start()].count("\n") + 2, m[1]) for i, m in enumerate(blocks, start=1)]


EXAMPLES = [example for path in PAGES for example in examples_of(path)]


def photos(folder: Path) -> None:
    """A folder of real images by class, as the page describes it."""
    from PIL import Image
    from sklearn.datasets import load_digits

    digits = load_digits()
    for index in range(120):
        target = folder / "photos" / f"digit_{digits.target[index] % 3}"
        target.mkdir(parents=True, exist_ok=True)
        image = Image.fromarray((digits.images[index] * 15.9).astype("uint8"))
        image.resize((32, 32)).save(target / f"{index:04d}.png")


def clinics(folder: Path) -> None:
    """Digits as X-rays: 3 is ill, 1, 7 and 8 are healthy; three images of a patient, another clinic with more ill."""
    from PIL import Image
    from sklearn.datasets import load_digits

    digits = load_digits()
    rows = [index for index, label in enumerate(digits.target) if label in (1, 3, 7, 8)]
    ill, healthy = ([k for k in rows[560:] if (digits.target[k] == 3) == sick] for sick in (True, False))
    places = dict.fromkeys(rows[:560], "clinic") | dict.fromkeys([*ill, *healthy[:30]], "other")
    for index, place in places.items():
        image = Image.fromarray((digits.images[index] * 15.9).astype("uint8")).resize((16, 16))
        name = f"p{index // 3:03d}_{index}.png"
        paths = [folder / place / ("ill" if digits.target[index] == 3 else "healthy") / name]
        for path in [*paths, *([folder / "new" / name] if place == "other" else [])]:
            path.parent.mkdir(parents=True, exist_ok=True)
            image.save(path)


def screened(folder: Path, printed: str) -> None:
    accuracy_above(0.8)(folder, printed)
    assert len((folder / "new.csv").read_text().splitlines()) == 70
    assert (folder / "why.png").is_file()


def runs(folder: Path, printed: str) -> None:
    """Nothing more than that."""


def accuracy_above(least: float) -> Callable[[Path, str], None]:
    def check(folder: Path, printed: str) -> None:
        assert float(re.search(r"^accuracy +([0-9.]+)", printed, flags=re.MULTILINE)[1]) > least

    return check


def twenty_lines(folder: Path, printed: str) -> None:
    accuracy_above(0.95)(folder, printed)
    assert (folder / "digits.keras").is_file()
    assert (folder / "served" / "saved_model.pb").is_file()


def prototypes_of_a_table(folder: Path, printed: str) -> None:
    accuracy_above(0.95)(folder, printed)
    assert {path.name for path in folder.glob("*.png")} == {"regions.png", "relevance.png"}


def prototypes_of_a_network(folder: Path, printed: str) -> None:
    wins = re.findall(r"\d+", printed[printed.rindex("[") :])
    assert len(wins) == 40
    assert sum(int(number) for number in wins) == 1437


def saved_and_served(folder: Path, printed: str) -> None:
    accuracy_above(0.9)(folder, printed)
    assert (folder / "iris.npz").is_file()
    assert (folder / "served" / "saved_model.pb").is_file()
    assert list((folder / "events" / "calibration").glob("events.out.tfevents.*"))


def table_of_text_served(folder: Path, printed: str) -> None:
    accuracy_above(0.95)(folder, printed)
    loaded, served = map(float, printed.splitlines()[-1].split())
    assert loaded < 1e-10
    assert served < 0.01


def calibrated(folder: Path, printed: str) -> None:
    assert "TemperatureScaling(temperature_=" in printed
    assert (folder / "calibrated.keras").is_file()


def watched(folder: Path, printed: str) -> None:
    folders = {path.parent.name for path in (folder / "events").rglob("events.out.tfevents.*")}
    assert folders == {"events", "train", "calibration"}


def drifted(folder: Path, printed: str) -> None:
    """Soon after the 500th sample, which is the first that is darker."""
    assert 500 < int(re.search(r"^DRIFT after (\d+) samples", printed)[1]) < 600
    assert (folder / "drift.png").is_file()


def figures(folder: Path, printed: str) -> None:
    sizes = {path.name: path.stat().st_size for path in folder.glob("*.png")}
    assert sizes.keys() == {"reliability.png", "simplex.png", "latent.png", "confusion.png"}
    assert min(sizes.values()) > 10_000


def evaluated(folder: Path, printed: str) -> None:
    """The table below the example is what it prints."""
    page = (ROOT / "docs" / "guides" / "evaluation.md").read_text(encoding="utf-8")
    rows = [line.split() for line in re.findall(r"^(?:GMLVQ|forest)(?: +[01]\.\d{4}){5}$", page, flags=re.MULTILINE)]
    assert len(rows) == 2
    for name, *shown in rows:
        (cells,) = re.findall(rf"^{name}((?: +[01]\.\d{{4}}){{5}})$", printed, flags=re.MULTILINE)
        # Another processor may round a fit differently.
        assert [float(value) for value in shown] == pytest.approx([float(value) for value in cells.split()], abs=0.005)


def reported(folder: Path, printed: str) -> None:
    assert "Report on forest" in (folder / "report.html").read_text(encoding="utf-8")


class Check(NamedTuple):
    """A check that follows an example, which is identified by a unique text."""

    after: Callable[[Path, str], None]
    epochs: int | None = None  # in place of the example's
    before: Callable[[Path], None] | None = None


CHECKS = {
    'model.export("served")  # TensorFlow alone serves it': Check(twenty_lines, epochs=3),
    '"photos"': Check(runs, epochs=1, before=photos),
    "ds.losses.Composition(": Check(runs, epochs=1),
    '"variational"': Check(accuracy_above(0.95), epochs=5),
    "least_squares_gaussian_process": Check(accuracy_above(0.95)),
    "regions.png": Check(prototypes_of_a_table),
    "prototypes_per_class": Check(prototypes_of_a_network, epochs=1),
    "iris.npz": Check(saved_and_served),
    "table.onnx": Check(table_of_text_served),
    "calibrated.keras": Check(calibrated, epochs=1),
    "callbacks=[keras.callbacks.TensorBoard": Check(watched, epochs=1),
    "plots.drift(monitor)": Check(drifted),
    "plots.latent_space": Check(figures),
    "compare_partitions": Check(evaluated),
    '"screen.keras"': Check(screened, epochs=6, before=clinics),
    'ds.experiments.write_report("report.html", ["forest.npz"])': Check(reported),
}
OTHERS = Check(runs, epochs=1)


def keys_of(example: Example) -> list[str]:
    return [key for key in CHECKS if key in example.text]


def test_every_check_matches_one_example():
    assert {key: sum(key in example.text for example in EXAMPLES) for key in CHECKS} == dict.fromkeys(CHECKS, 1)


def run_of(example: Example) -> Any:
    """The example as a parameter; those that train a network are slow."""
    marks = [pytest.mark.slow] if "model.fit(" in example.text else []
    return pytest.param(example, marks=marks, id=f"{example.page}-{example.number}")


@pytest.mark.slow
@pytest.mark.examples
@pytest.mark.filterwarnings("ignore:training changes the latents")
@pytest.mark.parametrize("example", [run_of(example) for example in EXAMPLES])
def test_example_runs(example, tmp_path, monkeypatch, capsys):
    """In this process and in an empty folder, with fewer epochs where nothing depends on them."""
    check = next((CHECKS[key] for key in keys_of(example)), OTHERS)
    text = example.text
    if check.epochs is not None:
        text = re.sub(r"epochs=\d+", f"epochs={check.epochs}", text)
    if check.before is not None:
        check.before(tmp_path)
    monkeypatch.chdir(tmp_path)
    module = types.ModuleType(f"example_{example.page}_{example.number}")
    monkeypatch.setitem(sys.modules, module.__name__, module)  # what it defines can be found again
    # Errors name the page and the line.
    code = compile("\n" * (example.line - 1) + text, f"{example.page}.md", "exec")
    exec(code, vars(module))
    check.after(tmp_path, capsys.readouterr().out)


def run_shell_block(guide: str) -> None:
    """Run the commands of a guide in this process, with few epochs and resamples."""
    import shlex

    from typer.testing import CliRunner

    from deepsimplex.cli import application

    page = (ROOT / "docs" / "guides" / f"{guide}.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"```shell\n(.*?)```", page, flags=re.DOTALL)
    for line in block.replace("\\\n", " ").strip().splitlines():
        command, *arguments = shlex.split(line.replace("epochs=15", "epochs=4"), comments=True)
        assert command == "deepsimplex"
        arguments += ["--resamples", "20"] if arguments[0] == "report" else []
        arguments += ["training.epochs=4"] if arguments[0] == "train" and "epochs" not in line else []
        done = CliRunner().invoke(application, arguments)
        assert done.exit_code == (1 if arguments[0] == "monitor" else 0), done.output  # of the screen, as more are ill


@pytest.mark.slow
@pytest.mark.examples
def test_table_is_predicted_in_a_shell(tmp_path, monkeypatch):
    from sklearn.datasets import load_wine

    import deepsimplex as ds

    monkeypatch.chdir(tmp_path)
    frame = load_wine(as_frame=True).frame.rename(columns={"target": "kind"}).sample(frac=1, random_state=0)
    frame[:120].to_csv("wine.csv", index=False)
    frame[120:].to_csv("other.csv", index=False)
    features = frame.drop(columns="kind")
    features[120:].to_csv("new.csv", index=False)
    ds.SimplexGaussianProcess().fit(features[:120], frame.kind[:120]).save("gp.npz")
    run_shell_block("tables")
    assert json.loads(Path("evaluation_other.json").read_text())["accuracy"] > 0.9


@pytest.mark.slow
@pytest.mark.examples
@pytest.mark.filterwarnings("ignore:none of the .* held-out samples has a class that is likelier:UserWarning")
def test_screen_runs_in_a_shell(tmp_path, monkeypatch):
    """The commands of the guide, in this process."""
    clinics(tmp_path)
    monkeypatch.chdir(tmp_path)
    run_shell_block("screening")
    table = (tmp_path / "new.csv").read_text().splitlines()
    assert table[0].split(",")[-3:] == ["unknown", "decision", "error"]
    assert len(table) == 70
    assert (tmp_path / "report_clinic_001.md").is_file()


def test_configuration_with_user_defined_members_is_valid(tmp_path, monkeypatch):
    """The classes of the pages on extending, in a module of their own, go into a configuration as one page says."""
    from deepsimplex.experiments import load_config

    guides = ROOT / "docs" / "guides"
    page = guides / "extending.md"
    parts = (ast.Import, ast.ImportFrom, ast.ClassDef)
    blocks = [
        ast.parse(example.text).body for each in (page, *guides.glob("own_*s.md")) for example in examples_of(each)
    ]
    kept = [ast.unparse(part) for block in blocks for part in block if isinstance(part, parts)]
    (tmp_path / "mine.py").write_text("\n\n".join(kept))
    monkeypatch.syspath_prepend(tmp_path)
    (yaml,) = re.findall(r"```yaml\n(.*?)```", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    (tmp_path / "own.yaml").write_text(f"name: own\ndata: {{name: digits, validation_fraction: 0.2}}\n{yaml}")
    try:
        config = load_config(tmp_path / "own.yaml")
    finally:
        sys.modules.pop("mine", None)
    assert config.target == {"name": "mine:Ring", "radius": 2.0}
    assert config.model.head == {"name": "mine:BoundedHead", "radius": 3.0}


def test_first_example_has_at_most_fifteen_lines():
    lines = [line for line in EXAMPLES[0].text.splitlines() if line.strip() and not line.startswith("#")]
    assert 10 <= len(lines) <= 15


def results_of(name: str) -> list[dict[str, Any]]:
    return json.loads((ROOT / "training" / "results" / f"{name}.json").read_text(encoding="utf-8"))["rows"]


FEATURES = {
    "**deepsimplex**": "deepsimplex",
    "softmax, best weight decay": "softmax, weight decay",
    "logistic regression, best penalty": "logistic regression",
}


def test_readme_table_equals_results():
    (table,) = re.findall(r"^\| task \|.*?\n(?!\|)", README, flags=re.MULTILINE | re.DOTALL)
    _, _, *shown = [[cell.strip() for cell in line.split("|")[2:-1]] for line in table.splitlines()]
    assert len(shown) <= 8
    images = {row["method"]: row for row in results_of("transfer_cifar10") if row["rows"] == 2000}
    for name, *scores in shown[:3]:
        row = images[FEATURES[name]]
        assert scores == [f"{float(row[column].split()[0]):.3f}" for column in ("accuracy", "NLL", "ECE")], name
    tables = {row["method"]: row for row in results_of("tables")}
    for name, *scores in shown[3:]:
        row = tables["SimplexGaussianProcess()" if name == "**deepsimplex**" else name]
        assert scores == [f"{row[column]:.3f}" for column in ("accuracy", "NLL, geometric mean", "ECE")], name


def test_readme_numbers_equal_results():
    text = re.sub(r"\s+", " ", README)
    (row,) = results_of("unknown_pieces")
    assert row["called unknown"] == 1.0
    assert f"more than 0.9 for {100 * row['softmax above 0.9']:.0f}% of them." in text
    assert f"all of them unknown, and {100 * row['digits, called unknown']:.0f}% of the digits" in text
    ours, softmax = (
        next(row for row in results_of("transfer_cifar10") if (row["rows"], row["method"]) == (2000, method))
        for method in ("deepsimplex", "softmax, weight decay")
    )
    assert f"the NLL is {float(ours['NLL'].split()[0]) / float(softmax['NLL'].split()[0]):.2f} of the best" in text
    many = {row["method"]: row for row in results_of("transfer_cifar10") if row["rows"] == 10_000}
    ratios = []
    for rows in (many, {row["method"]: row for row in results_of("transfer_cifar100")}):
        nll = {name: float(row["NLL"].split()[0]) for name, row in rows.items()}
        ratios.append(nll.pop("deepsimplex") / min(nll.values()))
    assert f"Of five times as many images it is {ratios[0]:.2f}, of CIFAR-100 {ratios[1]:.2f}, and calibration" in text
    score, gen = (
        float(row["AUROC, CIFAR-100: probability, GEN, unknown_score"].split(", ")[place])
        for row, place in ((ours, 2), (softmax, 1))
    )
    assert f"with an AUROC of {score:.3f}, by the best score of softmax probabilities (GEN) with {gen:.3f}." in text
    tuned = {row["method"]: row for row in results_of("transfer_tuning")}
    ours, softmax = tuned["deepsimplex, tuned"], tuned["softmax, tuned"]
    ratio = float(ours["NLL"].split()[0]) / float(softmax["NLL, best temperature"].split()[0])
    assert f"the NLL is {ratio:.2f} of that of a softmax network with its best temperature." in text
    deep = {row["method"]: float(row["NLL"].split()[0]) for row in results_of("deep_small")}
    assert f"is {deep['deepsimplex, distances']:.3f}, of a softmax layer on normalized features " in text
    assert f" {deep['cross-entropy, normalized features']:.3f}." in text
    forms = {"deep_cifar10": "the NLL is {:.2f} of that of cross-entropy", "deep_cifar10_augmented": "it is {:.2f} of"}
    for name, form in forms.items():
        rows = {row["method"]: float(row["NLL"].split()[0]) for row in results_of(name)}
        best = min(nll for method, nll in rows.items() if method.startswith("temperature"))
        assert form.format(rows["deepsimplex"] / best) in text


def test_readme_is_short():
    """And of few numbers: in no sentence more than two."""
    assert len(README.splitlines()) <= 120
    prose = re.sub(r"^```.*?^```|^\|.*?$|\]\(.*?\)|`[^`]*`", "", README, flags=re.MULTILINE | re.DOTALL)
    prose = re.sub(r"CIFAR-\d+|Python 3\.\d+ to 3\.\d+", "", prose)
    assert len(re.findall(r"\d[\d.]*", prose)) <= 15
    for sentence in re.split(r"(?<=[.:])\s", prose):
        assert len(re.findall(r"\d[\d.]*", sentence)) <= 2, sentence


def test_readme_has_no_placeholder_figures():
    for path in (*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")):
        placeholders = r"TODO|TBD|FIXME|XX+|\?\?|\{\{|<[a-z]+ to be"
        assert re.findall(placeholders, path.read_text(encoding="utf-8")) == [], path


def test_files_and_pictures_in_readme_exist():
    for page in (README, (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")):
        for target in re.findall(r"\]\(([^)#]+)\)", page):
            if "://" not in target:
                assert (ROOT / target).exists(), target
    for path in (ROOT / "README.md", *(ROOT / "docs").rglob("*.md")):
        for config in re.findall(r"configs/\w+\.yaml", path.read_text(encoding="utf-8")):
            assert (ROOT / config).exists(), config
    for picture in re.findall(r"!\[[^]]*\]\(([^)]+)\)", README):
        assert (ROOT / picture).stat().st_size < 150_000


def test_commands_in_readme_exist():
    makefile = (ROOT / "Makefile").read_text()
    for path in PAGES:
        for command in re.findall(r"(?:^|`)make ([\w-]+)", path.read_text(encoding="utf-8"), flags=re.MULTILINE):
            assert re.search(rf"^{command}:", makefile, flags=re.MULTILINE), (path, command)
