"""Forecasts of trained models: their scores, and pictures of them beside what came."""

import pathlib
from collections.abc import Mapping, Sequence

import matplotlib
import numpy as np
from flax import nnx
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from experiments.common.study import applied
from rnnjax.report.style import INK, STYLE, cell_styles, frame
from rnnjax.tasks import Forecasting
from rnnjax.train.records import replacing

WIDTH = 9.0  # inches


class Scorer:
    """model -> its scores on the test split; keeps the forecasts of every seed in FOLDER/forecasts.npz, [R, N, H]."""

    def __init__(self, task: Forecasting, batch_size: int, folder: pathlib.Path):
        self._task, self._batch_size, self._folder = task, batch_size, folder
        self._made: list[np.ndarray] = []

    def __call__(self, model: nnx.Module) -> dict[str, float]:
        forecasts = self._task.forecasts("test", self._batch_size, applied(model))
        self._made.append(forecasts)
        with replacing(self._folder / "forecasts.npz") as path:
            np.savez(path, test=np.stack(self._made))
        return self._task.scores("test", forecasts)


def read_forecasts(folder: pathlib.Path) -> np.ndarray | None:
    """[R, N, H], the test forecasts of every seed of a model; None where every one diverged."""
    path = folder / "forecasts.npz"
    if not path.exists():
        return None
    with np.load(path, allow_pickle=False) as arrays:
        return arrays["test"]


def least_squares(task: Forecasting, split: str) -> np.ndarray:
    """[N, H], the forecast of a split by the linear map of the context that fits the training split best."""

    def seen(split):
        contexts = task.contexts(split)[:, :-1] - task.persistence(split)[:, :1]
        return np.concatenate([contexts, np.ones((len(contexts), 1))], axis=1)

    weights, *_ = np.linalg.lstsq(seen("train"), task.truths("train") - task.persistence("train"), rcond=None)
    return task.persistence(split) + seen(split) @ weights


def errors_by_step(forecasts: np.ndarray, truths: np.ndarray) -> np.ndarray:
    """[..., N, H] and [N, H] -> [..., H], root mean squared errors 1 .. H steps ahead."""
    return np.sqrt(np.mean((forecasts - truths) ** 2, axis=-2))


def draw_forecasts(task: Forecasting, made: Mapping[str, np.ndarray], windows: Sequence[int], title: str) -> Figure:
    """A panel a window of the test split: what was seen, what came, and the forecasts, {label: [N, H]}, of it."""
    styles = cell_styles(tuple(made))
    contexts, truths = task.contexts("test"), task.truths("test")
    before, after = np.arange(1 - task.context, 1), np.arange(task.horizon + 1)
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(WIDTH, 1.2 + 1.7 * len(windows)), layout="constrained")
        panels = figure.subplots(len(windows), 1, sharex=True, squeeze=False)[:, 0]
        for axes, window in zip(panels, windows, strict=True):
            last = contexts[window, -1:]
            axes.plot(before, contexts[window], color=INK, linewidth=1.2)
            axes.plot(after, np.concatenate([last, truths[window]]), color=INK, linewidth=1.2, marker=".")
            for label, forecasts in made.items():
                color, dashes = styles[label]
                axes.plot(after, np.concatenate([last, forecasts[window]]), color=color, linestyle=dashes)
            axes.axvline(0, color="#999999", linewidth=0.8)
            axes.set_ylabel("value")
            axes.set_title(f"from step {task.origins('test')[window]:,}")
        panels[-1].set_xlabel("steps after the last value seen")
        keys = [Line2D([], [], color=INK, linewidth=1.2, marker=".", label="the series")]
        keys += [Line2D([], [], color=one.color, linestyle=one.linestyle, label=label) for label, one in styles.items()]
        frame(figure, title, ["Left of the line: what the forecasts are made from."], keys)
    return figure
