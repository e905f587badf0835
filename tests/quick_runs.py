"""Runs of experiments without the pictures that take most of the time of a small one."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import pytest

from deepsimplex import SimplexClassifier
from deepsimplex.experiments import commands
from deepsimplex.monitoring import CalibrationBoard


@contextmanager
def without_pictures(*, export: bool = True) -> Iterator[None]:
    """Runs inside the block draw nothing, and export no SavedModel if told so."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(commands, "CalibrationBoard", partial(CalibrationBoard, pictures=False))
        patch.setattr(commands, "_draw", lambda *arguments: None)
        if not export:
            patch.setattr(SimplexClassifier, "export", lambda *arguments, **options: None)
        yield
