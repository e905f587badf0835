"""Runs that were cut short end with the weights of a whole one, wherever the cut was."""

import csv
import json
import shutil
from pathlib import Path

import keras
import numpy as np
import pytest

import deepsimplex as ds
from deepsimplex import experiments
from deepsimplex.experiments import ConfigurationError, RunConfig, load_config
from deepsimplex.experiments.backup import EARLIER, METADATA, WEIGHTS, repair_backup
from tests.quick_runs import without_pictures

CONFIGS = Path(__file__).parents[2] / "configs"
EPOCHS, STEPS = 4, 2


def demo(place: Path) -> RunConfig:
    """The demo's network, with its batch normalization, dropout and schedule, on few samples."""
    few = [f"data.limit={32 * STEPS}", f"training.epochs={EPOCHS}", f"output={place}", "cache_dir=null"]
    return load_config(CONFIGS / "digits.yaml", few)


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def cut_weights(backup: Path) -> None:
    cut(backup / WEIGHTS)


def cut_metadata(backup: Path) -> None:
    cut(backup / METADATA)


def killed_between_the_files(backup: Path) -> None:
    shutil.copy(backup / (METADATA + EARLIER), backup / METADATA)


def lost_metadata(backup: Path) -> None:
    (backup / METADATA).unlink()


def nothing(backup: Path) -> None:
    pass


@pytest.fixture(scope="module", autouse=True)
def unexported():
    """Weights are looked at here; in test_commands.py what a run exports and draws, and one killed that was traced."""
    with without_pictures(export=False, eager=True):
        yield


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> list[np.ndarray]:
    """Weights of a run that nothing interrupted."""
    return ds.load(experiments.train(demo(tmp_path_factory.mktemp("whole")), verbose=0).model).get_weights()


@pytest.fixture(scope="module")
def cut_run(tmp_path_factory) -> tuple[RunConfig, Path]:
    """A run stopped after three epochs, and a copy of its folder."""
    place = tmp_path_factory.mktemp("cut")
    config = demo(place)

    back_up = keras.callbacks.BackupAndRestore.on_epoch_end

    def stop(self, epoch, logs=None):
        back_up(self, epoch, logs)
        if epoch == 2:
            raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(keras.callbacks.BackupAndRestore, "on_epoch_end", stop)
        with pytest.raises(KeyboardInterrupt):
            experiments.train(config, verbose=0)
    shutil.copytree(place / "digits" / "001", place / "copy")
    return config, place / "copy"


@pytest.fixture
def backup(cut_run, tmp_path) -> Path:
    """A backup of the third epoch, to be damaged."""
    shutil.copytree(cut_run[1] / "backup", tmp_path / "backup")
    return tmp_path / "backup"


@pytest.mark.slow
@pytest.mark.parametrize("damage", [nothing, cut_weights])
def test_a_cut_run_ends_with_the_weights_of_a_whole_one(damage, whole, cut_run):
    config, copy = cut_run
    folder = experiments.RunFolder(Path(config.output) / "digits" / "001")
    shutil.rmtree(folder.path)
    shutil.copytree(copy, folder.path)
    damage(folder.backup)
    assert experiments.train(config, resume=True, verbose=0) == folder
    for found, expected in zip(ds.load(folder.model).get_weights(), whole, strict=True):
        np.testing.assert_array_equal(found, expected)
    with folder.history.open() as lines:
        assert [row["epoch"] for row in csv.DictReader(lines)] == [str(epoch) for epoch in range(EPOCHS)]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("damage", "epochs"),
    [(nothing, 3), (cut_weights, 2), (cut_metadata, 2), (killed_between_the_files, 2), (lost_metadata, 2)],
)
def test_the_earlier_backup_stands_in_for_one_cut_short(damage, epochs, backup):
    earlier = (backup / (WEIGHTS + EARLIER)).read_bytes()
    damage(backup)
    assert repair_backup(backup, STEPS) == epochs
    assert json.loads((backup / METADATA).read_text())["epoch"] == epochs
    assert ((backup / WEIGHTS).read_bytes() == earlier) == (epochs == 2)  # whatever the damage, one state to go on from
    assert repair_backup(backup, STEPS) == epochs


@pytest.mark.parametrize("damage", [cut_weights, cut_metadata, killed_between_the_files])
@pytest.mark.parametrize("earlier", [None, WEIGHTS, METADATA])
def test_without_a_whole_backup_the_folder_to_delete_is_named(damage, earlier, backup):
    damage(backup)
    if earlier is None:  # the first backup of all
        for name in (WEIGHTS, METADATA):
            (backup / (name + EARLIER)).unlink()
    else:
        cut(backup / (earlier + EARLIER))
    with pytest.raises(ConfigurationError, match=f"the backup in {backup} was cut short.* delete that folder"):
        repair_backup(backup, STEPS)
    shutil.rmtree(backup)
    assert repair_backup(backup, STEPS) == 0


@pytest.mark.slow
def test_the_named_folder_deleted_the_run_is_trained_anew(whole, cut_run):
    config, copy = cut_run
    folder = experiments.RunFolder(Path(config.output) / "digits" / "001")
    shutil.rmtree(folder.path)
    shutil.copytree(copy, folder.path)
    cut(folder.backup / WEIGHTS)
    cut(folder.backup / (WEIGHTS + EARLIER))
    with pytest.raises(ConfigurationError, match="delete that folder"):
        experiments.train(config, resume=True, verbose=0)
    shutil.rmtree(folder.backup)
    experiments.train(config, resume=True, verbose=0)
    for found, expected in zip(ds.load(folder.model).get_weights(), whole, strict=True):
        np.testing.assert_array_equal(found, expected)
    assert len(folder.history.read_text().splitlines()) == 1 + EPOCHS
