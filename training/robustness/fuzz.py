"""Odd arguments: each call gives a result without NaN, or an error of deepsimplex that names the argument.

    python -m training.robustness.fuzz [--inputs 20000] [--seed 0] [--only TEXT] [--output FILE.json]

The public functions and classes of every room are called with valid arguments of which one or two are odd: NaN,
infinity, numbers out of every range, texts, None, complex, masked, ragged and empty arrays, wrong ranks and widths. A
refusal counts if deepsimplex raised it, or scikit-learn's validation on its behalf, and it names one of the odd
arguments. A NaN in a result counts unless it is documented. Calls of more than 20 seconds are errors.
"""

import dataclasses
import re
import resource
import signal
import sys
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any

import keras
import numpy as np
import typer

import deepsimplex as ds
from deepsimplex._utils.progress import progress
from training.results import Output, ResultTable
from training.robustness.odd_values import odd
from training.robustness.public_calls import ALIASES, ROOMS, Call

PACKAGE = Path(ds.__file__).parent
OUTCOMES = ("result", "refused by name", "error from inside", "silent NaN")
SECONDS = 20
BYTES = 2**33
"""Limit of the process' memory: an array of an unchecked size raises MemoryError."""


def numbers(value: Any, depth: int = 0) -> Iterator[np.ndarray]:
    """Yield every floating array and number in a result."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        value = [getattr(value, field.name, None) for field in dataclasses.fields(value)]
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list | tuple):
        for one in value if depth < 5 else ():
            yield from numbers(one, depth + 1)
    elif isinstance(value, float | np.ndarray | np.generic) or hasattr(value, "numpy"):
        try:
            array = np.asarray(value.numpy() if hasattr(value, "numpy") else value)
        except (TypeError, ValueError, NotImplementedError, AttributeError):
            return
        if array.dtype.kind in "fc":
            yield array


def names(call: Call, argument: str, message: str) -> bool:
    """Return whether a message names an argument, or the file or parts that it refers to."""
    known = (argument, *call.aliases.get(argument, ()), *ALIASES.get(argument, ()))
    return any(re.search(rf"(?<![A-Za-z0-9]){re.escape(name)}(?![A-Za-z0-9])", message) for name in known)


def _stop(number: int, frame: Any) -> None:
    raise TimeoutError(f"more than {SECONDS} seconds")


def outcome(call: Call, arguments: dict[str, Any], changed: list[str]) -> tuple[str, str]:
    """Make a call; return the outcome, and a line about it that is the same for the same cause."""
    signal.alarm(SECONDS)
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            result = call.function(**arguments)
        signal.alarm(0)
    except Exception as error:
        signal.alarm(0)
        frames = traceback.extract_tb(error.__traceback__)
        raised = Path(frames[-1].filename)
        clear = PACKAGE in raised.parents or "sklearn/utils" in str(raised)
        clear = clear and isinstance(error, ValueError | TypeError | OSError | NotImplementedError)
        if clear and any(names(call, name, str(error)) for name in changed):
            return OUTCOMES[1], ""
        ours = next((frame for frame in reversed(frames) if PACKAGE in Path(frame.filename).parents), frames[-1])
        where = f"{ours.filename.removeprefix(str(PACKAGE.parent) + '/')}:{ours.lineno}"
        return OUTCOMES[2], f"{type(error).__name__} from {raised.name} at {where}: {str(error)[:300]}"
    finally:
        signal.alarm(0)
    if not call.gives_nan and any(np.isnan(array).any() for array in numbers(result)):
        return OUTCOMES[3], f"in the {type(result).__name__}"
    return OUTCOMES[0], ""


def fuzz(
    room: str, calls: list[Call], inputs: int, seed: int, advance: Callable[[float], None], report: set[str]
) -> Counter[str]:
    """Draw odd arguments for the calls of a room and count the outcomes; each failure is printed once."""
    turns = [call for call in calls for _ in range(1 if call.slow else 8)]
    counts: Counter[str] = Counter()
    for call in calls:  # valid arguments give results
        result, text = outcome(call, call.valid(), [])
        if result != OUTCOMES[0]:
            raise RuntimeError(f"{room}.{call.name} with valid arguments: {result}, {text}")
    for number in range(inputs):
        rng = np.random.default_rng([seed, number, *room.encode()])
        call = turns[number % len(turns)]
        arguments = call.valid()
        changed = rng.choice(sorted(arguments), size=min(len(arguments), rng.choice([1, 1, 2])), replace=False).tolist()
        written = []
        for name in changed:
            text, arguments[name] = odd(name, arguments[name], rng)
            written.append(f"{name}={text}")
        result, text = outcome(call, arguments, changed)
        counts[result] += 1
        cause = result + (text.split(": ")[0] if result == OUTCOMES[2] else f"{call.name} {changed}")
        if result in OUTCOMES[2:] and cause not in report:
            report.add(cause)
            print(f"{result}, {room} {number}: {call.name}({', '.join(written)}): {text}", file=sys.stderr, flush=True)
        if number % 200 == 0:
            keras.backend.clear_session()
        advance(1)
    return counts


def main(
    inputs: Annotated[int, typer.Option(help="calls with odd arguments, at least")] = 20000,
    seed: Annotated[int, typer.Option(help="of the odd arguments")] = 0,
    only: Annotated[str, typer.Option(help="rooms whose name holds this text")] = "",
    output: Output = None,
) -> None:
    """Call every room with odd arguments, and print the counts of the outcomes."""
    resource.setrlimit(resource.RLIMIT_DATA, (BYTES, BYTES))
    signal.signal(signal.SIGALRM, _stop)
    keras.config.disable_traceback_filtering()
    keras.utils.set_random_seed(0)
    rooms = {room: make() for room, make in ROOMS.items() if only in room}
    shares = {room: sum(1 if call.slow else 8 for call in calls) for room, calls in rooms.items()}
    each = {room: -(-inputs * share // sum(shares.values())) for room, share in shares.items()}
    table, report = ResultTable("training.robustness.fuzz"), set[str]()
    with progress("odd arguments", sum(each.values()), True, unit="calls") as advance:
        for room, number in each.items():
            counts = fuzz(room, rooms[room], number, seed, advance, report)
            table.add(room=room, inputs=number, **{what: counts[what] for what in OUTCOMES})
            table.write(output)  # after every room: an interrupted run keeps its rows


if __name__ == "__main__":
    typer.run(main)
