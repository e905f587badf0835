"""SimplexClassifier: target x backbone and head x readout, as one Keras model that is compiled, fitted and saved.

Its base classes are ``SimplexNetwork`` (``network.py``: parts, steps from samples to probabilities, predictions) and
``CalibratedNetwork`` (``calibrated_network.py``: what is fitted after training). Training and files are here.
"""

import copy
import os
from functools import partial
from typing import Any, Self

import keras
import numpy as np
import tensorflow as tf

from deepsimplex._utils.archives import fingerprint, with_prefix
from deepsimplex._utils.atomic_files import replacing
from deepsimplex._utils.messages import warn_caller
from deepsimplex._utils.named_inputs import as_inputs, by_name, input_shapes
from deepsimplex._utils.validation import check_groups, check_number, check_sample_weight, check_whole
from deepsimplex.calibration.after_training import RECOGNIZED_ROWS, warn_of_training_samples
from deepsimplex.classifier.calibrated_network import CalibratedNetwork
from deepsimplex.classifier.compiled_metrics import converted_metrics
from deepsimplex.classifier.given_features import (
    BATCH_SIZE,
    augments,
    check_frozen,
    gives_probabilities,
    has_nothing_to_train,
    random_layers,
    rescales_bytes,
    trains_pretrained,
)
from deepsimplex.classifier.keras_files import check_overwrite
from deepsimplex.classifier.network import (
    concise_graph_errors,
    features_of,
    given,
    input_of_most_axes,
    is_given,
    is_shape,
)
from deepsimplex.classifier.replicas import BatchPart, check_made_in_scope, counts_steps_twice
from deepsimplex.classifier.saliency_maps import Explained, SaliencyMethod, saliency_maps
from deepsimplex.classifier.several_workers import (
    StateOfChief,
    Workers,
    model_configuration,
    versions,
)
from deepsimplex.classifier.training_labels import TrainingLabels
from deepsimplex.evaluation import Report
from deepsimplex.export import export_model, model_card
from deepsimplex.export.model_card import PIXELS, classification_task, write_card
from deepsimplex.heads.features import FeatureMoments, KeptRows, feature_neighbor_error
from deepsimplex.losses import ClassifierLoss, get_loss
from deepsimplex.losses.composition import FEATURE_ERROR_POWER
from deepsimplex.losses.readout_losses import ProbabilityLoss
from deepsimplex.samples import ArraySamples, Labels, Samples
from deepsimplex.samples.columns import as_tensor, column_names, has_ragged, row_keys
from deepsimplex.targets import Target


