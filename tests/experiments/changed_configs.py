"""Configs with some of their fields changed, by the names that flags have."""

import functools


def changed(config, change):
    """The config itself, its fields as `change` {dotted name: value} has them."""
    for name, value in change.items():
        *groups, field = name.split(".")
        setattr(functools.reduce(getattr, groups, config), field, value)
    return config
