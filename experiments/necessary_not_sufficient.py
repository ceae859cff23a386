"""A singular value above 1 / gamma is necessary for gradients that explode, and not sufficient.

Question: what does the largest singular value of the recurrent matrix say about dL/dh_t, and the largest |eigenvalue|?
Source: Pascanu, Mikolov, Bengio 2013, section 2.1; Kerg et al. 2019 (matrices that are not normal).
Command: python -m experiments.necessary_not_sufficient --workdir=runs/necessary_not_sufficient
Expected: of random tanh networks none with sigma < 1 has a gradient that grows, at any step, and of sigmoid networks
    none with sigma < 4; of those above it many vanish all the same. Where W is not normal, rho = 0.9 says only what
    comes in the end: the norm of W^k first grows by more than 1e6.
Runtime: quick, under 1 minute on 1 core; full, about 5 minutes.
"""

import dataclasses
import pathlib

import jax
import jax.numpy as jnp
import matplotlib
import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from experiments.common.claims import Claim
from experiments.common.study import is_default, unclaimed
from experiments.common.study_report import Study, Table, write_report
from experiments.common.untrained import check_counts, draw, kept, line_keys, norms_by_distance, root_keys, slopes
from rnnjax import probes
from rnnjax.cells import Elman
from rnnjax.report.figures import WIDTH
from rnnjax.report.style import FAINT, STYLE, cell_styles, frame
from rnnjax.train import cli
from rnnjax.train.config import UsageError, to_dict
from rnnjax.train.records import claim_workdir

VARIANTS = ("random",)
PASCANU = "Pascanu, Mikolov, Bengio 2013, section 2.1"
KERG = "Kerg et al. 2019; derived"
STEEPEST = {"tanh": 1.0, "sigmoid": 0.25}
"""{activation: gamma, its largest slope}"""
RADIUS, SHIFT = 0.9, 0.2
"""Of W = RADIUS I + SHIFT S, which is not normal: S moves every unit's state to the next."""


@dataclasses.dataclass
class Config:
    """hidden_size: units, and features of the inputs.
    length: steps.
    batch: sequences a network, each with a loss of its own.
    input_sd: standard deviation of the inputs.
    lowest_gain: of a tanh network's W, whose entries are N(0, gain^2 / hidden_size); a sigmoid's is 1 / gamma = 4 times
        it.
    highest_gain: likewise; gains are uniform between the two.
    powers: how many powers of the matrix that is not normal are taken.
    seeds: how many networks are drawn of each activation.
    seed: the first.
    """

    hidden_size: int = 32
    length: int = 100
    batch: int = 4
    input_sd: float = 0.5
    lowest_gain: float = 0.2
    highest_gain: float = 3.0
    powers: int = 2000
    seeds: int = 300
    seed: int = 42000


def get_config(variant: str, preset: str) -> Config:
    """The config: `quick`, or ten times the networks."""
    del variant  # there is but one
    return Config() if preset == "quick" else Config(seeds=3000)


def check(config: Config) -> None:
    """Raises UsageError for a config that can't be."""
    check_counts(config, hidden_size=2, length=2, batch=1, powers=1, seeds=1)
    if not 0 <= config.input_sd < float("inf"):
        raise UsageError(f"--config.input_sd is {config.input_sd}: expected at least 0")
    if not 0 < config.lowest_gain < config.highest_gain < float("inf"):
        told = f"{config.lowest_gain} and --config.highest_gain {config.highest_gain}"
        raise UsageError(f"--config.lowest_gain is {told}: expected 0 < lowest < highest")


def main(config: Config, workdir: pathlib.Path) -> None:
    """Measures and writes the report. What is measured in `workdir` is not measured again."""
    check(config)
    claim_workdir(workdir, {"experiment": "necessary_not_sufficient", "config": to_dict(config)})
    found, seconds = kept(workdir, lambda: measure(config))
    default = is_default(config, get_config, VARIANTS[0], "seed")
    made = [*network_claims(found), *power_claims(config, found)] if default else []
    study = report(config, found, made)
    write_report(workdir, study if default else unclaimed(study), seconds)


def measure(config: Config) -> dict[str, np.ndarray]:
    """Of every activation "NAME_sigma" [seed], the largest singular value of W, and "NAME_norms" [seed, T, B], log10
    norms by distance; "shifted" and "normal" [powers + 1], log10 of the spectral norm of W^k.
    """
    found, keys, size = {}, root_keys(config), config.hidden_size
    gains = np.random.default_rng(config.seed).uniform(config.lowest_gain, config.highest_gain, config.seeds)
    for activation, gamma in STEEPEST.items():
        cell = Elman(size, size, activation=activation, recurrent_init="scaled_normal")
        matrices, found[f"{activation}_norms"] = jax.device_get(_run(cell, config, keys, jnp.asarray(gains / gamma)))
        found[f"{activation}_sigma"] = np.linalg.norm(matrices, 2, axis=(-2, -1))
    linear = Elman(size, size, activation="identity", gain=RADIUS)
    params = linear.init(keys[0], jnp.float64)
    shifted = RADIUS * jnp.eye(size) + SHIFT * jnp.eye(size, k=1)
    found["normal"] = log10_powers(linear, params, config.powers)
    found["shifted"] = log10_powers(linear, params | {"W_hh": shifted}, config.powers)
    return found


