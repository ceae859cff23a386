"""A workdir is read whole, or the error names the file and the way out. The package reads files and nothing else."""

import ast
import json
import pathlib

import numpy as np
import pytest

from rnnjax import report


def test_a_run_is_what_was_written(study):
    made = study(cells=("lstm", "elman"))
    run = report.read_run(str(made.folder))
    assert (run.experiment, run.cells, run.workdir) == ("gradient_norms", ("lstm", "elman"), made.folder)
    assert list(run.norms) == ["lstm", "elman"] and list(run.norms["lstm"]) == ["carry", "h", "c"]
    for field, values in run.norms["lstm"].items():
        np.testing.assert_array_equal(values, made.arrays[f"lstm.{field}"])
    assert run.steps["elman"].tolist() == [0, 10, 100] and run.distance.tolist() == list(range(12))
    assert run.quantile.tolist() == [0.25, 0.5, 0.75]
    assert run.metrics == made.rows and run.summaries["elman"]["cell"] == "elman"
    assert run.task["unit"] == "squared error" and run.claims["claims"][0]["holds"] is True
    assert run.config["task"] == {"name": "adding"}


def test_claims_may_be_absent(study):
    made = study()
    (made.folder / "claims.json").unlink()
    assert report.read_run(made.folder).claims is None


@pytest.mark.parametrize("torn", [b'{"step": 101, "ki', b'{"step": 101, "kind": "tr\xc3'])
def test_a_torn_last_line_is_left_out(study, torn):
    made = study()
    with open(made.folder / "gru" / "metrics.jsonl", "ab") as file:
        file.write(torn)
    assert report.read_run(made.folder).metrics["gru"] == made.rows["gru"]


@pytest.mark.parametrize("line", ['{"step": 3, "ki', "[]", '{"kind": "train"}', '{"step": 3}', ""])
def test_any_other_malformed_line_is_an_error_with_its_number(study, line):
    made = study()
    path = made.folder / "gru" / "metrics.jsonl"
    rows = path.read_text().splitlines()
    path.write_text("\n".join([*rows[:2], line, *rows[2:]]) + "\n")
    with pytest.raises(report.ReportError, match=r"gru/metrics\.jsonl: line 3 is .*\n.*restore it"):
        report.read_run(made.folder)


@pytest.mark.parametrize("name", [
    "config.json", "gradient_norms.npz", "summary.json", "lstm/metrics.jsonl", "lstm/summary.json",
])  # fmt: skip
def test_a_missing_or_broken_file_is_named_with_a_way_out(study, name):
    path = study().folder / name
    whole = path.read_bytes()
    for content in (b"\x80 no such format\n", whole[: len(whole) // 2] + b"\n", b"[]\n"):
        path.write_bytes(content)
        with pytest.raises(report.ReportError, match=f"{name}: .*\n.*restore it"):
            report.read_run(path.parents[name.count("/")])
    path.unlink()
    with pytest.raises(report.ReportError, match=f"{name}: the file is missing\n.*same --workdir") as caught:
        report.read_run(path.parents[name.count("/")])
    assert caught.type.user_error is True


@pytest.mark.parametrize("key, value, message", [
    ("lstm.carry", None, "no array lstm.carry"),
    ("distance", None, "no array distance"),
    ("lstm.step", np.arange(2), r"lstm.carry is \[3, 12, 3\]: expected .*\[2, 12, 3\]"),
    ("lstm.c", np.zeros((3, 4)), r"lstm.c is \[3, 4\]"),
    ("lstm.carry", np.zeros(3), "lstm.carry is float64"),
    ("quantile", np.zeros(2), "2 quantiles"),
    ("lstm.carry", np.array([None]), "no archive of plain arrays"),
])  # fmt: skip
def test_arrays_that_do_not_fit_are_named(study, key, value, message):
    def change(arrays, rows):
        arrays.pop(key) if value is None else arrays.update({key: value})

    with pytest.raises(report.ReportError, match=rf"gradient_norms\.npz: .*{message}"):
        report.read_run(study(change=change).folder)


@pytest.mark.parametrize("cells", [None, [], "elman", [1]])
def test_a_config_without_cells_is_an_error(study, cells):
    made = study()
    (made.folder / "config.json").write_text(json.dumps({"experiment": "x", "config": {"cells": cells}}))
    with pytest.raises(report.ReportError, match=r"config\.json: config\.cells is .*: expected a list of names"):
        report.read_run(made.folder)


def test_the_package_imports_no_jax_and_no_other_part():
    folder = pathlib.Path(report.__file__).parent
    imported = set()
    for path in folder.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                imported |= {name.name for name in node.names}
            elif isinstance(node, ast.ImportFrom):
                imported |= {f"{node.module}.{name.name}" for name in node.names}
    assert any(name.startswith("rnnjax.report") for name in imported), "the scan found nothing"
    ours = {name for name in imported if name.startswith("rnnjax") and not name.startswith("rnnjax.report.")}
    banned = {name for name in imported if name.split(".")[0] in ("jax", "flax") or "pyplot" in name}
    assert not ours and not banned
