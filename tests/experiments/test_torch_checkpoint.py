"""The study of a torch checkpoint: one it makes, one it is given, what can fail, and what it says to wrong files."""

import dataclasses
import json
import pathlib
import re
import subprocess
import sys
import types

import jax
import numpy as np
import pytest
from flax import nnx

from experiments import torch_checkpoint
from experiments.common import checkpoint
from experiments.common.torch_lstm import Nudge, derivative, run_lstm
from rnnjax.data.safetensors import read_safetensors, write_safetensors
from rnnjax.interop import torch
from rnnjax.interop.forms import blocks, slot
from rnnjax.train import cli

TINY = [
    f"--config.{field}"
    for field in (
        "train.steps=10", "train.steps_per_call=5", "train.log_every=5", "train.eval_every=10", "train.batch_size=3",
        "train.eval_batch=4", "model.hidden_size=3", "length=6", "batch=4",
    )
]  # fmt: skip
SIZES = {"_l0": 3, "_l0_reverse": 3, "_l1": 4, "_l1_reverse": 4}


def run(workdir, *given):
    """Runs a command line in this process: the exit status."""
    try:
        parsed = cli.parse_or_exit(
            ["torch_checkpoint", f"--workdir={workdir}", *TINY, *map(str, given)],
            torch_checkpoint.get_config,
            doc=torch_checkpoint.__doc__,
            variants=torch_checkpoint.VARIANTS,
        )
    except SystemExit as exit:
        return exit.code
    return cli.call(torch_checkpoint.main, parsed)


def claims_of(workdir):
    return json.loads((workdir / "claims.json").read_text())["claims"]


def tensors(suffixes=SIZES, hidden=4, projection=2, seed=5):
    """A projected LSTM of two layers and both directions, by torch's names."""
    rng, found = np.random.default_rng(seed), {}
    for suffix in suffixes:
        found[f"weight_ih{suffix}"] = rng.standard_normal((4 * hidden, SIZES[suffix]))
        found[f"weight_hh{suffix}"] = rng.standard_normal((4 * hidden, projection or hidden))
        found[f"bias_ih{suffix}"], found[f"bias_hh{suffix}"] = rng.standard_normal((2, 4 * hidden))
        if projection:
            found[f"weight_hr{suffix}"] = rng.standard_normal((projection, hidden))
    return {name: array.astype(np.float32) for name, array in found.items()}


@pytest.fixture
def given(tmp_path):
    """A model with an LSTM in it and inputs for it: the arguments that name them."""
    model = {f"encoder.{name}": array for name, array in tensors().items()} | {"head.weight": np.zeros((2, 2))}
    write_safetensors(tmp_path / "model.safetensors", model)
    np.save(tmp_path / "inputs.npy", np.random.default_rng(1).standard_normal((7, 3, 3)))
    return [
        f"--config.checkpoint={tmp_path}/model.safetensors",
        "--config.prefix=encoder",
        f"--config.inputs={tmp_path}/inputs.npy",
    ]


def trained(model, task, config, workdir, *, name):
    """In place of training, which is tested elsewhere and compiles for long: weights half as large."""
    params = jax.tree.map(lambda leaf: leaf / 2, nnx.state(model, nnx.Param))
    return types.SimpleNamespace(state=types.SimpleNamespace(params=params))


