"""The models of text against loops over their equations, word by word, padded, and one token at a time."""

import functools
import subprocess
import sys
import textwrap

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from rnnjax import layers
from rnnjax.cells import CELLS, GRU, LSTM, Elman, Jordan, TeacherForced
from rnnjax.layers.masks import part_of_batch
from rnnjax.nn import Embedding, FeedForward, FlatFeedForward, LanguageModel, OneHot, Tagger, TextClassifier, Trigrams
from rnnjax.tasks.crf import CRFScores
from rnnjax.testing import TOLERANCE, assert_close, count_compilations, random_like
from rnnjax.unroll import reference_unroll

SIZE, FEATURES, HIDDEN, CLASSES = 7, 3, 4, 5
LENGTHS = np.array([5, 2, 1, 0])
IDS = np.random.default_rng(0).integers(0, SIZE, (5, 4))
PADDED = np.where(np.arange(5)[:, None] < LENGTHS, IDS, [[10**6, -7, -1, 99]])  # pads hold what is no word


def both(inputs=FEATURES):
    return layers.Bidirectional(Elman(inputs, HIDDEN), Elman(inputs, HIDDEN))


def build(make):
    """The model in float64 with every parameter drawn, as it evaluates."""
    rngs = nnx.Rngs(0)
    model = make(rngs=rngs, dtype=jnp.float64)
    nnx.update(model, random_like(nnx.state(model), seed=1, scale=0.5))
    model.eval()
    return model


def embedded(make, **options):
    def model(rngs, dtype):
        return make(encoder=Embedding(SIZE, FEATURES, rngs=rngs, dtype=dtype), **options, rngs=rngs, dtype=dtype)

    return model


def called(model):
    graph, state = nnx.split(model)
    return jax.jit(lambda *inputs, **options: nnx.merge(graph, state)(*inputs, **options))


MODELS = {
    "tagger": embedded(Tagger, layer=both(3 * FEATURES), output_size=CLASSES, window=3),
    "crf": embedded(Tagger, layer=Elman(FEATURES, HIDDEN), output_size=CLASSES, crf=True),
    "classifier": embedded(TextClassifier, layer=both(), output_size=CLASSES),
    "language model": embedded(LanguageModel, layer=Elman(FEATURES, FEATURES), output_size=SIZE),
    "per word": embedded(FeedForward, hidden_size=HIDDEN, output_size=CLASSES, window=3, activation="relu"),
    "flat": embedded(FlatFeedForward, hidden_size=HIDDEN, output_size=CLASSES, length=6),
    "flat, one answer": embedded(FlatFeedForward, hidden_size=HIDDEN, output_size=CLASSES, length=6, reads_last=True),
}


def elman(params, xs):
    h, states = np.zeros(len(params["W_hh"])), []
    for x in xs:
        h = np.tanh(x @ params["W_ih"] + h @ params["W_hh"] + params["b"])
        states.append(h)
    return states


