"""Model cards, the hub, and presets of KerasHub as backbones."""

import re
import sys
import types

import keras
import numpy as np
import pytest
import yaml
from sklearn.linear_model import LogisticRegression

import deepsimplex as ds
from deepsimplex.experiments import Predictions
from deepsimplex.experiments.finished_runs import Run
from deepsimplex.experiments.run_cards import write_run_cards
from deepsimplex.export.model_card import write_card

RNG = np.random.default_rng(0)
Y = np.arange(60) % 3
X = (RNG.normal(size=(60, 4)) + 2 * np.eye(3, 4)[Y]).astype("float32")


def network(**options):
    model = ds.SimplexClassifier(keras.Sequential([keras.Input((4,))]), class_names=["a", "b", "c"], **options)
    model.compile(run_eagerly=True)
    model.fit(X, Y, verbose=0)
    return model


CLASSIFIERS = {
    "network": network,
    "process": lambda: ds.SimplexGaussianProcess().fit(X, Y),
    "prototypes": lambda: ds.GLVQ(max_iter=2).fit(X, Y),
    "after_training": lambda: ds.AfterTraining(LogisticRegression().fit(X, Y)),
}


@pytest.fixture(scope="module", params=CLASSIFIERS)
def classifier(request):
    return CLASSIFIERS[request.param]()


def parsed(card):
    """The metadata and the text of a card."""
    _, front, text = re.split(r"^---\n", card, maxsplit=2, flags=re.MULTILINE)
    return yaml.safe_load(front), text


def test_card_states_what_is_fitted_and_what_is_not_known(classifier):
    before, text = parsed(classifier.card())
    assert before["library_name"] == "deepsimplex"
    assert before["pipeline_tag"] == "tabular-classification"
    assert "license" not in before
    for line in (
        "Training data: not stated.",
        "License: not stated.",
        "Scores: none were given.",
        "No prediction sets",
    ):
        assert f"- {line}" in text
    held = X + 0.1, Y
    classifier.calibrate(*held).conformalize(*held, coverage=0.8)
    report = ds.evaluation.report(
        Y, classifier.predict_proba(X), sets=classifier.predict_set(X), intervals=0.9, resamples=20
    )
    after, text = parsed(classifier.card(report, name="iris: of *three*\nkinds", license="mit", data="60 flowers"))
    classifier.conformalize(None).calibrate(None)
    assert "TemperatureScaling" in text
    assert "coverage=0.8" in text
    assert "60 flowers" in text
    assert f"| accuracy | {report.accuracy:.4f} | {report.intervals['accuracy'][0]:.4f} to" in text
    assert not re.search("License|Training data|No calibration|No prediction sets|Scores: none", text)
    assert text.lstrip().startswith("# iris: of \\*three\\* kinds\n")
    (result,) = after["model-index"][0]["results"]
    scores = {metric["type"]: metric["value"] for metric in result["metrics"]}
    assert scores["accuracy"] == pytest.approx(report.accuracy, abs=1e-6)
    assert scores["set_coverage"] == pytest.approx(report.set_coverage, abs=1e-6)
    assert (result["dataset"]["name"], after["license"]) == ("60 flowers", "mit")


def test_card_shows_class_frequencies_and_the_rule_of_decision(classifier):
    costs = ds.calibration.ExpectedCost([[0, 1, 1], [5, 0, 1], [1, 1, 0]])
    classifier.set_priors([0.2, 0.3, 0.5], trained=[1 / 3, 1 / 3, 1 / 3])
    text = classifier.set_decision(costs).card()
    classifier.set_decision(None).set_priors(None)
    assert re.search(r"\| priors \| PriorShift\(.*frequencies=\\\[0\.2, 0\.3, 0\.5\\\]", text)
    assert r"| decision rule | ExpectedCost(costs=\[\[0.0, 1.0, 1.0\], \[5.0," in text


