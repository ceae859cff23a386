"""What is measured. Pure functions over (cell, params, inputs) or over a loss function; none knows a cell by name.

carry_gradients   dL/dcarry_t for every t, of any function that calls `unroll`
gradient_norms    their norms over time, in log10
step_jacobians    dcarry_t/dcarry_{t-1} along a trajectory
jacobian_products dcarry_t/dcarry_k for every k <= t
log_singular_values of such products, however large or small
lyapunov_spectrum the rates at which changes of the carry grow along a trajectory

Beside them stands what trains by such a measure: `value_and_grad_with_omega`, a penalty on gradients that vanish or
explode, and its gradient.
"""

from rnnjax.probes.gradients import carry_gradients, value_and_grad
from rnnjax.probes.jacobians import JacobianProducts, jacobian_products, log_singular_values, step_jacobians
from rnnjax.probes.lyapunov import LyapunovSpectrum, lyapunov_spectrum
from rnnjax.probes.norms import by_distance, gradient_norms, log10_norm, slope
from rnnjax.probes.omega import value_and_grad_with_omega

PROBES = {
    "carry_gradients": carry_gradients,
    "gradient_norms": gradient_norms,
    "step_jacobians": step_jacobians,
    "jacobian_products": jacobian_products,
    "log_singular_values": log_singular_values,
    "lyapunov_spectrum": lyapunov_spectrum,
}

__all__ = [
    "PROBES",
    "JacobianProducts",
    "LyapunovSpectrum",
    "by_distance",
    "carry_gradients",
    "gradient_norms",
    "jacobian_products",
    "log10_norm",
    "log_singular_values",
    "lyapunov_spectrum",
    "slope",
    "step_jacobians",
    "value_and_grad",
    "value_and_grad_with_omega",
]
