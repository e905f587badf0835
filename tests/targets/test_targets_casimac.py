"""CASIMAC targets against Eq. 4-8, 13 and 32-33 written as loops, and their properties."""

import copy
import json
import pickle

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from sklearn.datasets import load_digits

from deepsimplex.distances import SSIM
from deepsimplex.geometry import nearest_vertex, vertices
from deepsimplex.targets import CASIMAC
from deepsimplex.targets import casimac as module
from deepsimplex.targets.casimac import check_class_sizes
from tests.reference import targets as oracle


def samples(n, per_class, seed=0, dims=2, levels=None):
    """Normal samples of n classes, or ones on a coarse grid, which brings ties and duplicates."""
    rng = np.random.default_rng(seed)
    y = rng.permutation(np.repeat(np.arange(n), per_class))
    if levels is None:
        return rng.standard_normal((len(y), dims)), y
    return rng.integers(0, levels, (len(y), dims)).astype(float), y


PARAMETERS = [
    {},
    {"k_beta": 3},
    {"alpha": 1.0, "beta": 0.0},
    {"alpha": 0.3, "beta": 0.7, "k_alpha": 2, "k_beta": 4},
    {"alpha": 2.0, "beta": 0.5, "k_alpha": 5, "k_beta": 2},
    {"alpha": 0.5, "beta": 0.5, "k_alpha": 50, "k_beta": 50},
]


def target_of(alpha=0.0, beta=1.0, k_alpha=1, k_beta=1, **others):
    """In the paper's units, as the loops are."""
    return CASIMAC(
        normalize=False,
        attraction_strength=alpha,
        repulsion_strength=beta,
        attraction_number=k_alpha,
        repulsion_number=k_beta,
        **others,
    )


@pytest.mark.parametrize("parameters", PARAMETERS, ids=str)
@pytest.mark.parametrize("levels", [None, 4], ids=["normal", "grid with duplicates"])
@pytest.mark.parametrize("n", [2, 3, 5])
class TestAgainstLoops:
    def test_training_samples(self, n, levels, parameters):
        x, y = samples(n, per_class=6, seed=n, levels=levels)
        latent = target_of(**parameters).fit_transform(x, y)
        np.testing.assert_allclose(latent.loc, oracle.casimac_latents(x, y, n, **parameters), rtol=1e-9, atol=1e-12)
        assert latent.scale.shape == (6 * n, 1)
        assert not latent.scale.any()

    def test_other_samples(self, n, levels, parameters):
        x, y = samples(n, per_class=6, seed=n, levels=levels)
        queries, labels = samples(n, per_class=2, seed=n + 100, levels=levels)
        latent = target_of(**parameters).fit(x, y).transform(queries, labels)
        expected = [oracle.casimac_latent(x, y, q, c, n, **parameters) for q, c in zip(queries, labels, strict=True)]
        np.testing.assert_allclose(latent.loc, expected, rtol=1e-9, atol=1e-12)


def test_latents_of_two_classes_are_signed_distances():
    """[CASIMAC Eq. 1]."""
    latent = CASIMAC(normalize=False).fit_transform([[0.0], [2.0], [5.0], [9.0]], [0, 0, 1, 1])
    np.testing.assert_allclose(latent.loc[:, 0], [5, 3, -3, -7], rtol=1e-12)


def test_classes_smaller_than_k_use_all_samples():
    x, y = [[0.0], [1.0], [2.0], [6.0], [7.0]], [0, 0, 0, 1, 1]
    latent = CASIMAC(repulsion_number=100, normalize=False).fit_transform(x, y)
    np.testing.assert_allclose(latent.loc[:, 0], [6.5, 5.5, 4.5, -5, -6], rtol=1e-12)


def test_functions_of_the_generalized_mapping():
    """Eq. 32-33 with other f_A, f_R and f_C; the number of neighbors they see varies with the class."""
    x, y = samples(3, per_class=5, seed=7, levels=4)
    x, y = x[:-3], y[:-3]
    seen = set()

    def largest(distances):
        seen.add(distances.shape[1])
        return distances.max(axis=1)

    target = target_of(
        0.5, 0.5, 3, 5,
        attraction_function=lambda distances: np.exp(-distances.sum(axis=1)),
        repulsion_function=largest,
        combination_function=np.sqrt,
    )  # fmt: skip
    expected = oracle.casimac_latents(
        x, y, 3, alpha=0.5, beta=0.5, k_alpha=3, k_beta=5,
        f_A=lambda distances: np.exp(-sum(distances)), f_R=max, f_C=np.sqrt,
    )  # fmt: skip
    np.testing.assert_allclose(target.fit_transform(x, y).loc, expected, rtol=1e-9)
    assert seen == set(np.bincount(y))  # never padded


