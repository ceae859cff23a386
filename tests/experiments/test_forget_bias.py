"""The forget bias: gradients are plain numpy's, pairs differ in the bias alone, claims can fail, a run to the end."""

import dataclasses
import json
import math

import jax
import numpy as np
import pytest
from changed_configs import changed

from experiments import forget_bias as study
from rnnjax.tasks import Adding
from rnnjax.train.config import UsageError
from rnnjax.train.records import release_workdirs
from rnnjax.train.step import root_key

SMALL = study.UntrainedConfig(hidden_size=3, length=6, batch=2, seeds=2, seed=7)


@pytest.fixture(scope="module")
def found():
    with jax.enable_x64(True):
        return study.measure(SMALL)


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def lstm_step(params, x, c, h):
    i, f, g, o = np.split(x @ params["W_ih"] + h @ params["W_hh"] + params["b"], 4, axis=-1)
    c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
    return c, sigmoid(o) * np.tanh(c)


def gru_step(params, x, h):
    z = x @ params["W_ih"] + params["b"]
    into = h @ params["W_hh"]
    r, u = sigmoid(z[:3] + into[:3]), sigmoid(z[3:6] + into[3:6])
    return (u * h + (1 - u) * np.tanh(z[6:] + r * (into[6:] + params["b_hn"])),)


_draw = jax.jit(study.draw, static_argnums=(0, 4, 5))  # compiled as one, and not operation by operation
STEPS = {"lstm": (lstm_step, 2), "gru": (gru_step, 1)}


def by_differences(name, case, bias, row, width=1e-6):
    """log10 ||dL/dc|| or ||dL/dh|| by distance of the second network's sequence, by central differences."""
    cls, field, _ = study.CELLS[name]
    scale, factor = study.CASES[case]
    with jax.enable_x64(True):
        given = _draw(cls(3, 3), root_key(8), scale, {field: bias}, 6, 2)
        params, inputs, weights = jax.device_get(given)
    params = params | {key: factor * params[key] for key in ("W_ih", "W_hh")}
    step, fields = STEPS[name]

    def loss(carry, start):
        for x in inputs[start:, row]:
            carry = step(params, x, *carry)
        return carry[-1] @ weights[row]  # the output is the last field, h

    carry, norms = tuple(np.zeros((fields, 3))), []
    for t in range(6):
        carry = step(params, inputs[t, row], *carry)
        slope = []
        for unit in width * np.eye(3):
            sides = (loss((carry[0] + sign * unit, *carry[1:]), t + 1) for sign in (1, -1))
            slope.append((next(sides) - next(sides)) / (2 * width))
        with np.errstate(divide="ignore"):
            norms.append(np.log10(np.linalg.norm(slope)))
    return norms[::-1]


@pytest.mark.parametrize("name", study.CELLS)
@pytest.mark.parametrize("case", study.CASES)
def test_what_is_measured_are_the_gradients_of_the_equations(found, name, case):
    values = found[f"{name}, {case}"]
    assert values.shape == (4, 2, 6, 2)
    want = by_differences(name, case, study.BIASES[2], row=1)
    np.testing.assert_allclose(values[2, 1, :, 1], want, atol=1e-6)


def test_slopes_are_of_the_farther_half_without_input_alone():
    distance = np.arange(6.0)
    bent = np.where(distance < 3, -distance, -3 - 2 * (distance - 3))[:, None] / np.log(10)
    of = study.all_slopes({f"lstm, {study.SILENT}": bent[None, None], f"lstm, {study.UNIT}": bent[None, None]})
    np.testing.assert_allclose(of[f"lstm, {study.SILENT}"], -2)
    assert of[f"lstm, {study.UNIT}"] > -1.9


