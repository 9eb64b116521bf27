//! A pool of memory slots that are zero again when they are taken.
//!
//! ```
//! use prezero_pool::Pool;
//!
//! let pool = Pool::new(4, 1 << 20, 0)?;
//! let mut slot = pool.take().ok_or("all four are out")?;
//! assert_eq!(slot.bytes()[70_000], 0);
//! slot.bytes_mut(0..100)[7] = 1; // the pool notes: of these bytes alone any was written
//! drop(slot); // back in the pool, dirty
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! A [`Pool`] has slots of one size, each at an address of its own that stays, with guard pages around it if the program
//! asks for them. [`Pool::take`] hands out a slot that is zero. Dropped, a slot goes back as it is; [`Pool::give`] says what
//! was written. A thread of the idle class, *scrubd*, clears what was written while a CPU idles.
//!
//! | word | meaning |
//! |---|---|
//! | zero slot | every byte reads as zero, and what the last owners wrote is resident |
//! | dirty slot | given back, not cleared yet |
//! | fresh slot | every byte reads as zero, and the kernel has all of its memory |
//! | touched pages | those that may be other than zero: noted by [`Slot::bytes_mut`], told, or found |
//! | found | resident, says the kernel: on slots of one kind of work the same pages are written again and again |
//!
//! # What a call costs
//!
//! `take` and `give` call the kernel in no steady state. They do in three cases: `give` after a pause of the whole program
//! wakes scrubd; `take` with no zero slot clears a dirty one itself, and asks the kernel which pages to clear if nothing
//! told it; the first touch of a fresh slot faults.
//!
//! # What may race with what
//!
//! Any thread may take and give at any time. There is no lock: a slot that is in the pool is one bit, and one atomic
//! operation takes it. A slot that scrubd works on is out of the pool; the pool has one slot more than was asked for, so
//! each owner finds one while scrubd works. A child of a fork has the pool and no scrubd: its `take` clears dirty slots.
//!
//! # Layers
//!
//! Layers: bits, memory, slots, scrubd, pool
#![warn(missing_debug_implementations)]

mod bits;
mod memory;
mod pool;
mod scrubd;
mod slots;

pub use pool::{Pool, Slot};
pub use slots::PoolStats;
