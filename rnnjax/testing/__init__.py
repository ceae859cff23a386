"""Conformance tests, for the cells and tasks of this repository and for a user's own.

    from rnnjax.testing import check_cell
    check_cell(MyCell(input_size=3, hidden_size=5))

Each check raises AssertionError with what it found. The tolerances of the whole project stand in `TOLERANCE`.
"""

from rnnjax.testing.cells import cell_checks, check_cell
from rnnjax.testing.compare import TOLERANCE, assert_close, fill_pads, flat_carry, random_like
from rnnjax.testing.compilations import count_compilations
from rnnjax.testing.tasks import check_task

__all__ = [
    "TOLERANCE",
    "assert_close",
    "cell_checks",
    "check_cell",
    "check_task",
    "count_compilations",
    "fill_pads",
    "flat_carry",
    "random_like",
]
