"""Spans as tags, a tag a word, in the schemes IOB1, IOB2 and IOBES.

    words   flights from New   York  to Boston Boston Logan
    IOB2    O       O    B-cty I-cty O  B-cty  B-apt  I-apt
    IOB1    O       O    I-cty I-cty O  I-cty  I-apt  I-apt      B- only right after a span of the same type
    IOBES   O       O    B-cty E-cty O  S-cty  B-apt  E-apt      E- ends a span, S- is one of a single word

Source: Ramshaw, Marcus 1995, "Text chunking using transformation-based learning" (IOB1); Tjong Kim Sang, Veenstra 1999,
"Representing text chunks" (the others).
"""

import functools
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from rnnjax.data.errors import shown
from rnnjax.data.sentences import Sentence

SCHEMES = ("IOB1", "IOB2", "IOBES")


class Span(NamedTuple):
    """The words start .. end - 1, of this type."""

    start: int
    end: int
    type: str


def spans(tags: Sequence[str]) -> list[Span]:
    """The spans of one sentence, of tags in any of the schemes.

    The rule is that of the CoNLL tasks' scorer, which reads any sequence: a span starts at B- and S-, and at any other
    tag that does not go on with a span of its type; it ends after E- and S-.

    Raises ValueError, naming the place, for a tag that is neither "O" nor one of B-, I-, E-, S- with a type.
    """
    found, start, inside = [], 0, ""
    for at, (prefix, kind) in enumerate(_split_all(tags)):
        if inside and (prefix in "OBS" or kind != inside):
            found.append(Span(start, at, inside))
            inside = ""
        if prefix == "O":
            continue
        if not inside:
            start, inside = at, kind
        if prefix in "ES":
            found.append(Span(start, at + 1, kind))
            inside = ""
    return [*found, Span(start, len(tags), inside)] if inside else found


def to_scheme(tags: Sequence[str], scheme: str) -> tuple[str, ...]:
    """The tags of one sentence, given in any of the schemes, in `scheme`: "IOB1", "IOB2" or "IOBES".

    Raises ValueError as `spans` does, and for another scheme.
    """
    if scheme not in SCHEMES:
        raise ValueError(f"scheme is {scheme!r}: expected one of {', '.join(SCHEMES)}")
    new, before = ["O"] * len(tags), Span(0, 0, "")
    for span in spans(tags):
        first = last = "I-"
        if scheme == "IOB2" or (scheme == "IOB1" and (before.end, before.type) == (span.start, span.type)):
            first = "B-"
        elif scheme == "IOBES":
            first, last = "B-", "E-"
        new[span.start : span.end] = ["I-" + span.type] * (span.end - span.start)
        new[span.end - 1] = last + span.type
        new[span.start] = first + span.type
        if scheme == "IOBES" and span.end - span.start == 1:
            new[span.start] = "S-" + span.type
        before = span
    return tuple(new)


def scheme_of(sentences: Iterable[Sentence]) -> str:
    """The scheme that the tags of a corpus are in.

    IOBES where there is an E- or S-. Else IOB1 where a span starts with I- and none starts with a B- that IOB1 has no
    use for, and IOB2 for what is left: where both occur, it is IOB2 with mistakes in it.

    Raises ValueError as `spans` does, naming the sentence too.
    """
    has_ends = starts_with_i = needless_b = False
    for number, sentence in enumerate(sentences):
        before, kind_before = "O", ""
        try:
            parts = _split_all(sentence.tags)
        except ValueError as error:
            raise ValueError(f"sentence {number}: {error}") from None
        for prefix, kind in parts:
            has_ends |= prefix in "ES"
            goes_on = before != "O" and kind == kind_before
            starts_with_i |= prefix == "I" and not goes_on
            needless_b |= prefix == "B" and not goes_on
            before, kind_before = prefix, kind
    if has_ends:
        return "IOBES"
    return "IOB1" if starts_with_i and not needless_b else "IOB2"


def _split_all(tags: Sequence[str]) -> list[tuple[str, str]]:
    try:
        return [_split(tag) for tag in tags]
    except ValueError:
        at = next(i for i, tag in enumerate(tags) if not _is_tag(tag))
        message = f"tags[{at}] is {shown(tags[at])}: expected O, or B-, I-, E- or S- and a type"
        raise ValueError(f"{message}, in one of the schemes {', '.join(SCHEMES)}") from None


@functools.lru_cache(maxsize=2**16)
def _split(tag: str) -> tuple[str, str]:
    """(prefix, type), ("O", "") of "O"."""
    if not _is_tag(tag):
        raise ValueError(tag)
    return tag[0], tag[2:]


def _is_tag(tag: str) -> bool:
    return tag == "O" or (tag[:2] in ("B-", "I-", "E-", "S-") and len(tag) > 2)
