"""The parts of the report's page. All that comes from a file of a run is escaped here."""

import pathlib
import statistics
from collections.abc import Sequence
from html import escape
from typing import Any

from markdown_it import MarkdownIt

from rnnjax.report import overview
from rnnjax.report.discover import Study
from rnnjax.report.overview import CONTESTED, HELD, NOT_HELD, NOT_MEASURED, VERDICTS
from rnnjax.report.tables import number

MOST_OVERRIDES = 8
FEW = 20
"""So many studies stand open; of more, only their headings."""

SIGNS = {HELD: "✓", NOT_HELD: "✗", CONTESTED: "⇄", NOT_MEASURED: "–"}
_MARKDOWN = (
    MarkdownIt("commonmark", {"html": False}).enable("table").disable(["link", "autolink", "image", "reference"])
)


def navigation(studies: Sequence[Study]) -> str:
    """The bar at the top."""
    links = {"claims": "Claims", "runs": "Runs", "curves": "Curves", "heatmap": "Heat map", "studies": "Studies"}
    if any(study.problems for study in studies):
        links = {"problems": "Problems"} | links
    listed = "".join(f'<a href="#{name}">{text}</a>' for name, text in links.items())
    return f'<nav><span class="brand">rnnjax</span>{listed}<button id="theme" type="button">Dark</button></nav>'


def heading(studies: Sequence[Study], table: Sequence[overview.Row], thinned: Sequence[str]) -> str:
    """What there is, in numbers."""
    models = sum(row.model is not None for row in table)
    unfinished = sum(study.state != "finished" for study in studies)
    told = f"{_some(len(studies), 'run')}, {_some(models, 'model')}" + (
        f", {unfinished} unfinished" if unfinished else ""
    )
    tiles = "".join(
        f'<div class="card tile"><b class="{_class(verdict)}">{count:,}</b>'
        f"<span>{SIGNS[verdict]} {verdict}</span></div>"
        for verdict, count in overview.counts(studies).items()
    )
    left_out = f'<p class="note">{escape(". ".join(thinned))}.</p>' if thinned else ""
    return f'<p class="soft">{told}. Claims:</p><div class="tiles">{tiles}</div>{left_out}'


def problems(studies: Sequence[Study]) -> str:
    """What is wrong with files, if anything is."""
    listed = "".join(f"<li>{escape(problem)}</li>" for study in studies for problem in study.problems)
    if not listed:
        return ""
    about = "These files could not be read. All else is reported."
    return (
        '<section id="problems"><h2>Problems</h2>'
        f'<div class="card problems"><p>{about}</p><ul>{listed}</ul></div></section>'
    )


def claims(studies: Sequence[Study]) -> str:
    """Every claim with its verdict, by study."""
    judged = [study for study in studies if study.claims]
    chips = "".join(
        f'<button type="button" class="chip" aria-pressed="true" data-verdict="{verdict}">'
        f'<span class="{_class(verdict)}">{SIGNS[verdict]}</span>{verdict}</button>'
        for verdict in VERDICTS
    )
    controls = f'<div class="controls"><span>{chips}</span>{_search("find claims")}</div>'
    body = "".join(_study_claims(study, _opened(judged)) for study in judged)
    empty = '<p class="soft">No run here has judged a claim.</p>'
    return f'<section id="claims"><h2>Claims</h2>{controls + body if judged else empty}</section>'


def _opened(listed: Sequence[Study]) -> str:
    return " open" if len(listed) <= FEW else ""


def _study_claims(study: Study, opened: str) -> str:
    counted = overview.counts([study])
    verdicts = " ".join(
        f'<span class="{_class(verdict)}">{count} {verdict}</span>' for verdict, count in counted.items() if count
    )
    seconds = "" if study.seconds is None else f"{number(study.seconds)} s"
    rows = "".join(_claim(claim) for claim in study.claims or [])
    return (
        f'<details class="card study"{opened}>{_heading_of(study)}'
        f'<span class="right small">{verdicts} <span class="soft seconds">{seconds}</span></span></summary>'
        '<div class="scroll"><table class="claims"><thead><tr><th>verdict</th><th>claim</th><th>expected</th>'
        f"<th>measured</th></tr></thead><tbody>{rows}</tbody></table></div></details>"
    )


