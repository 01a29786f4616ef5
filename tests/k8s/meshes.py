#!/usr/bin/env python3
"""Runs what envoy/istio and envoy/gateway make of a shared ingress gateway in a real Envoy, beside another application.

The listener is as istiod and Envoy Gateway make it, with a filter chain for each host; the patches are applied where their
matches say, by this program, to all that they match. Held: the other application's answers are the same to the byte with and
without the patches; what a gateway does not serve another one does; the platform's host answers by the platform, its refusals and Envoy's own in its protocol, and a call gets
through to a gateway by mutual TLS. Needs the built `asp` and filter, Envoy, openssl.
"""

import copy
import http.client
import http.server
import json
import os
import re
import secrets
import shutil
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from pathlib import Path

import yaml

from cluster import run
from play import ASP, CLIENT, ROOT, TARGET, TOOLS, certificate

ENVOY = os.environ.get("ASP_ENVOY_BIN", TOOLS / "envoy/envoy")
MODULE = os.environ.get("ASP_FILTER_WASM", TARGET / "wasm32-wasip1/wasm/asp_filter.wasm")
# Addresses of this machine that nothing else uses.
PLATFORM, INGRESS, SHOP = "127.0.3.1", "127.0.3.2", "127.0.3.3"
OWN, OTHER = "mcp.example.com", "shop.example.com"
XDS, MTLS = 18000, 8443
WITHIN = 60
TYPE = "type.googleapis.com/envoy.extensions"
MANAGER = f"{TYPE}.filters.network.http_connection_manager.v3.HttpConnectionManager"


class Shop(http.server.BaseHTTPRequestHandler):
    """The other application: says what it was asked."""

    protocol_version = "HTTP/1.1"

    def do_GET(self):
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        kept = {name.lower(): value for name, value in self.headers.items() if not name.lower().startswith(("x-request", "x-envoy-expected"))}
        told = json.dumps({"path": self.path, "headers": kept, "bytes": len(body)}).encode()
        self.send_response(200)
        self.send_header("content-length", str(len(told)))
        self.end_headers()
        self.wfile.write(told)

    do_POST = do_GET

    def log_message(self, *_):
        pass


# === a shared listener, as either controller makes it ===


def chain(name, host, cluster, folder):
    """With a filter of its own, rules about paths and a route: what patches could break."""
    policy = {"rules": {"action": "DENY", "policies": {"admin": {
        "permissions": [{"url_path": {"path": {"prefix": "/admin"}}}], "principals": [{"any": True}]}}}}
    manager = {
        "@type": MANAGER, "stat_prefix": name, "use_remote_address": True, "normalize_path": True, "merge_slashes": True,
        "path_with_escaped_slashes_action": "UNESCAPE_AND_REDIRECT",
        "http_filters": [
            {"name": "rbac", "typed_config": {"@type": f"{TYPE}.filters.http.rbac.v3.RBAC", **policy}},
            {"name": "envoy.filters.http.router", "typed_config": {"@type": f"{TYPE}.filters.http.router.v3.Router"}},
        ],
        "route_config": {"name": name, "virtual_hosts": [{
            "name": f"{host}:443", "domains": ["*"], "routes": [{"match": {"prefix": "/shop"}, "route": {"cluster": cluster}},
                                                                  {"match": {"prefix": "/admin"}, "route": {"cluster": cluster}}]}]},
    }
    if host == OWN:
        manager["http_filters"].pop(0)
        service = next(each for each in documents("envoy/istio/traffic.yaml") if each["kind"] == "VirtualService")["spec"]["http"][-1]
        retries = {"retry_on": service["retries"]["retryOn"], "num_retries": service["retries"]["attempts"]}
        manager["route_config"]["virtual_hosts"][0]["routes"] = [{"name": "gateway", "match": {"prefix": "/"}, "route": {
            "cluster": cluster, "timeout": "0s", "retry_policy": retries, "hash_policy": [{"header": {"header_name": "x-asp-affinity"}}]}}]
    files = {"certificate_chain": {"filename": str(folder / f"{host}.crt")}, "private_key": {"filename": str(folder / f"{host}.key")}}
    tls = {"@type": f"{TYPE}.transport_sockets.tls.v3.DownstreamTlsContext", "common_tls_context": {"tls_certificates": [files]}}
    return {
        "name": name, "filter_chain_match": {"server_names": [host]},
        "transport_socket": {"name": "envoy.transport_sockets.tls", "typed_config": tls},
        "filters": [{"name": "envoy.filters.network.http_connection_manager", "typed_config": manager}],
    }


