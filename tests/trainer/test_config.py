"""Settings: recipes, file, flags; what is refused, and that the refusal names the remedy."""

import subprocess
import sys

import pytest

from trainer.config import RECIPES, load, recipe_names, save
from trainer.errors import ConfigError
from trainer.settings import SECTIONS, Config


def refused(*flags, recipes=(), file=None):
    with pytest.raises(ConfigError) as e:
        load(list(recipes), file, list(flags))
    assert "\n" not in str(e.value)
    return str(e.value)


def test_precedence_is_recipe_then_file_then_flag(tmp_path):
    file = tmp_path / "mine.toml"
    file.write_text("[loss]\nis_cap = 7\nclip_low = 0.1\n[optim]\nlr = 1e-4\n")
    config = load(["scalerl"], file, ["--optim.lr", "3e-4"])
    assert config.sample.prompts == 48
    assert config.loss.is_cap == 7.0
    assert config.optim.lr == 3e-4


def test_recipes_lie_one_over_the_other_in_order():
    config = load(["grpo", "tiny"])
    assert (config.loss.name, config.sample.group, config.optim.lr) == ("clip", 16, 1e-3)


@pytest.mark.parametrize("name", recipe_names())
def test_every_recipe_loads_and_is_saved_and_read_back_unchanged(name, tmp_path):
    config = load([name], None, ["--task.args.min_terms", "3", "--run.name", 'a "b" \\ c'])
    save(config, tmp_path / "config.toml")
    assert load([], tmp_path / "config.toml") == config


@pytest.mark.parametrize("name", recipe_names())
def test_every_recipe_trains_at_the_size_of_the_tiny_model(name):
    config = load([name, "tiny"])
    assert (config.task.name, config.sample.max_tokens, config.eval.samples) == ("chain", 16, 4)


def test_the_recipes_asked_for_ship():
    assert {"grpo", "dapo", "dr-grpo", "gspo", "scalerl", "prorl", "tiny"} <= set(recipe_names())
    assert all((RECIPES / f"{n}.toml").read_text().startswith("#") for n in recipe_names())


def test_the_defaults_are_the_objective_of_scalerl():
    plain, scalerl = Config(), load(["scalerl"])
    assert plain.loss == scalerl.loss
    assert plain.curriculum == scalerl.curriculum


@pytest.mark.parametrize(
    ("flags", "parts"),
    [
        (["--los.is_cap", "4"], ["unknown section 'los'", "did you mean loss?"]),
        (["--loss.is_kap", "4"], ["unknown key loss.is_kap", "did you mean loss.is_cap?"]),
        (["--loss.is_cap", "high"], ["loss.is_cap", "must be a number"]),
        (["--run.steps", "2.5"], ["run.steps", "must be a whole number"]),
        (["--run.steps", "true"], ["run.steps", "must be a whole number"]),
        (["--optim.lr", "nan"], ["optim.lr", "must be finite"]),
        (["--loss.name", "cispro"], ["did you mean cispo?", "gspo"]),
        (["--loss.name"], ["--loss.name needs a value"]),
        (["steps=3"], ["settings are written --section.key value"]),
        (["--loss.is_cap", "0.2"], ["below 1", "absolute", "5 is ScaleRL's value"]),
        (["--sample.top_p", "0.95"], ["top_p = 0.95", "top_p = 1"]),
        (["--sample.top_k", "50"], ["top_k = 50"]),
        (["--pipeline.k", "8"], ["pipeline.mode = sync"]),
        (["--pipeline.mode", "pipeline"], ["needs pipeline.k"]),
        (
            ["--pipeline.mode", "pipeline", "--pipeline.k", "8", "--loss.anchor", "old"],
            ["set loss.anchor to sampler"],
        ),
        (["--loss.anchor", "old"], ["ratio 1 everywhere"]),
        (["--loss.tis_cap", "2"], ["correct twice"]),
        (["--kl.coef", "0.1", "--kl.estimator", "k1"], ["expected gradient 0"]),
        (["--reward.overlong_max", "100"], ["go together"]),
        (["--sample.thinking_tokens", "8"], ["sample.answer_tokens"]),
        (["--eval.ks", "[8]"], ["eval.samples = 4"]),
        (["--engine.addresses", '["node7"]'], ["'node7'", "host:port"]),
        (["--engine.addresses", '["node7:99999"]'], ["host:port"]),
        (["--engine.transfer", "nccl"], ["model.device = cpu", "file or auto"]),
        (["--engine.slots", "0"], ["engine.slots", "at least 1"]),
        (["--engine.max_length", "16"], ["no room for a prompt", "sample.max_tokens = 16"]),
        (["--engine.memory", "80"], ["is a share"]),
        (["--run.gpus_generate=-1"], ["at least 0"]),
        (
            ["--learner.compute", "bfloat16", "--model.dtype", "bfloat16"],
            ["keeps float32 weights", "leave learner.compute"],
        ),
        (["--model.attention", "flash_attention_2"], ["needs CUDA", "sdpa"]),
        (["--learner.lora_targets", '["q_proj"]'], ["set learner.lora_rank"]),
    ],
)
def test_what_cannot_be_right_is_refused_in_one_line_with_its_remedy(flags, parts):
    message = refused(*flags)
    for part in parts:
        assert part in message


def test_unknown_recipe_names_the_nearest():
    message = refused(recipes=["scalrl"])
    assert "unknown recipe 'scalrl'" in message
    assert "did you mean scalerl?" in message


def test_unreadable_or_broken_files_are_named(tmp_path):
    assert "cannot read" in refused(file=tmp_path / "none.toml")
    (tmp_path / "bad.toml").write_text("[loss\n")
    assert "is not TOML" in refused(file=tmp_path / "bad.toml")
    (tmp_path / "flat.toml").write_text("loss = 3\n")
    assert "write [loss]" in refused(file=tmp_path / "flat.toml")


def test_every_setting_says_what_it_means():
    from dataclasses import fields

    for section, cls in SECTIONS.items():
        assert cls.__doc__, section
        assert all(f.metadata["help"] for f in fields(cls)), section


def test_reading_settings_and_help_import_no_torch():
    code = (
        "import sys, trainer.cli, trainer.config\n"
        "trainer.config.load(['tiny'])\n"
        "try:\n    trainer.cli.main(['--help'])\nexcept SystemExit:\n    pass\n"
        "heavy = {'torch', 'transformers', 'numpy', 'scipy', 'pandas'} & set(sys.modules)\n"
        "assert not heavy, heavy"
    )
    subprocess.run([sys.executable, "-c", code], check=True, stdout=subprocess.DEVNULL)
