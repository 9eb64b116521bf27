//! x86-64 engines. Each is a few instructions, used twice: alone, and inside a restartable
//! sequence.
//!
//! The sequence (`linux/rseq.h`): the thread's `rseq_cs` points at a descriptor that names a
//! range of instructions and an abort handler. When the kernel interrupts the thread inside
//! the range, to run another one, to move it, or because of a membarrier, it continues at the
//! handler. The range here is
//!
//! ```text
//! claim == expected?   else leave with MISMATCH
//! the engine's clear loop, fenced if its stores are weakly ordered
//! progress = next      the last instruction: done means committed
//! ```
//!
//! All registers that it changes are written anew on each attempt, which starts from Rust.
//! The descriptor must outlive its use by the kernel: `rseq_cs` is zeroed on the way out, so
//! that the library can be unloaded.

use std::arch::asm;
use std::arch::x86_64::{__cpuid, __cpuid_count};
use std::ptr::NonNull;
use std::sync::atomic::AtomicU8;
use std::sync::atomic::Ordering::Relaxed;

use prezero_sys::rseq::{RSEQ_CS, SIGNATURE};

use super::{Cache, ClearEngine, Guard, Piece};

/// How a section ended.
/// Fixed: an answer of the assembly.
const COMMITTED: u64 = 0;
const MISMATCH: u64 = 1;
const ABORTED: u64 = 2;

/// An engine whose loop expects rdi = first byte, rcx = bytes (> 0), rax = 0, and may change
/// those, zmm0 and the flags. Label 8 is free for it.
macro_rules! engine {
    ($engine:ident, $name:literal, $cache:expr, $($line:literal),+ $(,)?) => {
        pub(super) struct $engine;

        // SAFETY: the loop writes zeroes to exactly the range, and ends with a fence where
        // its stores could pass a later one. The section below keeps the module's promise:
        // nothing is written outside it, and the commit is its last instruction.
        unsafe impl ClearEngine for $engine {
            fn name(&self) -> &'static str {
                $name
            }

            fn cache(&self) -> Cache {
                $cache
            }

            unsafe fn clear(&self, dst: NonNull<u8>, len: usize) {
                // SAFETY: the caller owns the range, and every changed register is declared.
                unsafe {
                    asm!(
                        $($line,)+
                        inout("rdi") dst.as_ptr() => _,
                        inout("rcx") len => _,
                        inout("rax") 0u64 => _,
                        out("xmm0") _,
                        options(nostack),
                    );
                }
            }

            unsafe fn clear_guarded(
                &self,
                dst: NonNull<u8>,
                len: usize,
                guard: &Guard<'_>,
            ) -> Piece {
                let Some(rseq) = guard.rseq else {
                    // SAFETY: the same terms.
                    return unsafe { guard.clear_then_commit(self, dst, len) };
                };
                loop {
                    let end: u64;
                    // SAFETY: `rseq` is this thread's area. The kernel leaves the section
                    // only for label 5, with all registers as they were; the range is
                    // written to only between the check and the commit.
                    unsafe {
                        asm!(
                            // version and flags, start, length, abort handler. Writable,
                            // because the loader relocates it.
                            ".pushsection __rseq_cs, \"aw\", @progbits",
                            ".balign 32",
                            "2:",
                            ".long 0, 0",
                            ".quad 3f, 4f - 3f, 5f",
                            ".popsection",
                            // The signature is the operand of an undefined instruction, so
                            // that no gadget hides in it.
                            ".pushsection __rseq_failure, \"ax\", @progbits",
                            ".byte 0x0f, 0xb9, 0x3d",
                            ".long {signature}",
                            "5:",
                            "mov {end:e}, {aborted}",
                            "jmp 7f",
                            ".popsection",

                            "lea {end}, [rip + 2b]",
                            "mov qword ptr [{rseq} + {rseq_cs}], {end}",
                            "3:",
                            "cmp qword ptr [{claim}], {expected}",
                            "jne 6f",
                            $($line,)+
                            "mov qword ptr [{progress}], {next}",
                            "4:",
                            "mov {end:e}, {committed}",
                            "jmp 7f",
                            "6:",
                            "mov {end:e}, {mismatch}",
                            "7:",
                            "mov qword ptr [{rseq} + {rseq_cs}], 0",
                            signature = const SIGNATURE,
                            rseq_cs = const RSEQ_CS,
                            committed = const COMMITTED,
                            mismatch = const MISMATCH,
                            aborted = const ABORTED,
                            rseq = in(reg) rseq.as_ptr(),
                            claim = in(reg) guard.claim.as_ptr(),
                            expected = in(reg) guard.expected,
                            progress = in(reg) guard.progress.as_ptr(),
                            next = in(reg) guard.next,
                            end = out(reg) end,
                            inout("rdi") dst.as_ptr() => _,
                            inout("rcx") len => _,
                            inout("rax") 0u64 => _,
                                out("xmm0") _,
                            options(nostack),
                        );
                    }
                    match end {
                        COMMITTED => return Piece::Cleared,
                        MISMATCH => return Piece::Revoked,
                        // Interrupted, perhaps for another reason than the claim. Each
                        // attempt has a fresh time slice, many pieces long.
                        _ => {}
                    }
                }
            }

            fn revocable(&self) -> bool {
                true
            }
        }
    };
}

