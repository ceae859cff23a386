"""A user's cell by its name, MODULE:NAME: what is imported, and how cells of any size are made of it.

NAME is one of

    a class of Cells                    MyCell(input_size=, hidden_size=); output_size= too, where it takes one
    a function of these                 def my_cell(input_size, hidden_size): return MyCell(..., 0.1)
    a Cell                              which is asked for in other sizes by dataclasses.replace
    a Flax cell's class or function     flax.nnx:GRUCell, called with both sizes and rngs=; flax.linen:GRUCell, with
                                        features=; each through rnnjax.interop
    a flax.linen module                 of the size that it has

so that whatever else makes a cell is reached by a function of two lines.
"""

import contextlib
import dataclasses
import difflib
import functools
import importlib
import inspect
import os
import traceback
from collections.abc import Callable
from typing import Any

from flax import linen, nnx

import rnnjax
from rnnjax.cell import Cell
from rnnjax.interop.linen import LinenCell
from rnnjax.interop.nnx import NNXCell
from rnnjax.train.config import UsageError

FLAG = "--config.cell"
EXAMPLE = "experiments.common.user_cells:LeakyElman"
SIZES = ("input_size", "hidden_size", "output_size")
PARTS = (*SIZES, "readout", "init", "initial_carry", "prepare", "project", "step", "read")
BY_FUNCTION = "name a function of the two that makes it: def my_cell(input_size, hidden_size): return ..."


@dataclasses.dataclass(frozen=True)
class NamedCell:
    """path: MODULE:NAME; found: what stands there."""

    path: str
    found: Any

    @property
    def label(self) -> str:
        """NAME alone."""
        return self.path.rpartition(":")[2].rpartition(".")[2]

    @property
    def source(self) -> str:
        """The text of the modules that name and define it, as far as it can be read: another text is another cell."""
        modules = {importlib.import_module(self.path.partition(":")[0]), inspect.getmodule(self.found)} - {None}
        texts = []
        for module in sorted(modules, key=lambda module: module.__name__):
            with contextlib.suppress(OSError, TypeError):
                texts.append(inspect.getsource(module))
        return "\n".join(texts)

    def make(self, input_size: int, hidden_size: int, output_size: int | None = None) -> Cell:
        """A cell of these sizes; output_size: that of a cell that takes it, hidden_size by default.

        Raises UsageError where what stands there makes none.
        """
        sizes = dict(zip(SIZES, (input_size, hidden_size, output_size or hidden_size), strict=True))
        try:
            cell = self._make(sizes)
        except UsageError:
            raise
        except (Exception, SystemExit) as error:  # of the user's code, whatever it is
            raise UsageError(
                f"{FLAG} is {self.path}: making it with input_size={input_size}, hidden_size={hidden_size} raised "
                f"{told(error)}"
            ) from error
        missing = [name for name in PARTS if not hasattr(cell, name)]
        if missing:
            raise UsageError(
                f"{FLAG} is {self.path}, which makes {_shown(cell)}: it has no {', '.join(missing[:4])}. Expected a "
                "Cell (subclass rnnjax.cell.Cell) or a cell of Flax"
            )
        if cell.input_size != input_size:
            raise UsageError(
                f"{FLAG} is {self.path}, which makes {_shown(cell)} when asked for input_size={input_size}: the tasks "
                f"differ in their inputs, so {BY_FUNCTION}"
            )
        return cell

    def _make(self, sizes: dict[str, int]) -> Any:
        inputs, hidden = sizes["input_size"], sizes["hidden_size"]
        found = self.found
        if isinstance(found, type) and issubclass(found, linen.RNNCellBase):
            return LinenCell(found(features=hidden), inputs)
        if isinstance(found, linen.RNNCellBase):
            return LinenCell(found, inputs)
        if not callable(found) or isinstance(found, Cell | nnx.Module):
            return self._resized(sizes)
        if "rngs" in _parameters(found) and not _is_other_module(found):
            return NNXCell(functools.partial(found, inputs, hidden), inputs)
        made = found(**self._arguments(sizes))
        return LinenCell(made, inputs) if isinstance(made, linen.RNNCellBase) else made

    def _resized(self, sizes: dict[str, int]) -> Any:
        """A cell that is there already, in other sizes."""
        if isinstance(self.found, nnx.Module) or not dataclasses.is_dataclass(self.found):
            raise UsageError(
                f"{FLAG} is {self.path}, which is {_shown(self.found)}: expected a class of Cells or of Flax's cells, "
                f"a function that makes one, or a dataclass, which can be had in other sizes; {BY_FUNCTION}"
            )
        fields = {field.name for field in dataclasses.fields(self.found) if field.init}
        return dataclasses.replace(self.found, **{name: size for name, size in sizes.items() if name in fields})

    def _arguments(self, sizes: dict[str, int]) -> dict[str, int]:
        """What it is called with: those of the sizes that it takes. Raises UsageError where that can't be."""
        takes = _parameters(self.found)
        takes_all = any(one.kind is one.VAR_KEYWORD for one in takes.values())
        lacks = [name for name in SIZES[:2] if name not in takes and not takes_all]
        open_ended = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
        more = [
            name
            for name, one in takes.items()
            if name not in sizes and one.default is one.empty and one.kind not in open_ended
        ]
        signature = f"{self.label}({', '.join(takes)})"
        if lacks:
            raise UsageError(f"{FLAG} is {self.path}: {signature} takes no {' and no '.join(lacks)}; {BY_FUNCTION}")
        if more:
            raise UsageError(
                f"{FLAG} is {self.path}: {signature} wants {', '.join(more)} too: give a default, or {BY_FUNCTION}"
            )
        return {name: size for name, size in sizes.items() if name in takes or name in SIZES[:2]}


