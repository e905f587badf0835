"""Configuration files: errors name the invalid key or value, and valid ones."""

import inspect
import json
import operator
import re
import subprocess
import sys
import time
from pathlib import Path

import keras
import pytest
import yaml

import deepsimplex as ds
from deepsimplex.backbones.networks import BACKBONES
from deepsimplex.experiments import ConfigurationError, RunConfig, load_config, training_run
from deepsimplex.experiments.configuration import KERAS_MEMBERS

CONFIGS = Path(__file__).parents[2] / "configs"


@pytest.fixture
def digits(tmp_path) -> Path:
    path = tmp_path / "digits.yaml"
    path.write_text((CONFIGS / "digits.yaml").read_text())
    return path


@pytest.mark.parametrize("path", sorted(CONFIGS.glob("*.yaml")), ids=lambda path: path.stem)
def test_shipped_configurations_are_valid_and_resolve_to_themselves(path, tmp_path):
    config = load_config(path)
    assert config.name == path.stem
    resolved = tmp_path / "resolved.yaml"
    resolved.write_text(config.as_yaml())
    assert load_config(resolved) == config


def test_documented_configurations_exist():
    names = {path.stem for path in CONFIGS.glob("*.yaml")}
    promised = {"digits", "fashion_mnist_naive", "fashion_mnist_informed", "fashion_mnist_composition"}
    assert promised | {"fashion_mnist_cnn"} <= names


def test_overrides_reach_nested_keys(digits):
    config = load_config(digits, ["training.epochs=3", "target=ilr", "target.smoothing=0.9", "data.limit=null"])
    assert config.training.epochs == 3
    assert config.target == {"name": "ilr", "smoothing": 0.9}
    assert config.data.limit is None


MISTAKES = [
    ("training.epoch=3", "unknown key 'training.epoch'; did you mean 'epochs'"),
    ("trainig.epochs=3", "unknown key 'trainig'; did you mean 'training'"),
    ("epochs=3", "unknown key 'epochs'; did you mean 'training.epochs'"),
    ("model.epoch=3", "unknown key 'model.epoch'; did you mean 'training.epochs'"),
    ("image_size=32", "unknown key 'image_size'; did you mean 'data.options.image_size'"),
    ("data.color=rgb", "unknown key 'data.color'; did you mean 'data.options.color'"),
    ("training.seed=3", "unknown key 'training.seed'; did you mean 'seed'"),
    ("model.zzz=3", "unknown key 'model.zzz'; known keys are backbone, head, covariance, readout"),
    ("training.epochs=0", "training.epochs: .*greater than or equal to 1; found 0"),
    ("training.epochs=many", "training.epochs: .*found 'many'"),
    ("model.covariance=round", "model.covariance: .*'isotropic', 'diagonal' or 'full'"),
    ("target=casimak", "casimac"),
    ("target.distnace=euclidean", "distance"),
    ("model.backbone.name=mpl", "did you mean 'mlp'"),
    ("model.backbone=net.h5", "one of mlp, cnn, resnet, 'keras_hub:PRESET', a .keras file, or .*found 'net.h5'"),
    ("model.backbone=none.keras", "model.backbone: backbone must be a file that exists; found 'none.keras'$"),
    ("model.backbone.depth=3", "depth"),
    ("name=../elsewhere", "name: "),
    ("training.epochs", r"an override must.*found 'training\.epochs'"),
    ("name.first=3", "'name' holds a value"),
    ("training.epochs={", "not readable as YAML"),
    ("training.optimizer=adm", r"training.optimizer: .*; found 'adm'"),
    ("training.optimizer=lossscaleoptimizer", "training.optimizer: .*; found 'lossscaleoptimizer'"),
    ("training.loss=hybird", r"training.loss: loss must.*did you mean 'hybrid'"),
    ("training.loss.betta=0.5", "training.loss: .*'betta'"),
    ("training.loss={name: hybrid, weight: 1}", r"training.loss: weight must.*found 1"),
    ("training.loss={name: composition, mass: 0}", r"training.loss: mass must.*found 0"),
    ("training.loss=own_members:Loss", "training.loss: loss 'own_members:Loss' cannot be imported"),
    ("data.options.test_fractoin=0.3", "data.options: .*'test_fractoin'; did you mean 'test_fraction'"),
    ("data.options.name=mnist", "data.options: datasets.load has no argument 'name'"),
    ("target.distance=3", r"target: distance must.*found 3$"),
    (
        "target.attraction_function=foo",
        r"attraction_function must.*found 'foo'",
    ),
    ("target={name: mean, targets: 3}", r"target: targets must.*found 3$"),
    ("target={name: mean, targets: [3]}", r"target: target must.*found 3"),
    ("target={name: [1]}", r"target: target must.*found {'name': \[1\]}"),
    (
        "model.backbone={name: mlp, depth: 3}",
        "model.backbone: backbone 'mlp' has no argument 'depth'.*it takes hidden",
    ),
    (
        "model.backbone={name: mlp, dropout: much}",
        r"model.backbone: .*dropout must.*found 'much'",
    ),
    ("model.backbone={hidden: [3]}", r"model.backbone: backbone must.*found {'hidden': \[3\]}"),
    (
        "model.head=prototype",
        r"model.head: head must.*found 'prototype'; did you mean",
    ),
    ("model.head={inducing: 3}", r"model.head: head must.*found \{'inducing'"),
    ("model.head={name: prototypes, inducing: 3}", "model.head: .*'inducing'"),
    ("model.readout=sofmax", r"model.readout: readout must.*did you mean 'softmax'"),
    (
        "model.head={name: prototypes, variance: 0}",
        r"model.head: variance, unless .* must.*found 0",
    ),
    ("model.head={name: prototypes, ard: please}", r"model.head: ard must.*found 'please'"),
    ("cache_dir=~nobody-of-that-name/x", "cache_dir: Could not determine home directory"),
]


