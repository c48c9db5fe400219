"""Several tasks in one run: shares, splits, checks of each, and a log that tells them apart."""

from __future__ import annotations

import json
import math
from collections import Counter

import factory
import pytest
from hypothesis import given
from hypothesis import strategies as st

from curvefit import load as load_curve
from trainer.by_task import evaluation_of, reward_of
from trainer.cli import main
from trainer.config import load, save
from trainer.curriculum import Curriculum
from trainer.errors import ConfigError, TaskError
from trainer.ledger import read
from trainer.setup import tiny_settings
from trainer.tasks.canary import canary
from trainer.tasks.order import Order
from trainer.tasks.registry import make_task
from trainer.tasks.source import PromptSource
from trainer.types import Group, Prompt
from trainer.verify import Answer, Verifier


def chain(terms, label, share=1):
    args = {"min_terms": terms, "max_terms": terms}
    return {"name": "chain", "label": label, "share": share, "args": args}


def mixture(*tasks, seed=0):
    return make_task("mixture", {"tasks": list(tasks)}, seed=seed)


def questions(path, numbers):
    rows = ({"question": f"What is {n} + 1?", "answer": str(n + 1)} for n in numbers)
    path.write_text("\n".join(map(json.dumps, rows)))
    return str(path)


# ---------------------------------------------------------------------- shares


def test_tasks_take_turns_as_worked_by_hand():
    # of six places 0 is due within 0-1, 2-3, 4-5, 1 within 0-2, 3-5, and 2 within 0-5
    order = Order([3, 2, 1], [30, 20, 10])
    first = [(0, 0), (1, 0), (0, 1), (2, 0), (1, 1), (0, 2)]
    second = [(0, 3), (1, 2), (0, 4), (2, 1), (1, 3), (0, 5)]
    assert [order[i] for i in range(12)] == first + second
    assert order[59] == (0, 29)
    assert len(order) == 60


@given(st.lists(st.integers(1, 7), min_size=1, max_size=5), st.integers(1, 4))
def test_every_block_has_each_task_as_often_as_its_share_wherever_it_begins(shares, blocks):
    order = Order(shares, [blocks * share for share in shares])
    tasks = [order[i][0] for i in range(len(order))]
    width = sum(shares)
    for start in range(len(order) - width + 1):
        assert Counter(tasks[start : start + width]) == dict(enumerate(shares))
    for end in range(len(order)):  # and no beginning is a whole place off
        for task, share in enumerate(shares):
            assert abs(tasks[:end].count(task) * width - end * share) < width


@given(st.lists(st.tuples(st.integers(1, 4), st.integers(1, 9)), min_size=1, max_size=4))
def test_a_task_that_has_no_more_leaves_its_places_to_the_others(pairs):
    shares, lengths = zip(*pairs, strict=True)
    order = Order(shares, lengths)
    endless = Order(shares, [20 * share for share in shares])
    expected = [endless[i] for i in range(len(endless)) if endless[i][1] < lengths[endless[i][0]]]
    assert [order[i] for i in range(len(order))] == expected
    assert len(order) == sum(lengths)


def test_training_is_as_long_as_the_smallest_generated_task_allows():
    task = mixture(chain(2, "two", 3), chain(4, "four", 2))  # 90 and 9,000 training questions
    assert task.size("train") == 30 * 5
    assert task.size("held-out") == 10 + 1000
    assert not task.listed


def test_every_question_of_a_list_is_trained_on_and_a_short_list_begins_again(tmp_path):
    many = questions(tmp_path / "many.jsonl", range(120))
    few = questions(tmp_path / "few.jsonl", range(1000, 1020))
    task = mixture(
        {"name": "math", "label": "many", "share": 2, "args": {"path": many}},
        {"name": "math", "label": "few", "args": {"path": few}},
        chain(3, "three"),
    )
    parts = task.parts
    blocks = math.ceil(parts["many"].size("train") / 2)
    assert task.listed
    assert task.size("train") == 4 * blocks
    seen = Counter(task.item("train", i).id for i in range(task.size("train")))
    of = {label: [n for name, n in seen.items() if name.startswith(label)] for label in parts}
    assert len(of["many"]) == parts["many"].size("train")
    assert len(of["few"]) == parts["few"].size("train") < blocks
    assert max(of["few"]) - min(of["few"]) == 1
    assert [sum(of[label]) for label in ("many", "few", "three")] == [2 * blocks, blocks, blocks]


# ---------------------------------------------------------------------- items and splits


