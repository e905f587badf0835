"""The network of a classifier: backbone, head and readout, with predictions of probabilities and latents."""

import dataclasses
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Self

import keras
import numpy as np
import tensorflow as tf

from deepsimplex._utils.messages import warn_caller
from deepsimplex._utils.named_inputs import stated_inputs
from deepsimplex._utils.validation import check_class_names, check_whole
from deepsimplex.backbones import backbone as make_backbone
from deepsimplex.calibration.after_training import FittedComponents
from deepsimplex.classifier.given_features import GivenFeatures, fixed_statistics, has_nothing_to_train
from deepsimplex.classifier.keras_files import CheckpointState
from deepsimplex.classifier.several_workers import LocalReduction, Workers, has_several_workers
from deepsimplex.heads import HEADS, Head, LayerHead
from deepsimplex.latent import Covariance, LatentGaussian
from deepsimplex.readout.layers import readout_layer
from deepsimplex.readout.unweighted_readout import UnweightedReadout
from deepsimplex.samples import Samples, is_stream
from deepsimplex.samples.columns import check_columns, is_text
from deepsimplex.targets import TARGETS, Target

# Name of samples that are features, which no input of a backbone may have.
_GIVEN = "given/features"
# Height and width of images, at least; arrays of fewer rows or columns may well be sequences.
_SMALLEST_IMAGE = 8
DEFAULT_TARGET = "vertices"
"""Made from labels alone: distances between samples, which CASIMAC measures, cost more than they carry."""


