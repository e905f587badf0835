"""CASIMAC targets: latents made of distances to the nearest samples of every class."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from deepsimplex._utils.archives import fingerprint
from deepsimplex._utils.array_operations import keras
from deepsimplex._utils.atomic_files import check_path
from deepsimplex._utils.messages import listed
from deepsimplex._utils.registry import registered, registered_function, registered_name
from deepsimplex._utils.validation import check_choice, check_flag, check_labels, check_number, check_whole
from deepsimplex.distances import get_distance
from deepsimplex.distances.approximate_search import check_candidates
from deepsimplex.distances.exact_search import EXECUTORS, Classes, Executor
from deepsimplex.distances.neighbors import Method, nearest_error, nearest_neighbors
from deepsimplex.geometry.vertices import CONSTRUCTIONS, Construction, vertices
from deepsimplex.latent import LatentGaussian
from deepsimplex.targets.neighbor_cache import cached_search
from deepsimplex.targets.target import Target

# Ascending distances [M, k] to values [M].
Reduction = Callable[[NDArray[np.float64]], NDArray[np.float64]]


@registered
class CASIMAC(Target):
    """Distances to the nearest samples of every class as a point of the simplex's space, L = n - 1 [CASIMAC Eq. 4-8].

    f(x, y) = - sum_{y' != y} f_C(alpha A + beta R_{y'}) p_{y'}, with the attraction A = 1 / (mean distance to the
    k_alpha nearest samples of the same class at positive distance) and the repulsion R_{y'} = mean distance to the
    k_beta nearest samples of class y'. Training samples are left out of their own neighborhood (Eq. 13). A latent lies
    nearest to the vertex of its sample's class (Eq. 10). It lies as near to another if that class's coefficient is
    zero, as for equal samples of two classes without attraction. The targets carry no noise.

    Distances have the units of the samples. A positive factor on all latents changes no argmax readout, but a regressor
    starts at unit scale in every dimension: latents are therefore divided by their root mean square over the training
    samples and dimensions.

    Parameters
    ----------
    distance : str, callable, ndarray, mapping or Distance
        The metric, as ``deepsimplex.distances.get_distance`` takes it. The default is "euclidean".
    repulsion_strength : float
        beta >= 0. The default is 1.
    repulsion_number : int
        k_beta, how many samples of each other class count. Where a class has fewer, all of them do. The default is 1.
    attraction_strength : float
        alpha >= 0. The default 0 leaves the attraction out.
    attraction_number : int
        k_alpha, how many samples of the same class count. The default is 1.
    gamma : float, optional
        Sets beta = gamma and alpha = 1 - gamma, gamma in [0, 1] (Eq. 19), instead of the two strengths.
    attraction_function, repulsion_function : callable or str, optional
        f_A and f_R of Eq. 33: ascending distances [M, k] to finite, non-negative values [M]; k is smaller where there
        are fewer neighbors. Defaults: 1 / mean, and mean. A function registered with
        ``keras.saving.register_keras_serializable`` is saved with the target, and may be given by its registered name.
    combination_function : callable or str, optional
        f_C of Eq. 32: values [M] to finite, non-negative values [M]. The default leaves them as they are.
    construction : {"iterative", "helmert"}
        How the vertices p lie in latent space (``deepsimplex.geometry.vertices``).
    normalize : bool
        Whether latents are divided by their root mean square over training samples and dimensions: without attraction
        neither units nor the number of features matter then. The default is True; False leaves them as in [CASIMAC].
    cache_dir : path-like, optional
        A folder in which neighbor distances are cached, under a key of samples, labels, metric and numbers of
        neighbors; it is not part of ``get_config``. An interrupted exact search is resumed from there.
    executor : {None, "ray"}
        Where neighbors are searched, as in ``class_neighbors``; not part of ``get_config`` either.
    method, candidates_per_class : {"exact", "approximate"}, int
        How neighbors are searched, as ``method`` and ``candidates`` of ``class_neighbors``. The default is "exact";
        "approximate" is for millions of samples.
    show_progress : bool, optional
        None (default) shows a bar on terminals and in notebooks; True lines elsewhere too; False nothing.

    Attributes
    ----------
    unit_ : float
        What latents were divided by, after ``fit_transform`` or ``transform``: 1 with ``normalize=False``. It is saved
        with the target.
    recall_ : float
        Share of the training samples' true neighbors that was found, saved too: 1 for "exact", measured on some samples
        for "approximate".

    Raises
    ------
    ValueError
        When a parameter is out of its range, ``gamma`` comes with a strength, or both strengths are zero.

    Notes
    -----
    After ``fit`` the target refers to the training samples themselves, not to a copy: leave them unchanged. Copies and
    pickles of the target do not hold them: call ``fit`` again before ``transform``.

    Examples
    --------
    >>> x, y = [[0.0], [1.0], [3.0]], [0, 0, 1]
    >>> CASIMAC(normalize=False).fit_transform(x, y).loc.T
    array([[ 3.,  2., -2.]])
    >>> target = CASIMAC()
    >>> target.fit_transform(x, y).loc.T.round(2)
    array([[ 1.26,  0.84, -0.84]])
    >>> round(target.unit_, 2)
    2.38
    """

    recall_: float | None = None

    def __init__(
        self,
        distance: Any = "euclidean",
        repulsion_strength: float = 1.0,
        repulsion_number: int = 1,
        attraction_strength: float = 0.0,
        attraction_number: int = 1,
        *,
        gamma: float | None = None,
        attraction_function: Reduction | None = None,
        repulsion_function: Reduction | None = None,
        combination_function: Reduction | None = None,
        construction: Construction = "iterative",
        normalize: bool = True,
        cache_dir: Any = None,
        executor: Executor | None = None,
        method: Method = "exact",
        candidates_per_class: int | None = None,
        show_progress: bool | None = None,
    ) -> None:
        self.repulsion_strength, self.attraction_strength = strengths(repulsion_strength, attraction_strength, gamma)
        self.repulsion_number = check_whole(repulsion_number, "repulsion_number", least=1)
        self.attraction_number = check_whole(attraction_number, "attraction_number", least=1)
        self.attraction_function = registered_function(attraction_function, "attraction_function")
        self.repulsion_function = registered_function(repulsion_function, "repulsion_function")
        self.combination_function = registered_function(combination_function, "combination_function")
        self.construction: Construction = check_choice(construction, "construction", CONSTRUCTIONS)
        self.normalize = check_flag(normalize, "normalize")
        self.cache_dir = None if cache_dir is None else check_path(cache_dir, "cache_dir")
        self.executor = None if executor is None else check_choice(executor, "executor", EXECUTORS)
        self.method: Method = check_choice(method, "method", ("exact", "approximate"))
        k, _ = self._neighborhood = self._searched()
        self.candidates_per_class = check_candidates(candidates_per_class, method, k, "candidates_per_class")
        self.show_progress = show_progress
        self.distance = get_distance(distance)
        self.sums_features = self.distance.sums_features
        self._samples: tuple[NDArray[Any], NDArray[np.int64]] | None = None
        self._latest: dict[str, tuple[str, NDArray[np.float64]]] = {}
        self._from_cache = False
        self._training_key: str | None = None
        self._unit_of: str | None = None  # key of the training samples that unit_ belongs to

    @property
    def is_fitted(self) -> bool:
        """Whether the target has training samples."""
        return self._samples is not None

    def searches(self) -> list[bool]:
        """Whether the latest distances were read from ``cache_dir``: all, or those of an interrupted search."""
        return [self._from_cache]

    def recall(self) -> float | None:
        """The ``recall_`` of an approximate search, after it; None for an exact one."""
        return None if self.method == "exact" else self.recall_

    def scores(self, n: int) -> NDArray[np.float64]:
        """The vertices P, shape [n, n - 1]."""
        return vertices(n, self.construction)

    def fit(self, x: Any, y: ArrayLike, num_classes: int | None = None) -> Self:
        """Check and store the training samples; their distances are computed when latents are needed.

        Parameters
        ----------
        x : array_like, shape [N, ...]
            Samples that suit the metric.
        y : array_like, shape [N]
            One class per sample, whole numbers from 0.
        num_classes : int, optional
            Number of classes n. None (default) takes the largest label plus one.

        Returns
        -------
        CASIMAC

        Raises
        ------
        TypeError, ValueError
            When x does not suit the metric; when labels are out of range, soft, or not as many as samples; when a
            class has no sample, or a single one where there is attraction; when ``cache_dir`` is set and the metric
            cannot be named in a key.
        """
        if self.cache_dir is not None and self.distance.cache_key() is None:
            raise ValueError(
                f"cache_dir needs a metric that a key can name; found {self.distance!r}, which may change without "
                "notice. Set cache_dir=None, or pass a precomputed matrix"
            )
        samples = self._compared(x)
        labels, n = _hard_labels(y, num_classes, len(samples))
        check_class_sizes(labels, n, attraction=self.attraction_strength > 0, repulsion=self.repulsion_strength > 0)
        self._samples, self.num_classes_, self._training_key = (samples, labels), n, None
        return self

    def fit_transform(self, x: Any, y: ArrayLike, num_classes: int | None = None) -> LatentGaussian:
        """Fit, and return the latents of the training samples, each left out of its own neighborhood (Eq. 13).

        Fitting on the same samples and labels again does not compute the distances again.

        Returns
        -------
        LatentGaussian
            loc [N, n - 1] float64, scale [N, 1] zero.

        Raises
        ------
        TypeError, ValueError, OSError
            As ``fit``; when a sample's class has no other at positive distance where there is attraction; when
            a function returns invalid values; when ``cache_dir`` cannot be written.

        Warns
        -----
        TargetCacheWarning
            When a cache file is damaged or cannot be written; the result is correct nevertheless.
        """
        return self.fit(x, y, num_classes)._observations()

    def transform(self, x: Any, y: ArrayLike) -> LatentGaussian:
        """Return the latents of other labeled samples, with neighbors among the training samples.

        Parameters
        ----------
        x : array_like, shape [M, ...]
        y : array_like, shape [M]

        Returns
        -------
        LatentGaussian
            loc [M, n - 1] float64, scale [M, 1] zero.

        Raises
        ------
        TypeError, ValueError, OSError
            As ``fit_transform``, and when there are no training samples.
        """
        if self._samples is None:
            raise ValueError(
                "CASIMAC latents are made of distances to training samples, and this target has none: "
                "call fit(x, y) with them first. Copies and reloaded targets do not carry them"
            )
        queries = self._compared(x)
        labels, _ = _hard_labels(y, self.num_classes_, len(queries))
        return self._observations(queries, labels)

    def neighbor_error(self) -> float | None:
        """Leave-one-out error of the nearest neighbor, over at most 1000 training samples; None before fit."""
        return None if self._samples is None else nearest_error(*self._samples, self.num_classes_, self.distance)

    def default_loss(self) -> Any:
        """``losses.Composition()``: soft labels made of the distances train better probabilities than latents do."""
        from deepsimplex.losses import Composition  # imported here: it imports Keras

        return Composition()

    def _compared(self, x: Any) -> NDArray[Any]:
        """Return the checked array that distances compare: x itself, or several inputs joined."""
        return self.distance.check(self.distance.join(x) if isinstance(x, Mapping | tuple) else x)

    def _observations(
        self, queries: NDArray[Any] | None = None, query_labels: NDArray[np.int64] | None = None
    ) -> LatentGaussian:
        """Observations of the queries, or of the training samples (None), in units of ``unit_``."""
        latents = self._latents(queries, query_labels)
        if not self.normalize:
            self.unit_ = 1.0
        elif self._unit_of != (key := self._key()):
            self.unit_, self._unit_of = root_mean_square(self._latents()), key
        loc = latents / self.unit_  # a copy, which the caller may change
        return LatentGaussian(loc, np.zeros((len(loc), 1)))

    def _latents(
        self, queries: NDArray[Any] | None = None, query_labels: NDArray[np.int64] | None = None
    ) -> NDArray[np.float64]:
        """Latents [M, n - 1] of the queries, or of the training samples (None), in units of distance.

        The latest of both are kept.
        """
        assert self._samples is not None
        kind, key = "training" if queries is None else "other", self._key(queries, query_labels)
        if key == self._latest.get(kind, ("",))[0]:
            return self._latest[kind][1]
        self._latest.pop(kind, None)
        k, classes = self._neighborhood
        search = partial(
            nearest_neighbors,
            *self._samples,
            self.num_classes_,
            self.distance,
            k,
            queries=queries,
            query_labels=query_labels,
            exclude_duplicates=True,  # Eq. 7a
            classes=classes,
            method=self.method,
            candidates=self.candidates_per_class,
            executor=self.executor,
            show_progress=self.show_progress,
        )
        labels = self._samples[1] if query_labels is None else query_labels
        if self.cache_dir is None:
            neighbors = search()
            distances, recall, self._from_cache = neighbors.distances, neighbors.recall, False
        else:
            shape = len(labels), self.num_classes_, k
            distances, recall, self._from_cache = cached_search(self.cache_dir, key, shape, search)
        if queries is None:
            self.recall_ = recall
        latents = -self._coefficients(distances, labels) @ self.scores(self.num_classes_)
        self._latest[kind] = key, latents
        return latents

    def _key(self, queries: NDArray[Any] | None = None, query_labels: NDArray[np.int64] | None = None) -> str:
        """Return a key of everything that neighbor distances depend on."""
        assert self._samples is not None
        name = self.distance.cache_key() or f"object {id(self.distance)}"  # valid in this process only
        search = [*self._neighborhood, name] + [self.candidates_per_class] * (self.method == "approximate")
        if self._training_key is None:
            self._training_key = fingerprint(*self._samples, self.num_classes_, *search)
        return self._training_key if queries is None else fingerprint(self._training_key, queries, query_labels)

    def _searched(self) -> tuple[int, Classes]:
        """Return the number of neighbors to search, and whether in the same class, in the others or in all."""
        if self.attraction_strength == 0:
            return self.repulsion_number, "other"
        if self.repulsion_strength == 0:
            return self.attraction_number, "same"
        return max(self.repulsion_number, self.attraction_number), "all"

    def _coefficients(self, distances: NDArray[np.float64], labels: NDArray[np.int64]) -> NDArray[np.float64]:
        """f_C(alpha A + beta R_{y'}) of Eq. 32-33, shape [N, n], zero at the class itself."""
        N, n, _ = distances.shape
        combined = np.zeros((N, n))
        if self.attraction_strength > 0:
            same_class = distances[np.arange(N), labels, : self.attraction_number]
            check_attraction(same_class, labels)
            attraction = per_count(self.attraction_function or inverse_mean, same_class, "attraction_function")
            combined += self.attraction_strength * attraction[:, None]
        if self.repulsion_strength > 0:
            for c in range(n):
                rows = np.flatnonzero(labels != c)
                others = distances[rows, c, : self.repulsion_number]
                repulsion = per_count(self.repulsion_function or mean, others, "repulsion_function")
                combined[rows, c] += self.repulsion_strength * repulsion
        combined[np.arange(N), labels] = 0.0
        if self.combination_function is not None:
            other = np.arange(n) != labels[:, None]
            combined[other] = checked(self.combination_function, combined[other], "combination_function")
        return combined

    def get_config(self) -> dict[str, Any]:
        """Arguments of the constructor, the unit and the recall; not ``cache_dir``, ``executor``, ``show_progress``.

        Raises ValueError when a function, or that of a distance, is not registered with Keras.
        """
        functions = ("attraction_function", "repulsion_function", "combination_function")
        numbers = ("repulsion_strength", "repulsion_number", "attraction_strength", "attraction_number")
        options = ("construction", "normalize", "method", "candidates_per_class")
        fitted: dict[str, Any] = {"recall": self.recall_}
        if self._unit_of and self.distance.cache_key():
            fitted |= {"unit": self.unit_, "unit_of": self._unit_of}
        return {
            "distance": keras.saving.serialize_keras_object(self.distance),
            **{name: getattr(self, name) for name in (*numbers, *options)},
            **{name: registered_name(getattr(self, name), name) for name in functions},
            "fitted": fitted,
        }

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Self:
        """Make the target from ``get_config``, without training samples; its unit is reused for the same ones."""
        fitted = config.get("fitted", {})
        target = cls(**{key: value for key, value in config.items() if key != "fitted"})
        target.recall_ = fitted.get("recall")
        if "unit" in fitted:
            target.unit_, target._unit_of = float(fitted["unit"]), fitted["unit_of"]
        return target

    def _arguments(self, changes: dict[str, Any]) -> dict[str, Any]:
        strengths = ("repulsion_strength", "attraction_strength") if "gamma" in changes else ()
        kept = {key: value for key, value in self.get_params(deep=False).items() if key not in strengths}
        return kept | changes

    def __getstate__(self) -> dict[str, Any]:
        """State of copies and pickles: everything but the training samples and their latents."""
        return {**self.__dict__, "_samples": None, "_latest": {}, "_from_cache": False, "_training_key": None}


def _hard_labels(y: ArrayLike, num_classes: int | None, rows: int) -> tuple[NDArray[np.int64], int]:
    """Return class numbers [N] and the number of classes; raise for soft labels."""
    labels, n = check_labels(y, num_classes, rows=rows, soft=True)
    if labels.ndim == 1:
        return labels, n
    if (soft := np.any((labels != 0) & (labels != 1), axis=1)).any():
        row = int(np.argmax(soft))
        raise ValueError(
            f"y must name one class per sample for a distance target; found soft labels, row {row} is {labels[row]}. "
            "Targets made from labels alone take them ('vertices', 'ilr', 'dirichlet', 'one_hot'), and with any target "
            "losses that compare with labels alone, such as compile(loss='categorical_crossentropy')"
        )
    return labels.argmax(axis=1), n


# Generalized mapping from neighbor distances to coefficients of the vertices [CASIMAC Eq. 32-33]


def mean(distances: NDArray[np.float64]) -> NDArray[np.float64]:
    """Mean of each row: the repulsion of Eq. 6."""
    return distances.mean(axis=1)


def inverse_mean(distances: NDArray[np.float64]) -> NDArray[np.float64]:
    """1 / mean of each row: the attraction of Eq. 5."""
    return 1 / distances.mean(axis=1)


def per_count(function: Reduction, distances: NDArray[np.float64], name: str) -> NDArray[np.float64]:
    """Apply ``function`` to the finite values of every row of inf-padded distances [M, k]."""
    counts = np.isfinite(distances).sum(axis=1)
    values = np.empty(len(distances))
    for count in np.unique(counts):
        rows = counts == count
        values[rows] = checked(function, distances[rows, :count], name)
    return values


def checked(function: Reduction, argument: NDArray[np.float64], name: str) -> NDArray[np.float64]:
    """Return ``function(argument)``; raise unless it is one finite, non-negative value per row (Eq. 32-33)."""
    values = np.asarray(function(argument), dtype=np.float64)
    if values.shape != argument.shape[:1]:
        raise ValueError(f"{name} must return one value per row of {argument.shape}; found shape {values.shape}")
    wrong = ~(np.isfinite(values) & (values >= 0))
    if np.any(wrong):
        raise ValueError(f"{name} must return finite values that are not negative; found {values[np.argmax(wrong)]}")
    return values


def check_class_sizes(labels: NDArray[np.int64], num_classes: int, *, attraction: bool, repulsion: bool) -> None:
    """Raise ValueError if a class has too few samples: attraction needs two samples of each, repulsion one."""
    sizes = np.bincount(labels, minlength=num_classes)
    if repulsion and not np.all(sizes):
        raise ValueError(
            "every class needs samples, since latents are repelled by distances to each; found none of class "
            f"{listed(np.flatnonzero(sizes == 0), 10)} among num_classes={num_classes} in y. Renumber the "
            "others, or use a target made from labels alone (ILR, Dirichlet, OneHot, Vertices)"
        )
    if attraction and np.any(sizes == 1):
        raise ValueError(
            "attraction needs at least two samples of a class; found a single one of class "
            f"{listed(np.flatnonzero(sizes == 1), 10)}. Add samples, or set attraction_strength=0 (gamma=1)"
        )


def check_attraction(distances: NDArray[np.float64], labels: NDArray[np.int64]) -> None:
    """Raise ValueError if a sample has no neighbor in its class at positive distance: ``distances`` [N, k] are inf."""
    missing = np.flatnonzero(np.isinf(distances[:, 0]))
    if len(missing):
        raise ValueError(
            "attraction needs a sample in x of the same class at positive distance (Eq. 7a); found none for "
            f"{len(missing)} samples, the first at index {missing[0]} in class {labels[missing[0]]}, of which all "
            "others are copies. Remove copies, or set attraction_strength=0 (gamma=1)"
        )


def root_mean_square(latents: NDArray[np.float64]) -> float:
    """Root mean square of latents; 1 where all are 0, as for samples that lie in every class at once."""
    largest = float(np.abs(latents).max(initial=0.0))  # apart, since squares overflow where sizes do not
    return largest * float(np.sqrt(np.mean(np.square(latents / largest)))) if largest else 1.0


def strengths(repulsion: float, attraction: float, gamma: float | None) -> tuple[float, float]:
    """Return beta and alpha, of the two strengths or of gamma (Eq. 19)."""
    beta = check_number(repulsion, "repulsion_strength", least=0)
    alpha = check_number(attraction, "attraction_strength", least=0)
    if gamma is not None:
        if (beta, alpha) != (1.0, 0.0):
            raise ValueError(
                "gamma sets repulsion_strength=gamma and attraction_strength=1-gamma: give gamma or the strengths, "
                f"not both; found gamma={gamma!r}, repulsion_strength={repulsion!r}, attraction_strength={attraction!r}"
            )
        beta = check_number(gamma, "gamma", least=0, most=1)
        alpha = 1 - beta
    if alpha == 0 and beta == 0:
        raise ValueError("repulsion_strength and attraction_strength must not both be 0: every latent would be 0")
    return beta, alpha
