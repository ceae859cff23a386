"""Answers on a terminal and in a pipe, and finished models read again."""

import dataclasses
import io
import json

import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from rich.console import Console

from rnnjax.answers import (
    Continuation,
    Label,
    Slots,
    Translation,
    Unanswerable,
    config_like,
    restored,
    standings,
    unknown_of,
    words_of,
)
from rnnjax.data import read_columns
from rnnjax.text import Vocabulary
from rnnjax.train.checkpoint import Checkpoints, to_arrays
from rnnjax.train.config import CheckpointConfig, UsageError, to_dict

SLOTS = Slots(("leave", "Hong Kong", "香港九龍", "on", "May"), ("O", "B-from", "I-from", "O", "B-date"))


def shown(answer, width=None):
    """What it prints, on a terminal of that width or into a pipe."""
    file = io.StringIO()
    options = {} if width is None else {"force_terminal": True, "width": width, "color_system": "standard"}
    answer.show(Console(file=file, highlight=False, **options))
    return file.getvalue()


def plain(text):
    import re

    return re.sub(r"\x1b\[[0-9;]*m", "", text)


def test_slots_stand_below_their_words_on_a_terminal():
    text = shown(SLOTS, 80)
    above, below = plain(text).rstrip("\n").split("\n")
    assert above.rstrip() == "leave Hong Kong 香港九龍 on May"
    assert below.rstrip() == "O     B-from    I-from   O  B-date"
    colors = [text[: text.index(slot)].rpartition("\x1b[")[2].partition("m")[0] for slot in ("B-from", "I-from")]
    assert colors[0] == colors[1] != text[: text.index("B-date")].rpartition("\x1b[")[2].partition("m")[0]


def test_a_narrow_terminal_gets_more_rows():
    lines = plain(shown(SLOTS, 19)).rstrip("\n").split("\n")
    assert [line.rstrip() for line in lines] == [
        "leave Hong Kong",
        "O     B-from",
        "香港九龍 on May",
        "I-from   O  B-date",
    ]
    assert "leave" in plain(shown(SLOTS, 3))


def test_slots_in_a_pipe_are_columns_that_can_be_read(tmp_path):
    answer = Slots(("leave", "Taipei"), ("O", "B-from"))
    (tmp_path / "found.txt").write_text(shown(answer) * 2)
    assert [(one.words, one.tags) for one in read_columns(tmp_path / "found.txt")] == [(answer.words, answer.slots)] * 2


def test_a_class_with_its_probability():
    answer = Label({"NUM": 0.05, "LOC": 0.9, "HUM": 0.04, "ENTY": 0.01})
    assert shown(answer) == "LOC\t0.9000\n"
    assert plain(shown(answer, 80)) == "LOC 90.0%   NUM 5.0%   HUM 4.0%\n"


def test_a_translation_is_a_line_and_a_continuation_comes_piece_by_piece():
    assert shown(Translation(("ein", "Hund"))) == shown(Translation(("ein", "Hund")), 3) == "ein Hund\n"
    file, seen = io.StringIO(), []

    def pieces():
        for piece in ("to", " be", "\n"):
            seen.append(file.getvalue())
            yield piece

    Continuation(pieces()).show(Console(file=file))
    assert file.getvalue() == "to be\n\n" and seen == ["", "to", "to be"]


def test_the_words_of_a_line_and_those_that_are_not_known():
    assert words_of(" to  Taipei\t") == ("to", "Taipei")
    with pytest.raises(Unanswerable, match="the line is empty: expected words"):
        words_of(" \t")
    with pytest.raises(Unanswerable, match="the line is empty: expected words"):
        words_of("\u00a0")
    vocabulary = Vocabulary.build([["to", "go"]])
    assert unknown_of(("a", "to", "b", "a"), vocabulary) == ("a", "b")


@dataclasses.dataclass
class _Inner:
    sizes: tuple[int, ...] = (1,)


@dataclasses.dataclass
class _Config:
    rate: float = 0.1
    inner: _Inner = dataclasses.field(default_factory=_Inner)


def test_a_config_comes_back_from_its_file():
    asked = _Config(0.5, _Inner((2, 3)))
    assert config_like(_Config(), json.loads(json.dumps(to_dict(asked)))) == asked
    for values, field in (
        ({"rate": 1}, "config.inner"),
        ({"rate": 1, "inner": {"sizes": [1], "more": 2}}, "config.inner.more"),
        ({"rate": 1, "inner": 3}, "config.inner.3"),
    ):
        with pytest.raises(UsageError, match=f"^{field} is not in both"):
            config_like(_Config(), values)


