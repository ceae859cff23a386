"""Time series of CSV and .ts files: the right values, and one clear error for everything else."""

import csv
import gzip

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rnnjax.data import DataError, read_series, read_ts

FUZZ = settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
STAMPED = "date,load,temp\n2016-07-01 00:00:00,5.5,-1\n2016-07-01 01:00:00,6,2e1\n"


def _read(folder, data, reader, **options):
    path = folder / "x"
    path.write_bytes(data if isinstance(data, bytes) else data.encode())
    return reader(path, **options)


def _refused(folder, data, reader, **options) -> str:
    with pytest.raises(DataError) as caught:
        _read(folder, data, reader, **options)
    message = str(caught.value)
    assert message.startswith(str(folder / "x")) and message.count("\n") == 1 and len(message) < 600
    return message


@pytest.mark.parametrize("change", [str, lambda text: "\ufeff" + text.replace("\n", "\r\n"), lambda t: t[:-1] + "\n\n"])
def test_a_series_with_time_stamps(tmp_path, change):
    for data in (change(STAMPED).encode(), gzip.compress(change(STAMPED).encode())):
        names, times, values = _read(tmp_path, data, read_series)
        assert names == ("load", "temp") and times == ("2016-07-01 00:00:00", "2016-07-01 01:00:00")
        assert values.dtype == np.float64 and np.array_equal(values, [[5.5, -1], [6, 20]])


def test_columns_are_chosen_in_their_order(tmp_path):
    names, times, values = _read(tmp_path, STAMPED, read_series, columns=("temp", "load"))
    assert names == ("temp", "load") and len(times) == 2 and np.array_equal(values, [[-1, 5.5], [20, 6]])
    # a gap in a column that is not read is of no matter
    assert _read(tmp_path, STAMPED.replace("2e1", "?"), read_series, columns=("load",)).values.tolist() == [[5.5], [6]]


def test_a_series_without_time_stamps_and_other_delimiters(tmp_path):
    for sign in ";\t":
        names, times, values = _read(tmp_path, f'"a (m, s)"{sign}b\n1{sign}2\n', read_series)
        assert names == ("a (m, s)", "b") and times == () and values.tolist() == [[1, 2]]
    assert _read(tmp_path, "load\n1\n2\n", read_series).values.tolist() == [[1], [2]]


@pytest.mark.parametrize(
    "data, options, message",
    [
        (STAMPED.replace("6,", "six,"), {}, "line 3, load: is 'six': expected a finite number"),
        (STAMPED.replace("5.5,", ","), {}, "line 2, load: is '': expected a finite number"),
        (STAMPED.replace("5.5,", "nan,"), {}, "line 2, load: is 'nan'"),
        (STAMPED.replace(",-1", ""), {}, "line 2: 2 fields: expected 3, as on line 1"),
        (STAMPED, {"columns": ("lod",)}, "no column 'lod'\ndid you mean 'load'?"),
        (STAMPED, {"columns": ("zzz",)}, "no column 'zzz'\nIt has ['date', 'load', 'temp']"),
        (STAMPED, {"columns": ("date",)}, "column 'date' holds time stamps"),
        (STAMPED.replace("temp", "load"), {}, "line 1: 'load' names two columns"),
        (
            STAMPED.partition("\n")[2].replace("2016-07-01 00:00:00", "1"),
            {},
            "line 1: is '1,5.5,-1': expected the names",
        ),
        ('x\n1\n"2\n3\n4\n5\n', {}, "line 3: not CSV: unexpected end of data\nMend its quotes"),
        ('x\n"1"2\n3\n', {}, "line 2: not CSV: ',' expected after '\"'"),
        ("x\n1\n1_000\n", {}, "line 3, x: is '1_000': expected a finite number"),
        ("a,b\n1_000,2\n", {}, "line 2, a: is '1_000': expected a finite number"),
        ("a,b\n", {}, "holds the names of the columns and no values"),
        ("a\nx\n", {}, "line 2: 'x' is the only value"),
        ("", {}, "the file is empty"),
    ],
    ids=range(16),
)
def test_series_errors_name_the_place(tmp_path, data, options, message):
    assert message in _refused(tmp_path, data, read_series, **options)


def test_lines_that_end_at_carriage_returns(tmp_path):
    assert _read(tmp_path, STAMPED.replace("\n", "\r"), read_series).values.tolist() == [[5.5, -1], [6, 20]]


def test_a_long_field_and_many_columns(tmp_path):
    stamp = "t" * 200_000
    assert _read(tmp_path, f"date,a\n{stamp},1\n", read_series).times == (stamp,)
    limit = csv.field_size_limit()
    names = [f"c{i}" for i in range(40_000)]  # by a search of the names for each name this takes half a minute
    found = _read(tmp_path, ",".join(names) + "\n" + ",".join(["1"] * len(names)), read_series)
    assert found.names == tuple(names) and csv.field_size_limit() == limit


