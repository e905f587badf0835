"""Save and load fitted scikit-learn classifiers: arrays and JSON, without a pickle."""

import importlib
import json
import os
import warnings
from collections.abc import Mapping
from typing import Any

import keras
import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from deepsimplex._utils.archives import load_arrays, naming_damage, save_arrays, with_prefix
from deepsimplex._utils.atomic_files import check_path, replacing
from deepsimplex._utils.parameters import Fitted, constructor_parameters
from deepsimplex.classifier.keras_files import load_model
from deepsimplex.targets import Target

# Increase the number when the meaning of what is stored changes: older files are then refused.
KEY = "deepsimplex classifier 3"
_ROOM = "deepsimplex.estimators"
# Kinds of NumPy's dtypes that .npz files hold without a pickle.
_KINDS = "biufUS"


class Saved:
    """Base class of classifiers with ``save``."""

    def save(self, filepath: str | os.PathLike[str]) -> None:
        """Write the classifier to one ``.npz`` file, without a pickle; ``deepsimplex.load`` loads it.

        Parameters
        ----------
        filepath : path-like
            Ends in .npz and may begin with ``~``; written atomically.

        Raises
        ------
        ValueError
            Before anything is written: for another ending, and for values that cannot be saved, such as a GPflow kernel
            or a random generator.
        OSError
            If the file cannot be written; an existing one is kept.

        Notes
        -----
        Parameters are saved too, so that the loaded classifier can be cloned and fitted again. Targets are saved by
        their configuration: without training samples, and without a ``cache_dir``.
        """
        check_is_fitted(self)
        if not os.fspath(filepath).endswith(".npz"):
            hint = ". export writes a SavedModel" if hasattr(self, "export") else ""
            raise ValueError(f"filepath must end in .npz; found {os.fspath(filepath)!r}{hint}")
        name = type(self).__name__
        if getattr(importlib.import_module(_ROOM), name, None) is not type(self):
            raise ValueError(f"save writes the classifiers of {_ROOM}; found a {name}, which pickle can write")
        classifier: Any = self
        attributes = _fitted_attributes(self)
        parts = {"parameters": classifier.get_params(deep=False), "attributes": attributes}
        arrays: dict[str, NDArray[Any]] = {}
        if "regressor_" in attributes:
            regressor = parts["regressor"] = _fitted_attributes(attributes.pop("regressor_"))
            arrays = {f"posterior.{key}": value for key, value in regressor.pop("posterior_").state().items()}
        about = {
            part: {key: _encode(value, key, arrays) for key, value in values.items()} for part, values in parts.items()
        }
        with replacing(filepath) as fresh:
            save_arrays(fresh, KEY, {"about": np.array(json.dumps({"class": name, **about})), **arrays})


def load(filepath: str | os.PathLike[str]) -> Any:
    """Load a saved classifier: a ``.keras`` file of ``SimplexClassifier``, or an ``.npz`` file of an estimator.

    Parameters
    ----------
    filepath : path-like
        May begin with ``~``.

    Returns
    -------
    SimplexClassifier, any other Keras model, or an estimator
        It predicts as the saved one did, and can be fitted again. A CASIMAC target has no training samples.

    Raises
    ------
    FileNotFoundError
        If there is no such file.
    ValueError
        If the file is damaged or cut short, or holds something else. Nothing is unpickled.

    Examples
    --------
    >>> import keras
    >>> model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    >>> model.save(folder / "model.keras")
    >>> load(folder / "model.keras").output_shape
    (None, 1)
    >>> from deepsimplex import SimplexGaussianProcess
    >>> from sklearn.datasets import load_iris
    >>> X, y = load_iris(return_X_y=True)
    >>> classifier = SimplexGaussianProcess("ilr").fit(X[::2], y[::2])
    >>> classifier.save(folder / "iris.npz")
    >>> bool(np.allclose(load(folder / "iris.npz").predict_proba(X), classifier.predict_proba(X)))
    True
    """
    path = check_path(filepath, "filepath")
    if path.name.endswith(".keras"):
        return load_model(filepath)
    if not path.is_file():
        raise FileNotFoundError(f"filepath: there is no classifier at {str(path)!r}")
    otherwise, remedy = "is damaged, or no classifier of this version", "save the classifier again or restore a copy"
    with naming_damage(path, "about.npy", otherwise, remedy, f"filepath: {str(path)!r}"):
        return _restore(load_arrays(path, KEY))


