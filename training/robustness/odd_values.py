"""Odd arguments: scalars, texts and containers of every kind, and changed arrays."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

WORK = {
    *("epochs", "max_iter", "resamples", "n_restarts", "num_points", "repulsion_number", "attraction_number", "k"),
    *("num_samples", "n_components", "hidden", "units", "filters", "blocks", "kernel_size", "image_size", "columns"),
    *("resolution", "num_classes", "n", "latent_dim", "inducing", "prototypes_per_class", "block_bytes", "number"),
    *("iterations", "rank", "top", "bins", "depth", "cv", "strides", "window", "shape", "steps"),
}
"""Arguments that determine the amount of computation: enormous values are valid, and take long."""

CALLABLES = {"activation", "attraction_function", "distance", "function", "identifier", "metric", "variance"}
"""Arguments that take functions, whose errors are the caller's."""
ENORMOUS = (10**9, 2**62, np.int64(2**40), 1e308, 10**400)
SCALARS: tuple[Any, ...] = (
    *(float("nan"), float("inf"), -float("inf"), 0, 0.0, -1, -1.0, 1, 2, 3, 0.5, 1.5, 1e-308, 1j),
    *(None, True, False, "", "much", "3", "0.5", "auto", "nan", "\0", b"ab", Path("nowhere")),
    *(np.int64(3), np.uint8(2), np.float32(0.5), np.float16(0.5), np.float64("nan"), np.bool_(True), np.str_("a")),
    *(np.array(3), np.array(0.5), np.array("a"), np.zeros(0), np.zeros((0, 3)), np.zeros((2, 0)), np.zeros((1, 1, 1))),
    *([], (), {}, set(), [None], [[0], [0, 1]], [[0.5, 0.5], [1.0]], ["a", "b"], [0, 1], [1, 2], [1, "a"], [0.5, 1.5]),
    *({"loc": 1}, {"name": "much"}, {1: 2}, {"a": None}, range(3), slice(2), object(), int, len, 3 + 0j),
    *(np.datetime64("2020-01-01"), np.ma.masked, np.random.default_rng(0), lambda x: None),
)


def _replaced(array: np.ndarray, value: Any) -> np.ndarray:
    """Return a change that replaces the last entry of the first row, in at least single precision."""
    fresh = np.array(array, dtype=object if array.dtype.kind not in "biuf" else np.promote_types(array.dtype, "f4"))
    if fresh.size:
        fresh.reshape(len(fresh) if fresh.ndim else 1, -1)[0, -1] = value
    return fresh


def _masked(array: np.ndarray) -> np.ndarray:
    return np.ma.masked_array(array, mask=np.arange(array.size).reshape(array.shape) == 1)


def _read_only(array: np.ndarray) -> np.ndarray:
    fresh = array.copy()
    fresh.flags.writeable = False
    return fresh


def _objects(array: np.ndarray, value: Any) -> np.ndarray:
    fresh = array.astype(object)
    if fresh.size:
        fresh.flat[0] = value
    return fresh


def _overflowing(array: np.ndarray, dtype: str, factor: float) -> np.ndarray:
    with np.errstate(all="ignore"):
        return array.astype(dtype) * np.asarray(factor, dtype)


