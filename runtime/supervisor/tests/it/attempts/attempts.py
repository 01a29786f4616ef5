"""What a hostile plugin tries, in Python. Arguments: {"attempts": [{"name", "do", ...}]}; the answer has "allowed" or
"denied: why" under each name. The same file run as a program is the control: python attempts.py <arguments>.
"""

import ctypes
import glob
import json
import os
import signal
import socket
import subprocess
import sys
import time

from asp_plugin import PluginError, plugin

WITHIN_S = 20.0
MIB = 1 << 20


class Denied(Exception):
    """Nothing refused it, and yet it did not get there."""


def expect(holds, why):
    if not holds:
        raise Denied(why)


def greet(connection):
    connection.settimeout(WITHIN_S)
    connection.sendall(b"hello\n")
    expect(connection.recv(64), "closed")


def tcp(want):
    with socket.create_connection((want["host"], want["port"]), WITHIN_S) as connection:
        greet(connection)


def udp(want):
    sent = bytes(want["bytes"])
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        sender.settimeout(WITHIN_S)
        # Connected, so that a port nobody listens at answers with an error.
        sender.connect((want["host"], want["port"]))
        sender.send(sent)
        expect(sender.recv(512)[:2] == sent[:2], "another answer")


def unix(want):
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(WITHIN_S)
        connection.connect(want["path"])


def abstract(want):
    unix({"path": "\0" + want["path"]})


def open_(want):
    os.close(os.open(want["path"], os.O_RDONLY))


def read(want):
    with open(want["path"], "rb") as file:
        expect(want["mark"].encode() in file.read(MIB), "something else")


def list_(want):
    expect(want["mark"] in os.listdir(want["path"]), "something else")


def environments(want):
    for path in glob.glob("/proc/[0-9]*/environ"):
        try:
            with open(path, "rb") as file:
                if want["mark"].encode() in file.read(MIB):
                    return
        except OSError:
            continue
    raise Denied("not found")


def write(want):
    path = os.path.join(want["path"], f"attempt-{os.getpid()}")
    with open(path, "w") as file:
        file.write("x")
    os.unlink(path)


def signal_(want):
    os.kill(want["pid"], 0)


def processes(want):
    started = []
    try:
        while len(started) < want["count"]:
            started.append(subprocess.Popen(["/bin/sleep", "60"]))
    finally:
        for one in started:
            one.kill()
            one.wait()


def files(want):
    opened = []
    try:
        while len(opened) < want["count"]:
            opened.append(os.open(want["path"], os.O_RDONLY))
    finally:
        for one in opened:
            os.close(one)


def disk(want):
    paths = []
    try:
        while len(paths) < want["mib"]:
            paths.append(os.path.join(want["path"], f"fill-{len(paths)}"))
            with open(paths[-1], "wb") as file:
                file.write(bytes(MIB))
    finally:
        for path in paths:
            os.unlink(path)


ATTEMPTS = {
    "tcp": tcp, "udp": udp, "unix": unix, "abstract": abstract, "open": open_, "read": read, "list": list_,
    "environments": environments, "write": write, "signal": signal_, "processes": processes, "files": files,
    "disk": disk,
}  # fmt: skip


def attempt(want):
    try:
        ATTEMPTS[want["do"]](want)
    except (OSError, Denied) as error:
        return f"denied: {error}"
    return "allowed"


# ---------------------------------------------------------------- harm


def crash():
    ctypes.string_at(0)


def memory():
    held = []
    while True:
        held.append(bytearray(b"x" * 8 * MIB))


def busy():
    while True:
        try:
            while True:
                pass
        except BaseException:
            continue


def ignore():
    while True:
        try:
            time.sleep(0.05)
        except BaseException:
            continue


def forks():
    while True:
        try:
            if os.fork() == 0:
                signal.pause()
        except OSError:
            time.sleep(0.01)


def logs():
    line = ("\x1b[31mflood\x1b[0m \r" + "x" * 1000 + "\n") * 64
    until = time.monotonic() + 1.5
    while time.monotonic() < until:
        sys.stdout.write(line)


