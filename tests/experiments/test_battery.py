"""The battery: what is measured is numpy's, claims can fail, a cell that fails does not end it, a page comes out."""

import dataclasses
import json
import math
import re

import jax
import numpy as np
import pytest
from changed_configs import changed

from experiments import battery
from experiments.common import battery_parts, untrained
from experiments.common.battery_claims import claims, rates
from experiments.common.battery_report import Findings, Learned
from experiments.common.named_cell import find
from experiments.common.user_cells import Plain
from rnnjax.report import figures
from rnnjax.train.config import UsageError
from rnnjax.train.step import root_key

TINY = battery.UntrainedConfig(3, 4, time=40, burn_in=5, product=6, exponents=3, seeds=2, seed=1)
SMALL = {
    "beside": ("elman",),
    "seeds": 1,
    "model.hidden_size": 4,
    "adding.length": 4,
    "order.min_length": 10,
    "train.steps": 2,
    "train.steps_per_call": 1,
    "train.eval_every": 1,
    "train.eval_batch": 4,
    "train.log_every": 1,
    "train.batch_size": 2,
    "probe.batch": 2,
    "speed.size": "3x2x3x4",
    "speed.rounds": 1,
}


def small(cell="odd_cells:slow", **more):
    few = {"untrained": dataclasses.replace(TINY), "cell": cell}
    return changed(battery.get_config("memory", "quick"), SMALL | few | more)


def measured(cell):
    with jax.enable_x64(True):
        return battery_parts.untrained(cell, TINY)


def test_what_is_measured_is_numpys():
    found = measured(Plain(3, 4))
    with jax.enable_x64(True):
        drawn = untrained.draw(Plain(3, 4), root_key(2), 1.0, {}, TINY.time, 1)
    params, inputs, weights = jax.device_get(drawn)
    W, h, jacobians = params["W"], np.zeros(4), []
    for x in inputs[:, 0]:
        h = np.tanh(np.concatenate([x, h]) @ W)
        jacobians.append(np.diag(1 - h * h) @ W[3:].T)
    d, norms = weights[0], []
    for jacobian in reversed(jacobians):
        norms.append(np.log10(np.linalg.norm(d)))
        d = d @ jacobian
    np.testing.assert_allclose(found["norms"][1], norms, atol=1e-6)
    last = TINY.burn_in + TINY.product
    np.testing.assert_allclose(found["one"][1], np.log(np.linalg.svd(jacobians[last])[1]), atol=1e-9)
    product = np.linalg.multi_dot(jacobians[last : last - TINY.product : -1])
    np.testing.assert_allclose(found["product"][1], np.log(np.linalg.svd(product)[1]), atol=1e-6)
    np.testing.assert_allclose(np.sort(found["eigenvalues"][1]), np.sort(np.linalg.eigvals(jacobians[last])))
    basis, grown = np.eye(4)[:, :3], []
    for jacobian in jacobians[: TINY.time - TINY.burn_in]:
        basis, triangle = np.linalg.qr(jacobian @ basis)
        grown.append(np.log(np.abs(np.diag(triangle))))
    np.testing.assert_allclose(found["exponents"][1], np.mean(grown[TINY.burn_in :], 0), atol=1e-9)
    window = (norms[TINY.time - TINY.burn_in] - norms[TINY.burn_in]) * math.log(10) / (TINY.time - 2 * TINY.burn_in)
    assert rates(found, TINY)[1] == pytest.approx(window)
    assert int(found["parameters"]) == W.size


@pytest.mark.parametrize(
    "name, told",
    [
        ("NoDtype", {"gradient": "init.. takes 2 positional", "lyapunov": "init", "jacobian": "init"}),
        ("Counting", {"gradient": "int32, which has no gradient", "lyapunov": "ValueError", "jacobian": "ValueError"}),
    ],
)
def test_a_cell_that_cannot_be_measured_says_why(name, told):
    found = measured(find(f"odd_cells:{name}").make(3, 4))
    for part, why in told.items():
        assert re.search(why, str(found[f"failed.{part}"])), part
    assert not {"norms", "exponents", "one"} & set(found)


def test_odd_states_are_measured():
    assert measured(find("odd_cells:TwoFields").make(3, 4))["eigenvalues"].shape == (2, 6)
    assert np.isnan(measured(find("odd_cells:Nan").make(3, 4))["norms"]).any()


