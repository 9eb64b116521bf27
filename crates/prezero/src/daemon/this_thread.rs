//! The thread that scrubd really runs on: its CPU time, and how it goes where zeroes are wanted.

use prezero_sys::rseq::{self, Rseq};
use prezero_sys::thread::{self, CpuMask};

use crate::choice::Place;
use crate::scrub::Host;

/// A move to a CPU that took longer was a wait behind somebody, ns.
const BUSY_HOME_NS: u64 = 500_000;
/// How long a CPU that was busy is not tried again, ns; doubled each time in a row.
const SHUN_NS: u64 = 2_000_000;
const SHUN_DOUBLINGS: u32 = 7;

/// The calling thread, for scrubd.
pub(super) struct ThisThread {
    rseq: Option<Rseq>,
    /// Where the program may run.
    pub(super) allowed: CpuMask,
    /// Until when each CPU is not tried, and how often in a row it was found busy.
    shunned: Box<[(u64, u32)]>,
}

impl ThisThread {
    pub(super) fn new(cpus: usize) -> ThisThread {
        let shunned = vec![(0, 0); cpus].into_boxed_slice();
        let mut this = ThisThread { rseq: None, allowed: thread::process_affinity(), shunned };
        this.renew();
        this
    }

    /// The calling thread takes the place of the one before.
    pub(super) fn renew(&mut self) {
        // Without the membarrier nobody could revoke a piece: then claim no such thing.
        let revocable = rseq::membarrier_register();
        self.rseq = if revocable { Rseq::of_current_thread() } else { None };
        // A thread inherits the mask of the one that happened to start it.
        self.allowed = thread::process_affinity();
        let _ = thread::set_affinity(&self.allowed);
    }

    /// The calling thread ends, and with it what the kernel has of it.
    pub(super) fn leave(&mut self) {
        self.rseq = None;
    }
}

impl Host for ThisThread {
    fn rseq(&self) -> Option<&Rseq> {
        self.rseq.as_ref()
    }

    /// Pins itself to the CPU and lets go at once: if the CPU is idle scrubd is there
    /// then, and stays until somebody needs it. If it was busy scrubd has waited behind
    /// somebody, which costs nobody but scrubd; it leaves that CPU alone for a while.
    fn go_home(&mut self, cpu: usize) -> Place {
        if thread::current_cpu() == cpu {
            return Place::Home;
        }
        let began = thread::monotonic_ns();
        let Some(&(until, times)) = self.shunned.get(cpu) else { return Place::Elsewhere };
        if began < until || !self.allowed.contains(cpu) {
            return Place::Elsewhere;
        }
        let moved = thread::set_affinity(&CpuMask::only(cpu)).is_ok();
        let _ = thread::set_affinity(&self.allowed);
        let now = thread::monotonic_ns();
        if moved && now - began < BUSY_HOME_NS && thread::current_cpu() == cpu {
            self.shunned[cpu] = (0, 0);
            return Place::Home;
        }
        self.shunned[cpu] = (now + (SHUN_NS << times.min(SHUN_DOUBLINGS)), times + 1);
        Place::Elsewhere
    }

    fn cpu_ns(&self) -> u64 {
        thread::thread_cpu_ns()
    }
}
