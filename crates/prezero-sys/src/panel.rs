//! A few pages that a process shares with the tools of its owner: an inode without a path.
//!
//! It lies in the descriptor table of one thread, which other tools of the same user (or root)
//! find under `/proc/PID/task/TID/fd`; there is nothing on disk that could stay behind, and
//! it ends with the process. Every word is an atomic, so that nothing that another process
//! writes there at any moment is undefined behaviour; what it means is the callers' business.

use std::ffi::CStr;
use std::fs::File;
use std::io;
use std::mem::size_of;
use std::ops::Deref;
use std::os::fd::{AsFd, IntoRawFd, OwnedFd};
use std::path::PathBuf;
use std::sync::atomic::AtomicU64;

use rustix::fs::{MemfdFlags, Mode, SealFlags, fchmod, fcntl_add_seals, ftruncate, memfd_create};
use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, munmap};

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
pub struct Mapped(Words);

impl Deref for Mapped {
    type Target = [AtomicU64; WORDS];

    fn deref(&self) -> &Self::Target {
        self.0
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        // SAFETY: made by `map` for this value alone, which hands out no longer borrow than
        // its own.
        let _ = unsafe { munmap(std::ptr::from_ref(self.0).cast_mut().cast(), LEN) };
    }
}

/// Makes one in the calling thread's descriptor table, all zero, for its owner alone and of a
/// size that nobody can change. The child of a fork does not inherit the mapping.
///
/// # Errors
/// What the kernel answers: no memory, no descriptor, no such call.
pub fn create() -> Result<Words, Errno> {
    let file = memfd_create(NAME, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
    fchmod(&file, Mode::RUSR | Mode::WUSR)?;
    ftruncate(&file, LEN as u64)?;
    fcntl_add_seals(&file, SealFlags::GROW | SealFlags::SHRINK | SealFlags::SEAL)?;
    let words = map(&file)?;
    // The descriptor stays open: it is how others find the panel.
    let _ = file.into_raw_fd();
    Ok(words)
}

/// Maps that of another process.
///
/// # Errors
/// `NotFound`: it has none, or there is no such process; `PermissionDenied`: it is somebody
/// else's; what else the kernel answers.
pub fn of_process(pid: u32) -> io::Result<Mapped> {
    let path = find(pid)?.ok_or(io::ErrorKind::NotFound)?;
    let file = File::options().read(true).write(true).open(path)?;
    if file.metadata()?.len() != LEN as u64 {
        return Err(io::ErrorKind::InvalidData.into());
    }
    Ok(Mapped(map(&OwnedFd::from(file))?))
}

/// Where a process has its panel, if it has one.
fn find(pid: u32) -> io::Result<Option<PathBuf>> {
    let mut refused = None;
    for task in std::fs::read_dir(format!("/proc/{pid}/task"))?.flatten() {
        let comm = std::fs::read_to_string(task.path().join("comm")).unwrap_or_default();
        if comm.trim_end() != "scrubd" {
            continue;
        }
        match std::fs::read_dir(task.path().join("fd")) {
            Err(error) => refused = Some(error),
            Ok(files) => {
                let is_panel = |file: &PathBuf| {
                    std::fs::read_link(file).is_ok_and(|link| link.as_os_str() == LINK)
                };
                if let Some(file) = files.flatten().map(|file| file.path()).find(is_panel) {
                    return Ok(Some(file));
                }
            }
        }
    }
    refused.map_or(Ok(None), Err)
}

fn map(file: &OwnedFd) -> Result<Words, Errno> {
    let protection = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: a new mapping, at an address of the kernel's choice.
    let start =
        unsafe { mmap(std::ptr::null_mut(), LEN, protection, MapFlags::SHARED, file.as_fd(), 0) }?;
    // SAFETY: our own new mapping; its content stays. If the kernel does not know the advice a
    // child has a mapping that nothing in it uses.
    let _ = unsafe { madvise(start, LEN, Advice::LinuxDontFork) };
    // SAFETY: the mapping is LEN bytes of zeroed or shared memory, page-aligned, and is unmapped
    // by the end of a `Mapped` alone; the file cannot shrink (sealed, or its length was looked at and its seals are
    // our own), and every access to it, here and elsewhere, is atomic.
    Ok(unsafe { &*start.cast::<[AtomicU64; WORDS]>() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::Ordering::SeqCst;

    #[test]
    fn a_panel_is_found_by_another_mapping_and_only_in_a_thread_of_that_name() {
        let pid = std::process::id();
        let missing = of_process(pid).unwrap_err();
        assert_eq!(missing.kind(), io::ErrorKind::NotFound);
        let (ready, wait) = (std::sync::mpsc::channel(), std::sync::mpsc::channel::<()>());
        let scrubd = std::thread::Builder::new().name("scrubd".into());
        let thread = scrubd.spawn(move || {
            let own = create().unwrap();
            own[7].store(42, SeqCst);
            ready.0.send(()).unwrap();
            wait.1.recv().unwrap();
            own[8].load(SeqCst)
        });
        ready.1.recv().unwrap();
        let seen = of_process(pid).unwrap();
        assert_eq!(seen[7].load(SeqCst), 42);
        seen[8].store(43, SeqCst);
        wait.0.send(()).unwrap();
        assert_eq!(thread.unwrap().join().unwrap(), 43);
    }

    #[test]
    fn nobody_is_not_found() {
        assert_eq!(of_process(u32::MAX).unwrap_err().kind(), io::ErrorKind::NotFound);
    }
}
