"""A comparison trains each model once, scores its best parameters, and tells of all seeds."""

import dataclasses
import json
import math

import numpy as np
import pytest

from experiments.common.claims import Claim
from experiments.common.study import (
    Entry,
    check_entries,
    differs_only_in,
    every,
    is_default,
    mean_sd,
    run_entries,
    told,
    unclaimed,
    values_of,
)
from experiments.common.study_report import Study, Table, write_study
from rnnjax.cells import Elman
from rnnjax.tasks import Adding
from rnnjax.train.build import make_model
from rnnjax.train.config import GradientConfig, TrainConfig, UsageError

TASK = Adding(5)
TRAIN = TrainConfig(
    steps=4, steps_per_call=2, batch_size=4, eval_every=2, eval_batch=8, log_every=2, learning_rate=0.01
)


@dataclasses.dataclass
class Config:
    seeds: int = 1
    probe: GradientConfig = dataclasses.field(default_factory=lambda: GradientConfig(points=2, batch=3))


def entry_of(name="elman", score=None, **changes):
    train = dataclasses.replace(TRAIN, **changes)
    return Entry(name, TASK, train, lambda seed: make_model(Elman(2, 3), TASK, seed), score, "elman")


def test_seeds_are_trained_scored_and_told_of(tmp_path):
    scored = []

    def score(model):
        scored.append(np.asarray(model.rnn.params["W_hh"][...]))
        assert model.deterministic if hasattr(model, "deterministic") else True
        return {"own": float(len(scored))}

    config = Config(seeds=2)
    config.probe.on = True
    summaries = run_entries([entry_of(score=score)], tmp_path, config)
    summary = summaries["elman"]
    assert [one["label"] for one in summary["replicas"]] == ["seed=0", "seed=1"]
    assert values_of(summary, "own") == [1.0, 2.0] and mean_sd(summary, "own") == (1.5, math.sqrt(0.5), 2)
    assert told(summary, "own") == "1.50 ± 0.71" and told(summary, "own", 0, 100) == "150 ± 71"
    assert told(summary, "nothing") == "-" and math.isnan(mean_sd(summary, "nothing")[0])
    assert not np.array_equal(*scored)
    start = make_model(Elman(2, 3), TASK, 0).rnn.params["W_hh"][...]
    assert not np.array_equal(scored[0], start)  # what was trained
    rows = [json.loads(line) for line in (tmp_path / "elman" / "metrics.jsonl").read_text().splitlines()]
    test = {row["step"]: row["loss"] for row in rows if row["kind"] == "eval" and row["replica"] == 1}
    assert summary["replicas"][1]["scores"]["loss"] == test[max(test)] and summary["replicas"][1]["step"] == 4
    with np.load(tmp_path / "elman" / "norms.npz") as norms:
        assert norms["elman"].shape == (len(norms["step"]), 5, 3) and np.isfinite(norms["elman"]).all()

    def never(model):
        raise AssertionError("it was finished before")

    assert run_entries([entry_of(score=never)], tmp_path, config) == summaries


def test_what_diverges_is_a_result(tmp_path):
    summaries = run_entries([entry_of(learning_rate=1e30, optimizer="sgd", clip_norm=0.0)], tmp_path, Config())
    (one,) = summaries["elman"]["replicas"]
    assert one["diverged"] and one["scores"] == {} and "not finite" in one["stopped"]


def test_a_seed_that_diverged_is_told_and_holds_no_claim():
    ended = {"label": "seed=0", "scores": {"f1": 90.0}}
    summary = {"replicas": [ended, {"label": "seed=1", "scores": {}}, {"label": "seed=2", "scores": {"f1": 92.0}}]}
    assert values_of(summary, "f1") == [90.0, 92.0] and told(summary, "f1") == "91.00 ± 1.41 (2 of 3)"
    np.testing.assert_array_equal(every([summary], "f1"), [90.0, np.nan, 92.0])
    assert math.isnan(mean_sd(summary, "f1")[0]) and not np.min(every([summary], "f1")) >= 0
    assert np.isnan(every([], "f1")).all() and every([], "f1").size == 1


def test_a_config_is_a_default_but_for_what_is_free():
    @dataclasses.dataclass
    class Small:
        train: TrainConfig = dataclasses.field(default_factory=TrainConfig)
        seeds: int = 1

    assert differs_only_in(Small(seeds=3), Small(), ("seeds",)) and not differs_only_in(Small(seeds=3), Small(), ())
    assert differs_only_in(Small(TrainConfig(tensorboard=True, devices=2)), Small(), ())  # how it is carried out
    assert not differs_only_in(Small(TrainConfig(steps=3)), Small(), ("seeds",))

    def get_config(variant, preset):
        return Small(TrainConfig(steps={"quick": 3, "full": 9}[preset]), seeds={"quick": 1, "full": 2}[preset])

    assert is_default(Small(TrainConfig(steps=3, seed=7), 5), get_config, "")
    assert is_default(Small(TrainConfig(steps=9), 2), get_config, "")
    assert not is_default(Small(TrainConfig(steps=9), 1), get_config, "")  # claims were set for more seeds
    assert not is_default(Small(TrainConfig(steps=4)), get_config, "")
    assert is_default(Small(TrainConfig(steps=4)), get_config, "", "train.steps")


def test_a_report_says_why_nothing_is_claimed():
    assert unclaimed(Study("", "", "Text.\n", [], {}, [])).text.startswith("Text. No claim is made")


def test_the_report_shows_tables_pictures_claims_and_gradients(tmp_path, capsys):
    config = Config()
    config.probe.on = True
    summaries = run_entries([entry_of("elman"), entry_of("elman-w3")], tmp_path, config)
    claims = [Claim("it holds", "theory", "> 0", 1.0, True), Claim("it does not", "theory", "> 0", -1.0, False)]
    table = Table("Scores", ("model", "loss"), [(name, told(one, "loss")) for name, one in summaries.items()])
    write_study(tmp_path, Study("small", "A small study", "Of nothing.", [table], {}, claims), summaries)
    text = (tmp_path / "report.md").read_text()
    assert text.startswith("# A small study\n\n1 of 2 claims hold.\n\nOf nothing.\n\n## Scores\n")
    assert "| elman-w3 |" in text and "**does not hold**" in text and "![" in text
    assert (tmp_path / "gradients.png").stat().st_size > 10_000 and "slope at end" in text
    assert [claim["holds"] for claim in json.loads((tmp_path / "claims.json").read_text())["claims"]] == [True, False]
    assert "1 of 2 claims hold" in capsys.readouterr().out


@pytest.mark.parametrize(
    "change, message",
    [
        ({"seeds": 0}, "--config.seeds is 0: expected at least 1"),
        ({"probe": GradientConfig(points=0)}, "--config.probe.points is 0"),
    ],
)
def test_a_config_that_can_not_be_is_refused(change, message):
    with pytest.raises(UsageError) as error:
        check_entries([entry_of()], dataclasses.replace(Config(), **change))
    assert str(error.value).startswith(message)


def test_names_are_given_once():
    with pytest.raises(UsageError, match="two models of the comparison are called elman"):
        check_entries([entry_of(), entry_of()], Config())
