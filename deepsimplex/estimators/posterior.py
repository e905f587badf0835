"""What classifiers share whose regressor ends in a Gaussian process' posterior: files, exports, a fit to be watched."""

import copy
import os
from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from deepsimplex.estimators.base import LatentClassifier
from deepsimplex.estimators.saving import save_classifier
from deepsimplex.estimators.step import Callback, ClassifierStep
from deepsimplex.export import export_saved_model
from deepsimplex.latent import LatentGaussian

if TYPE_CHECKING:
    from deepsimplex import gp


class PosteriorClassifier(LatentClassifier):
    """A classifier whose fitted regressor holds a ``deepsimplex.gp.posterior.Posterior``.

    Attributes
    ----------
    regressor_ : regressor
        With the attribute ``posterior_``.
    """

    @abstractmethod
    def _regressor(self, seed: int) -> Any:
        """An unfitted regressor of this classifier's parameters."""

    @property
    def _posterior(self) -> "gp.posterior.Posterior":
        return self.regressor_.posterior_

    def _latents(self, X: NDArray[np.float64]) -> LatentGaussian:
        return self._posterior.predict(X)

    def _set_posterior(self, posterior: "gp.posterior.Posterior") -> None:
        """Predict by a posterior that another fit made."""
        self.regressor_ = self._regressor(seed=0)  # nothing is left to chance
        self.regressor_.posterior_ = posterior

    def _with_posterior(self, posterior: "gp.posterior.Posterior") -> Self:
        """A copy of this classifier that predicts by a posterior from the middle of its fit."""
        classifier = copy.copy(self)
        classifier._set_posterior(posterior)
        return classifier

    def _step_callback(self, callback: Callback | None, num_samples: int) -> "Callable[[gp.Step], None] | None":
        """What a regressor calls, so that the callback is told of the classifier too."""
        if callback is None:
            return None

        def tell(step: "gp.Step") -> None:
            callback(
                ClassifierStep(
                    step.iteration,
                    step.objective,
                    step.hyperparameters,
                    num_samples,
                    lambda: self._with_posterior(step.posterior()),
                )
            )

        return tell

    def save(self, filepath: str | os.PathLike[str]) -> None:
        """Write the classifier to one ``.npz`` file, without a pickle; ``load_classifier`` brings it back.

        Parameters
        ----------
        filepath : path-like
            Ends in .npz and may begin with ``~``; replaced whole or not at all.

        Raises
        ------
        ValueError
            Before anything is written: for another ending, and for what no file holds, as a GPflow kernel of one's own.
        OSError
            When the file cannot be written; an earlier one survives.

        Notes
        -----
        Parameters travel along, so that what is loaded can be cloned and fitted again. Targets go as ``get_config``
        writes them: without training samples, and without a ``cache_dir``.
        """
        check_is_fitted(self)
        save_classifier(self, filepath)

    def export(
        self, filepath: str | os.PathLike[str], class_names: Sequence[str] | None = None, verbose: bool = False
    ) -> None:
        """Write a SavedModel that TensorFlow alone can serve.

        Parameters
        ----------
        filepath : path-like
            Folder to write, which may begin with ``~``; replaced whole or not at all.
        class_names : list of str, optional
            In the order of ``classes_``; None (default) writes those as text.
        verbose : bool
            Print Keras' summary of the endpoint. Default False.

        Notes
        -----
        Input: "features" [N, d], float32. Outputs, float64 as all that happens inside: "class_probabilities" [N, n],
        "class_id" [N] (a position in ``classes_``), "latent_mean" [N, L] and "latent_scale"; the class names lie beside
        them in ``assets.extra/class_names.json``. ``deepsimplex.export.load_served`` calls it from Python.
        """
        check_is_fitted(self)
        names = [str(name) for name in (self.classes_ if class_names is None else class_names)]
        if len(names) != len(self.classes_):
            raise ValueError(f"class_names must hold {len(self.classes_)} names, as classes_; found {len(names)}")
        layer, calibration = self._readout, self._calibration
        export_saved_model(
            self._posterior,
            filepath,
            latent=lambda x: calibration.apply_latent(self._posterior(x)) if calibration else self._posterior(x),
            readout=lambda latent: self._calibrated(layer(latent)),
            sample_shape=(self.n_features_in_,),
            class_names=names,
            input_name="features",
            verbose=verbose,
        )
