"""What a probe costs.

Question: how much longer is a training step that also gives the norm of dL/dcarry_t for every t and example; how long
    are the other probes, in training steps; and what does a Lyapunov spectrum cost beside its own algebra?
Source: the design's own targets; dL/dcarry_t is a by-product of the backward pass. Of a spectrum nothing can be saved
    of the matmuls of the basis with the recurrent matrices and of the decompositions (Benettin et al. 1980).
Command: python -m experiments.probe_cost --workdir=runs/probe_cost
Expected: the median over the four cells is at most 5 %, and a second call of each step compiles nothing; the spectrum
    of 256 units over 1,000 steps takes at most 1.5 times its matmuls and decompositions alone.
Runtime: quick, 2 minutes on 2 cores; full, 15 minutes.

The other probes are programs of their own, on the batch of the step, and take their forward and backward pass anew. A
spectrum's error is told as its largest standard error, and the largest difference of an exponent to the spectrum with a
decomposition after every step in float64.
"""

import dataclasses
import functools
import json
import pathlib
import time

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx
from rich.progress import track

from experiments.common.claims import Claim, verdicts, worst, write_claims
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
TARGET, SPECTRUM_TARGET = 1.05, 1.5
SPECTRA = ("elman", "gru", "lstm")
SPECTRUM_RUNS = 3


@dataclasses.dataclass
class Config:
    """cells: the cells that are timed.
    runs: timed steps of each kind and cell, taken in turn.
    spectra: the cells whose Lyapunov spectrum is timed.
    spectrum_units: of these, and spectrum_steps: of the trajectory.
    every: steps between two decompositions.
    """

    task: object
    cell_options: object
    model: ModelConfig
    train: TrainConfig
    cells: tuple[str, ...] = dataclasses.field(default=("elman", "jordan", "lstm", "gru"), metadata={"choices": CELLS})
    runs: int = 100  # the median is then steady to about 2 % on a quiet machine
    spectra: tuple[str, ...] = dataclasses.field(default=("elman", "gru"), metadata={"choices": SPECTRA})
    spectrum_units: int = 256
    spectrum_steps: int = 1000
    every: int = 2  # an orthogonal tanh network loses a digit a step between its first exponent and its last


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
    return config if preset == "quick" else dataclasses.replace(config, runs=500, spectra=SPECTRA)


def main(config: Config, workdir: pathlib.Path) -> None:
    """Times the steps and writes probe_cost.json, claims.json and report.md; what is there already is shown again."""
    check_cells(config.cells)
    validate(config.train)
    for name in ("runs", "spectrum_units", "every"):
        if (value := getattr(config, name)) < 1:
            raise UsageError(f"--config.{name} is {value}: expected at least 1")
    if config.spectrum_steps < 10 * config.every or config.spectrum_steps % config.every:
        raise UsageError(
            f"--config.spectrum_steps is {config.spectrum_steps}: expected a multiple of --config.every="
            f"{config.every}, ten times it at least"
        )
    _, task = make_task(config.task)
    cells = [make_cell(name, config, task) for name in config.cells]
    claim_workdir(workdir, {"experiment": "probe_cost", "config": to_dict(config)})
    if not (workdir / "claims.json").exists():
        started = time.monotonic()
        steps, spectra = [], []
        for name, cell in track(list(zip(config.cells, cells, strict=True)), "timing steps", transient=True):
            steps.append({"cell": name, **measure(make_model(cell, task, config.train.seed), task, config)})
        for name in track(config.spectra, "timing spectra", transient=True):
            spectra.append({"cell": name, **measure_spectrum(name, config)})
        found = {"steps": steps, "spectra": spectra}
        write_json(workdir / "probe_cost.json", found)
        write_claims(workdir / "claims.json", "probe_cost", judge(found), time.monotonic() - started)
    show(workdir)


