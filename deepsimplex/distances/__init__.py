"""Distances between samples, and exact nearest neighbors of every class under them."""

from deepsimplex.distances.base import Distance
from deepsimplex.distances.checkpoint import CheckpointWarning
from deepsimplex.distances.cityblock import Cityblock
from deepsimplex.distances.embedding import Embedding
from deepsimplex.distances.euclidean import Euclidean
from deepsimplex.distances.function import CallableDistance
from deepsimplex.distances.neighbors import class_neighbors
from deepsimplex.distances.precomputed import Precomputed
from deepsimplex.distances.registry import DISTANCES, get_distance
from deepsimplex.distances.search import Neighbors
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
    "Neighbors",
    "Precomputed",
    "class_neighbors",
    "get_distance",
]