NUMERIC: dict[str, Callable[[np.ndarray], Any]] = {
    "NaN inside": lambda a: _replaced(a, np.nan),
    "inf inside": lambda a: _replaced(a, np.inf),
    "-inf inside": lambda a: _replaced(a, -np.inf),
    "-1 inside": lambda a: _replaced(a, -1),
    "1e30 inside": lambda a: _replaced(a, 1e30),
    "1e308 inside": lambda a: _replaced(a.astype(float), 1e308),
    "times 1e308": lambda a: _overflowing(a, "float64", 1e308),
    "times 1e-308": lambda a: _overflowing(a, "float64", 1e-308),
    "times 1e-40": lambda a: _overflowing(a, "float64", 1e-40),
    "times 1e30": lambda a: _overflowing(a, "float64", 1e30),
    "times 1e6 in half": lambda a: _overflowing(a, "float16", 1e6),
    "zeros": lambda a: 0 * a,
    "ones": lambda a: 0 * a + 1,
    "negative": lambda a: -1 * a.astype(float),
    "plus 0.5": lambda a: a + 0.5,
    "half": lambda a: a.astype("float16"),
    "single": lambda a: a.astype("float32"),
    "double": lambda a: a.astype("float64"),
    "long double": lambda a: a.astype("longdouble"),
    "whole": lambda a: a.astype("int64"),
    "bytes": lambda a: a.astype("uint8"),
    "booleans": lambda a: a.astype(bool),
    "complex": lambda a: a.astype(complex),
    "imaginary": lambda a: a * 1j,
    "dates": lambda a: a.astype("int64").astype("datetime64[s]"),
}
ANY: dict[str, Callable[[np.ndarray], Any]] = {
    "masked": _masked,
    "read only": _read_only,
    "objects": lambda a: a.astype(object),
    "None inside": lambda a: _objects(a, None),
    "text inside": lambda a: _objects(a, "much"),
    "list inside": lambda a: _objects(a, "3"),
    "texts": lambda a: a.astype(str),
    "byte strings": lambda a: a.astype(str).astype("S"),
    "empty": lambda a: a[:0] if a.ndim else a,
    "one row": lambda a: a[:1] if a.ndim else a,
    "row less": lambda a: a[:-1] if a.ndim else a,
    "row more": lambda a: np.concatenate([a, a[-1:]]) if a.ndim else a,
    "column less": lambda a: a[..., :-1] if a.ndim else a,
    "column more": lambda a: np.concatenate([a, a[..., -1:]], axis=-1) if a.ndim else a,
    "no columns": lambda a: a[..., :0] if a.ndim else a,
    "one column": lambda a: a[..., :1] if a.ndim else a,
    "axis more": lambda a: a[..., np.newaxis],
    "axis before": lambda a: a[np.newaxis],
    "flat": lambda a: a.ravel(),
    "first row": lambda a: a[0] if a.ndim and len(a) else a,
    "0-d": lambda a: a.ravel()[0] if a.size else a,
    "transposed": lambda a: a.T,
    "backwards": lambda a: a[::-1],
    "list": lambda a: a.tolist(),
    "tuple": lambda a: tuple(a.tolist()) if a.ndim else (a.item(),),
    "ragged": lambda a: [*a[:-1].tolist(), [0]] if a.ndim else [[0], []],
    "dict": lambda a: {"x": a},
    "generator": lambda a: (row for row in np.atleast_1d(a)),
    "swapped bytes": lambda a: a.astype(a.dtype.newbyteorder()),
}


def odd(name: str, value: Any, rng: np.random.Generator) -> tuple[str, Any]:
    """Return an odd value in place of a valid one, after its text."""
    if isinstance(value, dict) and value and name != "histories" and rng.random() < 0.7:  # of arrays
        key = rng.choice(sorted(value))
        text, inside = odd(key, value[key], rng)
        return f"{{..., {key!r}: {text}}}", value | {key: inside}
    if isinstance(value, np.ndarray | list | tuple) and not hasattr(value, "_fields") and rng.random() < 0.75:
        try:
            array: np.ndarray = np.asarray(value)
        except ValueError:  # ragged
            array = np.array(value, dtype=object)
        known = ANY | (NUMERIC if array.dtype.kind in "biuf" else {})
        known = {made: change for made, change in known.items() if (name, made) != ("x", "generator")}  # a stream
        made = list(known)[rng.integers(len(known))]
        with np.errstate(all="ignore"):
            return f"<{made}>", known[made](array)
    pool = [one for one in SCALARS if name not in CALLABLES or not callable(one)]
    pool += [] if name in WORK else [*ENORMOUS, *ENORMOUS]
    value = pool[rng.integers(len(pool))]
    return f"{value!r:.60}", value
