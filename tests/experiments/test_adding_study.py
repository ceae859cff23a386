"""The study of the adding problem: what an IRNN starts as, against numpy; claims that can fail, a run to the end."""

import json
import math

import jax
import numpy as np
import pytest
from changed_configs import changed
from elman_by_hand import backward

from experiments import adding
from experiments.common.adding_report import Learning, far_share
from experiments.common.study import probed_batch
from rnnjax.train.config import UsageError

SMALL = {
    "task.length": 6,
    "irnn.length": 5,
    "model.hidden_size": 8,
    "models": ("irnn",),
    "updates.irnn": 4,
    "probe.points": 1,
    "probe.batch": 3,
    "seeds": 1,
    "train.steps_per_call": 2,
    "train.batch_size": 2,
    "train.eval_every": 2,
    "train.eval_batch": 5,
    "train.log_every": 2,
}


def small(**changes):
    config = adding.get_config("length_100", "quick")
    for name in ("elman", "gru", "lstm"):
        setattr(config.updates, name, 4)
    return changed(config, SMALL | changes)


@pytest.fixture(scope="module")
def ran(tmp_path_factory):
    """The folder of a tiny run."""
    folder = tmp_path_factory.mktemp("adding")
    adding.main(small(), folder)
    return folder


def test_an_irnn_starts_as_the_identity_with_small_input_weights():
    model = adding.make_model("irnn", small(**{"model.hidden_size": 100}), seed=3)
    np.testing.assert_array_equal(model.rnn.params["W_hh"][...], np.eye(100))
    assert 0.008 < np.std(model.rnn.params["W_ih"][...]) < 0.012 and not np.any(model.rnn.params["b"][...])
    assert model.rnn.layer.activation == "relu"
    other = adding.make_model("irnn", small(**{"model.hidden_size": 100}), seed=4)
    assert not np.array_equal(model.rnn.params["W_ih"][...], other.rnn.params["W_ih"][...])


def test_the_gradient_of_an_irnn_is_numpys(ran):
    config = small()
    model, task = adding.make_model("irnn", config, config.train.seed), adding.task_of("irnn", config)
    batch = jax.device_get(probed_batch(task, config.train.seed, config.probe.batch))
    params = {name: np.asarray(leaf[...], np.float64) for name, leaf in model.rnn.params.items()}
    head = np.asarray(model.head.kernel[...], np.float64)
    h = np.zeros((config.probe.batch, config.model.hidden_size))
    for x in batch.inputs:
        h = np.maximum(x @ params["W_ih"] + h @ params["W_hh"], 0)
    gradient = 2 * (h @ head - batch.targets) * head.T
    want = np.sort(backward(model.rnn.layer, params, batch.inputs, gradient), axis=1)
    with np.load(ran / "irnn" / "norms.npz") as norms:
        (found,) = (norms[name] for name in norms.files if name != "step")
        np.testing.assert_allclose(found[0, :, 1], want[:, 1], atol=1e-5)  # the median of three
    assert np.ptp(want) > 0.05  # some units are off


def test_learning_is_read_off_the_tests():
    learning = Learning([{100: 0.2, 200: 0.009, 300: 0.02}, {100: 0.15, 200: 0.14, 300: math.nan}])
    assert learning.first() == [200, None] and learning.solved_by(200) == 1 and learning.solved_by(199) == 0
    assert learning.at(100) == [0.2, 0.15] and math.isnan(learning.at(50)[0])
    assert learning.at_least(0.14, 200) == 1 and learning.at_least(0.0, 300) == 1 and learning.at_least(0.0, 50) == 0
    assert math.isnan(learning.least()) and Learning([{100: 0.2}]).least() == 0.2
    assert math.isnan(Learning([]).least()) and math.isnan(far_share(learning))
    assert far_share(Learning([], np.array([1.0, 0.9, 0.5]))) == -0.5


def solving(*steps):
    """Seeds that have solved the task at these updates, None for never."""
    return [{step or 1000: 0.005 if step else 0.05} for step in steps]


def found_of(elman=(0.16,) * 5, gru=(400,) * 5, lstm=(900,) * 5, irnn=(900,) * 5, far=-0.2, late=0.09):
    return {
        "elman": Learning([{1000: early, 3000: late} for early in elman]),
        "gru": Learning(solving(*gru)),
        "lstm": Learning(solving(*lstm)),
        "irnn": Learning(solving(*irnn), np.array([0.0, far])),
    }


