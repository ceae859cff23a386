"""Downloads, from a server of the test's own: resumed, checked, and one clear error for whatever goes wrong."""

import hashlib
import http.server
import io
import os
import pathlib
import re
import subprocess
import sys
import threading

import pytest
from rich.console import Console

from rnnjax.data import DataError, __main__, fetch
from rnnjax.data.catalogue import CATALOGUE, Corpus, File

CONTENT = bytes(range(256)) * 1200


class Handler(http.server.BaseHTTPRequestHandler):
    """Serves server.content, as server.how says."""

    def do_GET(self):
        content, how = self.server.content, self.server.how
        self.server.asked.append(self.headers.get("Range"))
        if "status" in how:
            self.send_error(how["status"], "no\x1b[31m such file")
            return
        asked = re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range", ""))
        start = int(asked[1]) if asked and how.get("ranges", True) else 0
        if start >= len(content):
            self.send_error(416)
            return
        self.send_response(206 if start else 200)
        if start:
            first = how.get("first", start)
            self.send_header("Content-Range", f"bytes {first}-{len(content) - 1}/{len(content)}")
        if how.get("announced", True):
            self.send_header("Content-Length", str(len(content) - start))
        self.end_headers()
        self.wfile.write(content[start : how.get("until", len(content))])

    def log_message(self, *arguments):
        pass


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.content, server.how, server.asked = CONTENT, {}, []
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


def _file(server, name="a/x.bin", content=CONTENT, size=None):
    url = f"http://127.0.0.1:{server.server_address[1]}/elsewhere/..%2fevil"
    size = len(server.content) if size is None else size
    return File(name, url, size, hashlib.sha256(content).hexdigest())


def _fetch(server, folder, *files):
    told = io.StringIO()
    fetch.fetch(Corpus("c", "about", "of [no] kind", files or (_file(server),)), folder, Console(file=told, width=500))
    return told.getvalue()


def _refused(server, folder, *files) -> str:
    with pytest.raises(DataError) as caught:
        _fetch(server, folder, *files)
    message = str(caught.value)
    assert message.count("\n") == 1 and message.isprintable() or message.replace("\n", "").isprintable()
    assert not (folder / "a" / "x.bin").exists()
    return message


def _kept(folder) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def test_a_download_and_what_is_there_already(server, tmp_path):
    told = _fetch(server, tmp_path)
    assert told.startswith("licence: of [no] kind\n") and re.search(r"a/x.bin: 307200 bytes in \d", told)
    assert (tmp_path / "a" / "x.bin").read_bytes() == CONTENT and _kept(tmp_path) == ["a/x.bin"]
    assert "a/x.bin: is there" in _fetch(server, tmp_path) and server.asked == [None]


@pytest.mark.parametrize("ranges", [True, False])
@pytest.mark.parametrize("announced", [True, False])
def test_a_cut_download_goes_on(server, tmp_path, ranges, announced):
    server.how = {"until": 100_000, "ranges": ranges, "announced": announced}
    message = _refused(server, tmp_path)
    assert re.search(r"cut at byte 100000 of 307200.*\nThe same command goes on", message)
    assert (tmp_path / "a" / "x.bin.part").read_bytes() == CONTENT[:100_000]
    server.how = {"ranges": ranges, "announced": announced}
    told = _fetch(server, tmp_path)
    assert "goes on from byte 100000" in told and ("sends all of it" in told) == (not ranges)
    assert (tmp_path / "a" / "x.bin").read_bytes() == CONTENT and _kept(tmp_path) == ["a/x.bin"]
    assert server.asked == [None, "bytes=100000-"]


def test_a_whole_part_is_not_downloaded_again(server, tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "x.bin.part").write_bytes(CONTENT)
    _fetch(server, tmp_path)
    assert _kept(tmp_path) == ["a/x.bin"] and server.asked == []


def test_a_part_that_is_too_long_is_begun_anew(server, tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "x.bin.part").write_bytes(CONTENT + b"x")
    _fetch(server, tmp_path)
    assert _kept(tmp_path) == ["a/x.bin"] and server.asked == [None]


def test_wrong_bytes_are_not_kept(server, tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "x.bin.part").write_bytes(b"wrong")
    message = _refused(server, tmp_path)
    assert f"expected {hashlib.sha256(CONTENT).hexdigest()}; it is not kept\nRun it again" in message
    assert _kept(tmp_path) == []
    _fetch(server, tmp_path)
    assert _kept(tmp_path) == ["a/x.bin"]


