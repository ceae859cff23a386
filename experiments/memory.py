"""What memory and time a training step takes on long sequences.

Question: how do the memory and the time of a training step grow with the length of the sequence, and what does
    `unroll(..., chunk=n)` save and cost?
Source: the design's own targets; recomputation of Chen, Xu, Zhang, Guestrin 2016, arXiv:1604.06174.
Command: python -m experiments.memory --workdir=runs/memory
Expected: at 10,000 steps chunk takes at most a fifth of the temporary memory of plain lax.scan and at most 1.4 times
    its time; its time is linear in the number of steps up to 100,000, where a training step of batch 8 and 64 units
    fits into 8 GiB with chunk and without.
Runtime: quick, 1 minute on 2 cores; full, with the 100,000 steps, 10 minutes.

Memory is what XLA reserves for temporaries, read off the compiled step; inputs, targets and gradients come on top of
it, the same for all. Times are medians of interleaved runs.
"""

import dataclasses
import functools
import itertools
import json
import math
import pathlib
from collections.abc import Callable

import jax
import matplotlib
import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from experiments.common import alone
from experiments.common.claims import Claim, verdicts, worst, write_claims
from experiments.common.parts import Part, finish
from experiments.common.timing import describe, interleaved, machine
from experiments.peers import Size, Work, ours
from experiments.peers.base import plain_scan
from rnnjax.cells import CELLS
from rnnjax.report import save, tables
from rnnjax.report.style import INK, STYLE, cell_styles, frame
from rnnjax.train import cli
from rnnjax.train.build import check_cells
from rnnjax.train.config import UsageError, to_dict
from rnnjax.train.records import claim_workdir, replacing, write_json

VARIANTS = ("layers",)
TIMED = ("elman", "lstm", "gru")
SCAN_MOST = 10_000
"""Plain scan is not run on longer sequences: what it holds is what the study is about."""
SOURCE = "docs: target"
LIMIT = "what a small machine has: the design asks for it"
LINEAR = "linear time is a ratio of 1, and a quarter is left for caches; a quadratic term would show as 10"
LESS_MEMORY, MORE_TIME, GROWTH, ALONE_GIB = 0.2, 1.4, 1.25, 8.0
DASHES = {"plain scan": ":", "auto": "-", "chunk": (0, (5, 1.8))}
HEADER = ("cell", "steps", "method", "temporaries (MiB)", "of plain scan", "ms", "of plain scan's", "us a step")


@dataclasses.dataclass
class Config:
    """cells: the cells that are measured.
    batch: sequences.
    inputs: features of the inputs.
    hidden: units.
    steps: lengths of the sequences.
    chunk: steps between the carries that chunk keeps.
    rounds: timed runs of each method.
    alone_steps: length of a training step that is run in a process of its own, whose memory is read; 0 for none.
    """

    cells: tuple[str, ...] = dataclasses.field(default=TIMED, metadata={"choices": TIMED})
    batch: int = 8
    inputs: int = 16
    hidden: int = 64
    steps: tuple[int, ...] = (1000, 10000)
    chunk: int = 100  # the root of 10,000, where T / chunk + chunk is least
    rounds: int = 5
    alone_steps: int = 0


def get_config(variant: str, preset: str) -> Config:
    """Up to 10,000 steps, or to 100,000."""
    return Config() if preset == "quick" else Config(steps=(1000, 10000, 100000), alone_steps=100000)


def main(config: Config, workdir: pathlib.Path) -> None:
    """Measures what is not measured yet, and writes memory.json, claims.json, memory.png and report.md."""
    check(config)
    here = machine()
    claim_workdir(workdir, {"experiment": "memory", "config": to_dict(config), "machine": here})
    parts = [
        Part(f"{cell}-{steps}", functools.partial(measure, cell, steps, config), 1e4 + steps)
        for steps in config.steps
        for cell in config.cells
    ]
    parts += [
        Part(f"alone-{cell}", functools.partial(measure_alone, cell, config), 2 * config.alone_steps)
        for cell in config.cells[: len(config.cells) if config.alone_steps else 0]
    ]
    held = finish(parts, workdir / "parts")
    found = {"machine": here} | {
        kind: [row for part in held for row in part.get(kind, [])] for kind in ("rows", "alone")
    }
    write_json(workdir / "memory.json", found)
    write_claims(workdir / "claims.json", "memory", judge(found), sum(part["seconds"] for part in held))
    show(found, workdir)


