"""SimplexClassifier: target x backbone and head x readout, as one Keras model."""

import copy
import math
import os
import warnings
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from deepsimplex._utils.atomic_files import replacing
from deepsimplex.calibration import CALIBRATIONS, Calibration
from deepsimplex.classifier import observations
from deepsimplex.classifier.calibrating import HeldOut, calibrated_latent, calibrated_probabilities, serialized
from deepsimplex.classifier.epochs import SeededEpochs, batches
from deepsimplex.classifier.objectives import Objective
from deepsimplex.classifier.preparation import Preparation, split
from deepsimplex.export import export_saved_model
from deepsimplex.heads import GaussianHead
from deepsimplex.heads.latent_model import single_sample_weight
from deepsimplex.latent import Covariance, LatentGaussian
from deepsimplex.losses import CrossEntropy, as_latent_loss
from deepsimplex.readout import log_probabilities, readout_layer
from deepsimplex.targets import Target, composition_scale, get_target


class _LatentView(keras.Model):
    """The classifier seen as a model from samples to latents, to reuse Keras' own predict loop."""

    def __init__(self, classifier: "SimplexClassifier") -> None:
        super().__init__(name="latent_view", dtype=classifier.dtype_policy)
        self.classifier = classifier

    def build(self, input_shape: Any) -> None:
        if not self.classifier.built:  # Keras would warn that its pieces are not
            self.classifier.build(keras.tree.map_shape_structure(lambda shape: (None, *shape[1:]), input_shape))

    def call(self, inputs: Any) -> dict[str, Any]:
        latent = self.classifier.predictive(self.classifier.latent(inputs))
        return calibrated_latent(self.classifier.calibration, latent)


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
        From samples to features [N, d]: ``backbones.mlp([100])``, ``backbones.cnn()``, or any other, e.g. one of
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
    objective : {"latent", "class", "hybrid", "composition"}
        What training minimizes. "latent" (default), the papers': the latent loss, by default the negative log density
        of the target's latents. The others train through the readout: "class" minimizes the negative log of the
        read-out probability of the label, "hybrid" the weighted mean of both, "composition" the cross-entropy between
        the target's own composition of a sample and the class probabilities read out; see Notes.
    hybrid_weight : float, optional
        For "hybrid": weight w of the class term, strictly between 0 and 1; the loss is (1 - w) latent + w class.
        Default 0.5.
    composition_mass : float, optional
        For "composition": mean share of the true class in the compositions of the training samples, strictly between
        1/n and 1. Default 0.98.
    seed : int
        Seed of the order of samples and of random layers. Two runs with the same seed give the same weights, whether
        interrupted and resumed or not. Default 0.
    name, **kwargs
        As in keras.Model.

    Raises
    ------
    ValueError
        When the pieces do not fit: a head for another latent space, features not of rank 2, class names of another
        number, an option of another objective, a readout that no gradient comes through.

    Notes
    -----
    A target with a fixed noise of its own (ILR) explains the residuals by it, and the head's scale collapses; class
    probabilities are therefore read out from N(mu, Sigma + noise^2). Targets without (CASIMAC) leave all of it to the
    head; Dirichlet latents are read out as they are.

    Composition: a CASIMAC latent f is, up to a scale tau, the ILR coordinate of the soft label softmax(tau S f), with S
    the scores of the target, so that distances become soft labels that differ from sample to sample. ``fit`` sets tau
    so that the mean share of the true class is ``composition_mass`` and keeps it, saved, as the weight
    ``composition_scale``. With a label target this is plain label smoothing. The loss is at least the entropy of the
    compositions, not zero.

    "class" compares with labels alone: latents of the training samples are not made, data sets of labels stream
    whatever the target, and soft labels do for every target.

    While ``fit`` runs with the objective "latent", the metrics of training batches use a readout of few points where
    the readout samples (argmax of a diagonal or full covariance, softmax); validation, ``evaluate`` and ``predict``
    never do. An objective that trains through the readout takes all its points in every step, which then takes several
    times as long; ``ArgmaxReadout(num_points=32)`` is one way out, an isotropic covariance, read out exactly, another.

    Sources: [CASIMAC] sec. 3.4 (the network) and B.5 (the map softmax(tau S f)), [ILR-GP] sec. 3.1 and [GPD] sec. 4
    (their targets).

    Examples
    --------
    >>> import deepsimplex as ds
    >>> (x, y), (x_test, y_test) = ds.datasets.load("digits")
    >>> model = ds.SimplexClassifier(ds.backbones.mlp([32]), ds.targets.CASIMAC("euclidean"), num_classes=10)
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
        objective: str = "latent",
        hybrid_weight: float | None = None,
        composition_mass: float | None = None,
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
        self.objective = Objective.of(objective, hybrid_weight, composition_mass, self.num_classes)
        self.seed = int(seed)
        self.backbone = backbone
        self.head = self._head(head, covariance)
        self.readout = readout_layer(readout or self.target.default_readout, scores=scores)
        self.objective.check_readout(self.readout)
        self.composition_scale = self._composition_scale()
        self._set_untracked("_latent_view", None)
        self._noise = self.target.noise(self.num_classes)
        self.calibration: Calibration | None = None
        self._sample_shape: tuple[int | None, ...] | None = None
        self._trained_on_integers = False

    def _head(self, head: keras.layers.Layer | None, covariance: Covariance | None) -> keras.layers.Layer:
        latent_dim = self.target.latent_dim(self.num_classes)
        if head is None:
            return GaussianHead(latent_dim, covariance or "isotropic", name="gaussian_head")
        if covariance is not None:
            raise ValueError("covariance must not be given beside head: the head has its own")
        if getattr(head, "num_classes", self.num_classes) != self.num_classes:
            raise ValueError(f"head must be for {self.num_classes} classes; found one for {head.num_classes}")
        if hasattr(head, "check_target"):
            head.check_target(self.target)
        if getattr(head, "latent_dim", latent_dim) != latent_dim:
            raise ValueError(
                f"head must have latent_dim {latent_dim} for {self.num_classes} classes of this target; found "
                f"{head.latent_dim}"
            )
        return head

    def _composition_scale(self) -> keras.Variable | None:
        """A weight for tau, NaN until it is known, where the objective has use for one."""
        if self.objective.against != "compositions":
            return None
        unknown = keras.initializers.Constant(math.nan)
        return self.add_weight((), unknown, name="composition_scale", trainable=False, autocast=False)

    # From samples to probabilities

    def build(self, input_shape: Any) -> None:
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
        self._sample_shape = tuple(input_shape[1:]) if _is_shape(input_shape) else None
        self.built = True

    def _set_untracked(self, name: str, value: Any) -> None:
        """Keep a helper out of Keras' sight: it is no part of the model and is made anew when needed."""
        object.__setattr__(self, name, value)

    def latent(self, inputs: Any, training: bool | None = None) -> dict[str, Any]:
        """The head's Gaussian over latents as the dict {"loc", "scale"} of tensors, without the target's noise."""
        return self.head(self.backbone(inputs, training=training))

    def predictive(self, latent: dict[str, Any]) -> dict[str, Any]:
        """The Gaussian that is read out: the head's, with the target's own noise added where it has one."""
        return latent if self._noise is None else LatentGaussian.of(latent).with_noise(self._noise).as_dict()

    def call(self, inputs: Any, training: bool | None = None) -> Any:
        latent = self.predictive(self.latent(inputs, training=training))
        return self.readout(latent) if training else self._calibrated(latent)

    def _calibrated(self, latent: dict[str, Any]) -> Any:
        """Class probabilities of what ``predictive`` gives, by the calibration that there is."""
        probabilities = self.readout(calibrated_latent(self.calibration, latent))
        return calibrated_probabilities(self.calibration, probabilities)

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
            Of NumPy arrays, float32. It includes the target's own noise: reading it out gives ``predict_proba(x)``,
            unless the classifier was calibrated by other means than "latent".
        """
        if self._latent_view is None:
            self._set_untracked("_latent_view", _LatentView(self))
        return LatentGaussian.of(self._latent_view.predict(x, batch_size=batch_size, verbose=verbose))

    def calibrate(
        self,
        x: Any,
        y: Any = None,
        method: str | Calibration = "temperature",
        *,
        sample_weight: Any = None,
        batch_size: int | None = None,
        verbose: str | int = 0,
    ) -> "SimplexClassifier":
        """Calibrate the class probabilities of the trained model on held-out samples.

        From then on ``model(x)``, ``predict``, ``predict_proba``, the metrics of ``evaluate``, files and the SavedModel
        have calibrated probabilities. Another call takes the place of the calibration before; it is fitted to
        uncalibrated outputs, like the first.

        Parameters
        ----------
        x : array, structure of arrays, tf.data.Dataset or None
            Samples that were not learned from; or batches of (image, label), with or without sample weights, held in
            memory. None removes the calibration.
        y : array
            Labels 0..n-1 [N], or one-hot [N, n].
        method : {"temperature", "latent", "platt", "isotonic"} or Calibration
            See ``deepsimplex.calibration``. Default "temperature", one number that needs few samples. "latent" scales
            the latent Gaussian, so that ``predict_latent`` is calibrated too. Of a calibration that is given, a copy
            is fitted.
        sample_weight : array, optional
        batch_size : int, optional
            Default 32.
        verbose : "auto", 0, 1 or 2

        Returns
        -------
        SimplexClassifier
            Itself. ``model.calibration`` is the fitted calibration, or None.

        Raises
        ------
        TypeError, ValueError
            For samples that ``evaluate`` would refuse, soft labels, and what the method cannot learn from. The model is
            then as it was before.

        Notes
        -----
        Training never sees a calibration: neither losses nor the metrics of training batches do, nor does
        ``model(x, training=True)``, and the loss of ``evaluate`` is that of uncalibrated outputs. ``fit`` and
        ``train_on_batch`` change the outputs that a calibration was fitted to, and remove it with a warning.

        Examples
        --------
        >>> import deepsimplex as ds
        >>> (x, y), (x_test, y_test) = ds.datasets.load("digits")
        >>> model = ds.SimplexClassifier(ds.backbones.mlp([32]), "ilr", num_classes=10)
        >>> model.compile()
        >>> history = model.fit(x[:1000], y[:1000], epochs=3, verbose=0)
        >>> before = ds.evaluation.negative_log_likelihood(y_test, model.predict_proba(x_test))
        >>> model = model.calibrate(x[1000:], y[1000:])
        >>> bool(ds.evaluation.negative_log_likelihood(y_test, model.predict_proba(x_test)) < before)
        True
        """
        if x is None:
            if y is not None:
                raise ValueError("x must be given beside y; calibrate(None) removes the calibration")
            self._set_calibration(None)
            return self
        calibration = copy.deepcopy(CALIBRATIONS.get(method))
        samples = HeldOut.of(x, y, sample_weight, self.num_classes)
        before = self.calibration
        self._set_calibration(None)
        try:
            calibration.fit_outputs(
                samples.labels,
                probabilities=self.predict_proba(samples.x, batch_size, verbose),
                latent=self.predict_latent(samples.x, batch_size, verbose),
                readout=self.readout,
                sample_weight=samples.sample_weight,
            )
        except BaseException:
            self._set_calibration(before)
            raise
        self._set_calibration(calibration)
        return self

    def _set_calibration(self, calibration: Calibration | None) -> None:
        """Predict by this calibration: functions that Keras traced with another are made anew."""
        self.calibration = calibration
        self.predict_function = self.test_function = None
        self._set_untracked("_latent_view", None)

    def _train_uncalibrated(self) -> None:
        """Drop a calibration before the weights change that it was fitted to."""
        if self.calibration is not None:
            warnings.warn(
                "training changes the outputs that the model was calibrated for, and removes the calibration: call "
                "calibrate again afterwards",
                stacklevel=3,
            )
            self._set_calibration(None)

    # Training

    def compile(self, optimizer: Any = "adam", loss: Any = None, metrics: Any = None, **kwargs: Any) -> None:
        """Configure training.

        Parameters
        ----------
        optimizer : str or keras.optimizers.Optimizer
            Default "adam".
        loss : latent loss, optional
            None is ``losses.LatentNLL()``; any loss of (observation, latent) does. Keras' own losses are an error, and
            so is any loss under the objectives "class" and "composition", which do not use it.
        metrics : list, optional
            Any Keras metrics of labels and class probabilities: "accuracy", ``metrics.ExpectedCalibrationError()``.
        **kwargs
            As in keras.Model.compile.
        """
        if self.objective.latent_weight == 0:
            if loss is not None:
                raise ValueError(
                    f"loss must be None with objective {self.objective.name!r}, which has no latent loss; found "
                    f"{loss!r}. objective='hybrid' has both"
                )
            self._cross_entropy = CrossEntropy()
            super().compile(optimizer=optimizer, metrics=metrics, **kwargs)
            return
        latent_loss = as_latent_loss(loss)
        if getattr(latent_loss, "beta", 0.0) > 0 and getattr(self.head, "covariance", None) == "full":
            raise ValueError("beta must be 0 with a full covariance: its likelihood is no sum over latent dimensions")
        self._cross_entropy = CrossEntropy(reduction=latent_loss.reduction)  # the two are averaged sample by sample
        super().compile(optimizer=optimizer, loss=latent_loss, metrics=metrics, **kwargs)

    def compile_from_config(self, config: dict[str, Any]) -> None:
        """Compile as a saved model was, its optimizer's state included."""
        self.compile(**keras.saving.deserialize_keras_object(config))
        if self.optimizer is not None and self.built:
            self.optimizer.build(self.trainable_variables)

    def compute_loss(
        self, x: Any = None, y: Any = None, y_pred: Any = None, sample_weight: Any = None, training: bool = True
    ) -> Any:
        """The objective's loss of what is packed in ``y``, with extra losses of the layers.

        ``y_pred`` is the dict {"loc", "scale"} of latents, with "log_probabilities" where they are known already; what
        it lacks is computed, all of it from x where it is no such dict.
        """
        outputs = y_pred if isinstance(y_pred, dict) else self.latent(x, training=training)
        if self.objective.needs_latents and "loc" not in y:
            return tf.constant(math.nan, keras.config.floatx())
        terms = []
        if self.objective.latent_weight > 0:
            observation, latent = ({name: part[name] for name in ("loc", "scale")} for part in (y, outputs))
            terms.append(self.objective.latent_weight * self.loss(observation, latent, sample_weight=sample_weight))
        if self.objective.readout_weight > 0:
            log_p = self._read_out(outputs)["log_probabilities"]
            entropy = self._cross_entropy(self._memberships(y), log_p, sample_weight=sample_weight)
            terms.append(self.objective.readout_weight * entropy)
        return tf.add_n([tf.cast(term, terms[0].dtype) for term in [*terms, *self.losses]])

    def _read_out(self, outputs: dict[str, Any]) -> dict[str, Any]:
        """Latents with "log_probabilities" beside them, if the objective needs those; they are computed once."""
        if self.objective.readout_weight == 0 or "log_probabilities" in outputs:
            return outputs
        return {**outputs, "log_probabilities": log_probabilities(self.readout, self.predictive(outputs))}

    def _memberships(self, y: dict[str, Any]) -> Any:
        """What class probabilities are compared with: labels [N], soft labels [N, n] or compositions [N, n]."""
        if self.composition_scale is None:
            return y["label"]
        scores = tf.constant(self.target.scores(self.num_classes), y["loc"].dtype)
        tau = tf.cast(self.composition_scale, scores.dtype)
        return tf.nn.softmax(tau * tf.matmul(y["loc"], scores, transpose_b=True), axis=-1)

    def compute_metrics(self, x: Any, y: Any, y_pred: Any, sample_weight: Any = None) -> dict[str, Any]:
        """Metrics of labels and class probabilities."""
        return super().compute_metrics(x, y["label"], y_pred, sample_weight)

    def train_step(self, data: Any) -> dict[str, Any]:
        x, y, sample_weight = _unpack(data)
        with tf.GradientTape() as tape:
            outputs = self._read_out(self.latent(x, training=True))
            loss = self.compute_loss(x, y, outputs, sample_weight, training=True)
            scaled_loss = self.optimizer.scale_loss(loss)
        variables = self.trainable_weights
        self.optimizer.apply_gradients(zip(tape.gradient(scaled_loss, variables), variables, strict=True))
        return self._report_step(x, y, outputs, loss, sample_weight, lambda latent: self.readout(latent, training=True))

    def test_step(self, data: Any) -> dict[str, Any]:
        x, y, sample_weight = _unpack(data)
        outputs = self._read_out(self.latent(x, training=False))
        loss = self.compute_loss(x, y, outputs, sample_weight, training=False)
        if self.calibration is not None:  # of what the loss read out, metrics have no use
            outputs = {name: outputs[name] for name in ("loc", "scale")}
        return self._report_step(x, y, outputs, loss, sample_weight, self._calibrated)

    def _report_step(self, x: Any, y: Any, outputs: Any, loss: Any, sample_weight: Any, readout: Any) -> dict[str, Any]:
        self._loss_tracker.update_state(loss, sample_weight=tf.shape(keras.tree.flatten(x)[0])[0])
        if self._compile_metrics is None:
            return self.get_metrics_result()  # no metric asks for probabilities
        if "log_probabilities" in outputs:
            return self.compute_metrics(x, y, tf.exp(outputs["log_probabilities"]), sample_weight)
        return self.compute_metrics(x, y, readout(self.predictive(outputs)), sample_weight)

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
        """Make the targets' latents, if the objective needs them, then train.

        Parameters
        ----------
        x : array, structure of arrays, or tf.data.Dataset
            Samples; or batches of (image, label) or (image, latent), each with or without sample weights. With distance
            targets a data set of labels is read once, in order, to find neighbors, and held in memory; augmentation
            then belongs in the backbone, as Keras preprocessing layers. Other data sets are streamed, and so is every
            data set under the objective "class"; under "composition" one of soft labels or latents is read once more.
        y : array or LatentGaussian
            Labels 0..n-1 [N], soft labels [N, n] (targets made from labels alone; any under the objective "class"), or
            latents.
        validation_split : float
            Share of the samples, taken from the end as Keras does, that is held out of training and out of the
            target's neighborhoods.
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
            Before training, for labels out of range, samples of different number, NaN or infinite pixels, what
            the target cannot use (see its documentation), and a composition_mass that latents cannot reach.
        """
        self._assert_compile_called("fit")
        prepare = self._preparation()
        epoch_order = SeededEpochs(self.seed)
        if isinstance(x, tf.data.Dataset):
            _refuse_beside_dataset(y=y, sample_weight=sample_weight, validation_split=validation_split or None)
            self._ensure_built(x.element_spec[0] if isinstance(x.element_spec, tuple) else x.element_spec)
            if prepare.needs_reading(x):
                x, y, sample_weight, batch_size = observations.read_dataset(x)
        if isinstance(x, tf.data.Dataset):
            if self.composition_scale is not None:
                self._scale_compositions(*observations.training_latents(x, self.target, self.num_classes))
            training: Any = prepare.stream(x, class_weight)
        else:
            x, y, sample_weight = observations.as_arrays(x, y, sample_weight)
            self._ensure_built(x)
            if validation_split and validation_data is None:
                (x, y, sample_weight), validation_data = split(x, y, sample_weight, validation_split)
            samples = prepare.training_arrays(x, y, sample_weight, class_weight)
            if self.composition_scale is not None:
                self._scale_compositions(samples.y["loc"], samples.y["label"])
            batch_size = batch_size or 32
            kwargs.setdefault("validation_batch_size", batch_size)
            training = batches(samples, batch_size, epoch_order if shuffle else None)
        validation = None if validation_data is None else prepare.others(validation_data)
        self._build_metrics(training.element_spec[1]["label"])
        self._build_optimizer()
        self._train_uncalibrated()
        return super().fit(
            training,
            epochs=epochs,
            verbose=verbose,
            callbacks=_with_callback(callbacks, epoch_order),
            validation_data=validation,
            shuffle=False,
            **kwargs,
        )

    def _preparation(self) -> Preparation:
        return Preparation(self.target, self.num_classes, self.objective.needs_latents)

    def _scale_compositions(self, loc: np.ndarray, label: np.ndarray) -> None:
        """Set tau from the latents of training samples and their labels."""
        assert self.composition_scale is not None
        assert self.objective.composition_mass is not None
        scores = self.target.scores(self.num_classes)
        self.composition_scale.assign(composition_scale(loc, label, scores, self.objective.composition_mass))

    def _knows_compositions(self) -> bool:
        return self.composition_scale is None or not np.isnan(self.composition_scale.numpy())

    def evaluate(
        self,
        x: Any = None,
        y: Any = None,
        batch_size: int | None = None,
        verbose: str | int = "auto",
        sample_weight: Any = None,
        **kwargs: Any,
    ) -> Any:
        """The objective's loss and class metrics on labeled samples: arguments and result as in keras.Model.evaluate.

        A distance target finds the latents of new samples among its training samples. A model loaded from a file has
        none: it evaluates its class metrics, gives the loss as NaN and warns; call ``model.target.fit(x_train,
        y_train)`` first to have the loss too. The objective "class" needs no latents, hence none of this.
        """
        if isinstance(x, tf.data.Dataset):
            _refuse_beside_dataset(y=y, sample_weight=sample_weight)
            x, y, sample_weight = keras.utils.unpack_x_y_sample_weight(self._others(x))
        elif not observations.is_packed(y):
            x, y, sample_weight = self._others((x, y, sample_weight))
        self._build_metrics((x.element_spec[1] if isinstance(x, tf.data.Dataset) else y)["label"])
        return super().evaluate(x, y, batch_size=batch_size, verbose=verbose, sample_weight=sample_weight, **kwargs)

    def _others(self, data: Any) -> Any:
        if not self._knows_compositions():
            warnings.warn(
                "the loss of objective 'composition' needs the scale that fit finds, and there was no fit: it is given "
                "as NaN; class metrics do not need it",
                stacklevel=3,
            )
        return self._preparation().others(data)

    def train_on_batch(
        self, x: Any, y: Any = None, sample_weight: Any = None, class_weight: Any = None, return_dict: bool = False
    ) -> Any:
        """One training step, as in keras.Model; a distance target finds the batch's latents in ``fit`` alone.

        Pass latents as ``y`` to step by hand with such a target; the objective "class" takes labels with any. The
        objective "composition" needs a ``fit`` before.
        """
        prepare = self._preparation()
        x, y, sample_weight = observations.as_arrays(x, y, sample_weight)
        if not self._knows_compositions():
            raise ValueError(
                "train_on_batch with objective 'composition' needs the scale of the compositions, which fit finds in "
                "the training samples: call fit first, or assign model.composition_scale what "
                "deepsimplex.targets.composition_scale gives for them"
            )
        if (
            prepare.needs_latents
            and self.target.needs_samples
            and not observations.holds_latents(y, self.num_classes, self.target.latent_dim(self.num_classes))
        ):
            raise ValueError(
                "y must hold latents in train_on_batch with a target of distances: a batch's neighbors lie among all "
                "training samples. Use fit, or pass target.fit_transform(x_train, y_train)[batch]"
            )
        samples = prepare.training_arrays(x, y, sample_weight, class_weight)
        self._ensure_built(x)
        self._train_uncalibrated()
        return super().train_on_batch(*samples, return_dict=return_dict)

    def test_on_batch(self, x: Any, y: Any = None, sample_weight: Any = None, return_dict: bool = False) -> Any:
        """Loss and metrics of one batch, as in keras.Model; see ``evaluate``."""
        return super().test_on_batch(*self._others((x, y, sample_weight)), return_dict=return_dict)

    def _ensure_built(self, samples: Any) -> None:
        """Make the weights before training begins: Keras would do so in the first step, too late for a backup.

        Pieces that do not fit are found here too, before the target's work.
        """
        leaves = keras.tree.flatten(samples)
        self._trained_on_integers = all(tf.as_dtype(leaf.dtype).is_integer for leaf in leaves)
        if not self.built:
            self.build(keras.tree.map_structure(lambda leaf: (None, *leaf.shape[1:]), samples))

    def _build_metrics(self, label: Any) -> None:
        """Make the metrics' variables for labels like these: a step that makes variables would be traced twice."""
        if self._compile_metrics is not None and not self._compile_metrics.built:
            labels = keras.KerasTensor(tuple(label.shape), tf.as_dtype(label.dtype).name)
            with self.distribute_strategy.scope():
                self._compile_metrics.build(labels, keras.KerasTensor((None, self.num_classes)))

    def _build_optimizer(self) -> None:
        """The same for the optimizer's variables."""
        if not self.optimizer.built:
            with self.distribute_strategy.scope():
                self.optimizer.build(self.trainable_variables)

    # Files

    def save(self, filepath: str | os.PathLike[str], overwrite: bool = True, **kwargs: Any) -> None:
        """Save as ``.keras``, whole or not at all: an earlier file survives a full disk.

        Parameters
        ----------
        filepath : path-like
            Ends in ".keras" and may begin with ``~``.
        overwrite : bool
            False raises FileExistsError where a file is in the way.
        """
        if not os.fspath(filepath).endswith(".keras"):
            raise ValueError(f"filepath must end in .keras; found {os.fspath(filepath)!r}. export writes a SavedModel")
        if not overwrite and os.path.exists(os.path.expanduser(filepath)):
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
            Folder to write, which may begin with ``~``; replaced whole or not at all.
        format : str
            "tf_saved_model" (default); any other goes to keras.Model.export, which serves class probabilities alone.
        input_dtype : {"float32", "uint8"}
            What the named input "image" takes: floats as in training (default), or uint8 pixels 0..255, which the
            served model divides by 255 unless it was trained on integers itself.
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
        export_saved_model(
            self,
            filepath,
            latent=lambda images: calibrated_latent(
                self.calibration, self.predictive(self.latent(images, training=False))
            ),
            readout=lambda latent: calibrated_probabilities(self.calibration, self.readout(latent)),
            sample_shape=self._sample_shape,
            class_names=self.class_names,
            input_dtype=input_dtype,
            pixel_scale=1.0 if self._trained_on_integers else 255.0,
            verbose=verbose,
        )

    def get_config(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "dtype": keras.saving.serialize_keras_object(self.dtype_policy),
            "backbone": keras.saving.serialize_keras_object(self.backbone),
            "target": keras.saving.serialize_keras_object(self.target),
            "num_classes": self.num_classes,
            "head": keras.saving.serialize_keras_object(self.head),
            "readout": keras.saving.serialize_keras_object(self.readout),
            "class_names": self.class_names,
            **self.objective.get_config(),
            "seed": self.seed,
            "trained_on_integers": self._trained_on_integers,
            "calibration": serialized(self.calibration),
        }

    @classmethod
    def from_config(cls, config: dict[str, Any], custom_objects: Any = None) -> "SimplexClassifier":
        config = dict(config)
        for part in ("dtype", "backbone", "head", "readout"):
            config[part] = keras.saving.deserialize_keras_object(config[part], custom_objects=custom_objects)
        trained_on_integers = config.pop("trained_on_integers")
        calibration = config.pop("calibration", None)
        model = cls(**config)
        if calibration is not None:
            model.calibration = keras.saving.deserialize_keras_object(calibration, custom_objects=custom_objects)
        model._trained_on_integers = trained_on_integers
        return model


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


def _refuse_beside_dataset(**arguments: Any) -> None:
    given = [name for name, value in arguments.items() if value is not None]
    if given:
        raise ValueError(f"{', '.join(given)} must not be given beside a tf.data.Dataset, which yields its own")


def _with_callback(callbacks: Any, own: keras.callbacks.Callback) -> Any:
    if isinstance(callbacks, keras.callbacks.CallbackList):
        callbacks.append(own)
        return callbacks
    others = [] if callbacks is None else callbacks if isinstance(callbacks, list | tuple) else [callbacks]
    # Last: BackupAndRestore, a user's learning-rate schedule and the like have their say before an epoch is drawn.
    return [*others, own]
