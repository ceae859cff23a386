"""The cliff in the loss of a network of one unit, and what clipping does at its foot.

Question: where does the loss of a recurrent unit have a wall, how steep is it, and does gradient descent that is
    clipped get past it better than descent that is not?
Source: Pascanu, Mikolov, Bengio 2013, section 2.3, equation 8 and figure 6.
Command: python -m experiments.cliff_and_clipping --workdir=runs/cliff_and_clipping
Expected: over the plane of figure 6 the largest gradient is more than 500 times the median one, at w = 4.5 and
    b = -2.3; for w < 4, where the unit contracts, no gradient is larger than the geometric series allows. The wall
    stands on the line b = x_0 - w s(x_0): there dL/dh_t grows by log(w s'(x_0)) nats a step back. Descent that is not
    clipped makes steps more than 10 times as long there and ends with a larger loss.
Runtime: quick, under a minute on 1 core; full, about a minute.

The unit is h_t = s(w h_{t-1} + b) with the logistic s, from h_0 = s(0.5), and L = (h_50 - 0.7)^2: that of the paper,
x_t = w s(x_{t-1}) + b and x_0 = 0.5, whose h_t is s(x_t). For w < 4 = 1 / max s' every step contracts. Above it the
unit may have two stable states, and their basins meet where h_0 is the unstable state between them: on the line, for
w s'(x_0) > 1, that is w > 4.255. The closer a point of the plane comes to it, the larger is its gradient; the largest
of a grid is also one of how fine the grid is.
"""

import dataclasses
import functools
import math
import pathlib

import jax
import jax.numpy as jnp
import numpy as np
import optax

from experiments.common import cliff_report
from experiments.common.claims import Claim
from experiments.common.study import differs_only_in
from experiments.common.study_report import Study, Table, write_report
from experiments.common.untrained import check_values, kept
from rnnjax import probes, unroll
from rnnjax.cells import Elman
from rnnjax.train import cli
from rnnjax.train.config import TrainConfig, UsageError, to_dict
from rnnjax.train.optimizer import make_optimizer
from rnnjax.train.records import claim_workdir

VARIANTS = ("one_unit",)
X_0, TARGET = 0.5, 0.7
H_0 = 1 / (1 + math.exp(-X_0))
SLOPE_0 = H_0 * (1 - H_0)  # s'(x_0)
PEAK, CONTRACTS = (4.5, -2.3), 4.0
ON_THE_LINE = (2.0, 3.0, 1 / SLOPE_0, 5.0, 6.0, 7.0)
STARTS, AWAY = (4.5, 6.0), 0.05
"""Where descent starts, in w, and how far above the line in b."""
SILENT = (0.5, 1.0, 1.5, 2.0)
"""w of the control: the bound of the gradient is below 1 there, so that clipping at 1 never acts."""
PASCANU = "Pascanu, Mikolov, Bengio 2013"
FIGURE = f"{PASCANU}, section 2.3 and figure 6"
CELL = Elman(1, 1, activation="sigmoid")


@dataclasses.dataclass
class Config:
    """length: T, steps of the network.
    w_points, b_points: of the grid over w in [0, 7] and b in [-4, 0].
    starts: how many descents begin beside the wall.
    steps: of a descent.
    rates: learning rates; claims are of the first.
    clip: the norm that gradients are clipped to.
    """

    length: int = 50
    w_points: int = 281
    b_points: int = 321
    starts: int = 16
    steps: int = 400
    rates: tuple[float, ...] = (0.1, 0.01)  # the second is the paper's
    clip: float = 1.0


def get_config(variant: str, preset: str) -> Config:
    """Short descents, or long ones."""
    del variant  # there is but one
    return Config() if preset == "quick" else Config(steps=4000)


def check(config: Config) -> None:
    """Raises UsageError for a config that can't be."""
    for name, least in {"length": 2, "w_points": 2, "b_points": 2, "starts": 1, "steps": 1}.items():
        if getattr(config, name) < least:
            raise UsageError(f"--config.{name} is {getattr(config, name)}: expected at least {least}")
    check_values(config, "rates", 0)
    if not 0 < config.clip < math.inf:
        raise UsageError(f"--config.clip is {config.clip}: expected a norm above 0")


def main(config: Config, workdir: pathlib.Path) -> None:
    """Measures, judges and writes the report. What is measured in `workdir` is not measured again."""
    check(config)
    claim_workdir(workdir, {"experiment": "cliff_and_clipping", "config": to_dict(config)})
    found, seconds = kept(workdir, functools.partial(measure, config))
    default = any(differs_only_in(config, get_config(VARIANTS[0], preset), ()) for preset in cli.PRESETS)
    claims = judge(config, found) if default else []
    write_report(workdir, report(config, found, claims), seconds)