@keras.saving.register_keras_serializable(package="deepsimplex")
class SimplexClassifier(CalibratedNetwork):
    """Classifier that predicts Gaussians over the latent space of a target and reads class probabilities out of them.

    A keras.Model: ``compile``, ``fit``, ``evaluate``, ``predict``, ``save`` and callbacks work as usual. ``predict(x)``
    and ``model(x)`` give class probabilities [N, n], and metrics see labels and class probabilities. In between lies a
    Gaussian over latent space, which ``predict_latent`` returns: the target turns labels into points of that space, the
    backbone and its head learn to predict them, the readout integrates the Gaussian.

    By default labels lie at the vertices of a simplex. Their latents f become soft labels softmax(tau S f), with S the
    target's scores, and the network is trained by their cross-entropy with its class probabilities, through the
    readout: see ``losses.Composition``. With ``losses.LatentNLL``, the default of ILR, Dirichlet and one-hot targets,
    it regresses onto the latents themselves.

    Parameters
    ----------
    backbone : keras.Model or str
        From samples to features [N, d]: ``backbones.mlp([100])``, ``backbones.cnn()``, or any other, e.g. one of
        keras.applications with ``include_top=False, pooling="avg"``. A name as in ``backbones.backbone``:
        "keras_hub:resnet_18_imagenet" is a preset of KerasHub.
    target : Target, str or dict, optional
        Where labels lie in latent space: ``targets.CASIMAC("euclidean")``, "ilr", "dirichlet", ... Default "vertices",
        which takes labels alone: streams, augmentation and soft labels are used as they come. A given object is not
        copied: ``fit`` fits it.
    num_classes : int, optional
        Number of classes n, at least 2. Default: the number of ``class_names``.
    covariance : {"isotropic", "diagonal", "full"}, optional
        Covariance of the head. Default "isotropic": one variance per sample, which the argmax readout integrates
        exactly. If it is given without a head, the head is "gaussian"; "diagonal" is the network of [CASIMAC] sec. 3.4.
    head : str, dict or keras.layers.Layer, optional
        From features to a dict {"loc", "scale"}: "variational" (``heads.VariationalGaussianProcess``), "gaussian"
        (``heads.GaussianHead``), "prototypes", "closed_form" (``heads.ClosedFormHead``), one of these as a dict
        {"name": ..., arguments}, or a layer. Default "variational"; "closed_form" for a backbone with nothing to train
        (frozen, or without weights), unless target or covariance are given, which keep their way. Heads that are
        initialized from features of training samples are adapted by the first ``fit``.
    readout : str, dict or keras.layers.Layer, optional
        "argmax", "softmax", "left_out" or a layer of ``deepsimplex.readout``. Default: that of the target; "left_out"
        for a head in closed form.
    class_names : list of str, optional
        Names of the classes, in label order, saved and exported with the model. Default "0", "1", ...
    feature_names : list of str, optional
        Names of the columns of a table, in the order that the backbone takes, saved with the model: by them
        ``deepsimplex predict`` reads tables, and frames with other names raise. Default None: those of the frame that
        ``fit`` is called with first, if any.
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

    While ``fit`` trains latents, the metrics of training batches use a readout of few points, or a closed form for 64
    classes and more, where the readout samples (argmax of a diagonal or full covariance, softmax); validation,
    ``evaluate`` and ``predict`` never do. A loss of class probabilities takes all its points in every step, which then
    takes several times as long. To avoid this, use ``ArgmaxReadout(num_points=32)``, or an isotropic covariance, which
    is read out exactly.

    On a functional or sequential backbone ``inputs`` and ``outputs`` are connected to its layers:
    ``keras.Model(model.inputs, [model.get_layer("conv2d").output, *model.outputs])`` is what Grad-CAM needs.

    Density, calibration and prediction sets are copied with the weights, by files, ``get_weights``, pickles and
    ``tf.train.Checkpoint``; a clone has the architecture alone.

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

    training_loss: Any = None  # a ClassifierLoss, after compile
    _kept_rows: Any = None  # samples of the stream that the head was adapted to
    _reports_left_out = False
    _warned_of_random_layers = False

    def compile(
        self,
        optimizer: Any = "adam",
        loss: Any = None,
        metrics: Any = None,
        weighted_metrics: Any = None,
        **kwargs: Any,
    ) -> None:
        """Configure training.

        Parameters
        ----------
        optimizer : str or keras.optimizers.Optimizer
            Default "adam".
        loss : loss, str, dict or callable, optional
            None (default) is the cross-entropy for a head in closed form, else the default of the target:
            ``losses.Composition()`` for the vertices and for distance targets, the negative log density of the latents
            for others. A latent loss (``losses.LatentNLL(beta)``, any ``losses.LatentLoss``) trains latents. Any Keras
            loss of labels and class probabilities, by name or object, trains through the readout; cross-entropies are
            computed in log space.
            ``losses.Hybrid(weight)`` and ``losses.Composition(mass)`` use both latents and probabilities.
        metrics, weighted_metrics : list, optional
            Any Keras metrics of labels and class probabilities: "accuracy", ``metrics.ExpectedCalibrationError()``.
            Losses and metrics get labels in the form that they compare, class numbers or rows [N, n], however labels
            were given; of two classes, metrics with thresholds ("AUC", "Precision") get the probability of class 1.
        **kwargs
            As in keras.Model.compile, but for ``loss_weights``: there is one loss.

        Raises
        ------
        TypeError, ValueError
            If the loss is unknown, or does not fit the head or the readout, and for ``loss_weights``.
        """
        if kwargs.get("loss_weights") is not None:
            weights = kwargs["loss_weights"]
            raise ValueError(f"loss_weights must be None, as there is one loss; found {weights!r}. Scale regularizers")
        loss = None if loss is None else get_loss(loss)
        default = (
            get_loss("sparse_categorical_crossentropy") if self.head.is_closed_form else self.target.default_loss()
        )
        chosen = default if loss is None else loss
        if not isinstance(chosen, ClassifierLoss):
            chosen = ProbabilityLoss(chosen, self.num_classes)
        if self.built and self.training_loss is not None and self.training_loss.get_config() != chosen.get_config():
            self.class_probabilities.tau.assign(0.0)  # computed for another loss
        # Keras keeps ``loss`` as it was given, for its files; the steps compute ``training_loss``.
        if chosen.needs_adapt:  # a copy, which is adapted to this model's training samples
            chosen = type(chosen).from_config(chosen.get_config())
        chosen.check(self.num_classes, self.head.covariance)
        if chosen.needs_probabilities and not self.readout.differentiable:
            raise ValueError(
                f"readout must be differentiable for loss {chosen.name!r}; found method 'monte_carlo', which counts "
                "draws. ArgmaxReadout() or ArgmaxReadout(method='quasi_monte_carlo') would do"
            )
        self._hide("training_loss", chosen)
        with self.distribute_strategy.scope():
            if counts_steps_twice(optimizer, self.distribute_strategy):
                optimizer = type(optimizer).from_config(optimizer.get_config())
            metrics, weighted = (converted_metrics(m, self.num_classes) for m in (metrics, weighted_metrics))
            super().compile(optimizer=optimizer, loss=loss, metrics=metrics, weighted_metrics=weighted, **kwargs)
        if self._retraced()._feature_model is not None:  # eagerly or in graphs, as asked for now
            self._feature_model.predict_function = None

    def compile_from_config(self, config: dict[str, Any]) -> None:
        """Compile as a saved model was, its optimizer's state included."""
        self.compile(**keras.saving.deserialize_keras_object(config))
        if self.optimizer is not None and self.built:
            self.optimizer.build(self.trainable_variables)

    # Samples to batches with training labels

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
        groups: Any = None,
        **kwargs: Any,
    ) -> keras.callbacks.History:
        """Train the model; compute the latents and adapt the head first, if needed.

        A head in closed form is solved instead, if the backbone has nothing to train: features are computed once, in
        inference mode, and one epoch reports loss and metrics of left-out training samples. A solved head stays as it
        is while a backbone with trainable weights is trained through it. Samples that the head was solved with are left
        out of their own predictions then, if they come in arrays.

        Features of arrays by a frozen backbone are computed once for other heads, too, unless random layers change
        them in training. Fits after training reuse them for the same samples, while the weights are the same. They are
        held in memory up to 512 MiB, beyond in temporary files, and are not saved.

        Parameters
        ----------
        x : array, structure of arrays, tf.data.Dataset, keras.utils.PyDataset or generator
            Samples; or batches of (sample, label) or (sample, latent), with or without sample weights. With a distance
            target batches of labels are read into memory before training, which then takes them for arrays; an endless
            stream, and one that gives other samples in a second pass, raises an error. With ``losses.Composition`` the
            first 2000 samples are read before the first training, for its mass, and batches of latents once before
            each. Otherwise, and always if the loss needs labels alone, batches are read in training only.
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
        class_weight : dict of int to float, optional
            Factors of the sample weights, by class: finite, not negative, 1 for a class that is left out. They change
            what the network learns most about; a head in closed form counts a sample of weight w as w samples. Their
            effect on class probabilities, as if a class of weight w were w times as frequent, is taken out in
            predictions, metrics and ``evaluate``; of a solved head whose backbone is trained, that of the solve's. For
            decisions that favor a class see the guide to decisions. The effect of ``sample_weight`` stays.
        groups : array_like, shape [N], optional
            Samples of equal values, such as of one patient, are left out together where the head is solved in closed
            form; beside arrays alone.
        batch_size, epochs, verbose, callbacks, sample_weight, **kwargs
            As in keras.Model.fit.

        Returns
        -------
        keras.callbacks.History

        Raises
        ------
        ValueError
            Before training, for labels out of range, different numbers of samples and labels, NaN, data that the
            target cannot use, and frames with other columns than ``feature_names``, or in another order.
        """
        check_whole(epochs, "epochs", 0)
        if batch_size is not None:
            check_whole(batch_size, "batch_size", 1)
        check_number(validation_split, "validation_split", least=0, below=1)
        labels = self._training_labels("fit", class_weight)
        workers, steps_per_epoch = self._workers, kwargs.get("steps_per_epoch")
        samples = self._samples(x, y, sample_weight, labeled=True)
        if len(samples.columns) > 2:
            check_sample_weight(samples.columns[2], samples.num_rows)  # not all zero
        feature_names = self.feature_names or column_names(x)
        is_first = self._build_for(samples)
        validation = None if validation_data is None else self._labeled_samples(validation_data, feature_names)
        if not self.backbone.trainable:
            check_frozen(self.backbone)
        is_solved = self._fit_solves_head()
        if is_first and verbose and trains_pretrained(self.backbone):
            count = sum(int(np.prod(weight.shape)) for weight in self.backbone.trainable_weights)
            print(
                f"fit trains all {count:,} weights of backbone {self.backbone.name!r}, which have been trained before. "
                "backbone.trainable = False, before SimplexClassifier, keeps them: docs/guides/pretrained_backbones.md"
            )
        if is_first and verbose and self._head_for_trained_backbone and has_nothing_to_train(self.backbone):
            print(
                f"backbone {self.backbone.name!r} was frozen after SimplexClassifier was made, whose head is trained "
                "by steps. Frozen before, it gets one that is solved: docs/guides/pretrained_backbones.md"
            )
        if groups is not None:
            groups = check_groups(groups, None if samples.is_stream else samples.num_rows)
            if not is_solved:
                name = type(self.head).__name__
                raise ValueError(f"groups must be None unless fit solves a head in closed form; found {name}")
        if validation_split and validation is None:
            samples, validation = samples.split(validation_split)
        self.feature_names = feature_names
        if is_solved:
            groups = None if groups is None else groups[: samples.num_rows]
            kwargs |= {"verbose": verbose, "callbacks": callbacks}
            return self._fit_solved(samples, validation, groups, labels, epochs, batch_size, kwargs)
        self._check_optimizer()
        if not self.trainable_weights:
            raise ValueError("fit must find weights to train; found none: set trainable = True, and compile")
        compares_samples = labels.needs_training_samples(samples)
        if compares_samples:
            samples, batch_size, steps_per_epoch = samples.in_memory(batch_size, steps_per_epoch, repeated=True)
        divide = workers.local_part if workers.count > 1 else None
        if divide is not None:
            settings = batch_size, epochs, validation_split, shuffle, class_weight, kwargs
            self._check_workers(workers, (*settings, type(validation_data).__name__), samples, validation)

        is_frozen = workers.count == 1 and self._is_frozen(samples)
        if is_frozen and not compares_samples:
            samples = self._with_features(samples)
        error = partial(self._neighbor_error, *self._features_of(samples), labels, steps_per_epoch)
        samples = labels.fit_target_and_loss(samples, error, steps_per_epoch)
        self.class_probabilities.tau.assign(self.training_loss.state().get("tau", 0.0))
        if is_frozen and compares_samples:
            samples = self._with_features(samples)
        self._adapt_head(samples, steps_per_epoch)
        if self.head.is_closed_form:
            samples = self._with_influence(samples)
        if validation is not None:
            if self.head.is_closed_form and not validation.is_stream:
                self._warn_of_solved_validation(labels.replace(validation))
            kwargs |= self._validation_arguments(validation, batch_size, kwargs, is_frozen)
        self._build_metrics(samples)
        self._begin_training(None if self.head.is_closed_form else labels)
        seeded = SeededEpochs(self.seed)
        ours = [seeded] if divide is None else [seeded, StateOfChief(workers)]
        moments = None
        if self.head.normalization is not None and self.head.trainable:
            rows, backbone = self._features_of(samples)
            moments = FeatureMoments(self._kept_rows if samples.is_stream else rows.columns[0], backbone, self.seed)
        return super().fit(
            samples.for_keras(batch_size, seeded.order if shuffle else None, divide, steps_per_epoch),
            epochs=epochs,
            verbose=verbose,
            callbacks=_with_callbacks(callbacks, ours, first=moments),
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
        evaluates its class metrics, leaves the loss out and warns, until ``model.target.fit(x_train, y_train)``.
        """
        samples = self._samples(x, y, sample_weight, labeled=True)
        samples, size, kwargs["steps"] = self._to_evaluate(samples, batch_size, kwargs.get("steps"))
        self._build_metrics(samples)
        results = super().evaluate(samples.for_keras(size), verbose=verbose, **kwargs)
        if not kwargs.get("_use_cached_eval_dataset"):  # which fit passes: it waits once, at its end
            self._workers.wait()
        return results

    def train_on_batch(
        self, x: Any, y: Any = None, sample_weight: Any = None, class_weight: Any = None, return_dict: bool = False
    ) -> Any:
        """Train on one batch, as in keras.Model; with a distance target, latents of labels are found in ``fit`` only.

        Pass latents as ``y`` to step by hand with such a target; a loss that compares with labels alone takes labels
        with any target. ``losses.Composition`` needs a ``fit`` before, or its ``tau``.
        """
        if self.head.is_closed_form and has_nothing_to_train(self.backbone):
            raise ValueError("train_on_batch has nothing to train: fit solves the head, partial_fit adds samples to it")
        labels = self._training_labels("train_on_batch", class_weight)
        samples = self._samples(x, y, sample_weight, labeled=True, arrays=True)
        if not self.training_loss.is_ready:
            raise ValueError(
                f"train_on_batch needs what fit finds in training samples for the loss {self.training_loss.name!r}: "
                f"{self.training_loss.how_to_adapt}"
            )
        if labels.needs_training_samples(samples):
            raise ValueError(
                "y must hold latents in train_on_batch with a target of distances: a batch's neighbors lie among all "
                "training samples. Use fit, or pass target.fit_transform(x_train, y_train)[batch]"
            )
        self._build_for(samples)
        self._begin_training(None if self.head.is_closed_form else labels)
        return super().train_on_batch(*labels.replace(samples).columns, return_dict=return_dict)

    def test_on_batch(self, x: Any, y: Any = None, sample_weight: Any = None, return_dict: bool = False) -> Any:
        """Return loss and metrics of one batch, as in keras.Model; see ``evaluate``."""
        samples = self._samples(x, y, sample_weight, labeled=True, arrays=True)
        samples, *_ = self._to_evaluate(samples)
        return super().test_on_batch(*samples.columns, return_dict=return_dict)

    def _training_labels(self, method: str, class_weight: dict[int, float] | None = None) -> TrainingLabels:
        if not self.compiled:
            raise ValueError(f"call compile() before {method}(): the optimizer and the loss are chosen there")
        tau = float(self.class_probabilities.tau.value.numpy()) if self.built else 0.0
        if tau and self.training_loss.get_config().get("tau", tau) is None:
            self.training_loss.load_state({"tau": tau})  # of an earlier fit, perhaps of the model this is a copy of
        return TrainingLabels(self.target, self.num_classes, self.training_loss, class_weight, self._workers)

    def _to_evaluate(
        self, samples: Samples, batch_size: int | None = None, steps: int | None = None
    ) -> tuple[Samples, int | None, int | None]:
        """Return validation or test samples with training labels, their batch size and their number of steps.

        Training labels are "label" alone if a distance target has no training samples: the loss is left out then.
        """
        labels, missing = self._training_labels("evaluate"), None
        if not self.training_loss.is_ready:
            missing = f"what fit computes of the training samples: {self.training_loss.how_to_adapt}"
        self._build_network(samples.spec[0])
        if labels.needs_training_samples(samples):
            if not self.target.is_fitted:
                missing = (
                    "the target's training samples, which files do not hold: call model.target.fit(x_train, y_train)"
                )
                labels = TrainingLabels(self.target, self.num_classes)
            else:
                samples, batch_size, steps = samples.in_memory(batch_size, steps)
        if missing is not None:
            message = f"the loss {self.training_loss.name!r} needs {missing}"
            if len(self.metrics) < 2:
                raise ValueError(f"evaluate needs metrics in compile, such as 'accuracy', or the loss, but {message}")
            warn_caller(f"{message}. It is left out; class metrics do not need it")
        return labels.replace(samples), batch_size, steps

    def _validation_arguments(
        self, validation: Samples, batch_size: int | None, kwargs: dict[str, Any], is_frozen: bool = False
    ) -> dict[str, Any]:
        """Return the arguments of Keras' ``fit`` for validation samples, as features of a frozen backbone."""
        size = kwargs.pop("validation_batch_size", None) or batch_size
        validation, size, steps = self._to_evaluate(validation, size, kwargs.pop("validation_steps", None))
        validation = self._with_features(validation) if is_frozen else validation
        return {"validation_data": validation.for_keras(size), "validation_steps": steps}

    # Features that are computed once

    def _is_frozen(self, samples: Samples) -> bool:
        """Return whether epochs compute the same features, by a backbone with weights and none of them to train."""
        if samples.is_stream or not (has_nothing_to_train(self.backbone) and self.backbone.weights):
            return False
        if self.distribute_strategy.num_replicas_in_sync > 1:
            return False
        first, *_ = next(iter(samples.blocks(2)))
        x = keras.tree.map_structure(lambda leaf: as_tensor(leaf, self._precision), first)
        with keras.StatelessScope():  # drops the updates of variables
            trained, inferred = (np.asarray(self.backbone(x, training=training)) for training in (True, False))
        names = self._warn_of_random_layers("change its features in training: they are computed in every epoch")
        return not names and np.allclose(trained, inferred, rtol=1e-4, atol=1e-6)

    def _warn_of_random_layers(self, effect: str) -> list[str]:
        """Return the names of the random layers of the backbone, and warn once of what becomes of them."""
        names = random_layers(self.backbone)
        if names and not self._warned_of_random_layers:
            warn_caller(f"random layers of the backbone, {', '.join(names[:3])} among them, {effect}")
            self._hide("_warned_of_random_layers", True)
        return names

    def _with_features(self, samples: Samples) -> Samples:
        """Return arrays with the features of the samples in their place; streams are computed in every pass."""
        if samples.is_stream:
            return samples
        x, *others = samples.columns
        features, _ = self._compute_given(ArraySamples(x).blocks(BATCH_SIZE))
        replaced = ArraySamples(given(features), *others)
        replaced.precision = features.dtype.name
        return replaced

    def _features_of(self, samples: Samples) -> tuple[Samples, keras.layers.Layer | None]:
        """Return the samples and the backbone or, if their features are known, these alone."""
        if samples.is_stream or not is_given(samples.columns[0]):
            return samples, self.backbone
        x, *others = samples.columns
        return ArraySamples(features_of(x), *others), None

    # In closed form

    def _fit_solves_head(self) -> bool:
        """Return whether ``fit`` solves the head in closed form; a solved one stays as the backbone is trained."""
        if not self.head.is_closed_form or has_nothing_to_train(self.backbone):
            return self.head.is_closed_form
        if not self.head.adapted:
            weights = self.backbone.trainable_weights
            raise ValueError(
                "backbone must have nothing to train for a head in closed form, which is chosen by samples that are "
                f"left out: none would be left out of its {len(weights)} trainable weights, {weights[0].path} among "
                "them. Set backbone.trainable = False, or name another head, as head='variational'"
            )
        return False

    def _fit_solved(
        self,
        samples: Samples,
        validation: Samples | None,
        groups: Any,
        labels: TrainingLabels,
        epochs: int,
        batch_size: int | None,
        kwargs: dict[str, Any],
    ) -> keras.callbacks.History:
        """Solve the head, and report loss and metrics of left-out training samples as those of one epoch."""
        left_out = self._solve(samples, groups, epochs, kwargs.pop("steps_per_epoch", None), labels)
        if validation is not None:
            kwargs |= self._validation_arguments(validation, batch_size, kwargs, bool(self.backbone.weights))
        kwargs.pop("initial_epoch", None)
        self._build_metrics(left_out)
        self._hide("_reports_left_out", True)
        try:
            return super().fit(left_out.for_keras(left_out.num_rows), epochs=min(epochs, 1), shuffle=False, **kwargs)
        finally:
            self._hide("_reports_left_out", False)
            self.train_function = None

    def _solve(self, samples: Samples, groups: Any, epochs: int, steps: int | None, labels: TrainingLabels) -> Samples:
        """Solve the head, fit the readout, and return latents of left-out samples with training labels."""
        if labels.workers.count > 1 or self.distribute_strategy.num_replicas_in_sync > 1:
            raise ValueError(
                "a head in closed form is solved on one device: make the model outside of the strategy's scope, or "
                "name another head, as head='variational'"
            )
        if epochs > 1:
            warn_caller(f"epochs={epochs} has no effect: the backbone has nothing to train, the head is solved at once")
        features, y, weights = self._given(samples, steps)
        factors = labels.factors(Labels.of(y, self.num_classes))
        counts = _product(factors, weights)
        if counts is not None:
            check_sample_weight(counts, len(y))  # not all zero
        left_out = self.head.solve(features, y, groups=groups, sample_weight=counts, seed=self.seed)
        if len(self.head.absent) == self.num_classes - 1:
            warn_caller(
                "all samples are of one class: nothing tells the others apart. Check the labels, or add samples of "
                "other classes"
            )
        # Rows of tables may well be equal.
        is_photographs = any(len(leaf.shape) > 2 for leaf in keras.tree.flatten(samples.spec[0]))
        if groups is None and is_photographs and (copies := self.head.num_copies) > 0.01 * len(y):
            warn_caller(
                f"{copies} of {len(y)} samples have the features and the label of another, as copies in a repeated or "
                "oversampled data set: a copy tells the label of the sample that is left out, and probabilities come "
                "out too sure. Pass each sample once, with sample_weight or class_weight in place of its copies, or "
                "groups that are equal for copies"
            )
        self._keep_digests()
        self._set_unknown(None)  # fitted anew
        self._begin_training(labels)
        log_p = self.readout.cross_fit(left_out)
        latents = {"loc": left_out.loc, "scale": left_out.scale, "log_probabilities": log_p}
        self._fit_unknown(**self._unknown_inputs(latents))
        weights = None if weights is None else weights[left_out.rows]
        error = partial(self._neighbor_error, Samples.of(features, y, labeled=True), None, labels)
        return labels.fit_target_and_loss(Samples.of(latents, y[left_out.rows], weights, labeled=True), error)

    def _with_influence(self, samples: Samples) -> Samples:
        """Return arrays whose labels have what ``train_step`` leaves every sample out of its own prediction by.

        Otherwise a solved head predicts the labels of the samples that it was solved with from these labels, and the
        backbone learns little. Samples are recognized by their values, and by their features before they are trained.
        """
        is_one_device = self._workers.count == 1 == self.distribute_strategy.num_replicas_in_sync
        if samples.is_stream or not is_one_device or has_ragged(samples.columns[0]):
            warn_caller(
                "the backbone is trained through the solved head without leaving samples out of their own predictions, "
                "from which it learns less: pass arrays, on one device"
            )
            return samples
        x, y, *others = samples.columns
        keys = row_keys((x, y["label"]))
        if not self._solved_rows():
            features, _ = self._compute_given(ArraySamples(x).blocks(BATCH_SIZE))
            weights = None if not others or others[0] is None else np.asarray(others[0])
            recognized = self.head.recognizes(features, y["label"], sample_weight=weights)
            if changed := np.count_nonzero(self.head.recognizes_features(features) & ~recognized):
                warn_caller(
                    f"{changed} samples have other labels or weights than the head was solved with, and are not left "
                    "out of their own predictions: pass the class_weight and sample_weight that it was solved with"
                )
            known = np.flatnonzero(recognized)
            if not len(known):
                if not changed:
                    warn_caller(
                        "none of the samples is recognized as one that the head was solved with, to be left out of its "
                        "own prediction: if they were, the backbone has changed since, as in a tuned model that was "
                        "loaded, or the arrays have"
                    )
                return samples
            weights = None if weights is None else weights[known]
            influence, residuals = self.head.influence(features[known], y["label"][known], sample_weight=weights)
            # The head may have room for more inducing rows; the last row is that of other samples.
            influence = np.pad(influence.T, ((0, 1), (0, self.head.inducing - len(influence))))
            residuals = np.pad(residuals, ((0, 1), (0, 0)))
            numbers = {keys[row]: number for number, row in enumerate(known)}
            head = np.asarray(self.head.loc_weights)
            self._hide("_influence", (head, numbers, influence.astype(np.float32), residuals.astype(np.float32)))
        _, numbers, influence, residuals = self._influence
        rows = [numbers.get(key, -1) for key in keys]
        if 2 * (strangers := rows.count(-1)) > len(rows):
            warn_caller(
                f"{strangers} of {len(rows)} samples are none of those that the head was solved with, as copies with "
                "changed images or labels are: they are not left out of their own predictions"
            )
        left_out = {"influence": influence[rows], "residuals": residuals[rows]}
        with_influence = copy.copy(samples)
        with_influence.columns = (x, {**y, **left_out}, *others)
        return with_influence

    def _solved_rows(self) -> dict[bytes, int]:
        """Return numbers of the samples that ``_with_influence`` recognized, if the head is still the same."""
        is_same = self._influence is not None and np.array_equal(self._influence[0], np.asarray(self.head.loc_weights))
        return self._influence[1] if is_same else {}

    def _given(self, samples: Samples, steps: int | None = None) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
        """Compute the features of samples once, in inference mode; return them with labels and weights."""
        self._warn_of_random_layers(
            "have no effect: features are computed once, in inference mode, for a head in closed form"
        )
        blocks = samples.read_ahead(steps, "steps_per_epoch") if samples.is_stream else samples.blocks(BATCH_SIZE)
        features, (y, *weights) = self._compute_given(blocks)
        weight = check_sample_weight(weights[0], len(features), all_zero=True) if weights else None
        return features, Labels.of(y, self.num_classes, rows=len(features)).values, weight

    def partial_fit(self, x: Any, y: Any = None, *, sample_weight: Any = None) -> Self:
        """Add samples, of new classes among the ``num_classes`` too, to a head that is solved in closed form.

        The head is then as if ``fit`` had seen them, but for its choice of kernel and noise; see
        ``heads.ClosedFormHead``. The readout stays as ``fit`` has fitted it, but for the offset of new classes, which
        becomes the mean of the others; so does the score of unknown samples, but for its threshold, among which new
        samples count, left out. Calibration, sets and density are removed, with a warning.

        After many samples, call ``fit`` with all of them: it chooses anew. Features that it has computed for the same
        samples are not computed again.

        Parameters
        ----------
        x, y, sample_weight
            As for ``fit``, whose ``class_weight`` counts here, too.

        Returns
        -------
        SimplexClassifier
            The classifier itself.

        Raises
        ------
        ValueError
            For another head, before ``fit``, and for invalid samples. The model is then unchanged.
        """
        return self._update("partial_fit", x, y, sample_weight)

    def forget(self, x: Any, y: Any = None, *, sample_weight: Any = None) -> Self:
        """Remove training samples from a head that is solved in closed form, as if ``fit`` had not seen them.

        Nothing of them is left in the head, but for its choice of kernel and noise. The readout and the score of
        unknown samples stay as they are, and features of the samples are no longer kept in memory. Calibration, sets
        and density are removed, with a warning.

        Parameters
        ----------
        x, y, sample_weight
            As for ``fit``: samples that it has seen, with the same labels and weights.

        Returns
        -------
        SimplexClassifier
            The classifier itself.

        Raises
        ------
        ValueError
            For another head, before ``fit``, and for samples that it has not seen. The model is then unchanged.
        """
        return self._update("forget", x, y, sample_weight)

    def _update(self, method: str, x: Any, y: Any, sample_weight: Any) -> Self:
        if not self._has_solved_head:
            raise ValueError(
                f"{method} needs a head that fit has solved in closed form, on a backbone with nothing to train; found "
                f"{self._head_as_solved}"
            )
        samples = self._samples(x, y, sample_weight, labeled=True)
        self._check_inputs(samples.spec[0])
        features, labels, weights = self._given(samples)
        (solved_head, solved_backbone), (head, backbone) = self._solved_with, self._digests()
        if head == solved_head and backbone != solved_backbone:
            raise ValueError(
                f"{method} needs the backbone that the head was solved with; found changed weights: call fit again"
            )
        counts = _product(self.unweighted_readout.factors(labels), weights)
        absent, before = self.head.absent, self.head.num_rows
        getattr(self.head, method)(features, labels, sample_weight=counts)
        self._keep_digests()
        if method == "partial_fit":
            self.readout.add_classes(np.setdiff1d(absent, self.head.absent))
            if self.unknown is not None:
                left_out = self.head.leave_out(features, labels, sample_weight=counts)
                known = self._unknown_inputs({"loc": left_out.loc, "scale": left_out.scale})
                self._set_unknown(self.unknown.add(**known, before=before))
        else:
            self._given_features.clear()
        if self.after_training.remove(method):
            self._retraced()
        return self

    def _digests(self) -> tuple[str, str]:
        """Digests of the head's weights, and of the backbone's that features were computed with last."""
        return fingerprint(np.asarray(self.head.loc_weights)), self._given_features.digest

    def _keep_digests(self) -> None:
        """Keep which weights of the backbone those of a solved head belong to, and no influence of earlier samples."""
        self._hide("_solved_with", self._digests())
        self._hide("_influence", None)

    def make_train_function(self, force: bool = False) -> Any:
        """Create the function of a training step, as in keras.Model; it reports left-out samples of a solved head."""
        if not self._reports_left_out:
            return super().make_train_function(force)
        function: Any = lambda iterator: self._report_left_out(next(iterator))  # noqa: E731
        self.train_function = function
        return function

    def _report_left_out(self, data: Any) -> dict[str, Any]:
        x, y, sample_weight = keras.utils.unpack_x_y_sample_weight(data)
        outputs = self._with_log_probabilities(x, training=True)
        loss = self.compute_loss(None, y, outputs, sample_weight, training=True)
        return self._report(None, y, outputs, loss, sample_weight, BatchPart.of(x), training=True)

    # Before training

    def _check_optimizer(self) -> None:
        """Raise an error for an optimizer of fewer variables: Keras' own is late and names one of them alone."""
        known = {id(variable) for variable in getattr(self.optimizer, "_trainable_variables", ())}
        if getattr(self.optimizer, "built", False) and any(id(each) not in known for each in self.trainable_variables):
            raise ValueError(
                "the model must be compiled again after trainable was set; found an optimizer of other variables"
            )

    def _build_for(self, samples: Samples) -> bool:
        """Create weights and optimizer before training: Keras would do so in the first step, too late for a backup.

        Raises an error for parts that do not fit together, before the latents are computed. Returns whether the model
        has not been trained before.
        """
        strategy = self.distribute_strategy
        if strategy.num_replicas_in_sync > 1:
            check_made_in_scope(self, strategy)
        spec = samples.spec[0]
        self._build_network(spec)
        with strategy.scope():
            if not self.optimizer.built:
                self.optimizer.build(self.trainable_variables)
        is_first = not self.class_probabilities.pixel_scale.value.numpy()
        if is_first:
            # Workers may read files of their own, and none the files of another.
            observed = self._workers.from_chief(partial(_observed_images, samples))
            for name, value in observed.items():
                getattr(self.class_probabilities, name).assign(value)
            if observed["pixel_scale"] == 255.0 and rescales_bytes(self.backbone):
                warn_caller(
                    "x lies in [0, 1], and the backbone rescales pixels 0..255, as keras.applications do: multiply x "
                    "by 255, or put keras.layers.Rescaling(255) in front of it"
                )
            if gives_probabilities(self.backbone):
                warn_caller(
                    f"backbone {self.backbone.name!r} ends in class probabilities, which keep little of its features: "
                    "pass the layer before, keras.Model(backbone.inputs, backbone.layers[-2].output), or use "
                    'include_top=False, pooling="avg" of keras.applications'
                )
        return is_first

    def _build_network(self, spec: Any) -> None:
        """Check the specification of samples, and create the weights: steps that were traced before lack some."""
        self._check_inputs(spec)
        self._observe_dtypes(spec)
        if not self.built:
            with self.distribute_strategy.scope():
                self.build(keras.tree.map_structure(lambda leaf: (None, *leaf.shape[1:]), spec))

    def _check_workers(self, workers: Workers, settings: Any, samples: Samples, validation: Samples | None) -> None:
        """Raise ValueError, before any work, if another worker has a different model, settings or data.

        Streams are compared by their first batch, unless each worker reads its own files.
        """
        columns = [samples.spec if samples.divides_files else samples.first()]
        if validation is not None:
            columns.append(validation.columns)
        arrays = tuple(np.asarray(leaf) if hasattr(leaf, "__array__") else leaf for leaf in keras.tree.flatten(columns))
        workers.check_same(
            {
                "versions": versions(),
                "model and settings": (model_configuration(self), str(settings)),
                "samples": arrays,
            }
        )

    def _adapt_head(self, samples: Samples, steps_per_epoch: int | None) -> None:
        """Initialize the head from features of training samples, unless it has been adapted or loaded."""
        if not self.head.adapted:
            kept = KeptRows(self.seed) if samples.is_stream else None
            if kept is not None:
                batches = kept.keep(samples.read_ahead(steps_per_epoch, "steps_per_epoch"))
                x, labels = ((x, y["label"]) for x, y, *_ in batches), None
            else:
                x, y, *_ = samples.columns
                labels = y["label"]
            x, backbone = (features_of(x), None) if is_given(x) else (x, self.backbone)
            self.head.adapt(x, labels, backbone, seed=self.seed)
            self._hide("_kept_rows", None if kept is None else kept.drawn())
        elif samples.num_rows is not None:
            self.head.set_num_samples(samples.num_rows)

    def _neighbor_error(
        self, samples: Samples, backbone: keras.layers.Layer | None, labels: TrainingLabels, steps: int | None = None
    ) -> float:
        """Return the error of neighbors among features, as ``losses.Composition`` takes it: 0 with augmentation.

        A network that sees every sample anew in every epoch does not learn the samples by heart.
        """
        if backbone is not None and augments(backbone):
            return 0.0
        error = feature_neighbor_error(samples, backbone, labels.class_numbers, steps=steps, seed=self.seed)
        return error**FEATURE_ERROR_POWER

    def _begin_training(self, labels: TrainingLabels | None) -> None:
        """Remove what was fitted to weights that change now, and keep the weights of the labels' classes.

        None leaves those that a solved head was solved with: training moves the backbone alone.
        """
        if self.after_training.remove("training"):
            self._retraced()
        if self.unknown is not None:
            warn_caller(
                "training changes the latents, and removes the score of unknown samples: call fit_unknown with samples "
                "that were held out afterwards"
            )
            self._set_unknown(None)
        if self._given_features is not None and self.backbone.trainable_weights:
            self._given_features.clear()
        if labels is not None:
            self.unweighted_readout.set_class_weight(labels.class_weights)

    def _warn_of_solved_validation(self, validation: Samples) -> None:
        """Warn if the head was solved with the validation samples, from whose features it knows their labels.

        Samples are recognized by their features or, once these were trained, by having been so in an earlier tuning.
        """
        x, y, *_ = validation.draw(RECOGNIZED_ROWS, self.seed).columns
        features, _ = self._compute_given(ArraySamples(x).blocks(BATCH_SIZE))
        recognized, known = self.head.recognizes_features(features), self._solved_rows()
        if known:
            keys = row_keys((x, y["label"]))
            recognized = recognized | [key in known for key in keys]
            for row in np.flatnonzero(recognized):
                known.setdefault(keys[row], -1)  # as that of samples without an influence
        warn_of_training_samples("validation", recognized, "solve the head with the same validation_split")

    def _build_metrics(self, samples: Samples) -> None:
        """Create the metrics' variables, by one update: a step that creates variables would be traced twice."""
        # Under a strategy Keras creates them.
        if len(self.metrics) < 2 or self.metrics[1].variables or self.distribute_strategy.num_replicas_in_sync > 1:
            return
        if isinstance(y := samples.spec[1], dict) and "label" in y:
            label = y["label"]
            uniform = tf.fill([1, self.num_classes], 1.0 / self.num_classes)
            self.compute_metrics(None, {"label": tf.zeros([1, *label.shape[1:]], label.dtype)}, uniform)
            self.reset_metrics()

    # Steps

    def train_step(self, data: Any) -> dict[str, Any]:
        """Train on a batch."""
        x, y, sample_weight = keras.utils.unpack_x_y_sample_weight(data)
        part = BatchPart.of(x)
        left_out = {name: y[name] for name in ("influence", "residuals") if name in y}
        with tf.GradientTape() as tape:
            latent = part.outputs(partial(self.latent, **left_out), x, training=True)
            outputs = self._with_log_probabilities(latent, training=True)
            loss = self.compute_loss(x, y, outputs, sample_weight, training=True)
            # Keras averages the means of the replicas, whose parts of a last batch may differ in size.
            is_mean = self.training_loss.reduction != "sum"
            weighted = part.times(loss, part.rows / part.mean_rows) if is_mean else loss
            scaled_loss = self.optimizer.scale_loss(weighted)
        variables = self.trainable_weights
        self.optimizer.apply_gradients(zip(tape.gradient(scaled_loss, variables), variables, strict=True))
        return self._report(x, y, outputs, loss, sample_weight, part, training=True)

    def test_step(self, data: Any) -> dict[str, Any]:
        """Evaluate a batch."""
        x, y, sample_weight = keras.utils.unpack_x_y_sample_weight(data)
        part = BatchPart.of(x)
        outputs = self._with_log_probabilities(part.outputs(self.latent, x, training=False), training=False)
        loss = self.compute_loss(x, y, outputs, sample_weight, training=False)
        return self._report(x, y, outputs, loss, sample_weight, part, training=False)

    def compute_loss(
        self, x: Any = None, y: Any = None, y_pred: Any = None, sample_weight: Any = None, training: bool = True
    ) -> Any:
        """Return the loss of training labels ``y``, with the extra losses of the layers.

        ``y_pred`` is the dict {"loc", "scale"} of latents, with "log_probabilities" if they are known already; what is
        missing is computed, all of it from x if ``y_pred`` is no such dict.
        """
        loss = self.training_loss
        outputs = y_pred if isinstance(y_pred, dict) else self.latent(x, training=training)
        outputs = self._with_log_probabilities(outputs, training)
        if not self._has_loss(y):
            return tf.constant(np.nan, keras.config.floatx())
        value = tf.reduce_mean(loss.compute(y, outputs, sample_weight))  # a scalar, whatever the reduction
        replicas = tf.distribute.get_strategy().num_replicas_in_sync
        # ``losses`` holds the head's divergence, divided by the number of samples, and the regularizers of layers.
        return tf.add_n([value, *[tf.cast(extra, value.dtype) / replicas for extra in self.losses]])

    def _has_loss(self, y: dict[str, Any]) -> bool:
        """Return whether the loss of training labels can be computed: a copy may lack what ``fit`` computed."""
        return self.training_loss.is_ready and not (self.training_loss.needs_latents and y.keys() == {"label"})

    def _with_log_probabilities(self, outputs: dict[str, Any], training: bool) -> dict[str, Any]:
        """Add missing "log_probabilities", uncalibrated and computed in log space, if the loss needs them.

        In training those of the readout, which learns as if classes were as frequent as their weights make them.
        """
        if not self.training_loss.needs_probabilities or "log_probabilities" in outputs:
            return outputs
        readout = self.readout if training else self.unweighted_readout
        log_p = readout.log_probabilities(self.predictive_latent(outputs, calibrated=False))
        return {**outputs, "log_probabilities": log_p}

    def compute_metrics(self, x: Any, y: Any, y_pred: Any, sample_weight: Any = None) -> dict[str, Any]:
        """Return the metrics of labels and class probabilities."""
        return super().compute_metrics(x, y["label"], y_pred, sample_weight)

    def _report(
        self, x: Any, y: Any, outputs: Any, loss: Any, sample_weight: Any, part: BatchPart, training: bool
    ) -> dict[str, Any]:
        """Update the loss and the metrics of the epoch, and return them."""
        tracker, *others = self.metrics  # Keras' mean of the loss first, then those of ``compile``
        # Losses that are sums have equal weights, whatever the number of samples.
        counted = part.mean_rows if self.training_loss.reduction == "sum" else part.rows
        if self._has_loss(y):
            tracker.update_state(part.times(loss, part.replicas), sample_weight=counted)
        if not others:
            return self.get_metrics_result()  # no metric needs probabilities
        after = self.after_training
        if "log_probabilities" in outputs and (training or (after.calibration is None and after.priors is None)):
            probabilities = tf.exp(outputs["log_probabilities"])
            probabilities = self.unweighted_readout.unweighted(probabilities) if training else probabilities
        else:
            latent = {name: outputs[name] for name in ("loc", "scale")}
            probabilities = self.probabilities(self.predictive_latent(latent, calibrated=not training), training)
        results = self.compute_metrics(x, y, probabilities, sample_weight)
        return results if self._has_loss(y) else {name: results[name] for name in results if name != tracker.name}

    # Explanation

    def saliency(
        self,
        x: Any,
        of: Explained = "probability",
        labels: Any = None,
        method: SaliencyMethod = "integrated_gradients",
        *,
        layer: str | None = None,
        baseline: Any = 0.0,
        steps: int = 32,
        batch_size: int = 32,
    ) -> np.ndarray:
        """Compute how much each pixel, or column, of samples adds to a log-probability or to the familiarity.

        Parameters
        ----------
        x : array, shape [N, H, W], [N, H, W, C] or [N, d]
            Samples as for ``predict``, for a backbone of one input.
        of : {"probability", "familiarity"}
            What is explained. Default "probability", of the likeliest class or of ``labels``, calibrated (but not by
            Venn-Abers' steps, which have no gradient). "familiarity" needs ``fit_density``: the density's score, of
            which the familiarity is the rank.
        labels : array_like, shape [N], or one label, optional
            Class numbers or names. Default None: the likeliest class of each sample.
        method : {"integrated_gradients", "gradients", "grad_cam"}
            Default "integrated_gradients", which sum to the value of the sample minus that of ``baseline``, up to the
            error of so many ``steps``; "gradients", their absolute values; "grad_cam", where the channels of the last
            convolution that raise the value are active, for images: Grad-CAM with the gradient at each place
            (HiResCAM), which equals it where channels are averaged, and is faithful where they are not.
        layer : str, optional
            Of "grad_cam": the name of a layer with an output [N, h, w, c], of the backbone or of a network in it.
            Default None: the last convolution, with the normalization and the activation after it.
        baseline : array_like
            Of "integrated_gradients": a sample without content. Default 0, black. For photographs, and where the
            backbone has no bias, so that brightness does not matter to a closed-form head: the mean image.
        steps : int
            Of "integrated_gradients": points between baseline and sample. Default 32.
        batch_size : int
            Default 32.

        Returns
        -------
        ndarray, shape [N, H, W] or [N, d]
            Summed over channels; ``plots.saliency`` draws them. Those of "integrated_gradients" may be negative.

        Raises
        ------
        TypeError, ValueError
            For samples that are not one array of numbers, unknown labels or layers, and a density that is missing.

        Examples
        --------
        >>> import deepsimplex as ds
        >>> (x, y), (x_test, y_test) = ds.datasets.load("digits")
        >>> backbone = keras.Sequential([keras.Input((8, 8)), keras.layers.Flatten()])
        >>> model = ds.SimplexClassifier(backbone, num_classes=10)
        >>> model.compile()
        >>> history = model.fit(x[:500], y[:500], verbose=0)
        >>> model.saliency(x_test[:2], baseline=x.mean(axis=0)).shape
        (2, 8, 8)
        """

        def probabilities(features: Any) -> Any:
            p = self.unweighted_readout.unweighted(self.readout(self._read_out(features)))
            return self.after_training.differentiable.apply_probabilities(p)

        (samples,) = self._checked(x, arrays=True, for_head=False).columns[:1]
        options: Any = (of, labels, method, layer, baseline, steps, batch_size)
        return saliency_maps(self.after_training, self.backbone, probabilities, x, samples, *options)

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
        input_dtype: str | dict[str, str] | None = None,
        verbose: bool = False,
        *,
        pixel_scale: float | None = None,
        **litert: Any,
    ) -> None:
        """Export the model for serving without this package: as a SavedModel, an ONNX or a LiteRT file.

        Parameters
        ----------
        filepath : path-like
            Folder of the SavedModel, or file that ends in .onnx or .tflite, which may begin with ``~``; written
            atomically.
        format : {"tf_saved_model", "onnx", "litert"}
            Default "tf_saved_model". ONNX needs tf2onnx (``pip install '.[onnx]'``).
        input_dtype : str or dict, optional
            Dtype of the named input "image", such as "int64", "string" or "float64". Default None: that of the
            backbone's ``keras.Input``, else that of the samples of the first ``fit``, floats as float32. "uint8" takes
            pixels 0..255; where the model was first fitted to floats in [0, 1], they are divided by 255. A backbone of
            several inputs has as many, by their names in a dict, else by those of its ``keras.Input``; a dict
            {"photo": "uint8"} names some.
        verbose : bool
            Print Keras' summary of the endpoint. Default False.
        pixel_scale : float, optional
            What pixels are divided by with ``input_dtype="uint8"``. Default None: 255, or 1 for a model that was first
            fitted to pixels 0..255, integers or floats.
        **litert
            Attributes of ``tf.lite.TFLiteConverter`` for format="litert": ``optimizations=[tf.lite.Optimize.DEFAULT]``
            stores weights in 8 bits, together with ``target_spec={"supported_types": [tf.float16]}`` in 16.
            Activations stay floats.

        Notes
        -----
        Batches may be of any size. Outputs: "class_probabilities" [N, n], "class_id" [N], "latent_mean" [N, L],
        "latent_scale", "prediction_set" [N, n] after ``conformalize``, "decision" [N], a class number or -1, after
        ``set_decision``, "familiarity" [N] after ``fit_density``,
        "unknown" [N], the ``unknown_score``, of a head in closed form or after ``fit_unknown``; class names in
        ``assets.extra/class_names.json`` of a SavedModel, in the metadata of ONNX.
        """
        if not self.built or self._input_shapes is None:
            raise ValueError("export needs a model that has seen samples: fit it or call it on one first")
        shapes: Any = keras.tree.map_shape_structure(lambda shape: tuple(shape[1:]), self._input_shapes)
        several = len(named := input_shapes(self.backbone)) > 1
        if not (several or is_shape(shapes) or (isinstance(shapes, dict) and all(map(is_shape, shapes.values())))):
            wanted = "a functional model of a dict or a list of keras.Input, or called on a dict"
            raise ValueError(f"export names every input: backbone must be {wanted}; found inputs of shapes {shapes}")

        names = list(named) if several else list(shapes) if isinstance(shapes, dict) else ["image"]
        scale = float(self.class_probabilities.pixel_scale.value.numpy()) or 255.0

        def gaussians(samples: Any) -> tuple[Any, dict[str, Any], dict[str, Any]]:
            features = self.backbone(as_inputs(self.backbone, samples) if several else samples, training=False)
            return features, *self._gaussians(features)

        export_model(
            self,
            filepath,
            format,
            features=gaussians,
            latent=lambda outputs: outputs[2],
            readout=self.probabilities,
            further_outputs=lambda p, outputs: self._served(p, *outputs[:2]),
            sample_shape=named if several else shapes,
            sample_dtype=by_name(names, self._input_dtypes),
            class_names=self.class_names,
            input_dtype=input_dtype,
            pixel_scale=scale if pixel_scale is None else pixel_scale,
            verbose=verbose,
            **litert,
        )
        write_card(self.card(), filepath)

    def card(self, report: Report | None = None, **options: Any) -> str:
        """Return a model card as Markdown with the metadata that hubs read; ``export`` writes it without scores.

        Parameters
        ----------
        report : Report, optional
            Scores on test samples, as of ``evaluation.report``. Default None: the card says that there are none.
        **options
            Of ``export.model_card``: name, description, data, license.

        Examples
        --------
        >>> import deepsimplex as ds
        >>> model = ds.SimplexClassifier(ds.backbones.mlp([8]), class_names=["cat", "dog"])
        >>> "| classes | 2: cat, dog |" in model.card(name="pets", license="mit")
        True
        """
        parts = {name: getattr(self, name) for name in ("target", "head", "readout")}
        facts = {"class": type(self).__name__, "backbone": self.backbone.name, **parts}
        if self.built:
            shapes = keras.tree.map_shape_structure(lambda shape: list(shape[1:]), self._input_shapes)
            facts |= {"parameters": f"{self.count_params():,}", "input": f"{shapes}, {self._input_dtypes}"}
        task = classification_task(self._input_shapes and tuple(self._input_shapes)[1:])
        scale = float(self.class_probabilities.pixel_scale.value.numpy()) if self.built else 0.0
        if task == "image-classification" and scale in PIXELS:
            facts["pixels"] = PIXELS[scale]
        components = {**self.after_training.components(), "unknown": self.unknown}
        options = {"name": self.name, "task": task, **options}
        return model_card(facts, self.class_names, components=components, report=report, **options)

    def _arrays(self) -> dict[str, np.ndarray]:
        state = {} if self.training_loss is None else self.training_loss.state()
        loss = {f"loss_{name}": np.asarray(array) for name, array in state.items() if name != "tau"}  # tau is a weight
        return {**loss, **super()._arrays()}

    def _load_arrays(self, arrays: dict[str, np.ndarray]) -> None:
        super()._load_arrays(arrays)
        loss = with_prefix(arrays, "loss_")
        if loss and self.training_loss is not None:
            self.training_loss.load_state(loss)

    def get_config(self) -> dict[str, Any]:
        """Return the arguments of the constructor, as Keras serializes them; what was fitted is among the weights."""
        arguments = {name: getattr(self, name) for name in _SERIALIZED_ARGUMENTS}
        return {
            "name": self.name,
            "dtype": keras.saving.serialize_keras_object(self.dtype_policy),
            **{name: keras.saving.serialize_keras_object(argument) for name, argument in arguments.items()},
            "num_classes": self.num_classes,
            "class_names": self.class_names,
            "feature_names": self.feature_names,
            "seed": self.seed,
            "input_dtypes": self._input_dtypes,
        }

    @classmethod
    def from_config(cls, config: dict[str, Any], custom_objects: Any = None) -> "SimplexClassifier":
        """Create a classifier from the configuration that ``get_config`` returned."""
        config = dict(config)
        for name in (*_SERIALIZED_ARGUMENTS, "dtype"):
            config[name] = keras.saving.deserialize_keras_object(config[name], custom_objects=custom_objects)
        for name, kind in _SERIALIZED_ARGUMENTS.items():
            if not isinstance(config[name], kind):
                raise ValueError(f"{name} in the configuration must be a {kind}; found {config[name]!r}")
        if not config["backbone"].trainable:  # restored by Keras on the outside, not in the layers of a subclass
            for trainable in (True, False):  # setting the value that it has would do nothing
                config["backbone"].trainable = trainable
        dtypes = config.pop("input_dtypes")
        model = cls(**config)
        model._hide("_input_dtypes", dtypes)
        return model


