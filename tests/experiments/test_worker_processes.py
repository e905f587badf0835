"""Workers of TF_CONFIG, and workers started on this machine."""

import json
import os
import re
import signal
import time
from pathlib import Path

import pytest

from deepsimplex.experiments import ConfigurationError, worker_processes
from deepsimplex.experiments.worker_processes import open_strategy, read_cluster, run_workers, share_of_gpus
from tests.fresh_process import start

HOSTS = ["one:1", "one:2", "two:1"]
# Workers write their names into a folder before they do what the test is about.
NAMED = (
    "import json, os, pathlib, sys, time; task = json.loads(os.environ['TF_CONFIG']); number = task['task']['index'];"
)
NAMED += "folder = pathlib.Path(sys.argv[1]); (folder / str(number)).write_text(str(os.getpid()));"
INTERRUPTED = """
import signal, sys
from deepsimplex.experiments.worker_processes import run_workers
# What runs in the background of a shell ignores interrupts.
signal.signal(signal.SIGINT, signal.default_int_handler)
for folder in sys.argv[2:]:
    try:
        run_workers(2, ["-c", sys.argv[1], folder])
    except KeyboardInterrupt:
        print("interrupted", flush=True)
    except SystemExit as end:
        print(end.code, flush=True)
"""


def config(cluster, kind="worker", index=0) -> str:
    return json.dumps({"cluster": cluster, "task": {"type": kind, "index": index}})


def test_read_cluster_orders_the_chief_first(monkeypatch):
    monkeypatch.delenv("TF_CONFIG", raising=False)
    assert read_cluster() == ([], 0)
    monkeypatch.setenv("TF_CONFIG", config({"worker": HOSTS}, index=2))
    assert read_cluster() == (HOSTS, 2)
    monkeypatch.setenv("TF_CONFIG", config({"worker": HOSTS[1:], "chief": HOSTS[:1]}, index=1))
    assert read_cluster() == (HOSTS, 2)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "found '{'"),
        ('{"cluster": {"worker": ["a:1"]}}', "No such job in cluster: None"),
        ("[]", "found '[]'"),
        (config({"worker": "a:1"}), "'worker' must be a list"),
        (config({"worker": ["a:1", "b"]}), "host:port; found 'b'"),
        (config({"worker": ["a:1", "b:0"]}), "host:port; found 'b:0'"),
        (config({"worker": HOSTS}, index=3), "No task with index 3 in job 'worker'"),
        (config({"worker": HOSTS}, index=-1), "No task with index -1 in job 'worker'"),
        (config({"worker": HOSTS}, kind="chief"), "No such job in cluster: 'chief'"),
        (config({"worker": HOSTS, "ps": ["p:1"]}), "found 'ps'"),
        (config({"worker": ["a:1", "a:1"]}), "found a:1, a:1"),
    ],
)
def test_malformed_cluster_raises(monkeypatch, text, message):
    monkeypatch.setenv("TF_CONFIG", text)
    with pytest.raises(ConfigurationError, match=f"TF_CONFIG .*{re.escape(message)}"):
        open_strategy()


def test_workers_on_one_host_share_its_gpus(monkeypatch):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    gpus = ["a", "b", "c", "d"]
    assert [share_of_gpus(HOSTS, number, gpus) for number in range(3)] == [["a", "b"], ["c", "d"], gpus]
    assert [share_of_gpus(HOSTS, number, gpus[:3]) for number in range(2)] == [["a"], ["b"]]
    assert share_of_gpus(HOSTS, 0, []) == []
    with pytest.raises(ConfigurationError, match="2 workers on one, which has 1 GPUs"):
        share_of_gpus(HOSTS, 1, ["a"])
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "5")
    assert share_of_gpus(HOSTS, 1, ["a"]) == ["a"], "divided by the launcher"


def test_run_workers_divides_the_visible_gpus(tmp_path, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,5,7")
    command = ["-c", f"{NAMED} (folder / str(number)).write_text(os.environ['CUDA_VISIBLE_DEVICES'])", str(tmp_path)]
    assert run_workers(2, command) == 0
    assert [(tmp_path / number).read_text() for number in "01"] == ["3", "5"]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3")
    with pytest.raises(ConfigurationError, match="a GPU for each of 2 workers, or none; found 3"):
        run_workers(2, command)


def test_run_workers_raises_if_tf_config_is_set(monkeypatch):
    monkeypatch.setenv("TF_CONFIG", config({"worker": HOSTS}))
    with pytest.raises(ConfigurationError, match="workers must not be given where TF_CONFIG names them"):
        run_workers(2, ["-c", ""])


def test_open_strategy_raises_once_tensorflow_computes(monkeypatch):
    import tensorflow as tf

    tf.zeros(1)
    monkeypatch.setenv("TF_CONFIG", config({"worker": ["localhost:1", "localhost:2"]}))
    with pytest.raises(ConfigurationError, match="must connect before TensorFlow computes"):
        open_strategy()


def test_all_workers_run_the_command(tmp_path):
    assert run_workers(3, ["-c", NAMED + "assert len(task['cluster']['worker']) == 3", str(tmp_path)]) == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["0", "1", "2"]


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        ("number and sys.exit('deepsimplex: no data')", "worker 1 of 2 failed: deepsimplex: no data"),
        ("number and os.kill(os.getpid(), 9)", "worker 1 of 2 was ended by signal 9. Go on .* --resume"),
    ],
)
def test_failed_worker_ends_the_others(tmp_path, statement, message):
    # The other one has written its number before.
    waiting = "while not os.path.exists(sys.argv[1] + '/0'): time.sleep(0.01)"
    with pytest.raises(ConfigurationError, match=message):
        run_workers(2, ["-c", f"{NAMED}\n{waiting}\n{statement}; time.sleep(60)", str(tmp_path)])
    assert _ended(int((tmp_path / "0").read_text()))


def test_exit_code_of_the_chief_is_returned(tmp_path, capfd):
    assert run_workers(2, ["-c", f"{NAMED} time.sleep(60) if number else sys.exit(2)", str(tmp_path)]) == 2


@pytest.mark.slow
def test_interrupt_ends_all_workers(tmp_path):
    """A process for all signals: each call of run_workers is ended by one of them."""
    ending = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    outputs = tmp_path / "printed"
    for folder in (outputs, *(tmp_path / number.name for number in ending)):
        folder.mkdir()
    process = start(
        INTERRUPTED, f"{NAMED} time.sleep(60)", *(tmp_path / number.name for number in ending), outputs=outputs
    )
    for number in ending:
        written = [tmp_path / number.name / worker for worker in "01"]
        while not all(path.is_file() and path.read_text() for path in written):
            assert process.is_alive()
            time.sleep(0.05)
        os.kill(process.pid, number)
    process.join()
    assert (outputs / "stdout").read_text().split() == ["interrupted", "143", "129"]
    assert all(_ended(int(path.read_text())) for path in tmp_path.glob("SIG*/?"))


def test_command_line_starts_workers(monkeypatch, command):
    config = str(Path(__file__).parents[2] / "configs" / "digits.yaml")
    started = []
    monkeypatch.setattr(worker_processes, "run_workers", lambda *arguments: started.append(arguments) or 3)
    command("train", "--config", config, "--workers", "2", "--resume", "training.epochs=3", code=3)
    arguments = ["-m", "deepsimplex.cli", "train", "--resume", "--config", config, "training.epochs=3"]
    assert started == [(2, arguments)]


def _ended(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return True
    return False
