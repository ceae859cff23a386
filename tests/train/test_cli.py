import dataclasses
import errno
import os
import pathlib
import signal
import subprocess
import sys

import pytest

from rnnjax.cells import CELLS
from rnnjax.train import cli
from rnnjax.train.config import (
    GradientConfig,
    ModelConfig,
    TrainConfig,
    UsageError,
    derive,
    differences,
    to_dict,
    validate,
)

SIZES = ("input_size", "hidden_size", "output_size")
ROOT = pathlib.Path(__file__).parents[2]


@dataclasses.dataclass(frozen=True)
class Task:
    """path: the file."""

    path: str = ""
    length: int = 10
    one_hot: bool = False
    widths: tuple[int, ...] = (1, 2)
    noise: float | None = None
    period: int | None = 3


CellOptions = dataclasses.make_dataclass(
    "CellOptions",
    [
        (name, options, dataclasses.field(default_factory=options))
        for name, options in ((name, derive(cell, leave_out=SIZES)) for name, cell in CELLS.items())
    ],
)
TaskConfig = derive(Task)


@dataclasses.dataclass
class Config:
    cells: tuple[str, ...] = dataclasses.field(
        default=("elman", "jordan"), metadata={"choices": tuple(CELLS), "help": "the cells to compare"}
    )
    cell_options: CellOptions = dataclasses.field(default_factory=CellOptions)
    model: ModelConfig = dataclasses.field(default_factory=ModelConfig)
    task: TaskConfig = dataclasses.field(default_factory=TaskConfig)
    train: TrainConfig = dataclasses.field(default_factory=TrainConfig)


def get_config(variant, preset):
    config = Config()
    config.train.steps = {"quick": 100, "full": 10000}[preset]
    config.task.length = {"adding": 10, "music": 99}[variant]
    return config


DOC = "Which cell remembers?\n\n    Question: which.\n"
VARIANTS = ("adding", "music")


@pytest.fixture
def command(capsys):
    """Runs a command line in this process: (exit status, stderr, what `main` was called with)."""

    def run(*arguments, main=None):
        calls = []

        def record(config, workdir):
            calls.append((config, workdir))
            return main(config, workdir) if main else None

        try:
            parsed = cli.parse_or_exit(["prog", *arguments], get_config, doc=DOC, variants=VARIANTS)
            status = cli.call(record, parsed)
        except SystemExit as exit:
            status = exit.code
        return status, capsys.readouterr().err, *(calls[0] if calls else (None, None))

    return run


def changed(config, variant="adding", preset="quick"):
    return {field: new for field, _, new in differences(to_dict(get_config(variant, preset)), to_dict(config))}


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ([], {}),
        (["--config.model.hidden_size=3"], {"model.hidden_size": 3}),
        (["--config.model.hidden_size", "3"], {"model.hidden_size": 3}),
        (["-config.model.hidden_size=3"], {"model.hidden_size": 3}),
        (["--config.train.steps=1e3"], {"train.steps": 1000}),
        (["--config.train.seed=7", "--config.train.seed=7"], {"train.seed": 7}),
        (["--config.train.learning_rate=1"], {"train.learning_rate": 1.0}),
        (["--config.task.noise", "-1"], {"task.noise": -1.0}),
        (["--config.cells=lstm,gru"], {"cells": ["lstm", "gru"]}),
        (["--config.cells=lstm"], {"cells": ["lstm"]}),
        (["--config.cells", "lstm"], {"cells": ["lstm"]}),
        (["--config.cells=('lstm', 'gru')"], {"cells": ["lstm", "gru"]}),
        (["--config.cell_options.lstm.forget_bias=3"], {"cell_options.lstm.forget_bias": 3.0}),
        (["--config.cell_options.gru.gain=.5"], {"cell_options.gru.gain": 0.5}),
        (["--config.task.widths=3"], {"task.widths": [3]}),
        (["--config.task.widths=3,4,5"], {"task.widths": [3, 4, 5]}),
        (["--config.task.widths=()"], {"task.widths": []}),
        (["--config.task.path="], {}),
        (["--config.task.path=true"], {"task.path": "true"}),
        (["--config.task.path=a=b, 'c' --d"], {"task.path": "a=b, 'c' --d"}),
        (["--config.task.path=--flagfile=x"], {"task.path": "--flagfile=x"}),
        (["--config.task.noise=2"], {"task.noise": 2.0}),
        (["--config.task.noise=none"], {}),
        (["--config.task.period=none"], {"task.period": None}),
        (["--config.task.period=4"], {"task.period": 4}),
        *[([f"--config.task.one_hot={text}"], {"task.one_hot": True}) for text in ("yes", "true", "1", "True")],
        *[([f"--config.task.one_hot={text}"], {}) for text in ("no", "false", "0", "False")],
        (["--config.task.one_hot"], {"task.one_hot": True}),
        (["--noconfig.task.one_hot"], {}),
        (["--config.task.one_hot", "--debug"], {"task.one_hot": True}),
    ],
)
def test_overrides_reach_the_config_with_the_type_of_the_field(command, arguments, expected):
    status, err, config, workdir = command("--workdir=runs/x", *arguments)
    assert (status, err) == (0, "")
    assert changed(config) == expected
    assert workdir == pathlib.Path("runs/x")
    for group, default in ((config, Config()), (config.task, TaskConfig()), (config.train, TrainConfig())):
        for field in dataclasses.fields(group):
            value, usual = getattr(group, field.name), getattr(default, field.name)
            assert None in (value, usual) or type(value) is type(usual)


