"""Piano rolls: the same music out of three formats, and one clear error for everything else."""

import io
import json
import pickle
import re

import numpy as np
import pytest
import scipy.io
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rnnjax.data import DataError, read_pianoroll
from rnnjax.data.pianoroll import CORPORA, SPLITS

NOTES = {"train": [[[21, 60], [], [108]], [[64]]], "valid": [[[60], [61]]], "test": [[[], []]]}


def _rolls(notes):
    rolls = {}
    for split in SPLITS:
        rolls[split] = [np.zeros((len(sequence), 88), np.uint8) for sequence in notes[split]]
        for roll, sequence in zip(rolls[split], notes[split], strict=True):
            for t, step in enumerate(sequence):
                roll[t, [note - 21 for note in step]] = 1
    return rolls


def _mat(rolls, compress=True) -> bytes:
    cells = {}
    for split in SPLITS:
        cells[f"{split}data"] = np.empty((1, len(rolls[split])), object)
        for i, roll in enumerate(rolls[split]):
            cells[f"{split}data"][0, i] = roll
    file = io.BytesIO()
    scipy.io.savemat(file, cells, do_compression=compress)
    return file.getvalue()


VALID = {
    ".mat": _mat(_rolls(NOTES)),
    ".json": json.dumps(NOTES).encode(),
    ".pickle": pickle.dumps(NOTES, 2),
    ".pkl": pickle.dumps({s: [[tuple(np.array(x)) for x in q] for q in NOTES[s]] for s in SPLITS}, 2),
}


def _read(folder, extension, data: bytes):
    path = folder / f"x{extension}"
    path.write_bytes(data)
    return read_pianoroll(path)


def _refused(folder, extension, data: bytes) -> str:
    with pytest.raises(DataError) as caught:
        _read(folder, extension, data)
    message = str(caught.value)
    assert message.startswith(str(folder / f"x{extension}")) and message.count("\n") == 1 and len(message) < 600
    return message


def _assert_same(found, expected):
    assert list(found) == list(SPLITS)
    for split in SPLITS:
        assert len(found[split]) == len(expected[split])
        for a, b in zip(found[split], expected[split], strict=True):
            assert a.dtype == np.uint8 and np.array_equal(a, b)


@pytest.mark.parametrize("extension", VALID)
def test_every_format_gives_the_same_rolls(tmp_path, extension):
    _assert_same(_read(tmp_path, extension, VALID[extension]), _rolls(NOTES))
    (tmp_path / "upper").mkdir()
    _assert_same(_read(tmp_path / "upper", extension.upper(), VALID[extension]), _rolls(NOTES))


@pytest.mark.parametrize("dtype", [np.float64, np.int16, bool])
def test_mat_of_other_number_types(tmp_path, dtype):
    rolls = {split: [roll.astype(dtype) for roll in rolls] for split, rolls in _rolls(NOTES).items()}
    _assert_same(_read(tmp_path, ".mat", _mat(rolls, compress=False)), _rolls(NOTES))


def _json_with(step):
    return json.dumps({**NOTES, "valid": [[[60], [61]], [[60], step]]}).encode()


@pytest.mark.parametrize(
    "data, message",
    [
        (_json_with([20]), "valid, sequence 1, step 1: note 20: expected a whole number in 21 .. 108"),
        (_json_with([109]), "valid, sequence 1, step 1: note 109"),
        (_json_with([60.0]), "valid, sequence 1, step 1: note 60.0"),
        (_json_with([True]), "valid, sequence 1, step 1: note True"),
        (_json_with([None]), "valid, sequence 1, step 1: note None"),
        (_json_with([[60]]), "valid, sequence 1, step 1: note [60]"),
        (_json_with([float("nan")]), "valid, sequence 1, step 1: note nan"),
        (_json_with(60), "valid, sequence 1, step 1: is 60: expected a list of at most 88 MIDI notes"),
        (_json_with({"60": 1}), "valid, sequence 1, step 1: is {'60': 1}: expected a list"),
        (_json_with([60] * 89), "valid, sequence 1, step 1: is [60, 60"),
        (json.dumps({**NOTES, "test": [[]]}).encode(), "test, sequence 0: has no steps"),
        (json.dumps({**NOTES, "test": []}).encode(), "test: no sequence"),
        (json.dumps({**NOTES, "test": 3}).encode(), "test: is 3: expected a list of sequences"),
        (
            json.dumps({**NOTES, "test": ["ab"]}).encode(),
            "test, sequence 0: is 'ab': expected a list of steps",
        ),
        (b'{"train": [], "valid": []}', "no test among the keys ['train', 'valid']"),
        (b"[1]", "holds [1]"),
        (b'{"train":\n [[[60]] x]}', "line 2, column"),
        (b'{"train": [[[60]]', "line 1, column"),
        (b"[" * 100_000, "not JSON of piano rolls: RecursionError"),
        (b"\xff\x00\xfe", "not JSON of piano rolls: UnicodeDecodeError"),
        (b'{"train": [[[' + b"9" * 5000 + b"]]]}", "not JSON of piano rolls: ValueError"),
        (b"", "the file is empty"),
    ],
    ids=range(22),
)
def test_json_errors_name_the_place(tmp_path, data, message):
    assert message in _refused(tmp_path, ".json", data)


def _mat_with(roll):
    return _mat({**_rolls(NOTES), "valid": [np.zeros((2, 88)), roll]})


def _cell_with(value, key, number=0.0):
    roll = np.full((3, 88), number)
    roll[2, key] = value
    return roll


