"""Distances between samples, and exact nearest neighbours of every class under them."""

from deepsimplex.distances.base import Distance
from deepsimplex.distances.checkpoint import CheckpointWarning
from deepsimplex.distances.cityblock import Cityblock
from deepsimplex.distances.embedding import Embedding
from deepsimplex.distances.euclidean import Euclidean
from deepsimplex.distances.function import CallableDistance
from deepsimplex.distances.neighbours import class_neighbours
from deepsimplex.distances.precomputed import Precomputed
from deepsimplex.distances.registry import DISTANCES, get_distance
from deepsimplex.distances.search import Neighbours
from deepsimplex.distances.ssim import SSIM

__all__ = [
    "DISTANCES",
    "SSIM",
    "CallableDistance",
    "CheckpointWarning",
    "Cityblock",
    "Distance",
    "Embedding",
    "Euclidean",
    "Neighbours",
    "Precomputed",
    "class_neighbours",
    "get_distance",
]
