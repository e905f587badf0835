"""Public functions are called with the arguments of their signatures, and refuse odd ones by name."""

import pytest

from training.robustness.fuzz import OUTCOMES, fuzz
from training.robustness.public_calls import ROOMS


@pytest.mark.parametrize(
    ("room", "member"), [("geometry", "closure"), ("evaluation", "report"), ("metrics", "BrierScore")]
)
def test_odd_arguments_raise(room, member):
    calls = ROOMS[room]()
    assert member in {call.name for call in calls}
    counts = fuzz(room, calls, 30, seed=0, advance=lambda number: None, report=set())
    assert counts[OUTCOMES[1]] > 10
    assert counts[OUTCOMES[2]] + counts[OUTCOMES[3]] == 0
