//! What a thread knows of its CPU, and what it may do there that the kernel restarts.
//!
//! | module | holds |
//! |---|---|
//! | [`rseq`] | restartable sequences, and the membarrier that revokes them |
//! | [`cpu`] | the number of the CPU that a thread runs on |

pub mod cpu;
pub mod rseq;
