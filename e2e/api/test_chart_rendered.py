"""The chart as helm renders it: what is there, with which values, and which values are refused."""

from __future__ import annotations

import base64
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from cryptography import x509

from e2e.charts import CHART, BadValues, environment, helm, only, pod_templates, rendered
from e2e.operated.test_permissions import rules as documented_rules
from shardlog.transport.cluster_key import ClusterKey
from shardlog_node.settings import load as load_node
from shardlog_operator.settings import load as load_operator

KEY_SECRET = "shardlog-cluster-key"
EXTERNAL: dict[str, Any] = {
    "bundled": False,
    "external": {"endpoints": ["etcd-0.db:2379", "etcd-1.db:2379"]},
}
MONITORING: dict[str, Any] = {
    "serviceMonitor": {"enabled": True},
    "prometheusRule": {"enabled": True},
}

VALUES: dict[str, dict[str, Any]] = {
    "defaults": {},
    "external etcd": {"etcd": EXTERNAL},
    "generated certificates": {"tls": {"mode": "generated"}},
    "given certificates": {"tls": {"mode": "secret", "secretName": "mine"}},
    "cert-manager": {"tls": {"mode": "certManager", "issuerRef": {"name": "ca"}}},
    "monitoring": {"metrics": MONITORING},
    "pools": {"pools": {"fast": {"replicas": 5, "storage": {"className": "nvme"}}}},
    "everything off": {
        "crds": {"install": False},
        "rbac": {"readNodes": False},
        "networkPolicy": {"enabled": False},
    },
    "everything on": {
        "fullnameOverride": "log",
        "imagePullSecrets": [{"name": "registry"}],
        "commonLabels": {"team": "storage"},
        "operator": {"tolerations": [{"operator": "Exists"}], "settings": {"resync_s": 60}},
        "snapshots": {
            "serviceAccountAnnotations": {"eks.amazonaws.com/role-arn": "arn:aws:iam::1:role/x"},
            "nodeSelector": {"disk": "fast"},
            "podAnnotations": {"a": "b"},
        },
        "nodes": {"public": True, "nodeSelector": {"disk": "fast"}, "podAnnotations": {"a": "b"}},
        "tls": {"mode": "generated", "mutual": False},
        "metrics": MONITORING,
        "networkPolicy": {
            "clients": [{"namespaceSelector": {"matchLabels": {"app": "x"}}}],
            "monitoring": [{"namespaceSelector": {"matchLabels": {"app": "prometheus"}}}],
        },
    },
}

REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "unknown value": ({"replicas": 3}, "additional properties 'replicas' not allowed"),
    "misspelt value": ({"nodes": {"replica": 3}}, "additional properties 'replica' not allowed"),
    "no nodes": ({"nodes": {"replicas": 0}}, "at '/nodes/replicas': minimum"),
    "nodes in words": ({"nodes": {"replicas": "3"}}, "at '/nodes/replicas': got string"),
    "no operator": ({"operator": {"replicas": 0}}, "at '/operator/replicas': minimum"),
    "size without unit": ({"nodes": {"storage": {"size": "20"}}}, "at '/nodes/storage/size'"),
    "unknown TLS": ({"tls": {"mode": "on"}}, "at '/tls/mode': value must be one of"),
    "no secret": ({"tls": {"mode": "secret"}}, "at '/tls/secretName': minLength"),
    "no issuer": ({"tls": {"mode": "certManager"}}, "at '/tls/issuerRef/name': minLength"),
    "no etcd": ({"etcd": {"bundled": False}}, "at '/etcd/external/endpoints': minItems"),
    "endpoint as URL": (
        {"etcd": {"bundled": False, "external": {"endpoints": ["https://etcd:2379/"]}}},
        "at '/etcd/external/endpoints/0'",
    ),
    "bad prefix": ({"etcd": {"prefix": "shards"}}, "at '/etcd/prefix'"),
    "pool in capitals": (
        {"pools": {"Fast": {}}},
        "at '/pools': additional properties 'Fast' not allowed",
    ),
    "pool twice": ({"pools": {"default": {}}}, "at '/pools/default': false schema"),
    "unknown in a pool": ({"pools": {"fast": {"size": 1}}}, "at '/pools/fast': additional"),
    "setting in capitals": (
        {"nodes": {"settings": {"LOG_LEVEL": "debug"}}},
        "at '/nodes/settings': additional properties 'LOG_LEVEL' not allowed",
    ),
    "unknown level": ({"operator": {"logLevel": "loud"}}, "at '/operator/logLevel'"),
    "pull policy": ({"nodes": {"image": {"pullPolicy": "Often"}}}, "at '/nodes/image/pullPolicy'"),
    "tag in the repository": (
        {"nodes": {"image": {"repository": "node:1.0"}}},
        "at '/nodes/image/repository'",
    ),
    "hardly any grace": (
        {"nodes": {"terminationGracePeriodSeconds": 5}},
        "at '/nodes/terminationGracePeriodSeconds': minimum",
    ),
    "label that is no text": ({"commonLabels": {"a": 1}}, "at '/commonLabels/a': got number"),
    "unknown of snapshots": (
        {"snapshots": {"schedule": "@daily"}},
        "at '/snapshots': additional properties 'schedule' not allowed",
    ),
    "override": ({"fullnameOverride": "Log"}, "at '/fullnameOverride'"),
}


