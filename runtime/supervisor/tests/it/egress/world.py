"""Gives a program a network, names and trusted authorities of its own: world.py DIR CACERTS PROGRAM ARGUMENT...

Runs in new mount and network namespaces. DIR has `addresses` (given to the loopback), `hosts`, `certs` and `cacerts`
(Java's authorities, put at CACERTS). Then it becomes the program.
"""

import fcntl
import os
import socket
import struct
import subprocess
import sys

# ioctl_list(2), netdevice(7)
SIOCSIFFLAGS, SIOCSIFADDR = 0x8914, 0x8916
IFF_UP = 1

directory, cacerts, program = sys.argv[1], sys.argv[2], sys.argv[3:]
with open(f"{directory}/addresses") as file:
    addresses = file.read().split()
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
    fcntl.ioctl(control, SIOCSIFFLAGS, struct.pack("16sh22x", b"lo", IFF_UP))
    for number, address in enumerate(addresses):
        packed = struct.pack("HH4s8x", socket.AF_INET, 0, socket.inet_aton(address))
        fcntl.ioctl(control, SIOCSIFADDR, struct.pack("16s16s8x", b"lo:%d" % number, packed))
for name, path in (("hosts", "/etc/hosts"), ("certs", "/etc/ssl/certs"), ("cacerts", cacerts)):
    subprocess.run(["mount", "--bind", f"{directory}/{name}", path], check=True)
os.execv(program[0], program)
