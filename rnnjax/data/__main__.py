"""Downloads corpora.

    python -m rnnjax.data list                          what there is, how large, under which licence
    python -m rnnjax.data fetch atis                    into the cache, ~/.cache/rnnjax ($XDG_CACHE_HOME/rnnjax)
    python -m rnnjax.data fetch atis --path=corpora     into corpora/atis; RNNJAX_DATA=corpora has it found there

Every file is checked by its sha256. A download that was cut goes on where it stopped, with the same command; what is
there already is not downloaded again. Studies and tasks find what is in the cache or below $RNNJAX_DATA without more
said; files from elsewhere are given to them as --config.task.path=FILE_OR_FOLDER.

Exit status: 0 done, 1 a failed download or output (the message says what to do), 2 a wrong command line, 130 Ctrl-C.
"""

import argparse
import difflib
import errno
import os
import pathlib
import sys

from rich.console import Console

from rnnjax.data.catalogue import CATALOGUE
from rnnjax.data.errors import DataError
from rnnjax.data.fetch import fetch
from rnnjax.data.locate import usual_folders


def main(arguments: list[str] | None = None) -> int:
    """The exit status of a command line. Raises SystemExit(2) for one that is wrong, and SystemExit(0) after --help."""
    parser = _parser()
    asked = parser.parse_args(arguments)
    try:
        if asked.command == "list":
            _list()
        else:
            _fetch(parser, asked.corpus, asked.path)
        if sys.stdout is not None:
            sys.stdout.flush()
    except DataError as error:
        print(error, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("interrupted: the same command goes on from there", file=sys.stderr)
        return 130
    except BrokenPipeError:  # `list | head`: nobody reads on
        _drop_output()
    except OSError as error:  # a full disk; `fetch` says its own as DataError
        print(f"standard output: cannot be written: {error.strerror or error}", file=sys.stderr)
        _drop_output()
        return 1
    return 0


def _drop_output() -> None:
    """What is left of the output is flushed to nowhere, not to an error at the end of the process."""
    if sys.stdout is not None:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _parser() -> argparse.ArgumentParser:
    raw = argparse.RawDescriptionHelpFormatter
    options = {"formatter_class": raw, "allow_abbrev": False}
    parser = argparse.ArgumentParser(prog="python -m rnnjax.data", description=__doc__, **options)
    commands = parser.add_subparsers(dest="command", required=True, metavar="{list,fetch}")
    commands.add_parser("list", help="show the corpora, their sizes and licences", allow_abbrev=False)
    names = "\n".join(f"  {name:16} {corpus.about}" for name, corpus in CATALOGUE.items())
    one = commands.add_parser("fetch", help="download a corpus", epilog=f"corpora:\n{names}", **options)
    one.add_argument("corpus", metavar="NAME", help="the corpus, one of those below")
    one.add_argument("--path", metavar="FOLDER", help="the folder in place of the cache; files go to FOLDER/NAME/")
    return parser


def _list() -> None:
    if sys.stdout is None:  # closed by the shell: print would say nothing at all
        raise OSError(errno.EBADF, os.strerror(errno.EBADF))
    for name, corpus in CATALOGUE.items():
        size = sum(file.size for file in corpus.files) / 1e6
        files = f"{len(corpus.files)} file{'s' if len(corpus.files) > 1 else ''}"
        print(f"{name:16} {files}, {size:.1f} MB: {corpus.about}\n{'':16} licence: {corpus.licence}")


def _fetch(parser: argparse.ArgumentParser, name: str, path: str | None) -> None:
    if name not in CATALOGUE:
        near = difflib.get_close_matches(name.lower(), CATALOGUE, 1)
        meant = f"did you mean {near[0]}?" if near else f"there are {', '.join(CATALOGUE)}"
        parser.error(f"no corpus {name!r}: {meant}")
    if path is not None and not path.strip():
        parser.error("--path is empty: expected a folder")
    corpus = CATALOGUE[name]
    try:
        folder = usual_folders(corpus.folder)[-1] if path is None else pathlib.Path(path).expanduser() / corpus.folder
    except RuntimeError as error:  # ~ of a user that is not there
        parser.error(f"{'RNNJAX_DATA' if path is None else f'--path={path}'}: {error}")
    console = Console(stderr=True)
    console.print(f"{name}: {corpus.about}", highlight=False, markup=False, soft_wrap=True)
    fetch(corpus, folder, console)
    print(folder)


if __name__ == "__main__":
    sys.exit(main())
