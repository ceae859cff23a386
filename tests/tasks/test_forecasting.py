"""Forecasting: windows in time order, standardised by the past alone, baselines by hand, and the optimum of theory."""

import jax.numpy as jnp
import numpy as np
import pytest

from rnnjax.data import DataError
from rnnjax.tasks import TASKS, Forecasting, reduce_mean
from rnnjax.tasks.forecasting import MEMORY, NOISE, generate

SPLITS = ("train", "valid", "test")


@pytest.fixture(scope="module")
def ramp(tmp_path_factory):
    """100 values in a file, 0 .. 99 with a wiggle of season 4, and another column before it."""
    path = tmp_path_factory.mktemp("series") / "x.csv"
    values = np.arange(100) + np.array([0.0, 3.0, 0.0, -3.0])[np.arange(100) % 4]
    path.write_text("date,other,load\n" + "".join(f"d{t},7,{value}\n" for t, value in enumerate(values)))
    return Forecasting(path=str(path), column="load", context=6, horizon=3, season=4), values


def test_windows_stand_in_the_split_that_they_forecast(ramp):
    task, values = ramp
    assert np.array_equal(task.series, values)
    for split, (start, end) in {"train": (6, 70), "valid": (70, 80), "test": (80, 100)}.items():
        origins = task.origins(split)
        assert origins[0] + 1 == start and origins[-1] + 3 == end - 1 and len(origins) == end - start - 2
        assert np.array_equal(task.contexts(split)[2], values[start + 2 - 6 : start + 2])
        assert np.array_equal(task.truths(split)[2], values[start + 2 : start + 5])


def test_only_the_training_split_standardises(ramp):
    task, values = ramp
    assert task.scale == values[:70].std()


@pytest.mark.parametrize("batch_size", [1, 5, 64])
def test_batches_hold_every_window_once_and_in_order(ramp, batch_size):
    task, _ = ramp
    for split in SPLITS:
        rows = 0
        for inputs, targets, mask, lengths, fresh in task.batches(split, batch_size):
            assert (
                inputs.shape == (6, batch_size, 1) and targets.shape == (batch_size, 3) and mask.shape == (batch_size,)
            )
            assert {inputs.dtype, targets.dtype, mask.dtype} == {np.dtype("float32")} and lengths is fresh is None
            count = int(mask.sum())
            assert mask[:count].all() and not inputs[:, count:].any() and not targets[count:].any()
            context, truth = task.contexts(split)[rows : rows + count], task.truths(split)[rows : rows + count]
            np.testing.assert_allclose(task.scale * inputs[:, :count, 0].T, context - context[:, -1:], atol=1e-4)
            np.testing.assert_allclose(context[:, -1:] + task.scale * targets[:count], truth, atol=1e-4)
            rows += count
        assert rows == len(task.origins(split))


def test_an_epoch_holds_every_training_window_once_and_depends_on_its_arguments_alone():
    task, again = Forecasting(), Forecasting()
    assert task.steps_per_epoch(1000) == 3
    batches = [task.batch(2 * 3 + step, 1000, 5) for step in range(3)]
    found = np.concatenate([batch.inputs[:, : int(batch.mask.sum()), 0].T for batch in batches])
    expected = np.concatenate([batch.inputs[:, : int(batch.mask.sum()), 0].T for batch in task.batches("train", 1000)])
    assert len(np.unique(expected, axis=0)) == len(expected) == 2729
    assert np.array_equal(found[np.lexsort(found.T)], expected[np.lexsort(expected.T)])
    assert np.array_equal(again.batch(6, 1000, 5).inputs, batches[0].inputs)
    assert not np.array_equal(task.batch(6, 1000, 6).inputs, batches[0].inputs)
    assert not np.array_equal(task.batch(3, 1000, 5).inputs, batches[0].inputs)


