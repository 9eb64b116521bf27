//! The programs of `prezero bench start`, and the ways in which each is started.

use std::path::{Path, PathBuf};

use prezerod::protocol::Backing;

use crate::scratch::Scratch;

/// What a way is to the others of its program.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Base {
    /// The start without any memory made ready: no way can be faster.
    Bare,
    /// That, by way of a program that starts it and does nothing else: no launcher can be faster.
    Launched,
    /// Its own way to have its memory ready.
    Own,
    /// A lease, or what was placed for it.
    Ready,
}

/// When a program counts as started.
#[derive(Clone, Debug)]
pub enum Started {
    /// It has said something.
    Says,
    /// It has ended, well.
    Ends,
    /// It answers on this socket.
    Answers(PathBuf),
}

pub struct Way {
    pub name: String,
    pub base: Base,
    /// Of a lease.
    pub claim: Vec<String>,
    pub command: Vec<String>,
    pub input: &'static str,
}

pub struct Contest {
    pub program: &'static str,
    pub bytes: u64,
    /// Of its leases.
    pub backing: Backing,
    pub started: Started,
    pub ways: Vec<Way>,
}

pub fn way(name: &str, base: Base, command: &[String]) -> Way {
    let command = command.to_vec();
    Way { name: name.into(), base, claim: vec![], command, input: "" }
}

pub fn words(text: &str) -> Vec<String> {
    text.split_whitespace().map(str::to_owned).collect()
}

pub fn lease(backing: Backing, bytes: u64, options: &str, command: &[String]) -> Way {
    let claim = format!("claim {bytes} --wait 0 {options} --").replace("  ", " ");
    let name = format!("lease, {}", backing.name());
    Way { claim: words(&claim), ..way(&name, Base::Ready, command) }
}

pub fn qemu(bytes: u64, backing: Backing) -> Contest {
    let mib = bytes >> 20;
    let bare = words(&format!(
        "qemu-system-x86_64 -accel tcg -m {mib}M -S -display none -nodefaults -qmp stdio"
    ));
    let with = |backend: &str| {
        let backend = format!("-object {backend},id=m,size={mib}M -machine memory-backend=m");
        [bare.clone(), words(&backend)].concat()
    };
    let own = match backing {
        Backing::Hugetlb => "memory-backend-memfd,hugetlb=on,hugetlbsize=2M",
        _ => "memory-backend-ram",
    };
    let prealloc = |threads: u32| with(&format!("{own},prealloc=on,prealloc-threads={threads}"));
    Contest {
        program: "QEMU",
        bytes,
        backing,
        started: Started::Says,
        ways: vec![
            way("bare", Base::Bare, &bare),
            way("bare, through env(1)", Base::Launched, &[words("env"), bare.clone()].concat()),
            way("prealloc, 1 thread", Base::Own, &prealloc(1)),
            way("prealloc, 2 threads", Base::Own, &prealloc(2)),
            lease(backing, bytes, "", &with("memory-backend-file,mem-path={lease},share=on")),
        ],
    }
}

/// A guest that touches all of its memory; `kernel` is that of `guest`.
pub fn guest(bytes: u64, backing: Backing, kernel: &Path) -> Contest {
    let (mib, kernel) = (bytes >> 20, kernel.display());
    let plain = words(&format!(
        "qemu-system-x86_64 -accel tcg -m {mib}M -display none -nodefaults -debugcon stdio -kernel {kernel}"
    ));
    let with = |backend: &str| {
        let backend = format!("-object {backend},id=m,size={mib}M -machine memory-backend=m");
        [plain.clone(), words(&backend)].concat()
    };
    let own = match backing {
        Backing::Hugetlb => "memory-backend-memfd,hugetlb=on,hugetlbsize=2M",
        _ => "memory-backend-ram",
    };
    let mut ways = vec![
        way("its own, as touched", Base::Own, &with(own)),
        way("prealloc, 1 thread", Base::Own, &with(&format!("{own},prealloc=on"))),
        // `prezero claim` has it begin where huge pages do.
        lease(backing, bytes, "", &with("memory-backend-file,mem-path={lease},share=on")),
    ];
    if backing == Backing::Thp {
        ways.insert(1, way("its own, shared", Base::Own, &with("memory-backend-memfd")));
    }
    Contest { program: "QEMU, all touched", bytes, backing, started: Started::Says, ways }
}

pub fn jvm(bytes: u64, backing: Backing) -> Contest {
    let mib = bytes >> 20;
    let java = |options: &str| {
        words(&format!("java -XX:+UseParallelGC -Xms{mib}m -Xmx{mib}m {options} -version"))
    };
    let own = match backing {
        Backing::Hugetlb => ("its own hugetlb pages", "-XX:+UseLargePages"),
        _ => ("its own THP", "-XX:+UseTransparentHugePages"),
    };
    let mut ways = vec![
        way("untouched", Base::Bare, &java("")),
        way(own.0, Base::Own, &java(&format!("{} -XX:+AlwaysPreTouch", own.1))),
        lease(backing, bytes, "--preload", &java("-XX:+AlwaysPreTouch -XX:AllocateHeapAt=/tmp")),
    ];
    // Every page of a lease is there: to touch each is all that AlwaysPreTouch adds.
    let mut untouched = lease(backing, bytes, "--preload", &java("-XX:AllocateHeapAt=/tmp"));
    untouched.name += ", no AlwaysPreTouch";
    ways.push(untouched);
    if backing == Backing::Thp {
        ways.insert(1, way("its own 4 KiB pages", Base::Own, &java("-XX:+AlwaysPreTouch")));
    }
    Contest { program: "JVM", bytes, backing, started: Started::Ends, ways }
}

pub fn memcached(bytes: u64, backing: Backing, scratch: &Scratch) -> Contest {
    let (socket, mib) = (scratch.file("memcached"), bytes >> 20);
    let common = words(&format!("memcached -u root -m {mib} -s {}", socket.display()));
    let with = |options: &str| [common.clone(), words(options)].concat();
    Contest {
        program: "memcached",
        bytes,
        backing,
        started: Started::Answers(socket),
        ways: vec![
            way("untouched", Base::Bare, &common),
            way("its own large pages", Base::Own, &with("-L")),
            // The library maps it where huge pages begin.
            lease(backing, bytes, "--preload", &with("-e {lease}")),
        ],
    }
}
