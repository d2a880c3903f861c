"""Downloads from a server of our own on the loopback address: resuming, checksums, refusals."""

import hashlib
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from hhar.errors import HharError
from hhar.raw.download import check_url, download

CONTENT = bytes(range(256)) * 4096  # 1 MiB
SHA256 = hashlib.sha256(CONTENT).hexdigest()


class Handler(BaseHTTPRequestHandler):
    def log_message(self, *arguments):
        pass

    def do_GET(self):
        server = self.server
        start = 0
        wanted = self.headers.get("Range")
        server.ranges.append(wanted)
        if self.path == "/moved":
            self.send_response(302)
            self.send_header("Location", server.redirect)
            self.end_headers()
            return
        if self.path != "/file.zip":
            self.send_error(404)
            return
        if wanted and server.resumable and self.headers.get("If-Range") == server.tag:
            start = int(wanted.removeprefix("bytes=").rstrip("-"))
            if start >= len(CONTENT):
                self.send_response(416)
                self.send_header("Content-Range", f"bytes */{len(CONTENT)}")
                self.end_headers()
                return
            self.send_response(206)
            self.send_header("Content-Range", f"bytes {start}-{len(CONTENT) - 1}/{len(CONTENT)}")
        else:
            self.send_response(200)
        self.send_header("Content-Length", str(len(CONTENT) - start))
        if server.tag:
            self.send_header("ETag", server.tag)
        self.end_headers()
        self.wfile.write(CONTENT[start : start + server.cut] if server.cut else CONTENT[start:])


@pytest.fixture
def server():
    running = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    running.ranges, running.cut, running.resumable = [], 0, True
    running.tag, running.redirect = '"v1"', "http://example.org/file.zip"
    running.url = f"http://127.0.0.1:{running.server_port}"
    thread = threading.Thread(target=running.serve_forever, daemon=True)
    thread.start()
    yield running
    running.shutdown()
    running.server_close()


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_download_records_the_checksum(server, tmp_path):
    seen = []
    found = download(
        f"{server.url}/file.zip",
        tmp_path / "a.zip",
        report=lambda what, done, total: seen.append((done, total)),
    )
    assert found == SHA256
    assert (tmp_path / "a.zip").read_bytes() == CONTENT
    assert (tmp_path / "a.zip.sha256").read_text() == f"{SHA256}  a.zip\n"
    assert names(tmp_path) == ["a.zip", "a.zip.sha256"]
    assert seen[-1] == (len(CONTENT), len(CONTENT))


def test_broken_download_resumes(server, tmp_path):
    server.cut = 300_000
    for done in (300_000, 600_000, 900_000):
        with pytest.raises(HharError, match="to resume"):
            download(f"{server.url}/file.zip", tmp_path / "a.zip")
        assert (tmp_path / "a.zip.part").stat().st_size == done
        assert not (tmp_path / "a.zip").exists()
    assert download(f"{server.url}/file.zip", tmp_path / "a.zip", sha256=SHA256.upper()) == SHA256
    assert server.ranges == [None, "bytes=300000-", "bytes=600000-", "bytes=900000-"]
    assert names(tmp_path) == ["a.zip", "a.zip.sha256"]


@pytest.mark.parametrize("change", ["another version", "no ranges", "no tag"])
def test_starts_over_where_resuming_is_not_safe(server, tmp_path, change):
    server.cut, server.tag = 300_000, None if change == "no tag" else '"v1"'
    with pytest.raises(HharError, match="to resume"):
        download(f"{server.url}/file.zip", tmp_path / "a.zip")
    server.cut = 0
    if change == "another version":
        server.tag = '"v2"'
    server.resumable = change != "no ranges"
    assert download(f"{server.url}/file.zip", tmp_path / "a.zip") == SHA256


def test_part_that_is_already_whole(server, tmp_path):
    (tmp_path / "a.zip.part").write_bytes(CONTENT)
    (tmp_path / "a.zip.part.etag").write_text('"v1"')
    assert download(f"{server.url}/file.zip", tmp_path / "a.zip") == SHA256


def test_wrong_checksum_leaves_nothing(server, tmp_path):
    with pytest.raises(HharError, match=f"must be {'0' * 64}, is {SHA256}"):
        download(f"{server.url}/file.zip", tmp_path / "a.zip", sha256="0" * 64)
    assert names(tmp_path) == []


def test_file_that_is_there_is_checked_and_kept(server, tmp_path):
    download(f"{server.url}/file.zip", tmp_path / "a.zip")
    asked = len(server.ranges)
    assert download(f"{server.url}/file.zip", tmp_path / "a.zip", sha256=SHA256) == SHA256
    assert len(server.ranges) == asked
    (tmp_path / "a.zip").write_bytes(b"damaged")
    with pytest.raises(HharError, match="delete the file"):
        download(f"{server.url}/file.zip", tmp_path / "a.zip")


def test_refusals(server, tmp_path):
    for url in (
        "http://archive.ics.uci.edu/a.zip",
        "ftp://example.org/a",
        "file:///etc/passwd",
        "a.zip",
        "https://",
    ):
        with pytest.raises(HharError, match="must begin with https"):
            check_url(url)
    check_url("https://example.org/a.zip")
    check_url("http://localhost:1/a.zip")
    with pytest.raises(HharError, match="must begin with https"):  # a redirect must not lead to plain http
        download(f"{server.url}/moved", tmp_path / "a.zip")
    with pytest.raises(HharError, match="answers 404"):
        download(f"{server.url}/none.zip", tmp_path / "a.zip")
    with pytest.raises(HharError, match="64 hex digits"):
        download(f"{server.url}/file.zip", tmp_path / "a.zip", sha256="8c9f8dd5")
    assert not (tmp_path / "a.zip").exists()


def test_no_server(tmp_path):
    with pytest.raises(HharError, match="broke off"):
        download("http://127.0.0.1:9/file.zip", tmp_path / "a.zip", timeout_s=2)
