//! Restartable sequences: a stretch of code that the kernel promises to abandon when its
//! thread is preempted, moved, or revoked by [`membarrier_rseq`].
//!
//! A thread has one `struct rseq`, shared with the kernel. glibc (2.35 and later) registers
//! it for every thread that it knows. A thread that libc does not know of does so itself, in the
//! same place ([`register_for_libc`]). Where neither did, [`Rseq::of_current_thread`] does, for as
//! long as the value lives. The code that opens a section writes the address of a
//! descriptor to [`RSEQ_CS`]; the kernel looks there before it lets an interrupted thread go on.

use std::marker::PhantomData;
use std::ptr::NonNull;

use rustix::thread::{MembarrierCommand, membarrier, membarrier_query};

#[cfg(target_arch = "x86_64")]
use crate::memory::Reservation;

/// Offset in `struct rseq` of the 8-byte address of the open section's descriptor.
pub const RSEQ_CS: usize = 8;
/// Bytes in the first version of `struct rseq`, which every kernel accepts.
pub const AREA: usize = 32;
/// Offset of the CPU number, negative while the thread is not registered.
#[cfg(target_arch = "x86_64")]
pub(crate) const CPU_ID: usize = 4;
/// The four bytes that must stand before an abort handler, so that a forged descriptor cannot
/// send the thread just anywhere. What glibc registers with on x86.
pub const SIGNATURE: u32 = 0x5305_3053;

/// The calling thread's registered `struct rseq`. It belongs to its thread: neither `Send`
/// nor `Sync`.
#[derive(Debug)]
pub struct Rseq {
    area: NonNull<u8>,
    /// The memory of a registration that this value made, and undoes.
    #[cfg(target_arch = "x86_64")]
    ours: Option<Reservation>,
    thread: PhantomData<*mut u8>,
}

impl Rseq {
    /// The calling thread's area; `None` where there is none: an old kernel, a filter, an
    /// emulator, an architecture for which no section is written. For once in a thread's
    /// life. The first call asks the dynamic linker, which locks and may allocate.
    pub fn of_current_thread() -> Option<Rseq> {
        #[cfg(target_arch = "x86_64")]
        return x86_64::in_libcs_area().or_else(x86_64::register);
        #[cfg(not(target_arch = "x86_64"))]
        None
    }

    /// The address of the `struct rseq`, for code that runs on this thread.
    pub fn as_ptr(&self) -> *mut u8 {
        self.area.as_ptr()
    }
}

#[cfg(target_arch = "x86_64")]
impl Drop for Rseq {
    fn drop(&mut self) {
        if let Some(memory) = self.ours.take() {
            x86_64::unregister(memory);
        }
    }
}

/// Where each thread's area lies from its thread pointer, whether it is registered or not; `None`
/// where libc has none. Asks the dynamic linker, which locks and may allocate, at the first call.
pub fn area_offset() -> Option<isize> {
    #[cfg(target_arch = "x86_64")]
    return x86_64::libc_areas().map(|(offset, _)| offset);
    // No section is written for other architectures.
    #[cfg(not(target_arch = "x86_64"))]
    None
}

/// Makes an area what it is before its thread is registered: libc would believe a CPU number of 0.
///
/// # Safety
/// An area ([`area_offset`]) of a thread that does not run.
#[cfg(target_arch = "x86_64")]
pub unsafe fn blank(area: NonNull<u8>) {
    // SAFETY: the caller's promise.
    unsafe { x86_64::blank(area) }
}

/// Has the kernel know the area that libc has for the calling thread, which libc itself did not
/// register, because it does not know of the thread. False where libc registers none.
#[cfg(target_arch = "x86_64")]
pub fn register_for_libc() -> bool {
    x86_64::register_for_libc()
}

/// Announces that this process will use [`membarrier_rseq`]. False where the kernel has no
/// such thing (before 5.10). Once a process; a new one after `fork` asks again.
pub fn membarrier_register() -> bool {
    // An emulator or a filter may answer each call with 0, which names no command.
    membarrier_query().contains_command(MembarrierCommand::PrivateExpeditedRseq)
        && membarrier(MembarrierCommand::RegisterPrivateExpeditedRseq).is_ok()
}