def static(name, address, port, **more):
    endpoint = {"endpoint": {"address": {"socket_address": {"address": address, "port_value": port}}}}
    return {"name": name, "type": "STATIC", "connect_timeout": "1s", "load_assignment": {"cluster_name": name, "endpoints": [{"lb_endpoints": [endpoint]}]}, **more}


def to_gateways(folder):
    """What istiod makes of the DestinationRule."""
    rule = next(each for each in documents("envoy/istio/traffic.yaml") if each["kind"] == "DestinationRule")["spec"]["trafficPolicy"]
    tls = {
        "@type": f"{TYPE}.transport_sockets.tls.v3.UpstreamTlsContext", "common_tls_context": {
            "alpn_protocols": ["h2"],
            "tls_certificates": [{"certificate_chain": {"filename": rule["tls"]["clientCertificate"]}, "private_key": {"filename": rule["tls"]["privateKey"]}}],
            "validation_context": {"trusted_ca": {"filename": rule["tls"]["caCertificates"]}, "match_typed_subject_alt_names": [
                {"san_type": "URI", "matcher": {"exact": name}} for name in rule["tls"]["subjectAltNames"]]}},
    }
    http2 = {"envoy.extensions.upstreams.http.v3.HttpProtocolOptions": {
        "@type": f"{TYPE}.upstreams.http.v3.HttpProtocolOptions", "explicit_http_config": {"http2_protocol_options": {}}}}
    return static("gateways", PLATFORM, MTLS, lb_policy="MAGLEV", transport_socket={"name": "envoy.transport_sockets.tls", "typed_config": tls},
                  typed_extension_protocol_options=http2)


def shared(folder, names, port):
    return {
        "node": {"id": "ingress", "cluster": "ingress"},
        "admin": {"address": {"socket_address": {"address": INGRESS, "port_value": 9901}}},
        "static_resources": {
            "listeners": [{
                "name": "tcp-443", "address": {"socket_address": {"address": INGRESS, "port_value": port}},
                "listener_filters": [{"name": "tls", "typed_config": {"@type": f"{TYPE}.filters.listener.tls_inspector.v3.TlsInspector"}}],
                "filter_chains": [chain(names[OWN], OWN, "gateways", folder), chain(names[OTHER], OTHER, "shop", folder)],
            }],
            "clusters": [static("shop", SHOP, 8080), to_gateways(folder)],
        },
    }


def documents(path):
    return list(yaml.safe_load_all((ROOT / path).read_text()))


# === Istio: each patch goes to all that its match does not leave out ===


def merged(into, what):
    """As protocol buffers merge: members of messages, and more of lists."""
    for key, value in what.items():
        if isinstance(value, dict) and isinstance(into.get(key), dict):
            merged(into[key], value)
        elif isinstance(value, list) and isinstance(into.get(key), list):
            into[key] += value
        else:
            into[key] = copy.deepcopy(value)


