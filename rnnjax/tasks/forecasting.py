"""Forecasting: how a time series goes on."""

import dataclasses
import functools
import math
from collections.abc import Callable
from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from rnnjax.data.errors import malformed, shown
from rnnjax.data.locate import expanded
from rnnjax.data.series import read_series
from rnnjax.tasks.base import SPLITS, Batch, check_whole, widen
from rnnjax.tasks.bucketed import BucketedTask

SHARES = (0.7, 0.1, 0.2)
STEPS, PERIOD, TREND = 4000, 24, 2e-3
WAVES = ((6.0, 1, 0.5), (3.0, 2, 1.9))
"""(amplitude, cycles in a period, phase in radians) of the generated series."""
MEMORY, NOISE = 0.8, 1.0
"""phi and sigma of the noise u_t = phi u_{t-1} + sigma e_t, e_t ~ N(0, 1), of the generated series."""

MOST, FARTHEST = 1e120, 1e12
"""The largest value, and how many standard deviations away: their squares, and sums of them, are finite, in float64
and in float32."""


@dataclasses.dataclass(frozen=True)
class Forecasting(BucketedTask):
    """From `context` values of a series, x_{t-C+1} .. x_t, the `horizon` next ones, said at t.

        loss = 1/H sum_k (x_t + output_k - x_{t+k})^2, k = 1 .. H,    x in standard deviations of the training split

    Inputs [C, B, 1], targets and outputs [B, H] are differences from x_t, the last value seen: a trend leads out of the
    values of the training split, and would lead a network out of what it knows. They are in standard deviations of the
    training split alone. The splits are the first 70 % of the series, the next 10 % and the last 20 %; a window belongs
    to the split that all values it forecasts are in, and may look back into the one before. Every such window counts.

    Without `path` the series is generated, x_t = 2e-3 t + waves of 24 and 12 steps + u_t, u_t = 0.8 u_{t-1} + e_t, of
    which the best forecast is known (`optimum`).

    Worked example, windows of the series 0, 1, 3, 6, 10 with context=2, horizon=2 and a deviation of 1:

        inputs   -1 0    -2 0
        targets   2 5     3 7

    path: a CSV file (`rnnjax.data.read_series`), or "" for the generated series.
    column: of the file, its name; "" where it holds only one.
    charset: of the file, such as utf-8 or latin-1.
    context: C, how many values are seen.
    horizon: H, how many are forecast.
    season: after how many steps the series repeats itself, for the seasonal-naive forecast and the scale of MASE.
    """

    path: str = ""
    column: str = ""
    charset: str = "utf-8"
    context: int = 48
    horizon: int = 24
    season: int = PERIOD

    buckets: ClassVar[int] = 1
    input_size: ClassVar[int] = 1
    reads_last: ClassVar[bool] = True
    link: ClassVar[str] = "identity"
    unit: ClassVar[str] = "squared standard deviations"

    def __post_init__(self):
        check_whole(self, 1, "context", "horizon", "season")
        if self.season > self.context:
            raise ValueError(f"season of Forecasting is {self.season}: expected at most context, {self.context}")
        if self.column and not self.path:
            raise ValueError(f"column of Forecasting is {self.column!r} but path is '': give the file")

    @property
    def output_size(self) -> int:
        """H."""
        return self.horizon

    @functools.cached_property
    def series(self) -> np.ndarray:
        """float64 [T], in its own units. Raises DataError where there is no such file or it is too short."""
        if self.path:
            held = read_series(
                expanded(self.path), columns=(self.column,) if self.column else (), encoding=self.charset
            )
            if len(held.names) > 1:
                problem = f"holds the columns {', '.join(held.names)}: expected one to forecast"
                raise malformed(self.path, "", problem, "Give its name as `column` (--config.task.column=NAME).")
            column, values = f"column {shown(held.names[0])}", held.values[:, 0]
        else:
            column, values = "", self.generated.values
        name = self.path or "the generated series"
        need = max(math.ceil((self.context + self.horizon) / SHARES[0]), math.ceil((self.horizon + 1) / SHARES[1]))
        if len(values) < need:
            problem = f"{len(values)} values: expected {need} at least, for windows of {self.context} + {self.horizon}"
            raise malformed(name, "", problem, "Take a longer series, or a shorter context or horizon.")
        train = values[: _ends(len(values))["train"]]
        if np.ptp(train / 2) == 0 or np.array_equal(train[self.season :], train[: -self.season]):
            problem = "the training split does not change, or repeats itself to the digit"
            raise malformed(name, column, problem, "Take another column, or another season.")
        _check_range(name, column, values, train)
        return values

    @functools.cached_property
    def generated(self) -> "Generated":
        """The series that stands in for a file's, with its parts. Raises ValueError where there is a file."""
        if self.path:
            raise ValueError(f"path of Forecasting is {self.path!r}: only of the generated series the parts are known")
        return generate(STEPS, seed=0)

    @functools.cached_property
    def scale(self) -> float:
        """The standard deviation of the training split."""
        return float(np.std(self.series[: _ends(len(self.series))["train"]]))

    @functools.cached_property
    def chance(self) -> float:
        """The loss on the validation split of the mean change over 1 .. H steps in the training split."""
        changes = {split: self._changes(split) for split in ("train", "valid")}
        return float(np.mean((changes["valid"] - changes["train"].mean(0)) ** 2))

    def origins(self, split: str) -> np.ndarray:
        """[N], the steps t of a split (train, valid, test) at which a forecast is made."""
        if split not in SPLITS:
            raise ValueError(f"split is {split!r}: expected one of {', '.join(SPLITS)}")
        ends = _ends(len(self.series))
        start = 0 if split == "train" else ends[SPLITS[SPLITS.index(split) - 1]]
        return np.arange(max(start - 1, self.context - 1), ends[split] - self.horizon)

    def contexts(self, split: str) -> np.ndarray:
        """[N, C], what is seen at each origin, in the series' units."""
        return self.series[self.origins(split)[:, None] + np.arange(1 - self.context, 1)]

    def truths(self, split: str) -> np.ndarray:
        """[N, H], what comes after each origin, in the series' units."""
        return self.series[self.origins(split)[:, None] + np.arange(1, self.horizon + 1)]

    def lengths(self, split: str) -> np.ndarray:
        """[N], C of every window."""
        return np.full(len(self.origins(split)), self.context)

    @functools.cached_property
    def _arrays(self) -> dict[str, tuple[np.ndarray, np.ndarray]]:
        """{split: (inputs [N, C], targets [N, H])}."""
        return {
            split: (
                ((self.contexts(split) - self.persistence(split)[:, :1]) / self.scale).astype(np.float32),
                self._changes(split).astype(np.float32),
            )
            for split in SPLITS
        }

    def _changes(self, split: str) -> np.ndarray:
        """[N, H], the changes from the last value seen, in standard deviations."""
        return (self.truths(split) - self.persistence(split)) / self.scale

    def pad(self, split: str, end: int, indices: np.ndarray, batch_size: int) -> Batch:
        """The batch of these windows, which are all of one length."""
        contexts, changes = self._arrays[split]
        inputs = np.zeros((end, batch_size, 1), np.float32)
        targets, mask = np.zeros((batch_size, self.horizon), np.float32), np.zeros(batch_size, np.float32)
        inputs[:, : len(indices), 0] = contexts[indices].T
        targets[: len(indices)], mask[: len(indices)] = changes[indices], 1
        return Batch(inputs, targets, mask)

    def loss(self, outputs: jax.Array, batch: Batch) -> jax.Array:
        """The mean over the horizon: outputs [B, H] -> [B]."""
        return jnp.mean((widen(outputs) - batch.targets) ** 2, -1)

    def metrics(self, outputs, batch):
        """mae [B]: the mean absolute error over the horizon, in the series' units."""
        return {"mae": (self.scale * jnp.mean(jnp.abs(widen(outputs) - batch.targets), -1), batch.mask)}

    def forecasts(self, split: str, batch_size: int, apply: Callable[[Batch], jax.Array]) -> np.ndarray:
        """[N, H], what `apply`, batch -> outputs, makes of every window of a split, in the series' units."""
        last = self.persistence(split)
        changes = np.concatenate([np.asarray(apply(batch)) for batch in self.batches(split, batch_size)])
        return last + self.scale * changes[: len(last)].astype(np.float64)

    def persistence(self, split: str) -> np.ndarray:
        """[N, H], the last value seen, again and again."""
        return np.repeat(self.series[self.origins(split), None], self.horizon, axis=1)

    def seasonal_naive(self, split: str) -> np.ndarray:
        """[N, H], the values of the last season seen, again and again."""
        return self.contexts(split)[:, np.arange(self.horizon) % self.season - self.season]

    def optimum(self, split: str) -> np.ndarray:
        """[N, H], E[x_{t+k} | all that was, and how it is made], of the generated series.

        Its error has the variance sigma^2 (1 - phi^2k) / (1 - phi^2) at the k-th step. Raises ValueError for a file.
        """
        steps = np.arange(1, self.horizon + 1)
        origins = self.origins(split)[:, None]
        return self.generated.course[origins + steps] + MEMORY**steps * self.generated.noise[origins]

    def scores(self, split: str, forecasts: np.ndarray) -> dict[str, float]:
        """{"mae", "rmse"} in the series' units and {"mase"}, of forecasts [N, H] of a split.

        MASE is the MAE over that of the seasonal-naive forecast, one step ahead, in the training split. Source:
        Hyndman, Koehler 2006, "Another look at measures of forecast accuracy".
        """
        errors = forecasts - self.truths(split)
        mae = float(np.mean(np.abs(errors)))
        train = self.series[: _ends(len(self.series))["train"]]
        return {
            "mae": mae,
            "rmse": float(np.sqrt(np.mean(errors**2))),
            "mase": mae / _seasonal_error(train, self.season),
        }


