"""The tasks, one file each. `TASKS` is the table of contents: what stands in it is found and tested."""

from rnnjax.tasks.adding import Adding
from rnnjax.tasks.base import Batch, CorpusTask, SyntheticTask, Task, reduce_mean
from rnnjax.tasks.copying import Copying
from rnnjax.tasks.latch import Latch
from rnnjax.tasks.music import Music
from rnnjax.tasks.temporal_order import TemporalOrder
from rnnjax.tasks.windows import Windows

TASKS = {
    "adding": Adding,
    "copying": Copying,
    "temporal_order": TemporalOrder,
    "latch": Latch,
    "music": Music,
}

__all__ = [
    "TASKS",
    "Adding",
    "Batch",
    "Copying",
    "CorpusTask",
    "Latch",
    "Music",
    "SyntheticTask",
    "Task",
    "TemporalOrder",
    "Windows",
    "reduce_mean",
]
