//! The report at the end: written once, by the process that `prezero run` started, for itself and for what its
//! children told it ([`tree`]); or by
//! every process that has a zone, if `%p` (its number) in the file's name tells them apart.
//!
//! A process ends in more ways than `exit`: children of a fork, and what runs in a
//! signal handler, leave by `_exit`. So the report hangs on four hooks (an exit handler,
//! the library's destructor, `_exit` and `_Exit`, `quick_exit`), the first of which
//! writes it. It takes no lock and allocates in this library's own memory alone, as
//! `_exit` may be called where the program's allocator must not be entered.
//!
//! Two hooks for `exit`, because both miss something: the handler is registered with
//! the zone, hence after the program's own first ones, and runs before them (some close
//! standard error); the destructor also runs in a program that never had a zone.

use std::ffi::{CStr, c_int};
use std::fmt::Write;
use std::sync::atomic::{AtomicI32, AtomicU32, Ordering};

use prezero_core::{Heap, Snapshot, StatsSink};
use prezero_sys::{birth, process::id, sandbox, thread::Floats};

use super::{env, tree};
use crate::compat::errno::Errno;
use crate::compat::message::Line;
use crate::process;

/// Number of the process that reports; 0: none.
static REPORTER: AtomicI32 = AtomicI32::new(0);
/// Its birth, where it is this process or one that this memory was copied from.
static BIRTH: AtomicU32 = AtomicU32::new(0);
/// The process that wrote; 0: none. A number, because children of a fork have a copy.
static WRITTEN: AtomicI32 = AtomicI32::new(0);
/// Stands for the process's number in the name of the file.
const PID: &str = "%p";

/// Notes which process reports, while the environment is as it was given.
pub fn remember() {
    let reporter = env::reporter().unwrap_or_default();
    REPORTER.store(reporter.number, Ordering::Relaxed);
    if reporter.is_here {
        BIRTH.store(birth::current(), Ordering::Relaxed);
    }
    tree::remember(&reporter);
}

/// Whether this process reports. The child of a fork has another birth, a guest in this memory another number.
pub fn is_reporter() -> bool {
    let birth = BIRTH.load(Ordering::Relaxed);
    birth != 0
        && birth == birth::current()
        && REPORTER.load(Ordering::Relaxed) == prezero_sys::process::id().cast_signed()
}

/// Registers the exit handler, in the process that reports. libc has a lock for that, which in the child of a fork another
/// thread of the parent may have held; the child reports by the other hooks.
pub fn register() {
    if is_reporter() {
        // SAFETY: a function that lives as long as the process (`-z nodelete`). If libc
        // has no room for it, the destructor reports.
        unsafe { libc::atexit(write_once) };
    }
}

/// What must be done before the process ends, by whatever way: the end must not wait for scrubd.
pub extern "C" fn at_exit() {
    write_once();
    if let Some(heap) = process::ready() {
        heap.zone().before_exit();
    }
}

/// Writes the report, if that is for this process to do and not done.
pub extern "C" fn write_once() {
    let reporter = REPORTER.load(Ordering::Relaxed);
    // It was written before, and files may not be opened now; or the account is the host's.
    if reporter == 0 || sandbox::is_confined() || birth::is_guest() {
        return;
    }
    let (own, _floats) = (id().cast_signed(), Floats::defaults());
    if !is_reporter() && !each_reports() {
        tree::end();
        return;
    }
    if WRITTEN.swap(own, Ordering::Relaxed) != own {
        write(own);
    }
}

/// The process goes on as before what it wrote the report for.
pub fn write_again() {
    WRITTEN.store(0, Ordering::Relaxed);
}

/// Whether each process has a file of its own to write to.
fn each_reports() -> bool {
    process::config().is_some_and(|config| match &config.stats {
        StatsSink::File(path) => path.contains(PID),
        _ => false,
    })
}

