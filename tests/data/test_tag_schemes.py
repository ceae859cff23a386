"""Tags of one scheme in another, against the spans that they were made of and against seqeval."""

import pytest
import seqeval.scheme
from hypothesis import given, settings
from hypothesis import strategies as st
from seqeval.metrics.sequence_labeling import get_entities

from rnnjax.data import Sentence, scheme_of, to_scheme
from rnnjax.data.tag_schemes import SCHEMES, Span, spans

EXAMPLE = {
    "IOB2": ["O", "O", "B-cty", "I-cty", "O", "B-cty", "B-apt", "I-apt", "B-apt"],
    "IOB1": ["O", "O", "I-cty", "I-cty", "O", "I-cty", "I-apt", "I-apt", "B-apt"],
    "IOBES": ["O", "O", "B-cty", "E-cty", "O", "S-cty", "B-apt", "E-apt", "S-apt"],
}
SPANS = [Span(2, 4, "cty"), Span(5, 6, "cty"), Span(6, 8, "apt"), Span(8, 9, "apt")]


@pytest.mark.parametrize("old", SCHEMES)
@pytest.mark.parametrize("new", SCHEMES)
def test_example(old, new):
    assert spans(EXAMPLE[old]) == SPANS
    assert to_scheme(EXAMPLE[old], new) == tuple(EXAMPLE[new])
    assert scheme_of([Sentence((), tuple(EXAMPLE[old]))]) == old


def _tags_of(found: list[Span], length: int, scheme: str) -> list[str]:
    """The definition of each scheme, word by word."""
    tags = []
    for at in range(length):
        here = [span for span in found if span.start <= at < span.end]
        if not here:
            tags.append("O")
            continue
        (span,) = here
        follows = any(other.end == span.start and other.type == span.type for other in found)
        first, last = at == span.start, at == span.end - 1
        prefix = {
            "IOB1": "B" if first and follows else "I",
            "IOB2": "B" if first else "I",
            "IOBES": "S" if first and last else "B" if first else "E" if last else "I",
        }[scheme]
        tags.append(f"{prefix}-{span.type}")
    return tags


@st.composite
def some_spans(draw):
    found, at = [], 0
    for gap, length, kind in draw(st.lists(st.tuples(st.integers(0, 2), st.integers(1, 3), st.sampled_from("XY")))):
        found.append(Span(at + gap, at + gap + length, kind))
        at += gap + length
    return found, at + draw(st.integers(0, 2))


@settings(deadline=None)
@given(some_spans())
def test_all_ways_through_spans(drawn):
    found, length = drawn
    for old in SCHEMES:
        tags = _tags_of(found, length, old)
        assert spans(tags) == found
        for new in SCHEMES:
            assert to_scheme(tags, new) == tuple(_tags_of(found, length, new))
        if old != "IOB1":
            strict = seqeval.scheme.Entities([list(tags)], getattr(seqeval.scheme, old)).entities[0]
            assert [(one.start, one.end, one.tag) for one in strict] == found


@settings(deadline=None)
@given(st.lists(st.sampled_from(["O", *(f"{prefix}-{kind}" for prefix in "BIES" for kind in "XY")])))
def test_any_sequence_is_read_as_the_scorer_of_conll_does(tags):
    assert [(span.type, span.start, span.end - 1) for span in spans(tags)] == get_entities(tags)
    assert spans(to_scheme(tags, "IOBES")) == spans(tags)


def test_an_orphan_i_is_a_span():
    assert spans(["I-X", "I-X"]) == spans(["B-X", "I-X"]) == [Span(0, 2, "X")]
    assert spans(["B-X", "B-X"]) != spans(["B-X", "I-X"])


def _scheme(*rows: str) -> str:
    return scheme_of([Sentence((), tuple(row.split())) for row in rows])


def test_the_scheme_of_a_corpus():
    assert _scheme("O O", "") == "IOB2"
    assert _scheme("I-X I-X B-X", "O B-X") == "IOB2"  # IOB1 has no B- after O
    assert _scheme("I-X I-X B-X", "O I-X") == "IOB1"
    assert _scheme("B-X I-X", "B-X I-Y") == "IOB2"  # a mistake in it
    assert _scheme("I-X B-Y") == "IOB2"
    assert _scheme("O", "S-X") == _scheme("B-X E-X") == "IOBES"


@pytest.mark.parametrize("tag", ["X-", "city", "B-", "B", "b-X", "U-X", "", "O-X", "-X", "OO"])
def test_what_is_no_tag_is_named_with_its_place(tag):
    for scheme in SCHEMES:
        with pytest.raises(ValueError) as caught:
            to_scheme(("O", "B-X", tag), scheme)
        assert str(caught.value).startswith(f"tags[2] is {tag!r}: expected O, or B-, I-, E- or S- and a type")
    with pytest.raises(ValueError) as caught:
        scheme_of([Sentence((), ("S-X",)), Sentence((), ("O", tag))])
    assert str(caught.value).startswith(f"sentence 1: tags[1] is {tag!r}")


def test_an_unknown_scheme():
    with pytest.raises(ValueError, match="scheme is 'BILOU': expected one of IOB1, IOB2, IOBES"):
        to_scheme(["O"], "BILOU")


def test_long_and_empty_sentences():
    tags = ("B-X", "I-X") * 50_000
    assert to_scheme(to_scheme(tags, "IOBES"), "IOB2") == tags
    assert to_scheme((), "IOB1") == ()
