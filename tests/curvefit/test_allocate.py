"""Settings at each budget: who leads, where one overtakes another, every refusal, every face."""

import csv
import io
import json
from pathlib import Path

import numpy as np
import pytest
from allocation import pair
from recipes import seed_run

import curvefit
from curvefit.allocate import allocate
from curvefit.budgets import budgets_of
from curvefit.errors import InputError
from curvefit.frontier import Frontier, frontier, overtakings, regions
from curvefit.pairs import ln_reach

DATA = Path(__file__).parents[2] / "data"
SMALL = {"A": 0.55, "C_mid": 1000.0, "ratio": 16}
LARGE = {"A": 0.66, "C_mid": 6000.0, "ratio": 4, "R0": 0.3}


@pytest.fixture(scope="module")
def fig1a():
    """Figure 1a of ScaleRL: the 8B dense model and the 17Bx16 mixture of experts."""
    return allocate(curvefit.load(DATA / "scalerl_fig1a.csv"), at=1e5, price=2.0)


@pytest.fixture(scope="module")
def crossing():
    """A small model with two seeds, fast and low; a large one, slow and high."""
    runs = [
        seed_run("small", 0, **SMALL),
        seed_run("small", 1, **SMALL),
        seed_run("large", 0, **LARGE),
    ]
    return allocate(runs)


def true_crossing():
    C = np.geomspace(500, 1e5, 20_001)
    gap = curvefit.curve(C, 0.55, 1.9, 1000, 0.38) - curvefit.curve(C, 0.66, 1.9, 6000, 0.3)
    return C[np.flatnonzero(gap > 0)[-1]]


# ---------------------------------------------------------------- answers


def test_the_larger_model_wins_at_every_budget_of_figure_1a(fig1a):
    """The paper's rule (arXiv 2510.13786, section 5), as a computed answer."""
    (region,) = fig1a.regions
    assert (region.shares[0].setting, region.decided) == ("17Bx16 MoE", True)
    assert region.least > 0.95
    for b in fig1a.budgets:
        assert b.choices[0].setting == "17Bx16 MoE"
        assert b.cost == pytest.approx(2.0 * b.budget)
    scores = {c.setting: c.score for c in fig1a.budgets[-1].choices}
    drawn = {
        "8B dense": (0.6446, 1.682, 10_920, 0.4017),
        "17Bx16 MoE": (0.7099, 1.659, 6920, 0.5116),
    }
    for name, (A, B, C_mid, R0) in drawn.items():  # the curves drawn in the figure
        assert scores[name].low < curvefit.curve(1e5, A, B, C_mid, R0) < scores[name].high


def test_the_larger_model_needs_a_sixth_of_the_compute(fig1a):
    """ "Same final level with 1/6 compute": what 8B has at 50,000 the mixture has at 8,330."""
    b = next(b for b in fig1a.budgets if b.budget == 50_000)
    assert b.suffices.low < 50_000 / 6 < b.suffices.high


def test_a_crossing_is_found_where_the_truth_has_it(crossing):
    assert {s.setting: len(s.runs) for s in crossing.settings} == {"small": 2, "large": 1}
    first = crossing.overtakings[0]
    assert (first.setting, first.passes) == ("large", "small")
    assert first.probability > 0.99
    assert first.low < true_crossing() < first.high
    leaders = [r.shares[0].setting if r.decided else None for r in crossing.regions]
    assert leaders == ["small", None, "large"]
    assert crossing.regions[0].high < true_crossing() < crossing.regions[2].low
    said = str(crossing)
    assert "Below " in said
    assert "it is not decided (" in said


