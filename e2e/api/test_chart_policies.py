"""The chart's NetworkPolicies admit whom the chart's pods speak to, where they listen, and no more.

No cluster of the tests enforces policies, so they are judged here as Kubernetes would: a pod that a
policy selects hears nobody but those whom a rule admits.  Who speaks to whom is not written down a
second time but found in the pods: in the addresses that they are told, and in what follows from
these by protocol.  So a port or an address that is added without a rule fails, and so does a rule
that nobody needs.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest

from e2e.charts import NAMESPACE, Manifest, pod_templates, rendered

CLIENTS = {"namespaceSelector": {"matchLabels": {"app": "clients"}}}
MONITORING = {"namespaceSelector": {"matchLabels": {"app": "prometheus"}}}
STRANGERS = {"namespaceSelector": {"matchLabels": {"app": "strangers"}}}
CLIENTS_MAY = {("node", "data"), ("node", "public"), ("operator", "http")}
ALL_ON: dict[str, Any] = {
    "networkPolicy": {"clients": [CLIENTS], "monitoring": [MONITORING]},
    "metrics": {"serviceMonitor": {"enabled": True}},
    "nodes": {"public": True},
}
VALUES: dict[str, dict[str, Any]] = {
    "all on": ALL_ON,
    "certificates": ALL_ON | {"tls": {"mode": "generated"}},
    "another name": ALL_ON | {"fullnameOverride": "log"},
    "a public pool": ALL_ON | {"nodes": {}, "pools": {"fast": {"public": True}}},
    "not public": ALL_ON | {"nodes": {}},
    "external etcd": ALL_ON
    | {"etcd": {"bundled": False, "external": {"endpoints": ["etcd-0.db:2379"]}}},
}
TOLD_TO_OTHERS = {"SHARDLOG_NODE_PUBLIC_ADDRESSES"}
"""Addresses that a pod hands on and does not use."""
DNS = {53}

Labels = dict[str, str]
Flow = tuple[str, str, str]
"""Who speaks, to whom, and on which port: components of the chart, and the port's name."""


def component(pod: Manifest) -> str:
    return str(pod["metadata"]["labels"]["app.kubernetes.io/component"])


def ports(pod: Manifest) -> dict[int, str]:
    listed = [each for one in pod["spec"]["containers"] for each in one.get("ports", ())]
    return {each["containerPort"]: each["name"] for each in listed}


class Chart:
    def __init__(self, values: dict[str, Any]) -> None:
        self.manifests = rendered(values)
        self.pods = list(pod_templates(self.manifests))
        self.services = self._kind("Service")
        self.policies = self._kind("NetworkPolicy")

    def _kind(self, kind: str) -> list[Manifest]:
        return [each for each in self.manifests if each["kind"] == kind]

    def selected(self, labels: Labels) -> list[Manifest]:
        return [pod for pod in self.pods if labels.items() <= pod["metadata"]["labels"].items()]

    def listening(self) -> set[tuple[str, str]]:
        return {(component(pod), name) for pod in self.pods for name in ports(pod).values()}

    # --- who speaks to whom ----------------------------------------------------------------------

    def flows(self) -> set[Flow]:
        return {flow for pod in self.pods for flow in (*self._by_name(pod), *_by_protocol(pod))}

    def _by_name(self, pod: Manifest) -> Iterator[Flow]:
        """To Services of the chart, and to pods by the names that these give them."""
        for text in told(pod):
            for service in self.services:
                for port in numbers(text, service["metadata"]["name"]):
                    (target,) = [
                        each["targetPort"]
                        for each in service["spec"]["ports"]
                        if each["port"] == port
                    ]
                    for other in self.selected(service["spec"]["selector"]):
                        yield component(pod), component(other), ports(other).get(target, target)

    # --- what is admitted ------------------------------------------------------------------------

    def admitted(self, peer: Manifest) -> set[tuple[str, str]]:
        """Where it is heard: a Pod of the chart, or others as a rule names them."""
        found: set[tuple[str, str]] = set()
        for pod in self.pods:
            for rule in self._rules(pod, "Ingress"):
                if any(matches(each, peer) for each in rule["from"]):
                    found |= {(component(pod), each["port"]) for each in rule["ports"]}
        return found

    def _rules(self, pod: Manifest, direction: str) -> list[Manifest]:
        specs = [each["spec"] for each in self.policies]
        labels = pod["metadata"]["labels"]
        return [
            rule
            for spec in specs
            if spec["podSelector"]["matchLabels"].items() <= labels.items()
            and direction in spec["policyTypes"]
            for rule in spec[direction.lower()]
        ]

    def is_kept_in(self, pod: Manifest) -> bool:
        return bool(self._rules(pod, "Egress"))

    def reaches(self, pod: Manifest, other: Manifest) -> bool:
        rules = self._rules(pod, "Egress")
        return any(matches(each, other) for rule in rules for each in rule.get("to", ()))

    def resolves(self, pod: Manifest) -> bool:
        """Whether it can ask for names."""
        rules = [rule for rule in self._rules(pod, "Egress") if "to" not in rule]
        return any({each["port"] for each in rule["ports"]} == DNS for rule in rules)

    def is_restricted(self, pod: Manifest) -> bool:
        labels = pod["metadata"]["labels"].items()
        selectors = [each["spec"]["podSelector"]["matchLabels"] for each in self.policies]
        return any(each.items() <= labels for each in selectors)


