"""Regression on labels in closed form as a Keras layer: given features in, a Gaussian over latent space out."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Self

import keras
import numpy as np
from keras import ops
from numpy.typing import ArrayLike, NDArray
from scipy.linalg import lapack
from scipy.spatial import cKDTree

from deepsimplex import kernels
from deepsimplex._utils.messages import guided, warn_caller
from deepsimplex._utils.portable_operations import precise_dtype
from deepsimplex._utils.validation import check_array, check_groups, check_labels, check_number, check_whole
from deepsimplex.heads.features import compute_features
from deepsimplex.heads.head import Head
from deepsimplex.kernels import FeatureKernel, squared_distances
from deepsimplex.kernels.blas_threads import shares_cores
from deepsimplex.kernels.closed_form import one_hot
from deepsimplex.latent import LatentGaussian
from deepsimplex.readout import LeftOutLatents
from deepsimplex.samples import Samples
from deepsimplex.targets import TARGETS, Target

# Random projections of the features of a sample by which ``forget`` recognizes it, and the relative tolerance.
_PROJECTIONS, _TOLERANCE = 4, 1e-5
# Largest absolute value of features, whose squares must be finite.
_LARGEST = 1e150
# Axes that have an element for each inducing row, of the weights that have such; of "gram" once it is unpacked.
_ROW_AXES = {
    **dict.fromkeys(("points", "squares", "loc_weights", "reduction_sums", "moments"), (0,)),
    **dict.fromkeys(("reduction", "gram"), (0, 1)),
}
# Signs and matrices C of ``LabelRegression.reduction_change``.
_Changes = list[tuple[int, NDArray[np.float64]]]


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
    inducing : int, optional
        Number of inducing rows M. With up to M samples all of them are, and the process is exact; otherwise they are
        drawn at random. ``solve`` takes O(M^3 + N M^2) time and a prediction O(M (M + d)), as
        many as there are numbers in the weights. Default None: 2000, or 25 for each class if that is more, but at most
        3500; fewer cost accuracy where there are more samples.
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
    The solve is float64 whatever the layer's dtype. Served, inner products of features and inducing rows are float32
    unless the layer's dtype is float64, the rest float64: means are within about 1e-6 of the solver's, standard
    deviations within some thousandths, or hundredths where the noise is a thousandth or less. The variance is float64
    since what is left of it there, a thousandth of the kernel's, is less than the rounding of float32 in Q.

    Between calls of ``partial_fit`` and ``forget`` a head keeps factors of its matrices in memory, so that 100 samples
    take O(M^3 / 3 + 100 M^2); a head that was loaded computes them at its first call.

    Examples
    --------
    >>> import deepsimplex as ds
    >>> (x, y), (x_test, y_test) = ds.datasets.load("digits")
    >>> x, x_test = (values.reshape(-1, 64) for values in (x[:300], x_test))
    >>> head, readout = ClosedFormHead(10, inducing=300), ds.readout.LeftOutSoftmax()
    >>> readout = readout.adapt(head.solve(x, y[:300]))
    >>> bool(np.mean(readout(head(x_test)).numpy().argmax(axis=1) == y_test) > 0.9)
    True
    """

    covariance = "isotropic"
    is_closed_form = True
    num_classes: int
    latent_dim: int

    def __init__(
        self,
        num_classes: int,
        inducing: int | None = None,
        *,
        target: Target | str | Mapping[str, Any] = "vertices",
        scale_floor: float = 1e-3,
        **kwargs: Any,
    ) -> None:
        super().__init__(autocast=False, **kwargs)
        self.adapted = False
        self.num_classes = check_whole(num_classes, "num_classes", least=2)
        self.inducing = (
            kernels.default_inducing(num_classes) if inducing is None else check_whole(inducing, "inducing", least=1)
        )
        self.scale_floor = check_number(scale_floor, "scale_floor", 0.0)
        self.target = TARGETS.get(target)
        self.latent_dim = self.target.latent_dim(self.num_classes)
        table = self.target.table(self.num_classes)
        if table is None:
            raise ValueError(f"target must be made from labels alone, as 'vertices'; found {self.target!r}")
        self._positions = np.asarray(table.loc, np.float64)
        self.signatures = np.zeros((0, _PROJECTIONS + 1))
        self._last: kernels.LabelRegression | None = None

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
        working = {"dtype": self._working_dtype, **options}
        self.points = self.add_weight((M, d), "zeros", name="points", **working)
        self.squares = self.add_weight((M,), "zeros", name="squares", **double)  # of the points' lengths
        self.kernel_numbers = self.add_weight((11,), "ones", name="kernel_numbers", **double)
        # Whether groups were left out together.
        self.grouped = self.add_weight((), "zeros", name="grouped", **double)
        self.center = self.add_weight((d,), "zeros", name="center", **double)
        self.feature_scale = self.add_weight((d,), "ones", name="feature_scale", **double)
        self.loc_weights = self.add_weight((M, L), "zeros", name="loc_weights", **double)
        self.reduction = self.add_weight((M, M), "zeros", name="reduction", **double)
        self.reduction_sums = self.add_weight((M,), "zeros", name="reduction_sums", **double)
        self.unit = self.add_weight((), "ones", name="unit", **double)
        # What ``partial_fit`` and ``forget`` go on from.
        self.gram = self.add_weight((M * (M + 1) // 2,), "zeros", name="gram", **double)
        self.moments = self.add_weight((M, self.num_classes), "zeros", name="moments", **double)

    @property
    def _working_dtype(self) -> str:
        """Dtype of inner products with inducing rows."""
        return "float64" if self.compute_dtype == "float64" else "float32"

    def adapt(
        self, x: Any, y: ArrayLike | None = None, backbone: Callable[..., Any] | None = None, *, seed: int = 0
    ) -> Self:
        """Call ``solve`` and return the head itself."""
        self.solve(x, y, backbone, seed=seed)
        return self

    @shares_cores
    def solve(
        self,
        x: Any,
        y: ArrayLike | None = None,
        backbone: Callable[..., Any] | None = None,
        *,
        groups: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
        seed: int = 0,
        transformations: Sequence[kernels.Transformation] = kernels.TRANSFORMATIONS,
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
        sample_weight : array_like, shape [N], optional
            Weights of samples, beside arrays; batches may hold them. A sample of weight w counts as w samples that are
            left out together, one of weight zero not at all.
        seed : int
            Seed of all draws. Default 0.
        transformations : sequence of str
            Transformations of the features among which is chosen; see ``kernels.ClosedForm``. Default: all.

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
        samples = _labeled(x, y, sample_weight)
        if groups is not None:
            groups = check_groups(groups, None if samples.is_stream else samples.num_rows)
        signatures: list[NDArray[np.float64]] = []
        counts: list[NDArray[np.bool_]] = []

        def blocks() -> Iterator[kernels.Block]:
            signatures.clear()
            counts.clear()
            row = 0
            for features, labels, counted in self._features(samples, backbone):
                signatures.append(self._signatures(features, labels))
                counts.append(counted)
                part = None if groups is None else groups[row : row + len(counted)][counted]
                row += len(counted)
                yield features, labels, part

        result = kernels.ClosedForm.solve(
            blocks, self.num_classes, self.inducing, seed=seed, transformations=transformations
        )
        used = result.used
        if not used.all():
            warn_caller(
                f"{np.sum(~used)} samples are the only ones, or the only group, of their class: they cannot be "
                "predicted without themselves, and the readout is fitted to the others. Add samples of the class"
            )
        unit = result.scale(self._positions)
        self._set_weights(result.regression, unit)
        self.grouped.assign(groups is not None)
        self.signatures = np.concatenate(signatures)
        mean, variance = result.left_out
        folds = [(others @ self._positions, held @ self._positions, rows) for others, held, rows in result.folds]
        scale = np.hypot(unit * np.sqrt(variance[used, None]), self.scale_floor)
        rows = np.flatnonzero(np.concatenate(counts))[result.rows[used]]
        return LeftOutLatents(mean[used] @ self._positions, scale, result.labels[used], rows, folds)

    def leave_out(
        self,
        x: Any,
        y: ArrayLike | None = None,
        backbone: Callable[..., Any] | None = None,
        *,
        sample_weight: ArrayLike | None = None,
    ) -> LeftOutLatents:
        """Predict samples that the head was solved with, each as if it were not among them.

        Parameters
        ----------
        x, y, backbone, sample_weight
            As for ``solve``.

        Returns
        -------
        LeftOutLatents
            Without folds. Exact for samples that are not inducing rows, or while all samples are.

        Raises
        ------
        ValueError
            For a head that is not solved, for a sample that it was not solved with, and as ``solve``.
        """
        regression, parts = self.regression, []
        counts: list[NDArray[np.bool_]] = []
        self._check_signatures("leave_out")
        tree = cKDTree(self.signatures)
        for features, labels, counted in self._features(_labeled(x, y, sample_weight), backbone):
            if not (known := self._recognized(tree, features, labels)).all():
                raise _unknown_row(sum(len(rows) for rows in counts) + int(np.argmin(known)))
            counts.append(counted)
            Y = one_hot(labels, self.num_classes)
            parts.append((*regression.leave_out(regression.basis(features), Y), Y))
        mean, variance, Y = (np.concatenate(column) for column in zip(*parts, strict=True))
        scale = np.hypot(float(self.unit) * np.sqrt(variance[:, None]), self.scale_floor)
        return LeftOutLatents(mean @ self._positions, scale, Y, np.flatnonzero(np.concatenate(counts)), [])

    def influence(
        self, x: Any, y: ArrayLike | None = None, *, sample_weight: ArrayLike | None = None
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return what ``without`` and ``call`` need to leave out features [m, d] that the head was solved with.

        Returns
        -------
        influence : ndarray, shape [M, m]
        residuals : ndarray, shape [m, L]
        """
        regression, parts = self.regression, []
        for features, labels, _ in self._features(_labeled(x, y, sample_weight), None):
            Y, basis = one_hot(labels, self.num_classes), regression.basis(features)
            mean, _ = regression.leave_out(basis, Y)
            residuals = (Y - Y.sum(axis=1, keepdims=True) * mean) @ self._positions
            parts.append((regression.influence(basis[0]).T, residuals))
        influence, residuals = (np.concatenate(column) for column in zip(*parts, strict=True))
        return influence.T, residuals

    def recognizes(
        self, x: Any, y: ArrayLike | None = None, *, sample_weight: ArrayLike | None = None
    ) -> NDArray[np.bool_]:
        """Return of which samples [N] the head was solved with the features [N, d], labels and weights.

        Of none, for a head that was copied by its weights alone.
        """
        tree, masks = cKDTree(self.signatures), []
        for features, labels, counted in self._features(_labeled(x, y, sample_weight), None):
            known = counted.copy()
            known[counted] = self._recognized(tree, features, labels)
            masks.append(known)
        return np.concatenate(masks)

    def recognizes_features(self, features: Any) -> NDArray[np.bool_]:
        """Return which features [N, d] are those of just one of the samples that the head was solved with.

        Features that several have, as in tables of few distinct values, may well be those of other samples.
        """
        features = np.asarray(features, np.float64)
        distances, _ = cKDTree(self.signatures[:, :-1]).query(self._projections(features), k=[1, 2], p=np.inf)
        near = distances <= _tolerance(features)[:, None]
        return near[:, 0] & ~near[:, 1]

    @property
    def num_copies(self) -> int:
        """Number of samples that the head was solved with whose features and label another one before them has."""
        rows = self.signatures[np.lexsort(self.signatures.T[::-1])]
        sizes = np.abs(rows[1:])
        sizes[:, :-1] = sizes[:, :-1].max(axis=1, keepdims=True)  # of the projections
        return int(np.count_nonzero((np.abs(np.diff(rows, axis=0)) <= _TOLERANCE * sizes).all(axis=1)))

    def without(self, features: Any, influence: Any, residuals: Any) -> Any:
        """Return latent means [N, m, L] of features, a tensor [N, d], as if each of m samples were not among the rows.

        ``influence`` and ``residuals`` are what the method ``influence`` returns.
        """
        k, _ = self._kernel_values(features)
        used = k[:, : len(influence)]  # the head may have room for more inducing rows
        influence, residuals, weights = (ops.cast(array, k.dtype) for array in (influence, residuals, self.loc_weights))
        leverage = ops.matmul(used, influence)
        return ops.matmul(k, weights)[:, None, :] - leverage[:, :, None] * residuals

    @property
    def num_rows(self) -> int:
        """Number of samples that the head was solved with."""
        return int(self.kernel_numbers[10]) if self.adapted else 0

    @property
    def absent(self) -> NDArray[np.int64]:
        """Classes, by number, of which the head was solved with no samples."""
        return np.flatnonzero(~np.asarray(self.moments).any(axis=0)) if self.adapted else np.arange(self.num_classes)

    @shares_cores
    def partial_fit(
        self,
        x: Any,
        y: ArrayLike | None = None,
        backbone: Callable[..., Any] | None = None,
        *,
        sample_weight: ArrayLike | None = None,
    ) -> Self:
        """Add samples, of new classes among the ``num_classes`` too, as if ``solve`` had seen them.

        Kernel and noise stay as they are. While all samples are inducing rows and there is room, new ones are too.

        Parameters
        ----------
        x, y, backbone, sample_weight
            As for ``solve``.

        Returns
        -------
        ClosedFormHead
            The head itself.

        Raises
        ------
        ValueError
            For a head that is not solved, and as ``solve``.
        """
        changes: _Changes | None = []
        regression = self.regression
        for features, labels, _ in self._features(_labeled(x, y, sample_weight), backbone):
            Y = one_hot(labels, self.num_classes)
            exact = regression.num_rows == len(regression.points)
            if exact and regression.num_rows + len(features) <= self.inducing:
                grown = regression.add_inducing(regression.kernel.transform(features), Y)
                regression, changes = grown.solve(regression.noise), None
            else:
                changes = _change(regression, features, Y, changes)
            self.signatures = np.concatenate([self.signatures, self._signatures(features, labels)])
        self._set_weights(regression, float(self.unit), changes)
        return self

    @shares_cores
    def forget(
        self,
        x: Any,
        y: ArrayLike | None = None,
        backbone: Callable[..., Any] | None = None,
        *,
        sample_weight: ArrayLike | None = None,
    ) -> Self:
        """Remove samples, exactly as if ``solve`` had not seen them, but for its choice of kernel and noise.

        Inducing rows that are among them are removed, too: nothing of them is left in the weights. Samples are
        recognized by their features, labels and weights.

        Parameters
        ----------
        x, y, backbone, sample_weight
            As for ``solve``.

        Returns
        -------
        ClosedFormHead
            The head itself.

        Raises
        ------
        ValueError
            For a head that is not solved, for a sample that it was not solved with, and for all its samples.
        """
        regression, signatures = self.regression, self.signatures
        self._check_signatures("forget")
        changes: _Changes | None = []
        for features, labels, _ in self._features(_labeled(x, y, sample_weight), backbone):
            tolerance = _tolerance(features)
            for row, signature in enumerate(self._signatures(features, labels)):
                distances = np.abs(signatures - signature).max(axis=1, initial=0.0)
                if not len(distances) or distances.min() > tolerance[row]:
                    raise _unknown_row(row)
                signatures = np.delete(signatures, distances.argmin(), axis=0)
            changes = _change(regression, features, one_hot(labels, self.num_classes), changes, sign=-1)
            gone = _equal_points(regression.points, regression.kernel.transform(features))
            if len(gone) == len(regression.points):
                raise ValueError("x must leave at least one inducing row; found all of them. Solve the head anew")
            if len(gone):
                regression = regression.without_inducing(gone).solve(regression.noise)
                changes = None
        self.signatures = signatures
        self._set_weights(regression, float(self.unit), changes)
        return self

    def _check_signatures(self, method: str) -> None:
        if len(self.signatures) != self.regression.num_rows:
            raise ValueError(
                f"{method} recognizes samples by what get_weights of a head alone does not hold: copy the head by a "
                "file, or by get_weights of its classifier"
            )

    def with_inducing(self, inducing: int) -> "ClosedFormHead":
        """Return a copy of a solved head with room for another number of inducing rows, at least as many as it has."""
        other = type(self).from_config({**self.get_config(), "inducing": inducing})
        other.build((None, self.center.shape[0]))
        other._set_weights(self.regression, float(self.unit))
        other.grouped.assign(self.grouped)
        other.signatures = self.signatures
        return other

    def _features(
        self, samples: Samples, backbone: Callable[..., Any] | None
    ) -> Iterator[tuple[NDArray[np.float64], NDArray[Any], NDArray[np.bool_]]]:
        """Read features [B, d] and labels, times weights, of samples in blocks, check them, and say which count."""
        for batch, labels, *weights in samples.blocks():
            features = compute_features(batch, backbone)
            if np.abs(features).max(initial=0.0) > _LARGEST:
                raise ValueError(f"features must be at most {_LARGEST:g} in size; found {np.abs(features).max():g}")
            self._build_for(features)
            labels = check_labels(labels, self.num_classes, rows=len(features), soft=True)[0]
            counted = np.ones(len(features), bool)
            if weights and weights[0] is not None:
                w = np.asarray(weights[0], np.float64)
                counted = w > 0
                features, labels = features[counted], (one_hot(labels, self.num_classes) * w[:, None])[counted]
            yield features, labels, counted

    def _recognized(self, tree: cKDTree, features: NDArray[np.float64], labels: NDArray[Any]) -> NDArray[np.bool_]:
        """Return of which samples [N] the signatures of features and labels are in the tree."""
        distances, _ = tree.query(self._signatures(features, labels), p=np.inf)
        return distances <= _tolerance(features)

    def _signatures(self, features: NDArray[np.float64], labels: NDArray[Any]) -> NDArray[np.float64]:
        """Random projections of features, and their labels as numbers, [N, 5]."""
        numbers = one_hot(labels, self.num_classes) @ np.arange(1.0, self.num_classes + 1)
        return np.column_stack(
            [self._projections(features), numbers * np.maximum(np.linalg.norm(features, axis=1), 1.0)]
        )

    def _projections(self, features: NDArray[np.float64]) -> NDArray[np.float64]:
        return features @ np.random.default_rng(0).normal(size=(features.shape[1], _PROJECTIONS))

    @property
    def regression(self) -> kernels.LabelRegression:
        """Regression that the weights hold: that of the last call if they are still its weights."""
        if not self.adapted:
            raise ValueError("the head must be solved first: call solve(x, y)")
        numbers = np.asarray(self.kernel_numbers, np.float64)
        lengthscale, linear, root, unit, noise, M, num_rows = numbers[4:].tolist()
        M, moments = int(M), np.asarray(self.moments)[: int(M)]
        last = self._last
        if last is not None and last.num_rows == num_rows and np.array_equal(last.moments, moments):
            return last
        center, scale = np.asarray(self.center), np.asarray(self.feature_scale)
        kernel = FeatureKernel(numbers[:4], lengthscale, linear, root, unit, center, scale, 1.0)
        points = np.asarray(self.points, np.float64)[:M]
        regression = kernels.LabelRegression(kernel, points, self.num_classes)
        regression.gram = kernels.symmetric(_unpacked(np.asarray(self.gram))[:M, :M])
        regression.moments = moments.copy()
        regression.num_rows = int(num_rows)
        self._last = regression.solve(noise)
        return self._last

    def _set_weights(self, regression: kernels.LabelRegression, unit: float, changes: "_Changes | None" = None) -> None:
        """Set the weights; those of the variance anew, or by changes since they were set."""
        kernel, M = regression.kernel, len(regression.points)
        numbers = [
            *kernel.coefficients,
            *(kernel.lengthscale, kernel.linear / kernel.power, kernel.root, kernel.unit),
            *(regression.noise, M, regression.num_rows),
        ]
        if changes is None:
            reduction = regression.reduction()
            sums = reduction.sum(axis=1)
        else:
            reduction, sums = np.asarray(self.reduction)[:M, :M].copy(), np.asarray(self.reduction_sums)[:M].copy()
            for sign, C in changes:
                sums += sign * (C @ C.sum(axis=0))
                reduction += sign * (C @ C.T)
        values = {
            "points": regression.points,
            "squares": np.sum(np.square(regression.points), axis=1),
            "kernel_numbers": np.array(numbers),
            "center": kernel.center,
            "feature_scale": kernel.scale,
            "loc_weights": regression.loc_weights(self._positions),
            "reduction": reduction,
            "reduction_sums": sums,
            "unit": np.array(unit),
            "moments": regression.moments,
        }
        for name, value in values.items():
            getattr(self, name).assign(_with_rows(name, value, self.inducing))
        self.gram.assign(_packed(_with_rows("gram", regression.gram, self.inducing)))
        self.adapted, self._last = True, regression

    def predict(self, features: NDArray[np.float64]) -> LatentGaussian:
        """Return the latents of features [N, d] as ``call`` does, in double precision by NumPy."""
        regression = self.regression
        mean, variance = regression.predict(
            check_array(features, "features", "[N, d]", columns=regression.points.shape[1], least=1)
        )
        return LatentGaussian(
            mean @ self._positions, np.hypot(float(self.unit) * np.sqrt(variance)[:, None], self.scale_floor)
        )

    def predict_means(self, features: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the means [N, L] of the latents alone, which takes O(M (d + L)) a row."""
        regression = self.regression
        return regression.locations(features, np.asarray(self.loc_weights)[: len(regression.points)])

    def state(self) -> dict[str, NDArray[Any]]:
        """Return what ``forget`` recognizes samples by, if the head is solved."""
        return {"signatures": self.signatures} if self.adapted else {}

    def load_state(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Restore what ``state`` returned."""
        self.signatures = np.asarray(state.get("signatures", self.signatures[:0]))

    def save_own_variables(self, store: Any) -> None:
        """Save the weights of inducing rows, ``adapted``, and what ``forget`` recognizes samples by."""
        weights: dict[str, Any] = {}
        super().save_own_variables(weights)
        M = int(self.kernel_numbers[9]) if self.adapted else 1
        for key, weight in weights.items():
            store[key] = _resized(weight.name, np.asarray(weight), M)
        store["signatures"] = self.signatures

    def load_own_variables(self, store: Any) -> None:
        """Load the weights, ``adapted``, and what ``forget`` recognizes samples by."""
        names = [weight.name for weight in self.weights]
        if not self.built:  # a file of a model that was never called, or Keras raises
            super().load_own_variables({key: store[key] for key in {*store.keys()} - {"signatures"}})
            return
        M = len(store[str(names.index("squares"))])  # of a file of this head, which holds so many inducing rows
        if self.inducing < M:
            raise ValueError(f"inducing must be at least {M}, the inducing rows in the file; found {self.inducing}")
        arrays = {str(key): _resized(name, store[str(key)], self.inducing) for key, name in enumerate(names)}
        super().load_own_variables(arrays)
        self.signatures = np.asarray(store["signatures"])

    def _kernel_values(self, features: Any) -> tuple[Any, Any]:
        """Return kernel values [N, M] of features [N, d] and inducing rows, and variances [N]."""
        dtype = precise_dtype()
        weights = (self.kernel_numbers, self.center, self.feature_scale, self.squares)
        numbers, center, scale, squares = (ops.cast(weight, dtype) for weight in weights)
        kernel = FeatureKernel(numbers[:4], numbers[4], numbers[5], numbers[6], numbers[7], center, scale, 1.0)
        U = kernel.transform(ops.cast(features, dtype))
        working = dtype if self._working_dtype == "float64" else "float32"
        products = _times(ops.cast(self.points, working), ops.cast(U, working))
        return kernel.of_products(U, ops.cast(products, dtype), squares, working), kernel.variance(U)

    def call(self, features: Any, influence: Any = None, residuals: Any = None) -> dict[str, Any]:
        # features: [N, d]; influence: [N, M] and residuals: [N, L] of the row that every sample is predicted without
        k, variance = self._kernel_values(features)
        dtype = k.dtype
        loc_weights, sums, unit = (ops.cast(w, dtype) for w in (self.loc_weights, self.reduction_sums, self.unit))
        # With k = m + c, m the mean, k^T Q k = m^2 1^T Q 1 + 2 m 1^T Q c + c^T Q c: LiteRT has single precision alone.
        m = ops.mean(k, axis=1, keepdims=True)
        c = k - m
        reduced = _times(ops.cast(self.reduction, dtype), c)
        reduction = ops.sum(sums * m**2 + (2.0 * sums * m + reduced) * c, axis=1)
        variance = unit**2 * ops.maximum(variance - reduction, 0.0)[:, None]
        loc = ops.matmul(k, loc_weights)
        if influence is not None:
            loc -= ops.sum(k * ops.cast(influence, dtype), axis=1, keepdims=True) * ops.cast(residuals, dtype)
        loc = ops.cast(loc, self._output_dtype)
        return {"loc": loc, "scale": ops.cast(ops.sqrt(variance + self.scale_floor**2), self._output_dtype)}

    def get_config(self) -> dict[str, Any]:
        target = {"target": keras.saving.serialize_keras_object(self.target)}
        names = ("num_classes", "inducing", "scale_floor")
        return {**super().get_config(), **target, **{name: getattr(self, name) for name in names}}


def _times(A: Any, X: Any) -> Any:
    """Return X A^T [N, M] for A [M, d] and X [N, d]: of one row, reading A row by row takes half the time."""
    return ops.transpose(ops.matmul(A, ops.transpose(X)))


def left_out_outputs(
    head: Any,
    readout: Any,
    features: NDArray[Any],
    labels: NDArray[np.int64],
    sample_weight: ArrayLike | None,
    most: int | None,
    seed: int,
) -> tuple[dict[str, Any], NDArray[np.int64], Any]:
    """Return outputs of a classifier for features that its head was solved with, each left out, and their labels.

    With ``most``, for as many of them at random, and what ``influence`` returns for these.
    """
    if float(head.grouped):
        raise guided(
            "decisions.md#without-held-out-rows",
            "left_out must be False after fit with groups: samples would be left out one by one, and predicted by "
            "others of their groups. Hold out whole groups",
        )
    if most is not None and len(labels) > most:
        rows = np.random.default_rng(seed).permutation(len(labels))[:most]
        features, labels = np.asarray(features)[rows], labels[rows]
        sample_weight = None if sample_weight is None else np.asarray(sample_weight)[rows]
    left_out = head.leave_out(features, labels, sample_weight=sample_weight)
    latent = LatentGaussian(left_out.loc, left_out.scale)
    outputs = {"probabilities": np.asarray(readout(latent.as_dict())), "latent": latent, "readout": readout}
    return outputs, labels, None if most is None else head.influence(features, labels, sample_weight=sample_weight)


def _unknown_row(row: int) -> ValueError:
    return ValueError(
        "x must hold samples that the head was solved with, with their labels and weights; found another in row "
        f"{row}, or other weights (left_out=True takes samples that had none)"
    )


def _resized(name: str, weight: Any, rows: int) -> Any:
    """Cut a weight as it is stored to its first inducing rows, or fill it up with rows without weight."""
    if name == "gram":
        return _packed(_with_rows(name, _unpacked(np.asarray(weight)), rows))
    return _with_rows(name, weight, rows)


def _with_rows(name: str, value: Any, rows: int) -> Any:
    """Return the same of an unpacked weight."""
    axes = _ROW_AXES.get(name, ())
    shape = tuple(rows if axis in axes else size for axis, size in enumerate(value.shape))
    if shape == value.shape:
        return value
    resized, common = (
        np.zeros(shape, value.dtype),
        tuple(slice(min(sizes)) for sizes in zip(shape, value.shape, strict=True)),
    )
    resized[common] = value[common]
    return resized


def _packed(gram: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the lower triangle of a matrix [M, M] in rectangular full packed format, [M (M + 1) / 2]."""
    return np.asarray(lapack.dtrttf(gram, uplo="L")[0])


def _unpacked(packed: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return a matrix [M, M] whose lower triangle was packed."""
    return np.asarray(lapack.dtfttr(int((2 * len(packed)) ** 0.5), packed, uplo="L")[0])


def _labeled(x: Any, y: ArrayLike | None, sample_weight: ArrayLike | None = None) -> Samples:
    """Check labeled samples, unless they are ``Samples`` already."""
    return x if isinstance(x, Samples) else Samples.of(x, y, sample_weight, labeled=True, name="samples")


def _tolerance(features: NDArray[np.float64]) -> NDArray[np.float64]:
    """How much rounding of features [N, d] may change their signatures, [N]."""
    return _TOLERANCE * np.linalg.norm(features, axis=1)


def _equal_points(points: NDArray[np.float64], U: NDArray[np.float64]) -> list[int]:
    """Numbers of inducing rows [M, d] that transformed rows U [N, d] equal: of several equal ones, one for each row."""
    equal: list[int] = []
    for distances, squares in zip(squared_distances(U, points), np.sum(U * U, axis=1), strict=True):
        distances[equal] = np.inf
        nearest = int(distances.argmin())
        if distances[nearest] <= _TOLERANCE**2 * squares:
            equal.append(nearest)
    return equal


def _change(
    regression: kernels.LabelRegression,
    features: NDArray[np.float64],
    Y: NDArray[np.float64],
    changes: _Changes | None,
    sign: int = 1,
) -> _Changes | None:
    """Add or remove rows and solve; return changes of the variance, or None if it is as well computed anew."""
    phi = regression.basis(features)[0]
    if changes is not None:
        few = 4 * (len(phi) + sum(C.shape[1] for _, C in changes)) <= len(regression.points)
        changes = [*changes, (sign, regression.reduction_change(phi, Y, sign))] if few else None
    regression.add_basis(phi, Y, sign)
    regression.solve(regression.noise)
    return changes
