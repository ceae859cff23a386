"""What a run leaves in its workdir, written so that a kill or a full disk leaves no half file behind.

config.json      what was asked for, and the versions that ran it
metrics.jsonl    one object a row; nothing in it depends on the clock
timing.jsonl     what does
"""

import contextlib
import importlib.metadata
import json
import math
import os
import pathlib
import sys
import tempfile
from typing import Any

from rnnjax.train.config import UsageError, differences

_PACKAGES = ("rnnjax", "jax", "jaxlib", "flax", "optax", "numpy")


class Rows:
    """A file of JSON rows, flushed one by one. Numbers that JSON can't hold (nan, inf) become null."""

    def __init__(self, path: pathlib.Path):
        self._file = path.open("w", encoding="utf-8")

    def write(self, **row: Any) -> None:
        """Appends a row."""
        self._file.write(json.dumps({key: _json_number(value) for key, value in row.items()}, allow_nan=False) + "\n")
        self._file.flush()

    def close(self) -> None:
        """Closes the file."""
        self._file.close()


def _json_number(value: Any) -> Any:
    if isinstance(value, str | int | bool | None):
        return value
    return float(value) if math.isfinite(value) else None


@contextlib.contextmanager
def replacing(path: pathlib.Path):
    """A path beside `path` to write to; takes its place when the block ends well, goes away when it does not."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.stem}-", suffix=path.suffix)
    os.close(handle)
    temporary = pathlib.Path(name)
    try:
        yield temporary
        temporary.chmod(0o666 & ~_umask())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def write_json(path: pathlib.Path, value: Any) -> None:
    """Writes indented JSON, whole or not at all. Raises ValueError for nan and inf, which JSON has not."""
    with replacing(path) as temporary:
        temporary.write_text(json.dumps(value, indent=2, allow_nan=False) + "\n", encoding="utf-8")


def claim_workdir(workdir: pathlib.Path, asked: dict[str, Any]) -> None:
    """Makes `workdir` the folder of the run that `asked` describes; a run of the same description goes on there.

    Writes config.json with the versions beside `asked`. Raises UsageError where the folder holds another run, naming
    the fields that differ, or files that no run left; nothing in it is touched then.
    """
    path = workdir / "config.json"
    if path.exists():
        try:
            held = json.loads(path.read_text(encoding="utf-8"))
            differing = differences({key: held[key] for key in asked}, json.loads(json.dumps(asked)))
        except (ValueError, KeyError, TypeError):
            raise UsageError(f"{path} is not a config that a run wrote: give another --workdir") from None
        if differing:
            listed = ", ".join(f"{field} ({there!r} there, {here!r} here)" for field, there, here in differing[:4])
            more = f" and {len(differing) - 4} more" if len(differing) > 4 else ""
            raise UsageError(f"{workdir} holds another run: it differs in {listed}{more}; give another --workdir")
        return
    hidden = "."  # such as what a kill left of a config.json that was being written
    if workdir.is_dir() and not all(entry.name.startswith(hidden) for entry in workdir.iterdir()):
        raise UsageError(f"{workdir} holds files but no run (no config.json): give a new or an empty --workdir")
    write_json(path, {**asked, "versions": _versions(), "key": "threefry2x32"})


def _versions() -> dict[str, str | None]:
    return {"python": sys.version.split()[0], **{name: _version(name) for name in _PACKAGES}}


def _version(package: str) -> str | None:
    """None where the package runs from a checkout that is not installed."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None
