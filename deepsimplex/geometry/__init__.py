"""Geometry of the simplex: its vertices, Aitchison geometry, and maps between latent and probability space."""

from deepsimplex.geometry.aitchison import (
    aitchison_distance,
    aitchison_inner,
    aitchison_norm,
    alr,
    alr_inverse,
    closure,
    clr,
    clr_inverse,
    ilr,
    ilr_inverse,
    multiplicative_replacement,
    perturb,
    power,
)
from deepsimplex.geometry.probability_simplex import from_probability_simplex, tau_from, to_probability_simplex
from deepsimplex.geometry.vertices import helmert, nearest_vertex, vertices

__all__ = [
    "aitchison_distance",
    "aitchison_inner",
    "aitchison_norm",
    "alr",
    "alr_inverse",
    "closure",
    "clr",
    "clr_inverse",
    "from_probability_simplex",
    "helmert",
    "ilr",
    "ilr_inverse",
    "multiplicative_replacement",
    "nearest_vertex",
    "perturb",
    "power",
    "tau_from",
    "to_probability_simplex",
    "vertices",
]
