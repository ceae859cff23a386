"""A SequenceModel is a layer and a head; the last step is the last valid one; windows in order are the whole; masks are
other ones at every step of a training."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from rnnjax import layers
from rnnjax.cells import CELLS, GRU, Elman, Jordan
from rnnjax.layers import InputDropout, LearnedCarry, RecurrentDropout, Zoneout, run
from rnnjax.nn import SequenceModel
from rnnjax.nn.models import last_valid
from rnnjax.probes.unrolls import discover
from rnnjax.tasks import Adding, Copying
from rnnjax.testing import TOLERANCE, assert_close, fill_pads, random_like
from rnnjax.train.config import TrainConfig
from rnnjax.train.loop import train
from rnnjax.train.step import Learner

INPUTS = np.random.default_rng(0).normal(size=(5, 2, 3)).astype(np.float32)
LENGTHS = np.array([5, 2])
KEY = jax.random.key(3, impl="threefry2x32")


def arrays(tree):
    return nnx.to_pure_dict(nnx.state(tree))


@pytest.mark.parametrize("name", CELLS)
def test_a_single_layer_is_drawn_as_the_cell_and_a_linear_head(name):
    """Saved runs and measured numbers stand on this order of draws."""
    cell = CELLS[name](3, 4, 2) if name == "jordan" else CELLS[name](3, 4)
    model, rngs = SequenceModel(cell, 2, rngs=nnx.Rngs(params=5)), nnx.Rngs(params=5)
    assert_close(arrays(model.rnn.params), cell.init(rngs.params()), 0)
    if name == "jordan":
        assert model.head is None
    else:
        assert_close(arrays(model.head), arrays(nnx.Linear(4, 2, rngs=rngs)), 0)


def test_a_model_is_its_layer_and_a_head():
    stack = layers.Stack((Elman(3, 4), layers.Bidirectional(Elman(4, 3), Elman(4, 3))))
    model = SequenceModel(stack, 2, rngs=nnx.Rngs(1))
    outputs = run(stack, arrays(model.rnn.params), INPUTS, lengths=LENGTHS).outputs
    assert_close(model(INPUTS, lengths=LENGTHS), model.head(outputs), 0)
    assert list(discover(lambda: model(INPUTS))) == ["layer_0", "layer_1/forward", "layer_1/backward"]


def test_a_jordan_alone_is_its_own_head_and_in_a_layer_gets_one():
    jordan = Jordan(3, 6, 4)
    for layer, has_head in (
        (jordan, False),
        (Zoneout(jordan, 0.1), False),
        (layers.Stack((Elman(3, 3), jordan)), True),
        (layers.Bidirectional(jordan, jordan), True),
    ):
        model = nnx.eval_shape(lambda of=layer: SequenceModel(of, 4, rngs=nnx.Rngs(0)))
        assert (model.head is not None) == has_head


@pytest.mark.parametrize(
    "layer",
    [
        Jordan(3, 4, 2),
        layers.Stack((layers.Bidirectional(Elman(3, 3), Elman(3, 3)),), layer_norm=True),
    ],
    ids=["jordan", "stack"],
)
def test_the_last_step_is_the_last_valid_one(layer):
    model = SequenceModel(layer, 2, reads_last=True, rngs=nnx.Rngs(0))
    got = model(fill_pads(INPUTS, LENGTHS, np.nan), lengths=LENGTHS)
    assert_close(got[0], model(INPUTS[:, :1])[0], TOLERANCE["float32"])
    assert_close(got[1], model(INPUTS[:2, 1:])[0], TOLERANCE["float32"])
    assert model(INPUTS[:0]).shape == (2, 2)


def test_the_last_step_of_each_direction_is_where_it_ends():
    layer = layers.Bidirectional(Elman(3, 4), Elman(3, 5))
    model = SequenceModel(layer, 2, reads_last=True, rngs=nnx.Rngs(0))
    for lengths in (None, np.array([0, 3])):
        carry = model.rnn(INPUTS, lengths=lengths).carry
        ends = jnp.concatenate([carry.forward.h, carry.backward.h], axis=-1)
        assert_close(model(INPUTS, lengths=lengths), model.head(ends), TOLERANCE["float32"])


def test_no_last_step_is_zeros_with_a_gradient_of_zero():
    values = jnp.ones((3, 2, 4))
    assert_close(last_valid(values, jnp.array([0, 3])), np.repeat([[0.0], [1.0]], 4, axis=1), 0)
    gradient = jax.grad(lambda v: last_valid(v, jnp.array([0, 2])).sum())(values)
    assert jnp.all(gradient[:, 0] == 0) and jnp.all(gradient[1, 1] == 1) and gradient.sum() == 4
    assert last_valid(jnp.ones((0, 2, 4))).shape == (2, 4)


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda rngs: SequenceModel(Jordan(3, 4, 5), 2, rngs=rngs),
         "output_size is 2 but Jordan.* reads out 5 itself"),
        (lambda rngs: SequenceModel(InputDropout(Jordan(3, 4, 5), 0.1), 2, rngs=rngs), "reads out 5 itself"),
        (lambda rngs: SequenceModel(
            layers.Bidirectional(GRU(3, 4), GRU(3, 4), "sum"), 2, reads_last=True, rngs=rngs),
         "reads_last is True but the layer on top sums its directions"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_named(make, message):
    with pytest.raises(ValueError, match=message):
        make(nnx.Rngs(0))


def test_same_seed_same_parameters():
    first, second, other = (SequenceModel(Elman(3, 4), 2, rngs=nnx.Rngs(seed)) for seed in (0, 0, 1))
    assert_close(arrays(first), arrays(second), 0)
    assert jnp.any(first.rnn.params["W_hh"][...] != other.rnn.params["W_hh"][...])


def of_size(name, inputs):
    return CELLS[name](inputs, 4, 2) if name == "jordan" else CELLS[name](inputs, 2)


EVERY_CELL = layers.Stack(
    tuple(Zoneout(LearnedCarry(of_size(name, 2 if i else 3)), 0.3) for i, name in enumerate(CELLS)), layer_norm=True
)


@pytest.mark.parametrize(
    "layer",
    [
        pytest.param(EVERY_CELL, id="stack", marks=pytest.mark.full),
        *(pytest.param(of_size(name, 3), id=name, marks=pytest.mark.full) for name in CELLS),
    ],
)
def test_windows_in_order_are_the_whole_with_truncated_gradients(layer, x64):
    """7 steps, in windows of 3: row 0 fills them, 1 ends inside one, 2 at one's end, 3 in the first, 4 has none."""
    model = SequenceModel(layer, 2, rngs=nnx.Rngs(0), dtype=jnp.float64)
    model.eval()
    nnx.update(model, random_like(nnx.state(model), seed=1, scale=0.5))
    graph, params = nnx.split(model)
    lengths, steps = np.array([7, 5, 6, 1, 0]), 3
    inputs, weights = (random_like(jax.ShapeDtypeStruct((9, 5, of), jnp.float64), of) for of in (3, 2))
    inputs = fill_pads(inputs, lengths, np.nan)
    weights = jnp.where((np.arange(9)[:, None] < lengths[None])[..., None], weights, 0)

    def cut(leaf, start):
        return jax.lax.dynamic_slice_in_dim(leaf, start, steps)

    @jax.jit
    @functools.partial(jax.grad, has_aux=True)
    def window(params, carry, start):
        model = nnx.merge(graph, params)
        begin = jax.tree.map(functools.partial(jnp.where, start == 0), model.initial_carry(5), carry)
        left = jnp.clip(lengths - start, 0, steps)
        outputs, after = model.stream(cut(inputs, start), begin, lengths=left)
        return jnp.sum(cut(weights, start) * outputs), (outputs, after)

    @jax.jit
    @functools.partial(jax.grad, has_aux=True)
    def whole(params):
        model = nnx.merge(graph, params)
        unrolled = model.rnn(inputs, lengths=lengths, truncate=steps)
        outputs = unrolled.outputs if model.head is None else model.head(unrolled.outputs)
        return jnp.sum(weights * outputs), (outputs, unrolled.carry)

    carry, outputs, gradients = model.initial_carry(5), [], []
    for start in range(0, 9, steps):
        gradient, (output, carry) = window(params, carry, start)
        outputs.append(output)
        gradients.append(gradient)
    gradient, (output, final) = whole(params)
    assert_close(jnp.concatenate(outputs), output, TOLERANCE["float64"])
    assert_close(carry, final, TOLERANCE["float64"])
    assert_close(jax.tree.map(lambda *parts: sum(parts), *gradients), gradient, TOLERANCE["float64"])


