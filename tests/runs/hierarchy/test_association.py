"""Whole runs whose clients stand under leaves by an association: same bits wherever they run."""

import csv
import io
import json

import pytest
from flower_runs import comparable
from leaf_servers import cloud, in_threads
from small_runs import carry_out, small_config

from fedge import simulate
from fedge.config.registers.option import ConfigError
from fedge.run.site import open_site

SKEWED = {"partition.kind": "classes", "partition.kind-args.classes-per-client": 1, "data.split": "blocks"}


def config_of(folder, **more):
    return small_config(folder) | SKEWED | {"hierarchy.association": "label-balance"} | more


def held_in(folder):
    """Per client its rows of partition.csv: users, classes and windows."""
    with (folder / "partition.csv").open() as file:
        rows = list(csv.DictReader(file))
    clients = sorted({int(row["client"]) for row in rows})
    held = [[tuple(row.items())[2:] for row in rows if int(row["client"]) == client] for client in clients]
    return [sorted(each) for each in held]


def test_it_changes_who_stands_where_and_is_resumed(tmp_path):
    wanted = carry_out(config_of(tmp_path), "whole")
    dealt = carry_out(config_of(tmp_path, **{"hierarchy.association": "none"}), "dealt")
    assert wanted["models"] != dealt["models"]
    held = [held_in(tmp_path / "runs" / name) for name in ("whole", "dealt")]
    assert held[0] != held[1]
    assert sorted(held[0]) == sorted(held[1])
    carry_out(config_of(tmp_path, **{"num-server-rounds": 1}), "parts")
    assert carry_out(config_of(tmp_path, resume=str(tmp_path / "runs" / "parts")), "parts") == wanted


def test_leaf_servers_deal_the_same(tmp_path, certificates, address):
    config = config_of(tmp_path)
    wanted = carry_out(config, "here")
    with in_threads(address, certificates, tmp_path):
        outcome, _ = cloud({**config, "run-name": "there"}, address, certificates)
    assert outcome.status == "completed", outcome.reason
    found = comparable(outcome.folder)
    assert [key for key in found if key != "clusters" and found[key] != wanted[key]] == []


def test_what_cannot_be_is_refused_before_anything_starts(tmp_path):
    for arguments, telling in (
        ({"gamma": -1}, "gamma must be a number"),
        ({"delays": str(tmp_path / "none.csv")}, "must be a readable CSV or Parquet file"),
        ({"delay": 1}, "delays"),
    ):
        config = config_of(tmp_path, **{"hierarchy.association": "share"})
        with pytest.raises(ConfigError, match=telling):
            simulate(config | {"hierarchy.association-args": json.dumps(arguments)}, terminal=io.StringIO())
    config = config_of(tmp_path, **{"hierarchy.association": "none"})
    with pytest.raises(ConfigError, match="association-args must be empty"):
        simulate(config | {"hierarchy.association-args": '{"gamma": 1}'}, terminal=io.StringIO())
    assert not (tmp_path / "runs").exists()


def test_leaf_servers_read_no_file_that_the_cloud_names(tmp_path, certificates, address):
    """The cloud refuses it before it waits for them; they refuse it, too, from a cloud that does not."""
    rows = [f"{client},{leaf},1" for client in range(9) for leaf in range(3)]
    (tmp_path / "delays.csv").write_text("\n".join(["client,leaf,delay", *rows]) + "\n")
    delays = json.dumps({"delays": str(tmp_path / "delays.csv")})
    config = config_of(tmp_path, **{"hierarchy.association-args": delays, "guard.start-timeout": 20.0})
    carry_out(config, "here")
    said = "names a file on the cloud's machine, which leaf servers do not read"
    with pytest.raises(ConfigError, match=said):
        cloud({**config, "run-name": "there"}, address, certificates)
    assert not (tmp_path / "runs" / "there").exists()
    with pytest.raises(ConfigError, match=said):
        open_site(tmp_path / "leaf-2", 2, None, {"config": config, "run": "a run", "leaf": 2})
