"""Files of bytes, plain or gzip, with one clear error for what cannot be read."""

import contextlib
import gzip
import os
import pathlib
import zlib
from collections.abc import Iterator
from typing import BinaryIO

from rnnjax.data.errors import AGAIN, DataError, malformed, shown

CHUNK = 2**20


@contextlib.contextmanager
def opened(path: str | os.PathLike) -> Iterator[BinaryIO]:
    """The content of a file; unpacked where it begins as gzip does, whatever its name is.

    Raises DataError for a file that is not there or cannot be read, and inside the block for gzip data that are
    damaged or cut short.
    """
    try:
        with pathlib.Path(path).open("rb") as file:
            packed = file.peek(2)[:2] == b"\x1f\x8b"
            with gzip.GzipFile(fileobj=file) if packed else contextlib.nullcontext(file) as content:
                yield content
    except DataError:
        raise
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise malformed(path, "", f"its gzip data are damaged or cut short: {shown(str(error))}", AGAIN) from error
    except (OSError, ValueError) as error:  # ValueError: a null character in the name
        reason = getattr(error, "strerror", None) or error
        raise malformed(path, "", f"cannot be read: {reason}", "Check the name and the permissions.") from error


def read_up_to(file: BinaryIO, count: int) -> bytearray:
    """The next `count` bytes, or what there is of them; takes the memory of what is there, whatever `count` is."""
    data = bytearray()
    while len(data) < count and (chunk := file.read(min(CHUNK, count - len(data)))):
        data += chunk
    return data
