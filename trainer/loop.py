"""The run, from the first evaluation to the last checkpoint.

A step in one breath: draw prompts, generate a group of rollouts for each, verify them, drop groups
without a gradient, turn rewards into advantages, differentiate the loss, move the weights once and
send them to the engine. ``pipeline.mode`` changes where the groups come from (``sources.py``), and
nothing else.

    train-rl --recipe tiny --run.seed 1
    torchrun --nproc-per-node 2 -m trainer --recipe tiny

Under torchrun all of this runs on rank 0; the other ranks differentiate with it (``team.py``).
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from torch import Tensor

from trainer import checkpoint
from trainer.batch import make_batch, minus_kl, shaped_rewards
from trainer.by_task import evaluation_of, reward_of
from trainer.curriculum import live
from trainer.engine.base import derive_seed
from trainer.errors import EngineError, RankError, RunStopped
from trainer.evaluate import Evaluation, summarise
from trainer.interrupt import stop_requested
from trainer.learner import StepResult
from trainer.parity import PROMPTS, fixed_score, parity
from trainer.ranks import Ranks, joined
from trainer.run import Run, open_run
from trainer.settings import Config
from trainer.setup import sampling
from trainer.tally import Tally
from trainer.team import follow
from trainer.types import Batch, Group
from trainer.watch import SIGNALS, Alarm

__all__ = ["train"]

NOTHING_FINITE = "loss of no token: none has a finite log-probability from the sampler"


def train(config: Config, folder: Path, *, resume: bool = False) -> Path | None:
    """Train to ``run.steps`` and return the path of the log, on rank 0; None on other ranks.

    Raises
    ------
    TrainerError
        Before any training: whatever in settings, model, task or disk cannot be used.
        Later: a guard stopped the run (``RunStopped``), the engine (``EngineError``) or a rank of
        the learner (``RankError``) failed.
    KeyboardInterrupt
        A signal ended the run between two steps; a checkpoint was written.
    """
    with joined(config) as ranks:
        if ranks.rank > 0:
            follow(ranks)
            return None
        return lead(config, folder, ranks, resume=resume)


def lead(config: Config, folder: Path, ranks: Ranks, *, resume: bool) -> Path:
    """Run everything but the other ranks' share of the learning."""
    run = open_run(config, folder, resume=resume, ranks=ranks)
    reason, whole = "error", False
    try:
        with stop_requested() as stop:
            check_arrival(run)
            measure_when_due(run)
            while run.step < config.run.steps and not stop:
                whole = True  # what was collected is learned: the step may be saved
                rounds = collect(run)
                for left, (groups, batch, old, version) in enumerate(rounds, 1 - len(rounds)):
                    if run.step == config.run.steps:
                        break
                    whole = False
                    result = learn(run, groups, batch, old, version)
                    judge(run, result)
                    whole = left == 0
                    publish(run)
                    measure_when_due(run)
                save_when_due(run)
        save(run)
        reason = "done" if run.step >= config.run.steps else "interrupted"
    except RunStopped as e:
        reason = str(e)
        raise
    except (EngineError, RankError) as e:
        report(run)
        if isinstance(e, EngineError) and whole and run.not_finite == 0:
            save(run)
        reason = f"{e}; {way_on(run)}"
        raise (RankError if isinstance(e, RankError) else EngineError)(reason) from e
    finally:
        run.close(reason)
    if reason == "interrupted":
        raise KeyboardInterrupt
    return run.ledger.path


# Generation and verification


def collect(run: Run) -> list[tuple[list[Group], Batch | None, Tensor | None, int]]:
    """Fetch the groups of the next step, or of the next k in mode off-policy, as batches."""
    rounds = run.source.take(run.step)
    report(run)
    several = len(rounds) > 1 and run.config.loss.anchor == "old"
    batches = [prepare(run, groups) for groups in rounds]
    with run.ledger.phase("train"):
        olds = [run.learner.logprobs(b) if several and b is not None else None for b in batches]
    return [
        (groups, batch, old, run.step)
        for groups, batch, old in zip(rounds, batches, olds, strict=True)
    ]


def prepare(run: Run, groups: list[Group]) -> Batch | None:
    """Filter, shape rewards and compute advantages; None when no group has a gradient."""
    config = run.config
    for group in groups:
        run.curriculum.observe(group)
    kept = [g for g in groups if g.rewards]
    if config.curriculum.filter_zero_variance:
        kept = [g for g in kept if live(g, config.curriculum.tolerance)]
    if not kept:
        return None
    rewards = shaped_rewards(kept, config)
    batch = make_batch(kept, rewards, config)
    if config.kl.coef > 0 and config.kl.place == "reward":
        reference = run.learner.logprobs(batch, reference=True).cpu()
        batch = make_batch(kept, minus_kl(rewards, batch, reference, config.kl), config)
    return batch


# Loss and update


def learn(
    run: Run, groups: list[Group], batch: Batch | None, old: Tensor | None, version: int
) -> StepResult:
    """Take one optimiser step and write its row."""
    tally, lr = Tally(), run.learner.learning_rate()
    tally.add_groups(groups, run.step, run.config.curriculum.tolerance)
    with run.ledger.phase("train"):
        if batch is None:
            result = StepResult(0.0, 0.0, 0.0, 0.0, skipped="no group has a gradient")
        elif batch.dropped_tokens and not batch.mask.any():
            result = StepResult(0.0, 0.0, 0.0, 0.0, skipped=NOTHING_FINITE)
        else:
            o_version = run.step if old is None else version
            result = run.learner.step(batch, o_version, old)
    run.count(groups, batch)
    tally.merge(result.tally)
    run.step, run.spent = run.step + 1, run.ledger.gpu_hours
    run.signals = {**dict.fromkeys(SIGNALS), **tally.signals(), "grad_norm": result.grad_norm}
    run.ledger.write(
        "step",
        step=run.step,
        **run.counters,
        **reward_of(groups),
        loss=result.loss,
        policy_loss=result.policy_loss,
        kl_loss=result.kl_loss,
        lr=lr,
        pool_left=run.curriculum.left,
        learned=0 if batch is None else len(batch),
        dropped_tokens=0 if batch is None else batch.dropped_tokens,
        skipped=result.skipped,
        **run.signals,
        **run.ledger.take_phases(),
    )
    return result


