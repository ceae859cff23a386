"""The curse of memory: a linear unit that remembers longer is harder to train, with no gradient that explodes.

Question: how does the sensitivity of a linear recurrent unit to its own weight grow as its memory does, where the
    gradient through time never grows, and what takes that growth away?
Source: Zucchet, Orvieto 2024, "Recurrent neural networks: vanishing and exploding gradients are not the end of the
    story".
Command: python -m experiments.curse_of_memory --workdir=runs/curse_of_memory
Expected: for h_t = lambda h_{t-1} + x_t the mean of (dh_t/dlambda)^2 is the closed form's within 7 %, whatever the
    correlation of the inputs; between lambda = 0.9 and 0.99 it grows as (1 - lambda)^-2.98, a factor of 950, while
    every dh_t/dh_k is below 1. The state's own square grows as (1 - lambda)^-0.98 only; with inputs normalised by
    sqrt(1 - lambda^2) and lambda = exp(-exp(nu)) the sensitivity to nu does not grow.
Runtime: quick, about 7 seconds; full, about 2 minutes.

Inputs are x_t = rho x_{t-1} + sqrt(1 - rho^2) e_t, of unit variance. A mean is one over sequences and over the later
half of their time, when the state has forgotten its start.
"""

import dataclasses
import functools
import pathlib

import jax
import jax.numpy as jnp
import matplotlib
import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from experiments.common.claims import Claim
from experiments.common.study import is_default
from experiments.common.study_report import Study, Table, write_report
from experiments.common.untrained import check_counts, kept, root_keys
from rnnjax import probes, unroll
from rnnjax.cells import IndRNN
from rnnjax.report.figures import WIDTH
from rnnjax.report.style import INK, STYLE, cell_styles, frame
from rnnjax.train import cli
from rnnjax.train.config import to_dict
from rnnjax.train.records import claim_workdir

VARIANTS = ("linear",)
LAMBDAS = np.array([0.5, 0.8, 0.9, 0.95, 0.98, 0.99])
RHOS = (0.0, 0.5, 0.9)
LONG = LAMBDAS >= 0.9  # those that exponents are fitted to
BACK = 200
"""Steps that the gradient is followed back."""
MEANS = ("sensitivity", "square", "cured")
ZUCCHET = "Zucchet, Orvieto 2024"
PROTOTYPE = "own prototype within 2 %"
CELL = IndRNN(1, len(LAMBDAS), activation="identity")
SOURCE = IndRNN(1, 1, activation="identity")


@dataclasses.dataclass
class Config:
    """steps: T, of a sequence.
    batch: sequences of a seed.
    seed: the first.
    seeds: how many.
    """

    steps: int = 2000  # half of it is 10 times the memory of lambda = 0.99
    batch: int = 100
    seed: int = 4001
    seeds: int = 10


def get_config(variant: str, preset: str) -> Config:
    """A thousand sequences, or ten thousand that are twice as long."""
    del variant  # there is but one
    return Config() if preset == "quick" else Config(steps=4000, seeds=100)


def check(config: Config) -> None:
    """Raises UsageError for a config that can't be."""
    check_counts(config, steps=2, batch=1, seeds=1)


def main(config: Config, workdir: pathlib.Path) -> None:
    """Measures, judges and writes the report. What is measured in `workdir` is not measured again."""
    check(config)
    claim_workdir(workdir, {"experiment": "curse_of_memory", "config": to_dict(config)})
    found, seconds = kept(workdir, functools.partial(measure, config))
    claims = judge(found) if is_default(config, get_config, VARIANTS[0], "seed") else []
    write_report(workdir, report(config, found, claims), seconds)


