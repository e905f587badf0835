"""Worker processes that train one model: read from TF_CONFIG, or started on this machine; what they have in common."""

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from deepsimplex._utils.validation import check_whole
from deepsimplex.classifier.several_workers import ChiefError, Workers, versions
from deepsimplex.experiments.configuration import ConfigurationError, RunConfig
from deepsimplex.experiments.run_folder import RunFolder

VARIABLE = "TF_CONFIG"
GPUS = "CUDA_VISIBLE_DEVICES"
KINDS = ("chief", "worker")
# Seconds between SIGTERM and SIGKILL.
GRACE = 10.0


@dataclass(frozen=True)
class Cluster:
    """The workers that the environment variable TF_CONFIG names, and which of them this process is.

    Parameters
    ----------
    addresses : tuple of str
        "host:port" of every worker, the chief first.
    number : int
        Number of this process.
    """

    addresses: tuple[str, ...]
    number: int

    @classmethod
    def from_environment(cls) -> "Cluster | None":
        """Read TF_CONFIG; None without it.

        Raises
        ------
        ConfigurationError
            If it is malformed, names tasks that do not train, or no address for this one.
        """
        text = os.environ.get(VARIABLE, "").strip()
        if not text:
            return None
        try:
            content = json.loads(text)
            cluster, task = content["cluster"], content["task"]
            hosts = {kind: [_address(each) for each in _list(addresses)] for kind, addresses in cluster.items()}
            kind, index = str(task["type"]), int(task["index"])
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ConfigurationError(
                f'{VARIABLE} must be JSON such as {{"cluster": {{"worker": ["host:port", ...]}}, "task": {{"type": '
                f'"worker", "index": 0}}}}; found {text[:200]!r}, in which {error!r}'
            ) from error
        if unknown := sorted((hosts.keys() | {kind}) - set(KINDS)):
            raise ConfigurationError(f"{VARIABLE} may name tasks of the types chief and worker; found {unknown[0]!r}")
        if not 0 <= index < len(hosts.get(kind, ())):
            raise ConfigurationError(
                f"{VARIABLE} must hold the address of its own task; found task {kind} {index} and "
                f"{len(hosts.get(kind, ()))} addresses of that type"
            )
        ordered = tuple(address for each in KINDS for address in hosts.get(each, ()))
        if len(set(ordered)) < len(ordered):
            raise ConfigurationError(f"{VARIABLE} must name every address once; found {', '.join(ordered)}")
        return cls(ordered, index + (len(hosts.get("chief", ())) if kind == "worker" else 0))

    def own_share(self, devices: Sequence[Any]) -> list[Any]:
        """Return this process' part of the machine's devices; workers on one host share them evenly.

        If CUDA_VISIBLE_DEVICES is set, all visible devices: a launcher has divided them.
        """
        if GPUS in os.environ:
            return list(devices)
        hosts = [address.rpartition(":")[0] for address in self.addresses]
        beside = [number for number, host in enumerate(hosts) if host == hosts[self.number]]
        if devices and len(devices) < len(beside):
            raise ConfigurationError(
                f"{VARIABLE} names {len(beside)} workers on {hosts[self.number]}, which has {len(devices)} GPUs; there "
                "must be one for each. CUDA_VISIBLE_DEVICES= trains on the processor"
            )
        return _part(devices, beside.index(self.number), len(beside))


def _part(devices: Sequence[Any], number: int, count: int) -> list[Any]:
    """Return part ``number`` of ``count`` parts of equal size, as MultiWorkerMirroredStrategy requires."""
    share = len(devices) // count
    return list(devices[number * share :][:share])


def _list(addresses: Any) -> list[Any]:
    if not isinstance(addresses, list):
        raise TypeError(f"the addresses of a type must be a list; found {addresses!r}")
    return addresses


def _address(text: Any) -> str:
    """Return "host:port", or raise ValueError."""
    host, _, port = str(text).rpartition(":")
    if not (host and port.isdecimal() and 0 < int(port) < 2**16):
        raise ValueError(f"an address must be host:port; found {text!r}")
    return str(text)


def open_strategy() -> Any:
    """Return the ``tf.distribute`` strategy of this process; None if it trains alone, on one device.

    Several workers are those of TF_CONFIG, and must be connected before TensorFlow computes anything. One process
    takes all GPUs.

    Raises
    ------
    ConfigurationError
        If TF_CONFIG is malformed, or TensorFlow has begun to compute.
    """
    cluster = Cluster.from_environment()
    if cluster is None or len(cluster.addresses) == 1:
        return tf.distribute.MirroredStrategy() if len(tf.config.list_logical_devices("GPU")) > 1 else None
    print(f"waiting for all of the workers {', '.join(cluster.addresses)}", file=sys.stderr, flush=True)
    try:
        gpus = tf.config.list_physical_devices("GPU")
        tf.config.set_visible_devices(cluster.own_share(gpus), "GPU")
        return tf.distribute.MultiWorkerMirroredStrategy()
    except tf.errors.OpError as error:
        raise ConfigurationError(
            f"{VARIABLE} names workers that do not connect: {error.message}. Check the addresses, and that their ports "
            "are free"
        ) from error
    except RuntimeError as error:
        raise ConfigurationError(
            f"{VARIABLE} names several workers, which must connect before TensorFlow computes ({error}): make "
            "tf.distribute.MultiWorkerMirroredStrategy() first of all, and pass it as strategy"
        ) from error


