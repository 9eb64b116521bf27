//! Words for people, which neither end nor hold up the process that says them.
//!
//! `println!` and `eprintln!` panic when their reader is gone or its disk is full: a broker, or a
//! command in a pipe, must not end of that. Nothing here allocates, takes a lock, or raises a signal
//! ([`quiet`]). Standard error is written to while it is the file that it was at the start ([`stderr`]).
//! A line on standard error may have words of others: what commands a terminal is escaped in it ([`escape`]).
//!
//! | call | for | reader is slow | reader is gone, disk is full |
//! |---|---|---|---|
//! | [`log!`](crate::log) | a line of a daemon | the line is dropped, and the next one tells how many were | dropped |
//! | [`tell!`](crate::tell) | a line of a command on standard error | waits | dropped |
//! | [`print!`](crate::print) | what a command was asked for, on standard output | waits | an error for the caller |
//! | [`complain`] | the library inside a program, which may allow `write` and no other call | waits | dropped |
//!
//! Clippy refuses the panicking macros in all crates (`print_stdout`, `print_stderr`).

use std::fmt::{self, Write};
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::BorrowedFd;
use rustix::io::Errno;

use crate::{escape, quiet, stderr};

/// What one `write` to a pipe takes without waiting once `poll` says that there is room: `PIPE_BUF`.
const AT_ONCE: usize = 4096;

/// Bytes of a line for a command, or of a library's about its knobs, that are written together. It lies on the stack of
/// the program's thread, which may be short.
const SHORT: usize = 512;

/// Lines that were dropped since the last one that was not.
static DROPPED: AtomicU64 = AtomicU64::new(0);

/// Says a line on standard error, now or never: for a daemon, which waits for no reader.
#[macro_export]
macro_rules! log {
    ($($text:tt)*) => { $crate::say::log(::core::format_args!($($text)*)) };
}

/// Says a line on standard error: for a command. What cannot be written is dropped.
#[macro_export]
macro_rules! tell {
    ($($text:tt)*) => { $crate::say::tell(::core::format_args!($($text)*)) };
}

/// Writes text to standard output, for a command; returns an [`io::Result`].
#[macro_export]
macro_rules! print {
    ($($text:tt)*) => { $crate::say::print(::core::format_args!($($text)*)) };
}

/// See [`log!`](crate::log).
pub fn log(line: fmt::Arguments<'_>) {
    if let Some(stderr) = stderr::unchanged() {
        log_to(stderr, line, &DROPPED);
    }
}

/// See [`tell!`](crate::tell).
pub fn tell(line: fmt::Arguments<'_>) {
    if let Some(stderr) = stderr::unchanged() {
        tell_to(stderr, line);
    }
}

/// A line that a process says at most once.
#[derive(Debug)]
pub struct Once {
    before: &'static str,
    is_said: AtomicBool,
}

impl Once {
    /// Not said yet. The line will begin with `before`.
    pub const fn new(before: &'static str) -> Once {
        Once { before, is_said: AtomicBool::new(false) }
    }

    /// Says it as [`tell!`](crate::tell) does, if it was not said before.
    pub fn say(&self, what: impl fmt::Display) {
        if !self.is_said.swap(true, Relaxed) {
            tell(format_args!("{}{what}", self.before));
        }
    }
}

/// See [`print!`](crate::print).
///
/// # Errors
/// What the kernel answers: `BrokenPipe` where no process reads, `StorageFull` where there is no room.
pub fn print(text: fmt::Arguments<'_>) -> io::Result<()> {
    // SAFETY: descriptor 1 is borrowed for the call only; a closed one makes the write fail.
    print_to(unsafe { BorrowedFd::borrow_raw(libc::STDOUT_FILENO) }, text)
}

/// Writes a text to standard error, straight through the kernel. What cannot be written is dropped.
#[cold]
pub fn complain(text: &str) {
    if let Some(stderr) = stderr::unchanged() {
        write_all(stderr, text.as_bytes());
    }
}

/// Has a panic of this library say its line as any other is said, without a heap: the process ends of it. Not for a
/// library that a Rust program is linked with, whose panics are its own.
pub fn panics() {
    std::panic::set_hook(Box::new(|panic| tell(format_args!("prezero: {panic}"))));
}

fn write_all(file: BorrowedFd<'_>, mut rest: &[u8]) {
    while !rest.is_empty() {
        match quiet::write(file, rest) {
            Ok(written @ 1..) => rest = &rest[written..],
            Err(Errno::INTR) => {}
            Ok(0) | Err(_) => return,
        }
    }
}