#[inline(never)]
fn write(own: c_int) {
    let made = process::config();
    let sink = match made {
        Some(config) => config.stats,
        // No zone: turned off and so said before, or never needed, which is worth a line.
        None => match env::config() {
            Ok(config) if !env::disabled() => config.stats,
            _ => return,
        },
    };
    let why = match made {
        Some(_) => None,
        None => process::stands_aside().or_else(process::why_not_made),
    };
    let file = match sink {
        StatsSink::Off => return,
        StatsSink::Summary | StatsSink::Stderr => None,
        StatsSink::File(path) => match open(path, own) {
            Ok(file) => Some(file),
            Err(errno) => return complain(path, errno),
        },
    };
    let mut written = write_to(file, sink, why);
    if let Some(file) = file {
        // Some file systems say only now that there was no room.
        // SAFETY: opened above, and no other code knows it.
        if unsafe { libc::close(file) } != 0 {
            written = written.and(Err(Errno::save().number()));
        }
    }
    if let (StatsSink::File(path), Err(errno)) = (sink, written) {
        complain(path, errno);
    }
}

/// Writes it to an open file, or to standard error.
#[inline(never)]
fn write_to(file: Option<c_int>, sink: StatsSink, why: Option<&str>) -> Result<(), c_int> {
    let mut line = paper(file);
    tree::with_all(own_snapshot(), |all, processes| {
        let _ = match (sink, why) {
            (StatsSink::Summary, Some(why)) => {
                writeln!(line, "prezero: could not help the program: {why}")
            }
            (StatsSink::Summary, None) => prezero_report::write_summary(all, processes, &mut *line),
            (StatsSink::Stderr, _) => prezero_report::write_text(all, &mut *line),
            (StatsSink::File(_), _) => prezero_report::write_json(all, processes, &mut *line)
                .and_then(|()| line.write_char('\n')),
            (StatsSink::Off, _) => Ok(()),
        };
    });
    line.end()
}

/// What this process did. In memory of its own, and made in a frame of its own: the end may come on a short stack.
#[inline(never)]
fn own_snapshot() -> Box<Snapshot> {
    Box::new(process::ready().map(Heap::snapshot).unwrap_or_default())
}

/// What the report is written on, likewise.
#[inline(never)]
fn paper(file: Option<c_int>) -> Box<Line> {
    Box::new(Line::to(file))
}

/// A path that ends in NUL, made without a heap.
struct Name {
    bytes: [u8; 1024],
    length: usize,
}

impl Write for Name {
    fn write_str(&mut self, part: &str) -> std::fmt::Result {
        let end = self.length + part.len();
        // The last byte stays 0.
        if end >= self.bytes.len() {
            return Err(std::fmt::Error);
        }
        self.bytes[self.length..end].copy_from_slice(part.as_bytes());
        self.length = end;
        Ok(())
    }
}

/// Opens the file of this name, in which the process's number takes the place of [`PID`].
///
/// # Errors
/// The number of the error.
#[inline(never)]
fn open(path: &str, own: c_int) -> Result<c_int, c_int> {
    let mut name = Name { bytes: [0; 1024], length: 0 };
    let written = match path.split_once(PID) {
        Some((before, after)) => write!(name, "{before}{own}{after}"),
        None => name.write_str(path),
    };
    let name = CStr::from_bytes_until_nul(&name.bytes).ok().filter(|_| written.is_ok());
    let Some(name) = name else { return Err(libc::ENAMETOOLONG) };
    let flags = libc::O_WRONLY | libc::O_CREAT | libc::O_TRUNC | libc::O_CLOEXEC;
    // SAFETY: the path ends in NUL; the mode goes with O_CREAT.
    let file = unsafe { libc::open(name.as_ptr(), flags, 0o666) };
    if file < 0 { Err(Errno::save().number()) } else { Ok(file) }
}

#[cold]
#[inline(never)]
fn complain(path: &str, errno: c_int) {
    let _ = writeln!(
        Line::to_stderr(),
        "prezero: PREZERO_STATS={path}: cannot be written (errno {errno}); give a file in a directory that exists, on a disk with room"
    );
}
