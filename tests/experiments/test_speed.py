"""The study of speed end to end, tiny: its files, what is missing, what it refuses. No time is judged here."""

import importlib.util
import json
import math
import os
import pathlib
import re
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments import speed
from experiments.common import speed_report, timing
from experiments.common.speed_claims import judge
from experiments.common.user_cells import USER_CELLS
from experiments.peers import PEERS, Size, Work, check_same, find, ours
from experiments.peers.base import in_jax, plain_scan
from rnnjax.cells import CELLS
from rnnjax.testing import check_cell
from rnnjax.train import cli

ROOT = pathlib.Path(__file__).parents[2]
TINY = Size(4, 2, 3, 5)
FLAGS = {"sizes": "4x2x3x5", "cells": "gru", "rounds": 1, "devices": 1, "compile_steps": "2,3",
         "peers": "flax.linen,torch"}  # fmt: skip
FILES = {"config.json", "speed.json", "claims.json", "report.md", "ratios.png", "ratios.svg"}
HERE = tuple(name for name in PEERS if importlib.util.find_spec(PEERS[name].imports) and not PEERS[name].gpu)


@pytest.fixture(scope="module", autouse=True)
def quick():
    """Quick compilation, tiny fixed sizes, and the leave that other libraries take to broadcast."""
    jax.config.update("jax_disable_most_optimizations", True)
    with pytest.MonkeyPatch.context() as patch, jax.numpy_rank_promotion("allow"):
        patch.setattr(speed, "POINT_SECONDS", 0)
        patch.setattr(speed, "USER_SIZE", TINY)
        patch.setattr(speed, "COMPILED", TINY)
        yield
    jax.config.update("jax_disable_most_optimizations", False)


def arguments(workdir, **changes):
    return [f"--workdir={workdir}", *(f"--config.{name}={value}" for name, value in (FLAGS | changes).items())]


def run(given):
    """Runs a command line in this process, and returns the exit status."""
    try:
        parsed = cli.parse_or_exit(["speed", *given], speed.get_config, doc=speed.__doc__, variants=speed.VARIANTS)
    except SystemExit as exit:
        return exit.code
    return cli.call(speed.main, parsed)


