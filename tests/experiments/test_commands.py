"""Runs on real images, and the command line that starts them."""

import contextlib
import csv
import json
import os
import re
import shlex
import subprocess
import sys
import textwrap
import warnings
from functools import partial
from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf
import yaml
from PIL import Image

import deepsimplex as ds
from deepsimplex import cli, experiments
from deepsimplex._utils import atomic_files, progress
from deepsimplex.distances.neighbors import nearest_neighbors
from deepsimplex.experiments import (
    ConfigurationError,
    RunConfig,
    RunFolder,
    commands,
    load_config,
    load_predictions,
    read_run,
    run_results,
)
from deepsimplex.experiments.run_folder import recording_failure
from deepsimplex.experiments.run_results import save_test_predictions
from deepsimplex.experiments.training_run import load_split, make_target
from deepsimplex.losses import get_loss
from tests.quick_runs import without_pictures

CONFIGS = Path(__file__).parents[2] / "configs"
SMALL = [
    "data.limit=600",
    "training.epochs=12",
    "training.learning_rate=0.01",
    "model.backbone={name: mlp, hidden: [32], dropout: 0.2}",
]

FINISHED = ["model.head=gaussian", "data.validation_fraction=0.2", "export.input_dtype=uint8", "training.epochs=3"]


def options(tmp_path: Path, *overrides: str) -> list[str]:
    folders = [f"output={tmp_path / 'runs'}", f"cache_dir={tmp_path / 'cache'}"]
    return ["--config", str(CONFIGS / "digits.yaml"), *SMALL, *folders, *overrides]


def checked(tmp_path: Path, *overrides: str) -> RunConfig:
    """The same configuration, for calls without the command line."""
    _, file, *given = options(tmp_path, *overrides)
    return load_config(file, given)


@pytest.fixture(scope="module")
def finished(tmp_path_factory, command) -> tuple[RunFolder, list[str], str]:
    """A small run on digits, with validation samples: its folder, its options and what it printed."""
    place = tmp_path_factory.mktemp("runs")
    arguments = options(place, *FINISHED)
    printed = command("train", *arguments).stdout
    return RunFolder(place / "runs" / "digits" / "001"), arguments, printed


@pytest.mark.slow
def test_run_writes_all_files(finished):
    folder, _, printed = finished
    config = yaml.safe_load(folder.config.read_text())
    assert (config["seed"], config["training"]["epochs"], config["training"]["batch_size"]) == (0, 3, 64)
    assert json.loads(folder.versions.read_text()).keys() >= {"python", "deepsimplex", "tensorflow", "keras"}
    metrics = json.loads(folder.metrics.read_text())
    assert metrics["accuracy"] > 0.5
    for name in ("accuracy", "negative_log_likelihood", "expected_calibration_error"):
        assert f"{metrics[name]:.4f}" in printed
    with folder.history.open() as lines:
        rows = list(csv.DictReader(lines))
    assert [row["epoch"] for row in rows] == [str(epoch) for epoch in range(3)]
    assert {"loss", "val_loss", "accuracy", "val_expected_calibration_error"} <= rows[0].keys()
    boards = ["calibration", "train", "validation"]
    assert sorted(path.parent.name for path in folder.events.rglob("events.out.tfevents.*")) == boards
    for picture in (folder.reliability, folder.uncertain_images):
        assert picture.read_bytes().startswith(b"\x89PNG")
    assert str(folder.model) in printed
    assert not folder.backup.exists()
    log = folder.log.read_text().splitlines()
    lines = [line.partition(" ")[2] for line in log]  # without the time
    epochs = [line.partition(":")[0] for line in lines if line.startswith("epoch")]
    assert epochs == [f"epoch {k} of 3" for k in range(1, 4)]
    assert all(line in printed for line in lines if not line.startswith("epoch"))


