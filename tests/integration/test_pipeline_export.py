"""ONNX files of scikit-learn's pipelines and regressors with a classifier behind, run by onnxruntime."""

import json
import re

import numpy as np
import onnx
import onnxruntime
import pandas
import pytest
from sklearn.compose import make_column_transformer
from sklearn.datasets import load_iris, load_wine
from sklearn.decomposition import PCA
from sklearn.ensemble import GradientBoostingRegressor, RandomForestRegressor
from sklearn.impute import SimpleImputer
from sklearn.kernel_ridge import KernelRidge
from sklearn.linear_model import LinearRegression, LogisticRegression, Ridge
from sklearn.model_selection import GridSearchCV
from sklearn.neighbors import KNeighborsRegressor
from sklearn.neural_network import MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import (
    FunctionTransformer,
    MinMaxScaler,
    OneHotEncoder,
    PolynomialFeatures,
    PowerTransformer,
    RobustScaler,
    StandardScaler,
)
from sklearn.svm import SVR

import deepsimplex as ds
from deepsimplex.export import export_pipeline

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("onnx_without_copies")]

STEPS = {
    "standard": [StandardScaler()],
    "min and max, PCA": [MinMaxScaler(), PCA(4)],
    "robust, polynomials": [RobustScaler(), PolynomialFeatures(2)],
    "power": [PowerTransformer()],
    "imputer": [SimpleImputer(), StandardScaler()],
    "one-hot": [make_column_transformer((StandardScaler(), [*range(1, 13)]), (OneHotEncoder(), [0]))],
    "none": [],
}
REGRESSORS = {
    "linear": LinearRegression(),
    "pipeline": make_pipeline(StandardScaler(), Ridge()),
    "search": GridSearchCV(Ridge(), {"alpha": [0.1, 1.0]}, cv=2),
    "neighbors": KNeighborsRegressor(),
    "forest": RandomForestRegressor(3, random_state=0),
    "boosting": GradientBoostingRegressor(n_estimators=2),
    "support vectors": SVR(),
    "network": MLPRegressor(hidden_layer_sizes=(4,), max_iter=400, tol=1e-2, random_state=0),
}


@pytest.fixture(scope="module")
def data():
    X, y = load_wine(return_X_y=True)
    X = StandardScaler().fit_transform(X).astype("float32")
    X[:, 0] = np.round(X[:, 0])  # categories
    return X, y


def run(path, fed):
    session = onnxruntime.InferenceSession(path)
    assert {each.name for each in session.get_inputs()} == set(fed)
    return dict(zip([each.name for each in session.get_outputs()], session.run(None, fed), strict=True))


@pytest.mark.parametrize("name", STEPS)
def test_pipelines_of_common_transformers_are_served(name, data, tmp_path):
    X, y = data
    pipeline = make_pipeline(*STEPS[name], ds.GLVQ()).fit(X, y)
    export_pipeline(pipeline, tmp_path / "m.onnx", class_names=["a", "b", "ö"])
    outputs = run(tmp_path / "m.onnx", {"features": X})
    np.testing.assert_allclose(outputs["class_probabilities"], pipeline.predict_proba(X), atol=1e-5)
    np.testing.assert_array_equal(outputs["class_id"], pipeline.predict(X))
    (names,) = [each.value for each in onnx.load(tmp_path / "m.onnx").metadata_props if each.key == "class_names"]
    assert json.loads(names) == ["a", "b", "ö"]


@pytest.mark.parametrize("classifier", [ds.SimplexGaussianProcess("vertices", max_iter=2), ds.GPLVQ(max_iter=1)])
def test_pipeline_outputs_latents(classifier, data, tmp_path):
    X, y = data
    pipeline = make_pipeline(StandardScaler(), classifier).fit(X, y)
    export_pipeline(pipeline, tmp_path / "m.onnx")
    outputs = run(tmp_path / "m.onnx", {"features": X})
    latent = classifier.predict_latent(pipeline[:-1].transform(X))
    np.testing.assert_allclose(outputs["latent_mean"], latent.loc, atol=1e-4)
    np.testing.assert_allclose(outputs["class_probabilities"], pipeline.predict_proba(X), atol=1e-5)