@pytest.mark.parametrize(
    ("arguments", "variant", "preset"),
    [
        ([], "adding", "quick"),
        (["--config=music"], "music", "quick"),
        (["--config", "music"], "music", "quick"),
        (["--config=music:full"], "music", "full"),
        (["--config=music", "--preset=full"], "music", "full"),
        (["--preset=full", "--config=music"], "music", "full"),
        (["--preset", "full"], "adding", "full"),
        (["--preset=full", "--config=music:full"], "music", "full"),
    ],
)
@pytest.mark.parametrize("first", [True, False])
def test_variant_and_preset_apply_before_overrides(command, arguments, variant, preset, first):
    override = ["--workdir=x", "--config.train.steps=50"]
    status, err, config, _ = command(*(override + arguments if first else arguments + override))
    assert (status, err) == (0, "")
    assert config.train.steps == 50
    config.train.steps = get_config(variant, preset).train.steps
    assert config == get_config(variant, preset)


def test_the_preset_sets_what_is_not_overridden(command):
    assert command("--workdir=x", "--preset=full")[2].train.steps == 10000


USAGE_ERRORS = {
    "--config.model.hiden_size=3": ("unknown flag --config.model.hiden_size: did you mean --config.model.hidden_size?"),
    "--hidden=3": "unknown flag --hidden: did you mean --config.model.hidden_size?",
    "--seed=3": "unknown flag --seed: did you mean --config.train.seed?",
    "--hidden_size=3": "unknown flag --hidden_size: did you mean --config.model.hidden_size?",
    "--config.learning_rate=3": ("unknown flag --config.learning_rate: did you mean --config.train.learning_rate?"),
    "--config.modle.hidden_size=3": (
        "unknown flag --config.modle.hidden_size: did you mean --config.model.hidden_size?"
    ),
    "--config.cell_options.lstmm.forget_bias=1": (
        "unknown flag --config.cell_options.lstmm.forget_bias: did you mean --config.cell_options.lstm.forget_bias?"
    ),
    "--config.cell_options.gruu.gain=1": (
        "unknown flag --config.cell_options.gruu.gain: did you mean --config.cell_options.gru.gain?"
    ),
    "--config.cells[0]=lstm": "unknown flag --config.cells[0]: did you mean --config.cells?",
    "--config.zzz=1": "unknown flag --config.zzz: --help lists all flags",
    "--config.=1": "unknown flag --config.: --help lists all flags",
    "--conf=music": "unknown flag --conf: did you mean --config?",
    "--work=x": "unknown flag --work: did you mean --workdir?",
    "--flagfile=x": "unknown flag --flagfile",
    "--undefok=hidden --hidden=3": "unknown flag --undefok",
    "--noconfig.task.one_hot=1": "unknown flag --noconfig.task.one_hot: did you mean --config.task.one_hot?",
    "--noconfig.train.steps": "unknown flag --noconfig.train.steps: did you mean --config.train.steps?",
    "--config.train=3": ("--config.train is a group of fields: set them one by one, such as --config.train.steps=100"),
    "--config.cell_options.lstm": "--config.cell_options.lstm is a group of fields",
    "--config.cells=elmann": (
        "--config.cells: unknown value 'elmann': did you mean elman? expected one of elman, jordan, lstm, gru"
    ),
    "--config.cells=": "--config.cells is '': expected a name, or several with commas between",
    "--config.cells=elman,,gru": "--config.cells is 'elman,,gru': expected a name, or several",
    "--config.train.optimizer=adan": (
        "--config.train.optimizer: unknown value 'adan': did you mean adam? expected one of adam, adamw, sgd, momentum"
    ),
    "--config.train.steps=abc": "--config.train.steps is 'abc': expected a whole number",
    "--config.train.steps=1.5": "--config.train.steps is '1.5': expected a whole number",
    "--config.train.steps=": "--config.train.steps is '': expected a whole number",
    "--config.train.steps": "--config.train.steps has no value: write --config.train.steps=VALUE",
    "--config.train.steps --debug": "--config.train.steps has no value",
    "--config.train.learning_rate=fast": "--config.train.learning_rate is 'fast': expected a finite number",
    "--config.train.learning_rate=nan": "--config.train.learning_rate is 'nan': expected a finite number",
    "--config.train.learning_rate=inf": "--config.train.learning_rate is 'inf': expected a finite number",
    "--config.task.noise=loud": "--config.task.noise is 'loud': expected a finite number or none",
    "--config.task.one_hot=maybe": "--config.task.one_hot is 'maybe': expected true or false",
    "--config.task.one_hot False": (
        "unexpected argument 'False': a value is joined to its flag, as in --config.task.one_hot=False"
    ),
    "music": "unexpected argument 'music': a value is joined to its flag, as in --flag=value",
    "-- --config.train.steps=50": "unexpected argument '--'",
    "--config.train.steps=50 60": ("unexpected argument '60': a value is joined to its flag, as in --flag=value"),
    "--config.train.seed=1 --config.train.seed=2": ("--config.train.seed is given twice, as '1' and as '2': keep one"),
    "--config.task.one_hot --noconfig.task.one_hot": "--config.task.one_hot is given twice",
    "--config=music --config=adding": "--config is given twice, as 'music' and as 'adding'",
    "--workdir=y": "--workdir is given twice, as 'x' and as 'y'",
    "--config=musik": ("--config: unknown value 'musik': did you mean music? expected one of adding, music"),
    "--config=": "--config: unknown value '': expected one of adding, music",
    "--config=:full": "--config: unknown value '': expected one of adding, music",
    "--config": "--config has no value",
    "--config=music:fulll": ("--config: unknown value 'fulll': did you mean full? expected one of quick, full"),
    "--preset=slow": "--preset: unknown value 'slow': expected one of quick, full",
    "--preset=": "--preset: unknown value '': expected one of quick, full",
    "--config=music:full --preset=quick": ("--config=music:full and --preset=quick differ: give one of them"),
    "--verbosity=loud": "flag --verbosity=loud: ",
}


