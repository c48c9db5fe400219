"""Weighted atoms: what a posterior is once it has been computed.

Every answer is a weighted average over atoms (A, B, c, R0, σ², noise model): a curve with its band,
an interval, a probability. `posterior.atoms_of` makes those of one law; `mixture` averages laws.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from curvefit.drift import Track
from curvefit.laws import LAWS
from curvefit.marginal import E_FOLDS_ABOVE
from curvefit.noise import FROM_ZERO

__all__ = ["ATOMS", "STRIDE", "Atoms", "IntArray", "mixture", "quantile"]

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.intp]

ATOMS = 4096
BLOCK = 256  # atoms at a time, so that a block stays in the cache
STRIDE = 4
SEEN_NODES, FAR = 64, E_FOLDS_ABOVE
FAR_NODES = FAR * np.linspace(0.0, 1.0, 97) ** 1.5
WHOLE = ("weight", "log_evidence", "track")  # of all atoms together, not one by one
_LAW = list(LAWS.values())


@dataclass(frozen=True, slots=True, eq=False)
class Atoms:
    """M weighted points of a posterior; every array has shape (M,).

    Attributes
    ----------
    law : ndarray of int
        Index into `list(LAWS)`.
    A, B, R0 : ndarray
    ln_c : ndarray
        ln of the scale c, C_mid for the sigmoid.
    weight : ndarray
        Sums to 1.
    white, run, rho : ndarray
        Variance of the evaluation noise (mean over points), variance of the run noise, correlation.
    last, last_var : ndarray
        Mean and variance of the run noise at the last evaluation, given the data.
    drift : ndarray
        Variance that the departure from the law gains in an e-fold of compute.
    level, level_var : ndarray
        Mean and variance of the departure at the last evaluation, given the data.
    stop : ndarray
        ln C at which growth ends.
    draw, tilt, wander : ndarray
        Standard normal numbers for each atom, independent of the rest: they turn a predictive mean
        and variance into an observation, and place the departure at the last evaluation and what
        it gains from there.
    log_evidence : float
        ln ∫ likelihood × prior, up to a constant that the laws of a run share.
    track : Track or None
        The evaluations that the departure follows; None for atoms that believe their law.
    """

    law: IntArray
    A: FloatArray
    B: FloatArray
    R0: FloatArray
    ln_c: FloatArray
    weight: FloatArray
    white: FloatArray
    run: FloatArray
    rho: FloatArray
    last: FloatArray
    last_var: FloatArray
    drift: FloatArray
    level: FloatArray
    level_var: FloatArray
    stop: FloatArray
    draw: FloatArray
    tilt: FloatArray
    wander: FloatArray
    log_evidence: float
    track: Track | None

    def __len__(self) -> int:
        return len(self.A)

    def curve(self, x: FloatArray) -> FloatArray:
        """Score of every atom at ln C = x of shape (k,): shape (M, k), in Fortran order.

        Of the run itself, free of evaluation noise: the law's, and the departure from it.
        """
        out = self.law_curve(x)
        if self.track is None:
            return out
        out += self.track.departure(self, x).T
        return np.clip(out, self.track.low, self.track.high, out=out)

    def law_curve(self, x: FloatArray) -> FloatArray:
        """The law's part of it, up to where growth ends: shape (M, k), in Fortran order."""
        out = np.empty((len(x), len(self)))
        changes = np.flatnonzero(np.diff(self.law)) + 1
        edges = [0, *changes.tolist(), len(self)]
        for start, end in pairwise(edges):
            s = _LAW[int(self.law[start])].s
            for at in range(start, end, BLOCK):
                block = slice(at, min(at + BLOCK, end))
                grown = np.minimum(x[:, None], self.stop[block])
                out[:, block] = s(grown - self.ln_c[block], self.B[block])
        out *= self.A - self.R0
        out += self.R0
        return out.T

    def first_passage(self, scores: Sequence[float]) -> list[FloatArray]:
        """Ln C at which each atom first reaches each score, +∞ where it never does: (M,) each.

        Atoms with a track are searched through the data and `FAR` e-folds beyond.
        """
        if self.track is None:
            return [self._inverse(score) for score in scores]
        seen = self.track.x[:: max(1, len(self.track.x) // SEEN_NODES)]
        x = np.concatenate([seen[seen < self.track.end], self.track.end + FAR_NODES])
        highest = np.maximum.accumulate(self.curve(x), axis=1)
        finite = np.maximum(x, np.float64(x[np.isfinite(x)][0] - FROM_ZERO))
        return [_crossing(highest, finite, x[0], score) for score in scores]

    def _inverse(self, score: float) -> FloatArray:
        """Ln C at which each atom's law reaches the score."""
        with np.errstate(divide="ignore", invalid="ignore"):
            q = (score - self.R0) / (self.A - self.R0)
        ln_C = np.where(q <= 0.0, -np.inf, np.inf)
        for i, law in enumerate(_LAW):
            chosen = (self.law == i) & (q > 0.0) & (q < 1.0)
            ln_C[chosen] = self.ln_c[chosen] + law.inverse(q[chosen], self.B[chosen])
        return ln_C

    def take(self, index: IntArray) -> Atoms:
        """Return equally weighted atoms chosen by index."""
        fields = {n: getattr(self, n)[index] for n in self.__slots__ if n not in WHOLE}
        weight = np.full(len(index), 1.0 / len(index))
        return Atoms(**fields, weight=weight, log_evidence=self.log_evidence, track=self.track)


def _crossing(highest: FloatArray, x: FloatArray, start: float, score: float) -> FloatArray:
    """Where rising curves, (M, k) at ascending x (k,), first reach a score: (M,), +∞ for never."""
    right = (highest < score).sum(axis=1)
    atom, k = np.arange(len(highest)), len(x)
    after, before = np.minimum(right, k - 1), np.clip(right - 1, 0, k - 1)
    low, high = highest[atom, before], highest[atom, after]
    part = np.clip((score - low) / np.where(high > low, high - low, np.inf), 0.0, 1.0)
    ln_C = x[before] + part * (x[after] - x[before])
    return np.where(right == 0, start, np.where(right == k, np.inf, ln_C))


def mixture(parts: Sequence[Atoms], weights: Sequence[float], count: int = ATOMS) -> Atoms:
    """`count` equally weighted atoms of the laws' average, chosen systematically.

    Atoms are ordered by law and asymptote before choosing, so that quantiles lose nothing, and then
    interleaved, so that every stretch of the result is a fair sample of the whole.
    """
    names = [name for name in Atoms.__slots__ if name not in WHOLE]
    joined = {name: np.concatenate([getattr(p, name) for p in parts]) for name in names}
    w = np.concatenate([p.weight * v for p, v in zip(parts, weights, strict=True)])
    order = np.lexsort((joined["A"], joined["law"]))
    total = np.cumsum(w[order])
    chosen = np.searchsorted(total, (np.arange(count) + 0.5) / count * total[-1])
    chosen = order[np.minimum(chosen, len(w) - 1)]
    everything = Atoms(**joined, weight=w, log_evidence=0.0, track=parts[0].track)
    fair = everything.take(np.concatenate([chosen[k::STRIDE] for k in range(STRIDE)]))
    return fair if fair.track is None else replace(fair, wander=_balanced(fair))


def _balanced(atoms: Atoms) -> FloatArray:
    """`wander` moved so that the departures to come average to exactly 0, as they do in law.

    Without it, what chance leaves of them would swamp the gain of little further compute.
    """
    size = np.sqrt(atoms.drift)
    return np.asarray(atoms.wander - (atoms.wander @ size) / max(float(size.sum()), 1e-300))


def quantile(values: FloatArray, weight: FloatArray, p: Sequence[float]) -> FloatArray:
    """Weighted quantiles of `values` (shape (M,)), shape of `p`.

    The distribution function is piecewise linear through the middle of each atom's weight.
    """
    order = np.argsort(values)
    w = weight[order]
    middle = np.cumsum(w) - 0.5 * w
    return np.interp(np.asarray(p), middle / w.sum(), values[order])
