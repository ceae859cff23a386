"""Initial values of weight matrices, one gate at a time.

Each function takes (key, shape, gain) and returns float32 [fan_in, fan_out]; `draw` stacks one independent block per
gate along the last axis and casts. Sampling in float32 whatever the dtype keeps the draws of a float64 or bfloat16
network those of the float32 one, and a QR exists only there for bfloat16. `gain` may be traced.
"""

import math

import jax
import jax.numpy as jnp


def orthogonal(key, shape, gain=1.0):
    """gain * Q with Q from the Haar measure; orthonormal rows or columns where the block is not square.

    Source: Saxe, McClelland, Ganguli 2014.
    """
    return gain * jax.nn.initializers.orthogonal()(key, shape, jnp.float32)


def scaled_normal(key, shape, gain=1.0):
    """N(0, gain^2 / fan_in): the spectral radius of a square block tends to `gain` with its size."""
    return gain / math.sqrt(shape[0]) * jax.random.normal(key, shape, jnp.float32)


def spectral_radius(key, shape, gain=1.0):
    """A normal draw, rescaled so that the largest |eigenvalue| is `gain` exactly. Square blocks only.

    Source: Jaeger 2001 (echo state networks). The eigenvalues are found on the host, since XLA has them on CPU alone.
    """
    if shape[0] != shape[1]:
        raise ValueError(f"spectral_radius needs a square block, not {shape}: eigenvalues are not defined otherwise")
    weights = jax.random.normal(key, shape, jnp.float32)
    radius = jax.pure_callback(
        _largest_eigenvalue, jax.ShapeDtypeStruct((), jnp.float32), weights, vmap_method="sequential"
    )
    return gain / radius * weights


def _largest_eigenvalue(weights):
    import numpy as np

    return np.max(np.abs(np.linalg.eigvals(np.asarray(weights, np.float64)))).astype(np.float32)


def identity(key, shape, gain=1.0):
    """gain * I, the recurrent matrix of an IRNN (Le, Jaitly, Hinton 2015)."""
    del key
    return gain * jnp.eye(*shape, dtype=jnp.float32)


def uniform(key, shape, gain=1.0):
    """U(-gain / sqrt(H), gain / sqrt(H)) with H = fan_out of the block, the hidden size (torch.nn's convention)."""
    return gain / math.sqrt(shape[1]) * jax.random.uniform(key, shape, jnp.float32, -1.0, 1.0)


def lecun_normal(key, shape, gain=1.0):
    """Truncated normal of variance gain^2 / fan_in, fan_in being the input size and not a multiple of it.

    Source: LeCun et al. 1998.
    """
    return gain * jax.nn.initializers.lecun_normal()(key, shape, jnp.float32)


def rotations(key, size):
    """A [size, size] such that expm(A - A^T) turns units 2k and 2k + 1 as a plane by angles of U(-pi, pi).

    The identity where a unit is left over, of determinant 1 in all. Source: Henaff, Szlam, LeCun 2016, as
    Lezcano-Casado, Martinez-Rubio 2019 start from.
    """
    angles = jax.random.uniform(key, (size // 2,), jnp.float32, -math.pi, math.pi)
    first = 2 * jnp.arange(size // 2, dtype=jnp.int32)
    return jnp.zeros((size, size), jnp.float32).at[first, first + 1].set(angles)


def chrono_bias(key, size, longest):
    """log U(1, longest - 1) [size]: a sigmoid gate of it keeps for 2 to `longest` steps. `longest` may be traced.

    Source: Tallec, Ollivier 2018, section 3.
    """
    return jnp.log(1 + (longest - 2) * jax.random.uniform(key, (size,), jnp.float32))


INITIALIZERS = {
    "orthogonal": orthogonal,
    "scaled_normal": scaled_normal,
    "spectral_radius": spectral_radius,
    "identity": identity,
    "uniform": uniform,
    "lecun_normal": lecun_normal,
}
"""What `input_init` and `recurrent_init` of a cell may name."""


def draw(name: str, key: jax.Array, shape: tuple[int, int], gates: int = 1, gain=1.0, dtype=jnp.float32) -> jax.Array:
    """[I, gates * O] from `gates` independent blocks of `shape` = (I, O), each drawn by INITIALIZERS[name]."""
    blocks = [INITIALIZERS[name](gate_key, shape, gain) for gate_key in jax.random.split(key, gates)]
    return jnp.concatenate(blocks, axis=1).astype(dtype)