@FUZZ
@given(st.one_of(st.binary(max_size=40), st.text('ab0123456789.,;\t\n\r"eE-+naif', max_size=60).map(str.encode)))
def test_random_series(tmp_path, data):
    try:
        names, times, values = _read(tmp_path, data, read_series)
        assert values.shape[1] == len(names) > 0 and len(times) in (0, len(values)) and np.isfinite(values).all()
    except DataError as error:
        assert str(error).count("\n") == 1 and len(str(error)) < 700


TS = """# of the archive
@problemName Vowels
@timeStamps false
@univariate false
@dimensions 2
@equalLength false
@classLabel true a b
@data
1,2,3:4,5,6:a

7.5:-8e1:b
"""


def test_series_of_many_lengths(tmp_path):
    for data in (
        TS,
        TS.replace("\n", "\r\n"),
        gzip.compress(TS.upper().replace(":A", ":a").replace(":B", ":b").replace(" A B", " a b").encode(), mtime=0),
    ):
        first, second = _read(tmp_path, data, read_ts)
        assert first.label == "a" and second.label == "b" and first.values.dtype == np.float32
        assert first.values.tolist() == [[1, 4], [2, 5], [3, 6]] and second.values.tolist() == [[7.5, -80]]


def test_series_without_a_class_and_without_headers(tmp_path):
    assert [case.label for case in _read(tmp_path, "@data\n1,2\n3\n", read_ts)] == ["", ""]
    assert _read(tmp_path, "@classLabel true\n@data\n1,2:anything\n", read_ts)[0].label == "anything"
    equal = "@univariate true\n@equalLength true\n@seriesLength 2\n@classLabel false\n@data\n1, 2\n3,4\n"
    assert [case.values.ravel().tolist() for case in _read(tmp_path, equal, read_ts)] == [[1, 2], [3, 4]]


@pytest.mark.parametrize(
    "data, message",
    [
        (TS.replace("2,3:", "?,3:"), "line 9, channel 1, value 2: is '?': a missing value\nFill the gap"),
        (TS.replace("5,6", ",6"), "line 9, channel 2, value 2: is '': a missing value"),
        (TS.replace("-8e1", "-8e99"), "line 11, channel 2, value 1: is '-8e99': expected a finite number"),
        (TS.replace("-8e1", "NaN"), "line 11, channel 2, value 1: is 'NaN': expected a finite number"),
        (TS.replace("5,6", "5"), "line 9: its channels have [3, 2] values"),
        (TS.replace(":b\n", ":c\n"), "line 11: class 'c': expected one of ['a', 'b']"),
        (TS.replace(":b\n", "\n"), "line 11: class '-8e1': expected one of"),
        (TS.replace("7.5:", ""), "line 11: a series of shape [1, 1]: expected [any length, 2]"),
        (TS.replace("ions 2", "ions 3"), "line 9: a series of shape [3, 2]: expected [any length, 3]"),
        (TS.replace("@equalLength false", "@equalLength true"), "line 11: a series of shape [1, 2]: expected [3, 2]"),
        (TS.replace("@equalLength false", "@equalLength true\n@seriesLength 4"), "line 10: a series of shape [3, 2]"),
        (TS.replace("@timeStamps false", "@timeStamps true"), "line 3: time stamps in the series are not read"),
        (TS.replace("@univariate false", "@univariate maybe"), "line 4: @univariate says ['maybe']: expected true"),
        (TS.replace("ions 2", "ions two"), "line 5: @dimensions says ['two']: expected a whole number"),
        (TS.replace("@data", ""), "line 9: '1,2,3:4,5,6:a' before @data"),
        ("@problemName x\n", "no line @data"),
        (TS[: TS.index("1,2")], "line 8: no series follows @data"),
        (b"\xff\xfe", "line 1"),
        ("", "the file is empty"),
    ],
    ids=range(19),
)
def test_ts_errors_name_the_place(tmp_path, data, message):
    assert message in _refused(tmp_path, data, read_ts)


EDITS = st.lists(st.tuples(st.integers(0, len(TS)), st.text(":,?@1e9\nab ", max_size=3), st.integers(0, 9)), max_size=4)


@FUZZ
@given(st.one_of(st.binary(max_size=30).map(lambda data: b"@data\n" + data), EDITS))
def test_damaged_ts(tmp_path, data):
    if isinstance(data, list):
        text = TS
        for at, new, removed in data:
            text = text[:at] + new + text[at + removed :]
        data = text.encode()
    try:
        for case in _read(tmp_path, data, read_ts):
            assert case.values.size and case.values.ndim == 2 and np.isfinite(case.values).all()
    except DataError as error:
        assert str(error).count("\n") == 1 and len(str(error)) < 700


def test_underscores_are_no_part_of_a_number(tmp_path):
    data = "@problemName x\n@classLabel false\n@data\n1,2\n1,1_000\n"
    assert "line 5, channel 1, value 2: is '1_000'" in _refused(tmp_path, data, read_ts)
