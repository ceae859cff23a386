"""What is found below a folder, and what malformed files make of it."""

import json
import re

import pages
import pytest

from rnnjax import report
from rnnjax.report import __main__ as command


def studies(tmp_path):
    return {study.label: study for study in report.find_studies([tmp_path])}


def test_workdirs_are_found_at_any_depth_with_their_models(tmp_path, study):
    study()
    pages.comparison(tmp_path / "a" / "b" / "music")
    pages.comparison(tmp_path / "a" / "plain", models=())
    found = studies(tmp_path)
    assert list(found) == ["a/b/music", "a/plain", "study"]
    assert [model.name for model in found["study"].models] == ["elman", "jordan", "lstm", "gru"]  # the config's order
    assert [model.name for model in found["a/b/music"].models] == ["lstm", "lstm-wide"]
    assert found["a/plain"].models == [] and found["study"].run.cells == ("elman", "jordan", "lstm", "gru")
    assert all(one.problems == [] for one in found.values())
    assert found["a/plain"].pictures == [(tmp_path / "a" / "plain" / "scores.png", "A caption")]


def test_a_folder_given_twice_is_reported_once(tmp_path):
    pages.comparison(tmp_path / "music")
    assert len(report.find_studies([tmp_path, tmp_path / "music", tmp_path])) == 1


def test_a_training_by_itself_is_a_run(tmp_path):
    pages.comparison(tmp_path / "study")
    (tmp_path / "study" / "lstm").rename(tmp_path / "mine")
    found = studies(tmp_path / "mine")
    assert found["mine"].state == "finished" and found["mine"].models[0].name == "mine"


def test_an_unfinished_run_says_where_it_is(tmp_path):
    folder = pages.comparison(tmp_path / "music")
    for file in ("claims.json", "report.md", "lstm-wide/summary.json"):
        (folder / file).unlink()
    pages.write(folder / "lstm-wide" / "heartbeat.json", {"step": 7, "steps": 900})
    pages.write(tmp_path / "begun" / "config.json", {"experiment": "slope_law", "config": {}})
    found = studies(tmp_path)
    assert found["music"].state == "unfinished" and "lstm-wide: step 7 of 900" in found["music"].said
    assert found["music"].models[1].state == "unfinished at step 7 of 900"
    assert found["begun"].state == "unfinished" and found["begun"].problems == []
    assert "2 unfinished" in pages.Page(report.write_html([tmp_path], tmp_path / "x.html").path).text


def test_a_sweep_has_its_runs_begun_or_not(tmp_path):
    runs = [{"name": name, "overrides": {"train.seed": name[-1]}} for name in ("seed=1", "seed=2", "seed=3")]
    sweep = {"experiment": "experiments.music", "config": "jsb", "base": {}, "runs": runs}
    pages.write(tmp_path / "sweep.json", sweep)
    pages.comparison(tmp_path / "seed=1")
    pages.write(tmp_path / "seed=2" / "run.json", {"state": "failed", "error": "out of memory"})
    found = studies(tmp_path)
    states = {label: (study.experiment, study.state, study.said) for label, study in found.items()}
    assert states == {
        "seed=1": ("music", "finished", ""),
        "seed=2": ("music", "failed", "out of memory"),
        "seed=3": ("music", "waiting", ""),
    }
    text = pages.Page(report.write_html([tmp_path], tmp_path / "x.html").path).text
    assert "train.seed=3" in text and "out of memory" in text


def test_a_run_of_a_sweep_stays_within_its_folder(tmp_path):
    pages.write(tmp_path / "sweep.json", {"experiment": "music", "runs": [{"name": "../outside"}, 7]})
    (study,) = report.find_studies([tmp_path])
    assert len(study.problems) == 2 and all("expected a name and overrides" in one for one in study.problems)


@pytest.mark.parametrize("file, content, told", [
    ("config.json", "{", "is not JSON"),
    ("config.json", "[]", "expected an object"),
    ("config.json", '{"experiment": 3}', "experiment is 3"),
    ("claims.json", '{"claims": [3]}', r"claims\[0\] is 3"),
    ("claims.json", '{"claims": [{"claim": "a"}]}', 'whether it "holds"'),
    ("claims.json", "[" * 100_000, "is not JSON"),
    ("report.md", b"\xff\xfe", "utf-8"),
    ("lstm/summary.json", "no", "is not JSON"),
    ("lstm/metrics.jsonl", "no\n{}\n", "line 1 is not JSON"),
    ("lstm/metrics.jsonl", '{"step": "3"}\n', 'no row with a whole "step"'),
    ("lstm/norms.npz", "no", "no archive of plain arrays"),
    ("gradient_norms.npz", "no", "config.cells is None"),
    ("run.json", "{}", "state is None"),
    ("scores.png", "no", "no PNG that can be read"),
])  # fmt: skip
def test_a_malformed_file_is_named_and_the_rest_reported(tmp_path, capsys, file, content, told):
    folder = pages.comparison(tmp_path / "runs" / "music")
    pages.comparison(tmp_path / "runs" / "whole")
    (folder / file).write_bytes(content if isinstance(content, bytes) else content.encode())
    assert command.main([str(tmp_path / "runs"), f"--output={tmp_path / 'x.html'}"]) == 0
    said, text = capsys.readouterr().err, pages.Page(tmp_path / "x.html").text
    assert re.search(told, said) and re.search(told, text)
    assert "problem: " in said and "Problems" in text and "whole" in text


def test_odd_values_in_a_summary_are_no_crash(tmp_path):
    folder = pages.comparison(tmp_path / "runs" / "music")
    odd = [
        {"replicas": 3, "parameters": "many", "cell": ["x"], "seconds": True, "steps": None},
        {"replicas": [1, {"scores": 2}, {"scores": {"a": "b", "c": [1]}}], "metrics": 3, "loss": "x"},
    ]
    for model, summary in zip(("lstm", "lstm-wide"), odd, strict=True):
        (folder / model / "summary.json").write_text(json.dumps(summary))
    rows = [
        {"step": 10**30, "kind": ["eval"], "loss": 10**400},
        {"step": True, "kind": "eval", "split": [1], "loss": {}},
    ]
    (folder / "lstm" / "metrics.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    claim = {"claim": "a", "holds": True, "measured": {"a": [10**400]}, "expected": 3, "source": ["x"]}
    pages.write(folder / "claims.json", {"claims": [claim], "seconds": "long"})
    summary = report.write_html([tmp_path / "runs"], tmp_path / "x.html")
    assert summary.problems == [] and summary.counts["held"] == 1


@pytest.mark.parametrize("made", [True, False])
def test_a_folder_without_runs_is_an_error_that_says_what_is_looked_for(tmp_path, capsys, made):
    pages.comparison(tmp_path / "music")
    if made:
        (tmp_path / "empty" / "below").mkdir(parents=True)
    assert command.main([str(tmp_path / "music"), str(tmp_path / "empty"), f"--output={tmp_path / 'x.html'}"]) == 2
    said = capsys.readouterr().err
    assert "empty" in said and "config.json" in said and "sweep.json" in said and not (tmp_path / "x.html").exists()