/// Restarts every section that a thread of this process has open at this moment: when it
/// returns, each has either committed or will never write again, and what it wrote is
/// visible here. False, with nothing done, without [`membarrier_register`].
pub fn membarrier_rseq() -> bool {
    membarrier(MembarrierCommand::PrivateExpeditedRseq).is_ok()
}

#[cfg(target_arch = "x86_64")]
pub(crate) mod x86_64 {
    use super::{AREA, CPU_ID, Rseq, SIGNATURE};
    use crate::memory::{GRAIN, Reservation};
    use crate::process::glibc_minor;
    use crate::raw;
    use std::arch::asm;
    use std::ffi::CStr;
    use std::marker::PhantomData;
    use std::ptr::NonNull;
    use std::sync::atomic::{AtomicI64, Ordering};

    const UNREGISTERED: i32 = -1;
    const FLAG_UNREGISTER: u32 = 1;

    /// What [`libc_areas`] found: 0 until it has looked, then [`NONE`] or the offset (above 0
    /// after [`BIAS`] was added), and [`USED`].
    static AREAS: AtomicI64 = AtomicI64::new(0);
    const NONE: i64 = -1;
    const BIAS: i64 = 1 << 60;
    const USED: i64 = 1 << 62;

    /// The minor version of the first glibc that has areas.
    const FIRST: u32 = 35;

    /// Where glibc has every thread's area, from the thread pointer, and whether it registers
    /// them; `None` if it has none. Looked up once: a thread that libc does not know of must not ask. An older glibc
    /// is not asked: it would say in memory of the program's `malloc` that it has none.
    pub(super) fn libc_areas() -> Option<(isize, bool)> {
        let mut known = AREAS.load(Ordering::Relaxed);
        if known == 0 {
            // SAFETY: the types are those that glibc documents for its two symbols.
            let ask =
                || unsafe { read::<isize>(c"__rseq_offset").zip(read::<u32>(c"__rseq_size")) };
            let has = glibc_minor().is_some_and(|minor| minor >= FIRST);
            let found = has.then(ask).flatten().filter(|(offset, _)| *offset != 0);
            known = found.map_or(NONE, |(offset, size)| {
                (offset as i64 + BIAS) | if size == 0 { 0 } else { USED }
            });
            AREAS.store(known, Ordering::Relaxed);
        }
        let used = known & USED != 0;
        (known != NONE).then_some((((known & !USED) - BIAS) as isize, used))
    }

    /// Where glibc has every thread's area, from the thread pointer; `None` if it registers
    /// none.
    pub(crate) fn offset_of_libc() -> Option<isize> {
        libc_areas().and_then(|(offset, used)| used.then_some(offset))
    }

    /// # Safety
    /// As for [`super::blank`].
    pub(super) unsafe fn blank(area: NonNull<u8>) {
        // SAFETY: the caller's promise; every version is at least that long.
        unsafe {
            area.write_bytes(0, AREA);
            area.byte_add(CPU_ID).cast::<i32>().write(UNREGISTERED);
        }
    }

    /// See [`super::register_for_libc`].
    pub(super) fn register_for_libc() -> bool {
        let Some(offset) = offset_of_libc() else { return false };
        let area = NonNull::new(thread_pointer().wrapping_offset(offset));
        // SAFETY: a part of the thread's own block, which outlives it.
        area.is_some_and(|area| unsafe { rseq(area, 0) } == 0)
    }

    /// libc's area for the calling thread, if it is registered.
    pub(super) fn in_libcs_area() -> Option<Rseq> {
        let offset = offset_of_libc()?;
        let area = NonNull::new(thread_pointer().wrapping_offset(offset))?;
        // SAFETY: a size above zero says that the area exists in every thread; the kernel
        // changes the number at will, hence volatile.
        let cpu = unsafe { area.byte_add(CPU_ID).cast::<i32>().read_volatile() };
        (cpu >= 0).then_some(Rseq { area, ours: None, thread: PhantomData })
    }

    pub(super) fn register() -> Option<Rseq> {
        let memory = Reservation::new(GRAIN, GRAIN).ok()?;
        let area = memory.base();
        // SAFETY: a fresh page of this call's own, which has room for the area.
        unsafe { area.byte_add(CPU_ID).cast::<i32>().write_volatile(UNREGISTERED) };
        // SAFETY: the area stays mapped until `unregister`, which runs on this thread
        // because `Rseq` cannot leave it.
        if unsafe { rseq(area, 0) } != 0 {
            return None;
        }
        Some(Rseq { area, ours: Some(memory), thread: PhantomData })
    }