def test_forecasts_loss_and_scores_by_hand(ramp):
    task, values = ramp
    deviation = task.scale
    batch = next(task.batches("valid", 10))
    outputs = jnp.asarray(batch.targets).at[0, 1].add(2.0)
    np.testing.assert_allclose(task.loss(outputs, batch), [4 / 3] + [0] * 9, atol=1e-6)
    mae, mask = task.metrics(outputs, batch)["mae"]
    assert np.isclose(reduce_mean(mae, mask), 2 * deviation / 3 / 8)

    def zero(batch):
        return np.zeros(batch.targets.shape, np.float32)

    np.testing.assert_allclose(task.forecasts("test", 7, zero), task.persistence("test"), atol=1e-5)
    np.testing.assert_allclose(task.forecasts("test", 7, lambda batch: batch.targets), task.truths("test"), atol=1e-4)
    errors = {k: np.abs(values[80 + k : 80 + 18 + k] - values[79:97]) for k in range(3)}
    scores = task.scores("test", task.persistence("test"))
    assert np.isclose(scores["mae"], np.mean([errors[k] for k in range(3)]))
    assert np.isclose(scores["rmse"], np.sqrt(np.mean([errors[k] ** 2 for k in range(3)])))
    assert np.isclose(scores["mase"], scores["mae"] / 4)  # a season later the series is 4 higher


def test_the_seasonal_naive_forecast(ramp):
    task, values = ramp
    naive = task.seasonal_naive("test")
    assert np.array_equal(naive, task.truths("test") - 4)
    assert np.isclose(task.scores("test", naive)["mase"], 1)
    longer = Forecasting(path=task.path, column="load", context=6, horizon=6, season=4).seasonal_naive("test")
    assert np.array_equal(longer[:, :3], naive[:15]) and np.array_equal(
        longer[:, 4:], longer[:, :2]
    )  # again from there


def test_chance_is_the_mean_change(ramp):
    task, values = ramp
    changes = {s: (task.truths(s) - values[task.origins(s), None]) / task.scale for s in SPLITS}
    assert np.isclose(task.chance, np.mean((changes["valid"] - changes["train"].mean(0)) ** 2))


def test_the_generated_series_is_what_it_says():
    long = generate(200_000, seed=3)
    assert np.array_equal(long.values, long.course + long.noise)
    assert abs(long.noise.var() - NOISE**2 / (1 - MEMORY**2)) < 0.05
    innovations = long.noise[1:] - MEMORY * long.noise[:-1]
    assert abs(innovations.var() - NOISE**2) < 0.02 and abs(np.mean(innovations[1:] * innovations[:-1])) < 0.01
    np.testing.assert_allclose(long.course[24:] - long.course[:-24], 24 * 2e-3, atol=1e-9)
    assert np.array_equal(generate(50, seed=3).noise, long.noise[:50])
    first = [generate(1, seed).noise[0] for seed in range(3000)]
    assert abs(np.var(first) - NOISE**2 / (1 - MEMORY**2)) < 0.25  # 3 standard errors, as at any other step


def test_the_optimum_has_the_error_of_theory_and_nothing_seen_beats_it():
    task = Forecasting()
    steps = np.arange(1, 25)
    theory = NOISE * np.sqrt(np.mean((1 - MEMORY ** (2 * steps)) / (1 - MEMORY**2)))
    best = task.scores("train", task.optimum("train"))
    assert abs(best["rmse"] / theory - 1) < 0.05
    innovations, at = task.generated.noise[1:] - MEMORY * task.generated.noise[:-1], task.origins("test")
    errors = task.truths("test") - task.optimum("test")
    np.testing.assert_allclose(errors[:, 0], innovations[at], atol=1e-9)  # innovations[t] comes after step t
    np.testing.assert_allclose(errors[:, 1], innovations[at + 1] + MEMORY * innovations[at], atol=1e-9)
    for split in SPLITS:
        best = task.scores(split, task.optimum(split))
        for other in (task.persistence(split), task.seasonal_naive(split), task.generated.course[:1]):
            assert best["rmse"] < task.scores(split, other)["rmse"]
    assert TASKS["forecasting"] is Forecasting and task.output_size == 24


def _written(path, values):
    path.write_text("x\n" + "\n".join(map(str, values)))
    return Forecasting(path=str(path), context=6, horizon=3, season=4)


