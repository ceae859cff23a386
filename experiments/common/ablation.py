"""What an ablation shares: variants of a cell on several tasks, every seed paired with that of the whole cell.

A seed draws the same training batches, the same test set and, where shapes agree, the same parameters for all variants,
so that differences are taken seed by seed. The score is log10 of the test loss over chance, between FLOOR and 0: a
loss under a hundredth of chance is a task solved, and a network that diverged or is worse than chance has learned
nothing. "Differs" is said where Holm's correction over the variants of a task leaves p below LEVEL.
"""

import dataclasses
import math
import pathlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from experiments.common.ablation_figure import Panel, draw
from experiments.common.claims import Claim
from experiments.common.curves import QUANTILES, Curve
from experiments.common.paired import LEVEL, MOST, Paired, holm, paired
from experiments.common.side_by_side import WORKERS
from experiments.common.study import Entry, check_entries, is_default, run_entries, unclaimed
from experiments.common.study_report import Study, Table, write_report
from rnnjax.cell import Cell
from rnnjax.report import run_files
from rnnjax.tasks import Task
from rnnjax.train.build import make_model, make_task, task_options
from rnnjax.train.config import GradientConfig, ModelConfig, TrainConfig, UsageError, build, to_dict
from rnnjax.train.records import claim_workdir

FLOOR = -2.0
"""The lowest score: decades below chance."""
ALIKE = 1.25
"""Losses that differ by no more than this factor are as good as each other."""
WORSE, BETTER, UNRESOLVED = "differs: worse", "differs: better", "not resolved"


class Variant(NamedTuple):
    """name: of its folders and flag; what: it is, in words; cell: the class, with `options`."""

    name: str
    what: str
    cell: type[Cell]
    options: dict[str, Any]


@dataclasses.dataclass(frozen=True)
class Ablation:
    """What one ablation is; the first of its variants is the whole cell that the others are compared with.

    name, title, text: as in a Study. family: the built-in cell whose colour the picture has. get_config, setting: of
    the config whose claims are judged. judge: Results -> claims.
    """

    name: str
    title: str
    text: str
    family: str
    variants: tuple[Variant, ...]
    get_config: Callable[[str, str], Any]
    setting: str
    judge: Callable[["Results"], list[Claim]]


@dataclasses.dataclass
class Config:
    """variants: what is trained, the whole cell among it.
    seeds: how many are trained of each, from config.train.seed on.
    """

    tasks: Any
    variants: tuple[str, ...]
    model: ModelConfig
    train: TrainConfig
    probe: GradientConfig = dataclasses.field(default_factory=lambda: GradientConfig(points=1, batch=32, on=True))
    seeds: int = 9  # 2^-8 is the smallest p, and stays below 0.05 where it is corrected for nine variants


def task_groups(**tasks: dict[str, Any]) -> Any:
    """A config with a group for every task, its fields those of the task with these defaults."""
    made = {name: task_options(name, **defaults) for name, defaults in tasks.items()}
    fields = [(name, type(one), dataclasses.field(default_factory=type(one))) for name, one in made.items()]
    return dataclasses.make_dataclass("TaskGroups", fields)()


def tasks_of(config: Config) -> dict[str, Task]:
    """{name: task} of a config. Raises UsageError where a task refuses a value."""
    groups = (getattr(config.tasks, field.name) for field in dataclasses.fields(config.tasks))
    return dict(map(make_task, groups))


def variants_of(ablation: Ablation, config: Config) -> list[Variant]:
    """The variants that the config asks for, in the order of the ablation. Raises UsageError for one that is not there,
    and where nothing is to be compared."""
    names = [variant.name for variant in ablation.variants]
    for name in config.variants:
        if name not in names:
            raise UsageError(f"--config.variants has {name!r}: expected some of {', '.join(names)}")
    if names[0] not in config.variants or len(set(config.variants)) < 2:
        given = ",".join(config.variants) or "empty"
        raise UsageError(f"--config.variants is {given}: expected {names[0]}, and others to compare with it")
    return [variant for variant in ablation.variants if variant.name in config.variants]


def make_entries(ablation: Ablation, config: Config) -> list[Entry]:
    """An entry for every variant on every task. Raises UsageError where one can't be."""
    entries = []
    for variant in variants_of(ablation, config):
        for name, task in tasks_of(config).items():
            sizes = {"input_size": task.input_size, "hidden_size": config.model.hidden_size}
            cell = build(variant.cell, variant.options, **sizes)

            def of_seed(seed: int, cell=cell, task=task):
                return make_model(cell, task, seed)

            entries.append(Entry(f"{variant.name}-{name}", task, config.train, of_seed, cell=ablation.family))
    return entries


