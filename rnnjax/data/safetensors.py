"""Files of safetensors, by the library of that name, which needs no framework for numpy's arrays."""

import contextlib
import os
import pathlib
from collections.abc import Iterable, Iterator, Mapping

import ml_dtypes  # noqa: F401 (numpy knows bfloat16 by it)
import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from rnnjax.data.errors import AGAIN, DataError, malformed, shown


def list_safetensors(path: str | os.PathLike) -> list[str]:
    """The names of all tensors. Raises as `read_safetensors` does."""
    with _opened(path) as file:
        return list(file.keys())


def read_safetensors(path: str | os.PathLike, names: Iterable[str] | None = None) -> dict[str, np.ndarray]:
    """{name: array} of all tensors, or of `names`; of the others no byte is read.

    Raises DataError, naming the file and what is wrong, for anything that is not such a file.
    """
    found = {}
    with _opened(path) as file:
        for name in file.keys() if names is None else names:
            try:
                found[name] = file.get_tensor(name)
            except (SafetensorError, TypeError, KeyError, AttributeError, ValueError) as error:
                raise malformed(path, f"tensor {shown(name)}", f"cannot be read: {shown(str(error))}", AGAIN) from error
    return found


def write_safetensors(path: str | os.PathLike, arrays: Mapping[str, np.ndarray]) -> None:
    """Writes {name: array}, in the dtype that each has. Raises ValueError, naming the array, for a type it has not."""
    for name, array in arrays.items():
        if np.asarray(array).dtype.kind not in "fiubV":  # V: bfloat16
            raise ValueError(f"{name} is {array.dtype}: expected floats, whole numbers or bool")
    ordered = {name: np.asarray(array, array.dtype.newbyteorder("<"), order="C") for name, array in arrays.items()}
    pathlib.Path(path).write_bytes(save(ordered))


@contextlib.contextmanager
def _opened(path: str | os.PathLike) -> Iterator[safe_open]:
    path = pathlib.Path(path)
    try:
        if not path.is_file():
            raise malformed(path, "", "no such file", "Check the path.")
        with safe_open(path, framework="numpy") as file:
            yield file
    except DataError:
        raise
    except (SafetensorError, OSError, ValueError, OverflowError) as error:  # ValueError: a null character in the path
        raise malformed(path, "", f"cannot be read as safetensors: {shown(str(error))}", AGAIN) from error
