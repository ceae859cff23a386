"""A Seq2Seq is its equations, in values and in every gradient; it writes step by step what it writes as a whole, and
searches with the probabilities that it was trained with."""

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from rnnjax import layers, probes
from rnnjax.cells import GRU, LSTM, Elman, Jordan
from rnnjax.nn import Embedding, Seq2Seq
from rnnjax.tasks.base import SourceTarget
from rnnjax.testing import TOLERANCE, assert_close, count_compilations, random_like

S, T, B, V = 3, 2, 3, 5
LENGTHS = np.array([3, 1, 0])
DRAWS = np.random.default_rng(0)
SOURCE, TARGET = DRAWS.integers(0, 6, (S, B)), DRAWS.integers(0, V, (T, B))
WEIGHTS = DRAWS.normal(size=(T, B, V))
ATTENTIONS = (None, "bahdanau", "luong")
by_attention = pytest.mark.parametrize("attention", ATTENTIONS)


def make(attention, cell=Elman, dtype=jnp.float64, seed=1, scale=0.7, wrap=lambda cell: cell, **options):
    """A model of random parameters, biases too; with a bidirectional encoder of 2 units each way."""

    def build():
        rngs = nnx.Rngs(0)
        return Seq2Seq(
            layers.Bidirectional(cell(3, 2), cell(3, 2)),
            wrap(cell(2 if attention == "luong" else 2 + 4, 3)),
            V,
            source=Embedding(6, 3, rngs=rngs, dtype=dtype),
            target=Embedding(V, 2, rngs=rngs, dtype=dtype),
            attention=attention,
            rngs=rngs,
            dtype=dtype,
            **options,
        )

    model = nnx.eval_shape(build)  # draws nothing, which would be compiled
    nnx.update(model, random_like(nnx.state(model, nnx.Param), seed, scale=scale))
    return model


def loop(np, p, pushes, attention):
    """(logits, weights) by the equations, row by row and step by step, with `pushes` added to what each step leaves; np
    may be jax.numpy."""

    def elman(p, x, h):
        return np.tanh(x @ p["W_ih"] + h @ p["W_hh"] + p["b"])

    def linear(name, x):
        return x @ p[name]["kernel"] + p[name]["bias"]

    def read(side, b, order):
        h, outputs = np.zeros(2), {}
        for s in order:
            x = p["source"]["encoder"]["table"][SOURCE[s, b]]
            h = outputs[s] = elman(p["encoder"]["params"][side], x, h) + pushes[f"encoder/{side}"].h[s, b]
        return h, outputs

    def look(scores, memory):
        grown = [np.exp(score) for score in scores]
        weights.append(np.stack([*[g / sum(grown) for g in grown], *[np.zeros(())] * (S - len(memory))]))
        return sum(g * m for g, m in zip(grown, memory, strict=True)) / sum(grown) if memory else np.zeros(4)

    decoder, weights = p["decoder"]["params"], []
    logits = [[None] * B for _ in range(T)]
    for b, length in enumerate(LENGTHS):
        ahead, forward = read("forward", b, range(length))
        back, backward = read("backward", b, reversed(range(length)))
        memory = [np.concatenate([forward[s], backward[s]]) for s in range(length)]
        c = np.tanh(linear("summarize", np.concatenate([ahead, back])))
        h = np.tanh(linear("start", c))
        for t in range(T):
            y, push = p["target"]["encoder"]["table"][TARGET[t, b]], pushes["decoder"]
            if attention is None:
                h, seen = elman(decoder, np.concatenate([y, c]), h) + push.h[t, b], c
            elif attention == "bahdanau":
                of = decoder["attention"]
                scores = [of["v"] @ np.tanh(h @ of["W_query"] + m @ of["W_memory"]) for m in memory]
                seen = look(scores, memory)
                h = elman(decoder["cell"], np.concatenate([y, seen]), h) + push.h[t, b]
                seen = seen + push.context[t, b]
            else:
                h = elman(decoder, y, h) + push.h[t, b]
                seen = look([h @ (m @ p["score_params"]["W_memory"]) for m in memory], memory)
            logits[t][b] = linear("head", np.tanh(linear("combine", np.concatenate([h, seen]))))
    weights = np.stack(weights).reshape(B, T, S).swapaxes(0, 1) if weights else None
    return np.stack([np.stack(row) for row in logits]), weights


