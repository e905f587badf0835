"""Train with several workers: the processes of a ``tf.distribute.MultiWorkerMirroredStrategy``."""

import io
import json
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from importlib.metadata import version
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from deepsimplex._utils.archives import fingerprint
from deepsimplex.samples.samples import not_converted

Arrays = Mapping[str, np.ndarray]
_SAME_VERSIONS = ("deepsimplex", "tensorflow", "keras", "numpy")
_NUMBERS_AT_ONCE = 2**22
_DIVIDED = tf.data.experimental.AutoShardPolicy.OFF
# Parts of a model's JSON that may differ between equal models: numbers of layers' names, what the chief has fitted, and
# the bytecode of functions, which holds the paths of their files.
_INCIDENTAL = re.compile(r'_\d+(?=")|"fitted": \{[^{}]*\}|"code": "[^"]*"')


class ChiefError(RuntimeError):
    """Raised on the other workers when the chief fails, with the message of the chief's error."""


def versions() -> str:
    """Return the versions of Python and packages that must be the same on all workers."""
    return ", ".join(f"{name} {version(name)}" for name in _SAME_VERSIONS)


def model_configuration(model: keras.Model) -> str:
    """Return the configuration of a compiled model as JSON, or what is known of a model with a member without one.

    Names of layers are not numbered, and fitted state is left out.
    """
    try:
        return _INCIDENTAL.sub("", model.to_json())
    except (NotImplementedError, TypeError, ValueError):  # of a layer, or of a loss that is not registered
        optimizer = {name: value for name, value in model.optimizer.get_config().items() if name != "name"}
        members = [type(part).__name__ for part in (model.target, model.head, model.readout, model.training_loss)]
        return str([optimizer, model.seed, members, [(weight.shape, str(weight.dtype)) for weight in model.weights]])


def has_several_workers(strategy: Any) -> bool:
    """Return whether other processes train under a strategy too."""
    if not isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy):
        return False
    return strategy.num_replicas_in_sync > len(strategy.extended.worker_devices)


class LocalReduction:
    """A strategy of several workers whose steps return the values of this worker's replicas.

    Keras 3 fails in ``fit`` under ``MultiWorkerMirroredStrategy``: it reduces a whole structure of batches at once, and
    scalars along an axis (keras-team/keras#20585, open). Neither needs the other workers: only the shapes of the batch
    are used, and the scalars are the running means of the progress bar. Gradients, and at the end of an epoch the sums
    behind loss and metrics, are reduced over all workers by their variables. Callbacks that stop within an epoch see
    the running means of one worker.
    """

    def __init__(self, strategy: tf.distribute.Strategy) -> None:
        self.whole = strategy

    def __getattr__(self, name: str) -> Any:
        return getattr(self.whole, name)

    def reduce(self, reduce_op: Any, value: Any, axis: int | None) -> Any:
        """Return the value of this worker's first replica."""
        return tf.nest.map_structure(lambda leaf: self.whole.experimental_local_results(leaf)[0], value)

    def experimental_distribute_dataset(self, dataset: Any) -> Any:
        """Divide the batches of a data set among the workers, unless ``Workers.local_part`` has divided them."""
        if dataset.options().experimental_distribute.auto_shard_policy != _DIVIDED:
            return self.whole.experimental_distribute_dataset(dataset)
        return self.whole.distribute_datasets_from_function(lambda _: dataset)


