"""Moments of a network's features over training samples, for predictions as an epoch ends."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import keras
import numpy as np
from numpy.typing import NDArray

from deepsimplex._utils.batching import num_rows, row_slices
from deepsimplex.heads.features import as_arrays, compute_features
from deepsimplex.samples import Samples
from deepsimplex.samples.reservoir import Reservoir, take

# Samples whose features are computed, those at once, and bytes of samples that are kept of a stream.
ROWS, _BATCH, _MEMORY = 512, 64, 2**25


class FeatureMoments(keras.callbacks.Callback):
    """Normalize features by their moments over training samples, before validation and other callbacks of an epoch.

    Moving averages lag behind features that a step moves by much of their deviation: with a constant learning rate and
    few steps in an epoch, class probabilities would be those of a network of some steps ago.

    Parameters
    ----------
    rows : callable
        Returns an iterable of batches of training samples, the same ones in every epoch.
    backbone : keras.layers.Layer or None
        From samples to features [N, d]; None if samples are features.
    """

    def __init__(self, rows: Callable[[], Iterable[Any]], backbone: keras.layers.Layer | None) -> None:
        super().__init__()
        self.rows, self.backbone = rows, backbone
        self._step: int | None = None  # of the optimizer, whose moments are set

    def on_test_begin(self, logs: Any = None) -> None:
        """Set the moments before validation."""
        self.update()

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Set the moments, unless validation has."""
        self.update()

    def update(self) -> None:
        """Set the moments of the head, once after a step."""
        step = int(self.model.optimizer.iterations.numpy())
        if step == self._step:
            return
        self._step = step

        def features() -> dict[str, NDArray[np.float64]]:
            parts = [compute_features(x, self.backbone) for x in self.rows()]
            return {"features": np.concatenate(parts)} if parts else {}

        for computed in self.model._workers.from_chief(features).values():
            self.model.head.set_feature_moments(computed)


def drawn_batches(samples: Samples, seed: int) -> Callable[[], Iterator[Any]]:
    """Draw rows of arrays by their positions, and return a function that reads them in batches.

    Examples
    --------
    >>> samples = Samples.of(np.arange(4.0), np.zeros(4, int))
    >>> sorted(np.concatenate([*drawn_batches(samples, seed=0)()]).tolist())
    [0.0, 1.0, 2.0, 3.0]
    """
    order = np.sort(np.random.default_rng(seed).permutation(samples.num_rows)[:ROWS])
    return lambda: (as_arrays(take(samples.columns, order[part])[0]) for part in row_slices(len(order), _BATCH))


class KeptRows:
    """Rows of a stream that are kept as it is read: as many as fit into 32 MB, at most 512; none of several shapes.

    Parameters
    ----------
    seed : int

    Examples
    --------
    >>> kept = KeptRows(seed=0)
    >>> [len(x) for x, y in kept.keep([(np.ones((3, 2)), [0, 1, 1]), (np.ones((2, 2)), [0, 1])])]
    [3, 2]
    >>> [len(x) for x in kept()]
    [5]
    """

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self._reservoir: Reservoir | None = None
        self._shapes: list[Any] = []

    def keep(self, batches: Iterable[tuple[Any, ...]]) -> Iterator[tuple[Any, ...]]:
        """Yield batches (x, ...) and keep rows of x."""
        for batch in batches:
            leaves = keras.tree.flatten(x := as_arrays(batch[0]))
            if shapes := [leaf.shape[1:] for leaf in leaves if isinstance(leaf, np.ndarray)]:
                if not self._shapes:
                    size = max(sum(leaf.nbytes for leaf in leaves) / max(num_rows(x), 1), 1)
                    self._shapes, self._reservoir = shapes, Reservoir(int(np.clip(_MEMORY / size, 1, ROWS)), self.seed)
                if shapes != self._shapes:
                    self._reservoir = None
                if self._reservoir is not None:
                    self._reservoir.add((x,))
            yield batch

    def __call__(self) -> Iterator[Any]:
        """Return the kept rows in batches."""
        if self._reservoir is None:
            return iter(())
        (x,), rows, _ = self._reservoir.drawn()
        return (take((x,), part)[0] for part in row_slices(len(rows), _BATCH))
