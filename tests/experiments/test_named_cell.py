"""A user's cell by its name: what makes one, and what is refused, by place, value and way out."""

import pytest

from experiments.common.named_cell import find, told
from rnnjax.interop.linen import LinenCell
from rnnjax.interop.nnx import NNXCell
from rnnjax.train.config import UsageError


@pytest.mark.parametrize(
    "path, kind",
    [
        ("experiments.common.user_cells:LeakyElman", "LeakyElman"),
        ("rnnjax.cells:Jordan", "Jordan"),
        ("odd_cells:slow", "LeakyElman"),
        ("odd_cells:jordan", "Jordan"),
        ("odd_cells:ready", "LeakyElman"),
        ("odd_cells:partial", "LeakyElman"),
        ("odd_cells:NoDataclass", "NoDataclass"),
        ("odd_cells:minimal", "LinenCell"),
        ("flax.linen:GRUCell", "LinenCell"),
        ("odd_cells:nnx_gru", "NNXCell"),
        ("flax.nnx:LSTMCell", "NNXCell"),
    ],
)
def test_what_makes_a_cell_makes_it_in_any_size(path, kind):
    named = find(path)
    for inputs, hidden in ((3, 4), (2, 7)):
        cell = named.make(inputs, hidden)
        assert type(cell).__name__ == kind
        assert (cell.input_size, cell.hidden_size, cell.output_size) == (inputs, hidden, hidden)
    assert "class" in named.source or "def" in named.source
    assert named.label == path.rpartition(":")[2]


def test_what_is_made_keeps_what_it_was_given():
    assert find("odd_cells:slow").make(1, 2).leak == 0.01
    assert find("odd_cells:ready").make(1, 2).leak == 0.2
    assert find("odd_cells:jordan").make(1, 2, 5).output_size == 5
    module = find("odd_cells:module").make(3, 9)
    assert isinstance(module, LinenCell) and (module.input_size, module.hidden_size) == (3, 4)  # its own size
    assert isinstance(find("flax.nnx:GRUCell").make(3, 9), NNXCell)


@pytest.mark.parametrize(
    "path, message",
    [
        ("odd_cells", "'odd_cells': expected MODULE:NAME, as in experiments.common.user_cells:LeakyElman"),
        (":Nan", "expected MODULE:NAME"),
        ("", "expected MODULE:NAME"),
        ("some/where/mine.py:Nan", "is a file; name it as it is imported: some.where.mine:Nan"),
        ("nowhere.at.all:X", "there is no module nowhere in .*PYTHONPATH"),
        ("odd_cells.sub:X", "there is no module odd_cells.sub"),
        ("odd_cells:Nann", "odd_cells has no Nann: did you mean Nan"),
        ("odd_cells:Zzzzzz", "odd_cells has no Zzzzzz: its classes are .*Counting"),
        ("odd_cells:Nan.step.x", "has no x"),
    ],
)
def test_a_name_of_nothing_is_refused(path, message):
    with pytest.raises(UsageError, match=message) as error:
        find(path)
    assert "--config.cell" in str(error.value) and "\n" not in str(error.value)


@pytest.mark.parametrize(
    "name, message",
    [
        ("Units", r"Units\(units, features\) takes no input_size and no hidden_size; name a function of the two"),
        ("Wants", "wants depth too: give a default"),
        ("Refuses", "input_size=2, hidden_size=4 raised RuntimeError: not today .odd_cells.py, line"),
        ("NoCell", "it has no output_size, readout, init, initial_carry. Expected a Cell"),
        ("of_three", "when asked for input_size=2: the tasks differ in their inputs"),
        ("number", "which is 3: expected a class of Cells"),
    ],
)
def test_what_makes_no_cell_is_refused(name, message):
    with pytest.raises(UsageError, match=message) as error:
        find(f"odd_cells:{name}").make(2, 4)
    assert f"odd_cells:{name}" in str(error.value) and "\n" not in str(error.value)


def test_a_flax_module_that_is_no_cell_is_refused():
    with pytest.raises(UsageError, match="takes no input_size"):
        find("flax.nnx:RNN").make(2, 4)


@pytest.mark.parametrize(
    "text, message",
    [
        ("import no_such_library", "wants no_such_library, which is not installed"),
        ("class", "SyntaxError"),
        ("def f():\n    raise OSError('no disk')\nf()", "importing broken raised OSError: no disk .broken.py, line 2"),
        ("raise SystemExit(3)", "SystemExit: 3"),
    ],
    ids=range(4),
)
def test_a_module_that_cannot_be_imported_is_told_of_in_a_line(tmp_path, monkeypatch, text, message):
    (tmp_path / "broken.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(UsageError, match=message) as error:
        find("broken:Cell")
    assert "\n" not in str(error.value)


def test_an_error_that_says_nothing_is_named():
    assert told(KeyboardInterrupt()) == "KeyboardInterrupt: it says nothing"
    assert told(ValueError("one\ntwo")) == "ValueError: one"
