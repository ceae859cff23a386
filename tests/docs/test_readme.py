"""What the README prints runs."""

import pathlib
import re
import shlex
import sys

import jax
import pytest

from experiments import gradient_norms, slot_filling
from rnnjax.cells import CELLS
from rnnjax.testing import check_cell
from rnnjax.train import cli

README = (pathlib.Path(__file__).parents[2] / "README.md").read_text()
BLOCKS = dict(re.findall(r"## ([^\n]+)\n(?:(?!\n## ).)*?```python\n(.*?)```", README, re.DOTALL))
COMMANDS = [line for block in re.findall(r"```sh\n(.*?)```", README, re.DOTALL) for line in block.splitlines()]


@pytest.fixture
def leaky(monkeypatch):
    """The cell of "Your own cell", in CELLS for the test."""
    cells = dict(CELLS)
    module = type(sys)("my_cell")
    monkeypatch.setitem(sys.modules, "my_cell", module)
    exec(BLOCKS["Your own cell"], module.__dict__)
    yield module.LeakyElman
    CELLS.clear()
    CELLS.update(cells)


@pytest.mark.full
def test_the_cell_of_ten_lines_keeps_the_contract(leaky):
    check_cell(leaky(3, 5))


def test_the_cell_of_ten_lines_is_a_choice_with_flags_of_its_own(leaky):
    arguments = shlex.split(next(line for line in COMMANDS if line.startswith("python my_cell.py")))[2:]
    parsed, _ = cli.parse(arguments, gradient_norms.get_config, doc="", variants=gradient_norms.VARIANTS)
    assert parsed.config.cells == ("elman", "jordan", "lstm", "gru", "leaky")
    assert parsed.config.cell_options.leaky.leak == 0.05


def test_the_probe_of_a_users_model_runs():
    names = {}
    exec(BLOCKS["Your own model"], names)
    assert names["norms"]["carry"].shape == (50, 8)
    assert jax.numpy.isfinite(names["nats_a_step"]).all()


def test_the_tagger_of_a_user_runs():
    names = {}
    exec(BLOCKS["Words in, slots out"], names)
    assert jax.numpy.isfinite(names["loss"]) and set(names["through_time"]) == {"forward", "backward"}


def test_the_slot_filling_command_parses():
    (command,) = [one for one in COMMANDS if one.startswith("python -m experiments.slot_filling")]
    arguments = shlex.split(command)[3:]
    parsed, _ = cli.parse(arguments, slot_filling.get_config, doc="", variants=slot_filling.VARIANTS)
    assert parsed.config.models == ("lstm-w3", "gru-bi-crf")


@pytest.mark.parametrize("command", [c for c in COMMANDS if c.startswith("python -m experiments.gradient_norms --w")])
def test_the_commands_parse(command):
    cli.parse(
        [word for word in shlex.split(command)[3:] if word != "&"],
        gradient_norms.get_config,
        doc="",
        variants=gradient_norms.VARIANTS,
    )


def test_every_study_of_the_table_is_there():
    told = set(re.findall(r"\| `experiments\.(\w+)` \|", README))
    folder = pathlib.Path(gradient_norms.__file__).parent
    assert told == {path.stem for path in folder.glob("*.py")} - {"__init__"}


def test_the_picture_is_there():
    for path in re.findall(r"!\[[^]]*\]\(([^)]+)\)", README):
        assert (pathlib.Path(__file__).parents[2] / path).stat().st_size > 10_000


def test_nothing_is_left_to_be_filled_in():
    assert not re.findall(r"\b[A-Z]+_[A-Z]+\b", re.sub(r"`[^`]*`|```.*?```", "", README, flags=re.DOTALL))
