"""TensorBoard's events, as far as they hold scalars: wall time, step, tag and value.

An event is a protocol buffer (TensorFlow's ``event.proto``, ``summary.proto``, ``tensor.proto``).
Scalars are written in two ways: as ``simple_value`` (PyTorch, tensorboardX, TensorFlow 1), or as a
tensor of rank 0 (TensorFlow 2; PyTorch with ``new_style``). Pictures, histograms, texts and graphs
are passed over. A ``SessionLog`` of status START says that a run was started again at a step, and
that what was logged from this step on is void.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from struct import Struct
from typing import NamedTuple

from curvefit.errors import InputError
from curvefit.readers.tfrecord import Batch, Records, first_record

__all__ = ["MAX_TAGS", "MAX_VALUES", "Scalars", "is_event_file", "read_scalars"]

MAX_VALUES = 10_000_000  # scalars; with the rows made of them 100 bytes each
MAX_TAGS = 100_000

# Keys of fields: number << 3 | wire type (0 varint, 1 eight bytes, 2 length and bytes, 5 four).
WALL_TIME, STEP, FILE_VERSION, SUMMARY, SESSION_LOG = 0x09, 0x10, 0x1A, 0x2A, 0x3A
VALUE = 0x0A  # of a summary
TAG, SIMPLE_VALUE, TENSOR = 0x0A, 0x15, 0x42  # of a value
STATUS = 0x08  # of a session log
DTYPE, SHAPE, CONTENT = 0x08, 0x12, 0x22  # of a tensor
FLOATS, PACKED_FLOATS, DOUBLES, PACKED_DOUBLES = 0x2D, 0x2A, 0x31, 0x32
DIMENSION = 0x12  # of a shape
START = 1
DT_FLOAT, DT_DOUBLE = 1, 2
FLOAT, DOUBLE = Struct("<f"), Struct("<d")


class Malformed(Exception):
    """Bytes that are no protocol buffer."""


class Scalars:
    """The scalars of one event file, in file order.

    Attributes
    ----------
    wall, step, tag, value : array, length n
        Seconds since 1970; global step; index into `tags`; the value.
    tags : list of str
    first, last : float
        Wall times of the first and the last event, whatever they hold; NaN if there is none.
    start : int or None
        The step at which the run was started again, if the file says so before its first scalar.
    cut : int or None
        Where a last record begins that is not complete.
    """

    def __init__(self) -> None:
        self.wall, self.step = array("d"), array("q")
        self.tag, self.value = array("i"), array("d")
        self.tags: list[str] = []
        self.first = self.last = float("nan")
        self.start: int | None = None
        self.cut: int | None = None
        self._index: dict[bytes, int] = {}

    def add(self, event: Event) -> None:
        """Take the scalars of an event."""
        if not self.first <= event.wall:
            self.first = event.wall
        if not self.last >= event.wall:
            self.last = event.wall
        if event.start and not self.wall:
            self.start = event.step
        for name, value in event.scalars:
            tag = self._index.get(name)
            if tag is None:
                tag = self._index[name] = len(self.tags)
                self.tags.append(name.decode("utf-8", "backslashreplace"))
            self.wall.append(event.wall)
            self.step.append(event.step)
            self.tag.append(tag)
            self.value.append(value)


class Event(NamedTuple):
    """One event: when, at which step, what; `start` if the run was started again at that step."""

    wall: float
    step: int
    scalars: list[tuple[bytes, float]]
    start: bool


def is_event_file(first: bytes) -> bool:
    """Whether a file begins with a record of known checksum that is an event with a version."""
    record = first_record(first)
    if record is None:
        return False
    try:
        return any(
            key == FILE_VERSION and record[at:stop].startswith(b"brain.Event:")
            for key, at, stop in _fields(record, 0, len(record))
        )
    except Malformed:
        return False


def read_scalars(blocks: Iterator[bytes], label: str, *, two_steps: bool = False) -> Scalars:
    """Read an event file.

    Parameters
    ----------
    blocks : iterator of bytes
        The file, piece by piece.
    label : str
        The file as messages name it.
    two_steps : bool
        Stop once there are scalars of two steps.

    Raises
    ------
    InputError
        When it is damaged (with the byte), or holds more than can be kept.
    """
    records, found = Records(blocks, label), Scalars()
    for batch in records.batches():
        before = len(found.step)
        for event in _events(records, batch):
            found.add(event)
        if len(found.value) > MAX_VALUES or len(found.tags) > MAX_TAGS:
            raise InputError(
                f"{label} has more than {MAX_VALUES // 1_000_000} million scalars or "
                f"{MAX_TAGS:,} tags: log fewer of them, or export the tags used as CSV"
            )
        if two_steps and any(step != found.step[0] for step in found.step[before:]):
            break
    found.cut = records.cut
    return found


def _events(records: Records, batch: Batch) -> Iterator[Event]:
    for start, stop in batch.bounds:
        try:
            event = _event(batch.data, start, stop)
        except Malformed:
            records.check(batch, start, stop)
            raise records.damaged(batch.origin + start - 12, "the record is no event") from None
        if event.scalars or event.start:
            records.check(batch, start, stop)
        yield event


# ---------------------------------------------------------------- protocol buffers


def _event(data: bytes, at: int, end: int) -> Event:
    wall, step, start = 0.0, 0, False
    scalars: list[tuple[bytes, float]] = []
    for key, value, stop in _fields(data, at, end):
        if key == WALL_TIME:
            (wall,) = DOUBLE.unpack_from(data, value)
        elif key == STEP:
            step = value - (value >> 63 << 64)
        elif key == SUMMARY:
            for inner, begin, until in _fields(data, value, stop):
                if inner == VALUE:
                    _scalar(data, begin, until, scalars)
        elif key == SESSION_LOG:
            start = any(k == STATUS and v == START for k, v, _ in _fields(data, value, stop))
    return Event(wall, step, scalars, start)


def _scalar(data: bytes, at: int, end: int, into: list[tuple[bytes, float]]) -> None:
    """Append the tag and number of a summary's value, if it is a number."""
    tag, number = b"", None
    for key, value, stop in _fields(data, at, end):
        if key == TAG:
            tag = data[value:stop]
        elif key == SIMPLE_VALUE:
            (number,) = FLOAT.unpack_from(data, value)
        elif key == TENSOR:
            number = _tensor(data, value, stop)
    if number is not None:
        into.append((tag, number))


