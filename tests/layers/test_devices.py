"""A batch split over devices is the batch, masks included."""

import subprocess
import sys
import textwrap


def test_shard_map_splits_the_batch_and_changes_no_mask():
    """In a process of its own: the number of devices is set before the backend starts."""
    code = """
        import jax, jax.numpy as jnp
        from jax.sharding import AxisType, PartitionSpec as P
        from rnnjax.cells import Elman
        from rnnjax.layers import *
        from rnnjax.testing import TOLERANCE, assert_close, random_like
        jax.config.update("jax_num_cpu_devices", 4)
        jax.config.update("jax_enable_x64", True)
        mesh = jax.make_mesh((2, 2), ("outer", "data"), axis_types=(AxisType.Auto,) * 2)
        batch = P(None, ("outer", "data"))
        forward = RecurrentDropout(InputDropout(LearnedCarry(Elman(3, 4)), 0.4, "step"), 0.4)
        layer = Bidirectional(forward, Zoneout(DropConnect(Elman(3, 4), 0.2), 0.3))
        key, lengths = jax.random.key(7), jnp.arange(8) % 7
        params = random_like(jax.eval_shape(lambda: layer.init(key, jnp.float64)), 3, scale=0.4)
        inputs = random_like(jax.ShapeDtypeStruct((6, 8, 3), jnp.float64), 1)

        def loss(params, inputs, lengths):
            outputs = run(layer, params, inputs, lengths=lengths, key=key).outputs
            return jnp.square(outputs).sum(), outputs

        def split(params, inputs, lengths):
            def total(params):
                value, outputs = loss(params, inputs, lengths)
                return jax.lax.psum(value, ("outer", "data")), outputs
            return jax.grad(total, has_aux=True)(params)

        specs = (P(), batch, P(("outer", "data")))
        mapped = jax.jit(jax.shard_map(split, mesh=mesh, in_specs=specs, out_specs=(P(), batch)))
        want = jax.jit(jax.grad(loss, has_aux=True))(params, inputs, lengths)
        assert_close(mapped(params, inputs, lengths), want, TOLERANCE["float64"])

        # Devices whose keys differ along one axis: the rows are split along the other.
        keys, cell = jax.random.split(key, 2), InputDropout(Elman(3, 4), 0.4)
        draw = lambda key, inputs: cell.randomize(key, params["forward"], inputs)[1]
        specs = (P("outer"), P(None, "data"))
        mapped = jax.shard_map(lambda key, inputs: draw(key[0], inputs), mesh=mesh, in_specs=specs, out_specs=batch)
        drawn = jax.jit(mapped)(keys, inputs)
        for i in range(2):
            assert_close(drawn[:, 8 * i : 8 * i + 8], draw(keys[i], inputs), 0)
        print("split")
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True)
    assert done.stdout.strip() == "split", done.stderr
