"""A loss or gradient that is not finite: at which step, in which tensor, and at which time of the sequence."""

from collections.abc import Sequence

import jax
import numpy as np

from rnnjax import probes
from rnnjax.tasks import Batch
from rnnjax.train.step import MODEL, Learner, TrainState, stream


class NonFiniteError(ArithmeticError):
    """A loss or gradient that is not finite, with the step, the tensor and the time in the message."""

    user_error = True

    def __init__(self, step: int, tensors: Sequence[str], where: str = ""):
        super().__init__(
            f"{describe(step, tensors, where)}. A lower --config.train.learning_rate often helps, and so does clipping "
            "(--config.train.clip_norm=1); --config.train.nonfinite=skip leaves such updates out"
        )
        self.step, self.tensors, self.where = step, tuple(tensors), where


def describe(step: int, tensors: Sequence[str], where: str = "") -> str:
    """One line on what was not finite."""
    told = f"step {step}: {', '.join(tensors)} {'is' if len(tensors) == 1 else 'are'} not finite"
    return f"{told}; {where}" if where else told


def not_finite(finite: np.ndarray, names: Sequence[str]) -> list[tuple[int, list[str]]]:
    """[(row, names of the tensors)] of every row of [steps, tensors] that has something not finite."""
    rows = np.flatnonzero(~finite.all(axis=1))
    return [(int(row), [name for name, fine in zip(names, finite[row], strict=True) if not fine]) for row in rows]


def where_in_time(learner: Learner, state: TrainState, batch: Batch) -> str:
    """Where dL/dcarry_t of the step that `state` is at is not finite: going back from the loss, the first t.

    learner: one of a single share. state: of one replica. Of several times it is the latest: in an unroll that reads
    forwards, the first that the backward pass comes to. Empty where the model has no unroll that can be followed.
    """
    key = jax.random.fold_in(stream(state.key, MODEL), state.step)

    def loss(params):
        return learner.loss(params, state.variables, key, batch, state.carry)

    try:
        gradients = jax.device_get(probes.carry_gradients(loss, has_aux=True)(learner.noisy(state)))
    except ValueError:  # no unroll, or one that a probe can't see into
        return ""
    found = []
    for name, carry in gradients.items():
        for field, values in _fields(carry):
            wrong = ~np.isfinite(values).all(axis=-1)  # [T, *batch]
            if wrong.any():
                last = int(np.max(np.nonzero(wrong)[0]))
                example = int(np.argmax(wrong[last]))
                found.append((last, f"dL/d{field}_t of {name} from t = {last} back (example {example})"))
    if not found:
        return "dL/dcarry_t is finite at all t: it is a weight's own sum, or the head, that is not"
    return f"going back from the loss, {max(found)[1]}"


def _fields(carry):
    names = getattr(carry, "_fields", None)
    leaves = jax.tree_util.tree_leaves_with_path(carry)
    if names is not None and len(names) == len(leaves):
        return [(name, np.asarray(leaf, np.float64)) for name, (_, leaf) in zip(names, leaves, strict=True)]
    return [(jax.tree_util.keystr(path), np.asarray(leaf, np.float64)) for path, leaf in leaves]
