"""Cholesky factors of covariance matrices that round-off may have made singular."""

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import lapack

from deepsimplex._utils.messages import warn_caller

# Jitter to try in turn, relative to the mean of the diagonal.
_JITTERS = (0.0, 1e-12, 1e-10, 1e-8, 1e-6, 1e-4)


class SingularError(ValueError):
    """A covariance matrix has no Cholesky factor."""


def cholesky(A: NDArray[np.float64], *, warn: bool = False) -> NDArray[np.float64]:
    """Compute the lower-triangular factor of A, with the least jitter on its diagonal that gives one.

    Parameters
    ----------
    A : ndarray, shape [N, N]
        Symmetric, positive semi-definite up to round-off; its upper triangle is not read.
    warn : bool
        Whether to warn if jitter was added. Default False.

    Returns
    -------
    ndarray, shape [N, N]

    Raises
    ------
    SingularError
        If 1e-4 of the mean diagonal is not enough, or A is not finite. It is a ValueError.

    Warns
    -----
    RuntimeWarning
        With the jitter added, if ``warn``.

    Examples
    --------
    >>> cholesky(np.array([[4.0, 0.0], [2.0, 2.0]]))
    array([[2., 0.],
           [1., 1.]])
    """
    diagonal = np.diagonal(A)
    not_finite = "the kernel's covariance matrix is not finite: are features or hyperparameters too large?"
    if not np.isfinite(diagonal).all():
        raise SingularError(not_finite)
    scale = float(diagonal.mean())
    for jitter in _JITTERS:
        L, info = lapack.dpotrf(A + jitter * scale * np.eye(len(A)) if jitter else A, lower=1, clean=1)
        if info == 0 and not np.isfinite(L).all():  # LAPACK factorizes NaN beside a finite diagonal
            raise SingularError(not_finite)
        if info == 0:
            if warn and jitter:
                warn_caller(
                    f"the covariance matrix is singular to within round-off: added {jitter:.0e} of its mean diagonal. "
                    "Duplicated rows with little noise make it so; a learned noise, or fewer inducing points, help",
                    RuntimeWarning,
                )
            return np.asarray(L)
    raise SingularError(
        f"the covariance matrix [{len(A)}, {len(A)}] is not positive definite, even with {_JITTERS[-1]:.0e} of its "
        "mean diagonal added: learn the noise, remove duplicated rows, or check the kernel"
    )


def inverse_triangle(L: NDArray[np.float64]) -> NDArray[np.float64]:
    """Compute the lower triangle of (L L^T)^-1 of a lower-triangular factor L [N, N], with zeros above.

    Examples
    --------
    >>> inverse_triangle(np.array([[1.0, 0.0], [0.5, 0.5]]))
    array([[ 2.,  0.],
           [-2.,  4.]])
    """
    return np.asarray(lapack.dpotri(L, lower=1)[0])
