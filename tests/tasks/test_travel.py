"""The travel corpus: the trigger alone tells, wherever it stands."""

import collections

import numpy as np
import pytest

from rnnjax.tasks.travel import ARRIVE, CITIES, LEAVE, SIZES, SLOTS, travel_sentences

SLOTTED = ("B-destination", "B-departure")


@pytest.mark.parametrize("split", SIZES)
def test_one_city_has_a_slot_and_the_trigger_says_which(split):
    sentences = travel_sentences(split)
    assert len(sentences) == SIZES[split]
    for words, tags, label in sentences:
        assert len(words) == len(tags) and set(tags) <= set(SLOTS)
        (city,) = [at for at, tag in enumerate(tags) if tag in SLOTTED]
        (trigger,) = [at for at, word in enumerate(words) if word in (*ARRIVE, *LEAVE)]
        assert words[city] in CITIES
        assert (tags[city] == "B-destination") == (words[trigger] in ARRIVE)
        assert label == ("before" if trigger < city else "after")


def test_nothing_but_the_trigger_tells():
    """Of every word up to a city whose trigger comes later, and of the city: as often with either slot."""
    counts = collections.defaultdict(lambda: [0, 0])
    for words, tags, label in (one for split in SIZES for one in travel_sentences(split)):
        (city,) = [at for at, tag in enumerate(tags) if tag in SLOTTED]
        for word in {words[city], *(words[:city] if label == "after" else ())}:
            counts[label, word][SLOTTED.index(tags[city])] += 1
    for seen, (one, other) in counts.items():
        assert abs(one - other) <= 4 * np.sqrt(one + other), seen


def test_a_distracting_city_is_less_frequent_than_either_slot():
    """So that the best guess of a city by itself is one of its slots, and right in half of the cases that count."""
    tags = collections.Counter(
        tag
        for words, tags, _ in travel_sentences("train")
        for word, tag in zip(words, tags, strict=True)
        if word in CITIES
    )
    assert 0 < tags["O"] < 0.6 * min(tags[slot] for slot in SLOTTED)


def test_splits_differ_and_stay_the_same():
    assert travel_sentences("train")[:50] != travel_sentences("valid")[:50]
    assert travel_sentences("test")[0] == travel_sentences.__wrapped__("test")[0]
    words = [{one.words for one in travel_sentences(split)} for split in ("train", "valid", "test")]
    assert not words[0] & words[1] and not words[0] & words[2] and not words[1] & words[2]
