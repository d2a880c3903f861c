"""Needs of keyboard and screen reader, looked for in the HTML of a page (WCAG 2.2, after rules of axe)."""

import re
from html.parser import HTMLParser

VOID = {"meta", "link", "br", "input", "img", "hr"}
HEADINGS = {f"h{level}" for level in range(1, 7)}


class Element:
    """A tag with its attributes, parent, children and text."""

    def __init__(self, tag, attributes, parent):
        self.tag, self.attributes, self.parent = tag, attributes, parent
        self.children, self.words = [], []

    def __getitem__(self, name):
        return self.attributes.get(name)

    def all(self, *tags):
        """Descendants of these tags, in their order; of any without tags."""
        for child in self.children:
            if not tags or child.tag in tags:
                yield child
            yield from child.all(*tags)

    def above(self, *tags):
        """The nearest element around this one of these tags, or None."""
        place = self.parent
        while place is not None and place.tag not in tags:
            place = place.parent
        return place

    def text(self):
        """Words of the element and all within it."""
        inner = "".join(child if isinstance(child, str) else child.text() for child in self.words)
        return " ".join(inner.split())


class Tree(HTMLParser):
    """The elements of a page; `root` is around them."""

    def __init__(self, html):
        super().__init__()
        self.root = self._at = Element("", {}, None)
        self.feed(html)
        self.close()

    def handle_starttag(self, tag, attributes):
        element = Element(tag, {name: value or "" for name, value in attributes}, self._at)
        self._at.children.append(element)
        self._at.words.append(element)
        if tag not in VOID:
            self._at = element

    def handle_startendtag(self, tag, attributes):
        at = self._at
        self.handle_starttag(tag, attributes)
        self._at = at

    def handle_endtag(self, tag):
        if tag not in VOID:
            self._at = self._at.parent

    def handle_data(self, data):
        self._at.words.append(data)


def faults(html):
    """Faults of a page, a line each; none where keyboard and screen reader find what they need."""
    root = Tree(html).root
    return [*_page(root), *_headings(root), *_names(root), *_targets(root), *_tables(root), *_keyboard(root)]


def _page(root):
    (page,) = root.all("html")
    if not page["lang"]:
        yield "html: no lang"
    if not any(title.text() for title in root.all("title")):
        yield "title: empty"
    for meta in root.all("meta"):
        if re.search(r"user-scalable=no|maximum-scale=1\b", meta["content"] or ""):
            yield "viewport: cannot be enlarged"
    if len(list(root.all("main"))) != 1:
        yield "main: not exactly one"


def _headings(root):
    found = [(int(one.tag[1]), one.text()) for one in root.all(*HEADINGS)]
    if [level for level, _ in found].count(1) != 1:
        yield "h1: not exactly one"
    before = 0
    for level, words in found:
        if not words:
            yield f"h{level}: empty"
        if level > before + 1:
            yield f"h{level} {words}: after h{before}"
        before = level


def _names(root):
    """Pictures, controls, regions and lists of links have names; those of regions are unlike."""
    for svg in root.all("svg"):
        if svg["aria-hidden"] != "true" and not (svg["role"] == "img" and svg["aria-label"]):
            yield "svg: neither hidden nor a named picture"
    for image in root.all("img"):
        if image["alt"] is None:
            yield f"img {image['src']}: no alt"
    for control in root.all("a", "button", "summary", "legend", "label"):
        if not (control.text() or control["aria-label"]):
            yield f"{control.tag}: no words"
    for group in root.all("fieldset"):
        if not any(child.tag == "legend" for child in group.children):
            yield "fieldset: no legend"
    labelled = {label["for"] for label in root.all("label")}
    for field in root.all("input", "select", "textarea"):
        if field["id"] not in labelled and not field["aria-label"] and field.above("label") is None:
            yield f"{field.tag} {field['id']}: no label"
    regions = [one["aria-label"] for one in root.all() if one["role"] == "region" or one.tag == "nav"]
    for name in sorted({str(name) for name in regions if not name or regions.count(name) > 1}):
        yield f"region {name}: no name of its own"


def _targets(root):
    ids = [one["id"] for one in root.all() if one["id"] is not None]
    for name in sorted({name for name in ids if ids.count(name) > 1}):
        yield f"id {name}: twice"
    for one in root.all("a", "label"):
        target = one["for"] if one.tag == "label" else (one["href"] or "")
        if one.tag == "label" and target not in ids:
            yield f"label {target}: of nothing"
        if target and target.startswith("#") and target[1:] not in ids:
            yield f"link {target}: leads nowhere"


def _tables(root):
    for table in root.all("table"):
        heads = list(table.all("th"))
        if not heads or any(not (head["scope"] and head.text()) for head in heads):
            yield f"table: heads without words or scope, {[head.text() for head in heads]}"


def _keyboard(root):
    for one in root.all():
        if (one["tabindex"] or "0").lstrip("-").isdigit() and int(one["tabindex"] or 0) > 0:
            yield f"{one.tag}: a tabindex of its own order"
        if "scroll" in (one["class"] or "").split() and one["tabindex"] != "0":
            yield "scroll: the keyboard cannot reach it"
    for summary in root.all("summary"):
        if any(True for _ in summary.all("a", "button", "input", "summary")):
            yield "summary: holds another control"


def contrast(one, other):
    """Contrast of two colours "#rrggbb", 1 to 21 (WCAG 2.2, 1.4.3)."""
    lighter, darker = sorted((_luminance(one), _luminance(other)), reverse=True)
    return (lighter + 0.05) / (darker + 0.05)


def _luminance(colour):
    shares = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    linear = [x / 12.92 if x <= 0.04045 else ((x + 0.055) / 1.055) ** 2.4 for x in shares]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
