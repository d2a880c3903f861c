"""Downloads from a server of our own on the loopback address: resuming, checksums, refusals."""

import hashlib
import random
import socket
import threading
from contextlib import contextmanager, suppress
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
    with pytest.raises(HharError, match=f"must be {'0' * 64}, but is {SHA256}"):
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
    with pytest.raises(HharError, match="interrupted"):
        download("http://127.0.0.1:9/file.zip", tmp_path / "a.zip", timeout_s=2)


ODD_LENGTHS = ["1e9", "9" * 5000, "-5", "0x10", "１２", "5 5", "inf", "1.0", "٣", "1_000", ""]


@pytest.mark.parametrize("length", ODD_LENGTHS)
def test_what_a_server_says_of_its_length_is_a_number_or_one_line(tmp_path, length):
    """Whatever stands there; without a length the file is what comes until the connection ends."""

    def answer(connection):
        connection.recv(65536)
        connection.sendall(b"HTTP/1.0 200 OK\r\nContent-Length: " + length.encode() + b"\r\n\r\nabc")

    with one_answer(answer) as url:
        if not length:
            download(url, tmp_path / "f")
            assert (tmp_path / "f").read_bytes() == b"abc"
            return
        with pytest.raises(HharError, match=r"must state the length in bytes|interrupted") as error:
            download(url, tmp_path / "f")
    assert len(str(error.value)) < 500
    assert not (tmp_path / "f").exists()


OK = b"HTTP/1.1 200 OK\r\n"
MANY = b"9" * 5000
ODD_ANSWERS = {
    "two lengths": OK + b"Content-Length: 3\r\nContent-Length: 4\r\n\r\nabcd",
    "no file": b"HTTP/1.1 204 No content\r\n\r\n",
    "an empty file": OK + b"Content-Length: 0\r\n\r\n",
    "a chunk below zero": OK + b"Transfer-Encoding: chunked\r\n\r\n-5\r\nabc",
    "a huge chunk": OK + b"Transfer-Encoding: chunked\r\n\r\n" + MANY + b"\r\nabc",
    "escapes": b"HTTP/1.1 404 \x1b[2J\x07gone\r\nContent-Length: 0\r\n\r\n",
    "a status of many digits": b"HTTP/1.1 " + MANY + b" OK\r\n\r\n",
    "a redirect to no address": b"HTTP/1.1 302 F\r\nLocation: https://\x1b[2J/\r\n\r\n",
    "a redirect to a long name": b"HTTP/1.1 302 F\r\nLocation: https://" + b"a" * 60000 + b"/\r\n\r\n",
    "a redirect to a file": b"HTTP/1.1 302 F\r\nLocation: file:///etc/passwd\r\n\r\n",
    "a far range": b"HTTP/1.1 206 P\r\nContent-Range: bytes " + MANY + b"-9/9\r\n\r\nabc",
    "beyond a far end": b"HTTP/1.1 416 R\r\nContent-Range: bytes */" + MANY + b"\r\n\r\n",
}


@pytest.mark.parametrize("kind", ODD_ANSWERS)
@pytest.mark.parametrize("begun", [False, True])
def test_an_odd_answer_is_one_printable_line(tmp_path, kind, begun):
    if begun:
        (tmp_path / "f.part").write_bytes(b"ab")
        (tmp_path / "f.part.etag").write_text('"v1"')

    with one_answer(sending(ODD_ANSWERS[kind])) as url, pytest.raises(HharError) as error:
        download(url, tmp_path / "f", timeout_s=5)
    assert str(error.value).isprintable()
    assert len(str(error.value)) < 500
    assert not (tmp_path / "f").exists()


def test_noise_for_an_answer_is_one_printable_line(tmp_path):
    rng = random.Random(0)
    for number in range(120):
        noise = bytes(rng.randrange(256) for _ in range(rng.randrange(200)))
        beginning = [
            b"", OK, b"HTTP/1.1 206 X\r\nContent-Range: ", b"HTTP/1.1 302 X\r\nLocation: https://",
            OK + b"Transfer-Encoding: chunked\r\n\r\n", b"HTTP/1.1 500 ",
        ][number % 6]  # fmt: skip
        with one_answer(sending(beginning + noise + b"\r\n\r\n")) as url:
            said = ""
            try:
                download(url, tmp_path / f"f{number}", timeout_s=5)
            except HharError as error:
                said = str(error)
        assert said.isprintable()