def publish(run: Run) -> None:
    """Send the weights to the engine, in flight when it runs beside the learner."""
    with run.ledger.phase("sync"):
        run.source.update(run.step, run.weights())
        check_arrival(run)
    report(run)


def check_arrival(run: Run) -> None:
    """Have servers score what the learner scores: the weights must have arrived whole."""
    run.engine.verify(lambda: fixed_score(run))


# Guards


def judge(run: Run, result: StepResult) -> None:
    """Raise alarms, count steps that were not finite, stop when a guard says so."""
    run.progress.step(run)
    alarms = run.watcher.observe(run.step, run.signals)
    if not result.skipped:
        run.resets.observe(result.kl_loss)
    raise_alarms(run, alarms)
    run.not_finite = run.not_finite + 1 if result.skipped.startswith("loss") else 0
    if run.not_finite >= run.config.optim.max_skipped:
        raise RunStopped(
            f"{run.not_finite} steps in a row were not finite: lower optim.lr; {way_on(run)}"
        )


def way_on(run: Run) -> str:
    """Say what is left of a run that ends."""
    good = checkpoint.latest(run.checkpoints)
    if good is None:
        return "there is no checkpoint yet: start again"
    return f"the last good checkpoint is {good}: resume from it"


def report(run: Run) -> None:
    """Log what went wrong with servers and was dealt with."""
    for notice in run.engine.notices():
        raise_alarms(run, [Alarm(run.step, "servers", None, None, "warn", notice)])


def raise_alarms(run: Run, alarms: list[Alarm]) -> None:
    """Log alarms and do what they ask for; an abort comes before anything is saved."""
    for alarm in alarms:
        run.ledger.write("alarm", **vars(alarm))
        run.progress.alarm(alarm)
        if alarm.action == "abort":
            raise RunStopped(
                f"step {alarm.step}: {alarm.signal} = {alarm.value:.3g} is beyond "
                f"{alarm.threshold:.3g} ({alarm.message}); watch.on_critical = warn goes on"
            )
        run.save_asked |= alarm.action == "checkpoint"


# Evaluation and checkpoints


def measure_when_due(run: Run) -> None:
    """Evaluate at step 0, every ``eval.every`` steps and after the last, once each.

    A resumed run finds due what an engine's fault kept it from.
    """
    due = run.step % run.config.eval.every == 0 or run.step == run.config.run.steps
    if due and run.measured < run.step:
        measure(run)


def measure(run: Run) -> None:
    """Evaluate on held-out prompts with the weights of now and write the row."""
    e, version = run.config.eval, run.step
    with run.ledger.phase("eval"):
        params = sampling(run.config, run.directory, run.tokenizer, e.temperature, e.top_p)
        seed = (derive_seed(e.seed, version),)
        groups = run.worker.sample(run.held_out, e.samples, params, seed=seed)
        ks = e.ks or sorted({1, e.samples})
        found = summarise(groups, n=e.samples, ks=ks)
        compared = groups
        if e.top_p < 1:  # of a nucleus the learner knows nothing
            few, whole = run.held_out[:PROMPTS], replace(params, top_p=1.0)
            compared = run.worker.sample(few, 1, whole, seed=(*seed, 1))
        gap = parity(run, compared)
    run.pass_rate = found.pass_rate
    row = {**found.row(), **evaluation_of(groups, n=e.samples, ks=ks), **run.counters}
    row |= {"eval_tokens": found.tokens, "logp_gap_max": gap}
    row |= {"gpu_hours": run.spent, "gpu_hours_after": run.ledger.gpu_hours}
    run.ledger.write("eval", step=run.step, split="held-out", **row)
    run.measured = run.step
    run.progress.evaluation(run)
    report(run)
    raise_alarms(run, run.watcher.observe_eval(run.step, run.pass_rate))
    if run.step % e.every == 0:  # the one after the last step may be out of turn
        reset_when_due(run, found)


def reset_when_due(run: Run, found: Evaluation) -> None:
    """Start anew from the policy of now when it stalls, falls or has gone far (``reset.py``)."""
    due = run.resets.observe_eval(run.step, found.pass_rate, found.n_prompts * found.n_samples)
    if due is not None:
        run.learner.reset(optimizer=run.config.reset.optimizer)
        raise_alarms(run, [due])


def save_when_due(run: Run) -> None:
    """Save when an alarm asks for it, and every ``checkpoint.every`` steps.

    The schedule never saves right after a step that was not finite.
    """
    every = run.config.checkpoint.every
    due = every and run.step // every > run.saved // every and run.not_finite == 0
    if due or run.save_asked:
        save(run)


def save(run: Run) -> None:
    """Write a checkpoint of the present step, unless there is one."""
    run.save_asked = False
    if run.step != run.saved:
        meta = {"model": checkpoint.fingerprint(run.learner.model)}
        shards = run.learner.save if run.learner.sharded else None
        state, keep = run.state_dict(), run.config.checkpoint.keep
        checkpoint.save(run.checkpoints, run.step, state, meta, keep, shards)
        run.saved = run.step
