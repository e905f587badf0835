"""LatentGaussian: Gaussians over latent space, as observations, predictions and inputs of readouts."""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from deepsimplex._utils.array_operations import is_tensor
from deepsimplex._utils.validation import unmasked

Covariance = Literal["isotropic", "diagonal", "full"]
COVARIANCES: tuple[str, ...] = ("isotropic", "diagonal", "full")


def covariance_from_shape(loc_shape: Sequence[Any], scale_shape: Sequence[Any]) -> Covariance:
    """Return the kind of covariance for a scale of shape [N, 1] (also where L = 1), [N, L] or [N, L, L].

    Raises ValueError for other shapes.
    """
    if len(loc_shape) != 2:
        raise ValueError(f"loc must have shape [N, L]; found {tuple(loc_shape)}")
    rows, dims = loc_shape
    kinds: dict[Any, Covariance] = {(dims, dims): "full", (dims,): "diagonal", (1,): "isotropic"}
    kind = kinds.get(tuple(scale_shape[1:]))
    if kind is None or (rows is not None and scale_shape[0] not in (rows, None)):
        raise ValueError(
            "scale must have shape [N, 1], [N, L] or [N, L, L] with the N and L of loc; "
            f"found {tuple(scale_shape)} for loc of shape {tuple(loc_shape)}"
        )
    return kind


def probability_distributions() -> Any:
    """The module ``tensorflow_probability.distributions``, imported when it is first needed: that takes seconds."""
    with warnings.catch_warnings():
        # TensorFlow Probability reads TensorFlow's version through distutils, which is deprecated.
        warnings.simplefilter("ignore", DeprecationWarning)
        import tensorflow_probability as tfp

        return tfp.distributions


def _real(value: Any, name: str) -> Any:
    """``value`` as it is when a tensor, else as a float array."""
    if is_tensor(value):
        return value
    if hasattr(value, "value") and is_tensor(value.value):  # a Keras variable
        return value.value
    array = unmasked(value, name)
    if array.dtype.kind not in "fiu":
        raise TypeError(f"{name} must hold real numbers; found dtype {array.dtype}")
    return array if array.dtype in (np.float32, np.float64) else array.astype(np.float64)


def _sum_factor(scale: np.ndarray, noise: np.ndarray) -> np.ndarray:
    """Lower-triangular factor of scale scale^T + diag(noise^2), by QR: unlike Cholesky's, for singular sums, too."""
    transposed = np.swapaxes(scale, -1, -2)
    diagonal = np.broadcast_to(np.eye(scale.shape[-1], dtype=scale.dtype) * noise[:, None, :], scale.shape)
    upper = np.linalg.qr(np.concatenate([transposed, diagonal], axis=-2), mode="r")
    signs = np.where(np.diagonal(upper, axis1=-2, axis2=-1) < 0, -1, 1).astype(scale.dtype)
    return np.tril(np.swapaxes(upper * signs[..., None], -1, -2))


def _sum_factor_tensor(scale: Any, noise: Any) -> Any:
    """``_sum_factor`` of tensors: a QR, since a product scale scale^T squares the condition and fails in float32."""
    import tensorflow as tf

    diagonal = tf.eye(scale.shape[-1], dtype=scale.dtype) * noise[:, tf.newaxis, :]
    diagonal = tf.broadcast_to(diagonal, tf.shape(scale))
    _, upper = tf.linalg.qr(tf.concat([tf.linalg.matrix_transpose(scale), diagonal], axis=-2))
    factor = tf.linalg.matrix_transpose(upper)
    signs = tf.where(tf.linalg.diag_part(factor) < 0, -tf.ones_like(factor[:, 0]), tf.ones_like(factor[:, 0]))
    return factor * signs[:, tf.newaxis, :]


