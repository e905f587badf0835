"""Count the package's functions that a call of its public interface runs through.

For every call the table has the number of different functions of the package that it calls (code objects: methods,
inner functions and lambdas too, but no comprehensions), the number of files they lie in, the deepest nesting of frames
of the package, and the number of calls in all. Each call is the first of its kind in a process, so that what is traced
or computed once is counted; predictions are those of a trained model. TensorFlow's and Keras' functions are not.

    python -m training.call_counts                            # the table
    python -m training.call_counts "predict_proba" --names    # the functions of one call, file by file
"""

import argparse
import inspect
import os
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np

import deepsimplex as ds

PACKAGE = str(Path(ds.__file__).parent) + os.sep


@dataclass
class CallCounts:
    """Functions of the package that were called.

    Attributes
    ----------
    calls : Counter
        Number of calls of every code object.
    deepest : int
        Largest number of frames of the package on a thread's stack at once.
    """

    calls: Counter[CodeType] = field(default_factory=Counter)
    deepest: int = 0

    @property
    def files(self) -> dict[str, list[CodeType]]:
        """The functions of every file, in the order of their lines."""
        files: dict[str, list[CodeType]] = {}
        for code in sorted(self.calls, key=lambda code: (code.co_filename, code.co_firstlineno)):
            files.setdefault(code.co_filename.removeprefix(PACKAGE), []).append(code)
        return files

    def __str__(self) -> str:
        return f"{len(self.calls):9} | {len(self.files):5} | {self.deepest:7} | {sum(self.calls.values()):5}"


def _is_counted(code: CodeType) -> bool:
    comprehension_or_module = code.co_name.startswith("<") and code.co_name != "<lambda>"
    is_function = bool(code.co_flags & inspect.CO_OPTIMIZED)  # which bodies of classes are not
    return is_function and not comprehension_or_module and code.co_filename.startswith(PACKAGE)


@contextmanager
def counted() -> Any:
    """Count the calls within the block, on all threads; yield the ``CallCounts``."""
    counts, depths = CallCounts(), threading.local()

    def profile(frame: FrameType, event: str, argument: Any) -> None:
        if event not in ("call", "return") or not _is_counted(frame.f_code):
            return
        depth = getattr(depths, "depth", 0)
        if event == "call":
            counts.calls[frame.f_code] += 1
            depths.depth = depth + 1
            counts.deepest = max(counts.deepest, depth + 1)
        else:  # a frame that was entered before the block began has no call
            depths.depth = max(0, depth - 1)

    threading.setprofile(profile)
    sys.setprofile(profile)
    try:
        yield counts
    finally:
        sys.setprofile(None)
        threading.setprofile(None)


def _count(function: Callable[[], Any]) -> CallCounts:
    with counted() as counts:
        function()
    return counts


def measurements() -> dict[str, Callable[[], CallCounts]]:
    """The measured calls, by their names; each prepares what it needs outside of the count."""
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(64, 4)).astype("float32"), np.arange(64) % 3
    latent = ds.LatentGaussian(rng.normal(size=(8, 2)), np.full((8, 1), 0.5))
    vertices = ds.geometry.vertices(3)

    def model(**options: Any) -> Any:
        return ds.SimplexClassifier(ds.backbones.mlp([8]), num_classes=3, **options)

    def fit(**options: Any) -> CallCounts:
        fresh = model(**options)

        def compile_and_fit() -> None:
            fresh.compile()
            fresh.fit(x, y, epochs=1, verbose=0)

        return _count(compile_and_fit)

    def predict() -> CallCounts:
        trained = model()
        trained.compile()
        trained.fit(x, y, epochs=1, verbose=0)
        return _count(lambda: trained.predict_proba(x))

    def fit_process() -> CallCounts:
        process = ds.SimplexGaussianProcess()
        return _count(lambda: process.fit(x, y))

    def predict_process() -> CallCounts:
        process = ds.SimplexGaussianProcess().fit(x, y)
        return _count(lambda: process.predict_proba(x))

    return {
        "compile + fit, default": fit,
        "compile + fit, vertices": lambda: fit(target="vertices"),
        "predict_proba": predict,
        "SimplexGaussianProcess.fit": fit_process,
        "SimplexGaussianProcess.predict_proba": predict_process,
        "readout.argmax(arrays)": lambda: _count(lambda: ds.readout.argmax(latent, vertices)),
    }


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("call", nargs="?", help="one call of the table. Default: all, each in a process of its own")
    parser.add_argument("--names", action="store_true", help="list the functions, with their numbers of calls")
    arguments = parser.parse_args()
    calls = measurements()
    if arguments.call is None:  # in fresh processes, so that values cached by one call are computed in the next
        print(f"{'call':36} | functions | files | deepest | calls", flush=True)
        for name in calls:
            options = ["--names"] if arguments.names else []
            subprocess.run([sys.executable, "-m", "training.call_counts", name, *options], check=True)
        return
    counts = calls[arguments.call]()
    print(f"{arguments.call:36} | {counts}")
    for file, codes in counts.files.items() if arguments.names else ():
        print(f"  {file} ({len(codes)})")
        for code in codes:
            print(f"    {code.co_firstlineno:4} {code.co_qualname}: {counts.calls[code]}")


if __name__ == "__main__":
    main()
