"""Memory that is already zero when a program asks for it.

prezero.numpy   large arrays of NumPy from a zone, without LD_PRELOAD
prezero.pinned  pinned memory on a lease, for NumPy, CuPy and JAX by DLPack
prezero.torch   pinned tensors on a lease
prezero_lease   leases of huge pages from prezerod
"""
