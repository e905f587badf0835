"""Fitted classifiers as files: arrays, and JSON that says what they are. Nothing is pickled, nothing unpickled."""

import importlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import keras
import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator

from deepsimplex._utils.atomic_files import load_arrays, replacing, save_arrays
from deepsimplex.calibration import CALIBRATIONS, Calibration
from deepsimplex.targets import Target, get_target

# Raise the number when the meaning of what is stored changes: older files are then refused.
KEY = "deepsimplex classifier 1"
# Kinds of NumPy's dtypes whose arrays hold all they mean.
_KINDS = "biufUS"


def save_classifier(classifier: Any, filepath: str | os.PathLike[str]) -> None:
    """Write a fitted classifier: its attributes, and the posterior that its regressor ends in, where it has one."""
    if not os.fspath(filepath).endswith(".npz"):
        hint = ". export writes a SavedModel" if hasattr(classifier, "export") else ""
        raise ValueError(f"filepath must end in .npz; found {os.fspath(filepath)!r}{hint}")
    name = type(classifier).__name__
    if _classes().get(name) is not type(classifier):
        raise ValueError(f"save knows the classifiers {', '.join(_classes())}; found a {name}, which pickle can write")
    attributes = _learned(classifier)
    parts = {"parameters": classifier.get_params(deep=False), "attributes": attributes}
    arrays: dict[str, NDArray[Any]] = {}
    if "regressor_" in attributes:
        parts["regressor"] = _learned(attributes.pop("regressor_"))
        arrays = {f"posterior.{key}": value for key, value in parts["regressor"].pop("posterior_").state().items()}
    about = {"class": name, **{part: _written_all(values, arrays) for part, values in parts.items()}}
    with replacing(filepath) as fresh:
        save_arrays(fresh, KEY, {"about": np.array(json.dumps(about)), **arrays})


def load_classifier(filepath: str | os.PathLike[str]) -> Any:
    """Load a classifier that ``save`` wrote, after checking that the file is whole.

    Parameters
    ----------
    filepath : path-like
        May begin with ``~``.

    Returns
    -------
    classifier
        It predicts as the saved one did, can be cloned and fitted again. A CASIMAC target carries no training samples.

    Raises
    ------
    FileNotFoundError
        When there is no such file.
    ValueError
        When it is damaged, or holds something else.

    Examples
    --------
    >>> from deepsimplex import SimplexGaussianProcess
    >>> from sklearn.datasets import load_iris
    >>> X, y = load_iris(return_X_y=True)
    >>> classifier = SimplexGaussianProcess("ilr").fit(X[::2], y[::2])
    >>> classifier.save(folder / "iris.npz")
    >>> bool(np.allclose(load_classifier(folder / "iris.npz").predict_proba(X), classifier.predict_proba(X)))
    True
    """
    path = Path(filepath).expanduser()
    if not path.is_file():
        raise FileNotFoundError(f"filepath: there is no classifier at {str(path)!r}")
    try:
        arrays = load_arrays(path, KEY)
    except PermissionError:
        raise
    except Exception as error:  # a damaged archive may raise anything, from BadZipFile to MemoryError
        raise ValueError(
            f"filepath: {str(path)!r} is damaged, or no classifier of this version ({type(error).__name__}: {error}); "
            "save the classifier again or restore a copy"
        ) from error
    about = json.loads(str(arrays["about"]))
    made = _make(about["class"], _read_all(about["parameters"], arrays), path)
    _set(made, _read_all(about["attributes"], arrays))
    if "regressor" in about:
        made._set_posterior(_posterior(arrays))
        _set(made.regressor_, _read_all(about["regressor"], arrays))
    return made


def _classes() -> dict[str, type[BaseEstimator]]:
    """The classifiers that can be saved, by name: those of this room that can be written."""
    room = importlib.import_module("deepsimplex.estimators")
    return {name: getattr(room, name) for name in room.__all__ if hasattr(getattr(room, name), "save")}


