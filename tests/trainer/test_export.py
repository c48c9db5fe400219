"""A trained model leaves as a directory that transformers loads."""

import pytest
import torch
from test_run import flags
from transformers import AutoModelForCausalLM, AutoTokenizer

from trainer.cli import main
from trainer.export import export

SHORT = {"run__steps": 2, "checkpoint__every": 1, "eval__every": 100}


@pytest.mark.parametrize("adapters", [0, 4])
def test_the_exported_model_is_the_trained_one(tmp_path, tiny_model, capsys, adapters):
    if adapters:
        pytest.importorskip("peft")
    settings = {"model__path": tiny_model, "learner__lora_rank": adapters, **SHORT}
    assert main(["--recipe", "tiny", *flags(tmp_path, run__name="a", **settings)]) == 0
    capsys.readouterr()
    assert main(["export", str(tmp_path / "a"), str(tmp_path / "out")]) == 0
    assert capsys.readouterr().out.strip() == str(tmp_path / "out")
    got = AutoModelForCausalLM.from_pretrained(tmp_path / "out", dtype=torch.float32)
    start = AutoModelForCausalLM.from_pretrained(tiny_model, dtype=torch.float32)
    weights = start.state_dict()
    assert got.state_dict().keys() == weights.keys()
    assert (
        not torch.equal(got.state_dict()["lm_head.weight"], weights["lm_head.weight"]) or adapters
    )
    learned = torch.load(
        tmp_path / "a" / "checkpoints" / "step-000002" / "state.pt", weights_only=True
    )["learner"]["model"]
    name = "model.layers.0.self_attn.q_proj"
    if adapters:
        A, B = (learned[f"{name}.lora_{x}.default.weight"] for x in "AB")
        want = weights[f"{name}.weight"] + 32 / adapters * B @ A
        assert torch.allclose(got.state_dict()[f"{name}.weight"], want, atol=1e-6)
    else:
        for key, w in got.state_dict().items():
            assert torch.equal(w, learned[key]), key
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "out")
    assert (
        tokenizer("3+5=")["input_ids"]
        == AutoTokenizer.from_pretrained(tiny_model)("3+5=")["input_ids"]
    )


def refusal(capsys, *arguments):
    assert main(["export", *map(str, arguments)]) == 2
    return capsys.readouterr().err.strip()


def test_what_cannot_be_exported_is_one_line(tmp_path, tiny_model, capsys):
    assert (
        main(["--recipe", "tiny", *flags(tmp_path, run__name="a", model__path=tiny_model, **SHORT)])
        == 0
    )
    run = tmp_path / "a"
    capsys.readouterr()
    assert "not empty" in refusal(capsys, run, run)
    assert "no config.toml" in refusal(capsys, tmp_path / "none", tmp_path / "out")
    assert "usage" in refusal(capsys, run)
    wrong = refusal(capsys, run, tmp_path / "out", "--checkpoint", "step-000009")
    assert "there are step-000001, step-000002" in wrong
    one = export(run, tmp_path / "one", "step-000001")
    two = export(run, tmp_path / "two")
    a, b = (AutoModelForCausalLM.from_pretrained(d).state_dict() for d in (one, two))
    assert any(not torch.equal(a[name], b[name]) for name in a)
