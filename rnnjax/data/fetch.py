"""Downloads of the catalogue's corpora: checked, gone on with where they were cut, and kept under their own names.

A file comes to NAME.part, and to NAME when its checksum is right: what has the name is whole. Names are those of the
catalogue; what a server or an archive calls its files is not looked at.
"""

import contextlib
import hashlib
import http.client
import os
import pathlib
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import BinaryIO

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

from rnnjax.data.catalogue import Corpus, File
from rnnjax.data.errors import DataError, malformed, shown

CHUNK, TIMEOUT, SECONDS_BETWEEN_LINES = 2**16, 30.0, 10.0
GOES_ON = "The same command goes on from there."
ELSEWHERE = "Run it again; if it comes to the same, get the file elsewhere and give its place as --config.task.path."


def fetch(corpus: Corpus, folder: pathlib.Path, console: Console) -> list[pathlib.Path]:
    """Downloads what is missing of a corpus into `folder`, and returns where its files are.

    console: is told of the licence first, and then of every file.

    Raises DataError, saying what to do: no network, a refusal of the server, a cut or wrong download, a full disk,
    another file of the same name.
    """
    console.print(f"licence: {corpus.licence}", highlight=False, markup=False, soft_wrap=True)
    targets = [_inside(folder, file.name) for file in corpus.files]
    for file, target in zip(corpus.files, targets, strict=True):
        with _written(target):  # a name may be too long even to ask for
            there = target.exists()
        if there:
            _check_same(file, target)
            console.print(f"{file.name}: is there", highlight=False, markup=False, soft_wrap=True)
            continue
        part = target.with_name(f"{target.name}.part")
        with _written(target):
            target.parent.mkdir(parents=True, exist_ok=True)
            start = min(part.stat().st_size, file.size) if part.exists() else 0
        with _Watch(file, start, console) as watch:
            _download(file, part, watch)
        _keep(file, part, target)
    return targets


def _inside(folder: pathlib.Path, name: str) -> pathlib.Path:
    """The path of a name below the folder. Raises ValueError for one that leads out of it."""
    parts = pathlib.PurePosixPath(name).parts
    if not parts or any(part in ("..", "/") or "\\" in part or ":" in part for part in parts):
        raise ValueError(f"name {name!r} of a file: expected a path below the corpus' folder")
    return folder.joinpath(*parts)


def _check_same(file: File, target: pathlib.Path) -> None:
    try:
        with target.open("rb") as content:
            found = hashlib.file_digest(content, "sha256").hexdigest()
    except OSError as error:
        raise malformed(target, "", f"cannot be read: {error.strerror}", "Move it away, or give --path.") from error
    if found != file.sha256:
        problem = f"is another file than that of {file.url}: sha256 {found}, expected {file.sha256}"
        raise malformed(target, "", problem, "Move it away, or give another folder with --path.")


@contextlib.contextmanager
def _written(path: pathlib.Path) -> Iterator[None]:
    """Says which path could not be written, and why."""
    try:
        yield
    except OSError as error:
        way_out = f"Free some space or give another folder with --path. {GOES_ON}"
        raise malformed(path, "", f"cannot be written: {error.strerror or error}", way_out) from error


