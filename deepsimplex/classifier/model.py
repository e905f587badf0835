"""SimplexClassifier: target x backbone and head x readout, as one Keras model."""

import math
import os
import warnings
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from deepsimplex.classifier import observations
from deepsimplex.classifier.epochs import SeededEpochs, shuffled_batches
from deepsimplex.classifier.observations import Samples
from deepsimplex.export import export_saved_model
from deepsimplex.files import check_writable, replacing
from deepsimplex.heads import GaussianHead
from deepsimplex.heads.latent_model import single_sample_weight
from deepsimplex.latent import Covariance, LatentGaussian
from deepsimplex.losses import as_latent_loss
from deepsimplex.readout import readout_layer
from deepsimplex.targets import Target, get_target

# Sampling points of the running metrics of training batches: with the default 128 they would take most of a step.
RUNNING_POINTS = 16


class _LatentView(keras.Model):
    """The classifier seen as a model from samples to latents, to reuse Keras' own predict loop."""

    def __init__(self, classifier: "SimplexClassifier") -> None:
        super().__init__(name="latent_view", dtype=classifier.dtype_policy)
        self.classifier = classifier

    def call(self, inputs: Any) -> dict[str, Any]:
        return self.classifier.predictive(self.classifier.latent(inputs))


@keras.saving.register_keras_serializable(package="deepsimplex")
class SimplexClassifier(keras.Model):
    """A classifier that learns latent positions of labels and reads class probabilities out of a latent Gaussian.

    A keras.Model first: ``compile``, ``fit``, ``evaluate``, ``predict``, ``save`` and callbacks work as ever.
    ``predict(x)`` and ``model(x)`` give class probabilities [N, n], and metrics see labels and class probabilities.
    Between the two lies a Gaussian over latent space, which ``predict_latent`` returns: the target turns labels into
    points of that space, the backbone and its head learn to predict them, the readout integrates.

    Parameters
    ----------
    backbone : keras.Model
        From samples to features [N, d]: ``heads.mlp([100])``, ``heads.cnn()``, or any other, e.g. one of
        keras.applications with ``include_top=False, pooling="avg"``.
    target : Target, str or dict
        Where labels lie in latent space: ``targets.CASIMAC("euclidean")``, "ilr", ...
    num_classes : int
        Number of classes n, at least 2.
    covariance : {"isotropic", "diagonal", "full"}, optional
        Covariance of the default ``heads.GaussianHead``. Default "isotropic": one variance per sample, which the argmax
        readout integrates exactly. "diagonal" is the network of [CASIMAC] sec. 3.4.
    head : keras.layers.Layer, optional
        Another layer from features to a dict {"loc", "scale"}, in place of the default head.
    readout : str or keras.layers.Layer, optional
        "argmax", "softmax" or a layer of ``deepsimplex.readout``. Default: what the target is meant for.
    class_names : list of str, optional
        Names of the classes, in label order; they travel with the model and its export. Default "0", "1", ...
    seed : int
        Seed of the order of samples and of random layers. Two runs with the same seed give the same weights, whether
        interrupted and resumed or not. Default 0.
    name, **kwargs
        As in keras.Model.

    Raises
    ------
    ValueError
        When the pieces do not fit: a head for another latent space, features not of rank 2, class names of another
        number.

    Notes
    -----
    A target with a fixed noise of its own (ILR) explains the residuals by it, and the head's scale collapses; class
    probabilities are therefore read out from N(mu, Sigma + noise^2). Targets without (CASIMAC) leave all of it to the
    head; Dirichlet latents are read out as they are.

    While ``fit`` runs, the metrics of training batches use a readout of few points where the readout samples
    (argmax of a diagonal or full covariance, softmax); validation, ``evaluate`` and ``predict`` never do.

    Sources: [CASIMAC] sec. 3.4 (the network), [ILR-GP] sec. 3.1 and [GPD] sec. 4 (their targets).

    Examples
    --------
    >>> import deepsimplex as ds
    >>> (x, y), (x_test, y_test) = ds.datasets.load("digits")
    >>> model = ds.SimplexClassifier(ds.heads.mlp([32]), ds.targets.CASIMAC("euclidean"), num_classes=10)
    >>> model.compile(optimizer="adam", metrics=["accuracy"])
    >>> history = model.fit(x, y, epochs=2, verbose=0)
    >>> model.predict_proba(x_test).shape
    (360, 10)
    """

    def __init__(
        self,
        backbone: keras.Model,
        target: Target | str | dict[str, Any],
        num_classes: int,
        covariance: Covariance | None = None,
        head: keras.layers.Layer | None = None,
        readout: str | keras.layers.Layer | None = None,
        class_names: Sequence[str] | None = None,
        seed: int = 0,
        name: str = "simplex_classifier",
        **kwargs: Any,
    ) -> None:
        super().__init__(name=name, **kwargs)
        if not isinstance(backbone, keras.layers.Layer):
            raise ValueError(f"backbone must be a keras.Model or layer; found {type(backbone).__name__}")
        self.target = get_target(target)
        scores = self.target.scores(num_classes)  # says what is wrong with a number of classes
        self.num_classes = int(num_classes)
        self.class_names = _check_class_names(class_names, self.num_classes)
        self.seed = int(seed)
        self.backbone = backbone
        self.head = self._head(head, covariance)
        self.readout = readout_layer(readout or self.target.default_readout, scores=scores)
        self._running_readout = self.readout
        self._noise = self.target.noise(self.num_classes)
        self._sample_shape: tuple[int | None, ...] | None = None

    def _head(self, head: keras.layers.Layer | None, covariance: Covariance | None) -> keras.layers.Layer:
        latent_dim = self.target.latent_dim(self.num_classes)
        if head is None:
            return GaussianHead(latent_dim, covariance or "isotropic", name="gaussian_head")
        if covariance is not None:
            raise ValueError("covariance must not be given beside head: the head has its own")
        if getattr(head, "latent_dim", latent_dim) != latent_dim:
            raise ValueError(
                f"head must have latent_dim {latent_dim} for {self.num_classes} classes of this target; found "
                f"{head.latent_dim}"
            )
        return head

    # From samples to probabilities

    def build(self, input_shape: Any) -> None:
        if not self.backbone.built:
            self.backbone.build(input_shape)
        features = tuple(self.backbone.compute_output_shape(input_shape))
        if len(features) != 2:
            raise ValueError(
                f"backbone must give features of shape [N, d]; found {features}. End it in keras.layers.Flatten() or "
                'GlobalAveragePooling2D(), or build it with pooling="avg"'
            )
        if not self.head.built:
            self.head.build(features)
        # The running metrics of training batches are a glance: where the readout samples, few points do.
        if hasattr(self.readout, "coarser"):
            self._running_readout = self.readout.coarser(RUNNING_POINTS, self.head.compute_output_shape(features))
        self._sample_shape = tuple(input_shape[1:]) if _is_shape(input_shape) else None
        self.built = True

    def latent(self, inputs: Any, training: bool | None = None) -> dict[str, Any]:
        """The head's Gaussian over latents as the dict {"loc", "scale"} of tensors, without the target's noise."""
        return self.head(self.backbone(inputs, training=training))

    def predictive(self, latent: dict[str, Any]) -> dict[str, Any]:
        """The Gaussian that is read out: the head's, with the target's own noise added where it has one."""
        return latent if self._noise is None else LatentGaussian.of(latent).with_noise(self._noise).as_dict()

    def call(self, inputs: Any, training: bool | None = None) -> Any:
        return self.readout(self.predictive(self.latent(inputs, training=training)))

    def predict_proba(self, x: Any, batch_size: int | None = None, verbose: str | int = 0) -> np.ndarray:
        """Class probabilities [N, n], float32: scikit-learn's name for ``predict``."""
        return self.predict(x, batch_size=batch_size, verbose=verbose)

    def predict_latent(self, x: Any, batch_size: int | None = None, verbose: str | int = 0) -> LatentGaussian:
        """The latent Gaussians that the class probabilities are read out of.

        Parameters
        ----------
        x : array or tf.data.Dataset
        batch_size : int, optional
            Default 32. The result does not depend on it.
        verbose : "auto", 0, 1 or 2

        Returns
        -------
        LatentGaussian
            Of NumPy arrays, float32. It includes the target's own noise: reading it out gives ``predict_proba(x)``.
        """
        return LatentGaussian.of(_LatentView(self).predict(x, batch_size=batch_size, verbose=verbose))

    # Training in latent space

    def compile(self, optimizer: Any = "adam", loss: Any = None, metrics: Any = None, **kwargs: Any) -> None:
        """Configure training.

        Parameters
        ----------
        optimizer : str or keras.optimizers.Optimizer
            Default "adam".
        loss : latent loss, optional
            None is ``losses.LatentNLL()``; any loss of (observation, latent) does. Keras' own losses are an error.
        metrics : list, optional
            Any Keras metrics of labels and class probabilities: "accuracy", ``metrics.ExpectedCalibrationError()``.
        **kwargs
            As in keras.Model.compile.
        """
        super().compile(optimizer=optimizer, loss=as_latent_loss(loss), metrics=metrics, **kwargs)

    def compile_from_config(self, config: dict[str, Any]) -> None:
        """Compile as a saved model was, its optimizer's state included."""
        self.compile(**keras.saving.deserialize_keras_object(config))
        if self.optimizer is not None and self.built:
            self.optimizer.build(self.trainable_variables)

    def compute_loss(
        self, x: Any = None, y: Any = None, y_pred: Any = None, sample_weight: Any = None, training: bool = True
    ) -> Any:
        """Latent loss of the observations packed in ``y``; where ``y_pred`` is not latents, they are computed."""
        latent = y_pred if isinstance(y_pred, dict) else self.latent(x, training=training)
        if "loc" not in y:
            return tf.constant(math.nan, keras.config.floatx())
        observation = {"loc": y["loc"], "scale": y["scale"]}
        loss = self.loss(observation, latent, sample_weight=sample_weight)
        return tf.add_n([loss, *[tf.cast(extra, loss.dtype) for extra in self.losses]])

    def compute_metrics(self, x: Any, y: Any, y_pred: Any, sample_weight: Any = None) -> dict[str, Any]:
        """Metrics of labels and class probabilities."""
        return super().compute_metrics(x, y["label"], y_pred, sample_weight)

    def train_step(self, data: Any) -> dict[str, Any]:
        x, y, sample_weight = _unpack(data)
        with tf.GradientTape() as tape:
            latent = self.latent(x, training=True)
            loss = self.compute_loss(x, y, latent, sample_weight, training=True)
            scaled_loss = self.optimizer.scale_loss(loss)
        variables = self.trainable_weights
        self.optimizer.apply_gradients(zip(tape.gradient(scaled_loss, variables), variables, strict=True))
        return self._report_step(x, y, latent, loss, sample_weight, self._running_readout)

    def test_step(self, data: Any) -> dict[str, Any]:
        x, y, sample_weight = _unpack(data)
        latent = self.latent(x, training=False)
        loss = self.compute_loss(x, y, latent, sample_weight, training=False)
        return self._report_step(x, y, latent, loss, sample_weight, self.readout)

    def _report_step(self, x: Any, y: Any, latent: Any, loss: Any, sample_weight: Any, readout: Any) -> dict[str, Any]:
        self._loss_tracker.update_state(loss, sample_weight=tf.shape(keras.tree.flatten(x)[0])[0])
        if self._compile_metrics is None:
            return self.get_metrics_result()  # no metric asks for probabilities
        return self.compute_metrics(x, y, readout(self.predictive(latent)), sample_weight)

    def fit(
        self,
        x: Any = None,
        y: Any = None,
        batch_size: int | None = None,
        epochs: int = 1,
        verbose: str | int = "auto",
        callbacks: Any = None,
        validation_split: float = 0.0,
        validation_data: Any = None,
        shuffle: bool = True,
        class_weight: dict[int, float] | None = None,
        sample_weight: Any = None,
        **kwargs: Any,
    ) -> keras.callbacks.History:
        """Make the targets' latents, then train on them.

        Parameters
        ----------
        x : array, structure of arrays, or tf.data.Dataset
            Samples; or batches of (image, label) or (image, latent), each with or without sample weights. With distance
            targets a data set of labels is read once, in order, to find neighbours, and held in memory; augmentation
            then belongs in the backbone, as Keras preprocessing layers. Other data sets are streamed.
        y : array or LatentGaussian
            Labels 0..n-1 [N], soft labels [N, n] (targets made from labels alone), or latents.
        validation_split : float
            Share of the samples, taken from the end as Keras does, that is held out of training and out of the
            target's neighbourhoods.
        validation_data : tuple or tf.data.Dataset
            (x, y) or (x, y, sample_weight). Its latents are found among the training samples.
        shuffle : bool
            Draw a new order every epoch, from ``seed`` and the training step.
        batch_size, epochs, verbose, callbacks, class_weight, sample_weight, **kwargs
            As in keras.Model.fit.

        Returns
        -------
        keras.callbacks.History

        Raises
        ------
        ValueError
            Before training, for labels out of range, samples of different number, NaN or infinite pixels, and what
            the target cannot use (see its documentation).
        """
        self._assert_compile_called("fit")
        epoch_order = SeededEpochs(self.seed)
        if isinstance(x, tf.data.Dataset):
            _refuse(y=y, sample_weight=sample_weight, validation_split=validation_split or None)
            labelled = observations.yields_labels(x, self.num_classes, self.target.latent_dim(self.num_classes))
            if labelled and self.target.needs_samples:
                x, y, sample_weight, batch_size = observations.read_dataset(x)
        if isinstance(x, tf.data.Dataset):
            training: Any = self._stream(x, class_weight)
            validation_data = self._validation(validation_data)
        else:
            _require_arrays(x, y)
            if validation_split and validation_data is None:
                (x, y, sample_weight), validation_data = _split(x, y, sample_weight, validation_split)
            samples = self._pack(x, y, sample_weight, class_weight, fit=True)
            validation_data = self._validation(validation_data)
            batch_size = batch_size or 32
            kwargs.setdefault("validation_batch_size", batch_size)
            if shuffle:
                training = shuffled_batches(samples, batch_size, epoch_order)
            else:
                training = tf.data.Dataset.from_tensor_slices(_drop_none(samples)).batch(batch_size)
        self._ensure_built(training)
        return super().fit(
            training,
            epochs=epochs,
            verbose=verbose,
            callbacks=_with_callback(callbacks, epoch_order),
            validation_data=validation_data,
            shuffle=False,
            **kwargs,
        )

    def evaluate(
        self,
        x: Any = None,
        y: Any = None,
        batch_size: int | None = None,
        verbose: str | int = "auto",
        sample_weight: Any = None,
        **kwargs: Any,
    ) -> Any:
        """Latent loss and class metrics on labelled samples: arguments and result as in keras.Model.evaluate.

        A distance target finds the latents of new samples among its training samples. A model loaded from a file has
        none: it evaluates its class metrics, gives the loss as NaN and warns; call ``model.target.fit(x_train,
        y_train)`` first to have the loss too.
        """
        if isinstance(x, tf.data.Dataset):
            _refuse(y=y, sample_weight=sample_weight)
            x, y, sample_weight = keras.utils.unpack_x_y_sample_weight(self._validation(x))
        elif not observations.is_packed(y):
            _require_arrays(x, y)
            x, y, sample_weight = self._validation((x, y, sample_weight))
        return super().evaluate(x, y, batch_size=batch_size, verbose=verbose, sample_weight=sample_weight, **kwargs)

    def _ensure_built(self, dataset: tf.data.Dataset) -> None:
        """Make the weights before training begins: Keras would do so in the first step, too late for a backup."""
        if not self.built:
            samples = dataset.element_spec[0]
            self.build(keras.tree.map_structure(lambda spec: (None, *spec.shape[1:]), samples))

    def _pack(self, x: Any, y: Any, sample_weight: Any, class_weight: Any, fit: bool) -> Samples:
        """Check arrays and give them their latents: by fitting the target to them, or among its training samples."""
        observations.check_lengths(x, y, sample_weight)
        observations.check_finite(x)
        packed = observations.observe(self.target, self.num_classes, x, y, fit=fit)
        if class_weight is not None:
            sample_weight = observations.class_weights(packed["label"], class_weight, sample_weight, self.num_classes)
        if sample_weight is not None:
            sample_weight = np.asarray(sample_weight, keras.config.floatx())
        return Samples(x, packed, sample_weight)

    def _stream(self, dataset: tf.data.Dataset, class_weight: Any = None) -> tf.data.Dataset:
        return observations.stream(self.target, self.num_classes, dataset, class_weight)

    def _validation(self, data: Any) -> Any:
        """Validation samples with their latents, found among the training samples."""
        if data is None:
            return None
        latent_dim = self.target.latent_dim(self.num_classes)
        if isinstance(data, tf.data.Dataset):
            labelled = observations.yields_labels(data, self.num_classes, latent_dim)
            if not (labelled and self.target.needs_samples):
                return self._stream(data)
            *data, _ = observations.read_dataset(data)
        x, y, sample_weight = keras.utils.unpack_x_y_sample_weight(tuple(data))
        latents_given = observations.as_latents(y, self.num_classes, latent_dim) is not None
        if self.target.needs_samples and not latents_given and not self.target.is_fitted:
            warnings.warn(
                "the latent loss needs the target's training samples, which a loaded model does not carry: it is given "
                "as NaN. Call model.target.fit(x_train, y_train) first to have it; class metrics do not need it",
                stacklevel=3,
            )
            observations.check_lengths(x, y, sample_weight)
            observations.check_finite(x)
            return Samples(x, {"label": observations.as_labels(y)}, sample_weight)
        return self._pack(x, y, sample_weight, None, fit=False)

    # Files

    def save(self, filepath: str | os.PathLike[str], overwrite: bool = True, **kwargs: Any) -> None:
        """Save as ``.keras``, whole or not at all: an earlier file survives a full disk.

        Parameters
        ----------
        filepath : path-like
            Ends in ".keras".
        overwrite : bool
            False raises FileExistsError where a file is in the way.
        """
        if not overwrite and os.path.exists(filepath):
            raise FileExistsError(f"filepath {os.fspath(filepath)!r} exists; pass overwrite=True to replace it")
        with replacing(filepath) as fresh:
            super().save(fresh, overwrite=True, **kwargs)

    def export(
        self,
        filepath: str | os.PathLike[str],
        format: str = "tf_saved_model",
        input_dtype: str = "float32",
        verbose: bool = False,
        **kwargs: Any,
    ) -> None:
        """Write a SavedModel that TensorFlow alone can serve.

        Parameters
        ----------
        filepath : path-like
            Folder to write; replaced whole or not at all.
        format : str
            "tf_saved_model" (default); any other goes to keras.Model.export, which serves class probabilities alone.
        input_dtype : {"float32", "uint8"}
            What the named input "image" takes: floats as in training (default), or uint8 pixels 0..255, which the
            served model divides by 255.
        verbose : bool
            Print Keras' summary of the endpoint. Default False.

        Notes
        -----
        Outputs: "class_probabilities" [N, n], "class_id" [N], "latent_mean" [N, L] and "latent_scale"; the class names
        lie beside them in ``assets.extra/class_names.json``.
        """
        if format != "tf_saved_model":
            super().export(filepath, format=format, verbose=verbose, **kwargs)
            return
        if kwargs:
            raise TypeError(f"export to tf_saved_model takes no {', '.join(kwargs)}")
        if not self.built or self._sample_shape is None:
            raise ValueError("export needs a model that has seen samples of one array: fit it or call it on one first")
        check_writable(os.path.dirname(os.path.abspath(filepath)), "filepath")
        export_saved_model(
            self,
            filepath,
            latent=lambda images: self.predictive(self.latent(images, training=False)),
            readout=self.readout,
            sample_shape=self._sample_shape,
            class_names=self.class_names,
            input_dtype=input_dtype,
            verbose=verbose,
        )

    def get_config(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "dtype": keras.saving.serialize_keras_object(self.dtype_policy),
            "backbone": keras.saving.serialize_keras_object(self.backbone),
            "target": self.target.get_config(),
            "num_classes": self.num_classes,
            "head": keras.saving.serialize_keras_object(self.head),
            "readout": keras.saving.serialize_keras_object(self.readout),
            "class_names": self.class_names,
            "seed": self.seed,
        }

    @classmethod
    def from_config(cls, config: dict[str, Any], custom_objects: Any = None) -> "SimplexClassifier":
        config = dict(config)
        for part in ("dtype", "backbone", "head", "readout"):
            config[part] = keras.saving.deserialize_keras_object(config[part], custom_objects=custom_objects)
        return cls(**config)