def _heading_of(study: Study) -> str:
    return (
        f'<summary class="head"><h3>{escape(study.title or study.experiment)}</h3>'
        f'<span class="path soft">{escape(study.label)}</span>'
    )


def _claim(claim: dict[str, Any]) -> str:
    verdict = overview.verdict_of(claim)
    said = verdict
    if verdict == CONTESTED:
        said = f"contested, {'held' if claim['holds'] is True else 'not held'} here"
    why = next((str(claim[key]) for key in ("not_measured", "contested") if claim.get(key)), "")
    why = f'<span class="source">{verdict.capitalize()}: {escape(why)}</span>' if why else ""
    source = f'<span class="source">{escape(str(claim["source"]))}</span>' if claim.get("source") else ""
    exact = escape(repr(claim.get("measured")))
    return (
        f'<tr data-verdict="{verdict}"><td class="verdict {_class(verdict)}">{SIGNS[verdict]} {said}</td>'
        f"<td>{escape(claim['claim'])}{source}{why}</td><td>{escape(str(claim.get('expected') or ''))}</td>"
        f'<td class="measured" title="{exact}">{escape(number(claim.get("measured")))}</td></tr>'
    )


def runs(table: Sequence[overview.Row]) -> str:
    """The table of runs."""
    names = overview.score_names(table)
    fixed = {"run": 0, "experiment": 0, "model": 0, "cell": 0, "state": 0, "seeds": 1, "parameters": 1, "steps": 1}
    fixed |= {"seconds": 1}
    heads = [_head(name, bool(numeric)) for name, numeric in fixed.items()]
    heads += [_head(name, True, score=True) for name in names] + [_head("differs in", False)]
    body = "".join(_run(row, names) for row in table)
    experiments = "".join(
        f"<option>{escape(name)}</option>" for name in sorted({row.study.experiment for row in table})
    )
    return (
        '<section id="runs"><h2>Runs</h2><div class="card"><div class="controls">'
        '<label><span class="name">Experiment</span>'
        f'<select><option value="">all</option>{experiments}</select></label>'
        f'{_search("find runs")}<span class="count soft small"></span></div>'
        f'<div class="scroll tall"><table class="runs"><thead><tr>{"".join(heads)}</tr></thead>'
        f"<tbody>{body}</tbody></table></div>"
        '<p class="note">A score is the mean over seeds, ± the standard deviation, as summary.json has it. '
        '"Differs in": the settings in which runs of one experiment differ.</p></div></section>'
    )


def _search(what: str) -> str:
    return f'<input type="search" placeholder="{what}" aria-label="{what}">'


def _head(name: str, numeric: bool, score: bool = False) -> str:
    marks = (' data-numeric="" class="number"' if numeric else "") + (' data-score="yes"' if score else "")
    return f'<th{marks}><button type="button">{escape(name)}</button></th>'


def _run(row: overview.Row, names: Sequence[str]) -> str:
    study, model = row.study, row.model
    said = f'<div class="soft small">{escape(study.said)}</div>' if study.said and model is None else ""
    state = study.state if model is None else model.state
    if model is not None and model.summary and study.state != "finished":
        said = f'<br><span class="soft small">the run: {escape(study.state)}</span>'
    cells = [f'<td class="path">{escape(study.label)}</td>', f"<td>{escape(study.experiment)}</td>"]
    cells += [f"<td>{escape(model.name if model else '')}</td><td>{escape(model.cell if model else '')}</td>"]
    cells += [f'<td class="state">{escape(state)}{said}</td>', _numeric(model.seed_count if model else None)]
    cells += [_numeric(value) for value in (row.parameters, row.steps, row.seconds)]
    for name in names:
        values = row.scores.get(name)
        spread = f" ± {number(statistics.stdev(values), 2)}" if values and len(values) > 1 else ""
        cells.append(_numeric(statistics.fmean(values) if values else None, spread))
    fields = [f"{field}={value}" for field, value in row.overrides.items()]
    shown = fields[:MOST_OVERRIDES]
    given = "<br>".join(f"<code>{escape(field)}</code>" for field in shown)
    given += f"<br>and {len(fields) - len(shown)} more, in the CSV" if len(fields) > len(shown) else ""
    cells.append(f'<td class="overrides">{given}</td>')
    return f'<tr data-experiment="{escape(study.experiment)}">{"".join(cells)}</tr>'


