#!/usr/bin/env python3
"""Builds the images and starts an overlay of k8s/ here: `tests/k8s/play.py [--overlay prod] [--no-build] [--keep]`.

What is shown: all of it becomes ready; an official client calls a plugin of each language through Envoy; a rolling update of
every workload under load fails no call. PostgreSQL and Redis are real ones, started here. Needs root, podman, buildah, runc,
openssl, and the programs of `scripts/setup test` and `make build`.
"""

import argparse
import asyncio
import json
import os
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import yaml

import cluster as played
from cluster import Cluster, run

ROOT = Path(__file__).resolve().parent.parent.parent
TARGET = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
TOOLS = Path(os.environ.get("ASP_TOOLS_DIR", ROOT / ".tools"))
ASP = Path(os.environ.get("ASP_BIN", TARGET / "release/asp"))
LANGUAGES = ["python", "node", "java"]
# What plugins ask for; each overlay says it (k8s/components).
LEVELS = {"prod": 3}
STRICT = "greet-strict"
IMAGES = ["asp", "asp-edge", *(f"asp-runtime-{language}" for language in LANGUAGES)]
EDGE = ("127.0.2.10", 8443)
URL = f"https://{EDGE[0]}:{EDGE[1]}"
CLIENT = os.environ.get("ASP_PYTHON_BIN", TOOLS / "python/bin/python")
WORKERS = 6
# Seconds of a long call, within what a pod is given to drain.
LONG = 12


def certificate(folder, name, names, authority=True):
    """As docs/certificates.md says, by openssl."""
    key, request, chain = folder / f"{name}.key", folder / f"{name}.csr", folder / f"{name}.crt"
    new = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj", f"/CN={name}", "-keyout", key]
    if not authority:
        run("openssl", "req", "-x509", *new, "-days", "30", "-out", chain)
    else:
        run("openssl", "req", *new, "-out", request)
        extensions = folder / f"{name}.ext"
        extensions.write_text(f"subjectAltName = {names}\nextendedKeyUsage = serverAuth, clientAuth\n")
        run("openssl", "x509", "-req", "-in", request, "-CA", folder / "ca.crt", "-CAkey", folder / "ca.key", "-CAcreateserial",
            "-days", "7", "-out", chain, "-extfile", extensions)
    return {"tls.crt": chain.read_text(), "tls.key": key.read_text(), "ca.crt": (folder / "ca.crt").read_text()}


def all_secrets(work, database, redis, objects):
    folder = work / "certificates"
    folder.mkdir()
    certificate(folder, "ca", "", authority=False)
    spiffe = "URI:spiffe://cluster.local/asp"
    made = {
        "asp-control-peer": certificate(folder, "asp-control", f"{spiffe}/control/asp-control, DNS:asp-control.asp.svc, DNS:asp-admin.asp.svc"),
        "asp-gateway-peer": certificate(folder, "asp-gateway", f"{spiffe}/gateway/asp-gateway, DNS:asp-gateway.asp.svc"),
        "asp-edge-peer": certificate(folder, "asp-edge", f"{spiffe}/envoy/asp-edge"),
        "asp-edge-tls": certificate(folder, "edge-tls", f"IP:{EDGE[0]}"),
        "asp-database": {"url": database},
        "asp-redis": {"url": redis},
        "asp-s3": objects,
        "asp-seal": {"key": secrets.token_urlsafe(48)},
    }
    for language in LANGUAGES:
        name = f"asp-runtime-{language}"
        made[f"{name}-peer"] = certificate(folder, name, f"{spiffe}/runtime/{name}, DNS:{name}.asp.svc")
    return made


