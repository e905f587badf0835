"""Interrupted runs resume to the same weights as uninterrupted ones."""

import csv
import errno
import json
import os
import shutil
from contextlib import ExitStack, nullcontext
from pathlib import Path

import h5py
import keras
import numpy as np
import pytest

import deepsimplex as ds
from deepsimplex import experiments
from deepsimplex.experiments import ConfigurationError, RunConfig, commands, load_config
from deepsimplex.experiments.backup import CHECKSUMS, EARLIER, METADATA, WEIGHTS, Backup, repair_backup
from tests.full_disk import files_no_larger_than
from tests.quick_runs import without_pictures

CONFIGS = Path(__file__).parents[2] / "configs"
EPOCHS, STEPS = 3, 2


def demo(place: Path) -> RunConfig:
    """A small network like the demo's, with its batch normalization, dropout and schedule, on few samples."""
    few = [f"data.limit={32 * STEPS}", f"training.epochs={EPOCHS}", f"output={place}", "cache_dir=null"]
    few += ["model.head=gaussian", "model.backbone={name: cnn, filters: [4], units: 8, dropout: 0.2}"]
    return load_config(CONFIGS / "digits.yaml", few)


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def cut_weights(backup: Path) -> None:
    cut(backup / WEIGHTS)


def cut_metadata(backup: Path) -> None:
    cut(backup / METADATA)


def flipped_bit(backup: Path) -> None:
    """In a number of the largest array: HDF5 reads it as if nothing were wrong."""
    content = bytearray((backup / WEIGHTS).read_bytes())
    arrays: list[h5py.Dataset] = []
    with h5py.File(backup / WEIGHTS) as file:
        file.visititems(lambda name, item: arrays.append(item) if isinstance(item, h5py.Dataset) else None)
        content[max(arrays, key=lambda array: array.nbytes).id.get_offset()] ^= 1
    (backup / WEIGHTS).write_bytes(content)


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
    """A run stopped after two epochs, and a copy of its folder."""
    place = tmp_path_factory.mktemp("cut")
    config = demo(place)

    back_up = Backup.on_epoch_end

    def stop(self, epoch, logs=None):
        back_up(self, epoch, logs)
        if epoch == 1:
            raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Backup, "on_epoch_end", stop)
        with pytest.raises(KeyboardInterrupt):
            experiments.train(config, verbose=0)
    shutil.copytree(place / "digits" / "001", place / "copy")
    return config, place / "copy"


@pytest.fixture(scope="module")
def two_epochs(tmp_path_factory) -> Path:
    """The backup of the second epoch of a small network, and that of the first."""
    folder = tmp_path_factory.mktemp("two") / "backup"
    network = keras.Sequential([keras.Input((4,)), keras.layers.Dense(64)])
    network.compile("sgd", "mean_squared_error", run_eagerly=True)
    network.fit(np.ones((8, 4)), np.ones((8, 64)), epochs=2, verbose=0, callbacks=[Backup(folder)])
    return folder


@pytest.fixture
def backup(two_epochs, tmp_path) -> Path:
    """A copy of that backup, to be damaged."""
    return shutil.copytree(two_epochs, tmp_path / "backup")


@pytest.mark.slow
@pytest.mark.parametrize("damage", [nothing, cut_weights])
def test_interrupted_run_ends_with_the_same_weights(damage, whole, cut_run):
    config, copy = cut_run
    folder = experiments.RunFolder(Path(config.output) / "digits" / "001")
    shutil.rmtree(folder.path)
    shutil.copytree(copy, folder.path)
    damage(folder.backup)
    assert experiments.train(config, resume=True, verbose=0) == folder
    for weights, expected in zip(ds.load(folder.model).get_weights(), whole, strict=True):
        np.testing.assert_array_equal(weights, expected)
    with folder.history.open() as lines:
        assert [row["epoch"] for row in csv.DictReader(lines)] == [str(epoch) for epoch in range(EPOCHS)]


