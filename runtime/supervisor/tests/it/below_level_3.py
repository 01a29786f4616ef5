"""Attempts at processes of the same user, written once.

As a plugin, and as a program, whose argument is the same JSON object: what stands outside, and `names` of attempts.
Says of each {name: "allowed" | "denied: why"}.
"""

import contextlib
import ctypes
import fcntl
import json
import mmap
import os
import resource
import signal
import socket
import struct
import subprocess
import sys
import threading

libc = ctypes.CDLL(None, use_errno=True)
NUMBERS = {
    # tkill, tgkill, rt_tgsigqueueinfo, ioprio_set
    "x86_64": (200, 234, 297, 251),
    "aarch64": (130, 131, 240, 30),
}
TKILL, TGKILL, TGSIGQUEUE, IOPRIO_SET = NUMBERS[os.uname().machine]
RING_SETUP, RING_ENTER = 425, 426


def checked(result):
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result


def kill(facts):
    os.kill(facts["victim"], 0)


def tkill(facts):
    checked(libc.syscall(TKILL, facts["victim"], 0))


def tgkill(facts):
    checked(libc.syscall(TGKILL, facts["victim"], facts["victim"], 0))


def queue(facts):
    checked(libc.sigqueue(facts["victim"], 0, None))


def thread_queue(facts):
    # A siginfo_t with the code of sigqueue(3).
    info = ctypes.create_string_buffer(struct.pack("iii", 0, 0, -1), 128)
    checked(libc.syscall(TGSIGQUEUE, facts["victim"], facts["victim"], 0, info))


def handle(facts):
    process = os.pidfd_open(facts["victim"])
    try:
        signal.pidfd_send_signal(process, 0)
    finally:
        os.close(process)


@contextlib.contextmanager
def pair():
    ends = socket.socketpair()
    try:
        yield ends[0]
    finally:
        for end in ends:
            end.close()


def owner(facts):
    with pair() as end:
        fcntl.fcntl(end, fcntl.F_SETOWN, facts["victim"])


def owner_with_kind(facts):
    with pair() as end:
        fcntl.fcntl(end, 15, struct.pack("ii", 1, facts["victim"]))


def owner_by_ioctl(facts):
    with pair() as end:
        fcntl.ioctl(end, 0x8901, struct.pack("i", facts["victim"]))


def limits(facts):
    resource.prlimit(facts["victim"], resource.RLIMIT_NOFILE, (64, 64))


def nice(facts):
    # The last there is: no account may go back.
    os.setpriority(os.PRIO_PROCESS, facts["victim"], 19)


def nice_user(facts):
    # Of all of a user's processes.
    os.setpriority(os.PRIO_USER, 0, 19)


def affinity(facts):
    os.sched_setaffinity(facts["victim"], os.sched_getaffinity(facts["victim"]))


def scheduler(facts):
    os.sched_setscheduler(facts["victim"], os.SCHED_BATCH, os.sched_param(0))


def io_priority(facts):
    checked(libc.syscall(IOPRIO_SET, 1, facts["victim"], (2 << 13) | 7))


def datagram(facts):
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
        sender.sendto(b"hello", facts["datagrams"])


def raw_datagram(facts):
    with socket.socket(socket.AF_UNIX, socket.SOCK_RAW) as sender:
        sender.sendto(b"hello", facts["datagrams"])


def datagram_of_pair(facts):
    ends = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    try:
        ends[0].sendto(b"hello", facts["datagrams"])
    finally:
        for end in ends:
            end.close()


def ring(facts):
    """Connects to the runtime's own socket without the call of that name (io_uring(7))."""
    params = ctypes.create_string_buffer(120)
    handle = checked(libc.syscall(RING_SETUP, 4, params))
    with socket.socket(socket.AF_UNIX) as client, mmap.mmap(handle, 4096) as queues, mmap.mmap(
        handle, 4096, offset=0x10000000
    ) as entries:
        sq = struct.unpack_from("7I", params, 40)
        cq = struct.unpack_from("6I", params, 80)
        name = facts["stream"].encode() + b"\0"
        address = ctypes.create_string_buffer(struct.pack("H", socket.AF_UNIX) + name)
        connect = struct.pack("<BBHiQQ", 16, 0, 0, client.fileno(), 2 + len(name), ctypes.addressof(address))
        entries[: len(connect)] = connect
        struct.pack_into("I", queues, sq[6], 0)
        struct.pack_into("I", queues, sq[1], 1)
        checked(libc.syscall(RING_ENTER, handle, 1, 1, 1, None, 0))
        result = struct.unpack_from("<Qi", queues, cq[5])[1]
    os.close(handle)
    if result < 0:
        raise OSError(-result, os.strerror(-result))


def own(facts):
    os.kill(os.getpid(), 0)
    checked(libc.syscall(TGKILL, os.getpid(), os.getpid(), 0))
    resource.setrlimit(resource.RLIMIT_NOFILE, resource.getrlimit(resource.RLIMIT_NOFILE))
    os.setpriority(os.PRIO_PROCESS, 0, os.getpriority(os.PRIO_PROCESS, 0))


def own_thread(facts):
    done = threading.Event()
    thread = threading.Thread(target=done.wait)
    thread.start()
    try:
        signal.pthread_kill(thread.ident, 0)
    finally:
        done.set()
        thread.join()


def child(facts):
    # Where it may not be signalled it goes when the worker does.
    sleeper = subprocess.Popen(["/bin/sleep", "30"])
    sleeper.kill()
    assert sleeper.wait() == -signal.SIGKILL


def abort(facts):
    """Of a child: the filter knows the worker's number, so it ends by another signal than SIGABRT."""
    pid = os.fork()
    if pid == 0:
        os.abort()
    assert os.WIFSIGNALED(os.waitpid(pid, 0)[1])


def attempt(name, facts):
    try:
        globals()[name](facts)
    except OSError as error:
        return f"denied: {error}"
    return "allowed"


def attempts(facts):
    return {name: attempt(name, facts) for name in facts["names"]}


if __name__ == "__main__":
    print(json.dumps(attempts(json.loads(sys.argv[1]))))
else:
    from asp_plugin import plugin

    @plugin.tool
    def main(args, ctx):
        return attempts(args)