def test_frame_columns_are_inputs(data, tmp_path):
    X, y = data
    frame = pandas.DataFrame(
        {"a": X[:, 1].astype(float), "b": X[:, 2], "k": y * 2, "city": np.array(["u", "v"])[y % 2]}
    ).assign(kind=lambda frame: frame["city"].astype("category"), size=pandas.Categorical(y))
    columns = make_column_transformer(
        (make_pipeline(SimpleImputer(), StandardScaler()), ["a", "b"]),
        (OneHotEncoder(sparse_output=False), ["city", "k", "kind", "size"]),
    )
    pipeline = make_pipeline(columns, ds.GLVQ()).fit(frame, y)
    export_pipeline(pipeline, tmp_path / "m.onnx", frame[:3])
    fed = {name: frame[[name]].to_numpy() for name in frame} | {"a": X[:, 1:2]}
    p = run(tmp_path / "m.onnx", fed)["class_probabilities"]
    np.testing.assert_allclose(p, pipeline.predict_proba(frame), atol=1e-5)


@pytest.mark.parametrize("is_wrapped", [False, True])
def test_inputs_have_the_names_of_columns(is_wrapped, data, tmp_path):
    X, y = data
    frame = pandas.DataFrame(X[:, 1:4], columns=["mean radius", "mean_radius", "größe (cm)"])
    columns = make_column_transformer((StandardScaler(), ["mean radius", "größe (cm)"]), ("passthrough", [1]))
    if is_wrapped:
        classifier = ds.AfterTraining(make_pipeline(columns, LogisticRegression()).fit(frame, y))
        classifier.calibrate(frame, y).conformalize(frame, y).export(tmp_path / "m.onnx", format="onnx", X=frame)
    else:
        classifier = make_pipeline(columns, ds.GLVQ(max_iter=2)).fit(frame, y)
        export_pipeline(classifier, tmp_path / "m.onnx", frame)
    outputs = run(tmp_path / "m.onnx", {name: frame[[name]].to_numpy() for name in frame})
    np.testing.assert_allclose(outputs["class_probabilities"], classifier.predict_proba(frame), atol=1e-5)
    assert ("prediction_set" in outputs) == is_wrapped


def test_wrapped_pipeline_of_columns_without_a_frame_raises(data, tmp_path):
    X, y = data
    frame = pandas.DataFrame(X[:, 1:3], columns=["a", "b"])
    pipeline = make_pipeline(make_column_transformer((StandardScaler(), ["a"])), LogisticRegression()).fit(frame, y)
    with pytest.raises(ValueError, match=r"^format='onnx' cannot hold[^\n]*export\(\.\.\., X=frame\)[^\n]*$"):
        ds.AfterTraining(pipeline).export(tmp_path / "m.onnx", format="onnx")
    with pytest.raises(TypeError, match=r"pipeline must be a Pipeline.*found AfterTraining.*X=frame"):
        export_pipeline(ds.AfterTraining(pipeline), tmp_path / "m.onnx", frame)
    with pytest.raises(ValueError, match="X must not be given but for a pipeline"):
        ds.AfterTraining(classes=[0, 1]).export(tmp_path / "m", X=frame)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", REGRESSORS)
def test_regressors_are_served(name, data, tmp_path):
    X, y = data
    classifier = ds.LatentRegressionClassifier(REGRESSORS[name], "vertices", cv=2).fit(X, y)
    classifier.export(tmp_path / "m.onnx", format="onnx")
    outputs = run(tmp_path / "m.onnx", {"features": X})
    np.testing.assert_allclose(outputs["class_probabilities"], classifier.predict_proba(X), atol=1e-5)
    np.testing.assert_allclose(outputs["latent_mean"], classifier.predict_latent(X).loc, atol=1e-4)
    np.testing.assert_allclose(outputs["latent_scale"], classifier.predict_latent(X).scale)


@pytest.mark.parametrize("n", [2, 3])
def test_calibrated_latent_regression_is_served_in_pipeline(n, data, tmp_path):
    X, y = data[0], np.minimum(data[1], n - 1)
    pipeline = make_pipeline(StandardScaler(), ds.LatentRegressionClassifier(Ridge(), "vertices")).fit(X, y)
    pipeline[-1].calibrate(pipeline[:-1].transform(X), np.roll(y, 5), "latent")
    export_pipeline(pipeline, tmp_path / "m.onnx")
    p = run(tmp_path / "m.onnx", {"features": X})["class_probabilities"]
    np.testing.assert_allclose(p, pipeline.predict_proba(X), atol=1e-5)


