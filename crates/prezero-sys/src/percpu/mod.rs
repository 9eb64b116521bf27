//! What a thread may do to memory of its CPU without an atomic operation.
//!
//! | module | holds |
//! |---|---|
//! | [`rseq`] | restartable sequences, and the membarrier that revokes them |
//! | [`hand`] | a word for each CPU, taken and put in restartable sequences |

pub mod hand;
pub mod rseq;
