"""One behavioural suite for every engine; the reference is the transformers module."""

from __future__ import annotations

import math
import os
import signal
import subprocess
import sys
import time
from contextlib import ExitStack, closing
from inspect import signature
from pathlib import Path

import numpy as np
import pytest
import serving
import torch
from engines import ask, gap, load, prompts, reference
from transformers import DynamicCache

from trainer.engine import open_engine
from trainer.engine.base import SamplingParams, Span, generate
from trainer.engine.local import LocalEngine
from trainer.engine.served import ServedEngine
from trainer.errors import EngineError


@pytest.fixture(
    scope="module",
    params=[
        ("local", "cpu"),
        ("process", "cpu"),
        ("served", "cpu"),
        pytest.param(("local", "cuda"), marks=pytest.mark.gpu),
        pytest.param(("served", "vllm"), marks=[pytest.mark.vllm, pytest.mark.slow]),
        pytest.param(("vllm", "cpu"), marks=[pytest.mark.vllm, pytest.mark.slow]),
        pytest.param(("vllm", "cuda"), marks=[pytest.mark.vllm, pytest.mark.gpu, pytest.mark.slow]),
    ],
    ids="-".join,
)
def engine(request, directory):
    kind, device = request.param
    with ExitStack() as stack:
        options = {"deadline_s": 60.0, "slots": 6}
        if device == "vllm":
            from vllm_server import vllm_server

            options["addresses"] = [stack.enter_context(vllm_server(directory, slots=6))]
        elif kind == "served":
            servers = stack.enter_context(serving.processes(directory, "127.0.0.1", slots=6))
            options["addresses"] = [server.address for server in servers]
        else:
            options["device"] = device
        engine = stack.enter_context(closing(open_engine(kind, directory, **options)))
        yield engine


# ---------------------------------------------------------------------- distribution


@pytest.mark.parametrize("temperature", [1.0, 0.6, 1.5])
def test_logprobs_are_those_of_the_processed_distribution(engine, model_a, temperature):
    load(engine, model_a)
    requests = [ask(p, seed=i, temperature=temperature) for i, p in enumerate(prompts(20))]
    for request, completion in zip(requests, generate(engine, requests), strict=True):
        assert gap(model_a, request, completion) < 1e-4
        if temperature != 1.0:  # and not those at temperature 1
            plain = reference(model_a, request.ids, completion.ids)
            assert (plain - torch.tensor(completion.logprobs)).abs().mean() > 0.02


@pytest.mark.parametrize(
    ("kind", "tied", "settings"),
    [
        ("qwen3", True, {}),
        ("qwen2", False, {}),
        ("mistral", False, {"sliding_window": None}),
        ("llama", False, {"attention_bias": True}),
        (
            "llama",
            True,
            {
                "rope_parameters": {
                    "rope_type": "llama3",
                    "rope_theta": 10000.0,
                    "factor": 4.0,
                    "low_freq_factor": 1.0,
                    "high_freq_factor": 4.0,
                    "original_max_position_embeddings": 32,
                }
            },
        ),
    ],
)
def test_every_supported_kind_of_model_agrees_with_transformers(
    random_model, tmp_path, kind, tied, settings
):
    model = random_model(kind, tied=tied, seed=3, **settings)
    model.save_pretrained(tmp_path)
    engine = LocalEngine.from_directory(tmp_path, slots=4)
    requests = [ask(p, 60, seed=i) for i, p in enumerate(prompts(8))]
    for request, completion in zip(requests, generate(engine, requests), strict=True):
        assert gap(model, request, completion) < 1e-4


def test_first_tokens_follow_the_models_distribution(engine, model_a):
    load(engine, model_a)
    n, prompt = 4000, [3, 1, 4]
    requests = [ask(prompt, 1, seed=i) for i in range(n)]
    counts = torch.zeros(23)
    for completion in generate(engine, requests):
        counts[completion.ids[0]] += 1
    with torch.no_grad():
        p = torch.softmax(model_a(torch.tensor([prompt])).logits[0, -1].double(), -1)
    expected = n * p
    big = expected > 5
    chi2 = float((((counts - expected) ** 2 / expected)[big]).sum())
    freedom = int(big.sum()) - 1
    assert chi2 < freedom + 5 * math.sqrt(2 * freedom)


