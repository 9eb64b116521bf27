//! Which process this is.
//!
//! A process's number does not tell: the first process of a namespace has the number 1 as that of the namespace above
//! has, and a number comes back. And no handler hears of a child that is made without libc's `fork`.
//!
//! So a page that every child finds empty (`MADV_WIPEONFORK`) holds the process's *birth*, a number that differs from
//! those of all processes which this memory was copied from. Where the kernel does not wipe, the birth says nothing, and
//! the caller compares the process's number, too. A program that comes by `exec` is told from others by what the kernel
//! says of it ([`identity`]).

use std::fmt;
use std::ptr::{self, NonNull};
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};
use std::sync::atomic::{AtomicPtr, AtomicU32};

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

use crate::{file, stderr};

/// The word that children find empty; null until it is asked for.
static WORD: AtomicPtr<AtomicU32> = AtomicPtr::new(ptr::null_mut());
/// Where there is no page for it.
static COPIED: AtomicU32 = AtomicU32::new(0);
/// The latest birth.
static LATEST: AtomicU32 = AtomicU32::new(0);
/// Bytes of the page.
const LEN: usize = 4096;

/// The birth of this process, never 0. The first call makes the page; later ones read two words.
#[inline]
pub fn current() -> u32 {
    let word = NonNull::new(WORD.load(Acquire)).unwrap_or_else(make);
    // SAFETY: one of this module's words, which stay.
    let word = unsafe { word.as_ref() };
    match word.load(Relaxed) {
        0 => new(word),
        birth => birth,
    }
}

#[cold]
fn new(word: &AtomicU32) -> u32 {
    let birth = LATEST.fetch_add(1, Relaxed) + 1;
    word.compare_exchange(0, birth, AcqRel, Acquire).map_or_else(|other| other, |_| birth)
}

#[cold]
fn make() -> NonNull<AtomicU32> {
    let (access, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE);
    // SAFETY: a new mapping touches no other memory.
    let page = unsafe { mmap_anonymous(ptr::null_mut(), LEN, access, flags) };
    let copied = NonNull::from(&COPIED);
    let word = page.ok().and_then(|page| NonNull::new(page.cast())).unwrap_or(copied);
    if word != copied {
        // SAFETY: the mapping made above. An old kernel refuses it, and children find what was there.
        let _ = unsafe { madvise(word.as_ptr().cast(), LEN, Advice::LinuxWipeOnFork) };
    }
    match WORD.compare_exchange(ptr::null_mut(), word.as_ptr(), AcqRel, Acquire) {
        Ok(_) => word,
        Err(first) => {
            if word != copied {
                // SAFETY: the mapping made above, which no other code has seen.
                let _ = unsafe { munmap(word.as_ptr().cast(), LEN) };
            }
            NonNull::new(first).unwrap_or(copied)
        }
    }
}

/// What the kernel says of a process that no other has: a program keeps it through `exec`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Identity {
    /// When the process began, in ticks since the machine did.
    began: u64,
    /// The inode of its namespace of processes.
    namespace: u64,
}

impl Identity {
    /// The inode of its namespace of processes.
    pub fn namespace(&self) -> u64 {
        self.namespace
    }
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.began, self.namespace)
    }
}

impl std::str::FromStr for Identity {
    type Err = std::num::ParseIntError;

    fn from_str(text: &str) -> Result<Identity, Self::Err> {
        let (began, namespace) = text.split_once(':').unwrap_or((text, ""));
        Ok(Identity { began: began.parse()?, namespace: namespace.parse()? })
    }
}

/// That of this process; `None` without `/proc`. Neither locks nor allocates. By calls that the dynamic linker makes, too,
/// for filters' sake.
pub fn identity() -> Option<Identity> {
    let began = began(file::read(c"/proc/self/stat", &mut [0; 1024]).ok()?)?;
    Some(Identity { began, namespace: namespace()? })
}

/// The inode of this process's namespace of processes; `None` without `/proc`.
pub fn namespace() -> Option<u64> {
    let namespace = file::open(c"/proc/self/ns/pid").ok()?;
    let inode = stderr::inode(&namespace);
    file::close(namespace);
    inode.map(|(_, inode)| inode)
}

/// The 22nd field: the second is a name in brackets, which may have blanks and brackets itself.
fn began(stat: &[u8]) -> Option<u64> {
    let name = stat.iter().rposition(|byte| *byte == b')')?;
    let field = stat[name..].split(|byte| *byte == b' ').nth(20)?;
    std::str::from_utf8(field).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_that_no_handler_hears_of_has_another_birth() {
        let own = current();
        assert_eq!(current(), own);
        // SAFETY: the child makes system calls alone.
        let child = unsafe { libc::syscall(libc::SYS_clone, libc::SIGCHLD, 0, 0, 0, 0) };
        if child == 0 {
            let other = current();
            // SAFETY: the child's end.
            unsafe { libc::_exit(i32::from(other == own || other != current())) };
        }
        let mut status = 0;
        // SAFETY: the child made above; the word is there for the call to fill.
        assert_eq!(i64::from(unsafe { libc::waitpid(child as i32, &mut status, 0) }), child);
        assert_eq!((status, current()), (0, own));
    }

    #[test]
    fn identity_is_the_same_each_time_and_is_written_and_read() {
        let own = identity().unwrap();
        assert_eq!(identity(), Some(own));
        assert_eq!(own.to_string().parse(), Ok(own));
        assert!("7".parse::<Identity>().is_err());
        let stat = b"7 (a) b (c) S 1 7 7 0 -1 4194304 1 2 3 4 5 6 7 8 20 0 1 0 4711 9";
        assert_eq!(began(stat), Some(4711));
    }
}
