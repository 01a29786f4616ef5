"""What a hostile worker would try, written once.

Usage: isolation.py <facts> <probe>... Facts is a JSON object: where the things outside are. Prints one JSON object,
{probe: "allowed" | "denied: why"}. A probe that raises OSError, or finds nothing, was denied. The same program runs
inside a sandbox and, as the control, outside of any: there every probe must come out as allowed.
"""

import contextlib
import ctypes
import errno
import glob
import json
import os
import signal
import socket
import stat
import subprocess
import sys
import time

libc = ctypes.CDLL(None, use_errno=True)
TIMEOUT = 2.0
CLONE_NEWUSER, CLONE_NEWNET = 0x10000000, 0x40000000
PTRACE_ATTACH = 16
SYSCALLS = {"x86_64": (321, 425, 310, 250), "aarch64": (280, 425, 270, 219)}
BPF, IO_URING_SETUP, PROCESS_VM_READV, KEYCTL = SYSCALLS[os.uname().machine]


class Denied(Exception):
    pass


def checked(result):
    if result == -1:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result


def in_child(action):
    """Runs what changes the process itself in one of its own; its OSError is ours."""
    pid = os.fork()
    if pid == 0:
        code = 0
        try:
            action()
        except OSError as error:
            code = error.errno or 255
        finally:
            os._exit(code)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    if code != 0:
        raise OSError(code, os.strerror(code))


def greeting(connection):
    connection.settimeout(TIMEOUT)
    connection.sendall(b"hello\n")
    if connection.recv(64) == b"":
        raise Denied("closed")


# ---------------------------------------------------------------- network


def tcp(facts):
    greeting(socket.create_connection(("127.0.0.1", facts["tcp"]), TIMEOUT))


def tcp6(facts):
    greeting(socket.create_connection(("::1", facts["tcp6"]), TIMEOUT))


def udp(facts):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        sender.connect(("127.0.0.1", facts["udp"]))
        greeting(sender)


def dns(facts):
    question = b"\x12\x34\x01\0\0\x01\0\0\0\0\0\0\x07example\x03com\0\0\x01\0\x01"
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        sender.settimeout(TIMEOUT)
        sender.sendto(question, ("127.0.0.1", facts["udp"]))
        if sender.recvfrom(512)[0][:2] != question[:2]:
            raise Denied("another answer")


def metadata_address(facts):
    # The listener stands for 169.254.169.254, which a test must not give to this machine.
    greeting(socket.create_connection((facts["metadata_host"], facts["metadata"]), TIMEOUT))


def raw_socket(facts):
    socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP).close()


def netlink(facts):
    socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0).close()


def packet_socket(facts):
    socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0).close()


def abstract_socket(facts):
    with socket.socket(socket.AF_UNIX) as client:
        client.connect("\0" + facts["abstract"])
        greeting(client)


def path_socket(facts):
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(facts["path_socket"])
        greeting(client)


def neighbours_socket(facts):
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(facts["neighbour_socket"])


# ---------------------------------------------------------------- other processes


def neighbours_memory(facts):
    with open(f"/proc/{facts['neighbour']}/mem", "rb", buffering=0):
        pass


def neighbours_files(facts):
    with open(f"/proc/{facts['neighbour']}/root{facts['neighbour_file']}", "rb") as file:
        if file.read() != b"secret":
            raise Denied("another file")


def neighbours_environment(facts):
    search_environments(facts["neighbour_mark"])


def supervisors_environment(facts):
    search_environments("CARGO_MANIFEST_DIR=")


def search_environments(mark):
    for path in glob.glob("/proc/[0-9]*/environ") + glob.glob("/proc/[0-9]*/task/[0-9]*/environ"):
        if path.startswith((f"/proc/{os.getpid()}/", "/proc/self/")):
            continue
        try:
            with open(path, "rb") as file:
                if mark.encode() in file.read():
                    return
        except OSError:
            continue
    raise Denied("not found")


def neighbours_process(facts):
    with open(f"/proc/{facts['neighbour']}/stat") as file:
        if "python" not in file.read() and "worker-init" not in file.read():
            raise Denied("another process")


def signal_neighbour(facts):
    os.kill(facts["neighbour"], 0)


def signal_supervisor(facts):
    os.kill(facts["supervisor"], 0)


def ptrace(facts):
    with a_child() as child:
        checked(libc.ptrace(PTRACE_ATTACH, child, 0, 0))


def process_memory(facts):
    with a_child() as child:
        buffer = ctypes.create_string_buffer(8)
        local = (ctypes.c_size_t * 2)(ctypes.addressof(buffer), 8)
        remote = (ctypes.c_size_t * 2)(first_address(child), 8)
        checked(libc.syscall(PROCESS_VM_READV, child, local, 1, remote, 1, 0))


@contextlib.contextmanager
def a_child():
    child = subprocess.Popen(["/bin/sleep", "60"]).pid
    try:
        yield child
    finally:
        # Not by Popen: it takes the stop of a process it traces for the end, and then kills nothing.
        os.kill(child, signal.SIGKILL)
        while os.WIFSTOPPED(os.waitpid(child, 0)[1]):
            pass


def first_address(pid):
    # The program is there a moment after it was started.
    end = time.monotonic() + 20
    while time.monotonic() < end:
        with open(f"/proc/{pid}/maps") as maps:
            line = next((line for line in maps if "/" in line), None)
        if line:
            return int(line.split("-")[0], 16)
    raise Denied("it maps no program")


# ---------------------------------------------------------------- files


def outside_file(facts):
    with open(facts["outside_file"]) as file:
        file.read()


