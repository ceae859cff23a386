"""Copying symbols over a delay: an orthogonal recurrent matrix against gates, at one small budget.

Question: which networks carry ten symbols over a delay within a few hundred updates, and is it the orthogonal matrix,
    the linearity or the gates that does it?
Source: Hochreiter, Schmidhuber 1997; Arjovsky, Shah, Bengio 2016, section 5.1; Henaff, Szlam, LeCun 2016.
Command: python -m experiments.copying --workdir=runs/copying
Expected: after 500 updates at a delay of 50, a linear and a modReLU network that start orthogonal are below a fifth of
    the loss of a guess without memory, 10 ln 8 / 70; tanh, which starts orthogonal too, LSTM and GRU are still above
    nine tenths of it, and a linear network with a Gaussian matrix has three times the loss of the orthogonal one. At a
    delay of 100 (full) the orthogonal ones are below 0.3 of the guess.
Runtime: quick, about 45 seconds on 2 cores; full, about 15 minutes.

Slow is not unable: GRU and LSTM leave the plateau later, and the full preset has a row of a GRU that is given more.
With b = 0, as it starts, modReLU is the identity, so that it says nothing yet of networks that are not linear.
"""

import dataclasses
import functools
import math
import pathlib

import jax
import jax.numpy as jnp
import matplotlib
import numpy as np
from matplotlib.figure import Figure

from experiments.common.claims import Claim
from experiments.common.curves import QUANTILES, Curve
from experiments.common.side_by_side import WORKERS
from experiments.common.study import Entry, check_entries, is_default, run_entries, told, unclaimed, values_of
from experiments.common.study_report import Study, Table, write_study
from experiments.common.untrained import line_keys
from rnnjax.cell import Cell
from rnnjax.cells import GRU, LSTM, Elman
from rnnjax.report import run_files
from rnnjax.report.figures import WIDTH
from rnnjax.report.style import FAINT, STYLE, cell_styles, frame
from rnnjax.tasks import Copying, reduce_mean
from rnnjax.train import cli
from rnnjax.train.build import make_model
from rnnjax.train.config import GradientConfig, ModelConfig, TrainConfig, UsageError, to_dict
from rnnjax.train.records import claim_workdir
from rnnjax.train.step import root_key

VARIANTS = ("adam",)
LINEAR, MODRELU, GAUSSIAN = "linear", "modrelu", "linear-gaussian"
CELLS = {
    LINEAR: functools.partial(Elman, activation="identity"),
    MODRELU: functools.partial(Elman, activation="modrelu"),
    GAUSSIAN: functools.partial(Elman, activation="identity", recurrent_init="scaled_normal"),
    "elman": Elman,  # tanh, and orthogonal as all recurrent matrices but the Gaussian one
    "lstm": LSTM,
    "gru": GRU,
}
MODELS = tuple(CELLS)
ORTHOGONAL, SLOW = (LINEAR, MODRELU), ("elman", "lstm", "gru")
LONGER = "gru-longer"
PROBED, FAR = 50, 100
"""Delays: that of most claims, whose gradients are measured, and the one of the full preset."""
LAST = 50
"""Updates over whose logged batches, every tenth, the loss at the end is averaged. All sequences are drawn anew."""
ARJOVSKY = "Arjovsky, Shah, Bengio 2016, section 5.1"
PROTOTYPES = "own prototypes, other seeds"


@dataclasses.dataclass
class LongerConfig:
    """steps: updates of a GRU that is given more of them, 0 for no such row.
    learning_rate: its step size.
    """

    steps: int = 0
    learning_rate: float = 3e-3


@dataclasses.dataclass
class Config:
    """models: what is compared; elman is the tanh network.
    delays: T of the sequences of T + 20 steps.
    seeds: how many are trained of each, from config.train.seed on.
    """

    model: ModelConfig
    train: TrainConfig
    longer: LongerConfig
    models: tuple[str, ...] = dataclasses.field(default=MODELS, metadata={"choices": MODELS})
    delays: tuple[int, ...] = (PROBED,)
    probe: GradientConfig = dataclasses.field(default_factory=lambda: GradientConfig(on=True))
    seeds: int = 3


