"""Which pairs of images need their structural similarity evaluated."""

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from deepsimplex._utils.batching import parts
from deepsimplex._utils.progress import progress
from deepsimplex.distances import _ssim_kernels as kernels
from deepsimplex.distances.checkpoint import Checkpoint
from deepsimplex.distances.landmarks import (
    SAFETY,
    Coordinates,
    Projection,
    allowance,
    coordinates,
    number_of_landmarks,
    project,
)
from deepsimplex.distances.products import multiply
from deepsimplex.distances.screening import Side
from deepsimplex.distances.search import Search

# What similarities and their sums over bands are good to: five times the worst found on images made to be hard.
ERRORS = {"float32": 1e-3, "float64": 1e-9}
# Images whose coordinates are computed at a time, and whose rounding is measured.
_AT_ONCE = 512
_SAMPLE = 128
_SEED = 0


@dataclass(frozen=True)
class Comparison:
    """How images are compared: the arrays and constants that every kernel of the structural similarity wants.

    Attributes
    ----------
    images : ndarray, shape [N, H, P]
        Channels beside one another.
    queries : ndarray, shape [M, H, P]
        The same object as ``images`` where there are none.
    plan : Layout
    data_range, c1, c2, near : float
        Constants of the formula, and the distance below which float64 takes over.
    """

    images: NDArray[Any]
    queries: NDArray[Any]
    plan: kernels.Layout
    data_range: float
    c1: float
    c2: float
    near: float

    @property
    def packed_bytes(self) -> int:
        """Memory that a packed image takes."""
        plan = self.plan
        return (plan.height * plan.pixel_row + 2 * plan.rows * plan.window_row) * plan.dtype.itemsize

    def pack_images(self, indices: NDArray[np.int64]) -> kernels.Packed:
        """Prepare some of the images."""
        return kernels.pack(self.images, indices, self.data_range, self.plan)

    def pack_queries(self, indices: NDArray[np.int64]) -> kernels.Packed:
        """Prepare some of the queries."""
        return kernels.pack(self.queries, indices, self.data_range, self.plan)

    def similarities(self, rows: kernels.Packed, columns: kernels.Packed) -> NDArray[Any]:
        """What every band adds to the similarities, [bands, A, B], in the layout's precision."""
        shape = (len(self.plan.edges) - 1, len(rows.shifts), len(columns.shifts))
        out = np.empty(shape, self.plan.dtype)
        kernels.band_block(rows, columns, self.plan, kernels.scratch(self.plan), out)
        return out

    def distances(
        self, similarities: NDArray[Any], rows: NDArray[np.int64], columns: NDArray[np.int64]
    ) -> NDArray[np.float64]:
        """Distances [A, B] of queries and images from their bands' similarities."""
        return kernels.distance_block(
            similarities, self.near, self.queries, rows, self.images, columns,
            self.plan.window, self.plan.channels, self.c1, self.c2,
        )  # fmt: skip

    def pair_distances(self, rows: NDArray[np.int64], columns: NDArray[np.int64]) -> NDArray[np.float64]:
        """Distances [S] of queries and images, pair by pair."""
        queries, row_places = np.unique(rows, return_inverse=True)
        images, column_places = np.unique(columns, return_inverse=True)
        pairs = np.stack([row_places, column_places]).astype(np.int32)
        bounds = np.repeat(-self.fractions.astype(np.float32)[:, None], len(rows), axis=1)
        limits = np.full(len(rows), np.inf)
        packed = self.pack_queries(queries), self.pack_images(images)
        return self.evaluate(pairs, bounds, 0.0, limits, packed, (queries, images))

    def evaluate(
        self,
        pairs: NDArray[np.int32],
        bounds: NDArray[np.float32],
        slack: float,
        limits: NDArray[np.float64],
        packed: tuple[kernels.Packed, kernels.Packed],
        indices: tuple[NDArray[np.int64], NDArray[np.int64]],
    ) -> NDArray[np.float64]:
        """Distances [S] of pairs of packed queries and images; inf where ``bounds`` say that they exceed ``limits``."""
        return kernels.evaluate_pairs(
            pairs, bounds, slack, limits, *packed, self.plan, kernels.scratch(self.plan), self.near,
            self.queries, indices[0], self.images, indices[1], self.c1, self.c2,
        )  # fmt: skip

    @property
    def fractions(self) -> NDArray[np.float64]:
        """Which part of all windows each band holds."""
        return np.diff(self.plan.edges) / self.plan.rows

    def in_double(self) -> "Comparison":
        """The same in float64."""
        plan = self.plan
        double = kernels.layout(plan.height, plan.width, plan.window, plan.channels, len(plan.edges) - 1, np.float64)
        return replace(self, plan=double)