def istio(config):
    (listener,) = config["static_resources"]["listeners"]
    for patch in documents("envoy/istio/envoy-filter.yaml")[0]["spec"]["configPatches"]:
        kind, where, what = patch["applyTo"], patch["match"], patch["patch"]
        sni = where.get("listener", {}).get("filterChain", {}).get("sni")
        chains = [each for each in listener["filter_chains"] if sni in (None, *each["filter_chain_match"]["server_names"])]
        managers = [each["filters"][0]["typed_config"] for each in chains]
        if kind == "CLUSTER":
            config["static_resources"]["clusters"].append(copy.deepcopy(what["value"]))
        elif kind == "NETWORK_FILTER":
            for manager in managers:
                merged(manager, what["value"]["typed_config"])
        elif kind == "HTTP_FILTER":
            before = where["listener"]["filterChain"]["filter"].get("subFilter", {}).get("name")
            for manager in managers:
                names = [each["name"] for each in manager["http_filters"]]
                place = names.index(before) if what["operation"] == "INSERT_BEFORE" else 0
                manager["http_filters"].insert(place, copy.deepcopy(what["value"]))
        elif kind == "VIRTUAL_HOST":
            name = where.get("routeConfiguration", {}).get("vhost", {}).get("name")
            for each in listener["filter_chains"]:
                for host in each["filters"][0]["typed_config"]["route_config"]["virtual_hosts"]:
                    if name in (None, host["name"]):
                        merged(host, what["value"])
        elif kind == "HTTP_ROUTE":
            host_name, name = where["routeConfiguration"]["vhost"]["name"], where["routeConfiguration"]["vhost"]["route"]["name"]
            for each in listener["filter_chains"]:
                for host in each["filters"][0]["typed_config"]["route_config"]["virtual_hosts"]:
                    for route in host["routes"]:
                        if host_name == host["name"] and name == route.get("name"):
                            merged(route, what["value"])
        else:
            raise RuntimeError(f"a patch of {kind}")


# === Envoy Gateway: JSON patches at what a JSONPath finds ===


def found(values, path):
    """The part of JSONPath that the patches use: members, `[*]` and `[?(@.name=='…')]`."""
    for member, name in re.findall(r"\.(\w+)|\[(\*|\?\(@\.name=='[^']*'\))\]", path.removeprefix("$")):
        if member:
            values = [value[member] for value in values]
        else:
            wanted = None if name == "*" else name.split("'")[1]
            values = [each for value in values for each in value if wanted in (None, each["name"])]
    return values


def envoy_gateway(config):
    (listener,) = config["static_resources"]["listeners"]
    tables = {manager["route_config"]["name"]: manager["route_config"] for each in listener["filter_chains"] for manager in [each["filters"][0]["typed_config"]]}
    for patch in documents("envoy/gateway/patch-policy.yaml")[0]["spec"]["jsonPatches"]:
        operation = copy.deepcopy(patch["operation"])
        if patch["type"].endswith(".Cluster"):
            config["static_resources"]["clusters"].append(operation["value"])
            continue
        root = listener if patch["type"].endswith(".Listener") and patch["name"] == listener["name"] else tables[patch["name"]]
        path = operation["jsonPath"]
        if operation["op"] == "replace":
            path, _, last = path.rpartition(".")
        else:
            last = operation["path"].removeprefix("/")
        places = found([root], path)
        if not places:
            raise RuntimeError(f"nothing is at {operation['jsonPath']}")
        for place in places:
            if last.endswith("/0"):
                place[last.removesuffix("/0")].insert(0, operation["value"])
            else:
                place[last] = operation["value"]


# === running ===


def own_files(config, folder):
    """The mounted files, and the control plane's name, as this machine has them."""
    text = json.dumps(config).replace("/var/lib/asp/sds", str(folder / "sds")).replace("/var/lib/asp/peer", str(folder / "peer")).replace("/usr/share/asp/asp_filter.wasm", str(MODULE))
    return json.loads(text.replace('"address": "asp-control-pods.asp.svc"', f'"address": "{PLATFORM}"'))


def ask(port, host, method, path, headers=(), body=None, authority=None):
    """Status, headers that do not change by the moment, body."""
    context = ssl.create_default_context(cafile=authority)
    with socket.create_connection((INGRESS, port), 10) as plain:
        connection = http.client.HTTPSConnection(host, port, timeout=20)
        connection.sock = context.wrap_socket(plain, server_hostname=host)
        try:
            connection.request(method, path, body, dict(headers))
        except OSError:
            # Refused before all of it was sent; the answer is there.
            pass
        answer = connection.getresponse()
        kept = {name.lower(): value for name, value in answer.getheaders() if name.lower() not in ("date", "x-envoy-upstream-service-time")}
        return answer.status, kept, answer.read().decode()


