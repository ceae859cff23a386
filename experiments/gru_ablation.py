"""What each gate of a GRU is good for: take it away, and see what is learned and how far the gradient reaches.

Question: which of the GRU's gates make a difference, does it matter where the reset gate stands, and what do they do to
    the gradient through time?
Source: Cho et al. 2014; Zhou, Wu, Zhang, Zhou 2016, "Minimal gated unit for recurrent neural networks"; Ravanelli,
    Brakel, Omologo, Bengio 2018, "Light gated recurrent units for speech recognition"; in the manner of Greff et al.
    2017.
Command: python -m experiments.gru_ablation --workdir=runs/gru_ablation
Expected: without the update gate, which alone adds h_{t-1} as it is, less is learned and the gradient fades faster;
    where the reset gate stands, whether it is there, and whether one gate does both, makes no difference. All of it
    came out, but for the one gate, which had 1.6 times the loss on copying (p = 0.03).
Runtime: quick, about a minute on 2 cores; full, of 12 seeds and 3,000 steps, estimated at half an hour and not run;
    music, some minutes.

Each variant is trained on the adding problem, on temporal order and on copying (--config=synthetic), which need no
data, or on the JSB chorales (--config=music). All have as many units, and so unlike many parameters, and one learning
rate, so that a variant may be worse because its best rate is another.
"""

import pathlib

import numpy as np

from experiments.common import ablation
from experiments.common.ablation import WORSE, Ablation, Config, Results, Variant, task_groups
from experiments.common.claims import Claim
from rnnjax.cells import GRU, MGU, Elman
from rnnjax.train import cli
from rnnjax.train.config import ModelConfig, TrainConfig

VARIANTS = ("synthetic", "music")
CELLS = (
    Variant("vanilla", "reset after the matmul", GRU, {}),
    Variant("before", "reset before the matmul", GRU, {"reset": "before"}),
    Variant("NRG", "no reset gate", GRU, {"reset": "none"}),
    Variant("NUG", "no update gate", GRU, {"update_gate": False}),
    Variant("MGU", "one gate for both", MGU, {}),
    Variant("tanh", "no gate: Elman", Elman, {}),
)
LEARNED, FASTER = 0.5, 0.2


def get_config(variant: str, preset: str) -> Config:
    """The config: `quick`, or longer sequences, more units, seeds and steps."""
    quick = preset == "quick"
    names, seeds = tuple(cell.name for cell in CELLS), 10 if quick else 12
    if variant == "music":
        training = TrainConfig(
            epochs=10 if quick else 60, steps_per_call=1, batch_size=8, learning_rate=6e-3, schedule="cosine",
            eval_every=31, eval_batch=77, log_every=31, seed=1350,
        )  # fmt: skip
        return Config(task_groups(music={}), names, ModelConfig(46), training, seeds=seeds)
    steps = 600 if quick else 3000
    training = TrainConfig(
        steps=steps, steps_per_call=steps if quick else 500, batch_size=32, learning_rate=1e-2 if quick else 3e-3,
        eval_every=600 if quick else 500, eval_batch=256, log_every=600 if quick else 500, seed=1300,
    )  # fmt: skip
    tasks = task_groups(
        adding={"length": 20 if quick else 100},
        temporal_order={"min_length": 20 if quick else 100},
        copying={"delay": 5 if quick else 20, "symbols": 4, "recall": 3},
    )
    return Config(tasks, names, ModelConfig(16 if quick else 32), training, seeds=seeds)


def claims(results: Results) -> list[Claim]:
    """What the literature says of the variants and theory of their gradients."""
    tried = len(results.tasks)
    shares = [10.0 ** np.median(results.scores["vanilla", task]) for task in results.tasks]
    text = "Control: the whole cell learns every task (the largest loss over chance, medians over seeds)"
    made = [Claim(text, "a guard", f"<= {LEARNED}", float(np.max(shares)), bool(np.max(shares) <= LEARNED))]
    for name, what, source, least in (
        ("NUG", "Without the update gate the GRU", "theory: no path is left on which h_{t-1} is added", 2),
        ("tanh", "Control: without any gate it", "Bengio, Simard, Frasconi 1994", 1),
    ):
        worse = results.count(WORSE, name)
        text = f"{what} is significantly worse (tasks out of {tried})"
        made.append(Claim(text, source, f">= {least}", worse, worse >= least))
    made.append(results.no_difference("Without the reset gate it is no worse", "Ravanelli et al. 2018", "NRG"))
    made.append(results.no_difference("With one gate for both it is no worse", "Zhou et al. 2016", "MGU"))
    text, source = "Reset before the matmul is as good as after it", "libraries have either: Cho et al. 2014, cuDNN"
    made.append(results.no_difference(text, source, "before", either=True))
    most = float(np.max(results.slope_gaps("NUG", "vanilla")))
    text = "Before training the gradient fades faster without the update gate (nats a step, the largest of the tasks)"
    derived = "derived: at 0, dh_t/dh_{t-1} is W/2 in place of I/2 + W/4: -0.41"
    made.append(Claim(text, derived, f"<= -{FASTER}", most, most <= -FASTER))
    return made


ABLATION = Ablation(
    name="gru_ablation",
    title="What the gates of a GRU are good for",
    text="""
Every variant is a GRU whose reset gate stands behind the recurrent matmul, with one thing changed; MGU has one gate
that updates and resets, and tanh has none. All have as many units and one learning rate, and sequences that start from
0. "Differs" is said where p < 0.05; "not resolved" is no proof of no difference: the interval tells what it may be.""",
    family="gru",
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
