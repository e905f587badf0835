"""The mean of several targets, as the "informed" ones of [CASIMAC] sec. 3.4; and the targets by name."""

from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from deepsimplex._utils.array_operations import keras
from deepsimplex._utils.registry import Registry, registered
from deepsimplex.latent import LatentGaussian
from deepsimplex.targets.casimac import CASIMAC
from deepsimplex.targets.dirichlet import Dirichlet
from deepsimplex.targets.ilr import ILR
from deepsimplex.targets.one_hot import OneHot, Vertices
from deepsimplex.targets.target import Target


@registered
class Mean(Target):
    """The average latent of several targets, e.g. f = (f_euclidean + f_ssim5 + f_ssim13) / 3 [CASIMAC sec. 3.4].

    The noises of the m targets are taken as independent: variances average to (s_1^2 + ... + s_m^2) / m^2.

    Parameters
    ----------
    targets : sequence of targets, names or mappings
        At least one. All must share latent dimensions, scores and readout: CASIMAC targets of one construction, or
        ILR targets, or Dirichlet targets.
    cache_dir, executor, show_progress : optional
        Passed to targets given by name or configuration that take them, as ``CASIMAC`` does.

    Raises
    ------
    ValueError
        If ``targets`` is empty, or two do not share their latent space.

    Examples
    --------
    >>> target = Mean([{"name": "ilr", "noise_scale": 3.0}, {"name": "ilr", "noise_scale": 4.0}])
    >>> target.noise(2)
    array([[2.5]])
    """

    def __init__(
        self,
        targets: Sequence[Target | str | Mapping[str, Any]],
        *,
        cache_dir: Any = None,
        executor: str | None = None,
        show_progress: bool | None = None,
    ) -> None:
        if isinstance(targets, str) or not isinstance(targets, Sequence) or len(targets) == 0:
            raise ValueError(f"targets must be a sequence of at least one target; found {targets!r}")
        search = {"cache_dir": cache_dir, "executor": executor, "show_progress": show_progress}
        self.targets: list[Target] = [TARGETS.get(target, **search) for target in targets]
        readouts = {target.default_readout for target in self.targets}
        if len(readouts) > 1:
            raise ValueError(f"targets must share one readout; found {', '.join(sorted(readouts))}")
        self.default_readout = self.targets[0].default_readout
        self.needs_samples = any(target.needs_samples for target in self.targets)
        self.sums_features = all(target.sums_features for target in self.targets)
        self.scores(3)  # with two classes the constructions of the simplex look alike; with three they differ

    @property
    def is_fitted(self) -> bool:
        """Whether every target is fitted."""
        return all(target.is_fitted for target in self.targets)

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

    def table(self, n: int) -> LatentGaussian | None:
        """Observations of the n classes, in order; None if a target needs samples."""
        tables = [table for target in self.targets if (table := target.table(n)) is not None]
        return _average(tables) if len(tables) == len(self.targets) else None

    def neighbor_error(self) -> float | None:
        """The mean error of the targets that have one, after fit; None if none has."""
        errors = [error for target in self.targets if (error := target.neighbor_error()) is not None]
        return float(np.mean(errors)) if errors else None

    def searches(self) -> list[bool]:
        """Whether a cache was used, for every neighbor search of all targets."""
        return [spared for target in self.targets for spared in target.searches()]

    def recall(self) -> float | None:
        """Smallest recall of the targets; None if all searches are exact."""
        return min((recall for target in self.targets if (recall := target.recall()) is not None), default=None)

    def default_loss(self) -> Any:
        """The loss of the first target."""
        return self.targets[0].default_loss()

    def fit(self, x: Any, y: ArrayLike, num_classes: int | None = None) -> Self:
        """Fit every target on the same samples and labels."""
        for target in self.targets:
            target.fit(x, y, num_classes)
        self.num_classes_ = self.targets[0].num_classes_
        return self

    def fit_transform(self, x: Any, y: ArrayLike, num_classes: int | None = None) -> LatentGaussian:
        """Fit every target, and return the averaged observations of the training samples."""
        self.fit(x, y, num_classes)  # every target checks its input before the first computes
        return _average([target.fit_transform(x, y, num_classes) for target in self.targets])

    def transform(self, x: Any, y: ArrayLike) -> LatentGaussian:
        """Return the averaged observations of other labeled samples, after fit."""
        return _average([target.transform(x, y) for target in self.targets])

    def get_config(self) -> dict[str, Any]:
        """Serialized targets; without ``cache_dir``, ``executor`` and ``show_progress``, as in ``CASIMAC``."""
        return {"targets": keras.saving.serialize_keras_object(self.targets)}


def _average(latents: list[LatentGaussian]) -> LatentGaussian:
    loc = sum(latent.loc for latent in latents) / len(latents)
    scale = np.sqrt(sum(np.square(latent.scale) for latent in latents)) / len(latents)
    return LatentGaussian(loc, scale)


TARGETS: Registry[Target] = Registry(
    "target",
    Target,
    {"casimac": CASIMAC, "dirichlet": Dirichlet, "ilr": ILR, "mean": Mean, "one_hot": OneHot, "vertices": Vertices},
)
"""Targets by name; ``TARGETS.get`` makes one from a name, "module:Class", a configuration or a serialized target."""
