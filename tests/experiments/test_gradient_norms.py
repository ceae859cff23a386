"""The study end to end, small: its files, going on where it stopped, divergence, and what it says to wrong commands."""

import functools
import json
import os
import pathlib
import re
import subprocess
import sys

import jax
import numpy as np
import pytest

from experiments import gradient_norms
from experiments.common.claims import Claim
from experiments.common.curves import QUANTILES
from rnnjax.cells import CELLS
from rnnjax.data.pianoroll import LOWEST_NOTE
from rnnjax.train import cli
from rnnjax.train.loop import train
from rnnjax.train.records import release_workdirs

ROOT = pathlib.Path(__file__).parents[2]
FIELDS = {"elman": ("h",), "jordan": ("y",), "lstm": ("h", "c"), "gru": ("h",)}
CLAIMS = [Claim("it holds", "1994", "x < 1", 0.5, True), Claim("it does not", "1997", "x > 1", 0.25, False)]
TINY = {
    "train.steps": 20,
    "train.steps_per_call": 5,
    "train.log_every": 5,
    "train.eval_every": 10,
    "train.batch_size": 3,
    "train.eval_batch": 4,
    "probe.points": 3,
    "probe.batch": 4,
    "model.hidden_size": 3,
}
VARIANTS = {
    "adding": ("lstm,elman", {"task.length": 8}),
    "copying": ("jordan", {"task.delay": 2, "task.symbols": 2, "task.recall": 2}),
    "temporal_order": ("gru", {"task.min_length": 10, "task.max_length": 13}),
    "latch": ("elman", {"task.length": 6}),
    "music": ("jordan", {"task.buckets": 2, "cell_options.jordan.hidden_size": 3}),
}
LENGTHS = {"train": (9, 4, 7, 5, 3), "valid": (6, 2, 8), "test": (5, 9)}


def arguments(workdir, variant, **changes):
    """The command line of a small study; `a__b=c` stands for --config.a.b=c."""
    cells, own = VARIANTS[variant]
    fields = TINY | {"cells": cells} | own | {name.replace("__", "."): value for name, value in changes.items()}
    return [
        f"--workdir={workdir}",
        f"--config={variant}",
        *(f"--config.{name}={value}" for name, value in fields.items()),
    ]


def run(given):
    """Runs a command line in this process, and returns the exit status."""
    try:
        parsed = cli.parse_or_exit(
            ["gradient_norms", *given],
            gradient_norms.get_config,
            doc=gradient_norms.__doc__,
            variants=gradient_norms.VARIANTS,
        )
    except SystemExit as exit:
        return exit.code
    try:
        return cli.call(gradient_norms.main, parsed)
    finally:
        release_workdirs()  # as at the end of a process


def contents(folder):
    """{name: bytes} of all files but locks, which hold the number of a process."""
    files = [path for path in folder.rglob("*") if path.is_file() and path.name != ".lock"]
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def results(folder):
    """`contents` without what tells of the clock."""
    clock = ("timing.jsonl", "report.md", "heartbeat.json", "about.json", "commit_success.txt", "_METADATA")
    kept = {name: data for name, data in contents(folder).items() if not name.endswith(clock)}
    return {
        name: re.sub(rb'"seconds": [0-9.]+', b"", data) if name.endswith("summary.json") else data
        for name, data in kept.items()
    }


@pytest.fixture(scope="module", autouse=True)
def quick():
    """No laws, which have their own tests, and quick compilation: there is little to compute."""
    jax.config.update("jax_disable_most_optimizations", True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gradient_norms, "gradient_laws", lambda: CLAIMS)
        yield
    jax.config.update("jax_disable_most_optimizations", False)


@pytest.fixture(scope="module")
def piano(tmp_path_factory):
    """A file of piano rolls of many lengths."""
    rng = np.random.default_rng(0)

    def sequence(length):
        return [[int(note) for note in LOWEST_NOTE + rng.choice(88, rng.integers(4), False)] for _ in range(length)]

    path = tmp_path_factory.mktemp("data") / "piano.json"
    path.write_text(json.dumps({split: list(map(sequence, lengths)) for split, lengths in LENGTHS.items()}))
    return path


@pytest.fixture(scope="module")
def study(tmp_path_factory, piano):
    """study(variant) -> its workdir; each is run once."""

    @functools.cache
    def made(variant):
        workdir = tmp_path_factory.mktemp(variant) / "run"
        assert run(arguments(workdir, variant, **({"task__path": piano} if variant == "music" else {}))) == 0
        return workdir

    return made