@pytest.mark.slow
@pytest.mark.parametrize(
    "loss",
    ["sparse_categorical_crossentropy", "{name: hybrid, weight: 0.2}"],
)
def test_run_trains_with_any_loss(loss, tmp_path):
    with without_pictures(export=False):
        few = ["model.head=gaussian", "data.limit=300", "training.batch_size=75", "training.epochs=6"]
        folder = experiments.train(
            checked(tmp_path, *few, "training.learning_rate=0.03", f"training.loss={loss}"), verbose=0
        )
    assert json.loads(folder.metrics.read_text())["accuracy"] > 0.5
    kept = get_loss(yaml.safe_load(folder.config.read_text())["training"]["loss"]).get_config()
    config = ds.load(folder.model).loss.get_config()
    for key in {"weight", "mass"} & kept.keys():
        assert config[key] == kept[key]


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["model={head: prototypes, covariance: diagonal}", "target=vertices"], "covariance 'diagonal' is not one"),
        (
            ["model.covariance=full", "training.loss={name: latent_nll, beta: 0.5}"],
            r"beta must.*found 0\.5",
        ),
        (
            ["model.head={name: prototypes, num_classes: 3}", "target=vertices"],
            r"head must.*found one",
        ),
    ],
)
def test_incompatible_parts_raise_before_a_folder_is_made(overrides, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        experiments.train(checked(tmp_path, *overrides), verbose=0)
    assert not (tmp_path / "runs").exists()


@pytest.mark.slow
def test_model_and_saved_model_of_a_run_agree(finished):
    folder, _, _ = finished
    (_, _), (x_test, _) = ds.datasets.load("digits")
    pixels = np.round(255 * x_test).astype("uint8")
    p = ds.load(folder.model).predict_proba(pixels.astype("float32") / 255)
    served = ds.export.load_served(folder.served)
    assert served.class_names == [str(k) for k in range(10)]
    np.testing.assert_allclose(served.predict(pixels)["class_probabilities"], p, atol=1e-5)
    assert "\n## Scores on " in (folder.served / "README.md").read_text()


@pytest.mark.slow
def test_run_saves_its_test_predictions(finished):
    folder, arguments, _ = finished
    (_, _), (x_test, y_test) = ds.datasets.load("digits")
    model, kept = ds.load(folder.model), load_predictions(folder.test_predictions)
    np.testing.assert_array_equal(kept.y, y_test)
    np.testing.assert_allclose(kept.p, model.predict_proba(x_test), atol=1e-5)
    assert kept.p.dtype == np.float32
    assert kept.class_names == tuple(str(k) for k in range(10))
    assert ds.readout.READOUTS.name_of(kept.readout) == "argmax"
    np.testing.assert_allclose(ds.readout.argmax(kept.latent, kept.scores), kept.p, atol=1e-4)
    np.testing.assert_allclose(kept.images, 255 * x_test[kept.image_rows].reshape(-1, 8, 8), atol=0.5)
    assert np.argmin(kept.p[np.arange(len(y_test)), y_test]) in kept.image_rows
    scores = ds.evaluation.report(kept.y, kept.p).as_dict()
    metrics = json.loads(folder.metrics.read_text())
    assert {name: metrics[name] for name in scores} == scores
    # An evaluation writes them again.
    folder.test_predictions.unlink()
    with without_pictures(eager=True):
        experiments.evaluate(load_config(arguments[1], arguments[2:]), verbose=0)
    np.testing.assert_array_equal(load_predictions(folder.test_predictions).y, y_test)


@pytest.mark.slow
@pytest.mark.parametrize(("method", "readout"), [("temperature", None), ("latent", "argmax")])
def test_readout_is_saved_unless_probabilities_are_calibrated(finished, tmp_path, method, readout):
    folder, arguments, _ = finished
    split = load_split(load_config(arguments[1], arguments[2:]))
    model = ds.load(folder.model).calibrate(split.x_validation, split.y_validation, method)
    save_test_predictions(model, split, model.predict_all(split.x_test), RunFolder(tmp_path))
    kept = load_predictions(RunFolder(tmp_path).test_predictions)
    assert (kept.readout is None) == (readout is None)
    read_out = ds.readout.argmax(kept.latent, kept.scores)
    assert np.allclose(read_out, kept.p, atol=1e-4) == (readout is not None)


@pytest.mark.slow
def test_evaluate_and_export_use_the_newest_run(finished, command):
    folder, arguments, _ = finished
    metrics = json.loads(folder.metrics.read_text())
    folder.metrics.unlink()
    printed = command("evaluate", *arguments).stdout
    again = json.loads(folder.metrics.read_text())
    assert again["accuracy"] == metrics["accuracy"]
    assert again["negative_log_likelihood"] == pytest.approx(metrics["negative_log_likelihood"], rel=1e-5)
    assert "accuracy" in printed
    folder.write_json(folder.metrics, {**metrics, "accuracy": 0.0})
    with without_pictures(eager=True):
        experiments.evaluate(load_config(arguments[1], arguments[2:]), verbose=0)
    again = json.loads(folder.metrics.read_text())
    assert again["accuracy"] == metrics["accuracy"]
    assert again["training_seconds"] == metrics["training_seconds"]
    command("export", *arguments, "export.input_dtype=float32")
    message = "export.input_dtype is 'float32' there and 'uint8' here"
    assert message in command("evaluate", *arguments, code=2).stderr
    assert ds.export.load_served(folder.served).inputs["image"].dtype == "float32"
    # An export does not change which run is the newest.
    given = [*arguments, "export.input_dtype=float32"]
    assert "finished already" in command("train", "--resume", *given).stdout
    assert yaml.safe_load(folder.config.read_text())["export"] == {"input_dtype": "float32"}


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("data.name=nothing", "no folder or data set 'nothing'"),
        ("data.options.dtype=float16", r"dtype must.*found 'float16'"),
        ("data.validation_fraction=0.9999", "leaves 0 for training"),
        ("model.backbone={name: mlp, hidden: [3]}", "this network does not fit"),
    ],
)
def test_failed_start_leaves_no_folder(tmp_path, override, message, monkeypatch):
    folder = RunFolder.create(checked(tmp_path))
    before = sorted(path.name for path in folder.path.parent.iterdir())

    def fail(*_, **__):
        raise ValueError("this network does not fit")

    if override.startswith("model"):
        monkeypatch.setattr(commands.SimplexClassifier, "build", fail)
    with pytest.raises(ValueError, match=message):
        experiments.train(checked(tmp_path, override), verbose=0)
    assert sorted(path.name for path in folder.path.parent.iterdir()) == before


