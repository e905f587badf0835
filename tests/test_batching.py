"""Split rows into batches: each row once and in order, in as few slices as possible."""

import pytest

from deepsimplex._utils.batching import parts, row_slices


@pytest.mark.parametrize(("start", "stop", "length"), [(0, 7, 3), (2, 8, 3), (5, 6, 10), (4, 4, 2), (0, 3, 1)])
def test_slices_cover_every_row_once(start, stop, length):
    slices = parts(slice(start, stop), length)
    assert [row for part in slices for row in range(part.start, part.stop)] == list(range(start, stop))
    assert len(slices) == -(-(stop - start) // length)
    assert all(0 < part.stop - part.start <= length for part in slices)


def test_zero_rows_give_one_empty_slice():
    assert row_slices(0, 3) == [slice(0, 0)]
    assert row_slices(7, 3) == parts(slice(0, 7), 3)