def nucleus(p, top_p):
    """The smallest set of likeliest tokens that has top_p, token by token."""
    kept, total = {}, 0.0
    for token in np.argsort(-p, kind="stable"):
        if total >= top_p:
            break
        kept[int(token)] = float(p[token])
        total += kept[int(token)]
    return {token: probability / total for token, probability in kept.items()}


def test_top_p_draws_within_the_nucleus_and_reports_its_probabilities(engine, model_a):
    load(engine, model_a)
    requests = [ask(p, seed=i, temperature=1.3, top_p=0.7) for i, p in enumerate(prompts(12))]
    requests += [ask(p, seed=i, temperature=1.3) for i, p in enumerate(prompts(12))]  # beside them
    done = generate(engine, requests)
    sizes = set()
    for request, completion in zip(requests[:12], done[:12], strict=True):
        text = [*request.ids, *completion.ids]
        with torch.no_grad():
            logits = model_a(torch.tensor([text])).logits[0].double() / 1.3
        rows = torch.softmax(logits, -1)[len(request.ids) - 1 : -1].numpy()
        for p, token, logprob in zip(rows, completion.ids, completion.logprobs, strict=True):
            inside = nucleus(p, 0.7)
            sizes.add(len(inside))
            assert logprob == pytest.approx(np.log(inside[token]), abs=1e-4)
    assert len(sizes) > 1
    for request, completion in zip(requests[12:], done[12:], strict=True):
        assert gap(model_a, request, completion) < 1e-4


def test_temperature_zero_takes_the_most_likely_token(engine, model_a):
    load(engine, model_a)
    request = ask([5, 6], 12, temperature=0.0, top_p=0.5)
    [completion] = generate(engine, [request])
    ids = [5, 6]
    for token in completion.ids:
        with torch.no_grad():
            assert token == int(model_a(torch.tensor([ids])).logits[0, -1].argmax())
        ids.append(token)
    assert gap(model_a, request, completion) < 1e-4


# ---------------------------------------------------------------------- seeds, stops, budgets


def test_tokens_depend_on_the_seed_and_not_on_the_company(engine, model_a):
    load(engine, model_a)
    alone = generate(engine, [ask([1, 2, 3], seed=5)])[0]
    crowd = [ask(p, seed=100 + i) for i, p in enumerate(prompts(30))]
    crowd.insert(17, ask([1, 2, 3], seed=5))
    other = ask([1, 2, 3], seed=6)
    completions = generate(engine, [*crowd, other])
    assert completions[17].ids == alone.ids
    assert completions[-1].ids != alone.ids


def test_completions_do_not_depend_on_the_number_of_rows(directory):
    def tokens(slots):
        engine = LocalEngine.from_directory(directory, slots=slots)
        requests = [ask(p, 5 + i, seed=i) for i, p in enumerate(prompts(25))]
        return [completion.ids for completion in generate(engine, requests)]

    assert tokens(1) == tokens(4) == tokens(64)


def test_any_stop_id_ends_a_completion_and_belongs_to_it(engine, model_a):
    load(engine, model_a)
    request = ask([1, 2, 3], 60, seed=5)
    free = generate(engine, [request])[0].ids
    stop = free[4]
    first = free.index(stop)
    unused = next(i for i in range(23) if i not in free[: first + 1])
    [completion] = generate(engine, [ask([1, 2, 3], 60, seed=5, stop_ids=(unused, stop))])
    assert completion.ids == free[: first + 1]
    assert completion.finish_reason == "stop"


def test_a_stop_at_the_very_end_of_the_budget_is_a_stop(engine, model_a):
    load(engine, model_a)
    free = generate(engine, [ask([1, 2, 3], 5, seed=5)])[0]
    assert (free.finish_reason, len(free.ids)) == ("length", 5)
    first = free.ids.index(free.ids[-1])
    request = ask([1, 2, 3], first + 1, seed=5, stop_ids=(free.ids[-1],))
    assert generate(engine, [request])[0].finish_reason == "stop"


