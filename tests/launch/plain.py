"""What a job starts where no experiment is needed: `python -m tests.launch.plain --workdir=DIR --do=THING`."""

import os
import pathlib
import signal
import sys
import time

given = dict(argument.removeprefix("--").split("=", 1) for argument in sys.argv[1:])
workdir, do = pathlib.Path(given["workdir"]), given["do"]
(workdir / "starts.txt").open("a").write(f"{os.getpid()}\n")


def save(number, _frame):
    time.sleep(float(given.get("saving", 0)))
    (workdir / "saved.txt").open("a").write(f"{signal.Signals(number).name}\n")
    print("saved", file=sys.stderr)
    sys.exit(75)


if do == "end":
    print(sorted(name for name in os.environ if name.startswith(("SLURM", "SUBMITIT", "KEPT"))))
elif do == "raise":
    print("on stdout, before")
    raise ValueError("the widget is bent")
elif do == "complain":
    print("on stdout, before")
    print("the gadget is bent", file=sys.stderr)
    sys.exit(2)
elif do == "once":  # fails the first time alone
    sys.exit(3 if len((workdir / "starts.txt").read_text().split()) == 1 else 0)
elif do.startswith("SIG"):
    os.kill(os.getpid(), getattr(signal, do))
elif do == "wait":
    signal.signal(signal.SIGTERM, save)
    (workdir / "ready").touch()
    time.sleep(60)
