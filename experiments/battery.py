"""A new cell, examined: all that is measured of a cell here, beside the four, on one page.

Question: does a cell keep the contract; how does its gradient go through time, before training and after; what does it
    remember; and what does it cost?
Source: the laws are those of the other studies: Pascanu, Mikolov, Bengio 2013; Vogt et al. 2022.
Command: python -m experiments.battery --workdir=runs/battery
Expected: every check of the contract passes, and the rate at which dL/dcarry_t changes far from the loss is the largest
    Lyapunov exponent of the same trajectory, to 0.02 nats a step, for the cell and for those beside it. All else on the
    page is measured and not judged: it is the cell's author who knows what the cell is for.
Runtime: quick, under 2 minutes on 2 cores; full, under 5.

    python -m experiments.battery --workdir=runs/mine --config.cell=path.to.module:MyCell

What stands there is a class of Cells, a function (input_size, hidden_size) that makes one, or a Cell; a class of Flax's
cells will do too, --config.cell=flax.linen:GRUCell or flax.nnx:LSTMCell (`experiments.common.named_cell`). Where the
cell itself fails, the page says how, and goes on with what can be measured.

    conformance   each check of rnnjax.testing.check_cell
    gradient      dL/dcarry_t before training, inputs of unit variance, over seeds; its slope in nats a step
    jacobian      eigenvalues of a step's Jacobian, singular values of it and of the product of several
    lyapunov      the first exponents, driven by the same inputs, with their error
    memory        the adding problem and temporal order: loss against chance, the first step solved, the gradient then
    speed         forward pass and training step, interleaved with those of the others
"""

import dataclasses
import functools
import hashlib
import math
import pathlib
from typing import Any

import numpy as np

from experiments.common.battery_board import board
from experiments.common.battery_claims import claims
from experiments.common.battery_parts import FAILED, conformance, guarded, speed, untrained
from experiments.common.battery_report import Findings, Learned, tables
from experiments.common.named_cell import EXAMPLE, NamedCell, find
from experiments.common.parts import Part, finish
from experiments.common.side_by_side import WORKERS, in_threads
from experiments.common.study import Entry, check_entries, check_sizes, run_entries
from experiments.common.study_report import SETTINGS, Study, write_report
from experiments.common.timing import describe, machine
from experiments.common.untrained import check_counts, kept
from experiments.peers import Size
from rnnjax.cell import Cell
from rnnjax.cells import CELLS
from rnnjax.report import run_files
from rnnjax.train import cli
from rnnjax.train.build import check_cells, make_model, make_task, task_options
from rnnjax.train.config import GradientConfig, ModelConfig, TrainConfig, UsageError, build, to_dict
from rnnjax.train.records import claim_workdir

VARIANTS = ("memory",)
CHECKED = (3, 5)
"""Inputs and units of the cell that is held to the contract."""


@dataclasses.dataclass
class UntrainedConfig:
    """input_size: features of the inputs.
    hidden_size: units.
    time: steps of a sequence.
    burn_in: steps at either end that rate and exponents are not taken over.
    product: steps of the product of Jacobians.
    exponents: how many are measured.
    seeds: how many networks are drawn.
    seed: the first.
    """

    input_size: int = 64
    hidden_size: int = 64
    time: int = 500
    burn_in: int = 100
    product: int = 20
    exponents: int = 32
    seeds: int = 3
    seed: int = 7100


@dataclasses.dataclass
class SpeedConfig:
    """size: steps x batch x features x units.
    rounds: timed runs of each cell and pass.
    """

    size: str = "100x32x64x128"
    rounds: int = 10


@dataclasses.dataclass
class Config:
    """cell: the user's, MODULE:NAME.
    beside: the cells it is shown beside.
    seeds: how many are trained of each, from config.train.seed on.
    """

    adding: Any
    order: Any
    model: ModelConfig
    train: TrainConfig
    cell: str = EXAMPLE
    beside: tuple[str, ...] = dataclasses.field(default=("elman", "jordan", "lstm", "gru"), metadata={"choices": CELLS})
    untrained: UntrainedConfig = dataclasses.field(default_factory=UntrainedConfig)
    speed: SpeedConfig = dataclasses.field(default_factory=SpeedConfig)
    probe: GradientConfig = dataclasses.field(default_factory=lambda: GradientConfig(points=1, batch=32, on=True))
    seeds: int = 2


