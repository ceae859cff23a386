"""Files that are there whole or not at all."""

import json
import os
import pathlib
import secrets
from typing import Any

from rnnjax.data.errors import AGAIN, malformed, shown


def read_json(path: str | os.PathLike) -> Any:
    """What a file of JSON holds. Raises DataError where it can't be read, and where it holds something else."""
    try:
        data = pathlib.Path(path).read_bytes()
    except (OSError, ValueError) as error:  # ValueError: a null character in the path
        reason = getattr(error, "strerror", None) or error
        raise malformed(path, "", f"cannot be read: {reason}", "Check the name and the permissions.") from error
    try:
        return json.loads(data)
    except (ValueError, RecursionError) as error:
        raise malformed(path, "", f"cannot be read as JSON: {shown(str(error))}", AGAIN) from error


def write_text(path: str | os.PathLike, text: str) -> None:
    """Writes UTF-8, to a file beside it that then takes its place: nothing half written is ever seen."""
    path = pathlib.Path(path)
    beside = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        beside.write_bytes(text.encode("utf-8", "surrogatepass"))  # words of a JSON file may hold them
        os.replace(beside, path)
    finally:
        beside.unlink(missing_ok=True)