def test_the_longer_context_overtakes_where_the_published_fits_cross():
    """Table 1 of the paper: 14k tokens (0.610, 1.92, 2542), 32k tokens (0.645, 1.89, 11272)."""
    C = np.geomspace(1000, 3e5, 20_001)
    gap = curvefit.curve(C, 0.610, 1.92, 2542, 0.38) - curvefit.curve(C, 0.645, 1.89, 11272, 0.38)
    truth = C[np.flatnonzero(gap > 0)[-1]]
    long = {"A": 0.645, "B": 1.89, "C_mid": 11272.0, "ratio": 3.0}
    runs = [seed_run("14k", s, B=1.92, C_mid=2542.0) for s in range(3)]
    result = allocate([*runs, *(seed_run("32k", s, **long) for s in range(3))])
    first = result.overtakings[0]
    assert (first.setting, first.passes) == ("32k", "14k")
    assert first.low < truth < first.high
    assert result.regions[0].shares[0].setting == "14k"
    assert result.regions[-1].shares[0].setting == "32k"


def test_many_settings_are_paired_only_where_they_may_lead():
    ln_C = np.log([1.0, 10.0])
    curves = np.array([[[0.1 + 0.01 * k] * 2] * 8 for k in range(14)])
    assert list(overtakings("abcdefghijklmn", curves, ln_C, 0.9, 0.0)) == []
    assert len(list(overtakings("ab", curves[:2], ln_C, 0.9, 0.0))) == 2


def test_rewards_are_allocated_too():
    def reward(name, top):
        run = seed_run(name, 0, A=0.66 if top else 0.55)
        return curvefit.load({"gpu_hours": run.compute, "reward": 40 * run.score - 9,
                              "run": [name] * len(run)}, run="run")[0]  # fmt: skip

    result = allocate([reward("low", False), reward("high", True)])
    assert result.regions[-1].shares[0].setting == "high"
    assert result.budgets[-1].choices[0].score.value > 10


def test_the_budgets_agree_with_the_regions(crossing):
    for b in crossing.budgets:
        region = next(r for r in crossing.regions if r.low <= b.budget <= r.high)
        assert b.decided == region.decided
        assert sum(c.probability for c in b.choices) == pytest.approx(1.0)
        assert b.choices[0].regret == min(c.regret for c in b.choices)


def test_equal_settings_are_not_decided():
    result = allocate([seed_run(name, 0) for name in ("a", "b")])
    assert not any(r.decided for r in result.regions if r.high > 5000)
    assert "not decided" in str(result)
    assert "What would decide" in str(result)


def test_short_runs_leave_the_far_budgets_open():
    """Cut before the midpoint, the large model's future is not known, and that is said."""
    short = seed_run("large", 0, **LARGE)
    result = allocate([seed_run("small", 0, **SMALL), short.take(slice(0, 6))])
    assert not result.regions[-1].decided
    assert any("over 20 times the last compute of large" in note for note in result.notes)


# ---------------------------------------------------------------- pieces by hand


def test_regions_by_hand():
    C = np.array([1.0, 4.0, 16.0, 64.0])
    shares = np.array([[0.95, 0.93, 0.6, 0.05], [0.05, 0.07, 0.4, 0.95]])
    one = np.zeros((2, 4))
    first, middle, last = regions("ab", Frontier(C, one, one, one, shares), 0.9)
    assert (first.low, first.high, first.decided) == (1.0, 8.0, True)
    assert (first.least, first.most, first.shares[0].setting) == (0.93, 0.95, "a")
    assert first.shares[0].probability == pytest.approx(0.94)
    assert (middle.high, middle.decided) == (32.0, False)
    assert (last.high, last.shares[0]) == (64.0, ("b", 0.95))


def test_overtakings_by_hand():
    """In half of the cases b passes a, half way between the last two computes on a log scale."""
    ln_C = np.log([1.0, 10.0, 1000.0])
    a = np.array([[0.5, 0.5, 0.5]] * 4)
    b = np.array([[0.3, 0.4, 0.6]] * 2 + [[0.3, 0.35, 0.4]] * 2)
    by = {(o.setting, o.passes): o for o in overtakings("ab", np.array([a, b]), ln_C, 0.9, 0.01)}
    assert by["b", "a"].probability == 0.5
    assert by["b", "a"].compute == pytest.approx(100.0)
    assert by["a", "b"].probability == 0.0


