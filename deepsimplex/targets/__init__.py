"""Targets: turn a label, with its sample or without, into a Gaussian observation in latent space."""

from deepsimplex.targets.casimac import CASIMAC
from deepsimplex.targets.dirichlet import Dirichlet
from deepsimplex.targets.ilr import ILR
from deepsimplex.targets.mean import TARGETS, Mean
from deepsimplex.targets.neighbor_cache import TargetCacheWarning
from deepsimplex.targets.one_hot import OneHot, Vertices
from deepsimplex.targets.target import LabelTarget, Target

__all__ = [
    "CASIMAC",
    "ILR",
    "TARGETS",
    "Dirichlet",
    "LabelTarget",
    "Mean",
    "OneHot",
    "Target",
    "TargetCacheWarning",
    "Vertices",
]
