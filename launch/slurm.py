"""A sweep on a Slurm cluster, as one array job.

    python -m launch.slurm EXPERIMENT --workdir=DIR --sweep=NAME --partition=gpu --gpus=1 --minutes=240
    python -m launch.slurm EXPERIMENT --workdir=DIR --sweep.FIELD=0,1,3 --config.FIELD=VALUE --memory=8 --cpus=4

What makes the runs is as for launch.local, which --help there tells. DIR and this checkout have to be on a file system
that the nodes share. Two minutes before a job's time is over, and when it has to make room for another, its run saves
and the job goes back to the queue, where it goes on; so --minutes need not be as long as the run.

The same command submits again what is neither finished, nor at work, nor in the queue. `python -m launch.status DIR`
tells how far it is, and scancel with the job's number ends it; what was saved is kept.

Exit status: 0 submitted, or nothing left to submit; 2 usage error, or what sbatch refuses.
"""

import contextlib
import functools
import importlib.util
import io
import os
import pathlib
import shlex
import shutil
from collections.abc import Sequence
from typing import Any

from launch import flags
from launch.job import is_held, read_record
from launch.plan import Plan, Run, claim, make_plan
from launch.status import read_jobs, read_queue
from launch.table import runs
from rnnjax.train.config import Leaf, UsageError
from rnnjax.train.records import write_json

OWN = (
    Leaf("partition", str, default="", help="where to queue; the cluster's default where it is not given"),
    Leaf("minutes", int, default=240, help="the time that a job gets at once, 5 at least"),
    Leaf("memory", float, default=0.0, help="GB that a job gets; 0 for the cluster's default"),
    Leaf("gpus", int, default=0, help="that a job gets"),
    Leaf("cpus", int, default=1, help="that a job gets"),
)
SIGNALS = ("SIGTERM", f"SIG{os.environ.get('SUBMITIT_PREEMPT_SIGNAL', 'USR2')}")
"""Slurm sends both, to the run as to submitit, which waits for the second."""

_LEAST_MINUTES = 5
_SECONDS_TO_SAVE = 120
_TIMES_OVER = 10_000  # submitit counts how often a job's time was over; a run may take as long as it does


def main(request: flags.Request, workdir: pathlib.Path) -> int:
    """Submits the sweep: the exit status."""
    options = request.options
    _check(options)
    plan = make_plan(request, workdir, SIGNALS)
    claim(plan)
    left, told = _left(plan)
    numbers = _submit(plan, left, options) if left else []
    if numbers:
        write_json(
            workdir / "slurm" / "jobs.json",
            read_jobs(plan) | {run.name: n for run, n in zip(left, numbers, strict=True)},
        )
        told = [f"{len(left)} submitted as job {numbers[0].partition('_')[0]}", *told]
    print(f"{runs(len(plan.runs))}: {', '.join(told)}")
    print(f"python -m launch.status {workdir}")
    return 0


def _check(options: dict[str, Any]) -> None:
    least = {"minutes": _LEAST_MINUTES, "memory": 0, "gpus": 0, "cpus": 1}
    for name, value in least.items():
        if options[name] < value:
            raise UsageError(f"--{name} is {options[name]}: expected at least {value}")
    if shutil.which("sbatch") is None or shutil.which("srun") is None:
        raise UsageError("sbatch is not on this machine: run this on a cluster's login node, or launch.local here")
    if importlib.util.find_spec("submitit") is None:
        raise UsageError("submitit is not installed: pip install 'rnnjax[slurm]'")


def _left(plan: Plan) -> tuple[list[Run], list[str]]:
    """The runs to submit, and how many of the others are where."""
    queue = read_queue(plan)
    left, counts = [], {"finished before": 0, "in the queue": 0, "at work": 0}
    for run in plan.runs:
        folder = plan.folder(run)
        if read_record(folder)["state"] == "finished":
            counts["finished before"] += 1
        elif run.name in queue:
            counts["in the queue"] += 1
        elif is_held(folder / ".job"):
            counts["at work"] += 1
        else:
            left.append(run)
    return left, [f"{count} {where}" for where, count in counts.items() if count]


def _submit(plan: Plan, left: Sequence[Run], options: dict[str, Any]) -> list[str]:
    """The numbers of the jobs. Raises UsageError with what sbatch says where it refuses them."""
    import submitit  # takes its time, and only a submission needs it

    folder = plan.workdir / "slurm"
    folder.mkdir(exist_ok=True)
    before = set(folder.iterdir())
    executor = submitit.SlurmExecutor(folder, max_num_timeout=_TIMES_OVER)
    checkout = shlex.quote(str(plan.checkout))
    more = {"partition": options["partition"], "mem": _memory(options["memory"]), "gpus_per_node": options["gpus"]}
    executor.update_parameters(
        job_name=plan.experiment.rpartition(".")[2],
        time=options["minutes"],
        cpus_per_task=options["cpus"],
        signal_delay_s=_SECONDS_TO_SAVE,
        setup=[f"cd {checkout} || exit 1", f"export PYTHONPATH={checkout}${{PYTHONPATH:+:$PYTHONPATH}}"],
        additional_parameters={"requeue": True},
        **{name: value for name, value in more.items() if value},
    )
    try:
        with contextlib.redirect_stderr(io.StringIO()):  # the error says it once more
            jobs = executor.submit_array([plan.job(run) for run in left])
    except submitit.core.utils.FailedJobError as error:
        for path in set(folder.iterdir()) - before:
            path.unlink()
        said = [line.removeprefix("sbatch: error: ").strip() for line in str(error).splitlines() if line.strip()]
        raise UsageError(f"sbatch refuses the jobs: {'; '.join(dict.fromkeys(said))}") from None
    return [job.job_id for job in jobs]


def _memory(gigabytes: float) -> str:
    return f"{round(gigabytes * 1024)}MB" if gigabytes else ""


if __name__ == "__main__":
    flags.run(main, functools.partial(flags.parse, own=OWN, doc=__doc__))
