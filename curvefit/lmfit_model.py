"""The laws as `lmfit.Model`: for users who know lmfit and want its bounds, ties and reports.

>>> import numpy as np
>>> from curvefit.laws import curve
>>> C = np.linspace(0, 12000, 25)
>>> noise = np.random.default_rng(1).normal(0, 0.004, 25)
>>> score = curve(C, A=0.61, B=1.92, C_mid=2542, R0=0.3) + noise
>>> model = SigmoidModel()
>>> result = model.fit(score, model.guess(score, C=C), C=C)
>>> abs(result.params["A"].value - 0.61) < 3 * result.params["A"].stderr
True

`result.conf_interval()`, `result.eval_uncertainty(C=...)` and `result.fit_report()` are lmfit's;
they take the points to be independent and the law to be true. `curvefit.fit` takes neither for
granted.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import lmfit
import numpy as np
from numpy.typing import ArrayLike, NDArray

from curvefit.errors import InputError
from curvefit.estimate import least_squares
from curvefit.laws import LAWS, curve
from curvefit.marginal import Bounds

__all__ = ["LawModel", "SigmoidModel", "law_model"]

FloatArray = NDArray[np.float64]

PASS_RATE = Bounds(0.0, 1.0)
INSIDE = 1e-3  # distance from a bound, as a share of the range, at which guesses start


class LawModel(lmfit.Model):  # type: ignore[misc]
    """A law as an lmfit model of C with parameters A, B, C_mid and R0.

    Parameters
    ----------
    law : str
        A key of `LAWS`. For laws other than the sigmoid, C_mid is the scale c.
    bounds : Bounds
        Limits of A and R0: 0 and 1 for pass rates, which is the default; pass
        ``Bounds(-math.inf, math.inf)`` for rewards on another scale.
    **kwargs
        Passed on to `lmfit.Model`: ``prefix``, ``nan_policy``, ``name``.

    Raises
    ------
    InputError
        If the law is unknown.
    """

    def __init__(self, law: str = "sigmoid", *, bounds: Bounds = PASS_RATE, **kwargs: Any) -> None:
        if law not in LAWS:
            raise InputError(f"law {law!r} is unknown; choose {', '.join(LAWS)}")
        super().__init__(_function(law), independent_vars=["C"], **kwargs)
        self.law, self.bounds = law, Bounds(*bounds)
        low, high = LAWS[law].B_range
        self.set_param_hint("A", min=self.bounds.low, max=self.bounds.high)
        self.set_param_hint("R0", min=self.bounds.low, max=self.bounds.high)
        self.set_param_hint("C_mid", min=0.0)
        if low < high:
            self.set_param_hint("B", min=low, max=high)
        else:
            self.set_param_hint("B", value=low, vary=False)

    def guess(
        self, data: ArrayLike, C: ArrayLike, *, weights: ArrayLike | None = None, **kwargs: Any
    ) -> lmfit.Parameters:
        """Parameters at the least-squares fit, a little inside their bounds.

        Parameters
        ----------
        data : array_like, shape (n,)
            Scores.
        C : array_like, shape (n,)
            Compute.
        weights : array_like of shape (n,), optional
            As in `Model.fit`: inverse standard deviations.
        **kwargs
            Values, or ``A_min=…`` and the like, that override the guess.

        Raises
        ------
        InputError
            If there are fewer than 3 points or all are at one compute.
        """
        squared = None if weights is None else np.square(np.asarray(weights, dtype=float))
        fit = least_squares(C, data, law=self.law, weights=squared, bounds=self.bounds)
        params = self.make_params(A=fit.A, B=fit.B, C_mid=fit.C_mid, R0=fit.R0)
        for parameter in params.values():
            room = INSIDE * (parameter.max - parameter.min)
            if parameter.vary and np.isfinite(room):
                inside = np.clip(parameter.value, parameter.min + room, parameter.max - room)
                parameter.set(value=float(inside))
        return lmfit.models.update_param_vals(params, self.prefix, **kwargs)


class SigmoidModel(LawModel):
    """ScaleRL's sigmoid (arXiv 2510.13786, eq. 1) as an lmfit model; see `LawModel`."""

    def __init__(self, *, bounds: Bounds = PASS_RATE, **kwargs: Any) -> None:
        super().__init__("sigmoid", bounds=bounds, **kwargs)


def law_model(law: str, *, bounds: Bounds = PASS_RATE, **kwargs: Any) -> LawModel:
    """Return the lmfit model of a law: ``law_model("weibull")``."""
    return LawModel(law, bounds=bounds, **kwargs)


def _function(law: str) -> Callable[[FloatArray, float, float, float, float], FloatArray]:
    def function(C: FloatArray, A: float, B: float, C_mid: float, R0: float) -> FloatArray:
        return curve(C, A, B, C_mid, R0, law=law)

    function.__name__ = law
    return function
