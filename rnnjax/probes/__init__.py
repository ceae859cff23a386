"""What is measured. Pure functions over (cell, params, inputs) or over a loss function; none knows a cell by name.

Of any function that calls `unroll`, a loss or a whole model, for each unroll by its name:

carry_gradients          dL/dcarry_t for every t
input_gradients          dL/dx_t of what each layer was given
weight_gradients_by_time the share of every step in dL/dW
recorded                 what was run, for the next three
unroll_jacobians         dcarry_t/dcarry_{t-1}
unroll_spectra           the rates at which changes of the carry grow
gate_statistics          saturation, mean and histogram of the gates

Of a cell along a trajectory:

step_jacobians           dcarry_t/dcarry_{t-1}
lyapunov_spectrum        the rates at which changes of the carry grow

Of what these give:

gradient_norms           norms over time, in log10
jacobian_products        dcarry_t/dcarry_k for every k <= t
log_singular_values      of such products, however large or small

Beside them stands what trains by such a measure: `value_and_grad_with_omega`, a penalty on gradients that vanish or
explode, and its gradient.
"""

from rnnjax.probes.gates import GateStatistics, gate_statistics
from rnnjax.probes.gradients import carry_gradients, input_gradients, value_and_grad, weight_gradients_by_time
from rnnjax.probes.jacobians import (
    JacobianProducts,
    jacobian_products,
    log_singular_values,
    step_jacobians,
    unroll_jacobians,
)
from rnnjax.probes.lyapunov import LyapunovSpectrum, lyapunov_spectrum, unroll_spectra
from rnnjax.probes.norms import by_distance, gradient_norms, log10_norm, slope
from rnnjax.probes.omega import value_and_grad_with_omega
from rnnjax.probes.unrolls import recorded

PROBES = {
    "carry_gradients": carry_gradients,
    "input_gradients": input_gradients,
    "weight_gradients_by_time": weight_gradients_by_time,
    "recorded": recorded,
    "unroll_jacobians": unroll_jacobians,
    "unroll_spectra": unroll_spectra,
    "gate_statistics": gate_statistics,
    "step_jacobians": step_jacobians,
    "lyapunov_spectrum": lyapunov_spectrum,
    "gradient_norms": gradient_norms,
    "jacobian_products": jacobian_products,
    "log_singular_values": log_singular_values,
}

__all__ = [
    "PROBES",
    "GateStatistics",
    "JacobianProducts",
    "LyapunovSpectrum",
    "by_distance",
    "carry_gradients",
    "gate_statistics",
    "gradient_norms",
    "input_gradients",
    "jacobian_products",
    "log10_norm",
    "log_singular_values",
    "lyapunov_spectrum",
    "recorded",
    "slope",
    "step_jacobians",
    "unroll_jacobians",
    "unroll_spectra",
    "value_and_grad",
    "value_and_grad_with_omega",
    "weight_gradients_by_time",
]