def test_splits_share_no_question_and_nothing_held_out_comes_twice(tmp_path):
    path = questions(tmp_path / "math.jsonl", range(90))
    task = mixture(
        chain(2, "two"), {"name": "math", "share": 3, "args": {"path": path}}, chain(3, "three")
    )
    train = {task.item("train", i).text for i in range(task.size("train"))}
    held = [task.item("held-out", i).text for i in range(task.size("held-out"))]
    assert not train & set(held)
    assert len(held) == len(set(held)) == 10 + 100 + task.parts["math"].size("held-out")


def test_what_one_list_holds_out_no_other_trains_on(tmp_path):
    train, held = (tmp_path / f"{name}.jsonl" for name in ("train", "held"))
    args = {"path": questions(train, range(10)), "held_out": questions(held, range(40, 45))}
    other = {"path": questions(tmp_path / "other.jsonl", range(30, 60))}
    one = {"name": "math", "label": "one", "args": args}
    alone = mixture(one).parts
    both = mixture(one, {"name": "math", "label": "two", "args": other}).parts
    assert alone["one"].size("train") == both["one"].size("train") == 10
    two = both["two"]
    trained = {two.item("train", i).question[1] for i in range(two.size("train"))}
    kept = {two.item("held-out", i).question[1] for i in range(two.size("held-out"))}
    elsewhere = {f"What is {n} + 1?" for n in range(40, 45)}
    assert not trained & elsewhere
    assert trained | kept | elsewhere == {f"What is {n} + 1?" for n in range(30, 60)}
    apart = questions(tmp_path / "apart.jsonl", range(70, 75))
    same = {"path": questions(tmp_path / "same.jsonl", range(40, 45)), "held_out": str(apart)}
    with pytest.raises(TaskError, match="all training questions of same are held out by another"):
        _ = mixture(one, {"name": "math", "label": "same", "args": same}).parts


def test_items_are_the_tasks_own_under_a_label():
    task = mixture(chain(3, "three", 2), chain(4, "four"), seed=5)
    item = task.item("train", 1)  # three, four, three
    own = make_task("chain", {}, seed=5).item("train", 0)
    assert (item.id, item.label) == (f"four/{own.id}", "four")
    assert (item.text, item.answer, item.question) == (own.text, own.answer, [1, own.question])
    assert task.gold(item) == make_task("chain").gold(own)
    assert task.score(task.gold(item), item.question, item.answer) == 1.0
    assert task.score(task.gold(item), [0, own.question], (own.answer + 1) % 10) == 0.0
    with pytest.raises(TaskError, match="no train item 1350; there are 1350"):
        task.item("train", 1350)  # 450 blocks of 2 + 1: three has 900


MATH = "mixture: math: math: no file; set"


@pytest.mark.parametrize(
    ("tasks", "message"),
    [
        ([], r"mixture: no tasks; set task\.args\.tasks = "),
        ({"name": "chain"}, "task mixture: tasks = .* must be a list"),
        (["chain"], "mixture: task 1 is 'chain'; write a table"),
        ([{"share": 1}], "mixture: task 1 has no name"),
        ([{"name": "chain", "shares": 2}], r"task 1 has no key 'shares' \(did you mean share\?\)"),
        ([{"name": "mixture"}], "mixture: task 1 is a mixture itself"),
        ([{"name": "chain", "share": 0}], "task 1 has share = 0, which must be a whole number"),
        ([{"name": "chain", "share": 0.5}], "task 1 has share = 0.5"),
        ([{"name": "chain", "share": True}], "task 1 has share = True"),
        ([{"name": "chain", "share": 10**7}], "shares add up to more than 200,000"),
        ([{"name": "chain", "label": "a/b"}], "task 1 has label = 'a/b'"),
        ([{"name": "chain", "args": [3]}], r"task 1 has args = \[3\], which must be a table"),
        ([{"name": "chain"}, {"name": "chain"}], "mixture: 2 tasks are called chain"),
        ([{"name": "chian"}], r"mixture: chian: unknown task 'chian' \(did you mean chain\?\)"),
        ([{"name": "chain", "args": {"min_term": 3}}], "mixture: chain: task chain has no option"),
        ([chain(1, "short")], "mixture: short: chain: min_terms 1 and max_terms 1 must be"),
        ([{"name": "chain"}, {"name": "math"}], MATH),
    ],
)
def test_tables_that_cannot_be_used_are_refused_in_one_line(tasks, message):
    with pytest.raises(TaskError, match=message) as caught:
        make_task("mixture", {"tasks": tasks})
    assert "\n" not in str(caught.value)


# ---------------------------------------------------------------------- checks of every task


@pytest.mark.parametrize(
    ("trap", "message"),
    [
        ("Deaf", "the gold completion of 'deaf/train0' .* scores 0.0, not 1"),
        ("Generous", "the empty completion of 'deaf/train0' .* scores 1.0, not 0"),
    ],
)
def test_the_canary_finds_the_bad_verifier_with_the_smallest_share(trap, message):
    tasks = [chain(4, "four", 63), {"name": f"traps:{trap}", "label": "deaf"}]
    verifier = Verifier("mixture", {"tasks": tasks}, deadline_s=0.5)
    try:
        with pytest.raises(TaskError, match=message):
            canary(mixture(*tasks), verifier, number=2)
    finally:
        verifier.close()


