//! The system calls and thread glue that prezero needs and no safe crate offers.
//!
//! | module | holds |
//! |---|---|
//! | [`guest`] | what a virtual machine knows of its hypervisor |
//! | [`memory`] | a reserved address range |
//! | [`meta`] | lazily backed arrays of records |
//! | [`moves`] | pages of such a range that change their addresses |
//! | [`thread`] | starting scrubd's thread, its scheduling class, CPUs, clocks, futexes |
//! | [`rseq`] | restartable sequences, and the membarrier that revokes them |
//! | [`hand`] | a word for each CPU, taken and put in restartable sequences |
//! | [`panel`] | pages that a process shares with the tools of its owner |
//! | [`shared`] | shared mappings, huge pages for them, nodes, who is at the other end of a socket |
//!
//! Calls go to the kernel through rustix where it has them, which touches neither
//! libc nor `errno`, so that they can be made inside `malloc`. What goes through libc
//! says so; none of that belongs in an allocation path, except [`thread::current_cpu`].

#[cfg(not(target_os = "linux"))]
compile_error!("prezero needs Linux: madvise(MADV_POPULATE_WRITE), futex, membarrier");

pub mod guest;
pub mod hand;
pub mod memory;
pub mod meta;
pub mod moves;
pub mod panel;
pub mod rseq;
pub mod shared;
pub mod thread;
