"""All studies of theory against measurement, one after another, and one report of what held.

    make studies
    python -m launch.studies --workdir=DIR                        runs/studies, the quick presets: 10 minutes on 2 cores
    python -m launch.studies --workdir=DIR --preset=full          as the papers have it: hours
    python -m launch.studies --workdir=DIR --studies=slope_law,adding

Each is run by its own command, python -m experiments.STUDY --workdir=DIR/STUDY, and says what it says into log.txt
there. In the end DIR/index.html is the report of all that DIR holds, DIR/index.md the table of every claim of the
studies that finished, with what was expected and what measured, and a table on the screen tells how many held, did not
hold, and are contested in the literature.

The same command goes on where it was stopped or killed: finished studies are not run again. Ctrl-C or SIGTERM lets the
one at work save. A study that fails is told of in the end, and the others run.

Exit status: 0 all finished, whatever held, or at work elsewhere; 1 some failed; 2 usage error; 75 saved upon SIGTERM;
130 upon Ctrl-C.
"""

import dataclasses
import importlib
import json
import pathlib
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from launch import flags
from launch.job import Job, identity, read_record
from launch.local import Pool, exit_status
from launch.plan import Run
from launch.table import Board, Status, summary
from rnnjax.report import overview, tables
from rnnjax.report.discover import Study
from rnnjax.report.html import check_charts, write_html
from rnnjax.train import cli
from rnnjax.train.config import HOW, Leaf, UsageError, differences, in_words, read, to_dict
from rnnjax.train.records import hold, replacing

STUDIES = (
    "slope_law",
    "necessary_not_sufficient",
    "mean_field",
    "cliff_and_clipping",
    "temporal_order",
    "adding",
    "copying",
    "forget_bias",
    "gru_stability",
    "gradient_flossing",
    "curse_of_memory",
    "matched_cells",
    "lstm_ablation",
    "gru_ablation",
)
OWN = (
    Leaf("workdir", str, help="the folder of the studies, with a folder for each; required"),
    Leaf("preset", str, default="quick", help="how long each is", choices=cli.PRESETS),
    Leaf("studies", str, many=True, default=("all",), help="which ones, in this order", choices=("all", *STUDIES)),
    Leaf("workers", int, default=1, help="how many at once; times that are measured want one"),
    Leaf("debug", bool, default=False, help="show the traceback of every error"),
)


@dataclasses.dataclass(frozen=True)
class Plan:
    """Studies that are run with one preset, as `launch.local.Pool` takes a sweep."""

    runs: tuple[Run, ...]
    preset: str
    workdir: pathlib.Path
    checkout: pathlib.Path

    def folder(self, run: Run) -> pathlib.Path:
        """Where a study writes."""
        return self.workdir / run.name

    def job(self, run: Run) -> Job:
        """What executes a study."""
        flags = [f"--workdir={self.folder(run)}", f"--preset={self.preset}"]
        return Job([f"experiments.{run.name}", *flags], str(self.checkout))


def main(options: dict[str, Any], workdir: pathlib.Path) -> int:
    """Runs the studies and writes the report: the exit status."""
    plan = make_plan(options, workdir)
    check_charts()
    pool = Pool(plan, options["workers"])
    with hold(workdir / ".launch", str(workdir)), Board(live=True, stderr=True) as board:
        pool.work(board)
    statuses = pool.statuses()
    print(summary(statuses))
    problems = write_report(plan, statuses) if any(status.state == "finished" for status in statuses) else []
    for problem in problems:
        print(f"problem: {problem}", file=sys.stderr)
    return exit_status(statuses, pool.signal, workdir) or int(bool(problems))


def make_plan(options: dict[str, Any], workdir: pathlib.Path) -> Plan:
    """The plan of a command line. Raises UsageError for one that can't be, before anything is written."""
    names = STUDIES if options["studies"] == ("all",) else options["studies"]
    if not names or "all" in names or len(set(names)) < len(names):
        raise UsageError(f"--studies is {cli.show(names)}: expected all, or some of {', '.join(STUDIES)}, each once")
    if options["workers"] < 1:
        raise UsageError(f"--workers is {options['workers']}: expected a whole number of at least 1")
    plan = Plan(tuple(Run(name, {}) for name in names), options["preset"], workdir, pathlib.Path.cwd())
    for run in plan.runs:
        _check_config(plan, run)
        ran = read_record(plan.folder(run))["arguments"]
        if ran is not None and identity(map(str, ran)) != identity(plan.job(run).arguments):
            told = " ".join(identity(map(str, ran)))
            raise UsageError(f"{plan.folder(run)} holds {told}: give another --workdir, or another --preset")
    return plan