    pub(super) fn unregister(memory: Reservation) {
        // SAFETY: registered by `register` on this thread.
        if unsafe { rseq(memory.base(), FLAG_UNREGISTER) } != 0 {
            // The kernel still writes there: keep the page for good.
            std::mem::forget(memory);
        }
    }

    /// # Safety
    /// The area stays valid for as long as the kernel has it.
    unsafe fn rseq(area: NonNull<u8>, flags: u32) -> isize {
        let area = area.as_ptr().addr();
        // SAFETY: the arguments of rseq(2); the area is the caller's promise.
        unsafe { raw::syscall(libc::SYS_rseq, [area, AREA, flags as usize, SIGNATURE as usize]) }
    }

    /// # Safety
    /// The symbol, where it exists, is a `T`.
    unsafe fn read<T: Copy>(symbol: &CStr) -> Option<T> {
        // SAFETY: a terminated string; the answer is null or the symbol's address, whose
        // type is the caller's promise.
        unsafe { libc::dlsym(libc::RTLD_DEFAULT, symbol.as_ptr()).cast::<T>().as_ref().copied() }
    }

    fn thread_pointer() -> *mut u8 {
        let pointer: *mut u8;
        // SAFETY: the ABI keeps the thread pointer's own address in its first word.
        unsafe {
            asm!("mov {}, fs:[0]", out(reg) pointer, options(nostack, preserves_flags, readonly));
        }
        pointer
    }

    #[cfg(test)]
    mod tests {
        use super::*;
        use crate::thread::{CpuMask, current_cpu, set_affinity};
        use crate::turn::alone;
        use std::process::Command;
        use std::sync::Barrier;

        fn cpu_of(rseq: &Rseq) -> i32 {
            // SAFETY: the area lives as long as `rseq`.
            unsafe { rseq.as_ptr().add(CPU_ID).cast::<i32>().read_volatile() }
        }

        #[test]
        fn every_thread_has_its_own_area_which_knows_the_cpu() {
            // Both alive at once, so that no address can be used twice.
            let both = Barrier::new(2);
            let look = || {
                let cpu = current_cpu();
                set_affinity(&CpuMask::only(cpu)).unwrap();
                let rseq = Rseq::of_current_thread();
                let seen = rseq.as_ref().map(|rseq| (rseq.as_ptr().addr(), cpu_of(rseq)));
                both.wait();
                let (address, number) = seen.expect("a kernel with rseq");
                assert_eq!(number, cpu as i32);
                address
            };
            std::thread::scope(|scope| {
                let (one, two) = (scope.spawn(look), scope.spawn(look));
                assert_ne!(one.join().unwrap(), two.join().unwrap());
            });
        }

        #[test]
        fn a_second_look_finds_what_the_first_found() {
            let first = Rseq::of_current_thread().expect("a kernel with rseq");
            match Rseq::of_current_thread() {
                Some(second) => assert_eq!(first.as_ptr(), second.as_ptr()),
                // Registered by `first`, which owns it.
                None => assert!(first.ours.is_some()),
            }
        }

        /// Run by the next test, in a process whose glibc registers nothing.
        #[test]
        #[ignore = "needs glibc's registration to be off"]
        fn own_registration_lives_as_long_as_the_value() {
            for _ in 0..2 {
                let rseq = Rseq::of_current_thread().expect("a kernel with rseq");
                assert!(rseq.ours.is_some());
                assert!(cpu_of(&rseq) >= 0);
                assert!(Rseq::of_current_thread().is_none());
            }
        }

        #[test]
        fn without_glibc_we_register_ourselves() {
            let _alone = alone();
            let test = "percpu::rseq::x86_64::tests::own_registration_lives_as_long_as_the_value";
            let run = Command::new(std::env::current_exe().unwrap())
                .args(["--exact", test, "--ignored", "--test-threads=1"])
                .env("GLIBC_TUNABLES", "glibc.pthread.rseq=0")
                .output()
                .unwrap();
            let text = String::from_utf8_lossy(&run.stdout);
            assert!(run.status.success() && text.contains("1 passed"), "{text}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn membarrier_works_once_registered() {
        assert!(membarrier_register());
        assert!(membarrier_register());
        assert!(membarrier_rseq());
    }
}
