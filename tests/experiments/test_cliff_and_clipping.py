"""The cliff: gradients and descents are plain numpy's, claims can fail, and the study runs from end to end."""

import json

import jax.numpy as jnp
import numpy as np
import pytest

from experiments import cliff_and_clipping as study
from rnnjax.train.config import UsageError
from rnnjax.train.records import release_workdirs

TINY = study.Config(length=6, w_points=3, b_points=4, starts=2, steps=3, rates=(0.1,))


def by_hand(w, b, length):
    """(loss, its gradient, dL/dh_t from the last step back) of the unit, by backpropagation."""
    h = [study.H_0]
    for _ in range(length):
        h.append(1 / (1 + np.exp(-(w * h[-1] + b))))
    back, gradient, through = 2 * (h[-1] - 0.7), np.zeros(2), []
    for before, after in zip(h[-2::-1], h[:0:-1], strict=True):
        through.append(back)
        gradient += back * after * (1 - after) * np.array([before, 1.0])
        back *= after * (1 - after) * w
    return (h[-1] - 0.7) ** 2, gradient, np.array(through)


@pytest.fixture(scope="module")
def tiny():
    with study.jax.enable_x64(True):
        return {name: np.asarray(values) for name, values in study.measure(TINY).items()}


def test_loss_and_gradients_are_those_of_the_equations(tiny):
    for row, w in enumerate((0.0, 3.5, 7.0)):
        for column, b in enumerate((-4.0, -8 / 3, -4 / 3, 0.0)):
            value, gradient, _ = by_hand(w, b, 6)
            np.testing.assert_allclose(tiny["loss"][row, column], value, atol=1e-14)
            np.testing.assert_allclose(tiny["norm"][row, column], np.linalg.norm(gradient), atol=1e-14)
    for column, (w, b) in enumerate(study.WALL):
        through = by_hand(w, b, 6)[2]
        np.testing.assert_allclose(tiny["on_the_line"][:, column], np.log10(np.abs(through)), atol=1e-10)
        np.testing.assert_allclose(tiny["slopes"][column], np.log(w * study.SLOPE_0), atol=1e-10)


def test_descents_are_those_of_the_equations(tiny):
    for number, threshold in enumerate((np.inf, 1.0)):
        for start in range(2):
            point = tiny["path"][0, 0, number, start]
            np.testing.assert_allclose(point[1], study.line(point[0]) + study.AWAY)
            for step in range(4):
                value, gradient, _ = by_hand(*point, 6)
                np.testing.assert_allclose(tiny["path"][step, 0, number, start], point, atol=1e-13)
                np.testing.assert_allclose(tiny["loss_of_path"][step, 0, number, start], value, atol=1e-13)
                moved = 0.1 * gradient * min(1, threshold / np.linalg.norm(gradient))
                if step < 3:
                    np.testing.assert_allclose(tiny["step"][step, 0, number, start], np.linalg.norm(moved), atol=1e-13)
                point = point - moved


def test_clipping_shortens_steps_to_its_threshold(x64):
    config = study.Config(length=40, steps=1, rates=(0.5,), clip=0.01)
    steps = study.descents(config, np.array([[5.0, study.line(5.0) + 1e-3]]))[2]
    np.testing.assert_allclose(steps[0, 0, 1, 0], 0.5 * 0.01)
    assert steps[0, 0, 0, 0] > 0.05


def test_the_bound_of_the_gradient_is_one():
    assert study.bound(0.0, 9) == pytest.approx(0.35 * 2**0.5)
    assert study.bound(max(study.SILENT), 50) < 1
    for w in np.linspace(0, 3.99, 20):
        norms = [np.linalg.norm(by_hand(w, b, 30)[1]) for b in np.linspace(-4, 0, 20)]
        assert 0 < max(norms) < study.bound(w, 30)


def found(**changes):
    """Arrays of which every claim holds, made up."""
    norm = np.full((5, 3), 0.01)
    norm[2, 1] = 10.0
    held = {
        "w": np.array([0.0, 3.0, 4.5, 5.0, 7.0]),
        "b": np.array([-4.0, -2.3, 0.0]),
        "norm": norm,
        "slopes": np.log(np.array(study.ON_THE_LINE) * study.SLOPE_0),
        "loss_of_path": np.tile([[[0.3] * 4, [0.1] * 4]], (8, 2, 1, 1)),
        "step": np.tile([[[5.0] * 4, [0.1] * 4]], (7, 2, 1, 1)),
        "silent_path": np.zeros((8, 1, 2, 3, 2)),
    }
    return held | changes


def changed(name, at, value):
    array = np.array(found()[name])
    array[at] = value
    return {name: array}


@pytest.mark.parametrize(
    "failing, changes",
    [
        ((), {}),
        ((0,), changed("norm", (2, 1), 4.0)),
        ((1,), changed("w", 2, 4.7)),
        ((2, 3), changed("norm", (0, 0), 3.0)),
        ((3,), changed("norm", (1, 0), 1.5)),
        ((4,), changed("slopes", 3, 0.2)),
        ((5,), changed("step", (3, 0, 1), 0.5)),
        ((6,), changed("loss_of_path", (slice(6, 8), 0, 1, slice(0, 2)), 0.31)),
        ((7,), changed("silent_path", (7, 0, 1, 2, 0), 1e-9)),
        (tuple(range(8)), {name: np.full_like(values, np.nan) for name, values in found().items() if name not in "wb"}),
    ],
)
def test_every_claim_can_fail(failing, changes):
    claims = study.judge(study.Config(), found(**changes))
    failed = tuple(number for number, claim in enumerate(claims) if not claim.holds)
    assert failed == failing and len(claims) == 8


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"length": 1}, "--config.length is 1: expected at least 2"),
        ({"starts": 0}, "--config.starts is 0"),
        ({"rates": ()}, "--config.rates is"),
        ({"rates": (0.1, 0.1)}, "--config.rates is 0.1,0.1"),
        ({"clip": 0.0}, "--config.clip is 0.0"),
        ({"clip": float("nan")}, "--config.clip is nan"),
    ],
)
def test_what_can_not_be_is_refused_and_nothing_written(tmp_path, changes, message):
    with pytest.raises(UsageError, match=message):
        study.main(study.Config(**changes), tmp_path / "x")
    assert not (tmp_path / "x").exists()


def test_the_study_end_to_end(tmp_path, monkeypatch, capsys, tiny):
    monkeypatch.setattr(study, "measure", lambda config: tiny)
    study.main(TINY, tmp_path)
    release_workdirs()
    monkeypatch.setattr(study, "measure", lambda config: pytest.fail("it was measured before"))
    monkeypatch.setattr(study.cliff_report, "draw", lambda *_: {})
    study.main(TINY, tmp_path)
    release_workdirs()
    assert json.loads((tmp_path / "claims.json").read_text())["claims"] == []  # they are of the default config
    assert "longest step" in (tmp_path / "report.md").read_text()
    assert {path.name for path in tmp_path.glob("*.png")} == {"cliff.png", "descents.png"}
    assert "report.md" in capsys.readouterr().out


def test_a_default_config_is_judged(tmp_path, monkeypatch):
    monkeypatch.setattr(study, "measure", lambda config: {**found(), "slopes": jnp.zeros(6)})
    monkeypatch.setattr(study.cliff_report, "draw", lambda *_: {})
    study.main(study.get_config("one_unit", "full"), tmp_path)
    release_workdirs()
    assert len(json.loads((tmp_path / "claims.json").read_text())["claims"]) == 8
