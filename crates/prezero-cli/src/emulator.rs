//! `prezero-qemu`: QEMU whose shared memory without a name is leased. For libvirt's `<emulator>`.
//!
//! libvirt writes a guest's memory as `memory-backend-memfd`, one for each NUMA node, where its domain
//! says `<source type='memfd'/>`. Each of them that shares its memory gets a lease, aligned to the
//! lease's pages. All other arguments go to QEMU as they are, as do those of a libvirt that asks QEMU
//! for its capabilities. A memory without a lease stays as libvirt wrote it, and one line on standard
//! error, which is the guest's log, says why.
//!
//! `PREZERO_QEMU` is the QEMU to become; without it the name tells: `prezero-qemu-system-aarch64` becomes
//! `qemu-system-aarch64`, `prezero-qemu` that of this machine. `PREZERO_QEMU_WAIT` is how long all
//! leases may take together, made to order as well: by default a lease is taken that lies ready or nearly does.

mod memory;
mod real;

use std::ffi::OsString;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

use prezerod::client::{ClientError, Door, Lease, PLAIN_WAIT, lease_within};
use prezerod::protocol::{Backing, Otherwise, Want};
use rustix::io::{FdFlags, fcntl_setfd};

use crate::claim::Wait;
use crate::given;
use crate::qemu::{self, mentions};
use memory::{Memory, Pages};

/// Becomes QEMU.
pub fn main() -> ExitCode {
    let mut arguments = std::env::args_os();
    let name = arguments.next().unwrap_or_default();
    let arguments: Vec<OsString> = arguments.collect();
    let program = match real::find(&name) {
        Ok(program) => program,
        Err(error) => {
            say(&error);
            return ExitCode::from(127);
        }
    };
    let (began, wait) = (Instant::now(), wait());
    let (arguments, _leases) = with_leases(arguments, |want| {
        let left = wait.0.saturating_sub(began.elapsed());
        lease_within(&Door::find(None), want, left, wait.1)
    });
    let error = given::hand_on(Command::new(&program).args(arguments)).exec();
    say(&format!("{}: {error}", program.display()));
    ExitCode::from(126)
}

/// One line.
fn say(what: &str) {
    prezero_sys::tell!("prezero-qemu: {what}");
}

/// How long all leases may take, and whether one is made to order: the guest has memory of its own.
fn wait() -> (Duration, Otherwise) {
    let Some(given) = std::env::var_os("PREZERO_QEMU_WAIT") else {
        return (PLAIN_WAIT, Otherwise::Plain);
    };
    match given.to_str().unwrap_or_default().parse() {
        Ok(Wait(Duration::ZERO)) => (Duration::ZERO, Otherwise::Plain),
        Ok(Wait(wait)) => (wait, Otherwise::ComesBack),
        Err(error) => {
            say(&format!("PREZERO_QEMU_WAIT: {error}; takes only what lies ready"));
            (Duration::ZERO, Otherwise::Plain)
        }
    }
}

/// The arguments with a lease under each memory that gets one, and those leases, which QEMU inherits.
fn with_leases(
    mut arguments: Vec<OsString>,
    mut ask: impl FnMut(Want) -> Result<Lease, ClientError>,
) -> (Vec<OsString>, Vec<OwnedFd>) {
    let words: Vec<&str> = arguments.iter().map(|word| word.to_str().unwrap_or("")).collect();
    let is_object = |at: usize| at > 0 && ["-object", "--object"].contains(&words[at - 1]);
    let objects: Vec<_> =
        mentions(&words).into_iter().filter(|mention| is_object(mention.argument)).collect();
    let mut leases = vec![];
    // A broker that is not there is not there for the next memory either.
    let mut is_there = true;
    for mention in objects {
        let mut object = mention.object;
        let id = object.get("id").unwrap_or_default();
        let memory = match memory::of(&object) {
            Memory::Leased(memory) if is_there => memory,
            Memory::Leased(_) | Memory::Other => continue,
            Memory::Unfit(why) => {
                say(&format!("{id}: {why}; its memory is not leased"));
                continue;
            }
        };
        let lease = ask(memory.want).map_err(|error| {
            is_there = !matches!(error, ClientError::Unreachable(..) | ClientError::Silent);
            error.to_string()
        });
        match lease.and_then(|lease| inherited(lease, memory.pages)) {
            Ok(file) => {
                let path = format!("/proc/self/fd/{}", file.as_raw_fd());
                qemu::lease(&mut object, &path, memory.want.page.bytes());
                arguments[mention.argument] = object.to_string().into();
                leases.push(file);
            }
            Err(why) => say(&format!("{id}: {why}; its memory is not leased")),
        }
    }
    (arguments, leases)
}

/// The descriptor of a lease, open in QEMU.
fn inherited(lease: Lease, pages: Pages) -> Result<OwnedFd, String> {
    if pages == Pages::OfThePool && lease.granted.backing != Backing::Hugetlb {
        return Err("the lease is not of the hugetlb pool, which the guest asks for".into());
    }
    fcntl_setfd(&lease.file, FdFlags::empty()).map_err(|error| error.to_string())?;
    Ok(lease.file)
}

#[cfg(test)]
mod tests {
    use super::*;
    use prezerod::protocol::{Charged, Granted, Page};
    use rustix::fs::{MemfdFlags, memfd_create};

    fn granted(want: Want) -> Lease {
        let granted = Granted {
            lease: 1,
            bytes: want.bytes,
            page: want.page,
            node: want.node.unwrap_or(0),
            backing: Backing::Thp,
            inode: 1,
            age_ns: 0,
            cost_ns: 0,
            waited_ns: 0,
            charged: Charged::Broker,
        };
        Lease { granted, file: memfd_create("lease", MemfdFlags::CLOEXEC).unwrap() }
    }

