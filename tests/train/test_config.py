import copy
import dataclasses
import json

import pytest

from rnnjax.cells import CELLS, LSTM, Elman
from rnnjax.train.config import (
    ABSENT,
    Leaf,
    ModelConfig,
    TrainConfig,
    UsageError,
    build,
    derive,
    differences,
    leaves,
    read,
    to_dict,
    validate,
)

SIZES = ("input_size", "hidden_size", "output_size")


@pytest.mark.parametrize("cell", CELLS.values(), ids=CELLS)
def test_derive_keeps_every_field_of_a_cell_but_the_sizes(cell):
    derived = derive(cell, leave_out=SIZES)
    expected = [(f.name, f.type, f.default) for f in dataclasses.fields(cell) if f.name not in SIZES]
    assert [(f.name, f.type, f.default) for f in dataclasses.fields(derived)] == expected
    assert all(f.metadata["help"] for f in dataclasses.fields(derived))
    assert derived.__name__ == f"{cell.__name__}Config"


def test_derive_is_mutable_and_overrides_defaults():
    options = derive(LSTM, leave_out=SIZES, name="Options", forget_bias=3.0)()
    assert type(options).__name__ == "Options"
    assert options.forget_bias == 3.0
    options.forget_bias = 4.0
    assert build(LSTM, options, input_size=2, hidden_size=3) == LSTM(2, 3, forget_bias=4.0)
    assert LSTM(2, 3).forget_bias == 1.0


def test_derive_reads_help_from_the_docstrings_of_the_class_and_its_bases():
    @dataclasses.dataclass(frozen=True)
    class Base:
        """A task.

        path, url: where the text is,
          on disk or not.
        other: no field.
        """

        path: str = ""
        url: str = ""
        length: int = 3

    @dataclasses.dataclass(frozen=True)
    class Task(Base):
        """length: steps: T.

        url: told anew.
        """

        extra: float = dataclasses.field(default=1.0, metadata={"help": "said", "choices": (1.0, 2.0)})

    helps = {f.name: f.metadata.get("help") for f in dataclasses.fields(derive(Task))}
    told = "where the text is, on disk or not."
    assert helps == {"path": told, "url": "told anew.", "length": "steps: T.", "extra": "said"}
    assert leaves(derive(Task)())[-1].choices == (1.0, 2.0)


def test_derive_keeps_default_factories_and_copies_apart():
    @dataclasses.dataclass
    class Nested:
        model: ModelConfig = dataclasses.field(default_factory=ModelConfig)

    derived = derive(Nested)
    a, b = derived(), derived()
    a.model.hidden_size = 7
    assert b.model.hidden_size == ModelConfig().hidden_size
    assert copy.deepcopy(a) == a
    assert derive(Nested, model=None)().model is None


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"leave_out": ("input_size",)}, "Elman.hidden_size has no default"),
        ({"leave_out": SIZES, "gian": 2.0}, "Elman has no field gian"),
        ({"leave_out": SIZES, "hidden_size": 2}, "Elman has no field hidden_size"),
    ],
)
def test_derive_refuses(options, message):
    with pytest.raises(TypeError, match=message):
        derive(Elman, **options)


def test_build_turns_a_refused_value_into_a_usage_error():
    options = derive(Elman, leave_out=SIZES, activation="tan")()
    with pytest.raises(UsageError, match="activation of Elman is 'tan'"):
        build(Elman, options, input_size=1, hidden_size=1)


def test_the_defaults_are_valid_and_documented():
    validate(TrainConfig())
    assert all(leaf.help for leaf in [*leaves(TrainConfig()), *leaves(ModelConfig())])


@pytest.mark.parametrize("optimizer", ["adam", "sgd", "rmsprop"])
def test_validate_accepts_every_optimizer_and_no_clipping(optimizer):
    validate(TrainConfig(optimizer=optimizer, clip_norm=0.0))


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"steps": 0}, "--config.train.steps is 0: expected a whole number of at least 1"),
        ({"steps_per_call": 0}, "--config.train.steps_per_call is 0: expected a whole number"),
        ({"batch_size": -1}, "--config.train.batch_size is -1: expected"),
        ({"eval_batch": 0}, "--config.train.eval_batch is 0: expected"),
        ({"eval_every": 0}, "--config.train.eval_every is 0: expected"),
        (
            {"log_every": 7, "steps_per_call": 10},
            "--config.train.log_every is 7: expected a multiple of steps_per_call (10)",
        ),
        ({"eval_every": 75}, "--config.train.eval_every is 75: expected a multiple of steps_per_call (50)"),
        ({"steps": 75}, "--config.train.steps is 75: expected a multiple of steps_per_call (50)"),
        (
            {"optimizer": "adan"},
            "--config.train.optimizer is adan: expected one of adam, adamw, sgd, momentum, rmsprop",
        ),
        ({"learning_rate": 0.0}, "--config.train.learning_rate is 0.0: expected a number above 0"),
        ({"learning_rate": float("nan")}, "--config.train.learning_rate is nan: expected"),
        ({"learning_rate": float("inf")}, "--config.train.learning_rate is inf: expected"),
        ({"clip_norm": -1.0}, "--config.train.clip_norm is -1.0: expected a number above 0, or 0"),
        ({"seed": -1}, "--config.train.seed is -1: expected"),
        ({"seed": 2**32}, "--config.train.seed is 4294967296: expected"),
    ],
)
def test_validate_names_the_flag_and_both_values(values, message):
    with pytest.raises(UsageError) as caught:
        validate(TrainConfig(**values))
    assert str(caught.value).startswith(message)