@dataclass(frozen=True, eq=False)
class LatentGaussian:
    """Gaussians N(loc, Sigma) over latent space, one per sample.

    Targets make them from labels: an observation with its noise. Regressors predict them: a mean with its uncertainty.
    Readouts turn them into class probabilities.

    Parameters
    ----------
    loc : array or tensor, shape [N, L]
        Means.
    scale : array or tensor
        Standard deviations, shape [N, 1] (isotropic, Sigma = s^2 I) or [N, L] (diagonal), or the lower-triangular
        factor of Sigma, shape [N, L, L] (full). Zero is allowed: an observation without noise.

    Raises
    ------
    TypeError
        When either is not made of real numbers.
    ValueError
        When the shapes do not fit together, or when an array holds NaN, infinity, negative standard deviations or a
        factor that is not lower triangular. The values of tensors are not checked, so that the type can be used in
        traced functions.

    Examples
    --------
    >>> import numpy as np
    >>> latent = LatentGaussian(np.zeros((5, 3)), np.ones((5, 1)))
    >>> latent.covariance, latent.latent_dim, len(latent)
    ('isotropic', 3, 5)
    """

    loc: Any
    scale: Any

    def __post_init__(self) -> None:
        loc, scale = _real(self.loc, "loc"), _real(self.scale, "scale")
        object.__setattr__(self, "loc", loc)
        object.__setattr__(self, "scale", scale)
        covariance_from_shape(loc.shape, scale.shape)  # raises
        for name, array in (("loc", loc), ("scale", scale)):
            if isinstance(array, np.ndarray) and not np.all(np.isfinite(array)):
                raise ValueError(f"{name} must be finite; found NaN or infinity")
        if isinstance(scale, np.ndarray):
            stds = scale if scale.ndim == 2 else np.diagonal(scale, axis1=-2, axis2=-1)
            if np.any(stds < 0):
                raise ValueError(
                    "scale must not be negative: it holds standard deviations, or a factor's diagonal; found "
                    f"{stds.min()}"
                )
            if scale.ndim == 3 and np.any(above := np.triu(scale, k=1)):
                raise ValueError(
                    f"scale must be lower triangular; found {above[above != 0][0]} above a diagonal. Take "
                    "numpy.linalg.cholesky of the covariances"
                )

    def __len__(self) -> int:
        return int(self.loc.shape[0])

    @property
    def latent_dim(self) -> int:
        """Number of latent dimensions L."""
        return int(self.loc.shape[1])

    @property
    def covariance(self) -> Covariance:
        """Kind of Sigma, by the shape of ``scale``; [N, 1] is "isotropic", also with a single latent dimension."""
        return covariance_from_shape(self.loc.shape, self.scale.shape)

    @classmethod
    def of(cls, value: "LatentGaussian | dict[str, Any]") -> "LatentGaussian":
        """Return a LatentGaussian as it is, or make one from the dict {"loc", "scale"} that Keras layers return."""
        if isinstance(value, cls):
            return value
        if isinstance(value, dict) and {"loc", "scale"} <= value.keys():
            return cls(value["loc"], value["scale"])
        received = sorted(value) if isinstance(value, dict) else type(value).__name__
        raise TypeError(f"latent must be a LatentGaussian or a dict with keys 'loc' and 'scale'; found {received}")

    def as_dict(self) -> dict[str, Any]:
        """The dict {"loc", "scale"} that Keras layers return and losses take."""
        return {"loc": self.loc, "scale": self.scale}

    @property
    def holds_tensors(self) -> bool:
        """Whether ``loc`` or ``scale`` is a tensor."""
        return is_tensor(self.loc) or is_tensor(self.scale)

    def tensors(self) -> tuple[Any, Any]:
        """``loc`` and ``scale`` as tensors of one dtype, float32 or float64; half precision becomes float32."""
        import tensorflow as tf

        loc = tf.convert_to_tensor(self.loc)
        dtype = loc.dtype if loc.dtype in (tf.float32, tf.float64) else tf.float32
        return tf.cast(loc, dtype), tf.cast(tf.convert_to_tensor(self.scale), dtype)

    def numpy(self) -> "LatentGaussian":
        """The same Gaussians in NumPy arrays of one dtype, float32 or float64.

        Raises
        ------
        TypeError
            For tensors of a graph, which have no values.
        """
        if not self.holds_tensors:
            return LatentGaussian(self.loc, self.scale.astype(self.loc.dtype, copy=False))
        import tensorflow as tf

        loc, scale = self.tensors()
        if tf.is_symbolic_tensor(loc) or tf.is_symbolic_tensor(scale):
            raise TypeError("latent must hold values, outside tf.function; found a tensor of a graph")
        return LatentGaussian(loc.numpy(), scale.numpy())

    def __getitem__(self, rows: Any) -> "LatentGaussian":
        """The Gaussians of some samples: a slice, a mask or an array of indices (arrays only)."""
        return LatentGaussian(np.asarray(self.loc)[rows], np.asarray(self.scale)[rows])

    def with_noise(self, noise: Any) -> "LatentGaussian":
        """Convolve with independent Gaussian noise: Sigma + diag(noise^2).

        Parameters
        ----------
        noise : array or tensor
            Standard deviations, shape [N, 1], [N, L], [1, 1] or [1, L], broadcast over samples.

        Returns
        -------
        LatentGaussian
            Isotropic if both are, full if this one is, else diagonal.

        Raises
        ------
        ValueError
            When ``noise`` has another shape.

        Examples
        --------
        >>> import numpy as np
        >>> LatentGaussian(np.zeros((1, 2)), np.full((1, 1), 3.0)).with_noise(np.full((1, 1), 4.0)).scale
        array([[5.]])
        """
        noise = _real(noise, "noise")
        rows, dims = self.loc.shape
        same_rows = len(noise.shape) == 2 and (rows is None or noise.shape[0] in (1, rows, None))
        if not same_rows or noise.shape[1] not in (1, dims):
            raise ValueError(f"noise must have shape [N, 1], [N, L], [1, 1] or [1, L]; found {tuple(noise.shape)}")
        if not (self.holds_tensors or is_tensor(noise)):
            if not np.isfinite(noise).all():
                raise ValueError("noise must be finite; found NaN or infinity")
            noise = noise.astype(self.scale.dtype)
            if self.covariance != "full":
                return LatentGaussian(self.loc, np.hypot(self.scale, noise))
            return LatentGaussian(self.loc, _sum_factor(self.scale, noise))
        import tensorflow as tf

        scale = tf.convert_to_tensor(self.scale)
        noise = tf.cast(noise, scale.dtype)
        if self.covariance != "full":
            return LatentGaussian(self.loc, tf.sqrt(tf.square(scale) + tf.square(noise)))
        return LatentGaussian(self.loc, _sum_factor_tensor(scale, noise))

    def distribution(self) -> Any:
        """The tfp.distributions.Distribution of these Gaussians: batch shape [N], event shape [L].

        Imports TensorFlow Probability, which takes seconds the first time.
        """
        import tensorflow as tf

        tfd = probability_distributions()
        loc = tf.convert_to_tensor(self.loc)
        scale = tf.cast(self.scale, loc.dtype)
        if self.covariance == "full":
            return tfd.MultivariateNormalTriL(loc, scale)
        return tfd.MultivariateNormalDiag(loc, tf.broadcast_to(scale, tf.shape(loc)))