@pytest.mark.parametrize(
    ("top", "dtype", "stated"),
    [
        (1.0, "float32", "from 0 to 1: pixels 0 to 255 are divided by 255"),
        (255.0, "float32", "from 0 to 255: not divided"),
        (255, "uint8", "from 0 to 255: not divided"),
        (-3.0, "float32", "other numbers than 0 to 1 or 0 to 255: scaled as in training"),
        (None, None, None),
    ],
)
def test_card_states_the_unit_of_pixels(top, dtype, stated, tmp_path):
    model = ds.SimplexClassifier(
        keras.Sequential([keras.Input((2, 2)), keras.layers.Flatten()]), class_names=["a", "b"]
    )
    if stated:
        model.compile(run_eagerly=True)
        model.fit((top * RNG.random((8, 2, 2))).astype(dtype), np.arange(8) % 2, verbose=0)
    model.save(tmp_path / "model.keras")
    for copy in (model, ds.load(tmp_path / "model.keras")):
        text = copy.card()
        assert (f"| pixels | {stated} |" in text) == (stated is not None)
        assert ("- Pixels: whether they go from 0 to 1" in text) == (stated is None)
    assert "ixels" not in network().card()


def test_metadata_is_what_the_hub_reads():
    hub = pytest.importorskip("huggingface_hub")
    card = hub.ModelCard(network().card(ds.evaluation.report(Y, np.eye(3)[Y]), name="iris", license="mit"))
    assert card.data.license == "mit"
    assert card.data.eval_results[0].metric_value == 1.0


def test_names_are_no_markup():
    model = ds.SimplexClassifier(keras.Sequential([keras.Input((4,))]), class_names=["<b>|x", "two\nlines"])
    assert r"| classes | 2: \<b\>\|x, two lines |" in model.card()


@pytest.mark.parametrize("report", ["accurate", {"accuracy": 1.0}])
def test_invalid_report_raises(classifier, report):
    with pytest.raises(TypeError, match="report must be"):
        classifier.card(report)


def test_export_writes_the_card(tmp_path):
    model = network()
    model.export(tmp_path / "served")
    assert (tmp_path / "served" / "README.md").read_text() == model.card()
    (tmp_path / "served" / "README.md").write_text("changed by hand")
    ds.export.load_served(tmp_path / "served")  # is no damage
    (tmp_path / "README.md").write_text("the user's")
    (tmp_path / "model.onnx").touch()
    assert write_card("# card", tmp_path / "model.onnx").name == "model.onnx.md"
    assert (tmp_path / "README.md").read_text() == "the user's"


def test_report_writes_a_card_of_every_run(tmp_path):
    sure, unsure = Predictions.of(Y, np.eye(3)[Y] * 0.7 + 0.1), Predictions.of(Y, np.full((60, 3), 1 / 3))
    page = tmp_path / "page.html"
    ds.experiments.write_report(page, {"a/b": sure, "a b": unsure}, resamples=20, cards=True)
    assert {path.name for path in tmp_path.iterdir()} == {"page.html", "page_a_b.md", "page_a_b_.md"}
    metadata, text = parsed((tmp_path / "page_a_b.md").read_text())
    assert metadata["model-index"][0]["name"] == "a/b"
    assert "| accuracy | 1.0000 |" in text


class Hub(types.ModuleType):
    """A stand-in of huggingface_hub, with the arguments of its API."""

    def __init__(self):
        super().__init__("huggingface_hub")
        self.calls, hub = [], self

        class HfApi:
            def __init__(self, endpoint=None, token=None):
                self.token = token

            def create_repo(self, repo_id, *, token=None, private=None, repo_type=None, exist_ok=False):
                hub.calls.append((repo_id, self.token, private, exist_ok))

            def upload_folder(self, *, repo_id, folder_path, path_in_repo=None, commit_message=None, token=None):
                from pathlib import Path

                hub.files = {path.name: path.read_bytes() for path in Path(folder_path).iterdir()}
                hub.calls.append((repo_id, commit_message))
                return types.SimpleNamespace(commit_url=f"https://hub/{repo_id}/commit/1")

        self.HfApi = HfApi


