"""How far a sweep is, wherever it runs: what its runs say of themselves, and Slurm's queue where it is at hand.

    python -m launch.status DIR            DIR is the --workdir of the sweep
    python -m launch.status DIR --watch    again and again, until nothing is left to wait for or Ctrl-C

waiting    not begun          queued    in Slurm's queue, which says why it waits there
running    at work now        lost      was at work, and whatever ran it has died: start the sweep again to go on
stopped    saved, can go on   failed    with its last error; start the sweep again to try again
finished
"""

import contextlib
import json
import os
import pathlib
import shutil
import socket
import subprocess
import time
from typing import Any

from launch import flags
from launch.job import is_held, read_record
from launch.plan import Plan, Run, read_plan
from launch.table import Board, Status
from rnnjax.train import cli
from rnnjax.train.config import Leaf, UsageError, read

OWN = (
    Leaf("watch", bool, default=False, help="show it again and again"),
    Leaf("debug", bool, default=False, help="show the traceback of every error"),
)
_SECONDS_BETWEEN = 2.0
_SECONDS_ALIVE = 300.0
"""How old the newest heartbeat of a run on another host may be: one may take long over compiling."""


def read_status(plan: Plan, run: Run, queued: str = "") -> Status:
    """Where a run is. queued: what Slurm's queue says of it."""
    folder = plan.folder(run)
    record, beat = read_record(folder), newest_heartbeat(folder)
    state, said = record["state"], record["error"] or ""
    if state == "running" and not _is_alive(folder, record, beat):
        state, said = "lost", "nothing runs it any more: start the sweep again to go on"
    if queued and "completing" not in queued and state not in ("running", "finished"):
        state, said = "queued", queued
    if state in ("waiting", "queued"):
        beat = {}
    numbers = {key: beat.get(key) for key in ("step", "steps", "loss")}
    left = beat.get("seconds_left") if state == "running" else None
    return Status(run.name, state, said, training=beat.get("name", ""), seconds_left=left, **numbers)


def _is_alive(folder: pathlib.Path, record: dict[str, Any], beat: dict[str, Any]) -> bool:
    """Whether some process runs it. Of another host's locks not every file system tells."""
    if is_held(folder / ".job") or is_held(folder / ".child"):
        return True
    newest = max(record["started"] or 0, beat.get("time", 0))
    return record["host"] != socket.gethostname() and time.time() - newest < _SECONDS_ALIVE


def newest_heartbeat(folder: pathlib.Path) -> dict[str, Any]:
    """That of the training which a run is at, or was at last; empty where there is none."""
    beats = [{}]
    for parent, below, files in os.walk(folder):
        below[:] = [name for name in below if name != "checkpoints"]  # many files and no heartbeat
        if "heartbeat.json" in files:
            with contextlib.suppress(OSError, ValueError):
                beats.append(_checked(json.loads(pathlib.Path(parent, "heartbeat.json").read_text(encoding="utf-8"))))
    return max(beats, key=lambda beat: beat.get("time", 0))


def _checked(beat: Any) -> dict[str, Any]:
    """Raises ValueError for what no run wrote."""
    kinds = {"name": str, "step": int, "steps": int, "time": float | int}
    optional = {"loss": float | int, "seconds_left": float | int}
    if not isinstance(beat, dict) or not all(isinstance(beat.get(key), kind) for key, kind in kinds.items()):
        raise ValueError(beat)
    if not all(isinstance(beat.get(key), kind | None) for key, kind in optional.items()):
        raise ValueError(beat)
    return beat


def read_jobs(plan: Plan) -> dict[str, str]:
    """{run's name: number of its job} of the runs that were given to Slurm."""
    try:
        jobs = json.loads((plan.workdir / "slurm" / "jobs.json").read_text(encoding="utf-8"))
        return {str(name): str(job) for name, job in jobs.items()}
    except (OSError, ValueError, AttributeError):
        return {}


def read_queue(plan: Plan) -> dict[str, str]:
    """{run's name: state and reason} of the runs whose jobs are in Slurm's queue, as squeue tells.

    Empty where nothing was given to Slurm or squeue is not at hand. Accounting is not asked: not every cluster has it.
    """
    jobs = read_jobs(plan)
    if not jobs or shutil.which("squeue") is None:
        return {}
    command = ["squeue", "--noheader", "--array", "--me", "--format=%i|%T|%r"]
    try:
        told = subprocess.run(command, capture_output=True, text=True, timeout=30, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return {}
    queue = {}
    for line in told.splitlines():
        job, state, reason = line.split("|", 2)
        queue[job.strip()] = state.lower() + (f" ({reason})" if reason not in ("None", "") else "")
    return {name: f"job {job}: {queue[job]}" for name, job in jobs.items() if job in queue}


def parse(arguments: list[str]) -> tuple[flags.Command, list[str]]:
    """Reads the command line. Raises as `launch.flags.parse` does."""
    if flags.asks_for_help(arguments):
        print(flags.help_text(__doc__, OWN, None), flush=True)
        raise SystemExit(0)
    folders = [one for one in arguments if not cli.FLAG.match(one)]
    if len(folders) != 1:
        raise UsageError(f"give the --workdir of one sweep and not {len(folders)}: python -m launch.status DIR")
    known = {leaf.flag: leaf for leaf in OWN}
    given, for_absl = cli.collect([one for one in arguments if cli.FLAG.match(one)], known)
    values = {flag: read(known[flag], text) for flag, text in given.items()}
    command = flags.Command(values.get("watch", False), flags.folder(folders[0]), values.get("debug", False))
    return command, for_absl


def main(watch: bool, workdir: pathlib.Path) -> int:
    """Shows the table, once or until nothing is left to wait for."""
    plan = read_plan(workdir)
    with Board(live=watch) as board, contextlib.suppress(KeyboardInterrupt):
        while True:
            queue = read_queue(plan)
            statuses = [read_status(plan, run, queue.get(run.name, "")) for run in plan.runs]
            board.show(statuses)
            if not watch or not any(status.state in ("running", "queued") for status in statuses):
                break
            time.sleep(_SECONDS_BETWEEN)
    return 0


if __name__ == "__main__":
    flags.run(main, parse)