def test_more_bytes_than_announced_are_not_kept(server, tmp_path):
    assert "sends more than the 1000 bytes" in _refused(server, tmp_path, _file(server, size=1000))
    assert _kept(tmp_path) == []


@pytest.mark.parametrize("status, way_out", [(404, "Run it again; if"), (503, "Try again later. The same command")])
def test_a_refusal_of_the_server_keeps_what_is_there(server, tmp_path, status, way_out):
    server.how = {"until": 5000}
    _refused(server, tmp_path)
    server.how = {"status": status}
    message = _refused(server, tmp_path)
    assert f"the server answers {status} 'no\\x1b[31m such file'\n{way_out}" in message
    assert _kept(tmp_path) == ["a/x.bin.part"]


def test_a_part_that_the_server_knows_nothing_of(server, tmp_path):
    file = _file(server)
    server.content = CONTENT[:10]
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "x.bin.part").write_bytes(CONTENT[:20])
    assert "the server answers 416" in _refused(server, tmp_path, file) and _kept(tmp_path) == []
    server.content, server.how = CONTENT, {"first": 7}
    (tmp_path / "a" / "x.bin.part").write_bytes(CONTENT[:20])
    assert "sends another part than asked for" in _refused(server, tmp_path, file) and _kept(tmp_path) == []


def test_no_network(server, tmp_path):
    file = _file(server)._replace(url="http://127.0.0.1:9/x")
    assert "cannot be reached: " in _refused(server, tmp_path, file)
    file = _file(server)._replace(url="http://no.such.host.invalid/x")
    assert re.search("cannot be reached: .*\nIs this machine on the network", _refused(server, tmp_path, file))


def test_another_file_of_that_name_is_left_alone(server, tmp_path):
    (tmp_path / "x.bin").write_bytes(b"mine")
    with pytest.raises(DataError, match="x.bin: is another file than that of http.*\nMove it away"):
        _fetch(server, tmp_path, _file(server, "x.bin"))
    assert (tmp_path / "x.bin").read_bytes() == b"mine" and server.asked == []


def test_a_folder_that_cannot_be_written(server, tmp_path):
    (tmp_path / "a").write_bytes(b"a file")
    with pytest.raises(DataError, match="cannot be written: .*\nFree some space or give another folder"):
        _fetch(server, tmp_path)
    full = tmp_path / "a" / "x.bin.part"
    full.parent.unlink()
    full.parent.mkdir()
    full.symlink_to("/dev/full")
    assert re.search("x.bin.part: cannot be written: No space left", _refused(server, tmp_path))


@pytest.mark.parametrize("name", ["../x", "/x", "a/../../x", "a\\..\\x", "c:x", ""])
def test_names_that_lead_out_are_refused(server, tmp_path, name):
    with pytest.raises(ValueError, match="expected a path below the corpus' folder"):
        _fetch(server, tmp_path / "c", _file(server), _file(server, name))
    assert _kept(tmp_path) == [] and server.asked == []


def test_a_line_now_and_then_in_a_log(server, tmp_path, monkeypatch):
    monkeypatch.setattr(fetch, "SECONDS_BETWEEN_LINES", 0.0)
    assert re.search(r"a/x.bin: \d+ of 307200 bytes, \d+ kB/s, \d+ s left\n", _fetch(server, tmp_path))


def test_a_live_line_on_a_terminal(server, tmp_path):
    told = io.StringIO()
    console = Console(file=told, force_terminal=True, width=200)
    fetch.fetch(Corpus("c", "about", "none", (_file(server),)), tmp_path, console)
    assert "307.2" in told.getvalue() and "0:00:00" in told.getvalue()


def test_the_catalogue():
    for name, corpus in CATALOGUE.items():
        assert corpus.licence.endswith(".") and corpus.files and re.fullmatch(r"[a-z0-9-]+", corpus.folder), name
        assert len({file.name for file in corpus.files}) == len(corpus.files)
        for file in corpus.files:
            assert file.url.startswith("https://") and re.fullmatch("[0-9a-f]{64}", file.sha256) and file.size > 0
            assert fetch._inside(pathlib.Path("f"), file.name).is_relative_to("f")


