import json
import os
import pathlib
import re

import pytest

from launch import flags
from launch.job import read_record
from launch.plan import Plan, Run, claim, make_plan, read_plan
from rnnjax.train.config import UsageError
from rnnjax.train.records import write_json

COUNTING = "tests.launch.counting"
STUDY = "experiments.gradient_norms"


@pytest.fixture
def plan(tmp_path):
    """Makes the plan of a command line."""

    def make(*arguments, experiment=COUNTING, workdir=tmp_path / "sweep", **more):
        command, _ = flags.parse([experiment, f"--workdir={workdir}", *arguments], (), "doc")
        return make_plan(command.config, command.workdir, **more)

    return make


def names(plan):
    return [run.name for run in plan.runs]


def test_a_job_is_the_experiments_own_command_line(plan, tmp_path):
    made = plan("--config=down", "--config.widths=1,2", "--sweep.steps=3")
    job = made.job(made.runs[0])
    assert job.arguments == [
        COUNTING, f"--workdir={tmp_path / 'sweep' / 'steps=3'}", "--config=down:quick", "--config.widths=1,2",
        "--config.steps=3",
    ]  # fmt: skip
    assert job.checkout == os.getcwd()
    assert not (tmp_path / "sweep").exists()


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--sweep.steps=1,2"], ["steps=1", "steps=2"]),
        (["--sweep.label=b", "--sweep.steps=1"], ["steps=1,label=b"]),
        (["--sweep.options.seconds=1e-3,0.5,2"], ["seconds=0.001", "seconds=0.5", "seconds=2"]),
        (["--sweep.widths=(1,2),3,()"], ["widths=1+2", "widths=3", "widths=__"]),
        (["--sweep=twins"], ["base", "steps=3,seconds=0", "steps=4,seconds=0"]),
        (["--sweep.label=../../etc,/x"], ["label=.._.._etc", "label=_x"]),
        (["--sweep.label=Relu,relu"], ["label=_elu", "label=relu"]),
        ([f"--sweep.label={'x' * 300}"], ["label=" + "x" * 114]),
    ],
)
def test_a_runs_name_tells_its_overrides(plan, arguments, expected):
    made = names(plan(*arguments))
    assert [re.sub(r"-[0-9a-f]{8}$", "", name) for name in made] == expected
    for name in made:
        assert pathlib.PurePath(name).parts == (name,) and len(name) < 200
        assert re.fullmatch(r"[a-z0-9_.,+=-]+", name)


def test_what_is_lost_of_a_value_is_made_up_for(plan):
    odd = ["a/b", "a_b", "a b", "A_b", "a+b", "a=b", "a\nb", "é", "a" * 200, "a" * 201]
    sweep = [name for label in odd for name in names(plan(f"--sweep.label={label}"))]
    assert len({name.lower() for name in sweep}) == len(odd)


def test_the_same_overrides_have_the_same_name_in_every_sweep(plan):
    (alone,) = names(plan("--sweep.steps=1e1", "--sweep.label=a"))
    assert alone in names(plan("--sweep.label=b,a", "--sweep.steps=9,10"))