_LAYER: Any = keras.layers.Layer
_SERIALIZED_ARGUMENTS: Any = {"backbone": _LAYER, "target": Target, "head": _LAYER, "readout": _LAYER}


def _product(factors: np.ndarray | None, weights: np.ndarray | None) -> np.ndarray | None:
    """Return the product of weights, or the one that is given."""
    return weights if factors is None else factors if weights is None else factors * weights


def _observed_images(samples: Samples) -> dict[str, np.ndarray]:
    """Return how new images are to be read, by the attributes of ``ClassProbabilities``, from the first samples."""
    leaf = input_of_most_axes(samples)
    shape = [*leaf.shape[1:], 1][:3] if len(leaf.shape) in (3, 4) else [0] * 3
    return {
        "pixel_scale": np.array(_pixel_scale(leaf)),
        "image_shape": np.array([side or 0 for side in shape]),
        "antialias": np.array(-1 if samples.is_stream else 1),
    }


def _pixel_scale(leaf: Any) -> float:
    """Return what divides pixels 0..255 to be as in samples; -1 if those are no pixels, 0 if all are black."""
    if not tf.as_dtype(leaf.dtype).is_floating:
        return 1.0
    numbers = np.asarray(getattr(leaf, "flat_values", leaf)[:1000]).astype(np.float32)
    least, largest = numbers.min(initial=0), numbers.max(initial=0)
    if least < 0 or largest > 255:
        return -1.0
    return 0.0 if largest == 0 else 255.0 if largest <= 1 else 1.0