@pytest.mark.parametrize(("override", "message"), MISTAKES)
def test_invalid_override_raises(override, message, digits):
    with pytest.raises(ConfigurationError, match=message) as raised:
        load_config(digits, [override])
    assert "\n" not in str(raised.value)


# What only the members of Keras know: its optimizers and losses, and arguments of losses, backbones, heads.
NEED_KERAS = re.compile(r"training\.(optimizer|loss)|depth|dropout|name: prototypes")


def test_mistakes_are_shown_before_tensorflow_is_loaded(digits, tmp_path):
    """In half a second; by the command line, too."""
    program = """
import contextlib, io, json, sys
from pathlib import Path
from deepsimplex import cli
from deepsimplex.experiments import load_config
digits, empty, overrides = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])
def wrong(*arguments):
    sys.argv[1:] = arguments
    with contextlib.redirect_stderr(io.StringIO()) as written, contextlib.suppress(SystemExit):
        cli.main()
    assert not {"keras", "tensorflow"} & set(sys.modules), arguments
    assert written.getvalue().startswith("deepsimplex: "), (arguments, written.getvalue())
for override in overrides:
    try:
        load_config(digits, [override])
    except (ValueError, FileNotFoundError) as error:
        assert not {"keras", "tensorflow"} & set(sys.modules), override
    else:
        raise AssertionError(override)
for command in ("train", "evaluate", "export", "targets"):
    wrong(command, "--config", digits, "trainig.epochs=3")
    wrong(command, "--config", empty + "/nothing.yaml")
wrong("train", "--config", digits, "data.name=nothing.csv")
wrong("train", empty + "/nothing")
wrong("train", empty, "trainig.epochs=3")
wrong("predict", "model", "folder", "color=rgb", "size=3")
wrong("evaluate", "model", "--data", "folder", "size=3")
wrong("predict", "model", "folder")
wrong("evaluate", "model", "--data", "digits")
wrong("report", "runs/model")
wrong("monitor", "nothing.csv")
model, folder = empty + "/model.npz", empty  # a path of a model, whatever it holds
Path(model).touch()
wrong("predict", model, folder + "/nothing")
wrong("predict", model, folder, "--output", "table.txt")
wrong("evaluate", model, "--data", folder + "/nothing")
wrong("evaluate", model, "--data", "digits", "--output", folder)
wrong("report", model, "--output", folder)
wrong("monitor", model, folder + "/nothing.csv", "--figure", folder + "/drift.png")
wrong("monitor", model, "--figure", folder)
wrong("monitor", model, "--log-dir", model)
wrong("evaluate", "--config", digits, f"output={folder}/nothing")
wrong("export", "--config", digits, f"output={folder}/nothing")
wrong("targets", "--config", digits, "data.name=nothing.csv")
wrong("train", "--config", digits, f"output={model}")
wrong("train", "--config", digits, f"cache_dir={model}/below")
Path(digits).write_text("name: [")
wrong("train", "--config", digits)
"""
    overrides = json.dumps([override for override, _ in MISTAKES if not NEED_KERAS.search(override)])
    subprocess.run([sys.executable, "-c", program, digits, tmp_path, overrides], check=True, cwd=tmp_path)


