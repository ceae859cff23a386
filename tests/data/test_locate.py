"""Where a corpus is looked for, and what is said where it is not."""

import pytest

from rnnjax.data import DataError, locate

NAMES = ("a.mat", "a.json")


@pytest.fixture
def home(tmp_path, monkeypatch):
    """A home and a cache of the test's own, and no RNNJAX_DATA."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("RNNJAX_DATA", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    return tmp_path


def _put(path):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("x")
    return path


def _locate(path=""):
    return locate(path, names=NAMES, corpus="music")


def test_a_file_and_a_folder_given(home):
    file = _put(home / "mine" / "a.json")
    assert _locate(file) == file and _locate(str(file.parent)) == file
    first = _put(home / "mine" / "a.mat")
    assert _locate(file.parent) == first
    assert _locate("~/mine/a.json") == file


def test_the_environment_comes_before_the_cache(home, monkeypatch):
    cached = _put(home / ".cache" / "rnnjax" / "music" / "a.mat")
    assert _locate() == cached
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    assert _locate() == cached
    moved = _put(home / "xdg" / "rnnjax" / "music" / "a.json")
    monkeypatch.setenv("XDG_CACHE_HOME", str(home / "xdg"))
    assert _locate() == moved
    monkeypatch.setenv("RNNJAX_DATA", str(home / "data"))
    assert _locate() == moved
    named = _put(home / "data" / "music" / "a.json")
    assert _locate() == named


def test_a_given_path_never_falls_back(home, monkeypatch):
    monkeypatch.setenv("RNNJAX_DATA", str(home))
    _put(home / "music" / "a.mat")
    _locate()
    with pytest.raises(DataError, match="b.mat: no such file or folder\n.*--config.task.path=FILE"):
        _locate(home / "b.mat")
    (home / "empty").mkdir()
    with pytest.raises(DataError, match="none of a.mat, a.json found; looked in .*empty\n"):
        _locate(home / "empty")


def test_a_missing_corpus_lists_the_places_and_the_way_out(home, monkeypatch):
    monkeypatch.setenv("RNNJAX_DATA", str(home / "data"))
    (home / "data" / "music").mkdir(parents=True)
    with pytest.raises(DataError) as caught:
        _locate()
    message = str(caught.value)
    assert f"looked in {home / 'data' / 'music'}, {home / '.cache' / 'rnnjax' / 'music'} (no such folder)" in message
    assert "--config.task.path=FILE" in message and "RNNJAX_DATA" in message
    assert message.count("\n") == 1
