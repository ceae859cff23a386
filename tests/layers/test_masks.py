"""Masks: at their rate, each row, key and place its own, and weights that put one before them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rnnjax.cell import dot
from rnnjax.cells import GRU, LSTM, Elman
from rnnjax.layers import DropConnect, InputDropout, RecurrentDropout, Zoneout
from rnnjax.layers.masks import Masked
from rnnjax.testing import TOLERANCE, assert_close, random_like

KEY = jax.random.key(7)


def masks_of(cell, inputs, key=KEY, dtype=jnp.float32):
    """What `randomize` draws, as a list: with inputs of ones their mask, then those beside them and in the weights."""
    params = random_like(jax.eval_shape(lambda: cell.init(KEY, dtype)), 3)
    params, drawn = cell.randomize(key, params, inputs)
    return [*jax.tree.leaves(drawn), *(leaf for name, leaf in params.items() if "mask" in name)]


@pytest.mark.parametrize("rate", [0.1, 0.5, 0.9])
def test_units_are_dropped_at_the_rate_and_the_mean_stays(rate):
    count = 100 * 40 * 20
    bound = 5 * np.sqrt(rate * (1 - rate) / count)
    for cell in (InputDropout(Elman(20, 2), rate, "step"), RecurrentDropout(Elman(1, 20), rate, "step")):
        mask = np.asarray(masks_of(cell, jnp.ones((100, 40, cell.input_size)))[-1], np.float64)
        assert mask.size == count and abs((mask == 0).mean() - rate) < bound
        np.testing.assert_allclose(mask[mask != 0], 1 / (1 - rate), rtol=1e-6)
    (weights,) = masks_of(DropConnect(Elman(1, 200), rate), jnp.ones((1, 1, 1)))[1:]
    assert abs((weights == 0).mean() - rate) < 5 * np.sqrt(rate * (1 - rate) / 200**2)
    np.testing.assert_allclose(weights[weights != 0], 1 / (1 - rate), rtol=1e-6)


def test_zoneout_has_a_rate_for_each_field():
    h, c = masks_of(Zoneout(LSTM(1, 20), (0.2, 0.7)), jnp.ones((100, 40, 1)))[1:]
    for mask, rate in ((h, 0.2), (c, 0.7)):
        assert set(np.unique(mask)) == {0, 1}
        assert abs(mask.mean() - rate) < 5 * np.sqrt(rate * (1 - rate) / mask.size)


@pytest.mark.parametrize("wrapper", [InputDropout, RecurrentDropout])
def test_one_mask_for_the_sequence_or_one_for_every_step(wrapper):
    """Flax drops the same units at all times, or fails, by how its transform splits the key."""
    for mask, several in (("sequence", False), ("step", True)):
        drawn = np.asarray(masks_of(wrapper(Elman(6, 6), 0.5, mask), jnp.ones((4, 1, 6)))[-1])
        assert drawn.shape == (4, 1, 6) and len({row.tobytes() for row in drawn}) == (4 if several else 1)
        assert 0 < (drawn == 0).sum() < drawn.size


@pytest.mark.parametrize(
    "cell",
    [InputDropout(Elman(16, 3), 0.5), RecurrentDropout(GRU(3, 16), 0.5), Zoneout(GRU(3, 16), 0.5)],
    ids=lambda cell: type(cell).__name__,
)
def test_rows_and_keys_have_masks_of_their_own(cell):
    inputs = jnp.ones((2, 3, 2, cell.input_size))
    drawn = np.asarray(masks_of(cell, inputs)[-1])
    assert drawn.shape == (2, 3, 2, 16)
    rows = {drawn[:, i, j].tobytes() for i in range(3) for j in range(2)}
    assert len(rows) == 6
    np.testing.assert_array_equal(masks_of(cell, inputs)[-1], drawn)
    assert not rows & {np.asarray(masks_of(cell, inputs, jax.random.key(8))[-1])[:, i, 0].tobytes() for i in range(3)}


def test_every_wrapper_and_matrix_has_masks_of_its_own():
    cell = InputDropout(InputDropout(RecurrentDropout(LSTM(16, 16, gate_recurrence=True), 0.5), 0.5), 0.5)
    drawn = [leaf[..., :16] for leaf in masks_of(cell, jnp.ones((1, 1, 16)))]
    assert len(drawn) == 3  # inputs, masked twice; and two masks of two recurrent matrices
    assert len({np.asarray(leaf).tobytes() for leaf in drawn}) == 3
    assert set(np.unique(drawn[0])) <= {0, 4}
    nested = masks_of(DropConnect(DropConnect(Elman(1, 50), 0.5), 0.5), jnp.ones((1, 1, 1)))[-1]
    assert set(np.unique(nested)) == {0, 4} and abs((nested == 0).mean() - 0.75) < 0.05


def test_two_recurrent_dropouts_are_one_too_many():
    inside = InputDropout(RecurrentDropout(Elman(3, 4), 0.5), 0.5)
    with pytest.raises(ValueError, match="drops there already: use one rate"):
        RecurrentDropout(inside, 0.5)


def test_padding_a_batch_changes_no_mask():
    """The rows and steps that there are have the masks that they have without the others."""
    cell = InputDropout(Elman(8, 3), 0.5, "step")
    (small,), (large,) = (masks_of(cell, jnp.ones(shape)) for shape in ((4, 2, 8), (9, 5, 8)))
    np.testing.assert_array_equal(large[:4, :2], small)


def test_masks_have_the_dtype_of_the_parameters_and_the_same_units_in_all(x64):
    inputs = np.ones((2, 3, 8), np.int8)
    for cell in (InputDropout(Elman(8, 8), 0.3), RecurrentDropout(Elman(8, 8), 0.3), Zoneout(Elman(8, 8), 0.3)):
        for dtype in (jnp.bfloat16, jnp.float64):
            assert jax.eval_shape(lambda c=cell, d=dtype: masks_of(c, inputs, dtype=d)[-1]).dtype == dtype
    wide = masks_of(InputDropout(Elman(8, 8), 0.3), inputs, dtype=jnp.float64)[0]
    with jax.enable_x64(False):
        usual = np.asarray(masks_of(InputDropout(Elman(8, 8), 0.3), inputs)[0])
    np.testing.assert_array_equal(wide == 0, usual == 0)


@pytest.mark.parametrize("shape", [(0, 2, 5), (3, 0, 5), (3, 5)])
def test_no_time_no_rows_no_batch_axis(shape):
    for cell in (InputDropout(Elman(5, 5), 0.5, "step"), RecurrentDropout(Elman(5, 5), 0.5), Zoneout(Elman(5, 5), 0.5)):
        assert masks_of(cell, jnp.ones(shape))[-1].shape == shape


def test_masked_weights_mask_what_they_meet(x64):
    x, mask = jax.random.normal(KEY, (2, 3)), jnp.array([[1.0, 0, 2], [0, 3, 1]])
    weights = jax.random.normal(KEY, (3, 4))
    want = (x * mask) @ weights
    for got in (x @ Masked(weights, mask), dot(x, Masked(weights, mask))):
        assert_close(got, want, TOLERANCE["float64"])
    assert_close(dot(x, Masked(weights, mask)[:, 1:3]), want[:, 1:3], TOLERANCE["float64"])


@pytest.mark.parametrize(
    "use, message",
    [
        (lambda x, W: jnp.dot(x, W), "got .*Masked"),
        (lambda x, W: W * 2, "unsupported operand"),
        (lambda x, W: jnp.split(W, 2, axis=1), "got .*Masked"),
        (lambda x, W: W[:2], "only columns can be taken"),
        (lambda x, W: W[0, :], "only columns can be taken"),
    ],
)
def test_masked_weights_are_used_in_no_other_way(use, message):
    with pytest.raises(TypeError, match=message):
        use(jnp.ones((2, 3)), Masked(jnp.ones((3, 4)), jnp.ones((2, 3))))