def sending(words):
    def answer(connection):
        connection.recv(65536)
        connection.sendall(words)

    return answer


@pytest.mark.parametrize("tag", [b"\xff\xfe", b'"a"\r\nX: y', b'"' + b"a" * 10**5 + b'"', b""])
def test_a_damaged_tag_starts_the_download_over(server, tmp_path, tag):
    (tmp_path / "f.part").write_bytes(b"other")
    (tmp_path / "f.part.etag").write_bytes(tag)
    assert download(f"{server.url}/file.zip", tmp_path / "f") == SHA256
    assert server.ranges == [None]


@pytest.mark.parametrize("record", [b"\xff\xfe x", b"\x1b[2J", b"a" * 10**6, b"12"])
def test_a_damaged_checksum_file_is_one_printable_line(tmp_path, record):
    (tmp_path / "f").write_bytes(b"abc")
    (tmp_path / "f.sha256").write_bytes(record)
    with pytest.raises(HharError, match="must begin with a sha256") as error:
        download("https://example.org/f", tmp_path / "f")
    assert str(error.value).isprintable()
    assert len(str(error.value)) < 500


@pytest.mark.parametrize(
    "url",
    [
        "http://[::1", "https://[", "https://a:b/c", "https://a:99999/", "https://", "//a/b", "https://a b/c",
        "https://a/\nX: y", "https://ä.example/x", "file:///etc/passwd", "ftp://a/b", "", "https://\x1b[2J/",
        "https://" + "a" * 300 + "/", "https://a..b/x", "https://.a/x", "HTTPS://[v1.x]/",
    ],
)  # fmt: skip
def test_a_malformed_address_is_one_line(tmp_path, url, monkeypatch):
    monkeypatch.setattr("socket.getaddrinfo", no_names)
    with pytest.raises(HharError) as error:
        download(url, tmp_path / "f")
    assert str(error.value).isprintable()


def no_names(*_, **__):
    raise socket.gaierror(-2, "Name or service not known")


@pytest.mark.parametrize("name", ["f", "f.part", "f.part.etag", "f.sha256"])
@pytest.mark.parametrize("there", [True, False])
def test_nothing_is_written_through_a_link(server, tmp_path, name, there):
    """Not where it leads to a file, and not where it leads to nothing."""
    victim, folder = tmp_path / "victim", tmp_path / "d"
    folder.mkdir()
    if there:
        victim.write_text("mine")
    (folder / name).symlink_to(victim)
    if name == "f" and there:  # a file that is kept elsewhere is looked at, and not written
        with pytest.raises(HharError, match="sha256 must be"):
            download(f"{server.url}/file.zip", folder / "f", sha256=SHA256)
    else:
        with pytest.raises(HharError, match="is a link"):
            download(f"{server.url}/file.zip", folder / "f")
    assert victim.exists() == there
    assert not there or victim.read_text() == "mine"


@pytest.mark.parametrize("name", ["f.part", "f.part.etag", "f.sha256"])
def test_nothing_is_written_through_a_second_name(server, tmp_path, name):
    """A hard link cannot be told from the file it shares, but for the count of names."""
    (tmp_path / "victim").write_text("mine")
    (tmp_path / name).hardlink_to(tmp_path / "victim")
    with pytest.raises(HharError, match="is a link"):
        download(f"{server.url}/file.zip", tmp_path / "f")
    assert (tmp_path / "victim").read_text() == "mine"


def test_a_link_that_comes_between_is_not_written_through(server, tmp_path, monkeypatch):
    """Looked at and opened are two moments; what is opened says so itself."""
    monkeypatch.setattr("hhar.raw.download._refuse_link", lambda path: None)
    (tmp_path / "victim").write_text("mine")
    (tmp_path / "f.part").symlink_to(tmp_path / "victim")
    with pytest.raises(HharError, match="is a link"):
        download(f"{server.url}/file.zip", tmp_path / "f")
    assert (tmp_path / "victim").read_text() == "mine"


@contextmanager
def one_answer(answer):
    """A server that answers each connection by a function, then ends it; gives its address."""
    listening = socket.create_server(("127.0.0.1", 0))

    def serve():
        with suppress(OSError):
            while True:
                connection, _ = listening.accept()
                with connection, suppress(OSError):
                    answer(connection)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}/f"
    finally:
        listening.shutdown(socket.SHUT_RDWR)
        listening.close()
        thread.join(5)
