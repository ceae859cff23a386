"""How long a recurrent layer takes, against the other libraries that have one.

Question: how fast are a training step and a forward pass of Elman, LSTM and GRU, against plain lax.scan, Flax, Equinox,
    Haiku, Keras and torch on the same machine?
Source: the design's own targets, from prototypes on two cores.
Command: python -m experiments.speed --workdir=runs/speed
Expected: a training step takes at most 0.62 of that of flax.linen.RNN in the geometric mean, and nowhere more than
    0.95; against torch 0.95 (LSTM), 0.42 (GRU) and 0.33 (Elman), with the batch over two devices 0.82, 0.35 and 0.31;
    the forward pass is nowhere slower than Flax's; a cell without a backward of its own is within 1.05 of plain
    lax.scan; compiling takes no longer for a longer sequence.
Runtime: quick, two small sizes, 2 minutes on 2 cores; full, the five sizes that the targets are of, 20 minutes.

Peers that are not installed are named and left out: `pip install -e '.[peers]'` brings them. All of a point, a cell
in a size, is timed in one interleaved run, and a point is what a run that was interrupted keeps: it goes on with the
next one, on the same machine and versions only.
"""

import contextlib
import dataclasses
import functools
import itertools
import json
import pathlib
import time

import jax
import numpy as np

from experiments.common import speed_report
from experiments.common.claims import verdicts, write_claims
from experiments.common.parts import Part, finish
from experiments.common.speed_claims import judge, over
from experiments.common.speed_report import FLOOR, PASSES
from experiments.common.timing import interleaved, machine
from experiments.common.user_cells import USER_CELLS
from experiments.peers import PEERS, Peer, Runner, Size, Work, check_same, find, ours
from rnnjax.cells import CELLS
from rnnjax.report import save, tables
from rnnjax.train import cli
from rnnjax.train.build import check_cells
from rnnjax.train.config import UsageError, to_dict
from rnnjax.train.devices import use_devices
from rnnjax.train.records import claim_workdir, replacing, write_json

VARIANTS = ("layers",)
TIMED = ("elman", "lstm", "gru")
SMALL = ("100x20x10x50", "100x32x64x128")
LARGE = ("200x64x128x256", "1000x32x64x128", "50x128x64x512")
POINT_SECONDS = 3.0
"""A point of short runs is timed for so long: medians of more rounds, where a run is a millisecond."""
USER_SIZE, COMPILED = Size(100, 32, 64, 128), Size(0, 20, 10, 50)


@dataclasses.dataclass
class Config:
    """cells: the cells that are timed.
    sizes: steps x batch x features x units of each point, as in 100x20x10x50.
    peers: the libraries that ours is compared with, where they are installed.
    rounds: runs of each peer and pass at a point, at least.
    devices: over how many devices a column of its own splits the batch; 1 leaves it out.
    compile_steps: lengths of the sequences whose training step's compilation is timed.
    """

    cells: tuple[str, ...] = dataclasses.field(default=TIMED, metadata={"choices": TIMED})
    sizes: tuple[str, ...] = SMALL
    peers: tuple[str, ...] = dataclasses.field(default=tuple(PEERS), metadata={"choices": PEERS})
    rounds: int = 15  # medians are then steady to about 5 % where the machine is quiet
    devices: int = 2  # both cores of a small machine
    compile_steps: tuple[int, ...] = (100, 1000, 10000)


def get_config(variant: str, preset: str) -> Config:
    """Two small sizes, or the five that the targets are of."""
    return Config() if preset == "quick" else Config(sizes=SMALL + LARGE, rounds=25)


def main(config: Config, workdir: pathlib.Path) -> None:
    """Times what is not timed yet, and writes speed.json, claims.json, ratios.png and report.md."""
    sizes = check(config)
    with contextlib.suppress(UsageError):  # fewer are there: the column is left out, and said to be
        use_devices(config.devices)
    there, missing = find(config.peers)
    here = machine(tuple(peer.package for peer in there.values()))
    claim_workdir(workdir, {"experiment": "speed", "config": to_dict(config), "machine": here})
    parts = [
        Part(f"{name}-{size}", functools.partial(time_point, name, size, config, there), weight(size, config))
        for size in sizes
        for name in config.cells
    ]
    parts.append(Part("user_cells", functools.partial(time_user_cells, config)))
    parts.append(Part("compile", functools.partial(time_compiling, config), 2))
    *points, others, compiled = finish(parts, workdir / "parts")
    found = {
        "machine": here,
        "rows": [row for point in points for row in point["rows"]],
        "other_cells": others["rows"],
        "compile": compiled["rows"],
        "left_out": [lost(name, why) for name, why in missing.items()]
        + [row for point in points for row in point["left_out"]],
    }
    seconds = sum(part["seconds"] for part in (*points, others, compiled))
    write_json(workdir / "speed.json", found)
    write_claims(workdir / "claims.json", "speed", judge(found), seconds)
    show(found, workdir)


def check(config: Config) -> list[Size]:
    """The sizes. Raises UsageError for what can't be timed."""
    check_cells(config.cells)
    if not config.sizes:
        raise UsageError("--config.sizes is empty: expected some, such as 100x20x10x50")
    for name in ("rounds", "devices"):
        if getattr(config, name) < 1:
            raise UsageError(f"--config.{name} is {getattr(config, name)}: expected at least 1")
    for steps in config.compile_steps:
        if steps < 1:
            raise UsageError(f"--config.compile_steps has {steps}: expected at least 1")
    sizes = [Size.of(text) for text in dict.fromkeys(config.sizes)]
    for size in sizes:
        if size.batch % config.devices:
            raise UsageError(f"the batch of {size} is no multiple of --config.devices ({config.devices})")
    return sizes


