"""Weights in files: safetensors by torch's names, and .weights.h5 as Keras 3 saves it."""

import sys

import numpy as np
import pytest
from interop_matrix import PINNED, case

from rnnjax import interop
from rnnjax.cells import LSTM, Elman
from rnnjax.data.errors import DataError
from rnnjax.data.safetensors import write_safetensors
from rnnjax.interop import from_keras, from_torch
from rnnjax.testing import assert_close

SAVED = case.FOLDER / "interop_keras.weights.h5"


@pytest.fixture
def model(tmp_path):
    """A model of two LSTMs and a head, in float32."""
    arrays = {name: np.float32(array) for name, array in PINNED["torch"]["lstm_2"]["arrays"].items()}
    inside = {f"encoder.{name}": array for name, array in arrays.items()}
    write_safetensors(tmp_path / "model.safetensors", inside | {"head.count": np.zeros(3, np.int64)})
    return tmp_path / "model.safetensors", arrays


def test_a_torch_model_in_a_file_without_torch(model, monkeypatch):
    path, arrays = model
    monkeypatch.setitem(sys.modules, "torch", None)
    monkeypatch.setitem(sys.modules, "safetensors", None)
    layer, params = from_torch(path, prefix="encoder.")
    want_layer, want = from_torch(arrays)
    assert layer == want_layer
    assert_close(params, want, 0)
    assert_close(from_torch(str(path), prefix="encoder")[1], want, 0)


def test_a_prefix_that_is_not_there_is_answered_with_those_that_are(model):
    with pytest.raises(ValueError, match="nothing found under the prefix 'decoder': say prefix=, one of 'encoder.'"):
        from_torch(model[0], prefix="decoder")


def test_a_name_of_a_million_dots_is_no_trouble(tmp_path):
    write_safetensors(tmp_path / "x.safetensors", {"." * 10**6: np.zeros(1, np.float32)})
    with pytest.raises(ValueError, match="not expected") as caught:
        from_torch(tmp_path / "x.safetensors")
    assert len(str(caught.value)) < 200


def test_what_we_export_is_in_torchs_own_file_format(tmp_path):
    torch = pytest.importorskip("torch")
    files = pytest.importorskip("safetensors.torch")
    layer, params = from_torch({name: np.float32(a) for name, a in PINNED["torch"]["lstm"]["arrays"].items()})
    write_safetensors(tmp_path / "x.safetensors", interop.to_torch(layer, params))
    torch.nn.LSTM(3, 4).load_state_dict(files.load_file(tmp_path / "x.safetensors"), strict=True)
    module = torch.nn.LSTM(3, 4)
    files.save_file(module.state_dict(), tmp_path / "theirs.safetensors")
    _, params = from_torch(tmp_path / "theirs.safetensors")
    assert_close(params["W_ih"], module.weight_ih_l0.detach().numpy().T, 0)


@pytest.mark.parametrize("ending", ["pt", "pth", "bin", "pkl"])
def test_a_pickle_is_never_opened(tmp_path, ending):
    (tmp_path / f"x.{ending}").write_bytes(b"cos\nsystem\n(S'touch opened'\ntR.")
    with pytest.raises(ValueError, match=r"are pickles, .* torch.load\(path, weights_only=True\)"):
        from_torch(tmp_path / f"x.{ending}")


@pytest.mark.parametrize(
    ("layer", "kind", "given"),
    [
        ("layers/lstm", "lstm", {}),
        ("layers/lstm/cell", "lstm", {}),
        ("/layers/bidirectional/", "bidirectional_gru", {}),
        ("layers/simple_rnn", "simple_rnn", {"activation": "tanh"}),
    ],
)
def test_a_layer_of_a_model_that_keras_saved(layer, kind, given, x64):
    pytest.importorskip("h5py")
    got = from_keras(SAVED, layer=layer, **given)
    want = from_keras(list(PINNED["keras"][kind]["arrays"].values()), **given)
    assert got[0] == want[0]
    assert_close(got[1], want[1], 0)


def test_layers_that_are_not_there_or_not_said():
    pytest.importorskip("h5py")
    for layer, told in (
        (
            None,
            "holds 3 recurrent layers: say layer=, one of 'layers/bidirectional', 'layers/lstm', 'layers/simple_rnn'",
        ),
        ("layers/gru", "holds no recurrent layer 'layers/gru': expected one of 'layers/bidirectional'"),
        ("", "holds no recurrent layer ''"),
        ("../layers/lstm", "holds no recurrent layer"),
    ):
        with pytest.raises(ValueError, match=told):
            from_keras(SAVED, layer=layer)
    with pytest.raises(ValueError, match="float64, which JAX would cut to float32"):
        from_keras(SAVED, layer="layers/lstm")
    with pytest.raises(ValueError, match=r"layers/dense/vars/1 has|there are 2 arrays|layers/dense/vars"):
        from_keras(SAVED, layer="layers/dense")


def test_the_only_layer_of_a_file_need_not_be_named(tmp_path):
    h5py = pytest.importorskip("h5py")
    with h5py.File(tmp_path / "x.weights.h5", "w") as file:
        for i, shape in enumerate([(3, 4), (4, 4), (4,)]):
            file[f"layers/simple_rnn/cell/vars/{i}"] = np.ones(shape, np.float32)
        file["layers/dense/vars/0"] = np.ones((4, 2), np.float32)
    assert from_keras(tmp_path / "x.weights.h5", activation="relu")[0] == Elman(3, 4, activation="relu")


def test_what_is_no_file_of_weights(tmp_path):
    with pytest.raises(ValueError, match="model.keras is a zip archive: unzip it, and give the model.weights.h5"):
        from_keras(tmp_path / "model.keras")
    pytest.importorskip("h5py")
    with pytest.raises(DataError, match="nowhere.weights.h5: no such file"):
        from_keras(tmp_path / "nowhere.weights.h5")


def test_a_file_as_the_installed_keras_saves_it(tmp_path, x64):
    make_interop_keras = pytest.importorskip("make_interop_keras", exc_type=ImportError)
    arrays = {kind: PINNED["keras"][kind]["arrays"] for kind in ("lstm", "bidirectional_gru", "simple_rnn")}
    make_interop_keras.save_model(tmp_path / "x.weights.h5", arrays)
    layer, params = from_keras(tmp_path / "x.weights.h5", layer="layers/lstm")
    assert layer == LSTM(3, 4)
    assert_close(params["W_ih"], arrays["lstm"]["0"], 0)
