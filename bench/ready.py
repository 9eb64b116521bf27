"""How long a program takes until it is ready, ms. It is ended then.

    ready.py says COMMAND...             until its first line
    ready.py ends COMMAND...             until it has ended, well
    ready.py quits COMMAND...            the same, told to quit by its first word of input
    ready.py answers SOCKET COMMAND...   until memcached tells its version there

KERNEL in a command is a guest that touches all of its memory and says so: a few instructions that QEMU loads at 1 MiB and
starts in 32-bit mode, by the Multiboot specification. `ebx` leads to what is known of memory: at 8 its KiB from 1 MiB on.
"""
import os
import socket
import struct
import subprocess
import sys
import tempfile
import time

BASE, HEADER = 1 << 20, 32
TOUCH = bytes.fromhex(
    "8b4b08"  # mov ecx, [ebx + 8]
    "c1e10a"  # shl ecx, 10
    "81c100001000"  # add ecx, 0x100000: the end of memory
    "bf00002000"  # mov edi, 0x200000: above all of this
    "c70701000000"  # 1: mov dword [edi], 1
    "81c700100000"  # add edi, 4096
    "39cf"  # cmp edi, ecx
    "72f0"  # jb 1b
    "be"  # mov esi, the address
)
TELL = bytes.fromhex(
    "ac"  # 2: lodsb
    "84c0"  # test al, al
    "7404"  # jz 3f
    "e6e9"  # out 0xe9, al: QEMU's -debugcon
    "ebf7"  # jmp 2b
    "f4"  # 3: hlt
    "ebfd"  # jmp 3b
)
SAYS = b"touched\n\0"


def kernel():
    magic, flags = 0x1BADB002, 1 << 16 | 0b11
    says = BASE + HEADER + len(TOUCH) + 4 + len(TELL)
    end = says + len(SAYS)
    header = struct.pack("<8I", magic, flags, -(magic + flags) & 0xFFFFFFFF, BASE, BASE, end, end, BASE + HEADER)
    return header + TOUCH + struct.pack("<I", says) + TELL + SAYS


def answers(path, program):
    while program.poll() is None:
        try:
            with socket.socket(socket.AF_UNIX) as peer:
                peer.connect(path)
                peer.sendall(b"version\r\n")
                assert peer.recv(7) == b"VERSION", "it answered something else"
                return
        except (FileNotFoundError, ConnectionRefusedError):
            time.sleep(0.0002)
    sys.exit(f"ready: it ended with {program.returncode}")


def main():
    how, *command = sys.argv[1:]
    path = command.pop(0) if how == "answers" else ""
    if path and os.path.exists(path):
        os.remove(path)
    with tempfile.NamedTemporaryFile() as image:
        image.write(kernel())
        image.flush()
        command = [image.name if word == "KERNEL" else word for word in command]
        time.sleep(0.1)  # A start that follows at once finds the CPU awake.
        began = time.monotonic()
        program = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        try:
            if how == "quits":
                program.stdin.write(b"quit\n")
                program.stdin.flush()
            if how == "answers":
                answers(path, program)
            elif how == "says":
                assert program.stdout.readline(), "it ended without a word"
            else:
                program.stdout.read()
                assert program.wait() == 0, f"it ended with {program.returncode}"
            print((time.monotonic() - began) * 1e3)
        finally:
            program.kill()
            program.wait()


main()