def _run(cell: Elman, config: Config, keys: jax.Array, gains: jax.Array):
    """(W [seed, H, H], log10 norms by distance [seed, T, B])."""
    norms = norms_by_distance(cell, field="h")

    def of_one(key_and_gain):
        key, gain = key_and_gain
        drawn = draw(cell, key, config.input_sd, {"gain": gain}, config.length, config.batch)
        return drawn[0]["W_hh"], norms(*drawn)

    return jax.jit(lambda *drawn: jax.lax.map(of_one, drawn, batch_size=100))(keys, gains)


def log10_powers(cell: Elman, params: dict, powers: int) -> np.ndarray:
    """log10 of the spectral norm of dh_T/dh_{T-k} without inputs, for k = 0 ... powers."""
    inputs = jnp.zeros((powers + 1, cell.input_size), jnp.float64)
    products = jax.device_get(probes.jacobian_products(probes.step_jacobians(cell, params, inputs)))
    return (np.log10(np.linalg.norm(products.matrix, 2, axis=(-2, -1))) + products.log_scale / np.log(10))[::-1]


def growth(found: dict[str, np.ndarray], activation: str) -> tuple[np.ndarray, np.ndarray]:
    """[seed] each: the slope of log ||dL/dh_t||, mean over sequences, and the most by which it grows in any step of any
    sequence, in nats a step back.
    """
    norms = found[f"{activation}_norms"]
    return slopes(norms), np.log(10) * np.diff(norms, axis=1).max((1, 2))


def network_claims(found: dict[str, np.ndarray]) -> list[Claim]:
    """Of the random networks."""
    made = []
    for activation, gamma in STEEPEST.items():
        slope, most = growth(found, activation)
        sigma = found[f"{activation}_sigma"]
        below, bound = sigma < 1 / gamma, f"sigma < {1 / gamma:g}"
        text = f"No {activation} network with {bound} has a gradient that grows, at any step (how many of {{}} have)"
        if below.any():
            grow = float(np.sum(~(most[below] <= 0)))  # so that nan is one that grows
            made.append(Claim(text.format(below.sum()), PASCANU, "0", grow, grow == 0))
        else:
            made.append(Claim.unmeasured(text.format(0), PASCANU, "0", "no such network was drawn"))
        excess = float(np.max(most - np.log(gamma * sigma)))
        text = f"No step of any {activation} network is above the bound (the most nats above log(gamma sigma))"
        made.append(Claim(text, PASCANU, "<= 1e-9, rounding", excess, excess <= 1e-9))
        vanish = float(np.mean(slope[~below] < 0)) if not below.all() else np.nan
        text = f"Not sufficient: of {activation} networks with sigma > {1 / gamma:g} many vanish all the same (share)"
        source = "a guard: own prototypes of tanh, other seeds, 0.46"
        made.append(Claim(text, source, ">= 0.25", vanish, vanish >= 0.25))
    slope, _ = growth(found, "tanh")
    grow = float(np.mean(slope[found["tanh_sigma"] > 1] > 0))
    text = "Control: of tanh networks with sigma > 1 many do grow, so that the bound is not met for nothing (share)"
    made.append(Claim(text, "a guard: own prototypes, other seeds, 0.54", ">= 0.25", grow, grow >= 0.25))
    return made


def power_claims(config: Config, found: dict[str, np.ndarray]) -> list[Claim]:
    """Of the matrix that is not normal."""
    shifted, expected = found["shifted"], (config.hidden_size - 1) / (1 - RADIUS)
    peak, off = float(np.max(shifted)), float(abs(np.argmax(shifted) / expected - 1))
    last, above = float(shifted[-1]), float(np.max(found["normal"]))
    matrix = f"W = {RADIUS} I + {SHIFT} S"
    return [
        Claim(f"{matrix}: rho < 1, and yet W^k grows (log10 of its norm, the most)", KERG, ">= 6", peak, peak >= 6),
        Claim(
            f"It is largest near k = {expected:.0f} (how far off, relative)",
            "derived: the entry C(k, H - 1) rho^(k - H + 1) 0.2^(H - 1) is largest near (H - 1) / (1 - rho)",
            "<= 0.1",
            off,
            off <= 0.1,
        ),
        Claim(
            f"rho says what comes in the end: it vanishes (log10 of the norm at k = {config.powers})",
            KERG,
            "<= -20",
            last,
            last <= -20,
        ),
        Claim(
            f"Control: a normal matrix of the same rho, {RADIUS} Q, never grows (log10 of the norm, the most)",
            "derived: the singular values of a normal matrix are its |eigenvalues|",
            "<= 1e-9, rounding",
            above,
            above <= 1e-9,
        ),
    ]


