"""The curse of memory: sums and derivatives are plain numpy's, claims can fail, and the study runs to its end."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments import curse_of_memory as study
from rnnjax import unroll
from rnnjax.cells import Elman
from rnnjax.train.config import UsageError
from rnnjax.train.records import release_workdirs

TINY = study.Config(steps=12, batch=3, seeds=2)


@pytest.fixture(scope="module")
def tiny():
    with jax.enable_x64(True):
        return {name: np.asarray(values) for name, values in study.measure(TINY).items()}


@pytest.mark.parametrize("rho", study.RHOS)
@pytest.mark.parametrize("weight", [0.5, 0.9, 0.95])
def test_the_closed_form_is_the_sum_of_what_every_input_does(weight, rho):
    k = np.arange(1, 900)
    by_input = k * weight ** (k - 1)  # dh_t/dlambda = sum_k k lambda^(k - 1) x_(t - k)
    total = by_input @ rho ** np.abs(k[:, None] - k) @ by_input
    assert study.closed_form(weight, rho) == pytest.approx(total, rel=1e-9)


def by_hand(inputs):
    """[MEANS, T, lambda] of inputs [T, B], a step after the other."""
    rows = []
    gamma, by_nu = np.sqrt(1 - study.LAMBDAS**2), study.LAMBDAS * np.log(study.LAMBDAS)
    h = derivative = np.zeros((inputs.shape[1], len(study.LAMBDAS)))
    for x in inputs:
        derivative = study.LAMBDAS * derivative + h
        h = study.LAMBDAS * h + x[:, None]
        rows.append([derivative**2, h**2, (gamma * by_nu * derivative) ** 2])
    return np.mean(rows, axis=2).swapaxes(0, 1)


def test_what_is_measured_is_that_of_the_equations(tiny):
    with jax.enable_x64(True):
        total = 0
        for seed, key in enumerate(study.root_keys(TINY)):
            for number, rho in enumerate(study.RHOS):
                inputs = np.asarray(study.draw_inputs(jax.random.fold_in(key, number), rho, 12, 3))[..., 0]
                expected = by_hand(inputs)
                for name, values in zip(study.MEANS, expected, strict=True):
                    np.testing.assert_allclose(tiny[name][seed, number], values[6:].mean(0), rtol=1e-10)
                if number == 1:
                    total = total + expected / TINY.seeds
    for name, values in zip(study.MEANS, total, strict=True):
        np.testing.assert_allclose(tiny[f"{name}_over_time"][1], values, rtol=1e-10)


def test_inputs_have_unit_variance_and_the_correlation_asked_for(x64):
    inputs = np.asarray(study.draw_inputs(jax.random.key(3), 0.9, 40, 5000))[..., 0]
    np.testing.assert_allclose(inputs[[0, 20, 39]].var(axis=1), 1, atol=0.1)
    assert (inputs[:-1] * inputs[1:]).mean() == pytest.approx(0.9, abs=0.03)
    assert (inputs[:-2] * inputs[2:]).mean() == pytest.approx(0.81, abs=0.03)


def test_a_unit_is_an_elman_of_one(x64):
    inputs = jax.random.normal(jax.random.key(1), (9, 2, 1), jnp.float64)
    weights = jnp.asarray(study.LAMBDAS)
    own, by_weight = jax.jvp(lambda one: study.linear(one, inputs), (weights,), (jnp.ones_like(weights),))

    @jax.jit
    @jax.vmap
    @jax.value_and_grad
    def last(weight):
        params = {"W_ih": jnp.ones((1, 1)), "W_hh": weight.reshape(1, 1), "b": jnp.zeros(1)}
        return unroll(Elman(1, 1, activation="identity"), params, inputs).outputs[-1, 0, 0]

    values, derivatives = last(weights)
    np.testing.assert_allclose(own[-1, 0], values, rtol=1e-12)
    np.testing.assert_allclose(by_weight[-1, 0], derivatives, rtol=1e-12)


def test_the_gradient_through_time_is_the_power_of_the_weight(tiny):
    distance = np.arange(study.BACK)[::-1]
    for weight, products in zip(study.LAMBDAS[2:], tiny["products"][2:], strict=True):
        np.testing.assert_allclose(products, weight**distance, rtol=1e-9, atol=1e-30)
    np.testing.assert_allclose(tiny["slopes"], np.log(study.LAMBDAS), atol=1e-10)


def found(**changes):
    """Arrays of which every claim holds, made up."""
    lambdas, rows = study.LAMBDAS, len(study.RHOS)
    sensitivity = np.array([study.closed_form(lambdas, rho) for rho in study.RHOS])
    held = {
        "sensitivity": np.stack([sensitivity] * 2),
        "square": np.tile(1 / (1 - lambdas**2), (2, rows, 1)),
        "cured": np.full((2, rows, len(lambdas)), 0.5),
        "products": lambdas[:, None] ** np.arange(5)[::-1],
        "slopes": np.log(lambdas),
    }
    return {name: np.array(values) for name, values in (held | changes).items()}


def scaled(name, at, factor):
    array = found()[name]
    array[at] *= factor
    return {name: array}


LESS = np.where(study.LONG, (1 - study.LAMBDAS) ** 0.2, 1)


@pytest.mark.parametrize(
    "failing, changes",
    [
        ((), {}),
        ((0,), scaled("sensitivity", (slice(None), 0, 1), 1.08)),
        ((0,), scaled("sensitivity", (slice(None), 0, 0), 0.92)),
        ((1,), scaled("sensitivity", (slice(None), 2, 5), 1.08)),
        ((0, 2), scaled("sensitivity", (slice(None), 0), LESS)),
        ((0, 2, 3), scaled("sensitivity", (slice(None), 0), LESS**8)),
        ((4,), scaled("products", (5, 3), 1.02)),
        ((5,), scaled("slopes", 0, 1.01)),
        ((6,), scaled("square", (slice(None), 0), LESS)),
        ((7,), scaled("cured", (slice(None), 0), LESS)),
        (tuple(range(8)), {name: np.full_like(values, np.nan) for name, values in found().items()}),
    ],
)
def test_every_claim_can_fail(failing, changes):
    claims = study.judge(found(**changes))
    failed = tuple(number for number, claim in enumerate(claims) if not claim.holds)
    assert failed == failing and len(claims) == 8


@pytest.mark.parametrize("name, value", [("steps", 1), ("batch", 0), ("seeds", 0), ("seed", -1)])
def test_what_can_not_be_is_refused_and_nothing_written(tmp_path, name, value):
    with pytest.raises(UsageError, match=f"--config.{name} is {value}: expected at least"):
        study.main(study.Config(**{name: value}), tmp_path / "x")
    assert not (tmp_path / "x").exists()


def test_the_study_end_to_end(tmp_path, monkeypatch, tiny):
    monkeypatch.setattr(study, "measure", lambda config: tiny)
    study.main(TINY, tmp_path)
    release_workdirs()
    assert json.loads((tmp_path / "claims.json").read_text())["claims"] == []  # they are of the default config
    assert "closed form" in (tmp_path / "report.md").read_text()
    assert (tmp_path / "curse.png").exists()


def test_a_default_config_is_judged_whatever_its_seed():
    config = study.get_config("linear", "full")
    config.seed = 5
    assert study.is_default(config, study.get_config, "linear", "seed")
    config.steps = 100
    assert not study.is_default(config, study.get_config, "linear", "seed")
