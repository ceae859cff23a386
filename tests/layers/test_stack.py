"""A stack is one layer after another, a bidirectional layer two unrolls; pads change neither, and probes see each."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rnnjax import probes, reference_unroll, unroll
from rnnjax.cells import GRU, LSTM, Elman, Jordan, TeacherForced
from rnnjax.layers import (
    Bidirectional,
    Directions,
    InputDropout,
    LearnedCarry,
    RecurrentDropout,
    Stack,
    Zoneout,
    advance,
    is_random,
    run,
)
from rnnjax.probes.unrolls import discover
from rnnjax.testing import TOLERANCE, assert_close, count_compilations, fill_pads, random_like

KEY = jax.random.key(7)
LENGTHS = np.array([5, 2])
BOTH = Bidirectional(LSTM(3, 4), Elman(3, 5))
LAYERS = {
    "both": BOTH,
    "stack": Stack((Elman(3, 4), GRU(4, 6))),
    "deep both": Stack((BOTH, Bidirectional(Elman(9, 4), Elman(9, 4), "sum"))),
    "residual and norm": Stack((Elman(3, 3), GRU(3, 3)), residual=True, layer_norm=True),
    "all of it": Stack((Bidirectional(LSTM(4, 2), Elman(4, 2)), Elman(4, 4)), residual=True, layer_norm=True),
    "jordan below": Stack((Jordan(3, 5, 4), LearnedCarry(Elman(4, 4))), layer_norm=True),
}


def made(layer, time=5, batch=(2,), dtype=jnp.float64):
    params = random_like(jax.eval_shape(lambda: layer.init(KEY, dtype)), 3, scale=0.4)
    return params, random_like(jax.ShapeDtypeStruct((time, *batch, layer.input_size), dtype), 1)


def regularised(rate=0.4):
    def cell(size):
        return InputDropout(RecurrentDropout(Elman(size, 4), rate), rate, "step")

    return Stack((cell(3), Bidirectional(cell(4), Zoneout(Elman(4, 4), rate))))


compiled = jax.jit(run, static_argnums=0)


def test_a_bidirectional_layer_is_two_unrolls(x64):
    params, inputs = made(BOTH)

    @jax.jit
    def by_hand(params, inputs):
        return Directions(
            unroll(BOTH.forward, params["forward"], inputs, lengths=LENGTHS),
            unroll(BOTH.backward, params["backward"], inputs, lengths=LENGTHS, reverse=True),
        )

    got, want = compiled(BOTH, params, inputs, lengths=LENGTHS), by_hand(params, inputs)
    outputs = [side.outputs for side in want]
    assert got.outputs.shape == (5, 2, BOTH.output_size) == (5, 2, 9)
    assert_close(got.outputs, jnp.concatenate(outputs, -1), TOLERANCE["float64"])
    assert_close(got.carry, Directions(*[side.carry for side in want]), TOLERANCE["float64"])
    assert_close(got.carries, Directions(*[side.carries for side in want]), TOLERANCE["float64"])
    alike = Bidirectional(LSTM(3, 5), Elman(3, 5), "sum")
    params, _ = made(alike)
    wide = compiled(Bidirectional(LSTM(3, 5), Elman(3, 5)), params, inputs).outputs
    assert_close(compiled(alike, params, inputs).outputs, wide[..., :5] + wide[..., 5:], TOLERANCE["float64"])


def test_a_stack_is_one_layer_after_another(x64):
    stack = Stack([GRU(3, 4), Bidirectional(Elman(4, 2), Elman(4, 2)), Elman(4, 6)])
    params, inputs = made(stack)

    @jax.jit
    def by_hand(params, outputs):
        carries = []
        for i, layer in enumerate(stack.layers):
            result = run(layer, params[f"layer_{i}"], outputs, lengths=LENGTHS)
            outputs = result.outputs
            carries.append(result.carry)
        return outputs, tuple(carries)

    got = compiled(stack, params, inputs, lengths=LENGTHS)
    assert_close((got.outputs, got.carry), by_hand(params, inputs), TOLERANCE["float64"])
    assert jax.tree.map(jnp.shape, got.carries) == jax.tree.map(lambda leaf: (5, *leaf.shape), got.carry)


def test_residuals_and_norms_are_their_formulas(x64):
    params, inputs = made(LAYERS["residual and norm"])
    outputs = inputs
    for i, layer in enumerate(LAYERS["residual and norm"].layers):
        y = np.asarray(compiled(layer, params[f"layer_{i}"], outputs).outputs)
        normal = (y - y.mean(-1, keepdims=True)) / np.sqrt(y.var(-1, keepdims=True) + 1e-5)
        norm = jax.tree.map(lambda leaf: np.asarray(leaf).reshape(1, 1, 3), params[f"norm_{i}"])
        with_norm = normal * norm["scale"] + norm["bias"]
        if i == 0:
            for residual, layer_norm, want in ((True, False, y + inputs), (False, True, with_norm)):
                got = compiled(Stack((layer,), residual, layer_norm), params, inputs).outputs
                assert_close(got, want, TOLERANCE["float64"])
        outputs = with_norm + outputs
    assert_close(compiled(LAYERS["residual and norm"], params, inputs).outputs, outputs, TOLERANCE["float64"])
    start = LAYERS["residual and norm"].init(KEY)["norm_0"]
    assert start["scale"].tolist() == [1, 1, 1] and start["bias"].tolist() == [0, 0, 0]


@pytest.mark.parametrize(
    "layer", [pytest.param(LAYERS[name], marks=[pytest.mark.full] * (name != "all of it"), id=name) for name in LAYERS]
)
def test_a_padded_row_is_the_row_alone(layer, x64):
    """Outputs, final carries and gradients, with NaN or anything in the pads; norms leave 0 there too."""
    params, inputs = made(layer)
    weights = random_like(jax.eval_shape(lambda: run(layer, params, inputs).outputs), 5)

    @jax.jit
    def gradients(params, inputs, weights, lengths=None):
        def loss(params, inputs):
            result = run(layer, params, inputs, lengths=lengths)
            finals = sum(jnp.square(leaf).sum() for leaf in jax.tree.leaves(result.carry))
            return jnp.vdot(result.outputs, weights) + finals, (result.outputs, result.carry)

        return jax.grad(loss, (0, 1), has_aux=True)(params, inputs)

    rows = [gradients(params, inputs[:n, i], weights[:n, i]) for i, n in enumerate(LENGTHS)]
    for pad in (1e6, jnp.nan):
        (of_params, of_inputs), (outputs, carry) = gradients(params, fill_pads(inputs, LENGTHS, pad), weights, LENGTHS)
        assert not outputs[2:, 1].any() and not of_inputs[2:, 1].any()
        for i, ((_, wanted), (alone, final)) in enumerate(rows):
            n = LENGTHS[i]
            assert_close(outputs[:n, i], alone, TOLERANCE["float64"])
            assert_close(of_inputs[:n, i], wanted, TOLERANCE["float64"])
            assert_close(jax.tree.map(lambda leaf, i=i: leaf[i], carry), final, TOLERANCE["float64"])
        both = jax.tree.map(jnp.add, rows[0][0][0], rows[1][0][0])
        assert_close(of_params, both, TOLERANCE["float64"])


def test_lengths_of_0_and_no_time(x64):
    layer = LAYERS["jordan below"]
    params, inputs = made(layer)
    result = compiled(layer, params, inputs, lengths=np.array([0, 2]))
    assert not result.outputs[:, 0].any()
    start = layer.initial_carry(params, (2,))
    assert_close(jax.tree.map(lambda leaf: leaf[0], result.carry), jax.tree.map(lambda leaf: leaf[0], start), 0)
    nothing = compiled(layer, params, jnp.ones((0, 2, 3)), key=KEY)
    assert nothing.outputs.shape == (0, 2, layer.output_size)
    assert_close(nothing.carry, start, 0)


def test_a_carry_continues_where_it_was_returned(x64):
    stack = LAYERS["jordan below"]
    params, inputs = made(stack)
    whole, first = compiled(stack, params, inputs), compiled(stack, params, inputs[:3])
    second = compiled(stack, params, inputs[3:], first.carry)
    assert_close(jnp.concatenate([first.outputs, second.outputs]), whole.outputs, TOLERANCE["float64"])
    assert_close(second.carry, whole.carry, TOLERANCE["float64"])


@pytest.mark.parametrize(
    "layer", [LAYERS["jordan below"], LAYERS["residual and norm"], Zoneout(GRU(3, 4), 0.3)], ids=str
)
def test_single_steps_are_the_run(layer, x64):
    params, inputs = made(layer)
    whole, carry = compiled(layer, params, inputs), layer.initial_carry(params, (2,))
    step = jax.jit(advance, static_argnums=0)
    for t in range(5):
        output, carry = step(layer, params, carry, inputs[t])
        assert_close(output, whole.outputs[t], TOLERANCE["float64"])
    assert_close(carry, whole.carry, TOLERANCE["float64"])
    assert advance(layer, params, None, np.ones(3))[0].shape == (layer.output_size,)


def test_single_steps_of_a_pytree_of_inputs(x64):
    cell = Jordan(3, 5, 4)
    params, x = made(cell)
    forced = TeacherForced(x, jnp.ones((5, 2, 4)))
    output, _ = advance(cell, params, None, jax.tree.map(lambda leaf: leaf[0], forced))
    assert_close(output, run(cell, params, forced).outputs[0], TOLERANCE["float64"])
    stack = Stack((Jordan(3, 5, 3),), residual=True)
    forced = TeacherForced(x, jnp.ones((5, 2, 3)))
    params, _ = made(stack)
    alone = run(stack.layers[0], params["layer_0"], forced).outputs
    assert_close(run(stack, params, forced).outputs, alone + x, 0)


@pytest.mark.parametrize(
    "layer, message",
    [
        (BOTH, "the layer is Bidirectional, which reads from the end"),
        (Stack((GRU(3, 3), BOTH)), "layer_1 of the Stack is Bidirectional"),
    ],
)
def test_what_reads_from_the_end_does_not_advance(layer, message):
    with pytest.raises(ValueError, match=message):
        advance(layer, layer.init(KEY), None, jnp.ones((2, 3)))


@pytest.mark.parametrize(
    "layer, name, names",
    [
        (Zoneout(InputDropout(LSTM(3, 4), 0.1), 0.1), None, ["lstm"]),
        (Zoneout(LSTM(3, 4), 0.1), "encoder", ["encoder"]),
        (BOTH, None, ["forward", "backward"]),
        (BOTH, "encoder", ["encoder/forward", "encoder/backward"]),
        (Stack((BOTH, Elman(9, 6))), None, ["layer_0/forward", "layer_0/backward", "layer_1"]),
    ],
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,
)
def test_an_unroll_is_called_by_where_its_parameters_stand(layer, name, names):
    params, inputs = made(layer, dtype=jnp.float32)
    assert list(discover(lambda: run(layer, params, inputs, lengths=LENGTHS, key=KEY, name=name))) == names


def test_a_probe_gives_the_gradient_of_each_layer(x64):
    """One entry for each layer and direction; of the lower one, at its last step, what all above it pass down."""
    stack = Stack((Elman(3, 4), Bidirectional(Elman(4, 4), Elman(4, 4), "sum")))
    params, inputs = made(stack)
    got = probes.carry_gradients(lambda p, x: jnp.square(run(stack, p, x).outputs[-1]).sum())(params, inputs)
    assert set(got) == {"layer_0", "layer_1/forward", "layer_1/backward"}
    below = run(stack.layers[0], params["layer_0"], inputs)

    def above(outputs):
        return jnp.square(run(stack.layers[1], params["layer_1"], outputs).outputs[-1]).sum()

    direct = jax.grad(above)(below.outputs)
    assert_close(got["layer_0"].h[-1], direct[-1], TOLERANCE["float64"])
    assert jnp.all(direct[0] != 0) and jnp.all(got["layer_0"].h[0] != direct[0])
    assert not got["layer_1/backward"].h[:-1].any() and got["layer_1/forward"].h[:-1].all()


def test_masks_differ_between_layers_and_directions_and_repeat_with_the_key(x64):
    twin = InputDropout(Elman(4, 4, activation="identity"), 0.5)
    one = {"W_ih": jnp.eye(4), "W_hh": jnp.zeros((4, 4)), "b": jnp.zeros(4)}
    wide = jnp.ones((3, 40, 4))
    layers = Stack((twin, twin, Bidirectional(twin, twin)))
    params = {"layer_0": one, "layer_1": one, "layer_2": {"forward": one, "backward": one}}
    outputs = compiled(layers, params, wide, key=KEY).outputs
    assert {0.0, 8.0} == set(np.unique(outputs))  # kept by all three or dropped by one
    assert abs(float((outputs == 8).mean()) - 1 / 8) < 0.1
    assert jnp.any(outputs[..., :4] != outputs[..., 4:])
    assert jnp.any(outputs != compiled(layers, params, wide, key=jax.random.key(8)).outputs)
    np.testing.assert_array_equal(outputs, compiled(layers, params, wide, key=KEY).outputs)
    assert is_random(regularised()) and not is_random(LAYERS["deep both"]) and not is_random(regularised(0.0))


@pytest.mark.full
def test_in_training_it_is_the_loop_with_the_same_masks(x64):
    """Row by row through `reference_unroll`, with the parameters and inputs that each cell's `randomize` gave it."""
    layer = Bidirectional(InputDropout(RecurrentDropout(Elman(3, 4), 0.4), 0.4, "step"), Zoneout(Elman(3, 4), 0.4))
    params, inputs = made(layer)

    def loop(params):
        outputs = []
        for side, key in zip(Directions._fields, jax.random.split(KEY), strict=True):
            cell = getattr(layer, side)
            given = cell.randomize(key, params[side], inputs)
            outputs.append(reference_unroll(cell, *given, lengths=LENGTHS, reverse=side == "backward").outputs)
        return jnp.square(jnp.concatenate(outputs, axis=-1)).sum()

    dirty = fill_pads(inputs, LENGTHS, jnp.nan)
    loss = jax.jit(lambda p: jnp.square(run(layer, p, dirty, lengths=LENGTHS, key=KEY).outputs).sum())
    got, want = (jax.value_and_grad(f)(params) for f in (loss, loop))
    assert_close(got, want, TOLERANCE["float64"])


