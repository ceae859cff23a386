"""A config has every hyper-parameter of every cell and task, and what it says is what is built."""

import dataclasses
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from rnnjax.cells import CELLS, GRU, LSTM, Elman, Jordan
from rnnjax.layers import Bidirectional, InputDropout, Stack
from rnnjax.tasks import TASKS, Adding, Music, TemporalOrder
from rnnjax.train.build import (
    cell_options,
    check_cells,
    make_cell,
    make_layer,
    make_model,
    make_task,
    parameter_count,
    task_options,
)
from rnnjax.train.config import LayersConfig, ModelConfig, UsageError, leaves

SIZES = ("input_size", "hidden_size", "output_size")
CHOICES = {
    "input_init": "uniform",
    "recurrent_init": "identity",
    "reset": "before",
    "activation": "sigmoid",
    "feedback": "tanh",
    "input_activation": "identity",
    "output_activation": "identity",
    "projection_size": 3,
    "chrono": 30.0,
}


def other(name, value):
    """Another value of a hyper-parameter."""
    return CHOICES[name] if name in CHOICES else not value if isinstance(value, bool) else value + 1


def config(options, hidden_size=5):
    return SimpleNamespace(cell_options=options, model=ModelConfig(hidden_size))


@pytest.mark.parametrize("name", CELLS)
def test_a_cell_is_its_options_in_the_sizes_of_the_task(name):
    task = TemporalOrder(min_length=50, max_length=60)
    cell = make_cell(name, config(cell_options()), task)
    sizes = {"input_size": task.input_size, "hidden_size": 5, "output_size": task.output_size}
    fields = [field.name for field in dataclasses.fields(CELLS[name])]
    assert cell == CELLS[name](**{size: sizes[size] for size in SIZES if size in fields})


@pytest.mark.parametrize("name", CELLS)
def test_every_hyper_parameter_of_a_cell_goes_there_and_back(name):
    usual = make_cell(name, config(cell_options()), Adding())
    own = [field.name for field in dataclasses.fields(usual) if field.name not in SIZES]
    for field in own:  # one at a time, since some go only with others' defaults
        value = other(field, getattr(usual, field))
        assert value != getattr(usual, field)
        cell = make_cell(name, config(cell_options(**{name: {field: value, "hidden_size": 7}})), Adding())
        assert cell == dataclasses.replace(usual, **{field: value, "hidden_size": 7})
        options = cell_options()
        setattr(getattr(options, name), field, value)
        assert dataclasses.replace(cell, hidden_size=5) == make_cell(name, config(options), Adding())


def test_every_hyper_parameter_is_a_flag_with_help():
    found = {leaf.flag: leaf for leaf in leaves(config_of_flags())}
    for name, cls in CELLS.items():
        for field in ("hidden_size", *(field.name for field in dataclasses.fields(cls) if field.name not in SIZES)):
            assert found[f"config.cell_options.{name}.{field}"].help, field
    assert "config.cell_options.lstm.input_size" not in found


def config_of_flags():
    holder = dataclasses.make_dataclass(
        "Holder", [("cell_options", object, dataclasses.field(default_factory=cell_options))]
    )
    return holder()


def test_a_cell_may_have_a_hidden_size_of_its_own():
    options = cell_options(gru={"hidden_size": 9})
    assert [make_cell(name, config(options), Adding()).hidden_size for name in ("elman", "gru")] == [5, 9]
    options.elman.hidden_size, options.gru.hidden_size = 2, None
    assert [make_cell(name, config(options), Adding()).hidden_size for name in ("elman", "gru")] == [2, 5]
    assert cell_options().elman.hidden_size is None and cell_options().gru.hidden_size is None


@pytest.mark.parametrize(
    "name, field, value, message",
    [
        ("elman", "hidden_size", 0, "hidden_size of Elman is 0: expected a whole number of at least 1"),
        ("lstm", "hidden_size", 10**9, "hidden_size of lstm is 1000000000: expected at most 65536"),
        ("jordan", "feedback", "foo", "feedback of Jordan is 'foo': expected one of softmax, sigmoid"),
        ("gru", "recurrent_init", "foo", "recurrent_init of GRU is 'foo': expected one of"),
    ],
)
def test_what_a_cell_refuses_is_a_usage_error(name, field, value, message):
    options = cell_options()
    setattr(getattr(options, name), field, value)
    with pytest.raises(UsageError, match=message):
        make_cell(name, config(options), Adding())


