"""A run that is killed at any moment and started again ends with the bits of one that never was."""

import functools
import itertools
import random
import signal
import subprocess
import sys
import time

import pytest
from resume_case import CASES, Life, leaves_behind, live

# A case and the moments at which its lives end, one after the other; the last goes to the end. A moment is the change
# of a file that does not happen any more, or the row of metrics.jsonl of which half is written.
MOMENTS = {
    "probes": (r"mkdir /checkpoints$", r"rename /probes/GradientNorms/\.4-", r"rename /checkpoints/best/8\S+tmp$"),
    "dropout": (r"rename /checkpoints/latest/2\S+tmp/default", r"rename /checkpoints/best/4\S+tmp$"),
    "corpus": (r"open /checkpoints/latest/4\S+/about.json", 2),
    "replicas": (r"rmtree /checkpoints/latest/2", r"open /checkpoints/latest/8\S+/arrays.safetensors"),
    "window": (r"mkdir /checkpoints/latest/2", r"rename /checkpoints/latest/8\S+tmp$"),
}


@pytest.fixture(scope="module")
def never_killed(tmp_path_factory):
    """(case, steps) -> (Ended, leaves_behind, the cache of compiled programs) of a run that was not killed."""
    folder = tmp_path_factory.mktemp("never_killed")

    @functools.cache
    def run(case, steps=8):
        workdir = folder / f"{case}{steps}"
        ended = live(Life(case, workdir, cache=folder / "cache", changes={"steps": steps}))
        assert ended.status == 0, ended.stderr
        return ended, leaves_behind(workdir), folder / "cache"

    return run


def check_same(workdir, expected):
    found = leaves_behind(workdir)
    differing = [name for name in sorted({*found, *expected}) if found.get(name) != expected.get(name)]
    assert not differing, f"{workdir} differs in {differing}"
    unfinished = [str(path) for path in workdir.glob("checkpoints/*/*") if not path.name.isdigit()]
    assert not unfinished, unfinished


def check_killed(folder, case, cache, expected, lives, most=None, **changes):
    """Runs lives (what `Life` is given, what `live` is) until `most` are killed or none is left, and then one to the
    end. A kill that comes too late ends a run, which is compared too. Returns (kills, runs that were compared)."""
    kills, runs, went_on = 0, 0, 0
    for given, until in itertools.chain(lives, [({}, {})]):
        enough = kills == most
        workdir = folder / str(runs)
        life = Life(case, workdir, cache=cache, changes=changes, **given)
        ended = live(life) if enough else live(life, **until)
        went_on += "goes on from step" in ended.stderr
        if ended.status == -signal.SIGKILL:
            kills += 1
            continue
        assert ended.status == 0, (given, until, ended.stderr)
        check_same(workdir, expected)
        runs += 1
        if enough:
            break
    print(f"{case}: {kills} kills in {runs} runs, {went_on} lives went on from a save, no difference")
    assert went_on
    return kills, runs


SHORT = ("dropout", "corpus", "replicas")


@pytest.mark.parametrize(
    "case", [case if case in SHORT else pytest.param(case, marks=pytest.mark.full) for case in MOMENTS]
)
def test_killed_at_chosen_changes_of_files(tmp_path, never_killed, case):
    _, expected, cache = never_killed(case)
    lives = [({"torn": moment} if isinstance(moment, int) else {"dies": moment}, {}) for moment in MOMENTS[case]]
    assert check_killed(tmp_path, case, cache, expected, lives) == (len(lives), 1)


def check_moments(folder, case, never_killed, count):
    """Kills at seeded moments of lives with 50 saves, in turn soon after the first save of a life and anywhere in it.
    Returns how many."""
    never_killed(case)  # compiles
    never, expected, cache = never_killed(case, 100)
    rng, spans = random.Random(f"{case} {count}"), {True: never.seconds / 10, False: never.seconds}
    late = [True, False] * 2 * count
    moments = [({}, {"seconds": rng.uniform(0, spans[one]), "saved": one}) for one in late]
    return check_killed(folder, case, cache, expected, moments, count, steps=100)[0]


def test_killed_at_three_moments_of_the_clock(tmp_path, never_killed):
    assert check_moments(tmp_path, "corpus", never_killed, 3) >= 1  # on a machine that gets faster some come too late


@pytest.mark.full
@pytest.mark.parametrize("case", CASES)
def test_killed_at_twenty_moments_of_the_clock(tmp_path, never_killed, case):
    assert check_moments(tmp_path, case, never_killed, 20) >= 10


@pytest.mark.full
def test_killed_before_every_change_of_a_file(tmp_path, never_killed):
    """The n-th life dies before the n-th change that it comes to, from the first to the last; one that ends sooner ends
    its run."""
    case = "probes"
    never, expected, cache = never_killed(case)
    numbers = range(1, len(never.changes) + 1)
    kills, runs = check_killed(tmp_path, case, cache, expected, [({"dies": number}, {}) for number in numbers])
    assert kills + runs == len(numbers) + 1 and kills > 50


SMALL = (
    "--config.cells=elman", "--config.model.hidden_size=4", "--config.task.length=8", "--config.train.steps=60",
    "--config.train.steps_per_call=2", "--config.train.batch_size=2", "--config.train.eval_every=10",
    "--config.train.eval_batch=8", "--config.train.log_every=2", "--config.train.checkpoint.every_steps=4",
    "--config.probe.points=3", "--config.probe.batch=2",
)  # fmt: skip


def start(workdir):
    command = [sys.executable, "-m", "experiments.gradient_norms", f"--workdir={workdir}", *SMALL]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)


def until(process, holds, seconds=300):
    """Waits until `holds` or the process ends: whether it held first."""
    ends = time.monotonic() + seconds
    while process.poll() is None and time.monotonic() < ends:
        if holds():
            return True
        time.sleep(0.001)
    return False


@pytest.mark.full
def test_a_study_killed_at_twenty_moments(tmp_path):
    """Half of them anywhere in its life, half while a save is being written."""
    began = time.monotonic()
    with start(tmp_path / "never") as process:
        _, told = process.communicate()
    assert process.returncode == 0, told
    seconds, expected = time.monotonic() - began, leaves_behind(tmp_path / "never" / "elman")
    rng, kills, runs = random.Random(5), 0, 0
    while kills < 20 or (tmp_path / str(runs)).exists():
        workdir = tmp_path / str(runs)
        with start(workdir) as process:
            if kills < 20:
                after = time.monotonic() + rng.uniform(0, seconds)
                in_a_save = functools.partial(_in_a_save, workdir, rng)
                until(process, in_a_save if kills % 2 else lambda after=after: time.monotonic() > after)
                process.kill()
            _, told = process.communicate()
        if process.returncode == -signal.SIGKILL:
            kills += 1
            continue
        assert process.returncode == 0, told
        assert leaves_behind(workdir / "elman") == expected
        runs += 1
    print(f"gradient_norms: {kills} kills in {runs} runs, no difference")


def _in_a_save(workdir, rng):
    return rng.random() < 0.5 and any(workdir.glob("elman/checkpoints/*/*.orbax-checkpoint-tmp"))
