"""scikit-learn's own checks of our classifiers: all of them of one of each family, a dozen of its siblings.

``training.robustness.estimator_checks`` runs all of every classifier, with other settings too.
"""

from functools import partial

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.utils import estimator_checks
from sklearn.utils.estimator_checks import parametrize_with_checks

import deepsimplex as ds
from tests.quick_runs import eager_classifiers
from training.robustness.estimator_checks import CASES

# The checks fit fifty times and ask for answers, not for good ones: a few steps will do. Argmax reads out hundreds of
# rows in a thirtieth of the time; the softmax link has no choice.
FEW_EPOCHS = {"inducing": 20, "epochs": 2, "batch_size": 64}
EXACT = ds.SimplexGaussianProcess("dirichlet", readout="argmax", max_iter=5)
MINIBATCHES = {
    "stochastic": ds.SimplexGaussianProcess("ilr", inference="stochastic", readout="argmax", **FEW_EPOCHS),
    "categorical": ds.CategoricalGaussianProcess("softmax", **FEW_EPOCHS),
}
# Every fit is traced, with Adam for longer. An object's address would be in the tests' names.
SGD = {"class_name": "SGD", "config": {"learning_rate": 0.3}}
NETWORK = ds.estimators.SimplexNetworkClassifier(
    {"name": "mlp", "hidden": [8]}, readout="argmax", optimizer=SGD, epochs=3, batch_size=64
)


DEFAULT, OF_DEFAULT = CASES["SimplexGaussianProcess"][0]
EQUIVALENCE = "check_sample_weight_equivalence_on_dense_data"


def expected_failures(classifier):
    """Checks that a classifier cannot pass, with the reason."""
    if classifier is DEFAULT:
        return OF_DEFAULT
    if isinstance(classifier, ds.LatentRegressionClassifier):
        return {EQUIVALENCE: "a repeated sample is its own nearest neighbor"}
    if isinstance(classifier, ds.estimators.SimplexNetworkClassifier):
        return {EQUIVALENCE: "minibatches are random"}
    return {}


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.slow
@parametrize_with_checks([DEFAULT, ds.LatentRegressionClassifier()], expected_failed_checks=expected_failures)
def test_scikit_learn_checks(estimator, check):
    check(estimator)


@pytest.mark.slow
@parametrize_with_checks([EXACT, NETWORK], expected_failed_checks=expected_failures)
def test_scikit_learn_checks_of_gaussian_processes_and_networks(estimator, check, monkeypatch):
    """Networks run eagerly, for a few steps take less time than their traces.

    Memory maps are read before the head, whose kernel takes half of a step: the checks of arrays have the default one.
    Networks predict in single precision, whose rounding depends on the place of a sample in its batch.
    """
    if isinstance(estimator, ds.estimators.SimplexNetworkClassifier):
        if check.keywords.get("readonly_memmap"):
            estimator.set_params(head="gaussian")
        if check.func.__name__ == "check_methods_sample_order_invariance":
            single = partial(np.testing.assert_allclose, rtol=1e-4)
            monkeypatch.setattr(
                estimator_checks, "assert_allclose_dense_sparse", lambda *a, atol, **k: single(*a, atol=1e-5, **k)
            )
    with eager_classifiers():
        check(estimator)


# What depends on how a classifier fits; what it shares with the exact one is checked there.
FITTING_CHECKS = [
    "check_classifiers_train",
    "check_classifiers_classes",
    "check_classifiers_one_label",
    "check_classifiers_one_label_sample_weights",
    "check_dict_unchanged",
    "check_estimators_dtypes",
    "check_estimators_overwrite_params",
    "check_fit2d_1feature",
    "check_fit2d_1sample",
    "check_fit_idempotent",
    "check_methods_sample_order_invariance",
    "check_methods_subset_invariance",
    "check_sample_weights_not_overwritten",
]


@pytest.mark.slow
@pytest.mark.parametrize("check", FITTING_CHECKS)
@pytest.mark.parametrize("inference", MINIBATCHES)
def test_scikit_learn_checks_of_minibatch_fits(inference, check):
    getattr(estimator_checks, check)(inference, clone(MINIBATCHES[inference]))


# Few iterations: the checks are about interfaces and need no more than good predictions on three blobs.
PROTOTYPES = [
    ds.LVQ1(max_iter=3),
    ds.LVQ2(2, window=0.3, max_iter=3),
    ds.GLVQ(2, initialization="k-means++", max_iter=5),
    ds.GMLVQ(max_iter=5),
    ds.GMLVQ(2, regularization=0.0, activation="linear", max_iter=5),
    ds.LGMLVQ(max_iter=5),
    ds.GPLVQ(max_iter=3),
]


def failures_of_online_algorithms(classifier):
    """Checks that online algorithms cannot pass, with the reason."""
    failures = {}
    if isinstance(classifier, ds.LVQ1 | ds.LVQ2):
        failures[EQUIVALENCE] = "samples come in a random order, one by one"
    if isinstance(classifier, ds.LVQ2 | ds.GPLVQ):
        reason = "prototypes of classes of hardly any weight are not driven out of the others' way"
        failures["check_class_weight_classifiers"] = reason
    return failures


@pytest.mark.filterwarnings("ignore:prototypes .* are the nearest of no training sample:UserWarning")
@parametrize_with_checks(PROTOTYPES, expected_failed_checks=failures_of_online_algorithms)
def test_scikit_learn_checks_of_prototype_classifiers(estimator, check):
    check(estimator)
