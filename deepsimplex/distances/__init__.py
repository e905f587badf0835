"""Distances between samples, and exact nearest neighbors of every class under them."""

from deepsimplex.distances.distance import CallableDistance, Distance
from deepsimplex.distances.embedding_distance import Embedding
from deepsimplex.distances.exact_search import Neighbors
from deepsimplex.distances.named_distances import DISTANCES, get_distance
from deepsimplex.distances.neighbors import class_neighbors, neighbor_error
from deepsimplex.distances.precomputed import Precomputed
from deepsimplex.distances.ssim import SSIM
from deepsimplex.distances.vector_distances import Cityblock, Euclidean

__all__ = [
    "DISTANCES",
    "SSIM",
    "CallableDistance",
    "Cityblock",
    "Distance",
    "Embedding",
    "Euclidean",
    "Neighbors",
    "Precomputed",
    "class_neighbors",
    "get_distance",
    "neighbor_error",
]