def test_more_requests_than_rows_come_back_in_order_with_their_budgets(engine, model_a):
    load(engine, model_a)
    requests = [ask(p, 1 + i % 9, seed=i) for i, p in enumerate(prompts(50))]
    completions = generate(engine, requests)
    assert [c.id for c in completions] == [r.id for r in requests]
    assert [len(c.ids) for c in completions] == [r.params.max_tokens for r in requests]
    assert all(len(c.logprobs) == len(c.ids) for c in completions)
    assert all(c.spans == [Span(engine.version, 0, len(c.ids))] for c in completions)
    assert engine.running == 0


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (lambda: ask([]), "prompt is empty"),
        (lambda: ask([1] * 10, 1015), "exceeds the limit of 1024"),
        (lambda: ask([23]), "outside the vocabulary"),
        (lambda: ask([-1]), "outside the vocabulary"),
    ],
)
def test_requests_that_cannot_be_served_are_refused(engine, bad, message):
    with pytest.raises(EngineError, match=message):
        engine.submit([bad()])
    assert engine.running == 0


def test_a_running_id_is_refused_a_second_time(engine):
    request = ask([1], 3)
    with pytest.raises(EngineError, match="is running already"):
        engine.submit([request, request])


@pytest.mark.parametrize(
    "params",
    [{"max_tokens": 0}, {"max_tokens": 1, "temperature": -1.0}, {"max_tokens": 1, "top_p": 0.0}],
)
def test_params_that_cannot_be_sampled_with_are_refused(params):
    with pytest.raises(EngineError):
        SamplingParams(**params)


# ---------------------------------------------------------------------- weights in flight


def test_a_paused_engine_keeps_its_requests_and_does_not_advance(engine):
    engine.pause()
    requests = [ask([2, 3], 4, seed=i) for i in range(3)]
    engine.submit(requests)
    assert engine.collect(0.05) == []
    assert engine.running == 3
    engine.resume()
    done = []
    while engine.running:
        done += engine.collect(1.0)
    assert len(done) == 3


def swap_in_flight(engine, before, after, *, keep_cache):
    """One long request that starts under `before` and ends under `after`.

    A server may begin with the long one late, and one of vLLM on a CPU may tell of the short one
    when the long one has ended: then again.
    """
    for _ in range(20 if isinstance(engine, ServedEngine) else 1):
        load(engine, before)
        old = engine.version
        long, short = ask([3, 1, 4, 1, 5], 800, seed=9), ask([2, 7], 30, seed=1)
        engine.submit([long, short])
        done = []
        while not done:
            done = engine.collect(1.0)
        engine.pause(keep_cache=keep_cache)
        engine.update(old + 1, after.state_dict())
        engine.resume()
        while engine.running:
            done += engine.collect(1.0)
        [completion] = [c for c in done if c.id == long.id]
        if len(completion.spans) > 1:
            break
    assert [span.version for span in completion.spans] == [old, old + 1]
    assert completion.spans[0].start == 0
    least = 1 if isinstance(engine, ServedEngine) else 30
    assert completion.spans[0].end == completion.spans[1].start >= least
    assert completion.spans[1].end == len(completion.ids) == 800
    return long, completion, completion.spans[1].start


def is_vllm_server(engine):
    return isinstance(engine, ServedEngine) and engine.describe()["software"].startswith("vllm")


def test_swap_with_the_cache_rebuilt_is_the_new_model_exactly(engine, model_a, model_b):
    request, completion, at = swap_in_flight(engine, model_a, model_b, keep_cache=False)
    assert gap(model_a, request, completion, 0, at) < 2e-4
    assert gap(model_b, request, completion, at) < 2e-4


