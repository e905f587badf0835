"""Regression on labels in closed form as a Keras layer: given features in, a Gaussian over latent space out."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import keras
import numpy as np
from keras import ops
from numpy.typing import ArrayLike, NDArray

from deepsimplex import kernels
from deepsimplex._utils.messages import warn_caller
from deepsimplex._utils.portable_operations import precise_dtype
from deepsimplex._utils.validation import check_labels, check_number, check_whole
from deepsimplex.heads.features import compute_features
from deepsimplex.heads.head import Head
from deepsimplex.kernels.feature_kernel import FeatureKernel
from deepsimplex.samples import Samples
from deepsimplex.targets import TARGETS, Target


class LeftOutLatents(NamedTuple):
    """Latents of training samples that were left out, for ``Readout.adapt``.

    Attributes
    ----------
    loc : ndarray, shape [N, L]
        Means; of 10 000 samples at random if there are more.
    labels : ndarray, shape [N, n]
        Shares of the classes, one-hot for hard labels.
    folds : list of tuple
        Folds of these samples: means of the other samples, left out, and of the fold, both without the fold, and which
        samples are the fold's.
    """

    loc: NDArray[np.float64]
    labels: NDArray[np.float64]
    folds: list[tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.bool_]]]


@keras.saving.register_keras_serializable(package="deepsimplex")
class ClosedFormHead(Head):
    """Map given features [N, d] to the posterior of a Gaussian process on labels, solved in closed form.

    ``solve`` regresses the positions of the classes in latent space on the features, with one kernel and one noise,
    which are chosen, with the transformation of the features, by the likelihood of left-out samples; see
    ``kernels.LabelRegression``. Nothing is trained by steps: the weights are not trainable. Features must be given, as
    those of a frozen backbone: features that were learned from the same samples have no honest left-out prediction.

    Parameters
    ----------
    num_classes : int
        Number of classes n, at least 2.
    inducing : int
        Number of inducing rows M. With up to M samples all of them are, and the process is exact; otherwise they are
        drawn at random. ``solve`` takes O(M^3 + N M^2) time and a prediction O(M (M + d)). Default 1000.
    target : Target, str or dict
        Target of the classifier, one that is made from labels alone. Default "vertices".
    scale_floor : float
        Added to the standard deviation in quadrature, in units of the latents. Default 1e-3, as in ``GaussianHead``.
    **kwargs
        Passed to keras.layers.Layer.

    Attributes
    ----------
    adapted : bool
        Whether the head is solved.

    Returns
    -------
    dict
        {"loc": [N, L], "scale": [N, 1]}, of dtype float32 under mixed precision, else of the layer's dtype. The scale
        is that of f, without the noise of the labels.

    Raises
    ------
    ValueError
        For numbers out of range, a target that needs samples, features not of rank 2.

    Notes
    -----
    Kernel values are float64 whatever the layer's dtype.

    Examples
    --------
    >>> import deepsimplex as ds
    >>> (x, y), (x_test, y_test) = ds.datasets.load("digits")
    >>> x, x_test = (values.reshape(-1, 64) for values in (x[:300], x_test))
    >>> head, readout = ClosedFormHead(10, inducing=300), ds.readout.LeftOutSoftmax()
    >>> readout = readout.adapt(*head.solve(x, y[:300]))
    >>> bool(np.mean(readout(head(x_test)).numpy().argmax(axis=1) == y_test) > 0.9)
    True
    """

    covariance = "isotropic"
    num_classes: int
    latent_dim: int

    def __init__(
        self,
        num_classes: int,
        inducing: int = 1000,
        *,
        target: Target | str | Mapping[str, Any] = "vertices",
        scale_floor: float = 1e-3,
        **kwargs: Any,
    ) -> None:
        super().__init__(autocast=False, **kwargs)
        self.adapted = False
        self.num_classes = check_whole(num_classes, "num_classes", least=2)
        self.inducing = check_whole(inducing, "inducing", least=1)
        self.scale_floor = check_number(scale_floor, "scale_floor", 0.0)
        self.target = TARGETS.get(target)
        self.latent_dim = self.target.latent_dim(self.num_classes)
        table = self.target.table(self.num_classes)
        if table is None:
            raise ValueError(f"target must be made from labels alone, as 'vertices'; found {self.target!r}")
        self._positions = np.asarray(table.loc, np.float64)

    def check_target(self, target: Target, num_classes: int) -> None:
        """Raise ValueError for another number of classes, or a target with other positions of the classes."""
        super().check_target(target, num_classes)
        table = target.table(num_classes)
        if table is not None and not np.allclose(table.loc, self._positions):
            raise ValueError(f"head must have the classifier's target, target={target!r}; found {self.target!r}")

    def build(self, input_shape: tuple[int | None, ...]) -> None:
        super().build(input_shape)
        M, d, L = self.inducing, self._num_features, self.latent_dim
        options = {"trainable": False, "autocast": False}
        double = {"dtype": "float64", **options}
        self.points = self.add_weight((M, d), "zeros", name="points", dtype="float32", **options)
        self.kernel_numbers = self.add_weight((8,), "ones", name="kernel_numbers", **double)
        self.center = self.add_weight((d,), "zeros", name="center", **double)
        self.feature_scale = self.add_weight((d,), "ones", name="feature_scale", **double)
        self.loc_weights = self.add_weight((M, L), "zeros", name="loc_weights", **double)
        self.scale_weights = self.add_weight((M, M), "zeros", name="scale_weights", **double)
        self.unit = self.add_weight((), "ones", name="unit", **double)

    def solve(
        self,
        x: Any,
        y: ArrayLike | None = None,
        backbone: Callable[..., Any] | None = None,
        *,
        groups: ArrayLike | None = None,
        seed: int = 0,
    ) -> LeftOutLatents:
        """Choose kernel, noise and transformation by left-out samples, and set the weights.

        Parameters
        ----------
        x : array, tf.data.Dataset or keras.utils.PyDataset
            Samples [N, ...], or batches (samples, labels), which are read twice if there are more than 10 000 samples.
        y : array_like, shape [N] or [N, n], optional
            Class numbers or soft labels, unless x holds them.
        backbone : keras.Model or keras.layers.Layer, optional
            The network before the head, called in inference mode. Default: samples are features.
        groups : array_like, shape [N], optional
            Samples of equal values, such as of one patient, are left out together. Beside arrays alone.
        seed : int
            Seed of all draws. Default 0.

        Returns
        -------
        LeftOutLatents
            For ``Readout.adapt``. Samples whose class has no other sample, or group, are not among them.

        Raises
        ------
        ValueError
            For features that are not finite, not of rank 2 or of another size, invalid labels, and groups of another
            length.
        """
        samples = Samples.of(x, y, labeled=True, name="samples")
        if groups is not None:
            groups = np.asarray(groups)
            if samples.is_stream or groups.shape != (samples.num_rows,):
                raise ValueError(f"groups must have a value for each sample of arrays; found shape {groups.shape}")

        def blocks() -> Iterator[kernels.Block]:
            row = 0
            for batch, labels, *_ in samples.blocks():
                features = compute_features(batch, backbone)
                self._build_for(features)
                numbers, _ = check_labels(labels, self.num_classes, rows=len(features), soft=True)
                part = None if groups is None else groups[row : row + len(features)]
                row += len(features)
                yield features, numbers, part

        result = kernels.ClosedForm.solve(blocks, self.num_classes, self.inducing, seed=seed)
        if not result.used.all():
            warn_caller(
                f"{np.sum(~result.used)} samples are the only ones, or the only group, of their class: they cannot be "
                "predicted without themselves, and the readout is fitted to the others. Add samples of the class"
            )
        self._set_weights(result.regression, result.scale(self._positions))
        mean, labels = result.left_out.mean[result.used] @ self._positions, result.labels[result.used]
        folds = [(fold.kept @ self._positions, fold.held @ self._positions, fold.is_held) for fold in result.folds]
        return LeftOutLatents(mean, labels, folds)

    def _set_weights(self, regression: kernels.LabelRegression, unit: float) -> None:
        kernel, M = regression.kernel, len(regression.points)
        numbers = [*kernel.coefficients, kernel.lengthscale, kernel.linear / kernel.power, kernel.root, kernel.unit]
        loc, scale = regression.weights(self._positions)
        rest = self.inducing - M  # rows without weight
        self.points.assign(np.pad(regression.points, ((0, rest), (0, 0))))
        self.kernel_numbers.assign(numbers)
        self.center.assign(kernel.center)
        self.feature_scale.assign(kernel.scale)
        self.loc_weights.assign(np.pad(loc, ((0, rest), (0, 0))))
        self.scale_weights.assign(np.pad(scale, ((0, rest), (0, rest))))
        self.unit.assign(unit)
        self.adapted = True

    def call(self, features: Any) -> dict[str, Any]:
        # features: [N, d]
        dtype = precise_dtype()
        numbers, center, scale, points, loc_weights, scale_weights, unit = (
            ops.cast(weight, dtype)
            for weight in (
                self.kernel_numbers,
                self.center,
                self.feature_scale,
                self.points,
                self.loc_weights,
                self.scale_weights,
                self.unit,
            )
        )
        kernel = FeatureKernel(numbers[:4], numbers[4], numbers[5], numbers[6], numbers[7], center, scale, 1.0)
        U = kernel.transform(ops.cast(features, dtype))
        k = kernel(U, points)  # [N, M]
        variance = kernel.variance(U) - ops.sum(ops.square(ops.matmul(k, scale_weights)), axis=1)
        variance = unit**2 * ops.maximum(variance, 0.0)[:, None]
        loc = ops.cast(ops.matmul(k, loc_weights), self._output_dtype)
        return {"loc": loc, "scale": ops.cast(ops.sqrt(variance + self.scale_floor**2), self._output_dtype)}

    def get_config(self) -> dict[str, Any]:
        target = {"target": keras.saving.serialize_keras_object(self.target)}
        names = ("num_classes", "inducing", "scale_floor")
        return {**super().get_config(), **target, **{name: getattr(self, name) for name in names}}
