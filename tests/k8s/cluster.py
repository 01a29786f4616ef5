"""Plays a cluster for rendered manifests with `podman kube play`: Pods, Services, probes, drains and rolling updates.

Every pod runs in the machine's network with a loopback address of its own, so that nothing leaves the machine. What is
changed or left out of the manifests for that is in NOT_PLAYED, and each line of it is printed.
"""

import copy
import os
import resource
import socket
import subprocess
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import yaml

PODMAN = ["podman"]
UID = 10001
SECCOMP = Path(__file__).resolve().parent.parent.parent / "k8s/seccomp"
# Hang guards, far above what is measured.
READY_WITHIN = 120
NOT_PLAYED = [
    "the network: pods share the machine's, each with a loopback address of its own, to which 0.0.0.0, 127.0.0.1 and POD_IP in"
    " settings and configuration are changed; so network policies are not enforced",
    "names of Services: a file of hosts in every pod, in place of DNS; the Service of Envoy is a proxy of this test",
    "Secrets, volume claims and emptyDir as volumes: directories of this machine, of the pod's user",
    "startup and readiness probes, preStop, rolling updates and replicas: carried out by this test as the manifests say them; nobody asks"
    " liveness probes",
    "level 3: `kube play` has neither procMount, localhostProfile nor a writable control group, so such pods are made by `podman"
    " create`, with the same security context, and their control group is given to their user; a user namespace of the pod"
    " (hostUsers: false) is not made",
    "custom resources (cert-manager), autoscalers, disruption budgets and topology: only validated",
]


# runc, because crun wants control groups of version 2 alone; limits, because podman asks for more than a machine may give.
ENGINE = """[containers]
default_ulimits = ["nofile={files}:{files}", "nproc={processes}:{processes}"]
[engine]
cgroup_manager = "cgroupfs"
runtime = "runc"
"""


def configure(work):
    """Podman's settings, for this process and what it starts."""
    limits = {"files": resource.getrlimit(resource.RLIMIT_NOFILE)[1], "processes": min(resource.getrlimit(resource.RLIMIT_NPROC)[1], 30000)}
    limits["processes"] = 30000 if limits["processes"] < 0 else limits["processes"]
    file = work / "containers.conf"
    file.write_text(ENGINE.format(**limits))
    os.environ["CONTAINERS_CONF"] = str(file)


def run(*command, check=True, **options):
    done = subprocess.run([str(word) for word in command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options)
    if check and done.returncode:
        raise RuntimeError(f"{' '.join(str(word) for word in command[:8])}: {done.stderr[-2000:] or done.stdout[-2000:]}")
    return done.stdout


class Pod:
    """One that runs."""

    def __init__(self, workload, name, address, template):
        self.workload, self.name, self.address, self.template = workload, name, address, template
        self.labels = template["metadata"]["labels"]
        self.containers = template["spec"]["containers"]
        # No startupProbe is asked again once it has succeeded.
        self.has_started = False
        self.is_unmasked = self.containers[0].get("securityContext", {}).get("procMount") == "Unmasked"

    def container(self, name):
        return f"{self.name}-{name}"

    def is_ready(self):
        if not self.has_started:
            self.has_started = all(self.probe(each, each["startupProbe"]) for each in self.containers if "startupProbe" in each)
        return self.has_started and all(self.probe(container, container["readinessProbe"]) for container in self.containers)

    def probe(self, container, probe):
        if "exec" in probe:
            command = [*PODMAN, "exec", self.container(container["name"]), *probe["exec"]["command"]]
            done = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=READY_WITHIN, check=False)
            return done.returncode == 0
        action = probe.get("httpGet") or probe["tcpSocket"]
        ports = {port["name"]: port["containerPort"] for port in container.get("ports", [])}
        port = ports.get(action["port"], action["port"])
        try:
            if "tcpSocket" in probe:
                socket.create_connection((self.address, port), 1).close()
                return True
            with urllib.request.urlopen(f"http://{self.address}:{port}{action['path']}", timeout=1) as answer:
                return answer.status == 200
        except OSError:
            return False


