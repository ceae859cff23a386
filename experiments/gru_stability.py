"""When a GRU without input is stable, and what its gradient does where it stops being so.

Question: does the largest singular value of a GRU's recurrent matrix tell whether its state, and the gradient through
    it, die out or grow?
Source: Kanai, Fujiwara, Iwamura 2017, "Preventing gradient explosions in gated recurrent units".
Command: python -m experiments.gru_stability --workdir=runs/gru_stability
Expected: with biases and inputs of zero the Jacobian at h = 0 is I / 2 + W_n / 4, wherever the reset gate stands. Where
    sigma_1(W_n) < 2 every draw is stable and its gradient vanishes; above it most Gaussian draws still are, since the
    condition suffices and is not necessary. With W_n = c I the gradient stops vanishing at c = 2, where the state
    leaves 0: a bifurcation, at which the largest Lyapunov exponent touches 0. Without a reset gate both stand at 1.
Runtime: quick, about 10 seconds; full, under a minute.

W_n is the candidate's recurrent matrix. At h = 0 both gates are 1/2, whatever their matrices: h_t = u h_{t-1} + (1 - u)
tanh(r W_n h_{t-1}) gives I / 2 + W_n / 4. Nothing is trained here: whether a bound on W_n helps a training is another
question.
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
from matplotlib.lines import Line2D

from experiments.common.claims import Claim
from experiments.common.study import is_default
from experiments.common.study_report import Study, Table, write_report
from experiments.common.untrained import check_counts, kept, norms_by_distance, one_by_one, root_keys
from rnnjax import probes, unroll
from rnnjax.cells import GRU
from rnnjax.report.figures import WIDTH
from rnnjax.report.style import FAINT, INK, STYLE, cell_styles, frame
from rnnjax.train import cli
from rnnjax.train.config import to_dict
from rnnjax.train.records import claim_workdir

VARIANTS = ("autonomous",)
FORMS = ("after", "before", "none")
SCALES = np.linspace(0, 4, 33)  # c of W_n = c I; 2 is one of them
NEAR = 0.25  # of c = 2, where the state takes longer to settle than is waited
RANGES = {"stable": (0.0, 2.0), "above": (2.0, 3.5)}
KANAI = "Kanai, Fujiwara, Iwamura 2017, as recalled"


@dataclasses.dataclass
class Config:
    """hidden_size: of the GRU.
    steps: over which gradients and exponents are taken.
    settle: steps before that in which the state settles.
    seed: the first.
    seeds: draws of the matrices, half of them on each side of the threshold.
    """

    hidden_size: int = 32
    steps: int = 100
    settle: int = 1000
    seed: int = 3001
    seeds: int = 200


def get_config(variant: str, preset: str) -> Config:
    """A hundred draws on each side, or of larger networks five hundred."""
    del variant  # there is but one
    return Config() if preset == "quick" else Config(hidden_size=64, steps=200, seeds=1000)


def check(config: Config) -> None:
    """Raises UsageError for a config that can't be."""
    check_counts(config, hidden_size=1, steps=10, settle=0, seeds=2)


def main(config: Config, workdir: pathlib.Path) -> None:
    """Measures, judges and writes the report. What is measured in `workdir` is not measured again."""
    check(config)
    claim_workdir(workdir, {"experiment": "gru_stability", "config": to_dict(config)})
    found, seconds = kept(workdir, functools.partial(measure, config))
    claims = judge(found) if is_default(config, get_config, VARIANTS[0], "seed") else []
    write_report(workdir, report(found, claims), seconds)


def with_candidate(params: dict, W_n: jax.Array) -> dict:
    """The parameters with W_n, which acts on rows as all matrices here do, as the candidate's matrix."""
    rest = params["W_hh"][:, : -W_n.shape[1]]
    return params | {"W_hh": jnp.concatenate([rest, W_n], axis=1)}


