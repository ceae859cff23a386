"""Pictures and tables of studies. Reads the files of a run and nothing else: no model, no trainer, no device.

read_run                  a study's workdir as one object, or a ReportError that says what is missing
curves, heatmaps, losses  its figures; `save` writes one as PNG, SVG or PDF
markdown_table ...        its tables, for a report and for a console
write_html                of any runs, studies and sweeps one HTML file and a CSV: `python -m rnnjax.report`
write_figures             of the same, figures for papers
find_studies              what these lie in, read: every study with its claims, models and problems
print_verdicts            how many claims of each study held, on the console
"""

from rnnjax.report.discover import Study, find_studies
from rnnjax.report.figures import curves, heatmaps, losses, save
from rnnjax.report.html import Summary, write_html
from rnnjax.report.overview import print_verdicts
from rnnjax.report.papers import write_figures
from rnnjax.report.run_files import ReportError, Run, read_run
from rnnjax.report.tables import claims_table, console_table, markdown_table, number

__all__ = [
    "ReportError",
    "Run",
    "Study",
    "Summary",
    "claims_table",
    "console_table",
    "curves",
    "find_studies",
    "heatmaps",
    "losses",
    "markdown_table",
    "number",
    "print_verdicts",
    "read_run",
    "save",
    "write_figures",
    "write_html",
]
