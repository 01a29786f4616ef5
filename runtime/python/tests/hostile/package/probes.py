"""Tries to reach what a worker must not reach, and says whether it did."""

import ctypes
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from typing import Any

SECONDS = 2.0
CLONE_NEWUSER = 0x10000000
PTRACE_ATTACH = 16
SYS_IO_URING_SETUP = 425
_libc = ctypes.CDLL(None, use_errno=True)


def probe(attempt: Callable[[str], Any]) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """Makes a mode of an attempt that raises OSError when it is denied."""

    def mode(args: dict[str, Any]) -> dict[str, Any]:
        try:
            detail = attempt(args.get("target", ""))
        except OSError as error:
            return {"outcome": "denied", "detail": f"{type(error).__name__}: {error}"}
        return {"outcome": "allowed", "detail": detail}

    return mode


def tcp(target: str) -> str:
    host, _, port = target.rpartition(":")
    with socket.create_connection((host, int(port)), SECONDS):
        return "connected"


def udp(target: str) -> str:
    """Sends, and is allowed when something comes back: a datagram that is lost is no connection."""
    host, _, port = target.rpartition(":")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        sender.settimeout(SECONDS)
        sender.sendto(b"probe", (host, int(port)))
        return sender.recv(100).decode("latin-1")


def dns(target: str) -> list[str]:
    return sorted({found[4][0] for found in socket.getaddrinfo(target, 80)})


def unix(target: str) -> str:
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(SECONDS)
        client.connect(target)
        return "connected"


def abstract(target: str) -> str:
    return unix("\0" + target)


def read(target: str) -> int:
    with open(target, "rb") as file:
        return len(file.read(4096))


def write(target: str) -> str:
    with open(target, "ab") as file:
        file.write(b"written by a plugin\n")
    return "written"


def listing(target: str) -> list[str]:
    return sorted(os.listdir(target))[:100]


def environ(target: str) -> int:
    return read(f"/proc/{target or 1}/environ")


def proc(target: str) -> int:
    return read(f"/proc/{target or 1}/maps")


def memory_of(target: str) -> str:
    with open(f"/proc/{target or 1}/mem", "rb"):
        return "opened"


def own_environ(target: str) -> list[str]:
    return sorted(os.environ)


def processes(target: str) -> list[int]:
    return sorted(int(name) for name in os.listdir("/proc") if name.isdigit())


def kill(target: str) -> str:
    os.kill(int(target), signal.SIGKILL)
    return "killed"


def call(name: str, *arguments: Any) -> str:
    """Calls a function of libc; OSError when it fails."""
    if getattr(_libc, name)(*arguments) < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return "done"


def ptrace(target: str) -> str:
    return call("ptrace", PTRACE_ATTACH, int(target or 1), 0, 0)


def unshare(target: str) -> str:
    # In a program of its own: a process with threads may not enter a user namespace, and a fork of this one
    # has gRPC's threads again.
    code = f"import ctypes, sys; sys.exit(-ctypes.CDLL(None).unshare({CLONE_NEWUSER}))"
    if subprocess.run((sys.executable, "-I", "-S", "-c", code), check=False).returncode != 0:
        raise OSError("unshare failed")
    return "unshared"


def mount(target: str) -> str:
    return call("mount", b"none", (target or os.getcwd()).encode(), b"tmpfs", 0, None)


def setuid(target: str) -> str:
    os.setuid(0)
    return f"uid {os.getuid()}"


def raw_socket(target: str) -> str:
    with socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP):
        return "opened"


def io_uring(target: str) -> str:
    parameters = ctypes.create_string_buffer(120)
    return call("syscall", SYS_IO_URING_SETUP, 1, parameters)


def chroot(target: str) -> str:
    os.chroot(target or "/")
    return "done"


def mknod(target: str) -> str:
    path = os.path.join(os.environ.get("ASP_WORK_DIR", "."), "device")
    os.mknod(path, 0o20600, os.makedev(1, 1))
    os.unlink(path)
    return "made"


MODES = {
    name: probe(attempt)
    for name, attempt in {
        "tcp": tcp,
        "udp": udp,
        "dns": dns,
        "unix": unix,
        "abstract": abstract,
        "read": read,
        "write": write,
        "list": listing,
        "environ": environ,
        "proc": proc,
        "memory_of": memory_of,
        "own_environ": own_environ,
        "processes": processes,
        "kill": kill,
        "ptrace": ptrace,
        "unshare": unshare,
        "mount": mount,
        "setuid": setuid,
        "raw_socket": raw_socket,
        "io_uring": io_uring,
        "chroot": chroot,
        "mknod": mknod,
    }.items()
}
