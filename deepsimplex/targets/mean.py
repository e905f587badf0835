"""The mean of several targets: the "informed" targets of [CASIMAC] sec. 3.4."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from deepsimplex.latent import LatentGaussian
from deepsimplex.targets.base import Readout, Target
from deepsimplex.targets.registry import get_target


class Mean(Target):
    """The average latent of several targets, e.g. f = (f_euclidean + f_ssim5 + f_ssim13) / 3 [CASIMAC sec. 3.4].

    The noises of the m targets count as independent: variances average to (s_1^2 + ... + s_m^2) / m^2.

    Parameters
    ----------
    targets : sequence of targets, names or mappings
        At least one. All must share latent dimensions, scores and readout: CASIMAC targets of one construction, or
        ILR targets, or Dirichlet targets.

    Raises
    ------
    ValueError
        When there is none, or when two do not share their latent space.

    Examples
    --------
    >>> target = Mean([{"name": "ilr", "noise": 3.0}, {"name": "ilr", "noise": 4.0}])
    >>> target.noise(2)
    array([[2.5]])
    """

    name: ClassVar[str] = "mean"

    def __init__(self, targets: Sequence[Target | str | Mapping[str, Any]]) -> None:
        if isinstance(targets, str) or not isinstance(targets, Sequence) or len(targets) == 0:
            raise ValueError(f"targets must be a sequence of at least one target; found {targets!r}")
        self.targets = [get_target(target) for target in targets]
        readouts = {target.default_readout for target in self.targets}
        if len(readouts) > 1:
            raise ValueError(f"targets must share one readout; found {', '.join(sorted(readouts))}")
        self.default_readout: Readout = self.targets[0].default_readout
        self.needs_samples = any(target.needs_samples for target in self.targets)
        self.scores(3)  # at two classes the constructions of the simplex look alike: three tell them apart

    @property
    def is_fitted(self) -> bool:
        """Whether every target is."""
        return all(target.is_fitted for target in self.targets)

    def latent_dim(self, n: int) -> int:
        """Number of latent dimensions that the targets share."""
        return self.targets[0].latent_dim(n)

    def scores(self, n: int) -> NDArray[np.float64]:
        """Matrix S, shape [n, L], that the targets share.

        Raises
        ------
        ValueError
            When they do not.
        """
        first, *others = [target.scores(n) for target in self.targets]
        for target, scores in zip(self.targets[1:], others, strict=True):
            if scores.shape != first.shape or not np.allclose(scores, first, rtol=0, atol=1e-12):
                raise ValueError(
                    f"targets must share one latent space; found {self.targets[0]!r} and {target!r}, whose scores "
                    f"have shapes {first.shape} and {scores.shape} and differ for {n} classes"
                )
        return first

    def noise(self, n: int) -> NDArray[np.float64] | None:
        """Standard deviations sqrt(sum s^2) / m of the averaged noise; None if no target has any."""
        noises = [noise for target in self.targets if (noise := target.noise(n)) is not None]
        return np.sqrt(sum(np.square(noise) for noise in noises)) / len(self.targets) if noises else None

    def table(self, n: int) -> LatentGaussian:
        """The observations of the n classes, in order, when every target is made from labels alone.

        Raises
        ------
        ValueError
            When a target needs samples: its latents are not the classes' alone.
        """
        if self.needs_samples:
            raise ValueError("table(n) exists for targets made from labels alone; call fit_transform(x, y)")
        return self._average([target.table(n) for target in self.targets])  # type: ignore[attr-defined]

    def fit(self, x: Any, y: ArrayLike, num_classes: int | None = None) -> Self:
        """Fit every target on the same samples and labels."""
        for target in self.targets:
            target.fit(x, y, num_classes)
        self.num_classes_ = self.targets[0].num_classes_
        return self

    def fit_transform(self, x: Any, y: ArrayLike, num_classes: int | None = None) -> LatentGaussian:
        """Fit every target, and give the averaged observations of the training samples."""
        self.fit(x, y, num_classes)  # every target checks its input before the first computes
        return self._average([target.fit_transform(x, y, num_classes) for target in self.targets])

    def transform(self, x: Any, y: ArrayLike) -> LatentGaussian:
        """Give the averaged observations of other labeled samples, after fit."""
        return self._average([target.transform(x, y) for target in self.targets])

    @staticmethod
    def _average(latents: list[LatentGaussian]) -> LatentGaussian:
        loc = sum(latent.loc for latent in latents) / len(latents)
        scale = np.sqrt(sum(np.square(latent.scale) for latent in latents)) / len(latents)
        return LatentGaussian(loc, scale)

    def get_config(self) -> dict[str, Any]:
        """The targets as plain JSON."""
        return {"name": self.name, "targets": [target.get_config() for target in self.targets]}
