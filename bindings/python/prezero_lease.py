"""Leases of zeroed, populated huge pages from prezerod, in pure Python.

    from prezero_lease import Client
    with Client() as broker:
        lease = broker.lease(1 << 30, wait=5.0)
        memory = lease.map()          # an mmap of zeroes that are already there
        memory[:5] = b"hello"

Sizes are bytes, times seconds. A refusal is an exception that says why and what would help: Refused
(no), NotNow (when). Besides leases a Client has available, stock, log and metrics.
The frames are those of crates/prezerod/PROTOCOL.md.
"""

import array
import fcntl
import json
import mmap
import os
import socket
import struct

HUGE = 2 << 20
GIANT = 1 << 30
ANY_NODE = -1
REASONS = {1: "malformed", 2: "size", 3: "node", 4: "host", 5: "denied", 6: "quota", 7: "busy",
           8: "empty", 9: "pressure", 10: "audit", 12: "kernel", 13: "drained"}
BACKINGS = {1: "hugetlb", 2: "thp", 3: "tmpfs"}
CHARGED = {1: "broker", 2: "tenant"}

_HEADER = struct.Struct("<2sBBI")
_WANT = struct.Struct("<QQiI")
_GRANTED = struct.Struct("<QQQiIQQQQI")
_AVAILABLE = struct.Struct("<QQQQQ")
_PEER = struct.Struct("3I")
_TIME = struct.Struct("ll")
_SYSTEM = "/run/prezero/prezerod.sock"
_UNKNOWN = (1 << 64) - 1
_SILENT = "the broker does not answer; is it stopped? systemctl status prezerod"
_SEALS = 0x1 | 0x2 | 0x4  # F_SEAL_SEAL, F_SEAL_SHRINK, F_SEAL_GROW


class Refused(Exception):
    """No. `reason` is one of REASONS, the text says what would help."""

    def __init__(self, reason, text):
        super().__init__(f"no lease: {text}")
        self.reason = reason


class NotNow(Exception):
    """Not now, but in about `seconds` (None: nobody knows yet)."""

    def __init__(self, seconds, reason, text):
        soon = "" if seconds is None else f" (ready in about {seconds:.1f} s)"
        super().__init__(f"not now: {text}{soon}")
        self.seconds = seconds
        self.reason = reason


