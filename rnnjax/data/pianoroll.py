"""Polyphonic music as piano rolls: [T, 88] of 0 and 1, a row a step of time, a column a key (MIDI 21 .. 108).

The four corpora of Boulanger-Lewandowski, Bengio, Vincent 2012, "Modeling temporal dependencies in
high-dimensional sequences", in the three formats that they go around in:

    .mat           MATLAB 5: cell arrays traindata, validdata, testdata of matrices [T, 88]
    .json          {"train": [...], "valid": [...], "test": [...]}: sequences of steps of MIDI notes
    .pickle .pkl   the same, as the original Python 2 pickles hold it
"""

import json
import os
import pathlib
from typing import NamedTuple

import numpy as np

from rnnjax.data.errors import AGAIN, malformed, shown
from rnnjax.data.matlab import read_matlab
from rnnjax.data.unpickle import unpickle_plain

SPLITS = ("train", "valid", "test")
LOWEST_NOTE, KEYS = 21, 88
HIGHEST_NOTE = LOWEST_NOTE + KEYS - 1
# Twenty times the largest of the corpora: a file that asks for more is broken, or meant to fill the memory.
MAX_BYTES, MAX_STEPS = 256 * 2**20, 10_000_000


class Corpus(NamedTuple):
    """files: names that it goes by; sizes: sequences in train, valid and test, as published."""

    files: tuple[str, ...]
    sizes: tuple[int, int, int]


CORPORA = {
    "JSB_Chorales": Corpus(
        ("JSB_Chorales.mat", "JSB Chorales.pickle", "jsb-chorales-quarter.json", "jsb-chorales-quarter.pkl"),
        (229, 76, 77),
    ),
    "Nottingham": Corpus(("Nottingham.mat", "Nottingham.pickle"), (694, 173, 170)),
    "MuseData": Corpus(("MuseData.mat", "MuseData.pickle"), (524, 135, 124)),
    "Piano_midi": Corpus(("Piano_midi.mat", "Piano-midi.de.pickle"), (87, 12, 25)),
}


def read_pianoroll(path: str | os.PathLike) -> dict[str, list[np.ndarray]]:
    """{"train": rolls, "valid": rolls, "test": rolls}, each roll uint8 [T, 88] with T of at least 1.

    The extension says the format. A file named as one of `CORPORA` is checked to have its number of
    sequences.

    Raises DataError, naming the file, the place and the value, for anything that is not such a file.
    """
    path = pathlib.Path(path)
    reader = READERS.get(path.suffix.lower())
    if reader is None:
        raise malformed(
            path,
            "",
            f"unknown extension {path.suffix!r}",
            f"Expected one of {', '.join(READERS)}: convert or rename.",
        )
    splits = reader(path, _read_bytes(path))
    for split in SPLITS:
        if not splits[split]:
            raise malformed(path, split, "no sequence", AGAIN)
    _check_sizes(path, splits)
    return splits


def _read_bytes(path: pathlib.Path) -> bytes:
    try:
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except (OSError, ValueError) as error:  # ValueError: a null character in the name
        reason = getattr(error, "strerror", None) or error
        raise malformed(path, "", f"cannot be read: {reason}", "Check the name and the permissions.") from error
    if not data:
        raise malformed(path, "", "the file is empty", AGAIN)
    if len(data) > MAX_BYTES:
        raise malformed(path, "", f"larger than {MAX_BYTES} bytes", "A corpus of piano rolls is far smaller.")
    return data


def _check_sizes(path, splits) -> None:
    for corpus in CORPORA.values():
        if path.name in corpus.files:
            for split, expected in zip(SPLITS, corpus.sizes, strict=True):
                found = len(splits[split])
                if found != expected:
                    problem = f"{found} sequences: expected {expected}, as published"
                    raise malformed(path, split, problem, "Get the file again; rename it if the split is your own.")


def _read_json(path, data: bytes):
    try:
        document = json.loads(data)
    except json.JSONDecodeError as error:
        place = f"line {error.lineno}, column {error.colno}"
        raise malformed(path, place, f"not JSON: {error.msg}", AGAIN) from error
    except (ValueError, RecursionError) as error:  # not UTF-8, a number of too many digits, nested too deep
        raise malformed(path, "", f"not JSON of piano rolls: {type(error).__name__}", AGAIN) from error
    return _from_notes(path, document)


