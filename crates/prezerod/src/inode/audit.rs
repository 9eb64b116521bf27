//! Reads what is about to be leased: a bug of the kernel, of the broker or of the memory
//! itself must not leak or change a client's data.
//!
//! By `pread`, so that the broker maps nothing of what it hands out.

use std::os::fd::BorrowedFd;

use rustix::io::{Errno, pread};
use serde::Deserialize;

/// Pieces that a sample reads besides the first and the last.
/// Moved by: `bench lease`, small leases.
const SAMPLE: usize = 8;

/// How much is read.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Depth {
    /// Nothing.
    Off,
    /// Pieces of 4 KiB: [`SAMPLE`] anywhere, besides the first and the last.
    Sample,
    /// Every byte: 0.1 to 0.3 s a GiB.
    Full,
}

/// What was found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Finding {
    /// The bytes that were read, all zero.
    Clean(u64),
    /// There is a byte in this piece of 4 KiB that is not.
    Dirty(u64),
    /// It could not be read.
    Unreadable,
}

const PIECE: usize = 4096;

/// Reads `file`, which has `bytes`, a multiple of 4 KiB; `pick(n)` chooses below `n`.
pub fn audit(
    file: BorrowedFd<'_>,
    bytes: u64,
    depth: Depth,
    mut pick: impl FnMut(u64) -> u64,
) -> Finding {
    let pieces = bytes / PIECE as u64;
    let mut read = 0;
    let mut look = |piece: u64| match is_zero(file, piece * PIECE as u64) {
        Ok(true) => {
            read += PIECE as u64;
            None
        }
        Ok(false) => Some(Finding::Dirty(piece)),
        Err(_) => Some(Finding::Unreadable),
    };
    let found = match depth {
        Depth::Off => None,
        Depth::Full => (0..pieces).find_map(&mut look),
        Depth::Sample if pieces == 0 => None,
        Depth::Sample => {
            let any = (0..SAMPLE).map(|_| pick(pieces));
            [0, pieces - 1].into_iter().chain(any).find_map(&mut look)
        }
    };
    found.unwrap_or(Finding::Clean(read))
}

fn is_zero(file: BorrowedFd<'_>, offset: u64) -> Result<bool, Errno> {
    let mut buffer = [1u8; PIECE];
    let mut at = 0;
    while at < PIECE {
        match pread(file, &mut buffer[at..], offset + at as u64) {
            Ok(0) => return Err(Errno::IO),
            Ok(n) => at += n,
            Err(Errno::INTR) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(buffer == [0; PIECE])
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
    use std::os::fd::{AsFd, OwnedFd};

    const PIECES: u64 = 64;
    const BYTES: u64 = PIECES * PIECE as u64;

    fn file_with_a_byte_at(offset: Option<u64>) -> OwnedFd {
        let file = memfd_create("audit", MemfdFlags::CLOEXEC).unwrap();
        ftruncate(&file, BYTES).unwrap();
        if let Some(offset) = offset {
            assert_eq!(rustix::io::pwrite(&file, &[1], offset), Ok(1));
        }
        file
    }

    fn found(file: &OwnedFd, depth: Depth, picks: &[u64]) -> Finding {
        let mut picks = picks.iter();
        audit(file.as_fd(), BYTES, depth, |_| *picks.next().unwrap())
    }

    #[test]
    fn every_depth_reads_what_it_says() {
        let file = file_with_a_byte_at(None);
        assert_eq!(found(&file, Depth::Off, &[]), Finding::Clean(0));
        assert_eq!(found(&file, Depth::Sample, &[5; SAMPLE]), Finding::Clean(10 * PIECE as u64));
        assert_eq!(found(&file, Depth::Full, &[]), Finding::Clean(BYTES));
    }

    #[test]
    fn one_byte_is_found_by_who_looks_there() {
        let file = file_with_a_byte_at(Some(33 * PIECE as u64 + 4095));
        assert_eq!(found(&file, Depth::Full, &[]), Finding::Dirty(33));
        assert_eq!(found(&file, Depth::Sample, &[7, 33]), Finding::Dirty(33));
        assert_eq!(found(&file, Depth::Sample, &[7; SAMPLE]), Finding::Clean(10 * PIECE as u64));
        for edge in [0, BYTES - 1] {
            let file = file_with_a_byte_at(Some(edge));
            assert!(matches!(found(&file, Depth::Sample, &[7; SAMPLE]), Finding::Dirty(_)));
        }
    }

    #[test]
    fn a_file_that_is_too_short_is_no_clean_file() {
        let file = file_with_a_byte_at(None);
        ftruncate(&file, BYTES - 1).unwrap();
        assert_eq!(found(&file, Depth::Full, &[]), Finding::Unreadable);
    }
}
