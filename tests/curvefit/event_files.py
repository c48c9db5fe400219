"""Event files of TensorBoard made by hand, a record and a field at a time."""

from __future__ import annotations

import struct

from curvefit.readers.crc32c import masked_crc


def field(number, value):
    """Return a field of a protocol buffer: an int as varint, a float as double, bytes as such."""
    if isinstance(value, float):
        return bytes([number << 3 | 1]) + struct.pack("<d", value)
    if isinstance(value, bytes):
        return bytes([number << 3 | 2]) + varint(len(value)) + value
    return bytes([number << 3]) + varint(value)


def varint(value):
    out = b""
    while value > 127:
        out += bytes([value & 127 | 128])
        value >>= 7
    return out + bytes([value])


def record(data, length=None):
    """Frame a record; `length` is what its header claims."""
    size = struct.pack("<Q", len(data) if length is None else length)
    crcs = struct.pack("<I", masked_crc(size)), struct.pack("<I", masked_crc(data))
    return size + crcs[0] + data + crcs[1]


def version(wall):
    return record(field(1, wall) + field(3, b"brain.Event:2"))


def scalar(wall, step, tag, value):
    simple = bytes([2 << 3 | 5]) + struct.pack("<f", value)
    summary = field(1, field(1, tag.encode()) + simple)
    return record(field(1, wall) + field(2, step) + field(5, summary))


def blob(wall, step, data):
    """Return a record that holds no scalar: a picture, as far as a reader of scalars can tell."""
    summary = field(1, field(1, b"picture") + field(4, field(4, data)))
    return record(field(1, wall) + field(2, step) + field(5, summary))


def curve(start, steps, tag="eval/acc", seconds=60):
    """Return an event file with a score at each of some steps, one every so many seconds."""
    return version(start) + b"".join(
        scalar(start + seconds * i, step, tag, step / 100) for i, step in enumerate(steps)
    )
