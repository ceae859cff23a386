"""Rounds in which everything takes its turn, devices, and parts of a study that are kept."""

import re

from experiments.common import parts, timing


def test_a_round_visits_all_in_an_order_of_its_own_and_the_first_is_dropped():
    visits = []
    taken = timing.interleaved({name: lambda name=name: visits.append(name) for name in "abcd"}, 6)
    rounds = ["".join(visits[at : at + 4]) for at in range(0, len(visits), 4)]
    assert len(rounds) == 7 and all(sorted(turn) == list("abcd") for turn in rounds) and len(set(rounds)) > 2
    assert {name: values.shape for name, values in taken.items()} == dict.fromkeys("abcd", (6,))
    assert all((values > 0).all() for values in taken.values())


def test_short_rounds_are_taken_more_often():
    assert timing.interleaved({"a": lambda: None}, 2, seconds=100)["a"].shape == (2 * timing.MOST,)
    assert timing.interleaved({"a": lambda: None}, 2, seconds=0)["a"].shape == (2,)


def test_parts_that_are_there_are_kept_and_progress_is_told(tmp_path, capsys):
    done = []

    def part(name):
        return parts.Part(name, lambda: done.append(name) or {"name": name})

    first = parts.finish([part("a")], tmp_path)
    assert done == ["a"] and first[0]["name"] == "a" and first[0]["seconds"] >= 0
    assert [held["name"] for held in parts.finish([part("a"), part("b"), part("c")], tmp_path)] == ["a", "b", "c"]
    assert done == ["a", "b", "c"]
    lines = capsys.readouterr().err.splitlines()
    assert lines[1] == "1/3 a: finished before"
    assert re.fullmatch(r"2/3 b: [\d.]+ s, about \d+ s left", lines[2]) and re.fullmatch(r"3/3 c: [\d.]+ s", lines[3])
