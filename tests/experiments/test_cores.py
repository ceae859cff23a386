"""Replicas are spread over cores where nothing else was asked for."""

import dataclasses

import jax
import pytest

from experiments.common.cores import all_but_a_fifth, share_cores
from rnnjax.train.config import DistributedConfig, TrainConfig


@pytest.mark.parametrize("replicas, cores, devices", [(4, 2, 2), (4, 3, 1), (6, 4, 2), (1, 8, 1)])
def test_as_many_devices_as_divide_the_replicas(monkeypatch, replicas, cores, devices):
    monkeypatch.setattr(jax, "devices", lambda: [None] * cores)
    monkeypatch.setattr(jax, "default_backend", lambda: "cpu")
    train = TrainConfig(seed=5)
    assert share_cores(train, replicas) == dataclasses.replace(train, devices=devices)


def test_what_was_asked_for_stays(monkeypatch):
    monkeypatch.setattr(jax, "devices", lambda: [None] * 4)
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    for train in (TrainConfig(), TrainConfig(devices=2), TrainConfig(distributed=DistributedConfig(processes=2))):
        assert share_cores(train, 4) == train


def test_a_rule_allows_for_one_seed_in_five_and_for_one_of_fewer():
    assert [all_but_a_fifth(seeds) for seeds in (1, 2, 4, 5, 6, 10)] == [0, 1, 3, 4, 5, 8]
