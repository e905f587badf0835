"""Training of a network: choice of the loss, and the steps of training and evaluation."""

import itertools
from typing import Any, NamedTuple

import keras
import numpy as np
import tensorflow as tf

from deepsimplex._utils.messages import warn_caller
from deepsimplex.classifier.data import DataAdapter
from deepsimplex.classifier.network import SimplexNetwork
from deepsimplex.classifier.several_workers import LocalReduction, Workers, divides_files, model_configuration, versions
from deepsimplex.classifier.streams import is_observed, is_repeatable, is_stream, read_batches
from deepsimplex.latent import LatentGaussian
from deepsimplex.losses import get_loss
from deepsimplex.losses.readout_losses import classifier_loss


class TrainableNetwork(SimplexNetwork):
    """A SimplexNetwork with a loss; the batches it is trained on hold observations in place of labels."""

    training_loss: Any = None  # a ClassifierLoss, after compile
    _trained_on_integers = False

    def compile(self, optimizer: Any = "adam", loss: Any = None, metrics: Any = None, **kwargs: Any) -> None:
        """Configure training.

        Parameters
        ----------
        optimizer : str or keras.optimizers.Optimizer
            Default "adam".
        loss : loss, str, dict or callable, optional
            None (default) is the default of the target: ``losses.Composition()`` for distance targets, the negative
            log density of the latents for others. A latent loss
            (``losses.LatentNLL(beta)``, any ``losses.LatentLoss``) trains latents. Any Keras loss of labels and class
            probabilities, by name or object, trains through the readout; cross-entropies are computed in log space.
            ``losses.Hybrid(weight)`` and ``losses.Composition(mass)`` use both latents and probabilities.
        metrics : list, optional
            Any Keras metrics of labels and class probabilities: "accuracy", ``metrics.ExpectedCalibrationError()``.
        **kwargs
            As in keras.Model.compile.

        Raises
        ------
        TypeError, ValueError
            If the loss is unknown, or does not fit the head or the readout.
        """
        loss = get_loss(loss)
        chosen = classifier_loss(self.target.default_loss() if loss is None else loss)
        if chosen.needs_adapt:  # a copy, which is adapted to this model's training samples
            chosen = type(chosen).from_config(chosen.get_config())
        chosen.check(self.num_classes, self.head.covariance)
        if chosen.needs_probabilities and not getattr(self.readout, "differentiable", True):
            raise ValueError(
                f"readout must be differentiable for loss {chosen.name!r}; found method 'monte_carlo', which counts "
                "draws. ArgmaxReadout() or ArgmaxReadout(method='quasi_monte_carlo') would do"
            )
        self._hide("training_loss", chosen)
        with self.distribute_strategy.scope():
            if _counts_steps_twice(optimizer, self.distribute_strategy):
                optimizer = type(optimizer).from_config(optimizer.get_config())
            super().compile(optimizer=optimizer, loss=loss, metrics=metrics, **kwargs)

    def compile_from_config(self, config: dict[str, Any]) -> None:
        """Compile as a saved model was, its optimizer's state included."""
        self.compile(**keras.saving.deserialize_keras_object(config))
        if self.optimizer is not None and self.built:
            self.optimizer.build(self.trainable_variables)

    def compute_loss(
        self, x: Any = None, y: Any = None, y_pred: Any = None, sample_weight: Any = None, training: bool = True
    ) -> Any:
        """Return the loss of observations ``y``, with the extra losses of the layers.

        ``y_pred`` is the dict {"loc", "scale"} of latents, with "log_probabilities" if they are known already; what is
        missing is computed, all of it from x if ``y_pred`` is no such dict.
        """
        loss = self.training_loss
        outputs = self._with_probabilities(y_pred if isinstance(y_pred, dict) else self.latent(x, training=training))
        if not loss.adapted or (loss.needs_latents and "loc" not in y):
            return tf.constant(np.nan, keras.config.floatx())
        value = tf.reduce_mean(loss.compute(y, outputs, sample_weight))  # a scalar, whatever the reduction
        replicas = tf.distribute.get_strategy().num_replicas_in_sync
        return tf.add_n([value, *[tf.cast(extra, value.dtype) / replicas for extra in self.losses]])

    def _with_probabilities(self, outputs: dict[str, Any]) -> dict[str, Any]:
        """Add "log_probabilities" to the latents if the loss needs them; they are computed once."""
        if not self.training_loss.needs_probabilities or "log_probabilities" in outputs:
            return outputs
        return {**outputs, "log_probabilities": self.log_probabilities(outputs)}

    def compute_metrics(self, x: Any, y: Any, y_pred: Any, sample_weight: Any = None) -> dict[str, Any]:
        """Return the metrics of labels and class probabilities."""
        return super().compute_metrics(x, y["label"], y_pred, sample_weight)

    def train_step(self, data: Any) -> dict[str, Any]:
        """Train on a batch."""
        x, y, sample_weight = keras.utils.unpack_x_y_sample_weight(data)
        rows = self._rows(x)
        with tf.GradientTape() as tape:
            outputs = self._with_probabilities(self._latent_of_part(x, rows, training=True))
            loss = self.compute_loss(x, y, outputs, sample_weight, training=True)
            # Keras averages the means of the replicas, whose parts of a last batch may differ in size.
            weighted = rows.times(loss, rows.own / rows.mean) if self.training_loss.averages else loss
            scaled_loss = self.optimizer.scale_loss(weighted)
        variables = self.trainable_weights
        self.optimizer.apply_gradients(zip(tape.gradient(scaled_loss, variables), variables, strict=True))
        return self._report(x, y, outputs, loss, sample_weight, rows, training=True)

    def test_step(self, data: Any) -> dict[str, Any]:
        """Evaluate a batch."""
        x, y, sample_weight = keras.utils.unpack_x_y_sample_weight(data)
        rows = self._rows(x)
        outputs = self._with_probabilities(self._latent_of_part(x, rows, training=False))
        loss = self.compute_loss(x, y, outputs, sample_weight, training=False)
        return self._report(x, y, outputs, loss, sample_weight, rows, training=False)

    def _latent_of_part(self, x: Any, rows: "_Rows", training: bool) -> dict[str, Any]:
        """Return latents of a replica's part of a batch; an empty part is computed with a sample of zeros.

        The last batch may have fewer samples than there are replicas. Not all layers accept empty batches: the moments
        of batch normalization would be NaN.
        """
        if rows.replicas == 1:
            return self.latent(x, training=training)
        count = tf.cast(rows.own, tf.int32)
        x = keras.tree.map_structure(lambda leaf: _with_rows(leaf, tf.maximum(count, 1)), x)
        return keras.tree.map_structure(lambda leaf: leaf[:count], self.latent(x, training=training))

    @staticmethod
    def _rows(x: Any) -> "_Rows":
        rows = tf.cast(tf.shape(keras.tree.flatten(x)[0])[0], tf.float32)
        replica = tf.distribute.get_replica_context()
        if replica is None or replica.num_replicas_in_sync == 1:
            return _Rows(rows, rows, 1)
        replicas = replica.num_replicas_in_sync
        return _Rows(rows, replica.all_reduce(tf.distribute.ReduceOp.SUM, rows) / replicas, replicas)

    def _report(
        self, x: Any, y: Any, outputs: Any, loss: Any, sample_weight: Any, rows: "_Rows", training: bool
    ) -> dict[str, Any]:
        """Update the loss and the metrics of the epoch, and return them."""
        tracker, *others = self.metrics
        # Losses that are sums have equal weights, whatever the number of samples.
        counted = rows.own if self.training_loss.averages else rows.mean
        tracker.update_state(rows.times(loss, rows.replicas), sample_weight=counted)
        if not others:
            return self.get_metrics_result()  # no metric needs probabilities
        latent = {name: outputs[name] for name in ("loc", "scale")}
        if "log_probabilities" in outputs and (training or self.after_training.calibration is None):
            probabilities = tf.exp(outputs["log_probabilities"])
        elif training:
            probabilities = self.readout(self.predictive(latent), training=True)
        else:
            probabilities = self.read_out(self.calibrated_latent(latent))
        return self.compute_metrics(x, y, probabilities, sample_weight)

    # Before training

    def _adapter(self, method: str) -> DataAdapter:
        if not self.compiled:
            raise ValueError(f"call compile() before {method}(): the optimizer and the loss are chosen there")
        return DataAdapter(self.target, self.num_classes, self.training_loss, self._workers())

    def _read_ahead(self, stream: Any, labels: Any, steps: int | None) -> Any:
        """Adapt loss and head to a stream; return one that still yields every batch."""
        adapter, head = self._adapter("fit"), self.head
        for_loss, for_head = adapter.adapts_by_reading(labels), not head.adapted
        if is_observed(stream) or not (for_loss or for_head):
            return stream
        if not is_repeatable(stream) and steps is None:
            raise ValueError(
                "steps_per_epoch must be given with a generator whose first epoch is read ahead: the head starts among "
                "features of training samples, or the loss needs their latents"
            )
        of_loss, of_head, stream = (stream,) * 3 if is_repeatable(stream) else itertools.tee(stream, 3)
        if for_loss:
            adapter.adapt_loss(of_loss, steps)
        if for_head:
            labeler = DataAdapter(self.target, self.num_classes)
            read_ahead = read_batches(of_head, steps, "steps_per_epoch")
            self._adapt_head((x, labeler.observe(x, y)["label"]) for x, y, _ in read_ahead)
        return stream

    def _build_pieces(self, samples: Any) -> None:
        """Create the weights before training: Keras would do so in the first step, too late for a backup.

        Raises an error for parts that do not fit together, before the latents are computed.
        """
        self._check_strategy()
        self._check_shape(samples)
        leaves = keras.tree.flatten(samples)
        self._trained_on_integers = all(tf.as_dtype(leaf.dtype).is_integer for leaf in leaves)
        if not self.built:
            with self.distribute_strategy.scope():
                self.build(keras.tree.map_structure(lambda leaf: (None, *leaf.shape[1:]), samples))

    def _check_workers(self, workers: Workers, settings: Any, *data: Any) -> None:
        """Raise ValueError, before any work, if another worker has a different model, settings or data.

        ``data`` are arrays, or the specifications of a stream and the stream: data sets are compared by their first
        batch, unless each worker reads its own files.
        """
        if workers.count == 1:
            return
        datasets = [part for part in data if isinstance(part, tf.data.Dataset)]
        leaves = [next(iter(part)) for part in datasets if not divides_files(part)]
        leaves += [part.as_dict() if isinstance(part, LatentGaussian) else part for part in data if not is_stream(part)]
        arrays = tuple(np.asarray(leaf) if hasattr(leaf, "__array__") else leaf for leaf in keras.tree.flatten(leaves))
        workers.check_same(
            {
                "versions": versions(),
                "model and settings": (model_configuration(self), str(settings)),
                "samples": arrays,
            }
        )

    def _build_optimizer(self) -> None:
        if not self.optimizer.built:
            with self.distribute_strategy.scope():
                self.optimizer.build(self.trainable_variables)

    def _build_metrics(self, data: Any) -> None:
        """Create the metrics' variables, by one update: a step that creates variables would be traced twice."""
        # Under a strategy Keras creates them.
        if not isinstance(data, tf.data.Dataset) or self.distribute_strategy.num_replicas_in_sync > 1:
            return
        if len(self.metrics) < 2 or self.metrics[1].variables:
            return
        label = data.element_spec[1]["label"]
        uniform = tf.fill([1, self.num_classes], 1.0 / self.num_classes)
        self.compute_metrics(None, {"label": tf.zeros([1, *label.shape[1:]], label.dtype)}, uniform)
        self.reset_metrics()

    def _adapt_head(self, x: Any, labels: Any = None, num_samples: int | None = None) -> None:
        """Initialize the head from features of training samples, unless it has been adapted or loaded."""
        if not self.head.adapted:
            hard = np.argmax(labels, axis=-1) if np.ndim(labels) == 2 else labels
            self.head.adapt(x, hard, self.backbone, seed=self.seed)
        elif num_samples is not None:
            self.head.set_num_samples(num_samples)

    def _warn_of_unfitted_target(self) -> None:
        warn_caller(
            "the latent loss needs the target's training samples, which a loaded model does not carry: it is given "
            "as NaN. Call model.target.fit(x_train, y_train) first to have it; class metrics do not need it",
        )

    # Files

    def save_own_variables(self, store: Any) -> None:
        """Save the state of the loss, and the arrays of target and density, with the weights."""
        super().save_own_variables(store)
        for prefix, piece in self._stateful():
            for name, value in piece.state().items():
                store[f"{prefix}{name}"] = np.asarray(value)

    def load_own_variables(self, store: Any) -> None:
        """Load what ``save_own_variables`` saved."""
        names = list(store.keys())  # not all stores of Keras can be iterated over
        state = {name: np.asarray(store[name]) for name in names if name.startswith(_OF_PIECES)}
        for prefix, piece in self._stateful():
            if found := {name.removeprefix(prefix): state[name] for name in state if name.startswith(prefix)}:
                piece.load_state(found)
        super().load_own_variables({name: store[name] for name in names if name not in state})

    def _stateful(self) -> list[tuple[str, Any]]:
        loss = [] if self.training_loss is None else [(_OF_LOSS, self.training_loss)]
        fitted = self.after_training.density
        density = [] if fitted is None else [(_OF_DENSITY, fitted)]
        return [*loss, (_OF_TARGET, self.target), *density]

    def _check_strategy(self) -> None:
        """Raise ValueError if weights or the optimizer were made outside of the scope of the strategy."""
        strategy = self.distribute_strategy
        if strategy.num_replicas_in_sync == 1:
            return
        outside = [weight.path for weight in self.weights if not _is_distributed(weight)]
        if outside or _counts_steps_twice(self.optimizer, strategy):
            name = type(strategy.whole if isinstance(strategy, LocalReduction) else strategy).__name__
            found = f"weights, {outside[0]} among them," if outside else "the optimizer"
            raise ValueError(
                f"the model must be made inside the scope of the {name} that trains it; found "
                f"{found} made outside. Make it, and build it if you do, under 'with strategy.scope():'"
            )


