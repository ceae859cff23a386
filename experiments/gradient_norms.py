"""How dL/dh_t vanishes or survives through time, before and during training.

Question: over how many steps does the gradient of the loss reach back in Elman, Jordan, LSTM and GRU, at
    initialisation and after training, and what does training do to it?
Source: Bengio, Simard, Frasconi 1994; Hochreiter, Schmidhuber 1997; Pascanu, Mikolov, Bengio 2013; Jozefowicz,
    Zaremba, Sutskever 2015.
Command: python -m experiments.gradient_norms --workdir=runs/gradient_norms
Expected: within a few steps of the loss dL/dcarry_t of Elman and Jordan falls by orders of magnitude; that of LSTM
    (forget bias 1) and GRU is carried farther, and after training over the whole sequence, where they solve the
    adding problem and the others don't within the budget. The laws behind it hold to the digits in claims.json.
Runtime: quick, under 2 minutes on 2 cores; full, about half an hour.
"""

import dataclasses
import json
import pathlib
import sys
import time

import jax
import numpy as np

from experiments.common.claims import write_claims
from experiments.common.curves import QUANTILES, VISIBLE, Curve, quartiles
from experiments.common.laws import gradient_laws
from experiments.common.outcomes import adding_claims
from experiments.common.replicas import best_scores, pooled, typical
from rnnjax.cell import Cell
from rnnjax.cells import CELLS
from rnnjax.report import figures, run_files, tables
from rnnjax.tasks import Batch, CorpusTask, Task
from rnnjax.train import cli
from rnnjax.train.budget import in_windows, with_steps
from rnnjax.train.build import (
    cell_options,
    check_cells,
    make_cell,
    make_model,
    make_task,
    parameter_count,
    task_options,
)
from rnnjax.train.config import (
    HOW,
    ModelConfig,
    ReplicasConfig,
    TrainConfig,
    UsageError,
    differences,
    to_dict,
    validate,
)
from rnnjax.train.loop import NonFiniteError, train
from rnnjax.train.probes import GradientNorms, log_spaced_steps
from rnnjax.train.records import claim_workdir, replacing, write_json
from rnnjax.train.replicas import check_replicas, make_replicas
from rnnjax.train.step import PROBE, root_key, stream
from rnnjax.train.sweep import chain, product, sweep

VARIANTS = ("adding", "copying", "temporal_order", "latch", "music")
SWEEPS = ("ablation",)


@dataclasses.dataclass
class ProbeConfig:
    """points: at how many steps of training the gradient is probed, evenly spaced in log, beside step 0.
    batch: examples whose gradients are taken.
    """

    points: int = 12  # rows of the heatmap
    batch: int = 64  # enough for quartiles that do not jump


@dataclasses.dataclass
class Config:
    """cells: the cells that are compared."""

    task: object
    cell_options: object
    model: ModelConfig
    train: TrainConfig
    probe: ProbeConfig = dataclasses.field(default_factory=ProbeConfig)
    replicas: ReplicasConfig = dataclasses.field(default_factory=ReplicasConfig)
    cells: tuple[str, ...] = dataclasses.field(default=("elman", "jordan", "lstm", "gru"), metadata={"choices": CELLS})