def test_truncation_and_chunks_reach_every_layer(x64):
    stack = Stack((Elman(3, 4), Elman(4, 4)))
    params, inputs = made(stack)

    def gradient(**options):
        loss = lambda p: jnp.square(run(stack, p, inputs, **options).outputs[-1]).sum()  # noqa: E731
        return jax.jit(jax.grad(loss))(params)

    whole, cut = gradient(), gradient(truncate=1)
    assert_close(gradient(chunk=2), whole, TOLERANCE["float64"])
    for layer in ("layer_0", "layer_1"):
        assert jnp.abs(cut[layer]["W_hh"] - whole[layer]["W_hh"]).max() > 1e-4


@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float64])
def test_one_dtype_through_all_layers(dtype, x64):
    for layer in (LAYERS["residual and norm"], LAYERS["deep both"], regularised()):
        params, _ = made(layer, dtype=dtype)
        for given in (jnp.float32, jnp.bfloat16, jnp.int8):
            inputs = jnp.ones((5, 2, 3), given)
            result = jax.eval_shape(lambda p, x, of=layer: run(of, p, x, lengths=LENGTHS, key=KEY), params, inputs)
            assert {leaf.dtype for leaf in jax.tree.leaves((params, result))} == {jnp.dtype(dtype)}


def test_batches_of_any_rank_and_vmap(x64):
    stack = Stack((Elman(3, 3), Elman(3, 3)), residual=True, layer_norm=True)
    params, inputs = made(stack, batch=(2, 3))
    lengths = np.array([[5, 0, 1], [2, 3, 4]])
    whole = compiled(stack, params, inputs, lengths=lengths).outputs
    mapped = jax.vmap(lambda x, n: compiled(stack, params, x, lengths=n).outputs, (1, 0), 1)(inputs, lengths)
    assert_close(mapped, whole, TOLERANCE["float64"])
    assert_close(compiled(stack, params, inputs[:, 1, 2]).outputs[:4], whole[:4, 1, 2], TOLERANCE["float64"])


