//! The floating-point environment of the calling thread, set aside for a moment.
//!
//! A program may have the CPU raise a signal where a float divides by zero, overflows or is rounded
//! (`feenableexcept`, gfortran's `-ffpe-trap`), and may round as it likes. A thread inherits that from its maker.

use std::arch::asm;

/// As a thread begins: nothing raises a signal, and all is rounded to the nearest. Undone on drop, flags included.
#[derive(Debug)]
pub struct Floats(u64);

impl Floats {
    /// See the type.
    pub fn defaults() -> Floats {
        Floats(exchange(DEFAULTS))
    }
}

impl Drop for Floats {
    fn drop(&mut self) {
        exchange(self.0);
    }
}

/// MXCSR: all exceptions masked. Of arm64 FPCR above FPSR.
const DEFAULTS: u64 = if cfg!(target_arch = "x86_64") { 0x1f80 } else { 0 };

#[cfg(target_arch = "x86_64")]
fn exchange(new: u64) -> u64 {
    let mut before = 0u64;
    let (from, to) = (&raw const new, &raw mut before);
    // SAFETY: four bytes are stored, and loaded: a value that was read before, or the ABI's own.
    unsafe { asm!("stmxcsr [{to}]", "ldmxcsr [{from}]", to = in(reg) to, from = in(reg) from) };
    before
}

#[cfg(target_arch = "aarch64")]
fn exchange(new: u64) -> u64 {
    let (control, status): (u64, u64);
    // SAFETY: the two registers may have any value, and change no memory.
    unsafe { asm!("mrs {}, fpcr", "mrs {}, fpsr", out(reg) control, out(reg) status) };
    // SAFETY: the same.
    unsafe { asm!("msr fpcr, {}", "msr fpsr, {}", in(reg) new >> 32, in(reg) new & 0xffff_ffff) };
    control << 32 | status
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::hint::black_box;

    /// Flags, traps and rounding stay the program's, whatever floats are used meanwhile.
    #[test]
    fn floats_of_ours_are_not_the_programs() {
        let own = exchange(DEFAULTS);
        let zero = black_box(0.0f64);
        let strange = if cfg!(target_arch = "x86_64") { 0x1f80 | 0x6000 } else { 3 << 54 };
        exchange(strange);
        {
            let _floats = Floats::defaults();
            assert_eq!(black_box(1.0f64) / black_box(3.0), 0.333_333_333_333_333_3);
            assert!((black_box(1.0) / zero).is_infinite());
        }
        assert_eq!(exchange(own), strange);
    }
}
