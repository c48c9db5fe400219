"""Plots as files: the same fits give the same bytes."""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import matplotlib
from matplotlib.figure import Figure
from numpy.typing import ArrayLike

from curvefit.plot import plot

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from curvefit.fit import Fit

__all__ = ["inline_svg", "picture", "saved", "svg_element"]

STABLE: dict[str, dict[str, Any]] = {
    "png": {"Software": None},
    "svg": {"Date": None, "Creator": None, "Format": None, "Type": None},
    "pdf": {"CreationDate": None, "Producer": None, "Creator": None},
}
SETTINGS: dict[Any, Any] = {"svg.fonttype": "none", "svg.hashsalt": "curvefit"}
DPI = 200


def saved(draw: Callable[[], Axes], kind: str) -> bytes:
    """Return a drawing as ``png`` (200 dots an inch), ``svg`` (text stays text) or ``pdf``."""
    out = io.BytesIO()
    with matplotlib.rc_context(SETTINGS), warnings.catch_warnings():
        # A name in a script that the font lacks is drawn as boxes; that is no fault of the fit.
        warnings.filterwarnings("ignore", message="Glyph")
        figure = draw().figure
        assert isinstance(figure, Figure)  # not a part of one
        figure.savefig(out, format=kind, dpi=DPI, metadata=STABLE[kind])
    return out.getvalue()


def picture(fits: Fit | Iterable[Fit], kind: str, *, at: ArrayLike = ()) -> bytes:
    """Draw fits as ``png``, ``svg`` or ``pdf``."""
    return saved(lambda: plot(fits, at=at), kind)


def svg_element(svg: bytes, title: str) -> str:
    """Return an SVG file as an ``<svg>`` element to stand inside HTML, described by a title."""
    from html import escape

    text = svg.decode("utf-8")
    text = text[text.index("<svg") :]
    label = f'<svg role="img" aria-label="{escape(title)}" style="max-width:100%;height:auto"'
    return re.sub(r"^<svg", lambda _: label, text, count=1)


def inline_svg(fits: Fit | Iterable[Fit], title: str, *, at: ArrayLike = ()) -> str:
    """Draw fits as an ``<svg>`` element to stand inside HTML, described by a title."""
    return svg_element(picture(fits, "svg", at=at), title)
