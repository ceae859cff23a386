"""`python child.py PARENT ARGUMENTS`: becomes `python ARGUMENTS`, asked to save and end should PARENT die.

Without it a launcher that is killed would leave behind what it started. Only Linux has the means; elsewhere what is
left goes on, and the lock that it was given keeps a second start away (`launch.job`).
"""

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1
_RESUME = 75  # of rnnjax.train.signals, whose import takes longer than all of this


def main() -> None:
    parent, *arguments = sys.argv[1:]
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != int(parent):  # it died before it could be asked for
        sys.exit(_RESUME)
    os.execv(sys.executable, [sys.executable, *arguments])


if __name__ == "__main__":
    main()
