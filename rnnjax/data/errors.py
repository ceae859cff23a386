"""The one exception that reading data raises."""

import reprlib

AGAIN = "The file is damaged or something else: get it again."


class DataError(ValueError):
    """A file of data is missing or malformed. Says which file, where in it, what was found and what to do."""

    user_error = True


def malformed(path, place: str, problem: str, way_out: str) -> DataError:
    """`path: place: problem` and, on a second line, the way out."""
    where = f"{path}: {place}: " if place else f"{path}: "
    return DataError(f"{where}{problem}\n{way_out}")


def shown(value) -> str:
    """A value as it stands in a message: one line, cut where it is long."""
    try:
        return reprlib.repr(value)
    except Exception:  # an integer too long for str(), say
        return f"a {type(value).__name__}"
