"""The study of singular values: what it measures is numpy's, claims that can fail, a run from end to end."""

import dataclasses
import json

import numpy as np
import pytest
from elman_by_hand import backward, drawn

from experiments import necessary_not_sufficient as study
from rnnjax.cells import Elman
from rnnjax.train.config import UsageError

TINY = study.Config(hidden_size=5, length=6, batch=2, powers=40, seeds=3, seed=3)


@pytest.fixture(scope="module")
def ran(tmp_path_factory):
    """The folder of a tiny run."""
    folder = tmp_path_factory.mktemp("necessary_not_sufficient")
    study.main(TINY, folder)
    return folder


def test_what_is_measured_is_numpys(ran):
    gains = np.random.default_rng(3).uniform(0.2, 3, 3)
    with np.load(ran / "measured.npz") as found:
        for activation, factor in {"tanh": 1, "sigmoid": 4}.items():
            cell = Elman(5, 5, activation=activation, recurrent_init="scaled_normal")
            params, inputs, weights = drawn(cell, 5, TINY, 0.5, gain=factor * gains[2])
            want = backward(cell, params, inputs, weights)
            np.testing.assert_allclose(found[f"{activation}_norms"][2], want, atol=1e-6)  # gains are cast in init
            sigma = np.linalg.svd(params["W_hh"])[1][0]
            np.testing.assert_allclose(found[f"{activation}_sigma"][2], sigma, rtol=1e-6)
        shifted = 0.9 * np.eye(5) + 0.2 * np.eye(5, k=1)
        want = [np.log10(np.linalg.norm(np.linalg.matrix_power(shifted, k), 2)) for k in range(41)]
        np.testing.assert_allclose(found["shifted"], want, atol=1e-10)
        np.testing.assert_allclose(found["normal"], np.log10(0.9) * np.arange(41), atol=1e-5)


def test_a_run_from_end_to_end(ran, monkeypatch):
    text = (ran / "report.md").read_text()
    assert "| tanh | sigma < 1 |" in text and "| sigmoid | sigma >= 4 |" in text and "No claim is made" in text
    assert json.loads((ran / "claims.json").read_text())["claims"] == []  # not the config they are about
    assert (ran / "networks.png").exists() and (ran / "powers.png").exists()
    monkeypatch.setattr(study, "measure", None)  # what is there is not measured again
    study.main(TINY, ran)


def made_up(sigma, steps):
    """{...} of tanh networks with these sigma whose gradient grows by so many nats a step, and sigmoid ones alike."""
    norms = np.array(steps)[:, None, None] * np.arange(5)[None, :, None] / np.log(10)
    found = {"tanh_sigma": np.array(sigma), "sigmoid_sigma": 4 * np.array(sigma)}
    return found | {"tanh_norms": norms, "sigmoid_norms": norms}


@pytest.mark.parametrize(
    "sigma, steps, fails",
    [
        ((0.5, 2, 2), (-1, -0.1, 0.2), []),
        ((0.5, 2, 2), (0.1, -0.1, 0.2), [0, 1, 3, 4]),
        ((0.5, 2, 2), (-1, -0.1, 0.8), [1, 4]),
        ((0.5, 2, 2), (-1, 0.1, 0.2), [2, 5]),
        ((0.5, 2, 2), (-1, -0.1, -0.2), [6]),
        ((1.5, 2, 2), (-1, -0.1, 0.2), [0, 3]),
        ((0.5, 2, 2), (np.nan, np.nan, np.nan), range(7)),
    ],
    ids=range(7),
)
def test_claims_about_networks_hold_or_not(sigma, steps, fails):
    made = study.network_claims(made_up(sigma, steps))
    assert [claim.holds for claim in made] == [at not in fails for at in range(7)]


@pytest.mark.parametrize(
    "changed, fails", [({}, []), ({309: 5.9}, [0]), ({309: 0.0, 200: 8.0}, [1]), ({2000: -19.0}, [2])], ids=range(4)
)
def test_claims_about_powers_hold_or_not(changed, fails):
    config = study.get_config("random", "quick")
    shifted = np.full(2001, -1.0)
    shifted[309], shifted[2000] = 8.0, -40.0
    for at, value in changed.items():
        shifted[at] = value
    made = study.power_claims(config, {"shifted": shifted, "normal": np.zeros(3)})
    assert [claim.holds for claim in made] == [at not in fails for at in range(4)]
    assert not study.power_claims(config, {"shifted": shifted, "normal": np.array([0, 0.1])})[3].holds


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"hidden_size": 1}, "--config.hidden_size is 1: expected at least 2"),
        ({"powers": 0}, "--config.powers is 0"),
        ({"input_sd": -1.0}, "--config.input_sd is -1.0"),
        ({"lowest_gain": 4.0}, "--config.lowest_gain is 4.0 and --config.highest_gain 3.0: expected"),
    ],
    ids=range(4),
)
def test_what_cannot_be_is_refused_before_anything_is_written(tmp_path, changes, message):
    with pytest.raises(UsageError, match=message):
        study.main(dataclasses.replace(TINY, **changes), tmp_path / "w")
    assert not (tmp_path / "w").exists()
