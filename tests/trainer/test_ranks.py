"""Two ranks under torchrun, with FSDP2 over gloo, are one learner: same numbers, same names."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import factory
import pytest
import ranks_script
import torch
from test_run import flags, rows
from waiting import wait_until

from trainer import checkpoint, setup
from trainer.cli import main
from trainer.learner import Learner
from trainer.packing import lengths
from trainer.team import cut

HERE = Path(__file__).parent
SAME = [name for name in ranks_script.OPTIONS if name != "bfloat16"]


def torchrun(*arguments):
    path = os.pathsep.join([str(HERE), str(HERE.parents[1])])
    env = {**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo", "PYTHONPATH": path}
    return subprocess.Popen(
        [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
        + [str(a) for a in arguments],
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.fixture(scope="module")
def two(tmp_path_factory, tiny_model):
    """What two ranks saw, and the folder with their checkpoint."""
    folder = tmp_path_factory.mktemp("ranks")
    cfg = ranks_script.config("--kl.coef", "0.1")
    learner = Learner(factory.model(), cfg)
    for _ in range(2):
        learner.step(factory.batch(cfg))
    checkpoint.save(folder, 2, {"learner": learner.state_dict()}, {"model": "m"}, 1)
    (folder / "step-000002").rename(folder / "one")
    process = torchrun(HERE / "ranks_script.py", folder, tiny_model)
    _, errors = process.communicate(timeout=180)
    assert process.returncode == 0, errors
    return torch.load(folder / "out.pt"), folder


def one_rank(*flags, steps=ranks_script.STEPS):
    cfg = ranks_script.config(*flags)
    learner = Learner(factory.model(), cfg)
    seen = []
    for _ in range(steps):
        seen.append(ranks_script.row(learner.step(factory.batch(cfg))))
    return learner, seen


def assert_close(got, want, tolerance=1e-5):
    assert len(got) == len(want)
    for a, b in zip(got, want, strict=True):
        assert a.keys() == b.keys()
        for key in a:
            assert a[key] == pytest.approx(b[key], abs=tolerance, rel=tolerance), key


@pytest.mark.parametrize("name", SAME)
def test_two_ranks_give_the_trajectory_of_one(two, name):
    seen, _ = two
    learner, want = one_rank(*ranks_script.OPTIONS[name])
    assert_close(seen["rows"][name], want)
    assert (seen["gradients"][name] - factory.gradient(learner)).abs().max() <= 1e-5
    weights = learner.weights()
    assert seen["weights"][name].keys() == weights.keys()
    start = factory.model().state_dict()
    for key, w in weights.items():
        assert (seen["weights"][name][key] - w).abs().max() <= 1e-5, key
        assert (w - start[key]).abs().max() >= 1e-3  # four steps of Adam went somewhere


def test_passes_in_bfloat16_keep_float32_weights_and_stay_near(two):
    seen, _ = two
    _, want = one_rank()
    got = seen["rows"]["bfloat16"]
    assert [r["loss"] for r in got] == pytest.approx([r["loss"] for r in want], abs=0.02)
    assert got[0]["loss"] != want[0]["loss"]
    assert all(w.dtype == torch.bfloat16 for w in seen["weights"]["bfloat16"].values())
    assert seen["gradients"]["bfloat16"].dtype == torch.float32
    # a step of Adam is lost in bfloat16 weights of this size: the float32 ones moved under them
    for key, w in seen["weights"]["bfloat16"].items():
        assert (w.float() - seen["weights"]["prompt"][key]).abs().max() < 0.01


def test_signals_are_sums_and_counts_over_ranks(two):
    assert two[0]["signals"] == {"reward": 0.5, "length": 1.0}  # the mean of means would be 0.667


def test_a_number_that_is_not_finite_on_one_rank_keeps_all_ranks_where_they_are(two):
    assert two[0]["skipped"]
    assert two[0]["unmoved"]


def test_a_team_of_two_answers_as_one_learner(two, tiny_model):
    seen, _ = two
    cfg = ranks_script.led_config(tiny_model)
    model, _ = setup.load_model(tiny_model, cfg)
    want = ranks_script.led(Learner(model, cfg), cfg)
    assert_close(seen["steps"], want["steps"])
    for name in ("reference", "old", "new", "anew"):
        assert (seen[name] - want[name]).abs().max() <= 1e-5, name
    assert torch.equal(seen["anew"], seen["new"])  # to the last bit what the policy says
    assert seen["steps"][2]["kl"] == 0 < seen["steps"][1]["kl"]
    assert (seen["new"] - seen["old"]).abs().max() > 1e-2


def test_exported_names_and_values_are_those_of_from_pretrained(two, tiny_model):
    from transformers import AutoModelForCausalLM

    exported = two[0]["exported"]
    want = AutoModelForCausalLM.from_pretrained(tiny_model, dtype=torch.float32).state_dict()
    assert exported.keys() == want.keys()
    assert "lm_head.weight" in exported  # tied, and there on purpose
    for name, w in want.items():
        assert torch.equal(exported[name], w), name


def test_a_checkpoint_of_two_ranks_is_taken_up_by_two_and_by_one(two):
    seen, folder = two
    assert seen["resumed at 2"]  # bit for bit
    cfg = ranks_script.config("--kl.coef", "0.1")
    learner = Learner(factory.model(seed=1), cfg)
    learner.load(folder / "two")
    assert learner.step_count == 2
    assert_close(
        [ranks_script.row(learner.step(factory.batch(cfg))) for _ in range(2)], _later(cfg)
    )


def test_a_checkpoint_of_one_rank_is_taken_up_by_two(two):
    assert_close(two[0]["from one"], _later(ranks_script.config("--kl.coef", "0.1")))


def test_two_ranks_reset_as_one_does_and_their_checkpoint_is_taken_up_by_two_and_by_one(two):
    seen, folder = two
    for name, cfg in ranks_script.reset_configs().items():
        got, resumed = seen["reset"][name]
        assert resumed, name  # bit for bit
        assert got[2]["kl"] == 0 < got[1]["kl"]
        assert got[3]["kl"] > 0
        learner, want = one_rank_reset(cfg)
        assert_close(got, want)
        learner.load(folder / f"reset-{cfg.learner.lora_rank}")
        later = [ranks_script.row(learner.step(factory.batch(cfg))) for _ in range(2)]
        assert_close(later, want[2:])


def one_rank_reset(cfg):
    learner, batch = Learner(factory.model(), cfg), factory.batch(cfg)
    rows = [ranks_script.row(learner.step(batch)) for _ in range(2)]
    learner.reset(optimizer=True)
    return learner, rows + [ranks_script.row(learner.step(batch)) for _ in range(2)]


def _later(cfg):
    learner = Learner(factory.model(), cfg)
    return [ranks_script.row(learner.step(factory.batch(cfg))) for _ in range(4)][2:]


# The whole run


def rank_pid(launcher, rank):
    children = Path(f"/proc/{launcher}/task/{launcher}/children").read_text().split()
    for pid in children:
        environment = Path(f"/proc/{pid}/environ").read_text()
        if f"\0RANK={rank}\0" in environment:
            return int(pid)
    raise AssertionError(children)


@pytest.fixture(scope="module")
def killed(tmp_path_factory, tiny_model):
    """A run on two ranks whose rank 1 is killed after the checkpoint of step 2."""
    out = tmp_path_factory.mktemp("killed")
    settings = {"model__path": tiny_model, "run__steps": 5000, "checkpoint__every": 2}
    arguments = flags(out, run__name="r", eval__every=5000, learner__deadline_s=60, **settings)
    process = torchrun("-m", "trainer", "--recipe", "tiny", *arguments)
    good = out / "r" / "checkpoints" / "step-000002"
    wait_until(good.exists, process, "step 2's checkpoint")
    since = time.monotonic()
    os.kill(rank_pid(process.pid, 1), signal.SIGKILL)
    _, errors = process.communicate(timeout=60)
    return out / "r", process.returncode, errors, time.monotonic() - since


@pytest.mark.slow
def test_a_killed_rank_ends_the_run_with_its_name_and_a_good_checkpoint(killed):
    folder, code, errors, took = killed
    assert code == 1
    assert took < 30
    (line,) = [x for x in errors.splitlines() if x.startswith("train-rl: ")]
    phase = r"train-rl: rank 0, phase \w+: rank 1 no longer answers"
    assert re.match(phase, line)
    newest = checkpoint.latest(folder / "checkpoints")
    assert str(newest) in line
    assert list((newest / "learner").glob("__1_*.distcp"))
    (end,) = rows(folder, "end")
    assert "rank 1 no longer answers" in end["reason"]
    assert rows(folder, "run")[0]["gpus"] == {"train": 2, "generate": 0, "kind": "cpu"}
    assert end["gpu_hours"] == pytest.approx(2 * end["wall_s"] / 3600, rel=1e-3)


def resumable(killed, tmp_path, name):
    """Copy the killed run as it was after step 2."""
    folder = tmp_path / name
    shutil.copytree(killed[0], folder)
    for later in sorted((folder / "checkpoints").iterdir()):
        if later.name != "step-000002":
            shutil.rmtree(later)
    return folder


TIMES = {"gpu_hours", "gpu_hours_after", "wall_s"}


def steps(folder):
    """Rows of the steps, the later of two with the same number, without time fields."""
    found = {}
    for row in rows(folder, "step"):
        timed = TIMES | {k for k in row if k.endswith("_s")}
        found[row["step"]] = {k: v for k, v in row.items() if k not in timed}
    return found


@pytest.mark.slow
def test_a_run_of_two_ranks_equals_one_ranks_and_goes_on_at_two_and_at_one(
    killed, tmp_path, tiny_model
):
    settings = {"model__path": tiny_model, "run__steps": 4, "eval__every": 5000}
    assert main(["--recipe", "tiny", *flags(tmp_path, run__name="one", **settings)]) == 0
    want = steps(tmp_path / "one")
    at_one, at_two = (resumable(killed, tmp_path, name) for name in ("at-one", "at-two"))
    assert main(["--resume", str(at_one), "--run.steps", "4"]) == 0
    process = torchrun("-m", "trainer", "--resume", at_two, "--run.steps", 4)
    log, errors = process.communicate(timeout=120)
    assert process.returncode == 0, errors
    assert log == f"{at_two / 'log.jsonl'}\n"  # said once
    for folder in (at_one, at_two):
        got = steps(folder)
        assert_close([_plain(got[i]) for i in (1, 2, 3, 4)], [_plain(want[i]) for i in want])
    meta = {json.loads((p / "meta.json").read_text())["model"] for p in _newest(at_one, at_two)}
    assert len(meta) == 1  # the model is the same one, however many ranks hold it


def _newest(*folders):
    return [checkpoint.latest(folder / "checkpoints") for folder in folders]


def _plain(row):
    return {k: v for k, v in row.items() if isinstance(v, (int, float))}


def test_one_rank_learns_in_bfloat16_and_its_checkpoint_serves_every_use(tmp_path, tiny_model):
    settings = {"model__path": tiny_model, "run__steps": 2, "learner__compute": "bfloat16"}
    assert main(["--recipe", "tiny", *flags(tmp_path, run__name="b", **settings)]) == 0
    assert main(["--resume", str(tmp_path / "b"), "--run.steps", "3"]) == 0
    folder = tmp_path / "b"
    gaps = [r["logp_gap_max"] for r in rows(folder, "eval")]
    assert all(0 < gap < 0.5 for gap in gaps)  # bfloat16 on both sides, in kernels of their own
    assert [r["step"] for r in rows(folder, "step")] == [1, 2, 3]
    assert not torch.distributed.is_initialized()
    wrong = ["--learner.lora_rank", "2", "--learner.lora_targets", '["none"]']
    assert main(["--recipe", "tiny", *flags(tmp_path, run__name="c", **settings), *wrong]) == 2
    assert not torch.distributed.is_initialized()  # nor after a refusal
    assert main(["export", str(folder), str(tmp_path / "out")]) == 0
    learner = Learner(_load(tiny_model), factory.config())  # of float32 passes, without a group
    learner.load(checkpoint.latest(folder / "checkpoints"))
    for name, w in _load(tmp_path / "out").state_dict().items():
        assert torch.equal(w, learner.model.state_dict()[name]), name


def _load(directory):
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32)


# The cut


def test_ranks_get_about_as_many_tokens_and_every_sample_once():
    batch = factory.batch(factory.config())
    pieces = cut(batch, 2)
    assert sorted(torch.cat([i for i, _ in pieces]).tolist()) == list(range(8))
    loads = [int(lengths(part).sum()) for _, part in pieces]
    assert sum(loads) == 55
    assert max(loads) <= 29  # groups of 16, 23 and 16 tokens: whole ones would weigh 32


def test_a_rank_without_samples_gets_one_that_counts_nothing():
    batch = factory.batch(factory.config()).select(torch.tensor([1]))
    (index, part), (none, empty) = cut(batch, 2)
    assert index.tolist() == [0]
    assert len(part) == 1
    assert len(none) == 0
    assert empty.mask.sum() == empty.counted.sum() == 0
