"""rnnjax: recurrent cells in JAX, and what their gradient does through time.

cells, unroll    pure-function cells, and the one scan over time
probes           dL/dcarry_t for every t of any function that calls `unroll`; Jacobians and their products
nn, tasks, train Flax modules, things to learn, and the trainer; import them by name
testing          conformance tests for a cell or a task of your own
"""

from rnnjax import cells, initializers, probes
from rnnjax.cell import Cell
from rnnjax.unroll import Unrolled, reference_unroll, unroll

__version__ = "0.1.0"

__all__ = ["Cell", "Unrolled", "cells", "initializers", "probes", "reference_unroll", "unroll"]