class Lease:
    """Memory that lives until its descriptor and its last mapping are gone."""

    def __init__(self, fd, fields):
        (self.number, self.bytes, self.page, self.node, backing, self.inode,
         age, cost, waited, charged) = fields
        self.fd = fd
        self.backing = BACKINGS.get(backing, str(backing))
        self.charged = CHARGED.get(charged, str(charged))
        self.age, self.cost, self.waited = age / 1e9, cost / 1e9, waited / 1e9
        stat = os.fstat(fd)
        if stat.st_size != self.bytes or stat.st_ino != self.inode:
            raise OSError("the lease is not as granted: another file came with it")
        if self.backing != "tmpfs" and fcntl.fcntl(fd, fcntl.F_GET_SEALS) & _SEALS != _SEALS:
            raise OSError("the lease is not as granted: its size is not sealed")

    @property
    def path(self):
        """A path by which this process, and a program that inherits the fd, can open it."""
        return f"/proc/self/fd/{self.fd}"

    def map(self):
        """A shared mapping. A private one would copy every page that is written.

        Python lets the kernel choose the address: thp leases are then mapped in huge pages only where
        shmem_enabled is `advise`; see PROTOCOL.md."""
        return mmap.mmap(self.fd, self.bytes, mmap.MAP_SHARED)

    def close(self):
        """Closes the descriptor; mappings stay."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    __del__ = close


def socket_path():
    """$PREZERO_SOCKET; the user's own broker, if there is one; the system's."""
    return os.environ.get("PREZERO_SOCKET") or _found()


def _found():
    """The broker that no name leads to. `su` and `sudo -E` keep the directory of another user, which is ignored."""
    runtime = os.environ.get("XDG_RUNTIME_DIR", "")
    own = os.path.join(runtime, "prezero/prezerod.sock")
    return own if os.path.isabs(runtime) and _is_owned(runtime, os.geteuid()) and os.path.exists(own) else _SYSTEM


def _is_owned(directory, user):
    try:
        return os.stat(directory).st_uid == user
    except OSError:
        return False


class Client:
    """One connection; one question at a time.

    A broker that `path` or $PREZERO_SOCKET names may be any user's, another one is root's or the caller's own.
    One that says nothing for `patience` seconds beyond a wait is stopped: TimeoutError."""

    def __init__(self, path=None, patience=10.0):
        path = path or os.environ.get("PREZERO_SOCKET")
        is_named, path = bool(path), path or _found()
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._tag = 0
        self._patience = patience
        try:
            # The socket blocks: one that does not finds a queue full where others wait.
            self._limit(socket.SO_SNDTIMEO, patience)
            self._socket.connect(path)
        except BlockingIOError:
            self._socket.close()
            raise TimeoutError(_SILENT) from None
        except OSError as error:
            self._socket.close()
            denied = isinstance(error, PermissionError)
            mend = "this user may not connect; see socket-mode in prezerod(8)" if denied else "does prezerod run?"
            raise OSError(error.errno, f"{path}: {error.strerror}; {mend}") from None
        peer = _PEER.unpack(self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size))[1]
        is_system = path == _SYSTEM and _is_owned(os.path.dirname(path), 0)
        if not (is_named or peer in (0, os.geteuid()) or is_system):
            self._socket.close()
            raise PermissionError(f"{path}: a broker of uid {peer}, which is neither root nor you; to trust it name it: "
                                  "Client(path), or PREZERO_SOCKET")

    def lease(self, size, page=HUGE, node=ANY_NODE, wait=0.0, or_plain=False):
        """Leases `size` bytes, waiting for at most `wait` seconds.

        With `or_plain` the caller starts with memory of its own after NotNow: the broker makes nothing to order,
        and waits only while that beats such memory."""
        body, fd = self._ask(11 if or_plain else 1, _WANT.pack(size, page, node, int(wait * 1000)), 129, wait)
        return Lease(fd, _GRANTED.unpack(body))

    def available(self, page=HUGE, node=ANY_NODE):
        """Bytes ready, largest, making, pace (bytes a second; 0: unknown), quota_left."""
        body, _ = self._ask(5, struct.pack("<Qi", page, node), 133)
        return dict(zip(("ready", "largest", "making", "pace", "quota_left"), _AVAILABLE.unpack(body)))

    def stock(self):
        """What is there, who holds what, and why what is wanted is not there: PROTOCOL.md."""
        return json.loads(self._report(1))

    def log(self):
        """Which claims were served, delayed or refused, and why: PROTOCOL.md."""
        return [json.loads(line) for line in self._report(3).splitlines()]

    def metrics(self):
        """The counters as Prometheus text."""
        return self._report(2)

    def close(self):
        """Ends the connection; leases stay."""
        self._socket.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def _report(self, which):
        parts, next_part = [], 0
        while True:
            body, _ = self._ask(7, struct.pack("<IQ", which, next_part), 136)
            next_part, _ = struct.unpack_from("<QI", body)
            parts.append(body[12:])
            if not next_part:
                return b"".join(parts).decode()

    def _limit(self, option, seconds):
        self._socket.setsockopt(socket.SOL_SOCKET, option, _TIME.pack(int(seconds), int(seconds % 1 * 1e6)))

    def _ask(self, kind, body, expected, wait=0.0):
        self._tag = (self._tag + 1) & 0xFFFFFFFF
        self._limit(socket.SO_RCVTIMEO, wait + self._patience)
        try:
            return self._asked(kind, body, expected)
        except BlockingIOError:
            raise TimeoutError(_SILENT) from None

    def _asked(self, kind, body, expected):
        try:
            self._socket.send(_HEADER.pack(b"PZ", 1, kind, self._tag) + body)
        except BrokenPipeError:
            pass  # a broker that turned us away has said why before it closed
        while True:
            packet, fd = self._receive()
            magic, version, kind, tag = _HEADER.unpack_from(packet)
            body = packet[_HEADER.size:]
            if magic != b"PZ" or version != 1:
                raise OSError("the answer is none of prezerod's; are client and broker of one version?")
            if kind == 130:
                reason, length = struct.unpack_from("<II", body)
                raise Refused(REASONS.get(reason, str(reason)), body[8:8 + length].decode())
            if tag == self._tag:
                break
            if fd >= 0:
                os.close(fd)
        if kind == 131:
            ns, reason, length = struct.unpack_from("<QII", body)
            seconds = None if ns == _UNKNOWN else ns / 1e9
            raise NotNow(seconds, REASONS.get(reason, str(reason)), body[16:16 + length].decode())
        if kind != expected or (expected == 129 and fd < 0):
            raise OSError("the broker answered out of turn; are client and broker of one version?")
        return body, fd

    def _receive(self):
        size = array.array("i").itemsize
        packet, control, _, _ = self._socket.recvmsg(16384, socket.CMSG_SPACE(size), socket.MSG_CMSG_CLOEXEC)
        if not packet:
            raise ConnectionResetError("the broker is gone")
        for level, kind, data in control:
            if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
                return packet, array.array("i", data[:size])[0]
        return packet, -1