def find(path: str) -> NamedCell:
    """What MODULE:NAME stands for. Raises UsageError, naming the place, where there is no such thing."""
    module, colon, name = path.partition(":")
    if not (module and colon and name):
        raise UsageError(f"{FLAG} is {path!r}: expected MODULE:NAME, as in {EXAMPLE}")
    if module.endswith(".py") or "/" in module:
        dotted = module.removesuffix(".py").strip("./").replace("/", ".")
        raise UsageError(f"{FLAG} is {path}: {module} is a file; name it as it is imported: {dotted}:{name}")
    found = _imported(module, path)
    for part in name.split("."):
        if not hasattr(found, part):
            near = difflib.get_close_matches(part, dir(found), n=1)
            meant = f"did you mean {near[0]}?" if near else f"its classes are {', '.join(_classes(found)) or 'none'}"
            raise UsageError(f"{FLAG} is {path}: {module} has no {part}: {meant}")
        found = getattr(found, part)
    return NamedCell(path, found)


def _imported(module: str, path: str) -> Any:
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name and f"{module}.".startswith(f"{error.name}."):
            raise UsageError(
                f"{FLAG} is {path}: there is no module {error.name} in {os.getcwd()} or where Python looks: start this "
                f"in the folder that holds {module.partition('.')[0]}, or put that folder into PYTHONPATH"
            ) from None
        raise UsageError(f"{FLAG} is {path}: importing it wants {error.name}, which is not installed") from error
    except (Exception, SystemExit) as error:  # of the user's code, whatever it is
        raise UsageError(f"{FLAG} is {path}: importing {module} raised {told(error)}") from error


def told(error: BaseException) -> str:
    """An error in one line: its class, what it says first, and the innermost place that is the user's own."""
    said = (str(error).strip().splitlines() or [""])[0]
    if isinstance(error, SyntaxError):
        return f"{type(error).__name__}: {said}"  # which names file and line itself
    frames = [one for one in traceback.extract_tb(error.__traceback__) if _of_user(one.filename)]
    place = f" ({os.path.basename(frames[-1].filename)}, line {frames[-1].lineno})" if frames else ""
    return f"{type(error).__name__}: {said or 'it says nothing'}{place}"


def _of_user(file: str) -> bool:
    ours = (os.path.dirname(rnnjax.__file__), os.path.dirname(os.path.dirname(__file__)))
    libraries = ("site-packages", "<frozen", f"{os.sep}lib{os.sep}python")
    return not file.startswith(ours) and not any(part in file for part in libraries)


def _parameters(made: Callable) -> dict[str, inspect.Parameter]:
    """Those that it is called with; of a class those of its __init__, which a metaclass may hide (that of nnx does)."""
    try:
        found = dict(inspect.signature(made.__init__ if isinstance(made, type) else made).parameters)
    except (TypeError, ValueError):  # of builtins
        return {}
    if isinstance(made, type):
        found.pop(next(iter(found)), None)
    return found


def _is_other_module(made: Any) -> bool:
    """Whether it is a class of modules that are no cells."""
    return isinstance(made, type) and issubclass(made, nnx.Module) and not issubclass(made, nnx.RNNCellBase)


def _classes(module: Any) -> list[str]:
    return [name for name, one in vars(module).items() if isinstance(one, type) and issubclass(one, Cell)]


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
