//! Standard input of a trial: each run reads the same bytes, from where they began when the trial did.
//!
//! A file is read from the place at which it was handed over. A pipe or a socket is read to its end before the first
//! run, and kept in memory within [`MOST`]. A terminal is not handed on: a program in a group of its own would stop at it.

use std::fs::File;
use std::io::{ErrorKind, IsTerminal, Read, Seek, SeekFrom, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileTypeExt;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::once::scratch;

/// The most that is kept of a pipe.
const MOST: u64 = 64 << 20;
/// How long a pipe may be silent before its end.
const PATIENCE: Duration = Duration::from_secs(10);

/// What runs read, and where it begins if it has a beginning.
#[derive(Debug, Default)]
pub struct Input(Option<(File, Option<u64>)>);

impl Input {
    /// That of this process.
    ///
    /// # Errors
    /// It is a pipe that has too much, or does not end.
    pub fn own() -> Result<Input> {
        Input::of(std::io::stdin().as_fd(), MOST, PATIENCE)
    }

    fn of(own: BorrowedFd<'_>, most: u64, patience: Duration) -> Result<Input> {
        let mut file = File::from(own.try_clone_to_owned().context("standard input")?);
        if file.is_terminal() {
            return Ok(Input::default());
        }
        let kind = file.metadata().context("standard input")?.file_type();
        if kind.is_fifo() || kind.is_socket() {
            return Ok(Input(Some((kept(file, most, patience)?, Some(0)))));
        }
        let begins = file.stream_position().ok();
        Ok(Input(Some((file, begins))))
    }

    /// For a run.
    ///
    /// # Errors
    /// It cannot be read from its beginning.
    pub fn again(&self) -> Result<Stdio> {
        let Some((file, begins)) = &self.0 else { return Ok(Stdio::null()) };
        // A run before may have left a child that reads: a file that is opened anew has a place of its own.
        let anew =
            begins.and_then(|_| File::open(format!("/proc/self/fd/{}", file.as_raw_fd())).ok());
        let mut file = anew.map_or_else(|| file.try_clone(), Ok).context("standard input")?;
        if let Some(begins) = begins {
            file.seek(SeekFrom::Start(*begins)).context("standard input")?;
        }
        Ok(OwnedFd::from(file).into())
    }
}

/// All that comes, in memory.
fn kept(mut pipe: File, most: u64, patience: Duration) -> Result<File> {
    let mut memory = scratch()?;
    let mut bytes = [0; 1 << 16];
    let mut all = 0;
    loop {
        let mut wanted = [PollFd::new(&pipe, PollFlags::IN)];
        let until =
            Timespec { tv_sec: patience.as_secs() as i64, tv_nsec: patience.subsec_nanos().into() };
        match poll(&mut wanted, Some(&until)) {
            Ok(0) => bail!(
                "standard input does not end, and nothing came for {} s: give a file, or </dev/null",
                patience.as_secs()
            ),
            Err(rustix::io::Errno::INTR) => continue,
            polled => polled.context("standard input")?,
        };
        match pipe.read(&mut bytes) {
            Ok(0) => return Ok(memory),
            Ok(read) => {
                all += read as u64;
                if all > most {
                    bail!("standard input has more than {} MiB: give it as a file", most >> 20);
                }
                memory.write_all(&bytes[..read]).context("standard input")?;
            }
            Err(error)
                if matches!(error.kind(), ErrorKind::Interrupted | ErrorKind::WouldBlock) => {}
            Err(error) => return Err(error).context("standard input"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    const AT_ONCE: Duration = Duration::ZERO;

    fn read(input: &Input) -> Vec<u8> {
        Command::new("cat").stdin(input.again().unwrap()).output().unwrap().stdout
    }

    #[test]
    fn every_run_reads_the_same_bytes_from_the_same_place() {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(b"one\ntwo\n").unwrap();
        file.seek(SeekFrom::Start(4)).unwrap();
        let (ours, mut theirs) = std::io::pipe().unwrap();
        let many = vec![b'x'; 1 << 18];
        let writer = std::thread::spawn({
            let many = many.clone();
            move || theirs.write_all(&many).unwrap()
        });
        let pipe = Input::of(ours.as_fd(), MOST, PATIENCE).unwrap();
        writer.join().unwrap();
        let (socket, mut other) = std::os::unix::net::UnixStream::pair().unwrap();
        other.write_all(b"said").unwrap();
        drop(other);
        let socket = Input::of(socket.as_fd(), MOST, PATIENCE).unwrap();
        let nothing = Input::of(File::open("/dev/null").unwrap().as_fd(), 0, AT_ONCE).unwrap();
        let file = Input::of(file.as_fd(), MOST, AT_ONCE).unwrap();
        for _ in 0..3 {
            assert_eq!(read(&file), b"two\n");
            assert!(read(&pipe) == many);
            assert_eq!((read(&socket), read(&nothing)), (b"said".to_vec(), vec![]));
            assert_eq!(read(&Input::default()), b"");
        }
    }

    #[test]
    fn a_pipe_that_has_too_much_or_does_not_end_is_refused() {
        let (ours, mut theirs) = std::io::pipe().unwrap();
        let told = |most| Input::of(ours.as_fd(), most, AT_ONCE).unwrap_err().to_string();
        assert!(told(0).contains("does not end") && told(0).contains("</dev/null"));
        theirs.write_all(b"much").unwrap();
        assert!(told(3).contains("give it as a file"));
        theirs.write_all(b"much").unwrap();
        assert!(told(4).contains("does not end"), "as much as may be kept is kept");
    }
}
