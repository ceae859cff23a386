"""A generated corpus in which words of a kind share contexts: Taipei stands where HongKong does, apple elsewhere."""

import functools

import numpy as np

KINDS = {
    "city": ("Taipei", "HongKong", "Lisbon", "Nairobi", "Lima", "Cairo", "Bergen", "Hanoi"),
    "fruit": ("apple", "pear", "plum", "mango", "cherry", "lemon", "fig", "quince"),
    "animal": ("dog", "cat", "horse", "goat", "hen", "duck", "cow", "sheep"),
}
FRAMES = {
    "city": (
        "we flew to {} last week",
        "the train from {} was late",
        "my aunt lives in {}",
        "the streets of {} are busy",
        "{} has a large airport",
        "hotels in {} are full",
    ),
    "fruit": (
        "she ate a ripe {} after lunch",
        "the {} in the bowl is sweet",
        "he peeled the {} with a knife",
        "a {} fell from the tree",
        "this juice is made of {}",
        "slice the {} and cook it",
    ),
    "animal": (
        "the {} sleeps in the barn",
        "our {} ran across the field",
        "feed the {} before night",
        "a {} drinks from the river",
        "the {} follows its owner",
        "they heard the {} last night",
    ),
}
ANY = ("i like {} more than {}", "she told us of {} and {}", "here is a picture of {}")
COUNT, SHARED = 4000, 0.25
"""Sentences, and the share of them in which words of any kind stand."""


@functools.cache
def context_sentences() -> tuple[tuple[str, ...], ...]:
    """The words of every sentence, the same on every machine.

    A sentence is one of the frames of a kind, drawn evenly, with an evenly drawn word of that kind in it; a quarter of
    them have words of any kind. So two words of a kind have the same contexts in expectation, and nothing but these
    tells that they belong together.
    """
    generator = np.random.Generator(np.random.Philox(key=0))

    def one(choices):
        return choices[generator.integers(len(choices))]

    def sentence():
        if generator.random() < SHARED:
            return one(ANY).format(*(one(KINDS[one(list(KINDS))]) for _ in range(2)))
        kind = one(list(KINDS))
        return one(FRAMES[kind]).format(one(KINDS[kind]))

    return tuple(tuple(sentence().split(" ")) for _ in range(COUNT))