def test_swap_with_the_cache_kept_continues_on_the_old_keys_and_values(engine, model_a, model_b):
    request, completion, at = swap_in_flight(engine, model_a, model_b, keep_cache=True)
    assert gap(model_a, request, completion, 0, at) < 2e-4
    assert gap(model_b, request, completion, at) > 0.05  # not the new model run afresh
    held = torch.tensor([[*request.ids, *completion.ids[: at - 1]]])
    rest = torch.tensor([completion.ids[at - 1 : -1]])
    with torch.no_grad():
        cache = DynamicCache(config=model_a.config)
        name = "cache" if "cache" in signature(model_a.forward).parameters else "past_key_values"
        model_a(held, **{name: cache})
        logits = model_b(rest, **{name: cache}).logits[0]
    expected = torch.log_softmax(logits, -1).gather(1, torch.tensor(completion.ids[at:])[:, None])
    assert (expected[:, 0] - torch.tensor(completion.logprobs[at:])).abs().max() < 2e-4


def test_after_an_update_every_log_probability_is_the_new_models(engine, model_a, model_b):
    request = ask([3, 1, 4], 30, seed=4)
    load(engine, model_a)
    assert gap(model_a, request, generate(engine, [request])[0]) < 1e-4
    load(engine, model_b)
    again = ask([3, 1, 4], 30, seed=4)
    [completion] = generate(engine, [again])
    assert gap(model_b, again, completion) < 1e-4
    assert gap(model_a, again, completion) > 0.05


def test_weights_are_copied_and_not_shared_with_the_learner(engine, random_model, model_a):
    learner = random_model(seed=1)
    load(engine, learner)
    with torch.no_grad():
        for parameter in learner.parameters():
            parameter.zero_()
    request = ask([3, 1, 4], seed=4)
    assert gap(model_a, request, generate(engine, [request])[0]) < 1e-4


def test_update_needs_a_pause(engine, model_a):
    with pytest.raises(EngineError, match="call pause"):
        engine.update(engine.version + 1, model_a.state_dict())


def corrupted(model, fault):
    weights = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    if fault == "head missing":  # what named_parameters() and safetensors of a tied model lack
        del weights["lm_head.weight"]
    elif fault == "head stale":
        weights["lm_head.weight"] = weights["lm_head.weight"] + 0.1
    elif fault == "shape":
        weights["model.norm.weight"] = weights["model.norm.weight"][:-1]
    else:
        weights["model.norm.weight"][0] = float("nan")
    return weights


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("head missing", "lm_head.weight"),
        ("head stale", "tied"),
        ("shape", r"\(63,\), not \(64,\)"),
        ("not finite", "not finite"),
    ],
)
def test_wrong_weights_are_refused_and_change_nothing(engine, model_a, model_b, fault, message):
    load(engine, model_a)
    version = engine.version
    engine.pause()
    with pytest.raises(EngineError, match=message):
        engine.update(version + 1, corrupted(model_b, fault))
    engine.resume()
    assert engine.version == version
    request = ask([3, 1, 4], seed=4)
    assert gap(model_a, request, generate(engine, [request])[0]) < 1e-4


def test_weights_that_overflow_give_non_finite_logprobs_and_no_hang(engine, random_model, model_a):
    wild = random_model(seed=1)
    with torch.no_grad():
        wild.model.layers[0].mlp.down_proj.weight.mul_(1e38)
    load(engine, wild)
    [completion] = generate(engine, [ask([3, 1, 4], 40, seed=4)])
    assert len(completion.ids) == 40
    assert not any(map(math.isfinite, completion.logprobs[1:]))
    if is_vllm_server(engine):
        pytest.skip("no route of vLLM clears such rows: its server has to be started again")
    load(engine, model_a)  # and the rows they sat in are clean again
    requests = [ask(p, seed=i) for i, p in enumerate(prompts(6))]
    for request, completion in zip(requests, generate(engine, requests), strict=True):
        assert gap(model_a, request, completion) < 1e-4


# ---------------------------------------------------------------------- precision


