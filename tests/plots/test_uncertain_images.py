"""Images ranked by uncertainty, with bars and intervals."""

import keras
import numpy as np
import pytest

from deepsimplex import LatentGaussian
from deepsimplex.plots import predictions, reliability, uncertain_images
from deepsimplex.readout import Readout, argmax, class_intervals, softmax


@pytest.fixture(scope="module")
def images(digits):
    _, (x, _) = digits
    return x[:5]


P = np.array([[0.5, 0.5, 0.0], [0.4, 0.35, 0.25], [0.98, 0.01, 0.01], [0.45, 0.28, 0.27], [0.6, 0.2, 0.2]])
Y = np.array([0, 2, 1, 0, 0])


def shown(figure, images):
    """Which of the images are drawn, in order."""
    drawn = [ax.images[0].get_array() for ax in figure.axes if ax.images]
    flat = images.reshape(len(images), -1)
    return [int(np.argmin(np.abs(flat - np.asarray(pixels).reshape(1, -1)).sum(axis=1))) for pixels in drawn]


@pytest.mark.parametrize(
    ("by", "order"),
    [
        ("entropy", [1, 3, 4, 0, 2]),
        ("confidence", [1, 3, 0, 4, 2]),
        ("margin", [0, 1, 3, 4, 2]),
        ("likelihood", [2, 1, 3, 0, 4]),
    ],
)
def test_most_uncertain_images_come_first(images, by, order):
    assert shown(uncertain_images(images, P, Y, by=by), images) == order
    assert shown(uncertain_images(images, P, Y, by=by, k=2), images) == order[:2]


def test_ties_keep_order(images):
    assert shown(uncertain_images(images, np.full((5, 3), 1 / 3)), images) == [0, 1, 2, 3, 4]


def test_intervals_equal_readout(images):
    rng = np.random.default_rng(0)
    latent = LatentGaussian(rng.normal(size=(5, 2)), rng.uniform(0.2, 0.6, (5, 1)))
    p = softmax(latent)
    figure = uncertain_images(images, p, latent=latent, k=1, by="confidence")
    first = int(p.max(axis=1).argmin())
    lower, upper = class_intervals(LatentGaussian(latent.loc[[first]], latent.scale[[first]]), 0.95)
    bars = figure.axes[1]
    (whiskers,) = [artist for artist in bars.collections if artist.get_label() == "interval"]
    ends = np.array(whiskers.get_segments())
    order = np.argsort(-p[first], kind="stable")
    np.testing.assert_allclose(ends[:, 0, 0], lower[0, order])
    np.testing.assert_allclose(ends[:, 1, 0], upper[0, order])
    np.testing.assert_allclose([bar.get_width() for bar in bars.patches], p[first, order])


def test_argmax_probabilities_have_no_whiskers(images):
    latent = LatentGaussian(np.random.default_rng(0).normal(size=(5, 2)), np.full((5, 1), 0.2))
    p = argmax(latent)
    figure = uncertain_images(images, p, latent=latent, readout="argmax", k=1)
    assert not [artist for artist in figure.axes[1].collections if artist.get_label() == "interval"]
    with pytest.raises(ValueError, match=r"p must be what the softmax readout makes of latent.*pass readout='argmax'"):
        uncertain_images(images, p, latent=latent)
    with pytest.raises(ValueError, match=r"^p must.*found probabilities that differ by 0\.43"):
        reliability([0, 1, 2, 0, 1], p, latent=latent)


class Squared(Readout):
    """A readout of a user's own: squared scores."""

    def class_probabilities(self, points):
        squared = keras.ops.square(keras.ops.relu(self.score(points))) + 1e-3
        return squared / keras.ops.sum(squared, axis=-1, keepdims=True)


