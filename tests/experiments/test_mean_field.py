"""The study of mean field: theory against an integral, what is measured against numpy, claims that can fail, a run."""

import dataclasses
import json

import jax
import numpy as np
import pytest
from elman_by_hand import backward, drawn

from experiments import mean_field
from rnnjax.cells import Elman
from rnnjax.train.config import UsageError
from rnnjax.train.step import root_key

TINY = mean_field.Config(
    hidden_size=5, length=6, burn_in=2, spectrum=20, batch=2, weight_sds=(0.9, 2.0), input_sds=(0.3, 1.0), seeds=2
)
CELL = Elman(5, 5, input_init="identity", recurrent_init="scaled_normal")


@pytest.fixture(scope="module")
def ran(tmp_path_factory):
    """The folder of a tiny run."""
    folder = tmp_path_factory.mktemp("mean_field")
    mean_field.main(TINY, folder)
    return folder


def test_chi_is_that_of_an_integral():
    for weight_sd, input_sd in ((0.9, 0.3), (2.0, 0.3), (1.3, 1.0)):
        z = np.linspace(-10, 10, 20001)
        density = np.exp(-(z**2) / 2) / np.sqrt(2 * np.pi) * (z[1] - z[0])
        q = 0.1
        for _ in range(2000):
            q = weight_sd**2 * np.sum(density * np.tanh(np.sqrt(q) * z) ** 2) + input_sd**2
        chi = weight_sd**2 * np.sum(density / np.cosh(np.sqrt(q) * z) ** 4)
        np.testing.assert_allclose(mean_field.log_chi(weight_sd, input_sd), np.log(chi), atol=1e-6)


def test_what_is_measured_is_numpys(ran):
    seed = TINY.seed + 1
    time = dataclasses.replace(TINY, length=TINY.length + TINY.burn_in)
    params, inputs, weights = drawn(CELL, seed, time, 1.0, gain=2.0)
    with jax.enable_x64(True):
        along = np.asarray(jax.random.normal(jax.random.fold_in(root_key(seed), 1), (22, 5), "float64"))
    h, direction, grown = np.zeros(5), np.eye(5)[0], []
    for x in along:
        h = np.tanh(x + h @ params["W_hh"])
        direction = (direction @ params["W_hh"]) * (1 - h**2)
        grown.append(np.log(np.linalg.norm(direction)))
        direction = direction / np.linalg.norm(direction)
    with np.load(ran / "measured.npz") as found:
        np.testing.assert_allclose(found["norms"][1, 1], backward(CELL, params, inputs, weights)[:6], atol=1e-6)
        np.testing.assert_allclose(found["exponent"][1, 1], np.mean(grown[2:]), atol=1e-6)


def test_a_run_from_end_to_end(ran, monkeypatch):
    text = (ran / "report.md").read_text()
    assert "| 0.9 | 0.3 | -0.510 |" in text and "No claim is made" in text
    assert json.loads((ran / "claims.json").read_text())["claims"] == []  # not the config they are about
    assert (ran / "three_ways.png").exists()
    monkeypatch.setattr(mean_field, "measure", None)  # what is there is not measured again
    mean_field.main(TINY, ran)


def made_up(config, slope=0.0, exponent=0.0):
    """Straight lines and exponents that differ from log chi by so much."""
    theory = np.array([mean_field.log_chi(*pair) for pair in mean_field.pairs(config)])[:, None]
    ones = np.ones((1, config.seeds))
    distance = np.arange(config.length)[:, None] * np.ones(config.batch)
    norms = ((theory + slope) * ones)[..., None, None] * distance / 2 / np.log(10)
    return {"norms": norms, "exponent": (theory + exponent) * ones / 2}


@pytest.mark.parametrize(
    "changed, fails",
    [
        ({}, []),
        ({"slope": 0.035}, [0]),
        ({"exponent": -0.045}, [1]),
        ({"slope": -0.1}, [0, 2]),
        ({"exponent": 0.5}, [1, 2]),
        ({"slope": np.array([[0.2], [0], [0], [0], [0]])}, [0, 3]),
        ({"slope": np.nan, "exponent": np.nan}, [0, 1, 2, 3]),
    ],
    ids=range(7),
)
def test_claims_hold_or_not(changed, fails):
    config = mean_field.get_config("tanh", "quick")
    held = [claim.holds for claim in mean_field.claims(config, made_up(config, **changed))]
    assert held == [at not in fails for at in range(4)]


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"hidden_size": 1}, "--config.hidden_size is 1: expected at least 2"),
        ({"spectrum": 0}, "--config.spectrum is 0"),
        ({"input_sds": (0.3,)}, "--config.input_sds is 0.3 and --config.weight_sds 0.9,2.0: expected one for each"),
        ({"weight_sds": (), "input_sds": ()}, r"--config.input_sds is \(\)"),
        ({"weight_sds": (1.0, 1.0), "input_sds": (1.0, 1.0)}, "expected each pair once"),
        ({"input_sds": (0.3, 0.0)}, "--config.input_sds is 0.3,0.0: expected numbers above 0"),
    ],
    ids=range(6),
)
def test_what_cannot_be_is_refused_before_anything_is_written(tmp_path, changes, message):
    with pytest.raises(UsageError, match=message):
        mean_field.main(dataclasses.replace(TINY, **changes), tmp_path / "w")
    assert not (tmp_path / "w").exists()
