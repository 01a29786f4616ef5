"""Rules that the manifests of k8s/ keep, and ways to break each that must be found; scripts/check-k8s asks for them."""

import base64
import ipaddress
import os
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
WORKLOADS = {"Deployment", "StatefulSet"}
# What level 3 asks for beyond `restricted`, in the pods of plugins alone (k8s/components/level-3).
MORE = {("asp-runtime", "procMount", "Unmasked")}
# Where the API server, other teams' databases and the node's own services are (RFC 1918, 3927, 4193, 4291, 6598).
PRIVATE = [ipaddress.ip_network(each) for each in (
    "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12", "192.168.0.0/16", "::1/128", "fc00::/7", "fe80::/10",
)]
# The network of stores in k8s/base until an overlay names its own: no host is there (RFC 5737).
UNNAMED = ipaddress.ip_network("192.0.2.0/24")
STORES = ("asp-postgres", "asp-redis")
# Images of the platform, which an operator builds and names.
OWN_IMAGE = re.compile(r"(^|/)asp(-edge|-filter|-runtime(-[a-z]+)?)?(:[^/]*)?(@sha256:[0-9a-f]{64})?$")


def faults(documents, production):
    """Every rule that a set of manifests breaks."""
    found = []
    policies = [selector(document["spec"]["podSelector"]) for document in documents
                if document["kind"] == "NetworkPolicy" and admits(document["spec"])]
    budgets = [selector(document["spec"]["selector"]) for document in documents if document["kind"] == "PodDisruptionBudget"]
    scaled = {document["spec"]["scaleTargetRef"]["name"] for document in documents if document["kind"] == "HorizontalPodAutoscaler"}
    for document in documents:
        name = f"{document['kind']} {document['metadata']['name']}"
        if document["kind"] != "Namespace" and document["metadata"].get("namespace") != "asp":
            found.append(f"{name}: is put where kubectl happens to be")
        if document["kind"] == "Secret" and (document.get("data") or document.get("stringData")):
            found.append(f"{name}: a secret is in the manifests")
        if document["kind"] == "ConfigMap":
            found += [f"{name}: {key} has a secret in it" for key, text in (document.get("data") or {}).items() if is_secret(text)]
            found += [f"{name}: {fault}" for fault in envoy_faults((document.get("data") or {}).get("envoy.yaml"))]
        if document["kind"] == "Service" and name == "Service asp-admin" and document["spec"].get("publishNotReadyAddresses"):
            found.append(f"{name}: leads to control planes that are not ready")
        if document["kind"] == "PodDisruptionBudget" and document["spec"].get("unhealthyPodEvictionPolicy") != "AlwaysAllow":
            found.append(f"{name}: a pod that is not ready is in the way of who empties a node")
        if document["kind"] == "NetworkPolicy":
            found += [f"{name}: {fault}" for rule in document["spec"].get("egress", []) for fault in egress_faults(rule)]
        if document["kind"] in WORKLOADS:
            template = document["spec"]["template"]
            found += [f"{name}: {fault}" for fault in pod_faults(template)]
            if document["kind"] == "StatefulSet" and document["spec"].get("podManagementPolicy") != "Parallel":
                found.append(f"{name}: a pod that never gets ready is not taken back")
            labels = template["metadata"]["labels"]
            if not any(matches(labels) for matches in policies):
                found.append(f"{name}: no network policy says who may come")
            if production:
                if not any(matches(labels) for matches in budgets):
                    found.append(f"{name}: no disruption budget")
            # A control plane takes part in no call: its number is said, and says that losing one stops no change.
            if production and document["metadata"]["name"] == "asp-control":
                if document["spec"].get("replicas", 1) < 2:
                    found.append(f"{name}: there is one of it")
                if "ASP_S3_URL" not in {each["name"] for each in template["spec"]["containers"][0].get("env", [])}:
                    found.append(f"{name}: packages of plugins are on the disk of one of them")
            elif production:
                if document["metadata"]["name"] not in scaled or "replicas" in document["spec"]:
                    found.append(f"{name}: its number is not the autoscaler's")
    if not any(document["kind"] == "NetworkPolicy" and not document["spec"]["podSelector"] and "ingress" not in document["spec"]
               and len(document["spec"]["policyTypes"]) == 2 for document in documents):
        found.append("no policy denies what no other allows")
    return found + pool_faults(documents)