def test_an_unknown_option_or_cell_is_a_programmers_error():
    with pytest.raises(TypeError, match="GRU has no field forget_bias"):
        cell_options(gru={"forget_bias": 1.0})
    with pytest.raises(AttributeError):
        make_cell("lstn", config(cell_options()), Adding())


@pytest.mark.parametrize("name", TASKS)
def test_a_task_goes_there_and_back(name):
    assert make_task(task_options(name)) == (name, TASKS[name]())


def test_a_tasks_options_are_its_own():
    assert make_task(task_options("adding", length=7)) == ("adding", Adding(7))
    options = task_options("music", path="x.mat")
    options.buckets = 2
    assert make_task(options) == ("music", Music(path="x.mat", buckets=2))
    with pytest.raises(UsageError, match="length of Adding is 1: expected a whole number of at least 2"):
        make_task(task_options("adding", length=1))


def test_a_model_is_drawn_from_its_seed_and_starts_at_the_tasks_bias():
    def params(cell, task, seed):
        return nnx.to_pure_dict(nnx.state(make_model(cell, task, seed), nnx.Param))

    @dataclasses.dataclass(frozen=True)
    class Skewed(Adding):
        @property
        def output_bias(self):
            return np.float32([0.75])

    same, again, other = (params(LSTM(2, 3), Skewed(6), seed) for seed in (0, 0, 1))
    assert all(jax.tree.leaves(jax.tree.map(np.array_equal, same, again)))
    assert not jnp.array_equal(same["head"]["kernel"], other["head"]["kernel"])
    assert same["head"]["bias"].tolist() == [0.75]
    model = make_model(Elman(2, 3), Adding(6), 0)
    assert model.reads_last and model(jnp.zeros((6, 4, 2))).shape == (4, 1)


@pytest.mark.parametrize(
    "cell, count",
    [
        (Elman(2, 3), 3 * (2 + 3 + 1) + 3 + 1),
        (Jordan(2, 3, 1), 3 * (2 + 1 + 1) + 3 + 1),
        (LSTM(2, 3), 4 * 3 * (2 + 3 + 1) + 3 + 1),
        (GRU(2, 3), 3 * 3 * (2 + 3 + 1) + 3 + 3 + 1),
    ],
    ids=repr,
)
def test_parameters_are_counted_with_those_of_the_head(cell, count):
    assert parameter_count(make_model(cell, Adding(6), 0)) == count


def test_the_cells_of_a_study_are_some_and_each_once():
    check_cells(tuple(CELLS))
    with pytest.raises(UsageError, match="--config.cells is empty: expected some of elman, jordan, lstm, gru"):
        check_cells(())
    with pytest.raises(UsageError, match="--config.cells names gru 3 times"):
        check_cells(("gru", "lstm", "gru", "gru"))


def layers_of(name="gru", **settings):
    return make_layer(name, SimpleNamespace(cell_options=cell_options(), model=LayersConfig(5, **settings)), 3, 2)


def test_layers_are_stacked_in_both_directions_with_dropout_between():
    assert layers_of() == GRU(3, 5)
    assert layers_of(layers=2) == Stack((GRU(3, 5), GRU(5, 5)))
    assert layers_of(bidirectional=True) == Bidirectional(GRU(3, 5), GRU(3, 5))
    upper = InputDropout(GRU(10, 5), 0.25, mask="step")
    both = Stack((Bidirectional(GRU(3, 5), GRU(3, 5)), Bidirectional(upper, upper)))
    assert layers_of(layers=2, bidirectional=True, dropout=0.25) == both


def test_a_cell_that_reads_out_does_so_on_top():
    assert layers_of("jordan", layers=2) == Stack((Jordan(3, 5, 5), Jordan(5, 5, 2)))


@pytest.mark.parametrize(
    "settings, message",
    [
        ({"layers": 0}, "--config.model.layers is 0: expected at least 1"),
        ({"dropout": 1.0}, "--config.model.dropout is 1.0: expected at least 0 and less than 1"),
    ],
)
def test_layers_that_can_not_be_are_refused(settings, message):
    with pytest.raises(UsageError) as error:
        layers_of(**settings)
    assert str(error.value) == message
