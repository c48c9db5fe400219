"""`Fit`: the result of fitting one run, immutable, from which every answer is computed.

Its table (A, B, C_mid, R0) is always ScaleRL's sigmoid, so that numbers compare with the paper; its
forecast averages over all laws unless one was asked for.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from curvefit.atoms import STRIDE, Atoms, quantile
from curvefit.errors import InputError
from curvefit.estimate import PointFit
from curvefit.marginal import log_compute
from curvefit.results import (
    Doubt,
    Estimate,
    Forecast,
    HeldOut,
    LawWeight,
    NoiseLevel,
    Reach,
    Verdict,
)
from curvefit.runs import Run
from curvefit.window import checked_level

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from curvefit.decide import Decision, Gain

__all__ = ["Fit"]

FloatArray = NDArray[np.float64]
NAN = float("nan")
MANY = 32  # beyond so many computes a band uses every fourth atom


@dataclass(frozen=True, eq=False)
class Fit:
    """The fit of one run.

    Attributes
    ----------
    run : Run
        The points that were fitted.
    held_out : Run or None
        Points beyond `until`, scored by `score_held_out`.
    level : float
        Probability content of all intervals.
    law : str
        ``average`` or the law that forecasts.
    method : str
        One of `METHODS`. Without a posterior, intervals are NaN.
    r0 : str or float
        How the score at zero compute was treated: ``fit``, ``first`` or a number.
    point : PointFit
        The least-squares (or grid) fit.
    laws : tuple of LawWeight
        The laws that forecast: all of them, or the one asked for.
    """

    run: Run
    held_out: Run | None
    level: float
    law: str
    method: str
    r0: str | float
    point: PointFit
    laws: tuple[LawWeight, ...]
    sigmoid: Atoms | None
    forecaster: Atoms | None

    @cached_property
    def params(self) -> dict[str, Estimate]:
        """A, B, C_mid and R0 of the sigmoid: posterior median and interval, or the point fit."""
        if self.sigmoid is None:
            p = self.point
            values = {"A": p.A, "B": p.B, "C_mid": p.C_mid, "R0": p.R0}
            return {name: Estimate(v, NAN, NAN) for name, v in values.items()}
        a = self.sigmoid
        columns = {"A": a.A, "B": a.B, "C_mid": np.exp(a.ln_c), "R0": a.R0}
        return {name: self._estimate(values, a.weight) for name, values in columns.items()}

    def _estimate(self, values: FloatArray, weight: FloatArray) -> Estimate:
        tail = (1.0 - self.level) / 2.0
        low, middle, high = quantile(values, weight, (tail, 0.5, 1.0 - tail)).tolist()
        return Estimate(middle, low, high)

    def interval(self, name: str, level: float | None = None) -> tuple[float, float]:
        """The interval of A, B, C_mid or R0 at a level (the fit's own when left out).

        Raises
        ------
        InputError
            If there is no such parameter, or the method gives no intervals.
        """
        if self.sigmoid is None:
            raise InputError(f"method {self.method!r} gives no intervals; use method='posterior'")
        if name not in self.params:
            raise InputError(f"no parameter is called {name!r}; there are {', '.join(self.params)}")
        a = self.sigmoid
        values = np.exp(a.ln_c) if name == "C_mid" else np.asarray(getattr(a, name))
        tail = (1.0 - (self.level if level is None else checked_level(level))) / 2.0
        low, high = quantile(values, a.weight, (tail, 1.0 - tail)).tolist()
        return low, high

    @cached_property
    def noise(self) -> NoiseLevel:
        """Evaluation noise and run noise (standard deviations) and the correlation, on average.

        About the sigmoid, unless another law forecasts.
        """
        a = self.sigmoid if self.law == "average" else self.forecaster
        if a is None:
            spread = float(np.sqrt(self.point.rss / max(len(self.run) - 4, 1)))
            return NoiseLevel(spread, NAN, NAN)
        share = float(a.weight @ a.run)
        rho = float(a.weight @ (a.rho * a.run)) / share if share > 0 else 0.0
        return NoiseLevel(float(np.sqrt(a.weight @ a.white)), float(np.sqrt(share)), rho)

    def __call__(self, C: ArrayLike) -> FloatArray:
        """Score of the fitted curve at compute C (posterior median), shape of C."""
        C = np.asarray(C, dtype=float)
        if self.forecaster is None:
            return np.asarray(self.point(C.ravel()).reshape(C.shape), dtype=float)
        flat = C.ravel()
        curve = self._atoms_for(flat).curve(log_compute(flat))
        return self._quantiles(curve, (0.5,))[0].reshape(C.shape)

    def _atoms_for(self, C: FloatArray) -> Atoms:
        """The forecasting atoms, a fair quarter of them where many computes are asked for."""
        assert self.forecaster is not None
        if C.size <= MANY:
            return self.forecaster
        return self.forecaster.take(np.arange(len(self.forecaster) // STRIDE))

    def band(self, C: ArrayLike, *, observed: bool = False) -> tuple[FloatArray, FloatArray]:
        """Low and high ends, at the fit's level, of the score at compute C (each shape of C).

        Parameters
        ----------
        C : array_like
        observed : bool
            False for the mean curve, True for what one more evaluation would show.

        Raises
        ------
        InputError
            If the method gives no intervals.
        """
        if self.forecaster is None:
            raise InputError(f"method {self.method!r} gives no intervals; use method='posterior'")
        C = np.asarray(C, dtype=float)
        flat = C.ravel()
        atoms = self._atoms_for(flat)
        values = atoms.curve(log_compute(flat))
        if observed:
            values = self._observe(atoms, values, flat)
        tail = (1.0 - self.level) / 2.0
        low, high = self._quantiles(values, (tail, 1.0 - tail))
        return low.reshape(C.shape), high.reshape(C.shape)

    def _observe(self, a: Atoms, curve: FloatArray, C: FloatArray) -> FloatArray:
        """Add to each atom's curve, shape (M, k), what an evaluation at C would err by.

        Each atom errs by its own draw and, unless many computes are asked for, by its opposite:
        shape (2M, k) or (M, k).

        The run noise starts from where it stands at the last evaluation and forgets it with
        distance; the evaluation noise is that of the points seen.
        """
        seen = self.run.compute
        spacing = float(np.median(np.diff(seen)))
        ahead = np.maximum((C - seen[-1]) / max(spacing, 1e-300), 0.0)[:, None]
        rhos, which = np.unique(a.rho, return_inverse=True)
        beyond = (C > seen[-1])[:, None]
        memory = np.where(beyond, rhos ** np.minimum(ahead, 1e4), 0.0)[:, which]
        expected = curve.T + a.last * memory
        memory *= memory
        error = a.draw * np.sqrt(a.run + a.white + (a.last_var - a.run) * memory)
        values = (expected + error).T
        if len(C) <= MANY:
            values = np.concatenate([values, (expected - error).T])
        return np.clip(values, 0.0, 1.0) if self.run.bounded else values

    @staticmethod
    def _quantiles(values: FloatArray, p: Iterable[float]) -> FloatArray:
        """Quantiles over equally weighted atoms of values (M, k): shape (len(p), k)."""
        ordered = np.sort(values.T, axis=1)
        M = ordered.shape[1]
        at = np.clip(np.asarray(list(p)) * M - 0.5, 0.0, M - 1.0)
        lower = np.minimum(at.astype(int), M - 2)
        part = at - lower
        return np.asarray(
            (ordered[:, lower] * (1.0 - part) + ordered[:, lower + 1] * part).T, dtype=float
        )

    def forecast(self, at: ArrayLike) -> tuple[Forecast, ...]:
        """Score at each compute of `at`, with the intervals of the curve and of an evaluation.

        Raises
        ------
        InputError
            If a compute is negative or not finite.
        """
        C = np.atleast_1d(np.asarray(at, dtype=float)).ravel()
        bad = C[~(np.isfinite(C) & (C >= 0))]
        if len(bad):
            raise InputError(
                f"cannot forecast at compute {bad[0]:g}: give a number that is not negative"
            )
        if self.forecaster is None:
            return tuple(
                Forecast(c, float(v), NAN, NAN, NAN, NAN)
                for c, v in zip(C.tolist(), self(C), strict=True)
            )
        atoms = self._atoms_for(C)
        curve = atoms.curve(log_compute(C))
        tail = (1.0 - self.level) / 2.0
        low, middle, high = self._quantiles(curve, (tail, 0.5, 1.0 - tail)).tolist()
        seen_low, seen_high = self._quantiles(
            self._observe(atoms, curve, C), (tail, 1.0 - tail)
        ).tolist()
        rows = zip(C.tolist(), middle, low, high, seen_low, seen_high, strict=True)
        return tuple(Forecast(*row) for row in rows)

    def reach(self, scores: ArrayLike) -> tuple[Reach, ...]:
        """Compute at which the curve reaches each score, with its interval and probability.

        The law average looks as far as 9 e-folds (8,000 times) beyond the data.
        """
        wanted = np.atleast_1d(np.asarray(scores, dtype=float)).ravel().tolist()
        a = self.forecaster
        if a is None:
            return tuple(self._reached_by_point(score) for score in wanted)
        first_passage = a.first_passage(wanted)
        return tuple(
            self._reached(score, ln_C) for score, ln_C in zip(wanted, first_passage, strict=True)
        )

    def _reached_by_point(self, score: float) -> Reach:
        c = self.point.reach(score)
        return Reach(score, c if np.isfinite(c) else NAN, NAN, NAN, float(np.isfinite(c)))

    def _reached(self, score: float, ln_C: FloatArray) -> Reach:
        tail = (1.0 - self.level) / 2.0
        ordered = np.sort(ln_C)
        M = len(ordered)
        picks = [ordered[min(int(p * M), M - 1)] for p in (tail, 0.5, 1.0 - tail)]
        low, middle, high = (float(np.exp(v)) if v < 700.0 else NAN for v in picks)
        return Reach(score, middle, low, high, float((ln_C < np.inf).mean()))

    @cached_property
    def score_held_out(self) -> HeldOut | None:
        """Mean absolute error and share inside the observed interval of the held-out points."""
        if self.held_out is None or len(self.held_out) == 0:
            return None
        y, C = self.held_out.score, self.held_out.compute
        mae = float(np.abs(self(C) - y).mean())
        if self.forecaster is None:
            return HeldOut(len(y), mae, NAN)
        low, high = self.band(C, observed=True)
        return HeldOut(len(y), mae, float(((y >= low) & (y <= high)).mean()))

    @cached_property
    def doubts(self) -> tuple[Doubt, ...]:
        """What weakens this fit, the weightiest first."""
        from curvefit.diagnose import doubts

        return doubts(self)

    @cached_property
    def verdict(self) -> Verdict:
        """Whether the asymptote is identified, and the sentence that says why."""
        from curvefit.diagnose import verdict

        return verdict(self)

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw the run, the curve, the band and the asymptote; see `curvefit.plot`."""
        from curvefit.plot import plot

        return plot(self, ax=ax)

    def gain(
        self, more: Sequence[float] | None = None, *, price: float | None = None
    ) -> tuple[Gain, ...]:
        """What further compute gains; see `curvefit.decide.gain`."""
        from curvefit.decide import gain

        return gain(self, more, price=price)

    def decide(self, **options: Any) -> Decision:
        """Go on, stop, or measure better; see `curvefit.decide.decide`."""
        from curvefit.decide import decide

        return decide(self, **options)

    def to_dict(self, *, at: ArrayLike = (), reach: ArrayLike = ()) -> dict[str, Any]:
        """The run's record in the ``curvefit/1`` JSON schema: finite numbers or None."""
        from curvefit.report import run_record

        return run_record(self, at=at, reach=reach)

    def __str__(self) -> str:
        from curvefit.report import text

        return text(self)

    def __repr__(self) -> str:
        A = self.params["A"]
        points, grade = len(self.run), self.verdict.asymptote
        return f"<Fit of {self.run.name!r}: {points} points, A = {A.value:.3g}, {grade}>"

    def _repr_html_(self) -> str:
        from curvefit.report import html

        return html(self)
