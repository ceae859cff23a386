"""What each part of an LSTM is good for: take it away, and see what is learned and how far the gradient reaches.

Question: which of the LSTM's gates and activations, its peepholes and its full gate recurrence make a difference, and
    what do they do to the gradient through time?
Source: Greff, Srivastava, Koutnik, Steunebrink, Schmidhuber 2017, "LSTM: a search space odyssey"; Jozefowicz, Zaremba,
    Sutskever 2015; Hochreiter, Schmidhuber 1997.
Command: python -m experiments.lstm_ablation --workdir=runs/lstm_ablation
Expected: of Greff et al.: the forget gate and the output activation are missed most; nothing is lost with an input gate
    coupled to the forget gate or without peepholes, nor gained by full gate recurrence. Of theory: without a forget
    gate the gradient fades less before training. What came out of quick: the theory, and not the order of the paper. On
    copying the coupled gate has 3.7 times the loss, no peepholes 1.5 times, no output activation a seventh of it; on
    adding the input gate is missed; the forget gate is not; temporal order is solved by all.
Runtime: quick, under 2 minutes on 2 cores, most of which is compiling 30 programs; full, of 12 seeds and 3,000 steps,
    estimated at an hour and not run; music, some minutes.

The whole cell is Greff et al.'s, which has peepholes. Its variants are theirs, and the cell of 1997: no forget gate, no
peepholes, full gate recurrence. Each is trained on the adding problem, on temporal order and on copying
(--config=synthetic), which need no data, or on the JSB chorales of the paper (--config=music).

What is not as in the paper: all variants have as many units, and so unlike many parameters, and one learning rate in
place of 200 drawn ones, so that a variant may be worse because its best rate is another; the forget bias is 1, as
Jozefowicz et al. recommend. Sequences start from a carry of 0 and are short: what a forget gate does for a stream that
never ends is not asked for here.
"""

import pathlib

import numpy as np

from experiments.common import ablation
from experiments.common.ablation import WORSE, Ablation, Config, Results, Variant, task_groups
from experiments.common.claims import Claim
from rnnjax.cells import LSTM
from rnnjax.train import cli
from rnnjax.train.config import ModelConfig, TrainConfig

VARIANTS = ("synthetic", "music")
WITH = {"peepholes": True}
CELLS = (
    Variant("vanilla", "LSTM with peepholes", LSTM, WITH),
    Variant("NIG", "no input gate", LSTM, {**WITH, "input_gate": False}),
    Variant("NFG", "no forget gate", LSTM, {**WITH, "forget_gate": False}),
    Variant("NOG", "no output gate", LSTM, {**WITH, "output_gate": False}),
    Variant("NIAF", "no input activation", LSTM, {**WITH, "input_activation": "identity"}),
    Variant("NOAF", "no output activation", LSTM, {**WITH, "output_activation": "identity"}),
    Variant("NP", "no peepholes", LSTM, {}),
    Variant("CIFG", "coupled, i = 1 - f", LSTM, {**WITH, "coupled": True}),
    Variant("FGR", "full gate recurrence", LSTM, {**WITH, "gate_recurrence": True}),
    Variant("1997", "NFG, NP and FGR", LSTM, {"forget_gate": False, "gate_recurrence": True}),
)
GREFF, JOZEFOWICZ = "Greff et al. 2017", "Jozefowicz et al. 2015"
LEARNED = 0.5


def get_config(variant: str, preset: str) -> Config:
    """The config: `quick`, or longer sequences, more units, seeds and steps."""
    quick = preset == "quick"
    names, seeds = tuple(cell.name for cell in CELLS), 9 if quick else 12
    if variant == "music":
        training = TrainConfig(
            epochs=10 if quick else 60, steps_per_call=1, batch_size=8, learning_rate=1e-2, schedule="cosine",
            eval_every=31, eval_batch=77, log_every=31, seed=1250,
        )  # fmt: skip
        return Config(task_groups(music={}), names, ModelConfig(36), training, seeds=seeds)
    steps = 500 if quick else 3000
    training = TrainConfig(
        steps=steps, steps_per_call=steps if quick else 500, batch_size=32, learning_rate=1e-2 if quick else 3e-3,
        eval_every=500, eval_batch=256, log_every=500, seed=1200,
    )  # fmt: skip
    tasks = task_groups(
        adding={"length": 20 if quick else 100},
        temporal_order={"min_length": 20 if quick else 100},
        copying={"delay": 5 if quick else 20, "symbols": 4, "recall": 3},
    )
    return Config(tasks, names, ModelConfig(16 if quick else 32), training, seeds=seeds)


