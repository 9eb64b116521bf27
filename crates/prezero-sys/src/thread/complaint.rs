//! A text on standard error, past libc.

use rustix::fd::BorrowedFd;
use rustix::io::Errno;

/// Writes a text to standard error, straight through the kernel. What cannot be written is
/// dropped.
#[cold]
pub fn complain(text: &str) {
    // SAFETY: descriptor 2 is borrowed for the call only; a closed one makes the write fail.
    write_all(unsafe { BorrowedFd::borrow_raw(libc::STDERR_FILENO) }, text.as_bytes());
}

fn write_all(file: BorrowedFd<'_>, mut rest: &[u8]) {
    while !rest.is_empty() {
        match rustix::io::write(file, rest) {
            Ok(written @ 1..) => rest = &rest[written..],
            Err(Errno::INTR) => {}
            Ok(0) | Err(_) => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::net::Shutdown;
    use std::os::fd::AsRawFd;
    use std::os::unix::net::UnixStream;

    #[test]
    fn text_is_written_whole_and_a_closed_reader_is_no_error() {
        let (writer, mut reader) = UnixStream::pair().unwrap();
        // SAFETY: the socket stays open to the end of the test.
        let file = unsafe { BorrowedFd::borrow_raw(writer.as_raw_fd()) };
        write_all(file, b"one line\n");
        writer.shutdown(Shutdown::Write).unwrap();
        let mut text = String::new();
        reader.read_to_string(&mut text).unwrap();
        assert_eq!(text, "one line\n");
        write_all(file, b"into the void");
    }
}
