"""Configuration files: what is wrong is named, with what would do."""

from pathlib import Path

import pytest
import yaml

from deepsimplex.config import ConfigurationError, RunConfig, load_config

CONFIGS = Path(__file__).parents[1] / "configs"


@pytest.fixture
def digits(tmp_path) -> Path:
    path = tmp_path / "digits.yaml"
    path.write_text((CONFIGS / "digits.yaml").read_text())
    return path


@pytest.mark.parametrize("path", sorted(CONFIGS.glob("*.yaml")), ids=lambda path: path.stem)
def test_every_configuration_is_valid_and_resolves_to_itself(path, tmp_path):
    config = load_config(path)
    assert config.name == path.stem
    resolved = tmp_path / "resolved.yaml"
    resolved.write_text(config.as_yaml())
    assert load_config(resolved) == config


def test_the_promised_configurations_exist():
    names = {path.stem for path in CONFIGS.glob("*.yaml")}
    assert {"digits", "fashion_mnist_naive", "fashion_mnist_informed", "fashion_mnist_cnn"} <= names


def test_overrides_reach_nested_keys(digits):
    config = load_config(digits, ["training.epochs=3", "target=ilr", "target.smoothing=0.9", "data.limit=null"])
    assert config.training.epochs == 3
    assert config.target == {"name": "ilr", "smoothing": 0.9}
    assert config.data.limit is None


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("training.epoch=3", "unknown key 'training.epoch'; did you mean 'epochs'"),
        ("trainig.epochs=3", "unknown key 'trainig'; did you mean 'training'"),
        ("model.zzz=3", "unknown key 'model.zzz'; known keys are backbone, covariance, readout"),
        ("training.epochs=0", "training.epochs: .*greater than or equal to 1; found 0"),
        ("training.epochs=many", "training.epochs: .*found 'many'"),
        ("model.covariance=round", "model.covariance: .*'isotropic', 'diagonal' or 'full'"),
        ("target=casimak", "casimac"),
        ("target.distnace=euclidean", "distance"),
        ("model.backbone.name=mpl", "did you mean 'mlp'"),
        ("model.backbone.depth=3", "depth"),
        ("name=../elsewhere", "name: "),
        ("training.epochs", "an override must read key=value"),
        ("name.first=3", "'name' holds a value"),
        ("training.epochs={", "not readable as YAML"),
    ],
)
def test_wrong_overrides_are_named(override, message, digits):
    with pytest.raises(ConfigurationError, match=message):
        load_config(digits, [override])


def test_missing_and_unreadable_files_are_named(tmp_path, digits):
    with pytest.raises(FileNotFoundError, match=r"there is no file .*digit\.yaml'; there are .*digits\.yaml"):
        load_config(digits.with_name("digit.yaml"))
    digits.write_text("name: [")
    with pytest.raises(ConfigurationError, match="not readable as YAML"):
        load_config(digits)
    digits.write_text("- name")
    with pytest.raises(ConfigurationError, match="must hold keys and values; found list"):
        load_config(digits)
    digits.write_text(yaml.safe_dump({"name": "digits"}))
    with pytest.raises(ConfigurationError, match="data: Field required"):
        load_config(digits)


def test_every_key_of_the_schema_is_used():
    """An option that nothing reads would do nothing."""
    sources = "\n".join(path.read_text() for path in (CONFIGS.parent / "deepsimplex" / "runs").glob("*.py"))
    for name, field in RunConfig.model_fields.items():
        annotation = field.annotation
        assert f"config.{name}" in sources
        if hasattr(annotation, "model_fields"):
            for key in annotation.model_fields:
                assert f"config.{name}.{key}" in sources, f"{name}.{key}"