def _check_config(plan: Plan, run: Run) -> None:
    """Raises UsageError where a study of another preset stands in the folder, which its own command would refuse."""
    path = plan.folder(run) / "config.json"
    if not path.exists():
        return
    module = importlib.import_module(f"experiments.{run.name}")
    wanted = json.loads(json.dumps(to_dict(module.get_config(module.VARIANTS[0], plan.preset))))
    try:
        held = json.loads(path.read_text(encoding="utf-8"))["config"]
        differing = differences(held, wanted)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise UsageError(f"{path} is damaged: move {plan.folder(run)} away, or give another --workdir") from None
    if differing := [one for one in differing if not f"{one[0]}.".startswith(HOW)]:
        raise UsageError(
            f"{plan.folder(run)} holds another run than --preset={plan.preset}: it differs in {in_words(differing)}; "
            "give another --workdir, or the --preset that was run there"
        )


def write_report(plan: Plan, statuses: Sequence[Status]) -> list[str]:
    """Writes index.html and index.md, and shows how many claims have which verdict: what is wrong with the files."""
    page = write_html([plan.workdir], plan.workdir / "index.html")
    finished = finished_studies(page.studies, plan.workdir, statuses)
    with replacing(plan.workdir / "index.md") as path:
        path.write_text(index(finished, statuses), encoding="utf-8")
    overview.print_verdicts(list(finished.values()))
    print(f"report: {page.path} and {plan.workdir / 'index.md'}")
    untold = [one.name for one in statuses if one.state == "finished" and one.name not in finished]
    way_out = "move the folder away, so that the study is run again"
    return page.problems + [
        f"{plan.workdir / name / 'claims.json'} is missing or damaged: {way_out}" for name in untold
    ]


def finished_studies(found: Sequence[Study], workdir: pathlib.Path, statuses: Sequence[Status]) -> dict[str, Study]:
    """{name: study} of those that are finished now or were before, in the order of STUDIES: a claim of one that failed
    may be an older one's."""
    states = {status.name: status.state for status in statuses}
    held = {study.folder.name: study for study in found if study.folder.parent == workdir and study.claims is not None}
    return {
        name: held[name]
        for name in STUDIES
        if name in held and states.get(name, read_record(workdir / name)["state"]) == "finished"
    }


def index(finished: Mapping[str, Study], statuses: Sequence[Status]) -> str:
    """Markdown: how many claims of every study have which verdict, and every claim with expected and measured."""
    rows = [
        [f"[{name}]({name}/report.md)", *overview.counts([study]).values(), study.seconds]
        for name, study in finished.items()
    ]
    other = [status for status in statuses if status.name not in finished]
    rows += [[f"{one.name}: {one.state} {one.said}".strip(), *[None] * (len(overview.VERDICTS) + 1)] for one in other]
    studies = list(finished.values())
    rows.append(["all", *overview.counts(studies).values(), sum(study.seconds or 0 for study in studies)])
    parts = ["# Theory against measurement", tables.markdown_table(("study", *overview.VERDICTS, "seconds"), rows)]
    for name, study in finished.items():
        parts += [f"## {name}", tables.claims_table(study.claims)]
    return "\n\n".join(part.rstrip("\n") for part in parts) + "\n"


def parse(arguments: list[str]) -> tuple[flags.Command, list[str]]:
    """Reads the command line. Raises as `launch.flags.parse` does."""
    if flags.asks_for_help(arguments):
        print(flags.help_text(__doc__, OWN, None), flush=True)
        raise SystemExit(0)
    known = {leaf.flag: leaf for leaf in OWN}
    given, for_absl = cli.collect(arguments, known)
    options = {leaf.flag: read(leaf, given[leaf.flag]) if leaf.flag in given else leaf.default for leaf in OWN}
    command = flags.Command(options, flags.folder(given.get("workdir", "")), options["debug"])
    return command, for_absl


if __name__ == "__main__":
    flags.run(main, parse)
