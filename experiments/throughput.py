"""What it gains to train replicas in one program, and what it costs to save.

Question: how many times the throughput of trainings that run one after the other has one program that trains them
    together, and how much longer does a training take that saves once a minute?
Source: the design's own targets.
Command: python -m experiments.throughput --workdir=runs/throughput
Expected: 16 LSTMs of 50 units, batches of 20 and 100 steps, have on the two cores of a CPU at least 2.0 times the
    throughput together that they have one after the other; a save a minute makes a training less than 3 % longer; a
    second call compiles nothing.
Runtime: quick, 2 minutes on 2 cores; full, 8 minutes.

Together means over all devices that there are: on a CPU as many as it has cores, each with its share of the replicas,
one after the other in one compiled call; on an accelerator as one batch. What a save costs is the time that a stretch
of training takes with a save in it less what it takes without, in turns.
"""

import dataclasses
import functools
import json
import os
import pathlib
import tempfile

import jax
import numpy as np

from experiments.common.claims import Claim, verdicts, worst, write_claims
from experiments.common.parts import Part, finish
from experiments.common.timing import describe, interleaved, machine
from rnnjax.cells import CELLS
from rnnjax.report import tables
from rnnjax.tasks import Copying
from rnnjax.testing import count_compilations
from rnnjax.train import cli
from rnnjax.train.build import make_model
from rnnjax.train.calls import Calls
from rnnjax.train.checkpoint import Checkpoints, to_arrays
from rnnjax.train.config import CheckpointConfig, ReplicasConfig, TrainConfig, UsageError, to_dict
from rnnjax.train.devices import make_mesh, place, use_devices
from rnnjax.train.records import claim_workdir, replacing, write_json
from rnnjax.train.replicas import first_states, make_replicas
from rnnjax.train.step import Learner

VARIANTS = ("all",)
SIZES = {  # T, B, D, H
    "lstm 100x20x10x50": ("lstm", Copying(delay=80, symbols=8, recall=10), 20, 50),
    "elman 100x20x10x50": ("elman", Copying(delay=80, symbols=8, recall=10), 20, 50),
    "lstm 50x16x8x32": ("lstm", Copying(delay=40, symbols=6, recall=5), 16, 32),
    "elman 50x16x8x32": ("elman", Copying(delay=40, symbols=6, recall=5), 16, 32),
}
SAVED = {"lstm 100x20x10x50": 50, "lstm 100x20x10x512": 512}
JUDGED = "lstm 100x20x10x50"
GAIN, COST, MINUTE = 2.0, 0.03, 60.0
SOURCE = "a target of the design"
STEPS = 5
"""Of a compiled call: long beside its dispatch, short beside the phases of a machine."""


@dataclasses.dataclass
class Config:
    """replicas: how many are trained.
    rounds: timed runs of each way.
    stretch: seconds of training that a save is timed in.
    devices: how many the replicas share; 0 for all there are, on a CPU one a core.
    """

    replicas: int = 16
    rounds: int = 10
    stretch: float = 0.5
    devices: int = 0


def get_config(variant: str, preset: str) -> Config:
    """A few rounds, or many."""
    return Config() if preset == "quick" else Config(rounds=40, stretch=1.0)


def main(config: Config, workdir: pathlib.Path) -> None:
    """Measures what is not measured yet, and writes throughput.json, claims.json and report.md."""
    for name, least in {"replicas": 2, "rounds": 1, "devices": 0}.items():
        if getattr(config, name) < least:
            raise UsageError(f"--config.{name} is {getattr(config, name)}: expected at least {least}")
    if config.stretch <= 0:
        raise UsageError(f"--config.stretch is {config.stretch}: expected a number above 0")
    devices = config.devices or _devices()
    use_devices(devices)
    here = machine()
    claim_workdir(workdir, {"experiment": "throughput", "config": to_dict(config), "machine": here})
    parts = [Part(f"replicas-{name}", functools.partial(gain, name, devices, config)) for name in SIZES]
    parts += [Part(f"saves-{name}", functools.partial(cost, name, config)) for name in SAVED]
    held = finish(parts, workdir / "parts")
    rows = {"replicas": [row for row in held if "gain" in row], "saves": [row for row in held if "share" in row]}
    found = {"machine": here, **rows}
    write_json(workdir / "throughput.json", found)
    write_claims(workdir / "claims.json", "throughput", judge(found), sum(part["seconds"] for part in held))
    show(found, workdir)


def _devices() -> int:
    """The cores of a CPU, the accelerators of a machine that has some."""
    jax.config.update("jax_num_cpu_devices", len(os.sched_getaffinity(0)))
    return len(jax.devices())