def _make(name: str, parameters: dict[str, Any], path: Path) -> Any:
    """A whole file may still come from a later version, with parameters that this one does not know."""
    found = _classes().get(name)
    unknown = set() if found is None else parameters.keys() - found._get_param_names()
    if found is None or unknown:
        what = f"a {name}" if found is None else f"parameters of {name} ({', '.join(sorted(unknown))})"
        raise ValueError(f"filepath: {str(path)!r} holds {what} that this version of deepsimplex does not know")
    return found(**parameters)


def _posterior(arrays: Mapping[str, NDArray[Any]]) -> Any:
    from deepsimplex.gp.posterior import Posterior  # GPflow takes seconds to import

    prefix = "posterior."
    return Posterior.from_state({key.removeprefix(prefix): arrays[key] for key in arrays if key.startswith(prefix)})


def _learned(fitted: Any) -> dict[str, Any]:
    """The attributes that a fit leaves, as scikit-learn names them: with an underscore at the end."""
    return {key: value for key, value in vars(fitted).items() if key.endswith("_") and not key.startswith("_")}


def _set(fitted: Any, attributes: Mapping[str, Any]) -> None:
    for key, value in attributes.items():
        setattr(fitted, key, value)


def _written_all(values: Mapping[str, Any], arrays: dict[str, NDArray[Any]]) -> dict[str, Any]:
    return {key: _written(value, key, arrays) for key, value in values.items()}


def _written(value: Any, name: str, arrays: dict[str, NDArray[Any]]) -> Any:
    """A value as JSON: whatever is no number, text or list becomes a mapping of one key, which says its kind."""
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, np.ndarray):
        return _written_array(value, name, arrays)
    if isinstance(value, list | tuple):
        items = [_written(item, f"{name}[{index}]", arrays) for index, item in enumerate(value)]
        return items if isinstance(value, list) else {"tuple": items}
    if isinstance(value, Target):
        return {"target": value.get_config(), "num_classes": getattr(value, "num_classes_", None)}
    if isinstance(value, Calibration):
        return {"calibration": keras.saving.serialize_keras_object(value)}
    if isinstance(value, Mapping):
        # Keys of JSON are texts; a mapping's may be numbers.
        pairs = [(_written(key, f"a key of {name}", arrays), item) for key, item in value.items()]
        return {"mapping": [(key, _written(item, f"{name}[{key!r}]", arrays)) for key, item in pairs]}
    raise ValueError(
        f"{name} cannot be saved: files hold numbers, texts, arrays, lists and targets; found a "
        f"{type(value).__name__}. Give it by name or number where that can be, and fit again, or pickle the classifier"
    )


def _written_array(array: NDArray[Any], name: str, arrays: dict[str, NDArray[Any]]) -> dict[str, Any]:
    if array.dtype.kind in _KINDS:
        key = f"array.{len(arrays)}"
        arrays[key] = array
        return {"array": key}
    if array.dtype.kind == "O" and all(isinstance(item, str) for item in array.flat):
        return {"texts": array.tolist()}
    raise ValueError(
        f"{name} cannot be saved: files hold arrays of numbers and texts; found dtype {array.dtype}. Make it "
        "numbers or texts, as with astype(str), and fit again, or pickle the classifier"
    )


def _read(value: Any, arrays: Mapping[str, NDArray[Any]]) -> Any:
    """The value that ``_written`` wrote."""
    if isinstance(value, list):
        return [_read(item, arrays) for item in value]
    if not isinstance(value, dict):
        return value
    if "array" in value:
        return arrays[value["array"]]
    if "texts" in value:
        return np.array(value["texts"], dtype=object)
    if "tuple" in value:
        return tuple(_read(value["tuple"], arrays))
    if "target" in value:
        return _target(value["target"], value["num_classes"])
    if "calibration" in value:
        return CALIBRATIONS.get(value["calibration"])
    return {_read(key, arrays): _read(item, arrays) for key, item in value["mapping"]}


def _read_all(values: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> dict[str, Any]:
    return {key: _read(value, arrays) for key, value in values.items()}


def _target(config: dict[str, Any], num_classes: int | None) -> Target:
    target = get_target(config)
    if num_classes is not None:
        target.num_classes_ = num_classes
    return target