def plugins(work, level):
    """A tool in each language, as somebody new makes it, for a level of confinement, and one that wants the highest."""
    source, installed = work / "servers", work / "plugins"
    source.mkdir()
    for name, language, wanted in [*((f"greet-{language}", language, level) for language in LANGUAGES), (STRICT, "python", 3)]:
        run(ASP, "plugin", "new", name, "--language", language, source)
        spec = source / f"{name}/{name}.yaml"
        spec.write_text(spec.read_text().replace("runtime: {", f"runtime: {{minIsolation: {wanted}, "))
        server = source / f"{name}/server.yaml"
        server.write_text(server.read_text().replace("issuers: [dev]", "issuers: [login]"))
    # A tool that takes its time, of the platform's own.
    shutil.copytree(ROOT / "primitives/demo", source / "demo")
    server = source / "demo/server.yaml"
    server.write_text(server.read_text().replace("issuers: [dev]", "issuers: [login]"))
    run(ASP, "plugin", "build", source, "--out", work / "dist")
    run(ASP, "plugin", "install", source, "--plugins", installed)
    return source, installed


def stores(work):
    """PostgreSQL, Redis and an object store on loopback; what ends them."""
    postgres, folder = TOOLS / "postgres", work / "postgres"
    folder.mkdir()
    shutil.chown(folder, "postgres")
    work.chmod(0o755)
    as_user = ["setpriv", "--reuid=postgres", "--regid=postgres", "--init-groups"]
    run(*as_user, postgres / "initdb", "-D", folder / "data", "-A", "trust", "-N", "-U", "asp")
    database, redis = free_port(), free_port()
    settings = f"-p {database} -h 127.0.0.1 -k {folder} -c fsync=off -c max_connections=200"
    run(*as_user, postgres / "pg_ctl", "-D", folder / "data", "-w", "-l", folder / "log", "-o", settings, "start")
    server = subprocess.Popen([TOOLS / "redis-server", "--port", str(redis), "--bind", "127.0.0.1", "--save", "", "--maxmemory-policy",
                               "noeviction", "--dir", str(work)], stdout=subprocess.DEVNULL)

    port, key = free_port(), secrets.token_urlsafe(24)
    (work / "objects/asp-files").mkdir(parents=True)
    objects = subprocess.Popen([TOOLS / "bin/versitygw", "--port", f"127.0.0.1:{port}", "--quiet", "posix", work / "objects"],
                               env=os.environ | {"ROOT_ACCESS_KEY": "asp", "ROOT_SECRET_KEY": key}, stdout=subprocess.DEVNULL)
    secret = {"url": f"http://127.0.0.1:{port}/asp-files", "access-key-id": "asp", "secret-access-key": key}

    def end():
        server.terminate()
        objects.terminate()
        run(*as_user, postgres / "pg_ctl", "-D", folder / "data", "-m", "immediate", "stop", check=False)

    return f"postgres://asp@127.0.0.1:{database}/postgres?sslmode=disable", f"redis://127.0.0.1:{redis}", secret, end


def free_port():
    """Below the range from which the kernel takes ports for connections."""
    for port in range(20000 + secrets.randbelow(5000), 30000):
        with socket.socket() as one:
            if one.connect_ex(("127.0.0.1", port)) != 0:
                return port
    raise RuntimeError("no port is free")


def rendered(work, overlay, tag, issuers):
    """The overlay with images and settings of this test, by an overlay of its own."""
    folder = work / "overlay"
    folder.mkdir()
    (folder / "issuers.json").write_text(json.dumps(issuers))
    base = os.path.relpath(ROOT / "k8s/overlays" / overlay, folder)
    kustomization = {
        "apiVersion": "kustomize.config.k8s.io/v1beta1", "kind": "Kustomization", "resources": [base],
        "images": [{"name": f"registry.example.com/asp/{name}", "newName": f"localhost/{name}", "newTag": tag} for name in IMAGES],
        "configMapGenerator": [
            {"name": "asp-issuers", "namespace": "asp", "behavior": "replace", "files": ["issuers.json"]},
            {"name": "asp-settings", "namespace": "asp", "behavior": "merge", "literals": [f"ASP_PUBLIC_URL={URL}"]},
        ],
    }
    (folder / "kustomization.yaml").write_text(yaml.safe_dump(kustomization))
    text = run(TOOLS / "bin/kustomize", "build", "--load-restrictor", "LoadRestrictionsNone", folder)
    return list(yaml.safe_load_all(text))