def test_every_variant_is_tried_here():
    assert tuple(VARIANTS) == gradient_norms.VARIANTS
    assert {cell for cells, _ in VARIANTS.values() for cell in cells.split(",")} == set(FIELDS) <= set(CELLS)


def check_files(workdir, cells):
    """Every file that the study speaks of is there, and no other."""
    report = (workdir / "report.md").read_text()
    told = set(re.findall(r"[\w/]+\.(?:png|svg|npz|jsonl|json|md)\b", gradient_norms.__doc__ + report))
    assert {"curves.png", "heatmaps.png", "losses.png", "gradient_norms.npz", "config.json", "claims.json"} <= told
    figures = {f"{name}.{kind}" for name in ("curves", "heatmaps", "losses") for kind in ("png", "svg")}
    per_cell = {f"{cell}/{name}" for cell in cells
                for name in ("metrics.jsonl", "timing.jsonl", "norms.npz", "summary.json")}  # fmt: skip
    of_study = {"config.json", "summary.json", "claims.json", "gradient_norms.npz", "report.md"}
    written = contents(workdir)
    to_go_on = {name for name in written if re.match(r"\w+/(checkpoints/|probes/|heartbeat.json)", name)}
    assert set(written) - to_go_on == figures | per_cell | of_study and told <= set(written)
    for cell in cells:
        assert f"{cell}/checkpoints/latest/20/default/arrays.safetensors" in to_go_on
        assert {f"{cell}/probes/GradientNorms/{step}.npz" for step in (0, 5, 10, 20)} <= to_go_on
    for name in figures:
        assert (
            written[name].startswith(b"\x89PNG\r\n" if name.endswith("png") else b"<?xml") and len(written[name]) > 5000
        )


def check_arrays(workdir, cells, distances):
    """The arrays have the dimensions that `axes` says."""
    with np.load(workdir / "gradient_norms.npz", allow_pickle=False) as stored:
        arrays = dict(stored)
    axes = json.loads(str(arrays.pop("axes")))
    assert set(axes) == set(arrays)
    assert set(arrays) == {"distance", "quantile"} | {
        f"{cell}.{field}" for cell in cells for field in ("step", "carry", *FIELDS[cell])
    }
    assert arrays["quantile"].tolist() == list(QUANTILES)
    for cell in cells:
        assert arrays[f"{cell}.step"].tolist() == [0, 5, 10, 20]
        sizes = {"step": 4, "distance": len(arrays["distance"]), "quantile": 3}
        for name in (name for name in arrays if name.startswith(cell) or "." not in name):
            assert arrays[name].shape == tuple(sizes[axis] for axis in axes[name]), name
        carry = arrays[f"{cell}.carry"]
        assert np.isfinite(carry[:, 0]).all() and (np.diff(carry[np.isfinite(carry).all(-1)]) >= 0).all()
    assert arrays["distance"].tolist() == list(range(distances))


def check_report(workdir, cells, task):
    """The report has a row a cell, and the claims."""
    report = (workdir / "report.md").read_text()
    for cell in cells:
        rows = re.findall(rf"^\| {cell} \|.*\|$", report, re.MULTILINE)
        assert len(rows) == 2 and re.search(r"(explodes|survives|fades|vanishes) -> ", rows[0]), rows
        summary = json.loads((workdir / cell / "summary.json").read_text())
        assert f"{summary['parameters']:,}" in rows[0] and f"{summary['loss']:.4g}" in rows[0]
        assert summary["diverged"] is None and summary["description"].startswith(f"{CELLS[cell].__name__}(")
    assert "1 of 2 claims hold" in report and "| it does not |" in report
    summary = json.loads((workdir / "summary.json").read_text())
    assert f"{summary['chance']:.4g}" in report and summary["unit"] in report and summary["task"] == task


@pytest.mark.parametrize(
    "variant, distances",
    [
        ("adding", 8),
        ("copying", 6),
        pytest.param("temporal_order", 13, marks=pytest.mark.full),
        pytest.param("latch", 6, marks=pytest.mark.full),
        pytest.param("music", 6, marks=pytest.mark.full),
    ],
)
def test_a_study_leaves_what_it_speaks_of(study, variant, distances):
    workdir, cells = study(variant), VARIANTS[variant][0].split(",")
    check_files(workdir, cells)
    check_arrays(workdir, cells, distances)
    check_report(workdir, cells, variant)


