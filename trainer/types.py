"""The words of the trainer: Prompt, Rollout, Group, Batch.

A task makes a ``Prompt``; the engine answers it with ``Rollout`` objects; the verifier fills in
their rewards; a ``Group`` is one visit of a prompt with all its rollouts; a ``Batch`` is what the
learner differentiates. Everything is token ids in, token ids out: text is decoded for rewards only.

Shapes: P prompts, N samples, Lp prompt width, T completion width.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["Batch", "Group", "Prompt", "Rollout"]


@dataclass(frozen=True, slots=True)
class Prompt:
    """One question of a task.

    Parameters
    ----------
    id : str
        Stable name, the same in every run: what exclusions are saved under.
    ids : tuple of int
        The token ids, template already applied, exactly one BOS if the model has one.
    question, answer : Any
        What the verifier needs.
    index : int
        Position in the task's order; the item is a function of (seed, index) alone.
    label : str
        Which task of a mixture it belongs to; empty where there is one.
    """

    id: str
    ids: tuple[int, ...]
    question: Any
    answer: Any
    index: int
    label: str = ""


@dataclass(slots=True)
class Rollout:
    """One completion of one prompt.

    Parameters
    ----------
    group : int
        Number of the visit it belongs to; never derived from the prompt or from its position.
    prompt_id : str
    prompt_ids, ids : list of int
        Token ids of the prompt and of the completion (with the stop token, when it stopped).
    logprobs : list of float
        Log-probability of each completion token under the distribution it was drawn from
        (temperature applied); 0.0 for injected tokens.
    mask : list of int
        1 for tokens drawn by the policy, 0 for injected ones (the interruption phrase).
    finish_reason : {"stop", "length", "error"}
        As the engine says; the only judge of truncation.
    versions : list of (version, start, end)
        Which weight version drew tokens start..end-1; spans cover the completion in order.
    interrupted : bool
        The thinking budget ran out and the phrase was inserted.
    reward : float or None
        None until verified, and when the verifier failed.
    reward_error : str or None
        Why there is no reward: "timeout", "crash: ...".
    """

    group: int
    prompt_id: str
    prompt_ids: list[int]
    ids: list[int]
    logprobs: list[float]
    mask: list[int]
    finish_reason: str
    versions: list[tuple[int, int, int]]
    interrupted: bool = False
    reward: float | None = None
    reward_error: str | None = None

    @property
    def oldest(self) -> int:
        """The oldest weight version that drew one of its tokens."""
        return min(version for version, _, _ in self.versions)

    @property
    def scored(self) -> bool:
        """Whether it can be learned from: generated without error and verified."""
        return self.finish_reason != "error" and self.reward is not None


@dataclass(slots=True)
class Group:
    """One visit of a prompt: the prompt and its G rollouts."""

    id: int
    prompt: Prompt
    rollouts: list[Rollout] = field(default_factory=list)

    @property
    def rewards(self) -> list[float]:
        """Rewards of the rollouts that were generated and verified without error."""
        return [r.reward for r in self.rollouts if r.scored and r.reward is not None]

    @property
    def oldest(self) -> int:
        """The oldest weight version among its rollouts, which decides the group's staleness."""
        return min(r.oldest for r in self.rollouts if r.versions)


@dataclass(slots=True)
class Batch:
    """What one optimiser step differentiates; prompts are stored once and shared by samples.

    Parameters
    ----------
    prompt_ids : Tensor [P, Lp] int64
        Left-padded, so that the last column is the last token of every prompt.
    prompt_mask : Tensor [P, Lp] bool
    ids : Tensor [N, T] int64
        Completions, right-padded.
    mask : Tensor [N, T] float
        1 where the token was drawn by the policy and its sampler log-probability is finite.
    counted : Tensor [N, T] float
        The mask that denominators count; differs from ``mask`` only where samples are masked
        out without renormalising.
    logprobs : Tensor [N, T] float
        μ, the sampler's log-probabilities; 0 where masked.
    versions : Tensor [N, T] int64
        Weight version of each token; -1 in the padding.
    prompt_of : Tensor [N] int64
        Row of ``prompt_ids`` of each sample, which is also the number of its group.
    advantages : Tensor [N] float
    dropped_tokens : int
        Tokens left out because the sampler's log-probability was not finite.
    """

    prompt_ids: Tensor
    prompt_mask: Tensor
    ids: Tensor
    mask: Tensor
    counted: Tensor
    logprobs: Tensor
    versions: Tensor
    prompt_of: Tensor
    advantages: Tensor
    dropped_tokens: int = 0

    def __len__(self) -> int:
        return self.ids.shape[0]

    def select(self, index: Tensor) -> Batch:
        """Take the samples `index`; prompts and their numbers stay, for other ranks share them."""
        per_sample = ("ids", "mask", "counted", "logprobs", "versions", "prompt_of", "advantages")
        return replace(self, **{name: getattr(self, name)[index] for name in per_sample})