@by_attention
def test_values_and_all_gradients_are_those_of_the_equations(attention, x64):
    """The gradient of every parameter, and dL/dcarry_t of encoder and decoder by what is pushed, both by autodiff of a
    loop over rows without pads and by its finite differences. Source pads hold an id whose vector is NaN."""
    graph, state = nnx.split(make(attention))
    source = np.where(np.arange(S)[:, None] < LENGTHS, SOURCE, 77)

    def loss(state):
        model = nnx.merge(graph, state)
        written = model.write(TARGET, model.read(source, lengths=LENGTHS))
        return jnp.vdot(jnp.tanh(written.logits), WEIGHTS), (written.logits, written.weights)

    (value, got), gradients, of_carries = probes.value_and_grad(loss, has_aux=True)(state)
    assert set(of_carries) == {"encoder/forward", "encoder/backward", "decoder"}

    def looped(numbers, pushes, np=jnp):
        return np.vdot(np.tanh(loop(np, numbers, pushes, attention)[0]), WEIGHTS)

    numbers, pushes = nnx.to_pure_dict(state), jax.tree.map(jnp.zeros_like, of_carries)
    of_loop = jax.jit(jax.grad(looped, (0, 1)))(numbers, pushes)
    gradients = nnx.to_pure_dict(gradients)
    assert_close(gradients, of_loop[0], TOLERANCE["float64"], "gradients")
    assert_close(of_carries, of_loop[1], TOLERANCE["float64"], "dL/dcarry_t")

    point = jax.tree.map(np.asarray, (numbers, pushes))
    assert_close(got, loop(np, *point, attention), TOLERANCE["float64"], "logits and weights")
    for seed in (6, 7):
        direction = jax.tree.map(np.asarray, random_like(point, seed))

        def moved(step, direction=direction):
            return looped(*jax.tree.map(lambda x, d: x + step * d, point, direction), np=np)

        step = 1e-4
        slope = (8 * (moved(step) - moved(-step)) - (moved(2 * step) - moved(-2 * step))) / (12 * step)
        along = sum(map(np.vdot, jax.tree.leaves((gradients, of_carries)), jax.tree.leaves(direction)))
        assert_close(along, slope, TOLERANCE["finite differences"], "finite differences")


@pytest.mark.parametrize(
    "attention",
    [pytest.param(None, marks=pytest.mark.full), "bahdanau", pytest.param("luong", marks=pytest.mark.full)],
    ids=str,
)
def test_step_by_step_is_the_whole(attention, x64):
    """In constant memory: a step is given what was read, the carry and one symbol."""
    model = make(attention, LSTM)
    read = model.read(SOURCE, lengths=LENGTHS)
    whole = model.write(TARGET, read)
    assert_close(model(SourceTarget(SOURCE, TARGET), lengths=LENGTHS), whole.logits, 0)
    carry, steps = None, []
    for t in range(T):
        step = model.write(TARGET[t : t + 1], read, carry)
        carry = step.carry
        steps.append((step.logits[0], step.weights if attention is None else step.weights[0]))
    steps = jax.tree.map(lambda *leaves: jnp.stack(leaves), *steps)
    assert_close(steps, (whole.logits, whole.weights), TOLERANCE["float64"])
    assert_close(carry, whole.carry, TOLERANCE["float64"])
    if attention is not None:
        assert np.all(np.asarray(whole.weights)[:, 1, 2:] == 0) and np.all(np.asarray(whole.weights)[:, 2] == 0)
        assert_close(whole.weights[:, :2].sum(-1), np.ones((T, 2)), TOLERANCE["float64"])


