#!/usr/bin/env python3
"""A lease as pinned memory of PyTorch: `pinned.py SIZE`, with PREZERO_SOCKET where the broker is not the system's.

cudaHostRegister() pins pages that are there already; cudaHostAlloc() and pin_memory=True have them made and cleared
first. What is printed: how long each took for SIZE, the copies' pace to the GPU, and whether what came back is equal.
The lease comes from stock after --wait seconds at most. Needs PyTorch with CUDA.
"""

import argparse
import ctypes
import mmap
import os
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from prezero_lease import Client, Lease, NotNow, Refused  # noqa: E402

SUFFIXES = {"M": 1 << 20, "G": 1 << 30}
ALIGNMENT = 2 << 20


def pinned_tensor(lease: Lease):
    """A tensor of bytes on the lease, which the GPU copies from directly.

    The mapping begins at a multiple of 2 MiB: a THP lease is mapped in small pages elsewhere. It lives until the
    process ends, because a tensor's memory has to outlive whatever the GPU still does with it.
    """
    import torch

    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
    failed = ctypes.c_void_p(-1).value
    room = libc.mmap(None, lease.bytes + ALIGNMENT, 0, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, -1, 0)
    if room == failed:
        raise OSError(ctypes.get_errno(), "no room in the address space for the lease")
    aligned = -(-room // ALIGNMENT) * ALIGNMENT
    fixed = 0x10  # MAP_FIXED: over a part of the room
    there = libc.mmap(aligned, lease.bytes, mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_SHARED | fixed, lease.fd, 0)
    if there == failed:
        raise OSError(ctypes.get_errno(), "the lease cannot be mapped")
    portable = 1
    code = torch.cuda.cudart().cudaHostRegister(there, lease.bytes, portable)
    if int(code) != 0:
        raise OSError(f"cudaHostRegister: {code}")
    buffer = (ctypes.c_uint8 * lease.bytes).from_address(there)
    return torch.frombuffer(buffer, dtype=torch.uint8)


def timed(make):
    began = time.perf_counter()
    made = make()
    return made, time.perf_counter() - began


def copy_pace(torch, tensor):
    """Bytes a second to the GPU and back; what comes back has to be equal."""
    part = tensor[: min(len(tensor), 4 << 30)]
    part[::4096] = 7
    torch.cuda.synchronize()
    began = time.perf_counter()
    there = part.to("cuda", non_blocking=True)
    torch.cuda.synchronize()
    pace = len(part) / (time.perf_counter() - began)
    assert torch.equal(there[::4096].cpu(), part[::4096]), "the GPU read something else"
    return pace


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("size", help="512M, 16G")
    parser.add_argument("--wait", type=float, default=60.0, help="longest wait for the lease, s [60]")
    asked = parser.parse_args()
    try:
        size = int(asked.size[:-1]) * SUFFIXES[asked.size[-1]]
    except (KeyError, ValueError, IndexError):
        parser.error(f"{asked.size}: give a size such as 512M or 16G")
    try:
        import torch
    except ImportError:
        sys.exit("pinned.py: no PyTorch here: pip install torch")
    if not torch.cuda.is_available():
        sys.exit("pinned.py: PyTorch sees no GPU")
    torch.cuda.init()
    torch.zeros(1, device="cuda")
    try:
        with Client() as broker:
            lease, waited = timed(lambda: broker.lease(size, wait=asked.wait))
    except (Refused, NotNow, OSError) as why:
        sys.exit(f"pinned.py: {why}")
    leased, registered = timed(lambda: pinned_tensor(lease))
    assert int(torch.count_nonzero(leased[:: 4096])) == 0, "the lease is not zero"
    print(f"lease of {asked.size} ({lease.backing}): {waited * 1e3:.1f} ms, mapped and registered: {registered * 1e3:.1f} ms")
    print(f"to the GPU: {copy_pace(torch, leased) / 1e9:.1f} GB/s")
    own, took = timed(lambda: torch.empty(size, dtype=torch.uint8, pin_memory=True))
    print(f"pin_memory=True, by cudaHostAlloc: {took * 1e3:.1f} ms, {took / (waited + registered):.1f} times as long")
    print(f"to the GPU: {copy_pace(torch, own) / 1e9:.1f} GB/s")


if __name__ == "__main__":
    main()
