"""The readout fitted to left-out rows: gradients, choice of the penalty, limits."""

import numpy as np
import pytest
from scipy.optimize import approx_fprime, minimize

from deepsimplex.kernels import LeftOutReadout, left_out_readout
from deepsimplex.kernels.left_out_readout import _Affine, log_softmax


def confused_scores(N, n=4, seed=0):
    """Scores of classes of which two are confused: class probabilities need a matrix."""
    rng = np.random.default_rng(seed)
    labels = np.eye(n)[rng.integers(n, size=N)]
    mixed = np.eye(n)
    mixed[0, 1] = mixed[2, 3] = 0.8
    return labels @ mixed + 0.4 * rng.normal(size=(N, n)), labels


def loss(readout, scores, labels):
    return -np.mean(np.sum(labels * log_softmax(readout.logits(scores)), axis=1))


@pytest.mark.parametrize("noise", [0.0, 0.1])
def test_gradient_equals_finite_differences(noise):
    scores, labels = confused_scores(30)
    problem = _Affine(np.stack([scores, scores**2]), scores[:, :2], 0.9 * labels + 0.025, noise)
    for size in (2 + 4, 2 + 4 + 4 * 2):
        values = np.random.default_rng(1).normal(size=size)
        numeric = approx_fprime(values, lambda values: problem.evaluate(values)[0], 1e-6)
        np.testing.assert_allclose(problem.evaluate(values)[1], numeric, atol=1e-3)


def test_probabilities_sum_to_one_and_logits_are_those_of_the_formula():
    scores, labels = confused_scores(200)
    readout = LeftOutReadout.fit(scores, labels, penalties=[1.0])
    (a, g, t, c, e), A = readout.numbers, readout.matrix
    plain = a * scores + g * np.log(np.log1p(np.exp(t * scores + c))) + scores @ A.T + readout.offset
    np.testing.assert_allclose(readout.logits(scores), plain, rtol=1e-9)
    softmax = np.exp(plain) / np.exp(plain).sum(axis=1, keepdims=True)
    np.testing.assert_allclose(readout(scores), (1 - e) * softmax + e / 4, rtol=1e-9)


def test_fit_reaches_the_likelihood_of_multinomial_regression():
    """With many rows and a light penalty, as scipy finds it from all numbers at once."""
    scores, labels = confused_scores(1000)
    fitted = loss(LeftOutReadout.fit(scores, labels, penalties=[1e-3]), scores, labels)

    def plain(values):
        A, b = values[:16].reshape(4, 4), values[16:]
        return -np.mean(np.sum(labels * log_softmax(scores @ A.T + b), axis=1))

    assert fitted < minimize(plain, np.zeros(20)).fun + 1e-4


@pytest.mark.parametrize("confused", [True, False])
def test_matrix_is_allowed_where_folds_are_likelier_with_it(confused):
    """Not where labels are drawn from the softmax of the scores themselves."""
    scores, labels = confused_scores(2000)
    if not confused:
        gumbel = np.random.default_rng(1).gumbel(size=scores.shape)
        labels = np.eye(4)[np.argmax(3 * scores + gumbel, axis=1)]
    fold = np.arange(2000) % 3 == 0
    readout = LeftOutReadout.fit(scores, labels, [(scores[~fold], scores[fold], fold)])
    assert (readout.penalty < 30) == confused
    assert (np.abs(readout.matrix).max() > 0.5) == confused


def test_part_of_many_scores_gives_the_likelihood_of_all(monkeypatch):
    scores, labels = confused_scores(4000, seed=1)
    whole = loss(LeftOutReadout.fit(scores, labels, penalties=[1.0]), scores, labels)
    monkeypatch.setattr(left_out_readout, "_ROWS_OF_NUMBERS", 500)
    monkeypatch.setattr(left_out_readout, "_SCORES_OF_NUMBERS", 0)
    assert abs(loss(LeftOutReadout.fit(scores, labels, penalties=[1.0]), scores, labels) / whole - 1) < 0.01


def test_separable_rows_give_finite_numbers():
    labels = np.eye(3)[np.arange(30) % 3]
    readout = LeftOutReadout.fit(labels - 1 / 3, labels, penalties=[np.inf])
    assert np.abs(readout.numbers).max() < 1e3
    assert readout(labels - 1 / 3).max() < 1.0