def check(ablation: Ablation, config: Config) -> None:
    """Raises UsageError for a config that can't be."""
    if not 1 <= config.seeds <= MOST:
        raise UsageError(f"--config.seeds is {config.seeds}: expected 1 to {MOST}, whose 2^seeds signs are all tried")
    check_entries(make_entries(ablation, config), config)


def run_ablation(ablation: Ablation, config: Config, workdir: pathlib.Path) -> None:
    """Trains what is not finished, and writes the report."""
    check(ablation, config)
    entries = make_entries(ablation, config)
    entries[0].make_model(config.train.seed)  # a corpus that is not there is told of before anything is written
    claim_workdir(workdir, {"experiment": ablation.name, "config": to_dict(config)})
    summaries = run_entries(entries, workdir, config, WORKERS)
    results = collect(ablation, config, summaries, workdir)
    default = is_default(config, ablation.get_config, ablation.setting)
    study = report(ablation, config, results, ablation.judge(results) if default else [])
    seconds = run_files.seconds_of_study(workdir)
    write_report(workdir, study if default else unclaimed(study), seconds)


def scored(loss: float | None, chance: float) -> float:
    """log10 of a loss over chance, between FLOOR and 0; 0 for one that is none, of a network that diverged."""
    if loss is None or not math.isfinite(loss):
        return 0.0
    return float(np.clip(np.log10(max(loss, 1e-30) / chance), FLOOR, 0.0))


class Comparison(NamedTuple):
    """paired: of the scores of a variant less those of the whole cell; corrected: its p by Holm, within the task."""

    paired: Paired
    corrected: float

    @property
    def verdict(self) -> str:
        """WORSE, BETTER or UNRESOLVED."""
        if self.corrected >= LEVEL:
            return UNRESOLVED
        return WORSE if self.paired.mean > 0 else BETTER


@dataclasses.dataclass(frozen=True)
class Results:
    """tasks: their names.
    scores: {(variant, task): [seed]}.
    against: {(variant, task): Comparison}, of all variants but the whole cell.
    norms: {(variant, task): [2, distance]}, medians over sequences of log10 ||dL/dcarry_t||, before and after training.
    parameters: {(variant, task): of the model}.
    """

    tasks: tuple[str, ...]
    scores: Mapping[tuple[str, str], np.ndarray]
    against: Mapping[tuple[str, str], Comparison]
    norms: Mapping[tuple[str, str], np.ndarray]
    parameters: Mapping[tuple[str, str], int]

    def count(self, verdict: str, *variants: str) -> int:
        """On how many tasks, over these variants, the verdict is this one."""
        return sum(self.against[variant, task].verdict == verdict for variant in variants for task in self.tasks)

    def effect(self, variant: str) -> float:
        """The mean over tasks of the difference in score, in decades of loss."""
        return float(np.mean([self.against[variant, task].paired.mean for task in self.tasks]))

    def no_difference(self, text: str, source: str, *variants: str, either: bool = False) -> Claim:
        """That these variants are no worse, or `either` no different, on any task.

        Held where the intervals allow for no factor of ALIKE, not held where one is significantly so, and else not
        measured: what is not resolved is no proof.
        """
        of = [self.against[variant, task] for variant in variants for task in self.tasks]
        found = sum(one.verdict == WORSE or (either and one.verdict == BETTER) for one in of)
        text = f"{text} (comparisons that are significantly so, of {len(of)}, corrected within a task)"
        expected = f"0, and no interval beyond a factor of {ALIKE}"
        widest = 10.0 ** max(max(one.paired.high, -one.paired.low if either else one.paired.high) for one in of)
        if found or widest <= ALIKE:
            return Claim(text, source, expected, found, found == 0)
        return Claim.unmeasured(
            text, source, expected, f"none is, but these seeds do not rule out a factor of {widest:.2g}"
        )

    def slope(self, variant: str, task: str, when: int) -> float:
        """Of log ||dL/dcarry_t|| in nats a step back; when: 0 before training, -1 after it."""
        return Curve.of(self.norms[variant, task][when]).slope

    def slope_gaps(self, variant: str, other: str) -> np.ndarray:
        """[task], how much larger the slope of `variant` is than that of `other` before training."""
        return np.array([self.slope(variant, task, 0) - self.slope(other, task, 0) for task in self.tasks])


