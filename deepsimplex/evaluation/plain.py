"""Results of this room as JSON: one way for all."""

import json
import math
from collections.abc import Mapping
from typing import Any

import numpy as np


def plain(value: Any) -> Any:
    """A value as JSON knows it: NaN becomes None, infinity the text "Infinity", what JSON has no word for its text."""
    if isinstance(value, Mapping):
        return {str(name): plain(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [plain(inner) for inner in value]
    value = value.item() if isinstance(value, np.generic) else value
    if isinstance(value, float) and not math.isfinite(value):
        return None if math.isnan(value) else ("Infinity" if value > 0 else "-Infinity")
    return value if value is None or isinstance(value, str | int | float | bool) else str(value)


def as_json(fields: Mapping[str, Any], indent: int | None) -> str:
    """Fields by name as JSON that any reader takes."""
    return json.dumps(plain(fields), indent=indent, allow_nan=False)
