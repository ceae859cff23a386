"""The pure part of training: a model split into arrays, one update, one evaluation.

The model is any Flax NNX module that is called `model(inputs, lengths=..., rngs=...)`. It is split twice, as it trains
and after `.eval()`; from there on everything is a function of `TrainState`.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from flax import nnx

from rnnjax.tasks import Batch, Task
from rnnjax.tasks.base import sum_and_count
from rnnjax.train.devices import make_mesh, on_all, split

INIT, DATA, MODEL, EVALUATION, PROBE = range(5)
"""The streams of a run, each folded into the root key first: parameters, the batch of a step, the model's own draws in
a step, the evaluation batch, the probed batch."""


def root_key(seed: int) -> jax.Array:
    """The root of every draw of a run, of a fixed implementation whatever JAX's default is."""
    return jax.random.key(seed, impl="threefry2x32")


def stream(root: jax.Array, which: int) -> jax.Array:
    """The key of a stream; that of a step is folded from it."""
    return jax.random.fold_in(root, which)


class TrainState(NamedTuple):
    """step, updates made; params; variables, what else the module holds (batch statistics); opt_state; the root key."""

    step: jax.Array
    params: Any
    variables: Any
    opt_state: optax.OptState
    key: jax.Array


class Learner:
    """A model, a task and an optimiser as pure functions of a `TrainState`.

    model: an NNX module, left as it was given.
    devices: how many share a batch, whose size is a multiple of it.

    Raises ValueError where several devices would each change variables of the model other than its parameters.
    """

    def __init__(self, model: nnx.Module, task: Task, optimizer: optax.GradientTransformation, devices: int = 1):
        self.task, self.optimizer = task, optimizer
        self._mesh = make_mesh(devices) if devices > 1 else None
        model = nnx.clone(model)
        model.eval()
        self._eval_graph, _, _ = nnx.split(model, nnx.Param, ...)
        model.train()
        self._train_graph, self._params, self._variables = nnx.split(model, nnx.Param, ...)
        if self._mesh is not None and (held := [path for path, _ in nnx.to_flat_state(self._variables)]):
            raise ValueError(
                f"the model holds {'/'.join(map(str, held[0]))}, which is no parameter and would differ between "
                f"{devices} devices: train it on one"
            )
        if self._mesh is not None and any(isinstance(part, nnx.Dropout) for _, part in nnx.iter_graph(model)):
            raise ValueError(
                f"the model holds an nnx.Dropout, which would drop the same rows' units on all {devices} devices: take "
                "rnnjax.layers.InputDropout, or train it on one"
            )

    def init(self, key: jax.Array) -> TrainState:
        """The state before the first step. Its arrays are copies: a compiled call may take their memory."""
        copy = jax.tree.map(jnp.copy, (self._params, self._variables))
        state = TrainState(jnp.zeros((), jnp.int32), *copy, self.optimizer.init(self._params), key)
        return state if self._mesh is None else on_all(state, self._mesh)

    def sample(self, state: TrainState, batch_size: int) -> Batch:
        """The batch of the state's step, from a task that draws its own."""
        return self.task.sample(_fold(state, DATA), batch_size)

    def train_step(self, state: TrainState, batch: Batch) -> tuple[TrainState, dict[str, jax.Array]]:
        """One update: (next state, {"loss", "gradient_norm", "clipped_norm", "finite"}).

        The loss is the mean over the places that count. `finite` [1 + tensors] says of the loss and of the gradient of
        every parameter, in the order of `tensor_names`, whether all of it is finite.
        """

        key = _fold(state, MODEL)
        if self._mesh is None:
            (total, count), gradients, variables = self._sums(state.params, state.variables, key, batch)
        else:
            sums = split(lambda params, key, batch: self._sums(params, state.variables, key, batch)[:2], self._mesh)
            (total, count), gradients = sums(state.params, key, batch)
            variables = state.variables
        loss, gradients = jax.tree.map(lambda leaf: leaf / jnp.maximum(count, 1), (total, gradients))
        updates, opt_state = self.optimizer.update(gradients, state.opt_state, state.params)
        params = optax.apply_updates(state.params, updates)
        finite = jnp.stack([jnp.all(jnp.isfinite(leaf)) for leaf in (loss, *jax.tree.leaves(gradients))])
        norms = {name: optax.tree.get(opt_state, name) for name in ("gradient_norm", "clipped_norm")}
        return TrainState(state.step + 1, params, variables, opt_state, state.key), {
            "loss": loss,
            **norms,
            "finite": finite,
        }

    def _sums(self, params, variables, key, batch):
        """((sum of the losses that count, how many do), gradient of that sum, the model's variables after it)."""

        def loss_fn(params):
            # Copies belong to this trace, so that the model may update its statistics in it.
            model = nnx.merge(self._train_graph, params, variables, copy=True)
            outputs = model(batch.inputs, lengths=batch.lengths, rngs=nnx.Rngs(key))
            _, _, after = nnx.split(model, nnx.Param, ...)
            total, count = sum_and_count(self.task.loss(outputs, batch), batch.mask)
            return total, (count, after)

        (total, (count, after)), gradients = jax.value_and_grad(loss_fn, has_aux=True)(params)
        return (total, count), gradients, after

    def apply(self, params: Any, variables: Any, batch: Batch) -> jax.Array:
        """The outputs of the model as it evaluates."""
        model = nnx.merge(self._eval_graph, params, variables, copy=True)
        return model(batch.inputs, lengths=batch.lengths, rngs=nnx.Rngs(0))

    def score(self, params: Any, variables: Any, batch: Batch) -> dict[str, tuple[jax.Array, jax.Array]]:
        """{name: (sum, count)} of the loss and the task's metrics over a batch, to be added up over batches."""
        outputs = self.apply(params, variables, batch)
        scored = {"loss": (self.task.loss(outputs, batch), batch.mask), **self.task.metrics(outputs, batch)}
        return {name: sum_and_count(values, mask) for name, (values, mask) in scored.items()}

    @property
    def tensor_names(self) -> list[str]:
        """What the entries of `finite` are called: "the loss", "the gradient of head/kernel" ..."""
        paths = [path for path, _ in nnx.to_flat_state(self._params)]
        return ["the loss", *(f"the gradient of {'/'.join(map(str, path))}" for path in paths)]


def _fold(state: TrainState, which: int) -> jax.Array:
    return jax.random.fold_in(stream(state.key, which), state.step)
