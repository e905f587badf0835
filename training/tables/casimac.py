"""[CASIMAC] Tables 1 and 3 to 5: a Gaussian process on CASIMAC's targets beside three classifiers of scikit-learn."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.gaussian_process import GaussianProcessClassifier, GaussianProcessRegressor
from sklearn.gaussian_process.kernels import ConstantKernel, Matern, WhiteKernel
from sklearn.metrics import accuracy_score, confusion_matrix, log_loss
from sklearn.neighbors import KNeighborsClassifier
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import deepsimplex as ds
from training.tables.paper_table import Cell, Data, DataFolder, PaperTable, Printed, Scores, fitted, stratified_split

SOYBEAN_MINTILL = 11
"""The class of pine that [CASIMAC]'s source takes for positive, all other pixels for negative."""


@dataclass(frozen=True)
class Setting:
    """Training samples of a data set, and the hyperparameters that the paper's cross-validation found (Appendix C)."""

    train: int
    gamma: float
    neighbors: tuple[int, int]
    smoothness: float
    process_smoothness: float
    hidden: tuple[int, ...] = ()
    metric: str = "euclidean"


SETTINGS = {
    "quadrants": Setting(40, 1.0, (10, 10), math.inf, 1.5),
    "alcohol": Setting(50, 0.0, (5, 5), math.inf, 1.5, (10, 10, 10)),
    "climate": Setting(50, 0.0, (5, 5), math.inf, 1.5, (5, 5)),
    "hiv": Setting(125, 0.0, (20, 20), 1.5, math.inf, (5, 10)),
    "pine": Setting(2000, 1.0, (1, 5), 1.5, 1.5, (10, 10, 10)),
    "wifi": Setting(500, 1 / 3, (20, 20), math.inf, 1.5, (5, 5), "cityblock"),
    "alcohol-3": Setting(25, 0.5, (1, 5), math.inf, 1.5),
}
HIV_500 = "hiv, 500 training samples"
SETTINGS[HIV_500] = replace(SETTINGS["hiv"], train=500)


def casimac(setting: Setting, seed: int, normalize: bool = True) -> Any:
    """The paper's classifier, whose probabilities are exact instead of sampled."""
    attraction, repulsion = setting.neighbors
    target = ds.targets.CASIMAC(
        setting.metric,
        gamma=setting.gamma,
        attraction_number=attraction,
        repulsion_number=repulsion,
        normalize=normalize,
    )
    kernel = Matern(nu=setting.smoothness) + WhiteKernel()
    return ds.LatentRegressionClassifier(GaussianProcessRegressor(kernel, random_state=seed), target)


METHODS: dict[str, Callable[[Setting, int], Any]] = {
    "CASIMAC": casimac,
    "CASIMAC, latents in the samples' units": lambda setting, seed: casimac(setting, seed, normalize=False),
    "GPC": lambda setting, seed: GaussianProcessClassifier(
        ConstantKernel() * Matern(nu=setting.process_smoothness) + WhiteKernel(), random_state=seed
    ),
    "kNN": lambda setting, seed: KNeighborsClassifier(5),
    "MLP": lambda setting, seed: MLPClassifier(setting.hidden, max_iter=2000, random_state=seed),
}


def quadrants(seed: int, rows: int) -> Data:
    """Points of the square [-1, 1]^2, a class for each quadrant [CASIMAC Eq. 18]."""
    X = np.random.default_rng(seed).uniform(-1.0, 1.0, (rows, 2))
    return X, np.where(X[:, 1] > 0, np.where(X[:, 0] > 0, 0, 1), np.where(X[:, 0] < 0, 2, 3))


def load(name: str, data: DataFolder) -> Data:
    """A data set with the classes that the paper gives it."""
    X, y = data.load({"alcohol-3": "alcohol", HIV_500: "hiv"}.get(name, name))
    if name == "pine":
        y = (y == SOYBEAN_MINTILL).astype(np.int64)
    return X, np.minimum(y, 2) if name == "alcohol-3" else y


def predict(name: str, method: str, train: Data, X: NDArray[np.float64], seed: int) -> NDArray[np.float64]:
    """Fit a method to standardized features, and return class probabilities [N, n]."""
    classifier = make_pipeline(StandardScaler(), METHODS[method](SETTINGS[name], seed))
    return np.asarray(fitted(classifier, *train).predict_proba(X))


