//! A few pages that a process shares with the tools of its owner: an inode without a path.
//!
//! It lies in the descriptor table of one thread, which other tools of the same user (or root)
//! find under `/proc/PID/task/TID/fd`; there is nothing on disk that could stay behind, and
//! it ends with the process. Every word is an atomic, so that nothing that another process
//! writes there at any moment is undefined behaviour; what it means is the callers' business.
//!
//! A tool, root's perhaps, trusts no process: what a descriptor is called is asked of the inode
//! that was taken (`O_PATH`), which is opened only then, so that no device and no
//! file of another user can take its place; and it is mapped only if it is sealed against becoming
//! shorter, which is what would kill the reader.

use std::ffi::CStr;
use std::io;
use std::mem::size_of;
use std::ops::Deref;
use std::os::fd::{AsFd, AsRawFd, IntoRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicU64;

use rustix::fs::{
    CWD, FileType, MemfdFlags, Mode, OFlags, SealFlags, fchmod, fcntl_add_seals, fcntl_get_seals,
    fstat, ftruncate, openat,
};
use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, munmap};

use super::shared::memfd;
use crate::file;

/// What the inode is called.
const NAME: &CStr = c"prezero-panel";
/// As the kernel shows a descriptor of it.
const LINK: &str = "/memfd:prezero-panel (deleted)";
/// Bytes of a panel.
pub const LEN: usize = 16 << 10;
/// Words of a panel.
pub const WORDS: usize = LEN / size_of::<AtomicU64>();

/// A panel that is mapped, for as long as the process lives.
pub type Words = &'static [AtomicU64; WORDS];

/// Another process's panel, unmapped on drop.
#[derive(Debug)]
pub struct Mapped {
    words: Words,
}

impl Deref for Mapped {
    type Target = [AtomicU64; WORDS];

    fn deref(&self) -> &Self::Target {
        self.words
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        // SAFETY: made by `map` for this value alone, which hands out no longer borrow than
        // its own.
        let _ = unsafe { munmap(std::ptr::from_ref(self.words).cast_mut().cast(), LEN) };
    }
}

/// Makes one in the calling thread's descriptor table, all zero, for its owner alone and of a
/// size that is fixed. The child of a fork does not inherit the mapping.
///
/// # Errors
/// What the kernel answers: no memory, no descriptor, no such call.
pub fn create() -> Result<Words, Errno> {
    let file = memfd(NAME, MemfdFlags::empty())?;
    let words = fill(&file);
    if words.is_ok() {
        // The descriptor stays open: it is how others find the panel.
        let _ = file.into_raw_fd();
    } else {
        file::close(file);
    }
    words
}

fn fill(file: &OwnedFd) -> Result<Words, Errno> {
    fchmod(file, Mode::RUSR | Mode::WUSR)?;
    ftruncate(file, LEN as u64)?;
    fcntl_add_seals(file, SealFlags::GROW | SealFlags::SHRINK | SealFlags::SEAL)?;
    map(file)
}

/// Unmaps one that [`create`] made.
///
/// # Safety
/// It is not used any more.
pub unsafe fn discard(words: Words) {
    // SAFETY: a mapping of that length, and the caller's promise.
    let _ = unsafe { munmap(std::ptr::from_ref(words).cast_mut().cast(), LEN) };
}

/// Maps that of another process.
///
/// # Errors
/// `NotFound`: it has none, or there is no such process; `PermissionDenied`: it is another
/// user's; `InvalidData`: it has something else of that name; what else the kernel answers.
pub fn of_process(pid: u32) -> io::Result<Mapped> {
    let taken = find(pid)?.ok_or(io::ErrorKind::NotFound)?;
    let path = format!("/proc/thread-self/fd/{}", taken.as_raw_fd());
    let file = openat(CWD, path, OFlags::RDWR | OFlags::CLOEXEC | OFlags::NONBLOCK, Mode::empty())?;
    let sealed = SealFlags::GROW | SealFlags::SHRINK | SealFlags::SEAL;
    if !fcntl_get_seals(&file).is_ok_and(|seals| seals.contains(sealed)) {
        return Err(io::ErrorKind::InvalidData.into());
    }
    Ok(Mapped { words: map(&file)? })
}

/// How often the list of a process's threads is read that has no panel in it, at most.
const LISTS: u32 = 16;

/// What a process has that is called a panel and is as long as one.
fn find(pid: u32) -> io::Result<Option<OwnedFd>> {
    // A list that is read while threads end may lack some that live: two alike lack none.
    let (mut before, mut lists) = (Vec::new(), 0);
    loop {
        let tasks = std::fs::read_dir(format!("/proc/{pid}/task"))?.flatten();
        let tasks: Vec<_> = tasks.map(|task| task.path()).collect();
        let found = find_among(&tasks);
        lists += 1;
        if matches!(found, Ok(Some(_))) || tasks == before || lists == LISTS {
            return found;
        }
        before = tasks;
    }
}

fn find_among(tasks: &[PathBuf]) -> io::Result<Option<OwnedFd>> {
    let mut refused = None;
    for task in tasks {
        let comm = std::fs::read_to_string(task.join("comm")).unwrap_or_default();
        if comm.trim_end() != "scrubd" {
            continue;
        }
        match std::fs::read_dir(task.join("fd")) {
            Err(error) => refused = Some(error),
            Ok(files) => {
                let found = files.flatten().find_map(|file| take(&file.path()));
                if found.is_some() {
                    return Ok(found);
                }
            }
        }
    }
    refused.map_or(Ok(None), Err)
}

