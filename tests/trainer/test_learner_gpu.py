"""The learner on a CUDA device: passes in bfloat16 over float32 weights, flash attention, NCCL."""

import factory
import pytest
import torch

from trainer.batch import to_device
from trainer.config import load
from trainer.head import logprob_entropy
from trainer.learner import Learner
from trainer.policy import score
from trainer.ranks import joined

pytestmark = pytest.mark.gpu

CUDA = ("--model.device", "cuda", "--learner.compute", "bfloat16", "--optim.warmup", "0")
WIDE = {"hidden_size": 128, "num_attention_heads": 2, "head_dim": 64}  # what flash attention takes


def config(*flags):
    return load([], None, [*CUDA, *flags])


def first_steps(cfg, **settings):
    with joined(cfg):
        learner = Learner(factory.model(**WIDE, **settings), cfg)
        results = [learner.step(factory.batch(cfg)) for _ in range(2)]
        return learner, [r.loss for r in results], learner.weights()


@pytest.mark.parametrize("flags", [(), ("--learner.checkpointing", "true")])
def test_mixed_precision_keeps_float32_weights_and_follows_float32(flags):
    learner, losses, weights = first_steps(config(*flags))
    plain = Learner(factory.model(**WIDE), factory.config("--optim.warmup", "0"))
    want = [plain.step(factory.batch(plain.config)).loss for _ in range(2)]
    assert losses == pytest.approx(want, abs=0.05)
    assert all(p.dtype == torch.float32 and p.is_cuda for p in learner.parameters)
    assert all(w.dtype == torch.bfloat16 and w.is_cuda for w in weights.values())


@pytest.mark.parametrize("packing", ["true", "false"])
def test_flash_attention_gives_what_sdpa_does(packing):
    pytest.importorskip("flash_attn")
    flash = config("--model.attention", "flash_attention_2", "--learner.packing", packing)
    _, got, _ = first_steps(flash, attn_implementation="flash_attention_2")
    _, want, _ = first_steps(config())
    assert got == pytest.approx(want, abs=0.05)


def test_the_head_of_bfloat16_factors_sums_in_float32():
    g = torch.Generator().manual_seed(0)
    hidden, weight = (torch.randn(n, 512, generator=g).bfloat16() for n in (300, 2000))
    targets, u = torch.randint(0, 2000, (300,), generator=g), torch.randn(300, generator=g)

    def on(device):
        leaves = [x.to(device).requires_grad_() for x in (hidden, weight)]
        logp, entropy = logprob_entropy(*leaves, targets.to(device), chunk=128)
        gradients = torch.autograd.grad((logp * u.to(device)).sum() + entropy.sum(), leaves)
        return [x.float().cpu() for x in (logp, entropy, *gradients)]

    for got, want, close in zip(on("cuda"), on("cpu"), (1e-4, 1e-4, 0.02, 0.02), strict=True):
        assert torch.allclose(got, want, rtol=2**-7, atol=close)


@pytest.mark.parametrize("way", ["branched", "padded", "packed", "one-row"])
def test_every_way_of_reading_gives_the_same_on_the_device(way):
    model = factory.model(**WIDE).cuda()
    batch = factory.batch(factory.config())
    got = score(model, to_device(batch, "cuda"), 1.0, way)[0].cpu()
    assert torch.allclose(got, score(factory.model(**WIDE), batch, 1.0)[0], atol=1e-3)