def log_probabilities(model, source, lengths, symbols, start):
    """[T, B, V], of each symbol after those before it, and the weights."""
    fed = np.concatenate([np.full((1, symbols.shape[1]), start), symbols[:-1]])
    graph, state = nnx.split(model)

    @jax.jit
    def run(state):
        model = nnx.merge(graph, state)
        written = model.write(fed, model.read(source, lengths=lengths))
        return jax.nn.log_softmax(written.logits), written.weights

    return jax.tree.map(np.asarray, run(state))


@pytest.mark.parametrize("attention, seed", [(None, 13), ("bahdanau", 53), ("luong", 33)])
def test_greedy_takes_the_likeliest_symbol_and_ends(attention, seed, x64):
    """Compiled once for all sources of a shape."""
    start, stop, longest = 0, 1, 6
    lengths = np.tile(LENGTHS, 4)
    source = (np.tile(SOURCE, (1, 4)) + np.arange(4 * B) // B) % 6
    model = make(attention, seed=seed, scale=1.5)
    search = functools.partial(model.greedy, start=start, stop=stop, max_length=longest)
    search(source[:, ::-1], lengths=np.ones(4 * B, int))
    with count_compilations() as compilations:
        found = jax.tree.map(np.asarray, search(source, lengths=lengths))
    assert compilations.count == 0
    symbols, ends = found.symbols, found.lengths
    log_p, weights = log_probabilities(model, source, lengths, symbols, start)
    assert ends.min() < longest and len(set(ends.tolist())) > 2, "rows end at different steps, or it shows little"
    for b, end in enumerate(ends):
        written = min(end + 1, longest)
        assert symbols[:written, b].tolist() == np.argmax(log_p[:written, b], -1).tolist()
        assert stop not in symbols[:end, b] and np.all(symbols[end:, b] == stop)
        total = sum(log_p[t, b, symbols[t, b]] for t in range(written))
        assert_close(found.scores[b], total, TOLERANCE["float64"])
        if attention is not None:
            assert_close(found.weights[:written, b], weights[:written, b], TOLERANCE["float64"])
            assert np.all(found.weights[written:, b] == 0)


def test_beam_finds_the_best_of_all_sequences(x64):
    """Of all that have at most 2 symbols; a beam of 1 is the greedy search."""
    start, stop, longest = 0, 1, 2
    model = make("bahdanau", seed=5, scale=1.5)
    options = {"lengths": LENGTHS, "start": start, "stop": stop, "max_length": longest}
    found = jax.tree.map(np.asarray, model.beam(SOURCE, size=V, **options))
    every = np.array(list(itertools.product(range(V), repeat=longest))).T  # [longest, n]
    count = every.shape[1]
    rows = np.repeat(np.arange(B), count)
    log_p, weights = log_probabilities(model, SOURCE[:, rows], LENGTHS[rows], np.tile(every, B), start)
    ends = np.where((every == stop).any(0), np.argmax(every == stop, 0), longest)
    counted = np.arange(longest)[:, None] <= ends
    of_symbols = np.take_along_axis(log_p, np.tile(every, B)[..., None], -1)[..., 0].reshape(longest, B, count)
    scores = np.sum(of_symbols * counted[:, None], axis=0) / counted.sum(0)
    for b, best in enumerate(scores.argmax(-1)):
        assert_close(found.scores[b, 0], scores[b, best], TOLERANCE["float64"])
        assert np.array_equal(found.symbols[: ends[best], b, 0], every[: ends[best], best])
        assert found.lengths[b, 0] == ends[best]
        shown = np.where(counted[:, best, None], weights[:, b * count + best], 0)
        assert_close(found.weights[:, b, 0], shown, TOLERANCE["float64"])
    one, greedy = model.beam(SOURCE, size=1, **options), model.greedy(SOURCE, **options)
    assert np.array_equal(one.symbols[..., 0], greedy.symbols)


def test_masks_are_drawn_in_training_alone_and_a_search_draws_none():
    def wrap(cell):
        return layers.Zoneout(layers.RecurrentDropout(cell, 0.3), 0.3)

    model = make("bahdanau", Elman, jnp.float32, wrap=wrap, dropout=0.4)
    inputs = SourceTarget(SOURCE, TARGET)
    graph, state = nnx.split(model)
    run = jax.jit(lambda key: nnx.merge(graph, state)(inputs, lengths=LENGTHS, rngs=nnx.Rngs(key)))
    assert not np.array_equal(run(jax.random.key(1)), run(jax.random.key(2)))
    with pytest.raises(ValueError, match="call it with rngs=nnx.Rngs"):
        model(inputs, lengths=LENGTHS)
    search = {"lengths": LENGTHS, "start": 0, "stop": 1, "max_length": 4}
    while_training = model.greedy(SOURCE, **search)
    model.eval()
    assert_close(model.greedy(SOURCE, **search), while_training, 0)


def test_any_layer_reads_and_any_cell_writes():
    """Jordan's y is a feature like any other; a stack's final carry is that of all its layers."""
    stack = layers.Stack((layers.Bidirectional(GRU(3, 2), LSTM(3, 2)), LSTM(4, 5)))

    def outputs(attention, fed):
        rngs = nnx.Rngs(0)
        model = Seq2Seq(
            stack,
            layers.LearnedCarry(Jordan(fed, 6, 3)),
            V,
            source=Embedding(6, 3, rngs=rngs),
            target=Embedding(V, 2, rngs=rngs),
            attention=attention,
            rngs=rngs,
        )
        return model(SourceTarget(SOURCE, TARGET), lengths=LENGTHS)

    for attention, fed in ((None, 7), ("bahdanau", 7), ("luong", 2)):
        assert nnx.eval_shape(lambda a=attention, f=fed: outputs(a, f)).shape == (T, B, V)


@by_attention
def test_bfloat16_stays(attention):
    model = make(attention, LSTM, jnp.bfloat16)
    written = nnx.eval_shape(lambda: model.write(TARGET, model.read(SOURCE, lengths=LENGTHS)))
    carry = jax.tree.leaves(written.carry)
    assert written.logits.dtype == jnp.bfloat16 and {leaf.dtype for leaf in carry} == {jnp.dtype(jnp.bfloat16)}


@pytest.mark.parametrize(
    "options, message",
    [
        ({"attention": "dot"}, "attention is 'dot': expected None, bahdanau or luong"),
        ({"encoder": GRU(4, 2)}, "encoder has input_size 4: expected 3, as source gives"),
        ({"attention": None}, "decoder has input_size 2: expected 4, 2 of target and 2 of the context"),
        ({"decoder": GRU(4, 2)}, "decoder has input_size 4: expected 2, 2 of target$"),
    ],
)
def test_refused(options, message):
    rngs = nnx.Rngs(0)
    given = {"encoder": GRU(3, 2), "decoder": GRU(2, 2), "output_size": V, "attention": "luong"} | options
    with pytest.raises(ValueError, match=message):
        Seq2Seq(source=Embedding(6, 3, rngs=rngs), target=Embedding(V, 2, rngs=rngs), rngs=rngs, **given)


def test_it_can_not_stream():
    with pytest.raises(ValueError, match="reads a whole source before it writes: .* Call greedy or beam, or read once"):
        make(None, dtype=jnp.float32).stream(SOURCE[:1], None)


@pytest.mark.parametrize(
    "asked, message",
    [({"size": 0}, "size is 0: expected at least 1"), ({"stop": 5}, "stop is 5: expected one of the 5 target symbols")],
)
def test_a_search_refused(asked, message):
    model = make(None, dtype=jnp.float32)
    with pytest.raises(ValueError, match=message):
        model.beam(SOURCE, **({"size": 2, "start": 0, "stop": 1, "max_length": 3} | asked))
