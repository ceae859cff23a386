"""Arrays of HDF5 files, by h5py, which is imported where a file is opened."""

import contextlib
import os
import pathlib
from collections.abc import Iterable, Iterator
from typing import Any

import ml_dtypes
import numpy as np

from rnnjax.data.errors import AGAIN, DataError, malformed, shown


def list_hdf5(path: str | os.PathLike) -> list[str]:
    """The paths of all arrays in the file. Raises as `read_hdf5` does."""
    with _arrays(path) as arrays:
        return list(arrays)


def read_hdf5(path: str | os.PathLike, names: Iterable[str]) -> dict[str, np.ndarray]:
    """{name: array} of the arrays with these paths in the file.

    Raises DataError, naming the file and the array, for what is no HDF5 file and for an array that is not all in it:
    one that lies in another file, is put together of others, or claims more bytes than the file has. Raises ImportError
    where h5py is missing. A damaged file is read by the HDF5 library, which is as safe as its version.
    """
    with _arrays(path) as arrays:
        return {name: _read(pathlib.Path(path), name, arrays[name]) for name in names}


@contextlib.contextmanager
def _arrays(path: str | os.PathLike) -> Iterator[dict[str, Any]]:
    """{path in the file: dataset}, of what hard links lead to: soft and external links are not followed."""
    try:
        import h5py
    except ImportError as error:
        raise ImportError(f"{path} is read by h5py, which is missing: pip install 'rnnjax[peers]' or h5py") from error
    path, found = pathlib.Path(path), {}

    def visit(name, item):
        if isinstance(item, h5py.Dataset):  # a name that is no UTF-8 comes as bytes
            found[name if isinstance(name, str) else name.decode("utf-8", "replace")] = item

    try:
        if not path.is_file():
            raise malformed(path, "", "no such file", "Check the path.")
        with h5py.File(path, "r") as file:
            file.visititems(visit)
            yield found
    except (OSError, RuntimeError, KeyError, ValueError, TypeError) as error:  # what h5py makes of broken bytes
        if isinstance(error, DataError):
            raise
        raise malformed(path, "", f"cannot be read as HDF5: {shown(str(error))}", AGAIN) from error


def _read(path: pathlib.Path, name: str, dataset: Any) -> np.ndarray:
    place = f"array {shown(name)}"
    if dataset.external or dataset.is_virtual:
        raise malformed(path, place, "lies in another file", "Expected the numbers themselves: save it again.")
    if dataset.nbytes > path.stat().st_size:
        problem = f"claims {dataset.nbytes} bytes in a file of {path.stat().st_size}"
        raise malformed(path, place, problem, "Expected arrays that are not compressed: save it again.")
    if dataset.attrs.get("dtype") == "bfloat16" and dataset.dtype.itemsize == 2:  # HDF5 has no such type
        return dataset[()].view(ml_dtypes.bfloat16)
    return dataset[()]
