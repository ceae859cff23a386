"""A generated corpus of travel plans: "arrive Taipei" and "leave Taipei" give the same word two slots."""

import functools

import numpy as np

from rnnjax.data.sentences import Sentence

CITIES = (
    "Taipei", "Osaka", "Lisbon", "Nairobi", "Boston", "Hanoi", "Bergen", "Lima", "Delhi", "Zurich", "Perth", "Cairo",
)  # fmt: skip
ARRIVE = ("arrive", "land", "arriving", "landing")
LEAVE = ("leave", "depart", "leaving", "departing")
OPENERS = ("i want to", "we plan on", "please let me", "she hopes to", "they said they")
BETWEEN = ("", "", "early", "with my sister", "by train", "late that day", "as planned")
PLACES = ("is the city where i", "is where we", "it is that she wants to", "will be the place to")
DATES = ("", "on", "before", "after")
MONTHS = ("January", "March", "May", "July", "September", "November")
DAYS = ("1st", "2nd", "3rd", "12th", "21st", "30th")
DISTRACTORS = (*[""] * 6, "my friend in {} says", "unlike my trip through {}")
CLOSERS = ("", "", "if i may", "thank you", "as soon as possible")

SLOTS = ("O", "B-destination", "B-departure", "B-date", "I-date")
SIZES = {"train": 2000, "valid": 500, "test": 1000}
TRIGGERS = ("before", "after")


@functools.cache
def travel_sentences(split: str) -> tuple[Sentence, ...]:
    """The sentences of a split: words, slots in IOB2, and as the label where the trigger stands, before or after.

    In each one city is the destination or the departure, with equal chances, as the trigger says: "arrive ... CITY", or
    "CITY ... arrive". Nothing else in the sentence tells. Words between the two, dates, and other cities, which are O,
    are drawn for themselves; no two splits share a sentence. So the best guess from the word alone, or from the words
    up to a city whose trigger comes after it, is right in half of the cases.

    Worked example:

        i want to arrive early Taipei        on November 2nd     O O O O O B-destination O B-date I-date     before
        Taipei is where we leave             B-departure O O O O                                             after
    """
    number = list(SIZES).index(split)
    earlier = {one.words for other in list(SIZES)[:number] for one in travel_sentences(other)}
    generator = np.random.Generator(np.random.Philox(key=number))
    drawn: list[Sentence] = []
    while len(drawn) < SIZES[split]:
        if (sentence := _sentence(generator)).words not in earlier:
            drawn.append(sentence)
    return tuple(drawn)


def _sentence(generator: np.random.Generator) -> Sentence:
    def one(choices):
        return choices[generator.integers(len(choices))]

    arrives, trigger = bool(generator.integers(2)), one(TRIGGERS)
    city = [(one(CITIES), "B-destination" if arrives else "B-departure")]
    verb = _outside(one(ARRIVE if arrives else LEAVE))
    between, date = _outside(one(BETWEEN)), _date(one)
    distractor = one(DISTRACTORS)
    distractor = _outside(distractor.format(one(CITIES)))
    if trigger == "before":
        tokens = [*distractor, *_outside(one(OPENERS)), *verb, *between, *city, *date]
    else:
        tokens = [*distractor, *city, *_outside(one(PLACES)), *verb, *between, *date]
    tokens += _outside(one(CLOSERS))
    words, tags = zip(*tokens, strict=True)
    return Sentence(words, tags, trigger)


def _outside(words: str) -> list[tuple[str, str]]:
    return [(word, "O") for word in words.split()]


def _date(one) -> list[tuple[str, str]]:
    when = one(DATES)
    return [(when, "O"), (one(MONTHS), "B-date"), (one(DAYS), "I-date")] if when else []
