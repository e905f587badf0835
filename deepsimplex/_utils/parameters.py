"""Constructor arguments and fitted attributes of objects: ``get_params``, ``set_params`` and configurations."""

import copy
import inspect
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, Self

import numpy as np

from deepsimplex._utils.messages import did_you_mean


def constructor_parameters(kind: type[Any]) -> dict[str, inspect.Parameter]:
    """Parameters of a class' constructor.

    From ``__init__``: before Python 3.11.4 the signature of a Keras layer is that of ``__new__(cls, *args, **kwargs)``.
    """
    if kind.__init__ is object.__init__:
        return {}
    _, *parameters = inspect.signature(kind.__init__).parameters.items()
    return dict(parameters)


def check_arguments(given: Iterable[str], known: Mapping[str, inspect.Parameter], what: str) -> None:
    """Raise a ValueError for the first argument that ``what``, a callable with ``known`` parameters, does not take.

    Examples
    --------
    >>> check_arguments(["epoch"], inspect.signature(lambda x, epochs=1: x).parameters, "fit")
    Traceback (most recent call last):
    ValueError: fit has no argument 'epoch'; did you mean 'epochs'?; it takes x, epochs
    """
    unknown = [key for key in given if key not in known]
    if unknown and not any(parameter.kind is parameter.VAR_KEYWORD for parameter in known.values()):
        hint = did_you_mean(unknown[0], known)
        raise ValueError(f"{what} has no argument {unknown[0]!r}{hint}; it takes {', '.join(known)}")


class Parameters:
    """``get_params`` and ``set_params`` of scikit-learn for classes that keep arguments as attributes of that name.

    A search over the parameters of an estimator then reaches nested objects: "target__smoothing".

    Examples
    --------
    >>> class Scaled(Parameters):
    ...     def __init__(self, factor=1.0):
    ...         self.factor = factor
    >>> Scaled().set_params(factor=2.0).get_params()
    {'factor': 2.0}
    """

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Arguments of the constructor by name; with ``deep`` those of nested objects too, as "object__argument"."""
        params = {key: getattr(self, key) for key in constructor_parameters(type(self)) if hasattr(self, key)}
        nested = {key: value.get_params() for key, value in params.items() if deep and isinstance(value, Parameters)}
        return params | {f"{key}__{name}": value for key, inner in nested.items() for name, value in inner.items()}

    def set_params(self, **params: Any) -> Self:
        """Change arguments and initialize the object again; fitted attributes are discarded.

        Raises
        ------
        ValueError
            For an unknown argument, or one that the constructor rejects; the object is then unchanged.
        """
        known, changes = constructor_parameters(type(self)), {}
        nested: dict[str, dict[str, Any]] = {}
        for key, value in params.items():
            name, _, rest = key.partition("__")
            if name not in known or (rest and not isinstance(getattr(self, name, None), Parameters)):
                raise ValueError(f"{type(self).__name__} has no argument {key!r}{did_you_mean(key, known)}")
            if rest:
                nested.setdefault(name, {})[rest] = value
            else:
                changes[name] = value
        for name, inner in nested.items():
            changes[name] = copy.deepcopy(changes.get(name, getattr(self, name))).set_params(**inner)
        fresh = type(self)(**self._arguments(changes))
        vars(self).clear()
        vars(self).update(vars(fresh))
        return self

    def state(self) -> dict[str, Any]:
        """Arrays by name that are saved beside the configuration: by default those of nested objects."""
        states = {key: member.state() for key, member in self._members().items()}
        return {f"{key}__{name}": array for key, state in states.items() for name, array in state.items()}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Restore the arrays that ``state`` returned; missing ones are left unchanged."""
        for key, member in self._members().items():
            member.load_state({name[len(key) + 2 :]: state[name] for name in state if name.startswith(f"{key}__")})

    def _members(self) -> dict[str, "Parameters"]:
        """Return the arguments, and members of lists among them, that are ``Parameters`` themselves."""
        return {
            f"{key}_{i}": member
            for key, value in self.get_params(deep=False).items()
            for i, member in enumerate(value if isinstance(value, list) else [value])
            if isinstance(member, Parameters)
        }

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Self:
        """Make the object, unfitted, from ``get_config``'s dict."""
        return cls(**config)

    def _arguments(self, changes: dict[str, Any]) -> dict[str, Any]:
        """Arguments of a constructor call, with some changed."""
        return self.get_params(deep=False) | changes

    def __sklearn_clone__(self) -> Self:
        """Copy for ``sklearn.base.clone``: constructors here may convert what they are given."""
        return copy.deepcopy(self)


class Fitted:
    """Base class of objects that are fitted on held-out samples and keep fitted attributes in their configuration."""

    # Names of the fitted attributes, which are numbers, or arrays of numbers or names.
    fitted_attributes: ClassVar[tuple[str, ...]] = ()
    # Of those that ``fit`` may leave out.
    further_attributes: ClassVar[tuple[str, ...]] = ()

    @property
    def is_fitted(self) -> bool:
        """Whether ``fit`` was called."""
        return all(hasattr(self, name) for name in self.fitted_attributes)

    def _check_fitted(self, advice: str = "call fit with held-out samples first") -> None:
        if not self.is_fitted:
            from sklearn.exceptions import NotFittedError

            raise NotFittedError(f"this {type(self).__name__} is not fitted; {advice}")

    def get_config(self) -> dict[str, Any]:
        """Arguments of the constructor and, after the fit, fitted attributes, as numbers and lists."""
        names = [*constructor_parameters(type(self)), *(self.fitted_attributes if self.is_fitted else ())]
        names += [name for name in self.further_attributes if hasattr(self, name)]
        return {name: _plain(getattr(self, name)) for name in names}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Self:
        """Make the object from ``get_config``'s dict."""
        attributes = (*cls.fitted_attributes, *cls.further_attributes)
        made = cls(**{name: value for name, value in config.items() if name not in attributes})
        for name in attributes:
            if name in config:
                value = config[name]
                setattr(made, name, np.array(value) if isinstance(value, list | tuple) else value)
        return made

    def __repr__(self) -> str:
        numbers = {name: value for name, value in self.get_config().items() if isinstance(value, float)}
        return f"{type(self).__name__}({', '.join(f'{name}={value:.4g}' for name, value in numbers.items())})"


def _plain(value: Any) -> Any:
    return value.tolist() if isinstance(value, np.ndarray | np.generic) else value
