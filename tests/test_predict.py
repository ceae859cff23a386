"""The command that asks trained models: lines in and out, which model answers, and what wrong commands are told."""

import dataclasses
import io
import json
import os
import pathlib
import pty
import select
import subprocess
import sys
import types

import pytest

from rnnjax import predict
from rnnjax.answers import Continuation, Slots, words_of
from rnnjax.data.errors import shown
from rnnjax.text import Vocabulary
from rnnjax.train import cli
from rnnjax.train.config import UsageError

ROOT = pathlib.Path(__file__).parents[1]


@dataclasses.dataclass
class _Config:
    size: int = 1


def _study(**more):
    """A module as studies are."""
    return types.SimpleNamespace(VARIANTS=("one",), get_config=lambda variant, preset: _Config(), **more)


def _tagger(config, workdir, entry):
    def answer(line):
        words = words_of(line)
        slots = [f"{entry}{config.size}"] * len(words)
        return Slots(words, slots, tuple(word for word in words if word == "Xanadu"))

    return answer


def _writer(config, workdir, entry, *, temperature, length, seed):
    return lambda line: Continuation([f"{line}{temperature:g}"] * length + [str(seed)])


@pytest.fixture
def runs(tmp_path, monkeypatch):
    """run(study, entries): a folder as a finished study leaves it, of config size=5 and entries {name: best score}."""

    def run(predictor, entries, *, unfinished=(), folder="run"):
        module = _study(predictor=predictor) if predictor else _study()
        monkeypatch.setitem(sys.modules, "experiments.made_up", module)
        monkeypatch.setattr(predict, "standings", lambda place: [entries[place.name]])
        workdir = tmp_path / folder
        for name in (*entries, *unfinished):
            (workdir / name / "checkpoints").mkdir(parents=True)
        for name in entries:
            (workdir / name / "summary.json").write_text("{}")
        (workdir / "config.json").write_text(json.dumps({"experiment": "made_up", "config": {"size": 5}}))
        return workdir

    return run


@pytest.fixture
def ask(capfd, monkeypatch):
    """ask(*arguments, given=bytes): (status, stdout, stderr) of a command with that on its standard input."""

    def ask(*arguments, given=b""):
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(given)))
        try:
            parsed = cli.read_or_exit(predict.parse, ["predict", *map(str, arguments)])
            status = cli.call(predict.main, parsed)
        except SystemExit as exit:
            status = exit.code
        return status, *capfd.readouterr()

    return ask


def test_lines_of_a_pipe_are_answered(runs, ask):
    workdir = runs(_tagger, {"gru": 0.1})
    given = "﻿to Taipei\r\n\n from Xanadu\nend".encode()
    status, out, err = ask(f"--workdir={workdir}", given=given)
    assert status == 0
    assert out == "to\tgru5\nTaipei\tgru5\n\n\nfrom\tgru5\nXanadu\tgru5\n\nend\tgru5\n\n"
    assert err == "line 2: the line is empty: expected words\nline 3: not known: 'Xanadu'\n"


def test_lines_of_a_file_are_answered(runs, ask, tmp_path):
    import gzip

    workdir, path = runs(_tagger, {"gru": 0.1}), tmp_path / "lines.gz"
    path.write_bytes(gzip.compress(b"a b\nc\n", mtime=0))
    assert ask(f"--workdir={workdir}", "--input", path) == (0, "a\tgru5\nb\tgru5\n\nc\tgru5\n\n", "")
    status, _, err = ask(f"--workdir={workdir}", f"--input={tmp_path}/none")
    assert status == 1 and err.startswith(f"{tmp_path}/none: ") and len(err.splitlines()) == 2
    status, out, err = ask(f"--workdir={workdir}", given=b"fine\n\xff bad\n")
    assert status == 1 and out == "fine\tgru5\n\n"
    assert err == "standard input: line 2: b'\\xff' is not utf-8\nGive the text in UTF-8.\n"


def test_the_best_model_answers_unless_another_is_asked_for(runs, ask):
    workdir = runs(_tagger, {"elman": 0.3, "lstm": 0.1, "gru": 0.2}, unfinished=["jordan"])
    status, out, err = ask(f"--workdir={workdir}", given=b"a")
    assert (status, out) == (0, "a\tlstm5\n\n")
    assert err == "lstm answers, the best of elman, gru, lstm: --model=NAME asks another\n"
    assert ask(f"--workdir={workdir}", "--model=gru", given=b"a") == (0, "a\tgru5\n\n", "")
    assert ask(f"--workdir={workdir}/elman", given=b"a") == (0, "a\telman5\n\n", "")
    assert ask(f"--workdir={workdir}/elman", "--model=elman", given=b"a") == (0, "a\telman5\n\n", "")
    for arguments, message in (
        ([f"--workdir={workdir}", "--model=jordan"], f"the training of jordan in {workdir} is not finished: run the"),
        (
            [f"--workdir={workdir}", "--model=lst"],
            f"there is no model lst in {workdir}: did you mean lstm? there are elm",
        ),
        ([f"--workdir={workdir}/elman", "--model=gru"], f"--model is gru, but {workdir}/elman is the folder of one"),
    ):
        status, out, err = ask(*arguments)
        assert (status, out) == (2, "") and err.startswith(message) and len(err.splitlines()) == 1