class Together:
    """`count` replicas over `devices` devices; a call makes STEPS steps of each."""

    def __init__(self, name: str, count: int, devices: int, hidden: int | None = None):
        cell_name, task, batch, units = SIZES[name if name in SIZES else JUDGED]
        config = TrainConfig(steps=STEPS, steps_per_call=STEPS, batch_size=batch, devices=devices)
        cell = CELLS[cell_name](task.input_size, hidden or units)
        replicas = make_replicas(lambda cell, seed: make_model(cell, task, seed), cell, config, ReplicasConfig(count))
        mesh = make_mesh(count, config)
        learner = Learner(replicas[0].model, task, config, mesh.devices.shape[1])
        self.calls = Calls(learner, mesh, [one.seed for one in replicas])
        self.state = place(first_states(learner, replicas), mesh, self.calls.specs)

    def __call__(self):
        self.state, metrics, _ = self.calls(self.state, 0, STEPS)
        return metrics["loss"]


def gain(name: str, devices: int, config: Config) -> dict:
    """How many times as many steps a second the replicas make together."""
    together = Together(name, config.replicas, devices)
    alone = [Together(name, 1, 1) for _ in range(2)]  # two, so that no one's state is warm in the cache by itself

    def one_after_another():
        return [alone[number % 2]() for number in range(config.replicas)]

    ways = {"together": together, "one after another": one_after_another}
    for way in ways.values():
        way()
    with count_compilations() as compilations:
        seconds = interleaved(ways, config.rounds)
    ratios = seconds["one after another"] / seconds["together"]
    steps = config.replicas * STEPS
    return {
        "size": name,
        "devices": devices,
        "together_steps_a_second": steps / float(np.median(seconds["together"])),
        "one_by_one_steps_a_second": steps / float(np.median(seconds["one after another"])),
        "gain": float(np.median(ratios)),
        "compilations": compilations.count,
    }


def cost(name: str, config: Config) -> dict:
    """The share of a minute's training that a save takes, and the bytes of the save."""
    training = Together(name, 1, 1, SAVED[name])
    training()
    calls = max(1, round(config.stretch / float(np.median(interleaved({"call": training}, 5)["call"]))))
    with tempfile.TemporaryDirectory() as folder, Checkpoints(pathlib.Path(folder), CheckpointConfig()) as saves:
        step = 0

        def stretch(saving: bool):
            nonlocal step
            if saving:
                step += 1
                saves.save("latest", step, to_arrays(training.state), {})
            losses = [training() for _ in range(calls)]
            saves.wait()
            return losses

        ways = {"with a save": functools.partial(stretch, True), "without": functools.partial(stretch, False)}
        seconds = interleaved(ways, config.rounds)
        size = sum(leaf.nbytes for leaf in to_arrays(training.state).values())
    lost = float(np.median(seconds["with a save"] - seconds["without"]))
    return {"size": name, "bytes": size, "save_ms": lost * 1e3, "share": lost / MINUTE}


def judge(found: dict) -> list[Claim]:
    """The three claims of the docstring."""
    judged = [row["gain"] for row in found["replicas"] if row["size"] == JUDGED]
    compilations = float(sum(row["compilations"] for row in found["replicas"]))
    claim = f"Replicas of {JUDGED} (T x B x D x H) train together in one program, in throughput over one by one"
    return [
        Claim(claim, SOURCE, f"times the throughput >= {GAIN}", judged[0], judged[0] >= GAIN),
        Claim.at_most(
            "A save a minute makes a training longer by this share, the most of the sizes",
            SOURCE,
            "share",
            COST,
            worst(row["share"] for row in found["saves"]),
            "no size was timed",
        ),
        Claim("Calls after the first compile nothing", "jax.jit", "0 compilations", compilations, compilations == 0),
    ]


def show(found: dict, workdir: pathlib.Path) -> None:
    """Writes report.md and prints the tables."""
    header = ("T x B x D x H", "devices", "steps/s together", "steps/s one by one", "gain")
    gains = [
        (row["size"], row["devices"], row["together_steps_a_second"], row["one_by_one_steps_a_second"], row["gain"])
        for row in found["replicas"]
    ]
    saves_header = ("T x B x D x H", "MB of a save", "ms that it costs", "share of a minute")
    saves = [(row["size"], row["bytes"] / 1e6, row["save_ms"], row["share"]) for row in found["saves"]]
    rows = json.loads((workdir / "claims.json").read_text(encoding="utf-8"))["claims"]
    text = (
        f"# Replicas in one program, and saves\n\n{describe(found['machine'])}\n\n"
        f"{tables.markdown_table(header, gains)}\n{tables.markdown_table(saves_header, saves)}\n"
        f"{tables.claims_table(rows)}"
    )
    with replacing(workdir / "report.md") as path:
        path.write_text(text, encoding="utf-8")
    tables.console_table(header, gains, "training steps a second, together and one after another")
    tables.console_table(saves_header, saves, "what a save costs")
    print(f"{verdicts(rows)}; report: {workdir / 'report.md'}")


if __name__ == "__main__":
    cli.run(main, get_config, doc=__doc__, variants=VARIANTS)
