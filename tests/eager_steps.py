"""Run Keras models eagerly, which is faster than tracing for few steps."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def eagerly(model: Any) -> Iterator[None]:
    """Inside the block a compiled model runs eagerly; after it, its functions are traced anew, and saved as such."""
    _run_eagerly(model, True)
    try:
        yield
    finally:
        _run_eagerly(model, False)


def _run_eagerly(model: Any, eager: bool) -> None:
    model.run_eagerly = eager
    model.train_function = model.test_function = model.predict_function = None
