"""The translation study: models by name, scores of what is written, and claims that can fail."""

import dataclasses
import json

import numpy as np
import pytest
from flax import nnx

from experiments import translation
from experiments.common.translating import (
    Spec,
    make_translator,
    read_looks,
    save_looks,
    scores,
)
from rnnjax.answers import Unanswerable
from rnnjax.layers import Bidirectional
from rnnjax.nn.attention import Attentive
from rnnjax.tasks import Translation
from rnnjax.tasks.parallel import SYMBOLS
from rnnjax.train.config import UsageError


def test_names_say_what_a_model_is():
    assert Spec.of("gru-fixed") == Spec("gru-fixed", "gru", "fixed")
    assert Spec.of("lstm-luong-bi-reversed") == Spec("lstm-luong-bi-reversed", "lstm", "luong", True, True)


@pytest.mark.parametrize("name", ["gru", "gur-fixed", "gru-dot", "gru-fixed-reversed-bi", "gru-fixed-bi-bi", "", "-"])
def test_other_names_are_refused(name):
    with pytest.raises(UsageError, match=r"--config.models has .* such as gru-bahdanau-bi"):
        Spec.of(name)


def small(*models, **changes):
    config = translation.get_config("reversal", "quick")
    config.model.hidden_size = config.model.embedding_size = 4
    return dataclasses.replace(config, models=models, **changes)


def test_a_model_is_what_its_name_says():
    task, config = Translation(), small()
    model = nnx.eval_shape(lambda: make_translator(Spec.of("lstm-bahdanau-bi"), task, config, 0))
    assert isinstance(model.encoder.layer, Bidirectional) and isinstance(model.decoder.layer, Attentive)
    assert model.decoder.layer.cell.input_size == 4 + 8
    model = nnx.eval_shape(lambda: make_translator(Spec.of("elman-luong"), task, config, 0))
    assert model.attention == "luong" and model.decoder.layer.input_size == 4


def test_accuracy_is_by_length_of_the_source():
    """What is written loses its last symbol where the source is longer than 8."""
    task = Translation()
    pairs = task.pairs["test"]
    written = [pair.target[:-1] if len(pair.source) > 8 else pair.target for pair in pairs]
    found = scores(task, written)
    sources = {pair.source for pair in pairs}
    long = [source for source in sources if len(source) > 8]
    assert found["error"] == pytest.approx(100 * len(long) / sum(map(len, sources)))
    assert found["wrong"] == pytest.approx(100 * len(long) / len(sources))
    assert found["accuracy"] == pytest.approx(100 - found["error"])
    assert found["shortest"] == 100 and found["longest"] < 94
    groups = {float(name[3:]): value for name, value in found.items() if name.startswith("at_")}
    assert len(groups) <= 8 and min(groups) < 7 and max(groups) == 16
    assert all((value == 100) == (length <= 8) for length, value in groups.items())


def test_words_are_scored_by_bleu(tmp_path):
    for split in ("train", "val", "test_2016_flickr"):
        for side in ("en", "de"):
            lines = [" ".join("abcdefgh"[: 4 + i % 4]) + f" {i}" for i in range(8)]
            (tmp_path / f"{split}.{side}").write_text("".join(f"{line}\n" for line in lines))
    task = Translation(path=str(tmp_path), corpus="multi30k")
    targets = [pair.target for pair in task.pairs["test"]]
    assert scores(task, targets)["accuracy"] == pytest.approx(100)
    assert 0 < scores(task, [target[:-1] for target in targets])["accuracy"] < 95


@pytest.mark.parametrize("turned", [False, True])
def test_where_a_model_looked_is_kept(tmp_path, turned):
    task = Translation(reverse_source=turned)
    model = make_translator(Spec.of("elman-bahdanau"), task, small(), 0)
    save_looks(tmp_path / "one" / "attention.npz", task, model)
    looks = read_looks(tmp_path / "one" / "attention.npz")
    sources = {pair.source for pair in task.pairs["test"]}
    for look in looks:
        assert tuple(look.read) in sources and look.weights.shape == (len(look.written), len(look.read))
        np.testing.assert_allclose(look.weights.sum(1), 1, rtol=1e-5)


