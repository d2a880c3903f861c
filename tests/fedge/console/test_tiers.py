from fedge.console.tiers import plural_of, servers_of


def test_tiers_with_numbers_are_servers_of_them():
    """Not "2 region-1s"."""
    assert (servers_of(1, "region-1"), servers_of(4, "region-2")) == (
        "1 server of region-1",
        "4 servers of region-2",
    )
    assert [servers_of(1, "leaf"), servers_of(8, "leaf"), servers_of(2, "city")] == [
        "1 leaf",
        "8 leaves",
        "2 cities",
    ]
    assert [plural_of("region-1"), plural_of("leaf")] == ["servers of region-1", "leaves"]
