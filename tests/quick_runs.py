"""Run experiments without figures, which take most of the time of a small run."""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from functools import partial, partialmethod

import pytest

from deepsimplex import SimplexClassifier
from deepsimplex.experiments import run_results, training_run
from deepsimplex.monitoring import CalibrationBoard


@contextmanager
def without_pictures(*, export: bool = True, eager: bool = False, saliency: bool = False) -> Iterator[None]:
    """Skip figures of runs, their saliency unless it is asked for, and on request the SavedModel or tracing.

    A few steps take less time eagerly than the tracing of the functions that train, validate and predict.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(training_run, "CalibrationBoard", partial(CalibrationBoard, pictures=False))
        patch.setattr(run_results, "_draw", lambda *arguments: None)
        if not saliency:
            patch.setattr(run_results, "explain_images", lambda *arguments: {})
        if not export:
            patch.setattr(SimplexClassifier, "export", lambda *arguments, **options: None)
        with eager_classifiers() if eager else nullcontext():
            yield


@contextmanager
def eager_classifiers() -> Iterator[None]:
    """Classifiers that are compiled inside the block run eagerly, and so do those loaded from their files."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SimplexClassifier, "compile", partialmethod(SimplexClassifier.compile, run_eagerly=True))
        yield