def pool_faults(documents):
    """Of the gateways of pools: every network policy of the pool `gateway` holds for them."""
    gateways = {document["metadata"]["name"]: document["spec"]["template"]["metadata"]["labels"] for document in documents
                if document["kind"] == "StatefulSet" and document["metadata"]["name"].startswith("asp-gateway")}
    own = gateways.pop("asp-gateway", None)
    policies = {document["metadata"]["name"]: selector(document["spec"]["podSelector"]) for document in documents
                if document["kind"] == "NetworkPolicy"}
    return [f"NetworkPolicy {policy}: holds for asp-gateway and not for {name}" for policy, matches in policies.items()
            for name, labels in gateways.items() if own and matches(own) and not matches(labels)]


def selector(asked):
    def matches(labels):
        wanted = asked.get("matchLabels", {}).items() <= labels.items()
        return wanted and all(labels.get(each["key"]) in each["values"] for each in asked.get("matchExpressions", []))

    return matches


def admits(policy):
    """Whether it lets somebody in, to more than metrics."""
    return any([port["port"] for port in rule.get("ports", [])] != ["figures"] for rule in policy.get("ingress", []))


def egress_faults(rule):
    """Of a rule that lets pods out: it says where to, and a private network is reached only where it is named."""
    found = [] if rule.get("to") else ["lets out to every address"]
    for peer in rule.get("to") or []:
        if peer.get("namespaceSelector") == {} and not peer.get("podSelector"):
            found.append("lets out to every pod of the cluster")
        if "ipBlock" in peer:
            block = ipaddress.ip_network(peer["ipBlock"]["cidr"])
            left_out = [ipaddress.ip_network(each) for each in peer["ipBlock"].get("except", [])]
            within = [each for each in PRIVATE if each.version == block.version and each.subnet_of(block)]
            found += [f"lets out to {block}, and so to all of {each}: name the network within it" for each in within
                      if not any(each.subnet_of(other) for other in left_out if other.version == each.version)]
    return found


def unnamed_stores(documents):
    """Of an overlay that is to run: the network of its stores is its own."""
    policies = [document for document in documents if document["kind"] == "NetworkPolicy"]
    peers = [(each["metadata"]["name"], peer) for each in policies for rule in each["spec"].get("egress", []) for peer in rule.get("to") or []]
    names = [name for name, peer in peers if "ipBlock" in peer and ipaddress.ip_network(peer["ipBlock"]["cidr"]) == UNNAMED]
    return [f"NetworkPolicy {name}: lets out to {UNNAMED}, where no host is: replace it in the overlay, by a patch of `to` in this "
            f"policy, with the networks of PostgreSQL and Redis (docs/operations.md, Install)" for name in names]


def is_secret(text):
    return bool(re.search(r"PRIVATE KEY|://[^\s/:@]+:[^\s/@]+@|\b(password|passwd|secret|token)\b\s*[:=]\s*\S", text, re.IGNORECASE))


def mesh_faults(documents, manifests):
    """Of envoy/istio and envoy/gateway, `documents`, beside what prod-mesh renders."""
    services = {each["metadata"]["name"]: each["spec"] for each in manifests if each["kind"] == "Service"}
    hosts = []
    for document in documents:
        spec = document.get("spec") or {}
        routes = [each for rule in spec.get("http", []) for each in rule.get("route", [])]
        hosts += [each["destination"]["host"] for each in routes]
        hosts += [spec["host"]] if document["kind"] == "DestinationRule" else []
        hosts += [each["name"] for rule in spec.get("rules", []) for each in rule.get("backendRefs", [])]
    names = [host.split(".")[0] for host in hosts]
    found = [f"leads to the Service {name}, which is not there" for name in names if name not in services]
    found += [f"leads to the Service {name}, and to gateways that are not ready" for name in names
              if services.get(name, {}).get("publishNotReadyAddresses")]
    (policy,) = [each["spec"] for each in manifests if each["kind"] == "NetworkPolicy" and each["metadata"]["name"] == "asp-ingress-of-a-mesh"]
    (peer,) = policy["ingress"][0]["from"]
    (admitted,) = peer["namespaceSelector"]["matchExpressions"]
    # Of Deployments, and of what an EnvoyProxy's pods mount, whose namespace is that of the ConfigMap.
    pods = [each["metadata"]["namespace"] for each in documents if each["kind"] in ("Deployment", "ConfigMap", "Gateway")]
    found += [f"has Envoys in {each}, which the network policy keeps out" for each in pods if each not in admitted["values"]]
    for document in documents:
        if document["kind"] == "DestinationRule" and "outlierDetection" not in document["spec"]["trafficPolicy"]:
            found.append("leads to gateways that cannot be reached")
    return found if names else ["leads to no Service"]


