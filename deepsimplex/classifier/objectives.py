"""What training minimizes: a loss of latents, of the class probabilities read out of them, or of both."""

from dataclasses import dataclass
from typing import Any, Literal

import keras

from deepsimplex._utils.names import did_you_mean
from deepsimplex._utils.validation import check_number

OBJECTIVES = ("latent", "class", "hybrid", "composition")
HYBRID_WEIGHT = 0.5
COMPOSITION_MASS = 0.98


@dataclass(frozen=True)
class Objective:
    """The terms of a training loss: (1 - w) times the latent loss + w times the cross-entropy of the readout.

    Parameters
    ----------
    name : str
        As ``SimplexClassifier`` takes it.
    readout_weight : float
        Weight w of the cross-entropy, 0 to 1.
    against : {"labels", "compositions"}
        What the read-out class probabilities are compared with.
    composition_mass : float, optional
        Mean mass that compositions have on the true class; where they are what is compared with.
    """

    name: str
    readout_weight: float
    against: Literal["labels", "compositions"] = "labels"
    composition_mass: float | None = None

    @classmethod
    def of(cls, name: str, hybrid_weight: float | None, composition_mass: float | None, n: int) -> "Objective":
        """The objective of a name and its options, for n classes.

        Raises
        ------
        ValueError
            For an unknown name, an option of another objective, or one out of range.
        """
        if name not in OBJECTIVES:
            hint = did_you_mean(name, OBJECTIVES)
            raise ValueError(f"objective must be one of {', '.join(OBJECTIVES)}; found {name!r}{hint}")
        options = {"hybrid_weight": ("hybrid", hybrid_weight), "composition_mass": ("composition", composition_mass)}
        for option, (owner, value) in options.items():
            if value is not None and name != owner:
                raise ValueError(f"{option} is for objective {owner!r} alone; found {value!r} with objective {name!r}")
        if name == "hybrid":
            weight = HYBRID_WEIGHT if hybrid_weight is None else hybrid_weight
            return cls(name, check_number(weight, "hybrid_weight", above=0, below=1))
        if name == "composition":
            mass = COMPOSITION_MASS if composition_mass is None else composition_mass
            return cls(name, 1.0, "compositions", check_number(mass, "composition_mass", above=1 / n, below=1))
        return cls(name, 0.0 if name == "latent" else 1.0)

    @property
    def latent_weight(self) -> float:
        """Weight 1 - w of the latent loss."""
        return 1.0 - self.readout_weight

    @property
    def needs_latents(self) -> bool:
        """Whether the latents of the samples are needed: labels suffice for what compares with labels alone."""
        return self.latent_weight > 0 or self.against == "compositions"

    def check_readout(self, readout: keras.layers.Layer) -> None:
        """Refuse a readout that no gradient comes through, where one must."""
        if self.readout_weight > 0 and getattr(readout, "method", None) == "monte_carlo":
            raise ValueError(
                f"readout must be differentiable for objective {self.name!r}; found method 'monte_carlo', which counts "
                "draws. ArgmaxReadout() or ArgmaxReadout(method='quasi_monte_carlo') would do"
            )

    def get_config(self) -> dict[str, Any]:
        """The arguments of ``SimplexClassifier`` that say so."""
        return {
            "objective": self.name,
            "hybrid_weight": self.readout_weight if self.name == "hybrid" else None,
            "composition_mass": self.composition_mass,
        }
