//! What a reset of a large image costs, of which a run writes little: a zkVM's memory between two proofs.
//!
//!     cargo run --release -p prezero-pool --example image [MIB] [SHARE] [ROUNDS]
//!
//! A round writes one byte of a SHARE-th of the pages and resets the image; then its program waits 20 ms. Each way has the
//! same pages in each round, and eight sets of pages in turn. *Owner* is the time of reset and writes, *CPU* that of all threads,
//! each the median of the rounds; *resident* is what is there at the end.
#![allow(clippy::print_stdout, reason = "the figures are what it is for")]

use std::time::{Duration, Instant};

use prezero_pool::Pool;

const PAGE: usize = 4096;

/// Memory that a way resets.
struct Image {
    base: *mut u8,
    bytes: usize,
    /// `/proc/self/pagemap`, and a `userfaultfd` that write-protects, for the way that has them.
    files: [i32; 2],
}

/// One round, with pages to write.
type Round = Box<dyn FnMut(&[usize])>;

impl Image {
    fn new(bytes: usize) -> Image {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping; it stays until the program ends.
        let base = unsafe { libc::mmap(std::ptr::null_mut(), bytes, protection, flags, -1, 0) };
        assert_ne!(base, libc::MAP_FAILED);
        Image { base: base.cast(), bytes, files: [-1; 2] }
    }

    fn write(&self, pages: &[usize]) {
        // SAFETY: inside the image, which is this thread's.
        pages.iter().for_each(|page| unsafe { self.base.add(page * PAGE).write_volatile(1) });
    }

    fn clear(&self, page: usize) {
        // SAFETY: as above.
        unsafe { self.base.add(page * PAGE).write_bytes(0, PAGE) };
    }

    fn madvise(&self) {
        // SAFETY: as above.
        unsafe { libc::madvise(self.base.cast(), self.bytes, libc::MADV_DONTNEED) };
    }

    /// Has the kernel write-protect the image by itself, and lift that at each page's first write. False: before Linux 6.7.
    fn protects(&mut self) -> bool {
        const API: [u64; 3] = [0xaa, 1 << 15 | 1 << 13, 0]; // WP_ASYNC, WP_UNPOPULATED
        let mut api = API;
        let mut register = [self.base.addr() as u64, self.bytes as u64, 2, 0]; // MODE_WP
        // SAFETY: the kernel reads and writes these words; their sizes are in the requests' numbers.
        unsafe {
            let faults = libc::syscall(libc::SYS_userfaultfd, libc::O_CLOEXEC | 1) as i32;
            self.files = [libc::open(c"/proc/self/pagemap".as_ptr(), libc::O_RDONLY), faults];
            self.files.iter().all(|&file| file >= 0)
                && libc::ioctl(faults, 0xc018_aa3f, &mut api) == 0
                && libc::ioctl(faults, 0xc020_aa00, &mut register) == 0
        }
    }

    /// `PAGEMAP_SCAN` of written pages: into `regions`, or protects them.
    fn scan(&self, regions: Option<&mut Vec<[u64; 3]>>) {
        let (protect, check, written) = (1, 2, 2);
        let (first, end) = (self.base.addr() as u64, (self.base.addr() + self.bytes) as u64);
        let (to, room, flags) = regions.as_ref().map_or((0, 0, protect | check), |regions| {
            (regions.as_ptr().addr() as u64, regions.capacity() as u64, check)
        });
        let mut words = [96, flags, first, end, 0, to, room, 0, 0, written, 0, written];
        // SAFETY: the kernel reads and writes these words, and at most as many regions as there is room for.
        unsafe {
            let found = libc::ioctl(self.files[0], 0xc060_6610, &mut words);
            assert!(found >= 0, "PAGEMAP_SCAN");
            regions.into_iter().for_each(|regions| regions.set_len(found as usize));
        }
    }
}

