"""Saves are whole or absent, kept as the config says, and found again or refused by name."""

import contextlib
import dataclasses
import json
import os
import pathlib
import shutil
import subprocess
import sys
import textwrap
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from flax import nnx
from resume_case import leaves_behind, quick_compilation

from rnnjax.cells import Elman
from rnnjax.tasks import Adding
from rnnjax.train import cli
from rnnjax.train.build import make_model
from rnnjax.train.checkpoint import Cadence, Checkpoints, find_parameters, from_arrays, read, restore, to_arrays
from rnnjax.train.config import CheckpointConfig, ReplicasConfig, TrainConfig, UsageError
from rnnjax.train.loop import train
from rnnjax.train.replicas import Replica, make_replicas

TASK = Adding(4)
ARRAYS = {
    "float64": np.array([np.pi, np.inf, -0.0]),
    "bfloat16": np.arange(3).astype(ml_dtypes.bfloat16),
    "bool": np.array([True, False]),
    "uint32": np.array([2**32 - 1, 7], np.uint32),
    "empty": np.zeros((0, 3), np.float32),
    "scalar": np.int32(-3)[...],
}
KINDS = ["float64[3]", "bfloat16[3]", "bool[2]", "uint32[2]", "float32[0, 3]", "int32[]"]


@pytest.fixture(scope="module", autouse=True)
def compiled_once(tmp_path_factory):
    with quick_compilation(tmp_path_factory.mktemp("compiled")):
        yield


def config(**changes):
    saves = CheckpointConfig(every_minutes=0, every_steps=2, keep=changes.pop("keep", 2))
    return dataclasses.replace(
        TrainConfig(
            steps=8, steps_per_call=2, batch_size=2, learning_rate=0.02, eval_every=4, eval_batch=4, log_every=2,
            checkpoint=saves,
        ),
        **changes,
    )  # fmt: skip


def model(hidden_size=3, seed=0):
    return make_model(Elman(2, hidden_size), TASK, seed)


def steps_in(workdir, kind="latest"):
    return sorted(int(entry.name) for entry in (workdir / "checkpoints" / kind).iterdir() if entry.name.isdigit())


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """The folder of a training that has ended: saves of steps 6 and 8."""
    workdir = tmp_path_factory.mktemp("finished") / "run"
    train(model(), TASK, config(), workdir)
    return workdir


@pytest.fixture
def copied(finished, tmp_path):
    """A copy of it."""
    return pathlib.Path(shutil.copytree(finished, tmp_path / "run"))


@pytest.mark.parametrize(
    "every, due",
    [((4, 0), [4, 8]), ((0, 60), [6]), ((4, 60), [4, 6, 8]), ((0, 0), [])],
)
def test_a_save_is_due_by_steps_and_by_seconds(every, due):
    cadence = Cadence(*every)
    assert [step for step in (2, 4, 6, 8) if cadence.due(step, {2: 20, 4: 59.9, 6: 60, 8: 0}[step])] == due
    assert Cadence.of(CheckpointConfig(every_minutes=1.5, every_steps=3)) == Cadence(3, 90)


def test_saves_follow_the_clock_that_the_loop_is_given(tmp_path):
    ticks = iter(range(0, 10000, 25))
    saves = CheckpointConfig(every_minutes=1, keep=9)
    train(model(), TASK, config(steps=12, eval_every=12, checkpoint=saves), tmp_path, clock=lambda: next(ticks))
    assert steps_in(tmp_path) == [6, 12]  # a call takes 25 s


@pytest.mark.parametrize("keep", [1, 3])
def test_the_last_few_are_kept_of_latest_and_of_best_apart(tmp_path, keep):
    with Checkpoints(tmp_path / "checkpoints", CheckpointConfig(keep=keep)) as saves:
        for step in range(5):
            saves.save("latest", step, ARRAYS, {})
            if step % 2 == 0:
                saves.save("best", step, ARRAYS, {})
    assert steps_in(tmp_path) == list(range(5))[-keep:] and steps_in(tmp_path, "best") == [0, 2, 4][-keep:]


def test_a_save_that_was_waited_for_is_on_disk(tmp_path):
    with Checkpoints(tmp_path / "checkpoints", CheckpointConfig()) as saves:
        saves.save("latest", 3, ARRAYS, {})
        saves.wait()
        assert read(tmp_path / "checkpoints" / "latest" / "3").step == 3


