"""What a run does that its law does not: the departure from the law, followed and let go.

    R(C) = law(C) + u(C),    Var(u(C_b) − u(C_a)) = δ ln(C_b / C_a),    u = 0 at the first point

Up to the last evaluation u is known from the residuals (Rauch, Tung and Striebel's smoother, AIAA
Journal 3 (1965) 1445, for a random walk). Beyond it u goes on from where it stands, its variance
growing by δ an e-fold: a forecast starts from where the run is, not from where the law would have
it, and trusts the law the less the further it looks. `noise.drift_grid` is the prior of δ.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from curvefit.noise import FROM_ZERO

if TYPE_CHECKING:
    from curvefit.atoms import Atoms

__all__ = ["Track"]

FloatArray = NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class Track:
    """The evaluations that the departure is followed through.

    Attributes
    ----------
    x : ndarray, shape (n,)
        ln C, −∞ for step 0.
    y : ndarray, shape (n,)
        Scores.
    white : ndarray, shape (n,)
        Evaluation noise of each point in units of the mean.
    low, high : float
        Limits of a score.
    """

    x: FloatArray
    y: FloatArray
    white: FloatArray
    low: float
    high: float

    @property
    def end(self) -> float:
        """Ln C of the last evaluation."""
        return float(self.x[-1])

    def departure(self, atoms: Atoms, x: FloatArray) -> FloatArray:
        """The departure u of every atom at ln C = x of shape (k,): shape (k, M)."""
        out = np.empty((len(x), len(atoms)))
        beyond = x > self.end
        now = atoms.level + atoms.tilt * np.sqrt(atoms.level_var)
        far = np.sqrt(np.maximum(x[beyond] - self.end, 0.0))[:, None]
        out[beyond] = now + far * (atoms.wander * np.sqrt(atoms.drift))
        if not beyond.all():
            out[~beyond] = self._followed(atoms, x[~beyond])
        return out

    def _followed(self, atoms: Atoms, x: FloatArray) -> FloatArray:
        """The departure within the data, each atom as far off its mean as its `tilt` says."""
        clock, at = self._clock(self.x), self._clock(x)
        mean, var, tie = self._smoothed(atoms, np.diff(clock))
        right = np.clip(np.searchsorted(clock, at, side="left"), 1, len(clock) - 1)
        left = right - 1
        gap = np.maximum(clock[right] - clock[left], 1e-300)
        part = np.clip((at - clock[left]) / gap, 0.0, 1.0)[:, None]
        rest = 1.0 - part
        between = atoms.drift * gap[:, None] * part * rest
        both = 2.0 * part * rest * tie[left] * var[right]
        spread = rest**2 * var[left] + part**2 * var[right] + both + between
        followed = rest * mean[left] + part * mean[right] + atoms.tilt * np.sqrt(spread)
        return np.asarray(followed, dtype=float)

    def _clock(self, x: FloatArray) -> FloatArray:
        """Ln C, with step 0 one `FROM_ZERO` before the first checkpoint."""
        first = self.x[np.isfinite(self.x)][0] - FROM_ZERO
        return np.maximum(x, first) if np.isneginf(self.x[0]) else np.maximum(x, self.x[0])

    def _smoothed(
        self, atoms: Atoms, growth: FloatArray
    ) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Mean, variance and backward gain of u at every evaluation, shape (n, M) each."""
        n, M = len(self.x), len(atoms)
        residual = self.y[:, None] - atoms.law_curve(self.x).T
        mean, var, tie = np.empty((n, M)), np.empty((n, M)), np.zeros((n, M))
        u, p = np.zeros(M), np.zeros(M)
        for t in range(n):
            if t:
                p = p + atoms.drift * growth[t - 1]
            gain = p / (p + atoms.white * self.white[t])
            u = u + gain * (residual[t] - u)
            p = p * (1.0 - gain)
            mean[t], var[t] = u, p
        for t in range(n - 2, -1, -1):
            ahead = var[t] + atoms.drift * growth[t]
            tie[t] = var[t] / np.maximum(ahead, 1e-300)
            mean[t] += tie[t] * (mean[t + 1] - mean[t])
            var[t] += tie[t] ** 2 * (var[t + 1] - ahead)
        return mean, np.maximum(var, 0.0), tie

    def wandering(
        self, atoms: Atoms, i: int, x: FloatArray, rng: np.random.Generator
    ) -> FloatArray:
        """One path of atom i's departure at ascending ln C = x beyond the data, shape of x."""
        steps = np.diff(x, prepend=self.end)
        now = atoms.level[i] + atoms.tilt[i] * np.sqrt(atoms.level_var[i])
        fresh = np.sqrt(atoms.drift[i] * steps) * rng.standard_normal(len(x))
        return np.asarray(now + np.cumsum(fresh))
