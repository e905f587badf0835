"""The network of a classifier: backbone, head and readout, with predictions of probabilities and latents."""

import dataclasses
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from deepsimplex._utils.atomic_files import replacing
from deepsimplex._utils.batching import num_rows
from deepsimplex._utils.named_inputs import stated_inputs
from deepsimplex._utils.validation import check_class_names, check_whole
from deepsimplex.calibration.after_training import AfterTraining
from deepsimplex.classifier.data import check_lengths, check_samples
from deepsimplex.classifier.keras_files import FileInMemory, check_overwrite
from deepsimplex.classifier.several_workers import LocalReduction, Workers, has_several_workers
from deepsimplex.classifier.streams import as_tensor, checked_stream, concise_graph_errors, in_batches, is_stream
from deepsimplex.heads import HEADS, Head, LayerHead
from deepsimplex.latent import Covariance, LatentGaussian
from deepsimplex.readout.layers import readout_layer
from deepsimplex.readout.readout_base import log_probabilities
from deepsimplex.targets import TARGETS, Target


class SimplexNetwork(keras.Model):
    """Keras model from samples to class probabilities, by a Gaussian over the latent space of a target.

    The parameters are those of ``SimplexClassifier``, which adds training and files.
    """

    _predicts = False

    def __init__(
        self,
        backbone: keras.layers.Layer,
        target: Target | str | dict[str, Any] = "casimac",
        num_classes: int | None = None,
        covariance: Covariance | None = None,
        head: keras.layers.Layer | str | dict[str, Any] | None = None,
        readout: keras.layers.Layer | str | dict[str, Any] | None = None,
        class_names: Sequence[str] | None = None,
        seed: int = 0,
        name: str = "simplex_classifier",
        **kwargs: Any,
    ) -> None:
        super().__init__(name=name, **kwargs)
        self.seed = check_whole(seed, "seed", 0)
        if not isinstance(backbone, keras.layers.Layer):
            raise ValueError(f"backbone must be a keras.Model or layer; found {type(backbone).__name__}")
        if num_classes is None:
            if class_names is None:
                raise ValueError("num_classes must be given, or class_names, one for each class")
            num_classes = len(class_names)
        self.target: Target = TARGETS.get(target)
        check_whole(num_classes, "num_classes", 2)
        scores = self.target.scores(num_classes)  # raises for an impossible number of classes
        self.num_classes = int(num_classes)
        names = check_class_names(class_names, self.num_classes, "class_names", "probabilities")
        self.class_names = [str(name) for name in names]
        self.backbone = backbone
        self.head = self._make_head(head, covariance)
        self.readout = readout_layer(readout or self.target.default_readout, scores)
        self.after_training = AfterTraining(self)
        self._noise = self.target.noise(self.num_classes)
        self._hide("_sample_shapes", None)
        self._hide("_latents", None)
        self._hide("_features", None)
        tensors = stated_inputs(backbone)  # not input_shape, which is a list for a dict of inputs
        if tensors is not None:  # build at once, as functional models, so that weights can be loaded
            self.build(keras.tree.map_structure(lambda tensor: tensor.shape, tensors))

    def _make_head(self, head: Any, covariance: Covariance | None) -> Head:
        if isinstance(head, keras.layers.Layer) and covariance is not None:
            raise ValueError("covariance must not be given beside head: the head has its own")
        made = HEADS.get(
            head or ("variational" if covariance is None else "gaussian"),
            num_classes=self.num_classes,
            latent_dim=self.target.latent_dim(self.num_classes),
            covariance=covariance or "isotropic",
            # Of targets that compare samples a head needs the vertices alone.
            target=TARGETS.get("vertices") if self.target.needs_samples else self.target,
        )
        made = made if isinstance(made, Head) else LayerHead(made)
        if covariance is not None and (made.covariance or "isotropic") != covariance:
            raise ValueError(f"covariance {covariance!r} is not one that head {head!r} has: leave it out")
        made.check_target(self.target, self.num_classes)
        return made

    def _hide(self, name: str, value: Any) -> None:
        """Set an attribute that Keras does not track: it is no part of the model's weights and layers."""
        object.__setattr__(self, name, value)

    # From samples to probabilities

    @property
    def distribute_strategy(self) -> Any:
        """The strategy that trains the model; with several workers, each predicts by itself."""
        strategy = super().distribute_strategy
        if not has_several_workers(strategy):
            return strategy
        return tf.distribute.get_strategy() if self._predicts else LocalReduction(strategy)

    def _workers(self) -> Workers:
        return Workers(super().distribute_strategy)

    def build(self, input_shape: Any) -> None:
        """Create the weights, and check that backbone, head and readout fit together."""
        samples = keras.tree.map_shape_structure(lambda shape: keras.KerasTensor(shape), input_shape)
        features = self.backbone(samples)
        if not isinstance(features, keras.KerasTensor) or len(features.shape) != 2:
            raise ValueError(
                f"backbone must give features of shape [N, d]; found {features}. End it in keras.layers.Flatten() or "
                'GlobalAveragePooling2D(), or build it with pooling="avg"'
            )
        latent = self.head(features)
        if not isinstance(latent, dict):
            raise ValueError(
                'head must give a Gaussian over latents, the dict {"loc", "scale"}; found '
                f"{type(self.head).__name__}, which gives {latent}"
            )
        probabilities = self.readout(latent)
        if tuple(probabilities.shape[1:]) != (self.num_classes,):
            raise ValueError(
                f"readout must give probabilities of shape [N, {self.num_classes}] for this head and target; found "
                f"{tuple(probabilities.shape)}"
            )
        self._hide("_sample_shapes", keras.tree.map_shape_structure(lambda shape: tuple(shape[1:]), input_shape))
        self.built = True

    def save_weights(self, filepath: str | os.PathLike[str], overwrite: bool = True, **kwargs: Any) -> None:
        """Save the weights to a ``.weights.h5`` file atomically; further arguments as in keras.Model."""
        if kwargs:  # shards are several files
            super().save_weights(filepath, overwrite, **kwargs)
            return
        check_overwrite(filepath, overwrite)
        memory = FileInMemory(filepath)
        super().save_weights(memory)
        with replacing(filepath) as fresh:
            fresh.write_bytes(memory.getbuffer())

    def latent(self, inputs: Any, training: bool | None = None) -> dict[str, Any]:
        """Return the head's Gaussian over latents as the dict {"loc", "scale"}, without the target's noise.

        Except in training it is widened where samples are unfamiliar, after ``fit_density``.
        """
        features = self.backbone(inputs, training=training)
        return self.head(features, training=True) if training else self.latent_of_features(features)

    def latent_of_features(self, features: Any) -> dict[str, Any]:
        """Return the head's Gaussian of the backbone's features [N, d], widened where they are unfamiliar."""
        return self.after_training.widened(self.head(features, training=False), features)

    def predictive(self, latent: dict[str, Any]) -> dict[str, Any]:
        """Return the Gaussian that is read out: the head's, with the target's own noise added, if it has one."""
        return latent if self._noise is None else LatentGaussian.of(latent).with_noise(self._noise).as_dict()

    def calibrated_latent(self, latent: dict[str, Any]) -> dict[str, Any]:
        """Return the head's Gaussian with the target's noise and the calibration, if there is one."""
        return self.after_training.calibrated_latent(self.predictive(latent))

    def read_out(self, latent: dict[str, Any]) -> Any:
        """Return calibrated class probabilities [N, n] of latents from ``calibrated_latent``."""
        return self.after_training.calibrated(self.readout(latent))

    def log_probabilities(self, latent: dict[str, Any]) -> Any:
        """Return uncalibrated log-probabilities [N, n] of the head's latents, in log space: what losses need."""
        return log_probabilities(self.readout, self.predictive(latent))

    def call(self, inputs: Any, training: bool | None = None) -> Any:
        """Return class probabilities [N, n]; in training uncalibrated ones."""
        latent = self.latent(inputs, training=training)
        return self.readout(self.predictive(latent)) if training else self.read_out(self.calibrated_latent(latent))

    @concise_graph_errors()
    def predict(
        self,
        x: Any,
        batch_size: int | None = None,
        verbose: str | int = "auto",
        steps: int | None = None,
        **kwargs: Any,
    ) -> np.ndarray:
        """Return class probabilities [N, n], float32; arguments as in keras.Model.predict.

        Raises
        ------
        TypeError, ValueError
            For arrays that are not numeric, have no samples, are not finite or do not fit the backbone's inputs.
        """
        x = self._checked(x)
        with self._predicting():
            if steps is None and not kwargs and _in_slices(self, x, batch_size, verbose):
                return _predict_slices(self, x, batch_size)
            x, batch_size = in_batches(x, batch_size)
            return super().predict(x, batch_size=batch_size, verbose=verbose, steps=steps, **kwargs)

    def predict_on_batch(self, x: Any) -> np.ndarray:
        """Return class probabilities [N, n] of one batch, as in keras.Model, after the checks of ``predict``."""
        x = self._checked(x)
        with self._predicting():
            return super().predict_on_batch(x)

    @contextmanager
    def _predicting(self) -> Iterator[None]:
        self._hide("_predicts", True)
        try:
            yield
        finally:
            self._hide("_predicts", False)

    def _checked(self, x: Any) -> Any:
        """Return samples to predict as they are, after the checks of ``fit``."""
        if has_several_workers(tf.distribute.get_strategy()):
            raise ValueError(
                "predictions must be asked for outside the scope of MultiWorkerMirroredStrategy: each worker predicts "
                "by itself"
            )
        if is_stream(x):
            return checked_stream(x, self._check_shape, self._check_samples)
        self._check_samples(x)
        return x

    def _check_samples(self, x: Any) -> None:
        check_samples(x)
        self._check_shape(x)

    def _check_shape(self, x: Any) -> None:
        """Raise ValueError for an array, or the specification of one, that does not fit the backbone's inputs."""
        named = stated_inputs(self.backbone)
        if (
            isinstance(named, dict)
            and len(named) > 1
            and (hasattr(x, "shape") or (isinstance(x, dict) and named.keys() - x))
        ):
            found = sorted(x) if isinstance(x, dict) else "one array"
            raise ValueError(f"x must be a dict of the inputs {', '.join(named)}; found {found}")
        expected: Any = getattr(self.backbone, "input_shape", None)
        if hasattr(x, "shape") and is_shape(expected) and not _fits(tuple(x.shape[1:]), tuple(expected[1:])):
            raise ValueError(f"x must hold samples of shape {list(expected[1:])}; found shape {list(x.shape)}")

    def predict_proba(self, x: Any, batch_size: int | None = None, verbose: str | int = 0) -> np.ndarray:
        """Return class probabilities [N, n], float32: scikit-learn's name for ``predict``."""
        return self.predict(x, batch_size=batch_size, verbose=verbose)

    def predict_latent(self, x: Any, batch_size: int | None = None, verbose: str | int = 0) -> LatentGaussian:
        """Return the latent Gaussians that the class probabilities are read out of.

        Parameters
        ----------
        x : array, tf.data.Dataset, PyDataset or generator
        batch_size : int, optional
            Default 32. The result does not depend on it.
        verbose : "auto", 0, 1 or 2

        Returns
        -------
        LatentGaussian
            Of NumPy arrays, float32. It includes the target's own noise: reading it out gives ``predict_proba(x)``,
            unless the classifier was calibrated by other means than "latent".
        """
        x = self._checked(x)
        if self._latents is None:
            self._hide("_latents", _Part(self, lambda x: self.calibrated_latent(self.latent(x))))
        return LatentGaussian.of(self._latents.predict_all(x, batch_size, verbose))

    def _uncalibrated(self, x: Any, batch_size: int | None = None, verbose: str | int = 0) -> dict[str, Any]:
        """Return uncalibrated class probabilities, the latents that they are read out of, and the readout."""

        def outputs(x: Any) -> dict[str, Any]:
            latent = self.predictive(self.latent(x))
            return {"probabilities": self.readout(latent), "latent": latent}

        predicted = _Part(self, outputs).predict_all(self._checked(x), batch_size, verbose)
        return {**predicted, "latent": LatentGaussian.of(predicted["latent"]), "readout": self.readout}

    def predict_features(self, x: Any, batch_size: int | None = None, verbose: str | int = 0) -> np.ndarray:
        """Return the backbone's features [N, d] of samples; arguments as for ``predict_latent``."""
        x = self._checked(x)
        if self._features is None:
            self._hide("_features", _Part(self, lambda x: self.backbone(x, training=False)))
        return self._features.predict_all(x, batch_size, verbose)

    def explain(self, x: Any, k: int = 3) -> Any:
        """Find the k nearest prototypes of every sample by a head of prototypes; ``labels`` are ``class_names``.

        Parameters
        ----------
        x : array, shape [N, ...]
        k : int
            Default 3; all prototypes if there are fewer.

        Returns
        -------
        Explanation
            See ``deepsimplex.estimators.Explanation``.

        Raises
        ------
        ValueError
            If the head has no prototypes.
        """
        explained = self.head.explain(self._checked(x), k, self.backbone)
        return dataclasses.replace(explained, labels=np.array(self.class_names)[explained.labels])


