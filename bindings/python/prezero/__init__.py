"""Memory that is already zero when a program asks for it.

prezero.numpy   large arrays of NumPy from a zone, without LD_PRELOAD
prezero_lease   leases of huge pages from prezerod
"""