def run_workers(count: int, command: Sequence[str]) -> int:
    """Run a command in several processes of this machine that train one model; return the exit code.

    The first, the chief, prints as if it were alone. If one fails, or this process is terminated, all are terminated.

    Parameters
    ----------
    count : int
        Number of processes, at least 2. They share the cores, and the GPUs.
    command : sequence of str
        Arguments of the Python interpreter.

    Raises
    ------
    ConfigurationError
        If TF_CONFIG names workers already, CUDA_VISIBLE_DEVICES fewer GPUs than processes, or another worker than the
        chief fails, with the last line that it printed.
    """
    if os.environ.get(VARIABLE, "").strip():
        raise ConfigurationError(
            f"workers must not be given where {VARIABLE} names them: each of its machines would train a model of its "
            "own. Start the command once on each, without --workers"
        )
    gpus = [gpu for gpu in os.environ.get(GPUS, "").split(",") if gpu.strip() not in ("", "-1")]
    if gpus and len(gpus) < count:
        raise ConfigurationError(f"{GPUS} must name a GPU for each of {count} workers, or none; found {','.join(gpus)}")
    addresses = free_addresses(check_whole(count, "workers", 2))
    threads = {"TF_NUM_INTRAOP_THREADS": str(max(1, (os.cpu_count() or 1) // count))}
    workers: list[subprocess.Popen[bytes]] = []
    with ExitStack() as stack:
        for ending in (signal.SIGTERM, signal.SIGHUP):
            stack.callback(signal.signal, ending, signal.signal(ending, _terminated))
        outputs = [stack.enter_context(tempfile.TemporaryFile()) for _ in addresses]
        stack.callback(_end, workers)
        for number, output in enumerate(outputs):
            task = {"cluster": {"worker": addresses}, "task": {"type": "worker", "index": number}}
            own = {GPUS: ",".join(_part(gpus, number, count))} if gpus else {}
            workers.append(
                subprocess.Popen(
                    [sys.executable, *command],
                    env={**threads, **os.environ, **own, VARIABLE: json.dumps(task)},
                    stdout=output if number else None,
                    stderr=output if number else None,
                    # An interrupt is for this process, which ends the others.
                    start_new_session=True,
                )
            )
        while not (failed := [number for number, worker in enumerate(workers) if worker.poll()]):
            if all(worker.poll() == 0 for worker in workers):
                return 0
            time.sleep(0.1)
        # Report a killed worker before those that lost it, some of which TensorFlow aborts.
        order = {-signal.SIGABRT: 2}
        first = min(failed, key=lambda number: (order.get(code := workers[number].returncode, code > 0), number))
        code = workers[first].returncode
        if first == 0 and code > 0:  # it has printed its error
            return code
        outputs[first].seek(0)
        lines = outputs[first].read().decode(errors="replace").strip().splitlines() or [""]
        said = next((line for line in reversed(lines) if line.startswith("deepsimplex: ")), lines[-1])
        how = (
            f"was ended by signal {-code}. Go on with the same command and --resume" if code < 0 else f"failed: {said}"
        )
        raise ConfigurationError(f"worker {first} of {count} {how}")


def _terminated(number: int, frame: Any) -> None:
    sys.exit(128 + number)


def _end(workers: Sequence[subprocess.Popen[bytes]]) -> None:
    for worker in workers:
        worker.terminate()
    for worker in workers:
        try:
            worker.wait(GRACE)
        except subprocess.TimeoutExpired:
            worker.kill()
            worker.wait()


def free_addresses(count: int) -> list[str]:
    """Return addresses of this machine whose ports are free now."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("localhost", 0))
        return [f"localhost:{each.getsockname()[1]}" for each in sockets]


def folder_of_chief(workers: Workers, find: Callable[[], tuple[RunFolder | None, int]]) -> tuple[RunFolder | None, int]:
    """Return the run folder and the number that the chief finds."""

    def found() -> dict[str, np.ndarray]:
        folder, number = find()
        return {"path": np.array("" if folder is None else str(folder.path)), "number": np.array(number)}

    arrays = workers.from_chief(found)
    path = str(arrays["path"])
    return (RunFolder(Path(path)) if path else None), int(arrays["number"])


@contextmanager
def concise_worker_errors(workers: Workers) -> Iterator[None]:
    """Replace errors about lost workers by a ConfigurationError that explains how to resume training."""
    try:
        yield
    except (tf.errors.ResourceExhaustedError, tf.errors.InvalidArgumentError):  # of this worker's own
        raise
    except (tf.errors.OpError, ChiefError) as error:
        if workers.count == 1:
            raise
        if isinstance(error, ChiefError):
            raise ConfigurationError(str(error)) from error
        raise ConfigurationError(
            f"worker {workers.number} of {workers.count} lost another one ({type(error).__name__}). Start all of them "
            "again with --resume: the backup of the last epoch is kept"
        ) from error


def check_same_run(workers: Workers, config: RunConfig) -> None:
    """Raise ValueError if a worker has other versions or another configuration; output and cache folders may differ."""
    workers.check_same(
        {"versions": versions(), "configuration": config.model_dump_json(exclude={"output", "cache_dir"})}
    )
