"""Choice of a target's smoothing or concentration by the likelihood of labels."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.datasets import load_iris
from sklearn.utils.estimator_checks import check_dict_unchanged, check_estimators_overwrite_params, check_fit2d_1sample

import deepsimplex as ds
from deepsimplex.estimators.selection import hold_out


@pytest.fixture(scope="module")
def iris():
    X, y = load_iris(return_X_y=True)
    return X[::2], y[::2], X[1::2], y[1::2]


def brief(target="ilr", smoothing="validate", **arguments):
    return ds.SimplexGaussianProcess(target, smoothing=smoothing, max_iter=4, **arguments)


@pytest.mark.parametrize("check", [check_dict_unchanged, check_estimators_overwrite_params, check_fit2d_1sample])
def test_scikit_learn_checks_pass(check):
    """Those of its checks that more fits than one could break: each asks for five, so not all."""
    check("SimplexGaussianProcess", brief("dirichlet"))


@settings(max_examples=60, deadline=None)
@given(sizes=st.lists(st.integers(0, 40), min_size=1, max_size=6), seed=st.integers(0, 100))
def test_one_tenth_of_every_class_is_held_out(sizes, seed):
    y = np.random.default_rng(seed).permutation(np.repeat(np.arange(len(sizes)), sizes))
    if max(sizes) < 2:
        return
    learn, held_out = hold_out(y, seed)
    np.testing.assert_array_equal(np.sort(np.concatenate([learn, held_out])), np.arange(len(y)))
    assert len(held_out) >= 1
    counts = np.bincount(y[held_out], minlength=len(sizes))
    for size, count in zip(sizes, counts, strict=True):
        assert (0 if size < 2 else size // 10) <= count <= (0 if size < 2 else -(-size // 10))
    np.testing.assert_array_equal(hold_out(y, seed)[1], held_out)


def test_classes_of_one_row_raise():
    with pytest.raises(ValueError, match="found single ones"):
        hold_out(np.arange(3), seed=0)


@pytest.mark.slow
@pytest.mark.parametrize(("target", "argument"), [("ilr", "smoothing"), ("dirichlet", "concentration")])
def test_value_of_least_held_out_nll_is_chosen(target, argument, iris):
    X, y, X_test, _ = iris
    classifier = brief(target, random_state=3).fit(X, y)
    candidates = type(ds.targets.TARGETS.get(target)).candidates
    assert list(classifier.smoothing_scores_) == list(candidates.values)
    assert classifier.smoothing_ == min(candidates.values, key=classifier.smoothing_scores_.get)
    learn, held_out = hold_out(y, 3)
    for value in candidates.values[:2]:
        alone = brief({"name": target, argument: value}, None, random_state=3).fit(X[learn], y[learn])
        nll = ds.evaluation.negative_log_likelihood(y[held_out], alone.predict_proba(X[held_out]))
        np.testing.assert_allclose(classifier.smoothing_scores_[value], nll, rtol=1e-9)
    # The final fit is on all rows, at that value.
    refitted = brief({"name": target, argument: classifier.smoothing_}, None, random_state=3).fit(X, y)
    np.testing.assert_array_equal(classifier.predict_proba(X_test), refitted.predict_proba(X_test))
    assert classifier.target_.get_config()[argument] == classifier.smoothing_
    assert (refitted.smoothing_, refitted.smoothing_scores_) == (None, {})


@pytest.mark.slow
def test_value_of_least_training_nll_is_chosen(iris):
    X, y, *_ = iris
    classifier = brief("dirichlet", "train").fit(X, y)
    nll = ds.evaluation.negative_log_likelihood(y, classifier.predict_proba(X))
    np.testing.assert_allclose(min(classifier.smoothing_scores_.values()), nll, rtol=1e-9)
    assert classifier.smoothing_scores_[classifier.smoothing_] == min(classifier.smoothing_scores_.values())


def test_other_target_arguments_are_kept(iris):
    X, y, *_ = iris
    target = ds.targets.ILR(0.5, overlap=0.2)
    classifier = brief(target).fit(X, y)
    assert classifier.target is target
    assert classifier.target_.overlap == 0.2
    assert classifier.target_.smoothing != 0.5


@pytest.mark.slow
def test_scores_of_soft_and_named_labels_equal_class_numbers(iris):
    X, y, *_ = iris
    numbers = brief("dirichlet").fit(X, y)
    named = brief("dirichlet", classes=["c", "b", "a"]).fit(X, np.array(["c", "b", "a"])[y])
    soft = brief("dirichlet").fit(X, np.eye(3)[y])
    for other in (named, soft):
        np.testing.assert_allclose(
            list(other.smoothing_scores_.values()), list(numbers.smoothing_scores_.values()), rtol=1e-6
        )


@pytest.mark.slow
def test_callback_receives_only_the_final_fit(iris):
    X, y, *_ = iris
    steps, expected = [], []
    classifier = brief().fit(X, y, callback=lambda step: steps.append(step.iteration))
    brief(ds.targets.ILR(classifier.smoothing_), None).fit(X, y, callback=lambda step: expected.append(step.iteration))
    assert steps == expected


@pytest.mark.parametrize(
    ("target", "smoothing", "message"),
    [
        ("ilr", "validation", r"smoothing must.*found 'validation'"),
        ("one_hot", "validate", "smoothing='validate' needs.*found OneHot"),
        ("casimac", "train", "smoothing='train' needs.*found CASIMAC"),
    ],
)
def test_invalid_smoothing_raises(target, smoothing, message, iris):
    X, y, *_ = iris
    with pytest.raises(ValueError, match=message):
        brief(target, smoothing).fit(X, y)