def claims(results: Results) -> list[Claim]:
    """What the literature says of the variants and theory of their gradients."""
    tried, made = len(results.tasks), []
    shares = [10.0 ** np.median(results.scores["vanilla", task]) for task in results.tasks]
    text = "Control: the whole cell learns every task (the largest loss over chance, medians over seeds)"
    made.append(Claim(text, "a guard", f"<= {LEARNED}", float(np.max(shares)), bool(np.max(shares) <= LEARNED)))
    other = {"NFG": "Hochreiter, Schmidhuber 1997 solve adding and temporal order without a forget gate"}
    for name, what in (("NFG", "the forget gate"), ("NOAF", "the output activation")):
        worse = results.count(WORSE, name)
        text = f"Without {what} the LSTM is significantly worse (tasks out of {tried})"
        made.append(Claim(text, GREFF, ">= 1", worse, worse >= 1, contested=other.get(name, "")))
    effects = {name: results.effect(name) for name in ("NIG", "NFG", "NOG", "NIAF", "NOAF", "NP", "CIFG", "FGR")}
    worst = sorted(effects, key=effects.get)[-2:]
    found = len({"NFG", "NOAF"} & set(worst))
    text = "These two are missed most (how many of them are among the two variants of the largest mean loss)"
    other = f"{JOZEFOWICZ}: the input gate is next after the forget gate"
    made.append(Claim(text, GREFF, "2", found, found == 2, contested=other))
    text = "Without peepholes, or with one gate for input and forgetting, it is no worse"
    made.append(results.no_difference(text, GREFF, "NP", "CIFG"))
    made.append(results.no_difference("Full gate recurrence changes nothing", GREFF, "FGR", either=True))
    margin = min(effects["NIG"], effects["NFG"]) - effects["NOG"]
    text = "Of the three gates the output gate is missed least (decades of loss to the next, mean over tasks)"
    other = f"{GREFF}: without it speech and handwriting are significantly worse"
    made.append(Claim(text, JOZEFOWICZ, "> 0", margin, margin > 0, contested=other))
    return [*made, *_of_gradients(results)]


def _of_gradients(results: Results) -> list[Claim]:
    derived = "derived: dc_t/dc_{t-1} holds 1 in place of f, which is about sigmoid(1)"
    least = float(np.min(results.slope_gaps("NFG", "vanilla")))
    text = "Before training the gradient fades less without a forget gate (nats a step, the least of the tasks)"
    made = [Claim(text, derived, "> 0", least, least > 0)]
    gap = float(np.max(np.abs(results.slope_gaps("NP", "vanilla"))))
    text = "Control: peepholes, which start at 0, change no gradient before training (largest difference of slopes)"
    return [*made, Claim(text, "derived", "<= 1e-3", gap, gap <= 1e-3)]


ABLATION = Ablation(
    name="lstm_ablation",
    title="What the parts of an LSTM are good for",
    text="""
Every variant is the LSTM of Greff et al. 2017, peepholes included, with one thing taken away or added; "1997" is the
cell of Hochreiter and Schmidhuber. All have as many units and one learning rate, where the paper drew 200 settings of
each, and sequences that start from a carry of 0. "Differs" is said where p < 0.05; "not resolved" is no proof of no
difference: the interval tells what it may be.""",
    family="lstm",
    variants=CELLS,
    get_config=get_config,
    setting="synthetic",
    judge=claims,
)


def check(config: Config) -> None:
    """Raises UsageError for a config that can't be."""
    ablation.check(ABLATION, config)


def main(config: Config, workdir: pathlib.Path) -> None:
    """Trains every variant on every task and writes the report. What is finished in `workdir` is not done again."""
    ablation.run_ablation(ABLATION, config, workdir)


def run() -> None:
    """What the command line calls."""
    cli.run(main, get_config, doc=__doc__, variants=VARIANTS)


if __name__ == "__main__":
    run()
