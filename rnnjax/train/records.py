"""What a run leaves in its workdir, written so that a kill or a full disk leaves no half file behind.

config.json      what was asked for, and the versions that ran it
metrics.jsonl    one object a row; nothing in it depends on the clock
timing.jsonl     what does
.lock            held by the process that writes here
"""

import contextlib
import errno
import fcntl
import importlib.metadata
import json
import math
import os
import pathlib
import socket
import sys
import tempfile
import threading
from typing import Any

from rnnjax.train.config import HOW, UsageError, differences, in_words

_PACKAGES = ("rnnjax", "jax", "jaxlib", "flax", "optax", "numpy")
_OF_LAUNCHERS = {"run.json", "log.txt"}  # written around a run, before it begins, with the lock .job
_NO_LOCKS = (errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS)


class Rows:
    """A file of JSON rows, on disk one by one. Numbers that JSON can't hold (nan, inf) become null.

    keep: the bytes of it that stay, up to the end of a row; what lies beyond belongs to steps that are done again. None
        keeps every whole row.
    bytes: the length so far.

    Raises UsageError where the file has no row that ends at byte `keep`, and leaves it as it is then.
    """

    def __init__(self, path: pathlib.Path, keep: int | None = 0):
        self._path = path
        with naming(path):
            self.bytes = _cut(path, keep)
            self._file = path.open("ab", buffering=0)

    def write(self, **row: Any) -> None:
        """Appends a row. Raises OSError on a full disk; what it left of the row is cut when the run goes on."""
        text = json.dumps({key: json_number(value) for key, value in row.items()}, allow_nan=False) + "\n"
        left = text.encode()
        with naming(self._path):
            while left:
                written = self._file.write(left)
                left = left[written:]
                self.bytes += written

    def sync(self) -> None:
        """Returns when the rows so far would outlast a loss of power, the name of the file included."""
        with naming(self._path):
            os.fsync(self._file.fileno())
            folder = os.open(self._path.parent, os.O_RDONLY)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)

    def close(self) -> None:
        """Closes the file."""
        self._file.close()


def _cut(path: pathlib.Path, keep: int | None) -> int:
    """Leaves the first `keep` bytes, or all whole rows, in a new file under the same name: how many these are."""
    held = path.read_bytes() if path.exists() else b""
    end = held.rfind(b"\n") + 1 if keep is None else keep
    if end and held[end - 1 : end] != b"\n":
        found = f"has {len(held)} bytes" if path.exists() else "is not there"
        found = f"has no row that ends at byte {end}" if len(held) >= end else found
        raise UsageError(
            f"{path} {found}, but the saved state was written when it had {end}: it was changed since. Put it back as "
            "it was, or give another --workdir to start anew"
        )
    if len(held) > end:
        with replacing(path) as temporary:
            temporary.write_bytes(held[:end])
    return end


@contextlib.contextmanager
def naming(path: pathlib.Path):
    """Names the file in an OSError that does not, such as that of a write."""
    try:
        yield
    except OSError as error:
        if error.filename is None:
            error.filename = str(path)
        raise


def json_number(value: Any) -> Any:
    """A number as JSON has it: null for nan and inf. Texts, truths and None stay as they are."""
    if isinstance(value, str | int | bool | None):
        return value
    return float(value) if math.isfinite(value) else None


