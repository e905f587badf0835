"""scikit-learn's own checks of every classifier, at its defaults and two other settings; the tests run a selection.

``python -m training.robustness.estimator_checks [NAME ...]`` prints the checks that fail, with the reason where one is
expected. All take an hour, networks half of it.
"""

import argparse
import warnings
from typing import Any

from sklearn.linear_model import BayesianRidge, Ridge
from sklearn.utils.estimator_checks import check_estimator

import deepsimplex as ds

EQUIVALENCE = "check_sample_weight_equivalence_on_dense_data"
WEIGHTED_CLASSES = "check_class_weight_classifiers"
_FEW: dict[str, Any] = {"inducing": 20, "epochs": 3, "batch_size": 64}

# scikit-learn expects such failures of its own estimators: "sample_weight is not equivalent to removing/repeating
# samples" of stochastic ones, and poor scores of restricted ones.
_ONLINE = {EQUIVALENCE: "samples come in a random order, one by one"}
_MINIBATCHES = {EQUIVALENCE: "minibatches are random"}
_NETWORK = _MINIBATCHES | {
    "check_methods_sample_order_invariance": "networks predict in single precision, which depends on the batch"
}
_INDUCING = {EQUIVALENCE: "inducing points are drawn at random among the rows"}
_COPIES = {EQUIVALENCE: "a repeated sample predicts its copy, one of weight two is left out as a whole"}
_NEIGHBORS = {EQUIVALENCE: "a repeated sample is its own nearest neighbor"}
_NOT_REPELLED = {WEIGHTED_CLASSES: "prototypes of classes of hardly any weight are not driven out of the others' way"}

CASES: dict[str, list[tuple[Any, dict[str, str]]]] = {
    "GLVQ": [
        (ds.GLVQ(), {}),
        (ds.GLVQ(3, activation="linear"), {}),
        (ds.GLVQ(2, initialization="k-means++", scale_features=False), {}),
    ],
    "GMLVQ": [(ds.GMLVQ(), {}), (ds.GMLVQ(rank=2), {}), (ds.GMLVQ(2, regularization=0.0), {})],
    "GPLVQ": [
        (ds.GPLVQ(), _NOT_REPELLED | _ONLINE),
        (ds.GPLVQ(1, decay=False), _NOT_REPELLED | _ONLINE),
        (ds.GPLVQ(2, initialization="means"), _NOT_REPELLED | _ONLINE),
    ],
    "LVQ1": [
        (ds.LVQ1(), _ONLINE),
        (ds.LVQ1(3, decay=False), _ONLINE | _NOT_REPELLED),
        (ds.LVQ1(2, initialization="samples", class_weight="balanced"), _ONLINE),
    ],
    "LVQ2": [
        (ds.LVQ2(), _ONLINE | _NOT_REPELLED),
        (ds.LVQ2(3, window=0.3), _ONLINE | _NOT_REPELLED),
        (ds.LVQ2(2, initialization="samples", max_iter=10), _ONLINE | _NOT_REPELLED),
    ],
    "LatentRegressionClassifier": [
        (ds.LatentRegressionClassifier(), _NEIGHBORS),
        (ds.LatentRegressionClassifier(Ridge(), "ilr"), {}),
        (ds.LatentRegressionClassifier(BayesianRidge(), "dirichlet"), {}),
    ],
    "SimplexGaussianProcess": [
        (ds.SimplexGaussianProcess(), _COPIES),
        (ds.SimplexGaussianProcess("dirichlet", kernel="matern32", ard=True, max_iter=20), {}),
        (ds.SimplexGaussianProcess("one_hot", "collapsed", inducing=20, max_iter=20), _INDUCING),
        (ds.SimplexGaussianProcess("ilr", inference="stochastic", **_FEW), _MINIBATCHES),
    ],
    "CategoricalGaussianProcess": [
        (ds.CategoricalGaussianProcess(), _MINIBATCHES),
        (ds.CategoricalGaussianProcess("softmax", **_FEW), _MINIBATCHES),
        (ds.CategoricalGaussianProcess(mixing=True, learn_inducing=False, **_FEW), _MINIBATCHES),
    ],
    "SimplexNetworkClassifier": [
        (ds.estimators.SimplexNetworkClassifier(), _NETWORK),
        (ds.estimators.SimplexNetworkClassifier(target="vertices", head="gaussian", epochs=20), _NETWORK),
        (ds.estimators.SimplexNetworkClassifier({"name": "mlp", "hidden": [8]}, "casimac", epochs=20), _NETWORK),
    ],
}


def unexpected(classifier: Any, expected: dict[str, str]) -> list[str]:
    """Run the checks; return a line for every failure that is not expected."""
    results = check_estimator(classifier, on_fail=None, on_skip=None, expected_failed_checks=expected)
    failed = [result for result in results if result["status"] == "failed"]
    return [f"{result['check_name']}: {type(result['exception']).__name__}" for result in failed]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name", nargs="*", default=list(CASES), choices=list(CASES))
    warnings.simplefilter("ignore")
    for name in parser.parse_args().name:
        for classifier, expected in CASES[name]:
            lines = unexpected(classifier, expected)
            print(f"{classifier!r}: {len(lines)} unexpected failures", *lines, sep="\n    ", flush=True)