class _Watch:
    """How far a download is: a live line on a terminal, a line now and then in a log."""

    def __init__(self, file: File, start: int, console: Console):
        self._file, self._start, self._console = file, start, console
        columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
        live = console.is_terminal
        self._bar = Progress(*columns, TimeRemainingColumn(), console=console, disable=not live, transient=True)

    def __enter__(self) -> "_Watch":
        self._began = self._said = time.monotonic()
        self._bar.start()
        self._task = self._bar.add_task(self._file.name, total=self._file.size, completed=self._start)
        if self._start:
            self._say(f"goes on from byte {self._start}")
        return self

    def __exit__(self, *exception) -> None:
        self._bar.stop()
        if exception[0] is None:
            self._say(f"{self._file.size} bytes in {time.monotonic() - self._began:.1f} s")

    def restart(self) -> None:
        """Says that the download begins anew."""
        self._start = 0
        self._say("the server cannot go on from there and sends all of it")

    def update(self, done: int) -> None:
        """Says that `done` bytes of the file are there."""
        self._bar.update(self._task, completed=done)
        now = time.monotonic()
        if not self._console.is_terminal and now - self._said >= SECONDS_BETWEEN_LINES:
            self._said = now
            rate = (done - self._start) / (now - self._began)
            left = (self._file.size - done) / max(rate, 1.0)
            self._say(f"{done} of {self._file.size} bytes, {rate / 1000:.0f} kB/s, {left:.0f} s left")

    def _say(self, what: str) -> None:
        self._console.print(f"{self._file.name}: {what}", highlight=False, markup=False, soft_wrap=True)


def _download(file: File, part: pathlib.Path, watch: _Watch) -> None:
    """Brings `part` to the size of the download, from the byte that it ends at."""
    done = part.stat().st_size if part.exists() else 0
    if done > file.size:
        part.unlink()
        done = 0
    if done == file.size:
        return
    headers = {"User-Agent": "rnnjax", "Accept-Encoding": "identity"} | ({"Range": f"bytes={done}-"} if done else {})
    try:
        with urllib.request.urlopen(urllib.request.Request(file.url, headers=headers), timeout=TIMEOUT) as response:
            if done and response.status != 206:
                watch.restart()
                done = 0
            elif done and not response.headers.get("Content-Range", "").startswith(f"bytes {done}-"):
                part.unlink()
                raise malformed(file.url, "", "the server sends another part than asked for", "Run it again.")
            with _written(part):
                out = part.open("ab" if done else "wb", buffering=0)  # what is written counts, whatever comes next
            with out:
                done = _copy(file, response, out, part, done, watch)
    except DataError:
        raise
    except urllib.error.HTTPError as error:
        if error.code == 416:  # what is there is no beginning of what the server has
            part.unlink(missing_ok=True)
        way_out = f"Try again later. {GOES_ON}" if error.code in (429, *range(500, 600)) else ELSEWHERE
        raise malformed(file.url, "", f"the server answers {error.code} {shown(error.reason)}", way_out) from error
    except (OSError, http.client.HTTPException) as error:  # URLError and time-outs are OSErrors
        reason = getattr(error, "reason", None) or error
        kept = part.stat().st_size if part.exists() else 0
        if not kept:
            way_out = "Is this machine on the network? Files from elsewhere are given as --config.task.path."
            raise malformed(file.url, "", f"cannot be reached: {shown(str(reason))}", way_out) from error
        raise malformed(file.url, "", f"cut at byte {kept} of {file.size}: {shown(str(reason))}", GOES_ON) from error
    if done < file.size:
        raise malformed(file.url, "", f"cut at byte {done} of {file.size}", GOES_ON)


def _copy(file: File, response: BinaryIO, out: BinaryIO, part: pathlib.Path, done: int, watch: _Watch) -> int:
    """Writes what comes, and returns how many bytes of the file are there then."""
    while chunk := response.read(CHUNK):
        done += len(chunk)
        if done > file.size:
            part.unlink()
            raise malformed(file.url, "", f"sends more than the {file.size} bytes of the file", ELSEWHERE)
        with _written(part):
            rest = memoryview(chunk)
            while rest:
                rest = rest[out.write(rest) :]
        watch.update(done)
    return done


def _keep(file: File, part: pathlib.Path, target: pathlib.Path) -> None:
    """Checks what came, and gives it its name."""
    with _written(target):
        with part.open("rb") as content:
            found = hashlib.file_digest(content, "sha256").hexdigest()
        if found == file.sha256:
            os.replace(part, target)
        part.unlink(missing_ok=True)
    if found != file.sha256:
        raise malformed(file.url, "", f"came with sha256 {found}: expected {file.sha256}; it is not kept", ELSEWHERE)
