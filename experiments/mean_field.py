"""Three ways to one number: mean-field theory, the slope of the gradient, and the largest Lyapunov exponent.

Question: does chi, which theory computes of the variances of weights and inputs alone, say how ||dL/dh_t||^2 changes a
    step, and how small changes of the state grow?
Source: Chen, Pennington, Schoenholz 2018 (mean field); Vogt et al. 2022 (Lyapunov exponents).
Command: python -m experiments.mean_field --workdir=runs/mean_field
Expected: in large random tanh networks the slope of log ||dL/dh_t||^2, and twice the largest Lyapunov exponent, are
    log chi to 0.03 and 0.04 nats a step, on both sides of chi = 1. What the weights alone would say, the log of their
    variance, is off by 0.2 and more.
Runtime: quick, under 1 minute on 1 core; full, about 10 minutes.
"""

import dataclasses
import pathlib

import jax
import jax.numpy as jnp
import matplotlib
import numpy as np
from matplotlib.figure import Figure

from experiments.common.claims import Claim
from experiments.common.study import is_default, unclaimed
from experiments.common.study_report import Study, Table, write_report
from experiments.common.untrained import check_counts, draw, kept, line_keys, norms_by_distance, root_keys, slopes
from rnnjax import probes
from rnnjax.cells import Elman
from rnnjax.report.figures import DISTANCE, WIDTH
from rnnjax.report.style import FAINT, STYLE, cell_styles, frame
from rnnjax.train import cli
from rnnjax.train.config import UsageError, to_dict
from rnnjax.train.records import claim_workdir

VARIANTS = ("tanh",)
CHEN = "Chen, Pennington, Schoenholz 2018"
VOGT = "Vogt et al. 2022; Chen, Pennington, Schoenholz 2018"


@dataclasses.dataclass
class Config:
    """hidden_size: units; theory is of infinitely many.
    length: steps from the loss over which the slope is taken.
    burn_in: steps before these, in which the state forgets that it starts at 0; the exponent's basis turns in them.
    spectrum: steps over which the exponent is taken.
    batch: sequences a network, each with a loss of its own.
    weight_sds: standard deviations of W's entries, times the root of hidden_size.
    input_sds: standard deviations of what is added to every unit at every step, one for each of weight_sds.
    seeds: how many networks are drawn of each pair.
    seed: the first.
    """

    hidden_size: int = 512
    length: int = 80
    burn_in: int = 40
    spectrum: int = 300
    batch: int = 4
    weight_sds: tuple[float, ...] = (0.9, 1.1, 1.5, 2.0, 1.3)
    input_sds: tuple[float, ...] = (0.3, 0.3, 0.3, 0.3, 1.0)
    seeds: int = 4
    seed: int = 4300


def get_config(variant: str, preset: str) -> Config:
    """The config: `quick`, or larger networks for longer."""
    del variant  # there is but one
    return Config() if preset == "quick" else Config(hidden_size=1024, length=160, spectrum=1000, seeds=10)


def check(config: Config) -> None:
    """Raises UsageError for a config that can't be."""
    check_counts(config, hidden_size=2, length=2, burn_in=0, spectrum=1, batch=1, seeds=1)
    weights, inputs = config.weight_sds, config.input_sds
    if not weights or len(inputs) != len(weights):
        told = f"{cli.show(inputs)} and --config.weight_sds {cli.show(weights)}"
        raise UsageError(f"--config.input_sds is {told}: expected one for each of one or more")
    if len(set(pairs(config))) < len(weights):
        raise UsageError(f"--config.weight_sds and --config.input_sds give {pairs(config)}: expected each pair once")
    for name in ("weight_sds", "input_sds"):
        if not all(0 < value < float("inf") for value in getattr(config, name)):
            told = cli.show(getattr(config, name))
            raise UsageError(f"--config.{name} is {told}: expected numbers above 0, since a state of 0 stays at 0")


def pairs(config: Config) -> tuple[tuple[float, float], ...]:
    """(weight_sd, input_sd) of every setting."""
    return tuple(zip(config.weight_sds, config.input_sds, strict=True))


