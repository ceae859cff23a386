"""What is dropped in training: inputs, what the recurrent matrices meet, their weights, or a step's news of a unit.

Masks are drawn by `randomize`, once for a whole unroll and before its scan; those that a step wants come in beside the
inputs. A cell whose `randomize` was not called acts as at evaluation. What a row's mask is depends on the key, on the
wrapper's place and on the row's number in the batch, and not on how many rows and steps there are: neither padding nor
a batch that is split over devices changes it.
"""

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from rnnjax.cell import Cell, check_choice, gates_of, parameter_dtype
from rnnjax.layers.masks import Transposed, masked, row_masks, scaled
from rnnjax.layers.wrappers import Wrapper, is_random
from rnnjax.unroll.sequence import cast


@dataclasses.dataclass(frozen=True)
class _Random(Wrapper):
    """Drops something at a rate; at rate 0 it draws nothing and is the cell inside, to the bit."""

    rate: Any

    def __post_init__(self):
        super().__post_init__()
        for rate in self.rates:
            if isinstance(rate, bool) or not isinstance(rate, int | float) or not 0 <= rate < 1:
                raise ValueError(f"rate of {type(self).__name__} is {self.rate!r}: expected at least 0 and less than 1")

    @property
    def rates(self) -> tuple:
        """The rate, or the rates where there are several."""
        return (self.rate,)

    @property
    def is_random(self):
        return any(self.rates) or is_random(self.cell)

    def randomize(self, key, params, inputs):
        own, inside = jax.random.split(key)
        params, inputs = self.cell.randomize(inside, params, inputs)
        return self.draw(own, params, inputs) if any(self.rates) else (params, inputs)

    def draw(self, key: jax.Array, params: Any, inputs: Any) -> tuple[Any, Any]:
        """`randomize`, of this wrapper alone."""
        raise TypeError(f"{type(self).__name__} has to define draw(key, params, inputs)")


@dataclasses.dataclass(frozen=True)
class InputDropout(_Random):
    """Dropout of the cell's inputs; around the cell of an upper layer, of what stands between the two.

    Units are set to 0 with probability `rate` and divided by 1 - rate otherwise, so that nothing changes at evaluation.
    Of inputs that are several arrays the first is masked, a Jordan network's x and not the teacher's feedback.
    Source: Srivastava et al. 2014; one mask for all times, Gal, Ghahramani 2016.

    cell: the Cell inside.
    rate: the probability that a unit is dropped, at least 0 and less than 1.
    mask: "sequence" for one mask at all times, "step" for a new one at each.
    """

    rate: float
    mask: str = "sequence"

    def __post_init__(self):
        super().__post_init__()
        check_choice(self, "mask", ("sequence", "step"))

    def draw(self, key, params, inputs):
        (x, *rest), structure = jax.tree.flatten(inputs)
        dtype = parameter_dtype(params)
        kept = row_masks(key, self.rate, inputs, jnp.shape(x)[-1], each_step=self.mask == "step")
        x = jnp.asarray(x).astype(dtype) * scaled(kept, self.rate, dtype)
        return params, jax.tree.unflatten(structure, [x, *rest])


class Noisy(NamedTuple):
    """What the cell inside is given, inputs or z, and the masks of the wrapper, leaves [T, *batch, features]."""

    inputs: Any
    masks: Any


class _RandomSteps(_Random):
    """Brings masks to every step, beside what the cell inside is given there."""

    def split(self, z: Any) -> tuple[Any, Any]:
        """(what the cell inside is given; the masks, None at evaluation)."""
        return (z.inputs, z.masks) if any(self.rates) and isinstance(z, Noisy) else (z, None)

    def project(self, params, inputs):
        inputs, masks = self.split(inputs)
        z = self.cell.project(params, inputs)
        return z if masks is None else Noisy(z, masks)

    def read(self, params, carry, z):
        return self.cell.read(params, carry, self.split(z)[0])