def test_the_frontier_counts_who_is_highest():
    curves = np.array([[[0.5, 0.5]] * 64, [[0.4, 0.6]] * 64])
    f = frontier(curves, np.array([1.0, 2.0]), 0.9)
    assert f.probability.tolist() == [[1.0, 0.0], [0.0, 1.0]]
    assert f.score.tolist() == [[0.5, 0.5], [0.4, 0.6]]


def test_each_curve_reaches_a_score_of_its_own():
    R = np.array([[0.2, 0.4], [0.2, 0.4], [0.2, 0.4]])
    at = ln_reach(R, np.array([0.0, 1.0]), np.array([0.3, 0.1, 0.5]))
    assert at.tolist() == pytest.approx([0.5, 0.0, np.inf])


def test_round_budgets_thin_out_over_many_decades():
    assert budgets_of(None, 300.0, 4000.0).tolist() == [300, 500, 1000, 2000, 4000]
    assert budgets_of(None, 1.0, 1e7).tolist() == [10.0**k for k in range(8)]
    assert budgets_of([5, 3, 5], 1.0, 9.0).tolist() == [3, 5]


# ---------------------------------------------------------------- refusals


def on(x, name, **options):
    run = seed_run(name, 0, **options)
    table = {x: run.compute, "pass_rate": run.score, "run": [name] * len(run)}
    return curvefit.load(table, run="run")[0]


def test_steps_are_refused_with_the_remedy():
    with pytest.raises(InputError, match=r"a step of a larger model.*--x.*--gpus N") as refused:
        allocate([on("step", "a"), on("step", "b")])
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(("x", "said"), [
    ("tokens", "tokens of a larger model cost more"),
    ("flops", "budgets are FLOPs as logged"),
    ("elapsed_hours", "as many GPUs"),
    ("spent", "'spent' as logged, which must cost the same"),
])  # fmt: skip
def test_the_note_says_what_a_unit_stands_for(x, said):
    runs = [on(x, "a"), on(x, "b", A=0.65)]
    assert said in allocate(runs).notes[0]


def test_one_price_of_a_step_for_all_is_doubted():
    table = {"step": np.arange(0.0, 41.0), "pass_rate": seed_run("a", 0).score}
    runs = [
        curvefit.load({**table, "run": [n] * 41}, run="run", gpu_hours_per_step=2.0)[0]
        for n in "ab"
    ]
    assert "a step was taken to cost the same in every setting" in allocate(runs).notes[0]


def test_fewer_than_two_settings_are_refused():
    with pytest.raises(InputError, match=r"all runs are of setting 'a'; tell settings apart"):
        allocate([seed_run("a", 0), seed_run("a", 1)])
    with pytest.raises(InputError, match="at least 2 settings with a fit: there is no run"):
        allocate([])


def test_settings_that_cannot_be_set_side_by_side_are_refused_with_the_reason():
    with pytest.raises(InputError, match="its compute is in tokens, that of"):
        allocate([seed_run("a", 0), on("tokens", "b")])
    table = {"gpu_hours": np.linspace(9e4, 1e5, 41), "pass_rate": seed_run("b", 0).score}
    with pytest.raises(InputError, match="overlaps that of no other setting"):
        allocate([seed_run("a", 0), curvefit.load(table)[0]])


def test_a_collapsed_setting_is_left_out_with_the_reason():
    run = seed_run("flat", 0, A=0.3801)
    result = allocate([seed_run("a", 0), seed_run("b", 0, A=0.66), run])
    assert [e.recipe for e in result.excluded] == ["flat"]
    assert "Left out of the allocation" in str(result)
    assert {s.setting for s in result.settings} == {"a", "b"}