def test_a_field_is_named_by_the_end_of_its_path_that_no_other_has(plan):
    sweep = ["--sweep.cell_options.lstm.forget_bias=0", "--sweep.train.batch_size=8", "--sweep.model.hidden_size=4"]
    assert names(plan(*sweep, experiment=STUDY)) == ["lstm.forget_bias=0,model.hidden_size=4,batch_size=8"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--sweep.steps=1,2,1"], "two runs have the same config, steps=1 and steps=1: leave one out"),
        (["--sweep.options.seconds=0.1,1e-1"], "two runs have the same config"),
        (["--sweep=same"], "two runs have the same config, label=a and steps=5,label=a"),
        (["--sweep=mistyped"], "run secondes=1: unknown flag --config.options.secondes: .*--config.options.seconds?"),
        (["--sweep.steps=1,2", "--config.steps=1"], "--config.steps is given for all runs and the sweep sets it too"),
    ],
)
def test_a_sweep_that_can_not_run_is_refused_and_nothing_written(plan, tmp_path, arguments, message):
    with pytest.raises(UsageError, match=message):
        plan(*arguments)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["--sweep.train.log_every=26"],
            "run log_every=26,seed=0: --config.train.log_every is 26: expected",
        ),
        (["--sweep.task.length=20,1"], "run length=1,seed=0: length of Adding is 1: expected"),
        (["--config.cells=gru", "--config.replicas.forget_bias=1"], "run seed=0: .*GRU has no forget_bias"),
        (["--config.train.window=4"], "run seed=0: --config.train.window is 4: .*reads the last step only"),
        (["--init_from=nowhere"], "run seed=0: --init_from is nowhere: there is no such folder"),
        (["--config.train.checkpoint.signals=SIGUSR1"], "run seed=0: .*signals is SIGUSR1: it needs SIGTERM"),
    ],
)
def test_what_the_trainer_would_refuse_is_refused_before(plan, arguments, message):
    with pytest.raises(UsageError, match=message):
        plan("--sweep.train.seed=0", *arguments, experiment=STUDY)


def test_an_engine_names_the_signals_that_a_run_has_to_save_upon(plan):
    given = ["--sweep.train.seed=0", "--config.train.checkpoint.signals=SIGTERM"]
    assert plan(*given, experiment=STUDY)
    with pytest.raises(UsageError, match="it needs SIGUSR2"):
        plan(*given, experiment=STUDY, signals=("SIGTERM", "SIGUSR2"))


def test_values_of_python_and_numpy_stand_for_what_is_typed():
    import numpy as np

    from tests.launch import counting

    overrides = [{"steps": np.int64(3)}, {"options.seconds": np.float64(0.25)}, {"label": "x"}, {"widths": [1, 2]}]
    experiment = flags.Experiment(COUNTING, "", counting.get_config, counting.VARIANTS, (), None)
    made = make_plan(flags.Request(experiment, "up:quick", {}, overrides, {}), pathlib.Path("x"))
    assert names(made) == ["steps=3", "seconds=0.25", "label=x", "widths=1+2"]


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ({"steps": 1.5}, "--sweep.steps is '1.5': expected a whole number"),
        ({"steps": True}, "--sweep.steps is 'true': expected a whole number"),
        ({"steps": {}}, "{} can't stand behind a flag"),
        ({"options.seconds": float("nan")}, "expected a finite number"),
        ({"names": ("a,b",)}, "('a,b',) is read as ('a', 'b'), which is another value"),
        ({"label": "a\0b"}, "can't stand behind a flag"),
        ({"../x": 1}, "unknown flag --config.../x"),
        ({3: 1}, "unknown flag --config.3"),
    ],
)
def test_overrides_that_no_flag_takes_are_named(override, message):
    from tests.launch import counting

    experiment = flags.Experiment(COUNTING, "", counting.get_config, counting.VARIANTS, (), None)
    with pytest.raises(UsageError, match=re.escape(message)):
        make_plan(flags.Request(experiment, "up:quick", {}, [override], {}), pathlib.Path("x"))


def test_a_sweep_goes_on_in_its_folder(plan):
    assert claim(plan("--sweep.steps=1,2")) == 2
    assert claim(plan("--sweep.steps=1,2")) == 0


def test_runs_may_be_added(plan, tmp_path):
    claim(plan("--sweep.steps=1,2"))
    assert claim(plan("--sweep.steps=1,2,3")) == 1
    assert names(read_plan(tmp_path / "sweep")) == ["steps=1", "steps=2", "steps=3"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--sweep.steps=2,3"], "holds another sweep: this one leaves out steps=1; give those too"),
        (["--sweep.label=a"], "leaves out steps=1, steps=2"),
        (["--sweep.steps=1,2", "--config=down"], "differs in --config .'up:quick' there, 'down:quick' here.; give ano"),
        (["--sweep.steps=1,2", "--config.label=x"], "differs in --config.label ...absent.' there, 'x' here"),
    ],
)
def test_another_sweep_is_refused_and_the_first_stays(plan, tmp_path, arguments, message):
    claim(plan("--sweep.steps=1,2"))
    before = (tmp_path / "sweep" / "sweep.json").read_text()
    with pytest.raises(UsageError, match=message):
        claim(plan(*arguments))
    assert (tmp_path / "sweep" / "sweep.json").read_text() == before


