"""How a probe reaches the carries of every `unroll` inside a function, with no change to that function.

A handler is put around a call, as in effect-handler libraries, and `unroll` asks the innermost one twice:
`perturbation` before its scan, for zeros to add to the carry after each step, and `carries` after it, to show what
came out. Without a handler nothing is asked, traced or paid. The handlers stand in `rnnjax.probes.gradients`.
"""

import contextlib
import contextvars
from typing import Any, Protocol


class Handler(Protocol):
    """What `unroll` asks."""

    def perturbation(self, name: str, like: Any) -> Any | None:
        """Zeros to add to the carry after every step, typed as `like` ([T, *batch, ...] for each field), or None.

        Their gradient is dL/dcarry_t. They have to be zeros: a backward of a cell's own leaves the sum out.
        """

    def carries(self, carries: Any) -> Any:
        """The carries of the unroll that asked last, to be returned as they are or tagged."""


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
