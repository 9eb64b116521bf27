//! The few lines at the end of a run: what it gained, what it cost, what to change.

use std::fmt::{self, Write};

use crate::count::counters::Counter;
use crate::observe::report::{bytes, grouped, rendered, share, time};
use crate::observe::snapshot::Snapshot;
use crate::units::{MAX_ORDER, PAGE};

/// CPU seconds of scrubd for one second off the program's path, above which the summary
/// advises against scrubbing. Clearing a block whose lines lie in another core's cache was
/// measured at 3.6 times the inline clear; time beyond that is waste.
const POOR_TRADE: f64 = 4.0;
/// Below this cost, ns of CPU time, no advice is given: starting scrubd and trying out the
/// engines takes a few milliseconds of it.
const NOT_WORTH_A_WORD_NS: u64 = 20_000_000;

impl Snapshot {
    /// What it gained, what it cost, and what to change: at most four lines, each beginning
    /// with `prezero: `.
    pub fn write_summary(&self, out: &mut impl Write) -> fmt::Result {
        use Counter::*;
        let zero = self.get(ZeroRequests) + self.get(OnlyZeroRequests);
        let (plain, refused) = (self.get(PlainRequests), self.get(Refused));
        let (hit, miss, absent) = (self.get(HitBytes), self.get(MissBytes), self.get(AbsentBytes));
        if zero + plain + refused == 0 {
            writeln!(
                out,
                "prezero: nothing was asked of the zone: \
                 no allocation was as large as --threshold and at most {}",
                bytes(MAX_ORDER.bytes() as u64)
            )?;
        } else {
            write!(out, "prezero: {} requests for zeroed memory", grouped(zero))?;
            let served = hit + miss + absent;
            if served > 0 {
                let part = |bytes| 100.0 * share(bytes as f64, served as f64);
                write!(out, ", {}: {:.1} % was zero already, ", bytes(served), part(hit))?;
                write!(out, "{:.1} % cleared on request, ", part(miss))?;
                writeln!(out, "{:.1} % left to the kernel", part(absent))?;
            } else {
                writeln!(out, ", {} for memory as it is", grouped(plain))?;
            }
            self.write_account(out)?;
        }
        match self.get(VerifyFailures) {
            0 => Ok(()),
            failures => writeln!(
                out,
                "prezero: WARNING: {} of {} verified pages were not zero: \
                 use --scrub-start never, and report it",
                grouped(failures),
                grouped(self.get(VerifiedPages))
            ),
        }
    }

    /// The saving with its terms, then the net with the cost and what to change.
    fn write_account(&self, out: &mut impl Write) -> fmt::Result {
        use Counter::*;
        let account = Account::of(self);
        let refused = self.get(Refused);
        if self.get(DaemonWakeups) == 0 && account.cost_ns == 0 {
            out.write_str(
                "prezero: scrubd never ran: it is off, \
                 or no free block was as large as --scrub-start",
            )?;
        } else {
            let net = account.saved_ns.map(|saved| saved - account.cost_ns as f64);
            match account.saved_ns.zip(net) {
                Some((saved, net)) => {
                    write!(out, "prezero: saved about {}: ", time(saved))?;
                    let clear = time(self.gauges.clear_ns_per_page);
                    writeln!(out, "{} hit pages x {clear} to clear", grouped(account.hit_pages))?;
                    let sign = if net < 0.0 { '-' } else { '+' };
                    write!(out, "prezero: net {sign}{} of CPU: ", time(net.abs()))?;
                }
                None => out.write_str(
                    "prezero: saved an unknown time: clears were not measured\n\
                     prezero: ",
                )?,
            }
            let waste = self.get(WasteBytes) + self.get(UnusedZeroBytes);
            write!(out, "scrubd took {}, ", time(account.cost_ns as f64))?;
            write!(out, "scrubbed {}, ", bytes(self.get(ScrubbedBytes)))?;
            write!(out, "wasted {}", bytes(waste))?;
            match account.saved_ns {
                _ if account.cost_ns < NOT_WORTH_A_WORD_NS => {}
                // Then there is nothing to be switched off.
                _ if self.get(ScrubbedBytes) == 0 => {}
                Some(saved) if account.cost_ns as f64 > POOR_TRADE * saved => {
                    out.write_str("; a poor trade: try --scrub-start never")?;
                }
                Some(saved) if account.cost_ns as f64 > saved => {
                    out.write_str("; pays only on CPUs that would idle")?;
                }
                _ => {}
            }
        }
        if refused > 0 {
            write!(out, "; {} requests found no room: raise --limit", grouped(refused))?;
        }
        out.write_char('\n')
    }

    /// [`Snapshot::write_summary`] as a string.
    pub fn summary(&self) -> String {
        rendered(|out| self.write_summary(out))
    }
}

/// Time taken off the program's path, against the same zone without scrubd, and its price.
/// An estimate: it takes every clear to cost what calibration found.
struct Account {
    hit_pages: u64,
    /// `None` if a term was not measured.
    saved_ns: Option<f64>,
    cost_ns: u64,
}

