"""Decision function of two classes: values, and unusual input."""

import numpy as np
import pytest
import tensorflow as tf

from deepsimplex.geometry import vertices
from deepsimplex.readout import decision_function


def test_decision_function_depends_on_means_and_keeps_dtype():
    loc = np.random.default_rng(0).normal(size=(6, 3)).astype("float32")
    first = decision_function({"loc": loc, "scale": np.ones((6, 1), "float32")}, 1, 3)
    assert first.shape == (6,)
    assert first.dtype == np.float32
    for scale in (np.zeros((6, 3)), np.zeros((6, 3, 3))):
        np.testing.assert_array_equal(decision_function({"loc": loc, "scale": scale}, 1, 3), first)
    assert decision_function({"loc": loc[:0], "scale": np.ones((0, 1))}, 1, 3).shape == (0,)


def test_swapping_classes_changes_sign():
    latent = {"loc": np.random.default_rng(1).normal(size=(6, 3)), "scale": np.ones((6, 1))}
    np.testing.assert_array_equal(decision_function(latent, 0, 2), -decision_function(latent, 2, 0))


def test_nan_raises_in_arrays_and_propagates_in_tensors():
    loc = np.array([[0.1, 0.2], [np.nan, 0.0], [0.3, 0.4]])
    with pytest.raises(ValueError, match="loc must be finite; found NaN"):
        decision_function({"loc": loc, "scale": np.ones((3, 1))}, 0, 1)
    distances = decision_function({"loc": tf.constant(loc), "scale": tf.ones((3, 1))}, 0, 1)
    np.testing.assert_array_equal(np.isnan(distances), [False, True, False])


@pytest.mark.parametrize(
    ("loc", "scores", "message"),
    [
        (np.zeros(3), None, r"loc must.*found \(3,\)"),
        (np.zeros((2, 3)), np.eye(4), r"scores must.*found \(4, 4\)"),
        (np.zeros((2, 3)), np.full((4, 3), np.inf), "scores must be finite"),
    ],
)
def test_mismatched_shapes_raise(loc, scores, message):
    with pytest.raises(ValueError, match=message):
        decision_function({"loc": loc, "scale": np.ones((2, 1))}, 0, 1, scores)


@pytest.mark.parametrize(
    ("j", "k", "message"),
    [
        (-1, 0, r"^j must.*found -1"),
        (0, 4, r"^k must.*found 4"),
        (0.5, 1, r"^j must.*found 0\.5"),
        (0, float("nan"), r"^k must.*found nan"),
    ],
)
def test_classes_outside_of_range_raise(j, k, message):
    with pytest.raises(ValueError, match=message):
        decision_function({"loc": np.zeros((2, 3)), "scale": np.ones((2, 1))}, j, k)


@pytest.mark.parametrize("construction", ["iterative", "helmert"])
def test_decision_function_is_the_signed_distance_from_the_boundary(construction):
    P = vertices(4, construction)
    # On the edge between two vertices, the boundary is its midpoint and the distance that to the midpoint.
    edge = P[2] - P[1]
    loc = (P[1] + P[2]) / 2 + np.array([[-0.3], [0.0], [0.25]]) * edge / np.linalg.norm(edge)
    latent = {"loc": loc, "scale": np.ones((3, 1))}
    np.testing.assert_allclose(decision_function(latent, 2, 1, P), [-0.3, 0.0, 0.25], atol=1e-15)
    tensors = {key: tf.constant(value) for key, value in latent.items()}
    np.testing.assert_allclose(decision_function(tensors, 1, 2, P), [0.3, 0.0, -0.25], atol=1e-15)


@pytest.mark.parametrize(
    ("j", "k", "message"), [(0, 3, r"^k must.*found 3"), (1, 1, r"j and k must.*found j = 1, k = 1")]
)
def test_invalid_classes_raise(j, k, message):
    with pytest.raises(ValueError, match=message):
        decision_function({"loc": np.zeros((1, 2)), "scale": np.ones((1, 1))}, j, k)
