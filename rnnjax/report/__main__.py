"""Makes one HTML file of runs, studies and sweeps, with a CSV beside it.

    python -m rnnjax.report runs                          report.html and report.csv of all that lies below runs/
    python -m rnnjax.report runs/a runs/b --output=ab.html
    python -m rnnjax.report runs --figures                and report_figures/RUN/{curves,heatmaps,losses}.{png,svg,pdf}

The page has the claims with their verdicts, a table of runs, curves of loss and of the gradient's norm over distance,
heat maps of training step against distance, and the studies' own pictures and reports. It needs no network and stays
below 8 MB: long curves are thinned, pictures that find no place left out, and the page says so.

Looked for, in every DIR and below it: workdirs of studies (config.json, claims.json, report.md, and a folder a model
with metrics.jsonl, summary.json, norms.npz), finished or not; trainings by themselves (metrics.jsonl); sweeps
(sweep.json). A malformed file is named on stderr and in the page, and all else is reported.

The columns of the CSV stand in the docstring of rnnjax.report.overview.
"""

import argparse
import pathlib
import sys

from rnnjax.report.html import Summary, write_html
from rnnjax.report.overview import print_verdicts
from rnnjax.report.papers import write_figures
from rnnjax.report.run_files import ReportError

_STATUS = "Exit status: 0 done, 1 a file that can't be written, 2 a wrong command line or a DIR without runs."


def main(arguments: list[str] | None = None) -> int:
    """The exit status of a command line. Raises SystemExit(2) for one that is wrong, and SystemExit(0) after --help."""
    parser = _parser()
    asked = parser.parse_args(arguments)
    if asked.output.suffix.lower() not in (".html", ".htm"):
        parser.error(f"--output is {asked.output}: expected a name that ends in .html")
    folder = asked.figures or asked.output.with_name(f"{asked.output.stem}_figures")
    try:
        summary = write_html(asked.folders, asked.output)
        figures = [] if asked.figures is None else write_figures(summary.studies, folder)
    except ReportError as error:
        print(error, file=sys.stderr)
        return 2
    except OSError as error:
        print(f"{error.filename or asked.output}: cannot be written: {error.strerror or error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    _tell(
        summary,
        f", {len(figures)} figures in {folder}"
        if figures
        else ""
        if asked.figures is None
        else "; no run has figures: a study's own lie in its folder",
    )
    return 0


def _tell(summary: Summary, drawn: str) -> None:
    for problem in summary.problems:
        print(f"problem: {problem}", file=sys.stderr)
    print_verdicts(summary.studies)
    for sentence in summary.thinned:
        print(f"{sentence}.")
    print(f"report: {summary.path} ({summary.bytes / 1e6:.1f} MB), {summary.csv}{drawn}")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m rnnjax.report", description=__doc__, epilog=_STATUS, allow_abbrev=False,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.add_argument("folders", nargs="+", metavar="DIR", help="a folder that holds runs, at any depth")
    parser.add_argument(
        "--output", type=pathlib.Path, default=pathlib.Path("report.html"), metavar="FILE",
        help="the page; the CSV has the same name (default: report.html)",
    )  # fmt: skip
    parser.add_argument(
        "--figures", nargs="?", const="", metavar="FOLDER",
        help="write static figures too, for papers; given as --figures=FOLDER, or beside the page",
    )  # fmt: skip
    return parser


if __name__ == "__main__":
    sys.exit(main())
