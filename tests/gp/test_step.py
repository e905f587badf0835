"""Steps of an optimization: their posteriors are theirs, and nobody else's."""

import numpy as np
import pytest

from deepsimplex.gp.step import tell


def test_a_posterior_is_made_while_the_callback_runs():
    made, steps = [], []

    def watch(step):
        steps.append(step)
        made.append(step.posterior())

    for iteration in (1, 2):
        tell(watch, iteration, 0.5, {"variance": np.array(1.0)}, f"POSTERIOR {iteration}".lower)
    assert made == ["posterior 1", "posterior 2"]
    assert [(step.iteration, step.objective, step.hyperparameters) for step in steps] == [
        (iteration, 0.5, {"variance": 1.0}) for iteration in (1, 2)
    ]
    for step in steps:
        with pytest.raises(RuntimeError, match=f"gone on since iteration {step.iteration}"):
            step.posterior()


def test_a_callback_that_fails_ends_its_step_too():
    steps = []

    def fail(step):
        steps.append(step)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        tell(fail, 7, 0.5, {}, lambda: "posterior")
    with pytest.raises(RuntimeError, match="gone on since iteration 7"):
        steps[0].posterior()
