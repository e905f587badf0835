"""Files of predictions that are watched for drift, one after the other and from call to call."""

import csv
import json
import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import compress
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deepsimplex._utils.archives import check_archive, fingerprint, naming_damage
from deepsimplex._utils.atomic_files import replacing
from deepsimplex.evaluation import DriftMonitor, DriftReport
from deepsimplex.experiments.drift_state import drift_file, load_drift, save_drift
from deepsimplex.experiments.finished_runs import find_run

LABEL_COLUMNS = ("label", "y")
_PROBABILITY = re.compile(r"(?:probability|p)[ _:](.+)")


@dataclass(frozen=True)
class _Columns:
    """Predictions of a file: ``labels`` are names, None where they are missing."""

    p: NDArray[np.floating]
    class_names: list[str]
    labels: Any
    familiarity: NDArray[np.float64] | None
    sets: NDArray[np.bool_] | None = None


def monitor(
    reference: str | os.PathLike[str],
    predictions: Sequence[str | os.PathLike[str]] = (),
    *,
    state: str | os.PathLike[str] | None = None,
    level: float = 0.05,
    coverage: float = 0.9,
    seed: int = 0,
    figure: str | os.PathLike[str] | None = None,
    log_dir: str | os.PathLike[str] | None = None,
    announce: Callable[[str], object] = lambda text: None,
) -> DriftReport:
    """Watch files of predictions for drift against a reference, and keep the state for the next call.

    Parameters
    ----------
    reference : path-like
        Predictions for held-out samples: a .csv file, or an .npz file of ``save_predictions``; or a run, whose test
        predictions count, by its folder or that of its name.
    predictions : sequence of path-like
        Predictions in the order of their time. A file that was watched before, by its content, is left out.
    state : path-like, optional
        The state, written atomically after each file. If it exists, its stream goes on. Default: "REFERENCE_drift.npz"
        beside the reference, where ``write_report`` finds it: the page of a run has a section about its stream.
    level, coverage, seed
        As for ``evaluation.DriftMonitor``; those of an existing state must be the same.
    figure : path-like, optional
        Picture to draw, such as "drift.png".
    log_dir : path-like, optional
        Folder of TensorBoard event files to write after each file.
    announce : callable
        Called with a line of text for each file, such as ``print``. Default: nothing is shown.

    Returns
    -------
    DriftReport

    Notes
    -----
    A .csv file is that of ``deepsimplex predict``: a column "probability_NAME" for each class ("probability NAME" and
    "p_NAME" too) and, optionally, "familiarity", "set" (a JSON list of classes), "error" (rows that have one are left
    out) and "label", to add by hand (a class, or nothing). Other columns are not read. An .npz file holds p [N, n] and,
    optionally, class_names [n], y [N] (numbers, -1 where missing) and familiarity [N].

    Raises
    ------
    ValueError, OSError
        When a file cannot be read, holds other classes than the reference, or lacks the familiarity that the reference
        has; when the state belongs to another reference or other options. Files before it are watched.

    Examples
    --------
    >>> p = np.array([[0.9, 0.1], [0.2, 0.8]] * 50)
    >>> np.savez(folder / "reference.npz", p=p)
    >>> np.savez(folder / "monday.npz", p=p[::-1])
    >>> options = {"state": folder / "drift.npz"}
    >>> monitor(folder / "reference.npz", [folder / "monday.npz"], **options).samples
    100
    >>> monitor(folder / "reference.npz", [folder / "monday.npz"], **options).samples
    100
    """
    run = find_run(reference)
    source = run if isinstance(run, Path) else run.test_predictions
    known = _read(source)
    place = drift_file(source) if state is None else Path(state).expanduser()
    options: dict[str, Any] = {"level": level, "coverage": coverage, "seed": seed}
    watched = DriftMonitor(known.p, known.labels, known.familiarity, classes=known.class_names, **options)
    seen: list[str] = []
    if place.exists():
        watched, seen = _resumed(place, watched)
    for path in predictions:
        new = _read(path)
        name = fingerprint(new.p, new.labels, new.familiarity)
        if name in seen:
            announce(f"{path}: watched before, left out")
            continue
        if new.class_names != known.class_names:
            raise ValueError(
                f"{path} must hold the classes {known.class_names}, as the reference; found {new.class_names}"
            )
        try:
            report = watched.update(
                new.p, new.labels, new.familiarity if known.familiarity is not None else None, new.sets
            )
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from error
        seen.append(name)
        save_drift(place, watched, seen)
        announce(
            f"{path}: {len(new.p)} samples, p-value {report.p_value:.2g}" + ("" if report.alarm is None else ", DRIFT")
        )
        if log_dir is not None:
            from deepsimplex.monitoring import write_drift  # imports TensorFlow

            write_drift(log_dir, watched)
    report = watched.report()
    if figure is not None:
        from deepsimplex import plots  # imports Matplotlib

        with replacing(figure) as fresh:
            plots.drift(watched).savefig(fresh)
    return report


