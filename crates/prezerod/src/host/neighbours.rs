//! Whether others work on this node: what a filler does to the caches and the memory that they
//! share with it, they feel even where it leaves them all their CPUs.
//!
//! Told the time, its own CPU time and the text of `/proc/stat`; reads nothing itself.

/// The time that a look covers, ns: some ticks of the kernel's accounting. A filler goes on at full pace for
/// as long after others begin to work.
/// Moved by: `bench fill`.
pub const SAMPLE_NS: u64 = 100_000_000;
/// A look that took so much longer tells of a filler that was stopped or starved, ns.
const STALE_NS: u64 = 3 * SAMPLE_NS;
/// Others are busy from one CPU in this many on. A program that works takes a whole CPU; a host's
/// own tasks take less than half.
/// Moved by: `bench fill`.
const SHARE: u64 = 2;

/// See the module.
#[derive(Debug)]
pub struct Neighbours {
    /// Of the node; empty: all there are.
    cpus: Vec<u16>,
    tick_ns: u64,
    last: Option<CpuTimes>,
    busy: bool,
    /// How many CPUs the last look found.
    found: u64,
}

/// CPU time so far, ns: of all on the node, and of the filler.
#[derive(Clone, Copy, Debug)]
struct CpuTimes {
    at: u64,
    all: u64,
    own: u64,
}

impl Neighbours {
    /// No neighbour, as far as is known, on these CPUs (none: on all); the kernel counts in ticks.
    pub fn new(cpus: Vec<u16>, tick_ns: u64) -> Neighbours {
        Neighbours { cpus, tick_ns, last: None, busy: false, found: 1 }
    }

    /// Whether they kept more than half a CPU busy during the last look.
    pub fn are_busy(&self) -> bool {
        self.busy
    }

    /// The CPUs they and the filler share, at least one.
    pub fn cpus(&self) -> u64 {
        self.found
    }

    /// Whether it is time to look.
    pub fn is_due(&self, now_ns: u64) -> bool {
        self.last.is_none_or(|last| now_ns.saturating_sub(last.at) >= SAMPLE_NS)
    }

    /// Looks: `own_ns` is the CPU time of the caller, `stat` what `/proc/stat` says.
    pub fn look(&mut self, now_ns: u64, own_ns: u64, stat: &str) {
        let (found, all) = self.busy_ns(stat);
        self.found = found.max(1);
        let now = CpuTimes { at: now_ns, all, own: own_ns };
        if let Some(last) = self.last.replace(now) {
            let window = now.at.saturating_sub(last.at);
            if window <= STALE_NS {
                let own = now.own.saturating_sub(last.own);
                let others = now.all.saturating_sub(last.all).saturating_sub(own);
                self.busy = SHARE * others > window;
            }
        }
    }

    /// How many CPUs the node has, and for how long they were not idle, ns. What a host gave to
    /// other guests is not counted here.
    fn busy_ns(&self, stat: &str) -> (u64, u64) {
        let ticks = stat.lines().filter_map(|line| {
            let mut fields = line.strip_prefix("cpu")?.split_ascii_whitespace();
            let cpu = fields.next()?.parse::<u16>().ok()?;
            let counts = self.cpus.is_empty() || self.cpus.contains(&cpu);
            // user nice system idle iowait irq softirq steal
            let [user, nice, system, _, _, irq, softirq] = std::array::from_fn(|_| {
                fields.next().and_then(|field| field.parse::<u64>().ok()).unwrap_or(0)
            });
            counts.then_some(user + nice + system + irq + softirq)
        });
        // The line of all CPUs has no number behind its name, and is left out.
        let (found, sum) = ticks.fold((0, 0), |(found, sum), ticks| (found + 1, sum + ticks));
        (found, u64::saturating_mul(sum, self.tick_ns))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TICK: u64 = 10_000_000;

    /// CPUs that were `busy` for these ticks, in fields that count and beside those that do not.
    fn stat(busy: &[u64]) -> String {
        let cpu = |(cpu, busy): (usize, &u64)| {
            let (user, system) = (busy / 2, busy - busy / 2);
            format!("cpu{cpu} {user} 0 {system} 77 5 0 0 9 {user} 0\n")
        };
        let sum = busy.iter().sum::<u64>();
        let all: String = busy.iter().enumerate().map(cpu).collect();
        format!("cpu  {sum} 0 0 77 5 0 0 9 0 0\n{all}intr 12345 6 7\nctxt 99\n")
    }

    /// Looks once each 100 ms: ticks of CPU 0, of which the filler's, and of CPU 1.
    fn verdicts(cpus: &[u16], looks: &[(u64, u64, u64)]) -> Vec<bool> {
        let mut neighbours = Neighbours::new(cpus.into(), TICK);
        let (mut now, mut sums) = (5, (0, 0, 0));
        let verdict = |&(first, own, second): &(u64, u64, u64)| {
            assert!(neighbours.is_due(now));
            sums = (sums.0 + first, sums.1 + own, sums.2 + second);
            neighbours.look(now, sums.1 * TICK, &stat(&[sums.0, sums.2]));
            assert!(!neighbours.is_due(now + SAMPLE_NS - 1));
            now += SAMPLE_NS;
            neighbours.are_busy()
        };
        looks.iter().map(verdict).collect()
    }

    #[test]
    fn a_filler_alone_has_no_neighbours_however_busy_it_is() {
        assert_eq!(verdicts(&[], &[(10, 10, 0); 4]), [false; 4]);
    }

    #[test]
    fn more_than_half_a_cpu_of_others_counts_and_is_forgotten_with_them() {
        let looks = [(9, 9, 0), (10, 10, 5), (9, 9, 6), (10, 4, 0), (10, 10, 0)];
        assert_eq!(verdicts(&[], &looks), [false, false, true, true, false]);
    }

    #[test]
    fn another_nodes_cpus_are_no_neighbours() {
        assert_eq!(verdicts(&[0], &[(10, 10, 10); 3]), [false; 3]);
        assert_eq!(verdicts(&[1], &[(10, 0, 10); 3]), [false, true, true]);
        let mut neighbours = Neighbours::new(vec![1, 2], TICK);
        assert_eq!(neighbours.cpus(), 1, "before the first look");
        neighbours.look(0, 0, &stat(&[1; 4]));
        assert_eq!(neighbours.cpus(), 2);
    }

    #[test]
    fn the_first_look_and_one_that_took_too_long_change_nothing() {
        let mut neighbours = Neighbours::new(vec![], TICK);
        neighbours.look(0, 0, &stat(&[1_000_000, 0]));
        assert!(!neighbours.are_busy());
        neighbours.look(SAMPLE_NS, 0, &stat(&[1_000_010, 0]));
        assert!(neighbours.are_busy());
        // Stopped for a second, in which no process worked; then a sample that counts.
        neighbours.look(11 * SAMPLE_NS, 0, &stat(&[1_000_010, 0]));
        assert!(neighbours.are_busy());
        neighbours.look(12 * SAMPLE_NS, 0, &stat(&[1_000_010, 0]));
        assert!(!neighbours.are_busy());
    }

    #[test]
    fn a_host_that_tells_nothing_has_no_neighbours() {
        let mut neighbours = Neighbours::new(vec![], TICK);
        for (nth, text) in ["", "cpu0\n", "cpu0 x y\n", "nonsense"].into_iter().enumerate() {
            neighbours.look(nth as u64 * SAMPLE_NS, 0, text);
            assert!(!neighbours.are_busy(), "{text:?}");
        }
    }
}