    /// What QEMU gets, and what the broker was asked for.
    fn started(words: &[&str], has: impl Fn(Want) -> bool) -> (Vec<String>, Vec<Want>) {
        let mut asked = vec![];
        let arguments = words.iter().map(OsString::from).collect();
        let (arguments, leases) = with_leases(arguments, |want| {
            asked.push(want);
            if has(want) { Ok(granted(want)) } else { Err(ClientError::When(None, "no".into())) }
        });
        let mut arguments: Vec<_> =
            arguments.into_iter().map(|word| word.into_string().unwrap()).collect();
        for (number, file) in leases.iter().enumerate() {
            let path = format!("/proc/self/fd/{}", file.as_raw_fd());
            assert_eq!(rustix::io::fcntl_getfd(file), Ok(FdFlags::empty()), "QEMU inherits it");
            for word in &mut arguments {
                *word = word.replace(&path, &format!("LEASE{number}"));
            }
        }
        (arguments, asked)
    }

    const MACHINE: &str = "pc-q35-7.2,usb=off,dump-guest-core=off,memory-backend=pc.ram";
    const ALONE: &str = r#"{"qom-type":"memory-backend-memfd","id":"pc.ram","share":true,"x-use-canonical-path-for-ramblock-id":false,"size":4294967296}"#;

    #[test]
    fn a_guest_of_libvirt_has_its_memory_leased() {
        let words = ["-name", "guest=a", "-machine", MACHINE, "-m", "4096", "-object", ALONE, "-S"];
        let (arguments, asked) = started(&words, |_| true);
        assert_eq!(asked, [Want { bytes: 4 << 30, page: Page::Huge, node: None }]);
        let leased = r#"{"align":2097152,"id":"pc.ram","mem-path":"LEASE0","qom-type":"memory-backend-file","share":true,"size":4294967296,"x-use-canonical-path-for-ramblock-id":false}"#;
        let object = |word: &str| serde_json::from_str::<serde_json::Value>(word).unwrap();
        assert_eq!(object(&arguments[7]), object(leased));
        assert_eq!(
            (&arguments[..7], &arguments[8..]),
            (&words.map(String::from)[..7], &["-S".to_owned()][..])
        );
    }

    #[test]
    fn each_node_has_a_lease_of_its_own_or_its_memory_as_it_was() {
        let node = |number: u16| {
            format!(
                r#"{{"host-nodes":[{number}],"id":"ram-node{number}","policy":"bind","qom-type":"memory-backend-memfd","share":true,"size":1073741824}}"#
            )
        };
        let (first, second) = (node(0), node(1));
        let words =
            ["-object", &first, "-numa", "node,nodeid=0,memdev=ram-node0", "-object", &second];
        let (arguments, asked) = started(&words, |_| true);
        assert_eq!(asked.iter().map(|want| want.node).collect::<Vec<_>>(), [Some(0), Some(1)]);
        assert!(
            arguments[1].contains("LEASE0") && arguments[5].contains("LEASE1"),
            "{arguments:?}"
        );

        let (arguments, _) = started(&words, |want| want.node == Some(1));
        assert_eq!(arguments[1], first, "no lease, and nothing changed");
        assert!(arguments[5].contains("LEASE0"));
    }

    #[test]
    fn all_else_goes_to_qemu_as_it_is() {
        for words in [
            // How libvirt asks for capabilities.
            &[
                "-S",
                "-no-user-config",
                "-nodefaults",
                "-nographic",
                "-machine",
                "none,accel=kvm:tcg",
                "-qmp",
                "unix:/var/lib/libvirt/qemu/qmp.monitor,server=on,wait=off",
                "-pidfile",
                "/var/lib/libvirt/qemu/qmp.pid",
                "-daemonize",
            ][..],
            &["--version"],
            &["-m", "4G"],
            &["-object", r#"{"qom-type":"memory-backend-ram","id":"pc.ram","size":1073741824}"#],
            &[
                "-object",
                r#"{"qom-type":"memory-backend-file","id":"pc.ram","mem-path":"/dev/hugepages/a","share":true,"size":1073741824}"#,
            ],
            &["-object", "memory-backend-memfd,id=m,size=1G,share=off"],
            &["-name", "memory-backend-memfd,id=m,size=1G"],
            &["-object", "rng-random,id=r,filename=/dev/urandom"],
        ] {
            let (arguments, asked) = started(words, |_| true);
            assert_eq!(
                (arguments, asked),
                (words.iter().map(ToString::to_string).collect(), vec![])
            );
        }
    }

    #[test]
    fn a_guest_of_pages_of_the_pool_takes_no_other_pages() {
        let words = ["-object", "memory-backend-memfd,id=m,size=1G,hugetlb=on,hugetlbsize=2M"];
        let (arguments, asked) = started(&words, |_| true);
        assert_eq!((asked.len(), &arguments[..]), (1, &words.map(String::from)[..]));
    }

    #[test]
    fn a_broker_that_is_gone_is_asked_once() {
        let memory = |id| format!("memory-backend-memfd,id={id},size=1G");
        let words = ["-object", &memory("a"), "-object", &memory("b")].map(OsString::from);
        let mut asked = 0;
        let (arguments, leases) = with_leases(words.to_vec(), |_| {
            asked += 1;
            Err(ClientError::Silent)
        });
        assert_eq!((asked, leases.len(), &arguments[..]), (1, 0, &words[..]));
    }
}