def get_config(variant: str, preset: str) -> Config:
    """The config: `quick`, or more networks and longer training."""
    del variant  # there is but one
    quick = preset == "quick"
    training = TrainConfig(
        steps=400 if quick else 800,
        steps_per_call=25,
        batch_size=64,
        learning_rate=3e-3,  # the adding problem's: Elman, GRU and LSTM are stable there
        eval_every=25,
        log_every=100,
        seed=6200,
    )
    options = task_options("adding", length=50), task_options("temporal_order", min_length=30 if quick else 50)
    config = Config(*options, ModelConfig(32), training)
    if not quick:
        config.untrained.seeds, config.untrained.time, config.untrained.exponents = 5, 700, 64
        config.speed.rounds, config.seeds = 25, 3
    return config


def check(config: Config) -> tuple[NamedCell, str, Size]:
    """(what --config.cell names, what it is called on the page, the size that is timed). Raises UsageError for a config
    that can't be, and for a cell that can't be made."""
    sizes = config.untrained
    least = 2 * max(sizes.burn_in, 1) + max(sizes.product, 10) + 1  # ten parts of a window give an error
    check_counts(
        sizes, "config.untrained", input_size=1, hidden_size=1, burn_in=1, product=1, exponents=1, seeds=1, time=least
    )
    if config.speed.rounds < 1:
        raise UsageError(f"--config.speed.rounds is {config.speed.rounds}: expected at least 1")
    check_sizes(config.model, "hidden_size")
    try:
        check_cells(config.beside)
        size = Size.of(config.speed.size)
    except UsageError as error:  # of other studies' flags
        told = str(error).replace("--config.cells", "--config.beside").replace("--config.sizes", "--config.speed.size")
        raise UsageError(told) from None
    named = find(config.cell)
    name = named.label if named.label not in CELLS else f"own-{named.label}"
    check_entries(make_entries(named, name, config), config)
    for inputs, hidden in (CHECKED, (sizes.input_size, sizes.hidden_size), (size.inputs, size.hidden)):
        named.make(inputs, hidden)
    return named, name, size


def made(named: NamedCell, name: str, config: Config, inputs: int, hidden: int, task: Any = None) -> dict[str, Cell]:
    """{name: cell} of the user's and those beside it, in these sizes, reading out for `task` where they read out."""
    outputs, link = (task.output_size, task.link) if task else (hidden, "identity")
    mine = named.make(inputs, hidden)
    cells = {name: named.make(inputs, hidden, outputs) if mine.readout and task else mine}
    for other in config.beside:
        readout = {"output_size": outputs, "feedback": link} if other == "jordan" else {}
        cells[other] = build(CELLS[other], readout, input_size=inputs, hidden_size=hidden)
    return cells


def make_entries(named: NamedCell, name: str, config: Config) -> list[Entry]:
    """A training of every cell on every task."""
    entries = []
    for options in (config.adding, config.order):
        label, task = make_task(options)
        cells = made(named, name, config, task.input_size, config.model.hidden_size, task)
        for cell, layer in cells.items():

            def of_seed(seed: int, layer=layer, task=task):
                return make_model(layer, task, seed)

            entries.append(Entry(f"{label}-{cell}", task, config.train, of_seed, cell=cell))
    return entries


def main(config: Config, workdir: pathlib.Path) -> None:
    """Measures what is not measured yet, and writes the page."""
    named, name, size = check(config)
    asked = {"experiment": "battery", "config": to_dict(config)}
    asked["source"] = hashlib.sha256(named.source.encode()).hexdigest()[:12]  # a cell that was changed is another one
    claim_workdir(workdir, asked)
    at_start = made(named, name, config, config.untrained.input_size, config.untrained.hidden_size)
    timed, entries = made(named, name, config, size.inputs, size.hidden), make_entries(named, name, config)

    def measured() -> dict[str, Any]:
        checks, failed = [], {}
        jobs = [lambda: checks.extend(conformance(named.make(*CHECKED)))]
        jobs += [functools.partial(networks, cell, layer, name, config, workdir) for cell, layer in at_start.items()]
        jobs += [functools.partial(train_one, entry, name, config, workdir, failed) for entry in entries]
        in_threads(lambda job: job(), jobs, WORKERS)
        return {"conformance": checks, "failed": failed}

    def timing() -> dict[str, Any]:
        return speed(timed, name, size, config.speed.rounds) | {"machine": machine()}

    parts = finish([Part("measured", measured, 10), Part("speed", timing)], workdir / "parts")
    found = Findings(
        name,
        {cell: networks(cell, layer, name, config, workdir) for cell, layer in at_start.items()},
        learned(entries, config, workdir, parts[0]["failed"]),
        parts[1],
        parts[0]["conformance"],
    )
    seconds = sum(part["seconds"] for part in parts)
    write_report(workdir, report(config, named, found), seconds, (describe(parts[1]["machine"]), SETTINGS))