def windowed(xs, size):
    nothing = [np.zeros_like(xs[0])] * (size // 2) if xs else []
    around = [*nothing, *xs, *nothing]
    return [np.concatenate(around[t : t + size]) for t in range(len(xs))]


def loop(name, p, ids):
    """The model's equations for one sentence, in numpy."""
    xs, head = [p["encoder"]["table"][number] for number in ids], p["head"]

    def answer(h):
        return h @ head["kernel"] + head["bias"]

    if name in ("tagger", "classifier"):
        forward, backward = p["rnn"]["params"]["forward"], p["rnn"]["params"]["backward"]
        xs = windowed(xs, 3) if name == "tagger" else xs
        there, back = elman(forward, xs), elman(backward, xs[::-1])[::-1]
        if name == "classifier":
            return answer(np.concatenate([there[-1], back[0]]) if ids else np.zeros(2 * HIDDEN))
        return [answer(np.concatenate(pair)) for pair in zip(there, back, strict=True)]
    if name == "crf":
        return [answer(h) for h in elman(p["rnn"]["params"], xs)]
    if name == "language model":
        return [p["encoder"]["table"] @ h + head["bias"] for h in elman(p["rnn"]["params"], xs)]
    hidden = p["hidden"]
    if name == "per word":
        return [answer(np.maximum(x @ hidden["kernel"] + hidden["bias"], 0)) for x in windowed(xs, 3)]
    flat = np.concatenate([*xs, np.zeros((6 - len(ids)) * FEATURES)])
    found = answer(np.tanh(flat @ hidden["kernel"] + hidden["bias"]))
    return found if name == "flat, one answer" else list(found.reshape(6, CLASSES)[: len(ids)])


@pytest.mark.parametrize("name", MODELS)
def test_a_model_is_its_equations_whatever_pads_hold(name, x64):
    """Four rows, the last of no word; of two models, the one row of a batch of one too."""
    model = build(MODELS[name])
    params = jax.tree.map(np.asarray, nnx.to_pure_dict(nnx.state(model)))
    call = called(model)
    for columns in (slice(None), slice(0, 1)) if name in ("classifier", "flat") else (slice(None),):
        found = call(PADDED[:, columns], lengths=LENGTHS[columns])
        if name == "crf":
            assert_close(found[1:], (params["transitions"], params["start"], params["end"]), 0)
            found = found.logits
        for row, length in enumerate(LENGTHS[columns]):
            want = loop(name, params, list(IDS[:length, row]))
            if name in ("classifier", "flat, one answer"):
                assert_close(found[row], want, TOLERANCE["float64"], f"row {row}")
            else:
                assert_close(
                    found[:length, row], np.reshape(want, (length, found.shape[-1])), TOLERANCE["float64"], f"row {row}"
                )


EVERY_CELL = [*CELLS, "stack"]


def layer_of(name, inputs, outputs, bidirectional=False):
    if name == "stack":
        return layers.Stack((both(inputs), LSTM(2 * HIDDEN, outputs)) if bidirectional else (GRU(inputs, outputs),))
    cell = CELLS[name](inputs, outputs, outputs) if name == "jordan" else CELLS[name](inputs, outputs)
    return layers.Bidirectional(cell, cell) if bidirectional else cell


@pytest.mark.parametrize("name", EVERY_CELL)
def test_every_cell_in_every_model(name):
    """Shapes alone: what a cell computes has tests of its own."""

    def outputs(make):
        return jax.eval_shape(lambda: make(rngs=nnx.Rngs(0), dtype=jnp.float32)(PADDED, lengths=LENGTHS))

    for both_ways in (False, True):
        layer = layer_of(name, FEATURES, CLASSES, both_ways)
        found = outputs(embedded(Tagger, layer=layer, output_size=CLASSES, crf=True))
        assert isinstance(found, CRFScores) and found.logits.shape == (5, 4, CLASSES)
        assert outputs(embedded(TextClassifier, layer=layer, output_size=CLASSES)).shape == (4, CLASSES)
    tied = name != "jordan"
    layer = layer_of(name, FEATURES, FEATURES if tied else SIZE)
    assert outputs(embedded(LanguageModel, layer=layer, output_size=SIZE, tied=tied)).shape == (5, 4, SIZE)


STREAMING = {
    "crf": embedded(Tagger, layer=layers.Stack((LSTM(FEATURES, HIDDEN), GRU(HIDDEN, HIDDEN))), output_size=2, crf=True),
    "jordan": embedded(Tagger, layer=Jordan(FEATURES, HIDDEN, 2), output_size=2),
    "classifier": embedded(TextClassifier, layer=LSTM(FEATURES, HIDDEN), output_size=2),
    "language model": embedded(LanguageModel, layer=GRU(FEATURES, FEATURES), output_size=SIZE),
    "per word": embedded(FeedForward, hidden_size=HIDDEN, output_size=2),
}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.full] * (name in ("jordan", "per word"))) for name in STREAMING]
)
def test_one_token_after_the_other_is_the_whole(name, x64):
    """With nothing compiled after the first and a carry of the same size; for a classifier, each prefix."""
    model = build(STREAMING[name])
    if name == "classifier":
        prefixes = called(model)(np.repeat(IDS[:, :1], 5, axis=1), lengths=np.arange(1, 6))
        whole, ids = prefixes[:, None], IDS[:, :1]
    else:
        whole, ids = called(model)(IDS), IDS
    carry, outputs = model.initial_carry(ids.shape[1]), []
    first, carry = model.stream(ids[:1], carry)
    sizes = jax.tree.map(jnp.shape, carry)
    with count_compilations() as compilations:
        for t in range(1, 5):
            output, carry = model.stream(ids[t : t + 1], carry)
            outputs.append(output)
    assert compilations.count == 0 and jax.tree.map(jnp.shape, carry) == sizes
    found = [first, *outputs]
    if name == "crf":
        assert_close(found[2][1:], whole[1:], 0)
        found, whole = [scores.logits for scores in found], whole.logits
    assert_close(jnp.concatenate(found), whole, TOLERANCE["float64"])