def until(what, held):
    began = time.monotonic()
    while True:
        try:
            if (seen := held()) is not None and seen is not False:
                return seen
        except OSError:
            pass
        if time.monotonic() - began > WITHIN:
            raise RuntimeError(f"not within {WITHIN} s: {what}")
        time.sleep(0.1)


class Ingress:
    """A running Envoy."""

    def __init__(self, work, config):
        file = work / f"ingress-{secrets.token_hex(3)}.json"
        file.write_text(json.dumps(config))
        self.log = file.with_suffix(".log").open("w+")
        command = [ENVOY, "--config-path", file, "--disable-hot-restart", "--concurrency", "2", "--log-level", "warning"]
        self.process = subprocess.Popen(command, stdout=self.log, stderr=self.log)
        until("Envoy listens", lambda: socket.create_connection((INGRESS, config["static_resources"]["listeners"][0]["address"]["socket_address"]["port_value"]), 1).close() or True)

    def end(self):
        self.process.terminate()
        self.process.wait(20)


QUESTIONS = [
    ("GET", "/shop", {}, None), ("GET", "/shop//a/../b", {}, None), ("GET", "/shop/%2e%2e/admin", {}, None), ("GET", "/admin", {}, None),
    ("GET", "/shop%2Fx", {}, None), ("GET", "/nothing", {}, None), ("POST", "/shop", {}, b"x" * 100_000), ("GET", "/demo/mcp", {}, None),
    ("GET", "/shop", {"x-asp-route": "a", "x-asp-affinity": "b", "x-forwarded-client-cert": "URI=spiffe://x"}, None),
    ("GET", "/shop", {"authorization": "Bearer nothing of yours"}, None),
]


def call(token):
    meta = {"io.modelcontextprotocol/protocolVersion": "2026-07-28", "io.modelcontextprotocol/clientCapabilities": {}}
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "echo", "arguments": {"message": "hello"}, "_meta": meta}}
    headers = {"authorization": f"Bearer {token}", "content-type": "application/json", "accept": "application/json, text/event-stream",
               "mcp-protocol-version": "2026-07-28", "mcp-method": "tools/call", "mcp-name": "echo"}
    return headers, json.dumps(body).encode()


def platform(work, folder, login):
    """A control plane that is a gateway too, with mutual TLS at both doors."""
    servers = work / "primitives"
    shutil.copytree(ROOT / "primitives/demo", servers / "demo")
    server = servers / "demo/server.yaml"
    server.write_text(server.read_text().replace("issuers: [dev]", "issuers: [login]"))
    (work / "issuers.json").write_text(json.dumps(login["issuers"]))
    environment = {
        "PATH": os.environ["PATH"], "ASP_BIND": PLATFORM, "ASP_ADMIN_BIND": PLATFORM, "ASP_ADMIN_PORT": "0", "ASP_GATEWAY_PORT": "0",
        "ASP_XDS_PORT": str(XDS), "ASP_GATEWAY_MTLS_PORT": str(MTLS), "ASP_STATE_DIR": str(work / "state"), "ASP_PUBLIC_URL": f"https://{OWN}",
        "ASP_SEAL_KEY": secrets.token_urlsafe(48), "ASP_ISSUERS": str(work / "issuers.json"), "ASP_FILTER_WASM": str(MODULE),
        "ASP_PEER_CERT": str(folder / "gateway.crt"), "ASP_PEER_KEY": str(folder / "gateway.key"), "ASP_PEER_CA": str(folder / "ca.crt"),
        "ASP_PEER_NAME": "asp-control.asp.svc",
    }
    return subprocess.Popen([ASP, "serve", "--primitives", servers], env=environment, stdout=(work / "asp.log").open("w"), stderr=subprocess.STDOUT)