def test_a_check_that_fails_does_not_stop_the_others(monkeypatch):
    def fails():
        raise AssertionError("not so\nand more")

    monkeypatch.setattr(battery_parts, "cell_checks", lambda cell: {"first": fails, "second": lambda: None})
    rows = battery_parts.conformance(Plain(3, 4))
    assert rows == [{"check": "first", "failed": rows[0]["failed"]}, {"check": "second", "failed": ""}]
    assert rows[0]["failed"].startswith("AssertionError: not so")


def made_up(config, off=0.0, beside=0.0, last=-0.5, failing=0, **held):
    """Findings of straight lines of -0.1 nats a step, whose exponents are off by so much."""
    line = np.tile(-0.1 * np.arange(config.time) / math.log(10), (config.seeds, 1))

    def cell(off):
        exponents = np.linspace(-0.1 + off, last, 4) * np.ones((config.seeds, 1))
        said = {f"failed.{name}": np.asarray("") for name in ("gradient", "lyapunov", "jacobian")}
        return {"norms": line, "exponents": exponents, "error": exponents * 0} | said

    checks = [{"check": str(at), "failed": "no" if at < failing else ""} for at in range(11)]
    return Findings("mine", {"mine": cell(off) | held, "elman": cell(beside)}, {}, {}, checks)


INFINITE = np.full((3, 500), -np.inf)


@pytest.mark.parametrize(
    "changes, fails, unmeasured",
    [
        ({}, [], []),
        ({"failing": 1}, [0], []),
        ({"off": 0.021}, [1], []),
        ({"off": -0.019, "beside": 0.019}, [], []),
        ({"beside": np.nan}, [2], []),
        ({"off": np.nan}, [1], []),
        ({"last": -0.11}, [3], []),
        ({"failed.gradient": np.asarray("it cannot")}, [1], [1]),
        ({"norms": INFINITE}, [1], [1]),
    ],
    ids=range(9),
)
def test_claims_hold_or_not(changes, fails, unmeasured):
    config = battery.get_config("memory", "quick")
    made = claims(config, made_up(config.untrained, **changes))
    assert [claim.holds for claim in made] == [at not in fails for at in range(4)]
    assert [at for at, claim in enumerate(made) if claim.not_measured] == unmeasured


def test_a_window_too_short_for_the_tolerance_is_not_judged():
    config = changed(battery.get_config("memory", "quick"), {"untrained.time": 499})
    made = claims(config, made_up(config.untrained))
    assert [bool(claim.not_measured) for claim in made] == [False, True, True, True]
    assert "299 steps, the rule is meant for 300" in made[1].not_measured


def test_what_was_learned_is_told_in_words():
    one = Learned({0: {25: 1.0, 50: 0.01}, 1: {25: 0.9, 50: math.nan}}, None, 1.0, "nats")
    assert one.solved() == [50, None] and one.told() == "1 of 2, step 50"
    assert one._replace(losses={0: {25: 0.5}}).told() == "no, 0.50 of chance"
    assert one._replace(losses={0: {25: math.nan}, 1: {}}).told() == "diverged"
    assert one._replace(failed="it cannot").told() == "failed"


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"cell": "odd_cells:Units"}, "takes no input_size"),
        ({"cell": "nowhere:X"}, "there is no module nowhere"),
        ({"beside": ()}, "--config.beside is empty"),
        ({"beside": ("elman", "elman")}, "--config.beside names elman 2 times"),
        ({"untrained.seeds": 0}, "--config.untrained.seeds is 0"),
        ({"untrained.time": 20}, "--config.untrained.time is 20: expected at least 21"),
        ({"speed.size": "3x2"}, "--config.speed.size has '3x2'"),
        ({"speed.rounds": 0}, "--config.speed.rounds is 0"),
        ({"model.hidden_size": 0}, "--config.model.hidden_size is 0"),
        ({"train.steps": 0}, "--config.train.steps is 0"),
        ({"seeds": 0}, "--config.seeds is 0"),
        ({"adding.length": 1}, "length of Adding is 1"),
    ],
    ids=range(12),
)
def test_what_cannot_be_is_refused_before_anything_is_written(tmp_path, changes, message):
    with pytest.raises(UsageError, match=message):
        battery.main(small(**changes), tmp_path / "w")
    assert not (tmp_path / "w").exists()


def run(monkeypatch, folder, config):
    """A run whose conformance is looked at elsewhere."""
    monkeypatch.setattr(battery_parts, "cell_checks", lambda cell: {"init": lambda: cell.init(root_key(0), np.float32)})
    battery.main(config, folder)
    return (folder / "report.md").read_text(), json.loads((folder / "claims.json").read_text())["claims"]


