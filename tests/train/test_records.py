"""A run's files are whole or absent, hold JSON that anything reads, and belong to one run and one process."""

import errno
import fcntl
import importlib.metadata
import json
import math
import multiprocessing
import os
import pathlib
import signal
import socket
import subprocess
import sys
import textwrap
import time

import numpy as np
import pytest

from rnnjax.train import records
from rnnjax.train.config import HOW, TrainConfig, UsageError, to_dict
from rnnjax.train.records import Rows, claim_workdir, hold, release_workdirs, replacing, write_json

ASKED = {"experiment": "x", "task": "adding", "config": {"cells": ["lstm", "gru"], "train": {"steps": 4, "seed": 0}}}


@pytest.fixture
def umask():
    """Sets the umask for one test: a function of the mask."""
    before = os.umask(0o022)
    yield os.umask
    os.umask(before)


@pytest.fixture(autouse=True)
def released():
    """Every test is a process of its own to the folders that it claims."""
    yield
    release_workdirs()


def refuse(text):
    raise AssertionError(f"{text} is no JSON")


def contents(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def asked_by(**train):
    """What a run with these fields of config.train asks for."""
    return {"experiment": "x", "config": {"cells": ["lstm"], "train": to_dict(TrainConfig(**train))}}


def test_rows_hold_what_was_written_and_null_for_what_json_has_not(tmp_path):
    rows = Rows(tmp_path / "rows.jsonl")
    rows.write(step=1, kind="train", loss=np.float32(0.1), finite=True, note=None)
    lines = (tmp_path / "rows.jsonl").read_text().splitlines()  # before it is closed: a kill loses no row
    assert [json.loads(line) for line in lines] == [
        {"step": 1, "kind": "train", "loss": float(np.float32(0.1)), "finite": True, "note": None}
    ]
    rows.write(step=2, nan=math.nan, inf=np.float32(np.inf), minus=-math.inf)
    rows.close()
    text = (tmp_path / "rows.jsonl").read_text()
    assert text.endswith("\n")
    second = json.loads(text.splitlines()[1], parse_constant=refuse)
    assert second == {"step": 2, "nan": None, "inf": None, "minus": None}
    Rows(tmp_path / "rows.jsonl").close()
    assert (tmp_path / "rows.jsonl").read_text() == ""


ROWS = b'{"step": 50}\n{"step": 100}\n{"step": 150}\n'


@pytest.mark.parametrize("torn", [b"", b'{"step": 2', b"\xff\x00"])
def test_rows_beyond_what_was_saved_are_cut_and_done_again(tmp_path, torn):
    path = tmp_path / "rows.jsonl"
    path.write_bytes(ROWS + torn)
    reader = path.open("rb")  # who reads while the run goes on is not disturbed: the file is another one
    rows = Rows(path, keep=27)
    assert rows.bytes == 27 and path.read_bytes() == ROWS[:27]
    rows.write(step=150)
    rows.sync()
    assert path.read_bytes() == ROWS and rows.bytes == len(ROWS)
    assert reader.read() == ROWS + torn
    assert list(contents(tmp_path)) == ["rows.jsonl"]
    path.with_name("again.jsonl").write_bytes(ROWS)
    whole = Rows(path.with_name("again.jsonl"), keep=len(ROWS))
    assert whole.bytes == len(ROWS) and path.with_name("again.jsonl").read_bytes() == ROWS


def test_rows_and_the_name_of_their_file_can_be_made_to_outlast_a_loss_of_power(tmp_path, monkeypatch):
    synced = []
    monkeypatch.setattr(os, "fsync", lambda descriptor: synced.append(os.fstat(descriptor).st_ino))
    (tmp_path / "rows.jsonl").write_bytes(ROWS)
    rows = Rows(tmp_path / "rows.jsonl", keep=13)
    rows.write(step=100)
    assert not synced
    rows.sync()
    assert synced == [(tmp_path / "rows.jsonl").stat().st_ino, tmp_path.stat().st_ino]


@pytest.mark.parametrize("held, kept", [(ROWS, ROWS), (ROWS + b'{"st', ROWS), (b'{"st', b""), (b"", b""), (None, b"")])
def test_of_a_file_that_is_only_added_to_a_torn_line_goes(tmp_path, held, kept):
    path = tmp_path / "timing.jsonl"
    if held is not None:
        path.write_bytes(held)
    rows = Rows(path, keep=None)
    assert rows.bytes == len(kept) and path.read_bytes() == kept
    rows.write(step=200)
    assert path.read_bytes() == kept + b'{"step": 200}\n' and rows.bytes == len(kept) + 14


@pytest.mark.parametrize(
    "held, keep, found",
    [
        (ROWS, 28, "has no row that ends at byte 28"),
        (ROWS, 26, "has no row that ends at byte 26"),
        (ROWS, 1000, "has 41 bytes"),
        (ROWS + b'{"st', 45, "has no row that ends at byte 45"),
        (b"", 1, "has 0 bytes"),
        (None, 13, "is not there"),
    ],
)
def test_rows_that_were_changed_since_the_save_are_refused_and_left_alone(tmp_path, held, keep, found):
    path = tmp_path / "metrics.jsonl"
    if held is not None:
        path.write_bytes(held)
    before = contents(tmp_path)
    with pytest.raises(UsageError) as error:
        Rows(path, keep)
    for part in (f"{path} {found}", f"had {keep}", "Put it back", "another --workdir"):
        assert part in str(error.value)
    assert contents(tmp_path) == before


def test_a_file_is_replaced_whole(tmp_path):
    path = tmp_path / "deep" / "file.npz"
    with replacing(path) as temporary:
        assert temporary.parent == path.parent and temporary.suffix == ".npz" and not path.exists()
        temporary.write_text("first")
        assert not path.exists()
    assert contents(tmp_path) == {"deep/file.npz": b"first"}
    with replacing(path) as temporary:
        temporary.write_text("second")
        assert path.read_text() == "first"
    assert contents(tmp_path) == {"deep/file.npz": b"second"}


@pytest.mark.parametrize("error", [OSError, KeyboardInterrupt, SystemExit])
def test_after_an_exception_nothing_is_left_but_the_old_file(tmp_path, error):
    path = tmp_path / "file.txt"
    path.write_text("old")
    with pytest.raises(error), replacing(path) as temporary:
        temporary.write_text("half of the n")
        raise error
    assert contents(tmp_path) == {"file.txt": b"old"}


@pytest.mark.parametrize("mask, mode", [(0o022, 0o644), (0o077, 0o600), (0o002, 0o664)])
def test_permissions_are_those_of_any_new_file(tmp_path, umask, mask, mode):
    umask(mask)
    write_json(tmp_path / "file.json", {})
    assert (tmp_path / "file.json").stat().st_mode & 0o777 == mode
    assert umask(mask) == mask


@pytest.mark.parametrize("value", [math.nan, math.inf, [1.0, -math.inf]])
def test_json_without_numbers_for_it_is_refused(tmp_path, value):
    write_json(tmp_path / "file.json", {"value": 1.5})
    with pytest.raises(ValueError, match="JSON"):
        write_json(tmp_path / "file.json", {"value": value})
    assert json.loads((tmp_path / "file.json").read_text()) == {"value": 1.5}
    assert len(contents(tmp_path)) == 1


def test_a_new_workdir_gets_the_config_and_the_versions(tmp_path):
    (tmp_path / "empty").mkdir()
    (tmp_path / "hidden").mkdir()
    (tmp_path / "hidden" / ".config-1234.json").write_text("{")  # of a run that was killed while it wrote
    for name in ("new/deep", "empty", "hidden"):
        claim_workdir(tmp_path / name, ASKED)
        held = json.loads((tmp_path / name / "config.json").read_text())
        assert {key: held[key] for key in ASKED} == ASKED
        assert held["key"] == "threefry2x32"
        assert set(held["versions"]) == {"python", "rnnjax", "jax", "jaxlib", "flax", "optax", "numpy"}


def test_a_checkout_that_is_not_installed_has_no_version(tmp_path, monkeypatch):
    def version(package):
        if package == "rnnjax":
            raise importlib.metadata.PackageNotFoundError(package)
        return "1.2"

    monkeypatch.setattr(importlib.metadata, "version", version)
    claim_workdir(tmp_path, ASKED)
    versions = json.loads((tmp_path / "config.json").read_text())["versions"]
    assert versions["rnnjax"] is None and versions["jax"] == "1.2"


def test_the_same_run_goes_on_and_another_is_told_by_field(tmp_path):
    claim_workdir(tmp_path, ASKED)
    (tmp_path / "lstm").mkdir()
    before = contents(tmp_path)
    claim_workdir(tmp_path, {**ASKED, "config": {**ASKED["config"], "cells": ("lstm", "gru")}})  # as JSON has it
    assert contents(tmp_path) == before
    other = {**ASKED, "config": {"cells": ["lstm"], "train": {"steps": 4, "seed": 7}, "added": 1}}
    with pytest.raises(UsageError) as error:
        claim_workdir(tmp_path, other)
    for part in (
        "holds another run",
        "config.cells (['lstm', 'gru'] there, ['lstm'] here)",
        "config.train.seed (0 there, 7 here)",
        "config.added ('(absent)' there, 1 here)",
        "another --workdir",
    ):
        assert part in str(error.value)
    assert "steps" not in str(error.value) and "\n" not in str(error.value)
    assert contents(tmp_path) == before


def test_of_many_differences_a_few_are_named(tmp_path):
    claim_workdir(tmp_path, {"config": dict.fromkeys("abcdefg", 0)})
    with pytest.raises(UsageError, match=r"config.d \(0 there, 1 here\) and 3 more; give"):
        claim_workdir(tmp_path, {"config": dict.fromkeys("abcdefg", 1)})


@pytest.mark.parametrize("names", [["thesis.tex"], ["log.txt"], [".job", "log.txt", "thesis.tex"]])
def test_foreign_files_are_refused_and_left_alone(tmp_path, names):
    for name in names:
        (tmp_path / name).write_text("years")
    with pytest.raises(UsageError, match="holds files but no run"):
        claim_workdir(tmp_path, ASKED)
    assert contents(tmp_path) == dict.fromkeys(names, b"years")


def test_what_a_launcher_wrote_around_the_run_is_not_foreign(tmp_path):
    for name in (".job", "log.txt", "run.json"):
        (tmp_path / name).write_text("begins")
    claim_workdir(tmp_path, ASKED)
    assert {*contents(tmp_path)} == {".job", ".lock", "log.txt", "run.json", "config.json"}


@pytest.mark.parametrize("text", ["", "{", "[]", "null", "3", "{}", '{"experiment": "x"}', b"\xff\xfe"])
def test_a_config_that_no_run_wrote_is_refused_and_left_alone(tmp_path, text):
    path = tmp_path / "config.json"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    before = contents(tmp_path)
    with pytest.raises(UsageError, match="config.json is damaged or not a config that a run wrote: give another"):
        claim_workdir(tmp_path, ASKED)
    assert contents(tmp_path) == before


@pytest.fixture
def tiny_disk(tmp_path):
    """A file system of 16 KiB with a file on it; skips where none may be mounted."""
    folder = tmp_path / "disk"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=16k", "tmpfs", str(folder)]
    try:
        mounted = os.geteuid() == 0 and subprocess.run(command, capture_output=True).returncode == 0
    except OSError:
        mounted = False
    if not mounted:
        pytest.skip("a full disk: no right to mount a small file system here")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def test_a_full_disk_is_told_and_leaves_no_half_file(tiny_disk: pathlib.Path):
    path = tiny_disk / "file.json"
    write_json(path, {"old": 1})
    before = contents(tiny_disk)
    with pytest.raises(OSError, match="No space left"):
        write_json(path, {"long": "x" * 100_000})
    assert contents(tiny_disk) == before
    with pytest.raises(OSError, match="No space left"), replacing(tiny_disk / "arrays.npz") as temporary:
        np.savez(temporary, values=np.random.default_rng(0).random(100_000))
    assert contents(tiny_disk) == before
    rows = Rows(tiny_disk / "rows.jsonl")
    with pytest.raises(OSError, match="No space left") as error:
        for step in range(10_000):
            rows.write(step=step, text="x" * 99)  # no whole number of rows fills a page
    assert error.value.filename == str(tiny_disk / "rows.jsonl")
    rows.close()
    assert contents(tiny_disk)["file.json"] == before["file.json"]
    told = (tiny_disk / "rows.jsonl").read_bytes()
    assert len(told) == rows.bytes and not told.endswith(b"\n") and told.count(b"\n") == step
    with pytest.raises(OSError, match="No space left") as error:  # there is no room for the part that stays
        Rows(tiny_disk / "rows.jsonl", keep=None)
    assert error.value.filename and (tiny_disk / "rows.jsonl").read_bytes() == told


def in_another_process(body, folder):
    """A process that does `body` in the folder `here`; it has what `hold` and the others are."""
    head = "import pathlib, sys, time; here = pathlib.Path(sys.argv[1])"
    text = f"{head}\nfrom rnnjax.train.records import claim_workdir, hold\n{textwrap.dedent(body)}"
    command = [sys.executable, "-c", text, str(folder)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


HOLDS = """
with hold(here / "lock", "the run"):
    print("holds", flush=True)
    sys.stdin.read()
"""


def test_what_one_process_holds_another_can_not_until_it_ends_in_any_way(tmp_path):
    path = tmp_path / "new" / "lock"
    for end in (signal.SIGKILL, signal.SIGTERM, None):
        other = in_another_process(HOLDS, path.parent)
        assert other.stdout.readline() == "holds\n", other.stderr.read()
        opened = len(os.listdir("/dev/fd"))
        with pytest.raises(UsageError) as error, hold(path, "the run"):
            pass
        assert len(os.listdir("/dev/fd")) == opened
        expected = f"the run is in use by process {other.pid} on {socket.gethostname()}: start this when that has ended"
        assert str(error.value).startswith(expected) and "another --workdir" in str(error.value)
        other.send_signal(end) if end else other.stdin.close()
        other.wait(10)
        with hold(path, "the run"):
            assert json.loads(path.read_text()) == {"pid": os.getpid(), "host": socket.gethostname()}
    assert path.exists()


def test_a_process_may_hold_again_what_it_holds(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "lock"
    path.write_text("left by one that was killed, and longer than what is written now" * 2)
    tries = f"""
    try:
        with hold(here / "lock", "the run"):
            print("free")
    except ValueError as error:
        print("process {os.getpid()} " in str(error) or error)
    """

    def seen_from_outside():
        return in_another_process(tries, tmp_path).communicate(timeout=20)[0].strip()

    with hold(path, "the run"):
        with pytest.raises(KeyError), hold(pathlib.Path("lock"), "the run"):
            raise KeyError
        assert seen_from_outside() == "True"
    assert seen_from_outside() == "free"


def test_children_do_not_hold_on(tmp_path):
    path = tmp_path / "lock"

    def child(pipe):
        try:
            with hold(path, "the run"):
                pipe.send("held")
        except UsageError as error:
            pipe.send(str(error))
        pipe.recv()

    fork = multiprocessing.get_context("fork")
    ours, theirs = fork.Pipe()
    forked = fork.Process(target=child, args=(theirs,), daemon=True)
    with hold(path, "the run"):
        forked.start()
        started = subprocess.Popen(["sleep", "60"], close_fds=False)
        answered = ours.poll(10)
    try:
        assert answered and f"in use by process {os.getpid()} on" in ours.recv()
        other = in_another_process(HOLDS, tmp_path)
        assert other.stdout.readline() == "holds\n", other.stderr.read()
        other.communicate("")
    finally:
        ours.send("end")
        forked.join(10)
        started.kill()
        started.wait()
    assert forked.exitcode == 0


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS])
def test_a_file_system_without_locks_is_told(tmp_path, monkeypatch, number):
    def flock(descriptor, how):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(fcntl, "flock", flock)
    with pytest.raises(UsageError, match=r"lock: no locks on this file system \(.+\): give a --workdir"):
        claim_workdir(tmp_path / "run", ASKED)
    monkeypatch.undo()
    claim_workdir(tmp_path / "run", ASKED)  # nothing is held by the try that failed


def test_what_can_not_be_written_gives_its_name(tmp_path):
    (tmp_path / "file").write_text("")
    (tmp_path / "lock").mkdir()
    for path in (tmp_path / "file" / "lock", tmp_path / "lock"):
        with pytest.raises(OSError) as error, hold(path, "the run"):
            pass
        assert error.value.filename in (str(path), str(path.parent))


def test_a_second_process_is_refused_before_it_writes_anything(tmp_path):
    body = f"claim_workdir(here, {ASKED!r})\nprint('claimed', flush=True)\nsys.stdin.read()"
    first = in_another_process(body, tmp_path / "run")
    assert first.stdout.readline() == "claimed\n", first.stderr.read()
    before = contents(tmp_path)
    with pytest.raises(UsageError, match=f"run is in use by process {first.pid} on .* another --workdir"):
        claim_workdir(tmp_path / "run", ASKED)
    assert contents(tmp_path) == before
    claim_workdir(tmp_path / "other", ASKED)
    first.kill()
    first.wait()
    claim_workdir(tmp_path / "run", ASKED)
    second = in_another_process(body, tmp_path / "run")
    assert "UsageError" in second.communicate(timeout=20)[1]
    release_workdirs()
    third = in_another_process(body, tmp_path / "run")
    assert third.communicate("", timeout=20)[0] == "claimed\n"


def test_of_several_that_start_at_once_one_gets_a_new_folder(tmp_path):
    start = time.time() + 1.5
    body = f"time.sleep(max(0, {start} - time.time()))\nclaim_workdir(here, {ASKED!r})\nsys.stdin.read()"
    others = [in_another_process(body, tmp_path / "run") for _ in range(3)]
    while sum(other.poll() is None for other in others) > 1 and time.time() < start + 30:
        time.sleep(0.02)
    (holder,) = [other for other in others if other.poll() is None]
    assert holder.communicate("", timeout=20)[1] == "" and holder.returncode == 0
    refused = [other.communicate()[1] for other in others if other is not holder]
    assert all(f"is in use by process {holder.pid}" in told or "by another process" in told for told in refused)


def test_a_run_that_begins_while_its_folder_is_looked_at_is_no_foreign_file(tmp_path, monkeypatch):
    def exists(path):
        found = there(path)
        if path.name == "config.json" and not found:
            write_json(path, ASKED)
            (tmp_path / "metrics.jsonl").touch()
        return found

    there = pathlib.Path.exists
    monkeypatch.setattr(pathlib.Path, "exists", exists)
    claim_workdir(tmp_path, ASKED)
    monkeypatch.undo()
    assert json.loads((tmp_path / "config.json").read_text()) == ASKED  # the other's, as it wrote it


def test_a_run_that_began_just_before_is_seen(tmp_path, monkeypatch):
    def take(path, what):
        write_json(tmp_path / "config.json", {**ASKED, "task": "copy"})
        return taken(path, what)

    taken = records._take
    monkeypatch.setattr(records, "_take", take)
    with pytest.raises(UsageError, match="differs in task"):
        claim_workdir(tmp_path, ASKED)
    its_own = in_another_process(f"claim_workdir(here, {ASKED | {'task': 'copy'}!r}); print('claimed')", tmp_path)
    assert its_own.communicate(timeout=20)[0] == "claimed\n"


def test_the_processes_of_one_training_share_a_folder(tmp_path):
    parts = [asked_by(devices=2) for _ in range(2)]
    for process, part in enumerate(parts):
        part["config"]["train"]["distributed"] |= {"processes": 2, "process": process}
    claim_workdir(tmp_path, parts[1])  # whichever comes first
    assert not (tmp_path / "config.json").exists()
    body = f"claim_workdir(here, {parts[0]!r})\nprint('claimed', flush=True)\nsys.stdin.read()"
    first = in_another_process(body, tmp_path)
    assert first.stdout.readline() == "claimed\n", first.stderr.read()
    held = json.loads((tmp_path / "config.json").read_text())
    assert held["config"]["train"]["distributed"]["process"] == 0
    for part in parts:
        again = in_another_process(f"claim_workdir(here, {part!r})", tmp_path)
        assert "is in use by process" in again.communicate(timeout=20)[1]
    first.communicate("")


def test_how_a_run_is_carried_out_may_change(tmp_path):
    claim_workdir(tmp_path, asked_by())
    before = contents(tmp_path)
    changed = asked_by(devices=2, profile=True, tensorboard=True, wandb=True)
    changed["config"]["train"]["checkpoint"] |= {"every_minutes": 3.0, "signals": ["SIGTERM"], "new": 1}
    changed["config"]["train"]["distributed"]["processes"] = 2
    assert {name.split(".")[1] for name in HOW} >= {"devices", "checkpoint", "distributed"}
    claim_workdir(tmp_path, changed)
    assert contents(tmp_path) == before
    changed["config"]["train"] |= {"seed": 3, "momentum": 0.5, "profiled": True}
    with pytest.raises(UsageError) as error:
        claim_workdir(tmp_path, changed)
    named = "config.train.momentum (None there, 0.5 here), config.train.seed (0 there, 3 here), config.train.profiled ("
    assert f"differs in {named}" in str(error.value)


def test_a_config_of_an_older_version_is_told_by_the_fields_that_it_lacks(tmp_path):
    old = asked_by()
    for name in ("checkpoint", "devices", "window"):
        del old["config"]["train"][name]
    write_json(tmp_path / "config.json", old)
    with pytest.raises(UsageError, match=r"differs in config.train.window \('\(absent\)' there, 0 here\); give"):
        claim_workdir(tmp_path, asked_by())