def test_the_claims_are_written_as_documented(study):
    claims = json.loads((study("latch") / "claims.json").read_text())
    assert set(claims) == {"study", "claims", "seconds"} and claims["study"] == "gradient_norms"
    assert [set(claim) for claim in claims["claims"]] == [{"claim", "source", "expected", "measured", "holds"}] * 2
    assert [claim["holds"] for claim in claims["claims"]] == [True, False]


def test_a_cell_is_scored_at_its_last_step_or_where_validation_was_best(study):
    last = json.loads((study("adding") / "lstm" / "summary.json").read_text())
    rows = [json.loads(line) for line in (study("adding") / "lstm" / "metrics.jsonl").read_text().splitlines()]
    assert last["loss"] == rows[-1]["loss"] and last["metrics"]["step"] == 20

    def score(*losses):
        lines = [{"step": step, "kind": "eval", "split": split, "loss": loss} for step, split, loss in losses]
        return gradient_norms.best_scores(lines)

    best = score((1, "valid", 3.0), (1, "test", 7.0), (2, "valid", 1.0), (2, "test", 9.0), (3, "valid", None),
                 (3, "test", 0.0))  # fmt: skip
    assert best == {"step": 2, "loss": 9.0}
    assert score((1, "test", 7.0), (2, "test", 9.0)) == {"step": 2, "loss": 9.0} and score() == {}


def test_the_probed_batch_of_a_corpus_is_the_fullest_of_the_validation_split(piano, tmp_path):
    parsed, _ = cli.parse(arguments(tmp_path, "music", task__path=piano), gradient_norms.get_config,
                          doc="", variants=gradient_norms.VARIANTS)  # fmt: skip
    _, task = gradient_norms.make_task(parsed.config.task)
    batch = gradient_norms.probed_batch(task, parsed.config)
    assert sorted(batch.lengths.tolist()) == [0, 0, 2, 6] and batch.inputs.shape == (6, 4, 88)  # and not [8]


def test_the_same_command_again_trains_nothing_and_changes_no_byte(study, monkeypatch):
    def refuse(*_, **__):
        raise AssertionError("trained again")

    monkeypatch.setattr(gradient_norms, "train", refuse)
    monkeypatch.setattr(gradient_norms, "gradient_laws", refuse)
    before = contents(study("adding"))
    assert run(arguments(study("adding"), "adding")) == 0
    assert contents(study("adding")) == before


def test_after_a_kill_only_the_rest_is_trained_and_to_the_same_bits(study, tmp_path, monkeypatch):
    trained = []

    def watched(*given, name, **options):
        trained.append(name)
        if name == "elman" and len(trained) == 2:  # the second cell of the first run
            raise KeyboardInterrupt
        return train(*given, name=name, **options)

    monkeypatch.setattr(gradient_norms, "train", watched)
    given = arguments(tmp_path / "run", "adding")
    assert run(given) == 130 and trained == ["lstm", "elman"]
    assert not (tmp_path / "run" / "claims.json").exists()
    (tmp_path / "run" / "elman").mkdir(exist_ok=True)
    (tmp_path / "run" / "elman" / "metrics.jsonl").write_text('{"step": 5, "kind": "tra')  # torn
    assert run(given) == 0 and trained == ["lstm", "elman", "elman"]
    assert results(tmp_path / "run") == results(study("adding"))


def test_another_config_in_the_same_workdir_is_refused_and_nothing_is_changed(study, capsys):
    before = contents(study("adding"))
    assert run(arguments(study("adding"), "adding", train__seed=5, cells="lstm")) == 2
    message = capsys.readouterr().err
    assert "config.cells (['lstm', 'elman'] there, ['lstm'] here)" in message and "\n" not in message.strip()
    assert "config.train.seed (0 there, 5 here)" in message and "--workdir" in message
    assert contents(study("adding")) == before


