"""What replicas gain and saves cost: the rules of the claims, and the study end to end."""

import json
import pathlib
import subprocess
import sys

import pytest

from experiments import throughput
from rnnjax.train import cli

ROOT = pathlib.Path(__file__).parents[2]


def found(gain=2.5, share=0.001, compilations=0):
    other = {"size": "elman 50x16x8x32", "gain": 0.1, "compilations": 0}
    return {
        "replicas": [other, {"size": throughput.JUDGED, "gain": gain, "compilations": compilations}],
        "saves": [{"share": 0.0}, {"share": share}],
    }


def test_the_claims_are_of_the_size_that_the_target_is_of_and_of_the_dearest_save():
    claims = throughput.judge(found())
    assert [claim.holds for claim in claims] == [True] * 3
    assert [claim.measured for claim in claims] == [2.5, 0.001, 0]


@pytest.mark.parametrize("number, changes", [(0, {"gain": 1.9}), (1, {"share": 0.031}), (2, {"compilations": 1})])
def test_each_can_fail(number, changes):
    assert [claim.holds for claim in throughput.judge(found(**changes))] == [at != number for at in range(3)]


@pytest.mark.parametrize(
    "flag, message",
    [("replicas=1", "replicas is 1: expected at least 2"), ("rounds=0", "rounds is 0"), ("stretch=0", "stretch is 0")],
)
def test_what_can_not_be_timed_is_refused_and_nothing_written(tmp_path, capsys, flag, message):
    parsed, _ = cli.parse(
        [f"--workdir={tmp_path / 'x'}", f"--config.{flag}"],
        throughput.get_config,
        doc="",
        variants=throughput.VARIANTS,
    )
    assert cli.call(throughput.main, parsed) == 2
    assert message in capsys.readouterr().err and not (tmp_path / "x").exists()


@pytest.mark.full
def test_the_study_end_to_end(tmp_path):
    command = [sys.executable, "-m", "experiments.throughput", f"--workdir={tmp_path}", "--config.replicas=2"]
    flags = ["--config.rounds=1", "--config.stretch=0.01", "--config.devices=2"]
    done = subprocess.run([*command, *flags], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0 and "claims hold" in done.stdout, done.stderr
    rows = json.loads((tmp_path / "throughput.json").read_text())
    assert {row["size"] for row in rows["replicas"]} == set(throughput.SIZES)
    assert all(row["devices"] == 2 and row["gain"] > 0 for row in rows["replicas"])
    assert {row["size"] for row in rows["saves"]} == set(throughput.SAVED)
    assert "lstm 100x20x10x50" in (tmp_path / "report.md").read_text()