class SeededEpochs(keras.callbacks.Callback):
    """Determine each epoch's order and reseed the random layers from (seed, optimizer step) as the epoch begins.

    ``keras.callbacks.BackupAndRestore`` restores weights and optimizer, hence the step, but neither the state of Keras'
    seed generators nor that of a shuffle. With this callback a resumed run equals an uninterrupted one. Two calls of
    ``fit`` in a row still see different orders, since the step goes on.

    Parameters
    ----------
    seed : int
    """

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.seed = seed
        self.first_step: int | None = None
        self.step = 0
        self._latest: tuple[tuple[int, ...], np.ndarray] = (), np.empty(0)

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        """Reseed the random layers."""
        step = int(self.model.optimizer.iterations.numpy())
        self.step = step
        self.first_step = step if self.first_step is None else self.first_step
        saved = {id(variable) for variable in self.model.weights}
        generators = [v for v in self.model.variables if id(v) not in saved and v.name == "seed_generator_state"]
        for index, state in enumerate(generators):
            words = np.random.SeedSequence([self.seed, step, index]).generate_state(2, np.uint32)
            state.assign(words.astype(state.dtype))

    def order(self, rows: int, number: int | None = None) -> np.ndarray:
        """Return the order of the samples in this epoch, a permutation of range(rows), int64.

        That of pass ``number``, if passes do not end with the epochs: the step of the first determines all of them.
        """
        entropy = (self.seed, self.step) if number is None else (self.seed, self.first_step or 0, number)
        key, order = self._latest
        if key != (rows, *entropy):
            order = np.random.default_rng(entropy).permutation(rows)
            self._latest = (rows, *entropy), order
        return order


def _with_callbacks(
    callbacks: Any, ours: list[keras.callbacks.Callback], first: keras.callbacks.Callback | None = None
) -> Any:
    """Add callbacks to the ``callbacks`` argument of ``fit``: ``first``, which sets what others save, before them.

    ``ours`` are last: BackupAndRestore, a user's learning-rate schedule and the like act before an epoch is drawn.
    """
    if isinstance(callbacks, keras.callbacks.CallbackList):
        callbacks = callbacks.callbacks
    others = [] if callbacks is None else callbacks if isinstance(callbacks, list | tuple) else [callbacks]
    before = [] if first is None else [first]
    return [*before, *others, *ours]