def test_without_a_checkpoint_it_makes_one(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(torch_checkpoint, "train", trained)
    assert run(tmp_path / "run") == 0
    assert "4 claims hold" in capsys.readouterr().out
    assert [claim["holds"] for claim in claims_of(tmp_path / "run")][:3] == [True] * 3
    made = read_safetensors(tmp_path / "run" / "checkpoint.safetensors")
    assert {name: array.shape for name, array in made.items()} == {
        "weight_ih_l0": (12, 2), "weight_hh_l0": (12, 3), "bias_ih_l0": (12,), "bias_hh_l0": (12,),
    }  # fmt: skip
    before = read_safetensors(tmp_path / "run" / "initial.safetensors")
    assert np.array_equal(made["weight_hh_l0"], before["weight_hh_l0"] / 2)
    with np.load(tmp_path / "run" / "torch_checkpoint.npz") as stored:
        assert {key: stored[key].shape for key in stored.files if "|" in key} == {
            "before training|lstm": (6, 3), "after training|lstm": (6, 3),
        }  # fmt: skip
    report = (tmp_path / "run" / "report.md").read_text()
    assert "| before training | lstm |" in report and (tmp_path / "run" / "curves.png").stat().st_size > 10_000
    again = {path: path.read_bytes() for path in (tmp_path / "run").rglob("*") if path.is_file()}
    assert run(tmp_path / "run") == 0
    assert {path: path.read_bytes() for path in (tmp_path / "run").rglob("*") if path.is_file()} == again


@pytest.mark.full
def test_as_it_is_meant_to_be_run(tmp_path):
    """With training: it learns the task, and every claim holds."""
    done = subprocess.run(
        [sys.executable, "-m", "experiments.torch_checkpoint", f"--workdir={tmp_path}/run"],
        cwd=pathlib.Path(__file__).parents[2], capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0 and "4 of 4 claims hold" in done.stdout, done.stdout + done.stderr
    rows = [json.loads(line) for line in (tmp_path / "run" / "training" / "metrics.jsonl").read_text().splitlines()]
    assert rows[-1]["loss"] < 0.05 and claims_of(tmp_path / "run")[3]["measured"] > 0.5


def test_anyones_checkpoint_layer_by_layer_and_direction_by_direction(tmp_path, given, capsys):
    assert run(tmp_path / "run", *given) == 0
    said = capsys.readouterr().out
    assert "3 of 3 claims hold" in said
    for name in ("layer_0/forward", "layer_0/backward", "layer_1/forward", "layer_1/backward"):
        assert re.search(rf"as given +{name} ", said)
    with np.load(tmp_path / "run" / "torch_checkpoint.npz") as stored:
        assert stored["as given|layer_1/backward"].shape == (7, 3)
    assert all(claim["measured"] < 1e-12 for claim in claims_of(tmp_path / "run"))


def test_another_file_of_that_name_is_another_run(tmp_path, given, capsys):
    assert run(tmp_path / "run", *given) == 0
    write_safetensors(tmp_path / "model.safetensors", {f"encoder.{name}": a for name, a in tensors(seed=6).items()})
    assert run(tmp_path / "run", *given) == 2
    assert "differs in sha256" in capsys.readouterr().err


def test_complex_steps_are_the_limit_of_differences():
    """Along every unit vector of the carry."""
    state, inputs = tensors(), np.random.default_rng(2).standard_normal((5, 1, 3))
    state = {name: array.astype(float) for name, array in state.items()}
    _, last = run_lstm(state, inputs)
    weights = [np.ones_like(h) for h in last]
    for suffix, fields in (("_l0", (2, 4)), ("_l1_reverse", (2, 4))):
        nudges = [
            Nudge(
                suffix, *(np.eye(sum(fields))[k : k + 1, part] for part in (slice(fields[0]), slice(fields[0], None)))
            )
            for k in range(sum(fields))
        ]
        along = np.array([derivative(state, inputs, weights, nudge) for nudge in nudges])

        def loss(nudge, step, suffix=suffix):
            moved = nudge._replace(h=step * nudge.h, c=step * nudge.c)
            return sum(h.sum() for h in run_lstm(state, inputs, moved)[1])

        differences = np.array([(loss(nudge, 1e-6) - loss(nudge, -1e-6)) / 2e-6 for nudge in nudges])
        assert np.allclose(along, differences, atol=1e-8) and np.all(along != 0)


def measured(tmp_path, state):
    write_safetensors(tmp_path / "x.safetensors", state)
    inputs = np.random.default_rng(3).standard_normal((7, 2, 3))
    return checkpoint.measure(tmp_path / "x.safetensors", "", inputs, seed=0)


def verdicts(found):
    return [claim.holds for claim in checkpoint.judge(found if isinstance(found, list) else [found])]


ONE = tensors(["_l0"], projection=None)


def test_the_claims_hold_with_room(tmp_path):
    for state in (ONE, {name: a for name, a in ONE.items() if "bias" not in name}):
        found = measured(tmp_path, state)
        assert max(found.outputs, found.written, found.gradients) < 1e-13
        assert verdicts(found) == [True] * 3


def test_gates_in_another_order_are_seen(tmp_path, monkeypatch):
    slots = torch.FORMS[1].slots | {"weight_hh": slot(blocks("W_hh", "igfo"), transposed=True)}
    forms = (torch.FORMS[0], dataclasses.replace(torch.FORMS[1], slots=slots), *torch.FORMS[2:])
    monkeypatch.setattr(torch, "FORMS", forms)
    assert verdicts(measured(tmp_path, ONE)) == [False, False, True]


def test_a_bias_that_is_written_twice_is_seen(tmp_path, monkeypatch):
    def twice(layer, params, *, bias):
        arrays = torch.to_torch(layer, params, bias=bias)
        return arrays | {"bias_hh_l0": arrays["bias_ih_l0"]}

    monkeypatch.setattr(checkpoint, "to_torch", twice)
    assert verdicts(measured(tmp_path, ONE)) == [True, True, False]
    monkeypatch.setattr(checkpoint, "to_torch", lambda *args, **others: {})
    found = measured(tmp_path, ONE)
    assert np.isnan(found.written) and verdicts(found) == [True, True, False]


def test_a_gradient_that_is_not_the_loops_is_seen(tmp_path, monkeypatch):
    monkeypatch.setattr(checkpoint, "derivative", lambda *args: 1.001 * derivative(*args))
    assert verdicts(measured(tmp_path, ONE)) == [True, False, True]


def test_training_that_leaves_everything_as_it_was_is_seen(tmp_path):
    found = measured(tmp_path, ONE)
    assert verdicts([found, found]) == [True, True, True, False]
    longer = dataclasses.replace(
        found, norms={name: norms + np.arange(7)[:, None] for name, norms in found.norms.items()}
    )
    assert verdicts([found, longer]) == [True] * 4
    assert verdicts([longer, found])[3] is False


def save(path, array):
    np.save(path, array, allow_pickle=True)


def write(folder, state):
    write_safetensors(folder / "model.safetensors", {f"encoder.{name}": array for name, array in state.items()})


def f32(*shape):
    return np.zeros(shape, np.float32)


@pytest.mark.parametrize(
    ("spoil", "told"),
    [
        (lambda folder: folder.joinpath("model.safetensors").unlink(), "--config.checkpoint: .*no such file"),
        (lambda folder: folder.joinpath("model.safetensors").write_bytes(b"PK\3\4"), "cannot be read as safetensors"),
        (lambda folder: write(folder, {}), "nothing found under the prefix 'encoder'"),
        (lambda folder: write(folder, {"weight_ih_l0": f32(12, 3), "weight_hh_l0": f32(12, 4)}), "is a torch.nn.GRU"),
        (lambda folder: write(folder, {"weight_ih_l0": np.ones((16, 3), int), "weight_hh_l0": f32(16, 4)}), "int64"),
        (lambda folder: folder.joinpath("inputs.npy").unlink(), "--config.inputs: .*No such file"),
        (lambda folder: folder.joinpath("inputs.npy").write_bytes(b"\x93NUMPY"), "is no .npy file of numbers"),
        (lambda folder: save(folder / "inputs.npy", np.array([{}], object)), "is no .npy file of numbers"),
        (lambda folder: save(folder / "inputs.npy", np.zeros((7, 3, 4))), r"holds \[7, 3, 4\]: expected \[T, B, 3\]"),
        (lambda folder: save(folder / "inputs.npy", np.zeros((7, 3))), r"holds \[7, 3\]"),
        (lambda folder: save(folder / "inputs.npy", np.zeros((0, 3, 3))), r"holds \[0, 3, 3\]"),
        (lambda folder: save(folder / "inputs.npy", np.full((7, 3, 3), np.nan)), "not finite"),
        (lambda folder: save(folder / "inputs.npy", np.full((7, 3, 3), "a")), "expected finite numbers"),
    ],
)  # fmt: skip
def test_a_wrong_file_is_a_usage_error_of_one_line(tmp_path, given, capsys, spoil, told):
    spoil(tmp_path)
    assert run(tmp_path / "run", *given) == 2
    said = capsys.readouterr().err
    assert re.search(told, said) and said.count("\n") == 1
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--config.checkpoint=model.pt"], "torch.load"),
        (["--config.checkpoint=/"], "no .safetensors file"),
        (["--config.inputs=x.npy"], "--config.prefix and --config.inputs are of a --config.checkpoint"),
        (["--config.prefix=encoder"], "are of a --config.checkpoint"),
        (["--config.chekpoint=x"], "did you mean --config.checkpoint"),
    ],
)
def test_wrong_arguments(tmp_path, capsys, arguments, told):
    assert run(tmp_path / "run", *arguments) == 2
    said = capsys.readouterr().err
    assert told in said and said.count("\n") == 1
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("field", ["length=1", "batch=0", "model.hidden_size=0", "train.steps=0"])
def test_sizes_that_can_not_be(tmp_path, capsys, field):
    name = field.partition("=")[0]
    parsed, _ = cli.parse(
        [f"--workdir={tmp_path}/run", f"--config.{field}"], torch_checkpoint.get_config, doc="", variants=("adding",)
    )
    assert cli.call(torch_checkpoint.main, parsed) == 2
    assert f"--config.{name} is " in capsys.readouterr().err


def test_a_torch_model_as_it_is_saved(tmp_path):
    """With torch at hand: its own LSTM's outputs are those of the loop that the claims stand on."""
    library = pytest.importorskip("torch")
    module = library.nn.LSTM(3, 4, num_layers=2, bidirectional=True, proj_size=2).double()
    state = {name: tensor.numpy() for name, tensor in module.state_dict().items()}
    inputs = np.random.default_rng(4).standard_normal((7, 2, 3))
    want, (h, _) = module(library.tensor(inputs))
    got, last = run_lstm(state, inputs)
    assert np.allclose(got, want.detach().numpy(), atol=1e-12)
    assert np.allclose(np.stack(last), h[2:].detach().numpy(), atol=1e-12)
    assert pathlib.Path(torch_checkpoint.__file__).read_text().count("import torch\n") == 0