def test_windows_draw_masks_in_training_as_a_call_does():
    model, inputs = regularised(3, 2), np.ones((4, 2, 3), np.float32)
    carry, key = model.initial_carry(2), jax.random.key(1)
    outputs, _ = model.stream(inputs, carry, rngs=nnx.Rngs(key))
    assert_close(outputs, model(inputs, rngs=nnx.Rngs(key)), 0)
    model.eval()
    evaluated, _ = model.stream(inputs, carry)
    assert_close(evaluated, model(inputs), 0)
    assert jnp.any(outputs != evaluated)


@pytest.mark.parametrize(
    "layer, options, message",
    [
        (layers.Bidirectional(Elman(3, 4), Elman(3, 4)), {}, "the layer is Bidirectional, which reads from the end"),
        (layers.Stack((Elman(3, 4), layers.Bidirectional(Elman(4, 2), Elman(4, 2)))), {"reads_last": True},
         "layer_1 of the Stack is Bidirectional, which reads from the end"),
        (Elman(15, 4), {"window": 5}, "window is 5, so that a step waits for the 2 after it"),
    ],
)  # fmt: skip
def test_what_cannot_go_on_is_named(layer, options, message):
    model = SequenceModel(layer, 2, **options, rngs=nnx.Rngs(0))
    with pytest.raises(ValueError, match=message):
        model.stream(INPUTS, model.initial_carry(2))


