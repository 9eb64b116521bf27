//! Pages that outlive the inode of a lease: they count until they are free.

mod common;

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use common::{Daemon, Reserved, possible, until};
use prezerod::host::cgroup::Cgroups;
use prezerod::protocol::{Backing, Page};

/// Leases 4M each from a quota of 8M. One page of each huge page is pinned before the lease is closed, in a pipe or as
/// a buffer of `io_uring`, as the third argument says. Once a refusal has the words of the second, all pins end. Prints
/// how many leases it got before it was refused, why, and how many after.
const PINS: &str = r#"
import ctypes, mmap, os, sys, time
import prezero_lease
HUGE, PATIENCE_S = 2 << 20, 300
class Piece(ctypes.Structure):
    _fields_ = [("base", ctypes.c_void_p), ("len", ctypes.c_size_t)]
libc = ctypes.CDLL(None, use_errno=True)
client = prezero_lease.Client(sys.argv[1])
pins = []
SETUP, REGISTER, BUFFERS = 425, 427, 0

def ring():
    return libc.syscall(SETUP, 1, ctypes.create_string_buffer(120))

def pin(piece):
    if sys.argv[3] == "pipe":
        pins.extend(os.pipe())
        assert libc.vmsplice(pins[-1], ctypes.byref(piece), 1, 0) == 4096, ctypes.get_errno()
    else:
        pins.append(ring())
        assert libc.syscall(REGISTER, pins[-1], BUFFERS, ctypes.byref(piece), 1) == 0, ctypes.get_errno()

def unpin():
    for pin in pins:
        os.close(pin)
    pins.clear()

if sys.argv[3] == "io_uring" and ring() < 0:
    sys.exit(print("no io_uring"))

def lease():
    with client.lease(2 * HUGE, wait=PATIENCE_S) as lease:
        memory = mmap.mmap(lease.fd, 2 * HUGE)
        here = (ctypes.c_char * 1).from_buffer(memory)
        for at in (0, HUGE):
            memory[at] = 1
            pin(Piece(ctypes.addressof(here) + at, 4096))
        del here
        memory.close()

def leases(most):
    for count in range(most):
        try:
            lease()
        except prezero_lease.Refused as refused:
            return count, str(refused)
    return most, ""

count, why = leases(20)
deadline = time.monotonic() + PATIENCE_S
while (later := leases(1))[0] == 0 and sys.argv[2] not in later[1] and time.monotonic() < deadline:
    time.sleep(0.1)
unpin()
deadline = time.monotonic() + PATIENCE_S
while not (again := leases(1)[0]) and time.monotonic() < deadline:
    time.sleep(0.1)
unpin()
print(count, "|", why, "|", later, "|", again)
"#;

/// A memory cgroup for a broker alone, removed when dropped: what other programs do in the same one counts as pages that
/// came or went.
struct Cgroup(PathBuf);

impl Cgroup {
    /// `None` where this user can make none.
    fn new(name: &str) -> Option<Cgroup> {
        let name = format!("/prezero-pins-{name}-{}", std::process::id());
        let dir = Cgroups::new(Path::new("/")).dir(&name, Backing::Thp)?;
        fs::create_dir(&dir).ok()?;
        let cgroup = Cgroup(dir);
        let counts = |name: &&str| cgroup.0.join(name).exists();
        ["memory.current", "memory.usage_in_bytes"].iter().any(counts).then_some(cgroup)
    }

    /// Starts the broker again, in here.
    fn enter(&self, daemon: &mut Daemon) {
        daemon.kill();
        let mut command = Command::new("sh");
        command.args(["-c", "echo 0 >\"$1\"; shift; exec \"$@\"", "sh"]);
        command.arg(self.0.join("cgroup.procs")).arg(daemon.command().get_program());
        command.args(daemon.command().get_args()).stderr(Stdio::piped());
        daemon.run(command);
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        // Busy until the kernel has let go of its last process.
        until("the cgroup goes", || match fs::remove_dir(&self.0) {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        });
    }
}

fn pinned_by(way: &str, backing: &str) {
    let uid = rustix::process::getuid().as_raw();
    let quota = format!(
        "backing = \"{backing}\"\n[[tenant]]\nname = \"t\"\nusers = [{uid}]\nquota = \"8M\"\n"
    );
    let cgroup = Cgroup::new(backing);
    let mut daemon = Daemon::start(&quota);
    if let Some(cgroup) = &cgroup {
        cgroup.enter(&mut daemon);
    }
    // Without a cgroup that counts pages of pools, another program may have them.
    let finds = if backing == "hugetlb" { "pinned" } else { "are still in use: pages are pinned" };
    let output = daemon.python(PINS).args([finds, way]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let failed = String::from_utf8_lossy(&output.stderr);
    if said.starts_with("no io_uring") {
        return prezero_sys::tell!("skipped: this kernel gives no {way}");
    }
    let parts: Vec<&str> = said.trim().split(" | ").collect();
    let [count, why, later, again] = parts[..] else { panic!("{way}: {said}{failed}") };
    assert_eq!(count, "2", "{way}: {said}");
    assert!(why.contains("quota") || why.contains("left"), "{said}");
    assert!(later.contains(finds), "{said}");
    assert_eq!(again, "1", "{said}");
}

#[test]
fn pinned_pages_of_ordinary_memory_count_until_they_are_free() {
    if !possible() {
        return;
    }
    if Cgroups::new(Path::new("/")).unaccounted().is_none() {
        prezero_sys::tell!(
            "skipped: no memory cgroup of this process's own tells what is unaccounted"
        );
        return;
    }
    for way in ["pipe", "io_uring"] {
        pinned_by(way, "thp");
    }
}

#[test]
fn pinned_pages_of_a_pool_count_until_they_are_free() {
    let Some(_reserved) = Reserved::new(Page::Huge, 16) else {
        prezero_sys::tell!("skipped: no hugetlb pages can be reserved here");
        return;
    };
    pinned_by("pipe", "hugetlb");
}
