"""Gradient flossing: a network trained so that its Lyapunov exponents are 0, before it has any task.

Question: can the first Lyapunov exponents be pushed to 0 by descent on the exponents themselves, and does the gradient
    then reach back over the whole sequence?
Source: Engelken 2023, "Gradient flossing: improving gradient descent through dynamic control of Jacobians".
Command: python -m experiments.gradient_flossing --workdir=runs/gradient_flossing
Expected: from W of gain 0.5, whose gradient has vanished below 1e-15 over 55 steps, 1,000 updates on the mean square of
    the first 8 exponents bring their mean |lambda| on fresh inputs below 0.05, at most a tenth of what it was, and the
    gradient at the far end within a factor of 10 of that at the loss. From gain 1.5 it falls below 0.05 without input;
    with input it becomes at least 1.5 times smaller, and an own prototype stayed at 0.056 to 0.075.
Runtime: quick, about 10 seconds; full, with ten seeds, about a minute.

The network is x_t = J tanh(x_{t-1}) + w u_t + b, here as an Elman cell with h = tanh(x), whose Jacobians multiply to
the same but for the factors tanh' at both ends. u_t is 0 or 1 with equal chance, J is N(0, g^2 / H), w is N(0, 1), b
starts at 0; J, w and b are trained. Every update sees a fresh input from one start, and is one of Adam. Nothing is
said here of what a task learned afterwards gains.
"""

import dataclasses
import functools
import pathlib

import jax
import jax.numpy as jnp
import matplotlib
import numpy as np
import optax
from matplotlib.figure import Figure

from experiments.common.claims import Claim
from experiments.common.study import is_default, say, unclaimed
from experiments.common.study_report import Study, Table, write_report
from experiments.common.untrained import check_counts, kept, line_keys, one_by_one, root_keys
from rnnjax import probes, unroll
from rnnjax.cells import Elman
from rnnjax.report.figures import DISTANCE, WIDTH
from rnnjax.report.style import FAINT, STYLE, cell_styles, frame
from rnnjax.train import cli
from rnnjax.train.config import UsageError, to_dict
from rnnjax.train.records import claim_workdir

VARIANTS = ("elman",)
CONTRACTING, DRIVEN, AUTONOMOUS = "g = 0.5, inputs", "g = 1.5, inputs", "g = 1.5, no input"
CASES = {CONTRACTING: (0.5, 1.0), DRIVEN: (1.5, 1.0), AUTONOMOUS: (1.5, 0.0)}
"""{case: (g, factor of the inputs)}"""
ENGELKEN = "Engelken 2023"


@dataclasses.dataclass
class Config:
    """hidden_size: units.
    length: steps over which exponents and gradients are taken.
    exponents: how many of them are trained, the first.
    updates: of the parameters, a multiple of `block`.
    block: updates in one compiled call.
    learning_rate: of Adam.
    held_out: sequences that exponents and gradients are measured on, before and after.
    seeds: networks of each kind.
    seed: the first.
    """

    hidden_size: int = 32
    length: int = 55
    exponents: int = 8
    updates: int = 1000
    block: int = 100
    learning_rate: float = 1e-3
    held_out: int = 8
    seeds: int = 3
    seed: int = 5100


def get_config(variant: str, preset: str) -> Config:
    """Three networks of each kind, or ten."""
    del variant  # there is but one
    return Config() if preset == "quick" else Config(seeds=10)


def check(config: Config) -> None:
    """Raises UsageError for a config that can't be."""
    check_counts(config, hidden_size=1, length=2, exponents=1, updates=1, block=1, held_out=1, seeds=1)
    if config.exponents > config.hidden_size:
        raise UsageError(f"--config.exponents is {config.exponents}: a network of {config.hidden_size} has no more")
    if config.updates % config.block:
        raise UsageError(f"--config.updates is {config.updates}: expected a multiple of block ({config.block})")
    if not 0 < config.learning_rate < float("inf"):
        raise UsageError(f"--config.learning_rate is {config.learning_rate}: expected a number above 0")