def loss(point: jax.Array, length: int) -> jax.Array:
    """(h_T - 0.7)^2 of the unit with point = (w, b)."""
    params = {"W_ih": jnp.zeros((1, 1)), "W_hh": point[0].reshape(1, 1), "b": point[1].reshape(1)}
    start = CELL.initial_carry(params)._replace(h=jnp.full(1, H_0))
    return (unroll(CELL, params, jnp.zeros((length, 1)), start, name="unit").outputs[-1, 0] - TARGET) ** 2


def line(w):
    """b at which the trajectory stays at x_0."""
    return X_0 - w * H_0


WALL = tuple((w, line(w)) for w in ON_THE_LINE)


def measure(config: Config) -> dict:
    """loss and norm [w, b] over the grid; log10 |dL/dh_t| by distance [T, on the line]; the descents."""
    w, b = np.linspace(0, 7, config.w_points), np.linspace(-4, 0, config.b_points)
    of_points = jax.jit(jax.vmap(jax.value_and_grad(functools.partial(loss, length=config.length))))
    value, gradient = of_points(np.stack(np.meshgrid(w, b, indexing="ij"), -1).reshape(-1, 2))
    shape = (len(w), len(b))
    points = jnp.array(WALL)
    carries = jax.vmap(probes.carry_gradients(functools.partial(loss, length=config.length)), out_axes=1)(points)
    norms = probes.by_distance(probes.gradient_norms(carries)["unit"]["h"])
    from_w = np.append(np.linspace(*STARTS, config.starts), SILENT)
    path, of_path, steps = descents(config, np.stack([from_w, line(from_w) + AWAY], -1))
    return {
        "w": w,
        "b": b,
        "loss": value.reshape(shape),
        "norm": jnp.linalg.norm(gradient, axis=-1).reshape(shape),
        "on_the_line": norms,
        "slopes": probes.slope(norms),
        "path": path[..., : config.starts, :],
        "loss_of_path": of_path[..., : config.starts],
        "step": steps[..., : config.starts],
        "silent_path": path[..., config.starts :, :],
    }