@dataclasses.dataclass
class Everything:
    names: tuple[str, ...] = ("a", "b")
    maybe: float | None = None
    model: ModelConfig = dataclasses.field(default_factory=ModelConfig)


def test_to_dict_survives_json():
    expected = {"names": ["a", "b"], "maybe": None, "model": {"hidden_size": 8}}
    as_dict = to_dict(Everything(model=ModelConfig(8)))
    assert as_dict == expected
    assert json.loads(json.dumps(as_dict)) == expected


def test_to_dict_refuses_what_json_lacks():
    with pytest.raises(TypeError, match="names is .*: JSON has no complex"):
        to_dict(Everything(names=(1j,)))


def test_differences_name_dotted_fields_with_both_values():
    a = to_dict(Everything())
    assert differences(a, to_dict(Everything())) == []
    b = to_dict(Everything(names=("a",), maybe=0.0, model=ModelConfig(8)))
    b["new"] = None
    assert differences(a, b) == [
        ("names", ["a", "b"], ["a"]),
        ("maybe", None, 0.0),
        ("model.hidden_size", 64, 8),
        ("new", ABSENT, None),
    ]
    assert differences({"model": {"x": 1}}, {}) == [("model", {"x": 1}, ABSENT)]


def test_leaves_are_typed():
    assert leaves(Everything(), "c") == [
        Leaf("c.names", str, many=True, default=("a", "b")),
        Leaf("c.maybe", float, optional=True, default=None),
        Leaf("c.model.hidden_size", int, default=64, help="features of the recurrent state."),
    ]


@pytest.mark.parametrize("annotation", [list, dict[str, int], tuple[int, int], int | str, "int", tuple])
def test_leaves_refuse_a_type_that_no_flag_sets(annotation):
    config = dataclasses.make_dataclass("Config", [("x", annotation, dataclasses.field(default=None))])()
    with pytest.raises(TypeError, match=r"config\.x is annotated"):
        leaves(config)


@pytest.mark.parametrize(
    ("leaf", "text", "value"),
    [
        (Leaf("f", int), "1e3", 1000),
        (Leaf("f", int), "-4", -4),
        (Leaf("f", int), "9007199254740993", 9007199254740993),
        (Leaf("f", float), "1", 1.0),
        (Leaf("f", float), "-.5", -0.5),
        (Leaf("f", bool), "Yes", True),
        (Leaf("f", bool), "0", False),
        (Leaf("f", str), "", ""),
        (Leaf("f", str), "True", "True"),
        (Leaf("f", str), "None", "None"),
        (Leaf("f", str, optional=True), "none", None),
        (Leaf("f", float, optional=True), "None", None),
        (Leaf("f", float, optional=True), "2", 2.0),
        (Leaf("f", str, many=True), "3", ("3",)),
        (Leaf("f", int, many=True), "3", (3,)),
        (Leaf("f", int, many=True), "3,", (3,)),
        (Leaf("f", int, many=True), "[3, 4]", (3, 4)),
        (Leaf("f", float, many=True), "(3, 4)", (3.0, 4.0)),
        (Leaf("f", str, many=True), "('a', \"b\")", ("a", "b")),
        (Leaf("f", str, many=True), "()", ()),
        (Leaf("f", bool, many=True), "yes,no", (True, False)),
        (Leaf("f", int, many=True, optional=True), "none", None),
    ],
)
def test_read_gives_exactly_the_type(leaf, text, value):
    got = read(leaf, text)
    assert got == value
    assert type(got) is type(value)
    if leaf.many and got:
        assert {type(element) for element in got} == {leaf.type}


@pytest.mark.parametrize(
    ("leaf", "text"),
    [
        *[(Leaf("f", int), text) for text in ("", "abc", "1.5", "nan", "inf", "1e400", "True", "none", "0x10")],
        *[(Leaf("f", float), text) for text in ("", "fast", "nan", "-inf", "1e400", "1,5", "true")],
        *[(Leaf("f", bool), text) for text in ("", "maybe", "2", "none")],
        *[(Leaf("f", int, many=True), text) for text in ("", "a", "1,,2", ",", "1.5", "(1", "((1),2)")],
        (Leaf("f", float, optional=True), "null"),
        (Leaf("f", str, many=True), "a,,b"),
        (Leaf("f", str, choices=("a", "b")), ""),
        (Leaf("f", int, choices=(1, 2)), "3"),
    ],
)
def test_read_names_flag_and_value(leaf, text):
    with pytest.raises(UsageError) as caught:
        read(leaf, text)
    assert str(caught.value).startswith("--f")
    assert "expected" in str(caught.value)
    assert "\n" not in str(caught.value)
