//! What small files of the kernel say.
//!
//! By system calls alone ([`crate::raw`]): scrubd reads `/proc` and `/sys`. Nothing here allocates for a path of less than
//! 256 bytes.

use std::os::fd::IntoRawFd;

use rustix::fd::OwnedFd;
use rustix::fs::{CWD, Mode, OFlags, openat};
use rustix::io::Errno;
use rustix::path::Arg;

/// Reads the file into the buffer; returns the part that was filled, which is all of a file that is shorter.
///
/// # Errors
/// What the kernel answers.
pub fn read(path: impl Arg, buffer: &mut [u8]) -> Result<&[u8], Errno> {
    let file = open(path)?;
    let mut len = 0;
    let done = loop {
        match rustix::io::read(&file, &mut buffer[len..]) {
            // Also where the buffer is full.
            Ok(0) => break Ok(()),
            Ok(more) => len += more,
            Err(Errno::INTR) => {}
            Err(error) => break Err(error),
        }
    };
    close(file);
    done.map(|()| &buffer[..len])
}

/// Reads all of the file onto the heap.
///
/// # Errors
/// What the kernel answers.
pub fn read_all(path: impl Arg) -> Result<Vec<u8>, Errno> {
    const STEP: usize = 4096;
    let file = open(path)?;
    let mut all = Vec::new();
    let done = loop {
        let len = all.len();
        all.resize(len + STEP, 0);
        let read = rustix::io::read(&file, &mut all[len..]);
        all.truncate(len + *read.as_ref().unwrap_or(&0));
        match read {
            Ok(0) => break Ok(()),
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => break Err(error),
        }
    };
    close(file);
    done.map(|()| all)
}

/// Opens a file to read it. It goes by [`close`].
///
/// # Errors
/// What the kernel answers.
pub fn open(path: impl Arg) -> Result<OwnedFd, Errno> {
    openat(CWD, path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
}

/// Closes a file. Its drop would call libc.
pub fn close(file: impl IntoRawFd) {
    // SAFETY: the descriptor was the argument's own.
    unsafe { rustix::io::close(file.into_raw_fd()) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_read_to_its_end_or_the_buffers() {
        let all = std::fs::read("/proc/version").unwrap();
        let mut buffer = [0; 4096];
        assert_eq!(read("/proc/version", &mut buffer).unwrap(), all);
        assert_eq!(read_all("/proc/version").unwrap(), all);
        assert_eq!(read(c"/proc/version", &mut buffer[..5]).unwrap(), &all[..5]);
        assert_eq!(read("/nonexistent", &mut buffer), Err(Errno::NOENT));
        assert_eq!(read("/proc", &mut buffer), Err(Errno::ISDIR));
    }
}
