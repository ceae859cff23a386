"""The unpickler reads the original layout and runs nothing."""

import collections
import os
import pickle
import struct

import numpy as np
import pytest

from rnnjax.data import DataError, read_pianoroll
from rnnjax.data.unpickle import unpickle_plain


def _python2_scalar(value: int) -> bytes:
    """A numpy.int64 as Python 2's numpy pickled it: raw bytes in a string."""
    dtype = b"cnumpy\ndtype\nU\x02i8K\x00K\x01\x87R(K\x03U\x01<NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb"
    return b"cnumpy.core.multiarray\nscalar\n" + dtype + b"U\x08" + struct.pack("<q", value) + b"\x86R"


def test_a_python_2_pickle_with_numpy_scalars(tmp_path):
    step = b"(" + _python2_scalar(60) + _python2_scalar(64) + b"t"
    splits = b"".join(
        b"U" + bytes([len(split)]) + split + b"]](" + step + b")eas" for split in (b"train", b"valid", b"test")
    )
    data = b"\x80\x02}" + splits + b"."
    assert pickle.loads(data, encoding="latin1")["test"] == [[(60, 64), ()]], "numpy reads it otherwise"
    path = tmp_path / "music.pickle"
    path.write_bytes(data)
    rolls = read_pianoroll(path)
    for split in ("train", "valid", "test"):
        (roll,) = rolls[split]
        assert [tuple(np.flatnonzero(step) + 21) for step in roll] == [(60, 64), ()]


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_numpy_numbers_of_every_protocol(protocol):
    numbers = [
        np.int64(60),
        np.uint8(21),
        np.float32(0.5),
        np.int16(-300),
        np.bool_(True),
        np.dtype(">i4").type(7),
    ]
    value = {"a": [(1, numbers)], "b": [[np.array([60, 64], ">i2"), np.array([], np.int64)]]}
    if protocol < 5:  # 5 has arrays rebuilt by numpy._core.numeric._frombuffer
        found = unpickle_plain("x", pickle.dumps(value, protocol))
        assert found == {"a": [(1, [60, 21, 0.5, -300, True, 7])], "b": [[[60, 64], []]]}
    else:
        found = unpickle_plain("x", pickle.dumps({"a": value["a"]}, protocol))
        assert found == {"a": [(1, [60, 21, 0.5, -300, True, 7])]}
    assert all(type(number) in (int, float, bool) for number in found["a"][0][1])


class _Call:
    def __init__(self, function, *arguments):
        self.call = function, arguments

    def __reduce__(self):
        return self.call


def _refused(data: bytes) -> str:
    with pytest.raises(DataError) as caught:
        unpickle_plain("music.pickle", data)
    assert str(caught.value).startswith("music.pickle: ") and str(caught.value).count("\n") == 1
    return str(caught.value)


@pytest.mark.parametrize("protocol", [0, 2, 4])
def test_a_command_is_refused_and_never_run(tmp_path, protocol):
    made = tmp_path / "made"
    data = pickle.dumps({"train": _Call(os.system, f"touch {made}")}, protocol)
    assert "asks for posix.system" in _refused(data) or os.name == "nt"
    assert not made.exists()
    pickle.loads(data)
    assert made.exists(), "the pickle would not have run anything"


@pytest.mark.parametrize(
    "value, name",
    [
        (_Call(eval, "1"), "builtins.eval"),
        (_Call(getattr, "", "join"), "builtins.getattr"),
        (collections.OrderedDict(a=1), "collections.OrderedDict"),
        (np.random.RandomState(0), "numpy.random"),
    ],
    ids=["eval", "getattr", "OrderedDict", "RandomState"],
)
def test_other_names_are_refused_by_name(value, name):
    data = pickle.dumps(value, 2)
    assert f"asks for {name.replace('builtins', '__builtin__')}" in _refused(data).replace("builtins", "__builtin__")


@pytest.mark.parametrize(
    "data, message",
    [
        (pickle.dumps(np.array([None, 1]), 2), "numpy numbers of type 'O"),
        (pickle.dumps(np.zeros((2, 3)), 2), "an array of shape (2, 3)"),
        (pickle.dumps(_Call(__import__("codecs").encode, "a", "rot13"), 2), "encodes text as 'rot13'"),
        (b"\x80\x02r\xff\xff\xff\x7f.", "memo entry 2147483647 in a pickle of"),
        (b"\x80\x02cnumpy\nndarray\n}U\x01aK\x01sb.", "not a pickle of plain data"),
        (b"P1\n.", "outside of the file"),
        (b"garbage", "not a pickle of plain data"),
    ],
    ids=range(7),
)
def test_what_is_not_plain_data(data, message):
    assert message in _refused(data)
