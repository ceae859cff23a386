import pytest

from rnnjax.train.config import UsageError
from rnnjax.train.sweep import chain, product, sweep, zip_

BIAS = sweep("cell_options.lstm.forget_bias", (0, 1))
SEED = sweep("train.seed", range(3))


def test_a_sweep_is_one_override_a_value():
    assert BIAS == [{"cell_options.lstm.forget_bias": 0}, {"cell_options.lstm.forget_bias": 1}]


def test_product_takes_every_combination_and_the_last_varies_fastest():
    made = product(BIAS, SEED)
    assert [tuple(one.values()) for one in made] == [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2)]
    assert all(tuple(one) == ("cell_options.lstm.forget_bias", "train.seed") for one in made)


def test_the_product_of_no_sweeps_is_the_config_as_it_is():
    assert product() == [{}]


def test_zip_goes_along_both():
    made = zip_(BIAS, sweep("train.learning_rate", (1e-2, 1e-3)))
    assert [tuple(one.values()) for one in made] == [(0, 1e-2), (1, 1e-3)]


def test_chain_is_one_after_the_other_and_leaves_its_sweeps_alone():
    baseline = [{}]
    made = chain(baseline, BIAS, SEED)
    assert made == [{}, *BIAS, *SEED]
    made[0]["train.seed"] = 1
    assert baseline == [{}]


@pytest.mark.parametrize("combine", [product, zip_])
def test_a_field_that_two_sweeps_set_is_named(combine):
    with pytest.raises(UsageError, match="two sweeps set train.seed: keep one"):
        combine(SEED, product(sweep("model.hidden_size", (1,)), SEED)[:3])


def test_sweeps_of_different_length_do_not_go_together():
    with pytest.raises(UsageError, match="cell_options.lstm.forget_bias has 2, train.seed has 3"):
        zip_(BIAS, SEED)


def test_a_sweep_without_values_is_named():
    with pytest.raises(UsageError, match="sweep over train.seed has no values"):
        sweep("train.seed", ())