def test_the_catalogue_knows_the_real_files(corpora):
    seen = 0
    for corpus in CATALOGUE.values():
        for file in corpus.files:
            path = corpora / corpus.folder / file.name
            if path.is_file() and path.name != "t10k-images-idx3-ubyte.gz":  # goes around gzipped in two ways
                assert hashlib.sha256(path.read_bytes()).hexdigest() == file.sha256, path
                assert path.stat().st_size == file.size
                seen += 1
    if not seen:
        pytest.skip("none of the catalogue's files is there")


@pytest.fixture
def one_corpus(server, monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setitem(CATALOGUE, "mine", Corpus("folder", "about mine", "none.", (_file(server),)))
    return server


def test_the_command(one_corpus, tmp_path, capsys):
    assert __main__.main(["fetch", "mine"]) == 0
    assert capsys.readouterr().out == f"{tmp_path}/rnnjax/folder\n"
    assert (tmp_path / "rnnjax" / "folder" / "a" / "x.bin").read_bytes() == CONTENT
    assert __main__.main(["fetch", "mine", f"--path={tmp_path}/p"]) == 0
    assert (tmp_path / "p" / "folder" / "a" / "x.bin").read_bytes() == CONTENT
    one_corpus.how = {"status": 404}
    assert __main__.main(["fetch", "mine", f"--path={tmp_path}/q"]) == 1
    err = capsys.readouterr().err
    assert err.index("licence: none.") < err.index("the server answers 404") and "Traceback" not in err


def test_ctrl_c(one_corpus, monkeypatch, capsys):
    def interrupted(*arguments):
        raise KeyboardInterrupt

    monkeypatch.setattr(fetch, "_copy", interrupted)
    assert __main__.main(["fetch", "mine"]) == 130
    assert "interrupted: the same command goes on from there" in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments, message",
    [
        ([], "required: {list,fetch}"),
        (["fetch"], "required: NAME"),
        (["fetch", "ATSI"], "no corpus 'ATSI': did you mean atis?"),
        (["fetch", "zzzzz"], "no corpus 'zzzzz': there are atis, conll2000"),
        (["fetch", "../atis"], "no corpus '../atis'"),
        (["fetch", "atis", "--path="], "--path is empty"),
        (["fetch", "atis", "--path=~nobody-of-this-name/x"], "--path=~nobody-of-this-name/x: Could not determine home"),
        (["fetch", "atis", "--pat=x"], "unrecognized arguments: --pat=x"),
        (["get", "atis"], "invalid choice: 'get'"),
    ],
    ids=range(9),
)
def test_a_wrong_command_line(arguments, message, capsys):
    with pytest.raises(SystemExit) as caught:
        __main__.main(arguments)
    assert caught.value.code == 2 and message in capsys.readouterr().err


def test_help_and_list(capsys):
    for arguments in (["--help"], ["fetch", "-h"]):
        with pytest.raises(SystemExit) as caught:
            __main__.main(arguments)
        assert caught.value.code == 0
    text = capsys.readouterr().out
    assert "Exit status" in text and "tinyshakespeare" in text and "--path FOLDER" in text
    assert __main__.main(["list"]) == 0
    assert all(f"\n{name} " in "\n" + text for name in CATALOGUE for text in [capsys.readouterr().out] if text)


def test_as_a_module_into_a_closed_pipe():
    command = f"{sys.executable} -m rnnjax.data list | head -n 1; exit ${{PIPESTATUS[0]}}"
    ran = subprocess.run(["bash", "-c", command], capture_output=True, text=True, env=os.environ)
    assert ran.returncode == 0 and ran.stdout.startswith("atis") and ran.stderr == ""


@pytest.mark.parametrize("where, reason", [(">&-", "Bad file descriptor"), (">/dev/full", "No space left on device")])
def test_output_that_cannot_be_written(where, reason):
    if where == ">/dev/full" and not os.path.exists("/dev/full"):
        pytest.skip("no /dev/full")
    ran = subprocess.run(
        ["bash", "-c", f"{sys.executable} -m rnnjax.data list {where}"], capture_output=True, text=True
    )
    assert ran.returncode == 1 and ran.stderr == f"standard output: cannot be written: {reason}\n"


def test_a_path_that_is_too_long(one_corpus, capsys):
    assert __main__.main(["fetch", "mine", f"--path={'a' * 300}"]) == 1
    assert "cannot be written: File name too long" in capsys.readouterr().err
