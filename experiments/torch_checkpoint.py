"""How far back the gradient reaches in an LSTM that was trained in torch.

Question: over how many steps does the gradient of a loss at the end reach back in a trained torch.nn.LSTM, layer by
    layer and direction by direction?
Source: Hochreiter, Schmidhuber 1997; the equations in the documentation of torch.nn.LSTM.
Command: python -m experiments.torch_checkpoint --workdir=runs/torch_checkpoint
Expected: a plain loop of torch's equations over the tensors of the file gives the outputs of the converted layer and,
    differentiated by complex steps, its dL/dcarry at the far end of the sequence; and so does what is written back. In
    the checkpoint made here, an LSTM that learns the adding problem, training leaves more of the gradient there.
Runtime: quick, a quarter of a minute on 2 cores; full, half a minute; with a checkpoint that is given, seconds.

--config.checkpoint=FILE.safetensors takes anyone's, with --config.prefix=encoder.lstm where it is a part of a model.
torch itself is not needed. The loss is a random projection of the last h of the top layer; all is measured in float64.
"""

import dataclasses
import hashlib
import json
import pathlib
import sys
import time

import matplotlib
import numpy as np
from flax import nnx

from experiments.common.checkpoint import Measured, judge, measure, read_lstm
from experiments.common.claims import verdicts, write_claims
from experiments.common.curves import QUANTILES, Curve
from rnnjax.cells import LSTM
from rnnjax.data.locate import expanded
from rnnjax.data.safetensors import write_safetensors
from rnnjax.interop import to_torch
from rnnjax.report import figures, run_files, tables
from rnnjax.report.style import STYLE
from rnnjax.tasks import Adding
from rnnjax.train import cli
from rnnjax.train.build import make_model
from rnnjax.train.config import ModelConfig, TrainConfig, UsageError, to_dict, validate
from rnnjax.train.loop import train
from rnnjax.train.records import claim_workdir, replacing
from rnnjax.train.step import PROBE, root_key, stream

VARIANTS = ("adding",)
MADE = {"before training": "initial.safetensors", "after training": "checkpoint.safetensors"}
"""The files that are made where no checkpoint is given."""
GIVEN = "as given"
HEADER = ("weights", "unroll", "slope", "half-life", "left at the far end", "verdict")


@dataclasses.dataclass
class Config:
    """checkpoint: a .safetensors file of a torch.nn.LSTM, or of a model that has one; none makes one here.
    prefix: where in the model the LSTM is, such as encoder.lstm.
    inputs: a .npy file of its inputs [T, B, features]; none draws them, from the adding problem or standard normal.
    length: T of what is drawn, and of the adding problem that the checkpoint made here learns.
    batch: B of what is drawn.
    """

    model: ModelConfig
    train: TrainConfig
    checkpoint: str | None = None
    prefix: str = ""
    inputs: str | None = None
    length: int = 50
    batch: int = 32  # enough for quartiles that do not jump


def get_config(variant: str, preset: str) -> Config:
    """The adding problem of 50 steps, or of 100."""
    del variant
    quick = preset == "quick"
    training = TrainConfig(
        steps=800 if quick else 2000,
        steps_per_call=25,
        batch_size=64,
        learning_rate=3e-3,  # that of the study of gradient norms
        eval_every=200,
        log_every=25,
    )
    return Config(ModelConfig(32), training, length=50 if quick else 100)


def main(config: Config, workdir: pathlib.Path) -> None:
    """Reads or makes the checkpoint, measures, judges and reports; what is finished in `workdir` is shown again."""
    paths, inputs = check(config, workdir)
    digests = {str(path): digest(path) for path in (config.checkpoint, config.inputs) if path is not None}
    claim_workdir(workdir, {"experiment": "torch_checkpoint", "config": to_dict(config), "sha256": digests})
    if not (workdir / "claims.json").exists():
        started = time.monotonic()
        if config.checkpoint is None and not all(path.exists() for path in paths.values()):
            make_checkpoint(config, workdir)
        print("measuring dL/dcarry", file=sys.stderr, flush=True)
        measured = {label: measure(path, config.prefix, inputs, config.train.seed) for label, path in paths.items()}
        save_norms(workdir / "torch_checkpoint.npz", measured)
        write_claims(
            workdir / "claims.json", "torch_checkpoint", judge(list(measured.values())), time.monotonic() - started
        )
    show(workdir, config)


def check(config: Config, workdir: pathlib.Path) -> tuple[dict[str, pathlib.Path], np.ndarray]:
    """({label: file of weights}, inputs [T, B, features]). Raises UsageError, in a line, for what can't be measured."""
    validate(config.train)
    for name in ("length", "batch"):
        if getattr(config, name) < (least := 2 if name == "length" else 1):
            raise UsageError(f"--config.{name} is {getattr(config, name)}: expected at least {least}")
    if config.model.hidden_size < 1:
        raise UsageError(f"--config.model.hidden_size is {config.model.hidden_size}: expected at least 1")
    if config.checkpoint is None:
        if config.prefix or config.inputs is not None:
            raise UsageError("--config.prefix and --config.inputs are of a --config.checkpoint: give that too")
        batch = Adding(config.length).sample(stream(root_key(config.train.seed), PROBE), config.batch)
        return {label: workdir / name for label, name in MADE.items()}, np.asarray(batch.inputs, np.float64)
    path = expanded(config.checkpoint)
    try:
        layer, _, _ = read_lstm(path, config.prefix)
    except ValueError as error:
        raise UsageError(f"--config.checkpoint: {' '.join(str(error).split())}") from error
    return {GIVEN: path}, read_inputs(config, layer.input_size)