engine!(RepStosb, "stosb", Cache::Cached, "rep stosb");

// The VEX form of a 128-bit instruction zeroes the whole register, so no upper half is ever
// dirty and no vzeroupper is due.
engine!(
    Avx512Nt,
    "avx512-nt",
    Cache::Bypassing,
    "vpxor xmm0, xmm0, xmm0",
    "8:",
    "vmovntdq zmmword ptr [rdi], zmm0",
    "vmovntdq zmmword ptr [rdi + 64], zmm0",
    "vmovntdq zmmword ptr [rdi + 128], zmm0",
    "vmovntdq zmmword ptr [rdi + 192], zmm0",
    "add rdi, 256",
    "sub rcx, 256",
    "jnz 8b",
    "sfence",
);

engine!(
    Avx2Nt,
    "avx2-nt",
    Cache::Bypassing,
    "vpxor xmm0, xmm0, xmm0",
    "8:",
    "vmovntdq ymmword ptr [rdi], ymm0",
    "vmovntdq ymmword ptr [rdi + 32], ymm0",
    "vmovntdq ymmword ptr [rdi + 64], ymm0",
    "vmovntdq ymmword ptr [rdi + 96], ymm0",
    "add rdi, 128",
    "sub rcx, 128",
    "jnz 8b",
    "sfence",
);

// Clears the line that rax points into.
engine!(
    Clzero,
    "clzero",
    Cache::Bypassing,
    "mov rax, rdi",
    "8:",
    "clzero",
    "add rax, 64",
    "sub rcx, 64",
    "jnz 8b",
    "sfence",
);

// Each line leaves as soon as it is whole: a quarter faster than a page or more at a time,
// and the next core finds it just as well. Not every CPU that demotes has wide registers.
engine!(
    Demote,
    "demote",
    Cache::Demoted,
    "xorps xmm0, xmm0",
    "8:",
    "movaps xmmword ptr [rdi], xmm0",
    "movaps xmmword ptr [rdi + 16], xmm0",
    "movaps xmmword ptr [rdi + 32], xmm0",
    "movaps xmmword ptr [rdi + 48], xmm0",
    "cldemote byte ptr [rdi]",
    "add rdi, 64",
    "sub rcx, 64",
    "jnz 8b",
);

pub(super) fn has_avx512() -> bool {
    is_x86_feature_detected!("avx512f")
}

pub(super) fn has_avx2() -> bool {
    is_x86_feature_detected!("avx2")
}

pub(super) fn has_clzero() -> bool {
    extra_features() & CLZERO != 0
}

pub(super) fn has_cldemote() -> bool {
    extra_features() & CLDEMOTE != 0
}

/// Bits of what `cpuid` said.
/// Fixed: bits of a word.
const KNOWN: u8 = 1;
const CLZERO: u8 = 2;
const CLDEMOTE: u8 = 4;

/// What the standard library does not detect. Kept, because under a hypervisor each `cpuid`
/// is an exit of many microseconds.
fn extra_features() -> u8 {
    static FEATURES: AtomicU8 = AtomicU8::new(0);
    match FEATURES.load(Relaxed) {
        0 => {
            let found = ask_cpuid();
            FEATURES.store(found, Relaxed);
            found
        }
        found => found,
    }
}

fn ask_cpuid() -> u8 {
    let mut found = KNOWN;
    // SAFETY: every x86-64 CPU has the instruction; each leaf is read only if it exists.
    #[allow(unused_unsafe, reason = "safe in newer releases of Rust")]
    unsafe {
        if __cpuid(0).eax >= 7 && __cpuid_count(7, 0).ecx & 1 << 25 != 0 {
            found |= CLDEMOTE;
        }
        if __cpuid(0x8000_0000).eax >= 0x8000_0008 && __cpuid(0x8000_0008).ebx & 1 != 0 {
            found |= CLZERO;
        }
    }
    found
}
