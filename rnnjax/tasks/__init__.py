"""The tasks, one file each. `TASKS` is the table of contents: what stands in it is found and tested."""

from rnnjax.tasks.adding import Adding
from rnnjax.tasks.base import Batch, CorpusTask, SourceTarget, SyntheticTask, Task, reduce_mean
from rnnjax.tasks.classification import Classification
from rnnjax.tasks.cloze import Cloze
from rnnjax.tasks.copying import Copying
from rnnjax.tasks.forecasting import Forecasting
from rnnjax.tasks.images import Images
from rnnjax.tasks.language import Language
from rnnjax.tasks.latch import Latch
from rnnjax.tasks.music import Music
from rnnjax.tasks.skipgram import SkipGram
from rnnjax.tasks.tagging import Tagging
from rnnjax.tasks.temporal_order import TemporalOrder
from rnnjax.tasks.translation import Translation
from rnnjax.tasks.windows import Windows

TASKS = {
    "adding": Adding,
    "copying": Copying,
    "temporal_order": TemporalOrder,
    "latch": Latch,
    "music": Music,
    "tagging": Tagging,
    "language": Language,
    "skipgram": SkipGram,
    "translation": Translation,
    "images": Images,
    "forecasting": Forecasting,
    "cloze": Cloze,
    "classification": Classification,
}

__all__ = [
    "TASKS",
    "Adding",
    "Batch",
    "Classification",
    "Cloze",
    "Copying",
    "CorpusTask",
    "Forecasting",
    "Images",
    "Language",
    "Latch",
    "Music",
    "SkipGram",
    "SourceTarget",
    "SyntheticTask",
    "Tagging",
    "Task",
    "TemporalOrder",
    "Translation",
    "Windows",
    "reduce_mean",
]
