"""`cluster.json`: ports chosen once, and what a damaged one leads to."""

import json
from pathlib import Path

import pytest

from shardlog.local.cluster_file import PORTS, load, new_cluster, port_of, save, with_nodes
from shardlog.local.failures import BadClusterFile, NoCluster
from shardlog.local.layout import Layout


def ports(cluster) -> list[int]:
    return [port_of(each) for places in cluster.addresses().values() for each in places]


def test_it_is_read_as_it_was_written(tmp_path: Path):
    layout, cluster = Layout(tmp_path), new_cluster(3)
    save(layout, cluster)
    assert load(layout) == cluster
    assert cluster.names == ["coordinator", "node-1", "node-2", "node-3"]


def test_every_port_is_another_one_and_none_is_for_outgoing_connections():
    found = ports(with_nodes(new_cluster(3), 9))
    assert len(set(found)) == len(found) == 1 + 9 * 3
    assert set(found) <= set(PORTS)


def test_nodes_are_added_and_the_others_stay_where_they_are():
    before = new_cluster(3)
    after = with_nodes(before, 5)
    assert after.nodes[:3] == before.nodes
    assert after.coordinator == before.coordinator
    assert [node.name for node in after.nodes[3:]] == ["node-4", "node-5"]


def test_no_cluster(tmp_path: Path):
    with pytest.raises(NoCluster, match="shardlog local up"):
        load(Layout(tmp_path / "absent"))


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", "{}", json.dumps({"format": 2}), '{"format": 1, "coordinator": 5, "nodes": []}',
     '{"format": 1, "coordinator": "no port", "nodes": []}',
     '{"format": 1, "coordinator": "h:1", "nodes": [{"name": "node-1"}]}'],
)  # fmt: skip
def test_what_is_no_cluster_file(tmp_path: Path, text: str):
    layout = Layout(tmp_path)
    layout.cluster_file.write_text(text)
    with pytest.raises(BadClusterFile) as caught:
        load(layout)
    assert "\n" not in str(caught.value)