def networks(cell: str, layer: Cell, name: str, config: Config, workdir: pathlib.Path) -> dict[str, np.ndarray]:
    """`untrained` of a cell, or what an earlier call left of it."""
    held, _ = kept(workdir / "untrained" / cell, functools.partial(untrained, layer, config.untrained))
    failed = [str(held[key]) for key in held if key.startswith(FAILED)]
    if cell != name and any(failed):
        raise RuntimeError(f"{cell} could not be measured: {'; '.join(filter(None, failed))}")
    return held


def train_one(entry: Entry, name: str, config: Config, workdir: pathlib.Path, failed: dict[str, str]) -> None:
    """A training. That the user's cell fails in it is told of in `failed`, {entry: why}, and not the end."""
    run = functools.partial(run_entries, [entry], workdir, config)
    if entry.cell != name:
        run()
    elif why := guarded(run)[1]:
        failed[entry.name] = why


def learned(
    entries: list[Entry], config: Config, workdir: pathlib.Path, failed: dict[str, str]
) -> dict[str, dict[str, Learned]]:
    """{task: {cell: what its training came to}}."""
    found: dict[str, dict[str, Learned]] = {}
    for entry in entries:
        folder = workdir / entry.name
        told = Learned({}, None, entry.task.chance, entry.task.unit, failed.get(entry.name, ""))
        if not told.failed:
            told = told._replace(losses=losses_of(folder, config.seeds), norms=norms_of(folder))
        found.setdefault(entry.name.removesuffix(f"-{entry.cell}").replace("_", " "), {})[entry.cell] = told
    return found


def losses_of(folder: pathlib.Path, seeds: int) -> dict[int, dict[int, float]]:
    """{replica: {step: test loss}}, nan where it was no number."""
    losses: dict[int, dict[int, float]] = {replica: {} for replica in range(seeds)}
    for row in run_files.read_rows(folder / "metrics.jsonl"):
        if row["kind"] == "eval":
            losses[row.get("replica", 0)][row["step"]] = math.nan if row["loss"] is None else row["loss"]
    return losses


def norms_of(folder: pathlib.Path) -> np.ndarray:
    """[step, distance, quartile] of the one unroll that a model of one cell has."""
    arrays = run_files.read_norms(folder / "norms.npz")
    return next(values for unroll, values in arrays.items() if unroll != "step")


def report(config: Config, named: NamedCell, found: Findings) -> Study:
    """The page."""
    failed = [row["check"] for row in found.conformance if row[FAILED]]
    told = f"{len(failed)} of {len(found.conformance)} checks fail" if failed else "every check of the contract passes"
    text = f"""
{named.path}: {told}. Beside it {", ".join(config.beside)}. Memory: {config.model.hidden_size} units, the adding problem
over {config.adding.length} steps and temporal order over {config.order.min_length}, {config.train.steps} steps of
training with {config.train.optimizer} at {config.train.learning_rate:g} for every cell alike, {config.seeds} seeds
each. Networks before training are measured in float64."""
    drawn = {"board": (board(found, config), f"{found.mine}: gradients, Jacobians, exponents, memory, time")}
    made = tables(found, config)
    return Study("battery", f"The battery: {found.mine}", " ".join(text.split()), made, drawn, claims(config, found), 2)


def run() -> None:
    """What the command line calls."""
    cli.run(main, get_config, doc=__doc__, variants=VARIANTS)


if __name__ == "__main__":
    run()