@pytest.mark.parametrize(
    "data, message",
    [
        (_mat_with(_cell_with(2, 7)), "validdata, sequence 1, step 2: key 7 is 2.0: expected 0 or 1"),
        (_mat_with(_cell_with(np.nan, 7)), "validdata, sequence 1, step 2: key 7 is nan"),
        (_mat_with(_cell_with(0.5, 0)), "validdata, sequence 1, step 2: key 0 is 0.5"),
        (_mat_with(_cell_with(-1, 87, 1.0)), "validdata, sequence 1, step 2: key 87 is -1.0"),
        (_mat_with(np.zeros((3, 87))), "validdata, sequence 1: has 87 columns: expected 88 keys"),
        (_mat_with(np.zeros((0, 88))), "validdata, sequence 1: has no steps"),
        (_mat_with(np.zeros((2, 2, 88))), "validdata, sequence 1: is a 3-D array"),
        (_mat_with("words"), "validdata, sequence 1: is a char array"),
        (_mat_with(np.zeros((2, 88), complex)), "validdata, sequence 1: is a complex array"),
        (VALID[".mat"].replace(b"\x00\x01IM", b"\x00\x02IM"), "is no MATLAB 5 header\nSave it in MATLAB with -v7"),
        (VALID[".mat"][:100], "is no MATLAB 5 header"),
        (VALID[".mat"][:128], "no traindata, validdata, testdata among the keys"),
        (VALID[".mat"][:-20], "not MATLAB 5: "),
        (b"", "the file is empty"),
    ],
    ids=range(14),
)
def test_mat_errors_name_the_place(tmp_path, data, message):
    assert message in _refused(tmp_path, ".mat", data)


def test_mat_of_other_variables(tmp_path):
    file = io.BytesIO()
    scipy.io.savemat(file, {f"{split}data": np.zeros((3, 88)) for split in SPLITS})
    assert "traindata: is a number array: expected a cell array" in _refused(tmp_path, ".mat", file.getvalue())
    file = io.BytesIO()
    scipy.io.savemat(file, {"x": np.zeros(3)})
    assert "no traindata, validdata, testdata" in _refused(tmp_path, ".mat", file.getvalue())


def test_files_that_are_not_there_or_of_no_known_kind(tmp_path):
    for path in (tmp_path / "none.json", tmp_path / "folder.json", tmp_path / "null\0.json"):
        if path.name == "folder.json":
            path.mkdir()
        with pytest.raises(DataError, match="cannot be read: .*\nCheck the name"):
            read_pianoroll(path)
    assert "unknown extension '.mid'\nExpected one of .mat, .json" in _refused(tmp_path, ".mid", b"x")


@pytest.mark.parametrize("corpus", CORPORA)
def test_sizes_of_a_known_file_are_checked(tmp_path, corpus):
    name = CORPORA[corpus].files[-1]
    extension = "." + name.rsplit(".")[-1]
    (tmp_path / name).write_bytes(VALID[extension])
    expected = CORPORA[corpus].sizes[0]
    with pytest.raises(DataError, match=re.escape(f"train: 2 sequences: expected {expected}, as published")):
        read_pianoroll(tmp_path / name)


FUZZ = settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def _values_or_data_error(folder, extension, data):
    try:
        splits = _read(folder, extension, data)
    except DataError as error:
        assert str(error).count("\n") <= 1 and len(str(error)) < 1000
    else:
        for split in SPLITS:
            assert splits[split] and all(r.shape[0] >= 1 and r.shape[1] == 88 for r in splits[split])
            assert all(r.dtype == np.uint8 and r.max() <= 1 for r in splits[split])


@pytest.mark.parametrize("extension", VALID)
def test_truncated_files(tmp_path, extension):
    data = VALID[extension]
    for end in range(0, len(data), max(1, len(data) // 150)):
        _values_or_data_error(tmp_path, extension, data[:end])


@FUZZ
@given(st.sampled_from(sorted(VALID)), st.binary(max_size=300), st.booleans())
def test_random_bytes(tmp_path, extension, data, after_header):
    _values_or_data_error(tmp_path, extension, VALID[extension][:128] + data if after_header else data)


UNCOMPRESSED = _mat(_rolls(NOTES), compress=False)
EDITS = st.lists(
    st.tuples(st.integers(0, 10**6), st.binary(min_size=0, max_size=4), st.integers(0, 4)),
    min_size=1,
    max_size=4,
)


@FUZZ
@given(st.sampled_from([*VALID, "uncompressed"]), EDITS)
def test_mutated_files(tmp_path, extension, edits):
    data = UNCOMPRESSED if extension == "uncompressed" else VALID[extension]
    for at, new, removed in edits:
        at %= len(data) + 1
        data = data[:at] + new + data[at + removed :]
    _values_or_data_error(tmp_path, ".mat" if extension == "uncompressed" else extension, data)


def test_jsb_is_the_same_in_both_formats(corpora):
    folder = corpora / "polymusic"
    files = [folder / "JSB_Chorales.mat", folder / "jsb-chorales-quarter.json"]
    if missing := [file.name for file in files if not file.is_file()]:
        pytest.skip(f"{', '.join(missing)} not in {folder}")
    mat, notes = (read_pianoroll(file) for file in files)
    _assert_same(notes, mat)
    assert [len(mat[split]) for split in SPLITS] == [229, 76, 77]
    assert [sum(map(len, mat[split])) for split in SPLITS] == [13807, 4602, 4725]


def test_nottingham(corpora):
    file = corpora / "polymusic" / "Nottingham.mat"
    if not file.is_file():
        pytest.skip(f"{file} is missing")
    rolls = read_pianoroll(file)
    assert [len(rolls[split]) for split in SPLITS] == [694, 173, 170]
    assert max(map(len, rolls["train"])) == 1788
