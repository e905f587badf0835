"""Comparison of standardized partitions: warnings, tables, JSON, measures of scaled memberships."""

import json
import re
import warnings
from dataclasses import replace

import numpy as np
import pytest

from deepsimplex.evaluation import (
    PartitionComparison,
    ability_to_separate,
    compare_partitions,
    partition_accuracy,
    standardized_partition,
)


def random_guesses(samples: int = 400, n: int = 6):
    rng = np.random.default_rng(20)
    return rng.integers(0, n, samples), rng.dirichlet(np.full(n, 0.5), samples)


def test_regions_of_single_samples_warn():
    y, m = random_guesses(n=8)
    with pytest.warns(
        UserWarning, match=r"9\d% of the 400 samples are alone .* depth 6: .* Use a smaller depth or a lar"
    ):
        deep = standardized_partition(y, m, depth=6)
    assert deep.alone == sum(region.note == "a single value" for region in deep.regions) / 400
    assert deep.accuracy > 0.7 > 0.3 > deep.correctness  # guesses that look nearly perfect
    assert f"depth 6, {deep.alone:.1%} alone in their region" in str(deep)
    assert deep.as_dict()["alone"] == deep.alone
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        shallow = standardized_partition(y, m)
    assert shallow.alone == 0
    with pytest.warns(UserWarning, match=r"^100% of the 1 samples are .* depth 1: .* Use a larger test set$"):
        standardized_partition([0], [[0.5, 0.5]])


def test_threshold_of_the_warning():
    # Three samples of class 0 for each that is alone in class 1.
    m, y = np.repeat([[0.9, 0.1], [0.2, 0.8]], [9, 1], axis=0), np.zeros(10, int)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert standardized_partition(y, m).alone == 0.1
    with pytest.warns(UserWarning, match="11% of the 9"):
        standardized_partition(y[1:], m[1:])


def test_comparison_warns_once_for_the_worst():
    y, m = random_guesses()
    with pytest.warns(UserWarning, match="of 'guesses' are alone in their region at depth 4") as caught:
        comparison = compare_partitions(y, {"constant": np.eye(6)[y * 0], "guesses": m}, depth=4)
    assert len(caught) == 1
    assert caught[0].filename == __file__
    head, *rows = str(comparison).splitlines()
    titles = ["depth 4", "correctness CR", "accuracy Ac", "ability to separate AS", "confidence", "alone"]
    assert re.split(r"  +", head) == titles
    assert [row.split()[-1] for row in rows] == ["0.0000", f"{comparison.partitions['guesses'].alone:.4f}"]


def test_long_tables_show_the_largest_regions():
    y, m = random_guesses()
    partition = standardized_partition(y, m, depth=3)
    *_, table = str(partition).split("\n\n")
    _, *rows, last = table.splitlines()
    assert len(rows) == 30
    assert last == f"... and {len(partition.regions) - 30} more, none larger"
    sizes = sorted((region.samples for region in partition.regions), reverse=True)
    shown = [int(row.split()[5]) for row in rows]
    assert sorted(shown, reverse=True) == sizes[:30]
    # In the order of their classes, as the regions are.
    orders = [tuple(map(int, row.split()[:5:2])) for row in rows]
    assert orders == sorted(orders)
    assert "more" not in str(standardized_partition(y, m, depth=2))


def test_scaled_memberships_with_any_row_sum():
    partition = standardized_partition([0, 0, 1], [[1, 0]] * 3)
    np.testing.assert_allclose(partition.membership.sum(axis=1), 2 / 3)
    assert partition_accuracy([0, 0, 1], partition.membership) == partition.accuracy
    assert ability_to_separate(partition.membership, partition.assigned) == partition.ability_to_separate
    assert partition_accuracy([0, 1], np.zeros((2, 2))) == pytest.approx(1 - np.sqrt(2))
    for measure in (lambda m: partition_accuracy([0], m), ability_to_separate):
        with pytest.raises(ValueError, match=r"every row of membership must sum to no more than 1 .* sums to 1\.1"):
            measure([[0.5, 0.6]])


def test_ability_to_separate_may_be_negative():
    corners = np.eye(3)
    assert ability_to_separate(corners) == 1
    assert ability_to_separate(corners, [1, 2, 0]) == pytest.approx(1 - np.sqrt(3))


def test_table_titles_and_unsigned_zeros():
    y, m = random_guesses()
    partition = replace(standardized_partition(y, m), accuracy=-1e-9, unscaled_accuracy=-0.0)
    comparison = PartitionComparison({"guesses": partition})
    assert "-0.0000" not in str(partition) + str(comparison)
    for title in ("correctness CR ", "accuracy Ac ", "ability to separate AS ", "unscaled accuracy Ac "):
        assert f"\n{title}" in str(partition)


def test_partitions_are_written_as_json():
    y, m = random_guesses(40, 3)
    partition = standardized_partition(y, m, classes=None)
    assert json.loads(partition.to_json()) == partition.as_dict()
    comparison = compare_partitions(y, {"guesses": m})
    assert json.loads(comparison.to_json(indent=None)) == {"guesses": partition.as_dict()}
    assert "\n" not in comparison.to_json(indent=None)


def test_certainty_of_deeper_ranks_uses_remaining_samples():
    rng = np.random.default_rng(21)
    m = rng.dirichlet([40, 20, 10], 60)
    m = m[(np.diff(m, axis=1) < 0).all(axis=1)]
    y = rng.choice(3, len(m), p=[0.8, 0.1, 0.1])
    (region,) = standardized_partition(y, m, depth=2).regions
    second = region.levels[1]
    assert second.trials == np.sum(y != 0) < second.alpha + second.beta
    assert second.scaled_alpha + second.scaled_beta == pytest.approx(second.trials)


def test_comparisons_print_and_go_to_json():
    rng = np.random.default_rng(11)
    y = rng.integers(0, 3, 60)
    sharp = 0.8 * np.eye(3)[y] + 0.2 * rng.dirichlet(np.ones(3), 60)
    memberships = {"sharp": sharp, "random forest": rng.dirichlet(np.ones(3), 60)}
    comparison = compare_partitions(y, memberships, depth=2)
    assert list(comparison.partitions) == ["sharp", "random forest"]
    alone = standardized_partition(y, memberships["random forest"], depth=2)
    assert comparison.as_dict()["random forest"] == alone.as_dict()
    assert json.loads(json.dumps(comparison.as_dict(), allow_nan=False)) == comparison.as_dict()
    lines = str(comparison).splitlines()
    assert len(lines) == 3
    assert len({len(line) for line in lines}) == 1
    assert f"{comparison.partitions['sharp'].ability_to_separate:.4f}" in lines[1]
    given_classes = compare_partitions(y, {"sharp": sharp}, {"sharp": np.zeros(60, int)})
    assert given_classes.partitions["sharp"].correctness == np.mean(y == 0)