@pytest.mark.parametrize(
    "changes, fails",
    [
        ({}, []),
        ({"gru": (400, 400, 400, 1000, None)}, []),
        ({"gru": (400, 400, 400, 1100, None)}, [0]),
        ({"lstm": (900, 1500, 900, 1600, 1600)}, [1]),
        ({"elman": (0.16, 0.16, 0.16, 0.134, 0.1)}, []),
        ({"elman": (0.16, 0.16, 0.16, 0.13, 0.1)}, [2]),
        ({"elman": (0.16, 0.16, 0.16, math.nan, math.nan)}, [2]),
        ({"irnn": (900, 3000, 900, None, None)}, [3]),
        ({"far": -0.6}, [4]),
        ({"far": 0.1}, [4]),
        ({"far": math.inf}, [4]),
    ],
    ids=range(11),
)
def test_claims_hold_or_not(changes, fails):
    made = adding.claims(adding.get_config("length_100", "quick"), found_of(**changes))
    assert [claim.holds for claim in made] == [at not in fails for at in range(5)]


@pytest.mark.parametrize("late, held", [(0.09, True), (0.03, False), (math.nan, False)])
def test_tanh_is_judged_at_the_end_of_the_full_preset(late, held):
    config = adding.get_config("length_100", "full")
    found = found_of((0.16,) * 6, (400,) * 6, (900,) * 6, (900,) * 6, late=late)
    made = adding.claims(config, found)
    assert [claim.holds for claim in made] == [True, True, True, held, True, True]


def test_training_ends_where_it_is_solved_in_the_quick_preset_alone():
    assert adding.solved({"test": {"loss": 0.01}}) is None
    assert adding.solved({"test": {"loss": 0.0051}}) == "solved, squared error 0.0051"
    quick, full = (adding.make_entries(adding.get_config("length_100", preset)) for preset in ("quick", "full"))
    assert all(entry.until is adding.solved for entry in quick) and all(entry.until is None for entry in full)
    assert {entry.name: (entry.train.steps, entry.task.length) for entry in quick} == {
        "elman": (1000, 100),
        "gru": (1000, 100),
        "lstm": (1500, 100),
        "irnn": (3000, 50),
    }
    assert (full[-1].name, full[-1].train.steps, full[-1].task.length) == ("irnn-far", 3000, 150)


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"models": ()}, "--config.models is empty: expected some of elman, gru, lstm, irnn, irnn-far"),
        ({"train.steps": 7}, "--config.train.steps is 7, but every model here has its own budget: give"),
        ({"train.epochs": 7}, "--config.train.epochs is 7, but every model here has its own budget: give"),
        ({"updates.gru": 3}, "--config.updates.gru is 3: expected a multiple of --config.train.steps_per_call (2)"),
        ({"updates.lstm": 0}, "--config.updates.lstm is 0"),
        ({"irnn.input_deviation": 0.0}, "--config.irnn.input_deviation is 0.0: expected a number above 0"),
        ({"irnn.length": 1}, "length of Adding is 1"),
        ({"model.hidden_size": 0}, "hidden_size of Elman is 0"),
        ({"seeds": 0}, "--config.seeds is 0: expected at least 1"),
    ],
    ids=range(9),
)
def test_what_cannot_be_is_refused_before_anything_is_written(tmp_path, changes, message):
    with pytest.raises(UsageError) as error:
        adding.main(small(**changes), tmp_path / "w")
    assert str(error.value).startswith(message) and not (tmp_path / "w").exists()


def test_a_run_from_end_to_end(ran, monkeypatch):
    text = (ran / "report.md").read_text()
    assert "| irnn | 5 |" in text and "No claim is made" in text and "The gradient over time" in text
    assert json.loads((ran / "claims.json").read_text())["claims"] == []  # not the config they are about
    assert (ran / "learning.png").stat().st_size > 10_000 and (ran / "gradients.png").exists()
    monkeypatch.setattr(adding, "make_model", None)  # what is there is not trained again
    monkeypatch.setattr(adding, "write_study", lambda *given: None)
    adding.main(small(), ran)