def get_config(variant: str, preset: str) -> Config:
    """The config of a task, `quick` or at the scale of the papers."""
    quick = preset == "quick"
    chosen = {
        "adding": ({"length": 100 if quick else 200}, 32 if quick else 100, 1500 if quick else 10000),
        "copying": ({"delay": 50 if quick else 100}, 64 if quick else 128, 1000 if quick else 10000),
        "temporal_order": (
            {"min_length": 50, "max_length": 50 if quick else 100},
            32 if quick else 100,
            1500 if quick else 20000,
        ),
        "latch": ({"length": 50 if quick else 200}, 32 if quick else 100, 1000 if quick else 10000),
        "music": ({}, 100, 31 * 50),
    }
    task, hidden_size, steps = chosen[variant]
    options = task_options(variant, **task)
    per_cell = {"jordan": {"feedback": make_task(options)[1].link}}
    training = TrainConfig(
        steps=steps,
        steps_per_call=25,
        batch_size=64,
        learning_rate=3e-3,  # the adding problem's: Elman, GRU and LSTM are stable there
        clip_norm=1.0,
        eval_every=250,
        eval_batch=1000,
        log_every=25,
    )
    if variant == "music":  # the sizes of Chung et al. 2014, which give the four about as many parameters
        for name, size in {"jordan": 100, "gru": 46, "lstm": 36}.items():
            per_cell.setdefault(name, {})["hidden_size"] = size
        training = dataclasses.replace(
            training,
            steps_per_call=31,  # an epoch of JSB in batches of 8
            batch_size=8,
            learning_rate=6e-3,
            schedule="cosine",
            eval_every=31,
            eval_batch=77,
            log_every=31,
        )
    return Config(options, cell_options(**per_cell), ModelConfig(hidden_size), training)


def get_sweep(name: str) -> list[dict]:
    """The LSTM as it is, and with one part left out or added at a time (Greff et al. 2017)."""
    del name  # there is but one
    parts = {
        "input_gate": False,
        "forget_gate": False,
        "output_gate": False,
        "input_activation": "identity",
        "output_activation": "identity",
        "coupled": True,
        "peepholes": True,
        "gate_recurrence": True,
    }
    changed = [sweep(f"cell_options.lstm.{field}", [value]) for field, value in parts.items()]
    return product(sweep("cells", [("lstm",)]), chain([{}], *changed))


def check(config: Config) -> tuple[str, Task, dict[str, Cell]]:
    """(name of the task, task, cells) of a config. Raises UsageError for one that can't be."""
    check_cells(config.cells)
    validate(config.train)
    for name in ("points", "batch"):
        if getattr(config.probe, name) < 1:
            raise UsageError(f"--config.probe.{name} is {getattr(config.probe, name)}: expected at least 1")
    task_name, task = make_task(config.task)
    every = {name: make_cell(name, config, task) for name in (*config.cells, *CELLS)}  # all are checked
    cells = {name: every[name] for name in config.cells}
    for cell in cells.values():
        check_replicas(cell, config.train, config.replicas)
    trained_on(task, config)
    given = config.train.init_from
    if given and not cli.folder("init_from", given).is_dir():
        raise UsageError(f"--init_from is {given}: there is no such folder")
    return task_name, task, cells


def trained_on(task: Task, config: Config) -> TrainConfig:
    """config.train with its budget in steps."""
    seeds = range(config.train.seed, config.train.seed + config.replicas.seeds)
    return with_steps(in_windows(task, config.train), config.train, seeds)


def main(config: Config, workdir: pathlib.Path) -> None:
    """Trains every cell, checks the laws, and writes the report. What is finished in `workdir` is not done again."""
    task_name, task, cells = check(config)
    asked = to_dict(config)
    config.train = trained_on(task, config)
    chance = task.chance  # reads a corpus, before anything is written
    claim_workdir(workdir, {"experiment": "gradient_norms", "task": task_name, "config": asked})
    probed = probed_batch(task, config)
    for name, cell in cells.items():
        if all((workdir / name / file).exists() for file in ("summary.json", "norms.npz")):
            say(f"{name}: finished before")
        else:
            run_cell(name, cell, task, probed, config, workdir / name)
    gather_norms(workdir, config.cells)
    summary = {"task": task_name, "chance": chance, "unit": task.unit, "reads_last": task.reads_last}
    write_json(workdir / "summary.json", summary)
    if not (workdir / "claims.json").exists():
        say("checking the claims")
        started = time.monotonic()
        claims = [*gradient_laws(), *(adding_claims(run_files.read_run(workdir)) if as_calibrated(config) else [])]
        write_claims(workdir / "claims.json", "gradient_norms", claims, time.monotonic() - started)
    say("drawing")
    run = run_files.read_run(workdir)
    write_report(run)
    title = f"{task_name}: log10 ||dL/dcarry_t|| a step back from the loss; chance {chance:.4g} {task.unit}"
    tables.console_table(HEADER, table_rows(run), title)
    held = sum(claim["holds"] for claim in run.claims["claims"])
    print(f"{held} of {len(run.claims['claims'])} claims hold; report: {workdir / 'report.md'}")