def test_a_row_that_has_ended_is_held(x64):
    model = build(STREAMING["classifier"])
    _, carry = model.stream(IDS[:2], model.initial_carry(4), lengths=np.array([2, 1, 0, 2]))
    _, held = model.stream(PADDED[-1:], carry, lengths=np.zeros(4, int))
    assert_close(held, carry, 0)
    with pytest.raises(ValueError, match=r"lengths\[1\] is 2 but the inputs have only 1 step"):
        model.stream(IDS[:1], carry, lengths=np.array([1, 2, 0, 0]))


@pytest.mark.parametrize(
    "make, message",
    [
        (embedded(Tagger, layer=both(), output_size=2), "the layer is Bidirectional, which reads from the end"),
        (embedded(TextClassifier, layer=both(), output_size=2), "the layer is Bidirectional, which reads from the end"),
        (embedded(Tagger, layer=Elman(9, 2), output_size=2, window=3), "window is 3, so that a step waits for the 1"),
        (embedded(FeedForward, hidden_size=2, output_size=2, window=5), "window is 5, so that a step waits for the 2"),
        (embedded(FlatFeedForward, hidden_size=2, output_size=2, length=5), "reads a whole sentence at once"),
    ],
)
def test_what_cannot_stream_says_why(make, message):
    model = nnx.eval_shape(lambda: make(rngs=nnx.Rngs(0), dtype=jnp.float32))
    with pytest.raises(ValueError, match=message):
        model.stream(IDS[:1], None)


def training(model):
    """The model as it trains: (ids, lengths) -> outputs."""
    model.train()
    graph, state = nnx.split(model)
    model.eval()

    def run(ids, lengths=None):
        return nnx.merge(graph, state)(ids, lengths=lengths, rngs=nnx.Rngs(0))

    return run


@pytest.mark.parametrize("make", [
    embedded(FeedForward, hidden_size=HIDDEN, output_size=2, window=3, dropout=0.5),
    pytest.param(embedded(Tagger, layer=Elman(3, HIDDEN), output_size=2, dropout=0.5), marks=pytest.mark.full),
    pytest.param(embedded(TextClassifier, layer=both(), output_size=2, dropout=0.5), marks=pytest.mark.full),
], ids=["per word", "tagger", "classifier"])  # fmt: skip
def test_neither_padding_nor_parts_change_what_is_dropped(make, x64):
    model = build(make)
    time = not isinstance(model, TextClassifier)
    lengths, ids, run = np.array([5, 2, 3, 4]), np.concatenate([IDS, IDS]), training(model)

    @jax.jit
    def outputs():
        with part_of_batch(1, 2):
            part = run(ids[:5, 2:], lengths=lengths[2:])
        return run(ids, lengths=lengths), part

    whole, part = outputs()
    assert_close(part, whole[:5, 2:] if time else whole[2:], TOLERANCE["float64"])
    assert not np.allclose(whole, model(ids, lengths=lengths))
    with pytest.raises(ValueError, match=r"dropout is 0.5 and the model trains: call it with rngs=nnx.Rngs\(key\)"):
        model.train()
        model(ids)


