"""HDF5: arrays that are all in the file are read; links, outside storage and false sizes are not followed."""

import sys

import numpy as np
import pytest

from rnnjax.data.errors import DataError
from rnnjax.data.hdf5 import list_hdf5, read_hdf5


def test_where_h5py_is_missing_the_way_to_it_is_told(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "h5py", None)
    with pytest.raises(ImportError, match=r"x.h5 is read by h5py, which is missing: pip install 'rnnjax\[peers\]'"):
        list_hdf5(tmp_path / "x.h5")


@pytest.fixture
def h5py():
    return pytest.importorskip("h5py")


def test_arrays_by_their_paths(tmp_path, h5py):
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file["a/b"] = np.arange(6.0).reshape(2, 3)
        file["c"] = np.float32([1])
    assert list_hdf5(tmp_path / "x.h5") == ["a/b", "c"]
    found = read_hdf5(tmp_path / "x.h5", ["a/b"])
    assert found.keys() == {"a/b"} and np.array_equal(found["a/b"], np.arange(6.0).reshape(2, 3))


def test_a_name_that_is_no_utf_8(tmp_path, h5py):
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file[b"\xff/a"] = np.ones(2)
    assert list_hdf5(tmp_path / "x.h5") == ["\ufffd/a"]


def test_what_lies_elsewhere_is_not_read(tmp_path, h5py):
    secret = tmp_path / "secret"
    secret.write_bytes(np.arange(4.0).tobytes())
    with h5py.File(tmp_path / "other.h5", "w") as other:
        other["secret"] = np.arange(4.0)
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file["link"] = h5py.ExternalLink("other.h5", "/secret")
        file["soft"] = h5py.SoftLink("/there")
        file["there"] = np.arange(2.0)
        file["itself"] = file["/"]
        file.create_dataset("outside", (4,), "f8", external=[(str(secret), 0, h5py.h5f.UNLIMITED)])
        layout = h5py.VirtualLayout((4,), "f8")
        layout[:] = h5py.VirtualSource("other.h5", "secret", (4,))
        file.create_virtual_dataset("virtual", layout)
    assert sorted(list_hdf5(tmp_path / "x.h5")) == ["outside", "there", "virtual"]
    for name in ("outside", "virtual"):
        with pytest.raises(DataError, match=f"array '{name}': lies in another file"):
            read_hdf5(tmp_path / "x.h5", [name])


def test_a_size_that_the_file_has_not_is_not_made_room_for(tmp_path, h5py):
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file.create_dataset("huge", (10**6, 10**6), "f4", chunks=(10, 10))
        file.create_dataset("squeezed", data=np.zeros(10**6), compression="gzip")
    for name in ("huge", "squeezed"):
        with pytest.raises(DataError, match=f"array '{name}': claims [0-9]+ bytes in a file of [0-9]+"):
            read_hdf5(tmp_path / "x.h5", [name])


@pytest.mark.parametrize("data", [b"", b"HDF", bytes(1000), b"\x89HDF\r\n\x1a\n" + bytes(100)])
def test_what_is_no_hdf5(tmp_path, h5py, data):
    (tmp_path / "x.h5").write_bytes(data)
    with pytest.raises(DataError, match="x.h5: cannot be read as HDF5"):
        list_hdf5(tmp_path / "x.h5")


def test_cuts_end_in_a_data_error(tmp_path, h5py):
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file["a/b"] = np.arange(100.0)
    whole = (tmp_path / "x.h5").read_bytes()
    for end in range(0, len(whole) - 1, len(whole) // 20):
        (tmp_path / "y.h5").write_bytes(whole[:end])
        with pytest.raises(DataError):
            read_hdf5(tmp_path / "y.h5", ["a/b"])


def test_no_file_is_told(tmp_path, h5py):
    with pytest.raises(DataError, match="nowhere.h5: no such file"):
        list_hdf5(tmp_path / "nowhere.h5")