/// What becomes of a write to this file now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Reader {
    Ready,
    Slow,
    Gone,
}

fn reader(file: BorrowedFd<'_>, patience: Option<&Timespec>) -> Reader {
    let mut polled = [PollFd::from_borrowed_fd(file, PollFlags::OUT)];
    loop {
        return match poll(&mut polled, patience) {
            Err(Errno::INTR) => continue,
            Err(_) => Reader::Gone,
            Ok(0) => Reader::Slow,
            Ok(_) if polled[0].revents().intersects(GONE) => Reader::Gone,
            Ok(_) => Reader::Ready,
        };
    }
}

/// A write now would raise `SIGPIPE`, or fail.
const GONE: PollFlags = PollFlags::ERR.union(PollFlags::HUP).union(PollFlags::NVAL);

/// Says a line, or counts it as dropped.
fn log_to(file: BorrowedFd<'_>, line: fmt::Arguments<'_>, dropped: &AtomicU64) {
    const NOW: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };
    if reader(file, Some(&NOW)) != Reader::Ready {
        dropped.fetch_add(1, Relaxed);
        return;
    }
    let mut buffer = [0; AT_ONCE];
    let mut text = Line::to(file, &mut buffer);
    let lost = dropped.swap(0, Relaxed);
    if lost > 0 {
        let _ = writeln!(text, "{lost} lines were lost before this one: nobody read them");
    }
    let _ = Escaped { out: &mut text, stays: &[] }.write_fmt(line);
    // One write, which does not wait: what is longer is cut.
    text.used = text.used.min(AT_ONCE - 1);
    let _ = text.write_str("\n");
    text.flush();
}

fn tell_to(file: BorrowedFd<'_>, line: fmt::Arguments<'_>) {
    let mut buffer = [0; SHORT];
    let mut text = Line::to(file, &mut buffer);
    text.kind = Kind::Patient;
    let _ = Escaped { out: &mut text, stays: &['\n', '\t'] }.write_fmt(line);
    let _ = text.write_str("\n");
    text.flush();
}

fn print_to(file: BorrowedFd<'_>, text: fmt::Arguments<'_>) -> io::Result<()> {
    let mut buffer = [0; AT_ONCE];
    let mut line = Line::to(file, &mut buffer);
    line.kind = Kind::Patient;
    let _ = line.write_fmt(text);
    line.flush();
    line.failed.map_or(Ok(()), |error| Err(error.into()))
}

/// Whether a line longer than the buffer is written in parts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Cut,
    Patient,
}

/// A buffer in front of a file.
struct Line<'a> {
    file: BorrowedFd<'a>,
    kind: Kind,
    failed: Option<Errno>,
    used: usize,
    buffer: &'a mut [u8],
}

impl<'a> Line<'a> {
    fn to(file: BorrowedFd<'a>, buffer: &'a mut [u8]) -> Line<'a> {
        Line { file, kind: Kind::Cut, failed: None, used: 0, buffer }
    }

    fn flush(&mut self) {
        let mut rest = &self.buffer[..self.used];
        while !rest.is_empty() && self.failed.is_none() {
            if reader(self.file, None) == Reader::Gone {
                self.failed = Some(Errno::PIPE);
                break;
            }
            match quiet::write(self.file, rest) {
                Ok(written @ 1..) => rest = &rest[written..],
                Err(Errno::INTR | Errno::AGAIN) => {}
                Ok(0) => self.failed = Some(Errno::IO),
                Err(error) => self.failed = Some(error),
            }
        }
        self.used = 0;
    }
}

impl Write for Line<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let mut rest = text.as_bytes();
        while !rest.is_empty() && self.failed.is_none() {
            let room = self.buffer.len();
            if self.used == room {
                if self.kind == Kind::Cut {
                    return Ok(());
                }
                self.flush();
            }
            let now = rest.len().min(room - self.used);
            self.buffer[self.used..self.used + now].copy_from_slice(&rest[..now]);
            self.used += now;
            rest = &rest[now..];
        }
        Ok(())
    }
}

/// Writes all but plain characters and those that stay as escapes.
struct Escaped<'a, W> {
    out: &'a mut W,
    stays: &'static [char],
}

