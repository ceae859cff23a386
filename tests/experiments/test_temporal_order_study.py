"""The study of the temporal order problem: how it starts, its scores against numpy, claims that can fail, a run."""

import json
import math

import jax
import numpy as np
import pytest
from changed_configs import changed
from flax import nnx

from experiments import temporal_order
from experiments.common import order_report
from rnnjax.tasks import TemporalOrder
from rnnjax.train.config import UsageError
from rnnjax.train.step import root_key

TASK = TemporalOrder(10, 13)
SMALL = {
    "task.min_length": 10,
    "task.max_length": 13,
    "model.hidden_size": 20,
    "methods": ("sgd-c",),
    "lengths": (12, 15),
    "tried": 5,
    "probe.on": False,
    "seeds": 1,
    "train.steps": 4,
    "train.steps_per_call": 2,
    "train.batch_size": 2,
    "train.eval_every": 2,
    "train.eval_batch": 6,
    "train.log_every": 2,
}


def small(**changes):
    config = temporal_order.get_config("lengths_20_to_49", "quick")
    return changed(config, SMALL | changes)


@pytest.fixture(scope="module")
def model():
    return temporal_order.make_model(small(), TASK, seed=3)


def test_a_network_starts_smart(model):
    recurrent = np.asarray(model.rnn.params["W_hh"][...])
    np.testing.assert_array_equal((recurrent != 0).sum(0), 15)  # into every unit
    np.testing.assert_allclose(max(abs(np.linalg.eigvals(recurrent))), 0.95, rtol=1e-5)
    others = np.concatenate([np.ravel(model.rnn.params["W_ih"][...]), np.ravel(model.head.kernel[...])])
    assert 0.008 < others.std() < 0.012 and others.size == 200
    assert not np.any(model.rnn.params["b"][...]) and not np.any(model.head.bias[...])


def test_scores_are_those_of_numpy(model):
    """The head's bias decides what a network answers that does not see its weights of 0.01."""
    config = small(lengths=(12,))
    strong = nnx.clone(model)
    strong.rnn.params["W_ih"][...] *= 100
    strong.head.kernel[...] *= 100
    graph, state = nnx.split(strong)
    key = root_key(5)
    batch = jax.device_get(jax.jit(TASK.sample, static_argnums=1)(key, 50))
    params = {name: np.asarray(leaf[...], np.float64) for name, leaf in strong.rnn.params.items()}
    answers = []
    for row, length in enumerate(batch.lengths):
        h = np.zeros(20)
        for x in batch.inputs[:length, row]:
            h = np.tanh(x @ params["W_ih"] + h @ params["W_hh"] + params["b"])
        answers.append(np.argmax(h @ np.asarray(strong.head.kernel[...])))
    want = np.mean(np.array(answers) != batch.targets)
    assert 0.2 < want < 1
    np.testing.assert_allclose(temporal_order._wrong(graph, TASK, 50, state, key), want, atol=1e-6)
    scores = temporal_order.scorer(config, TASK)(strong)
    assert set(scores) == {"rho"}  # it has not solved the task, so that longer sequences are not tried
    np.testing.assert_allclose(scores["rho"], 0.95, rtol=1e-5)


def test_what_is_solved_is_tried_on_longer_sequences(model, monkeypatch):
    monkeypatch.setattr(temporal_order, "_wrong", lambda graph, task, *rest: {13: 0.015, 12: 0.2, 15: 0.6}[task.length])
    scores = temporal_order.scorer(small(), TASK)(model)
    assert (scores["errors"], scores["errors_12"], scores["errors_15"]) == (0.015, 0.2, 0.6)


def test_a_method_is_what_its_name_says():
    entries = temporal_order.make_entries(small(methods=tuple(temporal_order.METHODS)), TASK)
    assert {entry.name: (entry.train.clip_norm, entry.train.omega) for entry in entries} == {
        "sgd": (0, 0),
        "sgd-c": (1, 0),
        "sgd-cr": (1, 2),
        "sgd-r": (0, 2),
    }
    assert all(entry.train.optimizer == "sgd" for entry in entries)
    (entry,) = temporal_order.rate_entries(small(rates=(0.5,)), TASK)
    assert (entry.name, entry.train.learning_rate, entry.train.clip_norm) == ("sgd lr 0.5", 0.5, 0)


def test_training_ends_below_one_percent():
    assert temporal_order.solved({"test": {"accuracy": 0.99}}) is None
    assert temporal_order.solved({"test": {"accuracy": 0.995}}) == "solved, 0.50% errors"
    assert temporal_order.solved({"test": {"accuracy": math.nan}}) is None


