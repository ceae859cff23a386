"""Gradient flossing: exponents and gradients are numpy's, an update goes down, claims can fail, a run to the end."""

import dataclasses
import json

import jax
import numpy as np
import optax
import pytest

from experiments import gradient_flossing as study
from rnnjax.cells import Elman
from rnnjax.train.config import UsageError
from rnnjax.train.records import release_workdirs
from rnnjax.train.step import root_key

TINY = study.Config(
    hidden_size=4, length=5, exponents=2, updates=4, block=2, learning_rate=0.01, held_out=2, seeds=2, seed=3
)
CELL = Elman(1, 4, recurrent_init="scaled_normal")


@pytest.fixture(scope="module")
def ran(tmp_path_factory):
    """(the folder of a tiny run, what it measured)."""
    folder = tmp_path_factory.mktemp("flossing")
    study.main(TINY, folder)
    release_workdirs()
    with np.load(folder / "measured.npz") as found:
        return folder, dict(found)


@jax.jit  # compiled as one, and not operation by operation
def drawn(key, gain, scale):
    params = study.start(CELL, optax.adam(0.01), key, gain)[0]
    h = study.draw_start(CELL, params, key, 1, same=True).h[0]
    first = study.draw_bits(jax.random.fold_in(jax.random.fold_in(key, 2), 0), 5, 1)[:, 0]
    input_key, _, loss_key = jax.random.split(jax.random.fold_in(key, 3), 3)
    held, weights = study.draw_bits(input_key, 5, 2), jax.random.normal(loss_key, (2, 4), "float64")
    return params, h, scale * first, scale * held, weights


def network(case, seed):
    """(parameters, h before the first step, inputs of the first update [T, 1], held-out ones [T, B, 1], the loss's
    weights [B, H]) as the study draws them."""
    with jax.enable_x64(True):
        return jax.device_get(drawn(root_key(TINY.seed + seed), *map(np.float64, study.CASES[case])))


def jacobians(params, h, inputs):
    """dh_t/dh_{t-1} of each step."""
    found = []
    for u in inputs:
        h = np.tanh(u @ params["W_ih"] + h @ params["W_hh"] + params["b"])
        found.append((1 - h**2)[:, None] * params["W_hh"].T)
    return found


def exponents(params, h, inputs, count=4):
    basis, total = np.eye(4)[:, :count], 0
    for jacobian in jacobians(params, h, inputs):
        basis, triangle = np.linalg.qr(jacobian @ basis)
        total = total + np.log(np.abs(np.diag(triangle)))
    return total / len(inputs)


@pytest.mark.parametrize("number, case", list(enumerate(study.CASES)))
def test_exponents_and_gradients_are_numpys(ran, number, case):
    params, h, first, held, weights = network(case, 1)
    found = ran[1]
    np.testing.assert_allclose(found["training"][number, 1, 0], exponents(params, h, first, 2), rtol=1e-9)
    for row in range(2):
        np.testing.assert_allclose(found["exponents"][0, number, 1, row], exponents(params, h, held[:, row]), rtol=1e-9)
        gradient, norms = weights[row], [np.log10(np.linalg.norm(weights[row]))]
        for jacobian in jacobians(params, h, held[:, row])[:0:-1]:
            gradient = gradient @ jacobian
            norms.append(np.log10(np.linalg.norm(gradient)))
        np.testing.assert_allclose(found["norms"][0, number, 1, :, row], norms, rtol=1e-9)
    assert not np.allclose(found["elsewhere"][0, number], found["exponents"][0, number])


def test_the_jacobians_of_x_multiply_to_the_same_but_for_the_ends():
    params, h, first, _, _ = network(study.CONTRACTING, 0)
    x, of_x = np.arctanh(h), np.eye(4)
    for u in first:
        of_x = params["W_hh"].T @ np.diag(1 - np.tanh(x) ** 2) @ of_x
        x = np.tanh(x) @ params["W_hh"] + u @ params["W_ih"] + params["b"]
    of_h = np.linalg.multi_dot(jacobians(params, h, first)[::-1])
    np.testing.assert_allclose(of_h @ np.diag(1 - h**2), np.diag(1 - np.tanh(x) ** 2) @ of_x, rtol=1e-9)