def measure(config: Config) -> dict:
    """sigma, radius of the Jacobian, its error and the gradient's slope [form, draw]; radius and slope of W_n = c I
    [form, C]; the settled exponent and state [C].
    """
    draws = config.seeds
    low, high = (np.repeat([one[at] for one in RANGES.values()], [(draws + 1) // 2, draws // 2]) for at in (0, 1))
    random = one_by_one(functools.partial(draw_candidate, config.hidden_size))(root_keys(config), low, high)
    W_n = np.concatenate([random, SCALES[:, None, None] * np.eye(config.hidden_size)])
    keys = root_keys(config)[np.concatenate([np.arange(draws), np.zeros(len(SCALES), int)])]
    rows = []
    for form in FORMS:
        cell = GRU(1, config.hidden_size, reset=form)
        error, jacobian, slope = one_by_one(functools.partial(at_rest, cell, config.steps))(keys, W_n)
        rows.append((np.linalg.norm(W_n, 2, axis=(1, 2)), error, radii(np.asarray(jacobian)), slope))
    found = {name: np.stack([row[at] for row in rows]) for at, name in enumerate(("sigma", "error", "radius", "slope"))}
    of_c = {f"{name}_of_c": found[name][:, draws:] for name in ("radius", "slope")}
    found = {name: values[:, :draws] for name, values in found.items()}
    exponent, state = settled(GRU(1, config.hidden_size), config.settle, config.steps)
    return {**found, **of_c, "exponent": exponent, "state": state}


def draw_candidate(size: int, key: jax.Array, low: jax.Array, high: jax.Array) -> jax.Array:
    """A Gaussian W_n [H, H] whose largest singular value is U(low, high)."""
    matrix_key, sigma_key = jax.random.split(jax.random.fold_in(key, 0))
    W_n = jax.random.normal(matrix_key, (size, size), jnp.float64)
    return W_n * jax.random.uniform(sigma_key, (), jnp.float64, low, high) / jnp.linalg.norm(W_n, 2)


def at_rest(cell: GRU, steps: int, key: jax.Array, W_n: jax.Array):
    """(the Jacobian's largest error, the Jacobian [H, H], the gradient's slope) at h = 0, the other matrices drawn.

    The slope is that of the late half, in nats a step back from a loss that is a random projection of h_T.
    """
    params_key, loss_key = jax.random.split(jax.random.fold_in(key, 1))
    size = cell.hidden_size
    params = with_candidate(cell.init(params_key, jnp.float64), W_n)
    jacobian = probes.step_jacobians(cell, params, jnp.zeros((1, 1)))[0]
    error = jnp.max(jnp.abs(jacobian - jnp.eye(size) / 2 - W_n.T / (2 if cell.reset == "none" else 4)))
    weights = jax.random.normal(loss_key, (1, size), jnp.float64)
    norms = norms_by_distance(cell)(params, jnp.zeros((steps, 1, 1)), weights)[:, 0]
    return error, jacobian, probes.slope(norms[steps // 2 :])


def settled(cell: GRU, wait: int, steps: int):
    """(largest Lyapunov exponent, mean |h|) [C] of W_n = c I and gates of no weights, settled from a small state."""
    size = cell.hidden_size
    zeros = jax.tree.map(jnp.zeros_like, cell.init(jax.random.key(0), jnp.float64))
    start = 1e-3 * jnp.where(jnp.arange(size) % 2, -1.0, 1.0)

    def one(scale):
        params = with_candidate(zeros, scale * jnp.eye(size))
        carry = unroll(cell, params, jnp.zeros((wait, 1)), cell.initial_carry(params)._replace(h=start)).carry
        spectrum = probes.lyapunov_spectrum(cell, params, jnp.zeros((steps, 1)), carry, count=1)
        return spectrum.exponents[0], jnp.abs(spectrum.carry.h).mean()

    return one_by_one(one)(SCALES)


def theory(scales: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(largest exponent, |h|) of W_n = c I and gates of no weights: h = tanh(c h / 2), J = 1/2 + (1 - h^2) c / 4."""
    h = np.where(scales > 2, 1.0, 0.0)
    for _ in range(10_000):
        h = np.tanh(scales * h / 2)
    return np.log(0.5 + scales * (1 - h * h) / 4), h


def radii(jacobians: np.ndarray) -> np.ndarray:
    """The spectral radius of each."""
    finite = np.isfinite(jacobians).all((-1, -2))
    safe = np.where(finite[..., None, None], jacobians, 0)
    return np.where(finite, np.abs(np.linalg.eigvals(safe)).max(-1), np.nan)


def crossing(values: np.ndarray) -> float:
    """The c at which values [C] first rise above 0, between two of SCALES; nan where they never do."""
    above = np.flatnonzero(values > 0)
    if not above.size or above[0] == 0:
        return math.nan
    right = above[0]
    left = right - 1
    share = -values[left] / (values[right] - values[left])
    return float(SCALES[left] + share * (SCALES[right] - SCALES[left]))


def judge(found: dict) -> list[Claim]:
    """The claims of the docstring."""
    claims, gated, stable = [], [FORMS.index("after"), FORMS.index("before")], found["sigma"][0] < 2

    def add(text, source, expected, measured, holds):
        claims.append(Claim(text, source, expected, float(measured), bool(holds)))

    error = found["error"][gated].max()
    text = "The Jacobian at h = 0 is I / 2 + W_n / 4, with the reset gate after and before the matmul (largest error)"
    add(text, f"{KANAI}; derived", "<= 1e-6", error, error <= 1e-6)
    radius = found["radius"][gated][:, stable].max()
    text = "Where sigma_1(W_n) < 2, the spectral radius of the Jacobian is below 1 in every draw (the largest)"
    add(text, KANAI, "< 1", radius, radius < 1)
    slope = found["slope"][gated][:, stable].max()
    text = "Where sigma_1(W_n) < 2, dL/dh_t vanishes with distance in every draw (largest slope, nats a step)"
    add(text, KANAI, "< 0", slope, slope < 0)
    still = np.mean(found["radius"][0, ~stable] < 1)
    text = "Control: it is not necessary. Gaussian draws with sigma_1(W_n) of 2 to 3.5 that are stable (share)"
    add(text, "circular law: rho(J) is near 1/2 + sigma_1 / 8", ">= 0.5", still, still >= 0.5)
    for form, at, why in (("after", 2, "1/2 + c / 4 = 1"), ("none", 1, "1/2 + c / 2 = 1")):
        number = FORMS.index(form)
        crossings = [crossing(np.log(found["radius_of_c"][number])), crossing(found["slope_of_c"][number])]
        off = np.max(np.abs(np.array(crossings) - at))
        turns = "Control: without a reset gate it turns" if form == "none" else "With W_n = c I the GRU turns unstable"
        text = f"{turns} at c = {at}: there |eigenvalue| crosses 1, and the gradient's slope 0 (largest distance)"
        add(text, f"derived: {why}", "<= 0.01", off, off <= 0.01)
    exponent, state = theory(SCALES)
    away = np.abs(SCALES - 2) > NEAR
    off = np.abs(found["exponent"] - exponent)[away].max()
    text = "Settled, its largest Lyapunov exponent is log(1/2 + (1 - h^2) c / 4) with h = tanh(c h / 2) (largest error)"
    add(text, f"derived; for |c - 2| > {NEAR}", "<= 0.01", off, off <= 0.01)
    off = np.abs(found["state"] - state)[away].max()
    text = "and its state is that h: 0 below c = 2, and not above (largest error)"
    add(text, f"derived; for |c - 2| > {NEAR}", "<= 0.01", off, off <= 0.01)
    return claims


def report(found: dict, claims: list[Claim]) -> Study:
    """The table of draws and the picture."""
    rows = []
    for number, form in enumerate(FORMS):
        for name, (low, high) in RANGES.items():
            chosen = (found["sigma"][number] < 2) == (name == "stable")
            radius, slope = found["radius"][number, chosen], found["slope"][number, chosen]
            share = f"{np.mean(radius < 1):.0%}"
            rows.append((f"reset {form}", f"{low:g} to {high:g}", chosen.sum(), share, radius.max(), slope.max()))
    header = ("form", "sigma_1(W_n)", "draws", "stable", "largest rho(J)", "largest slope (nats a step)")
    table = Table("Gaussian draws, at h = 0 without input", header, rows, " ".join(NOTE.split()))
    caption = "Spectral radius and gradient of random draws, and the bifurcation of W_n = c I"
    drawn = {"stability": (draw_stability(found), caption)}
    return Study("gru_stability", "When a GRU is stable", " ".join(TEXT.split()), [table], drawn, claims)


TEXT = """A GRU with biases and inputs of zero stays at h = 0, where its gates are 1/2. Whether it comes back there, and
whether a gradient through it grows, is told by the eigenvalues of I / 2 + W_n / 4, and that sigma_1(W_n) is below 2
suffices. Past the bifurcation the settled state is stable again: a gradient grows only on the way from one state to the
other. Whether keeping W_n within that bound helps a training is not measured here; the paper's comparison was
criticised for learning rates that differ between methods."""
NOTE = """Slopes are those of log ||dL/dh_t|| a step back from the loss, over the late half. Without a reset gate the
Jacobian is I / 2 + W_n / 2 and the bound is 1: half of the draws below 2 are beyond it."""


def draw_stability(found: dict) -> Figure:
    """Radius against sigma_1, the gradient's slope against c, and the largest exponent and the state against c."""
    styles = cell_styles(("gru", "without reset gate"))
    exponent, state = theory(SCALES)
    bound = np.linspace(0, RANGES["above"][1], 50)
    line = {"color": INK, "linewidth": 1, "linestyle": (0, (4, 2))}
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(WIDTH, 4.6), layout="constrained")
        left, middle, right = figure.subplots(1, 3)
        for form, style in zip(("after", "none"), styles.values(), strict=True):
            number, factor = FORMS.index(form), 2 if form == "none" else 4
            left.plot(found["sigma"][number], found["radius"][number], ".", color=style.color, markersize=4)
            left.plot(bound, 0.5 + bound / factor, **line)
            middle.plot(SCALES, found["slope_of_c"][number], ".", color=style.color, markersize=6)
            middle.plot(SCALES, np.log(0.5 + SCALES / factor), **line)
        for name, marker, of_theory in (("exponent", ".", exponent), ("state", "x", state)):
            right.plot(SCALES, found[name], marker, color=styles["gru"].color, markersize=5)
            right.plot(SCALES, of_theory, **line)
        for axes, level in ((left, 1), (middle, 0), (right, 0)):
            axes.axhline(level, color=FAINT, linewidth=0.8)
        left.set(xlabel=r"$\sigma_1(W_n)$", ylabel=r"$\rho(J)$ at h = 0", title="random draws")
        middle.set(
            xlabel="c",
            ylabel=r"slope of $\log\,\Vert\partial L/\partial h_t\Vert$ (nats a step)",
            title=r"$W_n = c\,I$, at h = 0",
        )
        right.set(xlabel="c", ylabel="exponent (nats a step), mean |h|", title=r"$W_n = c\,I$, settled")
        keys = [
            Line2D([], [], color=style.color, marker="o", linestyle="", label=name) for name, style in styles.items()
        ]
        keys.append(Line2D([], [], color=styles["gru"].color, marker="x", linestyle="", label="mean |h|, right"))
        keys.append(Line2D([], [], **line, label="theory"))
        notes = ["Theory on the left is the bound 1/2 + sigma_1 / 4, or / 2 without a reset gate; a dot is a draw."]
        frame(figure, "A GRU without input, and its gradient", notes, keys)
    return figure


def run() -> None:
    """What the command line calls."""
    cli.run(main, get_config, doc=__doc__, variants=VARIANTS)


if __name__ == "__main__":
    run()
