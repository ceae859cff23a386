"""Safetensors: what is written is read, and no bytes whatever do more than a DataError."""

import json
import struct
import tracemalloc

import jax.numpy as jnp
import numpy as np
import pytest

from rnnjax.data.errors import DataError
from rnnjax.data.safetensors import list_safetensors, read_safetensors, write_safetensors

ARRAYS = {
    "a": np.arange(6, dtype=np.float32).reshape(2, 3),
    "b.c": np.arange(4, dtype=np.float64),
    "half": np.ones((1, 2), np.float16),
    "brain": np.ones(3, jnp.bfloat16),
    "scalar": np.array(2.5, np.float32),
    "empty": np.zeros((0, 4), np.float32),
    "count": np.array([3], np.int64),
    "flag": np.array([True, False]),
}


@pytest.fixture
def path(tmp_path):
    write_safetensors(tmp_path / "x.safetensors", ARRAYS)
    return tmp_path / "x.safetensors"


def put(path, header, data=b"", length=None):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text) if length is None else length) + text + data)


def tensor(dtype="F32", shape=(2,), offsets=(0, 8)):
    return {"dtype": dtype, "shape": list(shape), "data_offsets": list(offsets)}


def same(got, want):
    assert got.keys() == want.keys()
    for name, array in want.items():
        assert got[name].dtype == array.dtype and got[name].shape == array.shape
        assert got[name].tobytes() == array.tobytes()


def test_what_is_written_is_read(path):
    same(read_safetensors(path), ARRAYS)
    assert set(list_safetensors(path)) == set(ARRAYS)
    same(read_safetensors(path, ["half", "a"]), {"half": ARRAYS["half"], "a": ARRAYS["a"]})


def test_another_byte_order_and_strides_are_written_right(tmp_path):
    array = np.arange(6, dtype=">f4").reshape(2, 3).T
    write_safetensors(tmp_path / "x.safetensors", {"a": array})
    assert np.array_equal(read_safetensors(tmp_path / "x.safetensors")["a"], array)


def test_what_it_has_no_type_for_is_not_written(tmp_path):
    with pytest.raises(ValueError, match="z is complex128"):
        write_safetensors(tmp_path / "x.safetensors", {"z": np.zeros(2, complex)})
    assert not (tmp_path / "x.safetensors").exists()


@pytest.mark.parametrize(
    "header",
    [
        [],
        b"{{",
        b"\xff\xfe\xfd\xfc",
        b"[" * 100_000,
        b'{"a": ' + b"9" * 10_000 + b"}",
        {"a": 3},
        {"a": tensor() | {"dtype": 5}},
        {"a": tensor(shape=(-2, -1))},
        {"a": tensor(offsets=(0, 8, 16))},
        {"a": tensor(offsets=(8, 0))},
        {"a": tensor(offsets=(0, 16), shape=(4,))},
        {"a": tensor(shape=(3,))},
        {"a": tensor(shape=(2**62, 2**62))},
        {"a": tensor(shape=(1,), offsets=(0, 4))},
        {"a": tensor(), "b": tensor()},
    ],
)
def test_a_header_that_is_none(tmp_path, header):
    path = tmp_path / "x.safetensors"
    put(path, header, data=bytes(8))
    with pytest.raises(DataError) as caught:
        read_safetensors(path)
    assert str(caught.value).startswith(f"{path}: ") and len(str(caught.value)) < 600


@pytest.mark.parametrize("length", [0, 1, 10**6, 2**63, 2**64 - 1])
def test_a_header_longer_than_the_file_is_not_made_room_for(tmp_path, length):
    put(tmp_path / "x.safetensors", b"{}", length=length)
    tracemalloc.start()
    with pytest.raises(DataError, match="cannot be read as safetensors"):
        read_safetensors(tmp_path / "x.safetensors")
    assert tracemalloc.get_traced_memory()[1] < 10**6
    tracemalloc.stop()


def test_names_are_names_and_no_paths(tmp_path):
    put(tmp_path / "x.safetensors", {"../../etc/passwd": tensor(), "\x00\n": tensor(offsets=(8, 16))}, data=bytes(16))
    assert set(read_safetensors(tmp_path / "x.safetensors")) == {"../../etc/passwd", "\x00\n"}
    assert [file.name for file in tmp_path.iterdir()] == ["x.safetensors"]


def test_every_cut_and_many_changes_of_a_byte_end_in_values_or_a_data_error(path, tmp_path):
    whole, rng, read = path.read_bytes(), np.random.default_rng(5), 0
    spoilt = [whole[:end] for end in range(0, len(whole), 3)]
    for _ in range(300):
        changed = bytearray(whole)
        changed[rng.integers(len(whole))] = rng.integers(256)
        spoilt.append(bytes(changed))
    for data in spoilt:
        (tmp_path / "y.safetensors").write_bytes(data)
        try:
            read_safetensors(tmp_path / "y.safetensors")
            read += 1
        except DataError as error:
            assert len(str(error)) < 600
    assert 0 < read < len(spoilt)


@pytest.mark.parametrize("name", ["nowhere.safetensors", "", "nul\0.safetensors"])
def test_what_is_no_file(tmp_path, name):
    with pytest.raises(DataError, match="no such file|cannot be read"):
        read_safetensors(tmp_path / name)
