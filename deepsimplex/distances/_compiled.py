"""What the rooms' compiled kernels share. Importing this imports numba: do it inside the function that needs it."""

import threading
from collections.abc import Callable
from functools import wraps
from typing import Any

# numba's fallback threading layer ends the process when two Python threads run parallel kernels at the same time.
_one_kernel_at_a_time = threading.Lock()


def exclusive(kernel: Callable[..., Any]) -> Callable[..., Any]:
    """Let one thread at a time into a parallel kernel; it uses all cores by itself."""

    @wraps(kernel)
    def run(*arguments: Any, **options: Any) -> Any:
        with _one_kernel_at_a_time:
            return kernel(*arguments, **options)

    return run