@pytest.mark.parametrize("values", VALUES.values(), ids=VALUES)
def test_lint(values: dict[str, Any]):
    assert "0 chart(s) failed" in helm(
        "lint", "--strict", str(CHART), "-f", "-", stdin=yaml.safe_dump(values)
    )


@pytest.mark.parametrize(("values", "told"), REFUSED.values(), ids=REFUSED)
def test_refused(values: dict[str, Any], told: str):
    with pytest.raises(BadValues) as refused:
        rendered(values)
    assert told in str(refused.value)


@pytest.mark.parametrize("values", VALUES.values(), ids=VALUES)
def test_pods_are_restricted(values: dict[str, Any]):
    """Beyond what PodSecurity asks for: no token but for the operator, and a read-only root."""
    pods = list(pod_templates(rendered(values)))
    assert len(pods) >= 3
    for pod in pods:
        spec = pod["spec"]
        assert spec["securityContext"]["runAsNonRoot"]
        assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert spec["enableServiceLinks"] is False
        is_operator = pod["metadata"]["labels"]["app.kubernetes.io/component"] == "operator"
        assert spec["automountServiceAccountToken"] is is_operator
        for container in spec["containers"]:
            assert container["securityContext"] == {
                "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"]},
            }
            assert container["resources"]["requests"].keys() == {"cpu", "memory"}
            assert "memory" in container["resources"]["limits"]


@pytest.mark.parametrize("values", VALUES.values(), ids=VALUES)
def test_what_selects_finds(values: dict[str, Any]):
    """Every selector of the chart selects pods of the chart."""
    manifests = rendered(values)
    pods = [pod["metadata"]["labels"] for pod in pod_templates(manifests)]
    for each in manifests:
        match each["kind"]:
            case "Service":
                selector = each["spec"]["selector"]
            case "PodDisruptionBudget" | "Deployment" | "StatefulSet":
                selector = each["spec"]["selector"]["matchLabels"]
            case "NetworkPolicy":
                selector = each["spec"]["podSelector"]["matchLabels"]
            case _:
                continue
        selected = [labels for labels in pods if selector.items() <= labels.items()]
        assert selected, each["metadata"]["name"]
        components = {labels["app.kubernetes.io/component"] for labels in selected}
        assert components == {each["metadata"]["labels"]["app.kubernetes.io/component"]}


def test_names_and_ports_are_those_that_all_parts_share():
    manifests = rendered()
    nodes = only(manifests, "StatefulSet", "shardlog-node")
    template = nodes["spec"]["template"]
    assert nodes["spec"]["serviceName"] == "shardlog-nodes"
    assert template["metadata"]["labels"]["shardlog.dev/pool"] == "default"
    assert template["spec"]["readinessGates"] == [{"conditionType": "shardlog.dev/replicated"}]
    (container,) = template["spec"]["containers"]
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    assert ports == {"data": 7400, "control": 7401, "http": 7402}
    directory = only(manifests, "Service", "shardlog")
    assert directory["spec"]["ports"] == [{"name": "http", "port": 80, "targetPort": "http"}]
    assert only(manifests, "Service", "shardlog-nodes")["spec"]["clusterIP"] == "None"
    operator = environment(only(manifests, "Deployment", "shardlog-operator"))
    assert operator["SHARDLOG_OPERATOR_ETCD_PREFIX"] == "/shardlog/logs/"
    assert operator["SHARDLOG_OPERATOR_ETCD_ENDPOINTS"].split(",") == [
        f"shardlog-etcd-{member}.shardlog-etcd.logs.svc:2379" for member in range(3)
    ]


