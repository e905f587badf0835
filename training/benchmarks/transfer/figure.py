"""The figure of the benchmark: measures of every method by the number of training rows."""

from collections.abc import Mapping
from pathlib import Path

from matplotlib.figure import Figure

from training.benchmarks.deep.table import mean, standard_error
from training.benchmarks.transfer.measures import SCORES
from training.benchmarks.transfer.methods import OURS
from training.benchmarks.transfer.table import Runs


def draw(runs_by_number: Mapping[int, Runs], path: Path) -> None:
    """Write the figure: a panel for each measure, a line for each method, the default in black.

    Unknown samples are detected by the default's ``unknown_score``, and by the others' GEN.
    """
    first = next(iter(runs_by_number.values()))
    near = [name.rpartition(",")[0] for name in next(iter(first.values()))[0] if name.endswith(f"by {SCORES[1]}")][:1]
    measures = ["accuracy", "NLL", "ECE", *near]
    figure = Figure(figsize=(3.2 * len(measures), 3.6), layout="constrained")
    for axis, measure in zip(figure.subplots(1, len(measures)), measures, strict=True):
        for method in first:
            name = measure
            if measure in near:
                name = f"{measure}, by {SCORES[2] if method == OURS else SCORES[1]}"
            rows = {number: runs[method] for number, runs in runs_by_number.items() if method in runs}
            axis.errorbar(
                list(rows),
                [mean(each, name) for each in rows.values()],
                [standard_error([row[name] for row in each]) for each in rows.values()],
                fmt="o-",
                markersize=4,
                linewidth=2.0 if method == OURS else 1.0,
                color="black" if method == OURS else None,
                label=method,
            )
        axis.set_xscale("log")
        axis.set_xticks(list(runs_by_number), list(map(str, runs_by_number)))
        axis.minorticks_off()
        axis.set_xlabel("training rows")
        axis.set_title(measure, fontsize=10)
        axis.grid(color="0.9")
        axis.spines[["top", "right"]].set_visible(False)
    figure.legend(*axis.get_legend_handles_labels(), loc="outside lower center", ncols=4, fontsize=8, frameon=False)
    figure.savefig(path, dpi=150)
