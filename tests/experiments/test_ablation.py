"""The ablations: rules that can fail, every variant what its name says, and a tiny run from end to end."""

import dataclasses
import json
import math

import jax
import numpy as np
import pytest
from changed_configs import changed

from experiments import gru_ablation, lstm_ablation
from experiments.common import ablation
from experiments.common.ablation import BETTER, UNRESOLVED, WORSE, Results, compare, scored
from rnnjax.cells import GRU, LSTM
from rnnjax.train.config import UsageError

TASKS, STUDIES = ("adding", "copying", "temporal_order"), (lstm_ablation, gru_ablation)
SLOPES = {"vanilla": -0.2, "NP": -0.2, "NFG": -0.1, "NUG": -0.6}


def results(study, seeds=9, slopes=SLOPES, vanilla=-1.5, **worse_by):
    """Made-up results: a variant is worse than the whole cell by so many decades on every task, in every seed."""
    names, noise = [variant.name for variant in study.CELLS], 0.01 * np.arange(seeds)
    steps = np.arange(20) / math.log(10)
    pairs = [(name, task) for name in names for task in TASKS]
    scores = {(name, task): vanilla + noise + worse_by.get(name, 0) * (1 + noise) for name, task in pairs}
    for at, name in enumerate(names[1:]):  # no difference, but for noise of both signs
        if name not in worse_by:
            for task in TASKS:
                scores[name, task] = scores[name, task] + 0.01 * (-1) ** np.arange(at, at + seeds)
    norms = {(name, task): np.stack([slopes.get(name, -0.3) * steps] * 2) for name, task in pairs}
    return Results(TASKS, scores, compare(scores, names, TASKS), norms, dict.fromkeys(pairs, 1))


def holding(study, **changes):
    return [claim.holds for claim in study.claims(results(study, **changes))]


def failing(study, base, **changes):
    """Which claims fail with these changes of what makes all hold."""
    return [at for at, holds in enumerate(holding(study, **{**base, **changes})) if not holds]


def test_claims_of_the_lstm_hold_and_fail_with_the_numbers():
    as_in_the_paper = {"NFG": 0.8, "NOAF": 0.7, "NIG": 0.2, "NOG": 0.1}
    assert holding(lstm_ablation, **as_in_the_paper) == [True] * 9

    def fails(**changes):
        return failing(lstm_ablation, as_in_the_paper, **changes)

    assert fails(vanilla=-0.2) == [0]
    assert fails(NFG=-0.1) == [1, 3, 6]
    assert fails(NOAF=0) == [2, 3]
    assert fails(NIG=1.2) == [3]
    assert fails(CIFG=0.1) == fails(NP=0.05) == [4]
    assert fails(FGR=-0.1) == fails(FGR=0.1) == [5]
    assert fails(NOG=0.5) == [6]
    assert fails(slopes={**SLOPES, "NFG": -0.2}) == [7]
    assert fails(slopes={**SLOPES, "NP": -0.21}) == [8]


def test_claims_of_the_gru_hold_and_fail_with_the_numbers():
    expected = {"NUG": 0.5, "tanh": 0.5}
    assert holding(gru_ablation, **expected) == [True] * 7

    def fails(**changes):
        return failing(gru_ablation, expected, **changes)

    assert fails(vanilla=-0.2) == [0]
    assert fails(NUG=0) == [1] and fails(tanh=-0.3) == [2]
    assert fails(NRG=0.1) == [3] and fails(MGU=0.1) == [4]
    assert fails(before=0.1) == fails(before=-0.1) == [5]
    assert fails(slopes={**SLOPES, "NUG": -0.39}) == [6]


def test_what_is_not_resolved_is_no_verdict():
    """A spread of seeds that allows for a factor of 1.25 is no proof of no difference."""
    found = results(gru_ablation)
    wide = {
        key: values + (0.4 * (-1) ** np.arange(9) if key[0] == "NRG" else 0) for key, values in found.scores.items()
    }
    names = [variant.name for variant in gru_ablation.CELLS]
    found = dataclasses.replace(found, scores=wide, against=compare(wide, names, TASKS))
    claim = found.no_difference("x", "y", "NRG")
    assert not claim.holds and "do not rule out a factor of" in claim.not_measured
    assert found.no_difference("x", "y", "MGU").holds and not found.no_difference("x", "y", "MGU").not_measured


@pytest.mark.parametrize("study", STUDIES)
def test_gradients_that_are_none_hold_nothing(study):
    claims = study.claims(results(study, slopes=dict.fromkeys(SLOPES, math.nan), NFG=1, NOAF=1, NUG=1, tanh=1))
    assert not any(
        claim.holds for claim in claims if "Before training" in claim.claim or "peepholes, which" in claim.claim
    )


