import pathlib
import subprocess
import sys

import pytest

from launch import flags, local, slurm, status
from rnnjax.train import cli
from rnnjax.train.config import UsageError

ROOT = pathlib.Path(__file__).parents[2]
COUNTING = "tests.launch.counting"


def parse(*arguments, own=local.OWN):
    return flags.parse([COUNTING, "--workdir=x", *arguments], own, "doc")[0]


def test_what_is_given_is_read_with_the_type_of_the_field():
    command = parse("--workers=3", "--config=down:full", "--config.widths=1,2", "--sweep.steps=1e1,2", "--debug")
    request = command.config
    assert request.config == "down:full"
    assert request.base == {"config.widths": "1,2"}
    assert request.overrides == [{"steps": 10}, {"steps": 2}]
    assert request.options == {"workers": 3}
    assert (command.workdir, command.debug) == (pathlib.Path.cwd() / "x", True)


@pytest.mark.parametrize("given", [["--preset=full"], ["--preset", "full"], ["--config=up:full"]])
def test_the_preset_is_that_of_every_run(given):
    assert parse("--sweep.label=a", *given).config.config == "up:full"


def test_sweeps_are_multiplied_in_the_order_in_which_they_are_given():
    request = parse("--sweep.steps=1,2", "--sweep.label=a,b").config
    assert [tuple(one.values()) for one in request.overrides] == [(1, "a"), (1, "b"), (2, "a"), (2, "b")]
    request = parse("--sweep.label=a,b", "--sweep=twins").config
    assert request.overrides[:2] == [{"label": "a"}, {"label": "a", "steps": 3, "options.seconds": 0.0}]
    assert len(request.overrides) == 6


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("1,2", [(1,), (2,)]),
        ("(1,2),3", [(1, 2), (3,)]),
        ("(1,2)", [(1, 2)]),
        ("[1,2],(3),()", [(1, 2), (3,), ()]),
    ],
)
def test_values_that_are_several_stand_in_brackets(text, values):
    assert [one["widths"] for one in parse(f"--sweep.widths={text}").config.overrides] == values


ERRORS = {
    "": "nothing to sweep: give --sweep.FIELD=VALUE,VALUE or --sweep=twins",
    "--sweep.stepz=1": "unknown flag --sweep.stepz: did you mean --sweep.steps?",
    "--sweep.options.secondes=1": "unknown flag --sweep.options.secondes: did you mean --sweep.options.seconds?",
    "--sweep.steps=1,x": "--sweep.steps is 'x': expected a whole number",
    "--sweep.steps=1,": "--sweep.steps is '': expected a whole number",
    "--sweep.steps=": "--sweep.steps is '': expected a whole number",
    "--sweep.steps": "--sweep.steps has no value",
    "--sweep.steps=1 --sweep.steps=2": "--sweep.steps is given twice",
    "--sweep.options.how=rais": "--sweep.options.how: unknown value 'rais': did you mean raise?",
    "--sweep=twin": "--sweep: unknown value 'twin': did you mean twins?",
    "--sweep=empty": f"--sweep=empty of {COUNTING} is empty",
    "--sweep=wrong": f"--sweep=wrong: get_sweep of {COUNTING} gives no list of dicts",
    "--sweep=twins --sweep.steps=1": "two sweeps set steps: keep one",
    "--worker=2 --sweep.steps=1": "unknown flag --worker: did you mean --workers?",
    "--workers=two --sweep.steps=1": "--workers is 'two': expected a whole number",
    "--config=upp --sweep.steps=1": "--config: unknown value 'upp': did you mean up?",
    "--config.stepz=1 --sweep.steps=1": "unknown flag --config.stepz: did you mean --config.steps?",
    "--config.steps=x --sweep.label=1": "--config.steps is 'x': expected a whole number",
    "more --sweep.steps=1": "unexpected argument 'more'",
    "--workdir=y --sweep.steps=1": "--workdir is given twice",
}


