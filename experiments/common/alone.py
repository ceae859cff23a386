"""A training step in a process of its own, since the most memory that a process ever held can't be reset."""

import json
import os
import pathlib
import resource
import subprocess
import sys
import time
from typing import Any

ROOT = pathlib.Path(__file__).parents[2]


def measure(cell: str, size: str, chunk: int | None) -> dict[str, Any]:
    """{"seconds", "peak_bytes"} of one training step, compilation included in the memory; both None, and "why", where
    the process did not end well.

    size: TxBxDxH; chunk: of `rnnjax.unroll`.
    """
    path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    command = [sys.executable, "-m", "experiments.common.alone", json.dumps([cell, size, chunk])]
    done = subprocess.run(command, env=os.environ | {"PYTHONPATH": path}, capture_output=True, text=True)
    if done.returncode:
        why = (done.stderr.strip().splitlines() or [f"it ended with status {done.returncode}"])[-1]
        return {"seconds": None, "peak_bytes": None, "why": why}
    return json.loads(done.stdout.splitlines()[-1])


def _step(cell: str, size: str, chunk: int | None) -> dict[str, Any]:
    import jax

    from experiments.peers import Size, Work, ours
    from rnnjax.cells import CELLS

    sizes = Size.of(size)
    work = Work.of(cell, CELLS[cell](sizes.inputs, sizes.hidden), sizes)
    runner = ours.engine(work, chunk=chunk)
    jax.block_until_ready(runner.train())
    started = time.perf_counter()
    jax.block_until_ready(runner.train())
    seconds = time.perf_counter() - started
    unit = 1 if sys.platform == "darwin" else 1024
    return {"seconds": seconds, "peak_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit}


if __name__ == "__main__":
    print(json.dumps(_step(*json.loads(sys.argv[1]))))