def certificates(work):
    folder = work / "certificates"
    (folder / "peer").mkdir(parents=True)
    certificate(folder, "ca", "", authority=False)
    for host in (OWN, OTHER):
        certificate(folder, host, f"DNS:{host}")
    # One process is both here; the names of both roles are what the patches ask for.
    certificate(folder, "gateway", f"URI:spiffe://cluster.local/asp/control/asp-control, DNS:asp-control.asp.svc, IP:{PLATFORM}")
    for name, text in certificate(folder, "envoy", "URI:spiffe://cluster.local/asp/envoy/ingress").items():
        (folder / "peer" / name).write_text(text)
    (folder / "sds").mkdir()
    mounted = [each["data"] for path in ("envoy/istio/module.yaml", "envoy/gateway/traffic.yaml") for each in documents(path) if each["kind"] == "ConfigMap"]
    if mounted[0] != mounted[1]:
        raise RuntimeError("Istio and Envoy Gateway are given other files")
    for name, text in mounted[0].items():
        (folder / "sds" / name).write_text(text.replace("/var/lib/asp/peer", str(folder / "peer")))
    return folder


def held(work, folder, port, patched, names, apply, token):
    """One controller's way: the other application's answers before, then everything with the patches."""
    authority = folder / "ca.crt"
    config = shared(folder, names, port)

    def answers():
        return [ask(port, OTHER, *question, authority=authority) for question in QUESTIONS]

    ingress = Ingress(work, own_files(config, folder))
    before = answers()
    ingress.end()
    apply(config)
    (listener,) = config["static_resources"]["listeners"]
    # The role of the process of this test is that of a control plane.
    config = json.loads(json.dumps(own_files(config, folder)).replace("spiffe://cluster.local/asp/gateway/asp-gateway", "spiffe://cluster.local/asp/control/asp-control"))
    ingress = Ingress(work, config)
    try:
        headers, body = call(token)
        question = ("POST", "/demo/mcp", headers, body)
        answer = until("a call gets through", lambda: (seen := ask(port, OWN, *question, authority=authority))[0] == 200 and seen)
        if "hello" not in answer[2]:
            raise RuntimeError(f"{patched}: a call: {answer}")
        after = answers()
        for asked, one, other in zip(QUESTIONS, before, after):
            if one != other:
                raise RuntimeError(f"{patched}: another application is answered otherwise: {asked[:2]}: {one} is now {other}")
        refusals = [
            (("POST", "/demo/mcp", {}, b"{}"), 401, "token_missing"),
            (("GET", "/shop", {}, None), 404, "unknown_server"),
            (("POST", "/demo/mcp", headers, b" " * 5_000_000), 413, "body_too_large"),
        ]
        for asked, status, reason in refusals:
            seen = ask(port, OWN, *asked, authority=authority)
            if seen[0] != status or reason not in seen[2]:
                raise RuntimeError(f"{patched}: {asked[:2]} is answered {seen}")
    finally:
        ingress.end()
    print(f"ok: {patched}: a call got through, {len(refusals)} refusals were the platform's own, {len(QUESTIONS)} answers of another application unchanged", flush=True)
    unserved(work, folder, port, patched, config, question)
    return config, question


def gateway_of(place, serves):
    """A gateway that Envoy itself plays: one that serves, or one that does not reach the store."""
    answer = {"match": {"prefix": "/"}, "direct_response": {"status": 200 if serves else 503, "body": {"inline_string": "served" if serves else "not served"}}}
    if not serves:
        answer["response_headers_to_add"] = [{"header": {"key": "x-asp-unserved", "value": "1"}}]
    routes = [{"match": {"path": "/readyz"}, "direct_response": {"status": 200}}, answer]
    return {"name": f"gateway-{place}", "address": {"socket_address": {"address": INGRESS, "port_value": place}}, "filter_chains": [{"filters": [{
        "name": "envoy.filters.network.http_connection_manager", "typed_config": {
            "@type": MANAGER, "stat_prefix": f"gateway-{place}", "route_config": {"virtual_hosts": [{"name": "all", "domains": ["*"], "routes": routes}]},
            "http_filters": [{"name": "envoy.filters.http.router", "typed_config": {"@type": f"{TYPE}.filters.http.router.v3.Router"}}]}}]}]}


