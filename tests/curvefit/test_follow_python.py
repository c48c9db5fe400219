"""`curvefit.follow`, the watch behind it, and the sentences that say what is new."""

import warnings

import numpy as np
import pytest
from following import END, trainer_log
from test_cli import RISE, csv_of

import curvefit
from curvefit import CurvefitWarning, InputError
from curvefit.follow_report import Lines, cells, news
from curvefit.readers import request_of
from curvefit.watch import Change, Watch

SLOW = [(100 * k, 0.2 + 0.4 * k / (k + 4)) for k in range(13)]


def watch_of(*files):
    return Watch([str(file) for file in files], request_of(*[None] * 6), curvefit.fit)


# ---------------------------------------------------------------- the iterator


def test_fits_come_as_the_log_grows_and_end_with_the_run(tmp_path):
    file = tmp_path / "log.jsonl"
    lines = trainer_log(SLOW)
    file.write_text("".join(lines[:17]))  # eight evaluations
    points = []
    for fit in curvefit.follow(file, every=0.01):
        points.append(len(fit.run))
        if len(points) == 1:
            file.write_text("".join(lines[:21]))
        if len(points) == 2:
            file.write_text("".join([*lines, END]))
    assert points == [8, 10, 13]
    assert fit.run.name == "tiny"


def test_the_last_fit_is_that_of_the_whole_file(tmp_path):
    file = tmp_path / "log.jsonl"
    file.write_text("".join([*trainer_log(SLOW), END]))
    (found,) = curvefit.follow(file, law="sigmoid", level=0.8)
    expected = curvefit.fit(curvefit.load(file)[0], law="sigmoid", level=0.8)
    assert found.to_dict() == expected.to_dict()


def test_what_is_waited_for_is_a_warning_once(tmp_path):
    file = tmp_path / "log.jsonl"
    file.write_text("".join(trainer_log(SLOW[:2])))
    fits = curvefit.follow(file, every=0.01)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(CurvefitWarning, match="has 2 points"):
            next(fits)
    watch = watch_of(file)
    assert len(watch.look().troubles) == 1
    file.write_text("".join(trainer_log(SLOW[:1])))
    assert watch.look().troubles == ()  # one point is the same news as two


@pytest.mark.parametrize(
    ("source", "options", "words"),
    [
        ("a.csv", {"every": 0}, "above 0"),
        ("a.csv", {"every": float("nan")}, "above 0"),
        ("a.csv", {"law": "cubic"}, "cubic"),
        ("a.csv", {"method": "guess"}, "guess"),
        ("a.csv", {"level": 90}, "0.9"),
        ("a.csv", {"n": 0}, "size"),
        ("-", {}, "standard input"),
        ([], {}, "nothing to follow"),
    ],
)
def test_a_wrong_option_is_an_error_before_any_file_is_read(source, options, words):
    with pytest.raises(InputError, match=words):
        curvefit.follow(source, **options)


def test_what_more_data_cannot_mend_is_an_error(tmp_path):
    file = tmp_path / "log.csv"
    file.write_text("gpu_hours,eval/a,eval/b\n1,0.2,0.6\n2,0.3,0.5\n3,0.4,0.4\n")
    with pytest.raises(curvefit.AmbiguousColumn, match="eval/a"):
        next(curvefit.follow(file))


# ---------------------------------------------------------------- the watch


def test_only_runs_whose_points_changed_are_fitted(tmp_path):
    first, second = tmp_path / "a.csv", tmp_path / "b.csv"
    for file in (first, second):
        file.write_text(csv_of(RISE))
    watch = watch_of(first, second)
    assert [change.fit.run.name for change in watch.look().changes] == ["a", "b"]
    kept = watch.fits["b"]
    first.write_text(csv_of([*RISE, (640, 0.55)]))
    second.touch()
    assert [change.fit.run.name for change in watch.look().changes] == ["a"]
    assert watch.fits["b"] is kept
    assert list(watch.fits) == ["a", "b"]


def test_training_steps_between_evaluations_refit_nothing(tmp_path):
    file = tmp_path / "log.jsonl"
    lines = trainer_log(SLOW)
    file.write_text("".join(lines[:17]))
    watch = watch_of(file)
    assert len(watch.look().changes) == 1
    file.write_text("".join(lines[:18]))  # one more event: a step
    assert watch.look().changes == ()


