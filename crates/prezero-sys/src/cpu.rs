//! The number of the CPU that a thread runs on, out of the thread's own restartable-sequence area.
//!
//! glibc's `sched_getcpu` reads the same word through a page of code more, which a program that comes back from a
//! pause finds in no cache. glibc (2.35 and later) registers an area for every thread that it knows. A thread that libc
//! does not know of has the area and no registration.

#[cfg(target_arch = "x86_64")]
use std::sync::atomic::{AtomicBool, AtomicIsize, Ordering::Relaxed};

/// Bytes in the first version of `struct rseq`, which every one has.
pub const AREA: usize = 32;
/// Offset in `struct rseq` of the CPU number, negative while the thread is not registered.
#[cfg(target_arch = "x86_64")]
const CPU_ID: usize = 4;

/// Where each thread's `struct rseq` lies from its thread pointer; 0: it is not known, or there is none.
#[cfg(target_arch = "x86_64")]
static OFFSET: AtomicIsize = AtomicIsize::new(0);
/// The same where libc registers the areas.
#[cfg(target_arch = "x86_64")]
static REGISTERED: AtomicIsize = AtomicIsize::new(0);

/// Looks where the areas lie, if that can be known: not where glibc registers no restartable sequences (before 2.35,
/// under an emulator or a filter). The first call asks the dynamic linker, which locks and may allocate: a thread that
/// libc does not know of must not make it.
pub fn look_up() {
    #[cfg(target_arch = "x86_64")]
    {
        static LOOKED: AtomicBool = AtomicBool::new(false);
        if !LOOKED.swap(true, Relaxed)
            && let Some((offset, bytes)) = areas()
        {
            OFFSET.store(offset, Relaxed);
            REGISTERED.store(if bytes > 0 { offset } else { 0 }, Relaxed);
        }
    }
}

/// Where each thread's area lies from its thread pointer, whether it is registered or not; `None` where libc has none, or
/// nothing [looked](look_up).
pub fn area_offset() -> Option<isize> {
    #[cfg(target_arch = "x86_64")]
    return Some(OFFSET.load(Relaxed)).filter(|offset| *offset != 0);
    #[cfg(not(target_arch = "x86_64"))]
    None
}

/// Where glibc has each thread's area, from the thread pointer, and the bytes that it registers.
#[cfg(target_arch = "x86_64")]
fn areas() -> Option<(isize, u32)> {
    /// The minor version of the first glibc that has areas. An older one would say in memory of the program's `malloc` that it
    /// has none.
    const FIRST: u32 = 35;
    /// # Safety
    /// The symbol, where it exists, is a `T`.
    unsafe fn read<T: Copy>(symbol: &std::ffi::CStr) -> Option<T> {
        // SAFETY: a terminated string; the answer is null or the symbol's address, whose
        // type is the caller's promise.
        unsafe { libc::dlsym(libc::RTLD_DEFAULT, symbol.as_ptr()).cast::<T>().as_ref().copied() }
    }
    crate::process::glibc_minor().filter(|minor| *minor >= FIRST)?;
    // SAFETY: the types are those that glibc documents for its two symbols.
    let (offset, bytes) =
        unsafe { read::<isize>(c"__rseq_offset").zip(read::<u32>(c"__rseq_size")) }?;
    (offset != 0).then_some((offset, bytes))
}

/// Makes the area of a thread what it is before the thread is registered, if libc has areas: libc would believe a CPU
/// number of 0.
///
/// # Safety
/// `thread` is the thread pointer of a thread that does not run, whose block is laid out as libc's own.
#[cfg(target_arch = "x86_64")]
pub unsafe fn blank(thread: std::ptr::NonNull<u8>) {
    const UNREGISTERED: i32 = -1;
    if let Some(offset) = area_offset() {
        // SAFETY: the caller's promise; each block has an area there.
        unsafe {
            let area = thread.offset(offset);
            area.write_bytes(0, AREA);
            area.byte_add(CPU_ID).cast::<i32>().write(UNREGISTERED);
        }
    }
}

/// The CPU that this thread runs on; a hint, as the thread may be moved.
#[inline(always)]
pub fn current() -> usize {
    #[cfg(target_arch = "x86_64")]
    {
        let area = REGISTERED.load(Relaxed);
        if area != 0 {
            let cpu: i32;
            // SAFETY: libc has an area in every thread there; a word of it that only the kernel writes is read.
            unsafe {
                std::arch::asm!(
                    "mov {cpu:e}, dword ptr fs:[{area} + {cpu_id}]",
                    cpu_id = const CPU_ID as isize,
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
        look_up();
        let all = process_affinity();
        for cpu in (0..crate::thread::cpu_count()).filter(|&cpu| all.contains(cpu)) {
            set_affinity(&CpuMask::only(cpu)).unwrap();
            assert_eq!(current(), cpu);
        }
        set_affinity(&all).unwrap();
    }
}