def get_config(variant: str, preset: str) -> Config:
    """The config: `quick`, or both delays, more seeds and a GRU that is given more."""
    del variant  # there is but one
    training = TrainConfig(steps=500, steps_per_call=10, eval_every=250, eval_batch=500, log_every=10, seed=7100)
    config = Config(ModelConfig(128), training, LongerConfig())
    if preset == "full":
        config.delays, config.seeds, config.longer.steps = (PROBED, FAR), 5, 3000
    return config


def check(config: Config) -> list[Entry]:
    """The entries. Raises UsageError for a config that can't be."""
    for name in ("models", "delays"):
        values = getattr(config, name)
        if not values or len(set(values)) < len(values):
            raise UsageError(f"--config.{name} is {cli.show(values)}: expected one or more, each once")
    for delay in config.delays:
        if delay < 1:
            raise UsageError(f"--config.delays has {delay}: expected at least 1")
    if config.model.hidden_size < 1:
        raise UsageError(f"--config.model.hidden_size is {config.model.hidden_size}: expected at least 1")
    longer = config.longer
    if longer.steps < 0 or longer.steps % config.train.steps_per_call:
        expected = f"a multiple of steps_per_call ({config.train.steps_per_call}), or 0"
        raise UsageError(f"--config.longer.steps is {longer.steps}: expected {expected}")
    if not 0 < longer.learning_rate < math.inf:
        raise UsageError(f"--config.longer.learning_rate is {longer.learning_rate}: expected a number above 0")
    entries = make_entries(config)
    check_entries(entries, config)
    return entries


def make_entries(config: Config) -> list[Entry]:
    """An entry for every model and delay, and the GRU that is given more; gradients are taken at the first delay."""
    entries = []
    for delay in config.delays:
        task = Copying(delay=delay)
        for name in config.models:
            entries.append(_entry(f"{name}-{delay}", name, task, config.train, config, delay == config.delays[0]))
    if config.longer.steps:
        training = dataclasses.replace(config.train, **dataclasses.asdict(config.longer))
        entries.append(_entry(LONGER, "gru", Copying(delay=config.delays[0]), training, config, False))
    return entries


def _entry(name: str, model: str, task: Copying, training: TrainConfig, config: Config, probed: bool) -> Entry:
    cell: Cell = CELLS[model](task.input_size, config.model.hidden_size)
    return Entry(name, task, training, functools.partial(make_model, cell, task), cell=model if probed else "")


def main(config: Config, workdir: pathlib.Path) -> None:
    """Trains every network and writes the report. What is finished in `workdir` is not done again."""
    entries = check(config)
    claim_workdir(workdir, {"experiment": "copying", "config": to_dict(config)})
    summaries = run_entries(entries, workdir, config, WORKERS)
    found = {name: {**summary, **measured(workdir / name)} for name, summary in summaries.items()}
    default = is_default(config, get_config, VARIANTS[0])
    study = report(config, found, claims(config, found) if default else [])
    write_study(workdir, study if default else unclaimed(study), summaries)


def measured(folder: pathlib.Path) -> dict:
    """What is read off a training besides its scores.

    losses: [seed, row] of batches after the updates `logged` [row]; nan where it had diverged.
    start: the median of log10 ||dL/dcarry_t|| by distance before training [D], None where it was not probed.
    """
    rows = [row for row in run_files.read_rows(folder / "metrics.jsonl") if row["kind"] == "train"]
    steps = sorted({row["step"] for row in rows})
    losses = np.full((max((row.get("replica", 0) for row in rows), default=0) + 1, len(steps)), math.nan)
    for row in rows:
        if row["loss"] is not None:
            losses[row.get("replica", 0), steps.index(row["step"])] = row["loss"]
    start = None
    if (path := folder / "norms.npz").exists():
        start = next(values for name, values in run_files.read_norms(path).items() if name != "step")
        start = start[0, :, QUANTILES.index(0.5)]
    return {"losses": losses, "logged": np.array(steps), "start": start}