def test_the_canary_lets_sound_verifiers_pass_and_answers_go_to_the_task_that_asked():
    tasks = [{"name": "traps:Trap", "label": "trap"}, chain(3, "three")]
    verifier = Verifier("mixture", {"tasks": tasks}, deadline_s=0.5)
    try:
        canary(mixture(*tasks), verifier, number=3)
        texts = [("right", 0, 1.0), ("<think></think>6", 0, 0.0), ("<think></think>6", 1, 1.0)]
        answers = [Answer(i, t, [k, None], ("right", 6)[k]) for i, (t, k, _) in enumerate(texts)]
        assert [v.reward for v in verifier.score(answers)] == [reward for _, _, reward in texts]
    finally:
        verifier.close()


@pytest.fixture(scope="module")
def tokenizer(tiny_model):
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(tiny_model)


def test_the_long_prompts_of_a_rare_task_are_found_before_training(tokenizer):
    task = mixture(chain(4, "four", 4999), chain(6, "six"))
    PromptSource(task, tokenizer, 13).check()
    with pytest.raises(TaskError, match="of task six has 13 tokens, more than the budget of 12"):
        PromptSource(task, tokenizer, 12).check()


def test_a_task_without_a_held_out_prompt_is_refused(tokenizer):
    source = PromptSource(mixture(chain(3, "three", 9), chain(4, "four")), tokenizer, 20)
    with pytest.raises(TaskError, match=r"first 4 held-out prompts of task mixture .* four; raise"):
        source.held_out(4)
    assert Counter(prompt.label for prompt in source.held_out(20)) == {"three": 18, "four": 2}


def test_the_code_of_a_mixture_needs_the_verifiers_time_too():
    tables = '[{name = "chain"}, {name = "code", args = {total_s = 9}}]'
    flags = ["--task.name", "mixture", "--task.args.tasks", tables]
    with pytest.raises(
        ConfigError, match=r"deadline_s = 10 is too short for task\.args\.total_s = 9"
    ):
        load([], None, flags)
    assert load([], None, [*flags, "--task.deadline_s", "10.5"]).task.deadline_s == 10.5


def test_tables_of_a_file_are_saved_and_read_back_unchanged(tmp_path):
    (tmp_path / "given.toml").write_text(
        """
        [task]
        name = "mixture"
        [[task.args.tasks]]
        name = "chain"
        share = 2
        args = {min_terms = 3}
        [[task.args.tasks]]
        name = "mixed"
        label = "long"
        """
    )
    config = load([], tmp_path / "given.toml")
    save(config, tmp_path / "saved.toml")
    assert load([], tmp_path / "saved.toml") == config
    task = make_task(config.task.name, config.task.args)
    assert [task.item("train", i).label for i in range(3)] == ["chain", "long", "chain"]


def test_a_tiny_model_of_another_task_does_not_get_the_runs_settings():
    flags = ["--task.name", "mixture", "--task.args.tasks", '[{name = "chain"}]']
    assert tiny_settings(load([], None, flags)).options == {"tasks": [{"name": "chain"}]}
    flags += ["--model.tiny.task", "mixed"]
    settings = tiny_settings(load([], None, flags))
    assert (settings.task, settings.options) == ("mixed", {})


# ---------------------------------------------------------------------- resume


def test_a_resumed_curriculum_draws_what_the_whole_one_does(tmp_path, tokenizer):
    path = questions(tmp_path / "math.jsonl", range(40))
    tables = [{"name": "math", "args": {"path": path}}, chain(2, "two", 2)]

    def curriculum():
        task = mixture(*tables)  # made anew, as by another start

        def prompt_at(index):
            item = task.item("train", index)
            return Prompt(item.id, (1,), item.question, item.answer, index, item.label)

        return Curriculum(prompt_at, task.size("train"), factory.config())

    whole, first, second = curriculum(), curriculum(), curriculum()
    expected = whole.draw(300)
    got = first.draw(101)
    second.load_state_dict(first.state_dict())
    assert second.take_back() == got
    assert got + second.draw(199) == expected


# ---------------------------------------------------------------------- the log


def group(number, label, rewards):
    rollouts = [factory.rollout(number, (1,), 2, r, seed=i) for i, r in enumerate(rewards)]
    return Group(number, Prompt(f"{label}/{number}", (1,), None, None, number, label), rollouts)