def test_finished_run_skips_runs_without_a_model(tmp_path):
    config = checked(tmp_path)
    folder, cut_short = RunFolder.create(config), RunFolder.create(config)
    folder.model.touch()
    assert cut_short.path.name == "002"
    assert commands.finished_run(config, set()) == folder
    elsewhere = checked(tmp_path, "cache_dir=null", "distances.executor=ray")  # which do not change a model
    assert commands.finished_run(elsewhere, set()) == folder


def test_run_of_the_configuration_is_taken_however_old_it_is(tmp_path):
    config, other = checked(tmp_path), checked(tmp_path, "training.epochs=1")
    folder, newer, newest = RunFolder.create(config), RunFolder.create(config), RunFolder.create(other)
    for run in (folder, newer, newest):
        run.model.touch()
    newest.config.with_name("metrics.json").write_text("{}")
    assert commands.finished_run(config, set()) == newer
    assert commands.finished_run(other, set()) == newest
    with contextlib.ExitStack() as lock:
        assert commands._run_to_resume(config, lock, print) == (str(newer.path), True)
    newest.config.write_text("model: [")  # damaged: another one, as far as one knows
    assert commands.finished_run(config, set()) == newer


@pytest.mark.parametrize("what", ["evaluate", "export"])
@pytest.mark.parametrize(
    "override",
    [
        "seed=1",
        "data.validation_fraction=0.3",
        "data.limit=100",
        "target.repulsion_strength=2",
        "model.head=gaussian",
        "model.covariance=full",
        "training.epochs=1",
        "training.learning_rate=0.1",
        "calibration.method=platt",
        "calibration.density=gaussian",
        "calibration.sets=aps",
        "export.input_dtype=uint8",
    ],
)
def test_other_configuration_than_that_of_the_model_raises(what, override, tmp_path, monkeypatch):
    sample = "data.validation_fraction=0.2"
    folder = RunFolder.create(checked(tmp_path, sample))
    folder.model.touch()
    if (what, override) == ("export", "export.input_dtype=uint8"):
        monkeypatch.setattr(commands, "load_model", lambda path: ds.SimplexClassifier(ds.backbones.mlp(), "ilr", 2))
        monkeypatch.setattr(ds.SimplexClassifier, "export", lambda model, path, input_dtype: Path(path).mkdir())
        experiments.export(checked(tmp_path, sample, override), verbose=0)
        assert load_config(folder.config).export.input_dtype == "uint8"
        return
    key, _, value = override.partition("=")
    if key in ("model.head", "calibration.method", "calibration.density"):
        value = f"{{'name': '{value}'}}"
    message = rf"{key} is .* there and '?{value}(\.0)?'? here\. Use the one in .*config\.yaml.* train --resume"
    with pytest.raises(ConfigurationError, match=message):
        getattr(experiments, what)(checked(tmp_path, sample, override), verbose=0)
    assert not folder.metrics.exists()
    assert not folder.served.exists()


