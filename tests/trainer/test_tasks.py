"""Tasks: splits, scores that cannot be gamed, and data that cannot be used."""

from __future__ import annotations

import json

import numpy as np
import pytest

from trainer.errors import TaskError
from trainer.tasks.base import final_answer, spread
from trainer.tasks.chain import step_error
from trainer.tasks.registry import make_task
from trainer.tasks.source import PromptSource, check_prompt_ids, encode_prompt, stop_ids

# ---------------------------------------------------------------------- registry


def test_unknown_names_are_refused_with_the_nearest():
    with pytest.raises(TaskError, match=r"unknown task 'chian' \(did you mean chain\?\)"):
        make_task("chian")
    with pytest.raises(TaskError, match=r"no option 'min_term' \(did you mean min_terms\?\)"):
        make_task("chain", {"min_term": 3})


@pytest.mark.parametrize(
    ("name", "options", "words"),
    [
        ("chain", {"min_terms": "x"}, "task chain: min_terms = 'x' must be a whole number"),
        ("chain", {"min_terms": 2.5}, "task chain: min_terms = 2.5 must be a whole number"),
        ("chain", {"max_terms": True}, "task chain: max_terms = True must be a whole number"),
        ("reasoning-gym", {"generators": "chain_sum"}, "generators = 'chain_sum' must be a list"),
        ("code", {"test_s": "5"}, "task code: test_s = '5' must be a number"),
        ("math", {"path": ["a"]}, "task math: path = .'a'. must be text"),
        ("mixture", {"tasks": 3}, "task mixture: tasks = 3 must be a list"),
        ("traps:Typed", {"size": "big"}, "task traps:Typed: size = 'big' must be a whole number"),
    ],
)
def test_options_of_another_type_are_refused(name, options, words):
    with pytest.raises(TaskError, match=words):
        make_task(name, options)


# ---------------------------------------------------------------------- chains


@pytest.mark.parametrize("options", [{}, {"min_terms": 2, "max_terms": 4}])
def test_chain_splits_share_no_question_and_repeat_none(options):
    task = make_task("chain", options)
    train = [task.item("train", i).text for i in range(task.size("train"))]
    held = [task.item("held-out", i).text for i in range(task.size("held-out"))]
    assert len(train) == len(set(train)) == 9 * len(held)
    assert len(set(held)) == len(held)
    assert not set(train) & set(held)
    if not options:
        assert len(train) + len(held) == 10**4


def test_held_out_questions_do_not_depend_on_the_seed():
    def held(seed):
        task = make_task("chain", seed=seed)
        return [task.item("held-out", i).text for i in range(task.size("held-out"))]

    assert held(0) != held(1)
    assert sorted(held(0)) == sorted(held(1))


def test_difficulty_goes_by_index():
    task = make_task("mixed")
    terms = [task.item("train", i).text.count("+") + 1 for i in range(12)]
    assert terms == [3, 4, 5, 6] * 3


def test_chain_answers_are_sums_modulo_ten():
    task = make_task("chain")
    for i in range(200):
        item = task.item("train", i)
        assert item.answer == eval(item.text[:-1]) % 10


@pytest.mark.parametrize(
    ("text", "score"),
    [
        ("<think>8,7,9</think>9", 1.0),
        ("<think></think>9", 1.0),
        ("<think>8,7,9</think>8", 0.0),
        ("<think>8,7,9</think>", 0.0),
        ("<think>8,7,9</think>0123456789", 0.0),
        ("<think>8,7,9</think>8</think>9", 0.0),
        ("<think>8,7,9", 0.0),
        ("9", 0.0),
        ("", 0.0),
    ],
)
def test_chain_scores_one_answer_behind_one_closed_thought(text, score):
    assert make_task("chain").score(text, "3+5+9+2=", 9) == score