def test_each_task_is_counted_by_hand():
    groups = [
        group(0, "a", [1.0, 0.0, 0.0, 0.0]),
        group(1, "b", [1.0, 1.0, 0.5, 0.0]),
        group(2, "a", [1.0, 1.0, 1.0, 0.0]),
        group(3, "c", [None, None]),
    ]
    row = evaluation_of(groups, n=4, ks=[1, 4])
    assert row == {
        "pass_rate_of": {"a": 0.5, "b": 0.5, "c": None},
        "n_prompts_of": {"a": 2, "b": 1, "c": 0},
        "pass_at_k_of": {"a": {"1": 0.5, "4": 1.0}, "b": {"1": 0.5, "4": 1.0}, "c": {}},
    }
    assert reward_of(groups) == {"reward_of": {"a": 0.5, "b": 0.625}}


def test_a_run_over_one_task_logs_none_of_it():
    groups = [group(0, "", [1.0, 0.0])]
    assert evaluation_of(groups, n=2, ks=[1]) == {}
    assert reward_of(groups) == {}


TABLES = """[
    {name = "chain", label = "three", share = 3, args = {min_terms = 3, max_terms = 3}},
    {name = "chain", label = "four"},
]""".replace("\n", " ")
SMALL = {
    "run.steps": 4,
    "sample.prompts": 6,
    "sample.group": 4,
    "eval.prompts": 22,
    "eval.samples": 2,
    "eval.every": 1,
    "task.name": "mixture",
    "task.args.tasks": TABLES,
}


def train(out, name, model, **settings):
    values = {**SMALL, "run.out": out, "run.name": name, "model.path": model}
    values |= {key.replace("__", "."): value for key, value in settings.items()}
    flags = [part for key, value in values.items() for part in (f"--{key}", str(value))]
    assert main(["--recipe", "tiny", *flags]) == 0
    return out / name


def rows(folder, event):
    found = [row for row in read(folder / "log.jsonl") if row["event"] == event]
    return [
        {k: v for k, v in row.items() if not k.startswith("gpu_hours") and not k.endswith("_s")}
        for row in found
    ]


@pytest.fixture(scope="module")
def folder(tmp_path_factory, tiny_model):
    return train(tmp_path_factory.mktemp("runs"), "whole", tiny_model)


def test_the_pass_rate_is_the_mean_of_the_tasks_weighted_by_their_prompts(folder):
    evaluations = rows(folder, "eval")
    assert len(evaluations) == 5
    for row in evaluations:
        rates, prompts = row["pass_rate_of"], row["n_prompts_of"]
        assert prompts == {"three": 17, "four": 5}  # 3, 3, 4, 3 five times, and 3, 3
        whole = sum(rates[label] * n for label, n in prompts.items()) / row["n_prompts"]
        assert row["pass_rate"] == pytest.approx(whole, abs=1e-12)
        assert {label: k["1"] for label, k in row["pass_at_k_of"].items()} == rates
    assert any(row["pass_rate_of"]["three"] != row["pass_rate_of"]["four"] for row in evaluations)
    for row in rows(folder, "step"):
        assert min(row["reward_of"].values()) <= row["reward"] <= max(row["reward_of"].values())


def test_fit_curve_reads_each_task_with_its_own_size(folder):
    log = folder / "log.jsonl"
    rates = [row["pass_rate_of"] for row in rows(folder, "eval")]
    for label, n in (("three", 34), ("four", 10)):
        run = load_curve(log, y=f"pass_rate_of/{label}")[0]
        assert run.score.tolist() == [rate[label] for rate in rates]
        assert run.n_eval.tolist() == [n] * 5
    run = load_curve(log)[0]
    assert (run.y.column, run.n_eval.tolist()) == ("pass_rate", [44] * 5)


def test_a_run_that_is_resumed_goes_on_as_the_whole_one(folder, tmp_path, tiny_model, capsys):
    cut = train(tmp_path, "cut", tiny_model, run__steps=2)
    assert main(["--resume", str(cut), "--run.steps", "4"]) == 0
    for event in ("step", "eval"):
        assert rows(cut, event) == rows(folder, event)
    assert f"one:  fit-curve {cut / 'log.jsonl'} --until 50% --y pass_rate_of/three" in (
        capsys.readouterr().err
    )


def test_a_mixture_that_cannot_be_used_is_one_line_and_exit_2(tmp_path, tiny_model, capsys):
    flags = ["--run.out", str(tmp_path), "--model.path", str(tiny_model), "--task.name", "mixture"]
    assert (
        main(["--recipe", "tiny", *flags, "--task.args.tasks", '[{name = "chain", sahre = 2}]'])
        == 2
    )
    error = capsys.readouterr().err.splitlines()
    assert error[-1].startswith(
        "train-rl: mixture: task 1 has no key 'sahre' (did you mean share?)"
    )
