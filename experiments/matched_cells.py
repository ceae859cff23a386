"""tanh, GRU and LSTM with as many parameters, and what is said of the GRU against the LSTM.

Question: which of three cells with as many parameters is ahead on piano rolls, and is what is said of the GRU against
    the LSTM so: 3/4 of the parameters, less time a step, ahead on small data, and on long sequences?
Source: Chung, Gulcehre, Cho, Bengio 2014, tables 1 and 2; Jozefowicz, Zaremba, Sutskever 2015.
Command: python -m experiments.matched_cells --workdir=runs/matched_cells
Expected: 3/4 of the parameters exactly, so 3/4 of a step's matmuls; what time that is depends on the machine. Gates are
    ahead of tanh by 0.15 nats a step on the JSB chorales and by 0.2 on Nottingham, where Chung et al. have tanh ahead.
    Of GRU and LSTM none is expected to be ahead in general: papers conflict, and each difference is told with the
    number of pairs and its standard error. What gates gain is judged after 40 passes and more, by the full presets.
Runtime: quick, a minute to 90 seconds on 2 cores; estimated: jsb:full, 15 minutes, nottingham:full, an hour.

tanh, GRU and LSTM have the sizes of Chung et al., 100, 46 and 36 units, and are trained as in experiments.music,
without its weight noise. Where there is no corpus, what needs none is measured.
"""

import dataclasses
import functools
import pathlib
from typing import Any

import numpy as np

from experiments import music
from experiments.adding import solved
from experiments.common import gru_lstm
from experiments.common.adding_report import SOLVED, Learning, read_learning
from experiments.common.claims import Claim
from experiments.common.gru_lstm import FewConfig, FewPieces, LongConfig, TimeConfig
from experiments.common.gru_lstm_report import draw_statements, statements
from experiments.common.parts import Part, finish
from experiments.common.side_by_side import WORKERS
from experiments.common.study import Entry, check_entries, is_default, run_entries, unclaimed
from experiments.common.study_report import Study, Table, write_study
from experiments.common.timing import describe
from rnnjax.data.errors import DataError
from rnnjax.tasks import Music
from rnnjax.train import cli
from rnnjax.train.build import hidden_size, make_task
from rnnjax.train.config import GradientConfig, TrainConfig, UsageError, build, to_dict
from rnnjax.train.records import claim_workdir

VARIANTS = music.VARIANTS
CELLS = ("elman", "gru", "lstm")
LONG = (100, 200)
"""Lengths of the adding problem that claims are about."""
ENOUGH = 40
"""Epochs after which a training is judged."""


@dataclasses.dataclass
class Config(music.Config):
    """time: how training steps are timed.
    few: training on few pieces.
    long: training on long sequences.
    """

    time: TimeConfig = dataclasses.field(default_factory=TimeConfig)
    few: FewConfig = dataclasses.field(default_factory=FewConfig)
    long: LongConfig = dataclasses.field(default_factory=LongConfig)


def get_config(variant: str, preset: str) -> Config:
    """The config of a corpus: `quick`, or trained to the end, with more seeds and longer sequences."""
    of_music = music.get_config(variant, "quick")
    config = Config(**{field.name: getattr(of_music, field.name) for field in dataclasses.fields(of_music)})
    config.models, config.probe, config.seeds = CELLS, GradientConfig(on=True), 2
    config.train.seed = 1210
    if variant == "jsb":  # one shape is compiled once, and many updates make a call
        config.task.buckets = 1
        config.train.steps_per_call = config.train.eval_every = config.train.log_every = 29  # a pass
    if preset == "full":
        config.train.epochs, config.seeds, config.time.rounds = 50, 5 if variant == "jsb" else 3, 50
        config.few.seeds = 10
        config.long = LongConfig(lengths=LONG, steps=2000, seeds=5)
    return config


def check(config: Config) -> None:
    """Raises UsageError for a config that can't be, without reading a corpus."""
    music.check(config)
    for group, names in {
        "time": ("units", "length", "batch", "rounds"),
        "few": ("every", "steps", "seeds"),
        "long": ("lengths", "units", "steps", "test_every", "seeds"),
    }.items():
        for name in names:
            value = getattr(getattr(config, group), name)
            for one in value if isinstance(value, tuple) else (value,):
                if one < 1:
                    raise UsageError(f"--config.{group}.{name} is {one}: expected at least 1")
    if missing := [name for name in ("gru", "lstm") if name not in config.models]:
        raise UsageError(f"--config.models lacks {missing[0]}: GRU and LSTM are what the study compares")
    for name in ("steps", "test_every"):
        value, call = getattr(config.long, name), TrainConfig().steps_per_call
        if value % call:
            raise UsageError(f"--config.long.{name} is {value}: expected a multiple of {call}")
    lengths = config.long.lengths
    if not lengths or len(set(lengths)) < len(lengths) or 1 in lengths:
        raise UsageError(f"--config.long.lengths is {cli.show(lengths)}: expected one or more above 1, each once")
    check_entries(long_entries(config), config)


def corpus(config: Config) -> tuple[Music | None, str]:
    """(The task, ""), or (None, why) where no usual place has the corpus. Raises DataError for a path that is none."""
    task = make_task(config.task)[1]
    try:
        _ = task.rolls
    except DataError as error:
        if config.task.path:
            raise
        return None, " ".join(str(error).split())
    return task, ""