def measure(model: nnx.Module, task: Adding, config: Config) -> dict[str, float]:
    """Milliseconds of a step without and with the norms, run in turn, and the medians of the ratios to it: of the step
    with the norms, and of every other probe by itself."""
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
    calls = {name: functools.partial(kind, *arguments) for name, kind in kinds.items()}
    batch = jax.jit(task.sample, static_argnums=1)(arguments[-1], config.train.batch_size)
    others = {name: functools.partial(probe(loss), params, batch) for name, probe in OTHERS.items()}
    for call in (calls | others).values():
        jax.block_until_ready(call())
    with count_compilations() as compilations:
        seconds = interleaved(calls, config.runs)  # alone: larger programs between them change what caches hold
        beside = interleaved({"plain": calls["plain"], **others}, max(1, config.runs // 4))
    ratios = {"probed": seconds["probed"] / seconds["plain"]} | {
        name: beside[name] / beside["plain"] for name in others
    }
    return {
        "plain_ms": float(np.median(seconds["plain"])) * 1e3,
        "ratios": {name: float(np.median(of)) for name, of in ratios.items()},
        "compilations": compilations.count,
    }


def measure_spectrum(name: str, config: Config) -> dict[str, float]:
    """Seconds of a spectrum and of its algebra alone, run in turn, and its errors in nats a step."""
    cell = CELLS[name](16, config.spectrum_units)
    params = cell.init(root_key(config.train.seed))
    inputs = jax.random.normal(root_key(config.train.seed + 1), (config.spectrum_steps, cell.input_size))
    size = sum(leaf.shape[-1] for leaf in cell.initial_carry(params))
    spectrum = functools.partial(probes.lyapunov_spectrum, cell, every=config.every)
    alone = functools.partial(_algebra, params["W_hh"], jnp.eye(size), config.spectrum_steps, config.every)
    seconds = interleaved({"ours": lambda: spectrum(params, inputs), "alone": alone}, SPECTRUM_RUNS)
    found = spectrum(params, inputs)
    with jax.enable_x64(True):
        wide = jax.tree.map(lambda leaf: leaf.astype("float64"), (params, inputs))
        exact = probes.lyapunov_spectrum(cell, *wide).exponents
    return {
        "seconds": float(np.median(seconds["ours"])),
        "alone_seconds": float(np.median(seconds["alone"])),
        "ratio": float(np.median(seconds["ours"] / seconds["alone"])),
        "error": float(np.max(found.error)),
        "difference": float(np.max(np.abs(np.asarray(found.exponents) - np.asarray(exact)))),
    }


@functools.partial(jax.jit, static_argnums=(2, 3))
def _algebra(W_hh, basis, steps, every):
    """Nothing but the products of a basis [S, S] with W_hh [H, gates H], and a decomposition after every `every`."""

    def stretch(basis, _):
        for _ in range(every):
            pushed = jnp.matmul(W_hh.T, basis[: W_hh.shape[0]])
            basis = jnp.concatenate([pushed[: len(basis)], basis[len(pushed) :]])
        return jnp.linalg.qr(basis)[0], None

    return jax.lax.scan(stretch, basis, length=steps // every)[0]


def _gates_of(loss):
    recorded = probes.recorded(loss)
    return lambda *given: probes.gate_statistics(recorded(*given))


OTHERS = {
    "input_gradients": probes.input_gradients,
    "weight_gradients_by_time": probes.weight_gradients_by_time,
    "gate_statistics": _gates_of,
}
"""Probes that are programs of their own, as functions of the loss."""


def judge(found: dict) -> list[Claim]:
    """The claims of the docstring."""
    ratio = float(np.median([row["ratios"]["probed"] for row in found["steps"]]))
    compilations = sum(row["compilations"] for row in found["steps"])
    return [
        Claim(
            "A training step that also gives the norms of dL/dcarry_t takes at most 5 % longer, median over the cells",
            "the backward pass holds dL/dcarry_t anyway",
            f"ratio <= {TARGET}",
            ratio,
            ratio <= TARGET,
        ),
        Claim(
            "Steps and probes after the first compile nothing",
            "jax.jit",
            "0 compilations",
            compilations,
            compilations == 0,
        ),
        Claim.at_most(
            "A Lyapunov spectrum takes at most 1.5 times its matmuls and decompositions alone, the worst cell",
            "docs: target",
            "ratio",
            SPECTRUM_TARGET,
            worst(row["ratio"] for row in found["spectra"]),
            "no spectrum was timed",
        ),
    ]


def show(workdir: pathlib.Path) -> None:
    """Writes report.md and prints the tables."""
    found = json.loads((workdir / "probe_cost.json").read_text(encoding="utf-8"))
    claims = json.loads((workdir / "claims.json").read_text(encoding="utf-8"))["claims"]
    header = ("cell", "ms a step", "with carry norms", *OTHERS)
    of_steps = [
        (row["cell"], row["plain_ms"], *(row["ratios"][name] for name in ("probed", *OTHERS))) for row in found["steps"]
    ]
    spectrum_header = ("cell", "seconds", "of its algebra", "standard error", "difference to float64")
    of_spectra = [
        (row["cell"], row["seconds"], row["ratio"], row["error"], row["difference"]) for row in found["spectra"]
    ]
    parts = [
        "# The cost of the probes",
        "In training steps: the step with the norms, and each other probe by itself.",
        tables.markdown_table(header, of_steps),
        "Lyapunov spectra, in times of their matmuls and decompositions alone; errors in nats a step.",
        tables.markdown_table(spectrum_header, of_spectra),
        "## Claims",
        tables.claims_table(claims),
    ]
    with replacing(workdir / "report.md") as path:
        path.write_text("\n\n".join(part.rstrip("\n") for part in parts) + "\n", encoding="utf-8")
    tables.console_table(header, of_steps, f"probes, in training steps on {jax.devices()[0]}")
    tables.console_table(spectrum_header, of_spectra, "Lyapunov spectra, in times of their algebra")
    print(f"{verdicts(claims)}; report: {workdir / 'report.md'}")


if __name__ == "__main__":
    cli.run(main, get_config, doc=__doc__, variants=VARIANTS)
