"""The pure part of training: a model split into arrays, one update, one evaluation.

The model is any Flax NNX module that is called `model(inputs, lengths=..., rngs=...)`; one that is trained on windows
has `stream` and `initial_carry` beside (`rnnjax.nn.SequenceModel`). It is split twice, as it trains and after
`.eval()`; from there on everything is a function of `TrainState`.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from flax import nnx

from rnnjax.layers.masks import part_of_batch
from rnnjax.probes.omega import value_and_grad_with_omega
from rnnjax.tasks import Batch, Task
from rnnjax.tasks.base import sum_and_count
from rnnjax.train.batches import cut, join, own_share, split
from rnnjax.train.config import TrainConfig, UsageError
from rnnjax.train.devices import DATA_AXIS
from rnnjax.train.optimizer import TRACED, make_optimizer
from rnnjax.unroll.sequence import cast, keep_where, vary

INIT, DATA, MODEL, EVALUATION, PROBE, NOISE = range(6)
"""The streams of a run, each folded into the root key first: parameters, the batch of a step, the model's own draws in
a step, the evaluation batch, the probed batch, the noise on the parameters in a step."""


def root_key(seed: int) -> jax.Array:
    """The root of every draw of a run, of a fixed implementation whatever JAX's default is."""
    return jax.random.key(seed, impl="threefry2x32")


def stream(root: jax.Array, which: int) -> jax.Array:
    """The key of a stream; that of a step is folded from it."""
    return jax.random.fold_in(root, which)


class TrainState(NamedTuple):
    """All that training goes on from.

    step: updates made. params; variables: what else the module holds (batch statistics); opt_state.
    key: the root of the draws.
    average: the moving average of the parameters, None without `ema`.
    carry: where the next window goes on, [B, ...]; None for whole sequences.
    traced: {name: scalar}, the settings that are data of the compiled program and not part of it.
    nonfinite: updates whose loss or gradient was not finite.
    stopped: whether no update is made any more.
    """

    step: jax.Array
    params: Any
    variables: Any
    opt_state: optax.OptState
    key: jax.Array
    average: Any
    carry: Any
    traced: dict[str, jax.Array]
    nonfinite: jax.Array
    stopped: jax.Array

    @property
    def evaluated(self) -> Any:
        """The parameters that are evaluated: the moving average where there is one."""
        return self.params if self.average is None else self.average


