"""Patterns of demand: what scrubbing for them costs and gains, and whether that is what is asked.

    waste.py WASTE PATTERN TIMES      plays it by bench/waste.c; a line for each phase, and one for all: its name, a tab, JSON
    waste.py --test                   the arithmetic

**Made** is what scrubd cleared. **Wasted** is what of it no request for zeroes used: given to plain requests, given back to the
kernel unused, or lying there at the end. Bytes come from prezero's own counters, CPU time from the kernel.
"""
import json
import os
import subprocess
import sys
from pathlib import Path

SECOND = 1_000_000_000
# Bursts of each phase that do not count: the allocator is new to it.
WARM_UP = 3
COLUMNS = "start_ns burst_ns freed made hit miss absent plain unused zero".split()


def share(part, whole):
    return part / whole if part else 0


def wasted(end):
    return share(end["plain"] + end["unused"] + end["zero"], end["made"])


def asked(burst):
    return burst["hit"] + burst["miss"] + burst["absent"]


# What a pattern reaches of what is asked of it: at most 1 is as asked.
def made_of_freed(most):
    return lambda bursts, end: share(end["made"], end["freed"]) / most


def waste_of_made(most):
    return lambda bursts, end: wasted(end) / most


def plain_of_made(most):
    return lambda bursts, end: share(end["plain"], end["made"]) / most


def hits_from_fourth(least):
    def reached(bursts, end):
        if len(bursts) < 4:
            return 1e9
        third, last = bursts[2], bursts[-1]
        return least / max(share(last["hit"] - third["hit"], asked(last) - asked(third)), 1e-9)
    return reached


def steps_aside(most, waste, phase=None):
    """Little is made from a second into the phase to its end; or little is wasted all the time."""
    return lambda bursts, end: min(share(*after_a_second(bursts, end, phase)) / most, wasted(end) / waste)


def after_a_second(bursts, end, phase):
    """Made and freed from a second after the phase (or everything) began until it ended; in the last phase until the end."""
    of = [burst for burst in bursts if phase in (None, burst["phase"])]
    late = [burst for burst in of if burst["start_ns"] >= of[0]["start_ns"] + SECOND]
    if not late:
        return 0, 0
    last = end if late[-1] is bursts[-1] else late[-1]
    return max(last["made"] - late[0]["made"], 0), max(last["freed"] - late[0]["freed"], 0)


# ms under prezero, and under the others, which have nothing to learn; MiB that are faulted in and given back before, since a guest's
# host takes what was free for long; and what is asked. Idle time is priced at a quarter: three of four pages may be in vain.
PATTERNS = {
    "never": (2000, 500, 256, made_of_freed(0.01)),
    "steady": (1500, 400, 128, waste_of_made(0.05)),
    "steady-mixed": (1500, 400, 128, waste_of_made(0.05)),
    "bursty-1m": (2000, 1000, 128, hits_from_fourth(0.95)),
    "bursty-4m": (2000, 1000, 128, hits_from_fourth(0.95)),
    "bursty-64m": (2000, 1000, 128, hits_from_fourth(0.95)),
    "once": (8000, 300, 1024, steps_aside(0.01, 0.05, "plain")),
    "phases": (4500, 1350, 128, steps_aside(0.01, 0.05, "plain")),
    "mixed": (1500, 600, 128, plain_of_made(0.05)),
    "hostile": (2000, 500, 128, steps_aside(0.01, 0.75)),
    "adverse": (2000, 500, 128, steps_aside(0.01, 0.75)),
}


def read(said):
    """Bursts, what they came to, and CPU time of all threads, of those that the program does not know, and KiB at the peak."""
    bursts, end = [], []
    for line in said.splitlines():
        phase, *numbers = line.split()
        numbers = [int(number) for number in numbers]
        if phase == "end":
            end = numbers
        else:
            bursts.append({"phase": phase, **dict(zip(COLUMNS, numbers))})
    return bursts[:-1], bursts[-1], end


