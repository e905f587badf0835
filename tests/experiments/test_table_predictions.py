"""A trained classifier on the rows of new tables: in Python and on the command line."""

import csv
import json
import re
import warnings

import keras
import numpy as np
import pandas as pd
import pytest

import deepsimplex as ds
from deepsimplex.experiments import evaluate_on, load_config, load_predictions, predict_table
from deepsimplex.experiments.training_run import build_classifier, load_split

NAMES = ["length", "mass", "=width"]
COPIED = "columns of .* that are no features were copied to the predictions"


def rows(seed: int, N: int = 60) -> pd.DataFrame:
    rng, y = np.random.default_rng(seed), np.arange(N) % 3
    X = rng.normal(size=(N, 3)) + 3 * np.eye(3)[y]
    return pd.DataFrame(X, columns=NAMES).assign(kind=np.array(["ant", "bee", "cat"])[y])


def estimator():
    held = rows(1)
    classifier = ds.GMLVQ().fit(rows(0)[NAMES], rows(0).kind).fit_density(rows(0)[NAMES], rows(0).kind)
    classifier.fit_unknown(held[NAMES]).conformalize(held[NAMES], held.kind)
    return classifier.set_decision(ds.calibration.ExpectedCost(1 - np.eye(3), abstention=0.2))


def network():
    x, y = rows(0)[NAMES].to_numpy("float32"), np.arange(60) % 3
    model = ds.SimplexClassifier(
        keras.Sequential([keras.Input((3,))]), class_names=["ant", "bee", "cat"], feature_names=NAMES
    )
    model.compile(run_eagerly=True)
    model.fit(x, y, verbose=0)
    model.fit_density(x, y).conformalize(x, y, left_out=True)
    return model.set_decision(ds.calibration.ExpectedCost(1 - np.eye(3), abstention=0.2))


@pytest.fixture(scope="module", params=[estimator, network])
def saved(request, tmp_path_factory):
    """A file of a classifier with all that has a column."""
    path = tmp_path_factory.mktemp("model") / f"insects{'.npz' if request.param is estimator else '.keras'}"
    request.param().save(path)
    return path


def read(path):
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file, strict=True))


def test_rows_are_predicted_by_the_names_of_their_columns(saved, tmp_path):
    classifier, new = ds.load(saved), rows(2, 9)
    shuffled = new[["kind", "=width", "length", "mass"]].assign(**{"class": "=1", "id": range(9)})
    shuffled.to_csv(tmp_path / "new.csv", sep=";")  # with the unnamed index
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("ignore")
        warnings.simplefilter("always", UserWarning)
        table = predict_table(saved, tmp_path / "new.csv", tmp_path / "predictions.csv")
    assert re.search(f"{COPIED}: index, kind, class, id$", str(caught[0].message))
    assert len(caught) == 1
    x = new[NAMES].to_numpy("float32")
    expected = classifier.predict_all(x if isinstance(classifier, keras.Model) else new[NAMES])
    np.testing.assert_allclose(table.probabilities, expected["probabilities"], atol=1e-5)
    np.testing.assert_array_equal(table.sets, expected["prediction_set"])
    np.testing.assert_allclose(table.unknown_score, expected["unknown"], atol=1e-5)
    np.testing.assert_allclose(table.familiarity, expected["familiarity"], atol=0.01)
    written = read(tmp_path / "predictions.csv")
    assert [row["line"] for row in written] == [str(line) for line in range(2, 11)]
    assert [row["kind"] for row in written] == new.kind.tolist()
    assert {(row["table_class"], row["error"]) for row in written} == {("'=1", "")}
    assert np.mean([row["class"] == row["kind"] for row in written]) > 0.8
    assert {row["decision"] for row in written} <= {"ant", "bee", "cat", "abstain"}


@pytest.mark.parametrize("wrong", ["much", "", "nan", "inf", "1,5", "1e300"])
def test_rows_without_a_number_are_errors_and_the_others_predicted(wrong, saved, command, tmp_path):
    new = rows(2, 4)[NAMES].astype(object)
    new.iloc[1, 0] = wrong
    new.to_csv(tmp_path / "new.csv", index=False)
    result = command("predict", saved, tmp_path / "new.csv", "--output", tmp_path / "out.csv", code=1)
    assert f"line 3: column 'length' must hold a finite number; found '{wrong}'" in result.stderr
    written = read(tmp_path / "out.csv")
    assert [bool(row["class"]) for row in written] == [True, False, True, True]
    assert written[1]["error"].startswith("column 'length' must")
    assert ("decimal comma" in written[1]["error"]) == (wrong == "1,5")


def test_first_of_many_errors_are_printed(saved, command, tmp_path):
    new = rows(2, 20)[NAMES].astype(object)
    new["length"] = "1,5"
    new.to_csv(tmp_path / "new.csv", index=False)
    result = command("predict", saved, tmp_path / "new.csv", "--output", tmp_path / "out.csv", code=1)
    assert result.stderr.count("column 'length' must") == 10
    assert f"10 more, in column 'error' of {tmp_path / 'out.csv'}" in result.stderr


