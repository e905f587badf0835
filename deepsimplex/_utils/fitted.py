"""Fitted attributes, saved as a part of the configuration."""

from typing import Any, ClassVar, Self

import numpy as np


class Fitted:
    """Base class of objects that are fitted on held-out samples and keep fitted attributes in their configuration."""

    # Names of the fitted attributes, which are numbers, arrays, or lists of arrays.
    fitted_attributes: ClassVar[tuple[str, ...]] = ()

    @property
    def is_fitted(self) -> bool:
        """Whether ``fit`` was called."""
        return all(hasattr(self, name) for name in self.fitted_attributes)

    def _check_fitted(self) -> None:
        if not self.is_fitted:
            from sklearn.exceptions import NotFittedError

            raise NotFittedError(f"this {type(self).__name__} is not fitted; call fit with held-out samples first")

    def get_config(self) -> dict[str, Any]:
        """Fitted attributes, as numbers and lists; empty before the fit."""
        return {name: _plain(getattr(self, name)) for name in self.fitted_attributes} if self.is_fitted else {}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Self:
        """Make the object from ``get_config``'s dict."""
        made = cls(**{name: value for name, value in config.items() if name not in cls.fitted_attributes})
        for name in cls.fitted_attributes:
            if name in config:
                setattr(made, name, _of_plain(config[name]))
        return made

    def __repr__(self) -> str:
        numbers = {name: value for name, value in self.get_config().items() if isinstance(value, float)}
        return f"{type(self).__name__}({', '.join(f'{name}={value:.4g}' for name, value in numbers.items())})"


def _plain(value: Any) -> Any:
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return value.tolist() if isinstance(value, np.ndarray | np.generic) else value


def _of_plain(value: Any) -> Any:
    if not isinstance(value, list | tuple):
        return value
    return [_of_plain(item) for item in value] if isinstance(value[0], list | tuple) else np.array(value, np.float64)