def report(config: Config, found: dict[str, np.ndarray], made: list[Claim]) -> Study:
    """The table of networks and the pictures."""
    rows = []
    for activation, gamma in STEEPEST.items():
        slope, most = growth(found, activation)
        below = found[f"{activation}_sigma"] < 1 / gamma
        for name, which in {f"sigma < {1 / gamma:g}": below, f"sigma >= {1 / gamma:g}": ~below}.items():
            counts = (np.sum(which), *(np.sum(one[which]) for one in (slope < 0, slope > 0, most > 0)))
            rows.append((activation, name, *map(int, counts)))
    text = f"""
{config.seeds} networks of {config.hidden_size} units of each activation, W Gaussian, {config.batch} sequences of
{config.length} steps each with inputs of standard deviation {config.input_sd:g}. sigma is the largest singular value
of W, gamma the largest slope of the activation: 1 of tanh, 1/4 of sigmoid. The loss is a random projection of the last
hidden state; everything is in float64. A gradient vanishes where the least-squares slope of log ||dL/dh_t|| over the
distance from the loss is below 0, mean over sequences."""
    header = ("activation", "W", "networks", "vanish", "grow", "grow at some step")
    note = "Grow at some step: in any sequence, the norm is larger one step farther back."
    drawn = {
        "networks": (draw_networks(found), "The slope of every network against the bound"),
        "powers": (draw_powers(found), "Powers of two matrices with the same largest |eigenvalue|"),
    }
    tables = [Table("Random networks", header, rows, note)]
    title = "A large singular value is necessary to explode, and not sufficient"
    return Study("necessary_not_sufficient", title, " ".join(text.split()), tables, drawn, made)


def draw_networks(found: dict[str, np.ndarray]) -> Figure:
    """Slopes against sigma, a panel an activation, a dot a network; the bound is dotted."""
    colors = {"vanishes": "#0072B2", "grows": "#D55E00"}
    marks = {"vanishes": "o", "grows": "^"}
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(WIDTH, 4.5), layout="constrained")
        for axes, (activation, gamma) in zip(figure.subplots(1, 2), STEEPEST.items(), strict=True):
            slope, sigma = growth(found, activation)[0], found[f"{activation}_sigma"]
            for name, which in {"vanishes": slope < 0, "grows": slope > 0}.items():
                axes.plot(sigma[which], slope[which], marks[name], color=colors[name], markersize=3.5, alpha=0.7)
            ends = np.geomspace(sigma.min(), sigma.max())
            axes.plot(ends, np.log(gamma * ends), color=FAINT, linestyle=":", linewidth=1.4)
            axes.axvline(1 / gamma, color=FAINT, linewidth=0.8)
            axes.axhline(0, color=FAINT, linewidth=0.8)
            axes.set(title=f"{activation}, 1 / gamma = {1 / gamma:g}", xlabel="largest singular value of W")
        figure.axes[0].set_ylabel("slope of log ||dL/dh|| (nats a step back)")
        keys = [
            Line2D([], [], color=colors[name], marker=marks[name], linestyle="none", label=name) for name in colors
        ] + [Line2D([], [], color=FAINT, linestyle=":", label="bound, log(gamma sigma)")]
        notes = ["A dot is a network. Left of the vertical line, at 1 / gamma, no gradient can grow."]
        frame(figure, "What the largest singular value says, and what not", notes, keys)
    return figure


def draw_powers(found: dict[str, np.ndarray]) -> Figure:
    """log10 of the norm of W^k over k, of the matrix that is not normal and of the normal one."""
    labels = {"shifted": f"{RADIUS} I + {SHIFT} S, not normal", "normal": f"{RADIUS} Q, normal"}
    styles = cell_styles(tuple(labels.values()))
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(WIDTH, 4.2), layout="constrained")
        axes = figure.subplots()
        for name, label in labels.items():
            axes.plot(found[name], color=styles[label].color, linestyle=styles[label].linestyle)
        axes.axhline(0, color=FAINT, linewidth=0.8)
        axes.set(xlabel="k (steps)", ylabel=r"$\log_{10}\,\Vert W^k \Vert_2$")
        notes = [f"Both have rho = {RADIUS}. S moves every unit's state to the next."]
        frame(figure, "rho < 1 says what comes in the end", notes, line_keys(styles))
    return figure


def run() -> None:
    """What the command line calls."""
    cli.run(main, get_config, doc=__doc__, variants=VARIANTS)


if __name__ == "__main__":
    run()
