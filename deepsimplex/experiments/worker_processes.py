"""Worker processes that train one model: those of TF_CONFIG, or processes started on this machine."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import tensorflow as tf

from deepsimplex._utils.validation import check_whole
from deepsimplex.classifier.several_workers import ChiefError, Workers
from deepsimplex.experiments.configuration import ConfigurationError

VARIABLE = "TF_CONFIG"
GPUS = "CUDA_VISIBLE_DEVICES"
GRACE_SECONDS = 10.0  # between SIGTERM and SIGKILL


def read_cluster() -> tuple[list[str], int]:
    """Return the addresses of all workers in TF_CONFIG, the chief first, and the number of this one; none without it.

    Raises
    ------
    ConfigurationError
        If it is malformed, names tasks that do not train, or no address for this one.
    """
    text = os.environ.get(VARIABLE, "").strip()
    if not text:
        return [], 0
    try:
        resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
        cluster = resolver.cluster_spec()
        address = cluster.task_address(resolver.task_type, resolver.task_id)
        jobs = cluster.as_dict()
        addresses = [*jobs.pop("chief", []), *jobs.pop("worker", [])]
        if jobs:
            raise ValueError(f"task types must be chief or worker; found {min(jobs)!r}")
        if len(set(addresses)) < len(addresses):
            raise ValueError(f"every address must be named once; found {', '.join(addresses)}")
        if wrong := [each for each in addresses if not re.fullmatch(r".+:[1-9]\d{0,4}", each)]:
            raise ValueError(f"an address must be host:port; found {wrong[0]!r}")
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ConfigurationError(
            f'{VARIABLE} must be JSON such as {{"cluster": {{"worker": ["host:port", ...]}}, '
            f'"task": {{"type": "worker", "index": 0}}}}, with the address of its task; found {text[:200]!r} ({error})'
        ) from error
    return addresses, addresses.index(address)


def share_of_gpus(addresses: Sequence[str], number: int, devices: Sequence[Any]) -> list[Any]:
    """Return a worker's part of the devices of its host, which workers on one host divide evenly.

    If CUDA_VISIBLE_DEVICES is set, all visible devices: a launcher has divided them.
    """
    if GPUS in os.environ:
        return list(devices)
    hosts = [address.rpartition(":")[0] for address in addresses]
    neighbors = [worker for worker, host in enumerate(hosts) if host == hosts[number]]
    if devices and len(devices) < len(neighbors):
        raise ConfigurationError(
            f"{VARIABLE} names {len(neighbors)} workers on {hosts[number]}, which has {len(devices)} GPUs; there "
            "must be one for each. CUDA_VISIBLE_DEVICES= trains on the processor"
        )
    return _part(devices, neighbors.index(number), len(neighbors))


def _part(devices: Sequence[Any], number: int, count: int) -> list[Any]:
    """Return part ``number`` of ``count`` parts of equal size, as MultiWorkerMirroredStrategy requires."""
    share = len(devices) // count
    return list(devices[number * share :][:share])


def open_strategy() -> Any:
    """Return the ``tf.distribute`` strategy of this process; None if it trains alone, on one device.

    Several workers are those of TF_CONFIG, and must be connected before TensorFlow computes anything. One process
    takes all GPUs.

    Raises
    ------
    ConfigurationError
        If TF_CONFIG is malformed, or TensorFlow has begun to compute.
    """
    addresses, number = read_cluster()
    if len(addresses) < 2:
        return tf.distribute.MirroredStrategy() if len(tf.config.list_logical_devices("GPU")) > 1 else None
    print(f"waiting for all of the workers {', '.join(addresses)}", file=sys.stderr, flush=True)
    try:
        gpus = tf.config.list_physical_devices("GPU")
        tf.config.set_visible_devices(share_of_gpus(addresses, number, gpus), "GPU")
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
            f"workers must not be given where {VARIABLE} names them: each of its machines would train another "
            "model. Start the command once on each, without --workers"
        )
    gpus = [gpu for gpu in os.environ.get(GPUS, "").split(",") if gpu.strip() not in ("", "-1")]
    if gpus and len(gpus) < count:
        raise ConfigurationError(f"{GPUS} must name a GPU for each of {count} workers, or none; found {','.join(gpus)}")
    addresses = free_addresses(check_whole(count, "workers", 2))
    threads = {"TF_NUM_INTRAOP_THREADS": str(max(1, (os.cpu_count() or 1) // count))}
    workers: list[subprocess.Popen[bytes]] = []
    with ExitStack() as stack:
        for ending in (signal.SIGTERM, signal.SIGHUP):
            stack.callback(signal.signal, ending, signal.signal(ending, lambda number, frame: sys.exit(128 + number)))
        outputs = [stack.enter_context(tempfile.TemporaryFile()) for _ in addresses]
        stack.callback(_end, workers)
        for number, output in enumerate(outputs):
            task = {"cluster": {"worker": addresses}, "task": {"type": "worker", "index": number}}
            visible = {GPUS: ",".join(_part(gpus, number, count))} if gpus else {}
            workers.append(
                subprocess.Popen(
                    [sys.executable, *command],
                    env={**threads, **os.environ, **visible, VARIABLE: json.dumps(task)},
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
        message = next((line for line in reversed(lines) if line.startswith("deepsimplex: ")), lines[-1])
        killed = f"was ended by signal {-code}. Go on with the same command and --resume"
        raise ConfigurationError(f"worker {first} of {count} {killed if code < 0 else f'failed: {message}'}")


def _end(workers: Sequence[subprocess.Popen[bytes]]) -> None:
    for worker in workers:
        worker.terminate()
    for worker in workers:
        try:
            worker.wait(GRACE_SECONDS)
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


@contextmanager
def concise_worker_errors(workers: Workers) -> Iterator[None]:
    """Replace errors about lost workers by a ConfigurationError that explains how to resume training."""
    try:
        yield
    except ChiefError as error:
        raise ConfigurationError(str(error)) from error
    except tf.errors.OpError as error:
        is_local = isinstance(error, tf.errors.ResourceExhaustedError | tf.errors.InvalidArgumentError)
        if workers.count == 1 or is_local:
            raise
        raise ConfigurationError(
            f"worker {workers.number} of {workers.count} lost another one ({type(error).__name__}). Start all of them "
            "again with --resume: the backup of the last epoch is kept"
        ) from error
