"""Plots: what is drawn, and that words from files stay words."""

import re
import warnings
from itertools import pairwise

import matplotlib
import numpy as np
import pytest
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from test_report import a_run

from curvefit import fit
from curvefit.errors import InputError
from curvefit.labels import apart, asymptote_words
from curvefit.picture import inline_svg, picture
from curvefit.plot import STYLES, plot


def lines_with_points(ax):
    return [line for line in ax.get_lines() if line.get_linestyle() == "None"]


def test_fitted_points_are_solid_and_held_out_points_hollow():
    one = fit(a_run(), until="75%")
    ax = plot(one)
    fitted, at_zero, held_out = lines_with_points(ax)
    assert fitted.get_markerfacecolor() == held_out.get_markeredgecolor() == STYLES[0].color
    assert held_out.get_markerfacecolor() == "none"
    assert len(fitted.get_xdata()) == 11  # twelve, one of them at zero compute
    assert len(held_out.get_xdata()) == 4
    # zero compute stands on the left edge: x = 0 of the axes, y in data
    x, y = at_zero.get_transform().transform(at_zero.get_xydata())[0]
    assert x == pytest.approx(ax.transAxes.transform((0, 0))[0])
    assert y == pytest.approx(ax.transData.transform((1.0, one.run.score[0]))[1])


def test_the_curve_is_solid_over_the_fit_and_dashed_beyond():
    one = fit(a_run(), until="75%")
    solid, dashed = [line for line in plot(one).get_lines() if len(line.get_xdata()) > 50]
    last = one.run.compute[-1]
    assert solid.get_linestyle() == "-"
    assert dashed.get_linestyle() == "--"
    assert solid.get_xdata()[-1] == pytest.approx(last)
    assert dashed.get_xdata()[[0, -1]] == pytest.approx([last, 10 * last])


def test_a_forecast_asked_for_is_in_the_picture():
    assert plot(fit(a_run()), at=[5e6]).get_xlim()[1] == 5e6


def test_an_axes_given_is_the_axes_returned():
    ax = Figure().add_subplot()
    assert plot(fit(a_run()), ax=ax) is ax
    assert fit(a_run()).plot(ax) is ax


def test_no_window_and_no_global_state():
    before = dict(matplotlib.rcParams)
    picture(fit(a_run()), "png")
    assert dict(matplotlib.rcParams) == before


def test_an_asymptote_is_a_number_only_where_it_is_identified():
    known, unknown = fit(a_run(end=40_000.0)), fit(a_run(end=1000.0))
    assert known.verdict.asymptote == "identified"
    assert asymptote_words(known).startswith("A 0.6")
    assert unknown.verdict.asymptote == "not identified"
    assert re.fullmatch(r"A not identified, \[0\.\d+, \d\.\d+\]", asymptote_words(unknown))
    asymptotes = [
        len(line.get_xdata()) == 2 and line.get_transform() == ax.get_yaxis_transform()
        for ax in [plot(unknown)]
        for line in ax.get_lines()
    ]
    assert sum(asymptotes) == 1  # the bar of the interval, no line across


def test_without_intervals_there_is_no_band():
    ax = plot(fit(a_run(), method="least-squares"))
    assert len(ax.collections) == 0
    assert "no interval" in asymptote_words(fit(a_run(), method="least-squares"))


def test_the_band_says_its_level():
    svg = picture(fit(a_run(), level=0.8), "svg").decode()
    assert "80 % of the mean curve" in svg


@pytest.mark.parametrize("name", ["$x_1$ and $", "_hidden", "<b>&</b>", "模型", "a" * 300])
def test_names_are_drawn_as_they_are(name):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        one = picture(fit(a_run(name)), "svg").decode()
        many = picture([fit(a_run(name)) for _ in range(4)], "svg").decode()
    shown = name.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    for svg in (one, many):
        assert (shown if len(name) < 28 else "aaa…aaa") in svg


@pytest.mark.parametrize("kind", ["png", "svg", "pdf"])
def test_the_same_fits_give_the_same_bytes(kind):
    fits = [fit(a_run()), fit(a_run("b", A=0.5))]
    assert picture(fits, kind) == picture(fits, kind)


@pytest.mark.parametrize("count", [1, 3, 4, 12, 30])
def test_any_number_of_runs_fits_on_the_canvas(count):
    fits = [fit(a_run(f"run {i}", A=0.3 + 0.02 * i)) for i in range(count)]
    ax = plot(fits)
    figure = ax.figure
    figure.draw_without_rendering()
    width, height = figure.bbox.size
    box = ax.get_tightbbox()
    assert box.x0 >= -1
    assert box.y0 >= -1
    assert box.x1 <= width + 1
    assert box.y1 <= height + 1
    boxes = [text.get_window_extent() for text in ax.texts]
    assert not any(a.overlaps(b) for i, a in enumerate(boxes) for b in boxes[:i])


def test_no_fits_is_an_error_and_not_an_empty_picture():
    with pytest.raises(InputError, match="no fit"):
        plot([])


def test_labels_move_apart_and_stay_in_place_where_there_is_room():
    assert apart(np.array([0.1, 0.9]), 0.2).tolist() == pytest.approx([0.1, 0.9])
    assert apart(np.array([1.0, 1.0]), 0.2).tolist() == pytest.approx([0.8, 1.0])
    assert apart(np.array([0.0, 0.05, 0.02]), 0.1).tolist() == pytest.approx([0.0, 0.2, 0.1])


def test_neighbouring_runs_differ_in_lightness_and_all_in_marker():
    """Relative luminance (WCAG 2.2): neighbours differ by 0.05 or more."""

    def luminance(color):
        linear = [
            c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in to_rgb(color)
        ]
        return float(np.dot([0.2126, 0.7152, 0.0722], linear))

    lights = [luminance(style.color) for style in STYLES]
    assert min(abs(a - b) for a, b in pairwise(lights)) > 0.05
    assert len({style.marker for style in STYLES}) == len(STYLES) == 12


def test_inline_svg_is_an_element_with_a_label():
    svg = inline_svg(fit(a_run()), 'a "title" <x>')
    assert svg.startswith('<svg role="img" aria-label="a &quot;title&quot; &lt;x&gt;"')
    assert "<metadata>" not in svg
