"""Classification of given features in closed form: kernel, noise and left-out predictions, from labels alone."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from deepsimplex._utils.validation import check_whole
from deepsimplex.kernels.blas_threads import shares_cores
from deepsimplex.kernels.feature_kernel import TRANSFORMATIONS, FeatureKernel, Transformation
from deepsimplex.kernels.kernel_choice import NOISES, KernelChoice, LabelLikelihood, likeliest_noise
from deepsimplex.kernels.label_regression import LabelRegression, Regressed, left_out, left_out_without, shares
from deepsimplex.samples import Reservoir

Array = NDArray[np.float64]
# Features [B, d], labels (class numbers [B], or shares of the classes times weights [B, n]) and groups [B] or None.
Block = tuple[NDArray[Any], NDArray[Any], NDArray[Any] | None]
Blocks = Callable[[], Iterable[Block]]

# Rows that are left out for the readout, of many classes fewer: their shares of classes fill 40 MB at most.
ROWS, _SHARES = 10_000, 5_000_000
# Of them those that the readout is fitted to, if no groups are given: so many, or so many of a class if that is more;
# and those by which the noise is chosen.
_LEFT_OUT_ROWS, _ROWS_OF_CLASS, _NOISE_ROWS = 5000, 100, 600
# Inducing rows at most, by default: so many, or so many of a class if that is more, up to the last. With 10 000 images
# of CIFAR-100 the NLL of 3500 is .7% below that of 2500, which takes two thirds of the time.
_INDUCING, _INDUCING_OF_CLASS, _MOST_INDUCING = 2000, 25, 3500
# Inducing rows and rows by which the transformation, then the kernel are chosen; inducing rows of a class if that is
# more, up to the last: fewer prefer kernels that are nearly linear, which more of them are worse with.
_TRANSFORMATION_CHOICE, _KERNEL_CHOICE = (300, 1000), (500, 2500)
_CHOICE_OF_CLASS, _MOST_OF_CHOICE = 10, 1000


class Fold(NamedTuple):
    """A fold of rows that the regression and the readout are fitted without.

    Attributes
    ----------
    kept, held : ndarray, shapes [N - H, n] and [H, n]
        Left-out means of the other rows, and predicted means of the fold, both without the fold.
    is_held : ndarray of bool, shape [N]
    """

    kept: Array
    held: Array
    is_held: NDArray[np.bool_]


@dataclass(eq=False)
class ClosedForm:
    """Regression on labels with everything that a readout is fitted to.

    Attributes
    ----------
    regression : LabelRegression
    labels : ndarray, shape [N, n]
        Shares of the classes of the rows that were left out, times weights of mean one: all rows, or 10 000 at random
        (fewer of more than 500 classes).
    noise : float
        Of rows of mean weight.
    rows : ndarray of int64, shape [N]
        Their positions among all rows.
    left_out : Regressed
        Their predictions without them.
    used : ndarray of bool, shape [N]
        Whether the class of the row has other rows, or groups; without any, a left-out row cannot be predicted.
    folds : list of Fold
        Rows that count, in folds for the choice of penalties.
    score : float
        Mean negative log-likelihood of left-out rows under a readout of two numbers.

    Examples
    --------
    >>> X = np.random.default_rng(0).normal(size=(60, 2))
    >>> result = ClosedForm.solve(array_blocks(X, (X[:, 0] > 0).astype(int)), 2)
    >>> float(np.mean(result.left_out.mean.argmax(axis=1) == (X[:, 0] > 0))) > 0.9
    True
    """

    regression: LabelRegression
    labels: Array
    noise: float
    rows: NDArray[np.int64]
    left_out: Regressed
    used: NDArray[np.bool_]
    folds: list[Fold]
    score: float

    @classmethod
    @shares_cores
    def solve(
        cls,
        blocks: Blocks,
        num_classes: int,
        inducing: int | None = None,
        kernel: FeatureKernel | None = None,
        noise: float | None = None,
        seed: int = 0,
        transformations: Sequence[Transformation] = TRANSFORMATIONS,
    ) -> "ClosedForm":
        """Choose kernel and noise, solve, and leave out rows.

        Parameters
        ----------
        blocks : callable
            Returns an iterable of blocks (features [B, d], labels [B] or [B, n], groups [B] or None), which is read
            twice, or thrice with groups, if there are more than 10 000 rows.
        num_classes : int
        inducing : int, optional
            Largest number of inducing rows. Default None: ``default_inducing``.
        kernel : FeatureKernel, optional
            Default: chosen by ``KernelChoice`` among some of the rows.
        noise : float, optional
            In units of the kernel's variance. Default: the likeliest.
        seed : int
            Seed of all draws. Default 0.
        transformations : sequence of str
            Transformations of the features among which the kernel is chosen. Default: all.
        """
        rng = np.random.default_rng(check_whole(seed, "seed", 0))
        (X, Y, groups), drawn, count, has_several = _drawn_rows(blocks, num_classes, rng)
        order = rng.permutation(len(X))
        points = np.sort(order[: inducing or default_inducing(num_classes)])
        likeliest = Y.argmax(axis=1)
        used, shared = (have[likeliest] for have in (has_several, _have_several(likeliest, groups, num_classes)))
        if not shared.any():
            if groups is not None and len(np.unique(groups)) == 1:
                raise ValueError("groups must have at least two values, to leave one out; found one alone")
            raise ValueError("y must have a class of at least two samples, or groups, to leave one out; found none")
        weight = float(Y.sum() / len(Y))  # noises are chosen per mean weight of a row: its unit does not matter
        start, strides = len(NOISES) // 2, [4, 2, 1]
        if kernel is None:
            kernel, start = _chosen_kernel(X, Y / weight, groups, shared, order, len(points), transformations)
            strides = [2]
        regression = LabelRegression(kernel, kernel.transform(X[points]), num_classes)
        basis = regression.basis_of_points() if len(points) == len(X) else regression.basis(X)
        if count == len(X):
            regression.add_basis(basis[0], Y)
        else:
            for x, y, _ in blocks():
                regression.add(x, one_hot(y, num_classes))
        part = np.arange(len(X))
        if groups is None:
            # Those that are inducing come last: left out they are inducing still, and predicted better than new rows.
            part = np.sort(order[::-1][: max(_LEFT_OUT_ROWS, _ROWS_OF_CLASS * num_classes)])
        phi, rest, Y, used, drawn = basis[0][part], basis[1][part], Y[part], used[part], drawn[part]
        del basis  # as large as a matrix of the inducing rows, as is phi
        labels = Y if weight == 1.0 else Y / weight
        if noise is None:
            some: Any = rng.permutation(len(Y))[:_NOISE_ROWS]  # drawn with groups, too: folds are the same then
            few = some if groups is None else slice(None)
            few_basis, few_labels = (phi[few], rest[few]), Y[few]

            def left_out_means(noise: float) -> Array:
                return regression.solve(noise * weight).leave_out(few_basis, few_labels, groups).mean

            number = likeliest_noise(left_out_means, LabelLikelihood(labels[few], used[few]), start, strides)[1]
            noise = float(NOISES[number]) * weight
        regression.solve(noise)
        smoothed = regression.smooth(phi)
        del phi
        mean, growth = left_out(*smoothed, Y, groups)
        folds = list(_folds(smoothed, Y, groups, used, rng))
        del smoothed
        score = LabelLikelihood(labels, used)(mean)
        left_out_rows = Regressed(mean, rest + noise * growth)
        return cls(regression, labels, noise / weight, drawn, left_out_rows, used, folds, score)

    def scale(self, positions: Array) -> float:
        """Return the factor of standard deviations for latents of positions [n, L], by the left-out residuals."""
        labels, weights = shares(self.labels[self.used])
        residuals = (labels - self.left_out.mean[self.used]) @ positions
        variances = self.left_out.variance[self.used] + self.noise
        squares = np.mean(np.square(residuals), axis=1) / variances
        return float(np.sqrt(np.average(squares, weights=weights)))


def array_blocks(X: NDArray[Any], y: NDArray[Any], groups: NDArray[Any] | None = None, size: int = 4096) -> Blocks:
    """Return the blocks of arrays, memory maps among them.

    Examples
    --------
    >>> [len(x) for x, y, groups in array_blocks(np.zeros((5, 2)), np.zeros(5, int), size=3)()]
    [3, 2]
    """

    def blocks() -> Iterator[Block]:
        for start in range(0, len(X), size):
            rows = slice(start, start + size)
            yield np.asarray(X[rows]), np.asarray(y[rows]), None if groups is None else groups[rows]

    return blocks


def one_hot(y: NDArray[Any], num_classes: int) -> Array:
    """Return labels as shares [N, n]: class numbers become one-hot, shares stay.

    Examples
    --------
    >>> one_hot(np.array([1, 0]), 2).tolist()
    [[0.0, 1.0], [1.0, 0.0]]
    """
    return np.asarray(y, np.float64) if np.ndim(y) == 2 else np.eye(num_classes)[y]


def _drawn_rows(
    blocks: Blocks, num_classes: int, rng: np.random.Generator
) -> tuple[tuple[NDArray[Any], Array, NDArray[Any] | None], NDArray[np.int64], int, NDArray[np.bool_]]:
    """Draw at most ``ROWS`` rows, whole groups if there are any.

    Also return their positions, the number of all rows, and which classes have several of these, or of their groups.
    """
    groups, units = None, []
    most = min(ROWS, max(_SHARES // num_classes, 1))
    reservoir = Reservoir(most, rng)
    for x, y, group in blocks():
        if not np.isfinite(x).all():
            raise ValueError("samples must give finite features; found NaN or infinity")
        reservoir.add((x, y) if group is None else (x, y, group))
        units.append((np.argmax(y, axis=1) if np.ndim(y) == 2 else y, group))
    draw = reservoir.drawn()
    if not draw.given:
        raise ValueError("samples must hold at least one sample; found none")
    (X, y, *rest), rows = draw.columns, draw.rows
    if rest and draw.given > len(X):
        X, y, groups, rows = _whole_groups(blocks, rest[0], most)
    elif rest:
        groups = rest[0]
    labels = np.concatenate([label for label, _ in units])
    names = np.concatenate([np.asarray(group) for _, group in units]) if rest else None
    return (X, one_hot(y, num_classes), groups), rows, draw.given, _have_several(labels, names, num_classes)


def _whole_groups(blocks: Blocks, drawn: NDArray[Any], most: int) -> tuple[NDArray[Any], ...]:
    """Read the rows of drawn groups, as many groups as have ``most`` rows, and their positions."""
    all_names, counts = np.unique(np.concatenate([np.asarray(group) for *_, group in blocks()]), return_counts=True)
    names = np.unique(drawn)
    sizes = counts[np.searchsorted(all_names, names)]
    kept = names[: max(int(np.sum(np.cumsum(sizes) <= most)), 1)]
    parts, start = [], 0
    for x, y, group in blocks():
        group = np.asarray(group)
        rows = np.flatnonzero(np.isin(group, kept))
        if len(rows):
            parts.append((x[rows], y[rows], group[rows], start + rows))
        start += len(x)
    return tuple(np.concatenate(column) for column in zip(*parts, strict=True))


def _have_several(labels: NDArray[np.int64], groups: NDArray[Any] | None, num_classes: int) -> NDArray[np.bool_]:
    """Return which classes have several of the rows, or of their groups."""
    if groups is not None:
        labels, _ = np.unique(np.stack([labels, np.unique(groups, return_inverse=True)[1]]), axis=1)
    return np.bincount(labels, minlength=num_classes) > 1


def default_inducing(num_classes: int) -> int:
    """Largest number of inducing rows by default: 2000, or 25 for each class if that is more, but at most 3500.

    Examples
    --------
    >>> default_inducing(10), default_inducing(100)
    (2000, 2500)
    """
    return min(max(_INDUCING, _INDUCING_OF_CLASS * num_classes), _MOST_INDUCING)


def _chosen_kernel(
    X: NDArray[Any],
    Y: Array,
    groups: NDArray[Any] | None,
    used: NDArray[np.bool_],
    order: NDArray[np.int64],
    inducing: int,
    transformations: Sequence[Transformation],
) -> tuple[FeatureKernel, int]:
    """Choose the kernel, and the number of its noise.

    The transformation is chosen by more rows; the kernel by rows of which as large a share is inducing as among all,
    since rough kernels suit large shares.
    """

    def choice(most_points: int, most_rows: int) -> KernelChoice:
        rows = order[:most_rows]
        points = np.arange(min(inducing, most_points, len(rows)))
        counted, part = used[rows].copy(), None if groups is None else groups[rows]
        if 2 * len(points) <= len(rows) and counted[len(points) :].any():
            counted[points] = False
        return KernelChoice(X[rows], Y[rows], points, part, counted, transformations)

    transformation = choice(*_TRANSFORMATION_CHOICE).transformation()
    least, most_rows = _KERNEL_CHOICE
    points = min(max(least, _CHOICE_OF_CLASS * Y.shape[1]), _MOST_OF_CHOICE)
    rows = max(min(points, inducing) * len(X) // inducing, points)
    return choice(points, min(rows, max(most_rows, 3 * points))).best(transformation)


def _folds(
    smoothed: tuple[Array, Array],
    Y: Array,
    groups: NDArray[Any] | None,
    used: NDArray[np.bool_],
    rng: np.random.Generator,
) -> Iterator[Fold]:
    """Leave out fifths of the rows, with their groups: five of up to 1000 rows, one from 5000 rows on."""
    units = np.arange(len(Y)) if groups is None else _in_order(groups)
    number = rng.permutation(units.max() + 1)[units] % 5
    for fold in range(int(np.clip(5000 // len(Y), 1, 5))):
        held, kept = used & (number == fold), used & (number != fold)
        if held.any() and kept.any():
            yield Fold(*left_out_without(*smoothed, Y, held, kept, groups), held[used])


def _in_order(groups: NDArray[Any]) -> NDArray[np.int64]:
    """Return the number of every row's group, in the order in which they appear: their names do not matter."""
    _, first, units = np.unique(groups, return_index=True, return_inverse=True)
    return np.argsort(np.argsort(first))[units]
