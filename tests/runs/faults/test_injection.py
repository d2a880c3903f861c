"""Names and words that would be more than words: in every place of a page, read by a parser and a browser.

A payload has a number, and stands in one place of a run: its folder, a class, a user, a device, a remark, a
reason of failure, an option, a note of a cluster step, the log, … Pages are those of a run, a comparison, a
sweep, the virtual clock and a profile. What a page may have beside text is what the same page of a harmless
run has; `pwned` is never called, nor attempted, which Chromium would say. `-m extended` carries all of it
out and prints how many (place, payload) stood on how many pages; a sample runs with all tests.
"""

import json
from collections import Counter
from html.parser import HTMLParser
from itertools import count

import polars as pl
import pytest
from headless import Browser, find_chromium
from run_folders import round_result, write_run

from fedge.records.reading.reader import load_run
from fedge.report.clock_page import write_clock_page
from fedge.report.comparison.finals import finals
from fedge.report.comparison.groups import Group, settings_of
from fedge.report.comparison.page import write_comparison
from fedge.report.comparison.sweep_page import Comparison, sweep_page
from fedge.report.html.page import Notice, Page, PageSection, Panel, Tile, write_page
from fedge.report.html.svg import figure_style, new_figure
from fedge.report.html.tables import table
from fedge.report.run_page import write_report
from fedge.rounds.measurements.moment import VersionRow

PAYLOADS = (
    "<script>pwned({0})</script>", "</script><script>pwned({0})</script>",
    "</title><script>pwned({0})</script>",
    "</style><script>pwned({0})</script>", "</pre></svg><script>pwned({0})</script>",
    '"><img src=x onerror=pwned({0})>', "'><img src=x onerror=pwned({0})>", "<svg onload=pwned({0})>",
    '" onmouseover="pwned({0})" autofocus onfocus="pwned({0})', "' onfocus='pwned({0})' x='",
    "` onfocus=pwned({0}) ", "javascript:pwned({0})", "data:text/html,<script>pwned({0})</script>",
    "<!--<script>pwned({0})</script>-->", "--><script>pwned({0})</script><!--",
    "]]><script>pwned({0})</script>",
    "&lt;script&gt;pwned({0})&lt;/script&gt;", "&#60;script&#62;pwned({0})",
    "\\u003cscript>pwned({0})</script>",
    "{{{{ pwned({0}) }}}}", "{{% raw %}}pwned({0})", "${{pwned({0})}}", "#{{pwned({0})}}",
    "\u2028pwned({0})\u2029", "\x00<script>pwned({0})</script>", "\x1b[2J\u202e<b>{0}", "\ud800<b>{0}",
    "\\1\\g<0>\\q{0}", "$\\frac{{{0}$", "$x^2${0}", "<meta http-equiv=refresh content='0;url=http://x/{0}'>",
    "<base href='http://x/{0}'>", "<iframe srcdoc='<script>pwned({0})</script>'>", "<a href=//x/{0}>",
    "<style>*{{background:url(//x/{0})}}</style>", "=cmd|' /C calc'!A{0}", "{0}" + "<b>" * 200,
)  # fmt: skip
TAGS = {
    "html", "head", "meta", "link", "title", "style", "body", "header", "h1", "h2", "p", "span", "strong",
    "small", "dl", "div", "dt", "dd", "nav", "a", "main", "section", "figure", "figcaption", "svg", "g",
    "path", "defs", "use", "text", "tspan", "clippath", "rect", "lineargradient", "stop", "image", "line",
    "circle", "details", "summary", "table", "thead", "tbody", "tr", "th", "td", "footer", "pre", "ul", "li",
    "output", "script", "fieldset", "legend", "input", "label", "button", "polygon", "pattern", "marker",
    "time",
}  # fmt: skip
MANY = len(PAYLOADS)