def collect(
    ablation: Ablation, config: Config, summaries: Mapping[str, dict[str, Any]], workdir: pathlib.Path
) -> Results:
    """The results of all seeds."""
    names, tasks = [variant.name for variant in variants_of(ablation, config)], tasks_of(config)
    pairs = [(variant, task) for variant in names for task in tasks]
    scores = {
        (variant, task): np.array(
            [
                scored(one["scores"].get("loss"), tasks[task].chance)
                for one in summaries[f"{variant}-{task}"]["replicas"]
            ]
        )
        for variant, task in pairs
    }
    norms = {(variant, task): _medians(workdir / f"{variant}-{task}" / "norms.npz") for variant, task in pairs}
    parameters = {(variant, task): summaries[f"{variant}-{task}"]["parameters"] for variant, task in pairs}
    return Results(tuple(tasks), scores, compare(scores, names, tuple(tasks)), norms, parameters)


def compare(
    scores: Mapping[tuple[str, str], np.ndarray], names: Sequence[str], tasks: Sequence[str]
) -> dict[tuple[str, str], Comparison]:
    """Every variant against the first, seed by seed, corrected for their number on each task."""
    whole, *others = names
    found = {}
    for task in tasks:
        tested = [paired(scores[variant, task] - scores[whole, task]) for variant in others]
        corrected = holm([one.p for one in tested])
        found |= {(variant, task): Comparison(*both) for variant, *both in zip(others, tested, corrected, strict=True)}
    return found


def _medians(path: pathlib.Path) -> np.ndarray:
    """[step, distance], the first and the last row of the only unroll in a norms.npz."""
    arrays = run_files.read_norms(path)
    (unroll,) = [name for name in arrays if name != "step"]
    return arrays[unroll][[0, -1], :, QUANTILES.index(0.5)]


def report(ablation: Ablation, config: Config, results: Results, claims: list[Claim]) -> Study:
    """The table, the picture and the claims."""
    variants = variants_of(ablation, config)
    whole, rows, panels = variants[0].name, [], {}
    for variant in variants:
        for task in results.tasks:
            key = variant.name, task
            against, tells = results.against.get(key), ("-", "-", "the whole cell")
            if against is not None:
                mean, low, high = (10.0**value for value in against.paired[:3])
                tells = (f"{mean:.2f} [{low:.2f}, {high:.2f}]", f"{against.corrected:.3f}", against.verdict)
            slopes = [f"{results.slope(*key, when):+.3f}" for when in (0, -1)]
            share = 10.0 ** float(np.median(results.scores[key]))
            rows.append((variant.name, task, results.parameters[key], share, *tells, " -> ".join(slopes)))
            verdict = None if against is None else against.verdict
            panels[key] = Panel(results.scores[key], results.norms[key], verdict)
    labels = {variant.name: variant.what for variant in variants}
    figure = draw(panels, labels, results.tasks, whole, ablation.family, title=ablation.title, floor=FLOOR)
    header = (
        "variant", "task", "parameters", "loss / chance", f"factor over {whole}", "p", "verdict", "slopes (nats a step)"
    )  # fmt: skip
    note = f"""Loss over chance: the median of {config.seeds} seeds, of the test set at the end of training. Factor: by
how much the loss is larger than that of {whole} with the same seed, the geometric mean and its 95 % interval, which is
not corrected. p: exact sign-flip test, corrected by Holm for the {len(variants) - 1} variants of a task; uncorrected
none can be below {2.0 ** (1 - config.seeds):.2g}. Losses are taken as no less than {10.0**FLOOR:g} of chance and no
more than chance. Slopes: of log ||dL/dcarry_t|| a step back from the loss, before and after training, of the whole
carry, which with gate recurrence holds the gates too."""
    drawn = {"ablation": (figure, "Scores of every seed, and the gradient on its way back, before and after training")}
    text = f"{ablation.text.rstrip()} {solved_by_all(results)}"
    return Study(ablation.name, ablation.title, text, [Table("Scores", header, rows, note)], drawn, claims)


def solved_by_all(results: Results) -> str:
    """A sentence on the tasks that tell nothing apart, since the median seed of every variant solves them."""
    medians = {
        task: [np.median(results.scores[key]) for key in results.scores if key[1] == task] for task in results.tasks
    }
    easy = [task.replace("_", " ") for task, values in medians.items() if np.max(values) <= FLOOR]
    return (
        f"Every variant solves {' and '.join(easy)}, which so tells none of them apart at these sizes." if easy else ""
    )