def test_same_shapes_compile_once():
    stack = regularised()
    params, inputs = stack.init(KEY), np.ones((5, 2, 3), np.float32)
    assert stack == regularised()
    compiled(stack, params, inputs, lengths=LENGTHS, key=KEY)
    with count_compilations() as compilations:
        compiled(regularised(), params, 2 * inputs, lengths=LENGTHS - 1, key=jax.random.key(3))
    assert compilations.count == 0


def test_layers_are_values_and_draw_every_part_anew():
    assert Stack([GRU(3, 4), GRU(4, 4)]) == Stack((GRU(3, 4), GRU(4, 4)))
    assert len({LAYERS["stack"], Stack(LAYERS["stack"].layers), LAYERS["both"]}) == 2
    twin = Elman(4, 4)
    params = Stack((twin, twin, Bidirectional(twin, twin))).init(KEY)
    drawn = [params["layer_0"], params["layer_1"], *params["layer_2"].values()]
    assert len({np.asarray(part["W_ih"]).tobytes() for part in drawn}) == 4


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda: Stack(()), "layers of Stack is empty: expected at least one"),
        (lambda: Stack((LSTM(3, 4), GRU(5, 6))),
         "layer_1 of Stack has input_size 5: expected 4, what layer_0 puts out"),
        (lambda: Stack((BOTH, GRU(9, 4), GRU(3, 4))), "layer_2 of Stack has input_size 3: expected 4"),
        (lambda: Stack((GRU(3, 3), GRU(3, 4)), residual=True),
         "residual of Stack is True but layer_1 has input_size 3 and output_size 4"),
        (lambda: Bidirectional(GRU(3, 4), GRU(2, 4)), "backward of Bidirectional has input_size 2 but forward has 3"),
        (lambda: Bidirectional(GRU(3, 4), GRU(3, 5), "sum"), "forward puts out 4 features and backward 5"),
        (lambda: Bidirectional(GRU(3, 4), GRU(3, 4), "mean"), "merge of Bidirectional is 'mean': expected one of"),
    ],
)  # fmt: skip
def test_what_does_not_fit_together_is_named(make, message):
    with pytest.raises(ValueError, match=message):
        make()


