"""Data sets' files from a server on the loopback address: what `hhar.raw.download` does is tested there."""

import fcntl
import hashlib
import io
import resource
import subprocess
import sys
import threading
import time
import zipfile
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from fedge.datasets.cards import RemoteFile
from fedge.datasets.fetch import download
from fedge.datasets.motionsense import CARD
from hhar.errors import HharError


def zipped(**members):
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_STORED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return stream.getvalue()


CONTENT = zipped(a=bytes(range(256)) * 2000, b=b"2")
SHA256 = hashlib.sha256(CONTENT).hexdigest()


class Handler(BaseHTTPRequestHandler):
    def log_message(self, *arguments):
        pass

    def do_GET(self):
        asked = self.headers.get("Range")
        self.server.asked.append((self.path, asked))
        if self.path == "/moved.zip":
            self.send_response(302)
            self.send_header("Location", "/set.zip")
            self.end_headers()
            return
        if self.path == "/slow.zip":
            time.sleep(2)
        content = self.server.content
        start = int(asked.removeprefix("bytes=").rstrip("-")) if asked else 0
        self.send_response(206 if asked else 200)
        if asked:
            self.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
        self.send_header("Content-Length", str(len(content) - start))
        self.send_header("ETag", '"v1"')
        self.end_headers()
        self.wfile.write(content[start : start + self.server.cut] if self.server.cut else content[start:])


@pytest.fixture
def server():
    running = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    running.asked, running.cut, running.content = [], 0, CONTENT
    running.url = f"http://127.0.0.1:{running.server_port}"
    threading.Thread(target=running.serve_forever, daemon=True).start()
    yield running
    running.shutdown()
    running.server_close()


def at(server, path="/set.zip", sha256=""):
    return replace(CARD, files=(RemoteFile(server.url + path, "set.zip", 1, sha256),))


def names(folder):
    return sorted(path.name for path in folder.iterdir() if path.name != ".downloading")


def test_download_unpacks_and_records_the_checksum(server, tmp_path):
    assert download(at(server, sha256=SHA256), tmp_path) == [(tmp_path / "set.zip", SHA256)]
    assert names(tmp_path) == ["a", "b", "set.zip", "set.zip.sha256"]
    assert (tmp_path / "set.zip.sha256").read_text() == f"{SHA256}  set.zip\n"


def test_the_default_folder_and_no_unpacking(server, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    download(at(server), keep_packed=True)
    assert names(tmp_path / "data" / "raw" / "motionsense") == ["set.zip", "set.zip.sha256"]


def test_a_broken_connection_resumes_through_a_redirect(server, tmp_path):
    server.cut = 300_000
    with pytest.raises(HharError, match="run the same command again to resume"):
        download(at(server, "/moved.zip"), tmp_path)
    server.cut = 0
    download(at(server, "/moved.zip"), tmp_path)
    assert server.asked[-1] == ("/set.zip", "bytes=300000-")
    assert (tmp_path / "b").read_bytes() == b"2"


def test_another_file_than_expected_or_than_the_first_time(server, tmp_path):
    with pytest.raises(HharError, match="sha256 must be"):
        download(at(server, sha256="0" * 64), tmp_path)
    assert names(tmp_path) == []
    download(at(server), tmp_path)
    (tmp_path / "set.zip").write_bytes(zipped(a=b"another"))
    with pytest.raises(HharError, match="delete the file"):
        download(at(server), tmp_path)


def test_an_address_and_a_checksum_of_one_s_own(server, tmp_path):
    """A mirror's file must be the same file where a checksum is known."""
    card = at(server, "/never.zip", sha256=SHA256)
    download(card, tmp_path, url=f"{server.url}/set.zip")
    with pytest.raises(HharError, match="sha256 must be"):
        download(at(server), tmp_path / "other", sha256="1" * 64)
    with pytest.raises(HharError, match="must begin with https"):
        download(card, tmp_path / "third", url="http://example.org/a.zip")
    two = replace(card, files=card.files * 2)
    with pytest.raises(HharError, match="must be one file for --url and --sha256, is 2"):
        download(two, tmp_path, url=f"{server.url}/set.zip")


def test_two_at_once_do_not_write_one_part(server, tmp_path):
    with (tmp_path / ".downloading").open("w") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        with pytest.raises(HharError, match="another process is downloading into it"):
            download(at(server), tmp_path)
    download(at(server), tmp_path)


@pytest.mark.parametrize(
    "words",
    [("fedge", "datasets", "download", "motionsense"),
     pytest.param(("hhar", "download"), marks=pytest.mark.extended)],
)  # fmt: skip
def test_two_commands_at_once_leave_a_whole_file_or_a_line(server, tmp_path, words):
    """Of two processes one has the file; the other one has it, too, or is told in one line to wait."""
    program = str(Path(sys.executable).with_name(words[0]))
    more = ["--to", str(tmp_path), "--url", f"{server.url}/slow.zip", "--sha256", SHA256, "--no-unpack"]
    both = [
        subprocess.Popen(
            [program, *words[1:], *more], stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for _ in range(2)
    ]
    ended = [(process.communicate(timeout=100)[1], process.returncode) for process in both]
    assert min(code for _, code in ended) == 0, ended
    for error, code in ended:
        assert "Traceback" not in error
        said = [line for line in error.splitlines() if "another process is downloading into it" in line]
        assert len(said) == (code != 0), error
    (whole,) = tmp_path.glob("*.zip")
    assert whole.read_bytes() == CONTENT
    assert not list(tmp_path.glob("*.part*"))


def test_no_network(tmp_path):
    """A name that no server has: .invalid never resolves (RFC 6761)."""
    card = replace(CARD, files=(RemoteFile("https://nowhere.invalid/a.zip", "a.zip", 1),))
    with pytest.raises(HharError, match=r"server cannot be reached .*; without a network"):
        download(card, tmp_path)


def test_a_damaged_archive_is_named_and_stays(server, tmp_path):
    server.content = CONTENT[:-100]
    with pytest.raises(HharError, match=r"set\.zip must be an intact zip archive"):
        download(at(server), tmp_path)
    assert names(tmp_path) == ["set.zip", "set.zip.sha256"]


def test_a_full_disk_is_the_disk_s_error(server, tmp_path):
    """A file may have no more bytes than the shell allows; that must not read as a broken connection."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (64, before[1]))
    try:
        with pytest.raises(OSError, match="File too large"):
            download(at(server), tmp_path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