def descents(config: Config, starts: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Gradient descent from `starts` [n, 2] at every rate, free and clipped, by the optimizer of the trainer.

    Returns the path [steps + 1, rate, 2, n, 2], the loss on it [steps + 1, rate, 2, n] and the length of each step
    [steps, rate, 2, n].
    """
    rates, clips = np.array(config.rates), np.array([0.0, config.clip])  # 0 leaves clipping out
    shape = (len(rates), 2, len(starts))
    each = np.broadcast_arrays(rates[:, None, None], clips[:, None], np.empty(shape))[:2]
    rate, clip = (one.reshape(-1) for one in each)
    point = np.broadcast_to(starts, (*shape, 2)).reshape(-1, 2)

    @jax.jit
    @jax.vmap
    def step(point, rate, clip):
        optimizer = make_optimizer(TrainConfig(optimizer="sgd"), {"learning_rate": rate, "clip_norm": clip})
        value, gradient = jax.value_and_grad(loss)(point, config.length)
        updates, _ = optimizer.update(gradient, optimizer.init(point), point)
        return optax.apply_updates(point, updates), value, jnp.linalg.norm(updates)

    path, losses, lengths = [point], [], []
    for _ in range(config.steps + 1):
        point, value, moved = step(point, rate, clip)
        path.append(point)
        losses.append(value)
        lengths.append(moved)
    losses, lengths = (np.reshape(values, (-1, *shape)) for values in (losses, lengths[:-1]))
    return np.reshape(path[:-1], (-1, *shape, 2)), losses, lengths


def endings(found: dict) -> np.ndarray:
    """[rate, 2, n], the mean loss of the last quarter of each descent: at the wall they go up and down."""
    losses = found["loss_of_path"]
    return losses[-max(1, len(losses) // 4) :].mean(0)


def longer(found: dict) -> np.ndarray:
    """[rate, n], how many times as long the longest step is that is not clipped."""
    longest = found["step"].max(0)
    return longest[:, 0] / longest[:, 1]


def bound(w: np.ndarray, length: int) -> np.ndarray:
    """Of the gradient's norm at |w| < 4: 2 |h_T - 0.7| s' sum_k (w / 4)^k, in w and in b."""
    return 2 * TARGET * math.sqrt(2) / 4 * sum((w / CONTRACTS) ** k for k in range(length))


def judge(config: Config, found: dict) -> list[Claim]:
    """The claims of the docstring."""
    norm, w = found["norm"], found["w"]
    at = np.unravel_index(np.argmax(norm), norm.shape)
    contracting = w < CONTRACTS
    claims = []

    def add(text, source, expected, measured, holds):
        claims.append(Claim(text, source, expected, float(measured), bool(holds)))

    steep = norm.max() / np.median(norm)
    add("The largest gradient of the plane over the median one", FIGURE, "> 500", steep, steep > 500)
    off = math.hypot(w[at[0]] - PEAK[0], found["b"][at[1]] - PEAK[1])
    text = "The largest gradient of this grid stands at w = 4.5, b = -2.3 (distance)"
    add(text, "own prototype, on the same grid: 4.48, -2.29", "<= 0.1", off, off <= 0.1)
    worst = (norm[contracting] / bound(w[contracting], config.length)[:, None]).max()
    text = "For w < 4, 1 over the logistic's largest slope, no gradient exceeds the geometric series (largest ratio)"
    add(text, f"{PASCANU}, section 2.1; derived", "<= 1", worst, worst <= 1)
    below = norm.max() / norm[contracting].max()
    add("The largest gradient over the largest one of w < 4", f"{FIGURE}; own prototype", ">= 10", below, below >= 10)
    error = np.abs(found["slopes"] - np.log(np.array(ON_THE_LINE) * SLOPE_0)).max()
    text = (
        "On the line b = x_0 - w s(x_0) dL/dh_t changes by log(w s'(x_0)) nats a step back, of both signs: from "
        f"{math.log(ON_THE_LINE[0] * SLOPE_0):.2f} at w = 2 to {math.log(ON_THE_LINE[-1] * SLOPE_0):+.2f} at w = 7 "
        "(largest error)"
    )
    add(text, "derived: the trajectory stays at x_0", "<= 1e-3", error, error <= 1e-3)
    ratio = np.median(longer(found)[0])
    text = "Beside the wall, the longest step of free descent over that of clipped descent (median of starts)"
    add(text, FIGURE, "> 10", ratio, ratio > 10)
    free, clipped = endings(found)[0]
    lower = np.mean(clipped < free)
    text = f"Share of starts from which clipped descent ends lower, at a learning rate of {config.rates[0]}"
    add(text, FIGURE, ">= 0.75", lower, lower >= 0.75)
    apart = np.abs(np.diff(found["silent_path"], axis=2)).max()
    text = "Control: at w <= 2 there is no wall, and clipped and free descent are the same (largest difference)"
    add(text, "derived: the bound of the gradient is below the threshold", "0", apart, apart == 0)
    return claims


def report(config: Config, found: dict, claims: list[Claim]) -> Study:
    """The table of descents and the pictures."""
    rows = []
    for number, rate in enumerate(config.rates):
        free, clipped = endings(found)[number]
        ratio = np.median(longer(found)[number])
        rows.append((rate, config.starts, ratio, np.median(free), np.median(clipped), np.mean(clipped < free)))
    header = ("learning rate", "starts", "longest step, free / clipped", "loss, free", "loss, clipped", "clipped lower")
    note = (
        f"Medians over starts of w from {STARTS[0]} to {STARTS[1]}, {AWAY} above the wall in b, {config.steps:,} "
        "steps. Losses are means of the last quarter. Clipped lower: the share of starts. " + OF_CLIPPING
    )
    table = Table("Descent from beside the wall", header, rows, note)
    title = "The cliff in the loss of one recurrent unit, and clipping"
    return Study("cliff_and_clipping", title, OF_THE_WALL, [table], cliff_report.draw(config, found, WALL), claims)


OF_THE_WALL = (
    "One unit, h_t = s(w h_{t-1} + b), no input, L = (h_T - 0.7)^2. The wall is the line on which h_0 is the unstable "
    "state between two stable ones. Its height in the table of claims is one of the grid: the gradient on the line "
    "itself grows exponentially with T and with log w, and a grid meets it only by chance."
)
OF_CLIPPING = (
    "Clipping bounds a step and does not find the way: with a small learning rate clipped descent bounces along the "
    "wall, slowly, towards smaller w, and within few steps its mean loss need not be lower."
)


def run() -> None:
    """What the command line calls."""
    cli.run(main, get_config, doc=__doc__, variants=VARIANTS)


if __name__ == "__main__":
    run()