@pytest.mark.parametrize("arguments", USAGE_ERRORS)
def test_a_usage_error_is_one_line_and_status_2(command, arguments):
    status, err, config, _ = command("--workdir=x", *arguments.split(" "))
    assert err.startswith(USAGE_ERRORS[arguments])
    assert (status, err.count("\n"), config) == (2, 1, None)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "--workdir is missing: say where the run may write, such as --workdir=runs/adding\n"),
        (["--workdir="], "--workdir is empty: say where"),
        (["--workdir= "], "--workdir is empty: say where"),
        (["--workdir"], "--workdir has no value"),
    ],
)
def test_the_workdir_is_required(command, arguments, message):
    status, err, config, _ = command(*arguments)
    assert err.startswith(message)
    assert (status, config) == (2, None)


def test_the_home_directory_is_expanded(command):
    assert command("--workdir=~/x")[3] == pathlib.Path.home() / "x"


@pytest.mark.parametrize("flag", ["workdir", "init_from"])
def test_the_home_directory_of_nobody_is_a_usage_error(command, flag):
    others = [] if flag == "workdir" else ["--workdir=x"]
    status, err, config, _ = command(*others, f"--{flag}=~nouser/x")
    assert err == f"--{flag} is ~nouser/x: there is no such user: give the path from / on\n"
    assert (status, config) == (2, None)


@pytest.mark.parametrize("returned", [None, 0, 3])
def test_main_returns_the_exit_status(command, returned):
    assert command("--workdir=x", main=lambda config, workdir: returned)[0] == (returned or 0)


class BadData(Exception):
    user_error = True


