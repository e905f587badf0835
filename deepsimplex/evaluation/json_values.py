"""Results as strict JSON, and as aligned text."""

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np


def json_value(value: Any) -> Any:
    """Convert a value to what JSON can hold: NaN becomes None, infinity "Infinity", other objects their ``str``.

    Examples
    --------
    >>> json_value({"mean": float("nan"), "scores": (np.float32(0.5), np.inf)})
    {'mean': None, 'scores': [0.5, 'Infinity']}
    """
    if isinstance(value, Mapping):
        return {str(name): json_value(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [json_value(inner) for inner in value]
    value = value.item() if isinstance(value, np.generic) else value
    if isinstance(value, float) and not math.isfinite(value):
        return None if math.isnan(value) else ("Infinity" if value > 0 else "-Infinity")
    return value if value is None or isinstance(value, str | int | float | bool) else str(value)


def text_table(rows: Sequence[Sequence[str]]) -> str:
    """Align the cells of rows in columns: the first to the left, the others to the right.

    Examples
    --------
    >>> print(text_table([["accuracy", "0.9"], ["Brier score", "0.25"]]))
    accuracy      0.9
    Brier score  0.25
    """
    first, *others = (max(map(len, column)) for column in zip(*rows, strict=True))
    return "\n".join(
        "  ".join([head.ljust(first), *(cell.rjust(width) for cell, width in zip(cells, others, strict=True))])
        for head, *cells in rows
    )


class JSONResult:
    """Base class of results that are written as JSON."""

    def as_dict(self) -> dict[str, Any]:
        """Return the result as plain values."""
        raise NotImplementedError

    def to_json(self, indent: int | None = 2) -> str:
        """Return ``as_dict`` as strict JSON; infinity becomes the string "Infinity"."""
        return json.dumps(json_value(self.as_dict()), indent=indent, allow_nan=False)
