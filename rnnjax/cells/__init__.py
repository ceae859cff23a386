"""The cells, one file each. `CELLS` is the table of contents: what stands in it is found by name and tested."""

from rnnjax.cells.elman import Elman, ElmanCarry
from rnnjax.cells.gru import GRU, GRUCarry
from rnnjax.cells.indrnn import IndRNN, IndRNNCarry
from rnnjax.cells.jordan import Jordan, JordanCarry, TeacherForced
from rnnjax.cells.lstm import LSTM, LSTMCarry
from rnnjax.cells.mgu import MGU, MGUCarry

CELLS = {"elman": Elman, "jordan": Jordan, "lstm": LSTM, "gru": GRU, "mgu": MGU, "indrnn": IndRNN}

__all__ = [
    "CELLS",
    "Elman",
    "ElmanCarry",
    "GRU",
    "GRUCarry",
    "IndRNN",
    "IndRNNCarry",
    "Jordan",
    "JordanCarry",
    "LSTM",
    "LSTMCarry",
    "MGU",
    "MGUCarry",
    "TeacherForced",
]
