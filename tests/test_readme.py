"""What the README says runs."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"```python\n(.*?)```", README, flags=re.DOTALL)


def test_the_example_has_at_most_twenty_lines():
    lines = [line for line in EXAMPLES[0].splitlines() if line.strip()]
    assert 10 <= len(lines) <= 20


@pytest.mark.slow
def test_the_example_runs(tmp_path):
    script = tmp_path / "example.py"
    script.write_text(EXAMPLES[0])
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    accuracy = float(re.search(r"^accuracy +([0-9.]+)", done.stdout, flags=re.MULTILINE)[1])
    assert accuracy > 0.95
    assert (tmp_path / "digits.keras").is_file()
    assert (tmp_path / "served" / "saved_model.pb").is_file()


@pytest.mark.slow
def test_the_example_of_ones_own_images_runs(tmp_path):
    """On a folder of real images by class, as the README describes it, shortened to one epoch."""
    from PIL import Image
    from sklearn.datasets import load_digits

    digits = load_digits()
    for index in range(120):
        folder = tmp_path / "photos" / f"digit_{digits.target[index] % 3}"
        folder.mkdir(parents=True, exist_ok=True)
        image = Image.fromarray((digits.images[index] * 15.9).astype("uint8"))
        image.resize((32, 32)).save(folder / f"{index:04d}.png")
    (example,) = (text for text in EXAMPLES if "photos" in text)
    script = tmp_path / "own.py"
    script.write_text(re.sub(r"epochs=\d+", "epochs=1", example))
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_the_example_of_training_through_the_readout_runs(tmp_path):
    (example,) = (text for text in EXAMPLES if "composition_mass" in text)
    done = subprocess.run([sys.executable, "-c", example], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_the_example_of_a_gaussian_process_on_a_backbone_runs(tmp_path):
    (example,) = (text for text in EXAMPLES if "VariationalGaussianProcess" in text)
    done = subprocess.run([sys.executable, "-c", example], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    accuracy = float(re.search(r"^accuracy +([0-9.]+)", done.stdout, flags=re.MULTILINE)[1])
    assert accuracy > 0.95


def test_the_example_of_a_table_runs(tmp_path):
    (example,) = (text for text in EXAMPLES if "least_squares_gaussian_process" in text)
    done = subprocess.run([sys.executable, "-c", example], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert float(re.search(r"^accuracy +([0-9.]+)", done.stdout, flags=re.MULTILINE)[1]) > 0.95


def test_the_example_of_prototypes_on_a_table_runs(tmp_path):
    (example,) = (text for text in EXAMPLES if "regions.png" in text)
    done = subprocess.run([sys.executable, "-c", example], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert float(re.search(r"^accuracy +([0-9.]+)", done.stdout, flags=re.MULTILINE)[1]) > 0.95
    assert {path.name for path in tmp_path.glob("*.png")} == {"regions.png", "relevance.png"}


@pytest.mark.slow
def test_the_example_of_prototypes_on_a_backbone_runs(tmp_path):
    (example,) = (text for text in EXAMPLES if "PrototypeGaussianProcess(" in text)
    done = subprocess.run([sys.executable, "-c", example], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    wins = re.findall(r"\d+", done.stdout[done.stdout.rindex("[") :])
    assert len(wins) == 40
    assert sum(int(number) for number in wins) == 1437


@pytest.mark.slow
def test_the_example_of_a_classifier_that_is_saved_and_served_runs(tmp_path):
    (example,) = (text for text in EXAMPLES if "load_classifier" in text)
    done = subprocess.run([sys.executable, "-c", example], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert float(re.search(r"^accuracy +([0-9.]+)", done.stdout, flags=re.MULTILINE)[1]) > 0.9
    assert (tmp_path / "iris.npz").is_file()
    assert (tmp_path / "served" / "saved_model.pb").is_file()
    assert list((tmp_path / "events").glob("events.out.tfevents.*"))


@pytest.mark.slow
def test_the_example_of_calibration_runs(tmp_path):
    (example,) = (text for text in EXAMPLES if "model.calibrate(" in text)
    done = subprocess.run([sys.executable, "-c", example], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "TemperatureScaling(temperature_=" in done.stdout
    assert (tmp_path / "calibrated.keras").is_file()


@pytest.mark.slow
def test_the_example_of_watching_calibration_runs(tmp_path):
    (example,) = (text for text in EXAMPLES if "CalibrationBoard" in text)
    done = subprocess.run([sys.executable, "-c", example], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    folders = {path.parent.name for path in (tmp_path / "events").rglob("events.out.tfevents.*")}
    assert folders == {"train", "calibration"}
    assert len((tmp_path / "events" / "calibration" / "latent.tsv").read_text().splitlines()) == 360


def test_the_example_of_pictures_runs(tmp_path):
    (example,) = (text for text in EXAMPLES if "plots.latent_space" in text)
    done = subprocess.run([sys.executable, "-c", example], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    found = {path.name: path.stat().st_size for path in tmp_path.glob("*.png")}
    assert found.keys() == {"reliability.png", "simplex.png", "latent.png", "confusion.png"}
    assert min(found.values()) > 10_000


def test_no_figure_is_left_to_be_filled_in():
    assert not re.findall(r"TODO|TBD|FIXME|XX+|\?\?|\{\{|<[a-z]+ to be", README)


def test_every_file_and_picture_that_is_named_exists():
    for target in re.findall(r"\]\(([^)#]+)\)", README):
        if "://" not in target:
            assert (ROOT / target).exists(), target
    for config in re.findall(r"configs/\w+\.yaml", README):
        assert (ROOT / config).exists(), config
    for picture in re.findall(r"!\[[^]]*\]\(([^)]+)\)", README):
        assert (ROOT / picture).stat().st_size < 150_000


def test_the_commands_exist():
    makefile = (ROOT / "Makefile").read_text()
    for command in re.findall(r"^make (\w+)", README, flags=re.MULTILINE):
        assert re.search(rf"^{command}:", makefile, flags=re.MULTILINE), command


def test_the_example_of_evaluation_prints_what_stands_below_it(tmp_path):
    (example,) = (text for text in EXAMPLES if "compare_partitions" in text)
    done = subprocess.run([sys.executable, "-c", example], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    rows = [line.split() for line in re.findall(r"^(?:GMLVQ|forest)(?: +[01]\.\d{4}){5}$", README, flags=re.MULTILINE)]
    assert len(rows) == 2
    for name, *shown in rows:
        (printed,) = re.findall(rf"^{name}((?: +[01]\.\d{{4}}){{5}})$", done.stdout, flags=re.MULTILINE)
        # Another processor may round a fit differently.
        assert [float(value) for value in shown] == pytest.approx(
            [float(value) for value in printed.split()], abs=0.005
        )


def test_the_example_of_a_report_runs(tmp_path):
    (example,) = (text for text in EXAMPLES if "ds.experiments.write" in text)
    done = subprocess.run([sys.executable, "-c", example], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "Report on forest" in (tmp_path / "report.html").read_text(encoding="utf-8")
