"""What a worker or a cluster's job executes: one run, once at a time, stopped and resumed.

A run's folder holds beside what the run itself writes there

    run.json   {state, exit, error, attempts, host, pid, started, ended, arguments}, replaced whole
    log.txt    what the run said, a heading before every attempt
    .job       locked by the process that runs it
    .child     locked by that process and its child together, so that a child whose parent was killed still counts
"""

import contextlib
import fcntl
import json
import os
import pathlib
import re
import shlex
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from rnnjax.train.config import HOW, UsageError
from rnnjax.train.records import hold, write_json
from rnnjax.train.signals import RESUME

STATES = ("waiting", "running", "finished", "failed", "stopped")
_INTERRUPTED = 130
_ASKED = (signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2, signal.SIGINT, signal.SIGHUP)
"""By these a run is asked to end. One that dies of them had nothing to save yet, or no time to."""

_SECONDS_BETWEEN = 0.1
_SECONDS_FOR_LOCK = 60.0  # in which a child whose parent was killed has saved
_SECONDS_FOR_SLURM = 600.0
_CHILD = pathlib.Path(__file__).with_name("child.py")


class Busy(Exception):
    """Another process runs it."""


class Job:
    """One run: what follows `python -m` to start it, and the folder of the checkout where that is done.

    It holds nothing else, so that a cluster's node can import and call it.
    """

    def __init__(self, arguments: Sequence[str], checkout: str):
        self.arguments, self.checkout = list(arguments), str(checkout)

    @property
    def folder(self) -> pathlib.Path:
        """The run's folder."""
        (folder,) = [one for one in self.arguments if one.startswith("--workdir=")]
        return pathlib.Path(self.checkout, folder.removeprefix("--workdir="))

    def start(self, *, patience: float = 0.0, group: bool = False) -> "Attempt":
        """Starts the run beside what this process does.

        patience: seconds to wait for another process that has it.
        group: whether it gets a group of processes of its own, which a terminal's Ctrl-C does not reach.
        """
        return Attempt(self, patience, group)

    def __call__(self) -> str:
        """In a job of the cluster: the run, to its end. Raises RuntimeError where it did not finish."""
        self._attempt = self.start(patience=_SECONDS_FOR_LOCK)
        state = self._attempt.wait()
        if state == "stopped":  # by Slurm itself, which will end this job, start it again or call `checkpoint`
            time.sleep(_SECONDS_FOR_SLURM)
        print(f"{self.folder.name}: {state} {self._attempt.said}".rstrip(), flush=True)
        if state in ("failed", "stopped"):
            raise RuntimeError(f"{self.folder.name}: {state}: {self._attempt.said}; {self.folder / 'log.txt'}")
        return state

    def checkpoint(self) -> Any:
        """What submitit calls when the job's time is over or it has to make room: lets the run save, then asks for a
        second start of the same job. It is called by a signal handler, in the middle of `__call__`.
        """
        from submitit.helpers import DelayedSubmission

        attempt = getattr(self, "_attempt", None)
        if attempt is not None:  # the signal may come before the run is started
            attempt.ask_to_stop()
            if attempt.wait() in ("finished", "failed"):
                raise SystemExit(int(attempt.state == "failed"))
        return DelayedSubmission(Job(self.arguments, self.checkout))


class Attempt:
    """One start of a run, in a thread.

    state: None while it is at work; then finished, stopped, failed, or busy, where another process runs it.
    said: why it did not finish; empty where it did.
    """

    def __init__(self, job: Job, patience: float, group: bool):
        self.state: str | None = None
        self.said = ""
        self._job, self._patience, self._group = job, patience, group
        self._child: subprocess.Popen | None = None
        self._asked = self._killed = False
        self._thread = threading.Thread(target=self._work, name=job.folder.name)
        self._thread.start()

    @property
    def has_begun(self) -> bool:
        """Whether the run itself was started; before, it waits for another process that has it."""
        return self._child is not None

    def wait(self) -> str:
        """Its last state. Waits by looking, since locks may not be taken twice when a signal handler waits too."""
        while self.state is None:
            time.sleep(_SECONDS_BETWEEN)
        return self.state

    def ask_to_stop(self) -> None:
        """Lets it save and end."""
        self._asked = True
        if self._child is not None:
            self._child.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """Ends it at once. What it did since it saved last is done again."""
        self._asked = self._killed = True
        if self._child is not None:
            self._child.kill()

    def _work(self) -> None:
        try:
            state, said = self._run()
        except Busy as busy:
            state, said = "busy", str(busy)
        except OSError as error:
            state, said = "failed", f"{error.strerror or error}: {error.filename or self._job.folder}"
        except Exception as error:  # a thread's exception would be lost, and with it the run
            state, said = "failed", str(error) if isinstance(error, UsageError) else repr(error)
        self.said = said or ""
        self.state = state

    def _run(self) -> tuple[str, str | None]:
        folder = self._job.folder
        with self._alone(folder) as lock:
            before = read_record(folder)
            if before["state"] == "finished":
                return "finished", None
            if self._asked:
                return "stopped", "not begun"
            record = before | {
                "state": "running", "exit": None, "error": None, "attempts": before["attempts"] + 1,
                "host": socket.gethostname(), "pid": os.getpid(), "started": time.time(), "ended": None,
                "arguments": self._job.arguments,
            }  # fmt: skip
            write_json(folder / "run.json", record)
            code, last = self._wait_for_child(folder / "log.txt", record["attempts"], lock)
            state, said = verdict(code, last, killed=self._killed)
            ended = {"state": state, "exit": code, "error": said, "ended": time.time()}
            write_json(folder / "run.json", record | ended)
            return state, said

    def _wait_for_child(self, log: pathlib.Path, attempt: int, lock: int) -> tuple[int, str]:
        """The exit status, and the last that it said."""
        command = [sys.executable, str(_CHILD), str(os.getpid()), "-u", "-m", *self._job.arguments]
        with log.open("ab") as file:
            heading = f"=== attempt {attempt}, {time.strftime('%Y-%m-%d %H:%M:%S')}, {socket.gethostname()}: "
            file.write(f"{heading}python -m {shlex.join(self._job.arguments)}\n".encode())
            file.flush()
            begin = file.tell()
            self._child = subprocess.Popen(
                command,
                cwd=self._job.checkout,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                env=_environment(),
                pass_fds=(lock,),
                process_group=0 if self._group else None,
            )
            if self._asked:  # while it was being started
                self._child.send_signal(signal.SIGKILL if self._killed else signal.SIGTERM)
            return self._child.wait(), last_words(log, begin)

    @contextlib.contextmanager
    def _alone(self, folder: pathlib.Path) -> Iterator[int]:
        """Holds the run's locks: the descriptor of the one that is handed on. Raises Busy where another has them."""
        deadline = time.monotonic() + self._patience
        while True:
            with contextlib.ExitStack() as stack:
                try:
                    lock = _take(stack, folder)
                except Busy:
                    if time.monotonic() >= deadline or self._asked:
                        raise
                else:
                    yield lock
                    return
            time.sleep(_SECONDS_BETWEEN)