def test_a_run_that_diverges_is_a_result_and_the_study_goes_on(tmp_path, capsys):
    wild = {"train__learning_rate": 1e30, "train__optimizer": "sgd", "train__clip_norm": 0, "cells": "elman,gru"}
    assert run(arguments(tmp_path, "adding", **wild)) == 0
    out, err = capsys.readouterr()
    assert "Traceback" not in err
    report = (tmp_path / "report.md").read_text()
    for cell in ("elman", "gru"):
        summary = json.loads((tmp_path / cell / "summary.json").read_text())
        step, _, why = summary["diverged"].partition(": ")
        assert re.fullmatch(r"step [1-4]", step) and "the loss" in why and summary["loss"] is None
        (row,) = re.findall(rf"^\| {cell} \|.*diverged.*$", report, re.MULTILINE)
        assert f"diverged at {step}" in row and f"diverged at {step}" in out and "| - |" in row
        with np.load(tmp_path / cell / "norms.npz") as norms:
            assert norms["step"].tolist() == [0]
    assert (tmp_path / "losses.png").stat().st_size > 5000


HOSTILE = [
    ({"model__hidden_size": 0}, "hidden_size of LSTM is 0"),
    ({"model__hidden_size": 10**9}, "hidden_size of lstm is 1000000000: expected at most"),
    ({"task__length": -1}, "length of Adding is -1"),
    ({"cells": "()"}, "--config.cells is empty"),
    ({"cells": "gru,gru"}, "--config.cells names gru 2 times"),
    ({"cells": "lstn"}, "did you mean lstm?"),
    ({"cell_options__jordan__feedback": "foo"}, "feedback of Jordan is 'foo'"),
    ({"train__batch_size": 0}, "--config.train.batch_size is 0"),
    ({"train__steps": 21}, "--config.train.steps is 21: expected a multiple of steps_per_call (5)"),
    ({"train__seed": -1}, "--config.train.seed is -1"),
    ({"train__learning_rate": 0}, "--config.train.learning_rate is 0"),
    ({"train__learning_rate": -0.1}, "--config.train.learning_rate is -0.1"),
    ({"probe__points": 0}, "--config.probe.points is 0"),
    ({"probe__batch": 0}, "--config.probe.batch is 0"),
]


@pytest.mark.parametrize("changes, message", HOSTILE, ids=lambda value: str(value)[:40])
def test_what_can_not_be_is_told_in_one_line_and_nothing_is_written(tmp_path, capsys, changes, message):
    assert run(arguments(tmp_path / "run", "adding", **changes)) == 2
    err = capsys.readouterr().err
    assert message in err and err.count("\n") == 1
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("changes", [{"train__batch_size": 10**12}, {"model__hidden_size": 50_000, "cells": "elman"}])
def test_what_does_not_fit_is_told_in_two_lines(tmp_path, capsys, monkeypatch, changes):
    if "model__hidden_size" in changes:  # a machine with too little memory, which this one may not be

        def exhausted(*_):
            raise MemoryError

        monkeypatch.setattr(gradient_norms, "make_model", exhausted)
    assert run(arguments(tmp_path, "adding", **changes)) == 1
    lines = capsys.readouterr().err.splitlines()
    assert lines[-2].startswith("this does not fit: ") and lines[-1].startswith("make it smaller")
    assert "Traceback" not in "".join(lines)


@pytest.mark.parametrize(
    "file, message",
    [(None, "no such file or folder"), (b"MATLAB", "t.mat: "), (b"", "the file is empty")],
    ids=["missing", "cut short", "empty"],
)
def test_a_corpus_that_can_not_be_read_is_told_with_a_way_out(tmp_path, capsys, file, message):
    if file is not None:
        (tmp_path / "t.mat").write_bytes(file)
    assert run(arguments(tmp_path / "run", "music", task__path=tmp_path / "t.mat")) == 1
    err = capsys.readouterr().err
    assert message in err and 1 <= len(err.splitlines()) <= 2
    assert not (tmp_path / "run").exists()


def test_a_workdir_that_is_a_file_or_beneath_one_is_told(tmp_path, capsys):
    (tmp_path / "file").write_text("kept")
    for workdir in (tmp_path / "file", tmp_path / "file" / "run"):
        assert run(arguments(workdir, "adding")) == 1
        err = capsys.readouterr().err
        assert str(workdir) in err and len(err.splitlines()) == 2
    assert contents(tmp_path) == {"file": b"kept"}


