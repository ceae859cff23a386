"""Where a corpus is looked for: the path given, the folder that RNNJAX_DATA names, the user's cache."""

import os
import pathlib
from collections.abc import Sequence

from rnnjax.data.errors import DataError

WAY_OUT = (
    "Give the file as `path` (--config.task.path=FILE in a study), or set RNNJAX_DATA to the folder that holds "
    "{corpus}/."
)


def locate(path: str | os.PathLike = "", *, names: Sequence[str], corpus: str) -> pathlib.Path:
    """The file of a corpus.

    path: a file, or a folder that holds one of `names`; it is the only place looked in when given. Where it
    is "",
        $RNNJAX_DATA/corpus is looked in, then $XDG_CACHE_HOME/rnnjax/corpus (~/.cache where that is not set).
    names: file names that the corpus goes by, the first found wins.
    corpus: the name of its subfolder.

    Raises DataError, listing the places that were looked in, where there is none.
    """
    if os.fspath(path):
        given = pathlib.Path(path).expanduser()
        if given.is_file():
            return given
        if not given.exists():
            raise DataError(f"{given}: no such file or folder\n" + WAY_OUT.format(corpus=corpus))
        folders = [given]
    else:
        folders = _usual_folders(corpus)
    for folder in folders:
        for name in names:
            if (folder / name).is_file():
                return folder / name
    raise DataError(_not_found(folders, names, corpus))


def _usual_folders(corpus: str) -> list[pathlib.Path]:
    folders = []
    if root := os.environ.get("RNNJAX_DATA", ""):
        folders.append(pathlib.Path(root).expanduser() / corpus)
    cache = os.environ.get("XDG_CACHE_HOME", "")
    # The XDG specification has a relative path ignored.
    cache = pathlib.Path(cache) if os.path.isabs(cache) else pathlib.Path(os.path.expanduser("~")) / ".cache"
    return [*folders, cache / "rnnjax" / corpus]


def _not_found(folders, names, corpus: str) -> str:
    places = ", ".join(f"{folder}{'' if folder.is_dir() else ' (no such folder)'}" for folder in folders)
    return f"none of {', '.join(names)} found; looked in {places}\n" + WAY_OUT.format(corpus=corpus)