def ratios(delay: int, one: dict) -> np.ndarray:
    """[seed], the loss of the last batches over that of the guess without memory."""
    late = one["logged"] > one["logged"][-1] - LAST
    return one["losses"][:, late].mean(1) / Copying(delay=delay).chance


def oracle(delay: int) -> float:
    """The loss, as the task computes it, of outputs that know when symbols are due, and nothing of which."""
    task = Copying(delay=delay)
    batch = task.sample(root_key(0), 8)
    due = jnp.arange(task.length) >= task.delay + task.recall
    never = -100.0  # nats; e^-100 is nothing to add
    logits = jnp.where(due[:, None] == (jnp.arange(task.output_size) > 0)[None], 0.0, never)
    outputs = jnp.broadcast_to(logits[:, None], (task.length, 8, task.output_size))
    return float(jax.jit(lambda: reduce_mean(task.loss(outputs, batch), batch.mask))())


def claims(config: Config, found: dict[str, dict]) -> list[Claim]:
    """What theory says of the start, and what prototypes came to, with margin."""
    off = float(np.max([abs(oracle(T) - 10 * math.log(8) / (T + 20)) for T in config.delays]))
    text = "The loss of the best guess without memory, as the task computes it, is 10 ln 8 / (T + 20)"
    made = [Claim(text, ARJOVSKY, "off by <= 1e-6", off, off <= 1e-6), *_of_the_start(found)]
    of = {name: ratios(PROBED, found[f"{name}-{PROBED}"]) for name in MODELS}
    for name, reached in {LINEAR: "0.055", MODRELU: "0.034"}.items():
        most = float(np.max(of[name]))
        text = (
            f"At T = {PROBED} a {name} network that starts orthogonal solves it (share of the guess's loss, the worst)"
        )
        source = f"Henaff, Szlam, LeCun 2016; {PROTOTYPES}: at most {reached}"
        made.append(Claim(text, source, "< 0.2", most, most < 0.2))
    for name in SLOW:
        least = float(np.min(of[name]))
        kind = "Control: tanh, though it starts orthogonal too," if name == "elman" else f"{name.upper()}"
        text = f"{kind} has not left the plateau by then (share of the guess's loss, the least)"
        made.append(
            Claim(
                text,
                f"{PROTOTYPES}: at least 1.00" if name == "gru" else f"{ARJOVSKY}; {PROTOTYPES}: at least 1.00",
                "> 0.9",
                least,
                least > 0.9,
            )
        )
    least = float(np.min(of[GAUSSIAN] / of[LINEAR]))
    text = "A linear network with a Gaussian matrix is behind the orthogonal one (losses, the least ratio of pairs)"
    made.append(Claim(text, f"Henaff, Szlam, LeCun 2016; {PROTOTYPES}: 5 and more", "> 3", least, least > 3))
    return [*made, _far(config, found)]


def _of_the_start(found: dict[str, dict]) -> list[Claim]:
    starts = {name: found[f"{name}-{PROBED}"]["start"] for name in (LINEAR, MODRELU, "elman")}
    slope = {name: Curve.of(values).slope for name, values in starts.items()}
    source = "derived: W is orthogonal and the Jacobian is W"
    text = (
        "Before training dL/dh_t of the linear orthogonal network is as long at every distance (|slope|, nats a step)"
    )
    made = [Claim(text, source, "<= 1e-4", abs(slope[LINEAR]), abs(slope[LINEAR]) <= 1e-4)]
    text = "Control: that of tanh with an orthogonal matrix fades (slope, nats a step)"
    made.append(Claim(text, "derived: tanh' < 1 where h is not 0", "< 0", slope["elman"], slope["elman"] < 0))
    apart = float(np.max(np.abs(starts[MODRELU] - starts[LINEAR])))
    text = "modReLU starts as the linear network, so that it is no second witness (curves of dL/dh_t, largest distance)"
    made.append(Claim(text, "derived: b = 0", "<= 1e-4 decades", apart, apart <= 1e-4))
    return made