class Parts(HTMLParser):
    """Elements, attributes and scripts of a page."""

    def __init__(self, html):
        super().__init__(convert_charrefs=True)
        self.tags, self.attributes, self.scripts, self.links = Counter(), Counter(), [], []
        self._in_script = False
        self.feed(html)
        self.close()

    def handle_starttag(self, tag, attributes):
        self.tags[tag] += 1
        self._in_script = tag == "script"
        for name, value in attributes:
            self.attributes[tag, name] += 1
            if name in ("href", "src", "action", "xlink:href"):
                self.links.append(value or "")

    def handle_data(self, data):
        if self._in_script:
            self.scripts.append(data)

    def handle_endtag(self, tag):
        self._in_script = False


def check(html, harmless):
    """Fail where a page has anything that the harmless one has not."""
    found, known = Parts(html), Parts(harmless)
    assert found.tags.keys() <= TAGS
    assert found.scripts == known.scripts
    for tag in ("script", "style", "meta", "link", "a", "img", "iframe", "base", "input", "button"):
        assert found.tags[tag] == known.tags[tag], tag
    assert found.attributes.keys() <= known.attributes.keys()
    assert not [name for _, name in found.attributes if name.startswith("on")]
    assert not [link for link in found.links if not link.startswith(("#", "data:,", "data:image/png;"))]


class Study:
    """Pages of one run each with payloads in all places at once, and the harmless ones."""

    def __init__(self, folder):
        self.folder, self.numbers, self.places = folder, count(), Counter()

    def payload(self, shift):
        """The next payload: the places of one run have different ones, the runs other ones in each place."""
        number = next(self.numbers)
        return PAYLOADS[(number + shift) % len(PAYLOADS)].format(number)

    def put(self, value, shift, path=()):
        """A copy of JSON with payloads in place of all texts that a person or another machine may choose."""
        if isinstance(value, dict):
            return {key: self.put(part, shift, (*path, key)) for key, part in value.items()}
        if isinstance(value, list):
            return [self.put(part, shift, (*path, "[]")) for part in value]
        if not isinstance(value, str) or path[-1] in ("status", "engine"):
            return value
        self.places[".".join(path)] += 1
        return self.payload(shift)

    def write(self, shift):
        """A run folder; `shift` None: a harmless one."""
        rounds = [round_result(n, [5 + n, 6, None if n == 2 else 7, 8]) for n in (1, 2, 3)]
        top = self.folder / f"runs-{shift}"
        name = "plain" if shift is None else self.payload(shift).replace("/", "_").replace("\x00", "_")
        name = name.encode("utf-8", "replace").decode()[:80]
        run = write_run(
            top / name, rounds, status="failed", reason="gone", remarks=["a remark", "another"],
            warnings=["one"], config={"run-name": "x", "data.path": "here.npz", "train.model": "linear"},
        )  # fmt: skip
        if shift is not None:
            self.spoil(run, shift)
        return run

    def spoil(self, run, shift):
        """Put payloads into all files of a run folder."""
        path = run / "manifest.json"
        manifest = json.loads(path.read_text())
        kept = {key: manifest[key] for key in ("status", "started")}
        config = {
            key: value if isinstance(value, str) and key in KNOWN else self.put(value, shift, ("config", key))
            for key, value in manifest["config"].items()
        }
        spoilt = {**self.put(manifest, shift), **kept, "config": config}
        path.write_text(json.dumps(spoilt))
        for table_, columns in (("partition.csv", ("user", "users", "device", "class", "classes")),):
            frame = pl.read_csv(run / table_, glob=False)
            for column in set(columns) & set(frame.columns):
                self.places[f"{table_}:{column}"] += 1
                words = [self.payload(shift).encode("utf-8", "replace").decode() for _ in range(len(frame))]
                frame = frame.with_columns(pl.Series(column, words))
            frame.write_csv(run / table_)
        for name in ("clusters.jsonl",):
            lines = [json.loads(line) for line in (run / name).read_text().splitlines()]
            for line in lines:
                line["note"] = self.payload(shift)
                line["signal"] = self.payload(shift)
                self.places[f"{name}:note"] += 1
            (run / name).write_text("".join(json.dumps(line) + "\n" for line in lines))
        log = [self.payload(shift) for _ in range(20)]
        self.places["run.log"] += 20
        (run / "run.log").write_bytes("\n".join(log).encode("utf-8", "surrogatepass"))

    def pages(self, shift):
        """Kind of page → HTML, of one run."""
        run, found = self.write(shift), {}
        target = self.folder / f"pages-{shift}"
        target.mkdir()
        found["run"] = write_report(run, target / "run.html")
        read = load_run(run)
        write_comparison([read], target / "compare.html")
        found["compare"] = target / "compare.html"
        say = (lambda: "plain") if shift is None else (lambda: self.payload(shift))
        write_clock_page([VERSION], [say(), say()], target / "clock.html")
        found["clock"] = target / "clock.html"
        group = Group(say(), [read], settings_of(read))
        compared = [Comparison(say(), {say(): say()}, [group], finals([group])) for _ in range(2)]
        with figure_style():
            write_page(sweep_page(say(), [say()], [say()], compared), target / "sweep.html")
            write_page(every_part(say), target / "parts.html")
        found |= {kind: target / f"{kind}.html" for kind in ("sweep", "parts")}
        self.places.update(OTHERS)
        return found