class Tree(NamedTuple):
    key: Any
    old_key: Any
    many: dict
    none: None = None


def test_every_kind_of_leaf_comes_back_as_it_was(tmp_path, x64):
    tree = Tree(jax.random.split(jax.random.key(3)), jax.random.PRNGKey(4), jax.tree.map(jnp.asarray, ARRAYS))
    assert [f"{tree.many[name].dtype}{list(tree.many[name].shape)}" for name in ARRAYS] == KINDS
    arrays = to_arrays(tree)
    with Checkpoints(tmp_path, CheckpointConfig()) as saves:
        saves.save("latest", 7, arrays, {"told": [1, "ü"]})
    saved = restore(tmp_path, arrays, {"told": [1, "ü"]})
    assert saved.step == 7 and {name: str(array.dtype) for name, array in saved.arrays.items()} == {
        name: str(array.dtype) for name, array in arrays.items()
    }
    back = from_arrays(saved.arrays, tree)
    assert back.none is None and jax.random.key_impl(back.key) == jax.random.key_impl(tree.key)
    for a, b in zip(jax.tree.leaves(back), jax.tree.leaves(tree), strict=True):
        a, b = (np.asarray(jax.random.key_data(leaf) if leaf is getattr(tree, "key", 0) or jnp.issubdtype(
            leaf.dtype, jax.dtypes.prng_key) else leaf) for leaf in (a, b))  # fmt: skip
        assert a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()


def test_a_copy_is_saved_and_not_what_the_memory_holds_later(tmp_path):
    values = np.zeros(3)
    arrays = to_arrays({"a": values})
    values[:] = 1
    assert not arrays["a"].any()


def two_saves(folder):
    with Checkpoints(folder, CheckpointConfig()) as saves:
        for step in (2, 4):
            saves.save("latest", step, ARRAYS, {"asked": {"a": 1}})


def check_falls_back(folder, whole, capsys, what):
    """The save of step 4 is damaged: it is named and put aside, and that of step 2 is taken."""
    saved = restore(folder, ARRAYS, {"asked": {"a": 1}})
    told = capsys.readouterr().err
    assert saved.step == 2, what
    assert str(folder / "latest" / "4") in told and "is damaged: " in told and "4.damaged" in told, (what, told)
    assert "going on from step 2" in told and told.count("\n") == 1, (what, told)
    assert sorted(entry.name for entry in (folder / "latest").iterdir()) == ["2", "4.damaged"], what
    shutil.rmtree(folder / "latest" / "4.damaged")
    shutil.copytree(whole, folder / "latest" / "4")


def check_damage(tmp_path, capsys, every):
    folder, whole = tmp_path / "checkpoints", tmp_path / "whole"
    two_saves(folder)
    shutil.copytree(folder / "latest" / "4", whole)
    tried = 0
    for name in ("arrays.safetensors", "about.json"):
        path = folder / "latest" / "4" / "default" / name
        data = path.read_bytes()
        for at in range(0, len(data), every):
            path.write_bytes(data[:at])
            check_falls_back(folder, whole, capsys, f"{name} cut at {at}")
            flipped = bytearray(data)
            flipped[at] ^= 1 << at % 8
            path.write_bytes(flipped)
            if name == "about.json" and json.loads(data) == _json(flipped):
                assert restore(folder, ARRAYS, {"asked": {"a": 1}}).step == 4  # a blank for a blank
                path.write_bytes(data)
            else:
                check_falls_back(folder, whole, capsys, f"{name} flipped at {at}")
            tried += 2
        path.unlink()
        check_falls_back(folder, whole, capsys, f"{name} missing")
        path.write_bytes(data + b"x")
        check_falls_back(folder, whole, capsys, f"{name} with a byte more")
    shutil.rmtree(folder / "latest" / "4" / "default")
    check_falls_back(folder, whole, capsys, "no files")
    return tried


def _json(data):
    with contextlib.suppress(ValueError):
        return json.loads(data)


def test_damage_at_a_byte_is_found_and_the_save_before_is_taken(tmp_path, capsys):
    assert check_damage(tmp_path, capsys, 5) > 200


@pytest.mark.full
def test_damage_at_any_byte_is_found_and_the_save_before_is_taken(tmp_path, capsys):
    assert check_damage(tmp_path, capsys, 1) > 1000


