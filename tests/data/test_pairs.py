"""Sequences that belong together, from tables, from two files and from a dictionary."""

import csv
import gzip

import pytest

from rnnjax.data import DataError, Pair, read_cmudict, read_pairs, read_parallel

PAIRS = [Pair(("two", "men"), ("zwei", "M\u00e4nner")), Pair(("a", '"', "b"), ("ein", "b,c"))]


def _put(folder, data: str | bytes, name="x.tsv"):
    path = folder / name
    path.write_bytes(data if isinstance(data, bytes) else data.encode())
    return path


def _refused(read, *args, **options) -> str:
    with pytest.raises(DataError) as caught:
        read(*args, **options)
    message = str(caught.value)
    assert message.count("\n") == 1 and len(message) < 600
    return message


TABS = 'two men\tzwei M\u00e4nner\tCC-BY\na " b\tein b,c\n'
COMMAS = 'two  men,zwei M\u00e4nner\n"a "" b","ein b,c"\n'


@pytest.mark.parametrize(
    "data",
    [
        TABS,
        TABS.encode("utf-8-sig").replace(b"\n", b"\r\n").strip(),
        gzip.compress(TABS.encode(), mtime=0),
        "\n" + TABS.replace("\n", "\n\n\t\n"),
        COMMAS,
        COMMAS.replace("\n", "\r\n"),
        COMMAS.replace("ein b", "ein\nb"),  # a quoted column may hold the end of a line, which is no space
    ],
    ids=["tabs", "BOM and CRLF", "gz", "blank rows", "commas", "commas and CRLF", "quoted newline"],
)
def test_tables(tmp_path, data):
    found = read_pairs(_put(tmp_path, data))
    assert [Pair(s, tuple(" ".join(t).replace("\n", " ").split(" "))) for s, t in found] == PAIRS


def test_columns_and_delimiters(tmp_path):
    path = _put(tmp_path, "1;x,y;z;a b\n2;u;v;c\n")
    assert read_pairs(path, source=3, target=1, delimiter=";") == [Pair(("a", "b"), ("x,y",)), Pair(("c",), ("u",))]
    assert "line 1: 2 of at least 4 columns: ['1;x', 'y;z;a b']" in _refused(read_pairs, path, source=3)
    for options in ({"source": -1}, {"delimiter": ""}, {"delimiter": ";;"}, {"delimiter": "\n"}, {"delimiter": '"'}):
        with pytest.raises(ValueError, match=f"{next(iter(options))} is .*: expected"):
            read_pairs(path, **options)


def test_tabs_leave_quotes_alone(tmp_path):
    path = _put(tmp_path, '"Go!\tLos!\n"Run," he said\t"Lauf"\n')
    assert read_pairs(path) == [Pair(('"Go!',), ("Los!",)), Pair(('"Run,"', "he", "said"), ('"Lauf"',))]


@pytest.mark.parametrize(
    "data, message",
    [
        ("a\tb\nc\n", "x.tsv: line 2: 1 of at least 2 columns: ['c']"),
        ("a\tb\n\n\tc\n", "x.tsv: line 3: no word in column 0: ['', 'c']"),
        ("a\tb\nc\t \td\n", "x.tsv: line 2: no word in column 1"),
        ('a,b\n"c,d\ne,f\n', "x.tsv: line 3: unexpected end of data"),
        ('a,b\n"c"d,e\n', "x.tsv: line 2: ',' expected after '\"'"),
        ("a,b\nc\rd,e\n", "x.tsv: line 2: new-line character seen in unquoted field"),
        ("a\t\u00e4\n".encode("latin-1"), "x.tsv: line 1: b'\\xe4'"),
        ("\n \n", "x.tsv: the file is empty"),
        (gzip.compress(TABS.encode(), mtime=0)[:-3], "x.tsv: its gzip data are damaged"),
    ],
)
def test_tables_that_are_none(tmp_path, data, message):
    assert message in _refused(read_pairs, _put(tmp_path, data))