def test_names_that_need_keras_are_complete():
    registries = {"backbone": BACKBONES, "head": ds.heads.HEADS, "readout": ds.readout.READOUTS}
    assert {kind: tuple(names) for kind, names in registries.items()} == {
        kind: names for kind, names in KERAS_MEMBERS.items() if names
    }


@pytest.mark.parametrize("key", ["training", "model", "export", "data.options", "model.backbone"])
def test_empty_section_has_its_defaults(key, digits):
    config = load_config(digits, [f"{key}=null"])
    section, _, inner = key.partition(".")
    value = getattr(config, section)
    default = RunConfig.model_validate({"name": "a", "data": {"name": "digits"}, "target": "ilr"})
    expected = getattr(default, section)
    if inner:
        value, expected = getattr(value, inner), getattr(expected, inner)
    assert value == expected


# Keys of the configuration with the function and the argument whose default they have.
DEFAULTS = {
    "seed": (ds.SimplexClassifier, "seed"),
    "target": (ds.SimplexClassifier, "target"),
    "distances.executor": (ds.targets.CASIMAC, "executor"),
    "model.backbone": (ds.estimators.SimplexNetworkClassifier, "backbone"),
    "model.head": (ds.SimplexClassifier, "head"),
    "model.covariance": (ds.SimplexClassifier, "covariance"),
    "model.readout": (ds.SimplexClassifier, "readout"),
    "training.epochs": (ds.estimators.SimplexNetworkClassifier, "epochs"),
    "training.batch_size": (ds.estimators.SimplexNetworkClassifier, "batch_size"),
    "training.optimizer": (ds.SimplexClassifier.compile, "optimizer"),
    "training.loss": (ds.SimplexClassifier.compile, "loss"),
    "calibration.sets": (ds.SimplexClassifier.conformalize, "method"),
    "calibration.allow_empty": (ds.SimplexClassifier.conformalize, "allow_empty"),
    "export.input_dtype": (ds.SimplexClassifier.export, "input_dtype"),
}
# Those without such an argument; null is none, and the optimizer's rate.
OTHERS = {"name", "output", "cache_dir", "data.name", "data.options", "data.limit", "data.validation_fraction"}
OTHERS |= {"training.learning_rate", "training.schedule", "training.mixed_precision"}
OTHERS |= {f"calibration.{key}" for key in ("density", "method", "coverage", "unknown", "decision")}


def keys(section: type, path: str = "") -> list[str]:
    inner = [
        keys(field.annotation, f"{path}{name}.") if hasattr(field.annotation, "model_fields") else [f"{path}{name}"]
        for name, field in section.model_fields.items()
    ]
    return [key for part in inner for key in part]


def test_defaults_are_those_of_python(tmp_path):
    assert sorted(keys(RunConfig)) == sorted({*DEFAULTS, *OTHERS})
    (tmp_path / "short.yaml").write_text("{name: short, data: {name: digits}}")
    empty = [f"{key}=null" for key in (*DEFAULTS, "training.learning_rate") if key not in ("seed", "training.epochs")]
    empty = [override for override in empty if override not in ("training.batch_size=null", "training.optimizer=null")]
    for overrides in ([], empty):
        config = load_config(tmp_path / "short.yaml", overrides)
        for key, (function, argument) in DEFAULTS.items():
            value = operator.attrgetter(key)(config)
            value = value["name"] if isinstance(value, dict) else value
            default = (
                inspect.signature(function.__init__ if inspect.isclass(function) else function)
                .parameters[argument]
                .default
            )
            assert value == ("vertices" if key == "target" else default), key
        (tmp_path / "written.yaml").write_text(config.as_yaml())  # as the folder of a run
        assert load_config(tmp_path / "written.yaml") == config