@settings(max_examples=60, deadline=None)
@given(st.integers(2, 5), st.integers(0, 2**32 - 1), st.sampled_from([1.0, 0.6, 0.0]), st.integers(1, 4))
def test_nearest_vertex_is_the_class(n, seed, gamma, k):
    """Eq. 10, for every sample with neighbors of other classes at positive distance, or with attraction."""
    x, y = samples(n, per_class=3, seed=seed)
    latent = CASIMAC(gamma=gamma, repulsion_number=k, attraction_number=k).fit_transform(x, y)
    np.testing.assert_array_equal(nearest_vertex(latent.loc), y)


@settings(max_examples=40, deadline=None)
@given(st.integers(2, 4), st.integers(0, 2**32 - 1), st.sampled_from([0.5, 1.0]))
def test_coinciding_samples_lie_on_the_border(n, seed, gamma):
    x, y = samples(n, per_class=3, seed=seed, levels=3)
    # The attraction exists where a sample's class is not made of its copies.
    assume(all(len(np.unique(x[y == c], axis=0)) > 1 for c in range(n)))
    scores = CASIMAC(gamma=gamma).fit_transform(x, y).loc @ vertices(n).T
    true_scores = scores[np.arange(len(y)), y]
    assert np.all(true_scores >= scores.max(axis=1) - 1e-12)
    if gamma < 1:
        np.testing.assert_array_equal(np.argmax(scores, axis=1), y)


