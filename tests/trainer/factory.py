"""Tiny real objects for the trainer's tests: models of random weights, groups, batches."""

import torch
from transformers import LlamaConfig, LlamaForCausalLM

from trainer.batch import make_batch, shaped_rewards
from trainer.config import load
from trainer.shard import whole
from trainer.types import Group, Prompt, Rollout


def config(*flags):
    return load([], None, list(flags))


def model(seed=0, vocab=18, layers=2, **kwargs):
    torch.manual_seed(seed)
    settings = {
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": layers,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "head_dim": 16,
        "max_position_embeddings": 64,
        "tie_word_embeddings": True,
        "initializer_range": 0.3,
    }
    return LlamaForCausalLM(LlamaConfig(vocab_size=vocab, **{**settings, **kwargs}))


def rollout(group, prompt_ids, length, reward, seed, *, finish="stop", version=0, vocab=18):
    g = torch.Generator().manual_seed(seed)
    return Rollout(
        group=group,
        prompt_id=f"p{group}",
        prompt_ids=list(prompt_ids),
        ids=torch.randint(0, vocab, (length,), generator=g).tolist(),
        logprobs=(-3 * torch.rand(length, generator=g)).tolist(),
        mask=[1] * length,
        finish_reason=finish,
        versions=[(version, 0, length)],
        reward=reward,
    )


def groups(lengths=((1, 7, 2), (6, 3, 5), (4, 4)), rewards=((1, 0, 0), (1, 1, 0), (0, 1))):
    """Groups with ragged prompts and completions: 8 completions of lengths 1,7,2,6,3,5,4,4."""
    out = []
    for i, (ns, rs) in enumerate(zip(lengths, rewards, strict=True)):
        prompt = Prompt(f"p{i}", tuple(range(1, 4 + i)), None, None, i)
        rollouts = [
            rollout(i, prompt.ids, n, float(r), seed=10 * i + j)
            for j, (n, r) in enumerate(zip(ns, rs, strict=True))
        ]
        out.append(Group(i, prompt, rollouts))
    return out


def batch(cfg, gs=None):
    gs = gs or groups()
    return make_batch(gs, shaped_rewards(gs, cfg), cfg)


def gradient(learner):
    """The whole gradient; a collective when the learner is sharded."""
    return torch.cat([whole(p.grad).flatten() for p in learner.model.parameters()])