impl Account {
    fn of(snapshot: &Snapshot) -> Account {
        use Counter::*;
        let g = &snapshot.gauges;
        let hit_pages = snapshot.get(HitBytes) / PAGE as u64;
        let saved_ns = match hit_pages {
            0 => Some(0.0),
            pages if g.clear_ns_per_page > 0.0 => Some(pages as f64 * g.clear_ns_per_page),
            _ => None,
        };
        // The thread's total is read now and then; the sum of its parts may be ahead of it.
        let parts = [ScrubCpuNs, LateCpuNs].map(|part| snapshot.get(part)).iter().sum::<u64>();
        Account { hit_pages, saved_ns, cost_ns: parts.max(snapshot.get(DaemonCpuNs)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::count::counters::Counters;
    use crate::observe::snapshot::Gauges;

    const MIB: u64 = 1 << 20;

    fn counted(values: &[(Counter, u64)]) -> Snapshot {
        let cpu = Counters::new();
        values.iter().for_each(|&(counter, n)| cpu.add(counter, n));
        let gauges = Gauges { clear_ns_per_page: 100.0, ..Gauges::default() };
        Snapshot::gather([&cpu], gauges)
    }

    /// The lines of the summary, each checked to begin as it must.
    fn lines(snapshot: &Snapshot) -> Vec<String> {
        let lines: Vec<String> = snapshot.summary().lines().map(String::from).collect();
        assert!(lines.len() <= 4 && lines.iter().all(|l| l.starts_with("prezero: ")), "{lines:?}");
        lines
    }

    #[test]
    fn summary_of_no_activity_is_one_line() {
        let lines = lines(&counted(&[]));

        assert_eq!(lines.len(), 1);
        assert!(lines[0].contains("nothing was asked") && lines[0].contains("--threshold"));
    }

    #[test]
    fn summary_of_a_gain_names_its_calculation() {
        // 256 x 100 ns = 25.6 us.
        let lines = lines(&counted(&[
            (Counter::ZeroRequests, 4_000),
            (Counter::HitBytes, MIB),
            (Counter::MissBytes, MIB),
            (Counter::ScrubbedBytes, MIB),
            (Counter::DaemonWakeups, 1),
            (Counter::DaemonCpuNs, 5_600),
        ]));

        let [asked, saved, net] = lines.try_into().unwrap();
        assert!(asked.contains("4,000 requests") && asked.contains("2.0 MiB: 50.0 % was zero"));
        assert!(saved.contains("saved about 25.6 us: 256 hit pages x 100 ns to clear"), "{saved}");
        assert!(net.contains("net +20.0 us of CPU: scrubd took 5.6 us"), "{net}");
        assert!(net.ends_with("wasted 0 B"), "no advice where all is well: {net}");
    }

    #[test]
    fn summary_of_a_loss_says_what_to_change() {
        let hits = [(Counter::ZeroRequests, 1), (Counter::HitBytes, 1024 * MIB)];
        let costs = |ns, scrubbed| {
            let cost = [(Counter::ScrubCpuNs, ns), (Counter::ScrubbedBytes, scrubbed)];
            [hits[0], hits[1], cost[0], cost[1], (Counter::WasteBytes, 4096)]
        };
        let cost = |ns| costs(ns, MIB);

        let (slight, poor) =
            (lines(&counted(&cost(50_000_000))), lines(&counted(&cost(500_000_000))));

        assert!(slight[2].contains("net -23.8 ms of CPU"), "{slight:?}");
        assert!(slight[2].ends_with("wasted 4.0 KiB; pays only on CPUs that would idle"));
        let small = lines(&counted(&cost(5_000_000)));
        assert!(small[2].ends_with("wasted 4.0 KiB"), "not worth a word: {small:?}");
        assert!(poor[2].ends_with("a poor trade: try --scrub-start never"), "{poor:?}");
        let never = lines(&counted(&costs(500_000_000, 0)));
        assert!(never[2].ends_with("wasted 4.0 KiB"), "there is nothing to switch off: {never:?}");
    }

    #[test]
    fn summary_does_not_invent_what_was_not_measured() {
        let mut snapshot = counted(&[
            (Counter::ZeroRequests, 1),
            (Counter::HitBytes, MIB),
            (Counter::ScrubCpuNs, 2_000),
        ]);
        snapshot.gauges.clear_ns_per_page = 0.0;

        let lines = lines(&snapshot);

        assert!(lines[1].contains("unknown time"), "{lines:?}");
        assert!(lines[2].starts_with("prezero: scrubd took 2.0 us"), "{lines:?}");
    }

    #[test]
    fn summary_without_scrubd_says_so_and_how_to_get_room() {
        let lines = lines(&counted(&[
            (Counter::ZeroRequests, 2),
            (Counter::MissBytes, MIB),
            (Counter::Refused, 1),
        ]));

        assert_eq!(lines.len(), 2);
        assert!(lines[1].contains("scrubd never ran") && lines[1].ends_with("raise --limit"));
    }

    #[test]
    fn summary_of_a_zone_without_requests_says_which_sizes_are_its_own() {
        let lines = lines(&counted(&[]));

        assert_eq!(lines.len(), 1, "{lines:?}");
        assert!(lines[0].ends_with("as large as --threshold and at most 1.0 GiB"), "{lines:?}");
    }

    #[test]
    fn summary_warns_of_a_verification_failure_whatever_else_happened() {
        let failed = [(Counter::VerifyFailures, 3), (Counter::VerifiedPages, 4_096)];

        let (quiet, busy) = (lines(&counted(&failed)), lines(&everything()));

        let warning = "prezero: WARNING: 3 of 4,096 verified pages were not zero";
        assert!(quiet.last().unwrap().starts_with(warning), "{quiet:?}");
        assert!(busy.len() == 4 && busy[3].contains("WARNING"), "{busy:?}");
        let none = counted(&[(Counter::VerifiedPages, 4_096)]).summary();
        assert!(!none.contains("WARNING"), "{none}");
    }

    /// Every counter counts something.
    fn everything() -> Snapshot {
        counted(&Counter::ALL.iter().map(|&c| (c, 1_234_567_890)).collect::<Vec<_>>())
    }
}
