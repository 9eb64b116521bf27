//! One process of `bench pinned`: memory by one way, or the process that looks on.
//!
//! It says `ready` when CUDA's context is there, waits for a line, and says what each step took.

use std::ffi::c_void;
use std::io::BufRead;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};
use prezero::Size;
use prezero_sys::thread::thread_cpu_ns;

use super::cuda::Cuda;
use crate::broker::ms;
use crate::worker::allowed_cpus;

/// What is copied at most: the pace is known by then.
const COPIED: usize = 1 << 30;
/// What a server with many buffers asks for at a time.
pub const PIECE: usize = 16 << 20;
/// What a thread populates.
const HUGE: usize = 2 << 20;

/// How a process comes by its memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub enum Way {
    /// The driver makes and pins it.
    Alloc,
    /// Registered as 4 KiB pages that are absent.
    Small,
    /// The same of huge pages.
    Thp,
    /// Threads populate 4 KiB pages before: TensorRT-LLM's way.
    Threads,
    /// Pages of the pool.
    Hugetlb,
    /// The driver makes and pins it, a piece at a time.
    Pieces,
    /// No memory: looks on.
    Watch,
}

impl Way {
    /// On the command line.
    pub fn word(self) -> &'static str {
        match self {
            Way::Alloc => "alloc",
            Way::Small => "small",
            Way::Thp => "thp",
            Way::Threads => "threads",
            Way::Hugetlb => "hugetlb",
            Way::Pieces => "pieces",
            Way::Watch => "watch",
        }
    }

    /// In the table.
    pub fn told(self) -> &'static str {
        match self {
            Way::Alloc => "cudaHostAlloc",
            Way::Small => "register, 4 KiB pages",
            Way::Thp => "register, THP",
            Way::Threads => "threads, then register",
            Way::Hugetlb => "MAP_HUGETLB, register",
            Way::Pieces => "cudaHostAlloc of 16 MiB each",
            Way::Watch => "",
        }
    }
}

/// The command line of the process.
#[derive(clap::Args)]
pub struct Once {
    way: Way,
    size: Size,
}

impl Once {
    /// See the module. What fails is its line of output: the benchmark reads it.
    pub fn run(&self) -> Result<()> {
        self.measure().or_else(|error| Ok(prezero_sys::print!("{error:#}\n")?))
    }

    fn measure(&self) -> Result<()> {
        let cuda = Cuda::find()?;
        cuda.begin()?;
        if self.way == Way::Watch {
            return watch(&cuda);
        }
        prezero_sys::print!("ready\n")?;
        std::io::stdin().lock().read_line(&mut String::new())?;
        let len = self.size.0;
        let began = Instant::now();
        let parts: Vec<(*mut c_void, usize)> = match self.way {
            Way::Alloc => vec![(cuda.host_alloc(len)?, len)],
            Way::Pieces => {
                let piece = |_| Ok((cuda.host_alloc(PIECE)?, PIECE));
                (0..len / PIECE).map(piece).collect::<Result<_>>()?
            }
            way => {
                let at = made(way, len)?;
                cuda.register(at, len)?;
                vec![(at, len)]
            }
        };
        let pinned = ms(began);
        // By the thread's time: a busy machine takes its CPU away, and pinned memory has nothing to wait for.
        let began = thread_cpu_ns();
        for (at, len) in &parts {
            for offset in (0..*len).step_by(4096) {
                // SAFETY: within memory that was just made.
                unsafe { at.byte_add(offset).cast::<u8>().write_volatile(1) };
            }
        }
        let touched = (thread_cpu_ns() - began) as f64 / 1e6;
        let Some(&(at, len)) = parts.first() else { bail!("a size below {PIECE} bytes") };
        let part = len.min(COPIED);
        let device = cuda.device(part)?;
        // Once for the device's own memory.
        cuda.to_device(device, at, part)?;
        let pace = |began: Instant| part as f64 / 1e6 / ms(began);
        let began = Instant::now();
        cuda.to_device(device, at, part)?;
        let to = pace(began);
        let began = Instant::now();
        cuda.to_host(at, device, part)?;
        let from = pace(began);
        prezero_sys::print!("{pinned} {touched} {to} {from}\n")?;
        Ok(())
    }
}

fn made(way: Way, len: usize) -> Result<*mut c_void> {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    let flags = if way == Way::Hugetlb { flags | libc::MAP_HUGETLB } else { flags };
    let (rights, room) =
        (libc::PROT_READ | libc::PROT_WRITE, if way == Way::Hugetlb { 0 } else { HUGE });
    // SAFETY: a new mapping wherever the kernel likes.
    let map = unsafe { libc::mmap(null_mut(), len + room, rights, flags, -1, 0) };
    if map == libc::MAP_FAILED {
        bail!("no memory: {}", std::io::Error::last_os_error());
    }
    let at = map.map_addr(|at| at.next_multiple_of(HUGE));
    let advice = if way == Way::Thp { libc::MADV_HUGEPAGE } else { libc::MADV_NOHUGEPAGE };
    if way != Way::Hugetlb {
        // SAFETY: the new mapping.
        unsafe { libc::madvise(at, len, advice) };
    }
    if way == Way::Threads {
        populate(at, len)?;
    }
    Ok(at)
}

/// By a thread for each CPU.
fn populate(at: *mut c_void, len: usize) -> Result<()> {
    let threads = allowed_cpus()?.len().max(1);
    let (piece, at) = ((len / threads).next_multiple_of(HUGE), at.expose_provenance());
    let failed = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for from in (0..len).step_by(piece.max(HUGE)) {
            let (failed, size) = (&failed, piece.min(len - from));
            scope.spawn(move || {
                let part = std::ptr::with_exposed_provenance_mut(at + from);
                // SAFETY: a part of the mapping, which outlives the thread.
                if unsafe { libc::madvise(part, size, libc::MADV_POPULATE_WRITE) } != 0 {
                    failed.store(true, Relaxed);
                }
            });
        }
    });
    ensure!(!failed.load(Relaxed), "MADV_POPULATE_WRITE: refused");
    Ok(())
}

/// Says for each line that it reads how long its longest question took since the last one.
fn watch(cuda: &Cuda) -> Result<()> {
    /// Between two questions: servers ask some hundred times a second.
    const PAUSE: Duration = Duration::from_micros(500);
    let (longest_ns, began_ns, ends) =
        (AtomicU64::new(0), AtomicU64::new(0), AtomicBool::new(false));
    let start = Instant::now();
    let now = || start.elapsed().as_nanos() as u64;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for line in std::io::stdin().lock().lines() {
                if line.is_err() {
                    break;
                }
                // One that still waits counts.
                let waits = began_ns.load(Relaxed);
                let waited = if waits == 0 { 0 } else { now().saturating_sub(waits) };
                let longest = longest_ns.swap(0, Relaxed).max(waited);
                if prezero_sys::print!("{}\n", longest as f64 / 1e6).is_err() {
                    break;
                }
            }
            ends.store(true, Relaxed);
        });
        while !ends.load(Relaxed) {
            let began = now();
            began_ns.store(began.max(1), Relaxed);
            let asked = cuda.info();
            longest_ns.fetch_max(now() - began, Relaxed);
            began_ns.store(0, Relaxed);
            asked?;
            std::thread::sleep(PAUSE);
        }
        Ok(())
    })
}
