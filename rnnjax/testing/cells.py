"""The conformance test of a cell, for the cells here and for a user's own."""

import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp

from rnnjax import probes
from rnnjax.cell import Cell, parameter_dtype
from rnnjax.testing.compare import TOLERANCE, assert_close, fill_pads, flat_carry, leaves_of, random_like
from rnnjax.unroll import reference_unroll, unroll

TIME, BATCH = 5, 3


def check_cell(cell: Cell, *, make_inputs: Callable | None = None, parameter_shapes: dict | None = None) -> None:
    """Raises AssertionError unless the cell keeps the contract of `rnnjax.cell`.

    Checked: the cell is hashable and prints itself; parameters, carry and output have the documented shapes and one
    dtype in float32, bfloat16 and float64; step is the same under jit and vmap; the output at t depends on inputs up to
    t and on none after it; scan equals the Python loop in outputs, carries and all gradients with any lengths, NaN in
    the pads, in both directions; gradients equal finite differences in float64; dL/dcarry_t equals the product of
    Jacobians times dL/dcarry_T.

    make_inputs: (key, shape [T, *batch], dtype) -> inputs; standard normal [T, *batch, input_size] by default.
    parameter_shapes: {name: shape} that `init` has to give, to pin the tree of parameters.
    """
    for check in cell_checks(cell, make_inputs=make_inputs, parameter_shapes=parameter_shapes).values():
        check()


def cell_checks(
    cell: Cell, *, make_inputs: Callable | None = None, parameter_shapes: dict | None = None
) -> dict[str, Callable[[], None]]:
    """{what it checks, in words: a function that raises where the cell does not keep it}, in order: `check_cell` runs
    them all, who wants to know of each can run them one by one.

    They raise AssertionError, or whatever the cell's own code does.
    """
    make_inputs = make_inputs or (lambda key, shape, dtype: jax.random.normal(key, (*shape, cell.input_size), dtype))
    checks = {"a value: hashed, printed, drawn from a key": functools.partial(check_parameters, cell, parameter_shapes)}
    for dtype in (jnp.float32, jnp.bfloat16):
        checks[f"shapes and one dtype, {jnp.dtype(dtype).name}"] = functools.partial(
            check_dtype, cell, make_inputs, dtype
        )
    wide = {
        "shapes and one dtype, float64": functools.partial(check_dtype, dtype=jnp.float64),
        "any leading axes are batch": check_batching,
        "no output depends on later inputs": check_causality,
        "scan is the Python loop": functools.partial(check_against_loop, lengths=None, reverse=False),
        "scan is the loop, with lengths": functools.partial(check_against_loop, lengths=[TIME, 2, 0], reverse=False),
        "scan is the loop, reversed": functools.partial(check_against_loop, lengths=[TIME, 2, 0], reverse=True),
        "gradients are finite differences": check_finite_differences,
        "gradients are products of Jacobians": check_jacobians,
    }
    return checks | {name: functools.partial(_in_float64, check, cell, make_inputs) for name, check in wide.items()}


def _in_float64(check: Callable, cell: Cell, make_inputs: Callable) -> None:
    with jax.enable_x64(True):
        check(cell, make_inputs)


def check_parameters(cell: Cell, parameter_shapes: dict | None = None) -> None:
    """The cell is a value, and its parameters are a pure function of the key, in one dtype."""
    try:
        hash(cell)
    except TypeError:
        raise AssertionError(f"{cell!r} is not hashable: make it a frozen dataclass") from None
    assert type(cell).__name__ in repr(cell), f"{cell!r} does not print itself"
    params = cell.init(jax.random.key(0))
    assert params, "init returned no parameters"
    again = cell.init(jax.random.key(0))
    assert_close(params, again, 0, "init with one key twice")
    shapes = {jax.tree_util.keystr(path, simple=True, separator="/"): leaf.shape for path, leaf in leaves_of(params)}
    if parameter_shapes is not None:
        expected = {name: tuple(shape) for name, shape in parameter_shapes.items()}
        assert shapes == expected, f"init gives {shapes}: expected {expected}"


def check_dtype(cell: Cell, make_inputs: Callable, dtype) -> None:
    """Shapes, and one dtype through parameters, carry and outputs; the loop agrees to the dtype's rounding."""
    params = cell.init(jax.random.key(0), dtype)
    assert parameter_dtype(params) == dtype, f"init(key, {dtype}) gives {parameter_dtype(params)}"
    start = cell.initial_carry(params, (BATCH,))
    assert hasattr(start, "_fields"), f"the carry {start!r} is no NamedTuple: its fields need names"
    inputs = make_inputs(jax.random.key(1), (TIME, BATCH), dtype)
    got = jax.jit(unroll, static_argnums=0)(cell, params, inputs)
    assert got.outputs.shape == (TIME, BATCH, cell.output_size), f"outputs have the shape {got.outputs.shape}"
    for path, leaf in leaves_of((got, start)):
        assert leaf.dtype == dtype, f"{jax.tree_util.keystr(path)} is {leaf.dtype} with parameters in {dtype}"
    want = jax.tree.map(lambda leaf: (TIME, *leaf.shape), start)
    assert jax.tree.map(jnp.shape, got.carries) == want, (
        f"carries have the shapes {jax.tree.map(jnp.shape, got.carries)}"
    )
    assert_close(
        got,
        reference_unroll(cell, params, inputs),
        TOLERANCE[jnp.dtype(dtype).name],
        f"scan and loop in {dtype}",
    )