def _resumed(place: Path, begun: DriftMonitor) -> tuple[DriftMonitor, list[str]]:
    """Return the monitor of a state and the fingerprints of its files, if it began as ``begun`` does."""
    arrays, seen = load_drift(place)
    for name, array in begun.state().items():
        if not name.startswith("stream_") and not np.array_equal(
            arrays[name], array, equal_nan=array.dtype.kind == "f"
        ):
            what = "another reference" if array.ndim else f"{name} = {arrays[name]}, not {array}"
            raise ValueError(f"state {place} was begun with {what}; give another path, or remove it to begin anew")
    return DriftMonitor.from_state(arrays), seen


def _read(path: str | os.PathLike[str]) -> _Columns:
    """Read a .csv or .npz file of predictions."""
    file = Path(path).expanduser()
    if file.suffix == ".csv":
        return _read_csv(file)
    if file.suffix != ".npz":
        raise ValueError(f"predictions must be a .csv or an .npz file; found {str(file)!r}")
    with naming_damage(file, "p.npy", "is damaged, or holds no p [N, n]"):
        check_archive(file)
        with file.open("rb") as opened, np.load(opened, allow_pickle=False) as archive:
            names = ("p", "y", "class_names", "familiarity")
            arrays = {name: archive[name] for name in names if name in archive.files}
        p = arrays["p"]
        class_names = list(map(str, arrays.get("class_names", np.arange(p.shape[1])).tolist()))
        named = [*class_names, None]  # the last for -1
        labels = [named[k] for k in arrays["y"].tolist()] if "y" in arrays else None
    return _Columns(p, class_names, labels, arrays.get("familiarity"))


def _read_csv(file: Path) -> _Columns:
    with file.open(newline="", encoding="utf-8-sig") as lines:
        reader = csv.reader(lines, strict=True)
        try:
            header, *rows = [row for row in reader if row]
        except (csv.Error, ValueError) as error:
            raise ValueError(f"{file} must be a table with a header ({error})") from error
    matches = {j: match for j, name in enumerate(header) if (match := _PROBABILITY.fullmatch(name))}
    for number, row in enumerate(rows):
        if len(row) != len(header):
            raise ValueError(f"{file}: row {number} must have {len(header)} cells; found {len(row)}")
    columns = {name: [row[j] for row in rows] for j, name in enumerate(header)}
    if "error" in columns:
        readable = [not error for error in columns["error"]]
        columns = {name: list(compress(column, readable)) for name, column in columns.items()}
    if len(matches) < 2 or not any(columns.values()):
        raise ValueError(
            f"{file} must have a header with a column 'probability_NAME' for each class, and rows; found {header} and "
            f"{len(rows)} rows" + (", all with an error" if rows and "error" in columns else "")
        )
    class_names = [match[1] for match in matches.values()]

    def parsed(name: str, parse: Callable[[str], Any], wanted: str) -> NDArray[Any]:
        try:
            return np.array([parse(cell) for cell in columns[name]])
        except (ValueError, TypeError) as error:
            raise ValueError(f"{file}: column {name!r} must hold {wanted} ({error})") from error

    def membership(cell: str) -> list[bool]:
        members = json.loads(cell)
        if not set(members) <= set(class_names):
            raise ValueError(f"found {cell}")
        return [name in members for name in class_names]

    label = next((name for name in LABEL_COLUMNS if name in columns), None)
    return _Columns(
        np.column_stack([parsed(header[j], float, "numbers") for j in matches]),
        class_names,
        None if label is None else [cell or None for cell in columns[label]],
        parsed("familiarity", float, "numbers") if "familiarity" in columns else None,
        parsed("set", membership, "JSON lists of classes") if "set" in columns else None,
    )
