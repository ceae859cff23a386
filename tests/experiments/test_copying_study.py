"""The study of copying: what it measures is numpy's, claims that can fail, a run from end to end."""

import dataclasses
import json
import math

import jax
import numpy as np
import pytest
from changed_configs import changed
from elman_by_hand import backward

from experiments import copying
from rnnjax.cells import GRU, LSTM, Elman
from rnnjax.tasks import Copying
from rnnjax.train.config import UsageError
from rnnjax.train.step import PROBE, root_key, stream

TINY = {
    "models": ("elman",), "delays": (3,), "seeds": 1, "model.hidden_size": 4, "probe.batch": 3, "train.steps": 6,
    "train.steps_per_call": 2, "train.log_every": 2, "train.eval_every": 6, "train.eval_batch": 4,
}  # fmt: skip


@pytest.fixture(scope="module", autouse=True)
def quick():
    """Quick compilation."""
    jax.config.update("jax_disable_most_optimizations", True)
    yield
    jax.config.update("jax_disable_most_optimizations", False)


def tiny(**changes):
    return changed(copying.get_config("adam", "quick"), TINY | changes)


@pytest.fixture(scope="module")
def ran(tmp_path_factory):
    """The folder of a tiny run."""
    folder = tmp_path_factory.mktemp("copying")
    copying.main(tiny(), folder)
    return folder


def test_a_run_from_end_to_end(ran, monkeypatch):
    text = (ran / "report.md").read_text()
    assert "| elman-3 | 3 | 6 |" in text and "No claim is made" in text
    assert json.loads((ran / "claims.json").read_text())["claims"] == []  # not the config they are about
    assert (ran / "losses.png").exists() and (ran / "gradients.png").exists()
    monkeypatch.setattr("experiments.common.study.train", None)  # what is there is not trained again
    copying.main(tiny(), ran)


def test_the_gradient_at_the_start_is_numpys(ran):
    config = tiny()
    task, (entry,) = Copying(delay=3), copying.make_entries(config)
    model = entry.make_model(config.train.seed)
    params, head = jax.device_get((model.rnn.arrays(), model.head.kernel[...]))
    batch = jax.device_get(task.sample(stream(root_key(config.train.seed), PROBE), 3))
    h = np.zeros((3, 4))
    for x in batch.inputs:
        h = np.tanh(x @ params["W_ih"] + h @ params["W_hh"] + params["b"])
    p = np.exp(h @ head)
    d_logits = p / p.sum(1, keepdims=True) - np.eye(9)[batch.targets[-1]]
    want = backward(Elman(10, 4), params, batch.inputs.astype(float), d_logits @ head.T)
    np.testing.assert_allclose(copying.measured(ran / "elman-3")["start"], np.median(want, axis=1), atol=1e-4)


def test_the_share_is_of_the_last_batches():
    one = {"losses": np.array([[9.0, 0.2, 0.4]]), "logged": np.array([450, 451, 500])}
    np.testing.assert_allclose(copying.ratios(50, one), 0.3 / (10 * math.log(8) / 70))


def test_losses_are_read_by_seed_and_a_diverged_one_is_nan(tmp_path):
    rows = [
        {"kind": "train", "step": 2, "replica": 0, "loss": 1.0},
        {"kind": "train", "step": 2, "replica": 1, "loss": 2.0},
        {"kind": "eval", "step": 2, "split": "test", "loss": 7.0},
        {"kind": "train", "step": 4, "replica": 1, "loss": 3.0},
    ]
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    found = copying.measured(tmp_path)
    np.testing.assert_array_equal(found["losses"], [[1, math.nan], [2, 3]])
    assert found["logged"].tolist() == [2, 4] and found["start"] is None


def test_every_network_is_the_one_it_is_called():
    config = tiny(models=copying.MODELS, **{"longer.steps": 8})
    entries = {entry.name: entry for entry in copying.make_entries(config)}
    cells = {name: entry.make_model.args[0] for name, entry in entries.items()}
    assert cells == {
        "linear-3": Elman(10, 4, activation="identity"),
        "modrelu-3": Elman(10, 4, activation="modrelu"),
        "linear-gaussian-3": Elman(10, 4, activation="identity", recurrent_init="scaled_normal"),
        "elman-3": Elman(10, 4),
        "lstm-3": LSTM(10, 4),
        "gru-3": GRU(10, 4),
        "gru-longer": GRU(10, 4),
    }
    longer = entries["gru-longer"]
    assert (longer.train.steps, longer.train.learning_rate, longer.cell) == (8, 3e-3, "")