@pytest.mark.parametrize(("options", "message"), [
    ({"budgets": []}, "there are 0 budgets; give 1 to"),
    ({"budgets": [100.0]}, "a budget of 100 cannot be allocated: .* from 500 on"),
    ({"budgets": [1e4, float("nan")]}, "a budget of nan"),
    ({"at": float("inf")}, "a budget of inf"),
    ({"at": 500.0}, "a range up to 500 is empty"),
    ({"level": 1.5}, "level"),
    ({"price": -1.0}, "price"),
    ({"setting": {"a, seed 0": "a"}}, "setting= names no setting for run 'b, seed 0'"),
])  # fmt: skip
def test_bad_requests_are_refused(options, message):
    with pytest.raises(InputError, match=message):
        allocate([seed_run("a", 0), seed_run("b", 0)], **options)


# ---------------------------------------------------------------- faces


def test_the_faces_agree(fig1a):
    record = json.loads(json.dumps(fig1a.to_dict(), allow_nan=False))
    assert record["budgets"][-1]["choices"][0]["setting"] == "17Bx16 MoE"
    assert record["budgets"][-1]["cost"] == pytest.approx(200_000)
    table = list(csv.DictReader(io.StringIO(fig1a.to_csv())))
    assert len(table) == 2 * len(fig1a.budgets)
    best = fig1a.budgets[-1].choices[0]
    assert float(table[-2]["score"]) == pytest.approx(best.score.value)
    assert table[-2]["rank"] == "1"
    assert max(map(len, str(fig1a).splitlines())) <= 100
    assert "17Bx16 MoE leads" in fig1a._repr_html_()
    assert "<svg" in fig1a._repr_html_()
    assert repr(fig1a).startswith("<Allocation of 1328 to 1e+05 to 2 settings")


def test_names_from_files_are_escaped_everywhere():
    result = allocate([seed_run("<b>_$x^2$&", 0), seed_run("=SUM", 0, A=0.66)])
    assert "<b>" not in result._repr_html_()
    assert "'=SUM" in result.to_csv()
    result.plot().figure.draw_without_rendering()


def test_the_plot_shows_who_leads(crossing):
    ax = crossing.plot()
    ax.figure.draw_without_rendering()
    words = [t.get_text() for t in ax.texts]
    assert words.count("small") == 2  # in the ribbon and at the curve
    faces = [patch.get_facecolor() for patch in ax.patches]
    hatches = [patch.get_hatch() for patch in ax.patches]
    assert len(faces) == len(set(faces)) == 3
    assert len(set(hatches)) == 3
    thick = [line for line in ax.get_lines() if line.get_linewidth() > 2]
    assert len(thick) == 4  # two settings, each inside and beyond its data


def test_many_settings_have_a_legend():
    runs = [seed_run(f"s{k}", 0, A=0.5 + 0.02 * k, points=13) for k in range(9)]
    result = allocate(runs, budgets=[20_000])
    assert len(result.overtakings) == 72
    assert len(str(result).splitlines()) < 40
    ax = result.plot()
    ax.figure.draw_without_rendering()
    assert ax.artists[0].get_texts()[0].get_text() == "s8"


@pytest.mark.slow
def test_probabilities_hold_on_simulated_pairs():
    """What is said with 90 % or more is true nine times in ten; what is said with less, as often.

    25 pairs of two settings whose truth is known, at 12 budgets up to ten times the longest run.
    """
    answers = [answer for seed in range(25) for answer in pair(seed)[0]]
    p = np.array([max(a.p, 1.0 - a.p) for a in answers])
    right = np.array([(a.p > 0.5) == a.best for a in answers])
    sure = p >= 0.9
    assert sure.mean() > 0.5
    assert right[sure].mean() > 0.95
    assert right[~sure].mean() == pytest.approx(p[~sure].mean(), abs=0.1)