def summary_of(solved, seeds=5, longer=0.7, diverged=0):
    """A method by which the first `solved` seeds have solved the task, and the last `diverged` ones were not finite."""
    replicas = []
    for seed in range(seeds):
        wild = seed >= seeds - diverged
        scores = {} if wild else {"accuracy": 0.995 if seed < solved else 0.5, "rho": 1.2}
        if seed < solved:
            scores |= {"errors": 0.005, "errors_50": 0.01, "errors_100": 0.6, "errors_200": longer}
        replicas.append({"label": f"seed={seed}", "step": 500, "scores": scores, "stopped": None, "diverged": wild})
    return {"name": "", "replicas": replicas}


@pytest.mark.parametrize(
    "counts, held",
    [
        ({"sgd-cr": 5, "sgd-c": 4, "sgd": 0}, [True] * 4),
        ({"sgd-cr": 4, "sgd-c": 4, "sgd": 1}, [True] * 4),
        ({"sgd-cr": 3, "sgd-c": 3, "sgd": 0}, [False, True, True, True]),
        ({"sgd-cr": 4, "sgd-c": 5, "sgd": 0}, [True, False, True, True]),
        ({"sgd-cr": 4, "sgd-c": 1, "sgd": 2}, [True, True, False, False]),
    ],
    ids=range(5),
)
def test_claims_hold_or_not(counts, held):
    config = temporal_order.get_config("lengths_20_to_49", "quick")
    made = temporal_order.claims(config, {name: summary_of(count) for name, count in counts.items()}, {})
    assert [claim.holds for claim in made[:-1]] == held
    assert not made[-1].holds and made[-1].measured == 0.7


def test_claims_of_the_full_preset():
    config = temporal_order.get_config("lengths_20_to_49", "full")
    summaries = {name: summary_of(count, 6) for name, count in {"sgd": 0, "sgd-c": 2, "sgd-cr": 5, "sgd-r": 2}.items()}
    rates = {f"sgd lr {rate:g}": summary_of(0, 1, diverged=1) for rate in config.rates}
    assert [claim.holds for claim in temporal_order.claims(config, summaries, rates)] == [True] * 6 + [False]
    summaries["sgd-r"], rates["sgd lr 0.1"] = summary_of(3, 6), summary_of(1, 1)
    assert [claim.holds for claim in temporal_order.claims(config, summaries, rates)][3:6] == [False, True, False]
    summaries = {name: summary_of(0, 6, diverged=6) for name in summaries}
    *_, last = temporal_order.claims(config, summaries, rates)
    assert last.not_measured and not last.holds


def test_a_network_that_makes_no_error_far_away_holds_the_papers_claim():
    config = temporal_order.get_config("lengths_20_to_49", "quick")
    *_, last = temporal_order.claims(config, {"sgd-cr": summary_of(4, longer=0.0), "sgd": summary_of(0)}, {})
    assert last.holds and last.measured == 0


def test_the_largest_norm_of_a_block():
    at, tops = order_report._tops(np.arange(5), np.array([1.0, 100.0, 10.0, math.nan, 0.1]), 2)
    np.testing.assert_array_equal(at, [0, 2, 4])
    np.testing.assert_allclose(tops, [2, math.nan, -1])


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"methods": ()}, "--config.methods is empty: expected some of sgd, sgd-c, sgd-cr, sgd-r"),
        ({"tried": 0}, "--config.tried is 0: expected at least 1"),
        ({"rates": (0.1, -1.0)}, "--config.rates has -1: expected numbers above 0"),
        ({"train.clip_norm": 0.0}, "--config.train.clip_norm is 0: expected a number above 0"),
        ({"train.omega": 0.0}, "--config.train.omega is 0: expected a number above 0"),
        ({"lengths": (9,)}, "min_length of TemporalOrder is 9"),
        ({"model.hidden_size": 0}, "hidden_size of Elman is 0"),
        ({"seeds": 0}, "--config.seeds is 0: expected at least 1"),
        ({"train.batch_size": 0}, "--config.train.batch_size is 0"),
    ],
    ids=range(9),
)
def test_what_cannot_be_is_refused_before_anything_is_written(tmp_path, changes, message):
    with pytest.raises(UsageError) as error:
        temporal_order.main(small(**changes), tmp_path / "w")
    assert str(error.value).startswith(message) and not (tmp_path / "w").exists()


@pytest.mark.full
def test_a_run_from_end_to_end(tmp_path, monkeypatch):
    temporal_order.main(small(), tmp_path)
    text = (tmp_path / "report.md").read_text()
    assert "| sgd-c | 0 of 1 |" in text and "No claim is made" in text
    assert json.loads((tmp_path / "claims.json").read_text())["claims"] == []  # not the config they are about
    assert (tmp_path / "training.png").stat().st_size > 10_000
    monkeypatch.setattr(temporal_order, "make_model", None)  # what is there is not trained again
    monkeypatch.setattr(temporal_order, "write_study", lambda *given: None)
    temporal_order.main(small(), tmp_path)
