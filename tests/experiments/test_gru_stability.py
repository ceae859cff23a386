"""Stability of a GRU: Jacobians and gradients are plain numpy's, claims can fail, and the study runs to its end."""

import json
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments import gru_stability as study
from rnnjax.cells import GRU
from rnnjax.train.config import UsageError
from rnnjax.train.records import release_workdirs

TINY = study.Config(hidden_size=3, steps=10, settle=5, seeds=4)


def measured(forms):
    """What the study measures of these forms alone: each takes a compilation."""
    with pytest.MonkeyPatch.context() as patch, jax.enable_x64(True):
        patch.setattr(study, "FORMS", forms)
        return {name: np.asarray(values) for name, values in study.measure(TINY).items()}


@pytest.fixture(scope="module")
def tiny():
    return measured(("after",))


def stepped(h, W_r, W_u, W_n, form):
    """A step of a GRU without input and biases, by hand."""
    r, u = 1 / (1 + np.exp(-h @ W_r)), 1 / (1 + np.exp(-h @ W_u))
    into = {"after": r * (h @ W_n), "before": (r * h) @ W_n, "none": h @ W_n}[form]
    return u * h + (1 - u) * np.tanh(into)


def differences(h, matrices, form, width=1e-6):
    """The Jacobian of `stepped`, by central differences."""
    columns = [
        (stepped(h + width * unit, *matrices, form) - stepped(h - width * unit, *matrices, form)) / (2 * width)
        for unit in np.eye(len(h))
    ]
    return np.stack(columns, axis=1)


@pytest.mark.parametrize("form, factor", [("after", 4), ("before", 4), ("none", 2)])
def test_the_law_is_that_of_the_equations(form, factor):
    matrices = np.random.default_rng(1).normal(size=(3, 4, 4))
    expected = np.eye(4) / 2 + matrices[2].T / factor
    np.testing.assert_allclose(differences(np.zeros(4), matrices, form), expected, atol=1e-8)


def check_laws(tiny, forms):
    assert tiny["sigma"].shape == tiny["radius"].shape == tiny["slope"].shape == (len(forms), 4)
    assert tiny["error"].max() < 1e-14
    sigma = tiny["sigma"][0]
    np.testing.assert_allclose(tiny["sigma"], np.stack([sigma] * len(forms)))  # the same draws for every form
    assert (sigma[:2] < 2).all() and (sigma[2:] >= 2).all() and (sigma < 3.5).all()
    for number, form in enumerate(forms):
        factor = 2 if form == "none" else 4
        np.testing.assert_allclose(tiny["radius_of_c"][number], 0.5 + study.SCALES / factor, atol=1e-12)
        np.testing.assert_allclose(tiny["slope_of_c"][number], np.log(0.5 + study.SCALES / factor), atol=1e-10)


def test_what_is_measured_of_a_gru_is_the_law(tiny):
    check_laws(tiny, ("after",))


@pytest.mark.full
def test_what_is_measured_of_every_form_is_the_law():
    check_laws(measured(study.FORMS), study.FORMS)


def test_the_settled_state_and_exponent_are_those_of_the_equations(tiny):
    for number in range(0, len(study.SCALES), 8):
        matrices = (np.zeros((3, 3)), np.zeros((3, 3)), study.SCALES[number] * np.eye(3))
        h, rates = 1e-3 * np.array([1.0, -1.0, 1.0]), []
        for step in range(TINY.settle + TINY.steps):
            if step >= TINY.settle:
                rates.append(np.log(np.abs(differences(h, matrices, "after")[0, 0])))
            h = stepped(h, *matrices, "after")
        np.testing.assert_allclose(tiny["state"][number], np.abs(h).mean(), rtol=1e-9)
        np.testing.assert_allclose(tiny["exponent"][number], np.mean(rates), atol=1e-7)


def test_theory_is_a_fixed_point():
    exponent, h = study.theory(np.array([0.0, 1.0, 2.0, 3.0]))
    np.testing.assert_allclose(h, np.tanh(np.array([0.0, 1.0, 2.0, 3.0]) * h / 2))
    np.testing.assert_allclose(exponent[:3], [-math.log(2), math.log(0.75), 0])
    assert h[3] > 0.8 and exponent[3] < 0