def summary_of(**given):
    one = {"label": "seed=0", "scores": given, "stopped": None, "diverged": False, "step": 1}
    return {"replicas": [one], "seconds": 10.0, "parameters": 1}


@pytest.mark.parametrize("right", [True, False])
@pytest.mark.parametrize("corpus", ["reversal", "g2p", "multi30k"])
def test_claims_hold_or_not(corpus, right):
    least, most = translation.LIMITS[corpus]
    near, far = (0.5, 0.6) if right else (0.6, 0.5)
    fixed, turned = (near, far) if corpus == "reversal" else (far, near)
    fell = least if right else least - 0.1
    summaries = {
        "gru-fixed": summary_of(shortest=90.0, longest=90.0 - fell, loss=fixed),
        "gru-fixed-reversed": summary_of(shortest=90.0, longest=80.0, loss=turned),
        "gru-bahdanau": summary_of(shortest=90.0, longest=90.0 - (most if right else least), loss=0.1),
    }
    claims = translation.claims_of(translation.get_config(corpus, "quick"), summaries)
    assert len(claims) == 4 and all(claim.holds == right for claim in claims), claims


def test_claims_are_made_of_a_default_config_alone():
    summaries = {"gru-fixed": summary_of(shortest=90.0, longest=60.0)}
    config = translation.get_config("g2p", "quick")
    config.task.path, config.train.seed, config.seeds, config.models = "x", 7, 2, ("gru-fixed",)
    assert len(translation.claims_of(config, summaries)) == 1
    config.beam = 2
    assert translation.claims_of(config, summaries) == []
    assert translation.claims_of(translation.get_config("pairs", "quick"), summaries) == []  # none was set


@pytest.mark.parametrize(
    "change, message",
    [
        ({"models": ()}, "--config.models is empty"),
        ({"beam": 0}, "--config.beam is 0: expected 1 to 1000"),
        ({"model": translation.TranslatorConfig(dropout=1.0)}, "--config.model.dropout is 1.0: expected at least 0"),
        ({"model": translation.TranslatorConfig(hidden_size=0)}, "--config.model.hidden_size is 0: expected"),
        ({"model": translation.TranslatorConfig(embedding_size=0)}, "--config.model.embedding_size is 0: expected"),
    ],
)
def test_what_can_not_be_is_refused(change, message):
    config = dataclasses.replace(small("gru-fixed"), **change)
    with pytest.raises(UsageError, match=message):
        translation.check(config)
    config = small("gru-fixed")
    config.task.reverse_source = True
    with pytest.raises(UsageError, match="reverse_source is True: ask for models that end with -reversed"):
        translation.check(config)


def test_a_run_from_end_to_end(tmp_path):
    config = small("elman-bahdanau", beam=2)
    config.train = dataclasses.replace(config.train, epochs=0, steps=5, eval_every=5, log_every=5, batch_size=8)
    config.probe.on, config.probe.batch, config.probe.points = True, 4, 1
    translation.main(config, tmp_path)
    text = (tmp_path / "report.md").read_text()
    assert "| elman-bahdanau |" in text and "shortest quarter" in text
    assert json.loads((tmp_path / "claims.json").read_text())["claims"] == []
    assert "No claim is judged" in text
    for name in ("length.png", "attention_elman-bahdanau.png", "gradients.png", "source_vocabulary.json"):
        assert (tmp_path / name).exists()
    with np.load(tmp_path / "elman-bahdanau" / "norms.npz") as norms:
        assert {"encoder", "decoder"} <= set(norms.files)
    answer = translation.predictor(config, tmp_path, "elman-bahdanau")
    answered = answer("A b h z")
    assert set(answered.words) <= {*SYMBOLS, "<unk>", "<s>"} and answered.unknown == ("z",)
    with pytest.raises(Unanswerable, match="the line is empty"):
        answer(" ")