@pytest.mark.parametrize("left", [0, 20, None], ids=["empty", "cut", "missing"])
def test_a_save_needs_nothing_of_what_orbax_notes_beside_it(tmp_path, left):
    two_saves(tmp_path)
    path = tmp_path / "latest" / "4" / "_CHECKPOINT_METADATA"
    if left is None:
        path.unlink()
    else:
        path.write_bytes(path.read_bytes()[:left])
    assert restore(tmp_path, ARRAYS, {}).step == 4
    with Checkpoints(tmp_path, CheckpointConfig(), after=4) as saves:
        saves.save("latest", 6, ARRAYS, {})
    assert restore(tmp_path, ARRAYS, {}).step == 6


def damage(save):
    path = save / "default" / "arrays.safetensors"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)


def test_a_run_whose_newest_save_is_damaged_ends_with_the_same_bits(copied, finished, capsys):
    damage(copied / "checkpoints" / "latest" / "8")
    train(model(), TASK, config(), copied)
    assert "its bytes are not those that were saved; put aside as 8.damaged" in capsys.readouterr().err
    assert leaves_behind(copied) == leaves_behind(finished)


def test_a_run_whose_saves_are_all_damaged_is_refused_with_the_way_out(copied, finished):
    for step in (6, 8):
        damage(copied / "checkpoints" / "latest" / str(step))
    before = {path: path.read_bytes() for path in copied.rglob("*") if path.is_file()}
    with pytest.raises(UsageError, match=r"latest/8 is damaged: .*\nno save in .* is whole: remove .* to start anew"):
        train(model(), TASK, config(), copied)
    assert before == {path: path.read_bytes() for path in copied.rglob("*") if path.is_file()}
    shutil.rmtree(copied / "checkpoints")
    train(model(), TASK, config(), copied)
    assert leaves_behind(copied) == leaves_behind(finished)


def test_what_a_kill_left_and_what_comes_again_is_removed(tmp_path):
    two_saves(tmp_path)
    shutil.copytree(tmp_path / "latest" / "4", tmp_path / "latest" / "6.orbax-checkpoint-tmp")
    shutil.copytree(tmp_path / "latest" / "4", tmp_path / "best" / "4")
    with Checkpoints(tmp_path, CheckpointConfig(), after=2):
        assert [path.name for path in sorted(tmp_path.glob("*/*"))] == ["2"]


@pytest.mark.parametrize(
    "hidden_size, task, changes, told",
    [
        (3, TASK, {"learning_rate": 0.03}, r"config\.learning_rate \(0\.02 there, 0\.03 here\)"),
        (3, TASK, {"steps": 10}, r"config\.steps \(8 there, 10 here\)"),
        (3, TASK, {"ema": 0.5}, r"config\.ema"),
        (3, Adding(5), {}, r"task \('Adding\(length=4\)' there, 'Adding\(length=5\)' here\)"),
        (4, TASK, {}, r"arrays\.0/params/\S+ \('float32\[1, .* and \d+ more"),
        (3, TASK, {"optimizer": "sgd"}, r"arrays\.0/opt_state/"),
    ],
)
def test_a_save_of_another_training_is_refused_with_what_differs(copied, hidden_size, task, changes, told):
    before = leaves_behind(copied)
    refused = rf"latest/8 is of another training: it differs in .*{told}.*; give another --workdir"
    with pytest.raises(UsageError, match=refused):
        train(make_model(Elman(2, hidden_size), task, 0), task, config(**changes), copied)
    assert leaves_behind(copied) == before


def test_a_save_of_another_dtype_is_refused(copied):
    halved = model()
    nnx.update(halved, jax.tree.map(lambda leaf: leaf.astype(jnp.bfloat16), nnx.state(halved, nnx.Param)))
    with pytest.raises(UsageError, match=r"arrays\.0/params/\S+ \('float32\[1.* there, 'bfloat16\[1.* here"):
        train(halved, TASK, config(), copied)


def test_a_save_of_other_replicas_is_refused(tmp_path):
    def replicas(seeds, rates):
        traced = [{"learning_rate": rate} for rate in rates]
        return [Replica(model(seed=seed), seed, given) for seed, given in zip(seeds, traced, strict=True)]

    train(replicas((0, 1), (0.02, 0.01)), TASK, config(), tmp_path)
    for seeds, rates in (((0, 2), (0.02, 0.01)), ((0, 1), (0.02, 0.0100001)), ((0, 1, 2), (0.02, 0.01, 0.01))):
        with pytest.raises(UsageError, match="is of another training: it differs in .*replicas"):
            train(replicas(seeds, rates), TASK, config(), tmp_path)