def unserved(work, folder, port, patched, config, question):
    """What one of two gateways does not serve the other one does, whichever is asked first, and no client is told."""
    retried = 0
    for serve in ((True, False), (False, True), (False, False)):
        played = copy.deepcopy(config)
        gateways = [gateway_of(8601 + place, serves) for place, serves in enumerate(serve)]
        played["static_resources"]["listeners"] += gateways
        for cluster in played["static_resources"]["clusters"]:
            if cluster["name"] in ("gateway", "gateways"):
                for other in ("transport_socket", "eds_cluster_config"):
                    cluster.pop(other, None)
                endpoints = [{"endpoint": {"address": each["address"]}} for each in gateways]
                cluster.update({"type": "STATIC", "load_assignment": {"cluster_name": cluster["name"], "endpoints": [{"lb_endpoints": endpoints}]}})
        ingress = Ingress(work, played)
        try:
            wanted = 200 if any(serve) else 503
            until("its filter has its snapshot", lambda: ask(port, OWN, *question, authority=folder / "ca.crt")[2] in ("served", "not served"))
            for _ in range(20):
                status, kept, body = ask(port, OWN, *question, authority=folder / "ca.crt")
                if status != wanted or "x-asp-unserved" in kept:
                    raise RuntimeError(f"{patched}: of gateways that serve {serve}: {status} {kept} {body}")
            if any(serve):
                stats = urllib.request.urlopen(f"http://{INGRESS}:9901/stats?filter=upstream_rq_retry$", timeout=10).read().decode()
                retried += sum(int(line.rpartition(": ")[2]) for line in stats.splitlines())
        finally:
            ingress.end()
    if not retried:
        raise RuntimeError(f"{patched}: no gateway was asked after another one")
    print(f"ok: {patched}: what a gateway does not serve another one does ({retried} times), and no client is told", flush=True)


def main():
    with tempfile.TemporaryDirectory(prefix="asp-meshes-") as name:
        work = Path(name)
        folder = certificates(work)
        login = json.loads(run(CLIENT, ROOT / "tests/k8s/issuer.py"))
        shop = http.server.ThreadingHTTPServer((SHOP, 8080), Shop)
        threading.Thread(target=shop.serve_forever, daemon=True).start()
        asp = platform(work, folder, login)
        ways = [
            ("Istio", {OWN: "https.443.https.asp.istio-ingress", OTHER: "https.443.https.shop.istio-ingress"}, istio),
            ("Envoy Gateway", {OWN: "envoy-gateway/shared/asp", OTHER: "envoy-gateway/shared/shop"}, envoy_gateway),
        ]
        try:
            configs = [held(work, folder, 8443, way, names, apply, login["token"]) for way, names, apply in ways]
            asp.terminate()
            asp.wait(60)
            for (way, _, _), (config, question) in zip(ways, configs):
                # Nobody says what is allowed.
                ingress = Ingress(work, config)
                status, kept, body = ask(8443, OWN, *question, authority=folder / "ca.crt")
                other = ask(8443, OTHER, *QUESTIONS[0], authority=folder / "ca.crt")
                ingress.end()
                if status != 503 or json.loads(body)["error"]["data"]["reason"] != "upstream_unavailable" or other[0] != 200:
                    raise RuntimeError(f"{way}: without a control plane: {status} {kept} {body}, another application {other}")
                print(f"ok: {way}: without a control plane all is refused, and another application goes on", flush=True)
        except Exception:
            print((work / "asp.log").read_text()[-3000:], file=sys.stderr)
            raise
        finally:
            if asp.poll() is None:
                asp.kill()
            shop.shutdown()


if __name__ == "__main__":
    main()