def _far(config: Config, found: dict[str, dict]) -> Claim:
    text = f"At T = {FAR} both orthogonal networks are far on (share of the guess's loss on test sequences, the worst)"
    source, expected = f"{PROTOTYPES}: at most 0.091", "< 0.3"
    if FAR not in config.delays:
        return Claim.unmeasured(text, source, expected, "the full preset trains at this delay")
    losses = [values_of(found[f"{name}-{FAR}"], "loss") for name in ORTHOGONAL]
    complete = all(len(values) == config.seeds for values in losses)
    most = float(np.max(losses)) / Copying(delay=FAR).chance if complete else math.nan
    return Claim(text, source, expected, most, most < 0.3)


def report(config: Config, found: dict[str, dict], made: list[Claim]) -> Study:
    """The table and the picture of the losses."""
    rows = []
    for name, summary in found.items():
        delay = config.delays[0] if name == LONGER else int(name.rpartition("-")[2])
        of, test = ratios(delay, summary), told(summary, "loss", 4)
        spread = f"{of.mean():.3f} ({of.min():.3f} to {of.max():.3f})"
        row = (name, delay, summary["steps"], summary["parameters"], spread, test)
        rows.append((*row, told(summary, "recall_accuracy", 1, 100), summary["seconds"]))
    header = ("network", "T", "updates", "parameters", "share of the guess", "test loss", "recalled, %", "seconds")
    note = f"""The share is that of the batches logged in the last {LAST} updates,
{LAST // config.train.log_every} of them: mean over {config.seeds} seeds, least and largest.
Test loss (nats a step) and recall: {config.train.eval_batch} sequences a seed, mean and standard deviation."""
    listed = "; ".join(f"T = {delay}: {Copying(delay=delay).chance:.4f}" for delay in config.delays)
    text = f"""
Ten symbols of eight are shown, and asked for after T steps. A guess without memory loses 10 ln 8 / (T + 20) nats a step
({listed}). {config.model.hidden_size} units, batches of {config.train.batch_size} fresh sequences, Adam at
{config.train.learning_rate:g}, gradients clipped to {config.train.clip_norm:g}. All recurrent matrices start orthogonal
but that of linear-gaussian; elman is tanh. Networks of one seed see the same sequences."""
    if config.longer.steps:
        text += f" {LONGER} has {config.longer.steps:,} updates at {config.longer.learning_rate:g}; it is not judged."
    drawn = {"losses": (draw_losses(config, found), "Loss in training as a share of that of the guess")}
    tables = [Table("Scores", header, rows, " ".join(note.split()))]
    return Study("copying", "Copying over a delay", " ".join(text.split()), tables, drawn, made)


def draw_losses(config: Config, found: dict[str, dict]) -> Figure:
    """Loss over the guess's against updates, a panel a delay: medians over seeds, shaded from least to largest."""
    styles = cell_styles(config.models)
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(WIDTH, 4.6), layout="constrained")
        panels = figure.subplots(1, len(config.delays), sharey=True, squeeze=False)[0]
        for axes, delay in zip(panels, config.delays, strict=True):
            axes.axhline(1, color=FAINT, linestyle=":", linewidth=1.2)
            for name, style in styles.items():
                one = found[f"{name}-{delay}"]
                window = min(5, len(one["logged"]))
                smooth = np.array([np.convolve(row, np.ones(window) / window, "valid") for row in one["losses"]])
                smooth, steps = smooth / Copying(delay=delay).chance, one["logged"][window - 1 :]
                axes.plot(steps, np.median(smooth, axis=0), color=style.color, linestyle=style.linestyle)
                axes.fill_between(steps, smooth.min(0), smooth.max(0), color=style.color, alpha=0.15, linewidth=0)
            axes.set(title=f"T = {delay}", xlabel="updates", yscale="log")
            axes.yaxis.set_major_formatter("{x:g}")
        panels[0].set_ylabel("loss / loss of the guess")
        notes = [
            "Lines: median over seeds of the mean of five logged batches. Shaded: least to largest. Dotted: the guess."
        ]
        frame(figure, "Copying: how the loss falls", notes, line_keys(styles))
    return figure


def run() -> None:
    """What the command line calls."""
    cli.run(main, get_config, doc=__doc__, variants=VARIANTS)


if __name__ == "__main__":
    run()