def _read_pickle(path, data: bytes):
    return _from_notes(path, unpickle_plain(path, data))


def _from_notes(path, document) -> dict[str, list[np.ndarray]]:
    """Rolls from {split: [[[note, ...] of a step, ...] of a sequence, ...]}; lists and tuples alike."""
    if not isinstance(document, dict):
        raise malformed(path, "", f"holds {shown(document)}", f"Expected the keys {', '.join(SPLITS)}.")
    _check_keys(path, document, SPLITS)
    splits, steps = {}, 0
    for split in SPLITS:
        sequences = _check_list(path, split, document[split], "sequences")
        splits[split] = []
        for i, sequence in enumerate(sequences):
            place = f"{split}, sequence {i}"
            steps += len(_check_list(path, place, sequence, "steps"))
            _check_steps(path, place, len(sequence), steps)
            splits[split].append(_roll(path, place, sequence))
    return splits


def _roll(path, place: str, sequence) -> np.ndarray:
    roll = np.zeros((len(sequence), KEYS), np.uint8)
    for t, notes in enumerate(sequence):
        if not isinstance(notes, list | tuple) or len(notes) > KEYS:
            problem = f"is {shown(notes)}: expected a list of at most {KEYS} MIDI notes, [] for silence"
            raise malformed(path, f"{place}, step {t}", problem, AGAIN)
        for note in notes:
            if type(note) is not int or not LOWEST_NOTE <= note <= HIGHEST_NOTE:
                problem = f"note {shown(note)}: expected a whole number in {LOWEST_NOTE} .. {HIGHEST_NOTE}"
                raise malformed(path, f"{place}, step {t}", problem, "Notes are MIDI numbers: transpose or drop it.")
            roll[t, note - LOWEST_NOTE] = 1
    return roll


def _check_list(path, place: str, value, what: str):
    if not isinstance(value, list | tuple):
        raise malformed(path, place, f"is {shown(value)}: expected a list of {what}", AGAIN)
    return value


def _check_steps(path, place: str, steps: int, total: int) -> None:
    if steps == 0:
        raise malformed(path, place, "has no steps", "Expected at least 1: drop the sequence.")
    if total > MAX_STEPS:
        raise malformed(path, place, f"step {MAX_STEPS} of the file passed", "A corpus is far smaller: split it.")


def _check_keys(path, found, wanted) -> None:
    missing = [key for key in wanted if key not in found]
    if missing:
        keys = shown(sorted(str(key) for key in found))
        raise malformed(path, "", f"no {', '.join(missing)} among the keys {keys}", f"Expected {', '.join(wanted)}.")


def _read_mat(path, data: bytes) -> dict[str, list[np.ndarray]]:
    names = [f"{split}data" for split in SPLITS]
    variables = read_matlab(path, data)
    _check_keys(path, variables, names)
    splits, steps = {}, 0
    for split, name in zip(SPLITS, names, strict=True):
        kind, cells = variables[name].kind, variables[name].values
        if kind != "cell":
            raise malformed(path, name, f"is a {kind} array: expected a cell array", "Put one matrix [T, 88] a cell.")
        splits[split] = []
        for i, cell in enumerate(cells):
            place = f"{name}, sequence {i}"
            if cell.kind != "number" or cell.values.ndim != 2:
                found = cell.kind if cell.kind != "number" else f"{cell.values.ndim}-D"
                raise malformed(path, place, f"is a {found} array: expected a matrix of real numbers", AGAIN)
            steps += len(cell.values)
            _check_steps(path, place, len(cell.values), steps)
            splits[split].append(_check_roll(path, place, cell.values))
    return splits


def _check_roll(path, place: str, cell: np.ndarray) -> np.ndarray:
    if cell.shape[1] != KEYS:
        raise malformed(path, place, f"has {cell.shape[1]} columns: expected {KEYS} keys", "Pad or cut to 88 columns.")
    wrong = np.argwhere((cell != 0) & (cell != 1))
    if len(wrong):
        step, key = (int(i) for i in wrong[0])
        problem = f"key {key} is {cell[step, key]}: expected 0 or 1"
        raise malformed(path, f"{place}, step {step}", problem, "A roll says which keys sound: threshold it.")
    return cell.astype(np.uint8)


READERS = {".mat": _read_mat, ".json": _read_json, ".pickle": _read_pickle, ".pkl": _read_pickle}
