"""A study says what it asks, where that comes from, how to run it, what comes out and how long it takes."""

import importlib
import pathlib
import re
import shlex

import pytest

from rnnjax.train import cli
from rnnjax.train.config import to_dict

FOLDER = pathlib.Path(__file__).parents[2] / "experiments"
STUDIES = sorted(path.stem for path in FOLDER.glob("*.py") if path.stem != "__init__")
PARTS = ("Question", "Source", "Command", "Expected", "Runtime")


def parts_of(doc):
    """{part: text} of a docstring, in order."""
    found = re.findall(r"^(\w+): (.*(?:\n[ \t]+.*)*)", doc, re.MULTILINE)
    return {part: " ".join(text.split()) for part, text in found}


def test_there_are_studies():
    assert "gradient_norms" in STUDIES


@pytest.mark.parametrize("name", STUDIES)
def test_a_study_has_every_part_and_none_is_empty(name):
    parts = parts_of(importlib.import_module(f"experiments.{name}").__doc__)
    assert [part for part in parts if part in PARTS] == list(PARTS)
    assert all(len(parts[part].split()) >= 3 for part in PARTS)


@pytest.mark.parametrize("name", STUDIES)
def test_the_command_is_one_that_runs(name):
    module = importlib.import_module(f"experiments.{name}")
    program, dash_m, called, *arguments = shlex.split(parts_of(module.__doc__)["Command"])
    assert (program, dash_m, called) == ("python", "-m", f"experiments.{name}")
    parsed, for_absl = cli.parse(arguments, module.get_config, doc=module.__doc__, variants=module.VARIANTS)
    assert parsed.workdir == pathlib.Path("runs") / name and for_absl == []
    assert to_dict(parsed.config) == to_dict(module.get_config(module.VARIANTS[0], "quick"))


@pytest.mark.parametrize("name", STUDIES)
def test_every_variant_and_preset_has_a_config(name):
    module = importlib.import_module(f"experiments.{name}")
    for variant in module.VARIANTS:
        for preset in cli.PRESETS:
            parsed, _ = cli.parse(
                ["--workdir=x", f"--config={variant}:{preset}"],
                module.get_config,
                doc=module.__doc__,
                variants=module.VARIANTS,
            )
            assert to_dict(parsed.config) == to_dict(module.get_config(variant, preset))