def test_a_node_hands_over_within_its_grace_period():
    nodes = only(
        rendered({"nodes": {"terminationGracePeriodSeconds": 90}}), "StatefulSet", "shardlog-node"
    )
    assert nodes["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] == 90
    assert environment(nodes)["SHARDLOG_NODE_STOP_TIMEOUT_MS"] == "80000"


def test_external_etcd():
    tls = {"tlsSecret": "etcd-client", "userSecret": "etcd-user", **EXTERNAL["external"]}
    manifests = rendered({"etcd": {"bundled": False, "external": tls}})
    assert not [each for each in manifests if each["metadata"]["name"].endswith("-etcd")]
    operator = only(manifests, "Deployment", "shardlog-operator")
    told = environment(operator)
    assert told["SHARDLOG_OPERATOR_ETCD_ENDPOINTS"] == "etcd-0.db:2379,etcd-1.db:2379"
    assert told["SHARDLOG_OPERATOR_ETCD_TLS_AUTHORITY"] == "/etc/shardlog/etcd-tls/ca.crt"
    volumes = operator["spec"]["template"]["spec"]["volumes"]
    (secret,) = [each["secret"] for each in volumes if each["name"] == "etcd-tls"]
    assert secret["secretName"] == "etcd-client"
    assert told["SHARDLOG_OPERATOR_ETCD_PASSWORD_FILE"] == "/etc/shardlog/etcd-user/password"
    (user,) = [each["secret"] for each in volumes if each["name"] == "etcd-user"]
    assert user["secretName"] == "etcd-user"


def secrets_of(pod: dict[str, Any]) -> set[str]:
    volumes = pod["spec"].get("volumes", [])
    return {each["secret"]["secretName"] for each in volumes if "secret" in each}


@pytest.mark.parametrize("given", ["", "mine"])
def test_s03_nodes_and_operators_alone_have_the_key_of_the_cluster(given: str):
    manifests = rendered({"clusterKey": {"secretName": given}, "nodes": {"public": True}})
    secret = given or KEY_SECRET
    having = set()
    for pod in pod_templates(manifests):
        if secret in secrets_of(pod):
            having.add(pod["metadata"]["labels"]["app.kubernetes.io/component"])
            (volume,) = [each for each in pod["spec"]["volumes"] if each["name"] == "cluster-key"]
            assert volume["secret"]["defaultMode"] == 0o440
            (container,) = pod["spec"]["containers"]
            (mount,) = [each for each in container["volumeMounts"] if each["name"] == "cluster-key"]
            assert mount["readOnly"]
    assert having == {"node", "operator"}
    for kind, name, prefix in (
        ("StatefulSet", "shardlog-node", "NODE"), ("Deployment", "shardlog-operator", "OPERATOR")
    ):  # fmt: skip
        told = environment(only(manifests, kind, name))[f"SHARDLOG_{prefix}_CLUSTER_KEY_FILE"]
        assert told == "/etc/shardlog/cluster-key/cluster.key"
    made = [each for each in manifests if each["metadata"]["name"] == KEY_SECRET]
    assert bool(made) != bool(given)


def test_s03_a_key_that_is_made_is_one(tmp_path: Path):
    secret = only(rendered(), "Secret", KEY_SECRET)
    path = tmp_path / "cluster.key"
    path.touch(0o440)
    path.write_bytes(base64.b64decode(secret["data"]["cluster.key"]))
    ClusterKey.read(str(path))


@pytest.mark.parametrize("mode", ["generated", "given", "cert-manager"])
def test_tls(mode: str):
    """With certificates everybody has them, and calls nodes by the names that they are for."""
    name = {"generated": "generated certificates", "given": "given certificates"}.get(mode, mode)
    manifests = rendered(VALUES[name])
    secret = "mine" if mode == "given" else "shardlog-tls"
    for pod in pod_templates(manifests):
        assert secrets_of(pod) - {KEY_SECRET} == {secret}, pod["metadata"]["name"]
    operator = environment(only(manifests, "Deployment", "shardlog-operator"))
    assert operator["SHARDLOG_OPERATOR_PLAIN"] == "false"
    assert operator["SHARDLOG_OPERATOR_NODE_ADDRESSES"] == "{node}.shardlog-nodes.logs.svc"
    etcd = only(manifests, "StatefulSet", "shardlog-etcd")["spec"]["template"]["spec"]
    assert "--client-cert-auth" in etcd["containers"][0]["args"]
    if mode == "cert-manager":
        names = only(manifests, "Certificate", "shardlog-tls")["spec"]["dnsNames"]
        assert "*.shardlog-nodes.logs.svc" in names


def test_generated_certificates_are_of_their_authority():
    secret = only(rendered(VALUES["generated certificates"]), "Secret", "shardlog-tls")
    pem = {name: base64.b64decode(value) for name, value in secret["data"].items()}
    authority = x509.load_pem_x509_certificate(pem["ca.crt"])
    certificate = x509.load_pem_x509_certificate(pem["tls.crt"])
    certificate.verify_directly_issued_by(authority)
    named = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert "*.shardlog-nodes.logs.svc" in named.get_values_for_type(x509.DNSName)
    assert secret["metadata"]["annotations"]["helm.sh/resource-policy"] == "keep"


def test_pools():
    manifests = rendered({"nodes": {"public": True}} | VALUES["pools"])
    fast = only(manifests, "StatefulSet", "shardlog-node-fast")
    assert fast["spec"]["replicas"] == 5
    assert fast["spec"]["selector"]["matchLabels"]["shardlog.dev/pool"] == "fast"
    assert environment(fast)["SHARDLOG_NODE_PUBLIC_PORT"] == "7403"
    (claim,) = fast["spec"]["volumeClaimTemplates"]
    assert claim["spec"]["storageClassName"] == "nvme"
    assert claim["spec"]["resources"]["requests"]["storage"] == "20Gi"
    assert only(manifests, "StatefulSet", "shardlog-node")["spec"]["replicas"] == 3
    assert (
        only(manifests, "PodDisruptionBudget", "shardlog-node-fast")["spec"]["maxUnavailable"] == 1
    )


def test_uninstalling_keeps_shards():
    kept = [each for each in rendered() if each["kind"] == "CustomResourceDefinition"]
    assert len(kept) >= 2
    for crd in kept:
        assert crd["metadata"]["annotations"] == {"helm.sh/resource-policy": "keep"}


@pytest.mark.parametrize("mode", ["defaults", "generated certificates"])
def test_pods_that_take_snapshots_reach_the_cluster_as_clients_do(mode: str):
    """The operator is told their template, and policies let them through whoever else may."""
    strangers = [{"namespaceSelector": {"matchLabels": {"app": "x"}}}]
    manifests = rendered(VALUES[mode] | {"networkPolicy": {"clients": strangers}})
    operator = environment(only(manifests, "Deployment", "shardlog-operator"))
    template = only(manifests, "PodTemplate", operator["SHARDLOG_OPERATOR_SNAPSHOT_TEMPLATE"])
    labels = template["template"]["metadata"]["labels"]
    spec = template["template"]["spec"]
    assert spec["serviceAccountName"] == "shardlog-snapshot"
    (container,) = spec["containers"]
    told = {each["name"]: each["value"] for each in container["env"]}
    assert told["SHARDLOG_CLUSTER"] == "http://shardlog"
    assert ("SHARDLOG_TLS_AUTHORITY" in told) == (mode != "defaults")
    for policy, port in (("shardlog-nodes", "data"), ("shardlog-operator", "http")):
        rules = only(manifests, "NetworkPolicy", policy)["spec"]["ingress"]
        admitted = [
            rule
            for rule in rules
            for each in rule["from"]
            if "podSelector" in each
            and each["podSelector"].get("matchLabels", {"": ""}).items() <= labels.items()
        ]
        assert [each["port"] for rule in admitted for each in rule["ports"]] == [port]


def test_rights_of_the_account_that_takes_snapshots():
    account = only(rendered(VALUES["everything on"]), "ServiceAccount", "log-snapshot")
    assert account["metadata"]["annotations"] == {
        "eks.amazonaws.com/role-arn": "arn:aws:iam::1:role/x"
    }
    bound = [each for each in rendered() if each["kind"].endswith("RoleBinding")]
    names = {subject["name"] for each in bound for subject in each["subjects"]}
    assert names == {"shardlog-operator"}


def test_monitoring():
    manifests = rendered(VALUES["monitoring"])
    services = [each for each in manifests if each["kind"] == "Service"]
    for monitor in (each for each in manifests if each["kind"] == "ServiceMonitor"):
        selector = monitor["spec"]["selector"]["matchLabels"]
        (service,) = (
            each for each in services if selector.items() <= each["metadata"]["labels"].items()
        )
        (endpoint,) = monitor["spec"]["endpoints"]
        assert endpoint["port"] in {port["name"] for port in service["spec"]["ports"]}
    (group,) = only(manifests, "PrometheusRule", "shardlog")["spec"]["groups"]
    for rule in group["rules"]:
        assert rule["annotations"].keys() == {"summary", "runbook"}
        assert 'namespace="logs"' in rule["expr"]


def test_alerts_use_metrics_that_there_are():
    documented = (CHART.parent.parent / "docs" / "node.md").read_text()
    (group,) = only(rendered(VALUES["monitoring"]), "PrometheusRule", "shardlog")["spec"]["groups"]
    names = {name for rule in group["rules"] for name in re.findall(r"shardlog_\w+", rule["expr"])}
    assert names
    for name in names:
        assert f"`{name}`" in documented


def granted(rules: list[dict[str, Any]]) -> set[tuple[str, str, str]]:
    return {
        (group, resource, verb)
        for rule in rules
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def test_the_operator_may_do_what_its_document_lists():
    """With which it is run against a real API server (`e2e/operated/test_permissions.py`)."""
    manifests = rendered()
    own, cluster = documented_rules()
    assert granted(only(manifests, "Role", "shardlog-operator")["rules"]) == granted(own)
    role = only(manifests, "ClusterRole", "logs-shardlog-operator")
    assert granted(role["rules"]) == granted(cluster)


def test_the_operator_may_do_what_it_does_and_no_more():
    manifests = rendered()
    role = only(manifests, "Role", "shardlog-operator")
    for rule in role["rules"]:
        assert "*" not in rule["verbs"] + rule["resources"] + rule["apiGroups"]
    resources = {resource for rule in role["rules"] for resource in rule["resources"]}
    assert not resources & {"secrets", "configmaps", "pods/exec", "roles", "rolebindings"}
    cluster = only(manifests, "ClusterRole", "logs-shardlog-operator")
    assert cluster["rules"] == [{"apiGroups": [""], "resources": ["nodes"], "verbs": ["get"]}]
    assert not [
        each for each in rendered(VALUES["everything off"]) if each["kind"].startswith("Cluster")
    ]


@pytest.mark.parametrize("values", VALUES.values(), ids=VALUES)
def test_programs_take_the_settings_they_are_given(
    values: dict[str, Any], monkeypatch: pytest.MonkeyPatch
):
    """With what Kubernetes fills in: the names of the pod and of its namespace."""
    monkeypatch.setenv("SHARDLOG_OPERATOR_NAME", "shardlog-operator-1")
    monkeypatch.setenv("SHARDLOG_OPERATOR_NAMESPACE", "logs")
    monkeypatch.setenv("SHARDLOG_NODE_NAME", "shardlog-node-0")
    seen = set()
    for each in rendered(values):
        if each["kind"] in ("Deployment", "StatefulSet"):
            component = each["metadata"]["labels"]["app.kubernetes.io/component"]
            seen.add(component)
            for name, value in environment(each).items():
                monkeypatch.setenv(name, value)
            if component == "operator":
                told = load_operator([])
                pods = each["metadata"]["labels"]["app.kubernetes.io/instance"]
                assert f"app.kubernetes.io/instance={pods}" in told.node_selector
                assert told.plain == (values.get("tls", {}).get("mode", "plain") == "plain")
            elif component == "node":
                assert load_node([]).data_host == "0.0.0.0"
    assert {"operator", "node"} <= seen
