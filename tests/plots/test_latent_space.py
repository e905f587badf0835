"""The scatter of latents: projection plane, class boundaries and colors."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib.colors import to_rgb

from deepsimplex import LatentGaussian
from deepsimplex.geometry import helmert, vertices
from deepsimplex.plots import latent_space
from deepsimplex.plots.style import CLASS_COLORS


def marks(figure):
    drawn = [artist for artist in figure.axes[0].collections if artist.get_label() in ("right", "wrong")]
    places = np.concatenate([artist.get_offsets() for artist in drawn])
    return places, np.concatenate([artist.get_facecolors()[:, :3] for artist in drawn])


def segments(figure, count):
    return [
        np.array(artist.get_segments())
        for artist in figure.axes[0].collections
        if len(getattr(artist, "get_segments", list)()) == count
    ]


def test_principal_components_keep_distances_in_a_plane():
    """Latents that lie in a plane are drawn as they are, up to a turn."""
    rng = np.random.default_rng(0)
    plane = np.linalg.qr(rng.normal(size=(6, 2)))[0].T
    loc = rng.normal(size=(40, 2)) @ plane + rng.normal(size=6)
    chosen = (loc @ vertices(7).T).argmax(axis=1)
    places, inner = marks(latent_space(loc))
    np.testing.assert_array_equal(inner, [to_rgb(CLASS_COLORS[k]) for k in chosen])
    between = np.linalg.norm(loc[:, None] - loc[None], axis=-1)
    np.testing.assert_allclose(np.linalg.norm(places[:, None] - places[None], axis=-1), between, atol=1e-9)


@pytest.mark.slow
@settings(deadline=None, max_examples=25)
@given(st.integers(3, 8), st.integers(0, 10_000), st.booleans())
def test_borders_of_three_classes_separate_samples(n, seed, ilr):
    """On either side of a drawn ray the class of the larger score is the one that the latents themselves tell."""
    rng = np.random.default_rng(seed)
    scores = helmert(n).T if ilr else vertices(n)
    classes = rng.choice(n, 3, replace=False)
    loc = rng.normal(size=(50, n - 1))
    figure = latent_space(loc, np.repeat(classes, 17)[:50], only=classes, scores=scores)
    rays = segments(figure, 3)[0]  # the borders; after them come the directions
    places = {tuple(place) for place in marks(figure)[0].round(9)}
    a, b, c = scores[classes]
    basis = np.linalg.qr(np.stack([b - a, c - (a + b) / 2], axis=1))[0].T
    basis *= np.sign([basis[0] @ (b - a), basis[1] @ (c - a)])[:, None]
    assert {tuple(place) for place in (loc @ basis.T).round(9)} == places
    at = scores[classes] @ basis.T
    for (first, second, third), ray in zip(((0, 1, 2), (0, 2, 1), (1, 2, 0)), rays[:, 1], strict=True):
        values = at @ ray
        assert values[first] == pytest.approx(values[second])
        assert values[first] > values[third]


def test_common_direction_of_scores_is_removed():
    """With as many dimensions as classes, a direction common to all scores tells no class from another."""
    loc = np.random.default_rng(0).normal(size=(30, 4))
    common = 100 * np.random.default_rng(1).normal(size=(30, 1))
    for options in ({}, {"only": (0, 1, 3)}):
        plain, _ = marks(latent_space(loc, scores=np.eye(4), **options))
        shifted, _ = marks(latent_space(loc + common, scores=np.eye(4), **options))
        np.testing.assert_allclose(np.abs(shifted), np.abs(plain), atol=1e-9)


def test_inner_color_is_label_and_ring_is_assignment():
    loc = vertices(4)[[0, 1, 2, 3]]
    figure = latent_space(loc, [0, 1, 2, 0], class_names=list("abcd"))
    wrong = [artist for artist in figure.axes[0].collections if artist.get_label() == "wrong"]
    assert len(wrong) == 1
    np.testing.assert_allclose(wrong[0].get_facecolors()[0, :3], to_rgb(CLASS_COLORS[0]))
    np.testing.assert_allclose(wrong[0].get_edgecolors()[0, :3], to_rgb(CLASS_COLORS[3]))
    assert [text.get_text() for text in figure.axes[0].get_legend().get_texts()] == list("abcd")


def test_more_classes_than_colors_have_other_markers():
    figure = latent_space(vertices(12), np.arange(12))
    drawn = [artist for artist in figure.axes[0].collections if artist.get_label() == "right"]
    assert [len(artist.get_offsets()) for artist in drawn] == [10, 2]


@pytest.mark.parametrize("covariance", ["isotropic", "diagonal", "full"])
def test_ellipses_contain_their_share_of_the_gaussian(covariance):
    rng = np.random.default_rng(3)
    loc = np.concatenate([vertices(4), -vertices(4)]) + rng.normal(size=(8, 3)) / 5
    scale = {
        "isotropic": np.full((8, 1), 0.3),
        "diagonal": rng.uniform(0.1, 0.5, (8, 3)),
        "full": np.tril(rng.uniform(-1, 1, size=(8, 3, 3))) + 1.2 * np.eye(3),
    }[covariance]
    figure = latent_space(LatentGaussian(loc, scale), np.zeros(8, int), only=(0, 1, 2), level=0.5)
    (ellipses,) = [artist for artist in figure.axes[0].collections if hasattr(artist, "get_widths")]
    a, b, c = vertices(4)[:3]
    basis = np.linalg.qr(np.stack([b - a, c - (a + b) / 2], axis=1))[0].T
    basis *= np.sign([basis[0] @ (b - a), basis[1] @ (c - a)])[:, None]
    factor = scale if covariance == "full" else np.eye(3) * scale[:, None, :]
    noise = rng.normal(size=(20_000, 3))
    for i in range(8):
        angle = np.deg2rad(ellipses.get_angles()[i])
        along = (noise @ (basis @ factor[i]).T) @ np.array(
            [[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]]
        )
        half = np.array([ellipses.get_widths()[i], ellipses.get_heights()[i]]) / 2
        inside = np.mean(np.sum(np.square(along / half), axis=1) < 1)
        assert abs(inside - 0.5) < 0.02  # five standard errors and more


def test_two_classes_have_a_row_each():
    figure = latent_space([[1.0], [0.5], [-0.2]], [0, 0, 1], class_names=["zero", "one"])
    places, _ = marks(figure)
    np.testing.assert_allclose(np.sort(places[:, 0]), [-0.2, 0.5, 1.0])
    np.testing.assert_array_equal(np.round(places[np.argsort(places[:, 0]), 1]), [1, 0, 0])
    assert [tick.get_text() for tick in figure.axes[0].get_yticklabels()] == ["zero", "one"]
    assert figure.axes[0].get_xlabel() == "latent (class zero to the right)"


@pytest.mark.parametrize("loc", [np.zeros((1, 4)), np.ones((3, 4)), np.array([[0.1, 0.2]])])
def test_single_and_equal_samples_are_drawn(loc):
    places, _ = marks(latent_space(loc))
    assert len(places) == len(loc)
    assert np.isfinite(places).all()


LOC = vertices(4)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: latent_space(LOC[0]), ValueError, r"latent must.*found shape \(3,\)"),
        (lambda: latent_space(LOC * np.nan), ValueError, "latent must be finite"),
        (lambda: latent_space([["a"]]), TypeError, r"latent must.*found dtype <U1"),
        (lambda: latent_space(LOC, [0, 1, 2, 4]), ValueError, r"^y must.*found 4 in row 3"),
        (lambda: latent_space(LOC, scores=np.eye(4)), ValueError, r"scores must.*found \(4, 4\)"),
        (lambda: latent_space(LOC, only=(0, 1)), ValueError, r"only must.*found \(0, 1\)"),
        (lambda: latent_space(LOC, only=(0, 1, 4)), ValueError, r"only must.*found \(0, 1, 4\)"),
        (lambda: latent_space(LOC[:1], [3], only=(0, 1, 2)), ValueError, "have no samples"),
        (lambda: latent_space(LOC, level=0.5), ValueError, r"level must.*found 0.5, ndarray"),
        (
            lambda: latent_space(LatentGaussian(LOC, np.ones((4, 1))), level=1.0),
            ValueError,
            r"level must.*found 1\.0, LatentGaussian",
        ),
        (lambda: latent_space(LOC, class_names=["a"]), ValueError, r"class_names must.*found \['a'\]"),
    ],
)
def test_invalid_input_raises(call, error, message):
    with pytest.raises(error, match=message):
        call()