def test_step_errors_make_chains_pass_at_the_rate_asked_for():
    task, rng = make_task("chain"), np.random.default_rng(0)
    error = step_error(0.2, 3)
    n, passed = 20_000, 0.0
    for i in range(n):
        item = task.item("train", i % 9000)
        passed += task.score(task.demonstration(item, rng, error), item.question, item.answer)
    assert abs(passed / n - 0.2) < 4 * (0.2 * 0.8 / n) ** 0.5


def test_chains_that_make_no_sense_are_refused():
    with pytest.raises(TaskError, match="must be in order"):
        make_task("chain", {"min_terms": 5, "max_terms": 4})
    with pytest.raises(TaskError, match="no train item 9000"):
        make_task("chain").item("train", 9000)


# ---------------------------------------------------------------------- final answers


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("<answer>4</answer>", "4"),
        ("<answer>3</answer> no, <answer>4</answer>", "4"),
        ("<think><answer>3</answer></think>\\boxed{4}", "4"),
        ("<think>\\boxed{3}", ""),
        ("\\boxed{\\frac{1}{2}} and \\boxed{\\sqrt{3}}", "\\sqrt{3}"),
        ("\\boxed{4", ""),
        ("<answer>4", ""),
        ("the answer is 4", ""),
        ("", ""),
    ],
)
def test_the_final_answer_is_one(text, answer):
    assert final_answer(text) == answer


# ---------------------------------------------------------------------- math


def math_file(path, rows):
    path.write_text("\n".join(map(json.dumps, rows)))
    return str(path)


ROWS = [{"problem": f"What is {n} / 2?", "answer": f"\\frac{{{n}}}{{2}}"} for n in range(1, 80)]


@pytest.fixture(scope="module")
def math(tmp_path_factory):
    pytest.importorskip("math_verify")
    path = math_file(tmp_path_factory.mktemp("math") / "math.jsonl", ROWS)
    return make_task("math", {"path": path})


@pytest.mark.filterwarnings("ignore::DeprecationWarning:latex2sympy2_extended")
@pytest.mark.parametrize(
    ("text", "score"),
    [
        ("so \\boxed{\\frac{3}{2}}", 1.0),
        ("<think>2</think><answer>1.5</answer>", 1.0),
        ("\\boxed{\\frac{6}{4}}", 1.0),
        ("\\boxed{\\frac{5}{2}}", 0.0),
        ("\\frac{3}{2}", 0.0),  # not committed to
        ("\\boxed{}", 0.0),
        ("", 0.0),
        ("\\boxed{" + " ".join(f"{n}/2" for n in range(100)) + "}", 0.0),
        ("\\boxed{" + ", ".join(f"{n}/2" for n in range(100)) + "}", 0.0),
        ("\\boxed{" + "1" * 5000 + "}", 0.0),
    ],
)
def test_math_scores_the_one_final_answer(math, text, score):
    assert math.score(text, "What is 3 / 2?", "\\frac{3}{2}") == score


@pytest.mark.filterwarnings("ignore::DeprecationWarning:latex2sympy2_extended")
def test_math_gold_answers_score_one_and_splits_are_disjoint(math):
    seen = {}
    for split in ("train", "held-out"):
        for i in range(math.size(split)):
            item = math.item(split, i)
            assert math.score(math.gold(item), item.question, item.answer) == 1.0
            seen.setdefault(split, set()).add(item.question)
    assert not seen["train"] & seen["held-out"]
    assert len(seen["train"] | seen["held-out"]) == len(ROWS)


def test_math_numbers_and_list_candidates_do_not_pay(math):
    assert math.score("<answer>" + " ".join(map(str, range(100))) + "</answer>", "?", "7") == 0.0


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (['{"problem": "1+1?", "answer": "2"}', '{"problem": "2+2?"}'], "line 2: no answer"),
        (['{"problem": "1+1?", "answer": null}'], "line 1: no answer"),
        (['{"problem": "", "answer": "2"}'], "line 1: no question"),
        (['{"problem": '], "line 1: not JSON"),
        (["[1, 2]"], "line 1: a list, not an object"),
        ([], "leaves no train questions"),
    ],
)
def test_math_files_that_cannot_be_used_are_refused_by_line(tmp_path, lines, message):
    path = tmp_path / "bad.jsonl"
    path.write_text("\n".join(lines))
    with pytest.raises(TaskError, match=message):
        make_task("math", {"path": str(path)})