def _restore(arrays: Mapping[str, NDArray[Any]]) -> Any:
    """Create a classifier from the arrays of a file, and check that it predicts one sample."""
    if not_finite := [key for key, array in arrays.items() if array.dtype.kind == "f" and not np.isfinite(array).all()]:
        raise ValueError(f"{', '.join(not_finite)} must be finite")
    about = json.loads(str(arrays["about"]))
    name = about.pop("class")
    parts = {part: {key: _decode(value, arrays) for key, value in values.items()} for part, values in about.items()}
    kind = getattr(importlib.import_module(_ROOM), name, None)
    if not (isinstance(kind, type) and issubclass(kind, Saved)):
        raise ValueError(f"this version of deepsimplex has no classifier {name}")
    # A later version may have written parameters that this one does not have.
    if unknown := sorted(parts["parameters"].keys() - constructor_parameters(kind).keys()):
        raise ValueError(f"this version of deepsimplex has no parameters {', '.join(unknown)} of {name}")
    classifier: Any = kind(**parts["parameters"])
    vars(classifier).update(parts["attributes"])
    if "regressor" in parts:
        posterior = classifier._posterior_from_state(with_prefix(arrays, "posterior."))
        vars(classifier._set_posterior(posterior).regressor_).update(parts["regressor"])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # such as those about missing feature names
        p = classifier.predict_proba(np.ones((1, classifier.n_features_in_)))
    if p.shape != (1, len(classifier.classes_)) or not np.isfinite(p).all():
        raise ValueError(f"it gives probabilities of shape {p.shape}, not all of them finite, or of other classes")
    return classifier


def _fitted_attributes(fitted: Any) -> dict[str, Any]:
    """Return the fitted attributes: those that end in an underscore."""
    return {key: value for key, value in vars(fitted).items() if key.endswith("_") and not key.startswith("_")}


def _encode(value: Any, name: str, arrays: dict[str, NDArray[Any]]) -> Any:
    """Encode a value as JSON: dicts of one key for all but numbers, strings and lists; arrays go into ``arrays``."""
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, np.ndarray) and value.dtype.kind in _KINDS:
        key = f"array.{len(arrays)}"
        arrays[key] = value
        return {"array": key}
    if isinstance(value, np.ndarray) and all(isinstance(item, str) for item in value.flat):
        return {"texts": value.tolist()}
    if isinstance(value, list | tuple):
        items = [_encode(item, f"{name}[{index}]", arrays) for index, item in enumerate(value)]
        return items if isinstance(value, list) else {"tuple": items}
    if isinstance(value, Target | Fitted):
        config = keras.saving.serialize_keras_object(value)
        state = {key: _encode(array, name, arrays) for key, array in getattr(value, "state", dict)().items()}
        return {"member": config, "num_classes": getattr(value, "num_classes_", None), "state": state}
    if isinstance(value, Mapping):
        # JSON's keys are strings; a mapping's may be numbers.
        pairs = [(_encode(key, f"a key of {name}", arrays), item) for key, item in value.items()]
        return {"mapping": [(key, _encode(item, f"{name}[{key!r}]", arrays)) for key, item in pairs]}
    kind = f"ndarray of dtype {value.dtype}" if isinstance(value, np.ndarray) else type(value).__name__
    raise ValueError(
        f"{name} cannot be saved: files hold numbers, texts, arrays of both, lists and targets; found a {kind}. Give "
        "it by name, by number or as text, as with astype(str), and fit again, or pickle the classifier"
    )


def _decode(value: Any, arrays: Mapping[str, NDArray[Any]]) -> Any:
    """Return the value that ``_encode`` encoded."""
    if isinstance(value, list):
        return [_decode(item, arrays) for item in value]
    if not isinstance(value, dict):
        return value
    if "array" in value:
        return arrays[value["array"]]
    if "texts" in value:
        return np.array(value["texts"], dtype=object)
    if "tuple" in value:
        return tuple(_decode(value["tuple"], arrays))
    if "member" in value:
        member: Any = keras.saving.deserialize_keras_object(value["member"])
        if value["state"]:
            member.load_state({key: _decode(array, arrays) for key, array in value["state"].items()})
        if value["num_classes"] is not None:
            member.num_classes_ = value["num_classes"]
        return member
    return {_decode(key, arrays): _decode(item, arrays) for key, item in value["mapping"]}
