"""Figures of word vectors: where they lie, and how alike they are."""

from collections.abc import Mapping, Sequence

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from rnnjax.report.style import COLORS, FAINT, OTHER_COLORS, STYLE, frame

WIDTH, HEIGHT = 9.0, 4.9  # inches
LINE, LETTER = 9.5, 5.0  # points, of the small words in a picture
_GROUP_COLORS = (*COLORS.values(), *OTHER_COLORS)
_MARKERS = "osD^v<>p"


def principal_axes(vectors: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(points [N, 2], shares [2]): vectors [N, D] along the two directions in which they vary most, and the shares of
    the variance that these have. The largest coordinate of each direction is positive, so that the picture stays."""
    centred = np.asarray(vectors, np.float64) - np.mean(vectors, 0)
    points, scales, _ = np.linalg.svd(centred, full_matrices=False)
    found = np.zeros((len(centred), 2))
    count = min(2, len(scales))
    found[:, :count] = points[:, :count] * scales[:count]
    largest = np.take_along_axis(found, np.abs(found).argmax(0)[None], 0)
    found *= np.where(largest < 0, -1, 1)
    shares = np.zeros(2)
    shares[:count] = scales[:count] ** 2 / max(np.sum(scales**2), np.finfo(float).tiny)
    return found, shares


def projection(panels: Mapping[str, np.ndarray], groups: Mapping[str, Sequence[str]], *, title: str) -> Figure:
    """A point a word along the two principal axes, one panel for each {title: vectors [N, D]}.

    groups: {name: words}, whose words are the rows in this order; a colour and a marker each.
    """
    looks = {name: (_GROUP_COLORS[i % len(_GROUP_COLORS)], _MARKERS[i % 8]) for i, name in enumerate(groups)}
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(WIDTH, HEIGHT), layout="constrained")
        row = figure.subplots(1, len(panels), squeeze=False)[0]
        for axes, (heading, vectors) in zip(row, panels.items(), strict=True):
            points, shares = principal_axes(vectors)
            named = [(word, *looks[name]) for name in groups for word in groups[name]]
            _named_points(axes, points, named, WIDTH / len(panels))
            axes.set_title(heading, parse_math=False)
            axes.set(xlabel=f"first axis ({shares[0]:.0%} of the variance)", ylabel=f"second axis ({shares[1]:.0%})")
        keys = [
            Line2D([], [], color=color, marker=marker, linestyle="", markersize=5, label=name)
            for name, (color, marker) in looks.items()
        ]
        frame(figure, title, [], keys if len(groups) > 1 else [])
    return figure


def _named_points(axes: Axes, points: np.ndarray, names: Sequence[tuple[str, str, str]], width: float) -> None:
    """Points with the words beside them; words that would lie on each other stand in a column, with lines to their
    points. names: (word, colour, marker) of each. width: of the panel in inches."""
    low, high = points.min(0), points.max(0)
    middle, half = (low + high) / 2, np.maximum(high - low, 1e-9) * 0.7
    axes.set(xlim=(middle[0] - half[0], middle[0] + half[0]), ylim=(middle[1] - half[1], middle[1] + half[1]))
    room = np.array([width - 1, HEIGHT - 1.6]) * 72  # about that of a panel, in points
    at = (points - middle) / (2 * half) * room
    for members in _crowds(at, [LETTER * len(word) for word, _, _ in names]):
        crowd = at[members]
        top = crowd[:, 1].mean() + LINE * (len(members) - 1) / 2
        lowest = LINE * (len(members) - 0.5) - room[1] / 2
        top = min(max(top, lowest), room[1] / 2 - LINE / 2)
        for rank, number in enumerate(members):
            word, color, marker = names[number]
            axes.plot(*points[number], marker, color=color, markersize=4.5)
            beside = crowd[:, 0].max() if np.ptp(crowd[:, 0]) < 30 else at[number, 0]
            place = beside + 6 - at[number, 0], top - rank * LINE - at[number, 1]
            line = {"arrowstyle": "-", "color": color, "linewidth": 0.4, "shrinkA": 0, "shrinkB": 0, "relpos": (0, 0.5)}
            axes.annotate(
                word, points[number], place, textcoords="offset points", fontsize=8, color=color, va="center",
                parse_math=False, arrowprops=line,
            )  # fmt: skip


def _crowds(at: np.ndarray, widths: Sequence[float]) -> list[list[int]]:
    """The points, in points of the page, whose words would lie on each other: lists of rows, from the top down."""

    def touch(one: int, other: int) -> bool:
        left, right = (one, other) if at[one, 0] <= at[other, 0] else (other, one)
        return abs(at[one, 1] - at[other, 1]) < LINE and at[right, 0] - at[left, 0] < widths[left] + 6

    crowds: list[list[int]] = []
    for number in range(len(at)):
        joined = [crowd for crowd in crowds if any(touch(number, other) for other in crowd)]
        crowds = [crowd for crowd in crowds if crowd not in joined]
        crowds.append([number, *(other for crowd in joined for other in crowd)])
    return [sorted(crowd, key=lambda number: (-at[number, 1], number)) for crowd in crowds]


def similarity_maps(panels: Mapping[str, np.ndarray], words: Sequence[str], *, title: str) -> Figure:
    """Cosine similarities of all pairs of words, one panel for each {title: similarities [N, N]}."""
    with matplotlib.rc_context(STYLE | {"axes.grid": False}):
        figure = Figure(figsize=(WIDTH, 0.75 + WIDTH / max(len(panels), 2)), layout="constrained")
        row = figure.subplots(1, len(panels), sharey=True, squeeze=False)[0]
        for axes, (heading, similarities) in zip(row, panels.items(), strict=True):
            image = axes.imshow(similarities, vmin=-1, vmax=1, cmap="RdBu_r", interpolation="nearest")
            axes.set_title(heading, parse_math=False)
            axes.set_xticks(range(len(words)), words, rotation=90, fontsize=7, parse_math=False)
            axes.set_yticks(range(len(words)), words, fontsize=7, parse_math=False)
            axes.tick_params(length=0)
        bar = figure.colorbar(image, ax=list(row), shrink=0.7, pad=0.01)
        bar.set_label("cosine similarity", color=FAINT, fontsize=9)
        bar.outline.set_visible(False)
        frame(figure, title, [], [])
    return figure
