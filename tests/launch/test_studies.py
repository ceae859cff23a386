"""Every study is run by its own command, once, and the index tells every claim with its verdict."""

import importlib
import json
import pathlib
import signal

import pytest

from launch import studies
from launch.job import read_record
from launch.table import Status
from rnnjax.report import ReportError
from rnnjax.train import cli
from rnnjax.train.config import to_dict

CLAIMS = [
    {"claim": "it vanishes", "source": "1994", "expected": "slope < 0", "measured": -0.5, "holds": True},
    {"claim": "it explodes", "source": "1991", "expected": "slope > 0", "measured": -0.25, "holds": False},
    {
        "claim": "tanh is best",
        "source": "2014",
        "expected": "< 0",
        "measured": 1.5,
        "holds": False,
        "contested": "2015",
    },
]


def run(workdir, *arguments):
    command, _ = studies.parse([f"--workdir={workdir}", *arguments])
    return studies.main(command.config, command.workdir)


def made_up(folder, claims=CLAIMS):
    """A finished study's workdir."""
    folder.mkdir(parents=True)
    module = importlib.import_module(f"experiments.{folder.name}")
    config = to_dict(module.get_config(module.VARIANTS[0], "quick"))
    (folder / "config.json").write_text(json.dumps({"experiment": folder.name, "config": config}))
    (folder / "claims.json").write_text(json.dumps({"study": folder.name, "claims": claims, "seconds": 4.0}))
    (folder / "report.md").write_text(f"# {folder.name}\n")


def test_the_list_is_of_studies_that_there_are():
    for name in studies.STUDIES:
        assert importlib.import_module(f"experiments.{name}").VARIANTS
    plan = studies.make_plan({"studies": ("all",), "workers": 1, "preset": "quick"}, pathlib.Path("x"))
    assert [run.name for run in plan.runs] == list(studies.STUDIES)
    assert plan.job(plan.runs[0]).arguments == ["experiments.slope_law", "--workdir=x/slope_law", "--preset=quick"]


@pytest.mark.parametrize("arguments, told", [
    (["--studies=slope_low"], "did you mean slope_law"),
    (["--studies=slope_law,slope_law"], "each once"),
    (["--studies=all,adding"], "expected all, or some of"),
    (["--workers=0"], "--workers is 0"),
    (["--preset=fast"], "quick, full"),
    (["--prest=full"], "did you mean --preset"),
])  # fmt: skip
def test_a_command_line_that_cannot_be_is_refused_and_nothing_written(arguments, told, tmp_path):
    with pytest.raises(cli.UsageError, match=told):
        run(tmp_path / "new", *arguments)
    assert not (tmp_path / "new").exists()


def test_the_folder_of_another_preset_is_refused(tmp_path):
    (tmp_path / "adding").mkdir()
    record = {"state": "finished", "arguments": ["experiments.adding", f"--workdir={tmp_path}/adding", "--preset=full"]}
    (tmp_path / "adding" / "run.json").write_text(json.dumps(read_record(tmp_path) | record))
    with pytest.raises(cli.UsageError, match="adding holds --preset=full experiments.adding: give another"):
        run(tmp_path, "--studies=adding")


def test_a_folder_that_was_moved_goes_on(tmp_path):
    (tmp_path / "adding").mkdir()
    record = {"state": "finished", "arguments": ["experiments.adding", "--workdir=elsewhere", "--preset=quick"]}
    (tmp_path / "adding" / "run.json").write_text(json.dumps(read_record(tmp_path) | record))
    options = {"studies": ("adding",), "workers": 1, "preset": "quick"}
    assert studies.make_plan(options, tmp_path).runs[0].name == "adding"


@pytest.fixture
def ran(monkeypatch):
    """Has studies end in these states, with no process started."""

    def end(*statuses, signal=None):
        class Pool:
            def __init__(self, plan, workers):
                self.signal = signal

            def work(self, board):
                pass

            def statuses(self):
                return list(statuses)

        monkeypatch.setattr(studies, "Pool", Pool)

    return end


