"""Static figures of every run, for papers: FOLDER/RUN/{curves,heatmaps,losses}.{png,svg,pdf}."""

import pathlib
from collections.abc import Sequence

import numpy as np

from rnnjax.report import figures
from rnnjax.report.discover import Model, Study, is_number
from rnnjax.report.run_files import Run

FORMATS = ("png", "svg", "pdf")


def write_figures(studies: Sequence[Study], folder: str | pathlib.Path) -> list[pathlib.Path]:
    """Draws what the runs have data for: the figures' paths, without suffix. Raises OSError where it can't write.

    The same files give the same bytes. A run that can't be drawn is among its study's problems.
    """
    written = []
    for study in studies:
        trained = [model for model in study.models if any(row["kind"] in ("train", "eval") for row in model.rows)]
        probed = as_run(study, [model for model in study.models if model.norms], probed=True)
        of_losses = as_run(study, trained, probed=False)
        wanted = [(figures.curves, probed), (figures.heatmaps, probed), (figures.losses, of_losses)]
        for draw, run in wanted:
            if run is None:
                continue
            path = pathlib.Path(folder) / study.label / draw.__name__
            try:
                figure = draw(run)
            except (ValueError, KeyError, TypeError, IndexError) as error:  # rows that no trainer wrote
                study.problems.append(f"{study.folder}: its {draw.__name__} can't be drawn ({error!r})")
                continue
            figures.save(figure, path, FORMATS)
            written.append(path)
    return written


def as_run(study: Study, models: Sequence[Model], *, probed: bool) -> Run | None:
    """The models as the figures take them, a line for every unroll where `probed`; None where there are none."""
    norms, steps, of = {}, {}, {}
    for model in models:
        if not probed:
            of[model.look] = model
        for unroll, values in model.norms.items() if probed else ():
            line = model.look if len(model.norms) == 1 else f"{model.look} {unroll}"
            norms[line], steps[line], of[line] = values, model.steps, model
    if not of:
        return None
    reach = max((values.shape[1] for values in norms.values()), default=1)
    padded = {
        line: {"carry": np.pad(values, [(0, 0), (0, reach - values.shape[1]), (0, 0)], constant_values=np.nan)}
        for line, values in norms.items()
    }
    unit, chance = study.about.get("unit"), study.about.get("chance")
    return Run(
        workdir=study.folder,
        experiment=study.experiment,
        config=study.config,
        cells=tuple(of),
        norms=padded,
        steps=steps,
        distance=np.arange(reach),
        quantile=np.array([0.25, 0.5, 0.75]),
        metrics={line: _rows(model) for line, model in of.items()},
        summaries={line: {"diverged": _diverged(model)} for line, model in of.items()},
        task={
            "task": study.task or study.experiment,
            "unit": unit if isinstance(unit, str) else "",
            "chance": chance if is_number(chance) else None,
        },
        claims=None,
    )


def _rows(model: Model) -> list[dict]:
    """The rows whose loss is a number or null."""
    return [row for row in model.rows if row.get("loss") is None or is_number(row.get("loss"))]


def _diverged(model: Model) -> str | None:
    """When it did, where all of its seeds did."""
    if model.state != "diverged":
        return None
    said = [str(seed.get("stopped")) for seed in model.seeds if seed.get("stopped")]
    return str(model.summary.get("diverged") or (said[0] if said else "in training"))