def main(config: Config, workdir: pathlib.Path) -> None:
    """Measures and writes the report. What is measured in `workdir` is not measured again."""
    check(config)
    claim_workdir(workdir, {"experiment": "mean_field", "config": to_dict(config)})
    found, seconds = kept(workdir, lambda: measure(config))
    default = is_default(config, get_config, VARIANTS[0], "seed")
    study = report(config, found, claims(config, found) if default else [])
    write_report(workdir, study if default else unclaimed(study), seconds)


def log_chi(weight_sd: float, input_sd: float) -> float:
    """log of chi = weight_sd^2 E[tanh'(sqrt(q) z)^2], z normal, at the q that stays.

    q = weight_sd^2 E[tanh(sqrt(q) z)^2] + input_sd^2 is the variance of what tanh is applied to. Chen, Pennington,
    Schoenholz 2018, for a vanilla network; by quadrature.
    """
    z, weights = np.polynomial.hermite_e.hermegauss(128)
    weights = weights / weights.sum()
    q = weight_sd**2 + input_sd**2
    for _ in range(1000):
        q = weight_sd**2 * weights @ np.tanh(np.sqrt(q) * z) ** 2 + input_sd**2
    return float(np.log(weight_sd**2 * weights @ (1 - np.tanh(np.sqrt(q) * z) ** 2) ** 2))


def measure(config: Config) -> dict[str, np.ndarray]:
    """ "norms" [pair, seed, T, B], log10 norms by distance; "exponent" and its standard "error" [pair, seed]."""
    cell = Elman(config.hidden_size, config.hidden_size, input_init="identity", recurrent_init="scaled_normal")
    norms, time = norms_by_distance(cell, field="h"), config.length + config.burn_in

    @jax.jit  # once for all pairs and seeds, which follow one another: in memory one network is enough
    def run(key, weight_sd, input_sd):
        drawn = draw(cell, key, input_sd, {"gain": weight_sd}, time, config.batch)
        shape = (config.spectrum + config.burn_in, config.hidden_size)
        inputs = input_sd * jax.random.normal(jax.random.fold_in(key, 1), shape, jnp.float64)
        found = probes.lyapunov_spectrum(cell, drawn[0], inputs, count=1, burn_in=config.burn_in)
        return {"norms": norms(*drawn)[: config.length], "exponent": found.exponents[0], "error": found.error[0]}

    rows = [[jax.device_get(run(key, *pair)) for key in root_keys(config)] for pair in pairs(config)]
    return {name: np.array([[one[name] for one in row] for row in rows]) for name in rows[0][0]}


def claims(config: Config, found: dict[str, np.ndarray]) -> list[Claim]:
    """What theory says of large networks, means over seeds; and that the weights alone do not say it."""
    theory = np.array([log_chi(*pair) for pair in pairs(config)])
    of_gradient, exponents = 2 * slopes(found["norms"]), 2 * found["exponent"]
    of_slope = float(np.max(np.abs(of_gradient.mean(1) - theory)))
    of_exponent = float(np.max(np.abs(exponents.mean(1) - theory)))
    sides = np.sign(theory)[:, None]
    wrong = float(np.sum(~((np.sign(of_gradient) == sides) & (np.sign(exponents) == sides))))
    alone = 2 * np.log(np.array(config.weight_sds))
    least = float(np.min(np.abs(of_gradient.mean(1) - alone)))
    return [
        Claim(
            "The slope of log ||dL/dh_t||^2 is log chi (the largest difference, nats a step, means over seeds)",
            CHEN,
            "<= 0.03",
            of_slope,
            of_slope <= 0.03,
        ),
        Claim(
            "Twice the largest Lyapunov exponent is log chi (the largest difference, nats a step, means over seeds)",
            VOGT,
            "<= 0.04",
            of_exponent,
            of_exponent <= 0.04,
        ),
        Claim(
            "chi = 1 parts the networks: slope and exponent are below 0 where chi < 1, and above where chi > 1 "
            "(networks of which that is not so)",
            CHEN,
            "0",
            wrong,
            wrong == 0,
        ),
        Claim(
            "Control: the weights alone do not tell it, since inputs and states drive tanh to where it is flat: the "
            "log of their variance is off (the least difference from the slope, nats a step)",
            "derived: chi is that variance times E[tanh'^2], which is 0.75 or less here by quadrature",
            ">= 0.2",
            least,
            least >= 0.2,
        ),
    ]