class Learner:
    """A model, a task and a config as pure functions of a `TrainState`.

    model: an NNX module, left as it was given.
    shares: into how many a batch is split over the devices of a mesh; with more than one, `train_step` and `score` are
        called inside a `shard_map` over `rnnjax.train.devices.DATA_AXIS`, with the whole batch on every device.

    Raises UsageError where parts of a batch would each change variables of the model other than its parameters.
    """

    def __init__(self, model: nnx.Module, task: Task, config: TrainConfig, shares: int = 1):
        self.task, self.config, self.shares = task, config, shares
        self.model = nnx.clone(model)
        self.model.eval()
        self._eval_graph, _, _ = nnx.split(self.model, nnx.Param, ...)
        self.model.train()
        self._train_graph, params, variables = nnx.split(self.model, nnx.Param, ...)
        self._paths = [path for path, _ in nnx.to_flat_state(params)]
        if shares > 1 or config.accumulate > 1:
            _check_divisible(self.model, variables, f"{max(shares, config.accumulate)} parts of a batch")

    def init(
        self, key: jax.Array, traced: Mapping[str, float] | None = None, model: nnx.Module | None = None
    ) -> TrainState:
        """The state before the first step. Its arrays are copies: a compiled call may take their memory.

        traced: the settings that are read from the state, by the names of `rnnjax.train.config.ReplicasConfig`.
        model: one of the same structure, whose parameters are taken in place of the learner's.
        """
        _, params, variables = nnx.split(self.model if model is None else model, nnx.Param, ...)
        params, variables = jax.tree.map(jnp.copy, (params, variables))
        carry = self.model.initial_carry(self.config.batch_size) if self.task.carried else None
        values = {name: jnp.asarray(value, jnp.result_type(float)) for name, value in (traced or {}).items()}
        return TrainState(
            step=jnp.zeros((), jnp.int32),
            params=params,
            variables=variables,
            opt_state=self._optimizer(values).init(params),
            key=key,
            average=jax.tree.map(jnp.copy, params) if self.config.ema else None,
            carry=jax.tree.map(jnp.copy, carry),
            traced=values,
            nonfinite=jnp.zeros((), jnp.int32),
            stopped=jnp.zeros((), bool),
        )

    def sample(self, state: TrainState) -> Batch:
        """The batch of the state's step, from a task that draws its own."""
        return self.task.draw(stream(state.key, DATA), state.step, self.config.batch_size)

    def train_step(self, state: TrainState, batch: Batch) -> tuple[TrainState, dict[str, jax.Array]]:
        """One update: (next state, {"loss", "gradient_norm", "clipped_norm", "finite"} and, where they are on, "omega"
        and "nonfinite", the count of updates that were not).

        The loss is the mean over the places that count. `finite` [1 + tensors] says of the loss and of the gradient of
        every parameter, in the order of `tensor_names`, whether all of it is finite. Where it is not, `nonfinite` of
        the config decides: "stop" leaves the state as it was and marks it stopped, "skip" counts the step but leaves
        parameters and optimizer, "count" goes on.
        """
        sums, variables, carry = self._sums(state, batch)
        count = jnp.maximum(sums["count"], 1)
        loss, gradients = jax.tree.map(lambda leaf: leaf / count, (sums["loss"], sums["gradients"]))
        metrics = {"loss": loss}
        if "omega" in sums:
            transitions = jnp.maximum(sums["transitions"], 1)
            factor = state.traced.get("omega", self.config.omega) / transitions
            pull = sums["omega_gradients"]
            pull = jax.tree.map(lambda leaf: jnp.where(factor > 0, factor * leaf, 0), pull)  # of 0 times inf, nothing
            gradients = jax.tree.map(lambda leaf, more: (leaf + more).astype(leaf.dtype), gradients, pull)
            metrics["omega"] = sums["omega"] / transitions
        metrics["finite"] = jnp.stack([jnp.all(jnp.isfinite(leaf)) for leaf in (loss, *jax.tree.leaves(gradients))])
        after = self._updated(state, gradients)._replace(variables=variables, carry=carry)
        for name in ("gradient_norm", "clipped_norm"):
            metrics[name] = optax.tree.get(after.opt_state, name)
        fine = jnp.all(metrics["finite"])
        if self.config.nonfinite != "count":
            skips = self.config.nonfinite == "skip"
            kept = state._replace(stopped=~fine)
            if skips:  # the next window goes on from where this one ended, if that is a place
                there = jnp.all(jnp.stack([jnp.all(jnp.isfinite(leaf)) for leaf in (loss, *jax.tree.leaves(carry))]))
                ended = jax.tree.map(lambda new, old: jnp.where(there, new, old), carry, state.carry)
                kept = state._replace(step=after.step, carry=ended)
            after = after._replace(key=None)  # a select of keys is not wanted
            after = jax.tree.map(lambda a, b: jnp.where(fine, a, b), after, kept._replace(key=None))
        after = after._replace(key=state.key, nonfinite=state.nonfinite + ~fine)
        return after, metrics if self.config.nonfinite == "stop" else {**metrics, "nonfinite": after.nonfinite}

    def _optimizer(self, traced: Mapping[str, Any]) -> optax.GradientTransformation:
        return make_optimizer(self.config, {name: value for name, value in traced.items() if name in TRACED})

    def _updated(self, state: TrainState, gradients: Any) -> TrainState:
        updates, opt_state = self._optimizer(state.traced).update(gradients, state.opt_state, state.params)
        params = optax.apply_updates(state.params, updates)
        average = state.average
        if average is not None:
            average = optax.incremental_update(params, average, 1 - self.config.ema)
        return state._replace(step=state.step + 1, params=params, opt_state=opt_state, average=average)

    def _sums(self, state: TrainState, batch: Batch) -> tuple[dict[str, Any], Any, Any]:
        """(sums over the batch, variables, carry), part by part and device by device."""
        params, carry = self.noisy(state), state.carry
        if self.shares > 1:
            batch = own_share(batch)
            params = vary(params, batch.mask)  # so that gradients are one's own until the psum
        parts, key = self.config.accumulate, _fold(state, MODEL)
        if parts == 1:
            sums, variables, carry = self._part(state, params, key, batch, carry)
        else:
            pieces = split(batch, parts), jax.tree.map(lambda leaf: cut(leaf, parts, 0), carry)

            def add(total, piece):
                number, (batch, carry) = piece
                with part_of_batch(number, parts):
                    sums, _, carry = self._part(state, params, key, batch, carry)
                return jax.tree.map(jnp.add, total, sums), carry

            first = jax.tree.map(lambda leaf: leaf[0], pieces)
            shapes = jax.eval_shape(lambda batch, carry: self._part(state, params, key, batch, carry)[0], *first)
            zeros = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)
            zeros = vary(zeros, (params, batch))
            sums, carry = jax.lax.scan(add, zeros, (jnp.arange(parts), pieces))
            variables, carry = state.variables, jax.tree.map(join, carry)
        if self.shares > 1:
            sums, variables = jax.lax.psum(sums, DATA_AXIS), state.variables
        return sums, variables, carry

    def _part(self, state: TrainState, params: Any, key: jax.Array, batch: Batch, carry: Any):
        """(sums, variables, carry) of the examples of one batch."""

        def loss(params):
            return self.loss(params, state.variables, key, batch, carry)

        if self.config.omega or "omega" in state.traced:
            (total, after), gradients, omega = value_and_grad_with_omega(loss, has_aux=True)(params)
            more = dict(zip(("omega", "transitions", "omega_gradients"), omega, strict=True))
        else:
            (total, after), gradients = jax.value_and_grad(loss, has_aux=True)(params)
            more = {}
        count, variables, carry = after
        return {"loss": total, "count": count, "gradients": gradients, **more}, variables, carry

    def loss(self, params: Any, variables: Any, key: jax.Array, batch: Batch, carry: Any):
        """(sum of the losses that count, (how many do, the model's variables after it, its carry after it)), as the
        model trains."""
        inputs = batch.inputs
        if self.config.precision == "bfloat16":
            params, inputs = cast((params, inputs), jnp.bfloat16)
        # Copies belong to this trace, so that the model may update its statistics in it.
        model = nnx.merge(self._train_graph, params, variables, copy=True)
        options = {"lengths": batch.lengths, "rngs": nnx.Rngs(key)}
        if self.task.carried:
            start = model.initial_carry(batch.mask.shape[1])
            began = start if batch.fresh is None else keep_where(batch.fresh > 0, start, carry)
            began = jax.tree.map(lambda leaf, like: leaf.astype(like.dtype), began, start)
            outputs, ended = model.stream(inputs, began, **options)
            carry = jax.tree.map(lambda leaf, like: leaf.astype(like.dtype), ended, carry)
        else:
            outputs = model(inputs, **options)
        _, _, after = nnx.split(model, nnx.Param, ...)
        total, count = sum_and_count(self.task.loss(outputs, batch), batch.mask)
        return total, (count, after, carry)

    def noisy(self, state: TrainState) -> Any:
        """The parameters that the gradient is taken at: with noise, where there is any (Jim, Giles, Horne 1996)."""
        if not self.config.weight_noise and "weight_noise" not in state.traced:
            return state.params
        scale = state.traced.get("weight_noise", self.config.weight_noise)
        leaves, structure = jax.tree.flatten(state.params)
        keys = jax.random.split(_fold(state, NOISE), len(leaves))
        noisy = [
            (leaf + scale * jax.random.normal(key, leaf.shape, leaf.dtype)).astype(leaf.dtype)
            for leaf, key in zip(leaves, keys, strict=True)
        ]
        return structure.unflatten(noisy)

    def apply(self, params: Any, variables: Any, batch: Batch) -> jax.Array:
        """The outputs of the model as it evaluates."""
        model = nnx.merge(self._eval_graph, params, variables, copy=True)
        return model(batch.inputs, lengths=batch.lengths, rngs=nnx.Rngs(0))

    def score(self, params: Any, variables: Any, batch: Batch) -> dict[str, tuple[jax.Array, jax.Array]]:
        """{name: (sum, count)} of the loss and the task's metrics over a batch, to be added up over batches."""
        splits = self.splits(batch.mask.shape[-1])
        batch = own_share(batch) if splits else batch
        sums = self._scored(self.apply(params, variables, batch), batch)
        return jax.lax.psum(sums, DATA_AXIS) if splits else sums

    def score_window(self, params: Any, variables: Any, carry: Any, batch: Batch) -> tuple[dict[str, Any], Any]:
        """(`score` of a window of longer sequences, the carry after it); carry: after the window before, own rows."""
        splits = self.splits(batch.mask.shape[-1])
        batch = own_share(batch) if splits else batch
        model = nnx.merge(self._eval_graph, params, variables, copy=True)
        start = model.initial_carry(batch.mask.shape[1])
        began = keep_where(batch.fresh > 0, start, carry)
        outputs, ended = model.stream(batch.inputs, began, lengths=batch.lengths, rngs=nnx.Rngs(0))
        ended = jax.tree.map(lambda leaf, like: leaf.astype(like.dtype), ended, carry)
        sums = self._scored(outputs, batch)
        return jax.lax.psum(sums, DATA_AXIS) if splits else sums, ended

    def initial_carry(self, params: Any, variables: Any, rows: int) -> Any:
        """Where so many sequences start, leaves [rows, ...]."""
        return nnx.merge(self._eval_graph, params, variables, copy=True).initial_carry(rows)

    def splits(self, rows: int) -> bool:
        """Whether a batch of so many rows is scored in shares."""
        return self.shares > 1 and rows % self.shares == 0

    def _scored(self, outputs: Any, batch: Batch) -> dict[str, tuple[jax.Array, jax.Array]]:
        scored = {"loss": (self.task.loss(outputs, batch), batch.mask), **self.task.metrics(outputs, batch)}
        return {name: sum_and_count(values, mask) for name, (values, mask) in scored.items()}

    @property
    def tensor_names(self) -> list[str]:
        """What the entries of `finite` are called: "the loss", "the gradient of head/kernel" ..."""
        return ["the loss", *(f"the gradient of {'/'.join(map(str, path))}" for path in self._paths)]


def _fold(state: TrainState, which: int) -> jax.Array:
    return jax.random.fold_in(stream(state.key, which), state.step)


def _check_divisible(model: nnx.Module, variables: Any, parts: str) -> None:
    if held := [path for path, _ in nnx.to_flat_state(variables)]:
        raise UsageError(
            f"the model holds {'/'.join(map(str, held[0]))}, which is no parameter and would differ between {parts}: "
            "train it on one device, with accumulate=1"
        )
    if any(isinstance(part, nnx.Dropout) for _, part in nnx.iter_graph(model)):
        raise UsageError(
            f"the model holds an nnx.Dropout, which would drop the same rows' units in all {parts}: take "
            "rnnjax.layers.InputDropout, or train it on one device, with accumulate=1"
        )