def test_float32_head_on_bfloat16_weights_follows_every_update(model_a, model_b, directory):
    def mean_gap(model, fp32_head):
        engine = LocalEngine.from_directory(directory, dtype="bfloat16", fp32_head=fp32_head)
        load(engine, model)
        hidden = torch.randn(64, 64, generator=torch.Generator().manual_seed(0)).bfloat16()
        exact = hidden.double() @ model.lm_head.weight.detach().double().T
        head = engine.decoder.head
        found = torch.nn.functional.linear(hidden.to(head.dtype), head).double()
        return float((found - exact).abs().mean())

    assert mean_gap(model_a, True) < 1e-5
    assert mean_gap(model_b, True) < 1e-5  # a head kept from before the update would show here
    assert mean_gap(model_a, False) > 1e-3


def test_models_the_local_engine_does_not_cover_are_refused(random_model, tmp_path):
    random_model("mistral", tied=False, sliding_window=8).save_pretrained(tmp_path)
    with pytest.raises(EngineError, match=r"sliding window of 8"):
        LocalEngine.from_directory(tmp_path)
    with pytest.raises(EngineError, match=r"no config\.json"):
        LocalEngine.from_directory(tmp_path / "nothing")
    with pytest.raises(EngineError, match="unknown engine 'remote'"):
        open_engine("remote", tmp_path)


# ---------------------------------------------------------------------- faults of the process


@pytest.fixture
def own_process(directory):
    engine = open_engine("process", directory, deadline_s=1.5)
    yield engine
    engine.close()
    engine.close()


def collect_all(engine):
    while engine.running:
        engine.collect(5.0)


def test_a_killed_engine_is_reported_with_its_phase(own_process):
    own_process.submit([ask([1, 2], 900)])
    own_process.child.process.send_signal(signal.SIGKILL)
    with pytest.raises(EngineError, match="generation: the engine process killed by signal 9"):
        collect_all(own_process)
    with pytest.raises(EngineError, match="pause: the engine process"):
        own_process.pause()


@pytest.mark.parametrize("phase", ["generation", "pause", "update", "resume"])
def test_a_hanging_engine_is_reported_within_the_deadline(own_process, model_a, phase):
    calls = {
        "generation": lambda: collect_all(own_process),
        "pause": own_process.pause,
        "update": lambda: own_process.update(1, model_a.state_dict()),
        "resume": own_process.resume,
    }
    if phase in ("update", "resume"):
        own_process.pause()
    own_process.submit([ask([1, 2], 900) for _ in range(600)])
    own_process.child.process.send_signal(signal.SIGSTOP)
    start = time.monotonic()
    with pytest.raises(EngineError, match=f"^{phase}: .* (no answer|silent)|^{phase}: no answer"):
        calls[phase]()
    assert time.monotonic() - start < 15


def test_an_idle_engine_may_be_silent_for_longer_than_the_deadline(own_process):
    generate(own_process, [ask([1, 2], 3)])
    time.sleep(2.0)
    [completion] = generate(own_process, [ask([1, 2], 3)])
    assert len(completion.ids) == 3


def test_a_lost_request_is_reported(own_process):
    own_process.submit([ask([1, 2], 3)])
    own_process._outstanding.add(-1)  # one that the other side has never heard of
    with pytest.raises(EngineError, match="lost 1 requests"):
        collect_all(own_process)


def test_an_engine_that_cannot_start_says_why(tmp_path):
    with pytest.raises(EngineError, match=r"start: .*no config\.json"):
        open_engine("process", tmp_path)


def test_the_process_ends_when_its_parent_is_killed(directory):
    script = (
        "from trainer.engine import open_engine\n"
        f"engine = open_engine('process', {str(directory)!r})\n"
        "print(engine.child.process.pid, flush=True)\n"
        "import time; time.sleep(60)\n"
    )
    root = Path(__file__).parents[2]
    parent = subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, text=True, cwd=root
    )
    with parent:
        child = int(parent.stdout.readline())
        parent.kill()
    for _ in range(100):
        if not Path(f"/proc/{child}").exists():
            return
        time.sleep(0.1)
    os.kill(child, signal.SIGKILL)
    pytest.fail("the engine process outlives its parent")