class Generated(NamedTuple):
    """values = course + noise, float64 [T] each: the course is trend and waves."""

    values: np.ndarray
    course: np.ndarray
    noise: np.ndarray


def generate(steps: int, seed: int) -> Generated:
    """The series of the docstring of `Forecasting`, its noise drawn from `seed` and stationary from the first step."""
    draws = np.random.Generator(np.random.Philox(key=np.array([seed, 0], np.uint64))).normal(size=steps)
    noise = np.empty(steps)
    noise[0] = NOISE * draws[0] / math.sqrt(1 - MEMORY**2)
    for t in range(1, steps):
        noise[t] = MEMORY * noise[t - 1] + NOISE * draws[t]
    t = np.arange(steps)
    waves = (size * np.sin(2 * math.pi * cycles * t / PERIOD + phase) for size, cycles, phase in WAVES)
    course = TREND * t + sum(waves)
    return Generated(course + noise, course, noise)


def _ends(length: int) -> dict[str, int]:
    """{split: the step that it ends before}."""
    first, second = (round(length * share) for share in np.cumsum(SHARES)[:2])
    return {"train": first, "valid": second, "test": length}


def _check_range(name: str, column: str, values: np.ndarray, train: np.ndarray) -> None:
    """Raises DataError where squares of the values, or of their changes in the loss, are too large or too small."""
    largest = np.argmax(np.abs(values))
    told = f"value {largest + 1} of {len(values)} is {values[largest]:.6g}"
    if np.abs(values[largest]) > MOST:
        raise malformed(name, column, f"{told}: too large for its square", "Take another unit, or another column.")
    scale = float(np.std(train))
    if scale < 1 / MOST:
        problem = f"its standard deviation in the training split is {scale:.3g}: too small for its square"
        raise malformed(name, column, problem, "Take another unit, or another column.")
    farthest = np.argmax(np.abs(values - train.mean()))
    if abs(values[farthest] - train.mean()) / scale > FARTHEST:
        told = f"value {farthest + 1} of {len(values)} is {values[farthest]:.6g}"
        problem = f"{told}, more than {FARTHEST:g} standard deviations ({scale:.3g}) of the training split away from it"
        raise malformed(name, column, problem, "Mend the value, or take another column.")


def _seasonal_error(values: np.ndarray, season: int) -> float:
    return float(np.mean(np.abs(values[season:] - values[:-season])))