@contextlib.contextmanager
def replacing(path: pathlib.Path):
    """A path beside `path` to write to; takes its place when the block ends well, goes away when it does not."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.stem}-", suffix=path.suffix)
    os.close(handle)
    temporary = pathlib.Path(name)
    try:
        yield temporary
        temporary.chmod(0o666 & ~_umask())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def sync(path: pathlib.Path) -> None:
    """Returns when a file would outlast a loss of power."""
    with path.open("rb") as file:
        os.fsync(file.fileno())


def _umask() -> int:
    with _asking:  # it can only be read by setting it, and belongs to the whole process
        mask = os.umask(0)
        os.umask(mask)
    return mask


_asking = threading.Lock()


def write_json(path: pathlib.Path, value: Any) -> None:
    """Writes indented JSON, whole or not at all. Raises ValueError for nan and inf, which JSON has not."""
    with replacing(path) as temporary:
        temporary.write_text(json.dumps(value, indent=2, allow_nan=False) + "\n", encoding="utf-8")


_held: dict[pathlib.Path, tuple[int, int]] = {}  # {resolved path: (descriptor, how many blocks hold it)}
_guard = threading.Lock()
_claims = contextlib.ExitStack()


@contextlib.contextmanager
def hold(path: pathlib.Path, what: str):
    """Keeps other processes out of `what` while the block runs, by an exclusive flock on the file `path`.

    The file is made where it is missing and stays. The kernel frees it however the process ends; children don't inherit
    it. A process that holds it may take it again.

    Raises UsageError, naming process and host, where another process holds it, and where the file system has no locks.
    """
    taken = _take(path, what)
    try:
        yield
    finally:
        _give(taken)


def _take(path: pathlib.Path, what: str) -> pathlib.Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    key = path.resolve()
    with _guard:
        descriptor, count = _held.get(key, (None, 0))
        _held[key] = (_lock(key, what) if descriptor is None else descriptor, count + 1)
    return key


def _give(key: pathlib.Path) -> None:
    with _guard:
        descriptor, count = _held.pop(key, (None, 0))
        if count > 1:
            _held[key] = (descriptor, count - 1)
        elif descriptor is not None:
            os.close(descriptor)


def _lock(path: pathlib.Path, what: str) -> int:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
    try:
        with naming(path):
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, json.dumps({"pid": os.getpid(), "host": socket.gethostname()}).encode(), 0)
    except OSError as error:
        os.close(descriptor)
        if isinstance(error, BlockingIOError):
            way_out = "start this when that has ended, or in another --workdir"
            raise UsageError(f"{what} is in use by {_holder(path)}: {way_out}") from None
        if error.errno in _NO_LOCKS:
            way_out = "give a --workdir on a file system that has them"
            raise UsageError(f"{path}: no locks on this file system ({error.strerror}): {way_out}") from None
        raise
    return descriptor


def _holder(path: pathlib.Path) -> str:
    try:
        held = json.loads(path.read_text(encoding="utf-8"))
        return f"process {held['pid']} on {held['host']}"
    except (OSError, ValueError, KeyError, TypeError, RecursionError):  # it has the lock but has not written yet
        return "another process"


def _forget() -> None:
    """In a forked child: what the parent holds is not its own, and must not outlast the parent in it."""
    global _guard
    for descriptor, _ in _held.values():
        os.close(descriptor)
    _held.clear()
    _claims.pop_all()
    _guard = threading.Lock()


os.register_at_fork(after_in_child=_forget)


def claim_workdir(workdir: pathlib.Path, asked: dict[str, Any]) -> None:
    """Makes `workdir` the folder of the run that `asked` describes; a run of the same description goes on there.

    The process holds the folder until it ends. Of several that train together (config.train.distributed) each holds it
    for itself, and process 0 writes config.json, with the versions beside `asked`.

    Raises UsageError where another process holds the folder, where it holds another run, naming the fields that differ
    (those that say only how a run is carried out may), or files that no run left; nothing in it is touched then.
    """
    _check_workdir(workdir, asked)  # before the lock is made there
    process = asked.get("config", {}).get("train", {}).get("distributed", {}).get("process", 0)
    taken = _take(workdir / (f".lock-{process}" if process else ".lock"), str(workdir))
    try:
        _check_workdir(workdir, asked)  # another process may have begun a run since
        if process == 0 and not (workdir / "config.json").exists():
            write_json(workdir / "config.json", {**asked, "versions": versions(), "key": "threefry2x32"})
    except BaseException:
        _give(taken)
        raise
    _claims.callback(_give, taken)


def release_workdirs() -> None:
    """Lets others claim what this process did, for those that have several runs one after the other."""
    _claims.close()


def _check_workdir(workdir: pathlib.Path, asked: dict[str, Any]) -> None:
    path = workdir / "config.json"
    entries = {entry.name for entry in workdir.iterdir()} if workdir.is_dir() else set()
    if path.exists():  # asked after the entries were listed: it, and files after it, may be written meanwhile
        try:
            held = json.loads(path.read_text(encoding="utf-8"))
            found = differences({key: held[key] for key in asked}, json.loads(json.dumps(asked)))
        except (ValueError, KeyError, TypeError, RecursionError):
            raise UsageError(f"{path} is damaged or not a config that a run wrote: give another --workdir") from None
        if differing := [one for one in found if not _says_how(one[0])]:
            raise UsageError(
                f"{workdir} holds another run: it differs in {in_words(differing)}; give another --workdir"
            )
        return
    hidden = "."  # such as the lock, and what a kill left of a config.json that was being written
    foreign = {name for name in entries if not name.startswith(hidden)}
    if foreign - (_OF_LAUNCHERS if ".job" in entries else set()):
        raise UsageError(f"{workdir} holds files but no run (no config.json): give a new or an empty --workdir")


def _says_how(field: str) -> bool:
    return any(f"{field}.".startswith(f"config.{how}.") for how in HOW)


def versions() -> dict[str, str | None]:
    """{package: version} of what a result may depend on."""
    return {"python": sys.version.split()[0], **{name: _version(name) for name in _PACKAGES}}


def _version(package: str) -> str | None:
    """None where the package runs from a checkout that is not installed."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None