def _unpack(data: Any) -> tuple[Any, Any, Any]:
    x, y, sample_weight = keras.utils.unpack_x_y_sample_weight(data)
    return x, y, single_sample_weight(sample_weight)


def _check_class_names(class_names: Sequence[str] | None, num_classes: int) -> list[str]:
    names = [str(k) for k in range(num_classes)] if class_names is None else [str(name) for name in class_names]
    if len(names) != num_classes:
        raise ValueError(f"class_names must have {num_classes} entries, one per class; found {len(names)}")
    return names


def _is_shape(value: Any) -> bool:
    return isinstance(value, list | tuple) and all(entry is None or isinstance(entry, int) for entry in value)


def _refuse(**arguments: Any) -> None:
    given = [name for name, value in arguments.items() if value is not None]
    if given:
        raise ValueError(
            f"{', '.join(given)} must not be given here: with a tf.data.Dataset or this format it has no use"
        )


def _require_arrays(x: Any, y: Any) -> None:
    leaves = keras.tree.flatten(x)
    if x is None or not all(hasattr(leaf, "shape") and hasattr(leaf, "__array__") for leaf in leaves):
        kind = type(x).__name__
        raise ValueError(f"x must be an array, a structure of arrays, or a batched tf.data.Dataset; found {kind}")
    if y is None:
        raise ValueError("y must be given beside arrays: labels, soft labels or latents")