@pytest.mark.parametrize("delay", [3, 50])
def test_the_oracle_is_a_guess_among_eight_at_ten_steps(delay):
    assert copying.oracle(delay) == pytest.approx(10 * -math.log(1 / 8) / (delay + 20), abs=1e-6)


def made_up(config, *, start=0.0, fades=-0.1, apart=0.0, far=0.09, **shares):
    """Straight lines and flat losses. start, fades: slopes of the linear and the tanh network at the start."""
    of = {"linear": 0.05, "modrelu": 0.05, "linear-gaussian": 0.4, "elman": 1.0, "lstm": 1.0, "gru": 0.98} | shares
    found = {}
    for delay in config.delays:
        task = Copying(delay=delay)
        for name, share in of.items():
            slope, shift = (fades, 0) if name == "elman" else (start, apart if name == "modrelu" else 0)
            scores = [{"scores": {"loss": far * task.chance}}] * config.seeds
            losses = np.full((config.seeds, 5), share * task.chance)
            curve = slope * np.arange(task.length) / np.log(10) + shift
            found[f"{name}-{delay}"] = {
                "losses": losses, "logged": np.arange(460, 501, 10), "start": curve, "replicas": scores
            }  # fmt: skip
    return found


@pytest.mark.parametrize(
    "changes, fails",
    [
        ({}, []),
        ({"start": 2e-4}, [1]),
        ({"fades": 0.01}, [2]),
        ({"apart": 1e-3}, [3]),
        ({"linear": 0.25, "linear-gaussian": 1.0}, [4]),
        ({"modrelu": 0.2}, [5]),
        ({"elman": 0.9}, [6]),
        ({"lstm": 0.5}, [7]),
        ({"gru": 0.89}, [8]),
        ({"linear-gaussian": 0.14}, [9]),
        ({"far": 0.31}, [10]),
        ({"start": np.nan, "fades": np.nan, "apart": np.nan, "far": np.nan}, [1, 2, 3, 10]),
        (dict.fromkeys(copying.MODELS, np.nan), [4, 5, 6, 7, 8, 9]),
    ],
    ids=range(13),
)
def test_claims_hold_or_not(monkeypatch, changes, fails):
    monkeypatch.setattr(copying, "oracle", lambda delay: 10 * math.log(8) / (delay + 20))
    config = copying.get_config("adam", "full")
    held = [claim.holds for claim in copying.claims(config, made_up(config, **changes))]
    assert held == [at not in fails for at in range(11)]


def test_an_oracle_that_is_off_fails_and_a_delay_that_was_not_trained_is_not_measured(monkeypatch):
    monkeypatch.setattr(copying, "oracle", lambda delay: 0.29)
    config = copying.get_config("adam", "quick")
    first, *others, last = copying.claims(config, made_up(config))
    assert not first.holds and all(claim.holds for claim in others)
    assert last.not_measured == "the full preset trains at this delay" and not last.holds


@pytest.mark.parametrize(
    "change, message",
    [
        ({"models": ()}, "--config.models is"),
        ({"models": ("gru", "gru")}, "--config.models is gru,gru: expected one or more, each once"),
        ({"delays": ()}, "--config.delays is"),
        ({"delays": (0,)}, "--config.delays has 0: expected at least 1"),
        ({"model.hidden_size": 0}, "--config.model.hidden_size is 0"),
        ({"longer.steps": 3}, "--config.longer.steps is 3: expected a multiple of steps_per_call"),
        ({"longer.steps": 4, "longer.learning_rate": 0.0}, "--config.longer.learning_rate is 0.0"),
        ({"seeds": 0}, "--config.seeds is 0"),
        ({"train.learning_rate": -1.0}, "--config.train.learning_rate is -1.0"),
    ],
    ids=range(9),
)
def test_what_cannot_be_is_refused_before_anything_is_written(tmp_path, change, message):
    with pytest.raises(UsageError) as error:
        copying.main(tiny(**change), tmp_path / "w")
    assert str(error.value).startswith(message) and not (tmp_path / "w").exists()


def test_claims_are_of_default_configs_of_any_seeds():
    config = copying.get_config("adam", "quick")
    same = changed(copying.get_config("adam", "quick"), {"seeds": 3, "train.seed": 9})
    fewer = dataclasses.replace(config, seeds=1)
    held = [copying.is_default(one, copying.get_config, "adam") for one in (config, same, fewer, tiny())]
    assert held == [True, True, False, False]
