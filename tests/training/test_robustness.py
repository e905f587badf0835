"""Public functions are called with the arguments of their signatures, and refuse odd ones by name."""

import pytest

from training.robustness.fuzz import OUTCOMES, fuzz, outcome
from training.robustness.public_calls import ROOMS

LONG = {"estimators", "classifier", "distances"}


@pytest.mark.parametrize(
    ("room", "member"), [("geometry", "closure"), ("evaluation", "report"), ("metrics", "BrierScore")]
)
def test_odd_arguments_raise(room, member):
    calls = ROOMS[room]()
    assert member in {call.name for call in calls}
    counts = fuzz(room, calls, 30, seed=0, advance=lambda number: None, report=set())
    assert counts[OUTCOMES[1]] > 10
    assert counts[OUTCOMES[2]] + counts[OUTCOMES[3]] == 0


@pytest.mark.parametrize("room", [pytest.param(room, marks=[pytest.mark.slow] * (room in LONG)) for room in ROOMS])
@pytest.mark.filterwarnings("ignore")
def test_valid_arguments_give_results(room):
    outcomes = {call.name: outcome(call, call.valid(), []) for call in ROOMS[room]()}
    assert {name: text for name, (result, text) in outcomes.items() if result != OUTCOMES[0]} == {}
