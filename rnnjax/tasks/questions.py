"""A generated corpus of questions: what kind of thing is asked for stands in the words and in their order."""

import functools

import numpy as np

from rnnjax.data.sentences import Sentence

PEOPLE = ("ana", "bruno", "chen", "dora", "elif", "farid", "greta", "hiro")
CITIES = ("taipei", "osaka", "lisbon", "nairobi", "boston", "hanoi", "bergen", "lima", "delhi", "perth")
THINGS = ("violin", "kite", "lantern", "bicycle", "teapot", "compass", "drum", "telescope")
TRADES = ("singer", "painter", "pilot", "baker")
SHORT = ("un", "nato", "dna", "led", "gps", "faq")
KINDS = {
    "person": (
        "who brought a {thing} to {city}",
        "what {trade} is from the city",
        "which {trade} did {person} see in {city}",
        "name the {trade} that met {person}",
    ),
    "place": (
        "where did {person} see a {thing}",
        "what city is the {trade} from",
        "in which city did {person} see the {trade}",
        "name the city that {person} left",
    ),
    "number": (
        "how many {thing}s did {person} see",
        "in what year did {person} leave {city}",
        "how old is the {thing} in {city}",
    ),
    "description": (
        "how did {person} see many {thing}s",
        "why did {person} leave {city} that year",
        "what is a {thing}",
    ),
    "thing": (
        "what did {person} bring to {city}",
        "which {thing} did the {trade} see in {city}",
        "name what the {trade} left in {city}",
    ),
    "abbreviation": (
        "what does {short} stand for",
        "what is short for {short}",
        "in {city} what is the {short}",
    ),
}
BEFORE = ("", "", "tell me", "{person} would like to know", "when i was in {city} they asked")
AFTER = ("", "", "please", "and thank you", "{person} asked in {city}", "before the {trade} came")

SIZES = {"train": 2000, "valid": 500, "test": 1000}


@functools.cache
def generated_questions(split: str) -> tuple[Sentence, ...]:
    """The questions of a split, with what they ask for as their label, each of the six kinds as often.

    Worked example, two pairs of the same words:

        what singer is from the city       person       what city is the singer from       place
        how many kites did dora see        number       how did dora see many kites        description

    What stands before and after the question, names of people and cities among it, tells nothing.
    """
    return _splits()[split]


@functools.cache
def _splits() -> dict[str, tuple[Sentence, ...]]:
    """{split: questions}; none is in two of them."""
    generator = np.random.Generator(np.random.Philox(key=0))
    found: dict[str, tuple[Sentence, ...]] = {}
    seen: set[Sentence] = set()
    for split, count in SIZES.items():
        drawn: list[Sentence] = []
        while len(drawn) < count:
            question = _question(generator)
            if question not in seen:
                drawn.append(question)
        seen |= set(drawn)
        found[split] = tuple(drawn)
    return found


def _question(generator: np.random.Generator) -> Sentence:
    def one(choices):
        return choices[generator.integers(len(choices))]

    kind = one(tuple(KINDS))
    words = []
    for pattern in (one(BEFORE), one(KINDS[kind]), one(AFTER)):
        filled = pattern.format(
            person=one(PEOPLE), city=one(CITIES), thing=one(THINGS), trade=one(TRADES), short=one(SHORT)
        )
        words += filled.split()
    return Sentence(tuple(words), (), kind)
