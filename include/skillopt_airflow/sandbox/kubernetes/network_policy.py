"""The NetworkPolicy of an installation's sandboxes on Kubernetes.

`python -m skillopt_airflow.sandbox.kubernetes.network_policy NAMESPACE NETWORK:PORT...` prints it as YAML for
`kubectl apply -f -`. Pass the networks of the model's provider and of the object store.
"""

import ipaddress
import sys
from collections.abc import Sequence

import yaml

from skillopt_airflow.core.errors import ConfigError
from skillopt_airflow.core.values.types import JsonObject
from skillopt_airflow.sandbox.kubernetes.pod import APP, APP_LABEL

DNS_PORT = 53
MAX_PORT = 65535


def network_policy(namespace: str, allowed: Sequence[str]) -> JsonObject:
    """Return a policy that only allows DNS queries to the cluster and connections to `allowed`.

    These are networks with a port, such as 192.0.2.0/24:443. A NetworkPolicy can't contain host names.
    """
    dns: JsonObject = {
        "to": [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "kube-system"}}}],
        "ports": [{"protocol": protocol, "port": DNS_PORT} for protocol in ("UDP", "TCP")],
    }
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": {"name": APP, "namespace": namespace},
        "spec": {
            "podSelector": {"matchLabels": {APP_LABEL: APP}},
            "policyTypes": ["Ingress", "Egress"],
            "ingress": [],
            "egress": [dns, *(_rule(text) for text in allowed)],
        },
    }


def _rule(text: str) -> JsonObject:
    network, _, port = text.rpartition(":")
    try:
        block = ipaddress.ip_network(network)
    except ValueError:
        block = None
    if block is None or block.prefixlen == 0 or not (port.isdecimal() and 0 < int(port) <= MAX_PORT):
        raise ConfigError(f"{text!r}: expected a network and a port, such as 192.0.2.0/24:443")
    return {"to": [{"ipBlock": {"cidr": str(block)}}], "ports": [{"protocol": "TCP", "port": int(port)}]}


if __name__ == "__main__":
    sys.stdout.write(yaml.safe_dump(network_policy(sys.argv[1], sys.argv[2:]), sort_keys=False))
