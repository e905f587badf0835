"""Array algorithms of Learning Vector Quantization (LVQ) and of Gaussian processes on prototypes (GPLVQ).

The scikit-learn classifiers ``LVQ1``, ``LVQ2``, ``GLVQ``, ``GMLVQ`` and ``GPLVQ`` of ``deepsimplex`` use them.
"""

from deepsimplex.heads.prototype_initialization import initial_prototypes
from deepsimplex.prototypes.metric_learning import fit_glvq, fit_gmlvq
from deepsimplex.prototypes.online_learning import PrototypeFit, fit_gplvq, fit_lvq

__all__ = [
    "PrototypeFit",
    "fit_glvq",
    "fit_gmlvq",
    "fit_gplvq",
    "fit_lvq",
    "initial_prototypes",
]
