"""The generated text: the same everywhere, and its entropy as an independent reading of the text has it."""

import math
import re

import pytest

from rnnjax.data import tales as module
from rnnjax.data.tales import tales

NOUN = f"the (?:{'|'.join(module.NOUNS)})s?"
PHRASE = rf"({NOUN})(?: (?:that (\w+)|near) {NOUN})?"


def nats_of(line):
    """-log p(line), read off the finished line with regular expressions; verbs are seen to agree with their nouns."""
    parts = re.findall(r"(.*?), says (\w+)\.(?: |\n)", line)
    assert " ".join(f"{told}, says {name}." for told, name in parts) + "\n" == line
    assert len({name for _, name in parts}) == 1
    nats = math.log(len(module.NAMES)) - (len(parts) - 1) * math.log(0.6) - math.log(0.4)
    for sentence, _ in parts:
        subject, rest = re.fullmatch(rf"({PHRASE}) (.*)", sentence).group(1, 4)
        verb, _, thing = rest.partition(" ")
        nats -= math.log(0.6 if thing else 0.4)
        nats += math.log(len(module.VERBS if thing else module.RESTS)) + nats_of_phrase(subject, verb)
        nats += nats_of_phrase(thing) if thing else 0
    return nats


def nats_of_phrase(phrase, verb=None):
    noun, that = re.fullmatch(PHRASE, phrase).groups()
    for agreeing in filter(None, (verb, that)):
        assert agreeing.endswith("s") != noun.endswith("s"), phrase
    nouns = len(re.findall(NOUN, phrase))
    share = -math.log(0.3 / 2 if nouns == 2 else 0.7)
    return share + nouns * math.log(2 * len(module.NOUNS)) + (math.log(len(module.VERBS)) if that else 0)


def test_the_entropy_is_that_of_the_text():
    found = tales("any", 200)
    lines = found.text.splitlines(keepends=True)
    assert len(lines) == 200
    assert found.nats == pytest.approx(sum(map(nats_of, lines)), rel=1e-12)


def test_the_text_is_the_same_on_every_machine():
    assert tales("train", 1).text == "the doctor knows the neighbour, says anna.\n"
    assert tales("train", 3).text.startswith(tales("train", 2).text)
    assert tales("valid", 1) != tales("test", 1)
