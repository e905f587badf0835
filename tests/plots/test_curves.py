"""Risk-coverage and learning curves: the data of the lines."""

import keras
import numpy as np
import pytest
from matplotlib.figure import Figure

from deepsimplex import evaluation, plots


def make_curve(seed: int, n: int = 3, samples: int = 40) -> evaluation.RiskCoverageCurve:
    rng = np.random.default_rng(seed)
    return evaluation.risk_coverage_curve(rng.integers(0, n, samples), rng.dirichlet(np.ones(n), samples))


def test_risk_coverage_draws_curves_with_areas():
    curves = {"one": make_curve(0), "$t$wo": make_curve(1), "_three": make_curve(2, n=2)}
    (ax,) = plots.risk_coverage(curves).axes
    for line, curve in zip(ax.lines, curves.values(), strict=True):
        np.testing.assert_array_equal(line.get_xdata(), curve.coverage)
        np.testing.assert_array_equal(line.get_ydata(), curve.risk)
    assert len({(line.get_color(), line.get_marker()) for line in ax.lines}) == 3
    assert len({line.get_marker() for line in ax.lines}) == 3
    texts = [text.get_text().replace("\\$", "$") for text in ax.get_legend().get_texts()]
    assert texts == [f"{name}: {curve.area:.4f}" for name, curve in curves.items()]
    assert ax.get_ylim()[1] > max(curve.risk.max() for curve in curves.values())


def test_risk_coverage_of_perfect_classifier_and_single_sample(tmp_path):
    curve = evaluation.risk_coverage_curve([1], [[0.1, 0.9]])
    figure = plots.risk_coverage({"one": curve})
    figure.savefig(tmp_path / "curve.png")
    assert figure.axes[0].get_ylim() == (0, 1)


def test_risk_coverage_draws_on_given_axes():
    figure = Figure()
    left, right = figure.subplots(1, 2)
    assert plots.risk_coverage({"one": make_curve(0)}, ax=right) is figure
    assert right.lines
    assert not left.lines


def test_learning_curves_have_a_panel_per_metric_and_a_line_per_run():
    histories = {
        "first": {"loss": [3.0, 2.0, 1.0], "val_loss": [3.5, 2.5, float("nan")], "accuracy": [0.1, 0.2, 0.3]},
        "second": {"epoch": [0], "learning_rate": [0.1], "accuracy": [0.5]},
    }
    figure = plots.learning_curves(histories)
    assert [ax.get_title() for ax in figure.axes] == ["loss", "accuracy"]
    loss, accuracy = figure.axes
    assert [line.get_linestyle() for line in loss.lines] == ["-", "--"]
    np.testing.assert_array_equal(loss.lines[0].get_xdata(), [1, 2, 3])
    np.testing.assert_array_equal(loss.lines[1].get_ydata(), histories["first"]["val_loss"])
    assert [line.get_ydata().tolist() for line in accuracy.lines] == [[0.1, 0.2, 0.3], [0.5]]
    assert accuracy.lines[0].get_color() == loss.lines[0].get_color() != accuracy.lines[1].get_color()
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == ["first", "first, validation", "second"]


@pytest.mark.parametrize("histories", [{}, {"one": {}}, {"one": {"epoch": [0], "learning_rate": [0.1]}}])
def test_learning_curves_without_histories_raise(histories):
    with pytest.raises(ValueError, match=r"histories must.*found none"):
        plots.learning_curves(histories)


def test_learning_curves_take_histories_of_keras():
    history = keras.callbacks.History()
    history.history = {"loss": [2.0, 1.0]}
    (line,) = plots.learning_curves({"network": history}).axes[0].get_lines()
    np.testing.assert_array_equal(line.get_ydata(), [2.0, 1.0])
    with pytest.raises(TypeError, match=r"histories must.*found History$"):
        plots.learning_curves(history)


def test_curves_of_another_kind_are_named_by_their_type():
    with pytest.raises(ValueError, match=r"RiskCoverageCurve.*found \{'network': ndarray\}$"):
        plots.risk_coverage({"network": np.zeros((1000, 2))})
    with pytest.raises(ValueError, match=r"DecisionCurve.*found ndarray$"):
        plots.decision_curve(np.zeros((1000, 2)))


