"""Seeds pooled, recipes paired: against closed forms and simulated normal seeds."""

import numpy as np
import pytest
from scipy.stats import norm

from curvefit.pairs import best_shares, crossing, difference, ratio
from curvefit.pooling import SEED_SCORE, SpreadPrior, pool, pool_curves, spread_posterior
from curvefit.ranking import SURE, rank

M = 4096
Z = norm.ppf((np.arange(M) + 0.5) / M)
NO_SPREAD = SpreadPrior(1e-9, 1e-6)


def normal(mean, sd, which=0):
    return mean + sd * Z[np.random.default_rng(which).permutation(M)]


@pytest.mark.parametrize(("gap", "s1", "s2"), [(0.0, 1.0, 1.0), (1.0, 0.6, 0.8), (2.5, 1.0, 0.2)])
def test_the_probability_of_a_pair_is_that_of_two_normals(gap, s1, s2):
    d = difference(normal(gap, s1, 1), normal(0.0, s2, 2), 0.9)
    sd = np.hypot(s1, s2)
    assert d.probability == pytest.approx(norm.cdf(gap / sd), abs=0.005)
    assert d.value == pytest.approx(gap, abs=0.03)
    assert (d.low, d.high) == pytest.approx((gap - 1.645 * sd, gap + 1.645 * sd), abs=0.06)


def test_equal_values_are_neither_larger_nor_smaller():
    assert difference(np.ones(M), np.ones(M), 0.9).probability == 0.5


def test_what_is_never_reached_counts_as_infinitely_late():
    a = np.full(M, np.inf)
    b = np.where(np.arange(M) % 2 == 0, 0.0, np.inf)
    d = ratio(a, b, 0.9)
    assert d.probability == pytest.approx(0.75, abs=0.01)  # later than half, level with the others
    assert np.isnan(d.high)


def test_the_best_of_three_equals_is_each_a_third_of_the_time():
    shares = best_shares(np.array([normal(0.0, 1.0, k) for k in range(3)]))
    assert shares == pytest.approx([1 / 3] * 3, abs=0.02)


def test_without_a_spread_the_pool_is_the_precision_weighted_mean():
    seeds = np.array([normal(0.60, 0.01, 1), normal(0.63, 0.02, 2)])
    pooled = pool([seeds], NO_SPREAD).draws[0]
    assert pooled.mean() == pytest.approx((0.60 * 4 + 0.63) / 5, abs=1e-4)
    assert pooled.std() == pytest.approx(np.sqrt(1 / (1 / 0.01**2 + 1 / 0.02**2)), rel=0.03)


def test_one_seed_has_its_own_error_and_the_spread():
    prior = SpreadPrior(0.01, 1e-6)
    pooled = pool([normal(0.6, 0.005)[None]], prior).draws[0]
    assert pooled.std() == pytest.approx(np.hypot(0.005, 0.01), rel=0.03)


def test_the_spread_posterior_is_that_of_the_marginal_likelihood():
    """BDA eq. 5.21 written out for one recipe of three seeds, by integrating μ numerically."""
    m, v = np.array([0.60, 0.61, 0.63]), np.array([1e-5, 1e-5, 4e-5])
    tau, weight = spread_posterior([m], [v], SEED_SCORE)
    mu = np.linspace(0.4, 0.8, 40_001)
    sd = np.sqrt(v[:, None, None] + tau[:, None] ** 2)
    likelihood = norm.pdf(m[:, None, None], mu, sd).prod(axis=0).sum(axis=1)
    expected = likelihood * norm.pdf(np.log(tau / 0.01) / 0.5)
    assert weight == pytest.approx(expected / expected.sum(), rel=1e-4)


def test_the_spread_is_found_where_many_seeds_show_it():
    rng = np.random.default_rng(0)
    means = [rng.normal(0.6, 0.03, 8) for _ in range(6)]
    tau, weight = spread_posterior(means, [np.full(8, 1e-6)] * 6, SEED_SCORE)
    shown = np.sqrt(np.mean([m.var(ddof=1) for m in means]))
    assert weight @ tau == pytest.approx(shown, rel=0.05)