def test_the_real_command_line(study, tmp_path):
    def command(given):
        environment = os.environ | {"PYTHONPATH": str(ROOT), "JAX_PLATFORMS": "cpu"}
        return subprocess.run([sys.executable, "-m", "experiments.gradient_norms", *given], cwd=tmp_path,
                              env=environment, capture_output=True, text=True, timeout=300)  # fmt: skip

    before = contents(study("adding"))
    done = command(arguments(study("adding"), "adding"))
    assert done.returncode == 0 and "Traceback" not in done.stderr, done.stderr
    assert re.search(r"^ ?lstm .*->", done.stdout, re.MULTILINE) and "1 of 2 claims hold" in done.stdout
    assert contents(study("adding")) == before
    refused = command(arguments(study("adding"), "adding", train__steps=7))
    assert refused.returncode == 2 and refused.stdout == ""
    assert refused.stderr == "--config.train.steps is 7: expected a multiple of steps_per_call (5)\n"


def test_real_music_trains(corpora, tmp_path, capsys):
    if not (corpora / "polymusic").is_dir():
        pytest.skip("RNNJAX_DATA holds no polymusic")
    own = {"task__path": corpora / "polymusic", "cells": "gru", "train__batch_size": 8, "train__eval_batch": 77}
    assert run(arguments(tmp_path, "music", **own)) == 0
    summary = json.loads((tmp_path / "gru" / "summary.json").read_text())
    chance = json.loads((tmp_path / "summary.json").read_text())["chance"]
    assert 5 < summary["loss"] < 1.1 * chance < 20
    with np.load(tmp_path / "gradient_norms.npz") as arrays:
        assert np.isfinite(arrays["gru.carry"][:, :10]).all()


def test_replicas_are_told_one_by_one_and_their_median(tmp_path, capsys):
    """A wild learning rate among them stops its own replicas and no other."""
    changes = {"replicas__seeds": 2, "replicas__learning_rate": "1e-3,1e30", "train__optimizer": "sgd",
               "train__clip_norm": 0, "cells": "elman"}  # fmt: skip
    assert run(arguments(tmp_path, "adding", **changes)) == 0
    summary = json.loads((tmp_path / "elman" / "summary.json").read_text())
    labels = [one["label"] for one in summary["replicas"]]
    assert labels == [f"seed={seed}, learning_rate={rate}" for rate in ("0.001", "1e+30") for seed in (0, 1)]
    losses = [one.get("loss") for one in summary["replicas"]]
    assert losses[2:] == [None, None] and summary["loss"] == min(losses[:2])
    assert all("not finite" in one["stopped"] for one in summary["replicas"][2:])
    assert [one["diverged"] for one in summary["replicas"]] == [False, False, True, True] and not summary["diverged"]
    report = (tmp_path / "report.md").read_text()
    assert all(f"| elman | {label} |" in report for label in labels) and "2 of 4 diverged" in report
    alone = {"train__learning_rate": 1e-3, "train__optimizer": "sgd", "train__clip_norm": 0, "cells": "elman"}
    assert run(arguments(tmp_path / "alone", "adding", **alone)) == 0
    own = json.loads((tmp_path / "alone" / "elman" / "summary.json").read_text())
    np.testing.assert_allclose(own["loss"], losses[0], rtol=1e-5)


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"replicas__forget_bias": 1, "cells": "gru"}, "GRU has no forget_bias"),
        ({"replicas__seeds": 0}, "--config.replicas.seeds is 0"),
        ({"replicas__gain": "1,1"}, "each value once is enough"),
        ({"replicas__learning_rate": 0}, "--config.replicas.learning_rate has 0"),
        ({"replicas__gain": 1, "cells": "elman", "cell_options__elman__orthogonal": "true"}, "at all times"),
        ({"train__accumulate": 2}, "--config.train.batch_size is 3: expected a multiple of accumulate (2)"),
    ],
)
def test_replicas_that_can_not_be_are_told_before_anything_is_written(tmp_path, capsys, changes, message):
    assert run(arguments(tmp_path / "run", "adding", **changes)) == 2
    err = capsys.readouterr().err
    assert message in err and err.count("\n") == 1 and not (tmp_path / "run").exists()


def test_the_ablations_are_configs_that_can_be():
    for override in gradient_norms.get_sweep("ablation"):
        config = gradient_norms.get_config("adding", "quick")
        for field, value in override.items():
            *groups, last = field.split(".")
            setattr(functools.reduce(getattr, groups, config), last, value)
        _, task = gradient_norms.make_task(config.task)
        assert gradient_norms.make_cell("lstm", config, task) and config.cells == ("lstm",)
