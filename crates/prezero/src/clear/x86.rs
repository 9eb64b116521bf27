//! x86-64 engines, each a few instructions.

use std::arch::asm;
use std::ptr::NonNull;

use super::{Cache, ClearEngine};

/// An engine whose loop expects rdi = first byte, rcx = bytes (> 0), rax = 0, and may change
/// those, zmm0 and the flags. Label 8 is free for it.
macro_rules! engine {
    ($engine:ident, $name:literal, $cache:expr, $($line:literal),+ $(,)?) => {
        pub(super) struct $engine;

        // SAFETY: the loop writes zeroes to exactly the range, and ends with a fence where
        // its stores could pass a later one.
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
