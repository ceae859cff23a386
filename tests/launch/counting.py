"""Counts steps, as an experiment of a moment: no JAX, saved after every step, stopped by the signals with status 75.

Question: does a launcher bring every run to its end, once?
"""

import dataclasses
import json
import os
import pathlib
import signal
import sys
import time

from rnnjax.train import cli
from rnnjax.train.config import to_dict
from rnnjax.train.heartbeat import Heartbeat
from rnnjax.train.records import claim_workdir, write_json
from rnnjax.train.sweep import chain, product, sweep

VARIANTS = ("up", "down")
SWEEPS = ("twins", "mistyped", "empty", "wrong", "same")


@dataclasses.dataclass
class Options:
    """seconds: of a step.
    saving: seconds that it takes to save upon a signal.
    fail_at: the step at which it fails, 0 for none.
    how: in which way.
    """

    seconds: float = 0.01
    saving: float = 0.0
    fail_at: int = 0
    how: str = dataclasses.field(default="raise", metadata={"choices": ("raise", "kill", "usage", "segv")})


@dataclasses.dataclass
class Config:
    """steps: how far it counts.
    label: any text.
    """

    steps: int = 5
    label: str = ""
    widths: tuple[int, ...] = (1,)
    names: tuple[str, ...] = ("a",)
    options: Options = dataclasses.field(default_factory=Options)


def get_config(variant: str, preset: str) -> Config:
    return Config(steps={"quick": 5, "full": 500}[preset])


def get_sweep(name: str):
    return {
        "twins": chain([{}], product(sweep("steps", (3, 4)), sweep("options.seconds", (0.0,)))),
        "mistyped": [{"steps": 3}, {"options.secondes": 1}],
        "empty": [],
        "wrong": {"steps": (1, 2)},
        "same": [{"label": "a"}, {"steps": 5, "label": "a"}],
    }[name]


def main(config: Config, workdir: pathlib.Path) -> int:
    claim_workdir(workdir, {"config": to_dict(config)})
    asked = []
    for name in ("SIGTERM", "SIGUSR2"):
        signal.signal(getattr(signal, name), lambda number, _: asked.append(number))
    saved = workdir / "saved.json"
    step = json.loads(saved.read_text())["step"] if saved.exists() else 0
    beat = Heartbeat(workdir / "heartbeat.json", "count", config.steps)
    while step < config.steps:
        step += 1
        time.sleep(config.options.seconds)
        if step == config.options.fail_at:
            fail(config.options.how)
        with (workdir / "steps.txt").open("a") as file:
            file.write(f"{step} {os.getpid()}\n")
        write_json(saved, {"step": step})
        beat.beat(step, 1 / step, 0.0)
        if asked:
            time.sleep(config.options.saving)
            print(f"{signal.Signals(asked[0]).name}: saved at step {step}", file=sys.stderr)
            beat.beat(step, 1 / step, None, "stopped")
            return 75
    beat.beat(step, 1 / step, 0.0, "finished")
    print("counted", sorted(name for name in os.environ if name.startswith("SLURM")))
    return 0


def fail(how: str) -> None:
    if how == "raise":
        raise ValueError("the count is wrong")
    if how == "usage":
        raise cli.UsageError("--config.steps is bad: give another")
    os.kill(os.getpid(), {"kill": signal.SIGKILL, "segv": signal.SIGSEGV}[how])


if __name__ == "__main__":
    cli.run(main, get_config, doc=__doc__, variants=VARIANTS)
