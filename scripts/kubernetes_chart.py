"""The Helm chart of k8s/chart, made of what kustomize renders for overlays/prod-restricted; scripts/check-k8s asks for it.

Written by hand are Chart.yaml, values.yaml, and the templates of what an installation gives: settings.yaml, secrets.yaml, kafka.yaml. Every other
template is made here, so that both ways to install give the same objects; with ci/values.yaml the chart renders what the overlay does.
"""

import copy
import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CHART = ROOT / "k8s/chart"
OVERLAY = "prod-restricted"
LANGUAGES = ("python", "node", "java")
# Objects of templates written by hand, and one that `helm --create-namespace` makes.
BY_HAND = {("ConfigMap", "asp-settings"), ("ConfigMap", "asp-issuers"), ("Namespace", "asp")}
HEAD = "# Made by `scripts/check-k8s --write` of k8s/overlays/prod-restricted; change it there.\n"
# Secrets that the chart makes unless the values name another one.
SECRETS = {
    "asp-database": "database.existingSecret", "asp-redis": "redis.existingSecret", "asp-s3": "objectStore.existingSecret",
    "asp-seal": "seal.existingSecret", "asp-edge-tls": "edge.tls.existingSecret",
}
# Items of lists, in place of one with the name `@@block NAME@@`.
BLOCKS = {
    "s3": """{{- if .Values.objectStore.enabled }}
- name: ASP_S3_URL
  valueFrom: { secretKeyRef: { name: @secret@, key: url } }
- name: ASP_S3_REGION
  valueFrom: { secretKeyRef: { name: @secret@, key: region, optional: true } }
- name: ASP_S3_ACCESS_KEY_ID
  valueFrom: { secretKeyRef: { name: @secret@, key: access-key-id } }
- name: ASP_S3_SECRET_ACCESS_KEY
  valueFrom: { secretKeyRef: { name: @secret@, key: secret-access-key } }
{{- end }}""".replace("@secret@", '{{ .Values.objectStore.existingSecret | default "asp-s3" }}'),
    "kafka": """{{- if .Values.kafka.enabled }}
- name: ASP_KAFKA_BROKERS
  value: {{ required "kafka.brokers: host:port of each" .Values.kafka.brokers | quote }}
- name: ASP_KAFKA_ORGS
  value: {{ required "kafka.orgs: the orgs in which the topic may revoke" .Values.kafka.orgs | quote }}
{{- with .Values.kafka.topic }}
- { name: ASP_KAFKA_TOPIC, value: {{ . | quote }} }
{{- end }}
{{- with .Values.kafka.group }}
- { name: ASP_KAFKA_GROUP, value: {{ . | quote }} }
{{- end }}
{{- with .Values.kafka.existingSecret }}
- name: ASP_KAFKA_USER
  valueFrom: { secretKeyRef: { name: {{ . }}, key: user } }
- name: ASP_KAFKA_PASSWORD
  valueFrom: { secretKeyRef: { name: {{ . }}, key: password } }
{{- end }}
{{- end }}""",
    "credentials_env": """{{- if .Values.credentials.existingSecret }}
- { name: ASP_CREDENTIALS, value: /etc/asp/credentials/credentials.json }
{{- end }}""",
    "credentials_mount": """{{- if .Values.credentials.existingSecret }}
- { name: credentials, mountPath: /etc/asp/credentials, readOnly: true }
{{- end }}""",
    "credentials_volume": """{{- if .Values.credentials.existingSecret }}
- { name: credentials, secret: { secretName: {{ .Values.credentials.existingSecret }}, defaultMode: 288 } }
{{- end }}""",
    "stores": """{{- range required "storesNetworks: the networks of PostgreSQL and Redis, as CIDR" .Values.storesNetworks }}
- ipBlock: { cidr: {{ . }} }
{{- end }}""",
}


def plain(name):
    """The name of a ConfigMap without the hash of its content."""
    return re.sub(r"-[a-z0-9]{10}$", "", name)


def key(document):
    name = document["metadata"]["name"]
    return document["kind"], plain(name) if document["kind"] == "ConfigMap" else name


def named(text):
    """What refers to a ConfigMap or Secret, by the chart's names."""
    if isinstance(text, dict):
        made = {name: named(value) for name, value in text.items()}
        for reference in ("configMapRef", "configMap"):
            if isinstance(made.get(reference), dict):
                made[reference]["name"] = plain(made[reference]["name"])
        return made
    return [named(each) for each in text] if isinstance(text, list) else text


def with_values(document):
    """A document with marks where values go."""
    document = named(copy.deepcopy(document))
    kind, name = key(document)
    document["metadata"]["name"] = name
    spec = document.get("spec", {})
    if kind == "HorizontalPodAutoscaler":
        part = name.removeprefix("asp-").removeprefix("runtime-")
        place = f"runtimes.{part}" if part in LANGUAGES else part
        spec["minReplicas"], spec["maxReplicas"] = f"@@{place}.minReplicas@@", f"@@{place}.maxReplicas@@"
    if kind == "NetworkPolicy" and name == "asp-to-stores":
        spec["egress"][0]["to"] = [{"name": "@@block stores@@"}]
    if kind in ("Deployment", "StatefulSet"):
        if name == "asp-control":
            spec["replicas"] = "@@control@@"
        pods(name, spec["template"])
    return document


