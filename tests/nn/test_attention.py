"""Weights are a softmax over a source's own steps, 0 at its pads; scores are torch's; a cell looks before it steps."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rnnjax import layers, unroll
from rnnjax.cells import LSTM, Elman
from rnnjax.layers import InputDropout, LearnedCarry, Zoneout
from rnnjax.nn.attention import Additive, Attentive, Multiplicative, attend
from rnnjax.testing import TOLERANCE, assert_close, fill_pads, random_like

S, T, B, F, Q = 4, 3, 3, 5, 2
LENGTHS = np.array([4, 2, 0])
DRAWS = np.random.default_rng(0)
OUTPUTS, QUERIES = DRAWS.normal(size=(S, B, F)), DRAWS.normal(size=(T, B, Q))
SCORES = [Additive(Q, F, 6), Multiplicative(Q, F)]
by_score = pytest.mark.parametrize("score", SCORES, ids=["additive", "multiplicative"])


def score_of(score, params, query, step):
    if isinstance(score, Additive):
        return params["v"] @ np.tanh(query @ params["W_query"] + step @ params["W_memory"])
    return query @ (step @ params["W_memory"])


@by_score
def test_weights_are_a_softmax_over_the_rows_own_steps(score, x64):
    params = random_like(score.init(jax.random.key(0), jnp.float64), 1)
    memory = score.remember(params, jnp.asarray(OUTPUTS), LENGTHS)
    weights = score.weights(params, memory, jnp.asarray(QUERIES))
    contexts = np.asarray(attend(memory, weights))
    weights = np.asarray(weights)
    numbers = jax.tree.map(np.asarray, params)
    for t in range(T):
        for b, length in enumerate(LENGTHS):
            grown = np.exp([score_of(score, numbers, QUERIES[t, b], OUTPUTS[s, b]) for s in range(length)])
            want = np.concatenate([grown / grown.sum(), np.zeros(S - length)])
            assert_close(weights[t, b], want, TOLERANCE["float64"], f"t={t}, row {b}")
            assert_close(contexts[t, b], want @ OUTPUTS[:, b], TOLERANCE["float64"], f"t={t}, row {b}")
            assert np.all(weights[t, b, length:] == 0)


@by_score
def test_scores_and_their_gradients_are_torchs(score, x64):
    torch = pytest.importorskip("torch")
    params = random_like(score.init(jax.random.key(0), jnp.float64), 1)
    lengths = np.array([4, 2, 1])  # torch makes NaN of a row without steps

    def ours(params, outputs, queries):
        memory = score.remember(params, outputs, lengths)
        return jnp.sum(attend(memory, score.weights(params, memory, queries)) ** 2)

    value, gradients = jax.jit(jax.value_and_grad(ours, (0, 1, 2)))(params, OUTPUTS, QUERIES)
    own = {name: torch.tensor(np.asarray(leaf), requires_grad=True) for name, leaf in params.items()}
    outputs, queries = (torch.tensor(leaf, requires_grad=True) for leaf in (OUTPUTS, QUERIES))
    values, query = outputs.transpose(0, 1), queries.transpose(0, 1)  # batch first
    keys = values @ own["W_memory"]
    valid = torch.arange(S)[None, None] < torch.tensor(lengths)[:, None, None]
    if isinstance(score, Multiplicative):
        attention = torch.nn.functional.scaled_dot_product_attention
        contexts = attention(query, keys, values, attn_mask=valid, scale=1.0)
    else:
        scores = torch.tanh((query @ own["W_query"])[:, :, None] + keys[:, None]) @ own["v"]
        contexts = torch.softmax(scores.masked_fill(~valid, -torch.inf), -1) @ values
    loss = (contexts**2).sum()
    loss.backward()
    assert_close(value, loss.item(), TOLERANCE["float64"])
    found = ({name: leaf.grad.numpy() for name, leaf in own.items()}, outputs.grad.numpy(), queries.grad.numpy())
    assert_close(gradients, found, TOLERANCE["float64"], "gradients")


@by_score
def test_pads_hold_anything(score, x64):
    params = random_like(score.init(jax.random.key(0), jnp.float64), 1)

    def loss(params, outputs):
        memory = score.remember(params, outputs, LENGTHS)
        weights = score.weights(params, memory, jnp.asarray(QUERIES))
        return jnp.sum(attend(memory, weights) ** 2), weights

    run = jax.jit(jax.grad(loss, (0, 1), has_aux=True))
    clean = run(params, fill_pads(OUTPUTS, LENGTHS, 0.0))
    for value in (np.nan, 1e300):
        assert_close(run(params, fill_pads(OUTPUTS, LENGTHS, value)), clean, 0, str(value))


def attentive(cell, params_seed=1):
    cell = Attentive(cell, Additive(2, F, 4))
    return cell, random_like(cell.init(jax.random.key(0), jnp.float64), params_seed)


def test_a_cell_looks_with_the_state_before_the_step(x64):
    """Against a loop, with an LSTM: h is the query, c and the context are in the carry beside it."""
    cell, params = attentive(LSTM(3 + F, 2))
    memory = cell.attention.remember(params["attention"], jnp.asarray(OUTPUTS), LENGTHS)
    inputs = DRAWS.normal(size=(T, B, 3))
    got = unroll(cell, params | {"memory": memory}, inputs)
    outputs = np.asarray(got.outputs)
    assert got.carry._fields == ("h", "c", "context") and cell.input_size == 3 and cell.output_size == 2 + F
    inside, attention = jax.tree.map(np.asarray, (params["cell"], params["attention"]))
    for b, length in enumerate(LENGTHS):
        h, c = np.zeros(2), np.zeros(2)
        for t in range(T):
            grown = np.exp([score_of(cell.attention, attention, h, OUTPUTS[s, b]) for s in range(length)])
            context = np.zeros(F) if length == 0 else grown / grown.sum() @ OUTPUTS[:length, b]
            before = np.concatenate([inputs[t, b], context]) @ inside["W_ih"] + h @ inside["W_hh"] + inside["b"]
            i, f, g, o = np.split(before, 4)
            i, f, o = (1 / (1 + np.exp(-gate)) for gate in (i, f, o))
            c = f * c + i * np.tanh(g)
            h = o * np.tanh(c)
            assert_close(outputs[t, b], np.concatenate([h, context]), TOLERANCE["float64"], f"t={t}, row {b}")


def test_what_drops_goes_inside():
    """InputDropout masks x and not the context; at evaluation nothing is dropped."""
    wrapped = InputDropout(Zoneout(LearnedCarry(Elman(3 + F, 2)), 0.4), 0.5)
    cell = Attentive(wrapped, Additive(2, F, 4))
    assert layers.is_random(cell) and not layers.is_random(Attentive(Elman(3 + F, 2), Additive(2, F, 4)))
    params = cell.init(jax.random.key(0))
    memory = cell.attention.remember(params["attention"], jnp.asarray(OUTPUTS, jnp.float32))
    inputs = jnp.ones((T, B, 3))
    params = params | {"memory": memory}
    run = jax.jit(lambda key: layers.run(cell, params, inputs, key=key).outputs)
    assert not np.array_equal(run(jax.random.key(1)), run(jax.random.key(2)))
    _, dropped = cell.randomize(jax.random.key(1), params, inputs)
    assert dropped.inputs.shape == (T, B, 3) and set(np.unique(dropped.inputs)) == {0, 2}


def test_bfloat16_stays():
    cell = Attentive(Elman(3 + F, 2), Additive(2, F, 4))
    params = cell.init(jax.random.key(0), jnp.bfloat16)
    memory = cell.attention.remember(params["attention"], jnp.asarray(OUTPUTS, jnp.bfloat16), LENGTHS)
    result = unroll(cell, params | {"memory": memory}, jnp.ones((T, B, 3)))
    assert {leaf.dtype for leaf in jax.tree.leaves(result)} == {jnp.dtype(jnp.bfloat16)}


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda: Additive(2, 0, 3), "memory_size of Additive is 0: expected a whole number of at least 1"),
        (lambda: Attentive(Elman(F, 2), Additive(2, F, 3)), "cell of Attentive has input_size 5: expected that of its"),
        (lambda: Attentive(Elman(8, 2), Additive(3, F, 3)), "attention of Attentive has query_size 3: expected 2"),
        (
            lambda: Additive(2, F, 3).remember({}, jnp.zeros((S, B, F)), np.array([5, 1, 1])),
            r"lengths\[0\] is 5 but the inputs have only 4 steps",
        ),
    ],
)
def test_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()