def contents(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def work_of(name, size=TINY):
    return Work.of(name, CELLS[name](size.inputs, size.hidden), size)


def without(*packages):
    """importlib.util.find_spec as it is where these are not installed."""
    there = importlib.util.find_spec
    return lambda name, *rest: None if name in packages else there(name, *rest)


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    workdir = tmp_path_factory.mktemp("speed") / "run"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(importlib.util, "find_spec", without("torch"))
        assert run(arguments(workdir)) == 0
    return workdir


@pytest.mark.parametrize(
    "cell", [pytest.param(cell, marks=[pytest.mark.full] if cell != "lstm" else []) for cell in speed.TIMED]
)
@pytest.mark.parametrize("name", HERE)
def test_a_peer_computes_what_ours_does(name, cell):
    if cell not in PEERS[name].cells:
        pytest.skip(f"{name} has no {cell}")
    prepare, variants = PEERS[name].load()
    check_same(prepare(work_of(cell)), work_of(cell), variants.get(cell, {}))


@pytest.mark.parametrize("make", [ours.engine, ours.scan], ids=["engine", "scan"])
def test_our_own_columns_compute_the_same(make):
    check_same(make(work_of("lstm")), work_of("lstm"), {})


def test_a_peer_that_computes_something_else_is_told():
    work = work_of("lstm")
    cell, params = work.cell, work.params

    def check(apply, params=params, **options):
        check_same(in_jax(apply, params, work, **options), work, {})

    swapped = params | {"W_hh": np.roll(params["W_hh"], work.cell.hidden_size, axis=1)}
    with pytest.raises(ValueError, match="outputs are not those of our LSTM"):
        check(lambda params, x: plain_scan(cell, swapped, x))
    with pytest.raises(ValueError, match=r"shape \(4, 2, 4\): expected \(4, 2, 5\)"):
        check_same(ours.engine(work_of("lstm"))._replace(forward=lambda: jnp.zeros((4, 2, 4))), work, {})
    with pytest.raises(ValueError, match="gradients are not those"):
        check(lambda params, x: plain_scan(cell, params | {"W_hh": jax.lax.stop_gradient(params["W_hh"])}, x))
    with pytest.raises(ValueError, match="loss are not those"):
        check_same(ours.engine(work)._replace(train=lambda: (jnp.float32(jnp.nan), params)), work, {})
    gradients = ours.engine(work).train()[1]
    with pytest.raises(ValueError, match="a gradient is not finite"):
        spoiled = gradients | {"b": gradients["b"].at[0].set(jnp.nan)}
        check_same(ours.engine(work)._replace(train=lambda: (ours.engine(work).train()[0], spoiled)), work, {})


@pytest.mark.parametrize("cell", speed.TIMED)
def test_the_matmuls_are_those_of_a_training_step(cell):
    work = work_of(cell)
    hidden_states, (_, gradients) = ours.matmuls(work).forward(), ours.matmuls(work).train()
    assert hidden_states.shape == work.targets.shape
    assert [g.shape for g in gradients] == [work.params[name].shape for name in ("W_ih", "W_hh")]


def test_the_study_leaves_what_it_speaks_of(study):
    written = {name for name in contents(study) if not name.startswith("parts/")}
    assert written == FILES | {".lock"}
    found = json.loads((study / "speed.json").read_text())
    assert set(found) == {"machine", "rows", "other_cells", "compile", "left_out"}
    columns = {"ours", "plain scan", speed.FLOOR, "flax.linen"}
    keys = {(row["cell"], row["size"], row["pass"], row["peer"]) for row in found["rows"]}
    assert keys == {("gru", FLAGS["sizes"], kind, peer) for kind in speed.PASSES for peer in columns}
    for row in found["rows"]:
        assert set(row) == {"cell", "size", "pass", "peer", "ms", "ours_ms", "ratio"}
        assert row["ms"] > 0 and row["ratio"] == pytest.approx(row["ours_ms"] / row["ms"])
    assert [row["cell"] for row in found["other_cells"]] == list(USER_CELLS)
    assert {(row["cell"], row["time"]) for row in found["compile"]} == {("gru", 2), ("gru", 3)}
    assert found["machine"]["versions"]["jax"] == jax.__version__ and len(found["machine"]["source"]) == 12
    assert (study / "ratios.png").read_bytes().startswith(b"\x89PNG") and (study / "ratios.png").stat().st_size > 5000


def test_what_is_missing_is_named_and_its_claims_are_not_measured(study, capsys):
    found = json.loads((study / "speed.json").read_text())
    assert {"peer": "torch", "cell": None, "size": None, "why": "torch is not installed"} in found["left_out"]
    claims = json.loads((study / "claims.json").read_text())["claims"]
    of_torch = [claim for claim in claims if "torch" in claim["claim"]]
    assert len(of_torch) == 2 and not any(claim["holds"] for claim in of_torch)
    assert of_torch[0]["not_measured"] == "torch is not installed" and of_torch[0]["measured"] is None
    report = (study / "report.md").read_text()
    assert "not measured: torch is not installed" in report and "| torch | – | – | torch is not installed |" in report
    measured = [claim for claim in claims if "not_measured" not in claim]
    assert measured and all(math.isfinite(claim["measured"]) for claim in measured)


def test_the_report_has_a_row_a_point_and_every_claim(study):
    report = (study / "report.md").read_text()
    rows = re.findall(rf"^\| gru \| {FLAGS['sizes']} \| [\d.,e-]+ \| .*\|$", report, re.MULTILINE)
    assert len(rows) == len(speed.PASSES) and all(len(row.split("|")) == 8 for row in rows)
    for claim in json.loads((study / "claims.json").read_text())["claims"]:
        assert claim["claim"] in report


def test_the_same_command_again_times_nothing_and_changes_no_byte(study, monkeypatch, capsys):
    monkeypatch.setattr(importlib.util, "find_spec", without("torch"))
    monkeypatch.setattr(speed, "interleaved", lambda *_: pytest.fail("timed again"))
    before = contents(study)
    assert run(arguments(study)) == 0
    assert contents(study) == before
    printed = capsys.readouterr()
    assert "not timed: torch: torch is not installed" in printed.out and "finished before" in printed.err
    assert len(re.findall(rf"^ ?gru +{FLAGS['sizes']} +[\d.]+", printed.out, re.MULTILINE)) == len(speed.PASSES)


def test_an_interrupted_run_goes_on_with_the_next_point_on_the_same_machine_alone(tmp_path, monkeypatch, capsys):
    timed = []

    def interrupted(name, size, *rest, stop):
        if len(timed) == stop:
            raise KeyboardInterrupt
        timed.append(str(size))
        return {"rows": fake_rows(1.0, cells=("gru",), sizes=(str(size),)), "left_out": []}

    rest = {"rows": []}
    monkeypatch.setattr(speed, "time_user_cells", lambda *_: rest)
    monkeypatch.setattr(speed, "time_compiling", lambda *_: rest)
    monkeypatch.setattr(speed, "time_point", lambda *given: interrupted(*given, stop=1))
    given = arguments(tmp_path, sizes="4x2x3x5,6x2x3x5")
    assert run(given) == 130 and timed == ["4x2x3x5"] and not (tmp_path / "speed.json").exists()
    monkeypatch.setattr(speed, "time_point", lambda *given: interrupted(*given, stop=9))
    with monkeypatch.context() as elsewhere:
        elsewhere.setattr(timing, "_cpu", lambda: "another processor")
        assert run(given) == 2 and timed == ["4x2x3x5"]
        assert "machine.cpu" in capsys.readouterr().err
    assert run(given) == 0 and timed == ["4x2x3x5", "6x2x3x5"]


def test_a_peer_that_fails_is_left_out_by_name(monkeypatch):
    peer = type("Broken", (), {"cells": ("gru",), "load": lambda self: (lambda work: 1 / 0, {})})()
    config = speed.Config(devices=2)
    runners, left_out = speed.prepare(work_of("gru"), TINY, config, {"haiku": peer})
    assert set(runners) == {"ours", "plain scan", speed.FLOOR}
    assert [(lost["peer"], lost["cell"], lost["why"]) for lost in left_out] == [
        ("ours, 2 devices", "gru", "JAX sees 1 device"),
        ("haiku", "gru", "division by zero"),
    ]


def test_with_no_peer_at_all_ours_is_timed_over_two_devices(tmp_path):
    """In a process of its own, since JAX has its devices from the start."""
    environment = os.environ | {"PYTHONPATH": str(ROOT), "JAX_PLATFORMS": "cpu", "JAX_DISABLE_MOST_OPTIMIZATIONS": "1"}
    given = arguments(tmp_path / "run", devices=2, peers="()", cells="elman", sizes=TINY, compile_steps="2")
    code = (
        "from experiments import speed; from experiments.peers import Size; speed.POINT_SECONDS = 0; "
        "speed.USER_SIZE = speed.COMPILED = Size(4, 2, 3, 5); "
        "speed.cli.run(speed.main, speed.get_config, doc=speed.__doc__, variants=speed.VARIANTS)"
    )
    done = subprocess.run([sys.executable, "-c", code, *given], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found = json.loads((tmp_path / "run" / "speed.json").read_text())
    assert {row["peer"] for row in found["rows"]} == {"ours", "plain scan", "ours, 2 devices", speed.FLOOR}
    assert found["machine"]["devices"] == "2 cpu" and found["left_out"] == []
    assert "were not measured" in done.stdout


HOSTILE = [
    ({"sizes": "100x20x10"}, "--config.sizes has '100x20x10': expected steps x batch x features x units"),
    ({"sizes": "4x2x3x0"}, "--config.sizes has '4x2x3x0'"),
    ({"sizes": "4x2x3x5,ax2x3x5"}, "--config.sizes has 'ax2x3x5'"),
    ({"sizes": "4x2x3x99999999"}, "at most 65536 features and units"),
    ({"sizes": "()"}, "--config.sizes is empty"),
    ({"rounds": 0}, "--config.rounds is 0: expected at least 1"),
    ({"devices": 0}, "--config.devices is 0: expected at least 1"),
    ({"devices": 2, "sizes": "4x3x3x5"}, "the batch of 4x3x3x5 is no multiple of --config.devices (2)"),
    ({"compile_steps": "2,0"}, "--config.compile_steps has 0"),
    ({"cells": "jordan"}, "expected one of elman, lstm, gru"),
    ({"cells": "gru,gru"}, "--config.cells names gru 2 times"),
    ({"peers": "torhc"}, "did you mean torch?"),
]


@pytest.mark.parametrize("changes, message", HOSTILE, ids=lambda value: str(value)[:40])
def test_what_can_not_be_is_told_in_one_line_and_nothing_is_written(tmp_path, capsys, changes, message):
    assert run(arguments(tmp_path / "run", **changes)) == 2
    err = capsys.readouterr().err
    assert message in err and err.count("\n") == 1 and not (tmp_path / "run").exists()


def fake_rows(ratio, cells=speed.TIMED, sizes=speed.SMALL, peers=("flax.linen", "torch", "ours, 2 devices")):
    """Rows in which ours takes `ratio` ms and a peer 1; with two devices, 0.9 of ours."""
    rows = []
    for cell, size, kind, peer in ((c, s, k, p) for c in cells for s in sizes for k in speed.PASSES
                                   for p in ("ours", *peers)):  # fmt: skip
        ms = {"ours": ratio, "ours, 2 devices": 0.9 * ratio}.get(peer, 1.0)
        rows.append({"cell": cell, "size": size, "pass": kind, "peer": peer, "ms": ms, "ours_ms": ratio,
                     "ratio": ratio / ms})  # fmt: skip
    return rows


def fake(ratio=0.2, user=1.0, growth=1.0, **options):
    return {
        "rows": fake_rows(ratio, **options),
        "other_cells": [{"cell": "mine", "ratio": 0.9}, {"cell": "yours", "ratio": user}],
        "compile": [{"cell": "gru", "time": time, "seconds": s} for time, s in ((10, 9.0), (100, 1.0), (1000, growth))],
        "left_out": [],
    }


def failing(found):
    return [claim.claim for claim in judge(found) if not claim.holds]


def test_claims_hold_where_the_numbers_are_good_and_name_what_is_bad():
    assert len(judge(fake())) == 11 and failing(fake()) == []
    assert len(failing(fake(ratio=2.0))) == 9
    (only,) = failing(fake(user=1.06))
    assert "without a backward of its own" in only
    (only,) = failing(fake(growth=1.6))
    assert only == "Compiling a training step of T = 1,000 against T = 100: the worst cell"


def test_one_bad_point_is_seen():
    for kind, words in (("train", "worst point"), ("forward", "forward pass alone")):
        found = fake()
        row = next(row for row in found["rows"] if row["pass"] == kind and row["peer"] == "flax.linen")
        row["ms"] = 0.1
        assert all(words in claim for claim in failing(found)) and failing(found)


def test_each_target_of_torch_is_its_own_cells():
    """At 0.34 of torch, 0.306 over two devices, only Elman on one device misses its target."""
    assert failing(fake(ratio=0.34)) == ["A training step of elman against torch: geometric mean over the sizes"]
    assert len(failing(fake(ratio=0.4))) == 3  # and Elman and GRU over two devices


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_ratio_that_is_no_number_holds_nowhere(bad):
    assert len(failing(fake(ratio=bad, user=bad, growth=bad))) == 11


def test_a_claim_over_points_that_are_not_all_there_is_not_measured():
    found = fake()
    gone = next(row for row in found["rows"] if row["peer"] == "torch" and row["pass"] == "train")
    found["rows"].remove(gone)
    found["left_out"] = [{"peer": "torch", "cell": gone["cell"], "size": gone["size"], "why": "out of memory"}]
    unmeasured = [claim for claim in judge(found) if claim.not_measured]
    assert len(unmeasured) == 2 and {claim.not_measured for claim in unmeasured} == {"out of memory"}
    alone = judge({**fake(peers=()), "other_cells": [], "compile": []})
    assert len(alone) == 11 and all(claim.not_measured and not claim.holds for claim in alone)


def test_a_machine_without_any_library_is_told_of_every_one(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    there, missing = find(tuple(PEERS))
    assert there == {} and missing["haiku"] == "dm-haiku is not installed" and list(missing) == list(PEERS)
    monkeypatch.undo()
    assert find(("cudnn",)) == ({}, {"cudnn": "JAX is not on a GPU"})


def test_the_table_has_a_column_a_peer_and_the_geometric_mean():
    found = fake(ratio=0.5)
    for row in found["rows"]:
        if row["cell"] == "lstm" and row["size"] == speed.SMALL[1] and row["peer"] == "torch":
            row["ratio"] = 2.0
    rows = speed_report.rows(found, "train")
    assert speed_report.header(found) == ["cell", "TxBxDxH", "ours (ms)", "ours, 2 devices", "flax.linen", "torch"]
    assert len(rows) == 9 and all(len(row) == 6 for row in rows)
    (mean,) = [row for row in rows if row[:2] == ["lstm", "geometric mean"]]
    assert mean[2] is None and mean[3:] == pytest.approx([1 / 0.9, 0.5, 1.0])


def test_every_ratio_is_drawn_in_view_and_ours_is_the_line_at_one():
    found = fake(ratio=0.01)
    panels = speed_report.figure(found).axes
    assert len(panels) == len(speed.PASSES)
    for axes in panels:
        points = [line for line in axes.lines if line.get_marker() != "None"]
        assert len(points) == 3 * 3 * 2 and axes.get_xscale() == "log"
        low, high = axes.get_xlim()
        assert all(low < line.get_xdata()[0] < high for line in points) and low < 1 < high
        assert [line.get_xdata()[0] for line in axes.lines if line.get_marker() == "None"] == [1]


def test_compiling_a_step_leaves_the_cache_as_it_was():
    before = jax.config.jax_enable_compilation_cache
    cell = CELLS["elman"](3, 5)
    step = ours.compile_step(ours.outputs(cell), cell, 4, 2)
    assert jax.config.jax_enable_compilation_cache == before
    loss, gradients = step(cell.init(jax.random.key(0)), jnp.ones((4, 2, 3)), jnp.ones((4, 2, 5)))
    assert jnp.isfinite(loss) and set(gradients) == {"W_ih", "W_hh", "b"}


@pytest.mark.parametrize("name", USER_CELLS)
def test_the_users_cells_go_the_general_way(name):
    assert not USER_CELLS[name](3, 5).brings_backward


@pytest.mark.full
@pytest.mark.parametrize("name", USER_CELLS)
def test_the_users_cells_are_cells(name):
    check_cell(USER_CELLS[name](3, 5))


@pytest.mark.full
def test_the_quick_study_judges_everything(tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "experiments.speed", f"--workdir={tmp_path}"], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    claims = json.loads((tmp_path / "claims.json").read_text())["claims"]
    assert len(claims) == 11 and not any("flax" in claim.get("not_measured", "") for claim in claims)
