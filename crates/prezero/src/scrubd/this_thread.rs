//! The thread that scrubd really runs on: its CPU time, and how it goes where zeroes are wanted.

use std::path::Path;

use prezero_host::{Topology, pressure};
use prezero_sys::cpu;
use prezero_sys::thread::{self, CpuMask};

use crate::clear::clearing::ClearedOn;
use crate::config::ablation::{Ablation, Mechanism};
use crate::scrubd::scrub::Thread;

/// A move to a CPU that took longer waited behind another thread.
/// Moved by: `bench grid --sizes 64K,256K,1M`.
const BUSY_CPU_NS: u64 = 500_000;
/// The time for which scrubd leaves a busy CPU alone, ns. It doubles each time in a row, up to that number of
/// doublings.
/// Moved by: `bench grid --sizes 64K,256K,1M`.
const AVOID_NS: u64 = 2_000_000;
const AVOID_DOUBLINGS: u32 = 7;

/// The calling thread, for scrubd.
pub(crate) struct ThisThread {
    /// Until when each CPU is not tried, and how often in a row it was found busy.
    shunned: Box<[(u64, u32)]>,
    /// CPUs that were online at first, if that is known: a guest may have room for hundreds.
    online: Option<usize>,
    /// Whether it may open files.
    own_files: bool,
    /// Whether it goes where zeroes are wanted.
    follows: bool,
}

impl ThisThread {
    pub(crate) fn new(cpus: usize, own_files: bool, without: Ablation) -> ThisThread {
        let follows = without.has(Mechanism::PreferredCpu);
        let shunned = vec![(0, 0); cpus].into_boxed_slice();
        let online = Topology::online(Path::new(Topology::ROOT));
        let mut this = ThisThread { shunned, online, own_files, follows };
        this.renew(own_files);
        this
    }

    /// The calling thread takes the place of the one before.
    pub(crate) fn renew(&mut self, own_files: bool) {
        self.own_files = own_files;
        // A thread inherits the mask of the one that happened to start it. A mask that is set is no longer the
        // cpuset's, which may grow.
        let allowed = thread::process_affinity();
        if thread::affinity() != allowed {
            let _ = thread::set_affinity(&allowed);
        }
    }

    /// Whether some CPU idles but for this thread, as far as can be seen.
    fn some_cpu_idles(&self) -> bool {
        self.running().is_none_or(|(running, cpus)| running < cpus)
    }

    /// Whether every CPU has another thread, as far as can be seen: not where the program may use some CPUs
    /// only. A thread of the idle class counts as well, since nothing tells it apart.
    pub(crate) fn is_in_a_crowd(&self) -> bool {
        self.running()
            .is_some_and(|(running, cpus)| running > cpus && thread::affinity().count() == cpus)
    }

    /// Threads that run or wait on the whole machine, this one included, and the number of CPUs.
    fn running(&self) -> Option<(usize, usize)> {
        let online = self.online.filter(|_| self.own_files)?;
        Some((pressure::running(Path::new("/"))?, online))
    }
}

impl Thread for ThisThread {
    /// Pins itself to the CPU and lets go at once: if the CPU is idle scrubd is there
    /// then, and stays until another thread needs it. The mask is the one that the kernel tells: an operator who pins
    /// scrubd, also in this very moment, and a cpuset have their way. If the CPU was busy scrubd has waited behind
    /// another thread, which costs scrubd alone; it leaves that CPU alone for a while. Where all
    /// CPUs are busy it does not try: behind a thread that computes it would wait for long.
    fn go_to(&mut self, cpu: usize) -> ClearedOn {
        if cpu::current() == cpu {
            return ClearedOn::Preferred;
        }
        if !self.follows {
            return ClearedOn::Other;
        }
        let began = thread::monotonic_ns();
        let Some(&(until, times)) = self.shunned.get(cpu) else { return ClearedOn::Other };
        if began < until || !self.some_cpu_idles() {
            return ClearedOn::Other;
        }
        let (allowed, only) = (thread::affinity(), CpuMask::only(cpu));
        if !allowed.contains(cpu) || allowed == only {
            return ClearedOn::Other;
        }
        let moved = thread::set_affinity(&only).is_ok();
        // Another mask than the one just set is not this thread's to change.
        if moved && thread::affinity() == only {
            let _ = thread::set_affinity(&allowed);
        }
        let now = thread::monotonic_ns();
        if moved && now - began < BUSY_CPU_NS && cpu::current() == cpu {
            self.shunned[cpu] = (0, 0);
            return ClearedOn::Preferred;
        }
        self.shunned[cpu] = (now + (AVOID_NS << times.min(AVOID_DOUBLINGS)), times + 1);
        ClearedOn::Other
    }

    fn cpu_ns(&self) -> u64 {
        thread::thread_cpu_ns()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mask_that_was_set_from_outside_stays() {
        let all = thread::affinity();
        let cpus: Vec<usize> = (0..thread::cpu_count()).filter(|&cpu| all.contains(cpu)).collect();
        // Without files of its own it does not look whether a CPU idles.
        let mut this = ThisThread::new(thread::cpu_count(), false, Ablation::default());
        for &cpu in &cpus {
            thread::set_affinity(&CpuMask::only(cpu)).unwrap();
            for &other in &cpus {
                this.go_to(other);
                assert_eq!(thread::affinity(), CpuMask::only(cpu));
            }
        }
        thread::set_affinity(&all).unwrap();
        for &cpu in &cpus {
            this.go_to(cpu);
            assert_eq!(thread::affinity(), all);
        }
    }
}
