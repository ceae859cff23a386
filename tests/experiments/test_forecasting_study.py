"""The forecasting study: baselines beside networks, claims that can fail, and a run from end to end."""

import dataclasses
import json

import numpy as np
import pytest

from experiments import forecasting
from experiments.common.forecasts import draw_forecasts, errors_by_step, read_forecasts
from rnnjax.tasks import Forecasting
from rnnjax.tasks.forecasting import MEMORY, NOISE, PERIOD, TREND
from rnnjax.train.config import UsageError


def small(**changes):
    config = forecasting.get_config("seasonal", "quick")
    config.model.hidden_size = 4
    config.train = dataclasses.replace(
        config.train, epochs=0, steps=4, steps_per_call=2, eval_every=2, log_every=2, batch_size=6
    )
    return dataclasses.replace(config, **changes)


def test_errors_by_step_by_hand():
    truths = np.array([[1.0, 2.0], [3.0, 4.0]])
    forecasts = np.array([[2.0, 2.0], [3.0, 1.0]])
    np.testing.assert_allclose(errors_by_step(forecasts, truths), [np.sqrt(0.5), np.sqrt(4.5)])
    assert errors_by_step(np.stack([forecasts, truths]), truths).tolist()[1] == [0, 0]


def _summaries(**rmse):
    return {
        name: {"replicas": [{"scores": {"rmse": value, "mae": value, "mase": value}} for value in values]}
        for name, values in rmse.items()
    }


DEFAULT = forecasting.get_config("seasonal", "quick")
SCORED = {
    "persistence": {"mae": 6.0},
    "seasonal-naive": {"mae": 2.2},
    "optimum": {"rmse": 1.6},
}


@pytest.mark.parametrize(
    "worst, held",
    [(2.1, [True, True, True]), (2.17, [True, True, False]), (2.3, [True, False, False]), (6.1, [False, False, False])],
)
def test_claims_of_what_was_learned(worst, held):
    claims = forecasting.learned_claims(DEFAULT, _summaries(elman=(2.0, worst), jordan=(2.0,)), SCORED)
    assert [claim.holds for claim in claims] == held
    assert len(forecasting.learned_claims(DEFAULT, _summaries(jordan=(2.0,)), SCORED)) == 2
    assert not any(claim.holds for claim in forecasting.learned_claims(DEFAULT, {}, SCORED))  # nothing was measured


def test_what_was_learned_is_claimed_of_a_default_config_alone():
    config = forecasting.get_config("seasonal", "full")
    config.seeds, config.cells, config.train.seed, config.probe.on = 6, ("gru",), 4, True
    assert len(forecasting.learned_claims(config, _summaries(gru=(2.0,)), SCORED)) == 3
    config.task.horizon = 3
    assert forecasting.learned_claims(config, _summaries(gru=(2.0,)), SCORED) == []


def test_no_network_is_claimed_to_be_better_than_the_optimum():
    for values, held in (((1.7, 3.0), True), ((1.59, 2.0), False)):
        assert forecasting.optimum_claim(_summaries(lstm=values, jordan=(3.0,)), SCORED).holds == held
    assert not forecasting.optimum_claim({}, SCORED).holds


def test_the_theory_of_the_seasonal_naive_forecast_stands_in_the_source():
    steps, variance = np.arange(1, 25), NOISE**2 / (1 - MEMORY**2)
    optimum = np.mean(variance * (1 - MEMORY ** (2 * steps)))
    seasonal = 2 * variance * (1 - MEMORY**PERIOD) + (PERIOD * TREND) ** 2
    source = forecasting.learned_claims(DEFAULT, _summaries(lstm=(2.0,)), SCORED)[-1].source
    assert source.endswith(f"has {np.sqrt(seasonal / optimum):.2f}")


def test_what_cannot_be_is_refused_before_anything_is_written(tmp_path):
    config = small(seeds=0)
    with pytest.raises(UsageError, match="--config.seeds is 0"):
        forecasting.main(config, tmp_path / "w")
    config = small()
    config.task.season = 100
    with pytest.raises(UsageError, match="season of Forecasting is 100"):
        forecasting.main(config, tmp_path / "w")
    assert not (tmp_path / "w").exists()


def test_a_picture_of_no_forecast_but_the_series():
    task = Forecasting()
    figure = draw_forecasts(task, {}, [0, 5], "title")
    lines = figure.axes[1].get_lines()
    np.testing.assert_array_equal(lines[0].get_ydata(), task.contexts("test")[5])
    np.testing.assert_array_equal(lines[1].get_ydata()[1:], task.truths("test")[5])


def test_a_run_from_end_to_end_and_once_more(tmp_path, capsys):
    values = 10 + np.sin(np.arange(120) * np.pi / 2) + np.random.default_rng(0).normal(size=120) / 10
    (tmp_path / "x.csv").write_text("time,load\n" + "".join(f"day {t},{value}\n" for t, value in enumerate(values)))
    config = small(cells=("jordan",), seeds=2)
    for field, value in {"path": str(tmp_path / "x.csv"), "context": 8, "horizon": 3, "season": 4}.items():
        setattr(config.task, field, value)
    workdir = tmp_path / "w"
    forecasting.main(config, workdir)
    task = forecasting.make_entries(config, workdir)[0].task
    made = read_forecasts(workdir / "jordan")
    assert made.shape == (2, *task.truths("test").shape)
    replicas = json.loads((workdir / "jordan" / "summary.json").read_text())["replicas"]
    for forecasts, one in zip(made, replicas, strict=True):
        assert task.scores("test", forecasts) == {name: one["scores"][name] for name in ("mae", "rmse", "mase")}
    text = (workdir / "report.md").read_text()
    assert "| persistence |" in text and "| jordan |" in text and "optimum" not in text
    for name in ("forecasts.png", "errors.png"):
        assert (workdir / name).exists()
    assert json.loads((workdir / "claims.json").read_text())["claims"] == []
    assert "No claim is made of what was learned" in text
    forecasting.main(config, workdir)
    assert "finished before" in capsys.readouterr().err