HARM = {
    "exit": lambda: os._exit(0), "crash": crash, "memory": memory, "busy": busy, "ignore": ignore,
    "forks": forks, "logs": logs,
}  # fmt: skip


def crowd(ctx):
    """Takes every process it may have, keeps them while it asks, and ends them."""
    started = []
    try:
        while True:
            started.append(subprocess.Popen(["/bin/sleep", "60"]))
    except OSError:
        ctx.elicit("room")
    finally:
        for one in started:
            one.kill()
            one.wait()
    return {"started": len(started)}


# ---------------------------------------------------------------- the language's own bounds


def knobs():
    import faulthandler
    import resource

    mask = os.umask(0o077)
    os.umask(mask)

    def recurse():
        recurse()

    try:
        recurse()
    except RecursionError as error:
        depth = str(error)
    bounds = {name: resource.getrlimit(getattr(resource, "RLIMIT_" + name))[1] for name in ("CORE", "NOFILE", "FSIZE")}
    return {
        "isolated": sys.flags.isolated, "no_user_site": sys.flags.no_user_site,
        "ignore_environment": sys.flags.ignore_environment, "safe_path": sys.flags.safe_path,
        "bytecode": not sys.dont_write_bytecode, "faulthandler": faulthandler.is_enabled(),
        "recursion_limit": sys.getrecursionlimit(), "recursion": depth, "path": sys.path,
        "prefixes": [sys.prefix, sys.base_prefix], "umask": mask, "stdin": sys.stdin.read(), "limits": bounds,
        "directory": os.getcwd(),
    }  # fmt: skip


# ---------------------------------------------------------------- the way out


def fetch(want):
    url, by = want["url"], want["by"]
    try:
        if by == "urllib":
            import urllib.request

            with urllib.request.urlopen(url, timeout=10) as answer:
                return answer.read().decode()
        if by == "requests":
            import requests

            answer = requests.get(url, timeout=10, verify="/etc/ssl/certs/ca-certificates.crt")
        else:
            import ssl

            import httpx

            answer = httpx.get(url, timeout=10, verify=ssl.create_default_context())
        answer.raise_for_status()
        return answer.text
    except Exception as error:
        return f"denied: {type(error).__name__}: {error}"


def tunnel(want):
    """Through the proxy to one host, and there TLS and a request for another."""
    import socket
    import ssl
    from urllib.parse import urlsplit

    proxy = urlsplit(os.environ["HTTPS_PROXY"])
    try:
        with socket.create_connection((proxy.hostname, proxy.port), timeout=10) as plain:
            plain.sendall(f"CONNECT {want['to']}:443 HTTP/1.1\r\n\r\n".encode())
            answer = plain.recv(4096)
            if b" 200 " not in answer:
                return f"denied: {answer!r}"
            with ssl.create_default_context().wrap_socket(plain, server_hostname=want["name"]) as tls:
                tls.sendall(f"GET / HTTP/1.1\r\nHost: {want['name']}\r\n\r\n".encode())
                return b"".join(iter(lambda: tls.recv(4096), b"")).decode().split("\r\n\r\n")[1]
    except OSError as error:
        return f"denied: {type(error).__name__}: {error}"


@plugin.tool
def main(args, ctx):
    if "harm" in args:
        ctx.progress(1, "begun")
        HARM[args["harm"]]()
        return {}
    if "crowd" in args:
        return crowd(ctx)
    if "ask" in args:
        ctx.elicit("room")
        return {}
    if "knobs" in args:
        return knobs()
    if "fetch" in args:
        return {"text": fetch(args["fetch"])}
    if "tunnel" in args:
        return {"text": tunnel(args["tunnel"])}
    if "secret" in args:
        key = ctx.secret(args["secret"]).reveal()
        print("stdout", key, flush=True)
        ctx.log("info", "log " + key)
        if "fail" in args:
            raise PluginError("FAILS", "failed with " + key)
        return {"text": key, "environment": key in os.environ.values()}
    if "names" in args:
        return {"names": sorted(os.environ)}
    return {want["name"]: attempt(want) for want in args["attempts"]}


if __name__ == "__main__":
    print(json.dumps({want["name"]: attempt(want) for want in json.loads(sys.argv[1])["attempts"]}))