/// The ways, each with an image of its own.
fn way(name: &str, bytes: usize) -> Option<Round> {
    let mut image = Image::new(bytes);
    match name {
        "madvise" => Some(Box::new(move |pages| {
            image.write(pages);
            image.madvise();
        })),
        "memset of all" => Some(Box::new(move |pages| {
            image.write(pages);
            (0..image.bytes / PAGE).for_each(|page| image.clear(page));
        })),
        "memset of what is told" => Some(Box::new(move |pages| {
            image.write(pages);
            pages.iter().for_each(|&page| image.clear(page));
        })),
        "write-protected, PAGEMAP_SCAN" if image.protects() => {
            image.scan(None);
            let mut regions = Vec::with_capacity(bytes / PAGE);
            Some(Box::new(move |pages| {
                image.write(pages);
                image.scan(Some(&mut regions));
                for [first, end, _] in &regions {
                    let base = image.base.addr() as u64;
                    (*first..*end)
                        .step_by(PAGE)
                        .for_each(|at| image.clear((at - base) as usize / PAGE));
                }
                image.scan(None);
            }))
        }
        "pool, told" | "pool, found" => {
            let pool = Pool::new(2, bytes, 0).expect("a pool");
            let told = name.ends_with("told");
            Some(Box::new(move |pages| {
                let mut slot = pool.take().expect("a slot");
                let base = slot.as_mut_ptr().as_ptr();
                let image = Image { base, bytes, files: [-1; 2] };
                image.write(pages);
                if told {
                    let written = pages.iter().map(|page| page * PAGE..page * PAGE + 1);
                    // SAFETY: nothing else was written.
                    unsafe { pool.give(slot, written) };
                }
            }))
        }
        _ => None,
    }
}

const WAYS: [&str; 6] = [
    "madvise",
    "memset of all",
    "memset of what is told",
    "write-protected, PAGEMAP_SCAN",
    "pool, found",
    "pool, told",
];

fn cpu_ms() -> f64 {
    // SAFETY: the kernel fills the struct.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_SELF, &mut usage);
        usage
    };
    let ms = |time: libc::timeval| time.tv_sec as f64 * 1e3 + time.tv_usec as f64 / 1e3;
    ms(usage.ru_utime) + ms(usage.ru_stime)
}

fn resident_mib() -> usize {
    let status = std::fs::read_to_string("/proc/self/statm").expect("statm");
    let pages = status.split(' ').nth(1).and_then(|text| text.parse::<usize>().ok());
    pages.expect("pages") * PAGE / (1 << 20)
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn main() {
    let mut args = std::env::args().skip(1).map(|text| text.parse::<usize>().expect("a number"));
    let mut next = |usual| args.next().unwrap_or(usual);
    let (bytes, share, rounds) = (next(512) << 20, next(100), next(40));
    let pages = bytes / PAGE;
    println!("{} MiB, {} pages written in a round", bytes >> 20, pages / share);
    println!("{:32}{:>30}{:>30}", "", "the same pages", "eight sets in turn");
    println!(
        "{:32}{:>10}{:>10}{:>10}{:>10}{:>10}{:>10}",
        "", "owner ms", "CPU ms", "MiB", "owner ms", "CPU ms", "MiB"
    );
    for name in WAYS {
        print!("{name:32}");
        for shift in [0, 7] {
            let before = resident_mib();
            let Some(mut round) = way(name, bytes) else {
                print!("{:>30}", "not on this kernel");
                continue;
            };
            let (mut owner, mut cpu) = (Vec::new(), Vec::new());
            for nth in 0..rounds {
                let written: Vec<usize> = (0..pages / share)
                    .map(|page| (page * share + nth % 8 * shift) % pages)
                    .collect();
                let (start, used) = (Instant::now(), cpu_ms());
                round(&written);
                owner.push(start.elapsed().as_secs_f64() * 1e3);
                std::thread::sleep(Duration::from_millis(20));
                cpu.push(cpu_ms() - used);
            }
            let resident = resident_mib().saturating_sub(before);
            print!("{:>10.2}{:>10.2}{resident:>10}", median(&mut owner), median(&mut cpu));
        }
        println!();
    }
}
