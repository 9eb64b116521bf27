//! CPUs: which one runs the calling thread, which there are, which a thread may use.

use rustix::io::Errno;
use rustix::thread::{self as kernel, CpuSet};

use crate::{file, raw};

/// The CPU this thread runs on at this moment, by the vDSO: [`cpu::current`](crate::cpu::current) reads it from memory.
#[inline]
pub fn current_cpu() -> usize {
    kernel::sched_getcpu()
}

/// CPUs that this system can ever have, as one more than the highest number: an index from
/// [`current_cpu`] is always below. Neither allocates nor locks.
pub fn cpu_count() -> usize {
    possible_cpus().unwrap_or_else(kernel_mask_bits)
}

#[inline(never)]
fn possible_cpus() -> Option<usize> {
    let path = c"/sys/devices/system/cpu/possible";
    one_past_last(file::read(path, &mut [0u8; 256]).ok()?)
}

/// One past the last number of a kernel CPU list, such as `0-3,8-11`.
fn one_past_last(list: &[u8]) -> Option<usize> {
    let last = list.trim_ascii().rsplit(|byte| matches!(byte, b'-' | b',')).next()?;
    std::str::from_utf8(last).ok()?.parse::<usize>().ok()?.checked_add(1)
}

/// The most CPUs that a kernel is built for.
const MOST_CPUS: usize = 8192;

/// Without sysfs: the bits of the kernel's own CPU mask, whose size the raw call returns;
/// the number of CPUs rounded up to a word. A longer mask than this one is not worth the stack: such kernels are rare.
#[inline(never)]
fn kernel_mask_bits() -> usize {
    let mut mask = [0u64; CpuSet::MAX_CPU / 64];
    // SAFETY: the kernel writes at most the size given. 0 is the calling thread.
    let bytes = unsafe {
        let to = mask.as_mut_ptr().addr();
        raw::syscall(libc::SYS_sched_getaffinity, [0, size_of_val(&mask), to])
    };
    usize::try_from(bytes).map_or(MOST_CPUS, |bytes| bytes * 8)
}

/// A set of CPUs, numbered up to 1023.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CpuMask(CpuSet);

impl CpuMask {
    /// One CPU; empty, which [`set_affinity`] refuses, for a number above 1023.
    pub fn only(cpu: usize) -> CpuMask {
        let mut set = CpuSet::new();
        if cpu < CpuSet::MAX_CPU {
            set.set(cpu);
        }
        CpuMask(set)
    }

    /// These CPUs; numbers above 1023 are left out.
    pub fn of(cpus: impl IntoIterator<Item = usize>) -> CpuMask {
        let mut set = CpuSet::new();
        cpus.into_iter().filter(|&cpu| cpu < CpuSet::MAX_CPU).for_each(|cpu| set.set(cpu));
        CpuMask(set)
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.0.count() as usize
    }

    /// Whether `cpu` is in the set.
    pub fn contains(&self, cpu: usize) -> bool {
        cpu < CpuSet::MAX_CPU && self.0.is_set(cpu)
    }
}

/// The CPUs that the calling thread may run on; all, where the kernel will not say.
pub fn affinity() -> CpuMask {
    affinity_of(None)
}

/// The CPUs that the process's first thread may run on: what `taskset` set, whatever
/// other threads were pinned to.
pub fn process_affinity() -> CpuMask {
    affinity_of(Some(rustix::process::getpid()))
}

fn affinity_of(thread: Option<rustix::process::Pid>) -> CpuMask {
    CpuMask(kernel::sched_getaffinity(thread).unwrap_or_else(|_| {
        let mut all = CpuSet::new();
        (0..CpuSet::MAX_CPU).for_each(|cpu| all.set(cpu));
        all
    }))
}

/// Keeps the calling thread on these CPUs.
///
/// # Errors
/// `INVAL` when no such CPU exists or may be used.
pub fn set_affinity(mask: &CpuMask) -> Result<(), Errno> {
    kernel::sched_setaffinity(None, &mask.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_lists_end_where_the_kernel_says() {
        assert_eq!(one_past_last(b"0-1\n"), Some(2));
        assert_eq!(one_past_last(b"0\n"), Some(1));
        assert_eq!(one_past_last(b"0-3,8-11\n"), Some(12));
        assert_eq!(one_past_last(b""), None);
        assert_eq!(one_past_last(b"none"), None);
    }

    #[test]
    fn every_usable_cpu_is_below_the_count() {
        let mask = affinity();
        let count = cpu_count();
        assert!(current_cpu() < count);
        assert!((count..CpuSet::MAX_CPU).all(|cpu| !mask.contains(cpu)));
        assert!(kernel_mask_bits() >= count);
        assert!(!mask.contains(usize::MAX));
    }

    #[test]
    fn affinity_set_is_affinity_read() {
        let before = affinity();
        let cpu = current_cpu();
        set_affinity(&CpuMask::only(cpu)).unwrap();
        assert_eq!(affinity(), CpuMask::only(cpu));
        assert_eq!(current_cpu(), cpu);
        set_affinity(&before).unwrap();
        assert_eq!(affinity(), before);
    }

    #[test]
    fn affinity_to_no_cpu_is_refused() {
        assert_eq!(set_affinity(&CpuMask::only(usize::MAX)), Err(Errno::INVAL));
    }
}
