"""The study of pixels: which models it builds, claims that can fail, and a run from end to end."""

import dataclasses
import json

import numpy as np
import pytest

from experiments import pixels
from rnnjax.cells import Elman, Jordan
from rnnjax.train.config import UsageError


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Sixty images of noise, each with a bright pixel at its class."""
    folder = tmp_path_factory.mktemp("digits")
    rng = np.random.default_rng(0)
    table = np.concatenate([rng.integers(0, 9, (60, 64)), np.arange(60)[:, None] % 10], axis=1)
    table[np.arange(60), table[:, 64]] = 16
    (folder / "digits.csv").write_text("\n".join(",".join(map(str, row)) for row in table))
    return folder


def small(folder, **changes):
    config = pixels.get_config("digits", "quick")
    config.task.path, config.model.hidden_size = str(folder), 4
    config.train = dataclasses.replace(
        config.train, epochs=0, steps=4, steps_per_call=2, eval_every=2, log_every=2, batch_size=6
    )
    return dataclasses.replace(config, **changes)


def test_an_entry_for_every_cell_and_order(folder):
    config = small(folder, cells=("elman", "irnn", "jordan"))
    config.rates.jordan = 0.25
    entries = {entry.name: entry for entry in pixels.make_entries(config)}
    assert list(entries) == [f"{cell}-{order}" for order in ("rows", "pixels") for cell in ("elman", "irnn", "jordan")]
    irnn = entries["irnn-pixels"].make_model(0)
    assert irnn.rnn.layer == Elman(1, 4, activation="relu", recurrent_init="identity")
    np.testing.assert_array_equal(irnn.rnn.arrays()["W_hh"], np.eye(4))
    assert entries["elman-rows"].make_model(0).rnn.layer == Elman(8, 4)
    jordan = entries["jordan-pixels"].make_model(0)
    assert jordan.rnn.layer == Jordan(1, 4, 10, feedback="identity") and jordan.head is None
    assert entries["jordan-rows"].train.learning_rate == 0.25


def test_each_seed_starts_elsewhere(folder):
    make = pixels.make_entries(small(folder, cells=("elman",), orders=("rows",)))[0].make_model
    first, again, other = (np.asarray(make(seed).rnn.arrays()["W_ih"]) for seed in (1, 1, 2))
    assert np.array_equal(first, again) and not np.array_equal(first, other)


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"cells": ()}, "--config.cells is"),
        ({"cells": ("lstm", "lstm")}, "--config.cells is lstm,lstm: expected one or more, each once"),
        ({"orders": ()}, "--config.orders is"),
        ({"seeds": 0}, "--config.seeds is 0"),
    ],
    ids=range(4),
)
def test_what_cannot_be_is_refused_before_anything_is_written(folder, tmp_path, changes, message):
    with pytest.raises(UsageError, match=message):
        pixels.main(small(folder, **changes), tmp_path / "w")
    assert not (tmp_path / "w").exists()


def _summaries(rows, by_pixels):
    found = {}
    for order, of in (("rows", rows), ("pixels", by_pixels)):
        for cell, value in of.items():
            replicas = [{"scores": {"accuracy": value + shift, "loss": 1.0}} for shift in (-0.01, 0.01)]
            found[f"{cell}-{order}"] = {"replicas": replicas}
    return found


GOOD = (
    {"elman": 0.97, "irnn": 0.9, "jordan": 0.9, "lstm": 0.98, "gru": 0.99},
    {"elman": 0.8, "irnn": 0.5, "jordan": 0.6, "lstm": 0.81, "gru": 0.9},
)


@pytest.mark.parametrize(
    "order, cell, value, fails",
    [(0, "elman", 0.94, 0), (0, "irnn", 0.5, 1), (1, "lstm", 0.79, 2), (1, "jordan", 0.71, 3)],
)
def test_claims_about_digits_hold_or_not(order, cell, value, fails):
    assert [claim.holds for claim in pixels.digits_claims(_summaries(*GOOD))] == [True] * 4
    changed = [dict(of) for of in GOOD]
    changed[order][cell] = value
    held = [claim.holds for claim in pixels.digits_claims(_summaries(*changed))]
    assert held == [at != fails for at in range(4)]


def test_claims_are_of_what_was_trained():
    assert [c.holds for c in pixels.digits_claims(_summaries({"lstm": 0.96}, {"elman": 0.5}))] == [True]
    wild = _summaries(*GOOD)
    wild["gru-rows"]["replicas"][0]["scores"] = {}  # it diverged
    assert [claim.holds for claim in pixels.digits_claims(wild)] == [False, False, True, True]
    assert pixels.digits_claims({}) == [] and pixels.mnist_claims({}) == []
    assert [c.holds for c in pixels.mnist_claims(_summaries({"lstm": 0.95, "gru": 0.93}, {}))] == [False]


def test_claims_are_made_of_a_default_config_alone():
    for variant in pixels.VARIANTS:
        for preset in ("quick", "full"):
            assert pixels.as_calibrated(pixels.get_config(variant, preset))
    config = pixels.get_config("digits", "quick")
    config.seeds, config.train.seed, config.cells, config.probe.on = 5, 7, ("gru",), True
    assert pixels.as_calibrated(config)
    config.task.permuted = True
    assert not pixels.as_calibrated(config)
    config = pixels.get_config("digits", "quick")
    config.rates.gru = 0.1
    assert not pixels.as_calibrated(config)


def test_a_run_from_end_to_end(folder, tmp_path):
    config = small(folder, cells=("elman",), orders=("pixels",), seeds=2)
    config.probe.on, config.probe.batch, config.probe.points = True, 4, 1
    pixels.main(config, tmp_path)
    text = (tmp_path / "report.md").read_text()
    assert "| elman |" in text and "The gradient over time" in text and "36 to train on" in text
    assert json.loads((tmp_path / "claims.json").read_text())["claims"] == []  # not the config they are about
    assert "No claim is judged" in text
    with np.load(tmp_path / "elman-pixels" / "norms.npz") as norms:
        (unroll,) = set(norms.files) - {"step"}
        assert norms[unroll].shape[1] == 64
    assert (tmp_path / "scores.png").exists() and (tmp_path / "gradients.png").exists()
    first = json.loads((tmp_path / "elman-pixels" / "summary.json").read_text())
    assert len(first["replicas"]) == 2 and 0 <= first["replicas"][0]["scores"]["accuracy"] <= 1
