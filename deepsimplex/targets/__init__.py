"""Targets: how a label, with its sample or without, becomes a Gaussian observation in latent space."""

from deepsimplex.targets.base import Candidates, LabelTarget, Target
from deepsimplex.targets.cache import TargetCacheWarning
from deepsimplex.targets.casimac import CASIMAC
from deepsimplex.targets.dirichlet import Dirichlet
from deepsimplex.targets.ilr import ILR
from deepsimplex.targets.mean import Mean
from deepsimplex.targets.one_hot import OneHot
from deepsimplex.targets.registry import TARGETS, get_target, target_from_config
from deepsimplex.targets.vertices import Vertices

__all__ = [
    "CASIMAC",
    "ILR",
    "TARGETS",
    "Candidates",
    "Dirichlet",
    "LabelTarget",
    "Mean",
    "OneHot",
    "Target",
    "TargetCacheWarning",
    "Vertices",
    "get_target",
    "target_from_config",
]
