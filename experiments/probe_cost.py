"""What reading dL/dcarry_t for every t costs a training step.

Question: how much longer is a training step that also gives the norm of dL/dcarry_t for every t and example?
Source: the design's own target; dL/dcarry_t is a by-product of the backward pass.
Command: python -m experiments.probe_cost --workdir=runs/probe_cost
Expected: the median over the four cells is at most 5 %, and a second call of each step compiles nothing.
Runtime: quick, 1 minute on 2 cores; full, 5 minutes.
"""

import dataclasses
import functools
import json
import pathlib
import time

import jax
import numpy as np
import optax
from flax import nnx
from rich.progress import track

from experiments.common.claims import Claim, verdicts, write_claims
from experiments.common.timing import interleaved
from rnnjax import probes
from rnnjax.cells import CELLS
from rnnjax.report import tables
from rnnjax.tasks import Adding, reduce_mean
from rnnjax.testing import count_compilations
from rnnjax.train import cli
from rnnjax.train.build import cell_options, check_cells, make_cell, make_model, make_task, task_options
from rnnjax.train.config import ModelConfig, TrainConfig, UsageError, to_dict, validate
from rnnjax.train.optimizer import make_optimizer
from rnnjax.train.records import claim_workdir, replacing, write_json
from rnnjax.train.step import root_key

VARIANTS = ("small", "large")
TARGET = 1.05


@dataclasses.dataclass
class Config:
    """cells: the cells that are timed.
    runs: timed steps of each kind and cell, taken in turn.
    """

    task: object
    cell_options: object
    model: ModelConfig
    train: TrainConfig
    cells: tuple[str, ...] = dataclasses.field(default=("elman", "jordan", "lstm", "gru"), metadata={"choices": CELLS})
    runs: int = 100  # the median is then steady to about 2 % on a quiet machine


def get_config(variant: str, preset: str) -> Config:
    """The adding problem in the size of the study of gradient norms, or in one where matmuls weigh more."""
    sizes = {"small": (64, 32), "large": (32, 128)}
    batch_size, hidden_size = sizes[variant]
    config = Config(
        task_options("adding"),
        cell_options(jordan={"feedback": Adding.link}),
        ModelConfig(hidden_size),
        TrainConfig(batch_size=batch_size),
    )
    return config if preset == "quick" else dataclasses.replace(config, runs=500)


def main(config: Config, workdir: pathlib.Path) -> None:
    """Times the steps and writes probe_cost.json, claims.json and report.md; what is there already is shown again."""
    check_cells(config.cells)
    validate(config.train)
    if config.runs < 1:
        raise UsageError(f"--config.runs is {config.runs}: expected at least 1")
    _, task = make_task(config.task)
    cells = [make_cell(name, config, task) for name in config.cells]
    claim_workdir(workdir, {"experiment": "probe_cost", "config": to_dict(config)})
    if not (workdir / "claims.json").exists():
        started = time.monotonic()
        rows = []
        for name, cell in track(list(zip(config.cells, cells, strict=True)), "timing", transient=True):
            rows.append({"cell": name, **measure(make_model(cell, task, config.train.seed), task, config)})
        write_json(workdir / "probe_cost.json", rows)
        write_claims(workdir / "claims.json", "probe_cost", judge(rows), time.monotonic() - started)
    show(workdir)


def measure(model: nnx.Module, task: Adding, config: Config) -> dict[str, float]:
    """Milliseconds of a step without and with the probe, run in turn, and the median of the paired ratios."""
    graph, params = nnx.split(model)
    optimizer = make_optimizer(config.train)

    def loss(params, batch):
        outputs = nnx.merge(graph, params)(batch.inputs, lengths=batch.lengths)
        return reduce_mean(task.loss(outputs, batch), batch.mask)

    def step(value_and_grad, params, state, key):
        loss, gradients, *carries = value_and_grad(params, task.sample(key, config.train.batch_size))
        updates, state = optimizer.update(gradients, state, params)
        return optax.apply_updates(params, updates), state, loss, [probes.gradient_norms(carry) for carry in carries]

    ways = {"plain": jax.value_and_grad, "probed": probes.value_and_grad}
    kinds = {name: jax.jit(functools.partial(step, of(loss))) for name, of in ways.items()}
    arguments = (params, optimizer.init(params), root_key(config.train.seed))
    for kind in kinds.values():
        jax.block_until_ready(kind(*arguments))
    with count_compilations() as compilations:
        seconds = interleaved({name: functools.partial(kind, *arguments) for name, kind in kinds.items()}, config.runs)
    return {
        "plain_ms": float(np.median(seconds["plain"])) * 1e3,
        "probed_ms": float(np.median(seconds["probed"])) * 1e3,
        "ratio": float(np.median(seconds["probed"] / seconds["plain"])),
        "compilations": compilations.count,
    }


def judge(rows: list[dict]) -> list[Claim]:
    """The two claims of the docstring."""
    ratio = float(np.median([row["ratio"] for row in rows]))
    compilations = sum(row["compilations"] for row in rows)
    return [
        Claim(
            "A training step that also gives the norms of dL/dcarry_t takes at most 5 % longer, median over the cells",
            "the backward pass holds dL/dcarry_t anyway",
            f"ratio <= {TARGET}",
            ratio,
            ratio <= TARGET,
        ),
        Claim(
            "Steps after the first compile nothing, with and without the probe",
            "jax.jit",
            "0 compilations",
            compilations,
            compilations == 0,
        ),
    ]


def show(workdir: pathlib.Path) -> None:
    """Writes report.md and prints the table."""
    rows = json.loads((workdir / "probe_cost.json").read_text(encoding="utf-8"))
    claims = json.loads((workdir / "claims.json").read_text(encoding="utf-8"))["claims"]
    header = ("cell", "ms a step", "ms with the probe", "ratio")
    table = [(row["cell"], row["plain_ms"], row["probed_ms"], row["ratio"]) for row in rows]
    with replacing(workdir / "report.md") as path:
        text = f"# The cost of the probe\n\n{tables.markdown_table(header, table)}\n{tables.claims_table(claims)}"
        path.write_text(text, encoding="utf-8")
    tables.console_table(header, table, f"training step with and without the norms of dL/dcarry_t, {jax.devices()[0]}")
    print(f"{verdicts(claims)}; report: {workdir / 'report.md'}")


if __name__ == "__main__":
    cli.run(main, get_config, doc=__doc__, variants=VARIANTS)