def test_errors_are_recorded_as_missing_unless_of_files():
    missing = {}
    for number, error in enumerate(
        (ValueError("two\nlines"), RuntimeError("x"), tf.errors.InternalError(None, None, "y"))
    ):
        with recording_failure(missing, str(number)):
            raise error
    assert missing == {"0": "two lines", "1": "RuntimeError: x", "2": "InternalError: y"}
    for error in (OSError("disk"), KeyboardInterrupt()):
        with pytest.raises(type(error)), recording_failure(missing, "3"):
            raise error


@pytest.mark.parametrize(("calibration", "message"), [([], "found 60"), (["calibration.method=platt"], "found 30")])
def test_coverage_of_more_samples_than_there_are_raises_before_training(tmp_path, monkeypatch, calibration, message):
    monkeypatch.setattr(commands, "fit", lambda *_: pytest.fail("trained"))
    given = ["data.validation_fraction=0.3", "data.limit=200", "calibration.coverage=0.99", *calibration]
    with pytest.raises(ConfigurationError, match=f"needs at least 99 validation samples.*{message}"):
        experiments.train(checked(tmp_path, *given), verbose=0)
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        ("{name: expected_cost, costs: [[0, 1], [1, 0]]}", r"costs must be those of the 10 classes .*found 2 rows"),
        (
            "{name: risk_control, bound: 0.5, risk: false_negative_rate, positive: ten}",
            "positive must be.*'ten'",
        ),
        (
            "{name: risk_control, bound: 0.1, risk: false_negative_rate, positive: '3'}",
            r"half of which .* takes: \d held-out '3' samples cannot prove a bound of 0.1 .*: at least 22 are needed",
        ),
        ("{name: risk_control, bound: 0.05}", r"\d+ held-out samples that are accepted, .*: at least 45 are needed"),
        ("{name: risk_control, bound: 0.01, risk: rejection_rate, method: conformal}", "at least 99 are needed"),
    ],
)
def test_rule_that_no_classifier_could_have_raises_before_training(tmp_path, monkeypatch, rule, message):
    monkeypatch.setattr(commands, "fit", lambda *_: pytest.fail("trained"))
    given = ["data.validation_fraction=0.25", "data.limit=200", "calibration.method=temperature"]
    with pytest.raises(ConfigurationError, match=f"^calibration.decision for 50 .*{message}"):
        experiments.train(checked(tmp_path, *given, f"calibration.decision={rule}"), verbose=0)


@pytest.mark.slow
def test_diverged_run_is_reported_as_missing(tmp_path):
    given = ["data.validation_fraction=0.3", "data.limit=200", "training.epochs=1", "target=ilr", "model.head=gaussian"]
    diverging = ["training.optimizer=sgd", "training.learning_rate=1e30", "calibration.method=temperature"]
    with without_pictures(eager=True), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        folder = experiments.train(checked(tmp_path, *given, *diverging), verbose=0)
    assert folder.read_missing().keys() == {"calibration.method", "evaluation"}
    assert "accuracy" not in folder.read_metrics()
    with pytest.raises(ValueError, match="has no predictions: training has diverged"):
        read_run(folder.path)


@contextlib.contextmanager
def incompleteness():
    """Collect the one warning of an incomplete run, and ignore those of TensorFlow."""
    messages = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("ignore")
        warnings.simplefilter("always", UserWarning)
        yield messages
    messages += [str(warning.message) for warning in caught]
    assert len(messages) == 1
    assert " lacks " in messages[0]