def report(config: Config, found: dict[str, np.ndarray], made: list[Claim]) -> Study:
    """The table of the three numbers and the picture."""
    of_gradient, exponents = 2 * slopes(found["norms"]), 2 * found["exponent"]
    rows = [
        (
            f"{pair[0]:g}",
            f"{pair[1]:g}",
            f"{log_chi(*pair):+.3f}",
            *(f"{values[at].mean():+.3f} ({np.ptp(values[at]) / 2:.3f})" for values in (of_gradient, exponents)),
            f"{2 * np.log(pair[0]):+.3f}",
        )
        for at, pair in enumerate(pairs(config))
    ]
    header = ("sd of weights", "sd of inputs", "log chi", "slope of log norm^2", "2 x exponent", "log variance")
    error = 2 * float(np.max(found["error"]))
    told = f"{error:.3f}" if np.isfinite(error) else "not known of so few steps"
    note = f"""Nats a step; the mean over seeds and, in brackets, half their range. The standard error of twice an
exponent, from parts of its trajectory, is at most {told}."""
    text = f"""
{config.seeds} tanh networks of {config.hidden_size} units a row, W Gaussian. An input of its own is added to every unit
at every step. The gradient is taken over {config.length} steps of {config.batch} sequences that had
{config.burn_in} before, the largest Lyapunov exponent by QR over {config.spectrum}. The loss is a random projection of
the last hidden state; everything is in float64. chi is computed by quadrature of the two standard deviations."""
    drawn = {"three_ways": (draw_three(config, found), "Theory, gradients and Lyapunov exponents")}
    table = Table("Three ways to one number", header, rows, " ".join(note.split()))
    title = "Mean field, gradients and Lyapunov exponents"
    return Study("mean_field", title, " ".join(text.split()), [table], drawn, made)


def draw_three(config: Config, found: dict[str, np.ndarray]) -> Figure:
    """Left, log chi over the weights' deviation and what was measured; right, the norms, with theory's slope dotted."""
    of_gradient, exponents = 2 * slopes(found["norms"]), 2 * found["exponent"]
    labels = {pair: f"weights {pair[0]:g}, inputs {pair[1]:g}" for pair in pairs(config)}
    styles = cell_styles(tuple(labels.values()))
    distance = np.arange(config.length)
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(WIDTH, 4.6), layout="constrained")
        left, right = figure.subplots(1, 2)
        reach = np.linspace(0.9 * min(config.weight_sds), 1.05 * max(config.weight_sds), 40)
        for input_sd in dict.fromkeys(config.input_sds):
            left.plot(reach, [log_chi(sd, input_sd) for sd in reach], color=FAINT, linestyle=":", linewidth=1.4)
        for at, (pair, label) in enumerate(labels.items()):
            color, dashes = styles[label]
            left.plot([pair[0]] * config.seeds, of_gradient[at], "o", color=color, markersize=9, markerfacecolor="none")
            left.plot([pair[0]] * config.seeds, exponents[at], "x", color=color, markersize=6)
            middle = np.median(np.moveaxis(found["norms"][at], 1, 0).reshape(config.length, -1), axis=1)
            law = middle[0] + distance * log_chi(*pair) / 2 / np.log(10)
            right.plot(distance, middle, color=color, linestyle=dashes)
            right.plot(distance, law, color=FAINT, linestyle=":", linewidth=1.4)
        left.axhline(0, color=FAINT, linewidth=0.8)
        left.set(title="log chi, dotted", xlabel="standard deviation of the weights", ylabel="nats a step")
        right.set(title="the gradient, and log chi / 2 dotted", xlabel=DISTANCE)
        right.set_ylabel(r"$\log_{10}\,\Vert \partial L\,/\,\partial h_t \Vert$")
        notes = ["Circles: slope of log ||dL/dh||^2. Crosses: twice the largest Lyapunov exponent. One a network."]
        notes += ["Lines on the right: median over seeds and sequences."]
        frame(figure, "Three ways to one number", notes, line_keys(styles))
    return figure


def run() -> None:
    """What the command line calls."""
    cli.run(main, get_config, doc=__doc__, variants=VARIANTS)


if __name__ == "__main__":
    run()
