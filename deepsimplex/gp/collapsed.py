"""The collapsed sparse Gaussian process: Titsias' bound, with noise that may differ per sample and latent dimension."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from deepsimplex.gp.base import GaussianProcess
from deepsimplex.gp.inducing import inducing_points
from deepsimplex.gp.optimize import Evaluation
from deepsimplex.gp.points import MovablePoints
from deepsimplex.gp.posterior import Posterior
from deepsimplex.gp.sparse import SparseProblem
from deepsimplex.latent import LatentGaussian


class CollapsedGaussianProcess(GaussianProcess):
    """Sparse Gaussian-process regression onto latents by Titsias' bound.

    sum_l log N(z_l | 0, Q + diag(v_l)) - tr((K - Q) / v_l) / 2 with Q = K_nm K_mm^-1 K_mn [Titsias 2009], one kernel
    and, unless told otherwise, one set of inducing points for all latent dimensions. Where those share their noise too
    (CASIMAC, ILR, one-hot) one factor serves all; else (Dirichlet) there is one per dimension.

    Parameters
    ----------
    inducing : int or array_like, shape [M, d]
        Number of inducing points, chosen by k-means++ in every class; or the points, in the units of the features.
        Default 200.
    learn_inducing : bool
        Whether the points are moved to raise the bound. Default False: they stay among the samples.
    separate_inducing : bool
        Whether every latent dimension has inducing points of its own. Default False: one set for all. Separate ones
        tell more from as many points, at as many times the cost as there are dimensions; the variances of a prediction
        differ then, too.
    **settings
        See ``GaussianProcess``.

    Notes
    -----
    [ILR-GP sec. 3.2], [GPD sec. 4]. Rows are summed block by block, forwards and once more for the derivatives, so that
    memory does not grow with M N. A step costs M^2 N, and as much again for every dimension's samples whose noise is
    not the most frequent of that dimension: Dirichlet targets of hard labels cost twice what ILR targets do, not n
    times.

    Examples
    --------
    >>> from deepsimplex import LatentGaussian
    >>> X = np.linspace(0.0, 6.0, 200)[:, None]
    >>> process = CollapsedGaussianProcess(inducing=20).fit(X, LatentGaussian(np.sin(X), np.full((200, 1), 0.01)))
    >>> bool(abs(process.predict(X).loc - np.sin(X)).max() < 0.01)
    True
    """

    def __init__(
        self,
        kernel: Any = "rbf",
        *,
        inducing: int | ArrayLike = 200,
        learn_inducing: bool = False,
        separate_inducing: bool = False,
        **settings: Any,
    ) -> None:
        super().__init__(kernel, **settings)
        self.inducing, self.learn_inducing, self.separate_inducing = inducing, learn_inducing, separate_inducing

    def _problem(self, X: NDArray[np.float64], observation: LatentGaussian, y: ArrayLike | None) -> SparseProblem:
        problem = super()._problem(X, observation, y)
        sets = problem.Z.shape[1] if self.separate_inducing else 1
        points = inducing_points(self.inducing, problem.X, problem.features, self.seed, y, sets)
        return SparseProblem(problem, MovablePoints(points, problem.X, self.learn_inducing))

    def _evaluation(self, problem: SparseProblem) -> Evaluation:
        value, by_sums = problem.bound(*problem.sums())
        if not np.isfinite(value):
            problem.check_inducing()  # which says why, if that is why
        return float(value), problem.pull_back_sums(by_sums)

    def _posterior(self, problem: SparseProblem) -> Posterior:
        return problem.sparse_posterior()
