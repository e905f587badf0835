"""SimplexClassifier: target x backbone and head x readout, as one Keras model that is compiled, fitted and saved."""

import os
from typing import Any

import keras

from deepsimplex._utils.atomic_files import replacing
from deepsimplex._utils.messages import warn_caller
from deepsimplex._utils.named_inputs import as_inputs, input_shapes
from deepsimplex.classifier.calibrated_network import CalibratedNetwork
from deepsimplex.classifier.data import DataAdapter, Samples, batches, check_arrays, check_lengths, split
from deepsimplex.classifier.keras_files import check_overwrite
from deepsimplex.classifier.network import is_shape
from deepsimplex.classifier.several_workers import StateOfChief
from deepsimplex.classifier.streams import (
    SeededEpochs,
    check_not_given_with_stream,
    concise_graph_errors,
    is_stream,
    peek,
    read,
)
from deepsimplex.classifier.training import TrainableNetwork
from deepsimplex.export import export_model
from deepsimplex.targets import Target


@keras.saving.register_keras_serializable(package="deepsimplex")
class SimplexClassifier(TrainableNetwork, CalibratedNetwork):
    """Classifier that regresses onto latent targets and converts the predicted Gaussian to class probabilities.

    A keras.Model: ``compile``, ``fit``, ``evaluate``, ``predict``, ``save`` and callbacks work as usual. ``predict(x)``
    and ``model(x)`` give class probabilities [N, n], and metrics see labels and class probabilities. In between lies a
    Gaussian over latent space, which ``predict_latent`` returns: the target turns labels into points of that space, the
    backbone and its head learn to predict them, the readout integrates the Gaussian.

    Parameters
    ----------
    backbone : keras.Model
        From samples to features [N, d]: ``backbones.mlp([100])``, ``backbones.cnn()``, or any other, e.g. one of
        keras.applications with ``include_top=False, pooling="avg"``.
    target : Target, str or dict
        Where labels lie in latent space: ``targets.CASIMAC("euclidean")`` (default), "ilr", "vertices", ...
    num_classes : int, optional
        Number of classes n, at least 2. Default: the number of ``class_names``.
    covariance : {"isotropic", "diagonal", "full"}, optional
        Covariance of the head. Default "isotropic": one variance per sample, which the argmax readout integrates
        exactly. If it is given without a head, the head is "gaussian"; "diagonal" is the network of [CASIMAC] sec. 3.4.
    head : str, dict or keras.layers.Layer, optional
        From features to a dict {"loc", "scale"}: "variational" (default, ``heads.VariationalGaussianProcess``),
        "gaussian" (``heads.GaussianHead``), "prototypes", one of these as a dict {"name": ..., arguments}, or a layer.
        Heads that are initialized from features of training samples are adapted by the first ``fit``.
    readout : str, dict or keras.layers.Layer, optional
        "argmax", "softmax" or a layer of ``deepsimplex.readout``. Default: that of the target.
    class_names : list of str, optional
        Names of the classes, in label order, saved and exported with the model. Default "0", "1", ...
    seed : int
        Seed of the order of samples and of random layers. Two runs with the same seed give the same weights, whether
        interrupted and resumed or not. Default 0.
    name, **kwargs
        As in keras.Model.

    Raises
    ------
    ValueError
        If target, backbone, head and readout do not fit together: a head for another latent space, features not of
        rank 2, another number of class names.

    Notes
    -----
    If a target has a fixed noise of its own (ILR), that noise explains the residuals, and the head's scale collapses;
    class probabilities are therefore read out from N(mu, Sigma + noise^2). For targets without noise (CASIMAC) the head
    learns all of it; Dirichlet latents are read out as they are.

    While ``fit`` trains latents, the metrics of training batches use a readout of few points where the readout samples
    (argmax of a diagonal or full covariance, softmax); validation, ``evaluate`` and ``predict`` never do. A loss of
    class probabilities takes all its points in every step, which then takes several times as long. To avoid this, use
    ``ArgmaxReadout(num_points=32)``, or an isotropic covariance, which is read out exactly.

    Created inside the scope of a ``tf.distribute.Strategy``, the model is trained under that strategy, with the losses
    and weights of a single device; ``fit`` raises an error if weights or optimizer were made outside.

    Sources: [CASIMAC] sec. 3.4 (the network) and B.5 (the map softmax(tau S f)), [ILR-GP] sec. 3.1 and [GPD] sec. 4
    (their targets).

    Examples
    --------
    >>> import deepsimplex as ds
    >>> (x, y), (x_test, y_test) = ds.datasets.load("digits")
    >>> model = ds.SimplexClassifier(ds.backbones.mlp([32]), "casimac", num_classes=10)
    >>> model.compile(optimizer="adam", metrics=["accuracy"])
    >>> history = model.fit(x, y, epochs=2, verbose=0)
    >>> model.predict_proba(x_test).shape
    (360, 10)
    """

    # Data to batches

    @concise_graph_errors()
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
        """Train the model; compute the latents and adapt the head first, if needed.

        Parameters
        ----------
        x : array, structure of arrays, tf.data.Dataset, keras.utils.PyDataset or generator
            Samples; or batches of (sample, label) or (sample, latent), each with or without sample weights. With
            distance targets a stream of labels is read once, in order, to find neighbors, and held in memory;
            augmentation then belongs in the backbone, as Keras preprocessing layers. Other streams are not read ahead,
            and no stream is if the loss compares with labels alone; ``losses.Composition`` reads one of soft labels or
            latents once more.
        y : array or LatentGaussian
            Labels 0..n-1 [N], one-hot or soft labels [N, n] (soft ones for targets made from labels alone, or for any
            target if the loss compares with labels alone), or latents.
        validation_split : float
            Share of the samples, taken from the end as Keras does, that is held out of training and out of the
            target's neighborhoods.
        validation_data : tuple or stream
            (x, y) or (x, y, sample_weight). Its latents are found among the training samples.
        shuffle : bool
            Draw a new order in every epoch, from ``seed``.
        batch_size, epochs, verbose, callbacks, class_weight, sample_weight, **kwargs
            As in keras.Model.fit.

        Returns
        -------
        keras.callbacks.History

        Raises
        ------
        ValueError
            Before training, for labels out of range, different numbers of samples and labels, NaN, and data that the
            target cannot use.
        """
        check_lengths(epochs, batch_size, validation_split)
        epoch_order, adapter = SeededEpochs(self.seed), self._adapter("fit")
        validated = type(validation_data).__name__
        settings = batch_size, epochs, validation_split, shuffle, class_weight, kwargs, validated
        if is_stream(x):
            check_not_given_with_stream(y=y, sample_weight=sample_weight, validation_split=validation_split or None)
            (first, labels), x = peek(x)
            self._build_pieces(first)
            if adapter.must_read(x, labels):
                x, y, sample_weight, batch_size = read(x, kwargs.pop("steps_per_epoch", None), "steps_per_epoch")
        if is_stream(x):
            self._check_workers(adapter.workers, settings, first, labels, x)
            x = self._read_ahead(x, labels, kwargs.get("steps_per_epoch"))
            training: Any = adapter.stream(x, class_weight, epoch_order if shuffle else None)
        else:
            x, y, sample_weight = check_arrays(x, y, sample_weight)
            self._build_pieces(x)
            others = validation_data if isinstance(validation_data, tuple) else None
            self._check_workers(adapter.workers, settings, x, y, sample_weight, others)
            if validation_split and validation_data is None:
                (x, y, sample_weight), validation_data = split(x, y, sample_weight, validation_split)
            samples = adapter.arrays(x, y, sample_weight, class_weight, fit=True)
            self._adapt_head(samples.x, samples.observation["label"], len(samples.observation["label"]))
            training = batches(samples, batch_size, epoch_order if shuffle else None, adapter.workers)
        if validation_data is not None:
            size = kwargs.pop("validation_batch_size", None) or batch_size
            validation_data, steps = self._others(validation_data, size, kwargs.pop("validation_steps", None))
            kwargs["validation_steps"] = steps
        self._build_metrics(training)
        self._build_optimizer()
        self._train_uncalibrated()
        own = [epoch_order] if adapter.workers.count == 1 else [epoch_order, StateOfChief(adapter.workers)]
        return super().fit(
            training,
            epochs=epochs,
            verbose=verbose,
            callbacks=_with_callbacks(callbacks, own),
            validation_data=validation_data,
            shuffle=False,  # the order is drawn from the seed
            **kwargs,
        )

    @concise_graph_errors()
    def evaluate(
        self,
        x: Any = None,
        y: Any = None,
        batch_size: int | None = None,
        verbose: str | int = "auto",
        sample_weight: Any = None,
        **kwargs: Any,
    ) -> Any:
        """Return the loss and the class metrics of labeled samples: arguments and result as in keras.Model.evaluate.

        A distance target finds the latents of new samples among its training samples. A loaded model has none: it
        evaluates its class metrics, gives the loss as NaN and warns, until ``model.target.fit(x_train, y_train)``.
        """
        given = x if is_stream(x) else (x, y, sample_weight)
        if given is x:
            check_not_given_with_stream(y=y, sample_weight=sample_weight)
        data, kwargs["steps"] = self._others(given, batch_size, kwargs.get("steps"))
        self._build_metrics(data)
        found = super().evaluate(data, verbose=verbose, **kwargs)
        if not kwargs.get("_use_cached_eval_dataset"):  # which fit passes: it waits once, at its end
            self._workers().wait()
        return found

    def _others(self, data: Any, batch_size: int | None = None, steps: int | None = None) -> tuple[Any, int | None]:
        """Return batches of validation or test samples, with latents if there are training samples, and the steps."""
        adapter = self._adapter("evaluate")
        if not self.training_loss.adapted:
            warn_caller(
                f"the loss {self.training_loss.name!r} needs what fit finds in the training samples, and there was no "
                "fit: it is given as NaN; class metrics do not need it",
            )
        if is_stream(data):
            (_, labels), data = peek(data)
            if not adapter.must_read(data, labels):
                return adapter.stream(data), steps
            if not self.target.is_fitted:
                self._warn_of_unfitted_target()
                return DataAdapter(self.target, self.num_classes).stream(data), steps
            *data, batch_size = read(data, steps, "steps")
            steps = None
        samples = self._other_samples(*keras.utils.unpack_x_y_sample_weight(tuple(data)))
        return batches(samples, batch_size), steps

    def _other_samples(self, x: Any, y: Any, sample_weight: Any) -> Samples:
        adapter, target = self._adapter("evaluate"), self.target
        x, y, sample_weight = check_arrays(x, y, sample_weight)
        self._check_shape(x)
        if adapter.needs_latents and target.needs_samples and not target.is_fitted and not adapter.holds_latents(y):
            self._warn_of_unfitted_target()
            adapter = DataAdapter(target, self.num_classes)
        return adapter.arrays(x, y, sample_weight)

    def train_on_batch(
        self, x: Any, y: Any = None, sample_weight: Any = None, class_weight: Any = None, return_dict: bool = False
    ) -> Any:
        """Train on one batch, as in keras.Model; with a distance target, latents of labels are found in ``fit`` only.

        Pass latents as ``y`` to step by hand with such a target; a loss that compares with labels alone takes labels
        with any target. ``losses.Composition`` needs a ``fit`` before, or its ``tau``.
        """
        adapter = self._adapter("train_on_batch")
        x, y, sample_weight = check_arrays(x, y, sample_weight)
        if not self.training_loss.adapted:
            raise ValueError(
                f"train_on_batch needs what fit finds in training samples for the loss {self.training_loss.name!r}: "
                f"{self.training_loss.how_to_adapt}"
            )
        if adapter.needs_latents and self.target.needs_samples and not adapter.holds_latents(y):
            raise ValueError(
                "y must hold latents in train_on_batch with a target of distances: a batch's neighbors lie among all "
                "training samples. Use fit, or pass target.fit_transform(x_train, y_train)[batch]"
            )
        samples = adapter.arrays(x, y, sample_weight, class_weight)
        self._build_pieces(x)
        self._train_uncalibrated()
        return super().train_on_batch(*samples, return_dict=return_dict)

    def test_on_batch(self, x: Any, y: Any = None, sample_weight: Any = None, return_dict: bool = False) -> Any:
        """Return loss and metrics of one batch, as in keras.Model; see ``evaluate``."""
        return super().test_on_batch(*self._other_samples(x, y, sample_weight), return_dict=return_dict)

    # Files

    def save(self, filepath: str | os.PathLike[str], overwrite: bool = True, **kwargs: Any) -> None:
        """Save to a ``.keras`` file atomically: an existing file is kept if writing fails.

        Parameters
        ----------
        filepath : path-like
            Ends in ".keras" and may begin with ``~``.
        overwrite : bool
            False raises FileExistsError if the file exists.
        """
        if not os.fspath(filepath).endswith(".keras"):
            raise ValueError(f"filepath must end in .keras; found {os.fspath(filepath)!r}. export writes a SavedModel")
        check_overwrite(filepath, overwrite)
        with replacing(filepath) as fresh:
            super().save(fresh, overwrite=True, **kwargs)

    def export(
        self,
        filepath: str | os.PathLike[str],
        format: str = "tf_saved_model",
        input_dtype: str | dict[str, str] = "float32",
        verbose: bool = False,
    ) -> None:
        """Export the model for serving without this package: as a SavedModel, an ONNX or a LiteRT file.

        Parameters
        ----------
        filepath : path-like
            Folder of the SavedModel, or file that ends in .onnx or .tflite, which may begin with ``~``; written
            atomically.
        format : {"tf_saved_model", "onnx", "litert"}
            Default "tf_saved_model". ONNX needs tf2onnx (``pip install '.[onnx]'``); LiteRT takes one sample at a time.
        input_dtype : {"float32", "uint8"} or dict
            What the named input "image" takes: floats as in training (default), or uint8 pixels 0..255, which the
            served model divides by 255 unless it was trained on integers itself. A backbone of several inputs has as
            many, by their names in a dict, else by those of its ``keras.Input``; a dict {"photo": "uint8"} names some.
        verbose : bool
            Print Keras' summary of the endpoint. Default False.

        Notes
        -----
        Outputs: "class_probabilities" [N, n], "class_id" [N], "latent_mean" [N, L], "latent_scale", "prediction_set"
        [N, n] after ``conformalize``, "familiarity" [N] after ``fit_density``; class names in
        ``assets.extra/class_names.json`` of a SavedModel, in the metadata of ONNX.
        """
        shapes: Any = self._sample_shapes
        if not self.built or shapes is None:
            raise ValueError("export needs a model that has seen samples: fit it or call it on one first")
        several = len(named := input_shapes(self.backbone)) > 1
        if not (several or is_shape(shapes) or (isinstance(shapes, dict) and all(map(is_shape, shapes.values())))):
            wanted = "a functional model of a dict or a list of keras.Input, or called on a dict"
            raise ValueError(f"export names every input: backbone must be {wanted}; found inputs of shapes {shapes}")

        def features(samples: Any) -> Any:
            return self.backbone(as_inputs(self.backbone, samples) if several else samples, training=False)

        export_model(
            self,
            filepath,
            format,
            features=features,
            latent=lambda found: self.calibrated_latent(self.latent_of_features(found)),
            readout=self.read_out,
            further_outputs=self.after_training.served,
            sample_shape=named if several else shapes,
            class_names=self.class_names,
            input_dtype=input_dtype,
            pixel_scale=1.0 if self._trained_on_integers else 255.0,
            verbose=verbose,
        )

    def get_config(self) -> dict[str, Any]:
        """Return the arguments of the constructor, and what was fitted after training, as Keras serializes them."""
        pieces = {name: getattr(self, name) for name in _PIECES}
        return {
            "name": self.name,
            "dtype": keras.saving.serialize_keras_object(self.dtype_policy),
            **{name: keras.saving.serialize_keras_object(piece) for name, piece in pieces.items()},
            "num_classes": self.num_classes,
            "class_names": self.class_names,
            "seed": self.seed,
            "after_training": keras.saving.serialize_keras_object(self.after_training.components()),
            "trained_on_integers": self._trained_on_integers,
        }

    @classmethod
    def from_config(cls, config: dict[str, Any], custom_objects: Any = None) -> "SimplexClassifier":
        """Create a classifier from the configuration that ``get_config`` returned."""
        config = dict(config)
        for name in (*_PIECES, "after_training", "dtype"):
            config[name] = keras.saving.deserialize_keras_object(config[name], custom_objects=custom_objects)
        for name, kind in _PIECES.items():
            if not isinstance(config[name], kind):
                raise ValueError(f"{name} in the configuration must be a {kind}; found {config[name]!r}")
        components, trained_on_integers = config.pop("after_training"), config.pop("trained_on_integers")
        model = cls(**config)
        model.after_training.restore(components)
        model._trained_on_integers = trained_on_integers
        return model


_LAYER: Any = keras.layers.Layer
_PIECES: Any = {"backbone": _LAYER, "target": Target, "head": _LAYER, "readout": _LAYER}


def _with_callbacks(callbacks: Any, own: list[keras.callbacks.Callback]) -> Any:
    """Append callbacks to the ``callbacks`` argument of ``fit``."""
    if isinstance(callbacks, keras.callbacks.CallbackList):
        for callback in own:
            callbacks.append(callback)
        return callbacks
    others = [] if callbacks is None else callbacks if isinstance(callbacks, list | tuple) else [callbacks]
    # Last: BackupAndRestore, a user's learning-rate schedule and the like act before an epoch is drawn.
    return [*others, *own]