@pytest.mark.slow
def test_full_disk_raises_and_the_earlier_backup_is_resumed(whole, tmp_path, monkeypatch):
    """HDF5 ended the process when it closed the file of the weights."""
    back_up = keras.callbacks.BackupAndRestore.on_epoch_end

    def full(self, epoch, logs=None):
        with files_no_larger_than(2000) if epoch == 1 else nullcontext():
            back_up(self, epoch, logs)

    config = demo(tmp_path)
    folder = experiments.RunFolder(tmp_path / "digits" / "001")
    with monkeypatch.context() as patch:
        patch.setattr(keras.callbacks.BackupAndRestore, "on_epoch_end", full)
        with pytest.raises(OSError, match=f"{os.strerror(errno.EFBIG)}.*{folder.path}") as raised:
            experiments.train(config, verbose=0)
    assert raised.value.errno == errno.EFBIG
    assert repair_backup(folder.backup) == 1
    experiments.train(config, resume=True, verbose=0)
    for weights, expected in zip(ds.load(folder.model).get_weights(), whole, strict=True):
        np.testing.assert_array_equal(weights, expected)


@pytest.mark.parametrize(
    ("damage", "epochs"),
    [
        (nothing, 2),
        (cut_weights, 1),
        (cut_metadata, 1),
        (flipped_bit, 1),
        (killed_between_the_files, 1),
        (lost_metadata, 1),
    ],
)
def test_truncated_backup_falls_back_to_the_earlier_one(damage, epochs, backup):
    earlier = (backup / (WEIGHTS + EARLIER)).read_bytes()
    damage(backup)
    assert repair_backup(backup) == epochs
    assert json.loads((backup / METADATA).read_text())["epoch"] == epochs
    assert ((backup / WEIGHTS).read_bytes() == earlier) == (epochs == 1)  # whatever the damage, one state to go on from
    assert repair_backup(backup) == epochs


@pytest.mark.parametrize("damage", [cut_weights, cut_metadata, flipped_bit, killed_between_the_files])
@pytest.mark.parametrize("earlier", [None, WEIGHTS, METADATA])
def test_two_damaged_backups_raise(damage, earlier, backup):
    damage(backup)
    if earlier is None:  # the first backup of all
        for name in (WEIGHTS, METADATA):
            (backup / (name + EARLIER)).unlink()
    else:
        cut(backup / (earlier + EARLIER))
    with pytest.raises(ConfigurationError, match=f"the backup in {backup} was cut short.* delete that folder"):
        repair_backup(backup)
    shutil.rmtree(backup)
    assert repair_backup(backup) == 0


@pytest.mark.parametrize("killed_before", [METADATA, CHECKSUMS])
def test_interrupted_first_backup_restarts_training(killed_before, backup):
    for path in backup.iterdir():
        if path.name not in (WEIGHTS, METADATA) or path.name == killed_before:
            path.unlink()
    cut_weights(backup)
    assert repair_backup(backup) == 0
    assert not backup.exists()  # or Keras would load it


def test_backup_without_checksums_raises(backup):
    (backup / CHECKSUMS).unlink()
    with pytest.raises(ConfigurationError, match="delete that folder"):
        repair_backup(backup)


@pytest.mark.slow
def test_deleted_backup_restarts_training(whole, cut_run):
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
    for weights, expected in zip(ds.load(folder.model).get_weights(), whole, strict=True):
        np.testing.assert_array_equal(weights, expected)
    assert len(folder.history.read_text().splitlines()) == 1 + EPOCHS


@pytest.fixture
def resumed(tmp_path):
    """Says which run a resumed training goes on with."""
    config = demo(tmp_path)

    def resume() -> experiments.RunFolder:
        with ExitStack() as lock:
            path, _ = commands._run_to_resume(config, lock, print)
            assert path is not None
            return experiments.RunFolder(Path(path))

    (tmp_path / "digits" / "001").mkdir(parents=True)
    return config, resume


def test_run_without_configuration_is_resumed(resumed):
    config, resume = resumed
    folder = resume()
    assert load_config(folder.config) == config
    assert folder.versions.exists()


def test_backup_of_a_finished_run_is_removed(resumed):
    config, resume = resumed
    folder = resume()
    folder.metrics.write_text("{}")
    folder.backup.mkdir()
    assert experiments.train(config, resume=True, verbose=0) == folder
    assert not folder.backup.exists()
