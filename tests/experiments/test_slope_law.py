"""The study of the slope law: what it measures is backpropagation in numpy, claims that can fail, a run to the end."""

import dataclasses
import json

import numpy as np
import pytest
from elman_by_hand import backward, drawn

from experiments import slope_law
from rnnjax.cells import Elman
from rnnjax.train.config import UsageError

TINY = slope_law.Config(hidden_size=5, length=8, batch=2, radii=(0.7, 1.5), seeds=2, seed=3)


@pytest.fixture(scope="module")
def ran(tmp_path_factory):
    """The folder of a tiny run."""
    folder = tmp_path_factory.mktemp("slope_law")
    slope_law.main(TINY, folder)
    return folder


def by_hand(cell, seed, gain, scale):
    """(W, log10 norms [T, B] of dL/dh by distance), in plain numpy."""
    params, inputs, weights = drawn(cell, seed, TINY, scale, gain=gain)
    return params["W_hh"], backward(cell, params, inputs, weights)


def test_what_is_measured_is_numpys(ran):
    with np.load(ran / "measured.npz") as found:
        assert {*slope_law.CASES, "gaussian", "rho", "sigma", "seconds"} == set(found)
        assert all(found[case].shape == (2, 2, 8, 2) for case in slope_law.CASES)
        for at, case in enumerate((slope_law.SMALL, slope_law.UNIT)):
            want = by_hand(Elman(5, 5), 4, 1.5, (0.05, 1.0)[at])[1]
            np.testing.assert_allclose(found[case][1, 1], want, atol=1e-6)
        for case in (slope_law.LINEAR, slope_law.TANH):
            np.testing.assert_allclose(np.diff(found[case][0], axis=1), np.log10(0.7), atol=1e-6)
        matrix, want = by_hand(Elman(5, 5, activation="identity", recurrent_init="scaled_normal"), 3, 1.0, 0.0)
        np.testing.assert_allclose(found["gaussian"][0], want, atol=1e-6)
        np.testing.assert_allclose(found["rho"][0], max(abs(np.linalg.eigvals(matrix))))
        np.testing.assert_allclose(found["sigma"][0], np.linalg.svd(matrix)[1][0])


def test_a_run_from_end_to_end(ran, monkeypatch):
    text = (ran / "report.md").read_text()
    assert "| 1.5 | +0.4055 | +0.4055 (0.0000) |" in text and "No claim is made" in text
    assert json.loads((ran / "claims.json").read_text())["claims"] == []  # not the config they are about
    assert (ran / "curves.png").exists() and (ran / "slopes.png").exists()
    monkeypatch.setattr(slope_law, "measure", None)  # what is there is not measured again
    slope_law.main(TINY, ran)


def made_up(config, linear=0.0, tanh=0.0, small=-0.1, unit=-0.6, gaussian=0.0, sigma=2.0):
    """Straight lines whose slopes differ from log r, and from log rho, by so much."""
    distance = np.arange(config.length)[:, None] * np.ones(config.batch) / np.log(10)
    law = np.log(np.array(config.radii))[:, None, None, None]
    off = dict(zip(slope_law.CASES, (linear, tanh, small, unit), strict=True))
    found = {case: (law + value) * distance * np.ones((1, config.seeds, 1, 1)) for case, value in off.items()}
    rho = np.full(config.seeds, 1.1)
    return found | {
        "gaussian": (np.log(1.1) + gaussian) * distance * np.ones((config.seeds, 1, 1)),
        "rho": rho,
        "sigma": rho * sigma,
    }


@pytest.mark.parametrize(
    "changed, fails",
    [
        ({}, []),
        ({"linear": 0.002}, [0]),
        ({"tanh": -0.002}, [1]),
        ({"unit": -0.3}, [2]),
        ({"small": 0.001}, [3]),
        ({"gaussian": 0.06}, [4]),
        ({"sigma": 1.6}, [5]),
        ({"linear": np.nan, "unit": np.nan, "gaussian": np.nan}, [0, 2, 3, 4, 5]),
    ],
    ids=range(8),
)
def test_claims_hold_or_not(changed, fails):
    config = slope_law.get_config("orthogonal_and_gaussian", "quick")
    held = [claim.holds for claim in slope_law.claims(config, made_up(config, **changed))]
    assert held == [at not in fails for at in range(6)]


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"hidden_size": 1}, "--config.hidden_size is 1: expected at least 2"),
        ({"length": 3}, "--config.length is 3"),
        ({"seeds": 0}, "--config.seeds is 0"),
        ({"seed": -1}, "--config.seed is -1"),
        ({"radii": ()}, r"--config.radii is \(\): expected one or more above 0, each once"),
        ({"radii": (1.0, 0.0)}, "--config.radii is 1.0,0.0"),
        ({"radii": (1.0, float("nan"))}, "--config.radii is 1.0,nan"),
    ],
    ids=range(7),
)
def test_what_cannot_be_is_refused_before_anything_is_written(tmp_path, changes, message):
    with pytest.raises(UsageError, match=message):
        slope_law.main(dataclasses.replace(TINY, **changes), tmp_path / "w")
    assert not (tmp_path / "w").exists()