def test_risk_coverage_without_curves_raises():
    with pytest.raises(ValueError, match=r"curves must.*found \{\}"):
        plots.risk_coverage({})


def test_decision_curve_draws_curves_beside_treating_all_and_none():
    y, p = np.array([0, 1, 1, 0]), np.array([[0.9, 0.1], [0.3, 0.7], [0.6, 0.4], [0.8, 0.2]])
    curves = {name: evaluation.decision_curve(y, q) for name, q in {"good": p, "$bad": p[:, ::-1]}.items()}
    (ax,) = plots.decision_curve(curves).axes
    good, bad, everyone, none = ax.lines
    np.testing.assert_array_equal(good.get_ydata(), curves["good"].net_benefit)
    np.testing.assert_array_equal(bad.get_ydata(), curves["$bad"].net_benefit)
    np.testing.assert_array_equal(everyone.get_ydata(), curves["good"].treat_all)
    assert set(none.get_ydata()) == {0.0}
    assert len(ax.get_legend().get_texts()) == 4
    with pytest.raises(ValueError, match="curves must hold at least one DecisionCurve"):
        plots.decision_curve({"good": p})


FOUR = np.random.default_rng(5)
LABELS, PROBABILITIES = FOUR.integers(0, 3, 60), FOUR.dirichlet(np.ones(4), 60)
MARKUP = ["<b>", "$x_$", "_c", "a name of far more characters than a legend has room for"]


def legend(figure) -> list[str]:
    return [text.get_text() for text in figure.axes[0].get_legend().get_texts()]


@pytest.mark.parametrize(("draw", "score"), [(plots.roc, "roc_auc"), (plots.precision_recall, "average_precision")])
def test_curves_of_classes_name_their_areas(draw, score):
    scores = evaluation.class_scores(LABELS, PROBABILITIES, intervals=0.9, resamples=10)
    figure = draw(LABELS, PROBABILITIES, scores=scores, class_names=MARKUP)
    figure.canvas.draw()
    texts = legend(figure)
    for name, value, (lower, upper), text in zip(
        ["<b>", r"\$x_\$", "_c"], getattr(scores, score), scores.intervals[score], texts, strict=False
    ):
        assert text == f"{name}: {value:.3f} ({lower:.3f} to {upper:.3f})"
    assert texts[3] == "a name of far more char…: not defined"
    assert texts[4] == f"mean of 4 classes: {getattr(evaluation, score)(LABELS, PROBABILITIES):.3f}"
    named = draw([MARKUP[k] for k in LABELS], PROBABILITIES, classes=MARKUP, only=["_c"])
    assert legend(named)[0] == f"_c: {getattr(scores, score)[2]:.3f}"
    assert not {text.split(":")[0] for text in legend(named)} & {"<b>", "mean of 4 classes"}


@pytest.mark.parametrize("draw", [plots.roc, plots.precision_recall])
def test_curves_of_many_classes_and_of_two(draw):
    rng = np.random.default_rng(0)
    y, p = rng.integers(0, 30, 200), rng.dirichlet(np.ones(30), 200)
    drawn = [line for line in draw(y, p).axes[0].lines if line.get_label() != "chance: 0.500"]
    assert len(drawn) == 10 + 1
    worst = np.argsort(evaluation.class_scores(y, p).roc_auc)[:10]
    if draw is plots.roc:
        assert {line.get_label().split(":")[0] for line in drawn[:10]} == set(map(str, worst))
    two = draw(y > 14, np.column_stack([p[:, :15].sum(axis=1), p[:, 15:].sum(axis=1)]))
    assert legend(two)[0].startswith("1: ")
    figure = draw(np.zeros(200, int), p, only=[3])
    assert legend(figure)[0] == "3: not defined"


def test_invalid_scores_of_curves_raise():
    for scores in (evaluation.report(LABELS, PROBABILITIES), evaluation.class_scores([0], [[0.5, 0.5]])):
        with pytest.raises(ValueError, match=r"scores must be evaluation\.class_scores"):
            plots.roc(LABELS, PROBABILITIES, scores=scores)
    with pytest.raises(ValueError, match="only must"):
        plots.roc(LABELS, PROBABILITIES, only=["x"])
