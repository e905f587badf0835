"""What a network is trained on: labels and latents of the target in place of the labels of samples."""

from dataclasses import dataclass, field
from functools import partial
from typing import Any

import keras
import numpy as np
from numpy.typing import NDArray

from deepsimplex.classifier.several_workers import Workers
from deepsimplex.latent import LatentGaussian
from deepsimplex.losses import ClassifierLoss
from deepsimplex.samples import Labels, Samples
from deepsimplex.samples.class_labels import holds_latents, is_hard
from deepsimplex.targets import Target


@dataclass(frozen=True)
class Observer:
    """Replace the labels of samples by observations: dicts of "label" and, where the loss needs them, of latents.

    Parameters
    ----------
    target : Target
    num_classes : int
    loss : ClassifierLoss, optional
        Training loss, which determines whether observations hold "loc", "scale" and more. Default None: labels only.
    class_weight : dict of int to float, optional
        Factors of the sample weights, by class.
    workers : Workers, optional
        Workers that train together; the chief computes the latents for all.
    """

    target: Target
    num_classes: int
    loss: ClassifierLoss | None = None
    class_weight: dict[int, float] | None = None
    workers: Workers = field(default_factory=Workers)

    def __post_init__(self) -> None:
        unknown = [key for key in self.class_weight or () if key not in range(self.num_classes)]
        if unknown:
            raise ValueError(f"class_weight must have keys 0 to {self.num_classes - 1}; found {unknown[0]!r}")
        object.__setattr__(self, "scores", self.target.scores(self.num_classes))

    scores: NDArray[np.float64] = field(init=False)

    def needs_training_samples(self, samples: Samples) -> bool:
        """Return whether the latents of these samples depend on all of the training samples."""
        if self.loss is None or not self.loss.needs_latents or not self.target.needs_samples:
            return False
        return not (_is_observed(samples) or holds_latents(samples.spec[1], self.scores))

    def fit(self, samples: Samples, steps: int | None = None) -> Samples:
        """Fit the target to training samples, adapt the loss to their latents, and return them observed.

        ``steps`` is the number of batches of an epoch of a stream, which is read only if the loss needs it.
        """
        if not samples.is_stream:
            return samples.observed(partial(self._observe, x=samples.columns[0], fit=True), self.scores)
        if self.loss is not None and self.loss.needs_adapt:
            table, labels = self.target.table(self.num_classes), samples.spec[1]
            if table is not None and is_hard(labels) and not holds_latents(labels, self.scores):
                self._adapt_loss(table.loc, np.arange(self.num_classes))
            else:
                batches = samples.read_ahead(steps, "steps_per_epoch")
                observations = [self._observe(y)[0] for _, y, *_ in batches]
                loc, label = (np.concatenate([each[name] for each in observations]) for name in ("loc", "label"))
                self._adapt_loss(loc, label)
        return self.observed(samples)

    def observed(self, samples: Samples) -> Samples:
        """Return validation or test samples observed; a distance target finds neighbors among its training samples."""
        if _is_observed(samples):
            return samples
        x = None if samples.is_stream else samples.columns[0]
        return samples.observed(partial(self._observe, x=x), self.scores)

    def _observe(self, y: Any, x: Any = None, fit: bool = False) -> tuple[dict[str, Any], NDArray[Any] | None]:
        floatx = keras.config.floatx()
        labels = Labels.of(y, scores=self.scores)
        observation = {"label": labels.memberships.astype(floatx if labels.is_soft else np.int64)}
        if self.loss is not None and self.loss.needs_latents:
            latent = self._latents(labels, x, fit) if labels.latents is None else labels.latents
            observation |= {"loc": latent.loc.astype(floatx), "scale": latent.scale.astype(floatx)}
            if fit:
                self._adapt_loss(latent.loc, labels.memberships)
            more = self.loss.observe(latent.loc, self.scores)
            observation |= {name: value.astype(floatx) for name, value in more.items()}
        if self.class_weight is None:
            return observation, None
        per_class = np.array([self.class_weight.get(k, 1.0) for k in range(self.num_classes)], floatx)
        return observation, labels.memberships @ per_class if labels.is_soft else per_class[labels.memberships]

    def _latents(self, labels: Labels, x: Any, fit: bool) -> LatentGaussian:
        target, n, memberships = self.target, self.num_classes, labels.memberships
        if not target.needs_samples:
            table = target.table(n)
            if table is None or labels.is_soft:
                return target.fit_transform(None, memberships, n)
            return table[memberships]
        latents = self.workers.from_chief(
            lambda: (target.fit_transform(x, memberships, n) if fit else target.transform(x, memberships)).as_dict()
        )
        if fit and not self.workers.is_chief:
            target.fit(x, memberships, n)  # only ``is_fitted`` is read on these workers
        return LatentGaussian.of(latents)

    def _adapt_loss(self, loc: NDArray[Any], memberships: NDArray[Any]) -> None:
        loss = self.loss
        if loss is None or not loss.needs_adapt:
            return

        def adapted() -> dict[str, Any]:
            loss.adapt(loc, memberships, self.scores, self.target.neighbor_error())
            return loss.state()

        state = self.workers.from_chief(adapted)
        if not self.workers.is_chief:
            loss.load_state(state)


def _is_observed(samples: Samples) -> bool:
    """Return whether labels are observations already, as when Keras calls evaluate from fit."""
    return len(samples.spec) > 1 and isinstance(samples.spec[1], dict) and "label" in samples.spec[1]


def labeled_arrays(
    x: Any, y: Any, sample_weight: Any, num_classes: int
) -> tuple[Any, NDArray[np.int64], NDArray[Any] | None]:
    """Return samples, class numbers [N] and weights of arrays or of a stream, which is read once.

    Raises
    ------
    ValueError
        For soft labels and latents.
    """
    samples, _ = Samples.of(x, y, sample_weight, labeled=True).in_memory()
    x, y, weight = (*samples.columns, None)[:3]
    return x, Labels.of(y, num_classes, soft=False).memberships, weight