def _split(x: Any, y: Any, sample_weight: Any, share: float) -> tuple[tuple[Any, Any, Any], tuple[Any, Any, Any]]:
    """Cut a share of the samples off the end, as Keras does."""
    rows = observations.num_rows(x)
    cut = math.floor(rows * (1.0 - share))
    if not 0 < cut < rows:
        raise ValueError(f"validation_split must leave samples on both sides; {share!r} of {rows} does not")

    def part(value: Any, rows_of: slice) -> Any:
        if value is None or isinstance(value, LatentGaussian):
            return None if value is None else value[rows_of]
        return keras.tree.map_structure(lambda leaf: leaf[rows_of], value)

    first, last = slice(None, cut), slice(cut, None)
    return (
        (part(x, first), part(y, first), part(sample_weight, first)),
        (part(x, last), part(y, last), part(sample_weight, last)),
    )


def _drop_none(samples: Samples) -> tuple[Any, ...]:
    return tuple(part for part in samples if part is not None)


def _with_callback(callbacks: Any, own: keras.callbacks.Callback) -> Any:
    if isinstance(callbacks, keras.callbacks.CallbackList):
        callbacks.append(own)
        return callbacks
    others = [] if callbacks is None else callbacks if isinstance(callbacks, list | tuple) else [callbacks]
    # Last: BackupAndRestore, a user's learning-rate schedule and the like have their say before an epoch is drawn.
    return [*others, own]
