"""How tables and sentences are laid out: plain text at most `WIDTH` columns wide, and HTML."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from html import escape

from curvefit.compact import shorten
from curvefit.tables import Grid

__all__ = ["WIDTH", "grid_lines", "joined", "paragraph", "separated", "table", "wrapped"]

WIDTH = 100
NAME_WIDTH = 30


def joined(*blocks: list[str]) -> str:
    """Put blocks of lines under each other, a blank line between them; empty ones vanish."""
    return "\n\n".join("\n".join(block) for block in blocks if block)


def separated(*texts: str) -> str:
    """Put texts under each other, a rule between them."""
    return f"\n\n{'-' * WIDTH}\n\n".join(texts)


def wrapped(sentence: str, label: str = "", indent: int = 0) -> list[str]:
    """Wrap a sentence behind a label; later lines are indented, and no % or × begins one."""
    first, later = " " * indent + label, " " * (indent + min(len(label), 2))
    held = sentence.replace(" %", "\xa0%").replace(" × ", "\xa0×\xa0")
    lines = textwrap.wrap(held, WIDTH, initial_indent=first, subsequent_indent=later)
    return [line.replace("\xa0", " ") for line in lines]


def grid_lines(grid: Grid) -> list[str]:
    """Lay out a grid: numbers to the right, words to the left, two blanks between columns.

    The first column, which holds names, gives way where the rest needs the room.
    """
    lines = [grid.header, *grid.rows]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    room = WIDTH - sum(width + 2 for width in widths[1:]) - 2
    widths[0] = min(widths[0], NAME_WIDTH, max(room, 8))
    lines = [(shorten(row[0], widths[0]), *row[1:]) for row in lines]

    def laid_out(row: tuple[str, ...]) -> str:
        cells = (
            cell.ljust(width) if i in grid.left else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        return ("  " + "  ".join(cells)).rstrip()

    return wrapped(grid.title) + [laid_out(row) for row in lines]


def paragraph(text: str, css: str = "") -> str:
    """Return a paragraph of HTML."""
    return f"<p{f' class={css}' if css else ''}>{escape(text)}</p>"


def table(grid: Grid) -> str:
    """Return a grid as an HTML table."""

    def line(cells: Sequence[str], tag: str) -> str:
        row = "".join(
            f"<{tag}{' class=l' if i in grid.left else ''}>{escape(cell)}</{tag}>"
            for i, cell in enumerate(cells)
        )
        return f"<tr>{row}</tr>"

    rows = "".join(line(row, "td") for row in grid.rows)
    return f"<table><caption>{escape(grid.title)}</caption>{line(grid.header, 'th')}{rows}</table>"
