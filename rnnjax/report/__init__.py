"""Pictures and tables of a finished study. Reads the files of a run and nothing else: no model, no trainer, no device.

read_run                  a study's workdir as one object, or a ReportError that says what is missing
curves, heatmaps, losses  its figures; `save` writes one as PNG and SVG
markdown_table ...        its tables, for a report and for a console
"""

from rnnjax.report.figures import curves, heatmaps, losses, save
from rnnjax.report.run_files import ReportError, Run, read_run
from rnnjax.report.tables import claims_table, console_table, markdown_table, number

__all__ = [
    "ReportError",
    "Run",
    "claims_table",
    "console_table",
    "curves",
    "heatmaps",
    "losses",
    "markdown_table",
    "number",
    "read_run",
    "save",
]