@pytest.mark.parametrize("arguments", ERRORS)
def test_a_usage_error_is_told_in_one_line(arguments):
    with pytest.raises(UsageError) as error:
        parse(*arguments.split())
    assert str(error.value).startswith(ERRORS[arguments])
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("first", "message"),
    [
        ("--workers=1", "which experiment?"),
        ("tests.launch.countin", "there is no module tests.launch.countin in .*: did you mean tests.launch.counting?"),
        ("tests.lunch.counting", "there is no module tests.lunch.counting in"),
        ("tests/launch/counting.py", "is no name of a module: .* such as tests.launch.counting"),
        ("../counting", "is no name of a module"),
        ("launch.table", "launch.table is no experiment: it has no get_config"),
    ],
)
def test_an_experiment_is_a_module_that_python_can_run(first, message):
    with pytest.raises(UsageError, match=message):
        flags.parse([first, "--workdir=x", "--sweep.steps=1"], (), "doc")


def test_an_experiment_that_lacks_a_package_says_which(tmp_path, monkeypatch):
    (tmp_path / "lacking.py").write_text("import no_such_package\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(UsageError, match="lacking can't be imported: No module named 'no_such_package'"):
        flags.find_experiment("lacking")


def test_an_experiment_without_sweeps_says_what_else_there_is(tmp_path, monkeypatch):
    (tmp_path / "bare.py").write_text(f"from {COUNTING} import VARIANTS, get_config\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(UsageError, match="bare has no SWEEPS and get_sweep: give --sweep.FIELD=VALUES"):
        flags.parse(["bare", "--workdir=x", "--sweep=twins"], (), "doc")


@pytest.mark.parametrize("given", [[], ["--workdir="], ["--workdir= "]])
def test_the_workdir_is_required(given):
    with pytest.raises(UsageError, match="--workdir is missing"):
        flags.parse([COUNTING, "--sweep.steps=1", *given], (), "doc")


@pytest.mark.parametrize("engine", [local, slurm])
def test_the_help_of_an_engine_tells_its_flags_and_the_sweeps(engine, capsys):
    with pytest.raises(SystemExit) as exit:
        flags.parse([COUNTING, "--help"], engine.OWN, engine.__doc__)
    told = capsys.readouterr().out
    assert exit.value.code == 0
    assert all(f"--{leaf.flag}=" in told for leaf in (*flags.COMMON, *engine.OWN))
    assert engine.__doc__.splitlines()[0] in told
    assert f"sweeps of {COUNTING}: twins, mistyped" in told
    assert max(map(len, told.splitlines())) <= 120


@pytest.mark.parametrize(
    ("arguments", "message"),
    [([], "give the --workdir of one sweep and not 0"), (["a", "b"], "and not 2"), (["a", "--wtch"], "mean --watch")],
)
def test_status_wants_one_folder(arguments, message):
    with pytest.raises(UsageError, match=message):
        status.parse(arguments)


def test_status_reads_its_folder_wherever_it_stands():
    for arguments in (["a", "--watch"], ["--watch", "a"]):
        command, _ = status.parse(arguments)
        assert (command.config, command.workdir) == (True, pathlib.Path.cwd() / "a")


def test_checking_a_sweep_of_a_real_study_starts_no_backend(tmp_path):
    code = f"""
from launch import flags, local, plan
command, _ = flags.parse(["experiments.gradient_norms", "--workdir={tmp_path}", "--sweep.model.hidden_size=8,16"],
    local.OWN, "")
print(len(plan.make_plan(command.config, command.workdir).runs))
from jax._src import xla_bridge
print(list(xla_bridge._backends))
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.stdout == "2\n[]\n", done.stderr
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("module", ["launch.local", "launch.slurm", "launch.status"])
def test_the_exit_status_of_help_and_of_a_usage_error(module):
    for argument, code in (("--help", 0), ("--nonsense", 2)):
        done = subprocess.run([sys.executable, "-m", module, argument], cwd=ROOT, capture_output=True, text=True)
        assert done.returncode == code
        assert len(done.stderr.splitlines()) == (code == 2)


def test_the_flags_of_absl_are_checked_too(capsys):
    with pytest.raises(SystemExit) as exit:
        cli.read_or_exit(status.parse, ["launch.status", "x", "--verbosity=loud"])
    assert (exit.value.code, capsys.readouterr().err.count("\n")) == (2, 1)


def test_a_help_that_nobody_reads_on_is_no_error():
    command = f"{sys.executable} -m launch.local --help | true; echo ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", command], cwd=ROOT, capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("0\n", "")