def test_differs_is_said_of_what_the_corrected_test_resolves_alone():
    scores = {("whole", "t"): np.zeros(9), ("bad", "t"): np.full(9, 0.3), ("good", "t"): np.full(9, -0.1)}
    scores["unsure", "t"] = np.array([0.5] * 8 + [-0.5])
    found = compare(scores, ["whole", "bad", "good", "unsure"], ["t"])
    assert {name: one.verdict for (name, _), one in found.items()} == {"bad": WORSE, "good": BETTER, "unsure": WORSE}
    assert found["bad", "t"].corrected == pytest.approx(3 * 2 / 2**9)
    many = {(f"bad {at}", "t"): np.full(9, 0.3) for at in range(20)}  # too many for so few seeds
    found = compare({("whole", "t"): np.zeros(9), **many}, ["whole", *(name for name, _ in many)], ["t"])
    assert {one.verdict for one in found.values()} == {UNRESOLVED}


def test_a_score_ends_at_solved_and_at_nothing_learned():
    assert scored(0.05, 0.5) == pytest.approx(-1) and scored(0.0, 0.5) == scored(1e-9, 0.5) == -2
    assert scored(0.7, 0.5) == scored(None, 0.5) == scored(math.nan, 0.5) == 0


@pytest.mark.parametrize("study", STUDIES)
def test_every_variant_differs_from_the_whole_cell_and_no_seed_is_shared(study):
    config = study.get_config("synthetic", "quick")
    entries = ablation.make_entries(study.ABLATION, config)
    assert len(entries) == len({entry.name for entry in entries}) == 3 * len(study.CELLS)
    cells = {repr(variant.cell(2, 3, **variant.options)) for variant in study.CELLS}
    assert len(cells) == len(study.CELLS)
    whole, *_ = study.CELLS
    assert whole.cell in (LSTM, GRU)
    for preset in ("quick", "full"):
        config = study.get_config("synthetic", preset)
        smallest = 2.0 ** (1 - config.seeds)
        assert smallest * (len(study.CELLS) - 1) < 0.05, "no difference could be resolved"


def test_what_is_not_there_has_no_parameters():
    def shapes(name):
        variant = next(one for one in lstm_ablation.CELLS if one.name == name)
        return {
            key: leaf.shape for key, leaf in jax.eval_shape(variant.cell(2, 3, **variant.options).init, KEY).items()
        }

    KEY = jax.random.key(0)
    assert shapes("vanilla")["W_hh"] == (3, 12) and "p_f" in shapes("vanilla")
    assert all(shapes(name)["W_hh"] == (3, 9) for name in ("NIG", "NFG", "NOG", "CIFG", "1997"))
    assert "p_f" not in shapes("NP") and "p_i" not in shapes("CIFG") and "p_i" not in shapes("1997")
    assert shapes("FGR")["W_gates"] == (9, 9) and shapes("1997")["W_gates"] == (6, 6)


HOSTILE = [
    ({"variants": ("NFG",)}, "--config.variants is NFG: expected vanilla, and others"),
    ({"variants": ("vanilla",)}, "--config.variants is vanilla: expected vanilla, and others"),
    ({"variants": ()}, "--config.variants is empty"),
    ({"variants": ("vanilla", "NGF")}, "--config.variants has 'NGF': expected some of vanilla, NIG"),
    ({"seeds": 17}, "--config.seeds is 17: expected 1 to 16"),
    ({"seeds": 0}, "--config.seeds is 0"),
    ({"model.hidden_size": 0}, "hidden_size of LSTM is 0"),
    ({"tasks.adding.length": 1}, "length of Adding is 1"),
    ({"train.steps": 3}, "--config.train.steps is 3"),
]


@pytest.mark.parametrize("change, message", HOSTILE, ids=lambda value: str(value)[:40])
def test_a_config_that_can_not_be_is_refused_by_name(tmp_path, change, message):
    config = changed(lstm_ablation.get_config("synthetic", "quick"), change)
    with pytest.raises(UsageError) as error:
        lstm_ablation.main(config, tmp_path)
    assert str(error.value).startswith(message) and not list(tmp_path.iterdir())


@pytest.mark.full
def test_a_run_from_end_to_end_goes_on_where_it_was(tmp_path, capsys):
    config = gru_ablation.get_config("synthetic", "quick")
    config.variants, config.seeds, config.model.hidden_size = ("vanilla", "NUG"), 2, 2
    config.tasks = ablation.task_groups(adding={"length": 4})
    config.train = dataclasses.replace(config.train, steps=2, steps_per_call=2, eval_every=2, log_every=2, eval_batch=4)
    gru_ablation.main(config, tmp_path)
    text = (tmp_path / "report.md").read_text()
    assert "| NUG | adding |" in text and "not resolved" in text and "No claim is made" in text
    assert "none can be below 0.5" in text
    assert (tmp_path / "ablation.png").exists() and json.loads((tmp_path / "claims.json").read_text())["claims"] == []
    seconds = json.loads((tmp_path / "seconds.json").read_text())["seconds"]
    assert seconds > 0
    capsys.readouterr()
    gru_ablation.main(config, tmp_path)
    assert capsys.readouterr().err.count("finished before") == 2
    assert json.loads((tmp_path / "seconds.json").read_text())["seconds"] >= seconds
