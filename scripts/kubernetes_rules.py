"""Rules that the manifests of k8s/ keep, and ways to break each that must be found; scripts/check-k8s asks for them."""

import base64
import re

WORKLOADS = {"Deployment", "StatefulSet"}
# What level 3 asks for beyond `restricted`, in the pods of plugins alone (k8s/components/level-3).
MORE = {("asp-runtime", "procMount", "Unmasked")}


def faults(documents, production):
    """Every rule that a set of manifests breaks."""
    found = []
    policies = [selector(document["spec"]["podSelector"]) for document in documents
                if document["kind"] == "NetworkPolicy" and admits(document["spec"])]
    budgets = [selector(document["spec"]["selector"]) for document in documents if document["kind"] == "PodDisruptionBudget"]
    scaled = {document["spec"]["scaleTargetRef"]["name"] for document in documents if document["kind"] == "HorizontalPodAutoscaler"}
    for document in documents:
        name = f"{document['kind']} {document['metadata']['name']}"
        if document["kind"] == "Secret" and (document.get("data") or document.get("stringData")):
            found.append(f"{name}: a secret is in the manifests")
        if document["kind"] == "ConfigMap":
            found += [f"{name}: {key} has a secret in it" for key, text in (document.get("data") or {}).items() if is_secret(text)]
        if document["kind"] in WORKLOADS:
            template = document["spec"]["template"]
            found += [f"{name}: {fault}" for fault in pod_faults(template)]
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
    return found


def selector(asked):
    def matches(labels):
        wanted = asked.get("matchLabels", {}).items() <= labels.items()
        return wanted and all(labels.get(each["key"]) in each["values"] for each in asked.get("matchExpressions", []))

    return matches


def admits(policy):
    """Whether it lets somebody in, to more than metrics."""
    return any([port["port"] for port in rule.get("ports", [])] != ["figures"] for rule in policy.get("ingress", []))


def is_secret(text):
    return bool(re.search(r"PRIVATE KEY|://[^\s/:@]+:[^\s/@]+@|\b(password|passwd|secret|token)\b\s*[:=]\s*\S", text, re.IGNORECASE))


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
    stores = labels["app.kubernetes.io/name"] in ("asp-postgres", "asp-redis")
    if not stores and pod.get("terminationGracePeriodSeconds", 0) < 40:
        found.append("less than 40 s to drain, which processes take up to 25 s of")
    for container in pod.get("initContainers", []) + pod["containers"]:
        found += [f"container {container['name']} {fault}" for fault in container_faults(container, labels)]
    return found


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
    resources = container.get("resources", {})
    if not {"cpu", "memory"} <= resources.get("requests", {}).keys() or "memory" not in resources.get("limits", {}):
        found.append("has no requests, or no limit of memory")
    found += [f"has no {probe}" for probe in ("readinessProbe", "livenessProbe") if probe not in container]
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
        "no time to drain": lambda d: pod(d).update(terminationGracePeriodSeconds=5),
        "a key in clear": lambda d: container(d)["env"].append({"name": "ASP_SEAL_KEY", "value": "x" * 32}),
        "a password in settings": lambda d: d.append({"kind": "ConfigMap", "metadata": {"name": "x"}, "data": {"url": "postgres://u:p@h/d"}}),
        "a secret": lambda d: d.append({"kind": "Secret", "metadata": {"name": "x"}, "data": {"key": base64.b64encode(b"k").decode()}}),
        "no policy": without("NetworkPolicy", "asp-edge"),
        "nothing denied": without("NetworkPolicy", "asp-nobody"),
        "no budget": without("PodDisruptionBudget", "asp-gateway"),
        "no autoscaler": without("HorizontalPodAutoscaler", "asp-runtime-java"),
        "one control plane": lambda d: first(d, "StatefulSet", "asp-control")["spec"].update(replicas=1),
        "packages on one disk": lambda d: first(d, "StatefulSet", "asp-control")["spec"]["template"]["spec"]["containers"][0].update(env=[]),
        "no budget of control planes": without("PodDisruptionBudget", "asp-control"),
    }
