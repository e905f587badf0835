"""Architecture: allowed imports between subpackages, lightweight import of the package, complete ``__all__``."""

import ast
import graphlib
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import keras
import pytest

import deepsimplex
from tests.fresh_process import run

PACKAGE = Path(deepsimplex.__file__).parent
SOURCES = sorted(path for path in PACKAGE.rglob("*.py") if path != PACKAGE / "__init__.py")

# The rooms of every level, in order: a room imports rooms of lower levels, and those to its left of its own.
LEVELS = [
    ["_utils"],
    ["geometry", "latent", "samples"],
    ["distances", "kernels", "readout", "losses"],
    ["targets", "heads", "backbones", "evaluation", "metrics", "datasets"],
    ["gp", "prototypes", "calibration", "plots", "export"],
    ["classifier", "estimators", "monitoring"],
    ["experiments", "cli"],
]
ORDER = [room for level in LEVELS for room in level]
HEAVY_OUTSIDE = {"gpflow": {"gp"}, "matplotlib": {"plots", "monitoring", "experiments"}}


def imported_modules(path: Path) -> set[str]:
    """Every module that a file imports, anywhere in it."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} uses a relative import"
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    return names


def room_of(path: Path) -> str:
    return path.relative_to(PACKAGE).with_suffix("").parts[0]


def breaches(path: Path, modules: set[str]) -> list[str]:
    """The imports of a file that go upwards, sideways or to a library that belongs to another room."""
    room, forbidden = room_of(path), []
    for module in modules:
        first, *rest = module.split(".")
        if room not in HEAVY_OUTSIDE.get(first, {room}):
            forbidden.append(module)
        if first != "deepsimplex" or (rest and rest[0] == room):
            continue
        # Without a room it is the whole package: every room at once.
        if not rest or rest[0] not in ORDER or ORDER.index(rest[0]) > ORDER.index(room):
            forbidden.append(module)
    return forbidden


def test_contributing_lists_the_levels() -> None:
    text = (PACKAGE.parent / "CONTRIBUTING.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| \d \| (.+?) \|", text, flags=re.MULTILINE)
    assert [re.findall(r"`(\w+)`", row) for row in rows] == LEVELS


def test_every_room_has_a_level() -> None:
    assert {room_of(path) for path in SOURCES} == set(ORDER)
    assert len(SOURCES) > 30


def test_rooms_do_not_import_upwards() -> None:
    by_file = {str(path.relative_to(PACKAGE)): breaches(path, imported_modules(path)) for path in SOURCES}
    assert {file: modules for file, modules in by_file.items() if modules} == {}


@pytest.mark.parametrize(
    ("file", "module"),
    [
        ("geometry/vertices.py", "deepsimplex.latent.LatentGaussian"),
        ("latent.py", "deepsimplex.readout"),
        ("targets/ilr.py", "deepsimplex.backbones.mlp"),
        ("readout/layers.py", "deepsimplex.losses.LatentNLL"),
        ("evaluation/scores.py", "matplotlib.figure"),
        ("readout/softmax.py", "gpflow"),
        ("export/saved_model.py", "deepsimplex.classifier.SimplexClassifier"),
        ("metrics.py", "deepsimplex.gp.posterior"),
        ("experiments/commands.py", "deepsimplex"),
    ],
)
def test_upward_import_is_detected(file: str, module: str) -> None:
    assert breaches(PACKAGE / file, {module}) == [module]


def test_imports_are_acyclic() -> None:
    """Not even one that is imported for its types alone, or late."""
    modules = {".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts): path for path in SOURCES}
    modules = {name: path for name, path in modules.items() if path.name != "__init__.py"}
    imports = {}
    for name, path in modules.items():
        imported = imported_modules(path)
        imports[name] = {
            other for other in modules if other in imported or any(m.startswith(f"{other}.") for m in imported)
        }
    assert imports["deepsimplex.readout.layers"]
    graphlib.TopologicalSorter(imports).prepare()  # raises CycleError, which names the circle


# What injects faults and damages files reaches into the rooms.
ROBUSTNESS = PACKAGE.parent / "training" / "robustness"
TRAINING = sorted(path for path in (PACKAGE.parent / "training").rglob("*.py") if path.parent != ROBUSTNESS)


def test_training_scripts_import_public_rooms_only() -> None:
    """Scripts import the package and its rooms, no module inside them."""
    for path in TRAINING:
        for module in imported_modules(path):
            first, *rest = module.split(".")
            if first == "deepsimplex":
                assert len(rest) <= 2, (path, module)
                assert not any(part.startswith("_") for part in rest), (path, module)


@pytest.mark.slow
def test_private_keras_names_are_not_used() -> None:
    """Attributes with an underscore that Keras' models, layers, losses, metrics and optimizers have."""
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    model.compile("adam", "mse", metrics=["mae"])
    objects = (model, keras.layers.Identity(), model.optimizer, keras.losses.MeanSquaredError(), keras.metrics.Mean())
    keras_names = {name for each in objects for name in (*dir(each), *vars(each)) if _is_private(name)}
    assert "_loss_tracker" in keras_names
    assert "_compile_metrics" in keras_names
    for path in SOURCES:
        tree = ast.parse(path.read_text(encoding="utf-8"))
        used = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)} & keras_names
        assert not used, f"{path} uses {used}"
        assert not [name for name in imported_modules(path) if name.startswith("keras.src")], path


