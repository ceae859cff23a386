"""The report of a comparison: report.md, figures, claims.json and a table on the screen."""

import dataclasses
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from experiments.common.claims import Claim, verdicts, write_claims
from experiments.common.curves import QUANTILES, Curve
from rnnjax.report import figures, run_files, tables
from rnnjax.train.records import replacing

SETTINGS = "Every setting and version stands in config.json."


@dataclasses.dataclass(frozen=True)
class Table:
    """heading, header and rows; note: a sentence or two below."""

    heading: str
    header: Sequence[str]
    rows: Sequence[Sequence[Any]]
    note: str = ""


@dataclasses.dataclass(frozen=True)
class Study:
    """What a report tells, in its order.

    name: the study's, and title: of the report.
    text: paragraphs at its head.
    tables: the first `shown` of them are shown on the screen too.
    drawn: {file name without suffix: (figure, caption)}.
    claims: what was judged.
    """

    name: str
    title: str
    text: str
    tables: Sequence[Table]
    drawn: Mapping[str, tuple[Figure, str]]
    claims: Sequence[Claim]
    shown: int = 1


def write_study(workdir: pathlib.Path, study: Study, summaries: Mapping[str, dict[str, Any]]) -> None:
    """The report of models that were trained, with --probe the gradient over time in it."""
    seconds = run_files.seconds_of_study(workdir)
    drawn, shown = dict(study.drawn), list(study.tables)
    if (run := gradient_run(workdir, study, summaries)) is not None:
        drawn["gradients"] = (figures.curves(run), "The gradient on its way back from the loss, in the study's models")
        shown.append(gradient_table(run))
    ran = [
        "## What ran",
        _what_ran(summaries),
        "Every setting and version stands in config.json, the scores of every seed in each model's summary.json.",
    ]
    write_report(workdir, dataclasses.replace(study, tables=shown, drawn=drawn), seconds, ran)


def write_report(workdir: pathlib.Path, study: Study, seconds: float, ending: Sequence[str] = (SETTINGS,)) -> None:
    """Writes claims.json, the figures and, last, report.md into the workdir, and shows the first tables.

    seconds: that what is told took. ending: paragraphs behind all else.
    """
    write_claims(workdir / "claims.json", study.name, study.claims, seconds)
    claims = run_files.read_claims(workdir / "claims.json")
    for name, (figure, _) in study.drawn.items():
        figures.save(figure, workdir / name)
    verdict = verdicts(claims) if claims else "No claim is judged: none was set for this corpus with these settings"
    parts = [f"# {study.title}", f"{verdict}.", study.text.strip()]
    for table in study.tables:
        parts += [f"## {table.heading}", tables.markdown_table(table.header, table.rows).rstrip(), table.note]
    parts += [f"![{caption}]({name}.png)" for name, (_, caption) in study.drawn.items()]
    parts += ["## Claims", tables.claims_table(claims).rstrip()] if claims else []
    parts += ending
    with replacing(workdir / "report.md") as path:
        path.write_text("\n\n".join(part for part in parts if part) + "\n", encoding="utf-8")
    for table in study.tables[: study.shown]:
        tables.console_table(table.header, table.rows, f"{study.title}: {table.heading.lower()}")
    print(f"{verdict}; report: {workdir / 'report.md'}")


def _what_ran(summaries: Mapping[str, dict[str, Any]]) -> str:
    header = ("model", "parameters", "steps", "seeds", "seconds", "ended early")
    rows = []
    for name, summary in summaries.items():
        early = "; ".join(f"{one['label']}: {one['stopped']}" for one in summary["replicas"] if one["stopped"])
        rows.append(
            (name, summary["parameters"], summary["steps"], len(summary["replicas"]), summary["seconds"], early)
        )
    return tables.markdown_table(header, rows).rstrip()


def gradient_run(workdir: pathlib.Path, study: Study, summaries: Mapping[str, dict[str, Any]]) -> run_files.Run | None:
    """The measured gradients, a line for every unroll of every model, as the figures take them; None where there are
    none."""
    norms, steps, of = {}, {}, {}
    for name, summary in summaries.items():
        if not (path := workdir / name / "norms.npz").exists():
            continue
        arrays = run_files.read_norms(path)
        unrolls = [key for key in arrays if key != "step"]
        for unroll in unrolls:
            line = name if len(unrolls) == 1 else f"{name} {unroll}"
            norms[line], steps[line], of[line] = arrays[unroll], arrays["step"], summary
    if not norms:
        return None
    reach = max(values.shape[1] for values in norms.values())
    padded = {
        line: {"carry": np.pad(values, [(0, 0), (0, reach - values.shape[1]), (0, 0)], constant_values=np.nan)}
        for line, values in norms.items()
    }
    return run_files.Run(
        workdir=workdir,
        experiment=study.name,
        config={},
        cells=tuple(norms),
        norms=padded,
        steps=steps,
        distance=np.arange(reach),
        quantile=np.array(QUANTILES),
        metrics={line: [] for line in norms},
        summaries={line: {"diverged": None} for line in norms},
        task={"task": study.name, "unit": ""},
        claims=None,
    )


def gradient_table(run: run_files.Run) -> Table:
    """Slopes in log10 a step back from the loss, before and after training."""
    rows = []
    for line in run.cells:
        medians = run.norms[line]["carry"][..., QUANTILES.index(0.5)]
        start, end = Curve.of(medians[0]), Curve.of(medians[-1])
        rows.append((line, f"{start.slope_log10:+.4f}", f"{end.slope_log10:+.4f}", f"{start.verdict} -> {end.verdict}"))
    note = """Slopes are those of log10 ||dL/dcarry_t|| a step back from the loss, at the first probe and at the last.
A network whose training ends before the others' stays as it is; one may train on after the last probe."""
    return Table(
        "The gradient over time", ("unroll", "slope at start", "slope at end", "verdict"), rows, " ".join(note.split())
    )
