"""What a training goes on from: saves that are whole or absent, found again or refused by name.

    WORKDIR/checkpoints/latest/STEP     the state, the best parameters and how far the files were
    WORKDIR/checkpoints/best/STEP       the best parameters alone, as they were at a save

A save is a file of safetensors, {path: array}, and an account in JSON beside it: what the arrays are, a digest of all,
what was asked for. Orbax writes it in the background into a folder of another name, renames that when all is on disk,
and keeps the last few. Arrays are whole, whatever devices they came from, so that a run may go on with others. Orbax's
own format for arrays is not used: what is damaged has to be found, and its glob over the path of the workdir loses the
arrays where that holds a bracket.
"""

import contextlib
import dataclasses
import errno
import hashlib
import json
import os
import pathlib
import shutil
import sys
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np
import orbax.checkpoint as ocp
from orbax.checkpoint.checkpoint_managers import LatestN

from rnnjax.data.safetensors import read_safetensors, write_safetensors
from rnnjax.train.config import CheckpointConfig, UsageError, differences, in_words
from rnnjax.train.devices import is_writer, to_host
from rnnjax.train.records import sync

Arrays = dict[str, np.ndarray]
_ITEM, _ARRAYS, _ABOUT = "default", "arrays.safetensors", "about.json"
_UNFINISHED = ".orbax-checkpoint-tmp"


@dataclasses.dataclass(frozen=True)
class Cadence:
    """When to save: every `steps` steps and `seconds` seconds after the last time; 0 for never."""

    steps: int
    seconds: float

    @classmethod
    def of(cls, config: CheckpointConfig) -> "Cadence":
        """As the config says."""
        return cls(config.every_steps, 60 * config.every_minutes)

    def due(self, step: int, since: float) -> bool:
        """Whether to save at `step`, `since` seconds after the last save or the start."""
        return bool(self.steps and step % self.steps == 0) or bool(self.seconds and since >= self.seconds)


@dataclasses.dataclass(frozen=True)
class Saved:
    """A save: its step, its arrays and its account."""

    step: int
    arrays: Arrays
    about: dict[str, Any]


def to_arrays(tree: Any) -> Arrays:
    """{path: numpy array} of every leaf, whole and a copy; keys as the numbers that they are made of."""
    raw = jax.tree.map(lambda leaf: jax.random.key_data(leaf) if _is_key(leaf) else leaf, tree)
    return {name: np.array(leaf) for name, leaf in _named(to_host(raw)).items()}


def from_arrays(arrays: Mapping[str, np.ndarray], like: Any) -> Any:
    """The tree of `like` with the arrays that `to_arrays` made."""

    def of(path, leaf):
        array = arrays[_name(path)]
        return jax.random.wrap_key_data(array, impl=jax.random.key_impl(leaf)) if _is_key(leaf) else array

    return jax.tree_util.tree_map_with_path(of, like)


def _is_key(leaf: Any) -> bool:
    return isinstance(leaf, jax.Array) and jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def _name(path: Any) -> str:
    return jax.tree_util.keystr(path, simple=True, separator="/")


def _named(tree: Any) -> dict[str, Any]:
    return {_name(path): leaf for path, leaf in jax.tree_util.tree_leaves_with_path(tree)}


def kinds(arrays: Mapping[str, np.ndarray]) -> dict[str, str]:
    """{name: "float32[3, 4]"}."""
    return {name: f"{array.dtype}{list(array.shape)}" for name, array in arrays.items()}


def digest(arrays: Mapping[str, np.ndarray], about: Mapping[str, Any]) -> str:
    """SHA-256 of the account and of names, types and bytes."""
    found = hashlib.sha256(json.dumps(about, sort_keys=True).encode())
    for name, kind in sorted(kinds(arrays).items()):
        found.update(f"{name} {kind}\n".encode())
        found.update(np.ascontiguousarray(arrays[name]).tobytes())
    return found.hexdigest()


@dataclasses.dataclass
class _Save(ocp.args.CheckpointArgs):
    arrays: Arrays
    about: dict[str, Any]


class _Handler(ocp.AsyncCheckpointHandler):
    """How orbax writes a save."""

    async def async_save(self, directory, args: _Save):
        return [ocp.future.CommitFutureAwaitingContractedSignals(self._write(pathlib.Path(directory), args))]

    async def _write(self, directory: pathlib.Path, args: _Save) -> None:
        if is_writer():
            write_safetensors(directory / _ARRAYS, args.arrays)
            (directory / _ABOUT).write_text(json.dumps(args.about) + "\n", encoding="utf-8")
            for name in (_ARRAYS, _ABOUT):
                sync(directory / name)

    def save(self, directory, args: _Save):
        raise TypeError("saves are written in the background")

    def restore(self, directory, args=None):
        return read(pathlib.Path(directory).parent)


ocp.args.register_with_handler(_Handler, for_save=True, for_restore=True)(_Save)


