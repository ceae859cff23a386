"""The music study: models of matched sizes, dropout where it belongs, targets that can be missed."""

import dataclasses
import json

import jax
import numpy as np
import pytest
from flax import nnx

from experiments import music
from rnnjax.data.pianoroll import SPLITS
from rnnjax.layers import InputDropout
from rnnjax.tasks import Music
from rnnjax.testing import assert_close
from rnnjax.train.build import parameter_count
from rnnjax.train.config import UsageError


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    """Three small pieces of two chords in turn for every split."""
    chords = [[60, 64, 67], [62, 65, 69]]
    pieces = [[chords[t % 2] for t in range(length)] for length in (4, 5, 6)]
    path = tmp_path_factory.mktemp("music") / "small.json"
    path.write_text(json.dumps(dict.fromkeys(SPLITS, pieces)))
    return str(path)


def small(path, *models, **changes):
    config = music.get_config("jsb", "quick")
    config.task.path = path
    for cell in music.MATCHED:
        getattr(config.cell_options, cell).hidden_size = 3
    config.wide.hidden_size = 4
    return dataclasses.replace(config, models=models, **changes)


def test_the_matched_models_have_as_many_parameters():
    config, task = music.get_config("jsb", "full"), Music()
    recurrent = {}
    for name in ("elman", "gru", "lstm"):
        cell = music.layer_of(name, config, task)
        assert cell.hidden_size == {"elman": 100, "gru": 46, "lstm": 36}[name]
        recurrent[name] = sum(leaf.size for leaf in jax.eval_shape(cell.init, jax.random.key(0)).values())
    assert max(recurrent.values()) < 1.06 * min(recurrent.values())


@pytest.mark.parametrize("name", music.MODELS)
def test_a_model_starts_at_the_frequencies_of_the_keys(path, name):
    task = Music(path=path)
    model = music.make_model(name, small(path, name), task, seed=0)
    bias = model.rnn.params["b_y"] if name == "jordan" else model.head.bias
    np.testing.assert_array_equal(bias[...], task.output_bias)
    assert task.output_bias.min() < -2


def test_dropout_is_of_inputs_and_outputs_of_the_wide_model_alone(path):
    config = small(path, *music.MODELS)
    task = Music(path=path)
    model = music.make_model(music.WIDE, config, task, seed=0)
    layer = model.rnn.layer
    assert isinstance(layer, InputDropout) and (layer.rate, layer.mask, model.dropout) == (0.2, "step", 0.5)
    assert layer.hidden_size == 4
    batch = task.batch(0, 2, 0)
    one, two = (model(batch.inputs, lengths=batch.lengths, rngs=nnx.Rngs(key)) for key in (0, 1))
    assert not np.array_equal(one, two)
    model.eval()
    assert_close(model(batch.inputs, lengths=batch.lengths), model(batch.inputs, lengths=batch.lengths), 0)
    for name in ("elman", "lstm"):
        model = music.make_model(name, config, task, seed=0)
        one, two = (model(batch.inputs, lengths=batch.lengths, rngs=nnx.Rngs(key)) for key in (0, 1))
        np.testing.assert_array_equal(one, two)


def test_each_model_has_its_learning_rate(path):
    config = small(path, *music.MODELS)
    rates = {entry.name: entry.train.learning_rate for entry in music.make_entries(config, Music(path=path))}
    assert rates["gru"] == config.rates.gru and rates["lstm-wide"] == config.rates.lstm_wide
    assert len(set(rates)) == 5


def summaries_of(**losses):
    return {
        name.replace("_", "-"): {
            "replicas": [{"label": "seed=0", "scores": {"loss": loss}}, {"label": "seed=1", "scores": {"loss": loss}}],
            "parameters": 1,
            "seconds": 1.0,
        }
        for name, loss in losses.items()
    }


class Chance(Music):
    """A corpus of which nothing but its chance is asked."""

    chance = 10.0


def held(config, corpus, **losses):
    """The claims but for the first, and whether each holds."""
    first, *claims = music.music_claims(config, Chance(corpus=corpus), summaries_of(**losses))
    assert first.holds == (max(losses.values()) <= 9)
    return [claim.holds for claim in claims]


def test_claims_of_the_chorales_are_targets():
    config, corpus = music.get_config("jsb", "full"), "JSB_Chorales"
    reached = {"elman": 8.72, "gru": 8.49, "lstm": 8.50, "lstm_wide": 8.41}
    assert held(config, corpus, **reached) == [True] * 5
    assert held(config, corpus, elman=8.81, gru=8.51, lstm=8.67, lstm_wide=8.43) == [False] * 5
    assert held(config, corpus, elman=8.6, gru=8.4, lstm=8.5) == [True, True, True, False]
    assert held(config, corpus, elman=9.1, gru=8.4) == [False, True]
    config.cell_options.lstm.hidden_size = 400  # no comparison at as many parameters
    assert held(config, corpus, **reached) == []
    config = music.get_config("jsb", "full")
    config.train.epochs = 2  # targets are of the full training
    assert held(config, corpus, **reached) == []
    assert held(music.get_config("jsb", "quick"), corpus, **reached) == []


def test_claims_of_nottingham_are_of_gates_alone():
    config = music.get_config("nottingham", "full")
    assert held(config, "Nottingham", elman=3.13, gru=3.23, lstm=3.20) == [False]
    assert held(config, "Nottingham", elman=3.53, gru=2.76, lstm=2.55) == [True]


@pytest.mark.parametrize(
    "change, message",
    [
        (lambda config: setattr(config, "models", ()), "--config.models is empty"),
        (lambda config: setattr(config.wide, "input_dropout", 1.0), "rate of InputDropout is 1.0"),
        (lambda config: setattr(config.wide, "output_dropout", 1.0), "--config.wide.output_dropout is 1.0"),
        (lambda config: setattr(config.wide, "hidden_size", 0), "hidden_size of LSTM is 0"),
        (lambda config: setattr(config, "seeds", 0), "--config.seeds is 0"),
    ],
)
def test_a_config_that_can_not_be_is_refused(path, tmp_path, change, message):
    config = small(path, *music.MODELS)
    change(config)
    with pytest.raises(UsageError) as error:
        music.main(config, tmp_path)
    assert str(error.value).startswith(message) and not list(tmp_path.iterdir())


def test_a_run_from_end_to_end(path, tmp_path):
    config = small(path, "lstm")
    config.task.buckets = 1
    config.train = dataclasses.replace(config.train, epochs=0, steps=2, batch_size=3, eval_every=2, eval_batch=3)
    config.train.log_every = 2
    music.main(config, tmp_path)
    text = (tmp_path / "report.md").read_text()
    assert "| lstm |" in text and "8.67" in text and "3 train (15 steps)" in text
    assert (tmp_path / "scores.png").exists() and len(json.loads((tmp_path / "claims.json").read_text())["claims"]) == 1
    assert (
        parameter_count(music.make_model("lstm", config, Music(path=path), 0))
        == json.loads((tmp_path / "lstm" / "summary.json").read_text())["parameters"]
    )
