//! The system calls and thread glue that prezero needs and no safe crate offers.
//!
//! | folder | holds |
//! |---|---|
//! | [`sandbox`] | filters of system calls: what must not be called, and what may be |
//! | [`thread`] | starting scrubd's thread, its scheduling class, CPUs, clocks, futexes |
//! | [`memory`] | address ranges, and what is kept, moved and shared in them |
//! | [`mapping`] | mappings, for libraries that stand in front of libc |
//! | [`cpu`] | the CPU at hand |
//! | [`objects`] | what the dynamic linker has loaded |
//! | [`process`] | what a process was given: environment, limits, memory |
//! | [`say`], [`escape`] | lines for people, which cannot fail; what others wrote, for a terminal |
//! | [`stderr`], [`quiet`] | standard error while it is what it was; writes that raise no signal |
//! | [`birth`] | which process this is |
//! | [`file`] | what small files of the kernel say |
//! | [`raw`] | a system call without libc |
//! | [`guest`], [`peer`] | what a virtual machine knows of its hypervisor; the process at the other end of a socket |
//! | [`marks`] | inodes that are known and not held |
//!
//! Layers: errno, raw, objects, file, process, sandbox, stderr, birth, quiet, escape, say, thread, memory, mapping, cpu, guest, peer, marks
//!
//! Calls go to the kernel through rustix where it has them, which touches neither
//! libc nor `errno`, so that they can be made inside `malloc`. What goes through libc
//! says so; no such call belongs in an allocation path, except [`thread::current_cpu`].

#[cfg(not(target_os = "linux"))]
compile_error!("prezero needs Linux: madvise(MADV_POPULATE_WRITE), futex");

pub mod birth;
pub mod cpu;
mod errno;
pub mod escape;
pub mod file;
pub mod guest;
pub mod mapping;
pub mod marks;
pub mod memory;
pub mod objects;
pub mod peer;
pub mod process;
pub mod quiet;
pub mod raw;
pub mod sandbox;
pub mod say;
pub mod stderr;
pub mod thread;

pub use memory::{hooks, meta, moves, panel, shared};
