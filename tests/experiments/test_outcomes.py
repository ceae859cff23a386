"""The claims about a run hold for what they say, fail otherwise, and are silent about other settings."""

import dataclasses

import numpy as np
import pytest

from experiments.common.outcomes import adding_claims
from rnnjax.report import Run

KEPT = {"elman": -12.0, "jordan": -30.0, "lstm": -0.3, "gru": -0.5}
LOSSES = {"elman": 0.16, "jordan": 0.17, "lstm": 0.002, "gru": 0.001}


def make(kept=KEPT, losses=LOSSES, **changes) -> Run:
    cells = tuple(kept)
    train = {"batch_size": 64, "learning_rate": 3e-3, "optimizer": "adam", "steps": 1500}
    config = {"task": {"length": 100}, "model": {"hidden_size": 32}, "train": train}
    norms = {cell: {"carry": np.linspace(0, kept[cell], 100)[None, :, None].repeat(3, axis=2)} for cell in cells}
    rows = {
        cell: [{"step": step, "kind": "eval", "split": "test", "loss": losses[cell]} for step in (1000, 1500)]
        for cell in cells
    }
    empty = dict.fromkeys((field.name for field in dataclasses.fields(Run)), None)
    return Run(
        **empty
        | {"cells": cells, "config": config, "norms": norms, "metrics": rows, "task": {"task": "adding"}}
        | changes
    )


def test_all_hold_for_what_the_study_expects():
    claims = adding_claims(make())
    assert [claim.holds for claim in claims] == [True] * 3
    np.testing.assert_allclose([claim.measured for claim in claims], [0.002, 0.16, 11.5])


@pytest.mark.parametrize(
    "changes, failing",
    [
        ({"losses": LOSSES | {"gru": 0.02}}, 0),
        ({"losses": LOSSES | {"elman": 0.1}}, 1),
        ({"kept": KEPT | {"elman": -0.1}}, 2),
    ],
)
def test_each_can_fail(changes, failing):
    assert [claim.holds for claim in adding_claims(make(**changes))] == [i != failing for i in range(3)]


def test_other_settings_are_not_judged():
    run = make()
    assert not adding_claims(dataclasses.replace(run, task={"task": "copying"}))
    assert not adding_claims(dataclasses.replace(run, cells=("elman", "lstm")))
    for group, field, value in (("train", "steps", 500), ("task", "length", 200), ("model", "hidden_size", 64)):
        changed = run.config | {group: run.config[group] | {field: value}}
        assert not adding_claims(dataclasses.replace(run, config=changed))