/// A descriptor of whatever is there, which does nothing to it, if that is a panel.
fn take(path: &Path) -> Option<OwnedFd> {
    let named = |path: &Path| std::fs::read_link(path).is_ok_and(|link| link.as_os_str() == LINK);
    if !named(path) {
        return None;
    }
    let taken = openat(CWD, path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).ok()?;
    let stat = fstat(&taken).ok()?;
    let is_panel = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile
        && stat.st_nlink == 0
        && stat.st_size == LEN as i64
        // The other name was of whatever lay there a moment ago.
        && named(Path::new(&format!("/proc/thread-self/fd/{}", taken.as_raw_fd())));
    is_panel.then_some(taken)
}

fn map(file: &OwnedFd) -> Result<Words, Errno> {
    let protection = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: a new mapping, at an address of the kernel's choice.
    let start =
        unsafe { mmap(std::ptr::null_mut(), LEN, protection, MapFlags::SHARED, file.as_fd(), 0) }?;
    // SAFETY: the new mapping; its content stays. If the kernel does not know the advice a
    // child has a mapping that nothing in it uses.
    let _ = unsafe { madvise(start, LEN, Advice::LinuxDontFork) };
    // SAFETY: the mapping is LEN bytes of zeroed or shared memory, page-aligned, and is unmapped
    // by the end of a `Mapped` alone; the file has that length and is sealed, so it cannot shrink,
    // and every access to it, here and elsewhere, is atomic.
    Ok(unsafe { &*start.cast::<[AtomicU64; WORDS]>() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use prezero_testing::until;
    use std::sync::atomic::Ordering::SeqCst;

    /// A thread called scrubd that makes something of its descriptors, and keeps it until
    /// it is told to end.
    struct Fake {
        thread: Option<std::thread::JoinHandle<()>>,
        end: std::sync::mpsc::Sender<()>,
    }

    impl Fake {
        fn new(make: impl FnOnce() -> Vec<OwnedFd> + Send + 'static) -> Fake {
            let (ready, wait) = (std::sync::mpsc::channel(), std::sync::mpsc::channel());
            let scrubd = std::thread::Builder::new().name("scrubd".into());
            let thread = scrubd.spawn(move || {
                crate::thread::own_descriptors().unwrap();
                let kept = make();
                ready.0.send(()).unwrap();
                let _ = wait.1.recv();
                drop(kept);
            });
            ready.1.recv().unwrap();
            Fake { thread: Some(thread.unwrap()), end: wait.0 }
        }
    }

    impl Drop for Fake {
        fn drop(&mut self) {
            let _ = self.end.send(());
            let _ = self.thread.take().unwrap().join();
        }
    }

    fn inode(len: u64, seals: SealFlags) -> OwnedFd {
        let file = memfd(NAME, MemfdFlags::empty()).unwrap();
        ftruncate(&file, len).unwrap();
        fcntl_add_seals(&file, seals).unwrap();
        file
    }

    fn refusal() -> io::ErrorKind {
        of_process(std::process::id()).unwrap_err().kind()
    }

    // One test: they are found by process, and this is one.
    #[test]
    fn a_panel_is_found_if_it_is_one() {
        assert_eq!(refusal(), io::ErrorKind::NotFound);

        let all = SealFlags::GROW | SealFlags::SHRINK | SealFlags::SEAL;
        for (len, seals, kind) in [
            // It could be cut under a reader's feet.
            (LEN as u64, SealFlags::empty(), io::ErrorKind::InvalidData),
            (LEN as u64, SealFlags::GROW | SealFlags::SEAL, io::ErrorKind::InvalidData),
            (4096, all, io::ErrorKind::NotFound),
        ] {
            let _fake = Fake::new(move || vec![inode(len, seals)]);
            assert_eq!(refusal(), kind, "{len} {seals:?}");
        }
        // A device, a pipe and a file are not opened, whatever stands beside them.
        let beside = Fake::new(|| {
            let open = |path: &str| OwnedFd::from(std::fs::File::open(path).unwrap());
            vec![
                open("/dev/zero"),
                open("/proc/self/exe"),
                OwnedFd::from(std::io::pipe().unwrap().0),
            ]
        });
        assert_eq!(refusal(), io::ErrorKind::NotFound);
        drop(beside);

        let fake = Fake::new(|| {
            create().unwrap()[7].store(42, SeqCst);
            vec![]
        });
        let seen = of_process(std::process::id()).unwrap();
        assert_eq!(seen[7].load(SeqCst), 42);
        drop(fake);
        // A thread that is joined has left its memory, and closes its files after that.
        until("the panel goes with its thread", || of_process(std::process::id()).is_err());
        assert_eq!(refusal(), io::ErrorKind::NotFound);
        assert_eq!(seen[7].load(SeqCst), 42, "it outlives its process for who has it open");

        // The kernel leaves tasks out of a list that is read while others before them end.
        for round in 0..200 {
            let start = std::sync::Barrier::new(9);
            std::thread::scope(|scope| {
                for _ in 0..8 {
                    scope.spawn(|| start.wait());
                }
                let _fake = Fake::new(|| {
                    create().unwrap();
                    vec![]
                });
                start.wait();
                for _ in 0..8 {
                    assert!(of_process(std::process::id()).is_ok(), "round {round}");
                }
            });
        }
    }

    #[test]
    fn nobody_is_not_found() {
        assert_eq!(of_process(u32::MAX).unwrap_err().kind(), io::ErrorKind::NotFound);
    }
}
