"""One result, many faces: the text of the terminal, JSON, CSV, HTML.

`tables`, `compact` and `record` say what is reported; `text_report`, `parameter_csv` and `page`
lay it out. This module is where they are found.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from numpy.typing import ArrayLike

from curvefit.parameter_csv import parameter_csv
from curvefit.record import document, dumps, run_record
from curvefit.text_report import text, texts

if TYPE_CHECKING:
    from curvefit.fit import Fit

__all__ = ["document", "dumps", "html", "page", "parameter_csv", "run_record", "text", "texts"]


def html(fit: Fit) -> str:
    """Return what a notebook shows of a fit: a small table, its doubts and the plot."""
    from curvefit.page import fragment

    return fragment(fit)


def page(
    fits: Sequence[Fit],
    *,
    command: Sequence[str] = (),
    at: ArrayLike = (),
    reach: ArrayLike = (),
    answers: Sequence[str] = (),
) -> str:
    """Return a self-contained HTML page: no scripts, nothing loaded from elsewhere."""
    from curvefit.page import page

    return page(fits, command=command, at=at, reach=reach, answers=answers)
