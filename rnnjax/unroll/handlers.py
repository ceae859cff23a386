"""How a probe reaches the carries of every `unroll` inside a function, with no change to that function.

A handler is put around a call, as in effect-handler libraries, and `unroll` asks the innermost one twice: `before`
its scan, for zeros to add to the carry after each step, and `after` it, to show what was run and what came out. Without
a handler nothing is asked, traced or paid. The handlers stand in `rnnjax.probes.unrolls`.
"""

import contextlib
import contextvars
import dataclasses
from typing import Any, Protocol

import jax

from rnnjax.cell import Carry, Cell, Params


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Steps:
    """What an unroll has run, as its steps were given it: a pytree of the arrays.

    params: what `cell.prepare` made of the parameters.
    inputs: leaves [T, *batch, ...] in the dtype of the parameters, pads filled with real steps.
    valid: [T, *batch], set at the steps that are no pads; None where all are.
    first: the carry before the step that is read first, fields [*batch, ...].
    carries: the one after each step, fields [T, *batch, ...].
    """

    params: Params
    inputs: Any
    valid: jax.Array | None
    first: Carry
    carries: Carry
    cell: Cell = dataclasses.field(metadata={"static": True})
    reverse: bool = dataclasses.field(metadata={"static": True})
    truncate: int | None = dataclasses.field(metadata={"static": True})


class Handler(Protocol):
    """What `unroll` asks."""

    def before(self, name: str, like: Carry, inputs: Any) -> tuple[Any, Carry | None]:
        """(the inputs, to which zeros may have been added; zeros to add to the carry after every step, or None).

        like: the types of the carries, [T, *batch, ...] for each field. The gradient of the zeros is dL/dx_t and
        dL/dcarry_t. They have to be zeros: a backward of a cell's own leaves the sum out.
        """

    def after(self, steps: Steps, outputs: jax.Array) -> tuple[Carry, jax.Array]:
        """The carries and outputs of the unroll that asked last, as they are, tagged, or with zeros added."""


_handler: contextvars.ContextVar[Handler | None] = contextvars.ContextVar("rnnjax_handler", default=None)


@contextlib.contextmanager
def handling(handler: Handler):
    """Within the context, every `unroll` of this thread asks `handler`."""
    token = _handler.set(handler)
    try:
        yield handler
    finally:
        _handler.reset(token)


def current() -> Handler | None:
    """The innermost handler, or None."""
    return _handler.get()
