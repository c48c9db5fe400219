"""The callback under TRL's GRPOTrainer, where TRL is installed: a tiny model learns to say "a"."""

import pytest

import curvefit
from curvefit.transformers import GpuHoursCallback

pytest.importorskip("trl")
pytestmark = pytest.mark.filterwarnings("ignore")  # TRL's and its dependencies' own

import tokenizers  # noqa: E402
import torch  # noqa: E402
import transformers  # noqa: E402
from datasets import Dataset  # noqa: E402
from tiny_trainer import example, rows  # noqa: E402
from trl import GRPOConfig, GRPOTrainer  # noqa: E402


def tokenizer():
    vocabulary = {token: i for i, token in enumerate(["<pad>", "<eos>", "?", *"abcd"])}
    words = tokenizers.Tokenizer(tokenizers.models.WordLevel(vocabulary, unk_token="<pad>"))
    words.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=words, pad_token="<pad>", eos_token="<eos>", padding_side="left"
    )


def model():
    torch.manual_seed(0)
    return transformers.LlamaForCausalLM(
        transformers.LlamaConfig(
            vocab_size=7,
            hidden_size=16,
            intermediate_size=16,
            num_hidden_layers=1,
            num_attention_heads=2,
            pad_token_id=0,
            bos_token_id=1,
            eos_token_id=1,
        )
    )


def correct(completion_ids, **_):
    """1 for each completion that begins with "a"."""
    return [float(ids[0] == 3) for ids in completion_ids]


def settings(folder, **others):
    return GRPOConfig(
        output_dir=str(folder),
        use_cpu=True,
        bf16=False,
        gradient_checkpointing=False,
        per_device_train_batch_size=16,
        per_device_eval_batch_size=16,
        num_generations=8,
        num_generations_eval=4,
        max_completion_length=2,
        logging_steps=1,
        eval_strategy="steps",
        eval_on_start=True,
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
        **others,
    )


def test_grpo_of_the_how_to_logs_a_curve_that_is_read_without_an_option(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    prompts = Dataset.from_list([{"prompt": "? ? ?"}] * 8)
    given = {"GRPOTrainer": GRPOTrainer, "correct": correct, "train": prompts, "held_out": prompts}
    args = settings(tmp_path, max_steps=4, eval_steps=1, learning_rate=1e-2)
    code = example("trainer = GRPOTrainer(").replace("model=", "processing_class=words, model=")
    exec(code, given | {"model": model(), "words": tokenizer(), "args": args})
    log = tmp_path / "runs" / "my-run" / "log.jsonl"
    evaluations = rows(log, "eval")
    assert [row["step"] for row in evaluations] == [0, 1, 2, 3, 4]
    assert evaluations[0]["gpu_hours"] == 0.0
    assert {row["metric"] for row in evaluations} == {"eval_rewards/correct/mean"}
    assert [row["samples"] for row in evaluations] == [0, 16, 32, 48, 64]
    assert evaluations[0]["tokens"] == 0
    assert 64 * 4 <= evaluations[-1]["tokens"] <= 64 * 5  # three of the prompt, one or two more
    (step, *_) = rows(log, "step")
    assert {"reward", "entropy", "truncation_rate", "grad_norm", "zero_variance_fraction"} <= {
        *step
    }
    (run,) = curvefit.load(log)
    assert (run.name, run.x.unit, run.y.column) == ("my-run", "gpu_hours", "pass_rate")
    assert run.n_eval.tolist() == [8 * 4] * 5
    assert run.compute.tolist() == [row["gpu_hours"] for row in evaluations]


def test_devices_of_a_server_are_asked_for(tmp_path):
    args = settings(tmp_path, use_vllm=True, vllm_mode="server")
    control = transformers.TrainerControl()
    state = transformers.TrainerState(max_steps=1)
    log = tmp_path / "log.jsonl"
    with pytest.raises(curvefit.InputError, match=r"a vLLM server generates .*generators=N"):
        GpuHoursCallback(log).on_train_begin(args, state, control, model=model())
    callback = GpuHoursCallback(log, gpus=4, generators=2)
    callback.on_train_begin(args, state, control, model=model())
    (row,) = rows(log)
    assert row["gpus"] == {"train": 4, "generate": 2, "kind": "cpu"}


def test_several_reward_functions_are_asked_about(tmp_path):
    def short(completion_ids, **_):
        return [1.0 for _ in completion_ids]

    prompts = Dataset.from_list([{"prompt": "? ? ?"}] * 4)
    trainer = GRPOTrainer(
        model=model(),
        reward_funcs=[correct, short],
        args=settings(tmp_path, max_steps=1, eval_steps=1),
        train_dataset=prompts,
        eval_dataset=prompts,
        processing_class=tokenizer(),
        callbacks=[GpuHoursCallback(tmp_path / "log.jsonl")],
    )
    with pytest.raises(curvefit.AmbiguousColumn, match="eval_rewards/short/mean: name one"):
        trainer.train()
