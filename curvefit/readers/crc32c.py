"""CRC-32C (Castagnoli), the checksum of TFRecord files, of one record or of many at once.

The polynomial is 0x1EDC6F41 (Castagnoli, Bräuer and Herrmann 1993; RFC 3720, B.4), reflected. The
files hold it masked, rotated by 15 bits plus a constant, as TensorFlow's ``crc32c.h`` says.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["masked_crc", "masked_crcs"]

POLYNOMIAL = 0x82F63B78  # bits reversed
MASK = 0xA282EAD8
START = 0xFFFFFFFF


def _table() -> list[int]:
    table = []
    for byte in range(256):
        for _ in range(8):
            byte = byte >> 1 ^ POLYNOMIAL * (byte & 1)
        table.append(byte)
    return table


TABLE = _table()
TABLE_ARRAY = np.asarray(TABLE, dtype=np.uint32)


def masked_crc(data: bytes) -> int:
    """Return the masked checksum of `data`.

    >>> hex(masked_crc(b"123456789"))  # 0xe3069283 before it is masked
    '0xc78ab0e5'
    """
    crc = START
    for byte in data:
        crc = TABLE[(crc ^ byte) & 255] ^ crc >> 8
    crc ^= START
    return ((crc >> 15 | crc << 17) + MASK) & START


def masked_crcs(
    data: NDArray[np.uint8], starts: NDArray[np.int64], lengths: NDArray[np.int64]
) -> NDArray[np.uint32]:
    """Return the masked checksums of many pieces of `data`, byte after byte of all at once.

    Parameters
    ----------
    data : ndarray, shape (m,)
    starts, lengths : ndarray, shape (n,)
        Piece i is ``data[starts[i] : starts[i] + lengths[i]]``.
    """
    by = np.argsort(-lengths, kind="stable")
    at = starts[by]
    longer = len(by) - np.searchsorted(np.sort(lengths), np.arange(lengths.max(initial=0)), "right")
    state = np.full(len(by), START, dtype=np.uint32)
    for j, count in enumerate(longer.tolist()):
        active = state[:count]
        low = (active ^ data[at[:count] + j]) & 255
        active >>= 8
        active ^= TABLE_ARRAY[low]
    state ^= START
    crcs = np.empty_like(state)
    crcs[by] = (state >> 15 | state << 17) + np.uint32(MASK)
    return crcs