@dataclasses.dataclass(frozen=True)
class RecurrentDropout(_RandomSteps):
    """Dropout of what is multiplied with the recurrent matrices, those that the cell names in `recurrent`.

    The rest of a step sees the carry as it is: a GRU leaks the whole h_{t-1}, an LSTM keeps the whole c_{t-1}. Each
    matrix has a mask of its own, shared by its gates; a vector of weights, as in IndRNN, is masked itself.
    Source: Gal, Ghahramani 2016, "A theoretically grounded application of dropout", equation 7, weights tied.

    cell: the Cell inside.
    rate: the probability that a unit is dropped, at least 0 and less than 1.
    mask: "sequence" for one mask at all times, "step" for a new one at each.
    """

    rate: float
    mask: str = "sequence"

    def __post_init__(self):
        super().__post_init__()
        inside = self.cell
        while isinstance(inside, Wrapper):
            if isinstance(inside, RecurrentDropout):
                raise ValueError(f"cell of RecurrentDropout is {self.cell!r}, which drops there already: use one rate")
            inside = inside.cell
        check_choice(self, "mask", ("sequence", "step"))

    def draw(self, key, params, inputs):
        dtype, each_step = parameter_dtype(params), self.mask == "step"
        masks = {}
        for i, (name, weights) in enumerate(recurrent_weights(self.cell, params).items()):
            features = weights.shape[0]
            kept = row_masks(jax.random.fold_in(key, i), self.rate, inputs, features, each_step=each_step)
            masks[name] = scaled(kept, self.rate, dtype)
        return params, Noisy(inputs, masks)

    def project(self, params, inputs):
        _, masks = self.split(inputs)
        return super().project(masked(params, masks), inputs)  # where a teacher's feedback meets its matrix

    def step(self, params, carry, z):
        z, masks = self.split(z)
        return self.cell.step(masked(params, masks), carry, z)

    def gates(self, params, carry, z):
        z, masks = self.split(z)
        return gates_of(self.cell, masked(params, masks), carry, z)

    def step_and_keep(self, params, carry, z):
        z, masks = self.split(z)
        after, kept = self.cell.step_and_keep(masked(params, masks), carry, z)
        return after, (kept, masks, None if masks is None else z)

    def linearize(self, params, carries_before, carries, kept):
        kept, masks, _ = kept
        return self.cell.linearize(masked(params, masks), carries_before, carries, kept), masks

    def pull(self, transposed, factors, d_carry):
        factors, masks = factors
        d_before, d_pre = self.cell.pull(masked(transposed, masks, Transposed), factors, d_carry)
        return d_before, (d_pre, d_carry)

    def collect(self, params, carries_before, kept, d_pre):
        kept, masks, zs = kept
        d_pre, d_carries = d_pre
        if masks is None:
            return self.cell.collect(params, carries_before, kept, d_pre)

        # What the cell multiplies the mask with, it alone knows: here its step is differentiated, all times at once.
        def steps(params, zs, masks):
            return self.cell.step(masked(params, masks), carries_before, zs)

        carries, transpose = jax.vjp(steps, params, zs, masks)
        d_params, d_zs, d_masks = transpose(jax.tree.map(lambda d, c: d.astype(c.dtype), d_carries, carries))
        return d_params, Noisy(d_zs, d_masks)


def recurrent_weights(cell: Cell, params: Any) -> dict[str, jax.ShapeDtypeStruct]:
    """{name: shape and dtype} of what the carry is multiplied with.

    Raises ValueError where `cell.recurrent` is empty, or names what is no matrix or vector of the prepared parameters.
    """
    prepared = jax.eval_shape(cell.prepare, params)
    found = {name: prepared[name] for name in cell.recurrent if name in prepared}
    wrong = [name for name in cell.recurrent if name not in found or found[name].ndim not in (1, 2)]
    if wrong or not found:
        shapes = jax.tree.map(lambda leaf: leaf.shape, prepared)  # parameters may be nested
        raise ValueError(
            f"recurrent of {cell!r} is {cell.recurrent}: expected the names of the matrices that its carry is "
            f"multiplied with, among {shapes}"
        )
    return found


