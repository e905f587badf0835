"""Functions that damage the bytes of a file."""

import io
import zipfile

import numpy as np


def cut_short(data: bytearray, rng: np.random.Generator) -> bytes:
    """Truncate the file."""
    return bytes(data[: rng.integers(len(data))])


def flipped_bits(data: bytearray, rng: np.random.Generator) -> bytes:
    """Flip up to twenty bits."""
    for _ in range(rng.choice([1, 1, 1, 20])):
        data[rng.integers(len(data))] ^= 1 << int(rng.integers(8))
    return bytes(data)


def zeroed_block(data: bytearray, rng: np.random.Generator) -> bytes:
    """Replace a block by zeros, as in a file system that did not write it."""
    start, length = rng.integers(len(data)), 1 + rng.integers(max(1, len(data) // 4))
    data[start : start + length] = bytes(len(data[start : start + length]))
    return bytes(data)


def exchanged_parts(data: bytearray, rng: np.random.Generator) -> bytes:
    """Exchange two members of an archive, with valid checksums, or two blocks of another file."""
    if zipfile.is_zipfile(io.BytesIO(data)):
        members = _members(data)
        if len(members) > 1:
            one, other = rng.choice(sorted(members), 2, replace=False)
            members[one], members[other] = members[other], members[one]
        return _archive(members)
    half = len(data) // 2
    return bytes(data[half:] + data[:half])


def forged_size(data: bytearray, rng: np.random.Generator) -> bytes:
    """Overstate the size of a member of an archive, with valid checksums, or append bytes to another file."""
    if not zipfile.is_zipfile(io.BytesIO(data)):
        return bytes(data) + rng.bytes(int(rng.integers(1, 101)))
    members = _members(data)
    name = rng.choice(sorted(members))
    if name.endswith(".npy"):
        header = io.BytesIO()
        shape = (int(10 ** rng.integers(1, 15)),)
        np.lib.format.write_array_header_1_0(header, {"descr": "<f8", "fortran_order": False, "shape": shape})
        members[name] = header.getvalue() + members[name][128:]
    else:
        members[name] = members[name][: rng.integers(len(members[name]))]
    return _archive(members)


DAMAGES = (cut_short, flipped_bits, zeroed_block, exchanged_parts, forged_size)


def _members(data: bytearray) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def _archive(members: dict[str, bytes]) -> bytes:
    written = io.BytesIO()
    with zipfile.ZipFile(written, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return written.getvalue()
