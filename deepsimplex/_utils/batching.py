"""Split ranges of rows into batches."""


def parts(whole: slice, length: int) -> list[slice]:
    """Split a slice, with start and stop, into slices of at most ``length``; an empty one has no parts.
    Examples
    --------
    >>> parts(slice(2, 7), 3)
    [slice(2, 5, None), slice(5, 7, None)]
    >>> parts(slice(2, 2), 3)
    []
    """
    return [slice(begin, min(begin + length, whole.stop)) for begin in range(whole.start, whole.stop, length)]


def row_slices(rows: int, most: int) -> list[slice]:
    """Split rows into slices of at most ``most``; no rows are one empty slice, so that results keep their shape.
    Examples
    --------
    >>> row_slices(5, 3)
    [slice(0, 3, None), slice(3, 5, None)]
    >>> row_slices(0, 3)
    [slice(0, 0, None)]
    """
    return parts(slice(0, rows), most) or [slice(0, 0)]
