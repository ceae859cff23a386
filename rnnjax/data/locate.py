"""Where a corpus is looked for: the path given, the folder that RNNJAX_DATA names, the user's cache."""

import os
import pathlib
from collections.abc import Sequence

from rnnjax.data.catalogue import CATALOGUE
from rnnjax.data.errors import DataError

_FETCHED = "`python -m rnnjax.data fetch {name}` downloads it to the cache. "
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
        given = expanded(path)
        if given.is_file():
            return given
        if not given.exists():
            raise DataError(f"{given}: no such file or folder\n" + _way_out(corpus))
        folders = [given]
    else:
        folders = usual_folders(corpus)
    for folder in folders:
        for name in names:
            if (folder / name).is_file():
                return folder / name
    raise DataError(_not_found(folders, names, corpus))


def expanded(path: str | os.PathLike) -> pathlib.Path:
    """The path with ~ as the home folder. Raises DataError where there is no such user."""
    try:
        return pathlib.Path(path).expanduser()
    except RuntimeError:
        raise DataError(f"{path}: there is no such user\nGive the path from / on.") from None


def _way_out(corpus: str) -> str:
    fetched = [name for name, held in CATALOGUE.items() if held.folder == corpus]
    return "".join(_FETCHED.format(name=name) for name in fetched) + WAY_OUT.format(corpus=corpus)


def usual_folders(corpus: str) -> list[pathlib.Path]:
    """Where a corpus is looked for when no path is given; the last is in the cache, where `fetch` puts it."""
    folders = []
    if root := os.environ.get("RNNJAX_DATA", ""):
        folders.append(expanded(root) / corpus)
    cache = os.environ.get("XDG_CACHE_HOME", "")
    # The XDG specification has a relative path ignored.
    cache = pathlib.Path(cache) if os.path.isabs(cache) else pathlib.Path(os.path.expanduser("~")) / ".cache"
    return [*folders, cache / "rnnjax" / corpus]


def _not_found(folders, names, corpus: str) -> str:
    places = ", ".join(f"{folder}{'' if folder.is_dir() else ' (no such folder)'}" for folder in folders)
    return f"none of {', '.join(names)} found; looked in {places}\n" + _way_out(corpus)