def check(config: Config) -> None:
    """Raises UsageError for what can't be measured."""
    check_cells(config.cells)
    if not config.steps:
        raise UsageError("--config.steps is empty: expected some lengths, such as 1000,10000")
    for name in ("batch", "inputs", "hidden", "steps", "chunk", "rounds"):
        values = getattr(config, name)
        for value in values if isinstance(values, tuple) else (values,):
            if value < 1:
                raise UsageError(f"--config.{name} is {value}: expected at least 1")
    if config.alone_steps < 0:
        raise UsageError(f"--config.alone_steps is {config.alone_steps}: expected at least 1, or 0 for none")


def methods(cell, config: Config, steps: int) -> dict[str, Callable]:
    """{name: (params, inputs) -> outputs}: plain scan, the engine, and the engine with chunk."""
    ways = {
        "plain scan": functools.partial(plain_scan, cell),
        "auto": ours.outputs(cell),
        "chunk": ours.outputs(cell, chunk=config.chunk),
    }
    return ways if steps <= SCAN_MOST else {name: way for name, way in ways.items() if name != "plain scan"}


def measure(name: str, steps: int, config: Config) -> dict:
    """{"rows": bytes of temporaries and ms of a training step, a row a method}."""
    size = Size(steps, config.batch, config.inputs, config.hidden)
    cell = CELLS[name](config.inputs, config.hidden)
    work = Work.of(name, cell, size)
    compiled = {
        method: ours.compile_step(way, cell, steps, config.batch)
        for method, way in methods(cell, config, steps).items()
    }
    arguments = jax.device_put((work.params, work.inputs, work.targets))
    seconds = interleaved(
        {method: functools.partial(step, *arguments) for method, step in compiled.items()}, config.rounds
    )
    return {
        "rows": [
            {
                "cell": name,
                "steps": steps,
                "method": method,
                "temporary_bytes": step.memory_analysis().temp_size_in_bytes,
                "ms": float(np.median(seconds[method])) * 1e3,
            }
            for method, step in compiled.items()
        ]
    }


def measure_alone(name: str, config: Config) -> dict:
    """{"alone": seconds and peak bytes of a process that makes a training step, a row a method}."""
    size = str(Size(config.alone_steps, config.batch, config.inputs, config.hidden))
    ways = {"auto": None, "chunk": config.chunk}
    rows = [{"method": method, **alone.measure(name, size, chunk)} for method, chunk in ways.items()]
    return {"alone": [{"cell": name, "steps": config.alone_steps, **row} for row in rows]}


def judge(found: dict) -> list[Claim]:
    """The rules of the docstring."""
    rows = {(row["cell"], row["steps"], row["method"]): row for row in found["rows"]}
    cells = list(dict.fromkeys(row["cell"] for row in found["rows"]))
    steps = sorted({row["steps"] for row in found["rows"]})
    longest = max(length for length in steps if length <= SCAN_MOST) if steps[0] <= SCAN_MOST else None
    ratios = {"temporary_bytes": [], "ms": []}
    for quantity in ratios if longest else ():
        pairs = [[rows[cell, longest, method][quantity] for method in ("chunk", "plain scan")] for cell in cells]
        ratios[quantity] = [mine / theirs for mine, theirs in pairs]
    at = f"at {longest:,} steps" if longest else "at 10,000 steps"
    why = f"plain scan is run on up to {SCAN_MOST:,} steps only"
    texts = {quantity: f"{what} of a training step with chunk {at}, as a share of plain lax.scan's: the worst cell"
             for quantity, what in (("temporary_bytes", "Temporary memory"), ("ms", "Time"))}  # fmt: skip
    claims = [
        Claim.at_most(texts[quantity], SOURCE, "ratio", target, worst(ratios[quantity]), why)
        for quantity, target in (("temporary_bytes", LESS_MEMORY), ("ms", MORE_TIME))
    ]
    return [*claims, _linear(rows, cells, steps), _alone(found["alone"])]


def _linear(rows: dict, cells: list[str], steps: list[int]) -> Claim:
    """A term in the square of the length would show as the ratio of the lengths, which is 10 or more.

    With chunk, whose temporaries stay small: where they grow with the length, so does the share of page faults.
    """
    first, last = steps[0], steps[-1]
    text = f"Time a step with chunk at {last:,} steps, as a share of that at {first:,}: the worst cell"
    growth = None
    if first < last:
        growth = worst(
            rows[cell, last, "chunk"]["ms"] / rows[cell, first, "chunk"]["ms"] * first / last for cell in cells
        )
    return Claim.at_most(text, LINEAR, "ratio", GROWTH, growth, "one length was timed")


