"""A growing file against hashlib, however it was written and wherever it was cut."""

import hashlib

from hypothesis import given
from hypothesis import strategies as st

from fedge.records.tables.columns import INT, Column, Table, at
from fedge.records.tables.growing_file import GrowingFile, running_digest

TABLE = Table("t.csv", "Rows.", (Column("real", INT, "", "a number", at("real")),))


@given(st.lists(st.text(max_size=30), max_size=6), st.data())
def test_the_checksum_is_that_of_the_file(tmp_path_factory, texts, data):
    path = tmp_path_factory.mktemp("grown") / "sub" / "a.jsonl"
    file = GrowingFile(path, None, 0)
    for text in texts:
        file.append(text)
    file.flush()
    whole = "".join(texts).encode()
    assert (path.read_bytes(), file.size) == (whole, len(whole))
    assert file.sha256 == hashlib.sha256(whole).hexdigest()
    file.close()
    kept = data.draw(st.integers(0, len(whole)), label="kept")
    assert running_digest(path, kept).hexdigest() == hashlib.sha256(whole[:kept]).hexdigest()
    again = GrowingFile(path, None, kept)
    again.append("end")
    again.flush()
    assert path.read_bytes() == whole[:kept] + b"end"
    assert again.sha256 == hashlib.sha256(whole[:kept] + b"end").hexdigest()
    again.close()


def test_a_table_begins_with_its_header_and_is_refitted_once(tmp_path):
    path = tmp_path / "t.csv"
    file = GrowingFile(path, TABLE, 0)
    file.append_rows([1, 2])
    file.close()
    assert path.read_text() == "real\n1\n2\n"
    assert not file.refitted
    path.write_text("imag,real\n7,1\n8,")
    file = GrowingFile(path, TABLE, len("imag,real\n7,1\n"))
    assert file.refitted
    assert path.read_text() == "real\n1\n"
    assert file.sha256 == hashlib.sha256(path.read_bytes()).hexdigest()
    file.close()
