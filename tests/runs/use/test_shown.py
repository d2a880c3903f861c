"""Pages that show their output say what their blocks print: carried out in order, as a reader would."""

import re

import pytest

from fedge import load_run
from tools import shown

# digits behind a point change with the processor's kernels, signs of differences too, and so may gates
_NUMBER = re.compile(r"(?:−|(?<=\s)-)?\d+\.\d+|\b\d+(?= taken|\W+kept)")


# runs of a sweep that are at work together end in any order, after seconds or minutes
_RUN = re.compile(r"^\d+/\d+ .*completed.*$", re.MULTILINE)


def without_numbers(text):
    """Text in which measured numbers, the spaces that line them up and the runs of a sweep are alike."""
    text = _RUN.sub("a run of a sweep", text)
    return re.sub(r"[ ─═┆╪│┌┐└┘╞╡┬┴]+", " ", _NUMBER.sub("#", text))


@pytest.mark.extended
@pytest.mark.parametrize("name", shown.PAGES)
def test_a_page_says_what_its_blocks_print(tmp_path, name):
    page = (shown.DOCS / f"{name}.md").read_text(encoding="utf-8")
    found = shown.carried_out(page, tmp_path)
    assert without_numbers(found).splitlines() == without_numbers(page).splitlines()
    for figure in shown.figures(page):
        assert (tmp_path / figure.removeprefix("images/")).stat().st_size > 10_000
        assert (shown.DOCS / figure).is_file()
    for run in (tmp_path / "runs").glob("*/manifest.json"):
        assert load_run(run.parent).status == "completed"


def test_output_stands_below_its_block_and_replaces_what_stood_there(tmp_path):
    page = (
        "# Page\n\n```python\nx = 2\n```\n\n```python\nprint(x + 1)\n```\n\n```text\nold\n```\n\n"
        "```toml\n# some.toml\na = 1\n```\n\n```sh\ncat some.toml\n```\n\nEnd.\n"
    )
    found = shown.carried_out(page, tmp_path)
    assert found == page.replace("old", "3").replace(
        "cat some.toml\n```\n", "cat some.toml\n```\n\n```text\n# some.toml\na = 1\n```\n"
    )
    assert shown.carried_out(found, tmp_path) == found


def test_a_long_output_is_cut_in_its_middle(tmp_path):
    found = shown.carried_out("```python\nfor k in range(40):\n    print(k)\n```\n", tmp_path)
    assert found.endswith("```text\n0\n1\n2\n3\n…\n31\n32\n33\n34\n35\n36\n37\n38\n39\n```\n")


def test_a_command_that_fails_ends_it(tmp_path):
    with pytest.raises(RuntimeError, match="fedge: there is no command"):
        shown.carried_out("```sh\nfedge nothing\n```\n", tmp_path)