@pytest.mark.slow
def test_failures_after_training_keep_the_run_and_are_made_up_for(tmp_path, monkeypatch, capsys):
    given = ["data.validation_fraction=0.3", "data.limit=200", "training.epochs=1", "target=ilr", "model.head=gaussian"]
    calibration = ["calibration.density=gaussian", "calibration.method=temperature", "calibration.coverage=0.8"]

    def fail(*_, **__):
        raise RuntimeError("it failed")

    def interrupted(*_):
        raise KeyboardInterrupt

    def failing(method):
        original = getattr(ds.SimplexClassifier, method)
        return lambda model, x, *rest, **options: original(model, x) if x is None else fail()

    with without_pictures(eager=True), monkeypatch.context() as patch:
        for method in ("calibrate", "conformalize"):
            patch.setattr(ds.SimplexClassifier, method, failing(method))
        patch.setattr(ds.SimplexClassifier, "export", fail)
        patch.setattr(run_results, "_draw", fail)
        with incompleteness() as lacking:
            folder = experiments.train(checked(tmp_path, *given, *calibration), verbose=0)
    assert "calibration.method (RuntimeError: it failed); calibration.coverage (Runt" in lacking[0]
    steps = ["calibration.method", "calibration.coverage", "export", "figures"]
    assert [*folder.read_missing()] == steps
    assert "it failed" in read_run(folder.path).missing["calibration.coverage"]
    assert not folder.backup.exists()
    assert type(ds.load(folder.model).density).__name__ == "GaussianDensity"
    metrics, trained = folder.read_metrics(), ds.load(folder.model).trainable_variables
    assert {"accuracy", "unfamiliar_share", "training_seconds"} <= metrics.keys()

    monkeypatch.setattr(commands, "fit", lambda *_: pytest.fail("trained again"))
    monkeypatch.setattr(ds.SimplexClassifier, "export", lambda model, path, **options: path.mkdir())
    changed = [*given, "calibration.method=platt", "calibration.coverage=0.8"]
    with without_pictures(eager=True):
        with monkeypatch.context() as patch:
            patch.setattr(commands, "_finish", interrupted)
            with pytest.raises(KeyboardInterrupt):
                experiments.train(checked(tmp_path, *changed), resume=True, verbose=0)
        with incompleteness():
            experiments.evaluate(checked(tmp_path, *changed))
        assert [*folder.read_missing()] == [*steps[:-1], "calibration"]
        assert "missing  export: it was interrupted" in capsys.readouterr().out
        experiments.train(checked(tmp_path, *changed), resume=True, verbose=0)
        experiments.train(checked(tmp_path, *changed), resume=True)
    assert "finished already" in capsys.readouterr().out
    assert load_config(folder.config).calibration.method == {"name": "platt"}
    assert (folder.read_missing(), folder.served.exists()) == ({}, True)
    assert folder.read_metrics()["training_seconds"] == metrics["training_seconds"]
    assert folder.read_metrics()["set_coverage"] > 0.6
    log = folder.log.read_text()
    assert "calibrated on 30 validation samples: PlattScaling" in log
    assert "sets of classes from 30 validation samples" in log
    assert "unfamiliar_share" not in folder.read_metrics()
    model = ds.load(folder.model)
    assert (model.density, type(model.calibration).__name__) == (None, "PlattScaling")
    for one, other in zip(model.trainable_variables, trained, strict=True):
        np.testing.assert_array_equal(one.numpy(), other.numpy())