class _Tile(NamedTuple):
    """Some rows or columns, prepared: their indices, the packed images, and coordinates with r as a last one."""

    indices: NDArray[np.int64]
    packed: kernels.Packed
    z: NDArray[np.float32] | None


class StructuralScreen:
    """Scores by landmarks (``deepsimplex.distances.landmarks`` has the proof), evaluation band by band.

    Parameters
    ----------
    comparison : Comparison
    search : Search
    rows, columns : Side
        As ``deepsimplex.distances.screening.sides`` gives them. Where landmarks pay, the rows' lists begin with them.
    name : str
        Of the metric, shown beside the progress bar.
    checkpoint : Checkpoint
        Keeps the coordinates.
    """

    def __init__(
        self, comparison: Comparison, search: Search, rows: Side, columns: Side, name: str, checkpoint: Checkpoint
    ) -> None:
        self.comparison, self._rows, self._columns = comparison, rows, columns
        self.parts = len(comparison.plan.edges) - 1
        self.sample_bytes = comparison.packed_bytes
        self.slack = ERRORS[comparison.plan.dtype.name]
        self._row_coordinates: Coordinates | None = None
        self._column_coordinates: Coordinates | None = None
        images = len(columns.indices) + (0 if search.symmetric else len(rows.indices))
        count = number_of_landmarks(search.num_pairs, images)
        if count:
            places = np.sort(np.random.default_rng(_SEED).choice(len(columns.indices), count, replace=False))
            self._project(places, search, name, checkpoint)

    def _project(self, places: NDArray[np.int64], search: Search, name: str, checkpoint: Checkpoint) -> None:
        """Give every image its coordinates, and the rows the landmarks as their first neighbors."""
        rows, columns, comparison = self._rows, self._columns, self.comparison
        landmarks = comparison.pack_images(columns.indices[places])
        count = len(rows.indices) if search.symmetric else len(rows.indices) + len(columns.indices)
        state = checkpoint.load("landmarks")
        if state is None:
            projection, error = _subspaces(comparison, columns.indices[places], rows.indices)
            shape = (self.parts, count, projection.components)
            state = {
                "bases": projection.bases, "error": error, "done": np.array(0),
                "z": np.zeros(shape, np.float16), "r": np.zeros(shape[:2], np.float32),
                "distances": rows.distances, "nearest": rows.nearest,
            }  # fmt: skip
        else:
            rows.distances[...], rows.nearest[...] = state["distances"], state["nearest"]
            state |= {"distances": rows.distances, "nearest": rows.nearest}
        projection = Projection(state["bases"], comparison.fractions)
        products = (projection.components + 2) * 2.0**-24 * projection.fractions.sum()
        self.slack += float(allowance(state["error"], projection.fractions).sum() + products)
        first = int(state["done"])
        with progress(
            f"{name} landmarks", count * len(places), search.show_progress, unit="pairs", done=first * len(places)
        ) as advance:
            for side, offset in ((rows, 0),) if search.symmetric else ((rows, 0), (columns, len(rows.indices))):
                pack = comparison.pack_queries if side is rows else comparison.pack_images
                for part in parts(slice(max(first - offset, 0), len(side.indices)), _AT_ONCE):
                    similarities = comparison.similarities(pack(side.indices[part]), landmarks)
                    into = slice(part.start + offset, part.stop + offset)
                    state["z"][:, into], state["r"][:, into] = coordinates(similarities, projection, state["error"])
                    if side is rows:
                        self._seed(part, places, similarities, search)
                    state["done"] = np.array(into.stop)
                    advance((part.stop - part.start) * len(places))
                    checkpoint.keep("landmarks", state)
        if first < count:
            checkpoint.save("landmarks", state)
        first_column = count - len(columns.indices)
        self._row_coordinates = Coordinates(state["z"][:, : len(rows.indices)], state["r"][:, : len(rows.indices)])
        self._column_coordinates = Coordinates(state["z"][:, first_column:], state["r"][:, first_column:])

    def _seed(self, part: slice, places: NDArray[np.int64], similarities: NDArray[Any], search: Search) -> None:
        """Merge landmarks into the lists of some rows: their similarities are known anyway."""
        from deepsimplex.distances._selection_kernels import merge_landmarks

        rows, landmarks = self._rows[part], self._columns.indices[places]
        merge_landmarks(
            self.comparison.distances(similarities, rows.indices, landmarks), landmarks, self._columns.labels[places],
            rows.indices if search.symmetric else np.full(len(rows.indices), -1), rows.labels, rows.positive,
            search.classes != "other", search.classes != "own",
            rows.distances, rows.nearest,
        )  # fmt: skip

    def rows(self, positions: slice) -> _Tile:
        indices = self._rows.indices[positions]
        return _Tile(indices, self.comparison.pack_queries(indices), _wide(self._row_coordinates, positions))

    def columns(self, positions: slice) -> _Tile:
        indices = self._columns.indices[positions]
        return _Tile(indices, self.comparison.pack_images(indices), _wide(self._column_coordinates, positions))

    def score(self, rows: _Tile, columns: _Tile, out: NDArray[np.float32]) -> None:
        """Minus the most that every band may add to the similarity."""
        for band, fraction in enumerate(self.comparison.fractions):
            if rows.z is None or columns.z is None:
                out[band] = -fraction
            else:
                multiply(rows.z[band], columns.z[band], -1.0, out[band])

    def ceilings(self, tile: _Tile, limits: NDArray[np.float64]) -> NDArray[np.float32]:
        """d >= 1 + score - slack, so d <= limit needs a score of at most limit - 1 + slack."""
        # The last term: limits are rounded to float32.
        return (limits - 1.0 + self.slack + 1e-6).astype(np.float32)

    def evaluate(
        self, rows: _Tile, columns: _Tile, pairs: NDArray[np.int32], scores: NDArray[np.float32], limits: NDArray
    ) -> NDArray[np.float64]:
        from deepsimplex.distances._selection_kernels import parts_of

        return self.comparison.evaluate(
            pairs,
            parts_of(scores, pairs),
            self.slack + 1e-6,
            limits,
            (rows.packed, columns.packed),
            (rows.indices, columns.indices),
        )