def as_calibrated(config: Config) -> bool:
    """Whether the claims about the adding problem were made for this config: the default but for seeds and budget."""
    free = (*HOW, "train.steps", "train.seed", "replicas.seeds", "probe.points", "probe.batch", "cells")
    default = get_config("adding", "quick")
    changed = [field for field, *_ in differences(to_dict(default), to_dict(config))]
    return all(any(f"{field}.".startswith(f"{one}.") for one in free) for field in changed)


def say(what: str) -> None:
    """A line of progress."""
    print(what, file=sys.stderr, flush=True)


def probed_batch(task: Task, config: Config) -> Batch:
    """The batch whose gradients are probed: the same for every cell and at every step."""
    if isinstance(task, CorpusTask):
        batch = max(task.batches("valid", config.probe.batch), key=lambda batch: (batch.lengths > 0).sum())
        return jax.tree.map(jax.numpy.asarray, batch)
    return task.sample(stream(root_key(config.train.seed), PROBE), config.probe.batch)


def run_cell(name: str, cell: Cell, task: Task, probed: Batch, config: Config, folder: pathlib.Path) -> None:
    """Trains one cell and writes norms.npz and, last, summary.json, which says that the cell is finished."""
    steps = log_spaced_steps(config.train.steps, config.train.steps_per_call, config.probe.points)
    probe = GradientNorms(task, probed, steps)
    replicas = make_replicas(lambda cell, seed: make_model(cell, task, seed), cell, config.train, config.replicas)
    started = time.monotonic()
    try:
        trained = train(replicas, task, config.train, folder, probes=[probe], name=name)
        ended = [(one.stopped, one.diverged) for one in trained]
    except NonFiniteError as error:  # a result of the study, and not its end
        ended = [(str(error), True)]
    diverged = np.array([wild for _, wild in ended])
    kept = slice(None) if diverged.all() else ~diverged
    curves = [
        {field: quartiles(pooled(norms, kept)) for field, norms in row.items()}
        for (row,) in map(dict.values, probe.rows)
    ]
    with replacing(folder / "norms.npz") as path:
        np.savez(path, step=probe.measured, **{field: np.stack([row[field] for row in curves]) for field in curves[0]})
    rows = run_files.read_rows(folder / "metrics.jsonl")
    scores = [best_scores(rows, number) for number in range(len(replicas))]
    best = typical([score for score, wild in zip(scores, diverged, strict=True) if not wild or len(scores) == 1])
    summary = {
        "cell": name,
        "description": repr(cell),
        "parameters": parameter_count(replicas[0].model),
        "loss": best.pop("loss", None),
        "metrics": best,
        "diverged": ended[0][0] if diverged.all() else None,
        "replicas": [
            {"label": one.label, "stopped": why, "diverged": wild, **score}
            for one, (why, wild), score in zip(replicas, ended, scores, strict=True)
        ],
        "seconds": round(time.monotonic() - started, 1),
    }
    write_json(folder / "summary.json", summary)


def gather_norms(workdir: pathlib.Path, cells: tuple[str, ...]) -> None:
    """Writes gradient_norms.npz: `CELL.FIELD` [step, distance, quantile] of log10 norms, and the axes' values."""
    arrays, axes = {}, {}
    for cell in cells:
        with np.load(workdir / cell / "norms.npz") as norms:
            for field, values in norms.items():
                arrays[f"{cell}.{field}"] = values
                axes[f"{cell}.{field}"] = ["step"] if field == "step" else ["step", "distance", "quantile"]
    length = max(values.shape[1] for values in arrays.values() if values.ndim == 3)
    arrays |= {"distance": np.arange(length), "quantile": np.array(QUANTILES)}
    axes |= {"distance": ["distance"], "quantile": ["quantile"]}
    with replacing(workdir / "gradient_norms.npz") as path:
        np.savez(path, axes=np.array(json.dumps(axes)), **arrays)


