//! Text written without a heap, a lock or stdio.

use std::ffi::c_int;
use std::fmt::{self, Write};

/// A buffer in front of a file descriptor, written through when full and on drop. A
/// line that fits the buffer goes out in one `write`. What cannot be written is dropped.
pub struct Line {
    descriptor: c_int,
    used: usize,
    buffer: [u8; 2048],
}

impl Line {
    /// Writes to this file descriptor.
    pub fn to(descriptor: c_int) -> Line {
        Line { descriptor, used: 0, buffer: [0; 2048] }
    }

    /// Writes to standard error.
    pub fn to_stderr() -> Line {
        Line::to(libc::STDERR_FILENO)
    }

    /// Prints one line on standard error and aborts the process.
    #[cold]
    pub fn fatal(text: fmt::Arguments<'_>) -> ! {
        let _ = writeln!(Line::to_stderr(), "{text}");
        // SAFETY: no terms.
        unsafe { libc::abort() }
    }

    fn flush(&mut self) {
        let mut rest = &self.buffer[..self.used];
        while !rest.is_empty() {
            // Not `write`, which a thread may be cancelled in.
            // SAFETY: the slice is readable for its length.
            let written = unsafe {
                libc::syscall(libc::SYS_write, self.descriptor, rest.as_ptr(), rest.len())
            };
            match usize::try_from(written) {
                Ok(written) => rest = &rest[written..],
                // SAFETY: the calling thread's own errno.
                Err(_) if unsafe { *libc::__errno_location() } == libc::EINTR => {}
                Err(_) => break,
            }
        }
        self.used = 0;
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