class Cluster:
    def __init__(self, work, documents, secrets):
        self.work, self.secrets = work, secrets
        self.by_kind = {}
        for document in documents:
            self.by_kind.setdefault(document["kind"], {})[document["metadata"]["name"]] = document
        self.pods, self.last_address = {}, 10
        configure(work)
        self.hosts = work / "hosts"
        self.hosts.write_text("127.0.0.1 localhost\n")
        self.logs = work / "logs"
        self.logs.mkdir()

    # === what is in the manifests ===

    def workload(self, name):
        found = self.by_kind.get("Deployment", {}).get(name) or self.by_kind.get("StatefulSet", {}).get(name)
        return found["kind"], found["spec"]["template"]

    def count(self, name):
        scaler = self.by_kind.get("HorizontalPodAutoscaler", {}).get(name)
        if scaler:
            return scaler["spec"]["minReplicas"]
        kind, _ = self.workload(name)
        return self.by_kind[kind][name]["spec"].get("replicas", 1)

    # === pods ===

    def start(self, workload, name=None, address=None, image_tag=None):
        """Makes a pod of a workload and waits until it is ready."""
        if address is None:
            self.last_address += 1
            address = f"127.0.2.{self.last_address}"
        kind, template = self.workload(workload)
        claims = self.by_kind[kind][workload]["spec"].get("volumeClaimTemplates", [])
        ordinal = sum(pod.workload == workload for pod in self.pods.values())
        name = name or f"{workload}-{ordinal if kind == 'StatefulSet' else self.last_address}"
        pod = Pod(workload, name, address, self.placed(template, claims, name, address, image_tag))
        # The name in a gateway's certificate leads to it before it is ready.
        self.pods[name] = pod
        self.write_hosts()
        if pod.is_unmasked:
            self.create_unmasked(pod)
        else:
            file = self.work / f"{name}.yaml"
            file.write_text(yaml.safe_dump_all(self.with_settings(pod)))
            run(*PODMAN, "kube", "play", file)
        self.wait(pod)
        return pod

    def wait(self, pod):
        began = time.monotonic()
        while not pod.is_ready():
            if time.monotonic() - began > READY_WITHIN:
                raise RuntimeError(f"{pod.name} is not ready:\n{self.log_of(pod)[-4000:]}")
            time.sleep(0.2)
        minimum = self.by_kind.get("Deployment", {}).get(pod.workload, {}).get("spec", {}).get("minReadySeconds", 0)
        time.sleep(minimum)
        pod.ready_after = time.monotonic() - began

    def end(self, pod):
        """As the kubelet: out of its Services, preStop, SIGTERM, SIGKILL when the time is over. How long it took."""
        del self.pods[pod.name]
        self.write_hosts()
        began = time.monotonic()
        ends = began + pod.template["spec"]["terminationGracePeriodSeconds"]
        # Each container for itself: one is told to end while another still waits.
        with ThreadPoolExecutor(len(pod.containers)) as each:
            list(each.map(lambda container: self.end_container(pod, container, ends), pod.containers))
        took = time.monotonic() - began
        (self.logs / f"{pod.name}.log").open("a").write(self.log_of(pod))
        self.remove(pod)
        return took

    def end_container(self, pod, container, ends):
        before = container.get("lifecycle", {}).get("preStop", {})
        if "exec" in before:
            run(*PODMAN, "exec", pod.container(container["name"]), *before["exec"]["command"], check=False)
        time.sleep(before.get("sleep", {}).get("seconds", 0))
        run(*PODMAN, "stop", "-t", str(max(1, int(ends - time.monotonic()))), pod.container(container["name"]))

    def roll(self, workload, tag):
        """A rolling update to images of another tag; each pod by its kind's own rule."""
        kind, _ = self.workload(workload)
        for pod in [pod for pod in reversed(list(self.pods.values())) if pod.workload == workload]:
            if kind == "StatefulSet":
                took = self.end(pod)
                new = self.start(workload, pod.name, pod.address, tag)
            else:
                new = self.start(workload, image_tag=tag)
                took = self.end(pod)
            print(f"rolled {pod.name}: gone in {took:.1f} s, {new.name} ready in {new.ready_after:.1f} s", flush=True)

    def log_of(self, pod):
        return "".join(run("sh", "-c", 'exec "$@" 2>&1', "sh", *PODMAN, "logs", pod.container(each["name"]), check=False) for each in pod.containers)

    def stop(self):
        for pod in list(self.pods.values()):
            self.remove(pod)

    def remove(self, pod):
        if pod.is_unmasked:
            run(*PODMAN, "rm", "-f", "-t", "2", pod.container(pod.containers[0]["name"]), check=False)
        else:
            run(*PODMAN, "pod", "rm", "-f", "-t", "2", pod.name, check=False)

    def exec(self, pod, container, *command, settings=()):
        given = [word for name in settings for word in ("--env", f"{name}={settings[name]}")]
        return run(*PODMAN, "exec", *given, pod.container(container), *command)

    # === Services ===

    def of_service(self, name):
        asked = self.by_kind["Service"][name]["spec"]
        early = asked.get("publishNotReadyAddresses")
        return [pod for pod in list(self.pods.values()) if asked["selector"].items() <= pod.labels.items() and (early or pod.is_ready())]

    def write_hosts(self):
        lines = ["127.0.0.1 localhost"]
        for name in self.by_kind["Service"]:
            lines += [f"{pod.address} {name}.asp.svc" for pod in self.of_service(name)]
        # In place: containers have this very file.
        self.hosts.write_text("\n".join(lines) + "\n")

    # === what podman does not know ===

    def placed(self, template, claims, name, address, tag):
        """The pod as this machine can run it."""
        template = copy.deepcopy(template)
        spec = template["spec"]
        spec["hostNetwork"] = True
        for key in ("hostUsers", "runtimeClassName", "topologySpreadConstraints"):
            spec.pop(key, None)
        volumes = []
        for volume in spec.get("volumes", []):
            if "secret" in volume:
                volumes.append(self.directory(volume["name"], self.secret(volume["secret"]["secretName"])))
            elif "emptyDir" in volume:
                # Podman's is a volume of that name, for all pods.
                volumes.append(self.directory(volume["name"], self.own(f"empty-{name}-{volume['name']}")))
            else:
                volumes.append(volume)
        for claim in claims:
            # It outlives the pod, as the claim does.
            volumes.append(self.directory(claim["metadata"]["name"], self.own(f"claim-{name}-{claim['metadata']['name']}")))
        volumes.append({"name": "hosts", "hostPath": {"path": str(self.hosts), "type": "File"}})
        spec["volumes"] = volumes
        for container in spec["containers"]:
            container["imagePullPolicy"] = "Never"
            if tag:
                container["image"] = container["image"].rsplit(":", 1)[0] + f":{tag}"
            container["volumeMounts"] = container.get("volumeMounts", []) + [{"name": "hosts", "mountPath": "/etc/hosts", "readOnly": True}]
            container["env"] = [self.variable(each, address) for each in container.get("env", []) if not is_absent(each, self.secrets)]
            for each in container["env"]:
                each["value"] = each["value"].replace("$(POD_IP)", address)
                if each["value"] == "127.0.0.1":
                    each["value"] = address
            container["env"].append({"name": "ENVOY_ADMIN_ADDRESS", "value": address})
        return template

    def create_unmasked(self, pod):
        """A pod of one container, as its security context says and the cluster of k8s/components/level-3 gives it."""
        spec, (container,) = pod.template["spec"], pod.containers
        context, paths = spec["securityContext"], {volume["name"]: volume["hostPath"]["path"] for volume in spec["volumes"]}
        name = pod.container(container["name"])
        command = [
            "create", "--name", name, "--network", "host", "--user", f"{context['runAsUser']}:{context['runAsGroup']}", "--read-only",
            "--cap-drop", "ALL", "--security-opt", "no-new-privileges", "--security-opt", "unmask=ALL", "--security-opt",
            f"seccomp={SECCOMP / context['seccompProfile']['localhostProfile']}", "--cpus", container["resources"]["limits"]["cpu"],
            "--memory", container["resources"]["limits"]["memory"].removesuffix("i").lower(),
            # Whole, and writable where it belongs to the user.
            "--cgroupns", "host", "--volume", "/sys/fs/cgroup:/sys/fs/cgroup:rw",
        ]
        command += [word for each in container["env"] for word in ("--env", f"{each['name']}={each['value']}")]
        for mount in container["volumeMounts"]:
            command += ["--volume", f"{paths[mount['name']]}:{mount['mountPath']}:{'ro' if mount.get('readOnly') else 'rw'}"]
        run(*PODMAN, *command, container["image"], *container.get("args", []))
        # Its control group is there then, and nothing runs in it yet.
        run(*PODMAN, "init", name)
        process = run(*PODMAN, "inspect", name, "--format", "{{.State.Pid}}").strip()
        for line in Path(f"/proc/{process}/cgroup").read_text().split():
            _, controllers, group = line.split(":", 2)
            for mounted in ([controllers.removeprefix("name=")] if controllers else ["unified", "."]):
                folder = Path("/sys/fs/cgroup") / mounted / group.lstrip("/")
                if folder.is_dir() and group != "/":
                    run("chown", "-R", f"{UID}:{UID}", folder)
        run(*PODMAN, "start", name)

    def variable(self, each, address):
        source = each.get("valueFrom", {})
        if "fieldRef" in source:
            return {"name": each["name"], "value": address}
        if "secretKeyRef" in source:
            return {"name": each["name"], "value": self.secrets[source["secretKeyRef"]["name"]][source["secretKeyRef"]["key"]]}
        return dict(each)

    def own(self, name):
        """A directory of the pods' user."""
        folder = self.work / name
        folder.mkdir(exist_ok=True, mode=0o700)
        os.chown(folder, UID, UID)
        return folder

    def directory(self, name, folder):
        return {"name": name, "hostPath": {"path": str(folder), "type": "Directory"}}

    def secret(self, name):
        folder = self.work / f"secret-{name}"
        if not folder.exists():
            folder.mkdir(mode=0o750)
            for key, text in self.secrets[name].items():
                (folder / key).write_text(text)
                (folder / key).chmod(0o440)
                os.chown(folder / key, 0, UID)
            os.chown(folder, 0, UID)
        return folder

    def with_settings(self, pod):
        """The pod and the ConfigMaps that it names, with its own address in them."""
        maps = []
        for name, document in self.by_kind["ConfigMap"].items():
            document = copy.deepcopy(document)
            document["metadata"] = {"name": name}
            for key, text in document["data"].items():
                document["data"][key] = text.replace("0.0.0.0", pod.address).replace("127.0.0.1", pod.address)
            maps.append(document)
        spec = copy.deepcopy(pod.template["spec"])
        for container in spec["containers"]:
            # Podman would map them, which it cannot in the machine's network.
            container.pop("ports", None)
        labels = {"labels": pod.template["metadata"]["labels"], "name": pod.name}
        return [*maps, {"apiVersion": "v1", "kind": "Pod", "metadata": labels, "spec": spec}]


def is_absent(each, secrets):
    """An optional key that nobody has given."""
    asked = each.get("valueFrom", {}).get("secretKeyRef", {})
    return asked.get("optional") and asked["key"] not in secrets.get(asked["name"], {})
