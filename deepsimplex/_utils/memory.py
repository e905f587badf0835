"""Whether arrays fit into the memory of this machine."""

import math
import os
from pathlib import Path

# Limits of containers, in the two versions of Linux' control groups.
_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")


def memory_size() -> float:
    """Return the bytes of memory that this process can have at most; infinite where that cannot be known.

    Examples
    --------
    >>> memory_size() > 2**20
    True
    """
    sizes = [math.inf]
    if hasattr(os, "sysconf"):  # not on Windows
        sizes.append(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    for path in map(Path, _LIMITS):
        text = path.read_text().strip() if path.is_file() else "max"
        sizes.append(math.inf if text == "max" else float(text))
    return min(sizes)


def check_memory(numbers: float, purpose: str, hint: str) -> None:
    """Raise MemoryError if arrays of so many numbers in double precision are larger than the memory.

    Examples
    --------
    >>> check_memory(12 * 100**2, "inference='exact' with 100 rows X", "use inference='stochastic'")
    """
    needed, size = 8.0 * numbers / 1e9, memory_size() / 1e9
    if needed > size:
        raise MemoryError(f"{purpose} needs {needed:,.0f} GB of memory; found {size:,.0f} GB: {hint}")
