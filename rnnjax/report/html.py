"""The report as one HTML file that opens from disk, a CSV beside it, and static figures.

    summary = write_html(["runs"], "report.html")

What a file of a run says is data: it is escaped as text, or goes packed into the page, where no script is read. The
page's policy lets no other script run than its own, by their digests, and no byte be fetched.
"""

import base64
import dataclasses
import functools
import gzip
import hashlib
import importlib.resources
import json
import os
import pathlib
from collections.abc import Sequence
from html import escape

from rnnjax.report import overview, parts, pictures, series
from rnnjax.report.discover import Study, find_studies
from rnnjax.report.run_files import ReportError

BYTES = 7_900_000
"""The most that a page has: larger ones are not sent by mail."""

_FOR_CURVES = 2_500_000  # of BYTES, packed; what is left is for pictures
_FOR_REPORTS = 1_500_000
_AROUND_A_PICTURE = 1000  # its caption and its frame
_SCRIPTS = ("page.js", "charts.js", "controls.js", "heatmap.js")


@dataclasses.dataclass(frozen=True)
class Summary:
    """What a report tells.

    path, csv: what was written; bytes: of the page.
    studies: every workdir, with its `claims`, `label`, `experiment`, `state` and `problems`.
    thinned: what was left out to keep the page small, in sentences.
    """

    path: pathlib.Path
    csv: pathlib.Path
    bytes: int
    studies: list[Study]
    thinned: list[str]

    @property
    def counts(self) -> dict[str, int]:
        """{verdict: how many claims have it}."""
        return overview.counts(self.studies)

    @property
    def problems(self) -> list[str]:
        """What is wrong with any file."""
        return [problem for study in self.studies for problem in study.problems]


def check_charts() -> None:
    """Raises ReportError where plotly, which draws the charts, is not installed."""
    _plotly()


def write_html(dirs: Sequence[str | pathlib.Path], path: str | pathlib.Path) -> Summary:
    """Writes the report of all that lies below `dirs` as `path`, and its table of runs beside it as CSV.

    Raises ReportError where a folder holds no run, and where plotly is not installed; OSError where it can't write.
    """
    path = pathlib.Path(path)
    for written in (path, path.with_suffix(".csv")):
        if written.is_dir():
            raise ReportError(f"{written} is a folder: give the report another name")
    studies = find_studies(dirs)
    page = _Page(dirs, studies, overview.rows(studies), _plotly(), *_curves(studies), *_reports(studies))
    count = sum(len(study.pictures) for study in studies)
    room = BYTES - len(page.written({}, [])) - _AROUND_A_PICTURE * count
    embedded, left_out = pictures.embed(studies, room)
    thinned = [sentence for sentence in (page.thinned_curves, page.thinned_reports, left_out) if sentence]
    written = page.written(embedded, thinned)
    write_whole(path, written)
    csv = path.with_suffix(".csv")
    write_whole(csv, overview.csv_text(page.table).encode("utf-8", "replace"))
    return Summary(path, csv, len(written), studies, thinned)


def write_whole(path: pathlib.Path, content: bytes) -> None:
    """Writes a file, whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.part")
    try:
        part.write_bytes(content)
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


def _plotly() -> str:
    try:
        from plotly.offline import get_plotlyjs
    except ImportError:
        raise ReportError(
            "the charts are drawn by plotly, which is not installed: pip install -e '.[report]'"
        ) from None
    return get_plotlyjs()


def _curves(studies: Sequence[Study]) -> tuple[str, str]:
    """(the charts' data, packed: the finest that fits; what was left out)."""
    for points in series.POINTS:
        data = series.charts(studies, points)
        packed = _pack(json.dumps(data, separators=(",", ":"), allow_nan=False))
        if len(packed) <= _FOR_CURVES:
            break
    return packed, data["thinned"]


def _reports(studies: Sequence[Study]) -> tuple[list[str], str]:
    """(the report of every study, as far as they fit; what was left out)."""
    reports, left_out = [], 0
    for study in studies:
        report = parts.words(study)
        room = _FOR_REPORTS - sum(map(len, reports))
        left_out += len(report) > room
        reports.append(report if len(report) <= room else "")
    return reports, f"{left_out:,} reports of runs found no place" if left_out else ""


@functools.lru_cache(2)  # plotly takes half a second
def _pack(text: str) -> str:
    """Text that no browser reads as a part of the page. The same text gives the same bytes."""
    return base64.b64encode(gzip.compress(text.encode(), 9, mtime=0)).decode()


@dataclasses.dataclass(frozen=True)
class _Page:
    dirs: Sequence[str | pathlib.Path]
    studies: Sequence[Study]
    table: Sequence[overview.Row]
    plotly: str
    curves: str
    thinned_curves: str
    reports: Sequence[str]
    thinned_reports: str

    def written(self, embedded: dict[pathlib.Path, str], thinned: Sequence[str]) -> bytes:
        """The whole file with these pictures, saying what was left out."""
        files = importlib.resources.files("rnnjax.report")
        style = (files / "page.css").read_text(encoding="utf-8")
        scripts = [(files / name).read_text(encoding="utf-8") for name in _SCRIPTS]
        allowed = " ".join(f"'sha256-{_digest(script)}'" for script in (*scripts, self.plotly))
        policy = (
            f"default-src 'none'; script-src {allowed}; style-src 'unsafe-inline'; img-src data: blob:; "
            "base-uri 'none'; form-action 'none'"
        )
        where = ", ".join(os.path.normpath(one) for one in self.dirs)
        title = (
            f"Report of {where}"
            if len(where) <= 60
            else f"Report of {len(self.dirs)} folder{'s' * (len(self.dirs) > 1)}"
        )
        text = f"""<!DOCTYPE html>
<html lang="en" data-theme="light">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{escape(title)}</title>
<style>{style}</style>
</head>
<body>
{parts.navigation(self.studies)}
<main>
<h1>{escape(title)}</h1>
{parts.heading(self.studies, self.table, thinned)}
{parts.problems(self.studies)}
{parts.claims(self.studies)}
{parts.runs(self.table)}
{parts.CHARTS}
{parts.studies(self.studies, embedded, self.reports)}
</main>
<script type="text/plain" id="data">{self.curves}</script>
<script type="text/plain" id="plotly">{_pack(self.plotly)}</script>
{"".join(f"<script>{script}</script>" for script in scripts)}
</body>
</html>
"""
        return text.encode("utf-8", "replace")


def _digest(script: str) -> str:
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
