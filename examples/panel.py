"""The figures of a process under prezero, by its panel, as root or as its user.

Run: python3 examples/panel.py PID
"""
import mmap
import os
import struct
import sys

pid = sys.argv[1]
for task in os.listdir(f"/proc/{pid}/task"):
    if open(f"/proc/{pid}/task/{task}/comm").read().strip() != "scrubd":
        continue
    folder = f"/proc/{pid}/task/{task}/fd"
    for name in os.listdir(folder):
        if os.readlink(f"{folder}/{name}") != "/memfd:prezero-panel (deleted)":
            continue
        with open(f"{folder}/{name}", "rb") as file:
            panel = mmap.mmap(file.fileno(), 16384, prot=mmap.PROT_READ)
        assert panel[:8] == b"PREZERO2"
        count, names = struct.unpack_from("=QQ", panel, 80)
        for nth, text in zip(range(count), panel[names:].decode().split("\0")):
            name, unit = text.split()
            kind = "=d" if unit == "ns/page" else "=Q"
            print(name, struct.unpack_from(kind, panel, 128 + 8 * nth)[0], unit)