def measure(config: Config) -> dict:
    """Of every seed, for each of MEANS: {name} [seed, rho, lambda] over the later half, and {name}_over_time [rho, T,
    lambda], the mean of all seeds; the gradient through time, see `through_time`.
    """
    run = jax.jit(functools.partial(squares, config.steps, config.batch))
    means, over_time = [], 0.0
    for key in root_keys(config):
        of_seed = np.array([run(jax.random.fold_in(key, number), rho) for number, rho in enumerate(RHOS)])
        means.append(of_seed[:, :, config.steps // 2 :].mean(2))  # [rho, quantity, lambda]
        over_time += of_seed / config.seeds
    found = through_time()
    for number, name in enumerate(MEANS):
        found[name] = np.stack(means)[:, :, number]
        found[f"{name}_over_time"] = over_time[:, number]
    return found


def linear(weights: jax.Array, inputs: jax.Array, scale=1.0) -> jax.Array:
    """h [T, B, lambda] of a unit for each weight, from 0, by what forward mode goes through."""
    params = {"W_ih": jnp.broadcast_to(scale, (1, len(weights))), "u": weights, "b": jnp.zeros(len(weights))}
    return unroll(CELL, params, inputs, method="scan").outputs


def draw_inputs(key: jax.Array, rho, steps: int, batch: int) -> jax.Array:
    """x [T, B, 1] of unit variance and correlation rho from one step to the next, stationary from the first."""
    start_key, noise_key = jax.random.split(key)
    params = {"W_ih": jnp.sqrt(1 - jnp.full((1, 1), rho) ** 2), "u": jnp.full(1, rho), "b": jnp.zeros(1)}
    start = SOURCE.initial_carry(params, (batch,))
    start = start._replace(h=jax.random.normal(start_key, start.h.shape, jnp.float64))
    return unroll(SOURCE, params, jax.random.normal(noise_key, (steps, batch, 1), jnp.float64), start).outputs


def squares(steps: int, batch: int, key: jax.Array, rho) -> jax.Array:
    """[MEANS, T, lambda], means over sequences of (dh_t/dlambda)^2, h_t^2, and (dh_t/dnu)^2 of the normalised unit.

    Units don't see each other, so that one tangent of ones gives the derivative of each by its own weight. The factor
    of the normalised inputs is held fixed in the derivative.
    """
    inputs = draw_inputs(key, rho, steps, batch)

    def derivative(function, at):
        return jax.jvp(function, (at,), (jnp.ones_like(at),))

    weights = jnp.asarray(LAMBDAS)
    states, by_weight = derivative(lambda weights: linear(weights, inputs), weights)

    def normalised(nu):
        weights = jnp.exp(-jnp.exp(nu))
        return linear(weights, inputs, jax.lax.stop_gradient(jnp.sqrt(1 - weights**2)))

    _, by_nu = derivative(normalised, jnp.log(-jnp.log(weights)))
    return jnp.stack([jnp.mean(values**2, axis=1) for values in (by_weight, states, by_nu)])


def through_time() -> dict:
    """products [lambda, K]: |dh_T/dh_k|; slopes [lambda]: of dL/dh_t, in nats a step back. Of one sequence."""
    inputs = draw_inputs(jax.random.key(0, impl="threefry2x32"), 0.0, BACK, 1)
    params = {"W_ih": jnp.ones((1, len(LAMBDAS))), "u": jnp.asarray(LAMBDAS), "b": jnp.zeros(len(LAMBDAS))}
    products = probes.jacobian_products(probes.step_jacobians(CELL, params, inputs)[:, 0])
    own = jnp.abs(jnp.diagonal(products.matrix, axis1=-2, axis2=-1)) * jnp.exp(products.log_scale)[:, None]

    def loss(params, inputs):
        return unroll(CELL, params, inputs, name="linear").outputs[-1].sum()

    gradients = probes.carry_gradients(loss)(params, inputs)["linear"].h[:, 0]
    return {"products": own.T, "slopes": probes.slope(probes.by_distance(probes.log10_norm(gradients[..., None])))}


def closed_form(weight, rho):
    """The mean of (dh/dlambda)^2 in the stationary state."""
    w2 = weight**2
    above = (1 + w2) * (1 - w2 * rho**2) + 2 * (1 - w2) * weight * rho
    return above / ((1 - w2) ** 3 * (1 - weight * rho) ** 2)


def exponent(values: np.ndarray) -> float:
    """Of (1 - lambda) in values [lambda], fitted by least squares to the long memories."""
    return float(np.polyfit(np.log(1 - LAMBDAS[LONG]), np.log(values[LONG]), 1)[0])


def judge(found: dict) -> list[Claim]:
    """The claims of the docstring."""
    sensitivity, square, cured = (found[name].mean(0) for name in MEANS)  # [rho, lambda]
    ratios = sensitivity / np.array([closed_form(LAMBDAS, rho) for rho in RHOS])
    off, claims = np.abs(ratios - 1).max(1), []

    def add(text, source, expected, measured, holds):
        claims.append(Claim(text, source, expected, float(measured), bool(holds)))

    listed = ", ".join(map(str, LAMBDAS))
    text = f"With white inputs the mean of (dh/dlambda)^2 is the closed form's, lambda = {listed} (largest |ratio - 1|)"
    add(text, f"{ZUCCHET}; {PROTOTYPE}", "<= 0.07", off[0], off[0] <= 0.07)
    text = f"and with inputs correlated by rho = {', '.join(map(str, RHOS[1:]))} (largest |ratio - 1|)"
    add(text, ZUCCHET, "<= 0.07", off[1:].max(), off[1:].max() <= 0.07)
    slope = exponent(sensitivity[0])
    text = "Over lambda = 0.9 to 0.99 it grows as a power of 1 - lambda (the exponent, white inputs)"
    add(text, f"{ZUCCHET}: {exponent(closed_form(LAMBDAS, 0.0)):.2f}", "-3.1 to -2.8", slope, -3.1 <= slope <= -2.8)
    grown = sensitivity[0, -1] / sensitivity[0, LAMBDAS == 0.9][0]
    text = "From lambda = 0.9 to 0.99, ten times the memory, the sensitivity grows by this factor"
    add(text, f"{ZUCCHET}: the closed form says 952", ">= 100", grown, grown >= 100)
    most = found["products"][:, :-1].max()
    text = "while no gradient explodes: every dh_t/dh_k with k < t is below 1 (the largest)"
    add(text, "derived: lambda^(t - k)", "< 1", most, most < 1)
    error = np.abs(found["slopes"] - np.log(LAMBDAS)).max()
    text = "and dL/dh_t changes by log lambda nats a step back (largest error)"
    add(text, "derived", "<= 1e-6", error, error <= 1e-6)
    slope = exponent(square[0])
    text = "Control: the square of the state itself grows by a power of 1 - lambda that is smaller by 2 (the exponent)"
    add(text, "derived: 1 / (1 - lambda^2)", "-1.1 to -0.9", slope, -1.1 <= slope <= -0.9)
    slope = exponent(cured[0])
    text = "With normalised inputs and lambda = exp(-exp(nu)) the mean of (dh/dnu)^2 does not grow (the exponent)"
    add(text, f"{ZUCCHET}; derived: it tends to 1/2", "-0.1 to 0.1", slope, abs(slope) <= 0.1)
    return claims


def report(config: Config, found: dict, claims: list[Claim]) -> Study:
    """The table of means and the picture."""
    rows = []
    for number, rho in enumerate(RHOS):
        for at, weight in enumerate(LAMBDAS):
            of_seeds = found["sensitivity"][:, number, at]
            error = of_seeds.std(ddof=1) / len(of_seeds) ** 0.5 if len(of_seeds) > 1 else np.nan
            theory = closed_form(weight, rho)
            others = (found[name][:, number, at].mean() for name in MEANS[1:])
            rows.append((rho, float(weight), of_seeds.mean(), error, theory, of_seeds.mean() / theory, *others))
    header = ("rho", "lambda", "(dh/dlambda)^2", "± error", "closed form", "ratio", "h^2", "(dh/dnu)^2, normalised")
    sequences = config.seeds * config.batch
    note = f"Means over {sequences:,} sequences and the later half of {config.steps:,} steps; errors are over seeds."
    table = Table("Means of squares", header, rows, note)
    caption = "The gradient through time, the sensitivity over time, and what it comes to"
    drawn = {"curse": (draw_curse(found), caption)}
    return Study("curse_of_memory", "The curse of memory", " ".join(TEXT.split()), [table], drawn, claims)


TEXT = """h_t = lambda h_{t-1} + x_t. A change of lambda is felt in every step that is remembered, and so the longer the
memory, the more the state moves with lambda: a step of descent that is fit for a short memory is far too long for a
long one. No Jacobian is above 1 in it, and clipping the gradient through time has nothing to clip. Nothing is trained
here."""


def draw_curse(found: dict) -> Figure:
    """|dh_T/dh_k| by distance, the sensitivity by time, and means of squares by 1 - lambda."""
    styles = cell_styles(MEANS)
    colors = matplotlib.colormaps["viridis"](np.linspace(0, 0.85, len(LAMBDAS)))
    finite = np.geomspace(1 - LAMBDAS[0], 1 - LAMBDAS[-1], 60)
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(WIDTH, 4.6), layout="constrained")
        left, middle, right = figure.subplots(1, 3)
        for at, (weight, color) in enumerate(zip(LAMBDAS, colors, strict=True)):
            left.plot(found["products"][at, ::-1], color=color)
            middle.plot(found["sensitivity_over_time"][0, :, at], color=color, linewidth=1.2)
            middle.axhline(closed_form(weight, 0.0), color=INK, linewidth=0.8, linestyle=(0, (4, 2)))
        left.set(yscale="log", ylim=(1e-12, 3), xlabel="t - k (steps)", ylabel=r"$|\partial h_t\,/\,\partial h_k|$")
        left.set_title("gradient through time")
        middle.set(xscale="log", yscale="log", xlabel="t (steps)", ylabel=r"mean of $(d h_t\,/\,d\lambda)^2$")
        middle.set_title(r"sensitivity, $\rho$ = 0")
        for number, rho in enumerate(RHOS):
            right.plot(finite, closed_form(1 - finite, rho), color=INK, linewidth=0.8, linestyle=(0, (4, 2)))
            place = (finite[-1], closed_form(LAMBDAS[-1], rho))
            right.annotate(rf"$\rho$ = {rho:g}", place, (5, 0), textcoords="offset points", va="center", fontsize=9)
            right.plot(1 - LAMBDAS, found["sensitivity"][:, number].mean(0), "o", color=styles[MEANS[0]].color)
        for name in MEANS[1:]:
            right.plot(1 - LAMBDAS, found[name][:, 0].mean(0), "s-", color=styles[name].color, markersize=4)
        right.set(xscale="log", yscale="log", xlabel=r"$1 - \lambda$", ylabel="mean of squares")
        right.set_xlim(0.7, 0.0035)
        right.set_title("against memory")
        keys = [
            Line2D([], [], color=color, label=f"λ = {weight:g}") for weight, color in zip(LAMBDAS, colors, strict=True)
        ]
        labels = ("(dh/dλ)²", "h²", "(dh/dν)²")
        for name, label, marker in zip(MEANS, labels, "oss", strict=True):
            keys.append(Line2D([], [], color=styles[name].color, marker=marker, linestyle="", label=label))
        frame(
            figure,
            "Long memory is sensitive, and no gradient explodes",
            ["Dashed: the closed form. (dh/dν)²: of the unit with normalised inputs and λ = exp(-exp(ν))."],
            keys,
        )
    return figure


def run() -> None:
    """What the command line calls."""
    cli.run(main, get_config, doc=__doc__, variants=VARIANTS)


if __name__ == "__main__":
    run()