@pytest.fixture
def quickly(monkeypatch):
    """Networks are made up, trainings learn nothing, and pictures are small."""
    fake = made_up(TINY).untrained["elman"]
    more = {"one": fake["exponents"], "product": fake["exponents"], "eigenvalues": fake["exponents"] + 1j}
    measure = battery.untrained

    def untrained_of(layer, config):
        return measure(layer, config) if type(layer).__name__ == "NoDtype" else fake | more

    monkeypatch.setattr(battery, "untrained", untrained_of)
    monkeypatch.setattr(battery, "run_entries", train_nothing)
    monkeypatch.setattr(figures, "save", lambda figure, path: figure.savefig(f"{path}.png", dpi=20))


def train_nothing(entries, workdir, config):
    """What a training leaves that learned nothing."""
    (entry,) = entries
    entry.make_model(0)
    folder = workdir / entry.name
    folder.mkdir(exist_ok=True)
    rows = [{"step": step, "kind": "eval", "split": "test", "loss": entry.task.chance} for step in (1, 2)]
    (folder / "metrics.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    np.savez(folder / "norms.npz", step=[0, 2], cell=np.zeros((2, entry.task.length, 3)))


def test_a_run_from_end_to_end(tmp_path, monkeypatch, quickly):
    config = small()
    text, told = run(monkeypatch, tmp_path, config)
    assert "# The battery: slow" in text and "| init | passed |" in text and "What could not" not in text
    assert text.count("no, 1.0 of chance") == 4
    assert [claim["holds"] for claim in told] == [True, False, False, False]  # the window is too short
    assert (tmp_path / "board.png").exists()
    monkeypatch.setattr(battery, "in_threads", None)  # what is there is not measured again
    again = []
    monkeypatch.setattr(battery, "write_report", lambda folder, study, *_: again.append(study))
    battery.main(config, tmp_path)
    assert again[0].tables[0].rows[0][0] == "slow"
    monkeypatch.setattr(type(find(config.cell)), "source", property(lambda self: "changed"))
    with pytest.raises(UsageError, match="holds another run: it differs in source"):
        battery.main(config, tmp_path)


def test_a_cell_that_fails_everywhere_has_a_page_too(tmp_path, monkeypatch, quickly):
    text, told = run(monkeypatch, tmp_path, small("odd_cells:NoDtype"))
    assert "| init | failed | TypeError" in text and "## What could not be measured" in text
    for what in ("gradient", "lyapunov", "jacobian", "adding", "temporal order", "speed"):
        assert f"| {what} | TypeError: NoDtype.init() takes" in text
    assert not any(claim["holds"] for claim in told)
    assert "| elman |" in text


@pytest.mark.full
def test_the_trainings_are_those_of_the_trainer(tmp_path, monkeypatch):
    text, _ = run(monkeypatch, tmp_path, small())
    assert "of chance" in text and (tmp_path / "adding-slow" / "summary.json").exists()
    with np.load(tmp_path / "temporal_order-elman" / "norms.npz") as norms:
        assert norms["elman"].shape == (2, 10, 3)


@pytest.mark.full
def test_the_page_of_the_example_holds_what_it_claims(tmp_path):
    battery.main(battery.get_config("memory", "quick"), tmp_path)
    assert all(claim["holds"] for claim in json.loads((tmp_path / "claims.json").read_text())["claims"])


def test_a_failure_of_a_cell_beside_it_is_a_defect(tmp_path, monkeypatch):
    monkeypatch.setattr(battery, "untrained", lambda layer, config: {"failed.gradient": np.asarray("no")})
    cell = dataclasses.replace(Plain(3, 4))
    with pytest.raises(RuntimeError, match="elman could not be measured: no"):
        battery.networks("elman", cell, "mine", small(), tmp_path)
    assert battery.networks("mine", cell, "mine", small(), tmp_path)


def test_a_cell_that_says_it_reads_out_is_given_the_size_of_the_task():
    config = small("odd_cells:jordan")
    entries = battery.make_entries(find(config.cell), "jordan", config)
    assert [entry.make_model(0).head is None for entry in entries] == [True, False] * 2
    config = small("odd_cells:Readout")
    entries = battery.make_entries(find(config.cell), "Readout", config)
    told = battery_parts.guarded(lambda: entries[0].make_model(0))[1]
    assert "output_size is 1 but" in told and "reads out 4 itself" in told
