"""The slot-filling study: models by name, what is measured beside F1, and claims that can fail."""

import dataclasses
import json

import jax.numpy as jnp
import numpy as np
import pytest
from changed_configs import changed

from experiments import slot_filling
from experiments.common.tagging import (
    Spec,
    after_first_error,
    exchanged,
    fed_the_right_tags,
    later_error,
    make_tagger,
)
from experiments.common.tagging_report import atis_claims, travel_claims
from rnnjax.answers import Unanswerable
from rnnjax.cells import Jordan
from rnnjax.layers import Bidirectional
from rnnjax.tasks import Tagging
from rnnjax.tasks.travel import LEAVE
from rnnjax.train.config import UsageError


def test_names_say_what_a_model_is():
    assert Spec.of("lstm-w3-bi-crf") == Spec("lstm-w3-bi-crf", "lstm", 3, True, True)
    assert Spec.of("ffn-w7-trigrams") == Spec("ffn-w7-trigrams", "ffn", 7, encoding="trigrams")
    assert Spec.of("gru-onehot").encoding == "onehot"
    assert Spec.of("ffn-flat").flat


@pytest.mark.parametrize(
    "name",
    [
        "lsmt",
        "lstm-w2",
        "lstm-w",
        "ffn-bi",
        "ffn-crf",
        "ffn-w3-flat",
        "gru-flat",
        "lstm-w3-w5",
        "gru-onehot-trigrams",
        "",
        "lstm-",
    ],
)
def test_other_names_are_refused(name):
    with pytest.raises(UsageError, match=r"--config.models has .* such as lstm-w3"):
        Spec.of(name)


def small(*models, **changes):
    config = slot_filling.get_config("travel", "quick")
    config.model.hidden_size = config.model.embedding_size = 4
    config.task.buckets = 1  # a compilation for each shape takes most of the time
    return dataclasses.replace(config, models=models, **changes)


@pytest.mark.parametrize(
    "name", ["ffn-w3", "ffn-flat", "elman-onehot", "jordan", "jordan-bi", "lstm-w3-bi-crf", "gru-trigrams"]
)
def test_a_model_of_every_kind_gives_every_word_scores(name):
    spec, config = Spec.of(name), small(name)
    task = Tagging(encoding="trigrams" if "trigrams" in name else "words", trigrams=32)
    model = make_tagger(spec, task, config, seed=0)
    model.eval()
    batch = next(task.batches("valid", 3))
    outputs = model(batch.inputs, lengths=batch.lengths)
    assert task.loss(outputs, batch).shape == batch.mask.shape
    if spec.base == "jordan":
        layer = model.rnn.layer
        assert (layer.forward if spec.bidirectional else layer).output_size == task.output_size
    assert isinstance(getattr(getattr(model, "rnn", None), "layer", None), Bidirectional) == spec.bidirectional


def test_what_follows_a_first_error_is_counted_by_hand():
    gold = [["a", "b", "c", "d", "e"], ["a", "b"], ["a", "b", "c"]]
    said = [["a", "x", "c", "x", "e"], ["a", "b"], ["a", "b", "x"]]
    # Not wrong before: 2 words and 2 and 3, of which 2 are wrong; three behind the first error: c d e.
    assert after_first_error(gold, said) == {"first": pytest.approx(200 / 7), "later": pytest.approx(100 / 3)}
    other = [["a", "x", "c", "d", "e"], ["a", "b"], ["a", "b", "x"]]
    assert later_error(gold, said, other) == 0
    assert after_first_error(gold, gold) == {"first": 0, "later": 0}


def test_a_jordan_network_that_is_right_is_fed_what_it_says():
    """Fed the right tags it says at each step what it says of a sentence by itself, up to its first error."""
    task, config = Tagging(buckets=1), small("jordan")
    assert fed_the_right_tags(task, make_tagger(Spec.of("jordan"), task, config, 0), 50) is None  # it feeds its logits
    config.cell_options.jordan.feedback = "softmax"
    model = make_tagger(Spec.of("jordan"), task, config, seed=1)
    model.eval()
    fed = fed_the_right_tags(task, model, 50)
    assert isinstance(model.rnn.layer, Jordan) and len(fed) == len(task.sentences["test"])
    own = task.predictions("test", 50, lambda batch: model(batch.inputs, lengths=batch.lengths))
    assert [tags[0] for tags in fed] == [tags[0] for tags in own]  # nothing was fed yet but the start
    assert fed_the_right_tags(task, make_tagger(Spec.of("elman"), task, config, 0), 50) is None


def test_two_words_exchanged_change_a_city_only_for_who_remembers():
    task = Tagging()
    words = task.vocabulary
    cities = {words.index(city.lower()) for city in ("Taipei", "Osaka")}
    leave = [words.index(word) for word in LEAVE]

    def word_by_word(batch):
        return jnp.eye(task.output_size)[np.maximum(batch.inputs, 0) % task.output_size]

    def remembers(batch):
        left = np.cumsum(np.isin(batch.inputs, leave), axis=0) > 0
        return jnp.eye(task.output_size)[np.where(left, 1, 2)]

    assert cities and exchanged(task, word_by_word) == {"swap_changes": 0, "reverse_changes": 0}
    changes = exchanged(task, remembers)
    assert changes["reverse_changes"] == 100 and 30 < changes["swap_changes"] < 70  # of those that leave