def test_missing_and_double_columns_raise(saved, tmp_path):
    rows(2, 4)[["length", "=width"]].to_csv(tmp_path / "new.csv", index=False)
    with pytest.raises(ValueError, match=r"each of the model's 3 features; found 0 of 'mass' among 'length', '=width'"):
        predict_table(saved, tmp_path / "new.csv")
    (tmp_path / "new.csv").write_text("length,mass,mass,=width\n1,2,3,4\n")
    with pytest.raises(ValueError, match=r"found 2 of 'mass'"):
        predict_table(saved, tmp_path / "new.csv")
    with pytest.raises(FileNotFoundError, match=r"table must be .*nowhere\.csv"):
        predict_table(saved, tmp_path / "nowhere.csv")


def test_columns_without_names_are_taken_in_their_order(command, tmp_path):
    train, new = rows(0), rows(2, 9)
    classifier = ds.GLVQ().fit(train[NAMES].to_numpy(), train.kind)
    new.to_csv(tmp_path / "new.csv")
    with pytest.raises(ValueError, match=r"3 columns of features, .*; found 4: .*'kind'\. .*target_column=NAME"):
        predict_table(classifier, tmp_path / "new.csv")
    classifier.save(tmp_path / "model.npz")
    arguments = [tmp_path / "model.npz", tmp_path / "new.csv", "target_column=kind", "--output", tmp_path / "out.csv"]
    with warnings.catch_warnings(action="always"):
        lines = command("predict", *arguments).stderr.splitlines()
    assert "does not know the names of its columns" in lines[0]
    assert re.search(f"{COPIED}: index, kind$", lines[1])
    written = [row["class"] for row in read(tmp_path / "out.csv")]
    assert written == classifier.predict(new[NAMES].to_numpy()).tolist()
    with pytest.raises(ValueError, match="target_column must name a column"):
        predict_table(classifier, tmp_path / "new.csv", target_column="species")


def test_saved_models_are_evaluated_on_tables(saved, command, tmp_path):
    other = rows(3, 90)
    other[["kind", *NAMES[::-1]]].to_csv(tmp_path / "other.csv", index=False)
    with warnings.catch_warnings(action="error", category=UserWarning):
        result = command("evaluate", saved, "--data", tmp_path / "other.csv", "target_column=kind")
    assert "evaluation_other.json" in result.stdout
    scores = json.loads((saved.parent / "evaluation_other.json").read_text())
    classifier, x = ds.load(saved), other[NAMES].to_numpy("float32")
    p = classifier.predict_all(x if isinstance(classifier, keras.Model) else other[NAMES])["probabilities"]
    assert scores["accuracy"] == np.mean(np.array(["ant", "bee", "cat"])[p.argmax(axis=1)] == other.kind)
    assert {"set_coverage", "unfamiliar_share", "unknown_share"} <= scores.keys()
    assert load_predictions(saved.parent / "evaluation_other.npz").class_names == ("ant", "bee", "cat")


@pytest.mark.parametrize("labels", [np.int64, np.float64, str])
def test_classifier_of_an_array_is_evaluated_on_a_table(labels, tmp_path):
    X, y, other = rows(0)[NAMES].to_numpy(), np.arange(60) % 3, rows(3)
    classifier = ds.GLVQ().fit(X, y.astype(labels))
    other.assign(kind=y).to_csv(tmp_path / "other.csv", index=False)
    scores = evaluate_on(classifier, tmp_path / "other.csv", target_column="kind")
    assert scores["accuracy"] == np.mean(classifier.predict(other[NAMES].to_numpy()).astype(float) == y)
    assert scores["samples_of_class"] == {"0": 20, "1": 20, "2": 20}
    assert not list(tmp_path.glob("*.json"))
    other.assign(kind=y).drop(columns="mass").to_csv(tmp_path / "other.csv", index=False)
    with pytest.raises(ValueError, match="must have 3 columns of features, as many as the model takes; found 2"):
        evaluate_on(classifier, tmp_path / "other.csv", target_column="kind")


def test_models_of_images_take_no_table(tmp_path):
    rows(2, 4)[NAMES].to_csv(tmp_path / "new.csv", index=False)
    model = ds.SimplexClassifier(keras.Sequential([keras.Input((4, 4)), keras.layers.Flatten()]), num_classes=3)
    with pytest.raises(ValueError, match=r"rows of a table \[N, d\]; its input has the shape \(None, 4, 4\)"):
        predict_table(model, tmp_path / "new.csv")


def test_runs_know_the_names_of_their_columns(tmp_path):
    rows(0).to_csv(tmp_path / "insects.csv", index=False)
    (tmp_path / "config.yaml").write_text(
        f"name: a\ndata: {{name: {tmp_path / 'insects.csv'}, options: {{target_column: kind}}}}\n"
        "target: {name: ilr}\nmodel: {backbone: {name: mlp, hidden: [4]}}\n"
    )
    config = load_config(tmp_path / "config.yaml")
    model = build_classifier(config, load_split(config))
    assert model.feature_names == NAMES
    rows(0)[["kind", *NAMES[::-1]]].to_csv(tmp_path / "reversed.csv", index=False)
    scores = [evaluate_on(model, tmp_path / name, target_column="kind") for name in ("insects.csv", "reversed.csv")]
    assert scores[0]["negative_log_likelihood"] == pytest.approx(scores[1]["negative_log_likelihood"])
    rows(0)[["kind", "mass", "length"]].to_csv(tmp_path / "reversed.csv", index=False)
    with pytest.raises(ValueError, match="found 0 of '=width'"):
        evaluate_on(model, tmp_path / "reversed.csv", target_column="kind")
