"""From a path, standard input or an open file to lines of text, or to blocks of bytes.

Content decides, not the name: gzip is known by its first two bytes, UTF-16 by its byte order mark,
and what cannot be text (a workbook, a Parquet file) is refused by what it is, once no reader of
binary formats has taken it. The text is decoded block by block, so that a file which is not a table
costs only its first block.
"""

from __future__ import annotations

import codecs
import io
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import PurePath
from typing import IO, Any

from curvefit.errors import InputError
from curvefit.runs import Note
from curvefit.wording import printable

__all__ = ["Source", "open_source"]

HEAD = 1 << 16  # characters that readers see before one of them takes the file
BLOCK = 1 << 20
MAX_LINE = 1 << 24  # characters; 10,000 columns with long names need a tenth of it
MAX_TEXT = 1 << 30  # characters; a small file compressed to excess must not exceed it

GENERIC = {"data", "eval", "history", "log", "logs", "metrics", "output", "progress", "results"}
GENERIC |= {"train", "trainer_state", "training_history"}

CSV = "export the table of metrics as CSV"
BINARY = {
    b"PAR1": f"a Parquet file: {CSV}, or pass pandas.read_parquet(...) to curvefit.load",
    b"PK\x03\x04": "a zip archive or a workbook: unpack it, or save the sheet as CSV",
    b"\xd0\xcf\x11\xe0": "an old Excel workbook: save the sheet as CSV",
    b"\x89HDF": f"an HDF5 file: {CSV}",
    b"\x89PNG": "a picture: the numbers behind it are needed, as CSV or JSON",
    b"%PDF": "a PDF: the numbers behind it are needed, as CSV or JSON",
    b"BZh": "compressed with bzip2: unpack it first (gzip needs no unpacking)",
    b"\xfd7zXZ": "compressed with xz: unpack it first (gzip needs no unpacking)",
    b"\x28\xb5\x2f\xfd": "compressed with zstd: unpack it first (gzip needs no unpacking)",
}
UTF16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


class Source:
    """One input: its name, its first block of text, and its lines.

    Attributes
    ----------
    file : str
        Path as given, ``"-"`` for standard input, ``""`` for an open file without a name.
    label : str
        The same as messages name it.
    run : str
        What its run is called when nothing inside says it.
    path : str or None
        Where it can be opened again, if it was opened by its path.
    first : bytes
        The first block: what readers of binary formats look at.
    zipped : bool
        Whether it is compressed with gzip; `first` and all that follows is unpacked.
    head : str
        The first block of text: what other readers look at to recognise their format.
    complete : bool
        Whether `head` is all there is.
    notes : list of Note
    growing : bool
        Whether somebody still writes to it. A last line that is not finished is then not read:
        a row cut short may look whole (0.5 of 0.53).
    unfinished : bool
        Whether a last line was held back for that.
    ended : bool
        Whether the log says that its run has ended.
    """

    def __init__(
        self, stream: IO[Any], file: str, growing: bool = False, path: str | None = None
    ) -> None:
        self.file, self.path = file, path
        self.growing, self.unfinished, self.ended = growing, False, False
        self.label = {"-": "standard input", "": "the open file"}.get(file, printable(file))
        self.run = run_name(file)
        self.notes: list[Note] = []
        self._stream = stream
        self.first = self._read(HEAD)
        self.zipped = self.first[:2] == b"\x1f\x8b"
        if self.zipped:
            self._stream = _gunzip(self.first, stream)
            self.first = self._read(HEAD)

    @cached_property
    def head(self) -> str:
        """The first block of text.

        Raises
        ------
        InputError
            When the file is empty or no text.
        """
        first = self.first
        self._refuse_binary(first)
        self._decoder = self._choose_decoder(first)
        self._fed = 0
        head = self._decode(first).removeprefix("\ufeff")
        self.complete = len(first) < HEAD and not (more := self._read(HEAD))
        if not self.complete and len(first) < HEAD:
            head += self._decode(more)
        if not head.strip():
            what = "is empty" if self.complete else f"starts with {HEAD:,} blank characters"
            raise InputError(f"{self.label} {what}: a table with a header line, or JSON, is needed")
        return head

    def blocks(self) -> Iterator[bytes]:
        """Yield the bytes of a binary file, a piece at a time. Works once, instead of `lines`."""
        block = self.first
        while block:
            yield block
            block = self._read(BLOCK)

    def lines(self) -> Iterator[str]:
        r"""Yield the lines, each with its ``\n``; only the last may lack it. Works once.

        Of a file that grows, a last line without ``\n`` comes only if it is a whole JSON object.
        """
        rest, number = "", 0
        for block in self._blocks():
            lines = (rest + block).split("\n")
            rest = lines.pop()
            for line in lines:
                yield line + "\n"
            number += len(lines)
            if len(rest) > MAX_LINE:
                raise InputError(
                    f"{self.label}: line {number + 1} is longer than {MAX_LINE >> 20} million "
                    "characters: this is neither a table nor a log"
                )
        self.unfinished = self.growing and bool(rest) and not _is_object(rest)
        if self.unfinished and not number:
            raise InputError(f"{self.label} has no complete line yet")
        if rest and not self.unfinished:
            yield rest

    def text(self, limit: int) -> str:
        """Return everything, for formats that cannot be read line by line."""
        pieces, size = [], 0
        for block in self._blocks():
            pieces.append(block)
            size += len(block)
            if size > limit:
                raise InputError(
                    f"{self.label} is one JSON document of over {limit >> 20} MB: "
                    "write one record a line (JSONL), or keep only the columns used"
                )
        return "".join(pieces)

    def _blocks(self) -> Iterator[str]:
        yield self.head
        size = len(self.head)
        while not self.complete:
            data = self._read(BLOCK)
            self.complete = not data
            size += len(data)
            if size > MAX_TEXT:
                raise InputError(
                    f"{self.label} holds over 1 GB of text: keep only the columns used"
                )
            yield self._decode(data)

    def _decode(self, data: bytes) -> str:
        self._fed += len(data)
        try:
            return self._decoder.decode(data, final=not data)
        except UnicodeDecodeError as error:
            offset = self._fed - len(error.object) + error.start
            raise InputError(
                f"{self.label} is not {self._encoding} text: byte {offset:,} is "
                f"0x{error.object[error.start]:02x}; save it as UTF-8"
            ) from None

    def _read(self, size: int) -> bytes:
        import zlib

        try:
            data = self._stream.read(size)
        except (EOFError, zlib.error) as error:
            raise InputError(f"{self.label} is a damaged gzip file: {error}") from None
        except (OSError, ValueError) as error:
            raise InputError(f"{self.label} cannot be read: {_reason(error)}") from None
        return data.encode("utf-8", "surrogatepass") if isinstance(data, str) else bytes(data)

    def _refuse_binary(self, first: bytes) -> None:
        for magic, what in BINARY.items():
            if first.startswith(magic):
                raise InputError(f"{self.label} is {what}")
        if b"\0" in first and not first.startswith(UTF16):
            raise InputError(
                f"{self.label} is a binary file (byte {first.index(0):,} is zero): "
                "a table as CSV or TSV, JSON or JSONL is needed"
            )

    def _choose_decoder(self, first: bytes) -> io.IncrementalNewlineDecoder:
        self._encoding = "UTF-16" if first.startswith(UTF16) else "UTF-8"
        if self._encoding == "UTF-16":
            self.notes.append(Note("encoding", "the file is UTF-16 and was decoded as such"))
        return io.IncrementalNewlineDecoder(codecs.getincrementaldecoder(self._encoding)(), True)