def test_runs_below_the_home_folder_are_resumed(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    config = load_config(CONFIGS / "digits.yaml", ["output=~/runs"])
    folder = RunFolder.create(config)
    assert folder.path == tmp_path / "runs" / "digits" / "001"
    assert RunFolder.all(config) == [folder]


@pytest.mark.parametrize(
    ("fraction", "limit", "message"),
    [
        (0.9, 2, "0.9 of 2 samples leaves 0 for training and 2 for validation"),
        (0.1, 3, "0.1 of 3 samples leaves 3 for training and 0 for validation"),
    ],
)
def test_empty_part_of_the_validation_split_raises(fraction, limit, message, tmp_path):
    with pytest.raises(ConfigurationError, match=f"data.validation_fraction {message}"):
        load_split(checked(tmp_path, f"data.validation_fraction={fraction}", f"data.limit={limit}"))


def test_folder_of_photos_is_resized(tmp_path):
    for index, name in enumerate(("cat", "dog")):
        (tmp_path / "photos" / name).mkdir(parents=True)
        for i in range(5):
            Image.new("RGB", (6 + i, 5), (40 * i, 100 * index, 0)).save(tmp_path / "photos" / name / f"{i}.png")
    config = checked(tmp_path, f"data={{name: {tmp_path}/photos, options: {{image_size: [4, 7]}}}}")
    split = load_split(config)
    assert split.x.shape == (8, 4, 7, 3)
    assert split.class_names == ["cat", "dog"]


@pytest.mark.slow
def test_mixed_precision_policy_is_restored(tmp_path):
    overrides = ["data.limit=100", "training.epochs=1", "training.mixed_precision=true", "target=ilr"]
    overrides += ["model.head=gaussian"]
    policy = keras.config.dtype_policy()
    with without_pictures(export=False, eager=True):
        folder = experiments.train(checked(tmp_path, *overrides), verbose=0)
    assert keras.config.dtype_policy() == policy
    assert ds.load(folder.model).dtype_policy.name == "mixed_float16"
    with pytest.raises(ConfigurationError):
        experiments.train(checked(tmp_path, *overrides, "data.validation_fraction=0.001"), verbose=0)
    assert keras.config.dtype_policy() == policy


def test_targets_command_caches_latents(tmp_path, command):
    printed = command("targets", *options(tmp_path)).stdout
    assert "600 latents of dimension 9" in printed
    assert re.search(r"1.8e\+05 pairs of samples per distance, 1 distance: [\d.]+ [kM] pairs/s", printed)
    cached = list((tmp_path / "cache").rglob("*.npz"))
    assert len(cached) == 1
    assert not (tmp_path / "runs").exists()
    before = cached[0].stat().st_mtime_ns
    printed = command("targets", *options(tmp_path)).stdout
    assert "1 of 1 distance taken from the cache" in printed
    assert "pairs/s" not in printed
    assert [path.stat().st_mtime_ns for path in (tmp_path / "cache").rglob("*.npz")] == [before]


@pytest.fixture
def targets_printed(tmp_path, capsys):
    """Call make_targets with 60 samples, and return what it prints."""

    def call(target: str, *overrides: str) -> str:
        experiments.make_targets(checked(tmp_path, "data.limit=60", f"target={target}", *overrides))
        return capsys.readouterr().out

    return call


def test_targets_command_prints_pairs_and_cached_distances(targets_printed):
    euclidean, cityblock = (f"{{name: casimac, distance: {name}}}" for name in ("euclidean", "cityblock"))
    both = f"{{name: mean, targets: [{euclidean}, {cityblock}]}}"
    assert "1.77e+03 pairs of samples per distance, 2 distances: " in targets_printed(both, "cache_dir=null")
    assert "1.77e+03 pairs of samples per distance, 1 distance: " in targets_printed(euclidean)
    assert "1 of 2 distances taken from the cache" in targets_printed(both)
    assert "2 of 2 distances taken from the cache" in targets_printed(both)
    approximate = "{name: casimac, method: approximate}"
    assert "1 distance searched; recall of approximate neighbors 1.000, measured" in targets_printed(approximate)
    assert "taken from the cache, or continued from it; recall of approximate neighbors 1.000" in targets_printed(
        approximate
    )
    printed = targets_printed("ilr")
    assert "pairs" not in printed
    assert "taken from" not in printed


@pytest.mark.slow
def test_only_the_targets_command_prints_progress_to_logs(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(progress, "PATIENCE_SECONDS", -1.0)
    tiles = partial(nearest_neighbors, block_bytes=2**12)  # several: of a single one there is nothing to report
    monkeypatch.setattr("deepsimplex.targets.casimac.nearest_neighbors", tiles)
    make_target(checked(tmp_path)).fit_transform([[0.0], [1.0]], [0, 1])
    assert capsys.readouterr().err == ""
    for target, shown in (("{name: mean, targets: [casimac]}", True), ("{name: casimac, show_progress: false}", False)):
        experiments.make_targets(checked(tmp_path, "data.limit=60", f"target={target}", "cache_dir=null"))
        line = re.search(r"(?i)euclidean.* neighbors: 100%, .*/s, after 0 s", capsys.readouterr().err)
        assert (line is not None) == shown


def test_concurrent_runs_have_different_folders(tmp_path, monkeypatch):
    config = checked(tmp_path)
    first = RunFolder.create(config)
    below = [[], [first]]  # at first, what the other process had not made yet
    monkeypatch.setattr(RunFolder, "below", classmethod(lambda cls, parent: below.pop(0)))
    assert RunFolder.create(config).path.name == "002"
    assert below == []


def test_resuming_a_running_run_raises(tmp_path, command):
    config = checked(tmp_path)
    folder = RunFolder.create(config)
    holding = textwrap.dedent(f"""
        import runpy, sys, time
        with runpy.run_path({atomic_files.__file__!r})["locked"]({str(folder.path)!r}):
            print("held", flush=True)
            sys.stdin.read()
    """)
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen([sys.executable, "-c", holding], **pipes) as other:
        assert other.stdout.readline() == "held\n"
        message = command("train", "--resume", *options(tmp_path), code=2).stderr
        other.stdin.close()
    assert f"run {folder.path} is being trained by another process" in message
    with folder.held():  # the other has ended
        pass


def test_run_that_ends_before_it_is_locked_counts_as_finished(tmp_path, monkeypatch, capsys):
    config = checked(tmp_path)
    folder = RunFolder.create(config)
    monkeypatch.setattr(RunFolder, "held", lambda self: contextlib.nullcontext(self.metrics.touch()))
    assert experiments.train(config, resume=True) == folder
    assert "finished already" in capsys.readouterr().out


def test_interrupt_prints_the_command_to_resume(tmp_path, command, monkeypatch):
    def interrupted(*arguments, **settings):
        raise KeyboardInterrupt

    monkeypatch.setattr(experiments, "train", interrupted)
    (line,) = command("train", *options(tmp_path), code=130).stderr.splitlines()
    message, again = line.split("; go on by ")
    assert message == "deepsimplex: interrupted"
    assert shlex.split(again) == ["deepsimplex", "train", "--resume", *options(tmp_path)]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--config", "configs/digit.yaml"], "there is no file"),
        (["--config", str(CONFIGS / "digits.yaml"), "training.epoch=3"], "did you mean 'epochs'"),
        (["--config", str(CONFIGS / "digits.yaml"), "data.name=digts", "cache_dir=null"], "digits"),
        (["--config", str(CONFIGS / "digits.yaml"), "target.distance=3"], "target: distance must be one of"),
        (["--config", str(CONFIGS / "digits.yaml"), "output=/proc/runs"], "output is not a folder that can be written"),
    ],
)
def test_errors_are_one_line_without_traceback(arguments, message, tmp_path, command):
    if not any(argument.startswith("output=") for argument in arguments):
        arguments = [*arguments, f"output={tmp_path}"]
    (line,) = command("train", *arguments, code=2).stderr.splitlines()
    assert line.startswith("deepsimplex: ")
    assert message in line
    assert not list(tmp_path.rglob("model.keras"))


