"""How a test in Python waits for another process or for the kernel."""

import time

# Longer than anything takes on a machine that starves: only a failure waits so long.
PATIENCE_S = 300


def until(what, look, patience=PATIENCE_S):
    """Looks until there is something to be found, and returns it."""
    end = time.monotonic() + patience
    while not (found := look()):
        if time.monotonic() > end:
            raise TimeoutError(f"{what}: in vain for {patience} s")
        time.sleep(0.02)
    return found
