"""Choice of a readout's method, and its evaluation: in batches of rows that bound the memory, and compiled."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any, ClassVar, Literal, NamedTuple, Self, cast

import tensorflow as tf
from numpy.typing import ArrayLike

from deepsimplex._utils.portable_operations import portable
from deepsimplex._utils.validation import check_choice, check_flag, check_whole
from deepsimplex.latent import Covariance, LatentGaussian
from deepsimplex.readout.normal import tiny_of
from deepsimplex.readout.score_matrix import Scores

# Numbers in the largest tensor of a batch of rows. Small batches stay in the processor's cache.
_BUDGET = 2**20

ResolvedMethod = Literal["exact", "quasi_monte_carlo", "monte_carlo"]
Compute = Callable[[Any, Any], Any]


class Formula(NamedTuple):
    """Functions of ``loc`` and ``scale``: probabilities, their logarithms, and the size of a row's largest tensor."""

    probabilities: Compute
    log_probabilities: Compute
    row_size: int

    @classmethod
    def of_logarithms(cls, compute: Compute, row_size: int) -> "Formula":
        """Return a formula that works in log space throughout."""
        return cls(lambda loc, scale: tf.exp(compute(loc, scale)), compute, row_size)


@dataclass(frozen=True)
class Method(ABC):
    """A readout with its method chosen, for one kind of covariance.

    Parameters
    ----------
    scores : Scores
    covariance : Covariance
    method : {"exact", "quasi_monte_carlo", "monte_carlo"}
    num_points : int or None
        Nodes, points or draws; None takes the method's default.
    seed : int
    """

    scores: Scores
    covariance: Covariance
    method: ResolvedMethod
    num_points: int | None
    seed: int
    methods: ClassVar[tuple[str, ...]]
    exact_needs: ClassVar[str]

    @classmethod
    def choose(
        cls,
        latent_dim: int,
        covariance: Covariance,
        scores: ArrayLike | None,
        method: str,
        num_points: int | None,
        seed: int,
    ) -> Self:
        """Check the arguments of a readout, and choose the method where it is "auto"."""
        checked = Scores.of(scores, latent_dim)
        check_choice(method, "method", cls.methods)
        exact = cls.exact_formula(checked, covariance) is not None
        if method == "exact" and not exact:
            raise ValueError(
                f"method='exact' needs {cls.exact_needs}; found n = {checked.num_classes} and a {covariance} scale. "
                "method='auto' takes quasi_monte_carlo here"
            )
        resolved = cast(ResolvedMethod, method if method != "auto" else "exact" if exact else "quasi_monte_carlo")
        return cls(checked, covariance, resolved, check_num_points(resolved, num_points), check_whole(seed, "seed", 0))

    @staticmethod
    @abstractmethod
    def exact_formula(scores: Scores, covariance: Covariance) -> str | None:
        """Name of the closed form or quadrature that is exact for such scores and latents; None if there is none."""

    @abstractmethod
    def points(self, dtype: tf.DType) -> int:
        """Return ``num_points``, or the method's default."""

    @property
    @abstractmethod
    def is_cheap(self) -> bool:
        """Whether the method takes little of a training step: a closed form, or one small grid for all classes."""

    @abstractmethod
    def formula(self, dtype: tf.DType) -> Formula:
        """Return the functions that compute a batch of rows of a dtype."""

    def probabilities(self, loc: Any, scale: Any, whole: bool = False) -> Any:
        """Class probabilities [N, n]; ``whole`` computes batches of unknown size, such as a network's, at once."""
        return self._compute(loc, scale, log=False, whole=whole)

    def log_probabilities(self, loc: Any, scale: Any, whole: bool = False) -> Any:
        """Logarithms of the class probabilities [N, n]."""
        return self._compute(loc, scale, log=True, whole=whole)

    def read(self, latent: LatentGaussian, log: bool) -> Any:
        """Class probabilities or their logarithms: arrays for arrays, by a compiled function; tensors for tensors."""
        check_flag(log, "log")
        if latent.holds_tensors:
            return self._compute(*latent.tensors(), log=log, whole=False)
        return _of_arrays(self, log, str(latent.loc.dtype))(*latent.tensors()).numpy()

    def _compute(self, loc: Any, scale: Any, *, log: bool, whole: bool) -> Any:
        rows = loc.shape[0]
        many = rows is not None and rows > _BUDGET // self.formula(loc.dtype).row_size
        if tf.executing_eagerly() or portable() or many:
            return self._traced(loc, scale, log=log, whole=whole)
        result = _compiled(self, log, whole or rows is not None, loc.dtype.name)(loc, scale)
        result.set_shape([rows, self.scores.num_classes])
        return result

    def _traced(self, loc: Any, scale: Any, *, log: bool, whole: bool) -> Any:
        formula = self.formula(loc.dtype)
        compute = formula.log_probabilities if log else formula.probabilities
        if whole and loc.shape[0] is None:  # XLA cannot differentiate loops of unknown length
            result = compute(loc, scale)
        else:
            result = map_rows(compute, loc, scale, formula.row_size, _BUDGET)
        if log or self.method == "monte_carlo":
            return result
        # Never zero, so that no log-loss is infinite: the smallest normal number stands for all that lies below.
        return tf.maximum(result, tiny_of(loc.dtype))


