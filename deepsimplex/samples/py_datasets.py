"""``keras.utils.PyDataset`` of converted batches, and of batches in memory."""

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
from numpy.typing import NDArray


class ConvertedPyDataset(keras.utils.PyDataset):
    """A PyDataset with a function applied to its batches, in an order of every epoch, or of every pass if repeated.

    Nothing is drawn as an epoch begins: Keras' workers have started then, and those in processes see no change.
    """

    def __init__(
        self,
        dataset: keras.utils.PyDataset,
        convert: Callable[[Any], Any],
        order: Callable[..., NDArray[np.int64]] | None = None,
        repeated: bool = False,
    ) -> None:
        super().__init__(
            workers=dataset.workers,
            use_multiprocessing=dataset.use_multiprocessing,
            max_queue_size=dataset.max_queue_size,
        )
        self.dataset, self.convert, self.order, self.repeated = dataset, convert, order, repeated

    @property
    def num_batches(self) -> int | None:
        """Number of batches of an epoch, None for an endless data set."""
        return None if self.repeated else self.dataset.num_batches

    def __getitem__(self, index: int) -> Any:
        batches = self.dataset.num_batches
        if batches is not None:
            number, index = divmod(index, batches)
            if self.order is not None:
                index = int(self.order(batches, *([number] if self.repeated else []))[index])
        return self.convert(self.dataset[index])

    def on_epoch_begin(self) -> None:
        """Call the data set's own ``on_epoch_begin``."""
        self.dataset.on_epoch_begin()

    def on_epoch_end(self) -> None:
        """Call the data set's own ``on_epoch_end``."""
        self.dataset.on_epoch_end()


class HeldBatches(keras.utils.PyDataset):
    """A PyDataset of batches that are held in memory."""

    def __init__(self, batches: list[Any]) -> None:
        super().__init__()
        self.batches = batches

    def __len__(self) -> int:
        return len(self.batches)

    def __getitem__(self, index: int) -> Any:
        return self.batches[index]