def read_inputs(config: Config, features: int) -> np.ndarray:
    """The inputs of a checkpoint that is given. Raises UsageError for a file that is none."""
    if config.inputs is None:
        return np.random.default_rng(config.train.seed).standard_normal((config.length, config.batch, features))
    path = expanded(config.inputs)
    try:
        found = np.load(path, mmap_mode="r", allow_pickle=False)  # a header can't ask for more than the file has
    except (OSError, ValueError, EOFError) as error:
        raise UsageError(
            f"--config.inputs: {path} is no .npy file of numbers: {' '.join(str(error).split())}"
        ) from error
    if not isinstance(found, np.ndarray) or found.ndim != 3 or 0 in found.shape or found.shape[2] != features:
        shape = list(getattr(found, "shape", []))
        raise UsageError(f"--config.inputs: {path} holds {shape}: expected [T, B, {features}], what the LSTM takes")
    if found.dtype.kind not in "fiu" or not np.all(np.isfinite(found)):
        raise UsageError(f"--config.inputs: {path} holds {found.dtype}, or what is not finite: expected finite numbers")
    return np.asarray(found, np.float64)


def digest(path: str) -> str:
    """The file's SHA-256, so that a run is not taken for one of another file of that name."""
    with expanded(path).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def make_checkpoint(config: Config, workdir: pathlib.Path) -> None:
    """Trains an LSTM on the adding problem and writes it, before and after, as torch would have it."""
    task = Adding(config.length)
    cell = LSTM(task.input_size, config.model.hidden_size)
    model = make_model(cell, task, config.train.seed)
    write(workdir / MADE["before training"], cell, model)
    nnx.update(model, train(model, task, config.train, workdir / "training", name="lstm").state.params)
    write(workdir / MADE["after training"], cell, model)


def write(path: pathlib.Path, cell: LSTM, model: nnx.Module) -> None:
    with replacing(path) as temporary:
        write_safetensors(temporary, to_torch(cell, model.rnn.arrays()))


def save_norms(path: pathlib.Path, measured: dict[str, Measured]) -> None:
    """ "WEIGHTS|UNROLL": [distance, quantile], log10."""
    arrays = {f"{label}|{name}": norms for label, one in measured.items() for name, norms in one.norms.items()}
    with replacing(path) as temporary:
        np.savez(temporary, quantile=np.array(QUANTILES), **arrays)


def show(workdir: pathlib.Path, config: Config) -> None:
    """Draws, writes report.md and prints the table."""
    claims = json.loads((workdir / "claims.json").read_text(encoding="utf-8"))["claims"]
    with np.load(workdir / "torch_checkpoint.npz") as stored:
        norms = {tuple(key.split("|")): stored[key] for key in stored.files if key != "quantile"}
    figures.save(draw(workdir, config, norms), workdir / "curves")
    rows = []
    for (label, name), values in norms.items():
        curve = Curve.of(values[:, QUANTILES.index(0.5)])
        half_life = "over 10,000 steps" if curve.half_life > 1e4 else f"{curve.half_life:.1f} steps"
        left = f"10^{curve.kept:.2f}" if np.isfinite(curve.kept) else "nothing" if curve.kept < 0 else "-"
        rows.append((label, name, f"{curve.slope_log10:+.4f}", half_life, left, curve.verdict))
    source = config.checkpoint or "an LSTM that learnt the adding problem here"
    text = f"""# The gradient through time in a torch checkpoint

{source}. {verdicts(claims)}.

![dL/dcarry_t against distance from the loss](curves.png)

{tables.markdown_table(HEADER, rows)}
Slopes are those of log10 ||dL/dcarry_t|| a step back from the loss, of the median over examples; the half-life is the
number of steps in which the norm halves. The loss is a random projection of the last h of the top layer. A backward
direction takes its last step at the start of the sequence; below a layer of two directions the gradient comes from both
ends, and one slope does not tell its course.

## Claims

{tables.claims_table(claims)}"""
    with replacing(workdir / "report.md") as path:
        path.write_text(text, encoding="utf-8")
    tables.console_table(HEADER, rows, f"log10 ||dL/dcarry_t|| a step back from the loss: {source}")
    print(f"{verdicts(claims)}; report: {workdir / 'report.md'}")


def draw(workdir: pathlib.Path, config: Config, norms: dict[tuple[str, str], np.ndarray]) -> matplotlib.figure.Figure:
    """The curves, a line an unroll; of what was made here, before and after training."""
    names = tuple(dict.fromkeys(name for _, name in norms))
    carry = {name: np.stack([values for (_, other), values in norms.items() if other == name]) for name in names}
    length = len(next(iter(norms.values())))
    steps = np.array([0, config.train.steps] if config.checkpoint is None else [0])
    run = run_files.Run(
        workdir, "torch_checkpoint", to_dict(config), names, {name: {"carry": carry[name]} for name in names},
        dict.fromkeys(names, steps), np.arange(length), np.array(QUANTILES), {}, dict.fromkeys(names, {}),
        {"task": "torch checkpoint"}, None,
    )  # fmt: skip
    figure = figures.curves(run)
    if config.checkpoint is not None:
        with matplotlib.rc_context(STYLE):
            figure.axes[0].set_title(pathlib.Path(config.checkpoint).name, parse_math=False)
    return figure


if __name__ == "__main__":
    cli.run(main, get_config, doc=__doc__, variants=VARIANTS)