def test_a_radius_is_the_largest_eigenvalue_and_a_crossing_the_place_between():
    turned = np.array([[0.0, -3.0], [3.0, 0.0]])
    found = study.radii(np.stack([turned, np.diag([0.5, -2.0]), np.full((2, 2), np.nan)]))
    np.testing.assert_allclose(found, [3, 2, np.nan])
    assert study.crossing(study.SCALES - 1.3) == pytest.approx(1.3)
    assert math.isnan(study.crossing(-np.ones(33))) and math.isnan(study.crossing(np.ones(33)))
    assert math.isnan(study.crossing(np.full(33, np.nan)))


def test_only_the_candidates_matrix_is_replaced(x64):
    params = GRU(1, 2).init(jax.random.key(0), jnp.float64)
    changed = study.with_candidate(params, jnp.full((2, 2), 7.0))
    np.testing.assert_array_equal(changed["W_hh"][:, :4], params["W_hh"][:, :4])
    np.testing.assert_array_equal(changed["W_hh"][:, 4:], 7.0)


def found(**changes):
    """Arrays of which every claim holds, made up."""
    factors = np.array([4, 4, 2])[:, None]
    exponent, state = study.theory(study.SCALES)
    held = {
        "sigma": np.tile([0.5, 1.9, 2.5, 3.0], (3, 1)),
        "error": np.zeros((3, 4)),
        "radius": np.tile([0.6, 0.9, 0.95, 1.1], (3, 1)),
        "slope": np.tile([-0.5, -0.1, -0.05, 0.1], (3, 1)),
        "radius_of_c": 0.5 + study.SCALES / factors,
        "slope_of_c": np.log(0.5 + study.SCALES / factors),
        "exponent": exponent,
        "state": state,
    }
    return {name: np.array(values) for name, values in (held | changes).items()}


def changed(name, at, value):
    array = found()[name]
    array[at] = value
    return {name: array}


@pytest.mark.parametrize(
    "failing, changes",
    [
        ((), {}),
        ((), changed("error", (2, 0), 1.0)),  # of the form without a reset gate no such claim is made
        ((0,), changed("error", (1, 0), 1e-5)),
        ((1,), changed("radius", (1, 1), 1.0)),
        ((2,), changed("slope", (0, 0), 0.0)),
        ((3,), changed("radius", (0, slice(2, 4)), 1.2)),
        ((4,), changed("slope_of_c", 0, np.log(0.51 + study.SCALES / 4))),
        ((4,), changed("radius_of_c", 0, 0.49 + study.SCALES / 4)),
        ((5,), changed("radius_of_c", 2, 0.48 + study.SCALES / 2)),
        ((6,), changed("exponent", 3, 0.5)),
        ((7,), changed("state", 30, 0.5)),
        (tuple(range(8)), {name: np.full_like(values, np.nan) for name, values in found().items() if name != "sigma"}),
    ],
)
def test_every_claim_can_fail(failing, changes):
    claims = study.judge(found(**changes))
    failed = tuple(number for number, claim in enumerate(claims) if not claim.holds)
    assert failed == failing and len(claims) == 8


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"hidden_size": 0}, "--config.hidden_size is 0: expected at least 1"),
        ({"steps": 9}, "--config.steps is 9"),
        ({"settle": -1}, "--config.settle is -1"),
        ({"seeds": 1}, "--config.seeds is 1"),
    ],
)
def test_what_can_not_be_is_refused_and_nothing_written(tmp_path, changes, message):
    with pytest.raises(UsageError, match=message):
        study.main(study.Config(**changes), tmp_path / "x")
    assert not (tmp_path / "x").exists()


def test_the_study_end_to_end(tmp_path, monkeypatch):
    monkeypatch.setattr(study, "measure", lambda config: found())
    study.main(TINY, tmp_path)
    release_workdirs()
    assert json.loads((tmp_path / "claims.json").read_text())["claims"] == []  # they are of the default config
    assert "reset before" in (tmp_path / "report.md").read_text()
    assert (tmp_path / "stability.png").exists()


def test_a_default_config_is_judged_whatever_its_seed():
    config = study.get_config("autonomous", "full")
    config.seed = 5
    assert study.is_default(config, study.get_config, "autonomous", "seed")
    config.steps = 50
    assert not study.is_default(config, study.get_config, "autonomous", "seed")