def _alone(rows: list[dict]) -> Claim:
    text = "A process that makes a training step"
    if not rows:
        return Claim.at_most(f"{text} of 100,000 steps holds", LIMIT, "GiB", ALONE_GIB, None, "the full preset runs it")
    peaks = [math.nan if row["peak_bytes"] is None else row["peak_bytes"] / 2**30 for row in rows]
    return Claim.at_most(
        f"{text} of {rows[0]['steps']:,} steps holds: the most of all", LIMIT, "GiB", ALONE_GIB, worst(peaks), ""
    )


def table(found: dict) -> list[tuple]:
    """A row a cell, length and method."""
    plain = {(row["cell"], row["steps"]): row for row in found["rows"] if row["method"] == "plain scan"}
    lines = []
    for row in found["rows"]:
        scan = plain.get((row["cell"], row["steps"]))
        shares = [scan and row[quantity] / scan[quantity] for quantity in ("temporary_bytes", "ms")]
        mib, us = row["temporary_bytes"] / 2**20, row["ms"] / row["steps"] * 1e3
        lines.append((row["cell"], row["steps"], row["method"], mib, shares[0], row["ms"], shares[1], us))
    return lines


def figure(found: dict) -> Figure:
    """Temporaries, and time a step, against the number of steps: a colour a cell, dashes a method."""
    cells = tuple(dict.fromkeys(row["cell"] for row in found["rows"]))
    colors = {cell: style.color for cell, style in cell_styles(cells).items()}
    quantities = {
        "temporary memory (MiB)": lambda row: row["temporary_bytes"] / 2**20,
        "time a step (us)": lambda row: row["ms"] / row["steps"] * 1e3,
    }
    with matplotlib.rc_context(STYLE):
        drawing = Figure(figsize=(9.0, 4.2), layout="constrained")
        for axes, (label, value) in zip(drawing.subplots(1, 2), quantities.items(), strict=True):
            for cell, method in itertools.product(cells, DASHES):
                rows = [row for row in found["rows"] if (row["cell"], row["method"]) == (cell, method)]
                axes.plot(
                    [row["steps"] for row in rows], [value(row) for row in rows], color=colors[cell],
                    linestyle=DASHES[method], marker="o", markersize=4,
                )  # fmt: skip
            axes.set_xscale("log")
            axes.set_title(label)
            axes.set_xlabel("steps of the sequence")
            axes.set_yscale("log") if "MiB" in label else axes.set_ylim(0)
        keys = [Line2D([], [], color=colors[cell], marker="o", markersize=4, label=cell) for cell in cells]
        keys += [Line2D([], [], color=INK, linestyle=dashes, label=name) for name, dashes in DASHES.items()]
        frame(drawing, "A training step on long sequences", [], keys)
    return drawing


def show(found: dict, workdir: pathlib.Path) -> None:
    """Writes the picture and report.md, and prints the table."""
    claims = json.loads((workdir / "claims.json").read_text(encoding="utf-8"))["claims"]
    save(figure(found), workdir / "memory")
    alone_rows = [
        (row["cell"], row["steps"], row["method"], row["peak_bytes"] and row["peak_bytes"] / 2**30, row["seconds"])
        for row in found["alone"]
    ]
    parts = [
        "# Memory of long sequences",
        f"{describe(found['machine'])}\n\n{verdicts(claims)}.",
        "![Temporaries and time a step against the number of steps](memory.png)",
        tables.markdown_table(HEADER, table(found)),
    ]
    if alone_rows:
        header = ("cell", "steps", "method", "most memory of the process (GiB)", "seconds a training step")
        parts += ["## In a process of its own", tables.markdown_table(header, alone_rows)]
    parts += ["## Claims", tables.claims_table(claims)]
    with replacing(workdir / "report.md") as path:
        path.write_text("\n\n".join(part.rstrip("\n") for part in parts) + "\n", encoding="utf-8")
    tables.console_table(HEADER, table(found), f"training step, on {found['machine']['devices']}")
    print(f"{verdicts(claims)}; report: {workdir / 'report.md'}")


if __name__ == "__main__":
    cli.run(main, get_config, doc=__doc__, variants=VARIANTS)
