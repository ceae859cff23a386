"""The costs of probes: their ratios are of one step, claims hold and fail, and what can't be is refused."""

import json

import pytest

from experiments import probe_cost
from rnnjax.train.config import UsageError


def found(ratio=1.02, compilations=0, spectrum=1.2):
    ratios = {"probed": ratio} | dict.fromkeys(probe_cost.OTHERS, 0.5)
    steps = [{"cell": "elman", "plain_ms": 2.0, "ratios": ratios, "compilations": compilations}]
    row = {"cell": "gru", "seconds": 1.0, "alone_seconds": 0.8, "ratio": spectrum, "error": 0.1, "difference": 1e-6}
    return {"steps": steps, "spectra": [row]}


def test_claims_hold_and_fail():
    assert [claim.holds for claim in probe_cost.judge(found())] == [True] * 3
    assert [claim.holds for claim in probe_cost.judge(found(1.06, 1, 1.6))] == [False] * 3
    assert probe_cost.judge(found() | {"spectra": []})[2].not_measured


@pytest.mark.parametrize("field, value, told", [
    ("runs", 0, "config.runs is 0"), ("every", 0, "config.every is 0"),
    ("spectrum_steps", 15, "spectrum_steps is 15: expected a multiple of --config.every=2, ten times it"),
    ("spectrum_steps", 101, "expected a multiple"),
])  # fmt: skip
def test_what_cannot_be_is_refused(field, value, told, tmp_path):
    config = probe_cost.get_config("small", "quick")
    setattr(config, field, value)
    with pytest.raises(UsageError, match=told):
        probe_cost.main(config, tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_one_cell_end_to_end(tmp_path):
    config = probe_cost.get_config("small", "quick")
    config.cells, config.spectra, config.runs = ("elman",), ("elman",), 1
    config.spectrum_units, config.spectrum_steps, config.train.batch_size = 4, 20, 2
    probe_cost.main(config, tmp_path)
    held = json.loads((tmp_path / "probe_cost.json").read_text())
    assert held["steps"][0]["compilations"] == 0 and set(held["steps"][0]["ratios"]) == {"probed", *probe_cost.OTHERS}
    assert held["spectra"][0]["difference"] < 1e-3 and (tmp_path / "report.md").exists()