def test_save_to_hub(classifier, monkeypatch, tmp_path):
    hub = Hub()
    monkeypatch.setitem(sys.modules, "huggingface_hub", hub)
    options = {"token": "t", "private": True, "commit_message": "first"}
    address = ds.export.save_to_hub(classifier, "me/iris", license="mit", **options)
    assert address == "https://hub/me/iris/commit/1"
    assert hub.calls == [("me/iris", "t", True, True), ("me/iris", "first")]
    card, (name, content) = hub.files.pop("README.md").decode(), *hub.files.items()
    assert "\n# iris\n" in card
    assert parsed(card)[0]["license"] == "mit"
    (tmp_path / name).write_bytes(content)
    wrapped = isinstance(classifier, ds.AfterTraining)
    loaded = ds.AfterTraining.load(tmp_path / name, classifier.classifier) if wrapped else ds.load(tmp_path / name)
    np.testing.assert_allclose(loaded.predict_proba(X), classifier.predict_proba(X), rtol=1e-5, atol=1e-7)


def test_nothing_is_uploaded_after_an_error(monkeypatch):
    hub = Hub()
    monkeypatch.setitem(sys.modules, "huggingface_hub", hub)
    with pytest.raises(TypeError, match="licence"):
        ds.export.save_to_hub(network(), "me/iris", licence="mit")
    assert hub.calls == []


class KerasHub(types.ModuleType):
    """A stand-in of keras_hub whose presets are networks by name."""

    def __init__(self):
        super().__init__("keras_hub")
        image, tokens = keras.Input((None, None, 3)), keras.Input((None, 2), name="tokens")
        pooled = keras.layers.GlobalAveragePooling1D()(tokens)
        keras.utils.set_random_seed(0)
        networks = {
            "maps": keras.Model(image, keras.layers.Conv2D(5, 3)(image), name="maps"),
            "sequence": keras.Model(image, keras.layers.Reshape((-1, 3))(image), name="sequence"),
            "text": keras.Model({"tokens": tokens}, {"sequence_output": tokens, "pooled_output": pooled}, name="text"),
            "two": keras.Model(image, {"one": image, "two": image}, name="two"),
            "unscaled": keras.Model(image, image, name="unscaled"),
        }

        class Backbone:
            @classmethod
            def from_preset(cls, preset, load_weights=True, **kwargs):
                if preset not in networks:
                    raise ValueError("Unknown preset identifier.\nA preset must be one of ...")
                return networks[preset]

        class ImageConverter:
            image_size, scale, offset = (6, 6), [0.1, 0.2, 0.3], -1.0
            resizing = keras.layers.Resizing(6, 6)

            @classmethod
            def from_preset(cls, preset, **kwargs):
                if preset == "unscaled":
                    raise ValueError("`image_converter.json` doesn't exist")
                return cls()

        self.models, self.layers = (
            types.SimpleNamespace(Backbone=Backbone),
            types.SimpleNamespace(ImageConverter=ImageConverter),
        )
        self.networks = networks


@pytest.fixture
def keras_hub(monkeypatch):
    hub = KerasHub()
    monkeypatch.setitem(sys.modules, "keras_hub", hub)
    return hub


IMAGES = RNG.integers(0, 256, (12, 8, 8, 3)).astype("float32")


def test_preset_is_resized_scaled_pooled_and_frozen(keras_hub):
    backbone = ds.backbones.backbone("keras_hub:maps")
    scaled = keras.layers.Resizing(6, 6)(IMAGES) * np.float32([0.1, 0.2, 0.3]) - 1.0
    expected = np.mean(keras_hub.networks["maps"](scaled), axis=(1, 2))
    np.testing.assert_allclose(backbone.predict(IMAGES, verbose=0), expected, rtol=1e-4, atol=1e-5)
    assert not backbone.trainable_weights
    assert ds.backbones.pretrained("keras_hub:maps", trainable=True).trainable_weights
    largest = ds.backbones.pretrained("keras_hub:maps", (8, 8, 3), "max").predict(IMAGES, verbose=0)
    np.testing.assert_allclose(largest, np.max(keras_hub.networks["maps"](scaled), axis=(1, 2)), rtol=1e-4, atol=1e-5)
    first = ds.backbones.pretrained("keras_hub:sequence", pooling="token").predict(IMAGES, verbose=0)
    np.testing.assert_allclose(first, scaled[:, 0, 0], rtol=1e-5)
    assert ds.backbones.pretrained("keras_hub:text").output_shape == (None, 2)


