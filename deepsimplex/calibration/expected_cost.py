"""Decisions of least expected cost, for a cost of every class and decision."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from deepsimplex._utils.array_operations import operations
from deepsimplex._utils.portable_operations import precise_dtype
from deepsimplex._utils.registry import registered
from deepsimplex._utils.validation import check_array, check_in_class_order
from deepsimplex.calibration.decision_rule import DecisionRule


@registered
class ExpectedCost(DecisionRule):
    """Decide for the class of least expected cost, or for none where that costs less.

    Parameters
    ----------
    costs : array_like, shape [n, n]
        Cost of each decision (column) for samples of each class (row), in any unit; a gain is a negative cost.
    abstention : float or array_like, shape [n], optional
        Cost of an abstention, which is decision -1: a number, or one for each class. Default None: no abstentions.

    Raises
    ------
    ValueError
        For costs that are not finite or not square, an abstention of another shape, and frames whose rows or columns
        are named: pass arrays in the order of the classes.

    Notes
    -----
    With class probabilities p the expected cost of decision d is sum_k p_k costs[k, d]; of equal ones the first class
    is taken, and a class before an abstention. Only differences of costs within a row count. Errors of equal cost 1 and
    ``abstention=c`` abstain where the largest probability is below 1 - c (Chow 1970). Probabilities must be calibrated,
    and for the class frequencies where they are used: see ``set_priors``.

    A threshold t of the probability of class 1 of two has the costs [[0, t], [1 - t, 0]].

    Examples
    --------
    A missed case costs 20 times as much as a false alarm, a question to a person half of one:

    >>> rule = ExpectedCost([[0, 1], [20, 0]], abstention=0.5)
    >>> rule.decide([[0.99, 0.01], [0.95, 0.05], [0.4, 0.6]])
    array([ 0, -1,  1])
    """

    def __init__(self, costs: ArrayLike, abstention: float | ArrayLike | None = None) -> None:
        check_in_class_order(costs, "costs")
        self.costs: NDArray[np.float64] = check_array(costs, "costs", "[n, n]", least=2)
        n = len(self.costs)
        if self.costs.shape != (n, n):
            raise ValueError(
                f"costs must have a row for each class and a column for each decision, [n, n]; found shape "
                f"{self.costs.shape}. The cost of an abstention is another argument"
            )
        self.abstention = abstention
        if abstention is not None:
            check_in_class_order(abstention, "abstention")
            given = check_array(abstention, "abstention")
            if given.shape not in ((), (n,)):
                raise ValueError(
                    f"abstention must be a number, or hold one for each of the {n} classes; found shape {given.shape}"
                )
            self.abstention = given if given.shape else float(given)

    def decide_tensor(self, p: Any) -> Any:
        """Return the decisions [N] of class probabilities [N, n], an array or a tensor."""
        n = len(self.costs)
        if p.shape[1] != n:
            raise ValueError(f"costs must be those of the {p.shape[1]} classes of p, [n, n]; found {n} rows")
        costs = self.costs
        if self.abstention is not None:
            costs = np.column_stack([costs, np.broadcast_to(self.abstention, n)])
        ops = operations(p)
        p = ops.cast(p, precise_dtype())
        decisions = ops.argmax(-ops.matmul(p, ops.constant(costs, p.dtype)), axis=1)
        return ops.where(decisions == n, ops.constant(-1, ops.int64), decisions)