def check_batching(cell: Cell, make_inputs: Callable) -> None:
    """Any leading axes are batch: no batch, two batch axes and vmap agree."""
    params = cell.init(jax.random.key(0), jnp.float64)
    inputs = make_inputs(jax.random.key(1), (TIME, 2, BATCH), jnp.float64)
    whole = unroll(cell, params, inputs)
    alone = unroll(cell, params, jax.tree.map(lambda leaf: leaf[:, 1, 2], inputs))
    assert_close(
        jax.tree.map(lambda leaf: leaf[:, 1, 2], whole.outputs),
        alone.outputs,
        TOLERANCE["float64"],
        "no batch",
    )
    mapped = jax.vmap(lambda x: unroll(cell, params, x).outputs, in_axes=1, out_axes=1)(inputs)
    assert_close(whole.outputs, mapped, TOLERANCE["float64"], "vmap and a batch axis")


def check_causality(cell: Cell, make_inputs: Callable) -> None:
    """The output at t depends on the inputs up to t, and on none after it."""
    params = cell.init(jax.random.key(0), jnp.float64)
    inputs = make_inputs(jax.random.key(1), (TIME,), jnp.float64)
    t = TIME // 2
    weights = jax.random.normal(jax.random.key(2), (cell.output_size,), jnp.float64)
    gradient = jax.grad(lambda x: jnp.vdot(unroll(cell, params, x).outputs[t], weights))(inputs)
    sizes = sum(jnp.abs(leaf).reshape(TIME, -1).sum(axis=1) for leaf in jax.tree.leaves(gradient))
    assert jnp.all(sizes[t + 1 :] == 0), f"the output at t={t} depends on later inputs: {sizes}"
    assert jnp.all(sizes[: t + 1] > 0), f"the output at t={t} does not depend on every input up to it: {sizes}"


def check_against_loop(cell: Cell, make_inputs: Callable, lengths: list[int] | None, reverse: bool) -> None:
    """Outputs, final carry, every carry, and the gradients of parameters, inputs and first carry: scan equals loop.

    What is compared with has zeros in the pads, what is run has NaN there.
    """
    params = random_like(cell.init(jax.random.key(0), jnp.float64), 3, scale=0.3)
    clean = make_inputs(jax.random.key(1), (TIME, BATCH), jnp.float64)
    carry = random_like(cell.initial_carry(params, (BATCH,)), 4)
    dirty = clean if lengths is None else fill_pads(clean, lengths, jnp.nan)
    lengths = None if lengths is None else jnp.asarray(lengths)

    def run(engine):
        def loss(params, inputs, carry):
            result = engine(cell, params, inputs, carry, lengths=lengths, reverse=reverse)
            return sum(
                jnp.vdot(leaf, weight) for leaf, weight in zip(jax.tree.leaves(result), weights, strict=True)
            ), result

        return jax.grad(loss, (0, 1, 2), has_aux=True)

    shapes = jax.eval_shape(lambda: unroll(cell, params, clean, carry))
    weights = jax.tree.leaves(random_like(shapes, 5))
    want_gradients, want = run(reference_unroll)(params, clean, carry)
    gradients, got = jax.jit(run(unroll))(params, dirty, carry)
    where = f"scan and loop, lengths={lengths}, reverse={reverse}"
    assert_close(got, want, TOLERANCE["float64"], where)
    assert_close(gradients, want_gradients, TOLERANCE["float64"], f"gradients of {where}")


def check_finite_differences(cell: Cell, make_inputs: Callable) -> None:
    """The gradient along a random direction of (parameters, inputs, carry) is the central difference along it."""
    params = random_like(cell.init(jax.random.key(0), jnp.float64), 3, scale=0.3)
    point = (
        params,
        make_inputs(jax.random.key(1), (TIME, BATCH), jnp.float64),
        cell.initial_carry(params, (BATCH,)),
    )
    direction = random_like(point, 6)

    def loss(params, inputs, carry):
        return jnp.mean(jnp.square(unroll(cell, params, inputs, carry).outputs - 0.3))

    def moved(step):
        return float(loss(*jax.tree.map(lambda x, d: x + step * d, point, direction)))

    gradient = jax.grad(loss, (0, 1, 2))(*point)
    got = sum(map(jnp.vdot, jax.tree.leaves(gradient), jax.tree.leaves(direction)))
    step = 2e-5  # a layer normalisation bends at the scale of 3e-3, the root of its epsilon
    want = (8 * (moved(step) - moved(-step)) - (moved(2 * step) - moved(-2 * step))) / (12 * step)
    assert_close(got, want, TOLERANCE["finite differences"], "gradient and finite differences")


def check_jacobians(cell: Cell, make_inputs: Callable) -> None:
    """dL/dcarry_t by perturbation is dL/dcarry_T times the product of Jacobians, for a loss of the last step."""
    params = random_like(cell.init(jax.random.key(0), jnp.float64), 3, scale=0.3)
    inputs = make_inputs(jax.random.key(1), (TIME, BATCH), jnp.float64)
    weights = random_like(cell.initial_carry(params, (BATCH,)), 7)

    def loss(params, inputs):
        final = unroll(cell, params, inputs, name="checked").carry
        return sum(map(jnp.vdot, final, weights))

    gradients = flat_carry(probes.carry_gradients(loss)(params, inputs)["checked"])
    products = probes.jacobian_products(probes.step_jacobians(cell, params, inputs))
    carried = jnp.einsum("bi,kbij->kbj", flat_carry(weights), products.matrix) * jnp.exp(products.log_scale)[..., None]
    assert_close(gradients, carried, TOLERANCE["float64"], "dL/dcarry_t and the product of Jacobians")