def test_how_a_run_is_carried_out_may_change(copied, finished):
    train(model(), TASK, config(profile=True, checkpoint=CheckpointConfig(keep=1)), copied)
    assert leaves_behind(copied) == leaves_behind(finished)


def test_a_workdir_may_have_any_name(tmp_path, finished):
    workdir = tmp_path / "a [b] {c} = *? ü 'd'"
    train(model(), TASK, config(), workdir)
    damage(workdir / "checkpoints" / "latest" / "8")
    train(model(), TASK, config(), workdir)
    assert leaves_behind(workdir) == leaves_behind(finished)


def test_best_are_the_parameters_of_the_best_evaluation_and_stay_apart(tmp_path):
    class Kept:
        steps = tuple(range(0, 13, 2))

        def __init__(self):
            self.params = {}

        def inside(self, apply, params):
            return params

        def host(self, step, values):
            self.params[step] = to_arrays(values)

    kept, asked = Kept(), config(steps=12, eval_every=2, learning_rate=1.0, optimizer="sgd")
    asked.checkpoint.every_steps = 0
    trained = train(model(), TASK, asked, tmp_path, probes=[kept])
    losses = {row["step"]: row["loss"] for row in _rows(tmp_path) if row["kind"] == "eval"}
    best = min(losses, key=losses.get)
    assert trained.best_step == best < 12, "the case has to get worse at the end"
    saved = read(tmp_path / "checkpoints" / "best" / str(max(steps_in(tmp_path, "best")))).arrays
    for name, array in kept.params[best].items():
        assert np.array_equal(saved[f"params/{name}"][0], array)
        assert np.array_equal(to_arrays(trained.best)[name], array)
    assert steps_in(tmp_path) == steps_in(tmp_path, "best") == [12]


def _rows(workdir):
    return [json.loads(line) for line in (workdir / "metrics.jsonl").read_text().splitlines()]


def start_of(**changes):
    return jax.tree.map(lambda leaf: leaf[None], jax.device_get(nnx.state(model(**changes), nnx.Param)))


def test_init_from_takes_the_best_or_else_the_latest(copied):
    best = {name: array + 1 for name, array in read(copied / "checkpoints" / "best" / "8").arrays.items()}
    with Checkpoints(copied / "checkpoints", CheckpointConfig(), after=8) as saves:
        saves.save("best", 9, best, {})
    for given, name in ((copied, "other"), (copied.parent, "run")):
        found = to_arrays(find_parameters(str(given), name, start_of(seed=5)))
        assert found and all(np.array_equal(best[f"params/{path}"], array) for path, array in found.items())
    shutil.rmtree(copied / "checkpoints" / "best")
    latest = read(copied / "checkpoints" / "latest" / "8").arrays
    found = to_arrays(find_parameters(str(copied), "other", start_of()))
    assert all(np.array_equal(latest[f"0/params/{path}"], array) for path, array in found.items())


def test_init_from_is_refused_by_name(copied, tmp_path):
    with pytest.raises(UsageError, match=r"--init_from is .*nothing: there are no checkpoints"):
        find_parameters(str(tmp_path / "nothing"), "run", start_of())
    with pytest.raises(UsageError, match=r"--init_from: .*best/8 holds other parameters: .*float32\[1, 3"):
        find_parameters(str(copied), "run", start_of(hidden_size=4))
    for save in (copied / "checkpoints").glob("*/*"):
        damage(save)
    with pytest.raises(UsageError, match=r"--init_from is .*/\d is damaged"):
        find_parameters(str(copied), "run", start_of())


def test_a_run_starts_from_given_parameters_and_goes_on_without_them(copied, tmp_path):
    given = read(copied / "checkpoints" / "best" / "8").arrays
    asked = config(init_from=str(copied), ema=0.5, learning_rate=1e-30)
    trained = train(model(seed=4), TASK, asked, tmp_path / "new")
    for tree in (trained.state.params, trained.state.average, trained.best):
        for name, array in to_arrays(tree).items():
            np.testing.assert_array_equal(array, given[f"params/{name}"][0])
    shutil.rmtree(copied)  # it is not needed any more
    before = leaves_behind(tmp_path / "new")
    damage(tmp_path / "new" / "checkpoints" / "latest" / "8")
    train(model(seed=4), TASK, asked, tmp_path / "new")
    assert leaves_behind(tmp_path / "new") == before


