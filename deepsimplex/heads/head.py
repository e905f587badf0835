"""Base class of the heads: Keras layers from features [N, d] to a Gaussian over latent space."""

from collections.abc import Callable, Mapping
from typing import Any, Self

import keras
import numpy as np
import tensorflow as tf
from numpy.typing import ArrayLike, NDArray

from deepsimplex.latent import Covariance
from deepsimplex.targets import Target


class Head(keras.layers.Layer):
    """Base class of heads: Keras layers from features [N, d] to the dict {"loc", "scale"}.

    Subclasses define ``call``, ``get_config`` and, if they have weights, ``build``, which begins with
    ``super().build(input_shape)``.

    Attributes
    ----------
    num_classes : int or None
        Number of classes that the head is for. Default None: any.
    latent_dim : int or None
        Number of latent dimensions L. Default None: unknown.
    covariance : {"isotropic", "diagonal", "full"} or None
        Shape of the scale. Default None: unknown.
    is_closed_form : bool
        Whether the head has a method ``solve``, as ``ClosedFormHead``, which ``SimplexClassifier.fit`` calls in place
        of training. Default False.
    adapted : bool
        Whether the head is ready for training. A head that ``adapt`` initializes sets it to False in its constructor
        and to True in ``adapt``; ``build`` then makes it one of the weights, with which it is copied. Default True.

    Examples
    --------
    >>> class UnitHead(Head):
    ...     def call(self, features):
    ...         return {"loc": features, "scale": keras.ops.ones_like(features[:, :1])}
    >>> UnitHead()(np.zeros((5, 3)))["scale"].shape
    TensorShape([5, 1])
    """

    num_classes: int | None = None
    latent_dim: int | None = None
    covariance: Covariance | None = None
    is_closed_form: bool = False
    _num_features: int
    normalization: keras.layers.BatchNormalization | None = None  # of features, by moments that training changes
    _adapted: Any = True  # a variable in a built head that ``adapt`` initializes

    @property
    def adapted(self) -> bool:
        if not isinstance(self._adapted, keras.Variable):
            return self._adapted
        with tf.init_scope():  # a number, in the graph of a step too
            return bool(self._adapted.value.numpy())

    @adapted.setter
    def adapted(self, value: bool) -> None:
        if isinstance(self._adapted, keras.Variable):
            self._adapted.assign(value)
        else:
            self._adapted = value

    def adapt(
        self, x: Any, y: ArrayLike | None = None, backbone: Callable[..., Any] | None = None, *, seed: int = 0
    ) -> Self:
        """Initialize the weights from features of training samples. Default: nothing is initialized.

        ``SimplexClassifier.fit`` calls it before training unless the head is ``adapted``.

        Parameters
        ----------
        x : array, tf.data.Dataset, keras.utils.PyDataset or iterator
            Samples [N, ...], or batches (samples, labels), which are read once.
        y : array_like, shape [N] or [N, n], optional
            Labels, unless x holds them.
        backbone : keras.Model or keras.layers.Layer, optional
            The network before the head, from samples to features [N, d]. Default: samples are features.
        seed : int
            Seed of all draws. Default 0.

        Returns
        -------
        Head
            The head itself.
        """
        return self

    def check_target(self, target: Target, num_classes: int) -> None:
        """Raise ValueError if the head does not fit the classifier's target and number of classes."""
        if self.num_classes not in (None, num_classes):
            raise ValueError(f"head must be for {num_classes} classes; found one for {self.num_classes}")
        if self.latent_dim not in (None, latent_dim := target.latent_dim(num_classes)):
            raise ValueError(
                f"head must have latent_dim {latent_dim} for {num_classes} classes with target={target!r}; found "
                f"{self.latent_dim}"
            )

    def set_feature_moments(self, features: NDArray[Any]) -> None:
        """Receive features [N, d] of training samples as an epoch ends, if there is a ``normalization``."""

    def set_num_samples(self, num_samples: int) -> None:
        """Receive the number of training samples, in every fit of a head that is adapted. Default: not used."""

    def state(self) -> dict[str, NDArray[Any]]:
        """Return arrays by name that are copied with the weights, of sizes that differ. Default: none."""
        return {}

    def load_state(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Restore what ``state`` returned; a state without arrays is that of a head that has none."""

    def explain(self, x: Any, k: int = 3, backbone: Callable[..., Any] | None = None) -> Any:
        """Find the k nearest prototypes of every sample; raise ValueError for a head without prototypes."""
        raise ValueError(f"explain needs a head of prototypes, as head='prototypes'; found {type(self).__name__}")

    def compute_output_spec(self, features: Any) -> Any:
        if self.latent_dim is None or self.covariance is None:
            return super().compute_output_spec(features)
        rows, L = features.shape[0], self.latent_dim
        scale = {"isotropic": (rows, 1), "diagonal": (rows, L), "full": (rows, L, L)}[self.covariance]
        shapes = {"loc": (rows, L), "scale": scale}
        return {name: keras.KerasTensor(shape, self._output_dtype) for name, shape in shapes.items()}

    # For subclasses

    @property
    def _output_dtype(self) -> str:
        """Dtype of weights and outputs: half precision, in which variances underflow, becomes float32."""
        return "float32" if self.compute_dtype in ("float16", "bfloat16") else self.compute_dtype

    def build(self, input_shape: tuple[int | None, ...]) -> None:
        if len(input_shape) != 2 or input_shape[-1] is None:
            raise ValueError(
                f"{type(self).__name__} needs features of shape [N, d]; found {tuple(input_shape)}. End the backbone "
                "in keras.layers.Flatten() or GlobalAveragePooling2D()"
            )
        self._num_features = input_shape[-1]
        if not self.adapted:
            self._adapted = self._weight("adapted", (), trainable=False)

    def _build_for(self, features: NDArray[np.float64]) -> None:
        """Build the layer if it is not; raise ValueError for features [N, d] that are not finite or of another d."""
        if not np.isfinite(features).all():
            raise ValueError("samples must give finite features; found NaN or infinity")
        if not self.built:
            self.build((None, features.shape[1]))
        if features.shape[1] != self._num_features:
            raise ValueError(
                f"samples must give {self._num_features} features, what the layer was built for; found "
                f"{features.shape[1]}"
            )

    def _weight(self, name: str, shape: tuple[int, ...], initializer: Any = "zeros", **options: Any) -> keras.Variable:
        return self.add_weight(shape, initializer, name=name, dtype=self._output_dtype, autocast=False, **options)


@keras.saving.register_keras_serializable(package="deepsimplex")
class LayerHead(Head, keras.layers.Wrapper):
    """Any Keras layer from features [N, d] to {"loc", "scale"} as a head, with the defaults of ``Head``.

    Parameters
    ----------
    layer : keras.layers.Layer
        Kept as the attribute ``layer``.
    **kwargs
        Passed to keras.layers.Layer.

    Examples
    --------
    >>> features = keras.Input((8,))
    >>> outputs = {"loc": keras.layers.Dense(3)(features), "scale": keras.layers.Dense(1, "softplus")(features)}
    >>> head = LayerHead(keras.Model(features, outputs))
    >>> {name: tuple(value.shape) for name, value in head(np.zeros((5, 8))).items()}
    {'loc': (5, 3), 'scale': (5, 1)}
    """

    def __init__(self, layer: keras.layers.Layer, **kwargs: Any) -> None:
        if not isinstance(layer, keras.layers.Layer):
            raise TypeError(f"layer must be a keras.layers.Layer; found {layer!r}")
        super().__init__(layer, autocast=False, **kwargs)

    def build(self, input_shape: tuple[int | None, ...]) -> None:
        super().build(input_shape)
        self.layer(keras.KerasTensor(input_shape))

    def call(self, features: Any) -> Any:
        # features: [N, d]
        return self.layer(features)