def _tensor(data: bytes, at: int, end: int) -> float | None:
    """Return the number that a tensor of rank 0 holds; None of any other tensor."""
    dtype, place, size = 0, -1, 0
    for key, value, stop in _fields(data, at, end):
        if key == DTYPE:
            dtype = value
        elif key == SHAPE and any(k == DIMENSION for k, _, _ in _fields(data, value, stop)):
            return None
        elif key in (CONTENT, FLOATS, PACKED_FLOATS, DOUBLES, PACKED_DOUBLES):
            place, size = value, stop - value
    form = {DT_FLOAT: FLOAT, DT_DOUBLE: DOUBLE}.get(dtype)
    if form is None or size != form.size:
        return None
    return float(form.unpack_from(data, place)[0])


def _fields(data: bytes, at: int, end: int) -> Iterator[tuple[int, int, int]]:
    """Yield the key of each field with its varint, or with where its bytes begin and stop."""
    while at < end:
        key, at = data[at], at + 1
        if key > 127:
            key, at = _varint(data, at - 1, end)
        wire = key & 7
        if wire == 0:
            value, at = _varint(data, at, end)
            yield key, value, at
            continue
        if wire == 2:
            size, at = _varint(data, at, end)
        elif wire in (1, 5):
            size = 8 if wire == 1 else 4
        else:
            raise Malformed
        stop = at + size
        if stop > end:
            raise Malformed
        yield key, at, stop
        at = stop


def _varint(data: bytes, at: int, end: int) -> tuple[int, int]:
    """Return a number of up to 64 bits and where the next byte stands."""
    value = shift = 0
    while at < end and shift < 70:
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value & 0xFFFFFFFFFFFFFFFF, at
        shift += 7
    raise Malformed
