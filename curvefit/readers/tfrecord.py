"""The framing of TFRecord files: length, checksum of the length, record, checksum of the record.

Read block by block. What a file claims is not believed before its checksum agrees, and a record of
more than 8 MB (a picture, a graph) is passed over without being kept. Checksums of many records are
computed together; those of records over 4 KB only when they are used (`Records.check`).
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct
from typing import NamedTuple

import numpy as np

from curvefit.errors import InputError
from curvefit.readers.crc32c import masked_crc, masked_crcs

__all__ = ["Batch", "Records", "first_record"]

HEADER = Struct("<QI")
FOOTER = Struct("<I")
BATCHED = 1 << 12  # bytes of a record: scalars take 30 to 100
MAX_RECORD = 1 << 23


class Batch(NamedTuple):
    """Whole records within a piece of a file, ``data[start:stop]`` each.

    `origin` is where the piece begins in the file.
    """

    data: bytes
    bounds: list[tuple[int, int]]
    origin: int


def first_record(data: bytes) -> bytes | None:
    """Return the first record of a file that begins with `data`; None if it is no TFRecord file.

    Of a long record only what `data` holds.
    """
    if len(data) < HEADER.size:
        return None
    length, crc = HEADER.unpack_from(data)
    if masked_crc(data[:8]) != crc:
        return None
    return data[HEADER.size : HEADER.size + length]


class Records:
    """The records of a file.

    Attributes
    ----------
    label : str
        The file as messages name it.
    cut : int or None
        Once all is read: where a last record begins that is not complete.
    """

    def __init__(self, blocks: Iterator[bytes], label: str) -> None:
        self.label = label
        self.cut: int | None = None
        self._blocks = blocks

    def batches(self) -> Iterator[Batch]:
        """Yield the records, about a megabyte at a time. Works once.

        Raises
        ------
        InputError
            Where a checksum is wrong; it names the byte.
        """
        data, origin, skip, begun = b"", 0, 0, 0
        for block in self._blocks:
            if skip >= len(block):
                skip -= len(block)
                origin += len(block)
                continue
            data = data + block if data else block[skip:]
            origin, skip = origin + skip, 0
            batch, end = self._walk(data, origin)
            if batch.bounds:
                yield batch
            data, origin = data[end:], origin + end
            if len(data) >= HEADER.size:
                length = self._length(data, origin)
                if length > MAX_RECORD:
                    begun, whole = origin, HEADER.size + length + FOOTER.size
                    skip, origin, data = whole - len(data), origin + len(data), b""
        self.cut = begun if skip else origin if data else None

    def _walk(self, data: bytes, origin: int) -> tuple[Batch, int]:
        """Return the whole records of a piece, checked, and where what is left begins."""
        bounds: list[tuple[int, int]] = []
        at, size = 0, len(data)
        while at + HEADER.size <= size:
            start = at + HEADER.size
            stop = start + int.from_bytes(data[at : at + 8], "little")
            if stop + FOOTER.size > size:
                break
            bounds.append((start, stop))
            at = stop + FOOTER.size
        batch = Batch(data, bounds, origin)
        if bounds:
            self._check_all(batch)
        return batch, at

    def _check_all(self, batch: Batch) -> None:
        """Check all lengths, and the records that are not long."""
        data = np.frombuffer(batch.data, dtype=np.uint8)
        start, stop = np.asarray(batch.bounds, dtype=np.int64).T
        short = np.flatnonzero(stop - start <= BATCHED)
        starts = np.concatenate((start - HEADER.size, start[short]))
        lengths = np.concatenate((np.full(len(start), 8), (stop - start)[short]))
        at = np.concatenate((start - FOOTER.size, stop[short]))
        said = sum(data[at + i].astype(np.uint32) << 8 * i for i in range(FOOTER.size))
        wrong = masked_crcs(data, starts, lengths) != said
        if wrong.any():
            record = np.concatenate((np.arange(len(start)), short))[wrong].min()
            raise self.damaged(batch.origin + int(start[record]) - HEADER.size)

    def _length(self, data: bytes, origin: int) -> int:
        length, crc = HEADER.unpack_from(data)
        if masked_crc(data[:8]) != crc:
            raise self.damaged(origin)
        return int(length)

    def check(self, batch: Batch, start: int, stop: int) -> None:
        """Check a record that is about to be used, if it is one of the long ones.

        Raises
        ------
        InputError
            If its checksum is wrong.
        """
        if stop - start > BATCHED:
            (crc,) = FOOTER.unpack_from(batch.data, stop)
            if masked_crc(batch.data[start:stop]) != crc:
                raise self.damaged(batch.origin + start - HEADER.size)

    def damaged(self, offset: int, why: str = "a checksum is wrong") -> InputError:
        """Return the error for a record that begins at a byte of the file."""
        return InputError(
            f"{self.label} is damaged at byte {offset:,}: {why}; what stands before it can be read "
            f"from a copy that ends there: head -c {offset} FILE > COPY"
        )