def envoy_faults(text):
    """Of an Envoy's configuration: what clients hold keeps nobody from its probes and its admin port."""
    import yaml

    config = yaml.load(text, yaml.CSafeLoader) if text else {}
    first, *others = config.get("static_resources", {}).get("listeners", [{}])
    found = []
    if any("transport_socket_connect_timeout" not in chain for chain in first.get("filter_chains", []) if "transport_socket" in chain):
        found.append(f"who says nothing to the listener {first['name']} is never let go")
    if "global_downstream_max_connections" in str(config.get("overload_manager")):
        exempt = [config["admin"], *others]
        found += [f"connections of clients close {each.get('name', 'admin')}" for each in exempt if not each.get("ignore_global_conn_limit")]
        found += [f"little memory closes {each['name']}" for each in others if not each.get("bypass_overload_manager")]
    return found


def pod_faults(template):
    pod, labels = template["spec"], template["metadata"]["labels"]
    found = []
    context = pod.get("securityContext", {})
    if not context.get("runAsNonRoot") or context.get("runAsUser", 0) < 1:
        found.append("may run as root")
    if context.get("seccompProfile", {}).get("type") not in ("RuntimeDefault", "Localhost"):
        found.append("no seccomp profile")
    if pod.get("automountServiceAccountToken") is not False:
        found.append("has a token of the API server")
    found += [f"{key} is the node's" for key in ("hostNetwork", "hostPID", "hostIPC") if pod.get(key)]
    found += [f"volume {volume['name']} is the node's" for volume in pod.get("volumes", []) if "hostPath" in volume]
    if labels["app.kubernetes.io/name"] not in STORES and pod.get("terminationGracePeriodSeconds", 0) < 40:
        found.append("less than 40 s to drain, which processes take up to 25 s of")
    if labels["app.kubernetes.io/name"] == "asp-edge" and not has_snapshot(pod["containers"][0]):
        found.append("is let in before it has a snapshot, and refuses everything")
    for container in pod["containers"]:
        left = pod.get("terminationGracePeriodSeconds", 30) - before_end(container)
        if left < 5:
            found.append(f"container {container['name']} is killed {left} s after its preStop")
        if "ASP_DATABASE_URL" in {each["name"] for each in container.get("env", [])} and starts_within(container) < migrated_within():
            found.append(f"container {container['name']} is ended while tables are brought up to date")
        if container["name"] == "admin-door" and before_end(container) <= 25:
            found.append("Envoy ends before the requests that it passed on")
        if container["name"] == "envoy" and before_end(container) < 30:
            found.append("Envoy ends before balancers have gone elsewhere")
    for container in pod.get("initContainers", []) + pod["containers"]:
        found += [f"container {container['name']} {fault}" for fault in container_faults(container, labels)]
    return found


def has_snapshot(container):
    return container.get("startupProbe", {}).get("exec", {}).get("command") == ["/usr/local/bin/has-snapshot"]


def migrated_within():
    """Seconds for which a process waits until another one has brought the tables up to date."""
    source = (ROOT / "control-plane/store/src/postgres/schema.rs").read_text()
    return int(re.search(r"MIGRATED_WITHIN: Duration = Duration::from_secs\((\d+)\)", source)[1])


def starts_within(container):
    probe = container.get("startupProbe", {})
    return probe.get("periodSeconds", 10) * probe.get("failureThreshold", 3)


def before_end(container):
    """Seconds of its preStop at most."""
    before = container.get("lifecycle", {}).get("preStop", {})
    if "exec" in before:
        return int(before["exec"]["command"][1])
    return before.get("sleep", {}).get("seconds", 0)


def commands(container):
    """Programs that the kubelet runs in it."""
    asked = [container.get(probe, {}) for probe in ("startupProbe", "readinessProbe", "livenessProbe")]
    asked += [container.get("lifecycle", {}).get("preStop", {})]
    return [each["exec"]["command"][0] for each in asked if "exec" in each]


