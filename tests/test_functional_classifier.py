"""A classifier has symbolic inputs and outputs where its backbone has them, as explanations of networks need."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import deepsimplex as ds

X = np.random.default_rng(0).random((12, 8, 8, 1)).astype("float32")
Y = np.arange(12) % 3


class Subclassed(keras.Model):
    def __init__(self):
        super().__init__()
        self.flatten = keras.layers.Flatten()

    def call(self, x):
        return self.flatten(x)


def functional():
    images = keras.Input((8, 8, 1))
    features = keras.layers.GlobalAveragePooling2D()(keras.layers.Conv2D(3, 3, name="last")(images))
    return keras.Model(images, features)


def sequential(*first):
    layers = keras.layers.Conv2D(3, 3, name="last"), keras.layers.GlobalAveragePooling2D()
    return keras.Sequential([*first, *layers])


BACKBONES = {
    "functional": functional,
    "sequential": lambda: sequential(keras.Input((8, 8, 1))),
    "sequential without inputs": sequential,
}


@pytest.fixture(params=BACKBONES)
def model(request):
    made = ds.SimplexClassifier(BACKBONES[request.param](), "vertices", 3, head="gaussian")
    made.build((None, 8, 8, 1))
    return made


def test_outputs_are_calibrated_class_probabilities(model):
    copied = keras.Model(model.inputs, model.outputs[0])
    np.testing.assert_array_equal(copied([X]), model(X))
    assert (model.input_shape, model.output_shape) == ((None, 8, 8, 1), (None, 3))
    model.fit_density(X, Y).calibrate(X, Y, "platt")
    np.testing.assert_array_equal(keras.Model(model.input, model.output)(X), model(X))
    np.testing.assert_array_equal(copied([X]), model(X))
    assert [tuple(tensor.shape) for tensor in model.outputs] == [(None, 3)]
    assert model.layers[-1].output is model.output


def test_gradients_reach_layers_of_the_backbone(model):
    layer = model.get_layer("last")
    with tf.GradientTape() as tape:
        activations, p = keras.Model(model.inputs, [layer.output, *model.outputs])([X])
        score = p[:, 1]
    assert np.abs(tape.gradient(score, activations)).max() > 0


def test_gradients_reach_the_samples(model):
    x = tf.constant(X)
    with tf.GradientTape() as tape:
        tape.watch(x)
        score = keras.Model(model.inputs, model.outputs[0])([x])[:, 0]
    assert np.abs(tape.gradient(score, x)).max() > 0


def test_layers_by_name_and_index(model):
    assert model.get_layer(model.head.name) is model.head
    assert model.get_layer(index=0) is model.backbone
    with pytest.raises(ValueError, match="No such layer: other"):
        model.get_layer("other")


def test_several_inputs():
    image, table = keras.Input((4,), name="image"), keras.Input((2,), name="table")
    backbone = keras.Model({"image": image, "table": table}, keras.layers.Concatenate()([image, table]))
    model = ds.SimplexClassifier(backbone, "vertices", 3, head="gaussian")
    x = {"image": np.ones((5, 4), "float32"), "table": np.zeros((5, 2), "float32")}
    np.testing.assert_array_equal(keras.Model(model.input, model.output)(x), model(x))
    assert {tensor.name for tensor in model.inputs} == {"image", "table"}


def test_subclassed_backbone_has_no_symbolic_inputs():
    model = ds.SimplexClassifier(Subclassed(), "vertices", 3, head="gaussian")
    model(X)
    assert not hasattr(model, "inputs")
    with pytest.raises(AttributeError, match="those of a functional or sequential backbone"):
        model.outputs  # noqa: B018