class Checkpoints:
    """Writes the saves of a training into FOLDER/latest and FOLDER/best. A context manager: when it is left, what was
    begun is on disk.

    after: the step that the training goes on from, -1 for its start; saves of later steps, and what a kill left
        unfinished, are removed, since the training comes to them again.

    Raises OSError where a save can't be written, at the next save, when it is waited for, or at the end.
    """

    def __init__(self, folder: pathlib.Path, config: CheckpointConfig, after: int = -1):
        self._folder = folder
        if is_writer():
            _remove_what_comes_again(folder, after)
        options = ocp.CheckpointManagerOptions(preservation_policy=LatestN(config.keep))
        with self._told():
            self._managers = {
                kind: ocp.CheckpointManager((folder / kind).absolute(), options=options, item_handlers=_Handler())
                for kind in ("latest", "best")
            }

    def __enter__(self):
        return self

    def __exit__(self, kind, error, trace):
        with contextlib.ExitStack() as stack:
            if error is not None:
                stack.enter_context(contextlib.suppress(Exception))  # the first error is the one to tell
            with self._told():
                for manager in self._managers.values():
                    manager.close()

    def save(self, kind: str, step: int, arrays: Arrays, about: dict[str, Any]) -> None:
        """Begins a save, after the end of the one before."""
        about = {**about, "step": step, "arrays": kinds(arrays)}
        about["digest"] = digest(arrays, about)
        with self._told():
            self._managers[kind].save(step, args=_Save(arrays, about), force=True)

    def wait(self) -> None:
        """Returns when what was begun is on disk. Raises OSError where it can't be written."""
        with self._told():
            for manager in self._managers.values():
                manager.wait_until_finished()

    @contextlib.contextmanager
    def _told(self):
        """A full disk, however it is told, is an OSError that names the folder."""
        try:
            yield
        except Exception as error:
            for number in (errno.ENOSPC, errno.EDQUOT, errno.EACCES, errno.EROFS):
                if getattr(error, "errno", None) == number or os.strerror(number) in str(error):
                    raise OSError(number, os.strerror(number), str(self._folder)) from error
            raise


def _remove_what_comes_again(folder: pathlib.Path, after: int) -> None:
    for entry in folder.glob("*/*"):
        if _UNFINISHED in entry.name or (entry.name.isdigit() and int(entry.name) > after):
            shutil.rmtree(entry)


def read(path: pathlib.Path) -> Saved:
    """A save, checked against its digest. Raises UsageError, naming it and what is wrong, where it is damaged."""
    try:
        about = json.loads((path / _ITEM / _ABOUT).read_text(encoding="utf-8"))
        arrays = read_safetensors(path / _ITEM / _ARRAYS)
        told = {key: value for key, value in about.items() if key != "digest"}
        if kinds(arrays) != about["arrays"] or digest(arrays, told) != about["digest"]:
            raise ValueError("its bytes are not those that were saved")
        return Saved(int(about["step"]), arrays, about)
    except (PermissionError, MemoryError):
        raise
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        told = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise UsageError(f"{path} is damaged: {told:.300}") from error


def restore(folder: pathlib.Path, arrays: Mapping[str, np.ndarray], asked: dict[str, Any]) -> Saved | None:
    """The newest whole save of FOLDER/latest; None where there is none.

    arrays: what it has to hold, by name and kind. asked: what its account has to say.

    A damaged one is named on stderr, put aside as STEP.damaged, and the one before is taken. Raises UsageError where
    all are damaged, and where the save is another training's, naming the fields that differ.
    """
    steps = sorted((int(entry.name) for entry in (folder / "latest").glob("*") if entry.name.isdigit()), reverse=True)
    problems = []
    for step in steps:
        path = folder / "latest" / str(step)
        try:
            saved = read(path)
        except UsageError as error:
            problems.append((path, str(error)))
            continue
        _check_same(path, {**asked, "arrays": kinds(arrays)}, saved.about)
        for damaged, problem in problems if is_writer() else ():
            aside = damaged.with_name(f"{damaged.name}.damaged")
            print(f"{problem}; put aside as {aside.name}, going on from step {step}", file=sys.stderr, flush=True)
            shutil.rmtree(aside, ignore_errors=True)
            damaged.replace(aside)
        return saved
    if problems:
        raise UsageError(f"{problems[0][1]}\nno save in {folder / 'latest'} is whole: remove {folder} to start anew")
    return None


def _check_same(path: pathlib.Path, asked: dict[str, Any], about: dict[str, Any]) -> None:
    if found := differences({key: about.get(key) for key in asked}, asked):
        raise UsageError(f"{path} is of another training: it differs in {in_words(found)}; give another --workdir")


def find_parameters(given: str, name: str, like: Any) -> Any:
    """The parameters to start from, typed as `like` [R, ...]: of a training's newest best save, or else its newest.

    given: the folder of a training, or one that holds it under `name`. One set of parameters is every replica's start.

    Raises UsageError where there is no save, and where names or kinds differ, naming them.
    """
    problem = f"there are no checkpoints, neither in it nor in its folder {name}"
    for folder in (pathlib.Path(given).expanduser(), pathlib.Path(given).expanduser() / name):
        for kind in ("best", "latest"):
            saves = [save for save in (folder / "checkpoints" / kind).glob("*") if save.name.isdigit()]
            for path in sorted(saves, key=lambda save: int(save.name), reverse=True):
                try:
                    saved = read(path.absolute())
                except UsageError as error:  # the one before will do
                    problem = str(error)
                    continue
                return _parameters(path, saved.arrays, like)
    raise UsageError(f"--init_from is {given}: {problem}")


def _parameters(path: pathlib.Path, arrays: Arrays, like: Any) -> Any:
    prefix = next(
        prefix for prefix in ("params/", "0/average/", "0/params/") if any(n.startswith(prefix) for n in arrays)
    )
    found = {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}
    asked = to_arrays(like)
    count = {len(array) for array in asked.values()}
    found = {name: np.repeat(array, max(count), 0) if len(array) == 1 else array for name, array in found.items()}
    if differing := differences(kinds(found), kinds(asked)):
        listed = ", ".join(f"{name} ({there} there, {here} here)" for name, there, here in differing[:4])
        raise UsageError(f"--init_from: {path} holds other parameters: {listed}")
    return from_arrays(found, like)