class _Part(keras.Model):
    """Keras model from samples to one output of a network, such as its latents or features."""

    def __init__(self, network: SimplexNetwork, function: Callable[[Any], Any]) -> None:
        super().__init__(name="part", dtype=network.dtype_policy)
        self._network = lambda: network  # as an attribute, Keras would follow a cycle of references when it loads
        self._function = function

    def build(self, input_shape: Any) -> None:
        """Build the network, with batches of any size."""
        network = self._network()
        if not network.built:
            with network.distribute_strategy.scope():
                network.build(keras.tree.map_shape_structure(lambda shape: (None, *shape[1:]), input_shape))

    def call(self, inputs: Any) -> Any:
        """Return the output of the function."""
        return self._function(inputs)

    @concise_graph_errors()
    def predict_all(self, x: Any, batch_size: int | None, verbose: str | int) -> Any:
        """Predict as ``keras.Model.predict`` does, with less overhead for arrays of few samples."""
        if _in_slices(self, x, batch_size, verbose):
            return _predict_slices(self, x, batch_size)
        x, batch_size = in_batches(x, batch_size)
        return self.predict(x, batch_size=batch_size, verbose=verbose)


def _in_slices(model: keras.Model, x: Any, batch_size: int | None, verbose: str | int) -> bool:
    """Return whether ``_predict_slices`` can replace ``predict``: arrays, a single device, no progress bar."""
    leaves = keras.tree.flatten(x)
    check_lengths(batch_size=batch_size)
    return (
        verbose == 0
        and model.steps_per_execution == 1
        and model.distribute_strategy.num_replicas_in_sync == 1
        and all(isinstance(leaf, np.ndarray | tf.Tensor) for leaf in leaves)
        and len({len(leaf) for leaf in leaves}) == 1
    )