def users_of_the_machine(facts):
    with open("/etc/shadow" if os.path.exists("/etc/shadow") else "/etc/master.passwd") as file:
        file.read()


def write_system(facts):
    write_into("/usr/lib")


def write_root(facts):
    write_into("/")


def write_settings(facts):
    write_into("/etc")


def write_code(facts):
    write_into(facts["code_dir"])


def write_run_dir(facts):
    write_into(facts["run_dir"])


def write_devices(facts):
    write_into("/dev")


def write_into(directory):
    path = os.path.join(directory, f".asp-probe-{os.getpid()}")
    with open(path, "w") as file:
        file.write("x")
    os.unlink(path)


def make_dir_in_run_dir(facts):
    path = os.path.join(facts["run_dir"], "dir")
    os.mkdir(path)
    os.rmdir(path)


def sys_of_the_machine(facts):
    os.listdir("/sys/kernel")


def settings_of_the_kernel(facts):
    with open("/proc/sys/kernel/core_pattern") as file:
        file.read()


def root_of_first_process(facts):
    os.listdir(f"/proc/{facts['first']}/root/")


def environment_of_first_process(facts):
    with open(f"/proc/{facts['first']}/environ", "rb") as file:
        file.read()


def memory_of_first_process(facts):
    with open(f"/proc/{facts['first']}/mem", "rb", buffering=0):
        pass


# ---------------------------------------------------------------- escapes


def unshare_user(facts):
    in_child(lambda: checked(libc.unshare(CLONE_NEWUSER)))


def unshare_network(facts):
    in_child(lambda: checked(libc.unshare(CLONE_NEWNET)))


def clone_namespace(facts):
    # A raw clone with a namespace flag, whose child leaves at once.
    number = 56 if os.uname().machine == "x86_64" else 220
    child = libc.syscall(number, CLONE_NEWUSER | signal.SIGCHLD, 0, 0, 0, 0)
    if child == 0:
        os._exit(0)
    os.waitpid(checked(child), 0)


def enter_namespace(facts):
    def enter():
        handle = os.open("/proc/self/ns/net", os.O_RDONLY)
        checked(libc.setns(handle, CLONE_NEWNET))

    in_child(enter)


def mount(facts):
    def attempt():
        target = os.path.join(facts["writable"], "mount")
        os.makedirs(target, exist_ok=True)
        checked(libc.mount(b"none", target.encode(), b"tmpfs", 0, None))
        checked(libc.umount2(target.encode(), 2))

    in_child(attempt)


def chroot(facts):
    in_child(lambda: os.chroot(facts["writable"]))


def make_device(facts):
    path = os.path.join(facts["writable"], "device")
    os.mknod(path, 0o600 | stat.S_IFCHR, os.makedev(1, 3))
    os.unlink(path)


def become_root(facts):
    in_child(lambda: os.setresuid(0, 0, 0))


def set_user_id_program(facts):
    # The control starts as another user, or its being root would prove nothing.
    user = {} if os.geteuid() else {"user": 65534, "group": 65534, "extra_groups": []}
    said = subprocess.run([facts["set_user_id_program"], "-u"], capture_output=True, text=True, **user).stdout
    if said.strip() != "0":
        raise Denied(f"still user {said.strip()}")


def bpf(facts):
    attributes = (ctypes.c_uint32 * 32)(2, 4, 4, 1)
    os.close(checked(libc.syscall(BPF, 0, attributes, ctypes.sizeof(attributes))))


def io_uring(facts):
    os.close(checked(libc.syscall(IO_URING_SETUP, 2, (ctypes.c_uint8 * 120)())))


def keyring(facts):
    # KEYCTL_GET_KEYRING_ID of the process keyring, made if absent.
    checked(libc.syscall(KEYCTL, 0, -2, 1))


def host_name(facts):
    name = socket.gethostname().encode()
    in_child(lambda: checked(libc.sethostname(name, len(name))))


# ---------------------------------------------------------------- bombs: how far they get


def fork_bomb(facts):
    children = []
    try:
        while len(children) < facts["pids"] + 20:
            pid = os.fork()
            if pid == 0:
                signal.pause()
                os._exit(0)
            children.append(pid)
    finally:
        for pid in children:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


def descriptor_bomb(facts):
    opened = []
    try:
        while len(opened) < facts["files"] + 20:
            opened.append(os.open("/dev/null", os.O_RDONLY))
    finally:
        for handle in opened:
            os.close(handle)


def disk_fill(facts):
    paths = []
    written = 0
    try:
        while written < facts["disk"] + (1 << 20):
            paths.append(os.path.join(facts["writable"], f"fill{len(paths)}"))
            with open(paths[-1], "wb") as file:
                for _ in range(16):
                    file.write(bytes(1 << 16))
                    file.flush()
                    written += 1 << 16
    finally:
        for path in paths:
            os.unlink(path)


def file_count(facts):
    paths = []
    try:
        while len(paths) < 70_000:
            paths.append(os.path.join(facts["writable"], f"n{len(paths)}"))
            os.close(os.open(paths[-1], os.O_CREAT | os.O_WRONLY))
    finally:
        for path in paths:
            if os.path.exists(path):
                os.unlink(path)


def memory_bomb(facts):
    held = [bytearray(b"x" * (1 << 20)) for _ in range((facts["memory"] >> 20) + 64)]
    assert held


def main():
    facts = json.loads(sys.argv[1])
    results = {}
    for name in sys.argv[2:]:
        try:
            globals()[name](facts)
            results[name] = "allowed"
        except (OSError, Denied) as error:
            number = getattr(error, "errno", None)
            results[name] = f"denied: {errno.errorcode.get(number, error)}"
    print(json.dumps(results))


main()