def test_series_that_cannot_be_forecast(tmp_path, ramp):
    file = tmp_path / "x.csv"
    with pytest.raises(DataError, match=r"39 values: expected 40 at least, for windows of 6 \+ 3\nTake a longer"):
        _ = _written(file, range(39)).series
    short = _written(file, range(40))
    assert [len(short.origins(split)) for split in SPLITS] == [20, 2, 6]
    with pytest.raises(DataError, match="the generated series: 4000 values: expected 4038 at least"):
        _ = Forecasting(context=2802).series
    with pytest.raises(DataError, match="does not change, or repeats itself"):
        _ = _written(file, [5] * 100).series
    with pytest.raises(DataError, match="does not change, or repeats itself"):
        _ = _written(file, [0, 1, 2, 3] * 25).series
    with pytest.raises(DataError, match="line 3, x: is 'nan'"):
        _ = _written(file, [1, "nan", *range(100)]).series
    with pytest.raises(DataError, match="no column 'lod'\ndid you mean 'load'"):
        _ = Forecasting(path=ramp[0].path, column="lod").series
    with pytest.raises(ValueError, match="only of the generated series the parts are known"):
        ramp[0].optimum("test")


@pytest.mark.parametrize(
    "options, message",
    [
        ({"context": 0}, "context of Forecasting is 0: expected a whole number of at least 1"),
        ({"horizon": 0}, "horizon of Forecasting is 0"),
        ({"context": 8, "season": 9}, "season of Forecasting is 9: expected at most context, 8"),
        ({"column": "x"}, "column of Forecasting is 'x' but path is ''"),
    ],
    ids=range(4),
)
def test_wrong_fields_are_refused_by_name(options, message):
    with pytest.raises(ValueError, match=message):
        Forecasting(**options)
    with pytest.raises(ValueError, match="split is 'dev'"):
        Forecasting().origins("dev")


def test_a_column_is_not_chosen_silently(tmp_path):
    rows = "".join(f"{number},{np.sin(number)}\n" for number in range(400))
    (tmp_path / "two.csv").write_text("step,load\n" + rows)
    with pytest.raises(DataError, match="holds the columns step, load: expected one to forecast\nGive its name"):
        _ = Forecasting(path=str(tmp_path / "two.csv")).series
    chosen = Forecasting(path=str(tmp_path / "two.csv"), column="load").series
    np.testing.assert_allclose(chosen, np.sin(np.arange(400)))


WIGGLE = [float(t % 13) for t in range(300)]


@pytest.mark.parametrize(
    "values, message",
    [
        ([value * 1e307 for value in WIGGLE], "column 'v': value 13 of 300 is 1.2e+308: too large for its square"),
        ([value * -1e160 for value in WIGGLE], "column 'v': value 13 of 300 is -1.2e+161: too large for its square"),
        ([value * 1.7e308 * (-1) ** t for t, value in enumerate(np.sign(WIGGLE))], "value 2 of 300 is -1.7e+308: too"),
        ([*WIGGLE[:-1], 1e308], "column 'v': value 300 of 300 is 1e+308: too large"),
        ([*WIGGLE[:-1], 1e40], "value 300 of 300 is 1e+40, more than 1e+12 standard deviations (3.7"),
        ([value * 1e-200 for value in WIGGLE], "column 'v': its standard deviation in the training split is 0: too"),
        ([1.7e308] * 300, "column 'v': the training split does not change, or repeats itself"),
        ([0.1] * 300, "column 'v': the training split does not change, or repeats itself"),
        ([1e308 * (t % 2) for t in range(300)], "column 'v': the training split does not change, or repeats itself"),
    ],
)
@pytest.mark.filterwarnings("error")
def test_values_out_of_range_are_told_by_column_and_value(tmp_path, values, message):
    path = tmp_path / "x.csv"
    path.write_text("v\n" + "".join(f"{value!r}\n" for value in map(float, values)))
    with pytest.raises(DataError) as caught:
        _ = Forecasting(path=str(path), context=24, season=24).series
    assert str(caught.value).startswith(f"{path}: column 'v': ") and message in str(caught.value)


@pytest.mark.parametrize("unit", [1e-100, 1.0, 1e100])
@pytest.mark.filterwarnings("error")
def test_any_unit_within_the_range_gives_the_same_batches(tmp_path, unit):
    path = tmp_path / "x.csv"
    path.write_text("v\n" + "".join(f"{value * unit!r}\n" for value in WIGGLE))
    task = Forecasting(path=str(path), context=24, season=24)
    batch = next(task.batches("test", 8))
    assert np.isfinite(batch.targets).all() and 1 < np.abs(batch.targets).max() < 4
    assert np.isfinite(list(task.scores("test", task.persistence("test")).values())).all()