def _wide(found: Coordinates | None, positions: slice) -> NDArray[np.float32] | None:
    """Coordinates in float32 with r as a last one, [bands, A, D + 1]."""
    if found is None:
        return None
    z, r = found.z[:, positions], found.r[:, positions]
    wide = np.empty((*z.shape[:2], z.shape[2] + 1), np.float32)
    wide[:, :, :-1], wide[:, :, -1] = z, r
    return wide


def _subspaces(
    comparison: Comparison, landmarks: NDArray[np.int64], queries: NDArray[np.int64]
) -> tuple[Projection, NDArray[np.float64]]:
    """Subspaces of the landmarks, and the error of coordinates in each, estimated on some of the queries and images."""
    exact = comparison.in_double()
    packed = exact.pack_images(landmarks)
    bases = project(exact.similarities(packed, packed), comparison.fractions)
    projection = Projection(bases.astype(np.float32), comparison.fractions)
    rounded_landmarks = comparison.pack_images(landmarks)
    rng = np.random.default_rng(_SEED)
    some = rng.choice(queries, min(_SAMPLE, len(queries)), replace=False)
    others = rng.choice(len(comparison.images), min(_SAMPLE, len(comparison.images)), replace=False)
    error = np.zeros(len(bases))
    for true, rounded in (
        (exact.pack_queries(some), comparison.pack_queries(some)),
        (exact.pack_images(others), comparison.pack_images(others)),
    ):
        similarities = comparison.similarities(rounded, rounded_landmarks)
        z = coordinates(similarities, projection, np.zeros(len(bases))).z.astype(np.float64)
        for band, kernel in enumerate(exact.similarities(true, packed)):
            error[band] = max(error[band], SAFETY * np.linalg.norm(z[band] - kernel @ bases[band], axis=1).max())
    return projection, error
