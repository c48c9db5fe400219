"""Everything that can go wrong, in one tree.

::

    ValueError
      TrainerError             one line: what is wrong, where, what to do (exit code 2)
        ConfigError            a setting, a recipe or a flag cannot be used
        TaskError              prompts, answers or a verifier cannot be used
        SandboxError           model-written code cannot be isolated here, or its sandbox failed
        CheckpointError        a checkpoint cannot be written, read or belongs elsewhere
        EngineError            the generating side failed or missed a deadline (exit code 1)
        RankError              a rank of the learner failed or is gone (exit code 1)
        RunStopped             the run was stopped by its own guard (exit code 1)

A message is one line that can stand alone on a terminal: it names the value, the limit and the
remedy. ``assert`` is for the programmer; these classes are for the user.
"""

from __future__ import annotations

__all__ = [
    "CheckpointError",
    "ConfigError",
    "EngineError",
    "RankError",
    "RunStopped",
    "SandboxError",
    "TaskError",
    "TrainerError",
]


class TrainerError(ValueError):
    """The root of all errors that this package raises on purpose."""

    exit_code = 2


class ConfigError(TrainerError):
    """A setting, a recipe or a flag cannot be used."""


class TaskError(TrainerError):
    """Prompts, answers or a verifier cannot be used."""


class SandboxError(TrainerError):
    """Model-written code cannot be isolated on this machine, or its sandbox failed."""


class CheckpointError(TrainerError):
    """A checkpoint cannot be written or read, or belongs to another model or run."""


class EngineError(TrainerError):
    """The generating side failed, lost a request or missed a deadline."""

    exit_code = 1


class RankError(TrainerError):
    """A rank of the learner failed, is gone, or did not come in time."""

    exit_code = 1


class RunStopped(TrainerError):
    """A guard of the run stopped it: too many non-finite steps, or an alarm set to abort."""

    exit_code = 1