def container_faults(container, labels):
    found = []
    context = container.get("securityContext", {})
    if not context.get("readOnlyRootFilesystem"):
        found.append("may write its root")
    if context.get("allowPrivilegeEscalation") is not False:
        found.append("may gain privileges")
    if context.get("capabilities") != {"drop": ["ALL"]}:
        found.append("has capabilities")
    known = {"readOnlyRootFilesystem", "allowPrivilegeEscalation", "capabilities"}
    more = {(labels["app.kubernetes.io/name"], key, value) for key, value in context.items() if key not in known}
    found += [f"has {key}: {value}" for _, key, value in sorted(more - MORE)]
    image = container["image"]
    if not OWN_IMAGE.search(image) and "@sha256:" not in image:
        found.append(f"is of the image {image}, whose digest is not said")
    if "redis-server" in container.get("args", []) and "--requirepass" not in container["args"]:
        found.append("takes everybody without a password")
    resources = container.get("resources", {})
    if not {"cpu", "memory"} <= resources.get("requests", {}).keys() or "memory" not in resources.get("limits", {}):
        found.append("has no requests, or no limit of memory")
    found += [f"has no {probe}" for probe in ("readinessProbe", "livenessProbe") if probe not in container]
    if labels["app.kubernetes.io/name"].startswith("asp-e"):
        scripts = [ROOT / "k8s/images" / Path(command).name for command in commands(container)]
        found += [f"runs {script.name}, which no image has" for script in scripts if not os.access(script, os.X_OK)]
    for variable in container.get("env", []):
        secret = re.search(r"KEY$|PASSWORD|TOKEN|SECRET|DATABASE_URL|REDIS_URL", variable["name"])
        path = str(variable.get("value", "")).startswith("/")
        if secret and not path and "secretKeyRef" not in variable.get("valueFrom", {}):
            found.append(f"is given {variable['name']} in clear")
    return found


# === what must be found ===