def _take(stack: contextlib.ExitStack, folder: pathlib.Path) -> int:
    try:
        stack.enter_context(hold(folder / ".job", folder.name))
    except UsageError as error:
        if is_held(folder / ".job"):
            raise Busy(str(error).partition(":")[0]) from None
        raise  # no locks there
    file = stack.enter_context((folder / ".child").open("ab"))
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise Busy(f"{folder.name} is still at work, though what started it was killed") from None
    return file.fileno()


def is_held(path: pathlib.Path) -> bool:
    """Whether a process holds the lock on the file `path`, as far as this machine can tell."""
    try:
        with path.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


def _environment() -> dict[str, str]:
    """That of a run. What Slurm says of the job is left out: jax.distributed would take a single run for one of many
    that wait for each other."""
    return {name: value for name, value in os.environ.items() if not name.startswith(("SLURM", "SUBMITIT_"))}


def read_record(folder: pathlib.Path) -> dict[str, Any]:
    """What run.json says; a run of which there is none, or a damaged one, is waiting."""
    record = {"state": "waiting", "error": None, "attempts": 0, "started": None, "host": None, "arguments": None}
    try:
        held = record | json.loads((folder / "run.json").read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        return record
    except (OSError, ValueError, TypeError, RecursionError):
        held = {}
    kinds = {"attempts": int, "error": str | None, "started": float | int | None, "host": str | None}
    kinds |= {"arguments": list | None}
    if held.get("state") in STATES and all(isinstance(held[name], kind) for name, kind in kinds.items()):
        return held
    return record | {"error": "run.json is damaged: a start goes on from what else is there"}


def verdict(code: int, last: str, *, killed: bool) -> tuple[str, str | None]:
    """(state, why) of a child that ended with `code`, negative for a signal, and said `last`.

    killed: whether the launcher itself killed it.
    """
    if code == 0:
        return "finished", None
    if code in (RESUME, _INTERRUPTED):
        return "stopped", last
    if killed or -code in _ASKED:
        return "stopped", f"ended by {signal.Signals(-code).name}: goes on from what it saved last"
    if -code == signal.SIGKILL:
        return "failed", "killed by the kernel, most likely for memory: make it smaller, or run fewer at once"
    if code < 0:
        return "failed", f"died of a signal: {signal.strsignal(-code)}"
    return "failed", last or f"ended with status {code} and said nothing"


_TRACEBACK = re.compile(r"^Traceback \(most recent call last\):\n(?:[ \t].*\n)+(\S.*)", re.MULTILINE)
_UNPRINTABLE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|[\x00-\x08\x0b-\x1f\x7f]")


def last_words(log: pathlib.Path, begin: int) -> str:
    """The error at the end of what stands in the log from the byte `begin` on: that of the last traceback, or the last
    lines, two at most."""
    with log.open("rb") as file:
        file.seek(max(begin, file.seek(0, os.SEEK_END) - 20_000))
        text = _UNPRINTABLE.sub("", file.read().decode(errors="replace"))
    if errors := _TRACEBACK.findall(text):
        return errors[-1][:300]
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return "; ".join(lines[-2:])[:300]


def identity(arguments: Iterable[str]) -> list[str]:
    """What of a run's arguments says which run it is: neither where it writes nor how it is carried out."""
    how = tuple(f"--config.{field}{end}" for field in HOW for end in "=.")
    return sorted(one for one in arguments if not one.startswith(("--workdir=", *how)))
