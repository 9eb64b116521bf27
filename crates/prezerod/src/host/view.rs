//! What the broker sees of its host: pools, memory, cgroups, nodes.
//!
//! Contract: read from the kernel's files, each once in a moment; told the time; writes nothing.

use super::Host;
use super::cgroup::Cgroups;

/// See the module.
#[derive(Debug)]
pub struct View {
    /// Pools and memory.
    pub host: Host,
    /// What is charged, and what limits it.
    pub cgroups: Cgroups,
    /// NUMA nodes that were online at the start.
    pub nodes: Vec<u16>,
}

impl View {
    /// Of this host.
    pub fn new(host: Host) -> View {
        View { nodes: host.nodes(), cgroups: Cgroups::new(host.as_ref()), host }
    }

    /// It is this time: what was read a moment ago holds.
    pub fn at(&self, now: u64) {
        self.host.at(now);
        self.cgroups.at(now);
    }

    /// A filler took memory, or a job is about to begin: what was read does not hold any more.
    pub fn changed(&self) {
        self.host.forget();
        self.cgroups.forget();
    }
}
