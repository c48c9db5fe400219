"""Small real models, shared by the tests of the trainer."""

from __future__ import annotations

import os

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

import pytest


@pytest.fixture(autouse=True, scope="session")
def _one_thread():
    import torch

    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def tiny_model():
    """Directory of the tiny model, made once and taken from the cache from then on."""
    from trainer.tinymodel import make_tiny_model

    return make_tiny_model()


@pytest.fixture(scope="session")
def random_model():
    """A factory of small random models: (kind, tied, seed) to a transformers module."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    def make(kind: str = "llama", *, tied: bool = True, seed: int = 0, **settings):
        sizes = {
            "vocab_size": 23,
            "hidden_size": 64,
            "intermediate_size": 96,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "head_dim": 32,
            "max_position_embeddings": 1024,
        }
        config = AutoConfig.for_model(kind, tie_word_embeddings=tied, **{**sizes, **settings})
        torch.manual_seed(seed)
        model = AutoModelForCausalLM.from_config(config, dtype=torch.float32).eval()
        with torch.no_grad():
            for parameter in model.parameters():  # far from the flat distribution of fresh weights
                parameter.add_(0.15 * torch.randn_like(parameter))
        return model

    return make


@pytest.fixture(scope="module")
def model_a(random_model):
    """The model that engines of a module start from."""
    return random_model(seed=1)


@pytest.fixture(scope="module")
def model_b(random_model):
    """Another of the same shapes, to swap in."""
    return random_model(seed=2)


@pytest.fixture(scope="module")
def directory(model_a, tmp_path_factory):
    """Where the first lies."""
    path = tmp_path_factory.mktemp("model")
    model_a.save_pretrained(path)
    return path