class SimplexNetwork(keras.Model):
    """Keras model from samples to class probabilities, by a Gaussian over the latent space of a target.

    The parameters are those of ``SimplexClassifier``, which adds training and files.
    """

    _is_predicting = False
    _workers = Workers()

    def __init__(
        self,
        backbone: keras.layers.Layer | str,
        target: Target | str | dict[str, Any] | None = None,
        num_classes: int | None = None,
        covariance: Covariance | None = None,
        head: keras.layers.Layer | str | dict[str, Any] | None = None,
        readout: keras.layers.Layer | str | dict[str, Any] | None = None,
        class_names: Sequence[str] | None = None,
        feature_names: Sequence[str] | None = None,
        seed: int = 0,
        name: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(name=name, **kwargs)
        self._hide("_workers", Workers(super().distribute_strategy))
        self.autocast = False  # samples are cast by the layers that take them, not to the precision of this one
        self.seed = check_whole(seed, "seed", 0)
        if isinstance(backbone, str):
            backbone = make_backbone(backbone)
        if not isinstance(backbone, keras.layers.Layer):
            raise ValueError(f"backbone must be a keras.Model or layer; found {type(backbone).__name__}")
        if num_classes is None:
            if class_names is None:
                raise ValueError("num_classes must be given, or class_names, one for each class")
            num_classes = len(class_names)
        is_default = target is None and head is None and covariance is None
        if is_default and has_nothing_to_train(backbone):
            head = "closed_form"
        self._hide("_head_for_trained_backbone", is_default and bool(backbone.trainable_weights))
        self.target: Target = TARGETS.get(target or DEFAULT_TARGET)
        check_whole(num_classes, "num_classes", 2)
        scores = self.target.scores(num_classes)  # raises for an impossible number of classes
        self.num_classes = int(num_classes)
        self.class_names = class_names
        if feature_names is not None:
            columns = check_class_names(feature_names, len(feature_names), "feature_names", "a table")
            feature_names = [str(name) for name in columns]
        self.feature_names = feature_names
        self.backbone = backbone
        self.head = self._make_head(head, covariance)
        default_readout = "left_out" if self.head.is_closed_form else self.target.default_readout
        self.readout = readout_layer(readout or default_readout, scores)
        self.unweighted_readout = UnweightedReadout(self.readout, self.num_classes)
        self.after_training = FittedComponents(self)  # nothing is fitted yet; ``CalibratedNetwork`` has its methods
        self.class_probabilities = ClassProbabilities(self)
        self.checkpoint_state = CheckpointState(self)  # tracked by tf.train.Checkpoint
        self._noise = self.target.noise(self.num_classes)
        self._hide("_input_shapes", None)
        self._hide("_input_dtypes", None)  # in the same structure; of a backbone that states none those of its samples
        self._hide("_states_inputs", stated_inputs(backbone) is not None)  # a sequential model does once it is called
        self._hide("_tensors", None)  # symbolic inputs and class probabilities
        self._hide("_output_models", {})  # of ``_predicted``, by name
        self._hide("_feature_model", None)
        self._hide("_given_features", None)  # features that are computed once, and their dtype
        self._hide("_given_dtype", None)
        self._hide("_solved_with", ("", ""))  # digests of a solved head's weights and of the backbone's then
        self._hide("_influence", None)  # of the samples that a closed-form head was solved with, by their digests
        tensors = stated_inputs(backbone)  # not input_shape, which is a list for a dict of inputs
        if tensors is not None:  # build at once, as functional models, so that weights can be loaded
            self._hide("_input_dtypes", keras.tree.map_structure(lambda tensor: tensor.dtype, tensors))
            self.build(keras.tree.map_structure(lambda tensor: tensor.shape, tensors))

    def _make_head(self, head: Any, covariance: Covariance | None) -> Head:
        if isinstance(head, keras.layers.Layer) and covariance is not None:
            raise ValueError("covariance must not be given beside head: the head has its own")
        made = HEADS.get(
            head or ("variational" if covariance is None else "gaussian"),
            # Heads take those of these arguments that their constructors name.
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

    @property
    def class_names(self) -> list[str]:
        """Names of the classes, in the order of their numbers."""
        return list(self._class_names)

    @class_names.setter
    def class_names(self, class_names: Sequence[str] | None) -> None:
        names = check_class_names(class_names, self.num_classes, "class_names", "probabilities")
        self._hide("_class_names", [str(name) for name in names])

    def _hide(self, name: str, value: Any) -> None:
        """Set an attribute that Keras does not track: it is no part of the model's weights and layers."""
        object.__setattr__(self, name, value)

    # From samples to probabilities, step by step

    def call(self, inputs: Any, training: bool | None = None) -> Any:
        """Return class probabilities [N, n], calibrated except in training."""
        latent = self.latent_of_features(self.features(inputs, training), training)
        return self.probabilities(self.predictive_latent(latent, calibrated=not training), training)

    def latent(self, inputs: Any, training: bool | None = None, **left_out: Any) -> dict[str, Any]:
        """Return the head's Gaussian over latents as the dict {"loc", "scale"}, without the target's noise.

        Except in training it is widened where samples are unfamiliar, after ``fit_density``. ``left_out`` holds the
        influence [N, M] and the residuals [N, L] of samples that a head in closed form predicts without themselves.
        """
        return self.latent_of_features(self.features(inputs, training), training, **left_out)

    def features(self, inputs: Any, training: bool | None = False) -> Any:
        """Return the backbone's features [N, d] of samples, or those that samples stand for in training and fitting."""
        if is_given(inputs):
            return tf.cast(features_of(inputs), self._given_dtype)
        if training and self.head.is_closed_form:  # it was solved with the statistics as they are
            with fixed_statistics(self.backbone):
                return self.backbone(inputs, training=training)
        return self.backbone(inputs, training=training)

    def latent_of_features(self, features: Any, training: bool | None = None, **left_out: Any) -> dict[str, Any]:
        """Return the head's Gaussian of the backbone's features [N, d], widened where they are unfamiliar."""
        latent = self.head(features, training=bool(training), **left_out)
        return latent if training else self._widened(latent, features)

    def _widened(self, latent: dict[str, Any], features: Any) -> dict[str, Any]:
        """Widen the head's Gaussian of features [N, d] where they are unfamiliar, after ``fit_density``."""
        density = self.after_training.density
        return latent if density is None else density.widened(latent, features)

    def predictive_latent(self, latent: dict[str, Any], *, calibrated: bool) -> dict[str, Any]:
        """Return the Gaussian that is read out: the head's, with the target's noise added, and calibrated if asked."""
        if self._noise is not None:
            latent = LatentGaussian.of(latent).with_noise(self._noise).as_dict()
        calibration = self.after_training.calibration
        return calibration.apply_latent(latent) if calibrated and calibration is not None else latent

    def probabilities(self, predictive_latent: dict[str, Any], training: bool | None = None) -> Any:
        """Return class probabilities [N, n], calibrated except in training, where the readout takes fewer points."""
        probabilities = self.unweighted_readout.unweighted(self.readout(predictive_latent, training=training))
        return probabilities if training else self.after_training.apply_probabilities(probabilities)

    # Strategy and weights

    @property
    def distribute_strategy(self) -> Any:
        """The strategy that trains the model; with several workers, the local one while predicting.

        Each worker predicts by itself: under the shared strategy it would wait for the others' batches.
        """
        strategy = super().distribute_strategy
        if self._workers.count == 1:
            return strategy
        return tf.distribute.get_strategy() if self._is_predicting else LocalReduction(strategy)

    def build(self, input_shape: Any) -> None:
        """Create the weights, for batches of any size, and check that backbone, head and readout fit together."""
        input_shape = keras.tree.map_shape_structure(lambda shape: (None, *shape[1:]), input_shape)
        if (tensors := stated_inputs(self.backbone)) is None:
            dtypes = iter(keras.tree.flatten(self._input_dtypes or []))

            def symbolic(shape: Any) -> keras.KerasTensor:
                return keras.KerasTensor(shape, next(dtypes, keras.config.floatx()))

            features = self.backbone(keras.tree.map_shape_structure(symbolic, input_shape))
            tensors = stated_inputs(self.backbone)  # a sequential model has inputs from its first call on
        if tensors is not None:
            features = self.backbone.outputs[0] if isinstance(self.backbone, keras.Sequential) else self.backbone.output
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
        self.readout(latent)  # creates its weights; raises if its scores or its method do not fit
        probabilities = self.unweighted_readout(latent)
        if tuple(probabilities.shape[1:]) != (self.num_classes,):
            raise ValueError(
                f"readout must give probabilities of shape [N, {self.num_classes}] for this head and target; found "
                f"{tuple(probabilities.shape)}"
            )
        if not self.class_probabilities.built:
            self.class_probabilities.build(features.shape)
        self._hide("_input_shapes", input_shape)
        if tensors is not None and self._tensors is None:
            self._hide("_tensors", (tensors, self.class_probabilities(features)))
        self.built = True

    # As a functional model

    @property
    def input(self) -> Any:
        """Symbolic inputs, those of a functional or sequential backbone, in their structure."""
        return self._symbolic(0)

    @property
    def output(self) -> Any:
        """Symbolic class probabilities, connected to the layers of a functional or sequential backbone."""
        return self._symbolic(1)

    @property
    def inputs(self) -> list[Any]:
        """Symbolic inputs in a list: ``keras.Model(model.inputs, [layer.output, *model.outputs])``."""
        return keras.tree.flatten(self.input)

    @property
    def outputs(self) -> list[Any]:
        """Symbolic class probabilities in a list."""
        return [self.output]

    @property
    def input_shape(self) -> Any:
        """Shapes (None, ...) of the symbolic inputs, in their structure."""
        return keras.tree.map_structure(lambda tensor: tensor.shape, self.input)

    @property
    def output_shape(self) -> tuple[int | None, ...]:
        """Shape (None, n) of the symbolic class probabilities."""
        return self.output.shape

    def _symbolic(self, index: int) -> Any:
        if self._tensors is None:
            raise AttributeError(
                "inputs and outputs are those of a functional or sequential backbone, once it is built"
            )
        return self._tensors[index]

    def get_layer(self, name: str | None = None, index: int | None = None) -> keras.layers.Layer:
        """Return a layer by name, of the backbone too, or by index, as in keras.Model."""
        if (
            name is not None
            and name not in {layer.name for layer in self.layers}
            and hasattr(self.backbone, "get_layer")
        ):
            return self.backbone.get_layer(name)
        return super().get_layer(name, index)

    # Predictions

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
            For arrays that have no samples, are not finite, or do not fit the shapes and dtypes of the backbone's
            inputs; for frames with other columns than ``feature_names``, or in another order; and before ``fit`` of a
            head in closed form.
        """
        samples = self._checked(x)
        if steps is not None:
            kwargs["steps"] = steps
        with self._local_predictions():
            return predictions(self, samples, batch_size, verbose, **kwargs)

    def predict_on_batch(self, x: Any) -> np.ndarray:
        """Return class probabilities [N, n] of one batch, as in keras.Model, after the checks of ``predict``."""
        self._checked(x)
        with self._local_predictions():
            return super().predict_on_batch(x)

    @contextmanager
    def _local_predictions(self) -> Iterator[None]:
        self._is_predicting = True
        try:
            yield
        finally:
            self._is_predicting = False

    def _samples(
        self, x: Any, y: Any = None, sample_weight: Any = None, feature_names: Any = None, **options: Any
    ) -> Samples:
        """Check samples, as ``Samples.of``, a frame's columns, labels that are names, and the scale of pixels."""
        if names := feature_names or self.feature_names:
            check_columns(x, names)
        samples = Samples.of(x, y, sample_weight, **{"precision": self._precision, **options})
        labels = samples.columns[1] if len(samples.columns) > 1 else None
        values = labels.ravel().tolist() if isinstance(labels, np.ndarray) and is_text(labels) else []
        if values and set(self.class_names).issuperset(values):
            raise TypeError(
                f"y must hold class numbers 0..{self.num_classes - 1}; found {values[0]!r} in row 0. Names become "
                "numbers with [model.class_names.index(name) for name in y]"
            )
        if self.built and (hint := _other_pixels(samples, float(self.class_probabilities.pixel_scale.value.numpy()))):
            warn_caller(hint)
        return samples

    def _labeled_samples(self, data: Any, feature_names: Any) -> Samples:
        """Check labeled samples in one argument: (x, y) or (x, y, sample_weight), or a stream of batches."""
        if not (is_stream(data) or (isinstance(data, list | tuple) and 2 <= len(data) <= 3)):
            raise ValueError(
                f"validation_data must be (x, y), (x, y, sample_weight) or batches of them; found {type(data).__name__}"
            )
        x, y, weight = (data, None, None) if is_stream(data) else keras.utils.unpack_x_y_sample_weight(tuple(data))
        return self._samples(x, y, weight, feature_names, labeled=True)

    def _checked(self, x: Any, arrays: bool = False, *, for_head: bool = True) -> Samples:
        """Check samples to predict as ``fit`` does; raise ValueError for a head in closed form that is not solved."""
        if for_head and self.head.is_closed_form and not self.head.adapted:
            raise ValueError("predictions need fit first, or the weights of a fitted model: the head is not solved yet")
        if tf.distribute.has_strategy() and has_several_workers(tf.distribute.get_strategy()):
            raise ValueError(
                "predictions must be asked for outside the scope of MultiWorkerMirroredStrategy: each worker predicts "
                "by itself"
            )
        precision = features_of(x).dtype.name if is_given(x) else self._precision
        samples = self._samples(x, arrays=arrays, precision=precision)
        if not self.built:
            self._observe_dtypes(samples.spec[0])
        return samples.checked(self._check_inputs)

    @property
    def _precision(self) -> str | None:
        """Precision of floats in tensors: float64 if the backbone states an input that float32 rounds."""
        exact = ("float64", "int32", "int64", "uint32", "uint64")
        rounded = self._states_inputs and any(dtype in exact for dtype in keras.tree.flatten(self._input_dtypes))
        return "float64" if rounded else None

    def _observe_dtypes(self, spec: Any) -> None:
        """Take the dtypes of samples for those of the inputs, if the backbone does not state any."""
        if self._input_dtypes is None:
            floatx = keras.config.floatx()
            self._hide(
                "_input_dtypes",
                keras.tree.map_structure(lambda leaf: floatx if leaf.dtype.is_floating else leaf.dtype.name, spec),
            )

    def _check_inputs(self, x: Any) -> None:
        """Raise an error for samples, or their specification, that do not fit the backbone's inputs."""
        if is_given(x):
            return
        named = self._input_shapes  # of a functional backbone from the start
        if (
            isinstance(named, dict)
            and len(named) > 1
            and (hasattr(x, "shape") or (isinstance(x, dict) and named.keys() != x.keys()))
        ):
            value = sorted(x) if isinstance(x, dict) else "one array"
            raise ValueError(f"x must be a dict of the inputs {', '.join(named)}; found {value}")
        shapes: list[Any] = []
        if self._input_shapes is not None:
            keras.tree.map_shape_structure(shapes.append, self._input_shapes)
        leaves = keras.tree.flatten(x)
        dtypes = keras.tree.flatten(self._input_dtypes) if self._input_dtypes else [keras.config.floatx()] * len(shapes)
        for leaf, dtype in zip(leaves, dtypes, strict=False) if len(leaves) == len(dtypes) else ():
            if is_text(leaf) != (dtype == "string"):
                kind = "text" if dtype == "string" else f"numbers, as the backbone's input of dtype {dtype}"
                raise TypeError(f"x must hold {kind}; found dtype {_dtype_name(leaf.dtype)}")
        for leaf, expected in zip(leaves, shapes, strict=False) if len(leaves) == len(shapes) else ():
            if getattr(leaf.shape, "rank", 0) is None or _fits(tuple(leaf.shape[1:]), wanted := tuple(expected[1:])):
                continue
            if len(leaf.shape) == len(wanted) and _fits(tuple(leaf.shape), wanted):
                raise ValueError(
                    f"x must hold samples [N, ...] of shape {list(wanted)}; found a single one, without a batch "
                    "dimension: pass x[np.newaxis], or dataset.batch(32)"
                )
            if self._states_inputs or not self._accepts(x):
                raise ValueError(f"x must hold samples of shape {list(wanted)}; found shape {list(leaf.shape)}")

    def _accepts(self, x: Any) -> bool:
        """Return whether a backbone that states no inputs takes samples of these shapes, as convolutions do."""
        try:
            self.backbone(keras.tree.map_structure(lambda leaf: keras.KerasTensor((None, *leaf.shape[1:])), x))
        except Exception:  # of Keras or TensorFlow, by the layer
            return False
        return True

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
        return LatentGaussian.of(self._predicted("latent", self._read_out, x, batch_size, verbose))

    def _predicted(
        self, name: str, outputs: Callable[[Any], Any], x: Any, batch_size: int | None, verbose: str | int
    ) -> Any:
        """Return outputs of the features [N, d] of samples, by one pass through the backbone.

        Their function is traced once for each name, until something is fitted.
        """
        samples = self._checked(x)
        if name not in self._output_models:
            self._output_models[name] = Output(self, lambda x: outputs(self.features(x)))
        return predictions(self._output_models[name], samples, batch_size, verbose)

    def _gaussians(self, features: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the head's Gaussian of features [N, d], and the one that is read out: widened and calibrated."""
        head = self.head(features)
        return head, self.predictive_latent(self._widened(head, features), calibrated=True)

    def _read_out(self, features: Any) -> dict[str, Any]:
        """Return the Gaussian that is read out of features [N, d]."""
        return self._gaussians(features)[1]

    def predict_features(self, x: Any, batch_size: int | None = None, verbose: str | int = 0) -> np.ndarray:
        """Return the backbone's features [N, d] of samples; arguments as for ``predict_latent``."""
        return predictions(self._features_model(), self._checked(x, for_head=False), batch_size, verbose)

    def _features_model(self) -> "Output":
        if self._feature_model is None:
            self._hide("_feature_model", Output(self, lambda x: self.backbone(x, training=False)))
        return self._feature_model

    def _retraced(self) -> Self:
        """Drop the functions that Keras traced with an earlier density or calibration."""
        self.predict_function = self.test_function = None
        self._output_models.clear()
        return self

    def _compute_given(self, blocks: Iterable[Any]) -> tuple[np.ndarray, tuple[Any, ...]]:
        """Return the features of blocks of samples, in inference mode, and their other columns.

        Those of the same samples are computed once, as long as the backbone's weights stay as they are.
        """
        if self._given_features is None:
            self._hide("_given_features", GivenFeatures(self.backbone, self._features_model()))
        features, columns = self._given_features.compute(blocks, self._precision)
        self._hide("_given_dtype", features.dtype.name)
        return features, columns

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
        explained = self.head.explain(self._checked(x, arrays=True, for_head=False).columns[0], k, self.backbone)
        return dataclasses.replace(explained, labels=np.array(self.class_names)[explained.labels])


class ClassProbabilities(keras.layers.Layer):
    """Last layer of a network, from the backbone's features to class probabilities, with what training leaves behind.

    Attributes
    ----------
    pixel_scale : keras.Variable
        What exports divide pixels 0..255 by: 255 if the first fit was on floats in [0, 1], 1 if it was on integers or
        on floats in [0, 255], -1 if it was on other floats; 0 before.
    image_shape : keras.Variable, shape [3]
        Height, width and channels of the first image of the first fit; 0 before, and for other samples.
    antialias : keras.Variable
        Whether new images are antialiased as they are scaled: 1 if the first fit was on arrays, as ``datasets.load``
        reads folders, -1 if it was on batches, as ``keras.utils.image_dataset_from_directory`` does; 0, which counts
        as 1, before.
    tau : keras.Variable
        Scale of the compositions, which the last fit computed for ``losses.Composition``; 0 before.
    """

    def __init__(self, network: "SimplexNetwork") -> None:
        super().__init__(dtype=network.dtype_policy, autocast=False)
        self._network = lambda: network  # as an attribute, Keras would follow a cycle of references

    def build(self, input_shape: Any) -> None:
        """Create the weights."""
        options: Any = {"initializer": "zeros", "trainable": False, "autocast": False}
        self.pixel_scale = self.add_weight((), name="pixel_scale", dtype="float32", **options)
        self.image_shape = self.add_weight((3,), name="image_shape", dtype="float32", **options)
        self.antialias = self.add_weight((), name="antialias", dtype="float32", **options)
        self.tau = self.add_weight((), name="tau", dtype="float64", **options)

    def compute_output_spec(self, features: Any, training: bool | None = None) -> Any:
        """Return the shape [N, n] of class probabilities."""
        network = self._network()
        dtype = "float64" if network.compute_dtype == "float64" else "float32"
        return keras.KerasTensor((features.shape[0], network.num_classes), dtype)

    def call(self, features: Any, training: bool | None = None) -> Any:
        """Return class probabilities [N, n] of features [N, d], calibrated except in training."""
        network = self._network()
        latent = network.latent_of_features(features, training)
        return network.probabilities(network.predictive_latent(latent, calibrated=not training), training)


class Output(keras.Model):
    """Keras model from samples to one output of a network, such as its latents or features."""

    def __init__(self, network: SimplexNetwork, function: Callable[[Any], Any]) -> None:
        super().__init__(name="output", dtype=network.dtype_policy, autocast=False)
        self._network = lambda: network  # as an attribute, Keras would follow a cycle of references when it loads
        self._function = function

    @property
    def run_eagerly(self) -> bool:
        """As the network runs."""
        return bool(self._network().run_eagerly)

    def build(self, input_shape: Any) -> None:
        """Build the network, with batches of any size."""
        network = self._network()
        if not network.built:
            with network.distribute_strategy.scope():
                network.build(keras.tree.map_shape_structure(lambda shape: (None, *shape[1:]), input_shape))

    def call(self, inputs: Any) -> Any:
        """Return the output of the function."""
        return self._function(inputs)


def given(features: Any) -> dict[str, Any]:
    """Return features [N, d] as samples that a backbone has seen already."""
    return {_GIVEN: features}


def is_given(x: Any) -> bool:
    """Return whether samples are features already, as ``given`` returns them.

    Examples
    --------
    >>> is_given(given(np.zeros((2, 3)))), is_given({"photo": np.zeros((2, 3))})
    (True, False)
    """
    return isinstance(x, dict) and x.keys() == {_GIVEN}


def features_of(x: Any) -> Any:
    """Return the features of samples that are features already."""
    return x[_GIVEN]


def input_of_most_axes(samples: Samples) -> Any:
    """Return the first samples of the input that holds images, if any does."""
    leaves = keras.tree.flatten(samples.first()[0])
    return leaves[int(np.argmax([len(leaf.shape) for leaf in leaves]))]


def _other_pixels(samples: Samples, scale: float) -> str | None:
    """Return what to say of arrays of images whose pixels are not those of training, divided by the scale."""
    if samples.is_stream or scale not in (1.0, 255.0):
        return None
    leaf = input_of_most_axes(samples)
    pixels = np.asarray(getattr(leaf, "flat_values", leaf)[:100])
    if len(leaf.shape) < 3 or not np.issubdtype(pixels.dtype, np.number):
        return None
    is_float, largest = np.issubdtype(pixels.dtype, np.floating), pixels.max(initial=0)
    if scale == 255.0 and largest > (16 if is_float else 1):  # brightened or noisy images have floats above 1
        return f"x holds pixels up to {largest:g}, and the model was trained with pixels in [0, 1]: divide x by 255"
    # Short sequences are no images, and a black image tells nothing. Ragged images have sides of None.
    is_image = all((side or _SMALLEST_IMAGE) >= _SMALLEST_IMAGE for side in leaf.shape[1:3])
    if scale == 1.0 and is_float and is_image and 0 < largest <= 1:
        return "x lies in [0, 1], and the training images did not: if they had pixels 0..255, multiply x by 255"
    return None


@contextmanager
def concise_graph_errors() -> Iterator[None]:
    """Replace TensorFlow's error about samples or labels of a batch, with a graph's trace, by a one-line ValueError."""
    try:
        yield
    except tf.errors.InvalidArgumentError as error:
        if line := re.search(r"ValueError: (.*\b[xy] must .*)|(x must be finite.*?)(?= : Tensor|\n|$)", str(error)):
            raise ValueError(line[1] or line[2]) from None
        raise


@concise_graph_errors()
def predictions(model: keras.Model, samples: Samples, batch_size: int | None, verbose: str | int, **kwargs: Any) -> Any:
    """Predict as ``keras.Model.predict`` does, with less overhead for arrays.

    Keras creates a data set in every call and traces its functions, which takes most of the time for few samples. On a
    single device and without a progress bar, arrays are predicted by the same function in the same batches without it.
    """
    several = model.steps_per_execution > 1 or model.distribute_strategy.num_replicas_in_sync > 1
    if batch_size is None and kwargs.get("steps") and samples.num_rows and not samples.is_stream:
        batch_size = -(-samples.num_rows // kwargs["steps"])  # as Keras divides arrays
    batches = None if kwargs or verbose != 0 or several else samples.held_batches(batch_size)
    if batches is None:
        return keras.Model.predict(model, samples.for_keras(batch_size), verbose=verbose, **kwargs)
    model.make_predict_function()
    outputs = [model.predict_function([keras.utils.pack_x_y_sample_weight(batch)]) for batch in batches]
    return keras.tree.map_structure(lambda *parts: np.concatenate([np.asarray(part) for part in parts]), *outputs)


def _dtype_name(dtype: Any) -> Any:
    return dtype.name if isinstance(dtype, tf.DType) else dtype


def _fits(shape: tuple[int | None, ...], wanted: tuple[int | None, ...]) -> bool:
    """Return whether samples fit an input; Keras adds or removes a last axis of length one."""
    longer, shorter = sorted((shape, wanted), key=len, reverse=True)
    longer = longer[:-1] if len(longer) == len(shorter) + 1 and longer[-1] == 1 else longer
    return len(longer) == len(shorter) and all(
        one == other or None in (one, other) for one, other in zip(longer, shorter, strict=True)
    )


def is_shape(value: Any) -> bool:
    """Return whether a value is a single shape rather than a structure of shapes."""
    return isinstance(value, list | tuple) and all(entry is None or isinstance(entry, int) for entry in value)