def told(pattern, said, has_zone=True):
    """What is said of each phase, and of all."""
    bursts, end, (cpu, background, peak) = read(said)
    before = dict.fromkeys(COLUMNS, 0)
    phases = {}
    for burst in bursts:
        phase = phases.setdefault(burst["phase"], {"us": [], "hit": 0, "asked": 0})
        phase["us"].append(burst["burst_ns"] / 1e3)
        phase["hit"] += max(burst["hit"] - before["hit"], 0)
        phase["asked"] += max(asked(burst) - asked(before), 0)
        before = burst
    for name, phase in phases.items():
        skip = WARM_UP if len(phase["us"]) > 2 * WARM_UP else 0
        hits = {"hits": 100 * phase["hit"] / phase["asked"]} if phase["asked"] else {}
        yield name, {"burst_us": phase["us"][skip:], **hits}
    all_of_it = {"cpu": cpu / 1e9, "background": background / 1e9, "peak": peak / 1024}
    if has_zone:
        names = {"freed": "freed", "made": "made", "hit": "hit", "miss": "cleared", "absent": "to_kernel", "plain": "to_plain",
                 "unused": "unused", "zero": "left"}
        all_of_it |= {name: end[column] / 2**20 for column, name in names.items()}
        all_of_it |= {"wasted": 100 * wasted(end), "asked": 100 * PATTERNS[pattern][3](bursts, end)}
    yield "all", all_of_it


def test():
    def burst(phase, start_ns=0, **known):
        return {"phase": phase, **dict.fromkeys(COLUMNS, 0), "start_ns": start_ns, **known}

    end = burst("", made=1000, plain=20, unused=20, zero=10)
    assert waste_of_made(0.05)([], end) == 1 < waste_of_made(0.05)([], end | {"zero": 11}), "waste is all that no request used"
    assert made_of_freed(0.01)([], burst("", freed=1000, made=10)) == 1, "a hundredth may be made for nothing"
    assert round(plain_of_made(0.05)([], burst("", made=100, plain=6, zero=94)), 6) == 1.2, "what lies there is none to plain requests"
    bursts = [burst("", hit=hit, miss=miss) for hit, miss in ((0, 100), (0, 200), (0, 300), (100, 300), (190, 310))]
    assert round(hits_from_fourth(0.95)(bursts, end), 9) == 1 < hits_from_fourth(0.95)(bursts[:3], end), "three may miss"
    bursts = [burst("zero", 0, made=500, freed=500), burst("plain", SECOND, made=900, freed=600), burst("plain", 2 * SECOND, made=1000, freed=700),
              burst("plain", 3 * SECOND, made=1002, freed=900), burst("zero", 4 * SECOND, made=2000, freed=1000)]
    end = burst("", made=2100, freed=1000)
    assert after_a_second(bursts, end, "plain") == (2, 200), "from a second into the phase to its end"
    assert after_a_second(bursts, end, None) == (1200, 400), "to the very end"
    assert after_a_second(bursts, end, "other") == (0, 0)
    aside, used = steps_aside(0.01, 0.05), burst("", made=1000, hit=1000, freed=1000)
    assert aside([burst("a"), burst("a", SECOND)], used) <= 1 < aside([burst("a"), burst("a", SECOND)], used | {"plain": 51}), "zeroes that are used"
    line = "{} 0 {} 0 0 {} 0 0 0 0 0\n".format
    said = "".join(line("a", 1000 * n, n) for n in range(1, 9)) + line("end-of-all", 0, 8) + "end 2000000000 500000000 64\n"
    phases = dict(told("steady", said))
    assert phases["a"] == {"burst_us": [4, 5, 6, 7, 8], "hits": 100} and phases["all"]["background"] == 0.5, phases
    print("waste: good")


def main():
    if sys.argv[1:] == ["--test"]:
        return test()
    program, pattern, times = sys.argv[1:]
    ms, peer_ms, warm_mib, _ = PATTERNS.get(pattern) or sys.exit(f"waste: {pattern}: no such pattern")
    # What runs this script runs the program too.
    has_zone = "libprezero" in Path("/proc/self/maps").read_text()
    scrubs = has_zone and os.environ.get("PREZERO_SCRUB_START") != "never"
    warm = bytearray(warm_mib << 20)
    warm[::4096] = bytes(len(warm[::4096]))
    del warm
    length = str(max(1, round((ms if scrubs else peer_ms) * float(times))))
    said = subprocess.run([program, pattern, length], stdout=subprocess.PIPE, text=True, check=True).stdout
    for name, values in told(pattern, said, has_zone):
        print(f"{name}\t{json.dumps(values)}")


main()