@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float64])
def test_the_dtype_of_the_parameters_is_that_of_the_outputs(dtype, x64):
    model = SequenceModel(Elman(3, 4), 2, output_bias=np.float32([1, 2]), rngs=nnx.Rngs(0), dtype=dtype)
    usual = SequenceModel(Elman(3, 4), 2, output_bias=np.float32([1, 2]), rngs=nnx.Rngs(0))
    assert_close(arrays(model), jax.tree.map(lambda leaf: leaf.astype(dtype), arrays(usual)), 0)
    for given in (INPUTS, INPUTS.astype(np.float64), np.ones((5, 2, 3), np.int8)):
        assert jax.eval_shape(model, given).dtype == dtype
    nnx.update(usual, jax.tree.map(lambda leaf: leaf.astype(dtype), nnx.state(usual)))
    assert_close(usual(INPUTS), model(INPUTS), 0)


def regularised(inputs, outputs, **options):
    cell = InputDropout(RecurrentDropout(Elman(inputs, 8), 0.3), 0.3, "step")
    return SequenceModel(cell, outputs, rngs=nnx.Rngs(0), **options)


def test_the_trainer_draws_other_masks_at_every_step_and_evaluates_without():
    task = Copying(delay=3, symbols=2, recall=2)
    model = regularised(task.input_size, task.output_size)
    learner = Learner(model, task, TrainConfig(batch_size=4))
    state = learner.init(KEY)
    batch, step = learner.sample(state), jax.jit(learner.train_step)
    losses = [float(step(state._replace(step=jnp.int32(number)), batch)[1]["loss"]) for number in (0, 1, 2, 0)]
    assert losses[0] == losses[3] and len(set(losses)) == 3
    evaluated = jax.jit(learner.apply)(state.params, state.variables, batch)
    plain = SequenceModel(model.rnn.layer.cell.cell, task.output_size, rngs=nnx.Rngs(0))
    assert_close(evaluated, plain(batch.inputs), 1e-6)


@pytest.mark.full
def test_a_training_run_with_masks_is_the_same_bits_twice(tmp_path):
    task = Adding(4)
    config = TrainConfig(steps=4, steps_per_call=2, batch_size=4, eval_every=4, eval_batch=8, log_every=2)

    def trained(name):
        model = regularised(task.input_size, task.output_size, reads_last=task.reads_last)
        return train(model, task, config, tmp_path / name)

    first, second = trained("first"), trained("second")
    assert_close(nnx.to_pure_dict(first.state.params), nnx.to_pure_dict(second.state.params), 0)
    assert first.scores == second.scores and (tmp_path / "first" / "metrics.jsonl").exists()