def test_how_a_run_is_carried_out_may_differ(plan, tmp_path):
    claim(plan("--sweep.train.seed=0", "--config.train.checkpoint.keep=2", experiment=STUDY))
    changed = plan("--sweep.train.seed=0", "--config.train.profile=true", experiment=STUDY)
    assert claim(changed) == 0
    assert read_plan(tmp_path / "sweep").base == {"config.train.profile": "true"}


def test_a_folder_with_files_of_something_else_is_refused_and_left_alone(plan, tmp_path):
    (tmp_path / "sweep").mkdir()
    (tmp_path / "sweep" / "thesis.txt").touch()
    with pytest.raises(UsageError, match="holds files but no sweep .no sweep.json.: give a new or empty --workdir"):
        claim(plan("--sweep.steps=1"))
    assert [path.name for path in (tmp_path / "sweep").iterdir()] == ["thesis.txt"]


def test_a_run_of_another_sweep_is_refused(plan, tmp_path):
    made = plan("--sweep.steps=1", "--config.label=x")
    other = plan("--sweep.steps=1", workdir=tmp_path / "other")
    claim(made)
    write_json(
        made.folder(made.runs[0]) / "run.json",
        {"state": "finished", "attempts": 1, "arguments": other.job(other.runs[0]).arguments},
    )
    with pytest.raises(UsageError, match="sweep/steps=1 is a run of another sweep: move it away or give another"):
        claim(made)


def test_a_sweep_that_was_moved_goes_on(plan, tmp_path):
    made = plan("--sweep.steps=1")
    claim(made)
    arguments = made.job(made.runs[0]).arguments
    write_json(made.folder(made.runs[0]) / "run.json", {"state": "finished", "attempts": 1, "arguments": arguments})
    (tmp_path / "sweep").rename(tmp_path / "moved")
    moved = plan("--sweep.steps=1", workdir=tmp_path / "moved")
    assert claim(moved) == 0
    assert read_record(moved.folder(moved.runs[0]))["state"] == "finished"


RUNS = '{"experiment": "x", "config": "a:quick", "base": {}, "runs": [{"name": "%s", "overrides": {}}]}'


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", "null", '{"runs": 3}', RUNS % "..", RUNS % "../x", RUNS % "/x", RUNS % "a/b", RUNS % "", "\xff"],
)
def test_a_damaged_sweep_is_named_and_no_name_leads_out_of_its_folder(plan, tmp_path, text):
    (tmp_path / "sweep").mkdir()
    (tmp_path / "sweep" / "sweep.json").write_text(text, encoding="latin-1")
    for use in (lambda: claim(plan("--sweep.steps=1")), lambda: read_plan(tmp_path / "sweep")):
        with pytest.raises(UsageError, match="sweep.json is damaged or not what a launcher wrote"):
            use()


def test_a_folder_without_a_sweep_is_named(tmp_path):
    for folder in (tmp_path, tmp_path / "none"):
        with pytest.raises(UsageError, match="holds no sweep .no sweep.json."):
            read_plan(folder)


def test_a_plan_is_what_was_written_of_it(plan, tmp_path):
    made = plan("--sweep.steps=1,2", "--config.label=x")
    claim(made)
    assert read_plan(tmp_path / "sweep") == made
    assert json.loads((tmp_path / "sweep" / "sweep.json").read_text())["runs"][1] == {
        "name": "steps=2",
        "overrides": {"steps": "2"},
    }


def test_a_workdir_that_can_not_be_written_to_is_an_error_of_the_system(tmp_path):
    (tmp_path / "file").touch()
    plan = Plan(COUNTING, "up:quick", {}, (Run("base", {}),), tmp_path / "file" / "sweep", tmp_path)
    with pytest.raises(OSError):
        claim(plan)