def test_a_text_goes_on_as_it_is_asked_to(runs, ask):
    workdir = runs(_writer, {"gru": 0.1})
    assert ask(f"--workdir={workdir}", "--length=2", "--temperature=0", "--seed=9", given=b"x\n\n")[:2] == (
        0,
        "x0x09\n009\n",
    )
    assert ask(f"--workdir={workdir}", "--length=1", given=b"x")[1] == "x0.80\n"
    tags = runs(_tagger, {"gru": 0.1}, folder="other")
    status, _, err = ask(f"--workdir={tags}", "--seed=9")
    assert status == 2
    assert err == f"--seed is given, but the models of {tags} don't go on with a text: leave it out\n"


def test_what_is_no_finished_run_is_told(runs, ask, tmp_path):
    (tmp_path / "empty").mkdir()
    (tmp_path / "torn").mkdir()
    (tmp_path / "torn" / "config.json").write_text('{"experiment": 3}')
    (tmp_path / "far").mkdir()
    (tmp_path / "far" / "config.json").write_text('{"experiment": "of_elsewhere", "config": {}}')
    begun, mute = runs(_tagger, {}, unfinished=["gru"]), None
    for folder, message in (
        (tmp_path / "none", "it is not there: give the --workdir of a study that has been run"),
        (tmp_path / "empty", "it holds no run (no config.json): give the --workdir of a study that has been run"),
        (tmp_path / "torn", "config.json is damaged or not a config that a run wrote: give another --workdir"),
        (tmp_path / "far", "which can't be imported here (No module named 'experiments.of_elsewhere'): start this in"),
        (begun, "holds no finished model: run the study again with the same --workdir"),
    ):
        status, out, err = ask(f"--workdir={folder}")
        assert (status, out) == (2, "") and message in err and len(err.splitlines()) == 1
    mute = runs(None, {"gru": 0.1}, folder="mute")
    assert "whose models answer no lines: it has no predictor" in ask(f"--workdir={mute}")[2]
    (begun / "config.json").write_text('{"experiment": "made_up", "config": {"sizes": 5}}')
    (begun / "gru" / "summary.json").write_text("{}")
    runs(_tagger, {"gru": 0.1}, folder="again")
    assert "config.size is not in both config.json and the study" in ask(f"--workdir={begun}")[2]


@pytest.mark.parametrize("name", ["", "..", "..evil", "os.", "a.b.c", "a b", "../x", "é", "a\n", "x" * 101])
def test_what_is_no_name_of_a_study_is_refused(runs, ask, name):
    workdir = runs(_tagger, {"gru": 0.1})
    (workdir / "config.json").write_text(json.dumps({"experiment": name, "config": {"size": 5}}))
    status, out, err = ask(f"--workdir={workdir}", given=b"a")
    assert (status, out) == (2, "") and len(err.splitlines()) == 1
    assert err.startswith(f"{workdir}/config.json: experiment is {shown(name)}: expected NAME or PACKAGE.NAME")


@pytest.mark.parametrize(
    "source, message",
    [
        ("VARIANTS = ()\ndef get_config(): pass\n", "whose models answer no lines: it has no predictor"),
        ("def predictor(): pass\ndef get_config(): pass\n", "whose models answer no lines: it has no VARIANTS"),
        ("predictor = VARIANTS = 1\n", "whose models answer no lines: it has no get_config"),
        ("if True:\n    def predictor(): pass\n", "whose models answer no lines: it has no predictor"),
        ("def predictor(:\n", "is no Python that can be read"),
        (
            None,
            "which can't be imported here (No module named 'evil.study'): start this in the folder that holds evil/",
        ),
    ],
)
def test_what_is_no_study_is_not_imported(runs, ask, tmp_path, monkeypatch, source, message):
    """Neither the module that a file names nor its package."""
    (tmp_path / "evil").mkdir()
    leaves_a_mark = f"open({str(tmp_path / 'imported')!r}, 'w')\n"
    (tmp_path / "evil" / "__init__.py").write_text(leaves_a_mark)
    if source is not None:
        (tmp_path / "evil" / "study.py").write_text(leaves_a_mark + source)
    monkeypatch.syspath_prepend(tmp_path)
    workdir = runs(_tagger, {"gru": 0.1})
    for name in ("evil.study", "os.path", "antigravity.x", "os"):
        (workdir / "config.json").write_text(json.dumps({"experiment": name, "config": {"size": 5}}))
        status, out, err = ask(f"--workdir={workdir}", given=b"a")
        assert (status, out) == (2, "") and len(err.splitlines()) == 1
        assert message in err or name != "evil.study"
    assert not (tmp_path / "imported").exists()
    assert "evil" not in sys.modules and "antigravity" not in sys.modules


