"""Base classes of the heads: outputs of single precision at least; weights that start from features of samples."""

from typing import Any

import keras
import numpy as np
from numpy.typing import NDArray


class Head(keras.layers.Layer):
    """A Keras layer of features [N, d]; subclasses build their weights after ``super().build(input_shape)``."""

    _num_features: int

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

    def compute_output_spec(self, features: Any) -> Any:
        shapes = self.compute_output_shape(features.shape)
        return keras.tree.map_shape_structure(lambda shape: keras.KerasTensor(shape, self._output_dtype), shapes)


class AdaptedLayer(keras.layers.Layer):
    """Base class of heads whose weights ``adapt`` initializes from features; ``adapted`` is saved with the weights."""

    adapted = False

    def save_own_variables(self, store: Any) -> None:
        """Save the weights, and whether they were adapted."""
        super().save_own_variables(store)
        store["adapted"] = np.array(self.adapted, dtype="float32")

    def load_own_variables(self, store: Any) -> None:
        """Load the weights, and whether they were adapted."""
        super().load_own_variables({name: store[name] for name in store.keys() if name != "adapted"})  # noqa: SIM118
        self.adapted = bool(np.asarray(store["adapted"]))