def _is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


def test_basenames_are_unique_across_rooms() -> None:
    names = [path.name for path in SOURCES if path.name != "__init__.py"]
    assert sorted(set(names)) == sorted(names)


def test_inheritance_depth_is_at_most_three() -> None:
    """The bases of ``_utils`` are not counted: they give parameters and configurations, as scikit-learn's mixins do."""
    bases: dict[str, set[str]] = {}
    for path in (path for path in SOURCES if room_of(path) != "_utils"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef):
                bases.setdefault(node.name, set()).update(map(ast.unparse, node.bases))

    def steps(name: str) -> int:
        return 1 + max((steps(base) for base in bases[name] if base in bases), default=0)

    assert steps("TemperatureScaling") == steps("ILR") == 3
    assert [name for name in bases if steps(name) > 3] == []


def test_public_names_are_sorted_and_complete() -> None:
    assert deepsimplex.__all__ == sorted(deepsimplex.__all__)
    for name in deepsimplex.__all__:
        assert getattr(deepsimplex, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        deepsimplex.nothing  # noqa: B018


def test_what_takes_arrays_imports_no_tensorflow() -> None:
    """Evaluation, calibration, conformal sets and rules; once Keras is imported, it finds the classes of saved objects.

    Tensors have the same answers.
    """
    program = """
import sys, warnings
warnings.simplefilter("error", RuntimeWarning)
import deepsimplex.evaluation, deepsimplex.geometry, deepsimplex.cli
from deepsimplex import calibration
assert not {"keras", "tensorflow", "pandas", "scipy.stats"} & set(sys.modules)
import numpy as np
rng = np.random.default_rng(0)
answers = []
for n in (2, 3):
    p = rng.dirichlet(np.ones(n), 400)
    p[1:4] = np.eye(n)[:1]  # probabilities of zero
    y = np.array([rng.choice(n, p=row) for row in p])
    groups = np.arange(400) % 2
    for name, kind in calibration.CALIBRATIONS.items():
        if name != "latent":
            answers.append((kind().fit(p, y).transform, p))
    answers[-1][0](p.astype("float32"))
    calibration.VennAbers().fit(p, y).probability_intervals(p)
    for method in ("lac", "aps", "raps"):
        for options in ({}, {"by_class": True}):
            answers.append((calibration.ConformalSets(method=method, **options).fit(p, y).predict, p))
        calibration.ConformalSets(method=method).fit(p, y, groups=groups).predict(p, groups)
    answers.append((calibration.PriorShift(np.ones(n)).fit(p).transform, p))
    answers.append((calibration.ExpectedCost(1.0 - np.eye(n), 0.4).decide, p))
    for risk in ("selective_error", "miscoverage", "rejection_rate", *["false_negative_rate"][: n == 2]):
        rule = calibration.RiskControl(0.6, risk)
        rule.fit(p, y).predict(p)
        answers.append((rule.decide, p))
arrays = [function(p) for function, p in answers]
assert not {"keras", "tensorflow"} & set(sys.modules)
assert {type(array) for array in arrays} == {np.ndarray}
import keras
for name in ("SimplexClassifier", "CASIMAC", "ConformalSets", "VariationalGaussianProcess", "ArgmaxReadout"):
    assert keras.saving.get_registered_object("deepsimplex>" + name)
import tensorflow as tf
for (function, p), array in zip(answers, arrays, strict=True):
    tensor = function(tf.constant(p))
    assert tensor.dtype.as_numpy_dtype == array.dtype
    np.testing.assert_allclose(tensor, array, rtol=1e-9, atol=1e-300, err_msg=repr(function))
"""
    subprocess.run([sys.executable, "-c", program], check=True)  # not of the server, which has imported TensorFlow


def test_shell_completes_commands_and_options_without_tensorflow() -> None:
    program = """
import os, sys
from deepsimplex import cli
sys.argv[:] = ["deepsimplex"]
try:
    cli.main()
finally:
    assert not {"keras", "tensorflow", "numpy"} & set(sys.modules)
"""
    for typed, completed in (("t", "train targets"), ("train --re", "--resume"), ("report --res", "--resamples")):
        words = f"deepsimplex {typed}"
        variables = {"COMP_WORDS": words, "COMP_CWORD": str(words.count(" ")), "_DEEPSIMPLEX_COMPLETE": "complete_bash"}
        done = subprocess.run(
            [sys.executable, "-c", program], capture_output=True, text=True, env={**os.environ, **variables}
        )
        assert (done.stdout.split(), done.stderr) == (completed.split(), ""), typed


@pytest.mark.slow
def test_command_line_writes_errors_alone() -> None:
    """Nothing of what TensorFlow writes while it is loaded."""
    command = [sys.executable, "-m", "deepsimplex.cli", "report", "nothing"]
    environment = {name: value for name, value in os.environ.items() if name != "TF_CPP_MIN_LOG_LEVEL"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.returncode == 2
    assert (done.stdout, done.stderr) == ("", "deepsimplex: there is no run 'nothing': no 'nothing' in '.'\n")


@pytest.mark.parametrize("first", ["import deepsimplex.targets", "from deepsimplex.calibration import ConformalSets"])
def test_keras_finds_saved_classes_after_import_of_one_room(first: str) -> None:
    run(f"{first}\nimport keras\nassert keras.saving.get_registered_object('deepsimplex>SimplexClassifier')")


@pytest.mark.slow
def test_import_loads_neither_gpflow_nor_matplotlib(tmp_path: Path) -> None:
    """Under 0.5 s over keras itself, and neither GPflow nor matplotlib beyond what keras brings."""
    script = """
import json, os, sys, time
import keras
before = set(sys.modules)
# Compiled modules are kept, whatever the environment says: the first process compiles them.
sys.dont_write_bytecode, sys.pycache_prefix = False, sys.argv[1]
for _ in range(3):  # a process that shares its core with others may take longer than it needs
    if os.fork():
        if os.wait()[1] == 0:
            break
        continue
    start = time.process_time()
    import deepsimplex
    seconds = time.process_time() - start
    new = sorted({name.split(".")[0] for name in set(sys.modules) - before})
    print(json.dumps({"seconds": seconds, "new": new}), flush=True)
    os._exit(seconds >= 0.5)
"""
    result = json.loads(run(script, tmp_path).splitlines()[-1])
    assert result["seconds"] < 0.5
    assert not {"gpflow", "matplotlib", "tensorflow_probability", "numba", "faiss"} & set(result["new"])
