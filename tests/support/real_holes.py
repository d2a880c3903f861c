"""Holes of OSV's database, as it writes them: those known of what constraints.txt pins, and older ones.

Identifiers and versions are those of the GitHub Advisory Database (https://github.com/advisories, CC BY 4.0),
which OSV takes over, as of October 2026. A part of it that can be looked through by hand: who wants all of it
takes OSV's own archive.
"""

# identifier, other name, package, (introduced, fixed) of each range of versions; None: no version is fixed
OF_THE_PINNED = (
    ("GHSA-q279-jhrf-cc6v", "CVE-2025-62593", "ray", [("0", "2.52.0")]),
    ("GHSA-q5fh-2hc8-f6rq", "CVE-2026-27482", "ray", [("0", "2.54.0")]),
    ("GHSA-gx77-xgc2-4888", "CVE-2025-34351", "ray", [("0", None)]),
    ("GHSA-mw35-8rx3-xf9r", "CVE-2026-41486", "ray", [("2.49.0", "2.55.0")]),
    ("GHSA-hhrp-gw25-jr43", "CVE-2026-57516", "ray", [("0", "2.56.0")]),
    ("GHSA-537c-gmf6-5ccf", None, "cryptography", [("0.5.0", "48.0.1")]),
    ("GHSA-g6cj-pr64-35w5", "CVE-2026-69247", "cryptography", [("44.0.0", "50.0.0")]),
    ("GHSA-jwv3-5hgf-82ww", "CVE-2026-69249", "cryptography", [("0", "49.0.0")]),
    ("GHSA-r6ph-v2qm-q3c2", "CVE-2026-26007", "cryptography", [("0", "46.0.5")]),
)
OF_OTHER_VERSIONS = (
    ("GHSA-j3mh-qmjj-xp83", "CVE-2026-32981", "ray", [("0", "2.8.1")]),
    ("GHSA-p423-j2cm-9vmq", "CVE-2026-39892", "cryptography", [("45.0.0", "46.0.7")]),
    ("GHSA-m2h6-j472-rp4c", "CVE-2026-69248", "cryptography", [("45.0.0", "49.0.0")]),
    ("GHSA-53q9-r3pm-6pq6", "CVE-2025-32434", "torch", [("0", "2.6.0")]),
    ("GHSA-vgrw-7cvw-pwgx", "CVE-2025-2999", "torch", [("0", "2.9.1")]),
    ("GHSA-7gcm-g887-7qv7", "CVE-2026-0994", "protobuf", [("6.30.0rc1", "6.33.5"), ("0", "5.29.6")]),
    ("GHSA-m4p7-r5rc-7g4j", None, "pyasn1", [("0", "0.6.4")]),
    ("GHSA-8423-8fgw-73vq", None, "tornado", [("0", "6.5.8")]),
    ("GHSA-82w8-qh3p-5jfq", "CVE-2026-54283", "starlette", [("0.4.1", "1.3.1")]),
    ("GHSA-mf9v-mfxr-j63j", None, "urllib3", [("2.6.0", "2.7.0")]),
    ("GHSA-pq64-v7f5-gqh8", None, "Pygments", [("1.1", "2.7.4")]),
)


def as_osv(identifier, alias, package, ranges):
    """A hole as OSV writes it (https://ossf.github.io/osv-schema/)."""
    return {
        "schema_version": "1.7.3",
        "id": identifier,
        "modified": "2026-10-01T00:00:00Z",
        "aliases": [alias] if alias else [],
        "affected": [
            {
                "package": {"name": package, "ecosystem": "PyPI", "purl": f"pkg:pypi/{package.lower()}"},
                "ranges": [
                    {
                        "type": "ECOSYSTEM",
                        "events": [{"introduced": begin}] + ([{"fixed": end}] if end else []),
                    }
                ],
            }
            for begin, end in ranges
        ],
    }