def test_the_far_laws_are_the_largest_eigenvalues_at_rest():
    for bias in study.BIASES:
        params = {"W_ih": np.zeros((3, 12)), "W_hh": np.tile(np.eye(3), 4), "b": np.repeat([0, bias, 0, 0], 3)}
        moved = lstm_step(params, np.zeros(3), np.full(3, 1e-6), np.zeros(3))  # c is h / 2 after a step, and so on
        c_by_c, h_by_c = moved[0] / 1e-6, moved[1] / 1e-6
        c_by_h = lstm_step(params, np.zeros(3), np.zeros(3), np.full(3, 1e-6))[0] / 1e-6
        np.testing.assert_allclose(c_by_c + c_by_h * h_by_c / c_by_c, np.exp(study.FAR_LAWS["lstm"](bias)), rtol=1e-4)
        params = {"W_ih": np.zeros((3, 9)), "W_hh": np.tile(np.eye(3), 3), "b": np.repeat([0, bias, 0], 3)}
        (after,) = gru_step(params | {"b_hn": np.zeros(3)}, np.zeros(3), np.full(3, 1e-6))
        np.testing.assert_allclose(after / 1e-6, np.exp(study.FAR_LAWS["gru"](bias)), rtol=1e-4)


def test_two_networks_of_a_pair_differ_in_the_forget_bias_alone():
    config = changed(study.get_config("adding", "quick"), {"model.hidden_size": 3})
    entries = study.make_entries(config, Adding(100))
    zero, one = (entry.make_model(5).rnn.params for entry in entries)
    for name in ("W_ih", "W_hh"):
        np.testing.assert_array_equal(zero[name][...], one[name][...])
    np.testing.assert_array_equal(one["b"][...] - zero["b"][...], np.repeat([0, 1, 0, 0], 3))
    assert entries[0].train == entries[1].train and entries[0].task == entries[1].task


BIASES = np.array(study.BIASES)
DRIVEN = {"lstm": np.array([-0.45, -0.2, -0.05, 0.0]), "gru": np.array([-0.4, -0.23, -0.12, -0.05])}


def lines(**off):
    """Straight lines of the slopes that are expected, by "CELL, CASE"; off: {cell_case: [bias, seed]} added to them."""
    made = {}
    for name in study.CELLS:
        of = {
            study.EMPTY: study.empty_law(BIASES),
            study.UNIT: DRIVEN[name],
            study.SILENT: study.FAR_LAWS[name](BIASES),
        }
        for key, case in {"empty": study.EMPTY, "unit": study.UNIT, "silent": study.SILENT}.items():
            slope = of[case][:, None] + np.broadcast_to(off.get(f"{name}_{key}", 0.0), (4, 2))
            made[f"{name}, {case}"] = slope[..., None, None] * np.arange(8)[:, None] / np.log(10)
    return made


def only(bias, seed, value):
    array = np.zeros((4, 2))
    array[bias, seed] = value
    return array


@pytest.mark.parametrize(
    "off, fails",
    [
        ({}, []),
        ({"lstm_empty": only(0, 1, 1e-5)}, [0]),
        ({"lstm_silent": only(2, 0, 0.011)}, [1]),
        ({"gru_empty": only(3, 0, -1e-5)}, [2]),
        ({"gru_silent": only(1, 1, -0.011)}, [3]),
        ({"lstm_unit": only(2, 1, 0.06)}, [4]),
        ({"lstm_unit": only(1, slice(None), -0.06)}, [5]),
        ({"lstm_unit": only(1, 1, -0.11) + only(1, 0, 0.1)}, [6]),
        ({"lstm_unit": only(3, 1, 0.04)}, [7]),
        ({"lstm_silent": only(3, 0, -0.2)}, [1, 8]),
        ({"gru_unit": only(1, slice(None), -0.06)}, [9]),
        (
            {f"{name}_{key}": np.nan for name in study.CELLS for key in ("empty", "unit", "silent")},
            list(range(10)),
        ),
    ],
    ids=range(12),
)
def test_claims_of_untrained_networks_hold_or_not(off, fails):
    made = study.untrained_claims(lines(**off))
    assert [at for at, claim in enumerate(made) if not claim.holds] == fails and len(made) == 10


def curves(zero, one):
    """Test errors that come below 0.01 at these steps, inf for never."""
    errors = [
        [{step: 0.005 if step >= first else 0.1 for step in range(100, 2001, 100)} for first in of]
        for of in (zero, one)
    ]
    return dict(zip(study.TRAINED, errors, strict=True))