def test_an_update_goes_down_the_mean_square():
    params, h, first, _, _ = network(study.DRIVEN, 0)
    optimizer = optax.adam(0.01)

    @jax.jit
    def updated(params):
        given = (params, optimizer.init(params)), root_key(TINY.seed), 1.0, np.arange(1)
        return study.train_block(CELL, optimizer, TINY, *given)[0][0]

    with jax.enable_x64(True):
        after = jax.device_get(updated(params))
    for name in ("W_hh", "W_ih", "b"):
        slope = np.empty_like(params[name])
        for at in np.ndindex(slope.shape):
            sides = []
            for width in (1e-6, -1e-6):
                moved = np.array(params[name])
                moved[at] += width
                sides.append(np.mean(exponents(params | {name: moved}, h, first, 2) ** 2))
            slope[at] = (sides[0] - sides[1]) / 2e-6
        np.testing.assert_allclose(after[name] - params[name], -0.01 * np.sign(slope), rtol=1e-3)  # Adam's first step


def test_a_run_from_end_to_end(ran, monkeypatch):
    folder, found = ran
    assert found["training"].shape == (3, 2, 4, 2) and found["exponents"].shape == (2, 3, 2, 2, 4)
    text = (folder / "report.md").read_text()
    assert "| g = 1.5, no input | 4 |" in text and "No claim is made" in text
    assert json.loads((folder / "claims.json").read_text())["claims"] == [] and (folder / "flossing.png").exists()
    monkeypatch.setattr(study, "measure", pytest.fail)  # what is there is not measured again
    study.main(TINY, folder)
    release_workdirs()


def made_up(**changed):
    """Arrays whose measures are the given ones, by claim."""
    values = {
        "low": 0.01, "before": 1.0, "vanished": -20.0, "kept": 0.5, "rest": 1.0, "driven": 0.06, "was": 0.2,
        "first": 0.06, "silent": 0.001,
    } | changed  # fmt: skip
    exponents = np.full((2, 3, 2, 2, 4), values["rest"])
    exponents[0, ..., :2] = np.array([values["before"], values["was"], 0.1])[:, None, None, None]
    exponents[1, ..., :2] = np.array([values["low"], values["driven"], values["silent"]])[:, None, None, None]
    exponents[1, 1, ..., 0], exponents[1, 1, ..., 1] = values["first"], 2 * values["driven"] - values["first"]
    norms = np.zeros((2, 3, 2, 5, 2))
    norms[0, 0, :, -1], norms[1, 0, :, -1] = values["vanished"], values["kept"]
    return {"exponents": exponents, "norms": norms}


@pytest.mark.parametrize(
    "changed, fails",
    [
        ({"first": 0.04}, []),
        ({"first": -0.04, "kept": -1.0}, []),
        ({"first": 0.04, "low": 0.051, "rest": 0.6}, [0]),
        ({"first": 0.04, "before": 0.09}, [1]),
        ({"first": 0.04, "vanished": -14.0}, [2]),
        ({"first": 0.04, "kept": -1.1}, [3]),
        ({"first": 0.04, "kept": 1.1}, [3]),
        ({"first": 0.04, "rest": 0.09}, [4]),
        ({"first": 0.04, "was": 0.08}, [5]),
        ({"first": -0.051}, [6]),
        ({"first": 0.04, "silent": 0.06}, [7]),
        (dict.fromkeys(("low", "vanished", "kept", "driven", "first", "silent"), np.nan), list(range(8))),
    ],
    ids=range(12),
)
def test_claims_hold_or_not(changed, fails):
    made = study.judge(TINY, made_up(**changed))
    assert [at for at, claim in enumerate(made) if not claim.holds] == fails and len(made) == 8


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"hidden_size": 0}, "--config.hidden_size is 0: expected at least 1"),
        ({"exponents": 5}, "--config.exponents is 5: a network of 4 has no more"),
        ({"updates": 5}, r"--config.updates is 5: expected a multiple of block \(2\)"),
        ({"learning_rate": 0.0}, "--config.learning_rate is 0.0: expected a number above 0"),
        ({"learning_rate": float("nan")}, "--config.learning_rate is nan"),
        ({"held_out": 0}, "--config.held_out is 0"),
        ({"seeds": 0}, "--config.seeds is 0"),
    ],
    ids=range(7),
)
def test_what_can_not_be_is_refused_before_anything_is_written(tmp_path, changes, message):
    with pytest.raises(UsageError, match=message):
        study.main(dataclasses.replace(TINY, **changes), tmp_path / "x")
    assert not (tmp_path / "x").exists()
