"""The room needs no JAX, and `tokenizers` only where it is used."""

import pathlib
import subprocess
import sys

import pytest

import rnnjax.text


def test_importing_it_imports_no_more_than_numpy():
    code = (
        "import sys, types\n"
        "root = sys.modules['rnnjax'] = types.ModuleType('rnnjax'); root.__path__ = sys.argv[1:]\n"
        "import rnnjax.text; assert not {'jax', 'flax', 'tokenizers'} & set(sys.modules)"
    )
    root = str(pathlib.Path(rnnjax.text.__file__).parents[1])
    subprocess.run([sys.executable, "-c", code, root], check=True)


def test_without_the_library_subwords_say_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with pytest.raises(ImportError, match="pip install 'rnnjax.text.'"):
        rnnjax.text.Subwords("{}")
    with pytest.raises(ImportError, match="pip install 'rnnjax.text.'"):
        rnnjax.text.Subwords.train(["a"], "bpe", 4)