def _with_rows(tensor: Any, count: Any) -> Any:
    """Pad a tensor with rows of zeros to ``count`` rows."""
    none = tf.zeros([len(tensor.shape) - 1, 2], tf.int32)
    padded = tf.pad(tensor, tf.concat([[[0, count - tf.shape(tensor)[0]]], none], axis=0))
    return tf.ensure_shape(padded, tensor.shape)


class _Rows(NamedTuple):
    """Number of samples in this replica's part of a batch, their mean number in the parts, and how many parts."""

    own: Any
    mean: Any
    replicas: int

    def times(self, loss: Any, factor: Any) -> Any:
        """Return a loss times a factor, which is one on a single device; zero for an empty part, whose mean is NaN."""
        if self.replicas == 1:
            return loss
        return tf.math.multiply_no_nan(loss, tf.cast(factor, loss.dtype) * tf.cast(self.own > 0, loss.dtype))


# Prefixes of the names of their arrays among the saved weights.
_OF_PIECES = _OF_LOSS, _OF_TARGET, _OF_DENSITY = "loss_", "target_", "density_"


def _is_distributed(variable: Any) -> bool:
    return isinstance(variable.value, tf.distribute.DistributedValues)


def _counts_steps_twice(optimizer: Any, strategy: tf.distribute.Strategy) -> bool:
    """Return whether an optimizer was made outside of the scope: every replica would count a step."""
    if strategy.num_replicas_in_sync == 1 or not isinstance(optimizer, keras.optimizers.Optimizer):
        return False
    return not _is_distributed(optimizer.iterations)