def test_a_field_longer_than_the_csv_module_takes(tmp_path):
    limit = csv.field_size_limit()
    (pair,) = read_pairs(_put(tmp_path, "word " * 100_000 + "\tx"))
    assert len(pair.source) == 100_000 and csv.field_size_limit() == limit


def _parallel(folder, source, target):
    return _put(folder, source, "x.en"), _put(folder, target, "x.de.gz")


def test_parallel_files(tmp_path):
    source, target = 'two men\r\n\r\na " b\r\n', "zwei M\u00e4nner\n \nein b,c\n\n\n"
    assert read_parallel(*_parallel(tmp_path, source, target)) == PAIRS
    assert read_parallel(*_parallel(tmp_path, source, gzip.compress(target.encode(), mtime=0))) == PAIRS


@pytest.mark.parametrize(
    "source, target, message",
    [
        ("a\nb\n", "x\ny\nz\n", "x.de.gz: 3 lines, but 2 in "),
        ("a\nb\nc\n", "x\n", "x.de.gz: 1 lines, but 3 in "),
        ("a\nb\nc\n", "x\n\nz\n", "x.de.gz: line 2: is blank, but 'b' in x.en"),
        ("a\n \nc\n", "x\ny\nz\n", "x.en: line 2: is blank, but 'y' in x.de.gz"),
        ("\n", "x\n", "x.en: the file is empty"),
        ("a\n", "\xe4".encode("latin-1"), "x.de.gz: line 1: b'\\xe4'"),
    ],
)
def test_parallel_files_that_are_not(tmp_path, source, target, message):
    assert message in _refused(read_parallel, *_parallel(tmp_path, source, target))


DICT = ";;; old comment\n# comment\nA  AH0\na(2) EY1 # letter\n'bout B AW1 T\n\n"


def test_the_dictionary(tmp_path):
    path = _put(tmp_path, DICT)
    assert read_cmudict(path) == [
        Pair(("a",), ("AH",)),
        Pair(("a",), ("EY",)),
        Pair(tuple("'bout"), ("B", "AW", "T")),
    ]
    assert [pair.target[-1] for pair in read_cmudict(path, stress=True)] == ["AH0", "EY1", "T"]
    assert "x.tsv: line 7: a word and no phones: 'zoo # animals'" in _refused(
        read_cmudict, _put(tmp_path, DICT + "zoo # animals")
    )
    assert "x.tsv: no entry" in _refused(read_cmudict, _put(tmp_path, "# nothing\n"))


@pytest.mark.parametrize("space", ["\u00a0", " \u3000 ", "\x0c"])
def test_a_line_of_nothing_but_space_is_no_sentence(tmp_path, space):
    assert read_pairs(_put(tmp_path, f"a\tb\n{space}\t{space}\nc\td\n")) == [Pair(("a",), ("b",)), Pair(("c",), ("d",))]
    message = _refused(read_pairs, _put(tmp_path, f"a\tb\nc\t{space}\n"))
    assert "x.tsv: line 2: no word in column 1: ['c', " in message
    paths = [_put(tmp_path, f"a\n{space}\nc\n{space}\n", "x.en"), _put(tmp_path, f"b\n{space}\nd\n", "x.de")]
    assert read_parallel(*paths) == [Pair(("a",), ("b",)), Pair(("c",), ("d",))]
    paths[1].write_text("b\nB\nd\n")
    assert "x.en: line 2: is blank, but 'B' in x.de" in _refused(read_parallel, *paths)


def test_targets_that_hold_what_is_reserved(tmp_path):
    path = _put(tmp_path, "<s>\ta\nb\tx </s> <s>\n")
    assert read_pairs(path)[1].target == ("x", "</s>", "<s>")
    message = _refused(read_pairs, path, reserved=("<s>", "</s>"))
    assert "line 2: the target holds '</s>', which is reserved: 'x </s> <s>'\nWrite it in another way" in message
    path = _put(tmp_path, "a AH0\nb B <s>\n")
    assert "line 2: the target holds '<s>', which" in _refused(read_cmudict, path, reserved=("<s>",))