@contextmanager
def open_source(
    source: str | os.PathLike[str] | IO[Any], *, growing: bool = False
) -> Iterator[Source]:
    """Open a path, ``"-"`` or a file object for the length of a ``with`` block.

    Raises
    ------
    InputError
        When there is no such file, it cannot be read, or it holds no text.
    """
    if not isinstance(source, (str, os.PathLike)):
        name = getattr(source, "name", "")
        yield Source(source, name if isinstance(name, str) else "")
    elif source == "-":
        yield Source(sys.stdin.buffer, "-")
    else:
        path = os.fspath(source)
        with _open(path) as stream:
            yield Source(stream, path, growing, path)


def run_name(file: str) -> str:
    """Name a run by its file: the stem, or the folder where the stem says nothing.

    >>> run_name("runs/alpha/log.jsonl"), run_name("exports/beta.csv.gz"), run_name("log.jsonl")
    ('alpha', 'beta', 'log')
    """
    if file in ("", "-"):
        return "stdin" if file else "run"
    path = PurePath(file)
    stem = path.name.removesuffix(".gz")
    stem = PurePath(stem).stem or path.name
    folders = [part for part in path.parent.parts if part not in ("/", ".", "..")]
    while stem.lower() in GENERIC and folders:
        stem = folders.pop()
    return printable(stem)


def _is_object(text: str) -> bool:
    import json

    try:
        return isinstance(json.loads(text), dict)
    except (ValueError, RecursionError):
        return False


def _open(path: str) -> IO[bytes]:
    shown = printable(path)
    try:
        return open(path, "rb")
    except FileNotFoundError:
        raise InputError(f"{shown} does not exist") from None
    except IsADirectoryError:
        example = f"{shown.rstrip('/')}/log.jsonl"
        raise InputError(f"{shown} is a directory: name a file in it, as {example}") from None
    except (OSError, ValueError) as error:
        raise InputError(f"{shown} cannot be read: {_reason(error)}") from None


def _reason(error: Exception) -> str:
    return error.strerror if isinstance(error, OSError) and error.strerror else str(error)


def _gunzip(first: bytes, stream: IO[bytes]) -> IO[bytes]:
    import gzip

    class Rejoined(io.RawIOBase):
        """The bytes already taken from a stream, then the rest of it."""

        taken = io.BytesIO(first)

        def read(self, size: int = -1) -> bytes:
            return self.taken.read(size) or stream.read(size)

    return gzip.GzipFile(fileobj=Rejoined(), mode="rb")  # type: ignore[return-value]