def test_intervals_of_another_readout(images):
    latent = LatentGaussian(np.random.default_rng(0).normal(size=(5, 2)), np.full((5, 1), 0.3))
    layer = Squared()
    p = layer.predict(latent)
    figure = uncertain_images(images, p, latent=latent, readout=layer, k=1, by="confidence")
    first = int(p.max(axis=1).argmin())
    lower, upper = layer.intervals(latent[[first]], 0.95)
    (whiskers,) = [artist for artist in figure.axes[1].collections if artist.get_label() == "interval"]
    order = np.argsort(-p[first], kind="stable")
    ends = np.array(whiskers.get_segments())[:, :, 0]
    np.testing.assert_allclose(ends, np.column_stack([lower[0, order], upper[0, order]]))
    with pytest.raises(ValueError, match=r"^p must.*found probabilities that differ by 0\.36"):
        uncertain_images(images, p, latent=latent)


def test_mismatched_latents_raise(images):
    p = np.full((5, 3), 1 / 3)
    with pytest.raises(ValueError, match=r"latent must.*found 4 samples"):
        uncertain_images(images, p, latent=LatentGaussian(np.zeros((4, 2)), np.ones((4, 1))))
    with pytest.raises(ValueError, match=r"latent must.*found 5 samples and 4 classes of the vertices: give scores"):
        uncertain_images(images, p, latent=LatentGaussian(np.zeros((5, 3)), np.ones((5, 1))))
    with pytest.raises(ValueError, match="scores and readout belong to a latent Gaussian"):
        uncertain_images(images, p, readout="softmax")


def test_latents_as_dict(images):
    latent = {"loc": np.zeros((5, 2)), "scale": np.full((5, 1), 0.3)}
    figure = uncertain_images(images, np.full((5, 3), 1 / 3), latent=latent, k=1)
    assert [artist for artist in figure.axes[1].collections if artist.get_label() == "interval"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"by": "entropie"},
            r"^by must.*found .entropie.; did you mean",
        ),
        ({"by": "likelihood"}, "by='likelihood' needs the true classes: pass y"),
        ({"k": 0}, r"^k must.*found 0"),
        ({"y": [0, 1, 2, 3, 0]}, r"^y must.*found 3 in row 3"),
    ],
)
def test_invalid_input_raises(images, options, message):
    with pytest.raises(ValueError, match=message):
        uncertain_images(images, P, **options)


def test_invalid_number_of_images_raises(images):
    with pytest.raises(ValueError, match=r"images must.*found shape .4"):
        uncertain_images(images[:4], P)


@pytest.mark.parametrize("intervals", [(P, P - 0.1), (P * np.nan, P), (P[:2], P[:2])])
def test_invalid_intervals_raise(images, intervals):
    with pytest.raises(ValueError, match="intervals must"):
        predictions(images, P, intervals=intervals)


def test_least_familiar_images_come_first_with_familiarity():
    images, p = np.zeros((3, 4, 4)), np.array([[0.9, 0.1], [0.5, 0.5], [0.7, 0.3]])
    familiarity = [0.004, 0.9, 0.2]
    figure = uncertain_images(images, p, [0, 1, 1], familiarity=familiarity, by="familiarity", k=2)
    titles = [ax.get_title() for ax in figure.axes if ax.get_title()]
    assert titles == ["✓ 0\nfamiliarity 0.00", "✗ 1\nfamiliarity 0.20"]
    figure = uncertain_images(images, p, familiarity=familiarity, k=1)
    assert [ax.get_title() for ax in figure.axes if ax.get_title()] == ["familiarity 0.90"]
    with pytest.raises(ValueError, match="familiarity must be given for by='familiarity'"):
        uncertain_images(images, p, by="familiarity")
    with pytest.raises(ValueError, match=r"familiarity must.*found shape \(3,\)"):
        uncertain_images(images, p, familiarity=[0.1, 0.2, 1.2])


def test_long_class_names_leave_room_for_images():
    names = ["one of very many and unusually long names", "two"]
    figure = uncertain_images(np.zeros((4, 8, 8)), [[0.6, 0.4]] * 4, [0, 1, 0, 1], class_names=names, columns=2)
    figure.canvas.draw()
    pictures = [ax for ax in figure.axes if ax.images]
    assert len(pictures) == 4
    assert all(ax.get_window_extent().width > 0.2 * figure.bbox.width for ax in pictures)
    assert pictures[0].get_title() == "✓ one of very many and …"