class Door:
    """The Service of Envoy: connections to one address go to the pods that are ready, in turn."""

    def __init__(self, cluster):
        self.cluster, self.turn = cluster, 0
        self.loop = asyncio.new_event_loop()
        threading.Thread(target=self.loop.run_forever, daemon=True).start()
        asyncio.run_coroutine_threadsafe(asyncio.start_server(self.serve, *EDGE), self.loop).result(10)

    async def serve(self, reader, writer):
        pods = await asyncio.to_thread(self.cluster.of_service, "asp-edge")
        self.turn += 1
        try:
            behind = await asyncio.open_connection(pods[self.turn % len(pods)].address, EDGE[1])
        except (OSError, ZeroDivisionError):
            writer.close()
            return
        await asyncio.gather(self.copy(reader, behind[1]), self.copy(behind[0], writer))

    async def copy(self, reader, writer):
        try:
            while data := await reader.read(65536):
                writer.write(data)
                await writer.drain()
        except OSError:
            pass
        finally:
            writer.close()


def client(*arguments, token, work):
    environment = os.environ | {"ASP_TOKEN": token, "SSL_CERT_FILE": str(work / "certificates/ca.crt")}
    return subprocess.Popen([CLIENT, *map(str, arguments)], env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)


def tag_next():
    """The same images under another tag, to roll to."""
    for name in IMAGES:
        run("buildah", "tag", f"localhost/{name}:k8s", f"localhost/{name}:next")


def greeted(server, token, work):
    """What the tool of a server answers an official client; None where the client gets an error."""
    call = client(ROOT / "tests/clients/python/client.py", f"{URL}/{server}/mcp", "auto", server, '{"name": "Ada"}', token=token, work=work)
    said = call.communicate(timeout=120)[0]
    result = json.loads(said)["result"] if call.returncode == 0 else {"isError": True}
    return None if result.get("isError") else result["structuredContent"]


def outlives(cluster, workload, token, work):
    """Calls that run while every pod of a workload is replaced are answered all the same."""
    arguments = ["auto", "count", json.dumps({"to": LONG, "delayMs": 1000})]
    calls = [client(ROOT / "tests/clients/python/client.py", f"{URL}/demo/mcp", *arguments, token=token, work=work) for _ in range(4)]
    time.sleep(3)
    cluster.roll(workload, "next")
    for call in calls:
        said = call.communicate(timeout=120)[0]
        if call.returncode or json.loads(said)["result"].get("isError"):
            raise RuntimeError(f"a call did not outlive the replacement of {workload}: {said[-500:]}")
    print(f"ok: {len(calls)} calls of {LONG} s outlived the replacement of {workload}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--overlay", default="prod")
    parser.add_argument("--no-build", action="store_true")
    parser.add_argument("--images", default="", metavar="ARGUMENTS", help="more for scripts/images, such as --base asp=IMAGE")
    parser.add_argument("--keep", action="store_true", help="leave everything running until Enter")
    given = parser.parse_args()
    work = Path(tempfile.mkdtemp(prefix="asp-k8s-"))
    print(f"k8s: in {work}", flush=True)
    ending = []
    try:
        status = play(given, work, ending)
    finally:
        for end in reversed(ending):
            end()
    # What failed leaves its logs.
    if status == 0:
        shutil.rmtree(work)
    return status