STACK = Stack((LSTM(3, 4), GRU(4, 6)))
START = STACK.initial_carry(STACK.init(KEY), (2,))


@pytest.mark.parametrize(
    "layer, carry, message",
    [
        (STACK, START[:1], "the carry given to a Stack of 2 layers is .*: expected a tuple of 2, one for each layer"),
        (STACK, START[0], "expected a tuple of 2"),
        (STACK, START[::-1], "the carry given to layer_0 is .*GRUCarry.*: expected .*LSTMCarry"),
        (STACK, (START[0], START[1]._replace(h=jnp.ones((3, 6)))),
         r"the carry given to layer_1 has .h of the shape \(3, 6\): expected \(2, 6\) for inputs of batch \(2,\)"),
        (BOTH, START, "the carry given to a Bidirectional layer is .*: expected .*Directions"),
        (Stack((BOTH,)), (BOTH.initial_carry(BOTH.init(KEY)),),
         r"layer_0 has .forward.h of the shape \(4,\): expected \(2, 4\)"),
    ],
)  # fmt: skip
def test_a_carry_of_another_layer_is_named(layer, carry, message):
    with pytest.raises(ValueError, match=message):
        run(layer, layer.init(KEY), jnp.ones((5, 2, 3)), carry)


def test_inputs_and_lengths_that_do_not_fit_are_named():
    params = STACK.init(KEY)
    with pytest.raises(ValueError, match=r"inputs have 4 features \(shape \(5, 2, 4\)\) but LSTM"):
        run(STACK, params, jnp.ones((5, 2, 4)))
    with pytest.raises(ValueError, match=r"lengths\[1\] is 7 but the inputs have only 5 steps"):
        run(STACK, params, jnp.ones((5, 2, 3)), lengths=[5, 7])
