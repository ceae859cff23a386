"""What the makers of interop_*.npz and the tests that read them share: the inputs, the loss, the layout of the file.

For every kind of layer: its weights (random, biases too), the outputs and final states of 20 steps in float64, and the
gradients of <outputs, a> + sum of <state, a> for a fixed `a`.
"""

import pathlib

import numpy as np

TIME, BATCH, INPUT, HIDDEN = 20, 2, 3, 4
FOLDER = pathlib.Path(__file__).parent


def factors(shape):
    """The fixed numbers that outputs and states are multiplied with in the loss."""
    return np.cos(np.arange(np.prod(shape, dtype=int), dtype=np.float64)).reshape(shape)


INPUTS = np.sin(1.7 * np.arange(TIME * BATCH * INPUT, dtype=np.float64) ** 1.1).reshape(TIME, BATCH, INPUT)


def draw(shapes, seed=7):
    """{name: array}: 0.3 of a standard normal draw for each shape."""
    rng = np.random.default_rng(seed)
    return {name: 0.3 * rng.standard_normal(shape) for name, shape in shapes.items()}


def save(library, results):
    """{kind: {"arrays": {name: array}, "outputs", "states": [...], "d_inputs", "d_arrays": {name: array}}}."""
    flat = {}
    for kind, found in results.items():
        for part in ("arrays", "d_arrays"):
            flat |= {f"{kind}|{part}|{name}": array for name, array in found[part].items()}
        flat |= {f"{kind}|states|{i}": array for i, array in enumerate(found["states"])}
        flat |= {f"{kind}|{part}": found[part] for part in ("outputs", "d_inputs")}
    np.savez_compressed(FOLDER / f"interop_{library}.npz", **{key: np.asarray(value) for key, value in flat.items()})


def read(library):
    """What `save` was given."""
    results = {}
    with np.load(FOLDER / f"interop_{library}.npz") as stored:
        for key in stored.files:
            kind, part, *name = key.split("|")
            found = results.setdefault(kind, {"arrays": {}, "d_arrays": {}, "states": []})
            if part == "states":
                found[part].append(stored[key])
            elif name:
                found[part][name[0]] = stored[key]
            else:
                found[part] = stored[key]
    return results
