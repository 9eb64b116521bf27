//! Standard error, as long as it is the file that it was at the start.
//!
//! A program may close descriptor 2 and open its data, which has that number then. A line of ours would be written into
//! the data. So device and inode of descriptor 2 are noted when the library is loaded and looked at before each line.
//! Where it was closed then, or is another file now, nothing is said.
//!
//! A program that replaces itself (`exec`) keeps its descriptors. So `prezero run` hands on which file its own descriptor 2
//! was ([`VARIABLE`]), and a program that begins with another there says nothing. Nor does one whose descriptor 2 is a
//! socket that is its standard input or output, too: that is a client's (inetd).
//!
//! A process that confined itself is not asked: its filter may end it for the question. Nothing is said there either.

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64};

use rustix::fd::{AsFd, BorrowedFd};
use rustix::fs::{AtFlags, FileType, Stat, fstat, statat};

use crate::{process, sandbox};

/// Device and inode.
static DEVICE: AtomicU64 = AtomicU64::new(0);
static INODE: AtomicU64 = AtomicU64::new(0);
/// Whether there was one.
static WAS_OPEN: AtomicBool = AtomicBool::new(false);
/// How the kernel is asked.
static WAY: AtomicU8 = AtomicU8::new(BY_NUMBER);
const BY_NUMBER: u8 = 0;
const BY_NO_NAME: u8 = 1;

/// Runs when the library or the program that has this code is loaded, before the program's own code.
#[used]
#[unsafe(link_section = ".init_array")]
static NOTE: extern "C" fn() = {
    extern "C" fn note() {
        WAY.store(way(), Relaxed);
        let known = known();
        let found = file(libc::STDERR_FILENO).filter(|found| !is_clients(found));
        let found = found.map(|file| (file.st_dev, file.st_ino));
        if let Some((device, inode)) =
            found.filter(|found| known.is_none_or(|file| file == Some(*found)))
        {
            DEVICE.store(device, Relaxed);
            INODE.store(inode, Relaxed);
            WAS_OPEN.store(true, Release);
        }
    }
    note
};

/// Standard error, if it is the file that it was at the start.
pub fn unchanged() -> Option<BorrowedFd<'static>> {
    if sandbox::is_confined() || !WAS_OPEN.load(Acquire) {
        return None;
    }
    let noted = (DEVICE.load(Relaxed), INODE.load(Relaxed));
    (inode(descriptor())? == noted).then_some(descriptor())
}

fn descriptor() -> BorrowedFd<'static> {
    // SAFETY: descriptor 2 is used for a call at a time only; a closed one makes that fail.
    unsafe { BorrowedFd::borrow_raw(libc::STDERR_FILENO) }
}

/// Device and inode of an open file; `None`: it is not open.
pub(crate) fn inode(file: impl AsFd) -> Option<(u64, u64)> {
    stat(file).map(|stat| (stat.st_dev, stat.st_ino))
}

fn stat(file: impl AsFd) -> Option<Stat> {
    let stat = if WAY.load(Relaxed) == BY_NO_NAME {
        statat(file, c"", AtFlags::EMPTY_PATH)
    } else {
        fstat(file)
    };
    stat.ok()
}

fn file(descriptor: i32) -> Option<Stat> {
    // SAFETY: used for this call only; a closed one makes it fail.
    stat(unsafe { BorrowedFd::borrow_raw(descriptor) })
}

/// Whether descriptor 2, this file, is a socket that is standard input or output, too.
fn is_clients(file_2: &Stat) -> bool {
    let same = |other: Stat| (other.st_dev, other.st_ino) == (file_2.st_dev, file_2.st_ino);
    FileType::from_raw_mode(file_2.st_mode) == FileType::Socket
        && [libc::STDIN_FILENO, libc::STDOUT_FILENO].into_iter().any(|n| file(n).is_some_and(same))
}

/// Which file descriptor 2 of the first program was: `DEVICE:INODE`, or `closed`.
pub const VARIABLE: &std::ffi::CStr = c"PREZERO_STDERR";

/// What to hand on in [`VARIABLE`].
pub fn noted() -> String {
    if !WAS_OPEN.load(Acquire) {
        return "closed".into();
    }
    format!("{}:{}", DEVICE.load(Relaxed), INODE.load(Relaxed))
}

/// What a program before this one handed on: the file, or that it was closed; `None`: nothing.
fn known() -> Option<Option<(u64, u64)>> {
    // SAFETY: the name ends in NUL; libc's environment is there before this library is initialised, and its text stays.
    let text = unsafe {
        let text = libc::getenv(VARIABLE.as_ptr());
        (!text.is_null()).then(|| std::ffi::CStr::from_ptr(text))?
    };
    let (device, inode) = text.to_str().ok()?.split_once(':').unwrap_or_default();
    Some(device.parse().ok().zip(inode.parse().ok()))
}

/// The call that no filter ends this process for: the one by which the dynamic linker has just looked at this library.
fn way() -> u8 {
    if sandbox::is_filtered()
        && process::glibc_minor().is_some_and(|minor| BY_NAME.contains(&minor))
    {
        BY_NO_NAME
    } else {
        BY_NUMBER
    }
}

/// Minor versions of glibc whose `fstat` is `newfstatat`.
const BY_NAME: std::ops::RangeInclusive<u32> = 33..=38;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ways_find_the_same_file() {
        let found = [BY_NO_NAME, BY_NUMBER].map(|way| {
            WAY.store(way, Relaxed);
            inode(descriptor()).unwrap()
        });
        assert_eq!(found[0], found[1]);
        assert!(unchanged().is_some(), "it was noted before the tests began");
        assert!(cfg!(not(target_env = "gnu")) || process::glibc_minor().is_some());
    }
}