@pytest.mark.parametrize(
    ("regressor", "format", "message"),
    [
        (KernelRidge(), "onnx", "KernelRidge.*Unable to find|Unable to find a shape calculator"),
        (None, "onnx", "export needs a regressor without return_std"),
        (Ridge(), "tf_saved_model", "format must be one of onnx; found 'tf_saved_model'"),
    ],
)
def test_unsupported_regressor_raises_before_writing(regressor, format, message, data, tmp_path):
    X, y = data
    classifier = ds.LatentRegressionClassifier(regressor, "vertices", cv=2).fit(X[::4], y[::4])
    with pytest.raises(ValueError, match=message):
        classifier.export(tmp_path / "m.onnx", format=format)
    assert list(tmp_path.iterdir()) == []


UNSUPPORTED = {
    "truth values": ({"k": np.arange(40) % 2 == 0}, OneHotEncoder(sparse_output=False)),
    "numbers with gaps": ({"k": pandas.array([1, None] * 20, dtype="Int64")}, SimpleImputer()),
    "dates": ({"k": pandas.date_range("2020", periods=40)}, OneHotEncoder(sparse_output=False)),
    "indicators": ({"k": np.where(np.arange(40) % 2, np.nan, 1.0)}, SimpleImputer(add_indicator=True)),
}


@pytest.mark.parametrize("kind", UNSUPPORTED)
def test_unsupported_column_raises_before_writing(kind, data, tmp_path):
    columns, step = UNSUPPORTED[kind]
    frame = pandas.DataFrame({"a": data[0][:40, 1], **columns})
    encoded = make_column_transformer((StandardScaler(), ["a"]), (step, ["k"]))
    pipeline = make_pipeline(encoded, ds.GLVQ(max_iter=1)).fit(frame, np.arange(40) % 2)
    with pytest.raises(ValueError, match=r"^format='onnx' cannot hold [^\n]*$"):
        export_pipeline(pipeline, tmp_path / "m.onnx", frame)
    assert list(tmp_path.iterdir()) == []


def test_unsupported_pipeline_raises_before_writing(data, tmp_path):
    X, y = data
    with pytest.raises(ValueError, match="FunctionTransformer is not supported"):
        export_pipeline(make_pipeline(FunctionTransformer(np.abs), ds.GLVQ()).fit(X, y), tmp_path / "m.onnx")
    with pytest.raises(TypeError, match="pipeline must end in a classifier of deepsimplex, with export"):
        export_pipeline(make_pipeline(StandardScaler(), Ridge()).fit(X, y), tmp_path / "m.onnx")
    with pytest.raises(ValueError, match=r"filepath must.*found 'm'"):
        export_pipeline(make_pipeline(StandardScaler(), ds.GLVQ()).fit(X, y), tmp_path / "m")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_onnx_file_of_a_wrapped_pipeline_predicts_the_same(dtype, tmp_path):
    names = np.array(["setosa", "versicolor", "virginica"])
    X, y = load_iris(return_X_y=True)
    regression = make_pipeline(StandardScaler(), LogisticRegression()).fit(X[::2], y[::2])
    X, y = X[1::2], y[1::2]
    wrapped = ds.AfterTraining(regression, classes=names).calibrate(X, names[y])
    wrapped.set_priors({"setosa": 0.2, "versicolor": 0.6, "virginica": 0.2}).conformalize(X, names[y])
    wrapped.set_decision(ds.calibration.ExpectedCost(1 - np.eye(3), abstention=0.2))
    wrapped.export(tmp_path / "iris.onnx", format="onnx", input_dtype=dtype)
    session = onnxruntime.InferenceSession(tmp_path / "iris.onnx")
    served = dict(
        zip(
            [each.name for each in session.get_outputs()], session.run(None, {"features": X.astype(dtype)}), strict=True
        )
    )
    assert served["class_probabilities"].dtype == dtype
    assert served.keys() == {"class_probabilities", "class_id", "prediction_set", "decision"}
    np.testing.assert_allclose(served["class_probabilities"], wrapped.predict_proba(X), atol=1e-5)
    assert (served["prediction_set"] == wrapped.predict_set(X)).mean() > 0.99
    np.testing.assert_array_equal(names[served["class_id"]], wrapped.predict(X))
    np.testing.assert_array_equal(np.append(names, "unknown")[served["decision"]], wrapped.decide(X))
    assert (served["decision"] == -1).any()


