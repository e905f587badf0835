"""What both readouts do with a settled way of computing them: pieces of rows, logarithms, compiled graphs."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar, Literal, NamedTuple, Self, cast

import tensorflow as tf
from numpy.typing import ArrayLike

from deepsimplex.latent import Covariance, LatentGaussian
from deepsimplex.readout.arguments import check_seed, latent_is_tensor, tensors, whole_number
from deepsimplex.readout.chunks import map_rows
from deepsimplex.readout.normal import tiny_of
from deepsimplex.readout.scores import Scores

# Numbers in the largest tensor of a piece of rows. Small pieces stay in the processor's cache.
_BUDGET = 2**20

Settled = Literal["exact", "quasi_monte_carlo", "monte_carlo"]


class Way(NamedTuple):
    """One way to the probabilities of a piece of rows: they, their logarithms, and its largest tensor per row."""

    probabilities: Callable[[Any, Any], Any]
    log_probabilities: Callable[[Any, Any], Any]
    row_size: int

    @classmethod
    def of_logarithms(cls, compute: Callable[[Any, Any], Any], row_size: int) -> "Way":
        """A way that works in log space throughout."""
        return cls(lambda loc, scale: tf.exp(compute(loc, scale)), compute, row_size)


@dataclass(frozen=True)
class Rule(ABC):
    """A readout whose every choice is settled, for one kind of covariance.

    Parameters
    ----------
    scores : Scores
    covariance : Covariance
    method : {"exact", "quasi_monte_carlo", "monte_carlo"}
    num_points : int or None
        Nodes, points or draws; None takes the method's own number.
    seed : int
    """

    scores: Scores
    covariance: Covariance
    method: Settled
    num_points: int | None
    seed: int
    methods: ClassVar[tuple[str, ...]]
    exact_needs: ClassVar[str]

    @classmethod
    def of(
        cls,
        latent_dim: int,
        covariance: Covariance,
        scores: ArrayLike | None,
        method: str,
        num_points: int | None,
        seed: int,
    ) -> Self:
        """Check the arguments of a readout and settle ``method``."""
        checked = Scores.of(scores, latent_dim)
        if method not in cls.methods:
            raise ValueError(f"method must be one of {', '.join(cls.methods)}; found {method!r}")
        exact = cls.formula(checked, covariance) is not None
        if method == "exact" and not exact:
            raise ValueError(
                f"method='exact' needs {cls.exact_needs}; found n = {checked.num_classes} and a {covariance} scale. "
                "method='auto' takes quasi_monte_carlo here"
            )
        settled = cast(Settled, method if method != "auto" else "exact" if exact else "quasi_monte_carlo")
        return cls(checked, covariance, settled, check_num_points(settled, num_points), check_seed(seed))

    @staticmethod
    @abstractmethod
    def formula(scores: Scores, covariance: Covariance) -> str | None:
        """Which closed form or quadrature is exact for such scores and latents, if any."""

    @abstractmethod
    def points(self, dtype: tf.DType) -> int:
        """``num_points``, or what the method takes without."""

    @property
    @abstractmethod
    def is_cheap(self) -> bool:
        """Whether a training step hardly notices it: a closed form, or one small grid for all classes."""

    @abstractmethod
    def way(self, dtype: tf.DType) -> Way:
        """How pieces of rows of a dtype are computed."""

    def probabilities(self, loc: Any, scale: Any, is_batch: bool = False) -> Any:
        """Class probabilities [N, n]; of a batch of a network's, not of any number of rows, where ``is_batch``."""
        way = self.way(loc.dtype)
        probabilities = self._over_rows(way.probabilities, loc, scale, way.row_size, is_batch)
        if self.method == "monte_carlo":
            return probabilities
        # Never zero, so that no log-loss is infinite: the smallest normal number stands for all that lies below.
        return tf.maximum(probabilities, tiny_of(loc.dtype))

    def log_probabilities(self, loc: Any, scale: Any, is_batch: bool = False) -> Any:
        """Their logarithms [N, n]."""
        way = self.way(loc.dtype)
        return self._over_rows(way.log_probabilities, loc, scale, way.row_size, is_batch)

    def _over_rows(
        self, compute: Callable[[Any, Any], Any], loc: Any, scale: Any, row_size: int, is_batch: bool
    ) -> Any:
        """In pieces that bound the memory; a batch of unknown size whole: XLA cannot differentiate pieces."""
        if is_batch and loc.shape[0] is None:
            return compute(loc, scale)
        return map_rows(compute, loc, scale, row_size, _BUDGET)

    def read(self, latent: LatentGaussian, log: bool) -> Any:
        """Class probabilities or their logarithms: arrays of arrays, by a compiled graph, and tensors of tensors."""
        if latent_is_tensor(latent):
            return (self.log_probabilities if log else self.probabilities)(*tensors(latent))
        return _compiled(self, log, str(latent.loc.dtype))(*tensors(latent)).numpy()


@lru_cache(maxsize=32)
def _compiled(rule: Rule, log: bool, dtype: str) -> Any:
    """The rule as a graph for any number of rows: traced once per setting, not once per batch size."""
    dims = rule.scores.latent_dim
    trailing = {"isotropic": [1], "diagonal": [dims], "full": [dims, dims]}[rule.covariance]
    signature = [tf.TensorSpec([None, dims], dtype), tf.TensorSpec([None, *trailing], dtype)]
    compute = rule.log_probabilities if log else rule.probabilities
    # Concrete: TensorFlow takes the functions of several rules for one that is traced too often, and warns.
    return tf.function(compute, input_signature=signature, autograph=False).get_concrete_function()


def check_num_points(method: str, num_points: int | None) -> int | None:
    """Return ``num_points``, or say why the method cannot work with so many."""
    if num_points is None:
        return None
    found = whole_number(num_points, "num_points", least=4)
    if method == "quasi_monte_carlo" and found & (found - 1):
        raise ValueError(f"num_points must be a power of two for quasi-Monte Carlo; found {found}")
    return found