@dataclasses.dataclass
class _Typed:
    on: bool = False
    count: int = 1
    rate: float | None = 0.1
    name: str = dataclasses.field(default="a", metadata={"choices": ("a", "b")})
    names: tuple[str, ...] = dataclasses.field(default=("a",), metadata={"choices": ("a", "b")})
    hidden: str = dataclasses.field(default="", metadata={"flag": False})


def test_values_of_a_damaged_config_are_refused_by_field():
    good = to_dict(_Typed())
    for name, value in (("rate", 1), ("rate", None), ("names", []), ("name", "b"), ("on", True), ("hidden", "x")):
        assert to_dict(config_like(_Typed(), good | {name: value})) == good | {name: value}
    for name, value, expected in (
        ("on", 1, "true or false"),
        ("on", None, "true or false"),
        ("count", True, "a whole number"),
        ("count", 1.0, "a whole number"),
        ("count", "1", "a whole number"),
        ("count", [1], "a whole number"),
        ("count", {}, "a whole number"),
        ("rate", float("nan"), "a finite number or null"),
        ("rate", float("-inf"), "a finite number or null"),
        ("rate", 10**400, "a finite number or null"),
        ("rate", False, "a finite number or null"),
        ("name", "c", "a name, one of a, b"),
        ("names", "a", "a list, of which each is a name, one of a, b"),
        ("names", None, "a list, of which each is a name, one of a, b"),
        ("names", ["a", "c"], "a list, of which each is a name, one of a, b"),
        ("names", ["a", ["b"]], "a list, of which each is a name, one of a, b"),
        ("hidden", 3, "a name"),
    ):
        with pytest.raises(UsageError) as caught:
            config_like(_Typed(), good | {name: value})
        assert str(caught.value).startswith(f"config.{name} is ") and str(caught.value).endswith(
            f": expected {expected}"
        )


def _linear(seed, size=3):
    return nnx.Linear(2, size, rngs=nnx.Rngs(seed))


def _finish(folder, models, bests, step=7):
    """Saves the parameters of several replicas as a training does."""
    params = [nnx.state(model, nnx.Param) for model in models]
    stacked = to_arrays({"params": nnx.state(models[0], nnx.Param)})
    stacked = {name: np.stack([to_arrays({"params": one})[name] for one in params]) for name in stacked}
    with Checkpoints(folder / "checkpoints", CheckpointConfig()) as checkpoints:
        about = {"standings": [{"best": best, "best_step": step, "waited": 0, "scores": {}} for best in bests]}
        checkpoints.save("best", step, stacked, about)


def test_the_best_replica_comes_back(tmp_path):
    models = [_linear(seed) for seed in (1, 2, 3)]
    _finish(tmp_path, models, [0.5, 0.2, float("inf")])
    assert standings(tmp_path) == [0.5, 0.2, float("inf")]
    found = restored(_linear(9), tmp_path)
    np.testing.assert_array_equal(found.kernel[...], models[1].kernel[...])
    np.testing.assert_array_equal(found(jnp.ones(2)), models[1](jnp.ones(2)))
    with pytest.raises(UsageError) as caught:
        restored(_linear(9, size=4), tmp_path)
    assert str(caught.value).startswith(
        f"{tmp_path}/checkpoints/best/7 holds other"
    ) and "kernel/value (float32[3, 2, 3] there" in str(caught.value)
    (tmp_path / "checkpoints" / "best" / "7" / "default" / "arrays.safetensors").write_bytes(b"torn")
    with pytest.raises(UsageError, match=f"^{tmp_path}/checkpoints/best/7 is damaged: "):
        restored(_linear(9), tmp_path)


def test_standings_that_are_no_numbers_or_none(tmp_path):
    _finish(tmp_path / "a", [_linear(seed) for seed in (1, 2)], [float("nan"), 0.2])
    assert standings(tmp_path / "a") == [float("inf"), 0.2]
    np.testing.assert_array_equal(restored(_linear(9), tmp_path / "a").kernel[...], _linear(2).kernel[...])
    _finish(tmp_path / "b", [_linear(1)], [])
    with pytest.raises(UsageError, match="b/checkpoints/best/7 holds no standings: the run is of another version"):
        standings(tmp_path / "b")


def test_a_folder_without_parameters_is_told(tmp_path):
    with pytest.raises(UsageError, match=r"holds no parameters \(no checkpoints/best\)"):
        restored(_linear(0), tmp_path)
