"""The simplex scatter: positions and colors of samples, and boundaries of sectors."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure

from deepsimplex.evaluation import standardized_partition
from deepsimplex.geometry import to_probability_simplex, vertices
from deepsimplex.plots import simplex
from deepsimplex.plots.simplex import _borders, corners
from deepsimplex.plots.style import CLASS_COLORS


def marks(figure):
    """Places [N, 2], inner and ring colors [N, 3] of the samples, in the order of drawing: right ones first."""
    drawn = [artist for artist in figure.axes[0].collections if artist.get_label() in ("right", "wrong")]
    places = np.concatenate([artist.get_offsets() for artist in drawn])
    inner = np.concatenate([artist.get_facecolors()[:, :3] for artist in drawn])
    ring = np.concatenate([artist.get_edgecolors()[:, :3] for artist in drawn])
    return places, inner, ring


def colors(classes):
    return np.array([to_rgb(CLASS_COLORS[k]) for k in classes])


@pytest.mark.parametrize("n", [3, 4])
def test_corners_form_regular_simplex(n):
    at, regular = corners(n), vertices(n)
    np.testing.assert_allclose(at @ at.T, (regular @ regular.T)[np.ix_(*[np.roll(range(n), -1)] * 2)], atol=1e-12)
    assert at[-1, -1] == pytest.approx(1)  # the last corner is on top ...
    assert np.ptp(at[:-1, -1]) == pytest.approx(0, abs=1e-12)  # ... of a level base


def test_samples_lie_at_the_mean_of_the_corners():
    p = np.array([[1, 0, 0], [0, 1, 0], [0, 0, 1], [1 / 3, 1 / 3, 1 / 3], [0.5, 0.5, 0]])
    places, inner, ring = marks(simplex(p))
    np.testing.assert_allclose(places, p @ corners(3), atol=1e-12)
    np.testing.assert_array_equal(inner, colors([0, 1, 2, 0, 0]))  # ties take the lowest class
    np.testing.assert_array_equal(inner, ring)


def test_inner_colors_are_labels_and_rings_assignments():
    p = [[0.8, 0.1, 0.1], [0.2, 0.5, 0.3], [0.1, 0.6, 0.3], [0.1, 0.1, 0.8]]
    figure = simplex(p, [0, 1, 2, 0], class_names=["cat", "$dog", "fox"])
    _, inner, ring = marks(figure)
    np.testing.assert_array_equal(inner, colors([0, 1, 2, 0]))
    np.testing.assert_array_equal(ring, colors([0, 1, 1, 2]))
    texts = [text.get_text() for text in figure.axes[0].texts[:3]]
    assert texts == ["cat\nCR 1.00 of 1", r"\$dog" + "\nCR 0.50 of 2", "fox\nCR 0.00 of 1"]


@settings(deadline=None, max_examples=20)
@given(st.sampled_from([3, 4]), st.integers(0, 1000))
def test_borders_lie_at_ties_of_largest_probabilities(n, seed):
    """A random point of a border segment, as probabilities again."""
    _, borders = _borders(corners(n))
    share = np.random.default_rng(seed).uniform(size=(len(borders), 1))
    points = np.array([(1 - t) * start + t * end for t, (start, end) in zip(share, borders, strict=True)])
    p = ((n - 1) * points @ corners(n).T + 1) / n
    np.testing.assert_allclose(p.sum(axis=1), 1, atol=1e-12)
    ordered = np.sort(p, axis=1)
    np.testing.assert_allclose(ordered[:, -1], ordered[:, -2], atol=1e-12)
    assert p.min() > -1e-12


@pytest.mark.parametrize("n", [3, 4])
def test_partition_provides_labels_and_measures(n):
    rng = np.random.default_rng(0)
    p = rng.dirichlet(np.ones(n), 40)
    y = np.array([rng.choice(n, p=row) for row in p])
    partition = standardized_partition(np.array(list("abcd"))[y], p, classes=list("abcd")[:n])
    figure = simplex(partition, lines=True)
    (ax,) = figure.axes
    assert ax.get_title() == f"Ac = {partition.accuracy:.3f}   AS = {partition.ability_to_separate:.3f}"
    assert ax.texts[0].get_text().startswith("a\nCR")
    if n == 3:
        places, inner, ring = marks(figure)
        right = partition.y == partition.assigned
        order = np.argsort(~right, kind="stable")
        np.testing.assert_allclose(places, (partition.membership @ corners(3))[order])
        np.testing.assert_array_equal(inner, colors(partition.y[order]))
        np.testing.assert_array_equal(ring, colors(partition.assigned[order]))
        (lines,) = [artist for artist in ax.collections if len(getattr(artist, "get_segments", list)()) == 40]
        ends = np.array(lines.get_segments())
        # Ac is one minus their mean length, over the distance from the centroid: as long in the plane as in [SPS].
        lengths = np.linalg.norm(ends[:, 1] - ends[:, 0], axis=1)
        assert partition.accuracy == pytest.approx(1 - lengths.mean())


def test_lines_lead_to_requested_corner():
    p = [[0.8, 0.1, 0.1], [0.2, 0.5, 0.3]]
    for lines, goals in ((True, [2, 1]), ("true", [2, 1]), ("assigned", [0, 1])):
        segments = [
            np.array(artist.get_segments())
            for artist in simplex(p, [2, 1], lines=lines).axes[0].collections
            if len(getattr(artist, "get_segments", list)()) == 2
        ]
        np.testing.assert_allclose(segments[0][:, 1], corners(3)[goals])


def test_missing_mass_of_scaled_rows_is_spread_evenly():
    partition = standardized_partition([0, 0, 1], [[1.0, 0.0, 0.0]] * 3)
    np.testing.assert_allclose(partition.membership.sum(axis=1), 2 / 3)
    places, _, _ = marks(simplex(partition))
    np.testing.assert_allclose(places, np.tile((np.array([2 / 3, 0, 0]) + 1 / 9) @ corners(3), (3, 1)))


def test_latents_are_mapped_to_simplex():
    latents = np.random.default_rng(1).normal(size=(30, 2))
    p = to_probability_simplex(latents, 1.5)
    places, _, _ = marks(simplex(p))
    np.testing.assert_allclose(places, p @ corners(3))


def test_single_sample_on_given_axes():
    figure = Figure()
    ax = figure.add_subplot()
    assert simplex([[0.2, 0.3, 0.5]], [2], ax=ax) is figure
    figure = Figure()
    three = figure.add_subplot(projection="3d")
    assert simplex([[0.25, 0.25, 0.25, 0.25]], ax=three) is figure


P = [[0.8, 0.1, 0.1]]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: simplex([[0.5, 0.5]]), r"^p must.*found 2.*latent_space"),
        (lambda: simplex(np.full((1, 5), 0.2)), r"^p must.*found 5"),
        (lambda: simplex([[0.8, 0.1, 0.2]]), "every row of p must sum to 1"),
        (lambda: simplex(P, [3]), r"^y must.*found 3 in row 0"),
        (lambda: simplex(P, assigned=[5]), r"assigned must.*found 5 in row 0"),
        (lambda: simplex(P, class_names=["a"]), r"class_names must.*found \['a'\]"),
        (lambda: simplex(P, lines=True), "lines to the true classes' corners need y"),
        (lambda: simplex(P, lines="all"), r"lines must.*found 'all'"),
        (lambda: simplex(np.full((1, 4), 0.25), ax=Figure().add_subplot()), 'projection="3d"'),
        (lambda: simplex(standardized_partition([0, 0], [P[0]] * 2), [0, 0]), "come with the partition"),
    ],
)
def test_invalid_input_raises(call, message):
    with pytest.raises(ValueError, match=message):
        call()