def main(config: Config, workdir: pathlib.Path) -> None:
    """Trains, judges and writes the report. What is measured in `workdir` is not measured again."""
    check(config)
    claim_workdir(workdir, {"experiment": "gradient_flossing", "config": to_dict(config)})
    found, seconds = kept(workdir, functools.partial(measure, config))
    default = is_default(config, get_config, VARIANTS[0], "seed")
    study = report(config, found, judge(config, found) if default else [])
    write_report(workdir, study if default else unclaimed(study), seconds)


def measure(config: Config) -> dict[str, np.ndarray]:
    """What is measured before and after training, [2, case, seed, ...], and in it.

    exponents [.., B, H], all of them, and norms [.., T, B], log10 ||dL/dh_t|| by distance: on held-out inputs.
    elsewhere [.., B, H]: exponents from other starts. training [case, seed, update, K]: those that each update saw.
    """
    kinds = np.repeat(np.array(list(CASES.values())), config.seeds, axis=0)  # [run, 2]
    keys = jnp.tile(root_keys(config), len(CASES))
    cell = Elman(1, config.hidden_size, recurrent_init="scaled_normal")
    optimizer = optax.adam(config.learning_rate)
    state = one_by_one(functools.partial(start, cell, optimizer))(keys, kinds[:, 0])
    advance = one_by_one(functools.partial(train_block, cell, optimizer, config))
    look = one_by_one(functools.partial(measure_one, cell, config))
    seen, training = [look(state[0], keys, kinds[:, 1])], []
    for done in range(0, config.updates, config.block):
        numbers = jnp.broadcast_to(jnp.arange(done, done + config.block), (len(keys), config.block))
        state, exponents = advance(state, keys, kinds[:, 1], numbers)
        training.append(np.asarray(exponents))
        say(f"{done + config.block} of {config.updates} updates")
    seen.append(look(state[0], keys, kinds[:, 1]))
    shape = (len(CASES), config.seeds)
    found = {
        name: np.stack([np.asarray(one[name]).reshape(*shape, *one[name].shape[1:]) for one in seen])
        for name in seen[0]
    }
    return found | {"training": np.concatenate(training, axis=1).reshape(*shape, config.updates, -1)}


def start(cell: Elman, optimizer: optax.GradientTransformation, key: jax.Array, gain: jax.Array):
    """(parameters, state of the optimizer) of a network with J of N(0, gain^2 / H) and w of N(0, 1)."""
    own_key, input_key = jax.random.split(jax.random.fold_in(key, 0))
    params = dataclasses.replace(cell, gain=gain).init(own_key, jnp.float64)
    params |= {"W_ih": jax.random.normal(input_key, params["W_ih"].shape, jnp.float64)}
    return params, optimizer.init(params)


def draw_start(cell: Elman, params: dict, key: jax.Array, batch: int, same: bool):
    """A carry of h = tanh(N(0, 1)): for every sequence the same, or each its own."""
    shape = (1 if same else batch, cell.hidden_size)
    h = jnp.tanh(jax.random.normal(jax.random.fold_in(key, 1), shape, jnp.float64))
    return cell.initial_carry(params, (batch,))._replace(h=jnp.broadcast_to(h, (batch, cell.hidden_size)))


def draw_bits(key: jax.Array, length: int, batch: int) -> jax.Array:
    """u [T, B, 1], 0 or 1 with equal chance."""
    return jax.random.bernoulli(key, 0.5, (length, batch, 1)).astype(jnp.float64)


def train_block(cell: Elman, optimizer, config: Config, state, key: jax.Array, scale: jax.Array, numbers: jax.Array):
    """(state, the exponents that each update saw [n, K]) after the updates of these numbers."""

    def loss(params, inputs):
        carry = draw_start(cell, params, key, 1, same=True)
        exponents = probes.lyapunov_spectrum(cell, params, inputs, carry, count=config.exponents).exponents[0]
        return jnp.mean(exponents**2), exponents

    def update(state, number):
        params, moments = state
        inputs = scale * draw_bits(jax.random.fold_in(jax.random.fold_in(key, 2), number), config.length, 1)
        gradient, exponents = jax.grad(loss, has_aux=True)(params, inputs)
        step, moments = optimizer.update(gradient, moments)
        return (optax.apply_updates(params, step), moments), exponents

    return jax.lax.scan(update, state, numbers)


