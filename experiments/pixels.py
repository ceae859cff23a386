"""Digits read row by row and pixel by pixel.

Question: how much harder does it get to tell a digit when it is read in many small pieces, and which cell minds least?
Source: Le, Jaitly, Hinton 2015 (pixels of MNIST, IRNN); Arjovsky, Shah, Bengio 2016.
Command: python -m experiments.pixels --workdir=runs/pixels
Expected: by rows (8 steps) Elman, LSTM and GRU tell at least 95 % of the digits of 8 x 8; by pixels (64 steps) every
    cell tells fewer, LSTM and GRU at least 80 % and Jordan, which carries its ten outputs and nothing else, the fewest
    of the four. MNIST by rows: LSTM and GRU at least 94 %, of 8,000 training images.
Runtime: quick, under 2 minutes on 2 cores; digits:full, about 3 minutes; mnist:full, more than an hour.

The corpora are downloaded by `python -m rnnjax.data fetch digits` and `python -m rnnjax.data fetch mnist-t10k`.
--config.task.permuted=true has the pixels change places first. --probe shows how far back the gradient reaches.
"""

import dataclasses
import math
import pathlib
from typing import Any

import numpy as np
from flax import nnx

from experiments.common.claims import Claim
from experiments.common.study import (
    Entry,
    check_entries,
    check_own_rates,
    is_default,
    mean_sd,
    run_entries,
    told,
    values_of,
)
from experiments.common.study_report import Study, Table, write_study
from rnnjax.cell import Cell
from rnnjax.cells import CELLS
from rnnjax.report.scores import Score, score_points
from rnnjax.tasks import Images
from rnnjax.tasks.images import ORDERS
from rnnjax.train import cli
from rnnjax.train.build import cell_options, make_cell, make_model, make_task, task_options
from rnnjax.train.config import GradientConfig, ModelConfig, TrainConfig, UsageError, to_dict
from rnnjax.train.records import claim_workdir

VARIANTS = ("digits", "mnist")
IRNN = "irnn"
NAMES = (*CELLS, IRNN)


@dataclasses.dataclass
class Rates:
    """elman, irnn, jordan, lstm, gru, mgu, indrnn: the learning rate of a cell."""

    elman: float = 3e-3
    irnn: float = 5e-3
    jordan: float = 1e-2
    lstm: float = 1e-2
    gru: float = 1e-2
    mgu: float = 1e-2
    indrnn: float = 5e-3


@dataclasses.dataclass
class Config:
    """cells: what is compared; irnn is Elman with relu and a recurrent matrix that starts as the identity.
    orders: how images are read.
    seeds: how many are trained of each, from config.train.seed on.
    """

    task: Any
    cell_options: Any
    model: ModelConfig
    train: TrainConfig
    cells: tuple[str, ...] = dataclasses.field(
        default=("elman", IRNN, "jordan", "lstm", "gru"), metadata={"choices": NAMES}
    )
    orders: tuple[str, ...] = dataclasses.field(default=ORDERS, metadata={"choices": ORDERS})
    rates: Rates = dataclasses.field(default_factory=Rates)
    probe: GradientConfig = dataclasses.field(default_factory=GradientConfig)
    seeds: int = 1


def get_config(variant: str, preset: str) -> Config:
    """The config of a corpus: `quick`, or with three seeds, every cell on digits, and MNIST by pixels too."""
    quick, digits = preset == "quick", variant == "digits"
    training = TrainConfig(
        epochs=(20 if quick else 60) if digits else (4 if quick else 10),
        steps_per_call=34 if digits else 25,  # an epoch of digits, a fifth of one of MNIST
        batch_size=32 if digits else 64,
        schedule="cosine",
        clip_norm=1.0,
        eval_every=68 if digits else 125,
        eval_batch=359 if digits else 500,
        log_every=34 if digits else 125,
        seed=100,
    )
    config = Config(
        task_options("images", corpus=variant),
        cell_options(jordan={"feedback": "identity"}),  # a softmax of the outputs would not let much through
        ModelConfig(64),
        training,
        seeds=1 if quick else 3,
    )
    if digits and not quick:
        config.cells = NAMES
    if not digits and quick:
        config.orders = ("rows",)
    return config


def make_entries(config: Config) -> list[Entry]:
    """An entry for every cell and order of the config."""
    entries = []
    for order in config.orders:
        task = make_task(dataclasses.replace(config.task, order=order))[1]
        for name in config.cells:
            cell = _cell(name, config, task)
            training = dataclasses.replace(config.train, learning_rate=getattr(config.rates, name))

            def make(seed: int, cell=cell, task=task) -> nnx.Module:
                return make_model(cell, task, seed)

            entries.append(Entry(f"{name}-{order}", task, training, make, cell=name))
    return entries


def _cell(name: str, config: Config, task: Images) -> Cell:
    if name != IRNN:
        return make_cell(name, config, task)
    return dataclasses.replace(make_cell("elman", config, task), activation="relu", recurrent_init="identity")


def check(config: Config) -> None:
    """Raises UsageError for a config that can't be, without reading a corpus."""
    make_task(config.task)
    check_own_rates(config.train, "--config.rates.CELL")
    for name in ("cells", "orders"):
        values = getattr(config, name)
        if not values or len(set(values)) < len(values):
            raise UsageError(f"--config.{name} is {cli.show(values)}: expected one or more, each once")


