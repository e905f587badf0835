"""A training process that is killed: the run goes on from its backup and ends as if nothing had happened."""

import json
import signal
from pathlib import Path

import numpy as np

import deepsimplex as ds
from deepsimplex.experiments import RunFolder
from deepsimplex.experiments.backup import METADATA
from tests.fresh_process import start
from tests.quick_runs import without_pictures

CONFIGS = Path(__file__).parents[2] / "configs"
# Graphs are run as traced, as in the process of the tests: the weights are compared bit by bit.
KILLED_AFTER_AN_EPOCH = """
import os, runpy, signal
import tensorflow as tf
tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": True})
from deepsimplex.experiments.backup import Backup
back_up = Backup.on_epoch_end
def kill(*arguments, **options):
    back_up(*arguments, **options)
    os.kill(os.getpid(), signal.SIGKILL)
Backup.on_epoch_end = kill
runpy.run_module("deepsimplex.cli", run_name="__main__")
"""


def test_killed_run_resumes_to_the_same_weights(tmp_path, command):
    given = [
        *("--config", CONFIGS / "digits.yaml", "cache_dir=null", f"output={tmp_path / 'runs'}"),
        *("data.limit=300", "data.validation_fraction=0.2", "training.epochs=3"),
        "model.backbone={name: mlp, hidden: [32], dropout: 0.2}",
    ]
    process = start(KILLED_AFTER_AN_EPOCH, "train", *given, outputs=tmp_path)
    process.join()
    assert process.exitcode == -signal.SIGKILL, (tmp_path / "stderr").read_text()
    folder = RunFolder(tmp_path / "runs" / "digits" / "001")
    assert json.loads((folder.backup / METADATA).read_text())["epoch"] == 1
    assert not folder.model.exists()
    with without_pictures(export=False):
        printed = command("train", "--resume", *given).stdout
        assert f"resuming {folder.path}" in printed
        assert not (tmp_path / "runs" / "digits" / "002").exists()
        command("train", *given)  # another run, to its end
    whole = ds.load(RunFolder(tmp_path / "runs" / "digits" / "002").model)
    for one, other in zip(ds.load(folder.model).get_weights(), whole.get_weights(), strict=True):
        np.testing.assert_array_equal(one, other)
    assert "finished already" in command("train", "--resume", *given).stdout
    assert "seed is 0 there and 1 here" in command("train", "--resume", *given, "seed=1", code=2).stderr