def test_the_index_tells_every_claim_and_of_what_failed_none(tmp_path, ran, capsys):
    made_up(tmp_path / "slope_law")
    made_up(tmp_path / "adding", CLAIMS[:1])
    made_up(tmp_path / "copying", CLAIMS[:1])  # of an earlier run, since when it fails
    ran(Status("slope_law", "finished"), Status("adding", "finished"), Status("copying", "failed", "no disk"))
    assert run(tmp_path, "--studies=slope_law,adding,copying") == 1
    index = (tmp_path / "index.md").read_text()
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in index.splitlines() if line.startswith("|")]
    assert rows[2] == ["[slope_law](slope_law/report.md)", "1", "1", "1", "0", "4.00"]
    assert rows[3][0] == "[adding](adding/report.md)" and rows[4][0] == "copying: failed no disk"
    assert rows[5][:5] == ["all", "2", "1", "1", "0"]
    assert "contested, not held here: 2015" in index and "**does not hold**" in index and "## copying" not in index
    told = capsys.readouterr().out
    assert "failed: copying: no disk" in told and " copying " not in told
    assert (tmp_path / "index.html").exists() and (tmp_path / "index.csv").exists()


def test_a_study_of_another_preset_is_refused_before_its_record_is_touched(tmp_path):
    module = importlib.import_module("experiments.slope_law")
    made_up(tmp_path / "slope_law")
    full = {"experiment": "slope_law", "config": to_dict(module.get_config("orthogonal", "full"))}
    (tmp_path / "slope_law" / "config.json").write_text(json.dumps(full))
    with pytest.raises(cli.UsageError, match="slope_law holds another run than --preset=quick: it differs in"):
        run(tmp_path, "--studies=slope_law")
    (tmp_path / "slope_law" / "config.json").write_text("{")
    with pytest.raises(cli.UsageError, match="config.json is damaged: move"):
        run(tmp_path, "--studies=slope_law")
    assert not (tmp_path / "slope_law" / "run.json").exists()


def test_a_finished_study_without_its_claims_is_told_of(tmp_path, ran, capsys):
    made_up(tmp_path / "slope_law")
    (tmp_path / "slope_law" / "claims.json").write_text('{"claims": [{"claim": 3}]}')
    ran(Status("slope_law", "finished"))
    assert run(tmp_path, "--studies=slope_law") == 1
    told = capsys.readouterr().err
    assert "claims.json" in told and "move the folder away" in told


def test_without_plotly_nothing_is_run(tmp_path, monkeypatch):
    def missing():
        raise ReportError("no plotly")

    monkeypatch.setattr(studies, "check_charts", missing)
    with pytest.raises(ReportError, match="no plotly"):
        run(tmp_path / "new", "--studies=slope_law")
    assert not (tmp_path / "new").exists()


def test_what_finished_before_stays_in_the_index(tmp_path, ran):
    for name in ("slope_law", "adding"):
        made_up(tmp_path / name)
        arguments = [f"experiments.{name}", f"--workdir={tmp_path}/{name}", "--preset=quick"]
        record = read_record(tmp_path) | {"state": "finished", "arguments": arguments}
        (tmp_path / name / "run.json").write_text(json.dumps(record))
    ran(Status("adding", "finished"))
    assert run(tmp_path, "--studies=adding") == 0
    assert "[slope_law]" in (tmp_path / "index.md").read_text()


def test_upon_a_signal_the_launcher_says_so(tmp_path, ran):
    ran(Status("adding", "stopped"), Status("copying", "waiting"), signal=signal.SIGINT)
    assert run(tmp_path, "--studies=adding,copying") == 130
    ran(Status("adding", "stopped"), signal=signal.SIGTERM)
    assert run(tmp_path, "--studies=adding") == 75
    assert not (tmp_path / "index.md").exists()


@pytest.mark.full
def test_a_finished_study_is_not_run_again(tmp_path, capsys):
    assert run(tmp_path, "--studies=slope_law,gru_stability") == 0
    told = capsys.readouterr().out
    assert "2 runs: 2 finished" in told and "not held" in told
    before = {path: path.stat().st_mtime_ns for path in tmp_path.glob("*/claims.json")}
    assert run(tmp_path, "--studies=slope_law,gru_stability") == 0
    assert before == {path: path.stat().st_mtime_ns for path in tmp_path.glob("*/claims.json")} and len(before) == 2