def measure_one(cell: Elman, config: Config, params: dict, key: jax.Array, scale: jax.Array) -> dict[str, jax.Array]:
    """exponents, elsewhere and norms of a network, as `measure` has them."""
    input_key, start_key, loss_key = jax.random.split(jax.random.fold_in(key, 3), 3)
    inputs = scale * draw_bits(input_key, config.length, config.held_out)
    weights = jax.random.normal(loss_key, (config.held_out, cell.hidden_size), jnp.float64)
    here = draw_start(cell, params, key, config.held_out, same=True)
    there = draw_start(cell, params, start_key, config.held_out, same=False)

    def loss(params, inputs):
        return jnp.vdot(unroll(cell, params, inputs, here, name="cell").outputs[-1], weights)

    gradients = probes.carry_gradients(loss)(params, inputs)
    return {
        "exponents": probes.lyapunov_spectrum(cell, params, inputs, here).exponents,
        "elsewhere": probes.lyapunov_spectrum(cell, params, inputs, there).exponents,
        "norms": probes.by_distance(probes.gradient_norms(gradients)["cell"]["h"]),
    }


def sizes(found: dict[str, np.ndarray], count: int, of: str = "exponents") -> np.ndarray:
    """[2, case, seed], the mean |lambda| of the first `count` exponents over held-out inputs."""
    return np.abs(found[of][..., :count]).mean((-1, -2))


def ratios(found: dict[str, np.ndarray]) -> np.ndarray:
    """[2, case, seed], log10 of ||dL/dh|| at the far end over that at the loss, the mean over held-out inputs."""
    return (found["norms"][..., -1, :] - found["norms"][..., 0, :]).mean(-1)


def judge(config: Config, found: dict[str, np.ndarray]) -> list[Claim]:
    """The claims of the docstring; "largest" and "least" are over seeds."""
    count, made = config.exponents, []
    before, after = sizes(found, count)
    far = ratios(found)
    low, driven, silent = (list(CASES).index(case) for case in (CONTRACTING, DRIVEN, AUTONOMOUS))

    def add(text, source, expected, measured, holds):
        made.append(Claim(text, source, expected, float(measured), bool(holds)))

    most = after[low].max()
    text = (
        f"g = 0.5: flossing brings the mean |lambda| of {count} exponents near 0 on fresh inputs (largest, nats a step)"
    )
    add(text, f"{ENGELKEN}; own prototype 0.020", "< 0.05", most, most < 0.05)
    factor = (before[low] / after[low]).min()
    text = "g = 0.5: and makes it so many times smaller than it was (least)"
    add(text, f"{ENGELKEN}; own prototype 47", ">= 10", factor, factor >= 10)
    most = far[0, low].max()
    text = (
        f"g = 0.5: before, dL/dh_t has vanished at the far end of {config.length} steps (log10 of the ratio, largest)"
    )
    add(text, "own prototype -21", "< -15", most, most < -15)
    most = np.abs(far[1, low]).max()
    text = "g = 0.5: after, it is within a factor of 10 of that at the loss (|log10|, mean of inputs, largest of seeds)"
    add(text, f"{ENGELKEN}; own prototype 0.1", "<= 1", most, most <= 1)
    rest = (np.abs(found["exponents"][1, low][..., count:]).mean((-1, -2)) / after[low]).min()
    text = (
        "Control: exponents that were not asked for stay away from 0: their mean |lambda| is so many times that (least)"
    )
    add(text, "derived: they are not in the loss", ">= 10", rest, rest >= 10)
    factor = (before[driven] / after[driven]).min()
    text = "g = 1.5 with inputs: the mean |lambda| becomes so many times smaller (least)"
    add(text, "own prototype 2.1, where it stays at 0.056 to 0.075", ">= 1.5", factor, factor >= 1.5)
    most = np.abs(found["exponents"][1, driven][..., 0]).mean(-1).max()
    text = "g = 1.5 with inputs: the first exponent comes near 0 on fresh inputs (|lambda_1|, largest, nats a step)"
    add(text, f"{ENGELKEN}; own prototype 0.030", "< 0.05", most, most < 0.05)
    most = after[silent].max()
    text = "g = 1.5 without input: the mean |lambda| comes near 0 (largest, nats a step)"
    add(text, f"{ENGELKEN}; own prototype 0.0006", "< 0.05", most, most < 0.05)
    return made