def test_math_without_a_file_is_refused(tmp_path):
    with pytest.raises(TaskError, match=r"set task\.args\.path"):
        make_task("math")
    with pytest.raises(TaskError, match="no file"):
        make_task("math", {"path": str(tmp_path / "none.jsonl")})


def test_a_question_of_the_evaluation_file_is_left_out_of_training(tmp_path):
    train = math_file(tmp_path / "train.jsonl", ROWS[:10])
    held = math_file(tmp_path / "held.jsonl", ROWS[8:12])
    task = make_task("math", {"path": train, "held_out": held})
    assert task.size("train") == 8
    assert task.size("held-out") == 4


def test_math_reads_parquet(tmp_path):
    pa = pytest.importorskip("pyarrow")
    import pyarrow.parquet as pq

    path = tmp_path / "math.parquet"
    pq.write_table(pa.Table.from_pylist(ROWS), path)
    task = make_task("math", {"path": str(path)})
    assert task.size("train") + task.size("held-out") == len(ROWS)


# ---------------------------------------------------------------------- Reasoning Gym


@pytest.fixture(scope="module")
def gym():
    pytest.importorskip("reasoning_gym")
    options = {
        "generators": ["chain_sum", "countdown"],
        "weights": [3, 1],
        "settings": {"chain_sum": {"max_terms": 3}},
        "items": 1000,
    }
    return make_task("reasoning-gym", options)


def test_gym_items_are_a_function_of_the_index(gym):
    assert gym.item("train", 7) == gym.item("train", 7)
    assert len({gym.item("train", i).text for i in range(50)}) > 40


def test_gym_mixture_has_the_weights_asked_for(gym):
    names = [gym.item("train", i).question[0] for i in range(200)]
    share = names.count("chain_sum") / len(names)
    assert abs(share - 0.75) < 4 * (0.75 * 0.25 / 200) ** 0.5


def test_gym_splits_share_no_question(gym):
    train = {gym.item("train", i).text for i in range(200)}
    held = {gym.item("held-out", i).text for i in range(25)}
    assert not train & held


def test_gym_gold_scores_one_and_partial_credit_nothing(gym):
    for i in range(20):
        item = gym.item("held-out", i)
        assert gym.score(gym.gold(item), item.question, item.answer) == 1.0
        assert gym.score("", item.question, item.answer) == 0.0
        assert gym.score("<answer></answer>", item.question, item.answer) == 0.0
        every = " ".join(map(str, range(-2000, 2000)))
        assert gym.score(f"<answer>{every}</answer>", item.question, item.answer) == 0.0


def test_gym_partial_credit_is_paid_when_asked_for():
    pytest.importorskip("reasoning_gym")
    task = make_task("reasoning-gym", {"generators": ["chain_sum"], "partial": True})
    item = task.item("train", 0)
    assert 0 < task.score(f"<answer>it is {item.answer}</answer>", item.question, "") < 1


def test_gym_answers_that_come_as_metadata_are_gold():
    pytest.importorskip("reasoning_gym")
    task = make_task("reasoning-gym", {"generators": ["graph_color", "rubiks_cube"]})
    for i in range(6):
        item = task.item("train", i)
        assert task.score(task.gold(item), item.question, item.answer) == 1.0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "no generators"),
        ({"generators": ["chain_sums"]}, r"did you mean chain_sum\?"),
        ({"generators": ["chain_sum"], "weights": [1, 2]}, "2 weights for 1 generators"),
        ({"generators": ["chain_sum"], "weights": [-1]}, "must be positive"),
        ({"generators": ["chain_sum"], "settings": {"chain_sum": {"terms": 3}}}, "refuses its"),
        ({"generators": ["chain_sum"], "settings": {"countdown": {}}}, "not used"),
    ],
)
def test_gym_options_that_cannot_be_used_are_refused(options, message):
    pytest.importorskip("reasoning_gym")
    with pytest.raises(TaskError, match=message):
        make_task("reasoning-gym", options)