def test_words_and_states_are_dropped_for_every_row_and_step(x64):
    """Of a model that hands its vectors on: half of both are 0, the rest is doubled, no two masks are alike."""
    model = build(embedded(FeedForward, hidden_size=FEATURES, output_size=FEATURES, dropout=0.5, activation="identity"))
    eye, none = jnp.eye(FEATURES), jnp.zeros(FEATURES)
    for part in (model.hidden, model.head):
        part.kernel[...], part.bias[...] = eye, none
    ids = np.zeros((40, 10), int)
    ratio = np.asarray(jax.jit(training(model))(ids) / model.encoder.table[...][0][None, None])
    assert set(np.unique(ratio.round(9))) == {0.0, 4.0} and abs(np.mean(ratio) - 1) < 0.25
    patterns = ratio.reshape(40, -1)
    assert len({tuple(row) for row in patterns}) == 40 and len({tuple(row) for row in patterns.T}) == 30
    assert_close(model(ids), np.broadcast_to(model.encoder.table[...][0], (40, 10, FEATURES)), 1e-12)
    plain = build(embedded(FeedForward, hidden_size=FEATURES, output_size=2))
    assert_close(training(plain)(IDS), plain(IDS), 0)


def test_a_teacher_s_feedback_is_not_encoded(x64):
    model = build(embedded(Tagger, layer=Jordan(FEATURES, HIDDEN, 2), output_size=2))
    shown = jnp.asarray(np.random.default_rng(0).normal(size=(5, 4, 2)))
    given = TeacherForced(model.encoder(IDS), shown)
    want = reference_unroll(model.rnn.layer, model.rnn.arrays(), given).outputs
    assert_close(model(TeacherForced(IDS, shown)), want, TOLERANCE["float64"])


def test_other_encodings_and_vectors_that_are_there_already(x64):
    words = np.random.default_rng(0).normal(size=(SIZE, FEATURES))
    model = build(functools.partial(Tagger, Elman(SIZE, HIDDEN), 2, encoder=OneHot(SIZE)))
    found = called(model)(PADDED, lengths=LENGTHS)
    model.encoder = Embedding(SIZE, SIZE, vectors=np.eye(SIZE), dtype=jnp.float64)
    assert_close(called(model)(PADDED, lengths=LENGTHS), found, 1e-12)
    tagger = Tagger(Elman(FEATURES, 2), 2, encoder=Embedding(SIZE, FEATURES, vectors=words), rngs=nnx.Rngs(0))
    assert_close(tagger.encoder.table[...], words.astype(np.float32), 0)
    trigrams = Trigrams(50, FEATURES, rngs=nnx.Rngs(0))
    model = Tagger(Elman(FEATURES, 2), 2, encoder=trigrams, rngs=nnx.Rngs(0))
    assert jax.eval_shape(model, np.full((5, 4, 6), -1)).shape == (5, 4, 2)