def weight(size: Size, config: Config) -> float:
    """How long a point takes: to compile, about the same for all, and to run."""
    return 1 + config.rounds * size.time * size.batch * size.hidden * (size.inputs + size.hidden) / 1e10


def time_point(name: str, size: Size, config: Config, there: dict[str, Peer]) -> dict:
    """{"rows": a row a peer and pass, "left_out": the peers that could not be timed, and why}."""
    work = Work.of(name, CELLS[name](size.inputs, size.hidden), size)
    runners, left_out = prepare(work, size, config, there)
    functions = {(peer, kind): getattr(runner, kind) for kind in PASSES for peer, runner in runners.items()}
    seconds = interleaved(functions, config.rounds, POINT_SECONDS)
    ms = {key: float(np.median(taken)) * 1e3 for key, taken in seconds.items()}
    rows = [
        {"cell": name, "size": str(size), "pass": kind, "peer": peer, "ms": ms[peer, kind],
         "ours_ms": ms["ours", kind], "ratio": ms["ours", kind] / ms[peer, kind]}
        for peer, kind in ms
    ]  # fmt: skip
    return {"rows": rows, "left_out": left_out}


def prepare(work: Work, size: Size, config: Config, there: dict[str, Peer]) -> tuple[dict[str, Runner], list[dict]]:
    """({column: what runs it}, what is left out): every column but the floor computes the same, which is checked."""
    runners = {"ours": ours.engine(work), "plain scan": ours.scan(work)}
    left_out = []
    if 1 < config.devices <= len(jax.devices()):
        runners[over(config.devices)] = ours.over_devices(work, config.devices)
    elif config.devices > 1:
        left_out.append(lost(over(config.devices), f"JAX sees {len(jax.devices())} device", work.name, size))
    for runner in runners.values():
        check_same(runner, work, {})
    for name, peer in there.items():
        if work.name not in peer.cells:
            continue
        try:
            make, variants = peer.load()
            runner = make(work)
            check_same(runner, work, variants.get(work.name, {}))
            runners[name] = runner
        except Exception as error:  # whatever a version of another library does is not the end of the study
            left_out.append(lost(name, str(error).partition("\n")[0] or type(error).__name__, work.name, size))
    return runners | {FLOOR: ours.matmuls(work)}, left_out


def lost(peer: str, why: str, cell: str | None = None, size: Size | None = None) -> dict:
    """A peer that was not timed: at a point or, with no cell and size, at all."""
    return {"peer": peer, "cell": cell, "size": size and str(size), "why": why}


def time_user_cells(config: Config) -> dict:
    """{"rows": a training step of cells that JAX differentiates, against plain scan}."""
    rows = []
    for name, cls in USER_CELLS.items():
        work = Work.of(name, cls(USER_SIZE.inputs, USER_SIZE.hidden), USER_SIZE)
        functions = {"ours": ours.engine(work).train, "scan": ours.scan(work).train}
        seconds = interleaved(functions, 4 * config.rounds)
        mine, scan = (float(np.median(taken)) * 1e3 for taken in seconds.values())
        ratio = float(np.median(seconds["ours"] / seconds["scan"]))  # of pairs, which a slow phase hits alike
        rows.append({"cell": name, "size": str(USER_SIZE), "ms": mine, "scan_ms": scan, "ratio": ratio})
    return {"rows": rows}


def time_compiling(config: Config) -> dict:
    """{"rows": seconds that lowering and compiling a training step takes, the less of two, a row a cell and length}."""
    seconds = {}
    for _, name, steps in itertools.product(range(2), config.cells, config.compile_steps):
        started = time.perf_counter()
        cell = CELLS[name](COMPILED.inputs, COMPILED.hidden)
        ours.compile_step(ours.outputs(cell), cell, steps, COMPILED.batch)
        taken = time.perf_counter() - started
        seconds[name, steps] = min(taken, seconds.get((name, steps), taken))
    return {"rows": [{"cell": cell, "time": steps, "seconds": taken} for (cell, steps), taken in seconds.items()]}


def show(found: dict, workdir: pathlib.Path) -> None:
    """Writes the picture and report.md, and prints the tables."""
    claims = json.loads((workdir / "claims.json").read_text(encoding="utf-8"))["claims"]
    save(speed_report.figure(found), workdir / "ratios")
    with replacing(workdir / "report.md") as path:
        path.write_text(speed_report.text(found, claims), encoding="utf-8")
    for kind, title in PASSES.items():
        title = f"{title}: our time over each peer's, on {found['machine']['devices']}"
        tables.console_table(speed_report.header(found), speed_report.rows(found, kind), title)
    for row in found["left_out"]:
        print(f"not timed: {' '.join(filter(None, (row['peer'], row['cell'], row['size'])))}: {row['why']}")
    print(f"{verdicts(claims)}; report: {workdir / 'report.md'}")


if __name__ == "__main__":
    cli.run(main, get_config, doc=__doc__, variants=VARIANTS)
