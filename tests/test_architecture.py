"""The rooms and the direction of imports."""

import ast
import pathlib

import pytest

import rnnjax

ROOT = pathlib.Path(rnnjax.__file__).parent
ORDER = (
    "initializers",
    "cell",
    "cells",
    "unroll",
    "layers",
    "probes",
    "data",
    "text",
    "tasks",
    "nn",
    "interop",
    "testing",
    "train",
)
ONLY_JAX = ("initializers", "cell", "cells", "unroll", "layers", "probes")
FILES = sorted(ROOT.rglob("*.py"))


def imports(path: pathlib.Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module == "rnnjax":
            found |= {f"rnnjax.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found.add(node.module)
    return found


def room_of(path: pathlib.Path) -> str:
    return path.relative_to(ROOT).parts[0].removesuffix(".py")


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_go_one_way(path):
    room = room_of(path)
    others = {name.split(".")[1] for name in imports(path) if name.startswith("rnnjax.")}
    if room == "report":  # reads the files of a run and nothing else
        assert others <= {"report"}
        assert not any(name.split(".")[0] in ("jax", "flax") for name in imports(path))
    elif room in ORDER:
        above = [other for other in others if other in ORDER and ORDER.index(other) > ORDER.index(room)]
        assert not above, f"{room} imports {above}"
        assert "report" not in others


@pytest.mark.parametrize("path", [p for p in FILES if room_of(p) in ONLY_JAX], ids=lambda p: str(p.relative_to(ROOT)))
def test_the_core_imports_only_jax(path):
    outside = {name.split(".")[0] for name in imports(path)} - {"rnnjax", "jax", "numpy"}
    standard = {"collections", "contextlib", "contextvars", "dataclasses", "functools", "itertools", "math", "typing"}
    assert outside <= standard


def test_no_config_or_flag_below_the_trainer():
    for path in FILES:
        if room_of(path) not in ("train", "testing"):
            assert not imports(path) & {"absl", "ml_collections", "absl.flags"}, path


@pytest.mark.parametrize("folder, above", [("rnnjax", {"experiments", "launch"}), ("experiments", {"launch"})])
def test_what_stands_below_knows_nothing_of_what_stands_above(folder, above):
    for path in (ROOT.parent / folder).rglob("*.py"):
        assert not {name.split(".")[0] for name in imports(path)} & above, path
