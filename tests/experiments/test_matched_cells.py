"""The study of matched cells: its numbers by hand, claims that can fail, runs with and without a corpus."""

import json
import math

import jax
import numpy as np
import pytest
from changed_configs import changed

from experiments import matched_cells, music
from experiments.common import gru_lstm
from experiments.common.adding_report import Learning
from rnnjax.cells import GRU, LSTM, Elman
from rnnjax.data.errors import DataError
from rnnjax.data.pianoroll import SPLITS
from rnnjax.tasks import Adding, Music
from rnnjax.train.config import UsageError

TINY = {
    "models": ("gru", "lstm"), "seeds": 1, "probe.on": False, "train.epochs": 0, "train.steps": 2,
    "train.steps_per_call": 2, "train.eval_every": 2, "train.log_every": 2, "train.batch_size": 3,
    "train.eval_batch": 3, "time.units": 4, "time.length": 3, "time.batch": 2, "time.rounds": 1, "time.seconds": 0.0,
    "few.steps": 2, "few.seeds": 1, "few.every": 2, "long.lengths": (4,), "long.units": 2, "long.steps": 50,
    "long.test_every": 50, "long.seeds": 1,
}  # fmt: skip


@pytest.fixture(scope="module", autouse=True)
def quick():
    """Quick compilation, and no corpus but the one given."""
    jax.config.update("jax_disable_most_optimizations", True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RNNJAX_DATA", "/nowhere")
        patch.setenv("XDG_CACHE_HOME", "/nowhere")
        yield
    jax.config.update("jax_disable_most_optimizations", False)


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    """Three small pieces of two chords in turn for every split."""
    chords = [[60, 64, 67], [62, 65, 69]]
    pieces = [[chords[t % 2] for t in range(length)] for length in (4, 5, 6)]
    path = tmp_path_factory.mktemp("music") / "small.json"
    path.write_text(json.dumps(dict.fromkeys(SPLITS, pieces)))
    return str(path)


def tiny(**changes):
    config = matched_cells.get_config("jsb", "quick")
    for cell in matched_cells.CELLS:
        getattr(config.cell_options, cell).hidden_size = 3
    return changed(config, TINY | changes)


def test_without_a_corpus_what_needs_none_is_measured(tmp_path, monkeypatch):
    timed = {f"{name} {units}": [2.0, 3.0] for units in (3, 4) for name in ("gru", "lstm")}
    monkeypatch.setattr(gru_lstm, "time_steps", lambda *_: {"of": timed, "machine": gru_lstm.machine()})
    matched_cells.main(tiny(), tmp_path)
    text = (tmp_path / "report.md").read_text()
    assert "There is no corpus" in text and "python -m rnnjax.data fetch polymusic" in text
    assert "updates to solve adding, T = 4, 2 units | inf | inf | - | 1 |" in text and "nats a step" not in text
    assert (tmp_path / "statements.png").exists() and not (tmp_path / "gru").exists()
    assert json.loads((tmp_path / "claims.json").read_text())["claims"] == []
    assert "ms a training step, as wide | 2500.00 | 2500.00 | 1.000 (quartiles 1.000, 1.000) | 2 |" in text


@pytest.mark.full
def test_a_run_with_a_corpus_from_end_to_end(path, tmp_path):
    config = tiny(**{"task.path": path, "models": matched_cells.CELLS, "probe.on": True, "few.seeds": 2})
    matched_cells.main(config, tmp_path)
    text = (tmp_path / "report.md").read_text()
    assert "| ahead on small data | nats a step, 1 in 2 pieces |" in text and "| elman |" in text
    for name in ("scores", "statements", "gradients"):
        assert (tmp_path / f"{name}.png").exists()
    timed = json.loads((tmp_path / "parts" / "time.json").read_text())["of"]
    assert list(timed) == ["elman 3", "gru 3", "lstm 3", "gru 4", "lstm 4"] and len(timed["gru 4"]) == 1
    before = {file: file.read_bytes() for file in tmp_path.glob("**/summary.json")}
    assert len(before) == 7
    matched_cells.main(config, tmp_path)
    assert {file: file.read_bytes() for file in tmp_path.glob("**/summary.json")} == before


def test_a_path_that_is_none_is_an_error_and_nothing_is_written(tmp_path):
    with pytest.raises(DataError, match="no such file"):
        matched_cells.main(tiny(**{"task.path": str(tmp_path / "none.json")}), tmp_path / "w")
    assert not (tmp_path / "w").exists()


def test_few_pieces_are_every_nth_of_training_alone(path):
    whole, few = Music(path=path), gru_lstm.FewPieces(path=path, every=2)
    assert [len(roll) for roll in few.rolls["train"]] == [4, 6]
    for split in ("valid", "test"):
        assert [len(roll) for roll in few.rolls[split]] == [len(roll) for roll in whole.rolls[split]] == [4, 5, 6]
    entries = matched_cells.few_entries(tiny(**{"task.path": path, "few.steps": 40, "few.every": 3}))
    assert [entry.name for entry in entries] == ["gru-few", "lstm-few"] and entries[0].task.every == 3
    assert (entries[0].train.steps, entries[0].train.eval_every, entries[0].train.epochs) == (40, 2, 0)
    assert entries[0].train.learning_rate == matched_cells.get_config("jsb", "quick").rates.gru


def test_sizes_and_entries_are_those_of_the_study_of_music():
    config, of_music = matched_cells.get_config("jsb", "full"), music.get_config("jsb", "quick")
    assert matched_cells.units(config) == {"elman": 100, "gru": 46, "lstm": 36}
    assert (config.rates, config.train.weight_noise, config.train.epochs) == (of_music.rates, 0.0, 50)
    gru, lstm = matched_cells.long_entries(config)[:2]
    assert (gru.name, lstm.name, gru.task) == ("gru-adding-100", "lstm-adding-100", Adding(length=100))
    assert (gru.make_model.args[0], lstm.make_model.args[0]) == (GRU(2, 32), LSTM(2, 32))
    assert (gru.train.learning_rate, gru.train.batch_size, gru.train.clip_norm) == (3e-3, 64, 1.0)


def test_counts_are_those_of_the_equations():
    x, h = 7, 5
    assert gru_lstm.count(Elman(x, h)) == h * (x + h + 1)
    assert gru_lstm.count(GRU(x, h, reset="before")) == 3 * h * (x + h + 1)
    assert gru_lstm.count(GRU(x, h)) == 3 * h * (x + h + 1) + h
    assert gru_lstm.count(LSTM(x, h)) == 4 * h * (x + h + 1)
    of_size, matched = gru_lstm.parameter_claims()
    assert of_size.holds and matched.holds and "20,100 / 20,286 / 19,728" in matched.claim
    assert matched.measured == pytest.approx(20286 / 19728 - 1)


def test_counts_that_do_not_match_fail(monkeypatch):
    monkeypatch.setattr(gru_lstm, "MATCHED", {Elman: 100, GRU: 47, LSTM: 36})
    assert [claim.holds for claim in gru_lstm.parameter_claims()] == [True, False]
    monkeypatch.setattr(gru_lstm, "LSTM", Elman)
    assert not gru_lstm.parameter_claims()[0].holds


def test_a_paired_difference_is_told_with_its_standard_error():
    found = gru_lstm.Difference.of([3.0, 5.0, 7.0], [2.0, 3.0, 4.0])
    assert (found.n, found.mean) == (3, 2.0) and found.error == pytest.approx(1 / math.sqrt(3))
    assert str(found) == "+2.000 (standard error 0.577, n = 3)"
    assert math.isnan(gru_lstm.Difference.of([3.0], [2.0]).error)
    for a, b in (([math.inf, 1.0], [math.inf, 0.0]), ([1.0, 2.0], [math.nan, 0.0]), ([1.0, 2.0], [math.inf, 0.0])):
        assert math.isnan(gru_lstm.Difference.of(a, b).mean)


def test_what_was_never_solved_is_solved_at_infinity():
    assert gru_lstm.solved_at(Learning([{100: 0.1, 200: 0.009}, {100: 0.1, 200: math.nan}])).tolist() == [200, math.inf]


def summary(*losses):
    return {"replicas": [{"scores": {"loss": loss}} for loss in losses]}


class Chance(Music):
    """A corpus of which nothing but its chance is asked."""

    chance = 10.95


def found(config, *, elman=8.8, few=(9.29, 9.3), wide=0.75, matched=1.0, gru=(300, 400), lstm=(700, 600), none=False):
    """Made-up measurements: all claims hold."""
    timed = {"of": {"gru 256": [wide], "lstm 256": [1.0], "gru 46": [matched], "lstm 36": [1.0]}}
    of = {"elman": summary(elman), "gru": summary(8.5), "lstm": summary(8.6)}
    small = {"gru-few": summary(9.0, 9.0), "lstm-few": summary(*few)}
    learning = {}
    for name, crossings in {"gru": gru, "lstm": lstm}.items():
        for length in config.long.lengths:
            seeds = [{step: 0.1 if step < at else 0.001 for step in range(100, 1001, 100)} for at in crossings]
            learning[f"{name}-adding-{length}"] = Learning(seeds)
    if none:
        return matched_cells.Found(None, "there is none", timed, {}, {}, learning)
    return matched_cells.Found(Chance(corpus=config.task.corpus), "", timed, of, small, learning)


@pytest.mark.parametrize(
    "changes, fails",
    [
        ({}, []),
        ({"elman": 10.1}, [2]),
        ({"elman": 8.74}, [3]),
        ({"wide": 1.0}, [5]),
        ({"few": (9.3, 9.0)}, [6]),
        ({"few": (9.2, 9.4)}, [6]),  # three standard errors of two pairs are not resolved
        ({"few": (8.9, 8.8)}, [6]),
        ({"gru": (300, 600)}, [7, 8]),
        ({"gru": (300, 5000), "lstm": (5000, 5000)}, [7, 8]),
        ({"elman": np.nan, "wide": np.nan, "matched": np.nan, "few": (np.nan, 9.1)}, [2, 3, 5, 6]),
    ],
    ids=range(10),
)
def test_claims_hold_or_not(changes, fails):
    config = matched_cells.get_config("jsb", "full")
    made = matched_cells.claims(config, found(config, **changes))
    assert [claim.holds for claim in made] == [at not in [4, *fails] for at in range(9)]
    assert "nottingham:full" in made[4].not_measured
    assert [bool(claim.contested) for claim in made] == [False] * 6 + [True, False, False]


def test_on_nottingham_the_gain_is_contested_and_of_a_full_training():
    config = matched_cells.get_config("nottingham", "full")
    gain = matched_cells.claims(config, found(config))[3]
    assert gain.holds and "tanh ahead by 0.07" in gain.contested
    quick = matched_cells.get_config("nottingham", "quick")
    assert "after 3 it is 0.200" in matched_cells.claims(quick, found(quick))[3].not_measured


def test_what_was_not_measured_says_why():
    config = matched_cells.get_config("jsb", "quick")
    made = matched_cells.claims(config, found(config, none=True))
    assert [claim.not_measured[:13] for claim in made] == [
        "", "", "there is none", "another corpu", "", "there is none", "", "the full pres"
    ]  # fmt: skip


@pytest.mark.parametrize(
    "change, message",
    [
        ({"models": ("elman", "gru")}, "--config.models lacks lstm"),
        ({"time.units": 0}, "--config.time.units is 0: expected at least 1"),
        ({"few.every": 0}, "--config.few.every is 0"),
        ({"long.lengths": ()}, "--config.long.lengths is (): expected one or more above 1, each once"),
        ({"long.lengths": (1,)}, "--config.long.lengths is 1"),
        ({"long.steps": 0}, "--config.long.steps is 0"),
        ({"long.test_every": 30}, "--config.long.test_every is 30: expected a multiple of 50"),
        ({"long.steps": 60}, "--config.long.steps is 60: expected a multiple of 50"),
        ({"train.learning_rate": 0.5}, "--config.train.learning_rate is 0.5"),
    ],
    ids=range(9),
)
def test_what_cannot_be_is_refused_before_anything_is_written(tmp_path, change, message):
    with pytest.raises(UsageError) as error:
        matched_cells.main(tiny(**change), tmp_path / "w")
    assert str(error.value).startswith(message) and not (tmp_path / "w").exists()