def pods(name, template):
    annotations = template["metadata"].setdefault("annotations", {})
    annotations["asp/settings"] = "@@checksum@@"
    inside = template["spec"]
    for container in inside["containers"] + inside.get("initContainers", []):
        container["image"] = image(container["image"])
        entries = container.get("env", [])
        if any(each["name"] == "ASP_S3_URL" for each in entries):
            container["env"] = [each for each in entries if not each["name"].startswith("ASP_S3_")] + [{"name": "@@block s3@@"}]
    if name == "asp-control":
        inside["containers"][0]["env"].append({"name": "@@block kafka@@"})
    if name == "asp-gateway":
        own = inside["containers"][0]
        own["env"].append({"name": "@@block credentials_env@@"})
        own["volumeMounts"].append({"name": "@@block credentials_mount@@"})
        inside["volumes"].append({"name": "@@block credentials_volume@@"})


def image(text):
    name = text.rsplit("/", 1)[-1].split(":")[0]
    language = name.removeprefix("asp-runtime-")
    return f"@@runtime {language}@@" if language in LANGUAGES else f"@@image {name}@@"


def templated(text):
    """YAML with marks as a template."""
    image = "{{ .Values.image.registry }}/NAME:{{ .Values.image.tag | default .Chart.AppVersion }}"
    text = re.sub(r"'?@@image ([a-z-]+)@@'?", lambda m: f'"{image.replace("NAME", m[1])}"', text)

    def of_runtime(match):
        made = f'(printf "%s/asp-runtime-{match[1]}:%s" .Values.image.registry (.Values.image.tag | default .Chart.AppVersion))'
        return f"{{{{ .Values.runtimes.{match[1]}.image | default {made} | quote }}}}"

    text = re.sub(r"'?@@runtime ([a-z]+)@@'?", of_runtime, text)
    text = re.sub(r"'?@@control@@'?", "{{ ternary 2 1 .Values.objectStore.enabled }}", text)
    text = re.sub(r"'?@@checksum@@'?", '{{ include (print .Template.BasePath "/settings.yaml") . | sha256sum }}', text)
    text = re.sub(r"'?@@([a-zA-Z.]+)@@'?", r"{{ .Values.\1 }}", text)

    def block(match):
        return "".join(f"{match[1]}{line}\n" for line in BLOCKS[match[2]].split("\n"))

    text = re.sub(r"^( *)- name: '?@@block ([a-z0-9_]+)@@'?\n", block, text, flags=re.M)
    for secret, value in SECRETS.items():
        chosen = f'{{{{ .Values.{value} | default "{secret}" }}}}'
        text = re.sub(rf"^( *-? *(?:secretName|name): ){secret}$", rf"\g<1>{chosen}", text, flags=re.M)
    text = text.replace("namespace: asp\n", "namespace: {{ .Release.Namespace }}\n").replace(".asp.svc", ".{{ .Release.Namespace }}.svc")
    return text.replace("spiffe://cluster.local/", "spiffe://{{ .Values.trustDomain }}/")


def condition(document):
    kind, name = key(document)
    language = name.removeprefix("asp-runtime-").removesuffix("-peer")
    if name.startswith("asp-runtime-") and language in LANGUAGES:
        enabled = f".Values.runtimes.{language}.enabled"
        return f"and {enabled} .Values.certManager.enabled" if kind == "Certificate" else enabled
    if kind in ("Certificate", "Issuer"):
        return ".Values.certManager.enabled"
    return ".Values.objectStore.enabled" if (kind, name) == ("PodDisruptionBudget", "asp-control") else None


def templates(documents, dump):
    """The text of each template that is made, by path."""
    files = {}
    for document in documents:
        kind, name = key(document)
        if (kind, name) in BY_HAND:
            continue
        text = templated(dump(with_values(document)))
        guard = condition(document)
        text = f"{{{{- if {guard} }}}}\n---\n{text}{{{{- end }}}}\n" if guard else f"---\n{text}"
        plural = re.sub("ys$", "ies", f"{kind.lower()}s")
        path = CHART / "templates" / f"{plural}.yaml"
        files[path] = files.get(path, HEAD) + text
    return files


def comparable(documents):
    """Documents by kind and name, without what differs between kustomize and Helm by design."""
    made = {}
    for document in map(named, documents):
        kind, name = key(document)
        if kind in ("Secret", "Namespace"):
            continue
        document["metadata"]["name"] = name
        template = document.get("spec", {}).get("template", {}) if kind in ("Deployment", "StatefulSet") else {}
        annotations = template.get("metadata", {}).get("annotations", {})
        annotations.pop("asp/settings", None)
        if template and not annotations:
            template["metadata"].pop("annotations", None)
        if template:
            for container in template["spec"]["containers"] + template["spec"].get("initContainers", []):
                container.get("env", []).sort(key=lambda each: each["name"])
        made[kind, name] = document
    return made


def rendered(render, values):
    done = subprocess.run([render, CHART, values], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    return done.stdout, done.stderr.strip() if done.returncode else ""


def differences(documents, chart):
    """Names of the documents that differ between the overlay and the rendered chart."""
    overlay, chart = comparable(documents), comparable(chart)
    for kind, name in sorted(overlay.keys() | chart.keys()):
        if overlay.get((kind, name)) != chart.get((kind, name)):
            yield f"{kind} {name}"
