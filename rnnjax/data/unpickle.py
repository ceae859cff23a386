"""Pickles of plain containers and numpy numbers, read without running what is in them.

A pickle is a program: it may name any function and have it called. Here a name is looked up in a short list
and stands for a function of this file, which decodes numbers in plain Python; numpy's own are not called,
because they trust what they are given. Every other name is refused before anything is called.
"""

import io
import pickle
import pickletools

import numpy as np

from rnnjax.data.errors import AGAIN, DataError, malformed

NUMBERS = ("b1", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8")


def unpickle_plain(path, data: bytes):
    """What `data` holds: dicts, lists, tuples, text, numbers; numpy scalars as Python numbers, 1-D arrays as lists.

    Text of Python 2 is decoded as latin-1. Raises DataError, naming `path`, for any other content.
    """
    try:
        _check_sizes(data)
        return _Plain(io.BytesIO(data), encoding="latin1").load()
    except _Refused as refused:
        raise malformed(path, "", str(refused), "Only lists, dicts and numpy numbers are read from a pickle.") from None
    except Exception as error:  # a broken pickle can make any call with any argument
        raise malformed(path, "", f"not a pickle of plain data: {type(error).__name__}", AGAIN) from error


class _Refused(DataError):
    pass


def _check_sizes(data: bytes) -> None:
    """Refuses the opcodes that make the unpickler allocate more than the file can fill."""
    for opcode, argument, _ in pickletools.genops(data):
        if opcode.name in ("PUT", "LONG_BINPUT") and argument > len(data):
            raise _Refused(f"memo entry {argument} in a pickle of {len(data)} bytes")


class _Dtype:
    """numpy.dtype's stand-in: a code as "i8", then its byte order by __setstate__."""

    def __init__(self, code: str):
        if code not in NUMBERS:
            raise _Refused(f"holds numpy numbers of type {code!r}")
        self.dtype = np.dtype(code)

    def __setstate__(self, state):
        order = state[1]
        self.dtype = self.dtype.newbyteorder(order if order in ("<", ">") else "=")


class _Array(list):
    """numpy.ndarray's stand-in: a list, filled by __setstate__ as (version, shape, dtype, is_fortran, bytes)."""

    def __setstate__(self, state):
        _, shape, dtype, _, raw = state
        values = np.frombuffer(_as_bytes(raw), dtype.dtype)
        if tuple(shape) != (len(values),):
            raise _Refused(f"holds an array of shape {shape}")
        self[:] = values.tolist()


def _as_bytes(raw) -> bytes:
    return raw.encode("latin1") if isinstance(raw, str) else bytes(memoryview(raw))


class _Plain(pickle.Unpickler):
    def find_class(self, module: str, name: str):
        if module in ("numpy.core.multiarray", "numpy._core.multiarray"):
            module = "numpy multiarray"
        known = {
            ("numpy multiarray", "scalar"): self._scalar,
            ("numpy multiarray", "_reconstruct"): self._reconstruct,
            ("numpy", "dtype"): self._dtype,
            ("numpy", "ndarray"): "numpy.ndarray",
            ("_codecs", "encode"): self._encode,
            ("__builtin__", "bytes"): self._no_bytes,
        }
        if (module, name) not in known:
            raise _Refused(f"asks for {module}.{name}, which a corpus has no use for")
        return known[module, name]

    def persistent_load(self, pid):
        raise _Refused("asks for an object outside of the file")

    # Bound methods, because a pickle can set attributes on a function.
    def _dtype(self, code, *align_and_copy):
        return _Dtype(code)

    def _scalar(self, dtype, raw):
        (value,) = np.frombuffer(_as_bytes(raw), dtype.dtype).tolist()
        return value

    def _reconstruct(self, *kind_shape_code):
        return _Array()

    def _no_bytes(self):  # how protocol 2 spells b""
        return b""

    def _encode(self, text, codec):
        if codec != "latin1":
            raise _Refused(f"encodes text as {codec!r}")
        return text.encode("latin1")
