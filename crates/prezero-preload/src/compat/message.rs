//! Text written without a heap, a lock or stdio.

use std::ffi::c_int;
use std::fmt::{self, Write};

use prezero_sys::{quiet, stderr};
use rustix::fd::BorrowedFd;
use rustix::io::Errno;

/// A buffer in front of a file descriptor, written through when full and on drop. A
/// line that fits the buffer goes out in one `write`, which raises no signal. What cannot be written is dropped.
pub struct Line {
    /// `None`: standard error, while it is what it was at the start.
    descriptor: Option<c_int>,
    failed: Option<Errno>,
    used: usize,
    buffer: [u8; LINE],
}

/// Bytes that are written at once. Few, since they lie on a stack that may be short.
const LINE: usize = 512;

impl Line {
    /// Writes to this file descriptor; `None`: to standard error.
    #[inline(always)]
    pub fn to(descriptor: Option<c_int>) -> Line {
        Line { descriptor, failed: None, used: 0, buffer: [0; LINE] }
    }

    /// Writes to standard error.
    #[inline(always)]
    pub fn to_stderr() -> Line {
        Line::to(None)
    }

    /// Prints one line on standard error and aborts the process.
    #[cold]
    pub fn fatal(text: fmt::Arguments<'_>) -> ! {
        let _ = writeln!(Line::to_stderr(), "{text}");
        // SAFETY: no terms.
        unsafe { libc::abort() }
    }

    /// Whether all was written until now.
    ///
    /// # Errors
    /// The number of the error.
    pub fn end(&mut self) -> Result<(), c_int> {
        self.flush();
        self.failed.map_or(Ok(()), |error| Err(error.raw_os_error()))
    }

    fn flush(&mut self) {
        let mut rest = &self.buffer[..std::mem::take(&mut self.used)];
        let file = match self.descriptor {
            // SAFETY: the caller of `to` keeps it open.
            Some(file) => Some(unsafe { BorrowedFd::borrow_raw(file) }),
            None => stderr::unchanged(),
        };
        let Some(file) = file else { return };
        while !rest.is_empty() {
            // Not libc's `write`, which a thread may be cancelled in.
            match quiet::write(file, rest) {
                Ok(written) => rest = &rest[written..],
                Err(Errno::INTR) => {}
                Err(error) => return self.failed = Some(error),
            }
        }
    }
}

impl Write for Line {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let mut rest = text.as_bytes();
        while !rest.is_empty() {
            if self.used == self.buffer.len() {
                self.flush();
            }
            let room = &mut self.buffer[self.used..];
            let now = rest.len().min(room.len());
            room[..now].copy_from_slice(&rest[..now]);
            self.used += now;
            rest = &rest[now..];
        }
        Ok(())
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        self.flush();
    }
}