def main(config: Config, workdir: pathlib.Path) -> None:
    """Trains every cell in every order and writes the report. What is finished in `workdir` is not done again."""
    check(config)
    entries = make_entries(config)
    check_entries(entries, config)
    for entry in entries:
        _ = entry.task.chance, entry.make_model(config.train.seed)  # what can't be is told before anything is written
    claim_workdir(workdir, {"experiment": "pixels", "config": to_dict(config)})
    summaries = run_entries(entries, workdir, config)
    claims = CLAIMS[config.task.corpus](summaries) if as_calibrated(config) else []
    write_study(workdir, report(config, entries[0].task, summaries, claims), summaries)


def as_calibrated(config: Config) -> bool:
    """Whether the claims were made for this config: a default one, whatever seeds, cells and orders."""
    return is_default(config, get_config, config.task.corpus, "cells", "orders", "task.path", "task.order")


def accuracy(summaries: dict[str, dict], order: str) -> dict[str, float]:
    """{cell: the mean over seeds, in percent of the test split} of those that were trained; nan where one diverged."""
    trained = {cell: summaries.get(f"{cell}-{order}") for cell in NAMES}
    return {cell: 100 * mean_sd(one, "accuracy")[0] for cell, one in trained.items() if one is not None}


def digits_claims(summaries: dict[str, dict]) -> list[Claim]:
    """Set after prototypes with other seeds, of which 359 images leave a standard error of 1 to 2.6 points."""
    rows, pixels = (accuracy(summaries, order) for order in ("rows", "pixels"))
    claims = []

    def least(text, source, expected, values, threshold):
        if values:
            worst = float(np.min(values))  # np.min, and not min: nan stays
            holds = worst > threshold if expected.startswith("> ") else worst >= threshold
            claims.append(Claim(text, source, expected, worst, holds))

    text = "By rows Elman, LSTM and GRU tell the digits (percent, the worst)"
    source = "a guard: own prototypes, other seeds, 97.5 to 99.4"
    least(text, source, ">= 95", [rows[cell] for cell in ("elman", "lstm", "gru") if cell in rows], 95)
    text = "Every cell loses when the same pixels come one at a time (points, the least)"
    source = "64 steps in place of 8; own prototypes, other seeds"
    least(text, source, "> 0", [rows[cell] - pixels[cell] for cell in rows if cell in pixels], 0)
    text = "By pixels the gated cells still tell most of them (percent, the worse)"
    source = "a guard: own prototypes, other seeds, 86 to 93"
    least(text, source, ">= 80", [pixels[cell] for cell in ("lstm", "gru") if cell in pixels], 80)
    if "jordan" in pixels:
        gaps = [pixels[cell] - pixels["jordan"] for cell in ("elman", "lstm", "gru") if cell in pixels]
        text = "By pixels Jordan, which carries its ten outputs and nothing else, is behind (points, to the next)"
        least(text, "a guard: own prototypes, other seeds, 58 to 63, the others 79 and more", ">= 10", gaps, 10)
    return claims


def mnist_claims(summaries: dict[str, dict]) -> list[Claim]:
    """Of the rows alone, set after prototypes with other seeds; of pixels no paper has what 8,000 images come to."""
    rows = accuracy(summaries, "rows")
    read = [rows[cell] for cell in ("lstm", "gru") if cell in rows]
    if not read:
        return []
    worst = float(np.min(read))
    text = "By rows LSTM and GRU tell the digits (percent, the worse)"
    source = "a guard: own prototypes, other seeds, 96.8 and 97.2 after 10 epochs"
    return [Claim(text, source, ">= 94", worst, worst >= 94)]


CLAIMS = {"digits": digits_claims, "mnist": mnist_claims}


def report(config: Config, task: Images, summaries: dict[str, dict], claims: list[Claim]) -> Study:
    """The table of cells and orders, and the picture."""
    rows = []
    for cell in config.cells:
        of = [summaries[f"{cell}-{order}"] for order in config.orders]
        rows.append((cell, *(told(one, "accuracy", 1, 100) for one in of), *(told(one, "loss", 3) for one in of)))
    header = ("cell", *(f"{order}, % right" for order in config.orders), *(f"{order}, loss" for order in config.orders))
    chance, count = 100 * task.chance_accuracy, len(task.examples["test"][1])
    sizes = ", ".join(f"{len(task.examples[split][1]):,} to {verb}" for split, verb in VERBS.items())
    figure = score_points(
        [Score(name, [100 * value for value in values_of(one, "accuracy")]) for name, one in summaries.items()],
        title=f"{TITLES[config.task.corpus]}, read in pieces",
        xlabel="percent of the test images told right",
        references={"chance": round(chance, 1)},
    )
    text = f"""
{TITLES[config.task.corpus]}{", its pixels permuted" if config.task.permuted else ""}: {sizes}. The commonest class is
right in {chance:.1f} % of the test images, and {task.chance:.3f} nats is the loss of the class frequencies. Parameters
are those with the lowest loss on the validation split. With {count:,} test images one accuracy of 90 % has a standard
error of {100 * math.sqrt(0.09 / count):.1f} points."""
    table = Table("Scores on the test split", header, rows, "Of several seeds: mean and standard deviation.")
    drawn = {"scores": (figure, "Percent of the test images told right, a dot a seed")}
    title = f"{TITLES[config.task.corpus]}, by {' and by '.join(config.orders)}"
    return Study("pixels", title, " ".join(text.split()), [table], drawn, claims)


TITLES = {"digits": "Digits", "mnist": "MNIST"}
VERBS = {"train": "train on", "valid": "validate on", "test": "test on"}


def run() -> None:
    """What the command line calls."""
    cli.run(main, get_config, doc=__doc__, variants=VARIANTS)


if __name__ == "__main__":
    run()