def test_preset_is_a_backbone_by_name(keras_hub, tmp_path):
    model = ds.SimplexClassifier("keras_hub:maps", num_classes=2)
    model.compile(run_eagerly=True)
    model.fit(IMAGES, np.arange(12) % 2, verbose=0)
    model.save(tmp_path / "model.keras")
    p = model.predict_proba(IMAGES)
    loaded = ds.load(tmp_path / "model.keras")
    np.testing.assert_allclose(loaded.predict_proba(IMAGES), p, rtol=1e-5)
    assert not loaded.backbone.trainable_weights
    model.export(tmp_path / "served")
    served = ds.export.load_served(tmp_path / "served").predict(IMAGES)
    np.testing.assert_allclose(served["class_probabilities"], p, rtol=1e-4, atol=1e-6)
    assert parsed(model.card())[0]["pipeline_tag"] == "image-classification"


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("nothing", {}, "'keras_hub:nothing' cannot be loaded: Unknown preset identifier"),
        ("unscaled", {}, "no preprocessing of images"),
        ("two", {}, "one output, or 'pooled_output'; found one, two"),
        ("maps", {"pooling": "token"}, "pooling must be 'avg' or 'max'"),
        ("maps", {"pooling": "mean"}, "pooling must be one of avg, max, token; found 'mean'"),
        ("text", {"image_shape": (8, 8, 3)}, "image_shape must be None for 'keras_hub:text', which takes tokens"),
    ],
)
def test_unusable_preset_raises(keras_hub, name, options, message):
    with pytest.raises(ValueError, match=re.escape(message)) as error:
        ds.backbones.backbone(f"keras_hub:{name}", **options)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("missing", ["huggingface_hub", "keras_hub"])
def test_missing_extra_is_named(monkeypatch, missing):
    monkeypatch.setitem(sys.modules, missing, None)
    extra = {"huggingface_hub": "hub", "keras_hub": "keras-hub"}[missing]
    with pytest.raises(ImportError, match=rf"pip install '\.\[{extra}\]'") as error:
        ds.SimplexClassifier("keras_hub:x", 2) if missing == "keras_hub" else ds.export.save_to_hub(None, "me/iris")
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("data", "images", "task", "name"),
    [
        ("{name: clinic/wine.csv, options: {target_column: kind}}", None, "tabular-classification", "wine.csv"),
        ("{name: digits}", np.zeros((2, 8, 8)), "image-classification", "digits"),
        (None, None, None, "test samples"),
    ],
)
def test_card_of_a_run_names_its_task_and_data(data, images, task, name, tmp_path):
    predictions = Predictions.of([0, 1], [[0.6, 0.4], [0.5, 0.5]], images=images)
    run = Run("coin", predictions, configuration=f"data: {data}" if data else "")
    [card] = write_run_cards(tmp_path / "page.html", [run], {"coin": ds.evaluation.report([0, 1], predictions.p)})
    after, _ = parsed(card.read_text())
    (result,) = after["model-index"][0]["results"]
    assert (after.get("pipeline_tag"), result["task"]["type"]) == (task, task or "other")
    assert result["dataset"]["name"] == name


@pytest.mark.parametrize("data", ["- name: wine.csv", "# Wine\n\nBy three growers.", "long " * 40])
def test_name_of_the_data_is_whole_words_without_markup(data):
    after, text = parsed(network().card(ds.evaluation.report(Y, np.eye(3)[Y]), data=data))
    name = after["model-index"][0]["results"][0]["dataset"]["name"]
    assert name in ("name: wine.csv", "Wine", "long " * 14 + "long...")
    assert data in text