def test_a_fault_that_passes_is_no_trouble_and_one_that_stays_is(tmp_path):
    file = tmp_path / "log.json"
    good = '[{"step": 0, "acc": 0.1}, {"step": 1, "acc": 0.2}, {"step": 2, "acc": 0.3}]'
    file.write_text(good)
    watch = watch_of(file)
    watch.look()
    file.write_text(good[:-9])  # caught while it is written
    assert watch.look().troubles == ()
    file.write_text(good)
    assert watch.look() == ((), (), ())
    file.unlink()
    looks = [watch.look() for _ in range(4)]
    assert [len(look.troubles) for look in looks] == [0, 1, 0, 0]
    assert looks[1].troubles[0].kept
    assert len(watch.fits) == 1
    file.write_text(good)
    assert watch.look().mended == (str(file),)


def test_reading_that_takes_long_is_done_less_often(tmp_path):
    file = tmp_path / "a.csv"
    file.write_text(csv_of(RISE))
    watch = Watch([str(file)], request_of(*[None] * 6), _slow_fit)
    watch.look()
    assert watch.pause(0.001) > 4 * 0.05
    assert watch.pause(60.0) == 60.0


def _slow_fit(run):
    import time

    time.sleep(0.05)
    return curvefit.fit(run)


def test_a_rewound_run_has_lost_points(tmp_path):
    file = tmp_path / "a.csv"
    file.write_text(csv_of(RISE))
    watch = watch_of(file)
    watch.look()
    file.write_text(csv_of([*RISE[:5], (160, 0.47)]))  # two of seven points are gone
    (change,) = watch.look().changes
    assert (change.lost, change.points) == (2, True)


# ---------------------------------------------------------------- what is said


def test_a_doubt_is_stated_once_and_then_by_its_code():
    early, late = (curvefit.fit(*zip(*SLOW[:n], strict=True)) for n in (5, 13))
    told = set()
    news(Change(late, None, True, 0), told)
    back = news(Change(early, late, True, 8), told)
    assert back[0].startswith("8 earlier points are gone")
    assert sum(line.startswith("new doubt: few-points: 5 points") for line in back) == 1
    gone = news(Change(late, early, True, 0), told)
    assert any("no longer in doubt" in line and "few-points" in line for line in gone)
    again = news(Change(early, late, True, 0), told)
    assert any("in doubt again" in line and "few-points" in line for line in again)
    assert not any("new doubt: few-points" in line for line in again)


def test_a_new_verdict_and_a_forecast_that_left_its_interval_are_news():
    rising = [(x, y + 0.01 * (-1) ** k) for k, (x, y) in enumerate(SLOW[:9])]
    stalled = [*rising, *((100 * k, 0.42 + 0.01 * (-1) ** k) for k in range(9, 40))]
    early, late = (curvefit.fit(*zip(*points, strict=True)) for points in (rising, stalled))
    (old,), (new,) = early.forecast([2000]), late.forecast([2000])
    assert new.score == pytest.approx(0.42, abs=0.01)  # where the run stalls
    assert new.score < old.low
    said = news(Change(late, early, True, 0), set(), at=(2000.0,))
    left = f"the forecast at 2,000 compute left its last interval, [{old.low:.3f}, {old.high:.3f}]"
    assert said[0] == left
    assert said[1].startswith("A was not identified; now the asymptote is identified: A = 0.42")


def test_a_line_without_intervals_and_with_held_out_points():
    fit = curvefit.fit(*zip(*SLOW, strict=True), method="least-squares", until=800)
    row = cells(Change(fit, None, True, 0), at=(2000.0,), reach=(0.5,))
    # 0.2 + 0.4 * 20 / 24 at step 2,000; 0.5 is reached at k / (k + 4) = 0.75: k = 12
    assert row[3].startswith("at 2,000: 0.533")
    assert "moved" not in row[3]
    assert row[4].startswith("4 held out, off by ")
    assert row[5].startswith("reaches 0.5: 1,200")
    assert row[6].startswith("A: 0.6")


def test_columns_stand_under_each_other():
    lines = Lines()
    first = lines.line(["a", "long cell", "end of the first"])
    second = lines.line(["a", "cell", "end"])
    assert first.index("end") == second.index("end")
    assert np.diff([len(lines.line(["a", "news " * 20])), len(second)])[0] < 0
    assert lines.line(["a", "cell", "end"]) == second