def _numeric(value: float | None, more: str = "") -> str:
    if value is None:
        return '<td class="number" data-value=""></td>'
    return f'<td class="number" data-value="{value!r}" title="{value!r}">{number(value)}{more}</td>'


CHARTS = """<section id="curves"><h2>Curves</h2><div class="card">
<p id="charts-failed" hidden></p>
<noscript><p>The charts need JavaScript.</p></noscript>
<div class="controls"><label hidden><span class="name">Experiment</span><select id="group"></select></label>
<div class="controls" id="toggles"></div></div>
<details id="run-toggles" hidden><summary id="run-count"></summary><div id="run-list"></div></details>
<div class="pair">
<div><p class="chart-title" id="loss-title">Loss during training</p><div class="controls" id="loss-switches"></div>
<p class="soft" id="loss-empty" hidden>No loss is to be shown: nothing was trained here, or all is switched off.</p>
<div class="chart" id="loss"></div></div>
<div><p class="chart-title" id="norm-title">Gradient on its way back through time</p>
<div class="controls" id="norm-switches"></div>
<p class="soft" id="norm-empty" hidden>No gradient is to be shown: none was probed here, or all is switched off.</p>
<div class="chart" id="norm"></div>
<p class="note">Medians over the sequences of all seeds, with the quartiles as a band where at most eight
lines are shown; to two digits of log10. A cross on the lower edge: 0 in float32 from there on.</p></div>
</div>
</div></section>
<section id="heatmap" hidden><h2>Heat map</h2><div class="card">
<div class="controls"><label><span class="name">Model</span><select id="heat-line"></select></label>
<label class="slider"><span class="name">Training step</span><input type="range" id="heat-step" min="0" step="1">
<output id="heat-at" for="heat-step"></output></label></div>
<div class="beside">
<div><p class="chart-title">How far back the gradient reaches, over training</p>
<p class="note" id="heat-colors"></p><div class="chart" id="heat"></div></div>
<div><p class="chart-title" id="heat-curve-title">The curve</p>
<p class="note">Band: quartiles. Dotted: the first probe</p>
<div class="chart" id="heat-curve"></div></div>
</div>
<p class="note">Medians over sequences; a row a probed step. Grey: 0 in float32, no sequence that long, or not probed.
The framed row is the curve beside it; a click on a row moves there.</p>
</div></section>"""
"""Where the scripts draw."""


def words(study: Study) -> str:
    """The study's report, without title and pictures."""
    text = study.text.partition("\n")[2] if study.title else study.text
    if not text.strip():
        return ""
    return f'<details class="report"><summary>The report of this run</summary>{_MARKDOWN.render(text)}</details>'


def studies(found: Sequence[Study], embedded: dict[pathlib.Path, str], reports: Sequence[str]) -> str:
    """The studies' own pictures and words, where they have any."""
    shown = {
        at: study
        for at, study in enumerate(found)
        if reports[at] or any(path in embedded for path, _ in study.pictures)
    }
    opened = _opened(list(shown.values()))
    told = "".join(_study(study, embedded, reports[at], opened) for at, study in shown.items())
    return f'<section id="studies"><h2>Studies</h2>{told}</section>' if told else ""


def _study(study: Study, embedded: dict[pathlib.Path, str], report: str, opened: str) -> str:
    shown = "".join(
        f'<figure><img src="{embedded[path]}" alt="{escape(caption)}">'
        f"<figcaption>{escape(caption)}</figcaption></figure>"
        for path, caption in study.pictures
        if path in embedded
    )
    return (
        f'<details class="card study"{opened}>{_heading_of(study)}</summary>'
        f'<div class="pictures">{shown}</div>{report}</details>'
    )


def _class(verdict: str) -> str:
    return verdict.replace(" ", "-")


def _some(count: int, what: str) -> str:
    return f"{count:,} {what}{'' if count == 1 else 's'}"