def told(pod: Manifest) -> Iterator[str]:
    for container in pod["spec"]["containers"]:
        yield from container.get("args", ())
        for each in container.get("env", ()):
            if each["name"] not in TOLD_TO_OTHERS:
                yield each.get("value", "")


def numbers(text: str, service: str) -> Iterator[int]:
    """The ports of a Service, or of pods behind it, that a text has addresses of."""
    domain = rf"(?:\.{NAMESPACE}(?:\.svc)?)?"
    host = rf"(?:(https?)://|[.=,@]|^)(?:[\w$()-]+\.)?{re.escape(service)}{domain}"
    for scheme, port in re.findall(rf"{host}(?::(\d+))?(?=[/,]|$)", text):
        if port or scheme:
            yield int(port or {"http": 80, "https": 443}[scheme])


def _by_protocol(pod: Manifest) -> Iterator[Flow]:
    """The directory names leaders to clients; operators find nodes, and tell them of others."""
    names = {each["name"] for one in pod["spec"]["containers"] for each in one.get("env", ())}
    if "SHARDLOG_CLUSTER" in names:
        yield component(pod), "node", "data"
    if "SHARDLOG_OPERATOR_NODE_SELECTOR" in names:
        yield component(pod), "node", "control"
    if "SHARDLOG_NODE_NAME" in names:
        yield component(pod), "node", "data"


def matches(admitted: Manifest, peer: Manifest) -> bool:
    """Pods of the chart are all in one namespace, and others in none that has it."""
    if peer.get("kind") != "Pod":
        return admitted == peer
    if set(admitted) != {"podSelector"}:
        return False
    wanted: Labels = admitted["podSelector"].get("matchLabels", {})
    return wanted.items() <= peer["metadata"]["labels"].items()


@pytest.fixture(scope="module", params=VALUES.values(), ids=list(VALUES))
def chart(request: pytest.FixtureRequest) -> Chart:
    return Chart(request.param)


def test_pods_of_the_chart_are_admitted_where_they_speak_and_nowhere_else(chart: Chart):
    admitted = {(component(pod), *where) for pod in chart.pods for where in chart.admitted(pod)}
    assert admitted == chart.flows()


def test_what_is_found_in_the_pods(chart: Chart):
    """So that nothing is found because nothing is looked at."""
    flows = chart.flows()
    assert {
        ("test", "operator", "http"), ("snapshot", "operator", "http"), ("test", "node", "data"),
        ("snapshot", "node", "data"), ("node", "node", "data"), ("operator", "node", "control"),
    } <= flows  # fmt: skip
    has_etcd = any(component(pod) == "etcd" for pod in chart.pods)
    among = {("operator", "etcd", "client"), ("etcd", "etcd", "members")}
    assert among & flows == (among if has_etcd else set())


def test_every_port_is_admitted_to_somebody(chart: Chart):
    inside = {where for pod in chart.pods for where in chart.admitted(pod)}
    outside = chart.admitted(CLIENTS) | chart.admitted(MONITORING)
    assert inside | outside == chart.listening()


def test_clients_reach_data_and_directory(chart: Chart):
    assert chart.admitted(CLIENTS) == CLIENTS_MAY & chart.listening()
    assert chart.admitted(STRANGERS) == set()


def test_monitoring_reaches_what_is_monitored(chart: Chart):
    monitors = [each for each in chart.manifests if each["kind"] == "ServiceMonitor"]
    wanted = {
        (component(pod), endpoint["port"])
        for monitor in monitors
        for pod in chart.selected(monitor["spec"]["selector"]["matchLabels"])
        for endpoint in monitor["spec"]["endpoints"]
    }
    assert chart.admitted(MONITORING) == wanted


def test_who_listens_is_restricted_and_who_is_kept_in_reaches_whom_it_must(chart: Chart):
    for pod in chart.pods:
        assert chart.is_restricted(pod) or not ports(pod), component(pod)
        if chart.is_kept_in(pod):
            assert chart.resolves(pod)
            spoken_to = {to for who, to, _ in chart.flows() if who == component(pod)}
            others = [other for other in chart.pods if component(other) in spoken_to]
            assert all(chart.reaches(pod, other) for other in others)


def test_by_default_clients_are_the_pods_of_the_namespace():
    chart = Chart({})
    other = {"kind": "Pod", "metadata": {"labels": {"app": "mine"}}}
    assert chart.admitted(other) == CLIENTS_MAY & chart.listening()
