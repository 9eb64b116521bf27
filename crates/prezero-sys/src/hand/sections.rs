//! The two sections, in x86-64 assembly.
//!
//! A section is left open in `rseq_cs` when it is done: the kernel forgets it the next
//! time it looks, because the thread is no longer inside. Who is interrupted inside
//! begins again, having written nothing that counts.
//!
//! `put` looks for the hand where it put the last thing and only checks that this is the
//! right one: `which` comes out of memory that was written a moment ago, at an address
//! that the same hand said, and a processor that had to wait for it would wait 5 cycles
//! more in each turn of a loop (measured). It writes down the right one outside of the
//! section, where it may even hit another CPU's note: that is a guess, no more.

use super::{Hands, Held};
use crate::rseq::{CPU_ID, RSEQ_CS, SIGNATURE};
use std::arch::asm;
use std::sync::atomic::AtomicU32;

/// # Safety
/// `area` is where a thread's registered area lies; `which` is below `T::COUNT`.
#[inline(always)]
pub(super) unsafe fn take<T: Hands>(cpus: &[T], which: usize, area: isize) -> Option<(Held, &T)> {
    let word: i64;
    let cpu: *const T;
    // SAFETY: the CPU's number is checked against the slice before it is used; the
    // only store is the commit, to a hand.
    unsafe {
        asm!(
            ".pushsection __rseq_cs, \"aw\", @progbits",
            ".balign 32",
            "2:",
            ".long 0, 0",
            ".quad 3f, 4f - 3f, 5f",
            ".popsection",
            ".pushsection __rseq_failure, \"ax\", @progbits",
            ".byte 0x0f, 0xb9, 0x3d",
            ".long {signature}",
            "5:",
            "jmp 6f",
            "7:",
            "xor {word:e}, {word:e}",
            "jmp 4f",
            ".popsection",

            "6:",
            "lea {word}, [rip + 2b]",
            "mov qword ptr fs:[{area} + {rseq_cs}], {word}",
            "3:",
            "mov {cpu:e}, dword ptr fs:[{area} + {cpu_id}]",
            "cmp {cpu:e}, {cpus:e}",
            "jae 7b",
            "imul {cpu}, {cpu}, {stride}",
            "add {cpu}, {base}",
            "mov {word}, qword ptr [{cpu} + {which} * 8 + {offset}]",
            "test {word}, {word}",
            "jle 4f",
            "mov qword ptr [{cpu} + {which} * 8 + {offset}], 0",
            "4:",
            signature = const SIGNATURE,
            rseq_cs = const RSEQ_CS,
            cpu_id = const CPU_ID,
            stride = const size_of::<T>(),
            offset = const T::OFFSET,
            area = in(reg) area,
            base = in(reg) cpus.as_ptr(),
            cpus = in(reg) cpus.len(),
            which = in(reg) which,
            word = out(reg) word,
            cpu = out(reg) cpu,
            options(nostack),
        );
        // A word that is not 0 was read from an element, at this address.
        (word > 0).then(|| (Held(word as u64), &*cpu))
    }
}

/// # Safety
/// As for `take`.
#[inline(always)]
pub(super) unsafe fn put<'a, T: Hands, const MOST: u32>(
    cpus: &'a [T],
    which: usize,
    held: Held,
    gate: &AtomicU32,
    area: isize,
) -> Option<&'a T> {
    let cpu: *const T;
    // SAFETY: as in `take`.
    unsafe {
        asm!(
            ".pushsection __rseq_cs, \"aw\", @progbits",
            ".balign 32",
            "2:",
            ".long 0, 0",
            ".quad 3f, 4f - 3f, 5f",
            ".popsection",
            ".pushsection __rseq_failure, \"ax\", @progbits",
            ".byte 0x0f, 0xb9, 0x3d",
            ".long {signature}",
            "5:",
            "jmp 6f",
            "7:",
            "xor {cpu:e}, {cpu:e}",
            "jmp 4f",
            "8:",
            "mov qword ptr [{cpu} + {last_at}], {which}",
            "jmp 6f",
            ".popsection",

            "6:",
            "lea {cpu}, [rip + 2b]",
            "mov qword ptr fs:[{area} + {rseq_cs}], {cpu}",
            "3:",
            "mov {cpu:e}, dword ptr fs:[{area} + {cpu_id}]",
            "cmp {cpu:e}, {cpus:e}",
            "jae 7b",
            "imul {cpu}, {cpu}, {stride}",
            "add {cpu}, {base}",
            "mov {last}, qword ptr [{cpu} + {last_at}]",
            "cmp {last}, {which}",
            "jne 8b",
            "cmp qword ptr [{cpu} + {last} * 8 + {offset}], 0",
            "jne 7b",
            "cmp dword ptr [{gate}], {most}",
            "ja 7b",
            "mov qword ptr [{cpu} + {last} * 8 + {offset}], {word}",
            "4:",
            signature = const SIGNATURE,
            rseq_cs = const RSEQ_CS,
            cpu_id = const CPU_ID,
            stride = const size_of::<T>(),
            offset = const T::OFFSET,
            most = const MOST,
            last_at = const T::LAST,
            last = out(reg) _,
            area = in(reg) area,
            base = in(reg) cpus.as_ptr(),
            cpus = in(reg) cpus.len(),
            which = in(reg) which,
            gate = in(reg) gate.as_ptr(),
            word = in(reg) held.0,
            cpu = out(reg) cpu,
            options(nostack),
        );
        // The address of an element, or null.
        cpu.as_ref()
    }
}