def few_entries(config: Config) -> list[Entry]:
    """GRU and LSTM on few pieces."""
    task = build(FewPieces, config.task, every=config.few.every)
    every = next(count for count in range(max(1, config.few.steps // 15), 0, -1) if config.few.steps % count == 0)
    training = dataclasses.replace(
        config.train,
        epochs=0,
        steps=config.few.steps,
        steps_per_call=every if config.task.buckets == 1 else 1,
        eval_every=every,  # the best of 15 states or more is taken
        log_every=every,
    )
    entries = music.make_entries(dataclasses.replace(config, models=("gru", "lstm"), train=training), task)
    return [dataclasses.replace(entry, name=f"{entry.name}-few", cell="") for entry in entries]


def long_entries(config: Config) -> list[Entry]:
    """GRU and LSTM on the adding problem."""
    return gru_lstm.adding_entries(config.long, config.train.seed, solved)


def main(config: Config, workdir: pathlib.Path) -> None:
    """Measures, trains and writes the report. What is finished in `workdir` is not done again."""
    check(config)
    task, why = corpus(config)
    entries = music.make_entries(config, task) if task else []
    few = few_entries(config) if task else []
    check_entries([*entries, *few], config)
    for entry in (*entries, *few):
        _ = entry.task.chance, entry.make_model(config.train.seed)  # what can't be is told before anything is written
    claim_workdir(workdir, {"experiment": "matched_cells", "config": to_dict(config)})
    timing = functools.partial(gru_lstm.time_steps, config.time, Music.input_size, units(config))
    (timed,) = finish([Part("time", timing)], workdir / "parts")
    summaries = run_entries(entries, workdir, config, WORKERS)
    of_few = run_entries(few, workdir, dataclasses.replace(config, seeds=config.few.seeds), WORKERS)
    of_long = run_entries(long_entries(config), workdir, dataclasses.replace(config, seeds=config.long.seeds), WORKERS)
    found = Found(task, why, timed, summaries, of_few, read_learning(workdir, of_long))
    default = is_default(config, get_config, variant_of(config), "task.path")
    study = report(config, found, claims(config, found) if default else [])
    write_study(workdir, study if default else unclaimed(study), summaries | of_few | of_long)


@dataclasses.dataclass(frozen=True)
class Found:
    """What was measured.

    task: the corpus, None where there is none, and why.
    timed: what `time_steps` gives.
    summaries, few: {model: summary} of all pieces and of few, empty where there is no corpus.
    learning: {model: how its test error went down} on the adding problem.
    """

    task: Music | None
    why: str
    timed: dict[str, Any]
    summaries: dict[str, dict]
    few: dict[str, dict]
    learning: dict[str, Learning]

    def solved(self, length: int) -> dict[str, np.ndarray]:
        """{cell: [seed]}, the updates after which the adding problem of this length was solved."""
        return {name: gru_lstm.solved_at(self.learning[f"{name}-adding-{length}"]) for name in ("gru", "lstm")}


def units(config: Config) -> dict[str, int]:
    """{cell: H} of the cells of as many parameters."""
    return {name: hidden_size(name, config) for name in CELLS}


def variant_of(config: Config) -> str:
    """The variant whose corpus it is."""
    return next((name for name, title in music.CORPORA.items() if title == config.task.corpus), VARIANTS[0])


def claims(config: Config, found: Found) -> list[Claim]:
    """Of the parameters, the corpus, and what is said."""
    made = gru_lstm.parameter_claims()
    if found.task is None:
        made.append(Claim.unmeasured(music.GAIN, gru_lstm.CHUNG, ">= 0.15", found.why))
    else:
        made.append(music.beyond_frequencies(found.task, found.summaries))
        if config.train.epochs >= ENOUGH:
            made.append(music.gain_of_gates(found.task, found.summaries))
        else:
            gain = music.gain_of_gates(found.task, found.summaries)
            why = f"a rule of {ENOUGH} passes and more, which the full preset has; after {config.train.epochs} it is"
            made.append(Claim.unmeasured(gain.claim, gain.source, gain.expected, f"{why} {gain.measured:.3f}"))
    if variant_of(config) == "jsb":
        why = "another corpus, and most of an hour: --config=nottingham:full"
        made.append(Claim.unmeasured(f"The same on Nottingham: {music.GAIN}", gru_lstm.CHUNG, ">= 0.2", why))
    made.append(gru_lstm.time_claim(config.time, found.timed))
    made.append(gru_lstm.few_claim(config.few, found.few or None, found.why))
    solved = {length: found.solved(length) for length in config.long.lengths}
    return [*made, *gru_lstm.long_claims(LONG, solved, config.long.steps)]


def report(config: Config, found: Found, made: list[Claim]) -> Study:
    """Scores as the study of music has them, the table of what is said, and the pictures."""
    rows, note = statements(config, found, units(config))
    header = ("what is said of the GRU", "measured", "GRU", "LSTM", "difference or ratio", "n")
    said = Table("The GRU against the LSTM", header, rows, note)
    drawn = {"statements": (draw_statements(config, found), "The GRU against the LSTM, measured")}
    if found.task is None:
        text = f"There is no corpus, so that nothing was trained on music: {found.why}"
        tables = [said]
    else:
        of_music = music.report(config, found.task, found.summaries)
        text, tables, drawn = of_music.text, [*of_music.tables, said], dict(of_music.drawn) | drawn
    of_pairs = f"""
{config.few.every - 1} of {config.few.every} training pieces are left out for small data; validation and test splits are
whole. The adding problem is solved, and training ends, at the first test with an error below {SOLVED}, one every
{config.long.test_every} updates. Two trainings with one seed see the same batches: they are a pair. Steps were timed on
{describe(found.timed["machine"])}"""
    text = "\n\n".join(" ".join(paragraph.split()) for paragraph in (text, of_pairs))
    return Study("matched_cells", "Cells with as many parameters", text, tables, drawn, made, shown=len(tables))


def run() -> None:
    """What the command line calls."""
    cli.run(main, get_config, doc=__doc__, variants=VARIANTS)


if __name__ == "__main__":
    run()
