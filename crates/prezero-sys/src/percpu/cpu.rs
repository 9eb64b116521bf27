//! The number of the CPU that a thread runs on, out of the thread's own restartable-sequence area.
//!
//! glibc's `sched_getcpu` reads the same word through a page of code more, which a program that comes back from a
//! pause finds in no cache.

#[cfg(target_arch = "x86_64")]
use std::sync::atomic::{AtomicIsize, Ordering::Relaxed};

/// Where a thread's `struct rseq` lies from its thread pointer; 0: it is not known.
#[cfg(target_arch = "x86_64")]
static AREA: AtomicIsize = AtomicIsize::new(0);

/// Looks where the areas lie, if that can be known: not where glibc registers no restartable sequences (before 2.35,
/// under an emulator or a filter). The first call asks the dynamic linker, which locks and may allocate.
pub fn learn() {
    #[cfg(target_arch = "x86_64")]
    if let Some(offset) = super::rseq::x86_64::offset_of_libc() {
        AREA.store(offset, Relaxed);
    }
}

/// The CPU that this thread runs on; a hint, as the thread may be moved.
#[inline(always)]
pub fn current() -> usize {
    #[cfg(target_arch = "x86_64")]
    {
        let area = AREA.load(Relaxed);
        if area != 0 {
            let cpu: i32;
            // SAFETY: libc has an area in every thread there; a word of it that only the kernel writes is read.
            unsafe {
                std::arch::asm!(
                    "mov {cpu:e}, dword ptr fs:[{area} + {cpu_id}]",
                    cpu_id = const super::rseq::CPU_ID as isize,
                    area = in(reg) area,
                    cpu = out(reg) cpu,
                    options(nostack, preserves_flags, readonly),
                );
            }
            if cpu >= 0 {
                return cpu as usize;
            }
        }
    }
    crate::thread::current_cpu()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::thread::{CpuMask, process_affinity, set_affinity};

    #[test]
    fn a_thread_that_is_pinned_runs_where_it_is_pinned() {
        learn();
        let all = process_affinity();
        for cpu in (0..crate::thread::cpu_count()).filter(|&cpu| all.contains(cpu)) {
            set_affinity(&CpuMask::only(cpu)).unwrap();
            assert_eq!(current(), cpu);
        }
        set_affinity(&all).unwrap();
    }
}