@pytest.mark.parametrize(
    "make, message",
    [
        (embedded(Tagger, layer=Elman(4, 2), output_size=2), "input_size of Elman.* is 4: expected 3, a window of 1"),
        (embedded(Tagger, layer=Elman(3, 2), output_size=2, window=3), "is 3: expected 9, a window of 3 vectors of 3"),
        (embedded(Tagger, layer=Elman(6, 2), output_size=2, window=2), "window is 2: expected an odd number"),
        (embedded(Tagger, layer=Elman(3, 2), output_size=2, dropout=1.0), "dropout is 1.0: expected at least 0 and"),
        (embedded(FeedForward, hidden_size=2, output_size=2, activation="sine"), "activation is 'sine': expected one"),
        (embedded(FlatFeedForward, hidden_size=2, output_size=2, length=0), "length of FlatFeedForward is 0"),
        (embedded(LanguageModel, layer=Elman(3, 2), output_size=SIZE), r"the table is \[7, 3\]: expected \[7, 2\]"),
        (embedded(LanguageModel, layer=both(), output_size=SIZE), "Bidirectional: it would see the words"),
        (embedded(LanguageModel, layer=Jordan(3, 3, SIZE), output_size=SIZE), "has no head: take tied=False"),
        (lambda rngs, dtype: LanguageModel(Elman(7, 7), 7, encoder=OneHot(7), rngs=rngs), "encoder is a OneHot"),
    ],
)
def test_what_does_not_fit_is_named(make, message):
    with pytest.raises(ValueError, match=message):
        make(rngs=nnx.Rngs(0), dtype=jnp.float32)


def test_a_sentence_that_is_too_long_is_named():
    make = embedded(FlatFeedForward, hidden_size=2, output_size=2, length=3)
    model = nnx.eval_shape(lambda: make(rngs=nnx.Rngs(0), dtype=jnp.float32))
    with pytest.raises(ValueError, match="have 5 steps, row 2 of 5 words: expected at most 3"):
        model(IDS, lengths=np.array([1, 2, 5, 4]))
    with pytest.raises(ValueError, match="the inputs have 5 steps: expected at most 3, the length of"):
        jax.eval_shape(model, IDS)


def test_the_default_embedding_of_a_language_model():
    model = LanguageModel(Elman(3, 3), SIZE, rngs=nnx.Rngs(0), output_bias=np.arange(7.0))
    assert model.encoder.table.shape == (SIZE, 3) and set(nnx.to_pure_dict(nnx.state(model))["head"]) == {"bias"}
    assert_close(model.head.bias[...], np.arange(7, dtype=np.float32), 0)
    untied = nnx.eval_shape(lambda: LanguageModel(Elman(3, 4), SIZE, tied=False, rngs=nnx.Rngs(0)))
    assert untied.head.kernel.shape == (4, SIZE)


@pytest.mark.full
def test_devices_change_nothing_of_what_is_dropped():
    """In a process of its own: the number of devices is set before the backend starts."""
    code = """
        import jax, jax.numpy as jnp, numpy as np
        jax.config.update("jax_num_cpu_devices", 2)
        from flax import nnx
        from jax.sharding import AxisType, PartitionSpec as P
        from rnnjax.cells import Elman
        from rnnjax.nn import Embedding, Tagger, TextClassifier
        from rnnjax.testing import assert_close
        mesh = jax.make_mesh((2,), ("data",), axis_types=(AxisType.Auto,))
        ids, lengths = np.random.default_rng(0).integers(0, 7, (5, 4)), np.array([5, 2, 3, 0])
        rngs = nnx.Rngs(0)
        for kind, out in ((Tagger, P(None, "data")), (TextClassifier, P("data"))):
            model = kind(Elman(3, 4), 2, encoder=Embedding(7, 3, rngs=rngs), dropout=0.5, rngs=rngs)
            graph, state = nnx.split(model)

            def run(state, ids, lengths):
                return nnx.merge(graph, state, copy=True)(ids, lengths=lengths, rngs=nnx.Rngs(jax.random.key(1)))

            specs = (P(), P(None, "data"), P("data"))
            mapped = jax.jit(jax.shard_map(run, mesh=mesh, in_specs=specs, out_specs=out))
            assert_close(mapped(state, ids, lengths), jax.jit(run)(state, ids, lengths), 1e-6)
        print("the same")
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True)
    assert done.stdout.strip() == "the same", done.stderr
