"""Runs through the command line, on real images."""

import csv
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import yaml

import deepsimplex as ds
from deepsimplex.runs import RunFolder

CONFIGS = Path(__file__).parents[1] / "configs"
COMMAND = [sys.executable, "-m", "deepsimplex.cli"]
SMALL = [
    "data.limit=600",
    "training.epochs=12",
    "training.learning_rate=0.01",
    "model.backbone={name: mlp, hidden: [32], dropout: 0.2}",
]


def deepsimplex(*arguments: str, check: bool = True) -> subprocess.CompletedProcess:
    return subprocess.run([*COMMAND, *arguments], capture_output=True, text=True, check=check)


def options(tmp_path: Path, *overrides: str) -> list[str]:
    folders = [f"output={tmp_path / 'runs'}", f"cache_dir={tmp_path / 'cache'}"]
    return ["--config", str(CONFIGS / "digits.yaml"), *SMALL, *folders, *overrides]


@pytest.fixture(scope="module")
def finished(tmp_path_factory) -> tuple[RunFolder, list[str], str]:
    """A small run on digits, with validation samples: its folder, its options and what it printed."""
    place = tmp_path_factory.mktemp("runs")
    arguments = options(place, "data.validation_fraction=0.2", "export.input_dtype=uint8")
    done = deepsimplex("train", *arguments)
    return RunFolder(place / "runs" / "digits" / "001"), arguments, done.stdout


def test_a_run_leaves_everything_in_its_folder(finished):
    folder, _, printed = finished
    config = yaml.safe_load(folder.config.read_text())
    assert (config["seed"], config["training"]["epochs"], config["training"]["batch_size"]) == (0, 12, 32)
    assert json.loads(folder.versions.read_text()).keys() >= {"python", "deepsimplex", "tensorflow", "keras"}
    metrics = json.loads(folder.metrics.read_text())
    assert metrics["accuracy"] > 0.5
    for name in ("accuracy", "negative_log_likelihood", "expected_calibration_error"):
        assert f"{metrics[name]:.3f}"[:4] in printed
    with folder.history.open() as lines:
        rows = list(csv.DictReader(lines))
    assert [row["epoch"] for row in rows] == [str(epoch) for epoch in range(12)]
    assert {"loss", "val_loss", "accuracy", "val_expected_calibration_error"} <= rows[0].keys()
    assert len(list(folder.events.rglob("events.out.tfevents.*"))) == 2
    for picture in (folder.reliability, folder.predictions):
        assert picture.read_bytes().startswith(b"\x89PNG")
    assert str(folder.model) in printed
    assert not folder.backup.exists()


def test_model_and_saved_model_of_a_run_agree(finished):
    folder, _, _ = finished
    (_, _), (x_test, _) = ds.datasets.load("digits")
    pixels = np.round(255 * x_test).astype("uint8")
    p = ds.load_model(folder.model).predict_proba(pixels.astype("float32") / 255)
    served = ds.export.load_served(folder.served)
    assert served.class_names == [str(k) for k in range(10)]
    np.testing.assert_allclose(served.predict(pixels)["class_probabilities"], p, atol=1e-5)


def test_evaluate_and_export_take_the_newest_run(finished):
    folder, arguments, _ = finished
    metrics = json.loads(folder.metrics.read_text())
    folder.metrics.unlink()
    printed = deepsimplex("evaluate", *arguments).stdout
    again = json.loads(folder.metrics.read_text())
    assert again["accuracy"] == metrics["accuracy"]
    assert again["negative_log_likelihood"] == pytest.approx(metrics["negative_log_likelihood"], rel=1e-5)
    assert "accuracy" in printed
    deepsimplex("export", *arguments, "export.input_dtype=float32")
    assert ds.export.load_served(folder.served).input_dtype == "float32"


def test_targets_are_computed_alone_and_cached(tmp_path):
    printed = deepsimplex("targets", *options(tmp_path)).stdout
    assert "600 latents of dimension 9" in printed
    cached = list((tmp_path / "cache").rglob("*.npz"))
    assert len(cached) == 1
    assert not (tmp_path / "runs").exists()
    before = cached[0].stat().st_mtime_ns
    deepsimplex("targets", *options(tmp_path))
    assert [path.stat().st_mtime_ns for path in (tmp_path / "cache").rglob("*.npz")] == [before]


@pytest.mark.slow
def test_a_killed_run_resumes_to_the_same_weights(tmp_path):
    epochs = "training.epochs=30"
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    deepsimplex("train", *options(whole, epochs))

    process = subprocess.Popen([*COMMAND, "train", *options(cut, epochs)], stdout=subprocess.DEVNULL)
    folder = RunFolder(cut / "runs" / "digits" / "001")
    progress = folder.backup / "training_metadata.json"
    for _ in range(1200):
        if progress.exists() and progress.read_text() and json.loads(progress.read_text())["epoch"] >= 3:
            break
        time.sleep(0.05)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    assert not folder.model.exists()
    done = deepsimplex("train", "--resume", *options(cut, epochs))
    assert f"resuming {folder.path}" in done.stdout
    assert not (cut / "runs" / "digits" / "002").exists()

    expected = ds.load_model(whole / "runs" / "digits" / "001" / "model.keras").get_weights()
    for one, other in zip(ds.load_model(folder.model).get_weights(), expected, strict=True):
        np.testing.assert_array_equal(one, other)
    assert "finished already" in deepsimplex("train", "--resume", *options(cut, epochs)).stdout
    changed = deepsimplex("train", "--resume", *options(cut, epochs, "seed=1"), check=False)
    assert changed.returncode == 2
    assert "seed changed" in changed.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--config", "configs/digit.yaml"], "there is no file"),
        (["--config", str(CONFIGS / "digits.yaml"), "training.epoch=3"], "did you mean 'epochs'"),
        (["--config", str(CONFIGS / "digits.yaml"), "data.name=digts", "cache_dir=null"], "digits"),
        (["--config", str(CONFIGS / "digits.yaml"), "output=/proc/runs"], "output is not a folder that can be written"),
    ],
)
def test_errors_are_one_line_without_traceback(arguments, message, tmp_path):
    if not any(argument.startswith("output=") for argument in arguments):
        arguments = [*arguments, f"output={tmp_path}"]
    done = deepsimplex("train", *arguments, check=False)
    assert done.returncode == 2
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert not list(tmp_path.rglob("model.keras"))


def test_evaluate_without_a_run_says_what_to_do(tmp_path):
    done = deepsimplex("evaluate", *options(tmp_path), check=False)
    assert done.returncode == 2
    assert "run 'deepsimplex train' first" in done.stderr