HEADER = ("cell", "parameters", "loss", "slope at start", "slope at end", "half-life at end", "verdict, start -> end")


def table_rows(run: run_files.Run) -> list[tuple[str, ...]]:
    """One row a cell: slopes in log10 a step back in time, half-life in steps."""
    rows = []
    for cell in run.cells:
        summary, medians = run.summaries[cell], run.norms[cell]["carry"][..., QUANTILES.index(0.5)]
        start, end = Curve.of(medians[0]), Curve.of(medians[-1])
        loss = "-" if summary["loss"] is None else f"{summary['loss']:.4g}"
        wild = sum(one["diverged"] for one in summary["replicas"])
        losses = [one["loss"] for one in summary["replicas"] if one.get("loss") is not None and not one["diverged"]]
        if len(losses) > 1:
            loss += f" ({min(losses):.4g} to {max(losses):.4g})"
        verdict = f"{start.verdict} -> {end.verdict}"
        if summary["diverged"]:
            verdict = f"{start.verdict}; diverged at {summary['diverged'].partition(':')[0]}"
        elif wild:
            verdict += f"; {wild} of {len(summary['replicas'])} diverged"
        slopes = (f"{round(curve.slope_log10, 4) + 0.0:+.4f}" for curve in (start, end))
        half_life = "over 10,000 steps" if end.half_life > 1e4 else f"{end.half_life:.1f} steps"
        rows.append((cell, f"{summary['parameters']:,}", loss, *slopes, half_life, verdict))
    return rows


def write_report(run: run_files.Run) -> None:
    """The figures and report.md."""
    drawn = {"curves": figures.curves(run), "heatmaps": figures.heatmaps(run), "losses": figures.losses(run)}
    for name, figure in drawn.items():
        figures.save(figure, run.workdir / name)
    claims = run.claims["claims"]
    ran = [(cell, summary["description"], summary["seconds"]) for cell, summary in run.summaries.items()]
    replicas = [
        (cell, one["label"], one.get("loss"), one["stopped"] or "")
        for cell, summary in run.summaries.items()
        for one in summary["replicas"]
        if one["label"]
    ]
    of_replicas = f"""
## Replicas

{tables.markdown_table(("cell", "replica", "loss", "stopped before its end"), replicas)}"""
    text = f"""# The gradient through time: {run.task["task"]}

{sum(claim["holds"] for claim in claims)} of {len(claims)} claims hold. Loss in {run.task["unit"]}, on the test set;
where there is a validation set, at the step that was best on it. The best guess that has seen no input, but knows the
task and the place in the sequence, scores {run.task["chance"]:.4g}. Of several replicas, the loss is the median one
and the least and the largest, and the norms are those of the examples of all, without those that diverged.

![dL/dcarry_t against distance from the loss](curves.png)

{tables.markdown_table(HEADER, table_rows(run))}

Slopes are those of log10 ||dL/dcarry_t|| a step back from the loss (times {np.log(10):.4f} for nats a step), fitted to
the median over examples. A verdict compares the far end of the sequence with the loss's own step: *survives*, a tenth
of the gradient or more is left; *fades*, less; *vanishes*, less than the share of {10**VISIBLE:.1e} that float32
resolves beside the last step's in dL/dW; *explodes*, more than ten times as much. The loss probed is that of each
example's last step.

![Training step against distance](heatmaps.png)

![Losses](losses.png)

## Claims

{tables.claims_table(claims)}

## What ran

{tables.markdown_table(("cell", "definition", "seconds"), ran)}{of_replicas if len(replicas) > len(ran) else ""}

The arrays behind the pictures are in gradient_norms.npz, every setting and version in config.json.
"""
    with replacing(run.workdir / "report.md") as path:
        path.write_text(text, encoding="utf-8")


def run() -> None:
    """What the command line calls; a script that has put its own cell into CELLS may call it too."""
    cli.run(main, get_config, doc=__doc__, variants=VARIANTS)


if __name__ == "__main__":
    run()