@pytest.mark.parametrize("value", ["5", 5.5, True, None, [5], float("nan")])
def test_values_of_a_damaged_config_are_told_by_file_and_field(runs, ask, value):
    workdir = runs(_tagger, {"gru": 0.1})
    (workdir / "config.json").write_text(json.dumps({"experiment": "made_up", "config": {"size": value}}))
    status, out, err = ask(f"--workdir={workdir}", given=b"a")
    assert (status, out) == (2, "")
    assert err == f"{workdir}/config.json: config.size is {value!r}: expected a whole number\n"


def test_a_config_that_the_study_refuses_is_told_by_file(runs, ask, monkeypatch):
    workdir = runs(_tagger, {"gru": 0.1})

    def check(config):
        raise UsageError(f"--config.size is {config.size}: expected at least 9")

    monkeypatch.setattr(sys.modules["experiments.made_up"], "check", check, raising=False)
    message = f"{workdir}/config.json: --config.size is 5: expected at least 9\n"
    assert ask(f"--workdir={workdir}", given=b"a") == (2, "", message)


@pytest.mark.parametrize("text", ["", "{", "[]", "3"])
def test_a_damaged_summary_is_told(runs, ask, text):
    workdir = runs(_tagger, {"gru": 0.1})
    (workdir / "gru" / "summary.json").write_text(text)
    status, out, err = ask(f"--workdir={workdir}", given=b"a")
    assert (status, out) == (1, "") and err.startswith(f"{workdir}/gru/summary.json: ") and len(err.splitlines()) == 2


def test_a_word_that_a_vocabulary_without_others_has_not_is_told_by_line(runs, ask):
    def predictor(config, workdir, entry):
        words = Vocabulary(("a", "b"))
        return lambda line: Slots(words.decode(words.encode(line.split())), ["O"] * len(line.split()))

    status, out, err = ask(f"--workdir={runs(predictor, {'gru': 0.1})}", given=b"a b\nb x\na\n")
    assert (status, out) == (0, "a\tO\nb\tO\n\n\na\tO\n\n")
    assert err.startswith("line 2: word 1 is 'x', not one of the 2 known ones") and len(err.splitlines()) == 1


def test_the_home_folder_is_that_of_a_user_or_refused(runs, ask, tmp_path, monkeypatch):
    runs(_tagger, {"gru": 0.1})
    (tmp_path / "lines.txt").write_text("a\n")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert ask("--workdir=~/run", "--input=~/lines.txt") == (0, "a\tgru5\n\n", "")
    for flag, arguments in (("workdir", []), ("input", ["--workdir=~/run"])):
        message = f"--{flag} is ~nouser/x: there is no such user: give the path from / on\n"
        assert ask(*arguments, f"--{flag}=~nouser/x") == (2, "", message)


@pytest.mark.parametrize(
    "arguments, message",
    [
        ([], "--workdir is missing: say which run answers, such as --workdir=runs/slot_filling"),
        (["--workdir= "], "--workdir is missing"),
        (["--workdir=x", "--lenth=3"], "unknown flag --lenth: did you mean --length?"),
        (["--workdir=x", "--length=0"], "--length is 0: expected at least 1"),
        (["--workdir=x", "--temperature=-1"], "--temperature is -1.0: expected at least 0"),
        (["--workdir=x", "--temperature=hot"], "--temperature is 'hot': expected a finite number"),
        (["--workdir=x", "--seed=4294967296"], "--seed is 4294967296: expected at most 4294967295"),
        (["--workdir=x", "--model=a", "--model=b"], "--model is given twice"),
    ],
)
def test_a_wrong_command_is_told_in_a_line(ask, arguments, message):
    status, out, err = ask(*arguments)
    assert (status, out) == (2, "") and err.startswith(message) and len(err.splitlines()) == 1


def test_the_help_tells_every_flag(ask):
    status, out, err = ask("--help")
    assert (status, err) == (0, "")
    for flag in ("workdir=DIR", "model=", "input=", "temperature=0.8", "length=300", "seed=0", "debug=false"):
        assert f"  --{flag}" in out


