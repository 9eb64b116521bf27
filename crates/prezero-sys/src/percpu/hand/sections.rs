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
//! section, where it may even hit another CPU's note: that is a guess, no more. And it reads both
//! words of the gate as one number, of which the one that shuts it is the upper half.

use super::{Area, Held, Row, TAG_BITS};
use crate::memory::meta::{Meta, Plain};
use crate::percpu::rseq::{CPU_ID, RSEQ_CS, SIGNATURE};
use std::arch::asm;

/// The CPU that the area names: below 0 if its thread is not registered.
///
/// # Safety
/// `area` is where a thread's registered area lies, and [`Area::BIAS`].
#[inline(always)]
pub(super) unsafe fn cpu(area: isize) -> i32 {
    let cpu: i32;
    // SAFETY: a word of this thread's own, which only the kernel writes.
    unsafe {
        asm!(
            "mov {cpu:e}, dword ptr fs:[{area} + {cpu_id}]",
            cpu_id = const CPU_ID as isize - Area::BIAS,
            area = in(reg) area,
            cpu = out(reg) cpu,
            options(nostack, preserves_flags, readonly),
        );
    }
    cpu
}

/// The word if it could be taken, else 0 or less, and what CPU's it was.
///
/// # Safety
/// `area` is where a thread's registered area lies, and [`Area::BIAS`]; `which` is below `R::COUNT`.
#[inline(always)]
pub(super) unsafe fn take<C: Plain, R: Row<C>>(
    row: &R,
    which: usize,
    area: isize,
) -> (i64, *const C) {
    let word: i64;
    let cpu: *const C;
    // SAFETY: the row's fields are where it says; the CPU's number is checked against theirs
    // before it is used; the only store is the commit, to a hand.
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
            "cmp {cpu}, qword ptr [{row} + {n}]",
            "jae 7b",
            "imul {cpu}, {cpu}, {stride}",
            "add {cpu}, qword ptr [{row} + {base}]",
            "mov {word}, qword ptr [{cpu} + {which} * 8 + {hands}]",
            "test {word}, {word}",
            "jle 4f",
            "mov qword ptr [{cpu} + {which} * 8 + {hands}], 0",
            "4:",
            signature = const SIGNATURE,
            rseq_cs = const RSEQ_CS as isize - Area::BIAS,
            cpu_id = const CPU_ID as isize - Area::BIAS,
            base = const R::CPUS + Meta::<C>::BASE_AT,
            n = const R::CPUS + Meta::<C>::N_AT,
            stride = const size_of::<C>(),
            hands = const R::HANDS,
            area = in(reg) area,
            row = in(reg) row,
            which = in(reg) which,
            word = out(reg) word,
            cpu = out(reg) cpu,
            options(nostack),
        );
    }
    (word, cpu)
}

/// What a word without a mark holds above its tag. In assembly, because it is known to be above 0, and
/// the compiler makes a mask of that for which it needs an instruction more.
#[inline(always)]
pub(super) fn payload(word: i64) -> usize {
    let payload: usize;
    // SAFETY: touches nothing but its operand.
    unsafe {
        asm!(
            "and {payload}, {mask}",
            mask = const !(TAG_BITS as isize),
            payload = inlateout(reg) word => payload,
            options(pure, nomem, nostack),
        );
    }
    payload
}

/// # Safety
/// As for `take`.
#[inline(always)]
pub(super) unsafe fn put<C: Plain, R: Row<C>, const MOST: u32>(
    row: &R,
    which: usize,
    held: Held,
    area: isize,
) -> bool {
    // SAFETY: as in `take`; the counter lies in the element.
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
            "8:",
            "mov qword ptr [{cpu} + {last_at}], {which}",
            "jmp 6f",
            ".popsection",

            "6:",
            "lea {cpu}, [rip + 2b]",
            "mov qword ptr fs:[{area} + {rseq_cs}], {cpu}",
            "3:",
            "mov {cpu:e}, dword ptr fs:[{area} + {cpu_id}]",
            "cmp {cpu}, qword ptr [{row} + {n}]",
            "jae {refused}",
            "imul {cpu}, {cpu}, {stride}",
            "add {cpu}, qword ptr [{row} + {base}]",
            "mov {last}, qword ptr [{cpu} + {last_at}]",
            "cmp {last}, {which}",
            "jne 8b",
            "cmp qword ptr [{cpu} + {last} * 8 + {hands}], 0",
            "jne {refused}",
            "cmp qword ptr [{row} + {gate}], {most}",
            "ja {refused}",
            "mov qword ptr [{cpu} + {last} * 8 + {hands}], {word}",
            "4:",
            "inc qword ptr [{cpu} + {last} * 8 + {puts}]",
            signature = const SIGNATURE,
            rseq_cs = const RSEQ_CS as isize - Area::BIAS,
            cpu_id = const CPU_ID as isize - Area::BIAS,
            base = const R::CPUS + Meta::<C>::BASE_AT,
            n = const R::CPUS + Meta::<C>::N_AT,
            gate = const R::GATE,
            most = const MOST,
            stride = const size_of::<C>(),
            hands = const R::HANDS,
            puts = const R::PUTS,
            last_at = const R::LAST,
            last = out(reg) _,
            area = in(reg) area,
            row = in(reg) row,
            which = in(reg) which,
            word = in(reg) held.0,
            cpu = out(reg) _,
            refused = label { return false },
            options(nostack),
        );
    }
    true
}
