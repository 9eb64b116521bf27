//! A thread that disturbs no other, and what it needs to know of CPUs and time.
//!
//! | module | holds |
//! |---|---|
//! | `spawn` | a detached `pthread` without signals |
//! | `spawner`, `life` | how a thread is made, as a choice of the program; whether it is gone |
//! | `current` | what the calling thread makes of itself: class, name, descriptors |
//! | `unheard`, `floats` | signals blocked, and the program's floats set aside, for a moment |
//! | `cpus` | which CPU, which there are, which a thread may use |
//! | `clock`, `futex` | time, and waiting for a word |

mod clock;
mod cpus;
mod current;
mod floats;
mod futex;
mod life;
mod spawn;
mod spawner;
mod unheard;

pub use clock::{monotonic_ns, thread_cpu_ns};
pub use cpus::{CpuMask, affinity, cpu_count, current_cpu, process_affinity, set_affinity};
pub use current::{
    SchedClass, become_idle_class, current_id, hurry, name_current, own_descriptors,
};
pub use floats::Floats;
pub use futex::{Waited, futex_wait, futex_wake_one};
pub use life::Life;
pub use spawn::{Entry, spawn_detached};
pub use spawner::{Pthread, Spawner};
pub use unheard::Unheard;