def test_one_set_of_parameters_starts_every_replica_and_the_average_is_what_is_taken(tmp_path):
    train(model(), TASK, config(ema=0.9, eval_every=8), tmp_path / "one")
    shutil.rmtree(tmp_path / "one" / "checkpoints" / "best")
    saved = read(tmp_path / "one" / "checkpoints" / "latest" / "8").arrays
    replicas = make_replicas(lambda cell, seed: make_model(cell, TASK, seed), Elman(2, 3), config(), ReplicasConfig(3))
    asked = config(init_from=str(tmp_path / "one"), learning_rate=1e-30)
    for trained in train(replicas, TASK, asked, tmp_path / "many"):
        for name, array in to_arrays(trained.state.params).items():
            np.testing.assert_array_equal(array, saved[f"0/average/{name}"][0])
            assert not np.array_equal(array, saved[f"0/params/{name}"][0])


@pytest.fixture
def small_disk(tmp_path):
    """mount(options) -> a folder that is a file system of its own; unmounted afterwards."""
    folder = tmp_path / "disk"
    folder.mkdir()

    def mount(options):
        done = subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)], capture_output=True)
        if done.returncode and "remount" not in options:
            pytest.skip("file systems can't be mounted here")
        return folder

    yield mount
    subprocess.run(["umount", "-l", str(folder)], capture_output=True)


def called(workdir, hidden_size=40):
    """The exit status of a training as the command line ends it."""

    def main(_, workdir):
        train(model(hidden_size), TASK, config(), workdir)

    return cli.call(main, cli.Parsed(None, workdir, False))


@pytest.mark.parametrize("free", [16, 90])
def test_a_full_disk_is_told_and_the_run_goes_on_when_there_is_space(tmp_path, small_disk, capsys, free):
    """free: kB; a save takes about 30."""
    assert called(tmp_path / "never") == 0
    disk = small_disk("size=400k")
    with contextlib.suppress(OSError), (disk / "ballast").open("wb", buffering=0) as ballast:
        while True:
            ballast.write(bytes(4096))
    os.truncate(disk / "ballast", (disk / "ballast").stat().st_size - free * 1024)
    capsys.readouterr()
    assert called(disk / "run") == 1
    told = capsys.readouterr().err
    assert f"No space left on device: {disk / 'run'}" in told and "free some space and run the same command" in told
    assert "finished" not in (disk / "run" / "heartbeat.json").read_text()
    (disk / "ballast").unlink()
    assert called(disk / "run") == 0
    assert leaves_behind(disk / "run") == leaves_behind(tmp_path / "never")


def test_a_workdir_that_can_not_be_written_is_told(small_disk, capsys):
    disk = small_disk("size=400k")
    assert called(disk / "run", 3) == 0
    damage(disk / "run" / "checkpoints" / "latest" / "8")
    small_disk("remount,ro,size=400k")
    capsys.readouterr()
    for folder in ("run", "new"):
        assert called(disk / folder, 3) == 1
        told = capsys.readouterr().err
        assert f"Read-only file system: {disk / folder}" in told and "give a --workdir on a file system that" in told


def test_one_device_goes_on_from_what_eight_saved_and_the_reverse(tmp_path):
    code = f"""
        import dataclasses, pathlib, sys, jax, numpy as np
        sys.path.insert(0, "tests/train")
        from rnnjax.train.devices import use_devices
        use_devices(8)
        from test_checkpoint import TASK, config, damage, model
        from resume_case import leaves_behind
        from rnnjax.testing import assert_close
        from rnnjax.train.loop import train
        jax.config.update("jax_disable_most_optimizations", True)
        folder = pathlib.Path({str(tmp_path)!r})
        for first, second in ((8, 1), (1, 8)):
            workdir = folder / f"{{first}}{{second}}"
            asked = config(batch_size=8)
            ended = train(model(), TASK, dataclasses.replace(asked, devices=first), workdir)
            damage(workdir / "checkpoints" / "latest" / "8")
            again = train(model(), TASK, dataclasses.replace(asked, devices=second), workdir)
            assert again.state.step == 8
            assert_close(jax.device_get(again.state.params), jax.device_get(ended.state.params), 1e-5)
        print("same")
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True)
    assert done.returncode == 0 and done.stdout.strip() == "same", done.stderr
    assert done.stderr.count("going on from step 6") == 2
