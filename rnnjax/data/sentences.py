"""What the readers of labelled text return."""

from typing import NamedTuple


class Sentence(NamedTuple):
    """words; tags, one a word, or none; label, that of the whole sentence, or ""."""

    words: tuple[str, ...]
    tags: tuple[str, ...] = ()
    label: str = ""
