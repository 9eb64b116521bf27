//! How many free pages there are, and how many of these are zero: as root reads it.
//!
//! `/proc/kpageflags` tells which page frames the kernel's free lists hold, and `/proc/kcore` is all of
//! memory, in an ELF file whose headers tell where each range of frames stands.
//! A page that is taken between the two looks is counted by what it holds then.

use std::fmt;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use anyhow::{Context, Result};
use prezero::Size;
use rustix::param::page_size;

/// `KPF_BUDDY` of the kernel's `kernel-page-flags.h`.
const FREE: u64 = 1 << 10;
/// Page frames that are looked at together.
const BATCH: usize = 256;
/// Bytes of an ELF header, and of one of its program headers, of 64 bits.
const HEADER: usize = 64;
const PROGRAM: usize = 56;
const PT_LOAD: u32 = 1;

/// What was counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counted {
    /// Free pages.
    free: u64,
    /// Those of them that are zero.
    zero: u64,
    page: u64,
}

/// Memory in the file: it begins at this physical address, and at this offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Range {
    address: u64,
    offset: u64,
    bytes: u64,
}

impl Counted {
    /// Reads all free pages.
    ///
    /// # Errors
    /// The kernel shows no content or no flags of pages, or shows them to root alone.
    pub fn of(root: &Path) -> Result<Counted> {
        let open = |file: &str| {
            let path = root.join(file);
            File::open(&path).with_context(|| {
                let path = path.display();
                format!("--report: {path}: run it as root, on a kernel that shows it and is not locked down")
            })
        };
        let (flags, memory) = (open("proc/kpageflags")?, open("proc/kcore")?);
        let read = || counted(&flags, &memory, page_size());
        read().context("--report: /proc/kcore, /proc/kpageflags")
    }
}

impl fmt::Display for Counted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let size = |pages: u64| Size((pages * self.page) as usize >> 20 << 20);
        let share = self.zero as f64 * 100.0 / self.free.max(1) as f64;
        let Counted { free, zero, .. } = *self;
        let (all, zeroes) = (size(free), size(zero));
        write!(f, "{zero} of {free} free pages are zero ({share:.1} %; {zeroes} of {all})")
    }
}

fn counted(flags: &File, memory: &File, page: usize) -> io::Result<Counted> {
    let mut counted = Counted { page: page as u64, ..Counted::default() };
    let (mut bytes, mut content) = (vec![0u8; 8 * BATCH], vec![0u8; page * BATCH]);
    let zeroes = vec![0u8; page];
    // Memory of the kernel's text stands there twice.
    let mut done = 0;
    for range in ranges(memory)? {
        let end = (range.address + range.bytes) / page as u64;
        let mut frame = range.address.div_ceil(page as u64).max(done);
        done = done.max(end);
        while frame < end {
            let batch = (end - frame).min(BATCH as u64) as usize;
            let bytes = &mut bytes[..8 * batch];
            flags.read_exact_at(bytes, frame * 8)?;
            let free: Vec<bool> =
                bytes.chunks_exact(8).map(|word| number(word) & FREE != 0).collect();
            let mut at = 0;
            for run in free.chunk_by(|one, next| one == next) {
                let first = frame + at as u64;
                at += run.len();
                if !run[0] {
                    continue;
                }
                let content = &mut content[..page * run.len()];
                memory
                    .read_exact_at(content, range.offset + first * page as u64 - range.address)?;
                counted.free += run.len() as u64;
                let zero = content.chunks_exact(page).filter(|page| *page == zeroes);
                counted.zero += zero.count() as u64;
            }
            frame += batch as u64;
        }
    }
    Ok(counted)
}

/// Where memory stands in the file, by address.
fn ranges(memory: &File) -> io::Result<Vec<Range>> {
    let mut header = [0u8; HEADER];
    memory.read_exact_at(&mut header, 0)?;
    let (first, count) = (number(&header[32..40]), number(&header[56..58]) as usize);
    let mut headers = vec![0u8; PROGRAM * count];
    memory.read_exact_at(&mut headers, first)?;
    let range = |program: &[u8]| {
        let address = number(&program[24..32]);
        // What is no memory has no address.
        (number(&program[..4]) as u32 == PT_LOAD && address != u64::MAX).then(|| Range {
            address,
            offset: number(&program[8..16]),
            bytes: number(&program[32..40]),
        })
    };
    let mut ranges: Vec<Range> = headers.chunks_exact(PROGRAM).filter_map(range).collect();
    ranges.sort();
    Ok(ranges)
}

/// A number as this machine writes it, of up to 8 bytes.
fn number(bytes: &[u8]) -> u64 {
    let mut number = [0u8; 8];
    match cfg!(target_endian = "little") {
        true => number[..bytes.len()].copy_from_slice(bytes),
        false => number[8 - bytes.len()..].copy_from_slice(bytes),
    }
    u64::from_ne_bytes(number)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    const PAGE: usize = 4096;

    fn file(bytes: &[u8]) -> File {
        let path =
            std::env::temp_dir().join(format!("counted-{}-{}", std::process::id(), bytes.len()));
        let mut file = File::create_new(&path).unwrap();
        file.write_all(bytes).unwrap();
        let file = File::open(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        file
    }

    /// `ranges`: physical address, what stands there.
    fn memory(ranges: &[(u64, &[u8])]) -> File {
        let mut bytes = vec![0u8; HEADER];
        bytes[32..40].copy_from_slice(&(HEADER as u64).to_ne_bytes());
        bytes[56..58].copy_from_slice(&(ranges.len() as u16).to_ne_bytes());
        let mut offset = HEADER + PROGRAM * ranges.len();
        for (address, content) in ranges {
            let mut program = [0u8; PROGRAM];
            program[..4].copy_from_slice(&PT_LOAD.to_ne_bytes());
            program[8..16].copy_from_slice(&(offset as u64).to_ne_bytes());
            program[24..32].copy_from_slice(&address.to_ne_bytes());
            program[32..40].copy_from_slice(&(content.len() as u64).to_ne_bytes());
            bytes.extend(program);
            offset += content.len();
        }
        ranges.iter().for_each(|(_, content)| bytes.extend(*content));
        file(&bytes)
    }

    #[test]
    fn free_pages_are_counted_once_and_others_are_not() {
        let mut low = vec![0u8; 4 * PAGE];
        low[PAGE] = 1;
        low[2 * PAGE] = 1;
        let high = vec![0u8; 600 * PAGE];
        let mut flags = vec![FREE; 4];
        flags[2] = 0;
        flags.extend(vec![0; 6]);
        flags.extend(vec![FREE; 600]);
        let flags: Vec<u8> = flags.iter().flat_map(|word| word.to_ne_bytes()).collect();
        let none = vec![0u8; PAGE];
        // The last two pages of the first range stand there twice, and one range has no address.
        let ranges = [
            (10 * PAGE as u64, &high[..]),
            (u64::MAX, &none[..]),
            (0, &low[..]),
            (2 * PAGE as u64, &low[2 * PAGE..]),
        ];
        let counted = counted(&file(&flags), &memory(&ranges), PAGE).unwrap();
        assert_eq!((counted.free, counted.zero), (603, 602));
        let said = counted.to_string();
        assert!(said.starts_with("602 of 603 free pages are zero (99.8 %"), "{said}");
    }

    #[test]
    fn a_kernel_that_shows_nothing_is_told_of_with_the_mend() {
        let error = Counted::of(Path::new("/no/such/root")).unwrap_err();
        assert!(format!("{error:#}").contains("run it as root"), "{error:#}");
    }
}