@settings(max_examples=30, deadline=None)
@given(st.integers(2, 4), st.integers(0, 2**32 - 1))
def test_latents_do_not_depend_on_sample_order(n, seed):
    x, y = samples(n, per_class=4, seed=seed, levels=5)
    assume(all(len(np.unique(x[y == c], axis=0)) > 1 for c in range(n)))
    order = np.random.default_rng(seed).permutation(len(y))
    target = CASIMAC(gamma=0.4, attraction_number=2, repulsion_number=2)
    latent, shuffled = target.fit_transform(x, y), target.fit_transform(x[order], y[order])
    np.testing.assert_allclose(shuffled.loc, latent.loc[order], rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("gamma", [1.0, 0.5])
def test_transform_of_training_samples_includes_themselves(gamma):
    """Leaving a sample out touches its own class only, where Eq. 7a filters distance zero: both ways agree."""
    x, y = samples(3, per_class=5, levels=4)
    target = CASIMAC(gamma=gamma, attraction_number=3, repulsion_number=2)
    np.testing.assert_allclose(target.fit_transform(x, y).loc, target.transform(x, y).loc, rtol=1e-12)


def test_constructions_differ_by_an_orthogonal_map():
    x, y = samples(5, per_class=4)
    iterative, other = (CASIMAC(construction=c).fit_transform(x, y).loc for c in ("iterative", "helmert"))
    assert not np.allclose(iterative, other)
    np.testing.assert_allclose(iterative @ iterative.T, other @ other.T, rtol=1e-9, atol=1e-12)
    np.testing.assert_array_equal(nearest_vertex(other, "helmert"), y)
    np.testing.assert_array_equal(CASIMAC(construction="helmert").scores(5), vertices(5, "helmert"))


def test_gamma_sets_both_strengths():
    x, y = samples(3, per_class=4)
    by_gamma, by_strengths = CASIMAC(gamma=0.3), CASIMAC(attraction_strength=0.7, repulsion_strength=0.3)
    np.testing.assert_allclose(by_gamma.fit_transform(x, y).loc, by_strengths.fit_transform(x, y).loc, rtol=1e-12)
    assert by_gamma.get_config() == by_strengths.get_config()


def test_geometry_is_known_before_fit():
    target = CASIMAC()
    assert (target.latent_dim(4), target.noise(4), target.default_readout) == (3, None, "argmax")
    np.testing.assert_array_equal(target.scores(4), vertices(4))
    assert target.needs_samples
    assert not target.is_fitted
    x, y = samples(4, per_class=2)
    target.fit(x, y)
    assert target.is_fitted
    assert (target.num_classes_, target.latent_dim_, target.scores_.shape) == (4, 3, (4, 3))


def test_training_samples_are_kept_by_reference():
    x, y = samples(2, per_class=3)
    assert np.shares_memory(CASIMAC().fit(x, y)._samples[0], x)


@pytest.mark.parametrize("carry", [copy.copy, copy.deepcopy, lambda t: pickle.loads(pickle.dumps(t))])
def test_copies_exclude_training_samples(carry):
    x, y = samples(2, per_class=3)
    target = CASIMAC(gamma=0.5)
    expected = target.fit_transform(x, y).loc
    carried = carry(target)
    with pytest.raises(ValueError, match=r"training samples, and this target has none: call fit\(x, y\)"):
        carried.transform(x, y)
    np.testing.assert_array_equal(carried.fit_transform(x, y).loc, expected)
    assert target.is_fitted


class TestUnits:
    """Neither the units of the samples nor their number of features matter to normalized latents."""

    @pytest.mark.parametrize("distance", ["euclidean", "cityblock", SSIM(5)])
    @pytest.mark.parametrize(
        "pixels", [lambda x: 255 * x, lambda x: x / 1000, lambda x: np.uint8(255 * x), lambda x: np.uint16(65535 * x)]
    )
    def test_pixels_in_any_unit_give_equal_targets(self, distance, pixels, digits):
        x, y = digits
        x = np.round(255 * x) / 255  # what bytes hold
        other = pixels(x)
        if isinstance(distance, SSIM) and other.dtype.kind == "f":
            in_units = SSIM(5, data_range=float(other.max() / x.max()))
        else:
            in_units = distance
        expected, scaled = CASIMAC(distance), CASIMAC(in_units)
        np.testing.assert_allclose(scaled.fit_transform(other, y).loc, expected.fit_transform(x, y).loc, atol=1e-5)
        if distance != "cityblock" and not isinstance(distance, SSIM):
            np.testing.assert_allclose(
                scaled.transform(other[:9], y[:9]).loc, expected.transform(x[:9], y[:9]).loc, atol=1e-5
            )

    @pytest.mark.parametrize("parameters", PARAMETERS, ids=str)
    def test_normalized_latents_have_unit_root_mean_square(self, parameters):
        x, y = samples(3, per_class=6)
        target = target_of(**parameters)
        raw, queries = target.fit_transform(x, y).loc, (x[:4] + 0.1, y[:4])
        assert target.unit_ == 1.0
        normalized = CASIMAC.from_config(target.get_config() | {"normalize": True})
        loc = normalized.fit_transform(x, y).loc
        assert np.sqrt(np.mean(loc**2)) == pytest.approx(1.0, rel=1e-12)
        np.testing.assert_allclose(normalized.unit_ * loc, raw, rtol=1e-12)
        np.testing.assert_allclose(
            normalized.unit_ * normalized.transform(*queries).loc, target.transform(*queries).loc, rtol=1e-12
        )

    def test_normalization_of_extreme_magnitudes(self):
        y = [0, 0, 1, 1]
        for size in (1e-150, 1e149):
            x = size * np.array([[0.0], [2.0], [5.0], [9.0]])
            np.testing.assert_allclose(CASIMAC().fit_transform(x, y).loc.T, [np.array([5, 3, -3, -7]) / np.sqrt(23)])

    def test_samples_in_every_class_have_zero_latents(self):
        target = CASIMAC()
        assert not target.fit_transform(np.ones((4, 2)), [0, 1, 0, 1]).loc.any()
        assert target.unit_ == 1.0

    def test_unit_is_saved_and_computed_once(self, monkeypatch):
        x, y = samples(3, per_class=6)
        target = CASIMAC()
        target.fit_transform(x, y)
        expected = target.transform(x[:4] + 0.1, y[:4]).loc
        config = json.loads(json.dumps(target.get_config()))
        again = CASIMAC.from_config(config)
        assert again.unit_ == target.unit_
        assert again.get_config() == config
        searched, real = [], module.nearest_neighbors
        monkeypatch.setattr(module, "nearest_neighbors", lambda *a, **k: searched.append(k) or real(*a, **k))
        np.testing.assert_array_equal(again.fit(x, y).transform(x[:4] + 0.1, y[:4]).loc, expected)
        assert len(searched) == 1  # of the queries
        assert again.fit(2 * x, y).transform(x[:4], y[:4]).loc.shape == (4, 2)
        assert again.unit_ == pytest.approx(2 * target.unit_)


class TestMemory:
    @pytest.fixture
    def calls(self, monkeypatch):
        calls, real = [], module.nearest_neighbors
        monkeypatch.setattr(module, "nearest_neighbors", lambda *a, **k: calls.append(k) or real(*a, **k))
        return calls

    def test_equal_samples_are_searched_once(self, calls):
        x, y = samples(3, per_class=4)
        target = CASIMAC()
        first = target.fit_transform(x, y)
        again = target.fit_transform(x.copy(), y.tolist())
        np.testing.assert_array_equal(first.loc, again.loc)
        assert len(calls) == 1
        queries = x + 0.1
        target.transform(queries, y)
        target.transform(queries, y)
        assert len(calls) == 2

    def test_returned_latents_may_be_modified(self):
        x, y = samples(3, per_class=4)
        target = CASIMAC()
        first = target.fit_transform(x, y)
        expected = first.loc.copy()
        first.loc[:] = 0
        np.testing.assert_array_equal(target.fit_transform(x, y).loc, expected)

    @pytest.mark.parametrize("change", ["pixel", "label", "dtype", "num_classes"])
    def test_changed_samples_are_searched_again(self, calls, change):
        x, y = samples(3, per_class=4)
        target = CASIMAC(attraction_strength=1, repulsion_strength=0)
        target.fit_transform(x, y)
        n = 4 if change == "num_classes" else None
        if change == "pixel":
            x[3, 1] += 1
        elif change == "label":
            y[0] = (y[0] + 1) % 3
        elif change == "dtype":
            x = x.astype(np.float32)
        target.fit_transform(x, y, n)
        assert len(calls) == 2

    def test_only_needed_classes_are_searched(self, calls):
        x, y = samples(2, per_class=4)
        CASIMAC(repulsion_number=2, attraction_number=7).fit_transform(x, y)
        CASIMAC(gamma=0.0, repulsion_number=7, attraction_number=3).fit_transform(x, y)
        CASIMAC(gamma=0.5).fit_transform(x, y)
        assert [call["classes"] for call in calls] == ["other", "same", "all"]
        assert all(call["exclude_duplicates"] for call in calls)  # Eq. 7a


@pytest.fixture(scope="module")
def digits():
    images, y = load_digits(return_X_y=True)
    return (images[:150] / 16).reshape(-1, 8, 8), y[:150]


def test_real_images_euclidean(digits):
    x, y = digits
    latent = target_of(0.2, 0.8, 3, 3).fit_transform(x, y)
    assert latent.loc.shape == (150, 9)
    np.testing.assert_array_equal(nearest_vertex(latent.loc), y)
    for i in (0, 77, 149):
        expected = oracle.casimac_latent(x, y, x[i], y[i], 10, alpha=0.2, beta=0.8, k_alpha=3, k_beta=3, leave_out=i)
        np.testing.assert_allclose(latent.loc[i], expected, rtol=1e-9)


def test_real_images_structural_similarity(digits):
    skimage_metrics = pytest.importorskip("skimage.metrics")
    x, y = digits

    def dissimilarity(a, b):
        return 1 - skimage_metrics.structural_similarity(a, b, win_size=5, data_range=1.0)

    latent = target_of(k_beta=2, distance=SSIM(5)).fit_transform(x, y)
    np.testing.assert_array_equal(nearest_vertex(latent.loc), y)
    for i in (0, 77, 149):
        expected = oracle.casimac_latent(x, y, x[i], y[i], 10, k_beta=2, leave_out=i, distance=dissimilarity)
        np.testing.assert_allclose(latent.loc[i], expected, atol=2e-4)


class TestOtherMetrics:
    def test_callable(self):
        x, y = samples(2, per_class=4)
        by_callable = CASIMAC(lambda a, b: float(np.linalg.norm(a - b)))
        np.testing.assert_allclose(by_callable.fit_transform(x, y).loc, CASIMAC().fit_transform(x, y).loc, rtol=1e-9)

    def test_precomputed_matrix(self):
        x, y = samples(3, per_class=4)
        D = np.linalg.norm(x[:, None] - x[None], axis=-1)
        np.testing.assert_allclose(
            CASIMAC(D, gamma=0.5).fit_transform(x, y).loc, CASIMAC(gamma=0.5).fit_transform(x, y).loc, rtol=1e-9
        )


class TestBadInput:
    @pytest.mark.parametrize(
        ("parameters", "words"),
        [
            ({"repulsion_strength": -1.0}, r"repulsion_strength must.*found -1.0"),
            ({"attraction_strength": np.nan}, r"attraction_strength must.*found nan"),
            ({"repulsion_strength": 0.0}, "must not both be 0"),
            ({"repulsion_number": 0}, r"repulsion_number must.*found 0"),
            ({"attraction_number": 2.0}, r"attraction_number must.*found 2.0"),
            ({"gamma": 1.5}, r"gamma must.*found 1.5"),
            ({"gamma": 0.5, "attraction_strength": 0.5}, "give gamma or the strengths, not both"),
            ({"construction": "regular"}, r"construction must.*found 'regular'"),
            ({"distance": "euclidian"}, "euclidean"),
        ],
    )
    def test_invalid_parameters_raise(self, parameters, words):
        with pytest.raises(ValueError, match=words):
            CASIMAC(**parameters)

    def test_functions_must_be_callable(self):
        with pytest.raises(TypeError, match=r"repulsion_function must.*found 3"):
            CASIMAC(repulsion_function=3)
        with pytest.raises(ValueError, match="registered with Keras; found 'mean'"):
            CASIMAC(repulsion_function="mean")

    @pytest.mark.parametrize(
        ("name", "function", "words"),
        [
            ("repulsion_function", lambda d: d, r"one value per row of \(4, 2\)"),
            ("repulsion_function", lambda d: -d[:, 0], "not negative; found -"),
            ("attraction_function", lambda d: d[:, 0] * np.nan, "finite values"),
            ("combination_function", lambda v: v - 1e9, "not negative; found -"),
            ("combination_function", lambda v: v.sum(), "one value per row"),
        ],
    )
    def test_functions_with_invalid_values_raise(self, name, function, words):
        x, y = samples(2, per_class=4)
        with pytest.raises(ValueError, match=f"{name} must.*{words}"):
            CASIMAC(attraction_strength=1, repulsion_number=2, **{name: function}).fit_transform(x, y)

    def test_invalid_samples_and_labels_raise(self):
        x, y = samples(3, per_class=2)
        with pytest.raises(ValueError, match=r"^y must.*found shape \(5,\)"):
            CASIMAC().fit(x, y[:5])
        with pytest.raises(ValueError, match="none of class 3 among num_classes=4"):
            CASIMAC().fit(x, y, num_classes=4)
        with pytest.raises(ValueError, match=r"^y must.*found 2 in row 2"):
            CASIMAC().fit(x, y, num_classes=2)
        with pytest.raises(ValueError, match=r"one class per sample.*found soft labels"):
            CASIMAC().fit(x, np.full((6, 3), 1 / 3))
        x[2, 0] = np.nan
        with pytest.raises(ValueError, match="finite"):
            CASIMAC().fit(x, y)

    def test_attraction_in_class_of_one_sample_raises(self):
        x, y = [[0.0], [1.0], [5.0]], [0, 0, 1]
        CASIMAC().fit_transform(x, y)
        with pytest.raises(ValueError, match=r"single one of class 1.*attraction_strength=0"):
            CASIMAC(gamma=0.5).fit(x, y)

    def test_attraction_among_copies_raises(self):
        x, y = [[0.0], [1.0], [5.0], [5.0]], [0, 0, 1, 1]
        with pytest.raises(ValueError, match="found none for 2 samples, the first at index 2 in class 1"):
            CASIMAC(gamma=0.5).fit_transform(x, y)

    def test_transform_before_fit_raises(self):
        with pytest.raises(ValueError, match=r"call fit\(x, y\)"):
            CASIMAC().transform([[0.0]], [0])

    def test_transform_of_unknown_classes_and_shapes_raises(self):
        target = CASIMAC().fit([[0.0], [1.0]], [0, 1])
        with pytest.raises(ValueError, match=r"^y must.*found 2"):
            target.transform([[0.0]], [2])
        with pytest.raises(ValueError, match=r"^y must.*found shape \(2,\)"):
            target.transform([[0.0]], [0, 1])

    def test_failed_fit_leaves_the_earlier_samples(self):
        target = CASIMAC().fit([[0.0], [1.0]], [0, 1])
        with pytest.raises(ValueError, match="finite"):
            target.fit([[np.nan], [1.0], [2.0]], [0, 1, 2])
        assert target.transform([[3.0]], [0]).loc.tolist() == [[2.0]]


def test_class_sizes():
    labels = np.array([0, 0, 2])
    with pytest.raises(ValueError, match="none of class 1, 3 among num_classes=4"):
        check_class_sizes(labels, 4, attraction=False, repulsion=True)
    with pytest.raises(ValueError, match="single one of class 2"):
        check_class_sizes(labels, 3, attraction=True, repulsion=False)
    check_class_sizes(labels, 4, attraction=False, repulsion=False)


def test_many_missing_classes_are_counted():
    with pytest.raises(ValueError, match="9, 10 and 88 more"):
        check_class_sizes(np.array([0]), 99, attraction=False, repulsion=True)
