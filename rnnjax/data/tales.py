"""A generated English-like text whose entropy is known, so that a language model has a floor to be compared with."""

import math
import random
from typing import NamedTuple

NAMES = ("anna", "boris", "clara", "dmitri", "elena", "felix", "greta", "hugo")
NOUNS = ("dog", "cat", "bird", "king", "boy", "girl", "friend", "doctor", "farmer", "queen", "teacher", "neighbour")
VERBS = ("see", "hear", "like", "follow", "know", "help", "call", "meet")
RESTS = ("sleep", "sing", "laugh", "run", "wait", "smile")
MODIFIED, TRANSITIVE, MORE = 0.3, 0.6, 0.6
"""Shares of subjects and objects with a modifier, of sentences with an object, of tales that go on after a sentence."""


class Tales(NamedTuple):
    """text: tales, one a line. nats: -log p(text) under the grammar that it was drawn from."""

    text: str
    nats: float


def tales(seed: str, count: int) -> Tales:
    """`count` tales, the same for the same seed on every machine.

        tale       (sentence ", says" NAME ".")+                      always the same name
        sentence   phrase(number) verb(number) [phrase]               the verb agrees with the first noun
        phrase     "the" noun ["that" verb "the" noun | "near the" noun]

    From the second sentence on who says it is known, but from a whole sentence before alone; and the number of a verb
    from a noun that may stand a clause before it. Every text has one derivation, so that the entropy is the sum over
    the choices made.

    Worked example: "the dogs that see the king sleep, says anna. the cat likes the birds, says anna."
    """
    drawn = _Choices(seed)
    text = "".join(f"{_tale(drawn)}\n" for _ in range(count))
    return Tales(text, drawn.nats)


class _Choices:
    """Draws, and the nats of what was drawn."""

    def __init__(self, seed: str):
        self._draw = random.Random(seed).random  # the one method whose numbers no version of Python may change
        self.nats = 0.0

    def of(self, options: tuple[str, ...]) -> str:
        self.nats += math.log(len(options))
        return options[int(self._draw() * len(options))]

    def whether(self, p: float) -> bool:
        found = self._draw() < p
        self.nats -= math.log(p if found else 1 - p)
        return found


def _tale(drawn: _Choices) -> str:
    said = f", says {drawn.of(NAMES)}."
    sentences = [_sentence(drawn) + said]
    while drawn.whether(MORE):
        sentences.append(_sentence(drawn) + said)
    return " ".join(sentences)


def _sentence(drawn: _Choices) -> str:
    subject, plural = _phrase(drawn)
    if drawn.whether(TRANSITIVE):
        return f"{subject} {_agreeing(drawn.of(VERBS), plural)} {_phrase(drawn)[0]}"
    return f"{subject} {_agreeing(drawn.of(RESTS), plural)}"


def _phrase(drawn: _Choices) -> tuple[str, bool]:
    """(words, whether plural)."""
    noun, plural = _noun(drawn)
    if not drawn.whether(MODIFIED):
        return noun, plural
    if drawn.whether(0.5):
        return f"{noun} that {_agreeing(drawn.of(VERBS), plural)} {_noun(drawn)[0]}", plural
    return f"{noun} near {_noun(drawn)[0]}", plural


def _noun(drawn: _Choices) -> tuple[str, bool]:
    noun, plural = drawn.of(NOUNS), drawn.whether(0.5)
    return f"the {noun}{'s' if plural else ''}", plural


def _agreeing(verb: str, plural: bool) -> str:
    return verb if plural else f"{verb}s"