@lru_cache(maxsize=128)
def _compiled(method: Method, log: bool, whole: bool, dtype: str) -> Any:
    """The method as a function of any number of rows, traced once per setting, not once per model.

    Its gradient is a second traced function, which computes the probabilities again: if they were passed from one graph
    to the other, axes and shapes would not be constants in the second, as XLA requires. TensorFlow merges the two
    unless they contain loops or branches. TensorFlow also keeps the graph in which a custom gradient is defined in
    memory: here that of this function, not that of a model.
    """
    dims = method.scores.latent_dim
    trailing = {"isotropic": [1], "diagonal": [dims], "full": [dims, dims]}[method.covariance]
    signature = [tf.TensorSpec([None, dims], dtype), tf.TensorSpec([None, *trailing], dtype)]
    upstream = tf.TensorSpec([None, method.scores.num_classes], dtype)

    def values(loc: Any, scale: Any) -> Any:
        return method._traced(loc, scale, log=log, whole=whole)

    slopes = tf.function(partial(_slopes, values), input_signature=[*signature, upstream], autograph=False)

    @tf.custom_gradient
    def differentiable(loc: Any, scale: Any) -> tuple[Any, Any]:
        return values(loc, scale), partial(slopes, loc, scale)

    return tf.function(differentiable, input_signature=signature, autograph=False)


@lru_cache(maxsize=32)
def _of_arrays(method: Method, log: bool, dtype: str) -> Any:
    """The same for NumPy arrays, as a concrete function: TensorFlow would warn that one function is retraced often."""
    return _compiled(method, log, False, dtype).get_concrete_function()


def _slopes(compute: Compute, loc: Any, scale: Any, upstream: Any) -> tuple[Any, Any]:
    with tf.GradientTape() as tape:
        tape.watch([loc, scale])
        result = compute(loc, scale)
    gradients = tape.gradient(result, [loc, scale], upstream)
    if any(gradient is None for gradient in gradients):
        raise ValueError("probabilities counted among draws have no derivatives: take another method")
    return tuple(gradients)


def check_num_points(method: str, num_points: int | None) -> int | None:
    """Return ``num_points``; raise ValueError if the method cannot work with that number."""
    if num_points is None:
        return None
    found = check_whole(num_points, "num_points", 4, 2**24)
    if method == "quasi_monte_carlo" and found & (found - 1):
        raise ValueError(f"num_points must be a power of two for quasi-Monte Carlo; found {found}")
    return found


def map_rows(compute: Compute, loc: Any, scale: Any, row_size: int, budget: int) -> Any:
    """Apply ``compute(loc, scale) -> [rows, n]`` to batches of the rows and join the results.

    A gradient computes them again, batch by batch.

    Parameters
    ----------
    compute : callable
        A function that works on each row by itself.
    loc, scale : tensor, shapes [N, L] and [N, ...]
    row_size : int
        Numbers in the largest intermediate tensor of one row.
    budget : int
        Numbers that this tensor may hold for a batch.

    Returns
    -------
    tensor, shape [N, n]
    """
    most = max(1, budget // row_size)
    static = loc.shape[0]
    if static is not None and static <= most:
        return compute(loc, scale)
    return _in_batches_if_many(compute, most)(loc, scale)


def _in_batches_if_many(compute: Compute, most: int) -> Compute:
    """Wrap ``compute`` to loop over batches of more than ``most`` rows; even a loop of one iteration is slow."""

    @tf.custom_gradient
    def run(loc: Any, scale: Any) -> tuple[Any, Any]:
        def apply(function: Callable[..., Any], signature: Any, *arguments: Any) -> Any:
            if loc.shape[0] is not None:
                return in_batches(function, signature, most, *arguments)
            few = tf.shape(loc)[0] <= most
            return tf.cond(few, lambda: function(*arguments), lambda: in_batches(function, signature, most, *arguments))

        # Not recorded by an outer gradient tape, which would keep every tensor of every batch in eager mode.
        result = apply(compute, loc.dtype, tf.stop_gradient(loc), tf.stop_gradient(scale))

        # Computed again, batch by batch: memory stays bounded, and nothing passes from branch to branch.
        def gradient(upstream: Any) -> Any:
            return apply(partial(_slopes, compute), (loc.dtype, scale.dtype), loc, scale, upstream)

        return result, gradient

    return run


def in_batches(compute: Callable[..., Any], signature: Any, most: int, *arguments: Any) -> Any:
    """Apply a row-wise function to at most ``most`` rows at a time, in a TensorFlow loop, and join the results.

    Parameters
    ----------
    compute : callable
        (arguments...) -> tensor, or structure of tensors, whose rows depend on those of the arguments alone.
    signature : tf.DType, or structure of such
        Dtypes of the results.
    most : int
        Rows at a time.
    *arguments : tensor, shape [N, ...]
        N may be unknown in a graph.
    """
    # Python numbers where the number of rows is known: XLA requires the shapes of a loop to be constants.
    static = arguments[0].shape[0]
    rows = tf.shape(arguments[0])[0] if static is None else static
    batches = -(-rows // most) if static is not None else tf.maximum(1, -(-rows // most))
    size = -(-rows // batches)
    padding = batches * size - rows

    def split(tensor: Any) -> Any:
        trailing = list(tensor.shape[1:])
        # Ones: a padded row must be an ordinary Gaussian, since its gradient is computed too.
        padded = tf.pad(tensor, [[0, padding]] + [[0, 0]] * len(trailing), constant_values=1.0)
        return tf.reshape(padded, [batches, size, *trailing])

    def join(tensor: Any) -> Any:
        rest = tensor.shape[2:]
        return tf.ensure_shape(tf.reshape(tensor, [batches * size, *rest])[:rows], [static, *rest])

    split_arguments = tuple(split(argument) for argument in arguments)
    result = tf.map_fn(
        lambda batch: compute(*batch), split_arguments, fn_output_signature=signature, parallel_iterations=1
    )
    return tf.nest.map_structure(join, result)