KNOWN = (  # names of parts, by which pages choose their sections
    "train.model", "privacy.kind", "leaf.strategy", "cluster.signal", "cluster.method", "train.task",
    "hierarchy.mobility", "uplink.clients", "uplink.servers",
)  # fmt: skip
OTHERS = [f"{page}.{n}" for page, most in (("sweep", 9), ("parts", 20), ("clock", 2)) for n in range(most)]
VERSION = VersionRow(*([1] * len(VersionRow.__dataclass_fields__)))


def every_part(say):
    """A page with a text in every place that a page has one in."""
    figure, axes = new_figure()
    axes.plot([1, 2], [1, 2], label=say())
    axes.set_xlabel(say())
    axes.set_title(say())
    axes.legend()
    rows = table([say(), say()], [[say(), say()], [say(), 3]])
    panel = Panel(say(), rows, figure, say())
    words = PageSection("Parts", [say(), say()], [panel, Panel(say(), rows)], say(), copies=[(say(), say())])
    return Page(
        title=say(), lead=[say()], footer=say(), badge=say(), notices=[Notice("note", say())],
        tiles=[Tile(say(), say(), say())], sections=[words],
    )  # fmt: skip


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    study = Study(tmp_path_factory.mktemp("injected"))
    study.harmless = {kind: path.read_text() for kind, path in study.pages(None).items()}
    return study


def carried_out(study, shifts):
    """All pages of runs with payloads, after the parser has seen them; each kind has some that would act."""
    paths, reached = [], set()
    for shift in shifts:
        for kind, path in study.pages(shift).items():
            html = path.read_text()
            reached |= {kind} if "pwned" in html else set()
            check(html, study.harmless[kind])
            paths.append(path)
    assert {"run", "sweep", "parts"} <= reached  # the others show few words of a run
    return paths


def test_words_are_words_on_every_page(study):
    carried_out(study, (0,))


@pytest.mark.extended
@pytest.mark.timeout(1800)
@pytest.mark.skipif(find_chromium() is None, reason="no Chromium here")
def test_a_browser_finds_nothing_to_carry_out(study, tmp_path):
    paths = carried_out(study, [shift + 1000 * MANY for shift in range(MANY)])
    with Browser(find_chromium(), tmp_path / "profile") as browser:
        for path in paths:
            browser.messages.clear()
            browser.requests.clear()
            browser.open(path, 1000)
            browser.evaluate("document.querySelectorAll('*').forEach(e => e.focus && e.focus())")
            assert browser.evaluate("typeof window.pwned") == "undefined"
            assert browser.messages == []
            assert browser.requests == [path.absolute().as_uri()]
    print(f"{next(study.numbers)} payloads of {MANY} kinds in {len(study.places)} places, {len(paths)} pages")


def test_planted_holes_are_found(study):
    """A page that lets one thing through."""
    html = study.harmless["run"]
    for hole in (
        "<script>pwned()</script>",
        "<img src=x>",
        "<p onclick=pwned()>",
        '<a href="javascript:x">x</a>',
    ):
        with pytest.raises(AssertionError):
            check(html.replace("</main>", f"{hole}</main>"), html)
