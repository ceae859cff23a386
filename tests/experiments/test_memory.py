"""The study of memory end to end, tiny: its files, its rules on made-up numbers, what it refuses."""

import json
import math
import pathlib
import re
import subprocess
import sys

import jax
import pytest

from experiments import memory
from experiments.common import alone
from rnnjax.train import cli

ROOT = pathlib.Path(__file__).parents[2]
FLAGS = {"cells": "lstm", "batch": 2, "inputs": 3, "hidden": 4, "steps": "20,40", "chunk": 5, "rounds": 1,
         "alone_steps": 30}  # fmt: skip
FILES = {"config.json", "memory.json", "claims.json", "report.md", "memory.png", "memory.svg"}
METHODS = ("plain scan", "auto", "chunk")


@pytest.fixture(scope="module", autouse=True)
def quick():
    """Quick compilation, and no process of its own, which has its own test."""
    jax.config.update("jax_disable_most_optimizations", True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(alone, "measure", lambda cell, size, chunk: {"seconds": 1.0, "peak_bytes": 3 * 2**30})
        yield
    jax.config.update("jax_disable_most_optimizations", False)


def arguments(workdir, **changes):
    return [f"--workdir={workdir}", *(f"--config.{name}={value}" for name, value in (FLAGS | changes).items())]


def run(given):
    """Runs a command line in this process, and returns the exit status."""
    try:
        parsed = cli.parse_or_exit(["memory", *given], memory.get_config, doc=memory.__doc__, variants=memory.VARIANTS)
    except SystemExit as exit:
        return exit.code
    return cli.call(memory.main, parsed)


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    workdir = tmp_path_factory.mktemp("memory") / "run"
    assert run(arguments(workdir)) == 0
    return workdir


def test_the_study_leaves_what_it_speaks_of(study):
    assert {path.name for path in study.iterdir()} == FILES | {"parts", ".lock"}
    found = json.loads((study / "memory.json").read_text())
    assert set(found) == {"machine", "rows", "alone"}
    assert [(row["steps"], row["method"]) for row in found["rows"]] == [
        (steps, method) for steps in (20, 40) for method in METHODS
    ]
    for row in found["rows"]:
        assert set(row) == {"cell", "steps", "method", "temporary_bytes", "ms"}
        assert row["temporary_bytes"] > 0 and row["ms"] > 0
    assert [(row["cell"], row["steps"], row["method"]) for row in found["alone"]] == [
        ("lstm", 30, "auto"), ("lstm", 30, "chunk")
    ]  # fmt: skip
    claims = json.loads((study / "claims.json").read_text())["claims"]
    assert len(claims) == 4 and claims[3]["measured"] == 3.0 and claims[3]["holds"]
    report = (study / "report.md").read_text()
    assert len(re.findall(r"^\| lstm \| [24]0 \| (?:plain scan|auto|chunk) \|", report, re.MULTILINE)) == 6
    assert "| lstm | 30 | chunk | 3.00 | 1.00 |" in report and all(claim["claim"] in report for claim in claims)
    assert (study / "memory.png").read_bytes().startswith(b"\x89PNG") and (study / "memory.png").stat().st_size > 5000


def test_the_same_command_again_measures_nothing_and_changes_no_byte(study, monkeypatch):
    monkeypatch.setattr(memory, "measure", lambda *_: pytest.fail("measured again"))
    before = {path: path.read_bytes() for path in study.rglob("*.*")}
    assert run(arguments(study)) == 0
    assert {path: path.read_bytes() for path in study.rglob("*.*")} == before


def test_plain_scan_is_not_run_on_sequences_that_are_too_long(study, monkeypatch):
    monkeypatch.setattr(memory, "SCAN_MOST", 30)
    config = memory.Config(batch=2, inputs=3, hidden=4, rounds=1, chunk=5)
    assert [row["method"] for row in memory.measure("elman", 31, config)["rows"]] == ["auto", "chunk"]


def fake(memory_share=0.1, time_share=1.0, growth=1.0, peak=2.0, steps=(1000, 10000, 100000)):
    rows = []
    for length in steps:
        for method in METHODS if length <= memory.SCAN_MOST else METHODS[1:]:
            share, slow = (memory_share, time_share) if method == "chunk" else (1.0, 1.0)
            ms = slow * length * (growth if length == steps[-1] and method == "chunk" else 1.0)
            rows.append({"cell": "gru", "steps": length, "method": method, "temporary_bytes": share * 1e6, "ms": ms})
    return {"rows": rows, "alone": [{"steps": 100000, "peak_bytes": peak and peak * 2**30}] * (peak != 0)}


def holding(found):
    return [claim.holds for claim in memory.judge(found)]


def test_claims_fail_where_the_numbers_are_bad():
    assert holding(fake()) == [True] * 4
    assert holding(fake(memory_share=0.21)) == [False, True, True, True]
    assert holding(fake(time_share=1.41)) == [True, False, True, True]
    assert holding(fake(growth=1.26)) == [True, True, False, True]
    assert holding(fake(peak=8.1)) == [True, True, True, False]
    assert holding(fake(memory_share=math.nan, time_share=math.nan, growth=math.nan, peak=math.nan)) == [False] * 4


def test_the_share_is_that_at_the_longest_sequence_of_plain_scan():
    found = fake()
    for row in found["rows"]:
        if row["method"] == "chunk":
            row["temporary_bytes"] = row["steps"]
    claim = memory.judge(found)[0]
    assert claim.measured == pytest.approx(0.01) and "at 10,000 steps" in claim.claim


def test_what_was_not_run_is_not_measured():
    by_length = memory.judge(fake(steps=(100000,), peak=0))
    assert [bool(claim.not_measured) for claim in by_length] == [True] * 4 and not any(c.holds for c in by_length)
    quick = memory.judge(fake(peak=0, steps=(1000, 10000)))
    assert [claim.not_measured for claim in quick] == ["", "", "", "the full preset runs it"]
    killed = memory.judge(fake(peak=None))
    assert not killed[3].holds and not killed[3].not_measured


HOSTILE = [
    ({"steps": "()"}, "--config.steps is empty"),
    ({"steps": "10,0"}, "--config.steps is 0: expected at least 1"),
    ({"chunk": 0}, "--config.chunk is 0"),
    ({"batch": 0}, "--config.batch is 0"),
    ({"hidden": -1}, "--config.hidden is -1"),
    ({"rounds": 0}, "--config.rounds is 0"),
    ({"alone_steps": -1}, "--config.alone_steps is -1: expected at least 1, or 0 for none"),
    ({"cells": "jordan"}, "expected one of elman, lstm, gru"),
]


@pytest.mark.parametrize("changes, message", HOSTILE, ids=lambda value: str(value)[:40])
def test_what_can_not_be_is_told_in_one_line_and_nothing_is_written(tmp_path, capsys, changes, message):
    assert run(arguments(tmp_path / "run", **changes)) == 2
    err = capsys.readouterr().err
    assert message in err and err.count("\n") == 1 and not (tmp_path / "run").exists()


def test_a_process_of_its_own_tells_its_memory_or_why_it_failed(monkeypatch):
    monkeypatch.undo()
    monkeypatch.setenv("JAX_DISABLE_MOST_OPTIMIZATIONS", "1")
    measured = MEASURE("elman", "20x2x3x4", 5)
    assert set(measured) == {"seconds", "peak_bytes"} and 0 < measured["seconds"] < 600
    assert 2**26 < measured["peak_bytes"] < 2**33  # as JAX alone takes, in bytes

    def ended(status, said):
        monkeypatch.setattr(subprocess, "run", lambda *_, **__: subprocess.CompletedProcess((), status, "", said))
        return MEASURE("elman", "20x2x3x4", None)

    nothing = {"seconds": None, "peak_bytes": None}
    assert ended(1, "Traceback\nMemoryError: 9 GiB\n") == nothing | {"why": "MemoryError: 9 GiB"}
    assert ended(-9, "") == nothing | {"why": "it ended with status -9"}


MEASURE = alone.measure


@pytest.mark.full
def test_chunk_holds_a_fifth_at_ten_thousand_steps(tmp_path):
    """What XLA reserves is the same every time; times are no test's to judge."""
    done = subprocess.run(
        [sys.executable, "-m", "experiments.memory", f"--workdir={tmp_path}"], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    claims = json.loads((tmp_path / "claims.json").read_text())["claims"]
    assert "Temporary memory" in claims[0]["claim"] and claims[0]["holds"], claims[0]
