"""The cloze study: what its models can't see, they can't say, and its claims can fail."""

import dataclasses
import json

import jax
import numpy as np
import pytest
from flax import nnx

from experiments import cloze
from rnnjax.answers import Unanswerable
from rnnjax.layers import Bidirectional
from rnnjax.tasks import Cloze
from rnnjax.train.config import UsageError


def small(*cells, **changes):
    config = cloze.get_config("generated", "quick")
    config.model.hidden_size = config.model.embedding_size = 4
    return dataclasses.replace(config, cells=cells, **changes)


def scores(model, task):
    """{metric: mean over the test split}."""
    graph, state = nnx.split(model)

    @jax.jit
    def metrics(state, batch):
        return task.metrics(nnx.merge(graph, state)(batch.inputs, lengths=batch.lengths), batch)

    parts = [metrics(state, batch) for batch in task.batches("test", 500)]
    return {
        name: sum(float((np.asarray(part[name][0]) * part[name][1]).sum()) for part in parts)
        / sum(float(part[name][1].sum()) for part in parts)
        for name in parts[0]
    }


@pytest.mark.parametrize("cell", ["jordan", "gru"])
def test_from_the_left_any_model_is_right_in_exactly_one_of_four(cell):
    """Trained or not: what stands behind the gap is not seen, and what stands before comes with every answer."""
    config, task = small(cell), Cloze()
    left = cloze.make_cloze_model(cell, False, config, task, seed=3)
    both = cloze.make_cloze_model(cell, True, config, task, seed=3)
    assert isinstance(both.rnn.layer, Bidirectional) and not isinstance(left.rnn.layer, Bidirectional)
    found = scores(left, task)
    assert found["accuracy_right"] == pytest.approx(0.25, abs=1e-6) and found["nats_right"] >= task.chance
    assert scores(both, task)["accuracy_right"] != pytest.approx(0.25, abs=1e-6)


def summaries_of(**changes):
    """Four models as theory has them, but for the changes."""
    left = {"accuracy_left": 1.0, "accuracy_right": 0.25, "nats_right": 1.39}
    both = {"accuracy_left": 1.0, "accuracy_right": 0.995, "nats_right": 0.01}
    found = {"elman": left, "gru": dict(left), "elman-bi": dict(both), "gru-bi": dict(both)}
    for name, values in changes.items():
        found[name.replace("_", "-")] = found[name.replace("_", "-")] | values
    return {
        name: {"replicas": [{"label": "seed=0", "scores": values}], "parameters": 1, "seconds": 1.0}
        for name, values in found.items()
    }


@pytest.mark.parametrize(
    "changes, failing",
    [
        ({}, []),
        ({"gru": {"accuracy_right": 0.26}}, [0]),
        ({"gru": {"nats_right": 1.38}}, [1]),
        ({"elman": {"nats_right": 1.5}}, [2]),
        ({"gru": {"accuracy_left": 0.98}}, [3]),
        ({"gru_bi": {"accuracy_left": 0.98}}, [4]),
        ({"elman_bi": {"accuracy_right": 0.25}}, [5]),
    ],
)
def test_claims_hold_where_theory_does(changes, failing):
    summaries = summaries_of(**changes)
    claims = cloze.corpus_claims(Cloze(), summaries) + cloze.learned_claims(default(), Cloze(), summaries)
    assert [number for number, claim in enumerate(claims) if not claim.holds] == failing and len(claims) == 6


def default(**changes):
    return dataclasses.replace(cloze.get_config("generated", "quick"), **changes)


def test_what_is_learned_is_claimed_of_a_default_config_alone():
    for config in (default(cells=("gru",), seeds=2), cloze.get_config("generated", "full")):
        assert len(cloze.learned_claims(config, Cloze(), summaries_of())) == 4
    assert cloze.learned_claims(default(model=cloze.EmbeddedConfig(8)), Cloze(), summaries_of()) == []


@pytest.mark.parametrize(
    "change, message",
    [
        (lambda config: setattr(config, "cells", ()), "--config.cells is empty"),
        (lambda config: setattr(config.model, "embedding_size", 0), "--config.model.embedding_size is 0"),
        (lambda config: setattr(config.task, "buckets", 0), "buckets of Cloze is 0"),
    ],
)
def test_a_config_that_can_not_be_is_refused(tmp_path, change, message):
    config = small("gru")
    change(config)
    with pytest.raises(UsageError) as error:
        cloze.main(config, tmp_path)
    assert str(error.value).startswith(message) and not list(tmp_path.iterdir())


def test_a_run_from_end_to_end(tmp_path, capsys):
    config = small("elman")
    config.task.buckets = 1
    config.train = dataclasses.replace(config.train, epochs=0, steps=20, steps_per_call=20, eval_every=20)
    cloze.main(config, tmp_path)
    text = (tmp_path / "report.md").read_text()
    assert "| elman |" in text and "| elman-bi |" in text and "told behind" in text
    claims = json.loads((tmp_path / "claims.json").read_text())["claims"]
    assert len(claims) == 2 and claims[0]["holds"] and claims[1]["holds"]  # whatever was learned
    assert "No claim is made of what was learned" in text
    assert (tmp_path / "scores.png").exists()
    answer = cloze.predictor(config, tmp_path, "elman-bi")
    found = answer("He said _ to the crowd").probabilities
    assert set(found) == set(Cloze().answers) and sum(found.values()) == pytest.approx(1)
    for line, message in (("he said hello", "0 gaps: expected one word to be _"), ("_ sang", "and not sang")):
        with pytest.raises(Unanswerable, match=message):
            answer(line)
    before = (tmp_path / "elman" / "summary.json").stat().st_mtime_ns
    cloze.main(config, tmp_path)
    assert (tmp_path / "elman" / "summary.json").stat().st_mtime_ns == before
    assert "finished before" in capsys.readouterr().err