def test_on_a_terminal_it_asks_until_the_end_of_the_input(tmp_path):
    """As a process of its own, on a terminal made for it: a prompt, an answer in colour, and Ctrl-D ends."""
    package = tmp_path / "made"
    package.mkdir()
    (package / "up.py").write_text(
        "import dataclasses\n"
        "from rnnjax.answers import Slots, words_of\n"
        "@dataclasses.dataclass\n"
        "class Config:\n    pass\n"
        "VARIANTS = ('one',)\n"
        "def get_config(variant, preset):\n    return Config()\n"
        "def predictor(config, workdir, entry):\n"
        "    return lambda line: Slots(words_of(line), ['B-city'] * len(words_of(line)))\n"
    )
    workdir = tmp_path / "run"
    (workdir / "gru" / "checkpoints").mkdir(parents=True)
    (workdir / "gru" / "summary.json").write_text("{}")
    (workdir / "config.json").write_text('{"experiment": "made.up", "config": {}}')
    ours, theirs = pty.openpty()
    environment = os.environ | {"PYTHONPATH": f"{tmp_path}:{ROOT}", "TERM": "xterm", "COLUMNS": "80"}
    environment.pop("NO_COLOR", None)
    command = [sys.executable, "-m", "rnnjax.predict", f"--workdir={workdir}"]
    process = subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, env=environment, cwd=tmp_path)
    os.close(theirs)
    try:
        _read_until(ours, "> ")
        os.write(ours, b"Taipei\n")
        text = _read_until(ours, "> ")
        os.write(ours, b"\x04")  # Ctrl-D
        assert process.wait(120) == 0
    finally:
        process.kill()
        os.close(ours)
    assert "B-city" in text and "\x1b[36m" in text


STUDY = """
import dataclasses
from rnnjax.answers import Slots, words_of
@dataclasses.dataclass
class Config:
    pass
VARIANTS = ('one',)
def get_config(variant, preset):
    return Config()
def predictor(config, workdir, entry):
    return lambda line: Slots(words_of(line), ['Ä'] * len(words_of(line)))
"""


@pytest.mark.parametrize(
    "redirection, status, out, message",
    [
        ("<&-", 2, "", "standard input is closed: pipe lines in, or give a file of lines as --input\n"),
        (">&-", 2, "", "standard output is closed: send the answers to a file or a pipe\n"),
        (">/dev/full", 1, "", "standard output: cannot be written: No space left on device: send it to a file or a"),
        ("<&- >/dev/full", 2, "", "standard input is closed: "),
        ("0>FOLDER/written", 1, "", "standard input: cannot be read: Bad file descriptor\nPipe lines in"),
        ("2>&-", 0, "a\tÄ\n\n\n", ""),
    ],
)
def test_streams_that_are_closed_or_full_are_told_in_a_line(tmp_path, redirection, status, out, message):
    done = _in_a_shell(tmp_path, redirection)
    assert (done.returncode, done.stdout) == (status, out)
    assert done.stderr.startswith(message) and len(done.stderr.splitlines()) <= 2 and "Traceback" not in done.stderr
    assert message or not done.stderr


def test_letters_that_the_output_has_not_are_told_in_a_line(tmp_path):
    done = _in_a_shell(tmp_path, "", PYTHONIOENCODING="ascii", PYTHONUTF8="0")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "standard output: '\\xc4' can't be written as ascii: set PYTHONIOENCODING=utf-8\n"


def _in_a_shell(folder, redirection, **environment):
    """The command as a process of its own, asked "a" and an empty line, with what a shell makes of its streams."""
    (folder / "made").mkdir()
    (folder / "made" / "up.py").write_text(STUDY, encoding="utf-8")
    (folder / "run" / "gru" / "checkpoints").mkdir(parents=True)
    (folder / "run" / "gru" / "summary.json").write_text("{}")
    (folder / "run" / "config.json").write_text('{"experiment": "made.up", "config": {}}')
    ask = [sys.executable, "-m", "rnnjax.predict", f"--workdir={folder}/run"]
    command = ["sh", "-c", f'exec "$@" {redirection.replace("FOLDER", str(folder))}', "sh", *ask]
    environment = os.environ | {"PYTHONPATH": f"{folder}:{ROOT}", "PYTHONIOENCODING": "utf-8"} | environment
    return subprocess.run(
        command, input="a\n\n", capture_output=True, encoding="utf-8", timeout=120, env=environment, cwd=folder
    )


def _read_until(terminal, wanted):
    """What comes from a terminal, up to a text that has to come."""
    text = ""
    while not text.endswith(wanted):
        ready, _, _ = select.select([terminal], [], [], 120)
        assert ready, text
        text += os.read(terminal, 4096).decode()
    return text
