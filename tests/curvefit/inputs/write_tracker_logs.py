"""Write the event files and the database in this folder, with the packages that trainers use.

    pip install torch tensorboard tensorboardX && python write_tracker_logs.py tensorboard FOLDER
    pip install trackio && python write_tracker_logs.py trackio FOLDER

The clock of the event files is set, so that their times are known. Versions used: torch 2.13.0,
tensorboard 2.21.0, tensorboardX 2.6.5, trackio 0.43.0.
"""

import gzip
import os
import sys
import time
from pathlib import Path

NOW = [1_790_000_000.0]


def score(step, speed=40.0):
    return 0.2 + 0.5 * step / (step + speed)


def verl_like(folder):
    """A run of 30 steps, ended in step 30 and continued ten hours later from its 20th."""
    import numpy as np
    from torch.utils.tensorboard import SummaryWriter

    for first, last in ((0, 29), (21, 50)):
        writer = SummaryWriter(folder)
        writer.add_text("config", "n_gpus_per_node: 8")
        for step in range(first, last + 1):
            NOW[0] += 60
            writer.add_scalar("critic/score/mean", score(step) - 0.05, step)
            writer.add_scalar("timing_s/step", 60, step)
            if step % 5 == 0:
                writer.add_scalar("val-core/openai/gsm8k/acc/mean@4", score(step), step)
                writer.add_histogram("lengths", np.arange(40.0) + step, step)
        writer.close()
        NOW[0] += 36_000


def tensors(folder):
    """Scalars as tensors, single and double, and settings in a folder of their own."""
    from torch.utils.tensorboard import SummaryWriter

    writer = SummaryWriter(folder)
    for step in range(0, 40, 5):
        NOW[0] += 300
        writer.add_scalar("eval/accuracy", score(step), step, new_style=True)
        writer.add_scalar("reward", step / 40, step, new_style=True, double_precision=True)
    writer.add_hparams({"lr": 1e-6}, {"hparam/best": 0.5})
    writer.close()


def purged(folder):
    """A run of 20 steps, continued from its 12th with ``purge_step``, and ended before its 20th."""
    from torch.utils.tensorboard import SummaryWriter

    for first, last in ((0, 20), (12, 16)):
        writer = SummaryWriter(folder, purge_step=first or None)
        for step in range(first, last + 1, 2):
            NOW[0] += 60
            writer.add_scalar("eval/reward", score(step) + first / 1000, step)
        writer.close()


def tensorboardx(folder):
    from tensorboardX import SummaryWriter

    writer = SummaryWriter(folder)
    for step in range(0, 40, 5):
        NOW[0] += 300
        writer.add_scalar("eval/pass@1", score(step, 25.0), step)
    writer.close()


def trl_like(folder):
    """Two runs as TRL logs them, one of them twice under the same name."""
    os.environ["TRACKIO_DIR"] = str(folder)
    import trackio

    for name, speed in (("grpo", 40.0), ("dapo", 20.0), ("grpo", 30.0)):
        trackio.init(project="countdown", name=name, config={"lr": 1e-6})
        for step in range(5, 45, 5):
            trackio.log(
                {
                    "train/global_step": step,
                    "train/reward": score(step, speed),
                    "train/step_time": 30.0,
                    "train/kl": float("nan"),
                }
            )
            if step % 10 == 0:
                held_out = {"eval/reward": score(step, speed) - 0.02, "train/global_step": step}
                trackio.log(held_out)
        trackio.finish()


def main(kind, folder):
    if kind == "trackio":
        trl_like(folder / "trackio")
        packed = gzip.compress((folder / "trackio/countdown.db").read_bytes(), mtime=0)
        (folder / "trackio_countdown.db.gz").write_bytes(packed)
        return
    time.time = lambda: NOW[0]
    for write in (verl_like, tensors, purged, tensorboardx):
        write(str(folder / "tensorboard" / write.__name__))
        NOW[0] += 3600


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