ERRORS = [
    (UsageError("--config.x is 3: expected 4"), 2, "--config.x is 3: expected 4\n"),
    (BadData("corpus.txt: line 3 is empty"), 1, "corpus.txt: line 3 is empty\n"),
    (OSError(errno.ENOSPC, "No space left on device"), 1, "No space left on device: (workdir x)\nfree some"),
    (OSError(errno.ENOSPC, "No space", "x/config.json"), 1, "No space: x/config.json\nfree some space"),
    (PermissionError(errno.EACCES, "Permission denied", "/srv/x"), 1, "Permission denied: /srv/x\ngive"),
    (NotADirectoryError(errno.ENOTDIR, "Not a directory", "a/b"), 1, "Not a directory: a/b\na part of"),
    (FileNotFoundError(errno.ENOENT, "No such file", "a"), 1, "No such file: a\ncheck the path"),
    (OSError("odd"), 1, "odd\nif this is no trouble of the machine, --debug"),
    (OSError(), 1, "OSError\n"),
]


@pytest.mark.parametrize(("error", "expected", "message"), ERRORS)
@pytest.mark.parametrize("debug", [False, True])
def test_what_the_user_can_mend_has_no_traceback_but_with_debug(command, error, expected, message, debug):
    def main(config, workdir):
        raise error

    status, err, *_ = command("--workdir=x", *["--debug"] * debug, main=main)
    assert status == expected
    assert ("Traceback" in err) == debug
    shown = err[err.rindex(message) :] if debug else err
    assert shown.startswith(message)
    assert shown.count("\n") <= 2


def test_a_bad_train_config_is_a_usage_error(command):
    status, err, *_ = command(
        "--workdir=x", "--config.train.log_every=7", main=lambda config, workdir: validate(config.train)
    )
    assert (status, err) == (
        2,
        "--config.train.log_every is 7: expected a multiple of steps_per_call (50)\n",
    )


def test_an_interrupt_says_what_is_kept(command, tmp_path):
    def main(config, workdir):
        raise KeyboardInterrupt

    status, err, *_ = command(f"--workdir={tmp_path}", main=main)
    assert status == 130
    assert err.startswith(f"interrupted: {tmp_path} keeps what is finished")
    assert command(f"--workdir={tmp_path}/no", main=main)[:2] == (
        130,
        "interrupted: nothing was saved yet\n",
    )


def test_a_signal_outside_of_a_training_ends_the_run_to_be_started_again(command, tmp_path):
    def main(config, workdir):
        os.kill(os.getpid(), signal.SIGTERM)
        raise AssertionError("went on")

    before = signal.getsignal(signal.SIGTERM)
    status, err, *_ = command(f"--workdir={tmp_path}", main=main)
    assert (status, err) == (75, "SIGTERM: ended outside of a training; the same command goes on from there\n")
    assert signal.getsignal(signal.SIGTERM) == before


def test_a_bug_is_a_bug(command):
    def main(config, workdir):
        raise ValueError("a bug")

    with pytest.raises(ValueError, match="a bug"):
        command("--workdir=x", main=main)


def test_a_config_that_is_returned_twice_is_not_touched():
    shared = Config()
    arguments = ["--workdir=x", "--config.task.period=none", "--config.train.seed=5"]
    parsed, _ = cli.parse(arguments, lambda variant, preset: shared, doc=DOC, variants=VARIANTS)
    assert (parsed.config.task.period, parsed.config.train.seed) == (None, 5)
    assert shared == Config()


@pytest.mark.parametrize("flag", ["--help", "-h", "-help", "--helpfull", "-?", "--helpshort"])
def test_help_shows_every_flag_with_default_type_and_help(capsys, flag, monkeypatch):
    monkeypatch.setenv("COLUMNS", "150")
    with pytest.raises(SystemExit) as exit:
        cli.parse(["--hidden=3", "--config=music", flag], get_config, doc=DOC, variants=VARIANTS)
    out = " ".join(capsys.readouterr().out.split())
    assert exit.value.code == 0
    assert out.startswith("Which cell remembers? Question: which. usage: ")
    for expected in (
        "variants: adding, music presets: quick, full",
        "--workdir=DIR str: the folder",
        "config: --config.cells=elman,jordan tuple of str: the cells to compare (one of elman, jordan,",
        "--config.cell_options.lstm.forget_bias=1.0 float: the initial value of b's forget part; the rest of",
        "config.model: --config.model.hidden_size=64 int: features of the recurrent state",
        "--config.task.path= str: the file",
        "--config.task.length=99 int",
        "--config.task.noise=none float or none",
        "--config.task.one_hot=false bool",
        "--config.train.steps=100 int: updates",
    ):
        assert expected in out
    assert "alsologtostderr" not in out


