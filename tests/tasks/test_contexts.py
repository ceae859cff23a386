"""The generated corpus: words of a kind have the same contexts, and others other ones."""

import collections

import scipy.stats

from rnnjax.tasks.contexts import COUNT, KINDS, context_sentences


def test_words_of_a_kind_are_as_frequent_as_each_other():
    sentences = context_sentences()
    assert len(sentences) == COUNT and all(all(words) for words in sentences)
    counts = collections.Counter(word for words in sentences for word in words)
    for members in KINDS.values():
        assert scipy.stats.chisquare([counts[word] for word in members]).pvalue > 1e-3
    assert len(counts) < 150


def test_kinds_alone_decide_what_stands_around_a_word():
    before = collections.defaultdict(collections.Counter)
    for words in context_sentences():
        for left, word in zip(words, words[1:], strict=False):
            before[word][left] += 1

    def table(word, other):
        places = sorted({place for place in {**before[word], **before[other]} if place.islower()})
        return [[before[one][place] + 1 for place in places] for one in (word, other)]

    assert scipy.stats.chi2_contingency(table("Taipei", "HongKong")).pvalue > 1e-3
    assert scipy.stats.chi2_contingency(table("Taipei", "apple")).pvalue < 1e-6