@pytest.mark.filterwarnings("default:columns of:UserWarning")
def test_warnings_are_one_line_without_code(tmp_path, command):
    (tmp_path / "a.csv").write_text(",a,y\n" + "".join(f"{k},{k}.5,{k % 2}\n" for k in range(20)))
    data = f"data={{name: {tmp_path / 'a.csv'}, options: {{target_column: y}}}}"
    (line,) = command("targets", *options(tmp_path, data, "data.limit=null")).stderr.splitlines()
    assert re.fullmatch(r"deepsimplex: warning: columns of .*a\.csv were left out, .* number 1\. .*", line)


def test_entry_point_prints_errors_on_one_line(tmp_path, monkeypatch, capfd):
    """Called as a script calls it; the run that is killed has its own process."""
    monkeypatch.setattr(sys, "argv", ["deepsimplex", "evaluate", *options(tmp_path)])
    with pytest.raises(SystemExit) as end:
        cli.main()
    stderr = capfd.readouterr().err
    assert end.value.code == 2
    assert "Traceback" not in stderr
    (line,) = (line for line in stderr.splitlines() if line.startswith("deepsimplex: "))
    assert line == stderr.splitlines()[-1]
    assert "run 'deepsimplex train' first" in line


@pytest.mark.parametrize(
    ("arguments", "code"),
    [(["--help"], 0), (["monitor", "--help"], 0), (["monitor", "p.npz", "p.npz", "q.npz"], 0), (["report", "none"], 2)],
)
def test_reader_that_stops_reading_is_no_error(arguments, code, tmp_path):
    """As ``head`` does; commands end their work."""
    for name in "pq":
        np.savez(tmp_path / f"{name}.npz", p=np.array([[0.1, 0.9], [0.8, 0.2]] * 20)[:: 1 if name == "p" else -1])
    reader, writer = os.pipe()
    os.close(reader)
    program = [sys.executable, "-m", "deepsimplex.cli", *arguments]
    with os.fdopen(writer) as closed:
        errors = closed if code else subprocess.PIPE
        done = subprocess.run(program, stdout=closed, stderr=errors, text=True, cwd=tmp_path)
    assert (done.returncode, done.stderr or "") == (code, "")
    if "q.npz" in arguments:
        with np.load(tmp_path / "p_drift.npz") as state:
            assert len(state["stream_p"]) == 80