@pytest.mark.parametrize(
    "zero, one, holds, counts",
    [
        ((1200, 1300, 1100), (800, 900, 700), [True, True, True], [3, 3, 3]),
        ((1200, 900, 1100), (800, 900, 700), [True, False, True], [3, 2, 3]),  # a tie is no lead
        ((1200, math.inf, 600), (800, 900, 700), [True, False, False], [3, 2, 2]),
        ((math.inf, 1700, 1800), (1600, 1600, 700), [False, True, False], [1, 3, 2]),
        ((math.inf,) * 3, (math.inf,) * 3, [False] * 3, [0, 0, 0]),
        ((1500,) * 5, (800,) * 4 + (1500,), [True] * 3, [5, 4, 5]),
        ((1500,) * 5, (800,) * 3 + (1500,) * 2, [True, False, True], [5, 3, 5]),
    ],
)
def test_claims_of_what_was_learned_hold_or_not(zero, one, holds, counts):
    made = study.trained_claims(curves(zero, one))
    assert [claim.holds for claim in made] == holds and [claim.measured for claim in made] == counts
    assert made[0].expected == f">= {math.ceil(0.8 * len(zero))}"


def test_an_error_that_is_no_number_solves_nothing():
    assert study.first_solved({100: math.nan, 200: 0.01, 300: 0.009}) == 300
    assert study.first_solved({100: math.nan}) == math.inf


@pytest.mark.parametrize(
    "change, message",
    [
        ({"untrained.hidden_size": 1}, "--config.untrained.hidden_size is 1: expected at least 2"),
        ({"untrained.seed": -1}, "--config.untrained.seed is -1"),
        ({"model.hidden_size": 0}, "--config.model.hidden_size is 0"),
        ({"task.length": 1}, "length of Adding is 1"),
        ({"train.eval_every": 70}, "--config.train.eval_every is 70"),
        ({"seeds": 0}, "--config.seeds is 0"),
    ],
    ids=range(6),
)
def test_what_can_not_be_is_refused_before_anything_is_written(tmp_path, change, message):
    with pytest.raises(UsageError, match=message):
        study.main(changed(study.get_config("adding", "quick"), change), tmp_path / "x")
    assert not (tmp_path / "x").exists()


def small(**changes):
    """A config of a few steps of a small network."""
    config = dataclasses.replace(study.get_config("adding", "quick"), untrained=SMALL, seeds=2)
    values = {"task.length": 6, "model.hidden_size": 2, "train.steps": 4, "train.steps_per_call": 2}
    values |= {"train.batch_size": 2, "train.eval_every": 2, "train.eval_batch": 4, "train.log_every": 2}
    return changed(config, values | {"probe.batch": 2, "probe.points": 1} | changes)


def told(folder):
    """The report of a run, whose claims are none: they are of the default config."""
    assert json.loads((folder / "claims.json").read_text())["claims"] == []
    assert (folder / "slopes.png").exists() and (folder / "learning.png").exists()
    text = (folder / "report.md").read_text()
    assert "No claim is made" in text
    return text


def test_the_report_of_a_run(tmp_path, monkeypatch, found):
    one = {"scores": {"loss": 0.1}, "label": "", "stopped": None}
    summary = {"replicas": [one] * 2, "seconds": 1.0, "seconds_with_scores": 1.0, "parameters": 1, "steps": 4}

    def trained(entries, workdir, config, workers):
        for entry in entries:
            (workdir / entry.name).mkdir()
            losses = {2: (0.2, None), 4: (0.1, 0.005)}
            rows = [
                {"kind": "eval", "split": "test", "step": step, "replica": at, "loss": loss}
                for step, values in losses.items()
                for at, loss in enumerate(values)
            ]
            rows.append({"kind": "train", "step": 4, "replica": 0, "loss": 0.001})
            (workdir / entry.name / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        return {entry.name: summary for entry in entries}

    monkeypatch.setattr(study, "measure", lambda config: found)
    monkeypatch.setattr(study, "run_entries", trained)
    study.main(small(), tmp_path)
    release_workdirs()
    assert "| lstm-b-1 | never, 4 | 0.1000 ± 0.0000 |" in told(tmp_path)


@pytest.mark.full
def test_a_run_from_end_to_end(tmp_path):
    study.main(small(), tmp_path)
    release_workdirs()
    text = told(tmp_path)
    assert "| lstm-b-1 | never, never |" in text and "slope at start" in text
    assert (tmp_path / "gradients.png").exists()
    errors = study.test_errors(tmp_path / "lstm-b-0", 2)
    assert [list(of_seed) for of_seed in errors] == [[2, 4], [2, 4]] and errors[0] != errors[1]
