"""How often XLA compiles."""

import contextlib

import jax


class Compilations:
    """`count`, how often XLA has compiled since the context began."""

    def __init__(self):
        self.start = _compiled

    @property
    def count(self) -> int:
        return _compiled - self.start


_compiled = 0
_listening = False


@contextlib.contextmanager
def count_compilations():
    """Counts compilations: `with count_compilations() as c: f(x)`, then `assert c.count == 0`."""
    global _listening
    if not _listening:
        jax.monitoring.register_event_duration_secs_listener(_on_event)
        _listening = True
    yield Compilations()


def _on_event(event: str, duration: float, **kwargs) -> None:
    global _compiled
    if event == "/jax/core/compile/backend_compile_duration":
        _compiled += 1