def summary_of(**scores):
    one = {"label": "seed=0", "scores": scores, "stopped": None, "diverged": False, "step": 1}
    return {"replicas": [one], "seconds": 10.0, "parameters": 1}


@pytest.mark.parametrize("right", [True, False])
def test_claims_of_the_travel_corpus_hold_or_not(right):
    knows = {"city_before": 100.0, "city_after": 51.0, "swap_changes": 50.0, "reverse_changes": 100.0}
    ffn = {"city_both": 50.5, "swap_changes": 0.0, "reverse_changes": 0.0}
    both = {"city_both": 100.0}
    if not right:
        knows = {"city_before": 98.0, "city_after": 60.0, "swap_changes": 20.0, "reverse_changes": 98.0}
        ffn, both = {"city_both": 56.0, "swap_changes": 0.1, "reverse_changes": 0.0}, {"city_both": 98.9}
    summaries = {"ffn": summary_of(**ffn), "gru": summary_of(**knows), "gru-bi": summary_of(**both)}
    claims = travel_claims(Tagging(), summaries)
    assert len(claims) == 7 and all(claim.holds == right for claim in claims)


def test_claims_of_atis_are_targets():
    f1 = {"ffn": 60.1, "elman": 94.0, "elman-w3": 95.1, "jordan-w7": 94.4, "lstm-w3": 95.0, "gru": 94.0, "gru-w3": 94.9}
    summaries = {name: summary_of(f1=value, first_error=2.0, later_error=20.0) for name, value in f1.items()}
    summaries["jordan-w3"] = summary_of(f1=91.0, first_error=4.0, later_error=23.0)
    summaries["gru-bi"] = summary_of(f1=95.3)
    held = [claim.holds for claim in atis_claims(summaries)]
    assert held == [True, True, True, True, False, True, True, True, True, True]
    summaries["jordan-w3"] = summary_of(f1=91.0, first_error=6.0, later_error=23.0)  # 17 more, Elman 18
    assert [claim.holds for claim in atis_claims(summaries)][8] is False


def test_claims_are_of_the_configs_they_were_set_for():
    for variant, preset in (("travel", "quick"), ("travel", "full"), ("atis", "full")):
        config = slot_filling.get_config(variant, preset)
        assert slot_filling.as_published(config)
        config.model.hidden_size += 1
        assert not slot_filling.as_published(config)
    assert not slot_filling.as_published(slot_filling.get_config("atis", "quick"))


@pytest.mark.parametrize(
    "change, message",
    [
        ({"model.longest": 0}, "--config.model.longest is 0: expected at least 1"),
        (
            {"model.vectors": "x.txt", "task.encoding": "trigrams"},
            "--config.model.vectors is x.txt, but none of ffn looks words up",
        ),
        ({"train.learning_rate": 0.5}, "--config.train.learning_rate is 0.5, but every model here has its own"),
        (
            {"models": ("gru-crf",), "train.window": 3},
            "--config.train.window is 3, but a CRF scores whole sentences",
        ),
        (
            {"models": ("ffn", "gru-onehot"), "task.encoding": "trigrams"},
            "--config.models has gru-onehot, but --config.task.encoding is trigrams",
        ),
    ],
)
def test_what_can_not_be_is_named(change, message):
    with pytest.raises(UsageError, match=message):
        slot_filling.check(changed(small("ffn"), change))


def test_a_sentence_too_long_for_a_flat_network_is_told():
    config = small("ffn-flat")
    config.model.longest = 5
    with pytest.raises(UsageError, match="longest is 5, but the corpus has a sentence of .* words: give --config.mo"):
        slot_filling.make_entries(config)


def test_a_run_from_end_to_end(tmp_path):
    config = small("ffn-flat", "elman-bi")
    config.model.longest = 25
    config.train = dataclasses.replace(config.train, epochs=0, steps=35, steps_per_call=35, eval_every=35)
    config.probe.on, config.probe.batch, config.probe.points = True, 4, 1
    slot_filling.main(config, tmp_path)
    text = (tmp_path / "report.md").read_text()
    assert "| elman-bi |" in text and "fed the right tags" in text
    claims = json.loads((tmp_path / "claims.json").read_text())["claims"]
    assert claims == []  # none was set for so small a training
    answer = slot_filling.predictor(config, tmp_path, "ffn-flat")
    assert len(answer("to " * 24).slots) == 24
    with pytest.raises(Unanswerable, match="26 words: ffn-flat reads at most 25"):
        answer("to " * 26)
    for name in ("scores.png", "gradients.png", "vocabulary.json"):
        assert (tmp_path / name).exists()
    with np.load(tmp_path / "elman-bi" / "norms.npz") as norms:
        assert {"forward", "backward"} <= set(norms.files)