@dataclasses.dataclass(frozen=True)
class Zoneout(_RandomSteps):
    """Every unit of the carry keeps its value of the step before with probability `rate`.

    At evaluation it takes the mean over masks, rate * before + (1 - rate) * after. Masks are drawn at each step.
    Source: Krueger et al. 2017, "Zoneout".

    cell: the Cell inside.
    rate: the probability that a unit keeps its value, or one for each field of the carry, in their order: (of h, of c)
        of an LSTM; at least 0 and less than 1.
    """

    rate: float | tuple[float, ...]

    @property
    def rates(self):
        return self.rate if isinstance(self.rate, tuple) else (self.rate,)

    def draw(self, key, params, inputs):
        fields = jax.eval_shape(self.cell.initial_carry, params)
        masks = []
        for i, (rate, field) in enumerate(zip(self._rates_of(fields), fields, strict=True)):
            kept = row_masks(jax.random.fold_in(key, i), rate, inputs, field.shape[-1], each_step=True)
            masks.append((~kept).astype(parameter_dtype(params)))
        return params, Noisy(inputs, tuple(masks))

    def step(self, params, carry, z):
        z, masks = self.split(z)
        return self._mix(carry, self.cell.step(params, carry, z), masks)

    def gates(self, params, carry, z):
        return gates_of(self.cell, params, carry, self.split(z)[0])

    def _mix(self, before, after, masks):
        if masks is None:
            pairs = zip(self._rates_of(before), before, after, strict=True)
            return type(after)(*[rate * b + (1 - rate) * a if rate else a for rate, b, a in pairs])
        return type(after)(*[jnp.where(mask > 0.5, b, a) for mask, b, a in zip(masks, before, after, strict=True)])

    def step_and_keep(self, params, carry, z):
        z, masks = self.split(z)
        inside, kept = self.cell.step_and_keep(params, carry, z)
        inside = cast(inside, parameter_dtype(params))
        return self._mix(carry, inside, masks), (inside, kept, masks)

    def linearize(self, params, carries_before, carries, kept):
        inside, kept, masks = kept
        return self.cell.linearize(params, carries_before, inside, kept), masks

    def pull(self, transposed, factors, d_carry):
        factors, masks = factors
        shares = self._rates_of(d_carry) if masks is None else masks
        fields = type(d_carry)
        inside = fields(*[(1 - share) * d for share, d in zip(shares, d_carry, strict=True)])
        d_before, d_pre = self.cell.pull(transposed, factors, inside)
        return fields(*[share * d + b for share, d, b in zip(shares, d_carry, d_before, strict=True)]), d_pre

    def collect(self, params, carries_before, kept, d_pre):
        _, kept, masks = kept
        d_params, d_zs = self.cell.collect(params, carries_before, kept, d_pre)
        return d_params, d_zs if masks is None else Noisy(d_zs, jax.tree.map(jnp.zeros_like, masks))

    def _rates_of(self, carry):
        if not isinstance(self.rate, tuple):
            return (self.rate,) * len(carry)
        if len(self.rate) != len(carry):
            raise ValueError(
                f"rate of Zoneout is {self.rate}: expected one number, or one for each of {', '.join(carry._fields)}"
            )
        return self.rate


@dataclasses.dataclass(frozen=True)
class DropConnect(_Random):
    """Dropout of the recurrent weights, those that the cell names in `recurrent`.

    One mask for a whole unroll and all its rows; weights that stay are divided by 1 - rate.
    Source: Wan et al. 2013; of recurrent matrices, Merity, Keskar, Socher 2018, "Regularizing and optimizing LSTM
    language models".

    cell: the Cell inside.
    rate: the probability that a weight is dropped, at least 0 and less than 1.
    """

    rate: float

    def draw(self, key, params, inputs):
        masks = {}
        for i, (name, weights) in enumerate(recurrent_weights(self.cell, params).items()):
            draws = jax.random.uniform(jax.random.fold_in(key, i), weights.shape, jnp.float32)
            mask = scaled(draws >= self.rate, self.rate, weights.dtype)
            masks[_mask_name(name)] = mask * params.get(_mask_name(name), 1)
        return params | masks, inputs

    def prepare(self, params):
        masks = {name: params[_mask_name(name)] for name in self.recurrent if _mask_name(name) in params}
        rest = {name: leaf for name, leaf in params.items() if name not in map(_mask_name, masks)}
        prepared = self.cell.prepare(rest)
        return prepared | {name: prepared[name] * mask for name, mask in masks.items()}


def _mask_name(name: str) -> str:
    return f"{name}.mask"