def _predict_slices(model: keras.Model, x: Any, batch_size: int | None) -> Any:
    """Predict arrays by the function and in the batches of ``keras.Model.predict``, without its data set.

    Keras creates a data set in every call and traces its functions, which takes most of the time for few samples.
    """
    x, size, found = keras.tree.lists_to_tuples(x), batch_size or 32, []
    model.make_predict_function()
    for first in range(0, num_rows(x, "x"), size):
        batch = keras.tree.map_structure(lambda leaf, rows=slice(first, first + size): as_tensor(leaf[rows]), x)
        found.append(model.predict_function([keras.utils.pack_x_y_sample_weight(batch)]))
    return keras.tree.map_structure(lambda *parts: np.concatenate([np.asarray(part) for part in parts]), *found)


def _fits(found: tuple[int | None, ...], wanted: tuple[int | None, ...]) -> bool:
    """Return whether samples fit an input; Keras adds or removes a last axis of length one."""
    a, b = (shape[:-1] if shape[-1:] == (1,) else shape for shape in (found, wanted))
    return len(a) == len(b) and all(own == size or None in (own, size) for own, size in zip(a, b, strict=True))


def is_shape(value: Any) -> bool:
    """Return whether a value is a single shape rather than a structure of shapes."""
    return isinstance(value, list | tuple) and all(entry is None or isinstance(entry, int) for entry in value)