@pytest.mark.parametrize("rows", [6, 30, 300])
def test_rows_that_are_all_right_are_less_sure_the_fewer_they_are(rows):
    """As half of a row of any class makes them."""
    labels = np.eye(3)[np.arange(rows) % 3]
    p = LeftOutReadout.fit(labels, labels, penalties=[np.inf])(labels)
    assert 1 / (8 * rows) < 1 - p.max(axis=1).min() < 1 / rows


def test_scores_never_lower_their_own_class():
    """Left out, a row of two has the lowest score for its own class where features tell nothing."""
    labels = np.eye(4)[np.arange(8) % 4]
    scores = 0.3 - 0.2 * labels + 0.01 * np.random.default_rng(0).normal(size=labels.shape)
    readout = LeftOutReadout.fit(scores, labels, penalties=[np.inf])
    a, g, t, c, _ = readout.numbers
    s = np.linspace(scores.min(), scores.max(), 50)
    assert np.diff(a * s + g * left_out_readout.log_softplus(t * s + c)).min() > -1e-9


def test_rank_limits_the_matrix():
    scores, labels = confused_scores(300)
    readout = LeftOutReadout.fit(scores, labels, penalties=[1.0], rank=2)
    assert np.linalg.matrix_rank(readout.matrix) == 2


def test_extreme_scores_give_finite_logits():
    scores, labels = confused_scores(50)
    readout = LeftOutReadout.fit(scores, labels, penalties=[1.0])
    assert np.isfinite(readout.logits(np.array([[-1e6, 1e6, 0.0, 1.0]]))).all()


@pytest.mark.parametrize(
    ("noise", "told", "spread"), [(0.4, 1.0, True), (0.01, 1.0, False), (0.1, 0.5, False)], ids=["", "right", "told"]
)
def test_missed_rows_make_probabilities_less_sure(noise, told, spread):
    """Not where no row is missed, nor where scores tell which rows are missed."""
    rng = np.random.default_rng(0)
    labels = np.eye(4)[rng.integers(4, size=1000)]
    scores = labels * (rng.uniform(size=(1000, 1)) < told) + noise * rng.normal(size=(1000, 4))
    fold = np.arange(1000) % 4 == 0
    plain = LeftOutReadout.fit(scores, labels, penalties=[np.inf])
    readout = LeftOutReadout.fit(scores, labels, [(scores[~fold], scores[fold], fold)], penalties=[np.inf])
    difference = np.mean(plain(scores).max(axis=1) - readout(scores).max(axis=1))
    assert difference > 1e-3 if spread else difference == 0.0


@pytest.mark.parametrize("noise", [0.0, 0.02, 0.1])
def test_share_of_labels_that_are_wrong_is_found(noise):
    rng = np.random.default_rng(0)
    y = rng.integers(4, size=2000)
    scores = np.eye(4)[y] + 0.15 * rng.normal(size=(2000, 4))
    wrong = rng.uniform(size=2000) < noise
    labels = np.eye(4)[np.where(wrong, rng.integers(4, size=2000), y)]
    readout = LeftOutReadout.fit(scores, labels, penalties=[np.inf])
    e = readout.numbers[4]
    assert e == 0.0 if noise == 0.0 else abs(e / noise - 1.0) < 0.3
    p = readout(scores)
    softmax = np.exp(log_softmax(readout.logits(scores)))
    np.testing.assert_allclose(p, (1.0 - e) * softmax + e / 4, rtol=1e-12)
    assert abs(p.max(axis=1).mean() - np.mean(p.argmax(axis=1) == labels.argmax(axis=1))) < 0.01


def test_scores_that_need_a_matrix_are_no_wrong_labels():
    """Without a matrix the rows would be likelier so."""
    scores, labels = confused_scores(200)
    fold = np.arange(200) % 4 == 0
    assert LeftOutReadout.fit(scores, labels, penalties=[1.0]).numbers[4] > 0.0
    assert LeftOutReadout.fit(scores, labels, [(scores[~fold], scores[fold], fold)]).numbers[4] == 0.0


def test_weighted_rows_equal_repeated_rows():
    scores, labels = confused_scores(60)
    counts = np.random.default_rng(1).integers(1, 4, size=60)
    rows, fold = np.repeat(np.arange(60), counts), np.arange(60) % 4 == 0

    def fit(rows, labels):
        part = fold[rows]
        folds = [(scores[rows][~part], scores[rows][part], part)]
        return LeftOutReadout.fit(scores[rows], labels, folds, penalties=[np.inf])

    weighted, repeated = fit(np.arange(60), labels * counts[:, None]), fit(rows, labels[rows])
    np.testing.assert_allclose(weighted(scores), repeated(scores), atol=0.01)