def test_gym_generators_without_an_answer_are_refused_unless_accepted():
    pytest.importorskip("reasoning_gym")
    task = make_task("reasoning-gym", {"generators": ["rush_hour"]})
    with pytest.raises(TaskError, match="rush_hour gives no answer"):
        task.gold(task.item("train", 0))
    task = make_task("reasoning-gym", {"generators": ["rush_hour"], "unchecked": True})
    assert task.gold(task.item("train", 0)) == ""


# ---------------------------------------------------------------------- prompts


@pytest.fixture(scope="module")
def tokenizer(tiny_model):
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(tiny_model)


def test_prompts_have_one_bos_and_the_ids_of_their_text(tokenizer):
    source = PromptSource(make_task("chain"), tokenizer, 9)
    source.check()
    prompt = source.train(1)
    assert prompt.ids[0] == tokenizer.bos_token_id
    assert tokenizer.bos_token_id not in prompt.ids[1:]
    assert tokenizer.decode(prompt.ids[1:]) == prompt.question == "6+1+8+1="
    assert (prompt.answer, prompt.index, prompt.id) == (6, 1, "6+1+8+1=")


def test_a_chat_template_is_rendered_once(tokenizer):
    import copy

    chat = copy.deepcopy(tokenizer)
    chat.chat_template = "{{ bos_token }}{{ messages[0]['content'] }}<think>"
    assert encode_prompt(chat, "1+2=") == (*encode_prompt(tokenizer, "1+2="), 3)


def test_two_bos_tokens_are_refused(tokenizer):
    import copy

    chat = copy.deepcopy(tokenizer)
    chat.chat_template = "{{ bos_token }}{{ bos_token }}{{ messages[0]['content'] }}"
    with pytest.raises(TaskError, match="two BOS"):
        encode_prompt(chat, "1+2=")
    with pytest.raises(TaskError, match="no tokens"):
        check_prompt_ids([], None)


def test_text_the_tokenizer_cannot_write_is_refused(tokenizer):
    with pytest.raises(TaskError, match="cannot write 'What is 1/2\\?'"):
        encode_prompt(tokenizer, "What is 1/2?")


def test_a_prompt_beyond_the_budget_is_refused_before_training(tokenizer):
    with pytest.raises(TaskError, match="has 9 tokens, more than the budget of 8"):
        PromptSource(make_task("chain"), tokenizer, 8).check()


def test_the_longest_level_is_met_whatever_the_number_of_levels(tokenizer):
    task = make_task("mixed")  # 3 to 6 terms by index: even steps met 3 and 5 terms alone
    with pytest.raises(TaskError, match="has 13 tokens, more than the budget of 12"):
        PromptSource(task, tokenizer, 12).check()
    seen = {task.item("train", i).text.count("+") for i in spread(task.size("train"), 4)}
    assert seen == {2, 3, 4, 5}


@pytest.mark.parametrize("size", [1, 2, 36, 97, 3600, 10**6])
@pytest.mark.parametrize("number", [1, 16, 256])
def test_spread_indices_are_different_and_within_the_list(size, number):
    indices = spread(size, number)
    assert len(set(indices)) == len(indices) == min(size, number)
    assert 0 <= indices[0] <= indices[-1] < size


def test_more_held_out_prompts_than_there_are_is_refused(tokenizer):
    source = PromptSource(make_task("chain"), tokenizer, 20)
    with pytest.raises(TaskError, match="1001 held-out prompts asked for, task chain has 1000"):
        source.held_out(1001)


def test_stop_ids_come_from_tokenizer_config_and_generation_settings(tokenizer, tmp_path):
    (tmp_path / "config.json").write_text('{"eos_token_id": 5}')
    (tmp_path / "generation_config.json").write_text('{"eos_token_id": [5, 7]}')
    assert stop_ids(tokenizer, tmp_path) == (2, 5, 7)