def test_curves_pool_like_numbers_at_each_compute():
    seeds = np.array([normal(0.60, 0.01, 1), normal(0.63, 0.02, 2)])
    spread = np.full(M, 0.01)
    (pooled,) = pool_curves([np.repeat(seeds[:, :, None], 2, axis=2)], spread, np.array([0.0, 1.0]))
    assert pooled[:, 0].mean() == pytest.approx(0.606, abs=1e-4)
    w = 1 / np.array([0.01**2 + 0.01**2, 0.02**2 + 0.01**2])
    assert pooled[:, 1].std() == pytest.approx(1 / np.sqrt(w.sum()), rel=0.03)


def called_different(gap, sd, seeds, pairs):
    """Share of simulated pairs in which one recipe is surely ahead of the other."""
    rng = np.random.default_rng(7)
    called = 0
    for _ in range(pairs):
        values = rng.normal([[0.6], [0.6 + gap]], sd, (2, seeds))
        own = [np.array([normal(m, 0.002, s) for s, m in enumerate(row)]) for row in values]
        p = difference(*pool(own, SEED_SCORE).draws, 0.9).probability
        called += p >= SURE or p <= 1 - SURE
    return called / pairs


def test_equal_recipes_are_rarely_called_different():
    assert called_different(0.0, 0.0075, seeds=3, pairs=200) <= 0.055


def test_recipes_three_points_apart_are_told_apart():
    assert called_different(0.03, 0.0075, seeds=3, pairs=60) >= 0.9


def test_a_single_seed_each_does_not_tell_the_margin_from_chance():
    """±0.02 is ScaleRL's margin (arXiv 2510.13786, A.5): so close a pair is not called."""
    assert called_different(0.02, 0.0, seeds=1, pairs=1) == 0.0
    assert called_different(0.06, 0.0, seeds=1, pairs=1) == 1.0


def test_a_ranking_says_inconclusive_when_it_is():
    draws = np.array([normal(0.60, 0.01, 1), normal(0.605, 0.01, 2), normal(0.50, 0.01, 3)])
    ranking = rank("A", "the asymptote A", ("a", "b", "c"), draws)
    assert not ranking.conclusive
    assert "inconclusive" in ranking.sentence
    assert [(p.recipe, p.rank) for p in ranking.places] == [("b", 1), ("a", 1), ("c", 3)]
    assert "surely behind: c" in ranking.sentence


def test_a_ranking_names_the_best_when_it_is_sure():
    draws = np.array([normal(0.60, 0.01, 1), normal(0.66, 0.01, 2)])
    ranking = rank("A", "the asymptote A", ("a", "b"), draws)
    assert ranking.conclusive
    assert "b is best" in ranking.sentence
    assert ranking.places[0].best > 0.999


def test_what_is_not_identified_is_neither_ahead_nor_behind():
    draws = np.array([normal(0.90, 0.01, 1), normal(0.80, 0.01, 2), normal(0.70, 0.01, 3)])
    names = ("a", "b", "c")
    assert rank("A", "the asymptote A", names, draws).conclusive
    open_c = rank("A", "the asymptote A", names, draws, ["c"])
    assert [(p.recipe, p.rank) for p in open_c.places] == [("a", 1), ("c", 1), ("b", 2)]
    assert not open_c.conclusive
    assert open_c.sentence.endswith("in each pair, where both are identified; surely behind: b")
    open_a = rank("A", "the asymptote A", names, draws, ["a"])
    assert [(p.recipe, p.rank) for p in open_a.places] == [("a", 1), ("b", 1), ("c", 2)]
    assert not open_a.conclusive


def test_curves_cross_where_they_do():
    """Lines of slope 1 and 2 in ln C, apart by an offset with sd 0.1: they cross at ln C = 1."""
    ln_C = np.linspace(0.0, 3.0, 31)
    shift = normal(0.0, 0.1)[:, None]
    found = crossing(1.0 + ln_C + shift, 2.0 * ln_C + 0 * shift, ln_C, 0.9)
    assert found.probability == 1.0
    assert np.log([found.low, found.compute, found.high]) == pytest.approx(
        [1.0 - 0.1645, 1.0, 1.0 + 0.1645], abs=0.01
    )
    assert found.first_ahead == 0.0


def test_curves_that_only_part_have_not_crossed():
    ln_C = np.linspace(0.0, 3.0, 31)
    noise = 1e-3 * np.sin(40.0 * ln_C)[None]
    assert crossing(ln_C + noise, 0.0 * ln_C[None], ln_C, 0.9, lead=0.005).probability == 0.0
