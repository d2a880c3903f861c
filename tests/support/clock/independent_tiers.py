"""Servers over servers of the second simulator: a tree of any depth, from docs/devices.md alone.

A node of the tree is a dictionary; below it are nodes, or numbers of leaves. Of one moment, what goes up is
taken in first, then what comes down, to upper servers first; a region's own answers leave after that.
"""

import numpy as np
from independent_links import Pipe
from independent_rules import US, Model


def leaves_of(below):
    """All leaves of nested lists."""
    return [below] if isinstance(below, int) else [leaf for each in below for leaf in leaves_of(each)]


class Tiers:
    """Events above the leaves of a `Simulation`."""

    def grow(self):
        """Make the tree; None above a single leaf."""
        case, tree = self.case, self.case.tree
        self.links, self.inner = [], []
        self.cloud = None if tree is None else self.node(tree, 0, None)
        rows, tier = [], [] if self.cloud is None else [self.cloud]
        while tier:
            self.inner += tier
            rows += [link for each in tier for link in each["links"]]
            tier = [
                link["child"] for each in tier for link in each["links"] if isinstance(link["child"], dict)
            ]
        self.links = rows  # tier by tier: the number of a link is its place here
        for number, link in enumerate(rows):
            link["number"] = number
        for each in self.inner:
            if of := case.tiers[each["tier"]]["link"]:
                each["pipe"] = len(self.pipes)
                self.pipes += [Pipe(of), Pipe(of)]

    def node(self, tree, tier, above):
        """A server over servers and all below it."""
        case, of = self.case, self.case.tiers[tier]
        busy = case.own_cloud_rule_is_busy if tier == 0 else 0.0
        found = {
            "model": Model(case, of["rule"], of["arguments"], len(tree), busy), "tier": tier, "above": above,
            "links": [], "buffered": [], "line": [], "is_busy": False, "pipe": None, "answers": [],
        }  # fmt: skip
        for place, below in enumerate(tree):
            link = {"base": case.start, "from": 0, "made": 0, "sent": None, "answer": None}
            link |= {"child": below, "parent": found, "place": place, "leaves": leaves_of(below)}
            found["links"].append(link)
            if not isinstance(below, int):
                link["child"] = self.node(below, tier + 1, link)
        return found

    def model_of(self, link):
        return self.models[link["child"]] if isinstance(link["child"], int) else link["child"]["model"]

    def made(self, leaf):
        for link in self.links:
            if isinstance(link["child"], int) and link["child"] == leaf:
                self.made_below(link)

    def made_below(self, link):
        link["made"] += 1
        self.send(link)

    def send(self, link):
        of = self.case.tiers[link["parent"]["tier"]]
        if link["sent"] is None and link["made"] >= of["every"]:
            link["sent"], link["made"] = self.model_of(link).w, 0
            self.moved["cloud_up"] += self.case.nbytes
            self.between(link, "reached-upper")

    def between(self, link, reaches):
        of = self.case.tiers[link["parent"]["tier"]]
        if link["parent"]["pipe"] is None:
            takes = of["delay"] + self.case.nbytes / (of["megabytes"] * 1e6) if of["delay"] else 0
            self.at(self.now + round(takes * US), reaches, link["number"], 0, link)
        else:
            self.at(self.now + round(of["delay"] * US), "send-between", link["number"], 0, (link, reaches))

    def send_between(self, number, _, about):
        link, reaches = about
        of = self.case.tiers[link["parent"]["tier"]]
        place = link["parent"]["pipe"] + (reaches == "reached-upper")
        self.change_pipe(place, joins=(link["place"], self.case.nbytes, of["megabytes"] * 1e6))

    def sent_between(self, place, key):
        """Whether a transfer was one between servers; if so, it is there."""
        for node in self.inner:
            if node["pipe"] is not None and place in (node["pipe"], node["pipe"] + 1):
                link = node["links"][key]
                reaches = "reached-lower" if place == node["pipe"] else "reached-upper"
                self.at(self.now, reaches, link["number"], 0, link)
                return True
        return False

    def reached_upper(self, number, _, link):
        link["parent"]["line"].append(link)
        self.serve_above(link["parent"])

    def serve_above(self, node):
        while node["line"] and not node["is_busy"]:
            busy = node["model"].busy_us()
            if busy:
                node["is_busy"] = True
                self.at(self.now + busy, "served-above", node["line"][0]["number"], 0, node)
                return
            self.take_above(node, node["line"].pop(0))

    def served_above(self, number, _, node):
        node["is_busy"] = False
        self.take_above(node, node["line"].pop(0))
        self.serve_above(node)

    def take_above(self, node, link):
        case, model = self.case, node["model"]
        weight = sum(case.windows[device] for leaf in link["leaves"] for device in case.leaves[leaf])
        new = model.take(link["place"], model.version - link["from"], link["base"], link["sent"], weight)
        node["buffered"].append(link)
        if case.tiers[node["tier"]]["rule"] == "fedavg" and len(node["buffered"]) == len(node["links"]):
            new = model.end_round()
        if not new:
            return
        node["answers"] += node["buffered"]
        node["buffered"] = []
        if node["above"] is None:
            self.answer(0, 0, node)
            return
        self.at(self.now, "answer", node["above"]["number"], 0, node)
        self.made_below(node["above"])

    def answer(self, number, _, node):
        """Send its model to all of whom it is made; nobody may be left by now."""
        for link in node["answers"]:
            link["answer"] = node["model"].w, node["model"].version
            self.moved["cloud_down"] += self.case.nbytes
            self.between(link, "reached-lower")
        node["answers"] = []

    def reached_lower(self, number, _, link):
        model, at = self.model_of(link), self.case.variances
        w, version = link["answer"]
        if model.w is link["sent"]:
            model.w = w
        else:
            new = w.astype(np.float64) + (model.w.astype(np.float64) - link["sent"].astype(np.float64))
            new[at] = np.clip(new[at], np.minimum(w[at], model.w[at]), np.maximum(w[at], model.w[at]))
            model.w = new.astype(np.float32)
        link.update({"base": w, "from": version, "sent": None, "answer": None})
        self.send(link)