impl<W: Write> Write for Escaped<'_, W> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let stays = |letter: char| escape::is_plain(letter) || self.stays.contains(&letter);
        let mut written = 0;
        for (at, letter) in text.char_indices().filter(|(_, letter)| !stays(*letter)) {
            self.out.write_str(&text[written..at])?;
            escape::put(self.out, letter)?;
            written = at + letter.len_utf8();
        }
        self.out.write_str(&text[written..])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{File, OpenOptions};
    use std::io::Read;
    use std::os::fd::AsFd;

    fn read(mut pipe: impl Read) -> String {
        let mut text = String::new();
        pipe.read_to_string(&mut text).unwrap();
        text
    }

    #[test]
    fn a_line_is_whole_however_long() {
        let long = "x".repeat(3 * AT_ONCE);
        let (reader, writer) = std::io::pipe().unwrap();
        tell_to(writer.as_fd(), format_args!("a {long} b"));
        drop(writer);
        assert_eq!(read(reader), format!("a {long} b\n"));

        let (reader, writer) = std::io::pipe().unwrap();
        print_to(writer.as_fd(), format_args!("a {long} b")).unwrap();
        drop(writer);
        assert_eq!(read(reader), format!("a {long} b"));

        let (reader, writer) = std::io::pipe().unwrap();
        let none = AtomicU64::new(0);
        log_to(writer.as_fd(), format_args!("a {long} b"), &none);
        log_to(writer.as_fd(), format_args!("next"), &none);
        drop(writer);
        let text = read(reader);
        assert!(text.ends_with("x\nnext\n") && text.len() == AT_ONCE + 5, "{}", text.len());
    }

    #[test]
    fn words_of_others_command_no_terminal() {
        let hostile = "a\u{1b}[2J\nb\u{202e}\u{9b}\tc\u{e9}";
        let (reader, writer) = std::io::pipe().unwrap();
        log_to(writer.as_fd(), format_args!("log: {hostile}"), &AtomicU64::new(0));
        tell_to(writer.as_fd(), format_args!("tell: {hostile}"));
        drop(writer);
        let logged = "log: a\\u{1b}[2J\\nb\\u{202e}\\u{9b}\\tc\u{e9}\n";
        let told = "tell: a\\u{1b}[2J\nb\\u{202e}\\u{9b}\tc\u{e9}\n";
        assert_eq!(read(reader), format!("{logged}{told}"));
    }

    /// Where the stack was when it was written.
    struct Depth(std::cell::Cell<usize>);

    impl fmt::Display for Depth {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            let here = 0u8;
            self.0.set((&raw const here).addr());
            f.write_str("deep")
        }
    }

    #[test]
    fn a_line_of_a_library_takes_little_stack() {
        let (reader, writer) = std::io::pipe().unwrap();
        let depth = Depth(0.into());
        let above = 0u8;
        tell_to(writer.as_fd(), format_args!("{depth}"));
        drop(writer);
        assert_eq!(read(reader), "deep\n");
        let taken = (&raw const above).addr() - depth.0.get();
        assert!(taken < 2048, "{taken} bytes");
    }

    #[test]
    fn nobody_who_reads_and_a_full_disk_are_no_error() {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        // SIGPIPE would end the test where it is not ignored, as in a program in C.
        // SAFETY: what happens at that signal is this process's own.
        let before = unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
        let full = OpenOptions::new().write(true).open("/dev/full").unwrap();
        for file in [writer.as_fd(), full.as_fd()] {
            tell_to(file, format_args!("into the void"));
            log_to(file, format_args!("into the void"), &AtomicU64::new(0));
        }
        // SAFETY: as above.
        unsafe { libc::signal(libc::SIGPIPE, before) };
        let closed = File::open("/dev/null").unwrap();
        tell_to(closed.as_fd(), format_args!("it is open for reading only"));
    }

    #[test]
    fn a_daemon_waits_for_no_reader_and_says_later_how_much_was_lost() {
        let (mut reader, writer) = std::io::pipe().unwrap();
        while super::reader(writer.as_fd(), Some(&Timespec { tv_sec: 0, tv_nsec: 0 }))
            == Reader::Ready
        {
            rustix::io::write(&writer, &[b'.'; AT_ONCE]).unwrap();
        }
        let dropped = AtomicU64::new(0);
        log_to(writer.as_fd(), format_args!("lost"), &dropped);
        log_to(writer.as_fd(), format_args!("lost"), &dropped);
        reader.read_exact(&mut vec![0; 2 * AT_ONCE]).unwrap();
        log_to(writer.as_fd(), format_args!("said"), &dropped);
        drop(writer);
        let text = read(reader);
        let said = text.trim_start_matches('.');
        assert_eq!(said, "2 lines were lost before this one: nobody read them\nsaid\n");
    }
}
