"""A study made of parts, each in a file of its own: what is there is not done again, and progress is told in a line."""

import json
import pathlib
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from rnnjax.train.config import UsageError
from rnnjax.train.records import write_json


class Part(NamedTuple):
    """name: of the file and on the screen; measure: () -> what the file holds; weight: its share of the time."""

    name: str
    measure: Callable[[], dict[str, Any]]
    weight: float = 1.0


def finish(parts: Sequence[Part], folder: pathlib.Path) -> list[dict[str, Any]]:
    """Runs the parts whose FOLDER/NAME.json is missing, in order: what every part holds, with its "seconds"."""
    paths = [folder / f"{part.name}.json" for part in parts]
    waiting = sum(part.weight for part, path in zip(parts, paths, strict=True) if not path.exists())
    start, done = time.monotonic(), 0.0
    for at, (part, path) in enumerate(zip(parts, paths, strict=True), start=1):
        if path.exists():
            _say(f"{at}/{len(parts)} {part.name}: finished before")
            continue
        started = time.monotonic()
        measured = part.measure()
        seconds = time.monotonic() - started
        write_json(path, {**measured, "seconds": round(seconds, 1)})
        done += part.weight
        left = (time.monotonic() - start) * (waiting / done - 1)
        _say(f"{at}/{len(parts)} {part.name}: {seconds:.1f} s" + (f", about {left:.0f} s left" if left else ""))
    return [_read(path) for path in paths]


def _read(path: pathlib.Path) -> dict[str, Any]:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{path} is damaged ({error}): remove it, and the same command measures again") from None


def _say(what: str) -> None:
    print(what, file=sys.stderr, flush=True)
