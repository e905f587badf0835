"""Metrics of ``compile``, with labels and class probabilities in the form that each compares."""

import json
from typing import Any

import keras

import deepsimplex.metrics
from deepsimplex.losses.label_forms import accepted_forms, in_accepted_form

# Forms by type of metric, its configuration and the number of classes: a trial takes about a tenth of a second.
_TRIED: dict[tuple[type, str, int], list[str]] = {}


@keras.saving.register_keras_serializable(package="deepsimplex")
class ConvertedMetric(keras.metrics.Metric):
    """A metric, with labels and class probabilities converted to one of the forms that it compares.

    Parameters
    ----------
    metric : keras.metrics.Metric
    forms : list of str
        See ``losses.label_forms``.
    """

    def __init__(self, metric: keras.metrics.Metric, forms: list[str]) -> None:
        super().__init__(name=metric.name, dtype=metric.dtype)
        self.metric, self.forms = metric, forms

    def __getattr__(self, name: str) -> Any:
        """Return an attribute of the metric, such as the direction that callbacks look for."""
        if name == "metric":  # not set yet
            raise AttributeError(name)
        return getattr(self.metric, name)

    def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> None:
        """Add a batch: labels [N] or [N, n], class probabilities [N, n], weights [N]."""
        arguments = {} if sample_weight is None else {"sample_weight": sample_weight}
        self.metric.update_state(*in_accepted_form(self.forms, y_true, y_pred), **arguments)

    def result(self) -> Any:
        """Return the metric's result."""
        return self.metric.result()

    def reset_state(self) -> None:
        """Reset the metric."""
        self.metric.reset_state()

    def get_config(self) -> dict[str, Any]:
        return {"metric": keras.saving.serialize_keras_object(self.metric), "forms": self.forms}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> "ConvertedMetric":
        return cls(keras.saving.deserialize_keras_object(config["metric"]), config["forms"])


def converted_metrics(metrics: Any, n: int) -> Any:
    """Return metrics of n classes as ``compile`` takes them, those converted that do not take labels of every form."""
    if isinstance(metrics, list | tuple):
        return [converted_metrics(metric, n) for metric in metrics]
    if isinstance(metrics, dict) and "class_name" not in metrics:
        return {name: converted_metrics(metric, n) for name, metric in metrics.items()}
    if metrics is None or isinstance(metrics, ConvertedMetric):
        return metrics
    if metrics in ("accuracy", "acc"):  # Keras would choose a metric by the shape of the first labels
        return ConvertedMetric(keras.metrics.SparseCategoricalAccuracy(name=metrics), ["numbers"])
    metric = keras.metrics.get(metrics)
    if isinstance(metrics, str) and isinstance(metric, keras.metrics.Metric):
        metric.name = metrics  # not numbered, as Keras does
    forms = _forms(metric, n)
    if not forms or {"numbers", "rows"} <= {*forms}:
        return metrics
    if not isinstance(metric, keras.metrics.Metric):
        name = metrics if isinstance(metrics, str) else getattr(metric, "__name__", type(metric).__name__)
        metric = keras.metrics.MeanMetricWrapper(metric, name=name)
    return ConvertedMetric(metric, forms)


def _forms(metric: Any, n: int) -> list[str]:
    """Forms that a metric or a function of labels and outputs compares."""
    module = str(getattr(metric, "__module__", None))
    if not isinstance(metric, keras.metrics.Metric):
        return accepted_forms(metric, n, hinted=module.startswith("keras."))
    if module == deepsimplex.metrics.__name__:
        return ["numbers", "rows"]
    config = {name: value for name, value in metric.get_config().items() if name != "name"}
    key = type(metric), json.dumps(config, sort_keys=True, default=repr), n

    def compare(label: Any, outputs: Any) -> Any:
        copy = type(metric).from_config(metric.get_config())
        copy.update_state(label, outputs)
        return copy.result()

    if key not in _TRIED:
        # Metrics that compare probabilities with thresholds are of two classes, unless they say which, or average.
        has_thresholds = any(getattr(metric, name, None) is not None for name in ("threshold", "thresholds"))
        of_columns = any(getattr(metric, name, None) is not None for name in ("class_id", "top_k", "average"))
        of_columns = of_columns or bool(getattr(metric, "multi_label", False))
        binary = has_thresholds and not of_columns
        _TRIED[key] = accepted_forms(compare, n, binary=binary, hinted=module.startswith("keras."))
    return _TRIED[key]