@pytest.mark.parametrize("columns", ["20", "80", "300"])
def test_help_never_glues_a_flag_to_its_text(capsys, columns, monkeypatch):
    monkeypatch.setenv("COLUMNS", columns)
    with pytest.raises(SystemExit):
        cli.parse(["--help"], get_config, doc=DOC, variants=VARIANTS)
    flags = [line for line in capsys.readouterr().out.splitlines() if line.startswith("  --")]
    assert len(flags) == len(cli.OWN) + len(list(cli.leaves(Config())))
    assert all("  " in line[2:] or line.count(" ") == 2 for line in flags)


def test_probe_asks_for_the_gradient_over_time_where_a_study_can():
    @dataclasses.dataclass
    class Probed(Config):
        probe: GradientConfig = dataclasses.field(default_factory=GradientConfig)

    def parse(*arguments, of=Probed):
        return cli.parse(["--workdir=x", *arguments], lambda variant, preset: of(), doc=DOC, variants=VARIANTS)[
            0
        ].config

    assert not parse().probe.on and parse("--probe").probe.on and not parse("--noprobe").probe.on
    with pytest.raises(UsageError, match="--probe is given, but this experiment measures what it measures without it"):
        parse("--probe", of=Config)


SCRIPT = """
import atexit, sys
sys.path[:0] = {path!r}
import test_cli
from absl import flags
before = set(flags.FLAGS)
from rnnjax.train import cli
assert set(flags.FLAGS) == before and not before & {{"workdir", "config", "preset", "debug"}}
from jax._src import xla_bridge
atexit.register(lambda: print("backends:", list(xla_bridge._backends)))
def main(config, workdir):
    if config.train.seed == 1:
        raise ZeroDivisionError("a bug")
    print(config.train.steps, workdir)
    return config.train.seed
cli.run(main, test_cli.get_config, doc=test_cli.DOC, variants=test_cli.VARIANTS)
"""


@pytest.mark.parametrize(
    ("arguments", "status", "out", "err"),
    [
        (["--help"], 0, "--config.train.steps=100", ""),
        (["--workdir=x", "--config.train.steps=1e3"], 0, "1000 x", ""),
        (["--workdir=x", "--alsologtostderr", "--config.train.seed=3"], 3, "100 x", ""),
        (["--workdir=x", "--config.train.sed=3"], 2, "", "unknown flag --config.train.sed: did you mean"),
        (["--workdir=x", "--config.train.seed=1"], 1, "", "Traceback"),
    ],
)
def test_run_in_a_process_of_its_own(arguments, status, out, err):
    script = SCRIPT.format(path=[str(ROOT), str(pathlib.Path(__file__).parent)])
    done = subprocess.run(
        [sys.executable, "-c", script, *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        env=os.environ | {"JAX_PLATFORMS": "cpu"},
    )
    assert done.returncode == status, done.stderr
    assert out in done.stdout
    assert "backends: []" in done.stdout
    assert done.stderr.startswith(err) if err else done.stderr == ""


def test_help_into_a_pipe_that_closes_is_silent():
    script = SCRIPT.format(path=[str(ROOT), str(pathlib.Path(__file__).parent)])
    read_end, write_end = os.pipe()
    os.close(read_end)
    with os.fdopen(write_end, "w") as closed:
        done = subprocess.run(
            [sys.executable, "-c", script, "--help"],
            stdout=closed,
            stderr=subprocess.PIPE,
            text=True,
            timeout=120,
            env=os.environ | {"JAX_PLATFORMS": "cpu"},
        )
    assert (done.returncode, done.stderr) == (0, "")


def _shell(redirection, *arguments, code=None):
    """(status, stderr) of a script of its own, with what the shell makes of its streams."""
    script = code or SCRIPT.format(path=[str(ROOT), str(pathlib.Path(__file__).parent)])
    command = ["sh", "-c", f'exec "$@" {redirection}', "sh", sys.executable, "-c", script, *arguments]
    environment = os.environ | {"JAX_PLATFORMS": "cpu"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, env=environment)
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize("redirection, reason", [(">&-", "Bad file descriptor"), (">/dev/full", "No space left on")])
def test_help_that_cannot_be_written_is_told_in_a_line(redirection, reason):
    status, _, err = _shell(redirection, "--help")
    assert status == 1 and err.startswith(f"standard output: cannot be written: {reason}") and err.count("\n") == 1


def test_messages_to_a_closed_stderr_are_not_among_the_results():
    assert _shell("2>&-", "--workdir=x", "--config.train.sed=3")[:2] == (2, "backends: []\n")
