"""Labels of every kind as one type."""

import numpy as np
import pytest
import tensorflow as tf

from deepsimplex.geometry import vertices
from deepsimplex.latent import LatentGaussian
from deepsimplex.samples import Labels


def test_numbers_stay_numbers():
    labels = Labels.of([[0], [2]], num_classes=3)
    np.testing.assert_array_equal(labels.values, [0, 2])
    np.testing.assert_array_equal(labels.classes, [0, 1, 2])
    assert labels.latents is None


@pytest.mark.parametrize("classes", [None, ["dog", "cat", "eel"]])
def test_names_are_numbered(classes):
    labels = Labels.of(np.array(["cat", "dog", "cat"]), classes=classes)
    np.testing.assert_array_equal(labels.classes[labels.values], ["cat", "dog", "cat"])
    assert labels.classes.tolist() == (classes or ["cat", "dog"])


def test_soft_labels_keep_their_shares():
    labels = Labels.of([[0.25, 0.75], [1.0, 0.0]], classes=["a", "b"])
    np.testing.assert_array_equal(labels.hard, [1, 0])
    np.testing.assert_array_equal(labels[1:].hard, [0])
    np.testing.assert_array_equal(Labels.of([[0, 1], [1, 0]], 2, soft=False).values, [1, 0])


def test_latents_are_recognized():
    S = vertices(4)
    labels = Labels.of(S[[3, 0]], scores=S)
    np.testing.assert_array_equal(labels.values, [3, 0])
    np.testing.assert_array_equal(labels.latents.scale, np.zeros((2, 1)))
    gaussian = LatentGaussian(S, np.ones((4, 1)))
    for y in (gaussian, gaussian.as_dict()):
        np.testing.assert_array_equal(Labels.of(y, scores=S).latents.loc, S)
    assert Labels.of(np.eye(4), scores=S).latents is None


@pytest.mark.parametrize(
    ("y", "options", "match"),
    [
        ([0, 3], {"num_classes": 3}, r"^y must.*found 3 in row 1"),
        (["a", "a"], {}, r"^y must.*found one class alone, .*'a'"),
        (["a", "b"], {"classes": ["a", "c"]}, r"y holds labels .* \['b'\], the first in row 1"),
        ([[0.5, 0.5]], {"num_classes": 2, "soft": False}, r"^y must.*found soft labels, row 0"),
        (LatentGaussian(np.zeros((1, 2)), np.ones((1, 1))), {"num_classes": 3}, r"^y must.*found latents"),
        (np.ma.masked_equal([0, 1], 1), {"num_classes": 2}, "y must not be masked"),
    ],
)
def test_invalid_labels_raise(y, options, match):
    with pytest.raises(ValueError, match=match):
        Labels.of(y, **options)


@pytest.mark.parametrize(
    ("spec", "shape"),
    [
        (tf.TensorSpec([None], tf.int64), (1,)),
        (tf.TensorSpec([None, 1], tf.int64), (1,)),
        (tf.TensorSpec([None, 4], tf.float32), (1, 4)),
        (tf.TensorSpec([None, 3], tf.float32), (1, 3)),
    ],
)
def test_example_matches_the_specification(spec, shape):
    assert Labels.example(spec, vertices(4)).shape == shape


def test_example_of_another_number_of_columns_raises():
    with pytest.raises(ValueError, match=r"a tf\.data\.Dataset must.*found TensorSpec\(shape=\(None, 7\)"):
        Labels.example(tf.TensorSpec([None, 7], tf.float32), vertices(4))