@pytest.mark.parametrize("name", ["adam", "sgd"])
def test_learning_rate_is_that_of_the_optimizer(name, tmp_path):
    (tmp_path / "short.yaml").write_text("{name: short, data: {name: digits}}")
    for schedule in ("constant", "cosine"):
        config = load_config(tmp_path / "short.yaml", [f"training={{optimizer: {name}, schedule: {schedule}}}"])
        optimizer = training_run._optimizer(config, steps_per_epoch=10)
        assert float(optimizer.learning_rate) == pytest.approx(float(keras.optimizers.get(name).learning_rate))


def test_overrides_fill_an_empty_section(digits):
    content = yaml.safe_load(digits.read_text())
    digits.write_text(yaml.safe_dump({**content, "training": None}))
    assert load_config(digits, ["training.epochs=3"]).training.epochs == 3
    assert load_config(digits, ["data.limit=null"]).data.limit is None
    with pytest.raises(ConfigurationError, match=r"data\.name: Field required"):
        load_config(digits, ["data=null"])


def test_home_folder_is_expanded(digits, monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    config = load_config(digits, ["output=~/runs"])
    assert (config.output, config.cache_dir) == (f"{tmp_path}/runs", f"{tmp_path}/.cache/deepsimplex")
    assert load_config(digits, ["cache_dir=~/targets"]).cache_dir == f"{tmp_path}/targets"
    assert load_config(digits, ["cache_dir=null"]).cache_dir is None


def test_missing_or_unreadable_file_raises(tmp_path, digits):
    with pytest.raises(FileNotFoundError, match=r"there is no file .*digit\.yaml'; there are .*digits\.yaml"):
        load_config(digits.with_name("digit.yaml"))
    digits.write_text("name: [")
    with pytest.raises(ConfigurationError, match="not readable as YAML"):
        load_config(digits)
    digits.write_bytes(b"name: \xff")
    with pytest.raises(ConfigurationError, match="not readable as YAML: unacceptable character #x00ff"):
        load_config(digits)
    digits.write_text("- name")
    with pytest.raises(ConfigurationError, match="must hold keys and values; found list"):
        load_config(digits)
    digits.write_text(yaml.safe_dump({"name": "digits"}))
    with pytest.raises(ConfigurationError, match="data: Field required"):
        load_config(digits)


LEVELS = "\n".join(f"{c}: &{c} [{', '.join(9 * [f'*{chr(ord(c) - 1)}'])}]" for c in "bcdefghi")
BOMB = f"a: &a [lol, lol]\n{LEVELS}"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (BOMB, r"found the alias \*a: write the values out.*line 2"),
        ("data: &data {name: digits, more: *data}", r"found the alias \*data"),
        ("name: a\ntarget: ilr\nname: b", "found the key 'name' twice.*line 3"),
        ("name: a\ntraining: {epochs: 1, epochs: 2}", "found the key 'epochs' twice"),
        ("[" * 50_000, "nested too deep"),
        ("name: " + "a" * 2**21, "must have at most 65536 bytes"),
        ("name: 2020-13-45", "not readable as YAML: month must be in 1..12"),
        ("name: \x00", "special characters are not allowed"),
        ("? [a, b]\n: c", "unhashable|not readable"),
    ],
    ids=["bomb", "circle", "key twice", "nested key twice", "deep", "long", "date", "control", "list as key"],
)
def test_malicious_yaml_raises_quickly(text, message, tmp_path):
    (tmp_path / "made.yaml").write_text(text)
    begun = time.monotonic()
    with pytest.raises(ConfigurationError, match=message):
        load_config(tmp_path / "made.yaml")
    assert time.monotonic() < begun + 1


def test_every_key_of_the_schema_is_used():
    """An option that nothing reads would do nothing."""
    sources = "\n".join(path.read_text() for path in (CONFIGS.parent / "deepsimplex" / "experiments").glob("*.py"))
    for name, field in RunConfig.model_fields.items():
        annotation = field.annotation
        assert f"config.{name}" in sources
        if hasattr(annotation, "model_fields"):
            for key in annotation.model_fields:
                assert f"config.{name}.{key}" in sources, f"{name}.{key}"