def test_classifiers_without_onnx_conversion_raise_before_writing(tmp_path):
    class Votes:
        classes_, n_features_in_ = np.arange(2), 4

        def predict_proba(self, X):
            return np.full((len(X), 2), 0.5)

        def __repr__(self):
            return "Votes()"

    with pytest.raises(ValueError, match=re.escape("format='onnx' cannot hold Votes(): ")):
        ds.AfterTraining(Votes()).export(tmp_path / "votes.onnx", format="onnx")
    assert list(tmp_path.iterdir()) == []


def test_columns_of_a_wrapped_pipeline_that_single_precision_rounds_warn(data, tmp_path):
    X, y = data
    X = np.c_[1.7e9 + X[:, :1], X[:, 1:3]].astype(np.float64)  # a time in seconds
    wrapped = ds.AfterTraining(make_pipeline(StandardScaler(), LogisticRegression()).fit(X, y))
    with pytest.warns(UserWarning, match=r"^float32 rounds 1 of 3 features; feature 0.*input_dtype='float64'"):
        wrapped.export(tmp_path / "rounded.onnx", format="onnx")
    wrapped.export(tmp_path / "m.onnx", format="onnx", input_dtype="float64")
    outputs = run(tmp_path / "m.onnx", {"features": X})
    np.testing.assert_allclose(outputs["class_probabilities"], wrapped.predict_proba(X), atol=1e-5)


@pytest.mark.parametrize("is_alone", [False, True])
def test_wrapped_process_is_served(is_alone, data, tmp_path):
    X, y = data
    process = ds.SimplexGaussianProcess()
    inner = (process if is_alone else make_pipeline(StandardScaler(), process)).fit(X[::2], y[::2])
    wrapped = ds.AfterTraining(inner).calibrate(X[1::2], y[1::2]).conformalize(X[1::2], y[1::2])
    wrapped.export(tmp_path / "process.onnx", format="onnx", input_dtype="float64")
    outputs = run(tmp_path / "process.onnx", {"features": X.astype(np.float64)})
    np.testing.assert_allclose(outputs["class_probabilities"], wrapped.predict_proba(X), atol=1e-6)
    assert (outputs["prediction_set"] == wrapped.predict_set(X)).mean() > 0.99
    if is_alone:
        again = ds.AfterTraining(wrapped).calibrate(X[1::2], y[1::2])
        again.export(tmp_path / "again.onnx", format="onnx", input_dtype="float64")
        p = run(tmp_path / "again.onnx", {"features": X.astype(np.float64)})["class_probabilities"]
        np.testing.assert_allclose(p, again.predict_proba(X), atol=1e-6)
        wrapped.export(tmp_path / "served")
        p = ds.export.load_served(tmp_path / "served").predict(X)["class_probabilities"]
        np.testing.assert_allclose(p, wrapped.predict_proba(X), atol=1e-4)
    else:
        with pytest.raises(ValueError, match="format must be 'onnx' for a pipeline"):
            wrapped.export(tmp_path / "served")


def test_arrays_in_place_of_frames_raise(data, tmp_path):
    X, y = data
    pipeline = make_pipeline(StandardScaler(), ds.SimplexGaussianProcess()).fit(X, y)
    with pytest.raises(TypeError, match="X must be a data frame"):
        ds.export.export_pipeline(pipeline, tmp_path / "a.onnx", X)
    with pytest.raises(TypeError, match="X must be a data frame"):
        ds.AfterTraining(make_pipeline(StandardScaler(), LogisticRegression()).fit(X, y)).export(
            tmp_path / "a.onnx", format="onnx", X=X
        )
    assert list(tmp_path.iterdir()) == []


def test_constants_beyond_single_precision_raise_before_writing(tmp_path):
    X = 1e9 + 1e6 * np.random.default_rng(0).normal(size=(200, 1))
    pipeline = make_pipeline(PowerTransformer(), ds.SimplexGaussianProcess()).fit(X, X[:, 0] > 1e9)
    with pytest.raises(ValueError, match=r"format='onnx' cannot hold .*PowerTransformer.*overflow"):
        ds.export.export_pipeline(pipeline, tmp_path / "a.onnx")
    assert list(tmp_path.iterdir()) == []