def play(given, work, ending):
    source, installed = plugins(work, LEVELS.get(given.overlay, 2))
    if not given.no_build:
        print(run(ROOT / "scripts/images", "--tag", "k8s", "--plugins", installed, *given.images.split()), end="", flush=True)
    tag_next()
    login = json.loads(run(CLIENT, ROOT / "tests/k8s/issuer.py"))
    token = login["token"]
    database, redis, objects, end = stores(work)
    ending.append(end)
    documents = rendered(work, given.overlay, "k8s", login["issuers"])
    cluster = Cluster(work, documents, all_secrets(work, database, redis, objects))
    ending.append(cluster.stop)
    for line in played.NOT_PLAYED:
        print(f"not played by podman: {line}", flush=True)

    workloads = [f"asp-runtime-{language}" for language in LANGUAGES] + ["asp-gateway", "asp-edge"]
    for workload in ["asp-control", *workloads]:
        for _ in range(cluster.count(workload)):
            pod = cluster.start(workload)
            print(f"{pod.name} ready in {pod.ready_after:.1f} s", flush=True)
            for line in cluster.log_of(pod).split("\n"):
                if '"isolation_level"' in line:
                    told = json.loads(line)
                    print(f"  confinement level {told['isolation_level']}, as {pod.template['metadata']['annotations']}", flush=True)
    (control, *_) = [pod for pod in cluster.pods.values() if pod.workload == "asp-control"]
    admin = cluster.exec(control, "control", "/usr/local/bin/asp", "token", "--break-glass", "--user", "test", "--reason", "make k8s").strip()
    print(run(ASP, "apply", source, env=os.environ | {
        "ASP_ADMIN_URL": f"http://{control.address}:8081", "ASP_ADMIN_TOKEN": admin}), end="", flush=True)
    (one, *_) = [pod for pod in cluster.pods.values() if pod.workload == "asp-gateway"]
    status = cluster.exec(one, "gateway", "/usr/local/bin/asp", "status", settings={
        # An emergency token is for the control plane that minted it: the first one, to which its Service leads here.
        "ASP_ADMIN_URL": "https://asp-admin.asp.svc:8444", "ASP_ADMIN_TOKEN": admin, "SSL_CERT_FILE": "/etc/asp/peer/ca.crt"})
    print(f"ok: over TLS the admin API says: {status.splitlines()[0]}", flush=True)
    Door(cluster)

    for language in LANGUAGES:
        answer = greeted(f"greet-{language}", token, work)
        if not answer:
            raise RuntimeError(f"{language}: {answer}")
        print(f"ok: an official client called a tool in {language} through Envoy: {answer}", flush=True)
    if bool(greeted(STRICT, token, work)) != (LEVELS.get(given.overlay, 2) == 3):
        raise RuntimeError(f"a plugin that asks for level 3 is not answered as {given.overlay} says")
    print(f"ok: a plugin that asks for level 3 is {'answered' if LEVELS.get(given.overlay, 2) == 3 else 'unknown to callers'}", flush=True)

    for workload in ("asp-edge", "asp-gateway"):
        outlives(cluster, workload, token, work)
    stop = work / "stop"
    servers = ",".join(f"greet-{language}" for language in LANGUAGES)
    load = client(ROOT / "tests/k8s/load.py", URL, servers, WORKERS, stop, token=token, work=work)
    ending.append(load.kill)
    time.sleep(5)
    moments = []
    for workload in ["asp-gateway", "asp-edge", "asp-control", *workloads[:3]]:
        began = time.time()
        cluster.roll(workload, "next")
        moments.append((workload, began, time.time()))
    time.sleep(3)
    stop.touch()
    told = json.loads(load.communicate(timeout=120)[0])
    print(f"calls: {json.dumps(told['calls'])}, slowest {told['slowest']:.2f} s", flush=True)
    failed = 0
    for workload, began, ended in moments:
        inside = [failure for failure in told["failures"] if began <= failure[0] <= ended]
        failed += len(inside)
        print(f"rolling {workload}: {len(inside)} failures", flush=True)
        for failure in inside[:5]:
            print(f"  {failure}", flush=True)
    other = len(told["failures"]) - failed
    if other:
        print(f"outside of any: {other} failures: {told['failures'][:3]}", flush=True)
    if given.keep:
        input("k8s: Enter ends it")
    print(f"k8s: {'FAILED' if told['failures'] else 'all passed'}", flush=True)
    return 1 if told["failures"] else 0


if __name__ == "__main__":
    sys.exit(main())
