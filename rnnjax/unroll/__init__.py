"""The engine: the only place that loops over time.

    sequence.py   what a call is given, checked and brought to one form: batch shape, carry, lengths
    scan.py       `unroll`, on jax.lax.scan
    reference.py  `reference_unroll`, the same as a Python loop: the specification that tests compare with
    handlers.py   how a probe reaches the carries of every unroll inside a function that knows nothing of it

Take x [5, 2, 3] and lengths [5, 2]. Row 1 has two steps; what stands after them, NaN included, changes nothing:
its output is 0 and its carry is held there, the final carry is that after step 2, and no gradient passes. With
reverse=True row 1 is read x_2, x_1 and its outputs stand at t = 1, 0, beside the inputs that made them.
"""

from rnnjax.unroll.reference import reference_unroll
from rnnjax.unroll.scan import Unrolled, unroll

__all__ = ["Unrolled", "reference_unroll", "unroll"]
