"""An engine that shares the learner's device sleeps while the learner works, never otherwise."""

import pytest

from trainer import loop
from trainer.config import load
from trainer.engine.local import LocalEngine
from trainer.errors import EngineError
from trainer.run import open_run

SMALL = ("--sample.prompts", "2", "--sample.group", "4", "--eval.prompts", "4", "--run.steps", "3")


class Sleeper(LocalEngine):
    """A local engine that loses its weights in its sleep, as vLLM does at level 2."""

    naps, hollow = 0, False

    def sleep(self):
        assert not self.running
        self.naps, self.hollow = self.naps + 1, True

    def update(self, version, weights):
        super().update(version, weights)
        self.hollow = False

    def submit(self, requests):
        if self.hollow:
            raise EngineError("generation without weights")
        super().submit(requests)


@pytest.mark.parametrize("mode", [(), ("--pipeline.mode", "off-policy", "--pipeline.k", "2")])
def test_the_engine_sleeps_once_a_generation_and_is_awake_for_the_next(tmp_path, tiny_model, mode):
    config = load(["tiny"], None, [*SMALL, "--model.path", str(tiny_model), *mode])
    run = open_run(config, tmp_path / "run", resume=False)
    engine = Sleeper.from_directory(tiny_model)
    run.engine = run.worker.engine = run.source.engine = engine
    try:
        loop.measure(run)
        for generation in range(1, 3):
            for groups, batch, old, version in loop.collect(run):
                assert engine.hollow or run.step > version  # asleep until the first new weights
                loop.learn(run, groups, batch, old, version)
                loop.publish(run)
                loop.measure(run)
            assert engine.naps == generation
    finally:
        run.close("end of the test")