def test_version_option(command):
    assert command("--version").stdout == f"deepsimplex {ds.__version__}\n"


@pytest.mark.slow
def test_density_and_sets_are_fitted_after_training_and_saved(finished, tmp_path):
    plain, *_ = finished
    overrides = [
        "model.head=gaussian",
        "data.validation_fraction=0.3",
        "calibration.coverage=0.8",
        "calibration.sets=aps",
        "calibration.density=nearest_neighbors",
        "training.epochs=1",
        "training.batch_size=210",
        "target={name: casimac, distance: cityblock, method: approximate, candidates_per_class: 1}",
    ]
    with without_pictures(export=False, eager=True):
        folder = experiments.train(checked(tmp_path, *overrides), verbose=0)
    model, metrics = ds.load(folder.model), json.loads(folder.metrics.read_text())
    assert type(model.density).__name__ == "NeighborDistance"
    assert (model.prediction_sets.coverage, model.prediction_sets.method) == (0.8, "aps")
    assert 0.6 < metrics["set_coverage"] <= 1
    assert 0 <= metrics["unfamiliar_share"] < 0.2
    assert 0.3 < metrics["neighbor_recall"] == model.target.recall_ < 1
    assert ds.load(plain.model).density is None
    assert not {"set_coverage", "unfamiliar_share", "neighbor_recall"} & json.loads(plain.metrics.read_text()).keys()


def test_missing_ray_is_reported_on_one_line(command, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    settings = ["data.limit=60", "cache_dir=null", "distances.executor=ray"]
    error = command("targets", "--config", "configs/digits.yaml", *settings, code=2).stderr
    assert error == "deepsimplex: executor='ray' needs Ray; in a checkout: pip install '.[cluster]'\n"


@pytest.mark.slow
def test_changed_samples_raise(tmp_path):
    rng = np.random.default_rng(0)
    x, y = rng.uniform(size=(60, 4)).astype("f"), np.arange(60) % 2

    def write(rows):
        np.savez(tmp_path / "data.npz", x=x[:rows], y=y[:rows])

    write(40)
    overrides = [f"data.name={tmp_path / 'data.npz'}", *FINISHED[:2], "data.limit=null", "training.epochs=1"]
    config = checked(tmp_path, *overrides)
    calibrated = checked(tmp_path, *overrides, "calibration.method=temperature")
    folder = experiments.train(config, verbose=0)
    write(60)
    for call in (
        lambda: experiments.evaluate(config, verbose=0),
        lambda: experiments.train(calibrated, resume=True, verbose=0),
    ):
        with pytest.raises(ConfigurationError, match=r"begun with other samples: 26 training .* then, 38 training"):
            call()
    write(40)
    assert experiments.evaluate(config, verbose=0) == folder
