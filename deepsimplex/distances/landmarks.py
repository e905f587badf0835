"""What a few landmarks tell about the structural similarity of all pairs.

The structural similarity is a positive definite kernel, so exact bounds follow from linear algebra. In a window, with
means m, sample covariances written as inner products of centered pixels u / sqrt(P - 1), and variances v = <u, u>,

    SSIM_w(a, b) = (2 m_a m_b + c1) / (m_a^2 + m_b^2 + c1) * (2 <u_a, u_b> + c2) / (v_a + v_b + c2).

Both numerators are inner products, of (sqrt(2) m, sqrt(c1)) and of (sqrt(2) u, sqrt(c2)). Each inverse denominator is
one too, 1 / (s + t) = int_0^inf e^(-s z) e^(-t z) dz for s, t > 0 (split c1 and c2 in halves). Products and means of
positive definite kernels are positive definite [Schur]. So there are phi with SSIM_w(a, b) = <phi(a), phi(b)> in a
Hilbert space, |phi(a)| = 1, and the same holds for the sum over any set of windows: 1 - SSIM is half a squared distance
there, whatever the signs of the pixels.

For a band of rows of windows (of ``fraction`` f of all of them, so that |phi|^2 = f), let V be the projection onto a
subspace spanned by landmarks' phi. With coordinates z = V phi in an orthonormal basis and what is left over,
r = sqrt(f - |z|^2), Cauchy and Schwarz give

    <phi(a), phi(b)> = <z_a, z_b> + <phi(a) - V phi(a), phi(b) - V phi(b)> <= <z_a, z_b> + r_a r_b:

one inner product more than the coordinates have. Summed over the bands this bounds the similarity of every pair from
above, at the cost of a matrix product, and a pair whose bound lies below what is needed cannot be a neighbor. Pairs
that remain are evaluated band by band: the exact sum of a band takes the place of its bound, and as soon as the total
lies below what is needed the rest is left undone. The subspace is that of the leading eigenvectors of the landmarks'
kernel matrix (kernel principal components, [Williams and Seeger, Using the Nystroem method to speed up kernel machines,
2000]); which subspace it is decides about the time a search takes and not about its answer.

Rounding: coordinates are kept in float16, from similarities in float32. With e an upper bound of the error |z' - z| of
the coordinates z' that are kept, <z_a, z_b> <= <z'_a, z'_b> + h and r^2 <= f - |z'|^2 + h with h = e (2 sqrt(f) + e).
These inequalities are proved; e itself is estimated, as four times the largest error against float64 that a sample of
the images and queries shows, and the similarities' own rounding is allowed for by a constant.
"""

from typing import Any, NamedTuple

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from deepsimplex.distances.products import multiply

# Kernel principal components kept for every band, and landmarks at most. On Fashion-MNIST, window 5, four bands of 512
# left 16% of the work and of 1024 7%, for twice the matrix products and the memory: this lies between.
COMPONENTS = 768
MOST_LANDMARKS = 2048
# A landmark costs a similarity with every image, and pays where there are far more pairs than that.
PAIRS_PER_SIMILARITY = 15
FEWEST_LANDMARKS = 32
SMALLEST_EIGENVALUE = 1e-4
SAFETY = 4.0


def number_of_landmarks(pairs: int, images: int) -> int:
    """How many landmarks are worth their cost for so many pairs of so many images; 0 where none are."""
    count = min(MOST_LANDMARKS, pairs // (PAIRS_PER_SIMILARITY * max(images, 1)))
    return count if count >= FEWEST_LANDMARKS else 0


class Projection(NamedTuple):
    """A subspace for each band.

    Attributes
    ----------
    bases : ndarray, shape [bands, m, D], float32
        z = bases^T k for the similarities k [m] with the landmarks.
    fractions : ndarray, shape [bands]
        f.
    """

    bases: NDArray[np.float32]
    fractions: NDArray[np.float64]

    @property
    def components(self) -> int:
        """D."""
        return self.bases.shape[2]


class Coordinates(NamedTuple):
    """Images in the subspaces: z [bands, N, D], float16, and r [bands, N], float32."""

    z: NDArray[np.float16]
    r: NDArray[np.float32]


def project(similarities: NDArray[np.float64], fractions: NDArray[np.float64]) -> NDArray[np.float64]:
    """Bases [bands, m, D] of subspaces from the landmarks' similarities [bands, m, m] to each other."""
    bands, m, _ = similarities.shape
    components = min(COMPONENTS, m)
    bases = np.zeros((bands, m, components))
    for band, kernel in enumerate(similarities):
        values, vectors = scipy.linalg.eigh(kernel, subset_by_index=[m - components, m - 1], check_finite=False)
        # Directions that rounding made are dropped: their columns stay zero.
        real = values > SMALLEST_EIGENVALUE * fractions[band]
        bases[band][:, real] = vectors[:, real] / np.sqrt(values[real])
    return bases


def allowance(error: Any, fraction: Any) -> Any:
    """How far errors of coordinates move inner products and squares of bands that hold a fraction of the windows."""
    return error * (2 * fraction**0.5 + error)


def coordinates(similarities: NDArray[np.float32], projection: Projection, error: NDArray[np.float64]) -> Coordinates:
    """Coordinates of images from their similarities [bands, A, m] to the landmarks, with r enlarged for their error."""
    bands, count, _ = similarities.shape
    z = np.empty((bands, count, projection.components), np.float16)
    r = np.empty((bands, count), np.float32)
    for band, fraction in enumerate(projection.fractions):
        z[band] = multiply(similarities[band], projection.bases[band].T)
        kept = z[band].astype(np.float32)
        rest = fraction - np.einsum("nd,nd->n", kept, kept, dtype=np.float64) + allowance(error[band], fraction)
        r[band] = np.sqrt(np.maximum(rest, 0.0)) * (1 + 1e-6)
    return Coordinates(z, r)