def tested(name: str, method: str, repetition: int, data: DataFolder) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Class numbers of a split's test samples, and a method's class probabilities."""
    X, y = load(name, data)
    train, test = stratified_split(y, SETTINGS[name].train, repetition)
    return y[test], predict(name, method, (X[train], y[train]), X[test], repetition)


def measure_quadrants(name: str, method: str, repetition: int, data: DataFolder) -> Scores:
    """Table 1: 40 points to fit, 10 000 to test."""
    X, y = quadrants(repetition, 10_000 + SETTINGS[name].train)
    train, (X, y) = (X[10_000:], y[10_000:]), (X[:10_000], y[:10_000])
    p = predict(name, method, train, X, repetition)
    proba_loss = 1.0 - float(p[np.arange(len(y)), y].mean())
    return {"proba-loss": proba_loss, "log-loss": log_loss(y, p), "accuracy": accuracy_score(y, p.argmax(axis=1))}


def measure(name: str, method: str, repetition: int, data: DataFolder) -> Scores:
    """Table 3, and for pine the area of Table 4."""
    y, p = tested(name, method, repetition, data)
    report = ds.evaluation.report(y, p)
    scores = {
        "accuracy": report.accuracy,
        "f1": report.weighted_f1,
        "precision": report.weighted_precision,
        "recall": report.weighted_recall,
        "log-loss": float(log_loss(y, p)),  # of scikit-learn, which bounds that of kNN's zeros
    }
    return scores | ({"area deviation": float(ds.evaluation.area_deviation(y, p))} if name == "pine" else {})


def measure_confusions(name: str, method: str, repetition: int, data: DataFolder) -> Scores:
    """Table 5: the confusion matrix of the 20, 20 and 60 test samples."""
    y, p = tested(name, method, repetition, data)
    counts = confusion_matrix(y, p.argmax(axis=1))
    wrong = {
        f"class {k + 1} as {other + 1}": float(counts[k, other]) for k in range(3) for other in range(3) if k != other
    }
    return {"accuracy": float(np.trace(counts) / counts.sum())} | wrong


SCORES = ("accuracy", "f1", "precision", "recall", "log-loss")
COMPARED = ("CASIMAC", "GPC", "kNN", "MLP")
# Columns: CASIMAC, GPC, kNN, MLP; "0.907(62)" has the standard deviation 0.062.
TABLE_3 = """
alcohol accuracy 0.907(62) 0.897(44) 0.545(88) 0.848(47)
alcohol f1 0.901(67) 0.894(48) 0.526(93) 0.845(53)
alcohol precision 0.928(44) 0.922(30) 0.556(106) 0.872(43)
alcohol recall 0.907(62) 0.897(44) 0.545(88) 0.848(47)
alcohol log-loss 0.394(338) 0.932(50) 1.752(1442) 0.755(412)
climate accuracy 0.914(2) 0.915(4) 0.915(1) 0.906(12)
climate f1 0.877(7) 0.879(8) 0.875(2) 0.883(15)
climate precision 0.854(30) 0.861(30) 0.854(29) 0.874(32)
climate recall 0.914(2) 0.915(4) 0.915(1) 0.906(12)
climate log-loss 0.249(17) 0.281(9) 1.060(337) 0.341(48)
hiv accuracy 0.902(4) 0.900(5) 0.868(7) 0.880(6)
hiv f1 0.898(5) 0.898(5) 0.862(7) 0.880(6)
hiv precision 0.899(4) 0.898(5) 0.861(7) 0.880(6)
hiv recall 0.902(4) 0.900(5) 0.868(7) 0.880(6)
hiv log-loss 0.263(17) 0.290(7) 0.405(31) 0.404(18)
pine accuracy 0.937(1) 0.934(2) 0.916(2) 0.923(5)
pine f1 0.934(1) 0.931(2) 0.914(3) 0.922(5)
pine precision 0.933(2) 0.930(2) 0.913(3) 0.922(5)
pine recall 0.937(1) 0.934(2) 0.916(2) 0.923(5)
pine log-loss 0.169(7) 0.182(4) 0.396(117) 0.212(43)
wifi accuracy 0.977(2) 0.976(2) 0.968(3) 0.969(4)
wifi f1 0.977(2) 0.976(2) 0.969(3) 0.969(4)
wifi precision 0.978(2) 0.977(2) 0.969(3) 0.969(4)
wifi recall 0.977(2) 0.976(2) 0.968(3) 0.969(4)
wifi log-loss 0.130(48) 0.362(48) 0.195(59) 0.093(14)
"""
TABLE_4 = {"CASIMAC": 0.019, "GPC": 0.062, "kNN": 0.044, "MLP": 0.058}


def _cells() -> dict[Cell, dict[str, Printed]]:
    cells: dict[Cell, dict[str, Printed]] = {}
    for line in TABLE_3.strip().splitlines():
        name, score, *figures = line.split()
        for method, figure in zip(COMPARED, figures, strict=True):
            mean, deviation = figure.rstrip(")").split("(")
            cells.setdefault((name, method), {})[score] = Printed(float(mean), int(deviation) / 1000)
    for method, area in TABLE_4.items():
        cells["pine", method]["area deviation"] = Printed(area)
    return cells | {(HIV_500, method): {} for method in COMPARED}


_STANDARD = (
    "Hyperparameters are those of the paper's cross-validation (its Appendix C); features are standardized. CASIMAC's "
    "latents are divided by their root mean square, which the paper does not do: the table of four quadrants has a row "
    "without."
)
_PEERS = "GPC has an amplitude besides, without which it stays near equal probabilities."
_EXACT = (
    "The paper samples the probabilities of CASIMAC for more than two classes, so that some are zero; here all are "
    "exact."
)

TABLES = {
    "casimac_1": PaperTable(
        "[CASIMAC] Table 1: four quadrants, 40 training points",
        10,
        {
            ("quadrants", "CASIMAC"): {
                "proba-loss": Printed(0.106, 0.014),
                "log-loss": Printed(0.406, 0.332),
                "accuracy": Printed(0.913, 0.017),
            },
            ("quadrants", "CASIMAC, latents in the samples' units"): {},
            ("quadrants", "GPC"): {
                "proba-loss": Printed(0.552, 0.026),
                "log-loss": Printed(0.825, 0.055),
                "accuracy": Printed(0.924, 0.018),
            },
        },
        measure_quadrants,
        notes=(_STANDARD, _EXACT, _PEERS),
    ),
    "casimac_3": PaperTable(
        "[CASIMAC] Tables 3 and 4: five data sets, and the calibration of pine",
        10,
        _cells(),
        measure,
        notes=(
            _STANDARD,
            _EXACT,
            _PEERS,
            "pine is binary as in the paper's source, Niculescu-Mizil and Caruana (2005): Soybean-mintill, 2455 of the "
            "21 025 pixels, against all others, those without ground truth among them.",
            "The MLP trains to convergence.",
            "CASIMAC is behind in log-loss on climate, in all scores on hiv, and on pine in log-loss and by 0.003 in "
            "the others. Of its peers GPC is behind on climate in f1, precision and log-loss, the MLP in the f1 of "
            "climate and the log-loss of pine, and kNN on pine by 0.002 in accuracy and recall, and in log-loss and "
            "area; of hiv see below.",
            "Other starts of the search for hyperparameters (n_restarts_optimizer=5) leave CASIMAC's log-loss of "
            "climate at 0.298, of which two splits of ten have 0.43 and 0.40, and bring that of hiv to 0.369; an "
            "amplitude in its kernel changes neither. On two splits of pine two other starts leave the log-losses at "
            "0.211 and 0.186, an amplitude at 0.210 and 0.186, and latents that are not divided by their root mean "
            "square have 0.361 and 0.362. None of these is a row here.",
            "pine has pixels that are alike in training and test, in the paper as here.",
            "GPC's fits of hiv and climate fail with the paper's hyperparameters: its probabilities are one half for "
            "hiv, and the shares of the classes for climate. Five other starts of its search, tried once and not a row "
            "here, bring hiv's log-loss to 0.479 and leave that of climate at 0.293.",
            "hiv has 750 repeated sequences, ten of them with both labels: a random split leaks.",
            "With the 125 training samples of hiv that the paper's Table 2 states, all scores of all methods are "
            "behind. The rows with 500 have no counterpart in the paper. There CASIMAC and the MLP reach the paper's "
            "accuracies, with log-losses within one of its standard deviations. Three of GPC's ten fits fail; the "
            "other seven have a mean accuracy of 0.908 and a log-loss of 0.273, which reach the paper's. kNN has an "
            "accuracy of 0.850, and with 2000 samples, not a row here, 0.864, where the paper has 0.868: more training "
            "samples explain the differences only in part.",
            "The paper draws the area deviation from one split; here it is the mean over all.",
        ),
    ),
    "casimac_5": PaperTable(
        "[CASIMAC] Table 5: alcohol-3, 25 training and 100 test samples",
        10,
        {
            ("alcohol-3", "CASIMAC"): {
                "accuracy": Printed(0.82),
                "class 1 as 2": Printed(0),
                "class 1 as 3": Printed(1),
                "class 2 as 1": Printed(0),
                "class 2 as 3": Printed(12),
                "class 3 as 1": Printed(0),
                "class 3 as 2": Printed(5),
            }
        },
        measure_confusions,
        notes=(
            _STANDARD,
            "The paper shows one split; here are means of samples over ten. It prints no accuracy: 0.82 follows from "
            "its matrix.",
        ),
        comparable=False,
    ),
}
