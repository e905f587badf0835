"""Training labels: labels, latents of the target, and what the loss makes of them, in place of the samples' labels."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import keras
import numpy as np
from numpy.typing import NDArray

from deepsimplex._utils.validation import check_class_weight
from deepsimplex.classifier.several_workers import Workers
from deepsimplex.latent import LatentGaussian
from deepsimplex.losses import ClassifierLoss
from deepsimplex.samples import Labels, Samples
from deepsimplex.samples.class_labels import holds_latents
from deepsimplex.targets import Target


@dataclass
class TrainingLabels:
    """Replace the labels of samples by training labels: the dict of what loss and metrics compare outputs with.

    It holds "label", and what the loss reads of the latents: "loc" and "scale", or their "composition".

    Parameters
    ----------
    target : Target
    num_classes : int
    loss : ClassifierLoss, optional
        Training loss, which determines what training labels hold. Default None: "label" only.
    class_weight : dict of int to float, optional
        Factors of the sample weights, by class: finite, not negative, not all zero; 1 for a class that is left out.
    workers : Workers, optional
        Workers that train together; the chief computes the latents for all. Default: this process alone.
    """

    target: Target
    num_classes: int
    loss: ClassifierLoss | None = None
    class_weight: dict[int, float] | None = None
    workers: Workers = field(default_factory=Workers)
    scores: NDArray[np.float64] = field(init=False)
    class_weights: NDArray[Any] | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        if self.class_weight is not None:
            weights = check_class_weight(self.class_weight, range(self.num_classes))
            self.class_weights = np.array([*weights.values()], keras.config.floatx())
        self.scores = self.target.scores(self.num_classes)
        self._need_latents = self.loss is not None and self.loss.needs_latents
        self._table = self.target.table(self.num_classes) if self._need_latents else None

    def needs_training_samples(self, samples: Samples) -> bool:
        """Return whether the latents of these samples depend on all of the training samples."""
        depend = self._need_latents and self.target.needs_samples
        return depend and not (_have_training_labels(samples) or holds_latents(samples.spec[1], self.scores))

    def fit_target_and_loss(
        self, samples: Samples, neighbor_error: Callable[[], float], steps: int | None = None
    ) -> Samples:
        """Fit the target, adapt the loss, and return the training samples with training labels.

        Parameters
        ----------
        samples : Samples
            Arrays if their latents depend on all of them: see ``needs_training_samples``.
        neighbor_error : callable
            Computes the error for ``loss.adapt`` if the target has none; it is called only if the loss asks for it.
        steps : int, optional
            Number of batches of an epoch of a stream of latents, which is read if the loss needs it.
        """
        if self.needs_training_samples(samples):
            x, y, *_ = samples.columns
            labels = Labels.of(y, scores=self.scores)
            latents = self._latents(labels, x, fit=True)
            self._adapt_loss(latents.loc, labels.values, neighbor_error)
            return samples.with_labels(lambda *_: self._with_latents(labels, latents), self.scores)
        if self.loss is not None and self.loss.needs_adapt:
            if (table := self._table) is None or holds_latents(samples.spec[1], self.scores):
                read = [Labels.of(y, scores=self.scores) for _, y, *_ in samples.read_ahead(steps, "steps_per_epoch")]
                loc = np.concatenate([self._latents(labels).loc for labels in read])
                self._adapt_loss(loc, np.concatenate([labels.values for labels in read]), neighbor_error)
            elif not self.loss.is_ready:
                self._adapt_loss(table.loc, np.arange(self.num_classes), neighbor_error)
        return self.replace(samples)

    def class_numbers(self, y: Any) -> NDArray[np.int64]:
        """Convert labels to class numbers [N]."""
        return Labels.of(y, scores=self.scores).hard

    def replace(self, samples: Samples) -> Samples:
        """Return samples with training labels; a distance target finds neighbors among its training samples."""
        return samples if _have_training_labels(samples) else samples.with_labels(self._replacement, self.scores)

    def _replacement(self, y: Any, x: Any = None) -> tuple[dict[str, Any], NDArray[Any] | None]:
        labels = Labels.of(y, scores=self.scores)
        return self._with_latents(labels, self._latents(labels, x) if self._need_latents else None)

    def _with_latents(
        self, labels: Labels, latents: LatentGaussian | None
    ) -> tuple[dict[str, Any], NDArray[Any] | None]:
        """Return training labels, and the factors of ``class_weight`` [N]."""
        floatx, values = keras.config.floatx(), labels.values
        batch = {"label": values.astype(floatx if labels.is_soft else np.int64)}
        if latents is not None and self.loss is not None:
            classes = self._table if self.loss.mixes_classes and labels.is_soft and labels.latents is None else None
            read = self.loss.latent_labels(latents if classes is None else classes, self.scores)
            if classes is not None:
                read = {name: values @ value for name, value in read.items()}
            batch |= {name: value.astype(floatx) for name, value in read.items()}
        return batch, self.factors(labels)

    def factors(self, labels: Labels) -> NDArray[Any] | None:
        """Return the factors of ``class_weight`` [N]; None without class weights."""
        if (per_class := self.class_weights) is None:
            return None
        return (labels.values @ per_class).astype(per_class.dtype) if labels.is_soft else per_class[labels.values]

    def _latents(self, labels: Labels, x: Any = None, fit: bool = False) -> LatentGaussian:
        if labels.latents is not None:
            return labels.latents
        target, n, values = self.target, self.num_classes, labels.values
        if not target.needs_samples:
            if self._table is None or labels.is_soft:
                return target.fit_transform(None, values, n)
            return self._table[values]
        latents = self.workers.from_chief(
            lambda: (target.fit_transform(x, values, n) if fit else target.transform(x, values)).as_dict()
        )
        if fit and not self.workers.is_chief:
            target.fit(x, values, n)  # only ``is_fitted`` is read on these workers
        return LatentGaussian.of(latents)

    def _adapt_loss(self, loc: NDArray[Any], values: NDArray[Any], neighbor_error: Callable[[], float]) -> None:
        loss = self.loss
        if loss is None or not loss.needs_adapt:
            return

        def adapted() -> dict[str, Any]:
            known = self.target.neighbor_error()
            loss.adapt(loc, values, self.scores, neighbor_error if known is None else partial(float, known))
            return loss.state()

        state = self.workers.from_chief(adapted)
        if not self.workers.is_chief:
            loss.load_state(state)


def _have_training_labels(samples: Samples) -> bool:
    """Return whether labels have been replaced already, as when Keras calls evaluate from fit."""
    _, labels, *_ = (*samples.spec, None)
    return isinstance(labels, dict) and "label" in labels
