"""A run's files are whole or absent, hold JSON that anything reads, and belong to one run."""

import importlib.metadata
import json
import math
import os
import pathlib
import subprocess

import numpy as np
import pytest

from rnnjax.train.config import UsageError
from rnnjax.train.records import Rows, claim_workdir, replacing, write_json

ASKED = {"experiment": "x", "task": "adding", "config": {"cells": ["lstm", "gru"], "train": {"steps": 4, "seed": 0}}}


@pytest.fixture
def umask():
    """Sets the umask for one test: a function of the mask."""
    before = os.umask(0o022)
    yield os.umask
    os.umask(before)


def refuse(text):
    raise AssertionError(f"{text} is no JSON")


def contents(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


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


def test_foreign_files_are_refused_and_left_alone(tmp_path):
    (tmp_path / "thesis.tex").write_text("years")
    with pytest.raises(UsageError, match="holds files but no run"):
        claim_workdir(tmp_path, ASKED)
    assert contents(tmp_path) == {"thesis.tex": b"years"}


@pytest.mark.parametrize("text", ["", "{", "[]", "null", "3", "{}", '{"experiment": "x"}', b"\xff\xfe"])
def test_a_config_that_no_run_wrote_is_refused_and_left_alone(tmp_path, text):
    path = tmp_path / "config.json"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    before = contents(tmp_path)
    with pytest.raises(UsageError, match="config.json is not a config that a run wrote: give another --workdir"):
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
    with pytest.raises(OSError, match="No space left"):
        for step in range(10_000):
            rows.write(step=step, text="x" * 100)
    assert contents(tiny_disk)["file.json"] == before["file.json"]