def report(config: Config, found: dict[str, np.ndarray], claims: list[Claim]) -> Study:
    """The table of every network and the picture."""
    of, far = sizes(found, config.exponents), ratios(found)
    elsewhere = sizes(found, config.exponents, "elsewhere")
    top = found["exponents"][..., 0].mean(-1)
    rows = [
        (
            case,
            str(config.seed + seed),
            *(f"{values[when, at, seed]:{form}}" for values, form in ((of, ".4f"), (top, "+.3f")) for when in (0, 1)),
            f"{elsewhere[1, at, seed]:.4f}",
            *(f"{far[when, at, seed]:+.1f}" for when in (0, 1)),
        )
        for at, case in enumerate(CASES)
        for seed in range(config.seeds)
    ]
    names = (f"mean |lambda| of {config.exponents}", "lambda_1", "log10 of far over near")
    mean, first, ratio = ((f"{name}, before", "after") for name in names)
    header = ("network", "seed", *mean, *first, "other starts", *ratio)
    note = f"""Means over {config.held_out} held-out inputs, in nats a step. Other starts: the mean |lambda| after
training, from states that it did not start from in training. Far over near: ||dL/dh_t|| {config.length - 1} steps back
over that at the loss."""
    text = f"""{config.updates:,} updates of Adam at {config.learning_rate:g} on the mean square of the first
{config.exponents} of {config.hidden_size} Lyapunov exponents over {config.length} steps, a decomposition every step, in
float64. No task is learned. Without input every update sees the same trajectory and nothing is held out: its exponents
can fall as far as rounding lets them, which says little of other starts, see the table. An update of Adam, which
divides by gradients that have become that small, may throw them back for a while."""
    drawn = {"flossing": (draw_flossing(config, found), "Exponents in training, the spectrum, and the gradient")}
    table = Table("Before and after", header, rows, " ".join(note.split()))
    return Study("gradient_flossing", "Gradient flossing", " ".join(text.split()), [table], drawn, claims)


def draw_flossing(config: Config, found: dict[str, np.ndarray]) -> Figure:
    """Mean |lambda| over updates, the spectrum and the gradient by distance, before (dotted) and after."""
    styles = cell_styles(tuple(CASES))
    numbers, updates = np.arange(1, config.hidden_size + 1), np.arange(config.updates)
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(WIDTH, 4.6), layout="constrained")
        left, middle, right = figure.subplots(1, 3)
        for at, (color, dashes) in enumerate(styles.values()):
            for values in np.abs(found["training"][at]).mean(-1):
                left.plot(updates, values, color=color, linewidth=0.7, alpha=0.8)
            for when, look in enumerate(({"linestyle": ":", "linewidth": 1.3}, {"linestyle": dashes})):
                middle.plot(numbers, found["exponents"][when, at].mean((0, 1)), color=color, **look)
                norms = found["norms"][when, at].mean((0, 2))
                right.plot(np.arange(config.length), norms - norms[0], color=color, **look)
        middle.axhline(0, color=FAINT, linewidth=0.8)
        middle.axvspan(1, config.exponents, color=FAINT, alpha=0.12, linewidth=0)
        left.set(
            yscale="log", ylim=(3e-4, 3), xlabel="update", ylabel=r"mean $|\lambda|$ (nats a step)", title="in training"
        )
        middle.set(xlabel="number of the exponent", ylabel=r"$\lambda_i$ (nats a step)", title="spectrum")
        label = r"$\log_{10}\,\Vert\partial L/\partial h_t\Vert$, 0 at the loss"
        right.set(xlabel=DISTANCE, ylabel=label, title="gradient")
        notes = ["Left: a line a network, which may go on below. Else means over seeds and held-out inputs."]
        notes += ["Dotted: before training."]
        notes += [f"Shaded: the {config.exponents} exponents that are trained."]
        frame(figure, "Gradient flossing", notes, line_keys(styles))
    return figure


def run() -> None:
    """What the command line calls."""
    cli.run(main, get_config, doc=__doc__, variants=VARIANTS)


if __name__ == "__main__":
    run()