class Workers:
    """Exchange arrays among the workers of a strategy. Every worker must make the same calls in the same order.

    Parameters
    ----------
    strategy : tf.distribute.Strategy, optional
        A ``MultiWorkerMirroredStrategy``. With any other, or None (default), there is one worker, which is the chief.

    Attributes
    ----------
    count : int
        Number of workers.
    number : int
        Number of this worker.
    is_chief : bool
        Whether this worker is number 0, the chief, which alone writes files and computes shared values.
    """

    def __init__(self, strategy: Any = None) -> None:
        self.count, self.number, self.is_chief, self._replicas = 1, 0, True, 1
        if not has_several_workers(strategy):
            return
        self._replicas = replicas = len(strategy.extended.worker_devices)
        self.count = strategy.num_replicas_in_sync // replicas

        def replica() -> tf.Tensor:
            return tf.convert_to_tensor(tf.distribute.get_replica_context().replica_id_in_sync_group)

        def total(values: tf.Tensor) -> tf.Tensor:
            once = strategy.run(lambda: tf.where(replica() % replicas == 0, values, tf.zeros_like(values)))
            return strategy.reduce("SUM", once, axis=None)

        self._total = tf.function(total, autograph=False, reduce_retracing=True)
        first, *_ = strategy.experimental_local_results(tf.function(lambda: strategy.run(replica))())
        self.number = int(first) // replicas
        self.is_chief = self.number == 0

    def local_part(self, indices: tf.data.Dataset) -> tf.data.Dataset:
        """Return this worker's part of every batch of indices, so that it reads no other rows.

        If workers have several devices, batches are returned whole, and TensorFlow divides them among the devices.
        """
        if self.count == 1 or self._replicas > 1:
            return indices
        count, number = self.count, self.number

        def part(index: tf.Tensor) -> tf.Tensor:
            size = -(-tf.size(index) // count)
            return index[number * size : (number + 1) * size]

        options = tf.data.Options()
        options.experimental_distribute.auto_shard_policy = _DIVIDED
        return indices.map(not_converted(part)).with_options(options)

    def from_chief(self, compute: Callable[[], Arrays]) -> dict[str, np.ndarray]:
        """Return the arrays that the chief computes, on every worker.

        Raises
        ------
        Exception
            What ``compute`` raises, on the chief; on the others a ChiefError that repeats it.
        """
        if self.count == 1:
            return dict(compute())
        payload: Any = b""
        failure = None
        if self.is_chief:
            try:
                buffer = io.BytesIO()
                np.savez(buffer, **compute())  # type: ignore[arg-type]
                payload = buffer.getbuffer()
            except Exception as error:  # else the others would wait forever
                failure, payload = error, json.dumps(f"{type(error).__name__}: {error}").encode()
        payload = self._bytes_from_chief(payload)
        self.wait()
        if failure is not None:
            raise failure
        if payload.startswith(b'"'):
            raise ChiefError(f"the chief of the workers failed: {json.loads(payload)}")
        with np.load(io.BytesIO(payload), allow_pickle=False) as archive:
            return {name: archive[name] for name in archive.files}

    def on_chief(self, task: Callable[[], Any]) -> Any:
        """Run a task on the chief while the others wait; return its result, JSON values, on every worker.

        Raises
        ------
        Exception
            As ``from_chief``.
        """
        return json.loads(str(self.from_chief(lambda: {"result": np.array(json.dumps(task()))})["result"]))

    def check_same(self, facts: Mapping[str, Any]) -> None:
        """Raise a ValueError on every worker if one differs from the chief in a fact: an object, or a tuple of arrays.

        Facts are compared by their digests; the first that differs is named.
        """
        if self.count == 1:
            return
        digests = np.zeros((self.count, len(facts), 4), np.int32)
        for number, fact in enumerate(facts.values()):
            digest = fingerprint(*(fact if isinstance(fact, tuple) else (fact,)))
            digests[self.number, number] = np.frombuffer(bytes.fromhex(digest), np.int32)
        digests = self._sum(digests)
        differs = (digests != digests[0]).any(axis=2)
        for (name, fact), workers in zip(facts.items(), differs.T, strict=True):
            if workers.any():
                self.wait()
                value = "" if isinstance(fact, tuple) else f"; this one, number {self.number}, has {fact}"
                raise ValueError(
                    f"the workers must train with the same {name}; worker {workers.argmax()} has others than the "
                    f"chief{value}"
                )

    def wait(self) -> None:
        """Return when every worker has called this, and thus has all sums before, or when one is lost.

        A worker reads its sums from the memory of others, and fails if one of them has ended: none may end before.
        """
        if self.count > 1:
            with suppress(tf.errors.OpError):  # a worker that has ended has called this, or later calls fail
                self._sum(np.zeros(1, np.int32))

    def _bytes_from_chief(self, payload: Any) -> bytes:
        size = int(self._sum(np.array([len(payload)], np.int64))[0])
        words = np.zeros(-(-size // 4), np.int32)
        octets = words.view(np.uint8)[:size]
        if self.is_chief:
            octets[:] = np.frombuffer(payload, np.uint8)
        for start in range(0, len(words), _NUMBERS_AT_ONCE):
            part = slice(start, start + _NUMBERS_AT_ONCE)
            words[part] = self._sum(words[part])
        return octets.tobytes()

    def _sum(self, values: np.ndarray) -> np.ndarray:
        """Return the sum of whole numbers over the workers."""
        return self._total(tf.constant(values)).numpy()


class StateOfChief(keras.callbacks.Callback):
    """Copy the chief's weights and optimizer state to all workers when training begins, and end it together.

    Different machines adapt a head with different rounding, and only the chief has files to restore from.
    """

    def __init__(self, workers: Workers) -> None:
        super().__init__()
        self._workers = workers
        self._begun = False

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        """Raise ValueError if workers have resumed at different epochs: some would wait forever for the others."""
        if not self._begun:
            self._workers.check_same({"first epoch": f"epoch {epoch}"})
        self._begun = True

    def on_train_begin(self, logs: Any = None) -> None:
        """Assign the chief's values to all variables."""
        variables = [*self.model.weights, *self.model.optimizer.variables]
        values = self._workers.from_chief(
            lambda: {str(number): keras.ops.convert_to_numpy(variable) for number, variable in enumerate(variables)}
        )
        for number, variable in enumerate(variables):
            variable.assign(values[str(number)])

    def on_train_end(self, logs: Any = None) -> None:
        """Wait for the others, which may still read the last sums."""
        if not self._begun:  # no epoch was left; workers that have one reset their metrics, by sums, before they begin
            self.model.reset_metrics()
            self._workers.check_same({"first epoch": "none"})
        self._workers.wait()
