"""Data frames and lists with text, categories, dates and missing values: errors name the columns and a pipeline."""

from datetime import date

import numpy as np
import pandas
import pytest
from scipy.sparse import csr_array
from sklearn.base import clone
from sklearn.compose import make_column_transformer
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LinearRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder

import deepsimplex as ds

N = 12
NUMBERS = pandas.DataFrame({"a": np.arange(N) * 0.5, "b": np.arange(N) % 5})
y = np.array(["no", "yes"])[np.arange(N) % 2]
CLASSIFIERS = {
    "closed form": ds.SimplexGaussianProcess(),
    "exact": ds.SimplexGaussianProcess("ilr", max_iter=1),
    "stochastic": ds.SimplexGaussianProcess("ilr", inference="stochastic", inducing=4, epochs=1),
    "categorical": ds.CategoricalGaussianProcess(inducing=4, epochs=1),
    "GPLVQ": ds.GPLVQ(max_iter=1),
    "GMLVQ": ds.GMLVQ(max_iter=1),
    "network": ds.estimators.SimplexNetworkClassifier(epochs=1),
    "regression": ds.LatentRegressionClassifier(LinearRegression(), "vertices", cv=2),
}
TEXT = NUMBERS.assign(city=["Rome", "Oslo"] * (N // 2))
ENCODED = {
    "text": (TEXT, "'Rome' in column 'city'"),
    "pandas' text": (TEXT.astype({"city": "string"}), "'Rome' in column 'city'"),
    "category": (TEXT.astype({"city": "category"}), "'Rome' in column 'city'"),
    "text with gaps": (TEXT.assign(city=[None, "Oslo"] * (N // 2)), "'Oslo' in column 'city'"),
    "two columns": (TEXT.assign(a=np.nan, street="High"), "'Rome' in column 'city', 'High' in column 'street'"),
    "intervals": (NUMBERS.assign(b=pandas.cut(NUMBERS["a"], 2)), r"'\(-0.0055, 2.75\]' in column 'b'"),
    "dates": (NUMBERS.assign(day=pandas.date_range("2020", periods=N)), "'2020-01-01 00:00:00' in column 'day'"),
    "dates alone": (pandas.DataFrame({"day": pandas.date_range("2020", periods=N)}), "in column 'day'"),
    "Python's dates": (NUMBERS.assign(day=[date(2020, 1, 1)] * N), "'2020-01-01' in column 'day'"),
    "durations": (NUMBERS.assign(wait=pandas.to_timedelta(np.arange(N), unit="h")), "in column 'wait'"),
    "array of objects": (TEXT.to_numpy(), "'Rome' in column 2"),
    "list": (TEXT.to_numpy().tolist(), "'Rome' in column 2"),
    "array of text": (TEXT.to_numpy().astype(str), "dtype <U4"),
    "many columns": (pandas.concat([TEXT["city"].rename(str(i)) for i in range(8)], axis=1), "'4' and 3 more"),
}
GAPS = {
    "NaN": (NUMBERS.assign(a=np.nan), "NaN in column 'a', first in row 0"),
    "two columns": (NUMBERS.assign(a=[*range(N - 1), np.nan], b=np.nan), "NaN in columns 'a', 'b', first in row 0"),
    "None": (NUMBERS.assign(a=pandas.Series([1.0, None] * (N // 2), dtype=object)), "NaN in column 'a', .* row 1"),
    "NA": (NUMBERS.assign(b=pandas.array([1, None] * (N // 2), dtype="Int64")), "NaN in column 'b', .* row 1"),
    "NA among objects": (NUMBERS.assign(b=pandas.Series([1, pandas.NA] * (N // 2), dtype=object)), "NaN in column 'b'"),
    "truth values": (NUMBERS.assign(b=pandas.array([True, None] * (N // 2), dtype="boolean")), "NaN in column 'b'"),
    "infinity": (NUMBERS.assign(b=[1.0, -np.inf] * (N // 2)), "infinity in column 'b', first in row 1"),
    "array": (np.where(np.arange(N)[:, None] < 3, 1.0, [[1.0, np.nan]]), "NaN in column 1, first in row 3"),
    "list": ([[1.0, None]] * N, "NaN in column 1, first in row 0"),
}


@pytest.mark.parametrize("name", CLASSIFIERS)
@pytest.mark.parametrize("kind", ENCODED)
def test_columns_that_are_no_numbers_raise(kind, name):
    table, message = ENCODED[kind]
    pipeline = rf"make_pipeline\(make_column_transformer.*OneHotEncoder.*, {type(CLASSIFIERS[name]).__name__}\(\)\)"
    with pytest.raises(TypeError, match=f"^X must hold real numbers; found .*{message}[^\n]* {pipeline}[^\n]*$"):
        clone(CLASSIFIERS[name]).fit(table, y)


@pytest.mark.parametrize("name", CLASSIFIERS)
@pytest.mark.parametrize("kind", GAPS)
def test_missing_values_raise(kind, name):
    table, message = GAPS[kind]
    with pytest.raises(
        ValueError, match=f"^Input X contains {message}[^\n]*make_pipeline.SimpleImputer[^\n]*\nSee docs"
    ):
        clone(CLASSIFIERS[name]).fit(table, y)


@pytest.mark.parametrize("kind", GAPS)
def test_missing_values_in_prediction_raise(kind):
    table, message = GAPS[kind]
    classifier = ds.GLVQ(max_iter=1).fit(NUMBERS if hasattr(table, "columns") else NUMBERS.to_numpy(), y)
    with pytest.raises(ValueError, match=f"^Input X contains .*{message}"):
        classifier.predict(table)


def test_numbers_of_every_kind_of_column_are_accepted():
    frames = [
        NUMBERS,
        NUMBERS.astype({"a": object, "b": "category"}),
        NUMBERS.astype({"b": "Int64"}),
        NUMBERS.astype({"a": "Float64", "b": str}),
    ]
    fits = [ds.GLVQ(max_iter=1).fit(frame, y).predict_proba(frame) for frame in frames]
    for p in fits[1:]:
        np.testing.assert_array_equal(p, fits[0])


def test_error_of_other_names_in_prediction_comes_first():
    with pytest.raises(ValueError, match="feature names should match"):
        ds.GLVQ(max_iter=1).fit(NUMBERS, y).predict(TEXT)


def test_single_column_raises():
    with pytest.raises(ValueError, match=r"^X: Expected a 2-dimensional container but got .*Series"):
        ds.GLVQ().fit(NUMBERS["a"], y)


def test_sparse_rows_raise():
    with pytest.raises(TypeError, match=r"^X must be dense; found a sparse array[^\n]*sparse_threshold=0[^\n]*$"):
        ds.GLVQ().fit(csr_array(NUMBERS.to_numpy()), y)


@pytest.mark.parametrize("kind", [kind for kind, (table, _) in ENCODED.items() if hasattr(table, "columns")])
def test_pipeline_of_the_message_fits(kind):
    table, _ = ENCODED[kind]
    names = [name for name in table if table[name].dtype.kind not in "biuf"]
    encoded = make_column_transformer(
        (OneHotEncoder(sparse_output=False), names), remainder=SimpleImputer(keep_empty_features=True)
    )
    assert make_pipeline(encoded, ds.GLVQ(max_iter=1)).fit(table, y).predict_proba(table).shape == (N, 2)