def breaks():
    """Each is one way to break the manifests of production."""
    def first(documents, kind, name):
        return next(document for document in documents if document["kind"] == kind and document["metadata"]["name"] == name)

    def container(documents):
        return first(documents, "StatefulSet", "asp-gateway")["spec"]["template"]["spec"]["containers"][0]

    def pod(documents):
        return first(documents, "Deployment", "asp-edge")["spec"]["template"]["spec"]

    def in_envoy(documents, old, new):
        (data,) = [each["data"] for each in documents if each["kind"] == "ConfigMap" and each["metadata"]["name"].startswith("asp-edge-")]
        data["envoy.yaml"] = data["envoy.yaml"].replace(old, new)

    def without(kind, name):
        return lambda documents: documents.remove(first(documents, kind, name))

    return {
        "runs as root": lambda d: pod(d)["securityContext"].update(runAsUser=0),
        "writes its root": lambda d: container(d)["securityContext"].update(readOnlyRootFilesystem=False),
        "keeps a capability": lambda d: container(d)["securityContext"].update(capabilities={"drop": ["ALL"], "add": ["NET_RAW"]}),
        "is privileged": lambda d: container(d)["securityContext"].update(privileged=True),
        "unmasks /proc outside of a runtime": lambda d: container(d)["securityContext"].update(procMount="Unmasked"),
        "no seccomp": lambda d: pod(d)["securityContext"].pop("seccompProfile"),
        "a token of the API server": lambda d: pod(d).pop("automountServiceAccountToken"),
        "the node's files": lambda d: pod(d)["volumes"].append({"name": "node", "hostPath": {"path": "/"}}),
        "no probe": lambda d: container(d).pop("readinessProbe"),
        "no limit": lambda d: container(d)["resources"].pop("limits"),
        "no way back": lambda d: first(d, "StatefulSet", "asp-control")["spec"].pop("podManagementPolicy"),
        "ended while it migrates": lambda d: container(d)["startupProbe"].update(failureThreshold=449),
        "the admin API's door first": lambda d: first(d, "StatefulSet", "asp-control")["spec"]["template"]["spec"]["containers"][1].pop("lifecycle"),
        "admins sent to who is not ready": lambda d: first(d, "Service", "asp-admin")["spec"].update(publishNotReadyAddresses=True),
        "no snapshot asked for": lambda d: pod(d)["containers"][0].update(startupProbe={"httpGet": {"path": "/ready", "port": "figures"}}),
        "a probe of no image": lambda d: pod(d)["containers"][0]["livenessProbe"].update(exec={"command": ["/usr/local/bin/nothing"]}),
        "killed as it drains": lambda d: pod(d)["containers"][0]["lifecycle"]["preStop"]["exec"].update(command=["/usr/local/bin/drain", "45"]),
        "ends at once": lambda d: pod(d)["containers"][0].pop("lifecycle"),
        "probes that clients close": lambda d: in_envoy(d, "ignore_global_conn_limit: true", "ignore_global_conn_limit: false"),
        "probes that memory closes": lambda d: in_envoy(d, "bypass_overload_manager: true", "bypass_overload_manager: false"),
        "silence for ever": lambda d: in_envoy(d, "transport_socket_connect_timeout: 10s", "continue_on_listener_filters_timeout: true"),
        "no time to drain": lambda d: pod(d).update(terminationGracePeriodSeconds=5),
        "a key in clear": lambda d: container(d)["env"].append({"name": "ASP_SEAL_KEY", "value": "x" * 32}),
        "a password in settings": lambda d: d.append({"kind": "ConfigMap", "metadata": {"name": "x", "namespace": "asp"}, "data": {"url": "postgres://u:p@h/d"}}),
        "a secret": lambda d: d.append({"kind": "Secret", "metadata": {"name": "x", "namespace": "asp"}, "data": {"key": base64.b64encode(b"k").decode()}}),
        "somewhere": lambda d: first(d, "PodDisruptionBudget", "asp-gateway")["metadata"].pop("namespace"),
        "no policy": without("NetworkPolicy", "asp-edge"),
        "nothing denied": without("NetworkPolicy", "asp-nobody"),
        "out to anywhere": lambda d: first(d, "NetworkPolicy", "asp-gateway")["spec"]["egress"][-1].pop("to"),
        "out to nothing that is named": lambda d: first(d, "NetworkPolicy", "asp-control")["spec"]["egress"][0].update(to=[]),
        "out to private networks": lambda d: first(d, "NetworkPolicy", "asp-runtime")["spec"]["egress"][0]["to"][0]["ipBlock"].pop("except"),
        "out to the node's metadata": lambda d: first(d, "NetworkPolicy", "asp-gateway")["spec"]["egress"][-1]["to"][0]["ipBlock"]["except"].remove("169.254.0.0/16"),
        "out to private networks of IPv6": lambda d: first(d, "NetworkPolicy", "asp-control")["spec"]["egress"][-1]["to"][1]["ipBlock"].update({"except": ["::1/128"]}),
        "out to all of a private range": lambda d: first(d, "NetworkPolicy", "asp-to-stores")["spec"]["egress"][0].update(to=[{"ipBlock": {"cidr": "10.0.0.0/8"}}]),
        "an image without a digest": lambda d: container(d).update(image="docker.io/library/redis:7"),
        "a Redis for everybody": lambda d: container(d).update(args=["redis-server", "--save", ""]),
        "out to every namespace": lambda d: first(d, "NetworkPolicy", "asp-names")["spec"]["egress"][0].update(to=[{"namespaceSelector": {}}]),
        "no budget": without("PodDisruptionBudget", "asp-gateway"),
        "no way to empty a node": lambda d: first(d, "PodDisruptionBudget", "asp-gateway")["spec"].pop("unhealthyPodEvictionPolicy"),
        "no autoscaler": without("HorizontalPodAutoscaler", "asp-runtime-java"),
        "one control plane": lambda d: first(d, "StatefulSet", "asp-control")["spec"].update(replicas=1),
        "packages on one disk": lambda d: first(d, "StatefulSet", "asp-control")["spec"]["template"]["spec"]["containers"][0].update(env=[]),
        "no budget of control planes": without("PodDisruptionBudget", "asp-control"),
    }


def breaks_of_pools():
    """Each is one way to break the manifests of production with the pool `heavy` behind a mesh."""
    def forgotten(policy):
        def forget(documents):
            (found,) = [each for each in documents if each["kind"] == "NetworkPolicy" and each["metadata"]["name"] == policy]
            (named,) = found["spec"]["podSelector"]["matchExpressions"]
            named["values"] = [each for each in named["values"] if each != "asp-gateway-heavy"]

        return forget

    return {
        "a pool that the Envoys of a mesh do not reach": forgotten("asp-ingress-of-a-mesh"),
        "a pool that does not reach the stores": forgotten("asp-to-stores"),
    }
