//! The few lines at the end of a run: what the program got, what that cost, and why where it got nothing.
//!
//! All of it is counted, and priced by what was measured on this machine while the program ran. What the program's own
//! allocator would have done is not known here, so what reuse spares is told as the most that it can be: against
//! memory that comes fresh from the kernel. `prezero try` measures the difference itself.

use std::fmt::{self, Write};

use prezero::{Counter, MAX_ORDER, PAGE, Snapshot};

use crate::figures::{bytes, grouped, share, time, write_counted};
use crate::processes::Processes;
use crate::sums::reused_bytes;

/// CPU seconds of scrubd for one second off the program's path, above which the summary
/// doubts scrubbing. Clearing a block whose lines lie in another core's cache was
/// measured at 3.6 times the inline clear; time beyond that is waste.
const POOR_TRADE: f64 = 4.0;
/// Below this cost, ns of CPU time, no advice is given.
const NOT_WORTH_A_WORD_NS: u64 = 20_000_000;
/// A share of zeroed memory that was zero already, below which the summary says why it is not more.
const FEW_HITS: f64 = 0.2;
/// Bytes of zeroed memory in all that are too little to gain by: some ten milliseconds of faults.
const LITTLE: u64 = 32 << 20;

/// What it got, what it cost, and why where it got nothing: at most five lines, and one more for other processes,
/// each beginning with `prezero: `.
pub fn write_summary(
    of: &Snapshot,
    processes: &Processes<'_>,
    out: &mut impl Write,
) -> fmt::Result {
    use Counter::*;
    let zero = of.get(ZeroRequests) + of.get(OnlyZeroRequests);
    let (plain, refused) = (of.get(PlainRequests), of.get(Refused));
    if zero + plain + refused == 0 {
        writeln!(
            out,
            "prezero: no difference: the program asked for no block \
             from --threshold (128 KiB unless set) to {}",
            bytes(MAX_ORDER.bytes() as u64)
        )?;
    } else {
        write_asked(of, zero, out)?;
        write_got(of, out)?;
        write_paid(of, out)?;
    }
    processes.write_line(out)?;
    match of.get(VerifyFailures) {
        0 => Ok(()),
        failures => writeln!(
            out,
            "prezero: WARNING: {} of {} verified pages were not zero: \
             use --scrub-start never, and report it",
            grouped(failures),
            grouped(of.get(VerifiedPages))
        ),
    }
}

/// What was asked for.
fn write_asked(of: &Snapshot, zero: u64, out: &mut impl Write) -> fmt::Result {
    let (hit, miss, absent) = zeroed(of);
    let served = hit + miss + absent;
    let plain = of.get(Counter::PlainBytes);
    if served == 0 {
        let requests = of.get(Counter::PlainRequests);
        out.write_str("prezero: no request for zeroed memory, ")?;
        write_counted(requests, "request", out)?;
        return writeln!(out, " for memory as it is, {}", bytes(plain));
    }
    out.write_str("prezero: ")?;
    write_counted(zero, "request", out)?;
    let part = |bytes| 100.0 * share(bytes as f64, served as f64);
    write!(out, " for zeroed memory, {}: {:.1} % was zero already, ", bytes(served), part(hit))?;
    write!(out, "{:.1} % cleared on request, ", part(miss))?;
    write!(out, "{:.1} % left to the kernel", part(absent))?;
    match plain {
        0 => out.write_char('\n'),
        plain => writeln!(out, "; {} as it is", bytes(plain)),
    }
}

/// Bytes of zeroed memory: zero already, cleared, left to the kernel.
fn zeroed(of: &Snapshot) -> (u64, u64, u64) {
    use Counter::*;
    (of.get(HitBytes), of.get(MissBytes), of.get(AbsentBytes))
}

/// What the program got, priced; why, where that is nothing.
fn write_got(of: &Snapshot, out: &mut impl Write) -> fmt::Result {
    let trade = Trade::of(of);
    let reused = reused_bytes(of);
    let moved = of.get(Counter::MovedBytes);
    out.write_str("prezero: got")?;
    let mut mark = ':';
    let mut next = |out: &mut dyn Write| {
        let written = write!(out, "{mark} ");
        mark = ';';
        written
    };
    if trade.hit_pages > 0 {
        next(out)?;
        match trade.saved_ns {
            Some(saved) => write!(out, "{} of clears spared (", time(saved))?,
            None => out.write_str("clears spared (")?,
        }
        write_counted(trade.hit_pages, "page", out)?;
        if trade.saved_ns.is_some() {
            write!(out, " x {}", time(of.gauges.clear_ns_per_page))?;
        }
        out.write_char(')')?;
    }
    if reused > 0 {
        next(out)?;
        // Not priced: other allocators reuse some of it as well, and a fault may bring a huge page.
        write!(
            out,
            "{} reused (`prezero try` counts the page faults that this spares)",
            bytes(reused)
        )?;
    }
    if moved > 0 {
        next(out)?;
        write!(out, "{} of growing blocks moved and not copied", bytes(moved))?;
    }
    if trade.hit_pages == 0 && reused == 0 && moved == 0 {
        out.write_str(" nothing")?;
    }
    if let Some(why) = why_not_more(of, &trade) {
        write!(out, "; scrubbing did little: {why}")?;
    }
    out.write_char('\n')
}

/// Why little of the zeroed memory was zero already, where that is so.
fn why_not_more(of: &Snapshot, trade: &Trade) -> Option<&'static str> {
    use Counter::*;
    let (hit, miss, absent) = zeroed(of);
    let served = hit + miss + absent;
    let looks = of.get(ScrubdWakeups);
    Some(match served {
        0 => return None,
        served if hit as f64 >= FEW_HITS * served as f64 => return None,
        _ if of.gauges.never_scrubs => "it is off (--scrub-start never)",
        served if served < LITTLE => "the program asks for too little",
        _ if looks == 0 && trade.cost_ns == 0 && of.get(FreeBytes) < LITTLE => {
            "the program freed too little"
        }
        _ if looks == 0 && trade.cost_ns == 0 => "no CPU idled",
        _ if 2 * of.get(BusyLooks) > looks => "no CPU idled",
        served if of.get(FreeBytes) < served / 2 => "the program keeps what it asks for",
        _ => "the program asks again too soon after it frees",
    })
}

/// What that cost, and what to change.
fn write_paid(of: &Snapshot, out: &mut impl Write) -> fmt::Result {
    use Counter::*;
    let trade = Trade::of(of);
    let (scrubbed, refused) = (of.get(ScrubbedBytes), of.get(Refused));
    if of.get(ScrubdWakeups) == 0 && trade.cost_ns == 0 {
        out.write_str("prezero: paid: nothing, since scrubd did not run")?;
    } else {
        let cost = trade.cost_ns;
        write!(out, "prezero: paid: {} of CPU time that idled, by scrubd", time(cost as f64))?;
        if scrubbed == 0 {
            let off = if of.gauges.never_scrubs { "; scrubbing is off" } else { "" };
            write!(out, ", which gave {} back{off}", bytes(of.get(ReleasedBytes)))?;
        } else {
            // What lies zero at the end was never used.
            let waste =
                of.get(WasteBytes) + of.get(UnusedZeroBytes) + of.gauges.resident_zero_bytes;
            write!(out, ", for {} scrubbed", bytes(scrubbed))?;
            write!(out, ", of which {} in vain", bytes(waste.min(scrubbed)))?;
        }
        let poor = trade.saved_ns.is_some_and(|saved| cost as f64 > POOR_TRADE * saved);
        if poor && scrubbed > 0 && cost >= NOT_WORTH_A_WORD_NS {
            out.write_str("; `prezero try` says whether --scrub-start never is better")?;
        }
    }
    if refused > 0 {
        out.write_str("; ")?;
        write_counted(refused, "request", out)?;
        out.write_str(" found no room: raise --limit")?;
    }
    out.write_char('\n')
}

/// Time that clears would have taken on the program's path, and what scrubd took.
/// An estimate: it takes every clear to cost what was measured of some.
struct Trade {
    hit_pages: u64,
    /// `None` if a term was not measured.
    saved_ns: Option<f64>,
    cost_ns: u64,
}

impl Trade {
    fn of(snapshot: &Snapshot) -> Trade {
        use Counter::*;
        let g = &snapshot.gauges;
        let hit_pages = snapshot.get(HitBytes) / PAGE as u64;
        let saved_ns = match hit_pages {
            0 => Some(0.0),
            pages if g.clear_ns_per_page > 0.0 => Some(pages as f64 * g.clear_ns_per_page),
            _ => None,
        };
        // The thread's total is read now and then; a part may be ahead of it.
        let cost_ns = snapshot.get(ScrubCpuNs).max(snapshot.get(ScrubdCpuNs));
        Trade { hit_pages, saved_ns, cost_ns }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figures::rendered;
    use prezero::Gauges;
    use prezero::internal::COUNT;

    const MIB: u64 = 1 << 20;

    fn counted(values: &[(Counter, u64)]) -> Snapshot {
        let mut counters = [0; COUNT];
        values.iter().for_each(|&(counter, n)| counters[counter as usize] = n);
        let prices = Gauges { clear_ns_per_page: 100.0, ..Gauges::default() };
        Snapshot { counters, gauges: prices }
    }

    fn summary(of: &Snapshot) -> String {
        rendered(|out| write_summary(of, &Processes::default(), out))
    }

    fn lines(snapshot: &Snapshot) -> Vec<String> {
        let summary = summary(snapshot);
        let lines: Vec<_> = summary.lines().map(String::from).collect();
        assert!(lines.iter().all(|line| line.starts_with("prezero: ")), "{summary}");
        assert!(summary.ends_with('\n'), "{summary}");
        lines
    }

    #[test]
    fn a_gain_is_told_with_its_calculation_and_its_price() {
        let told = lines(&counted(&[
            (Counter::ZeroRequests, 4_000),
            (Counter::HitBytes, MIB),
            (Counter::MissBytes, MIB),
            (Counter::ScrubbedBytes, MIB),
            (Counter::ScrubdWakeups, 1),
            (Counter::ScrubdCpuNs, 5_600),
        ]));
        let [asked, got, paid] = told.try_into().unwrap();
        assert!(asked.contains("4,000 requests for zeroed memory, 2.0 MiB: 50.0 % was zero"));
        assert_eq!(
            got,
            "prezero: got: 25.6 us of clears spared (256 pages x 100 ns); 2.0 MiB reused \
             (`prezero try` counts the page faults that this spares)"
        );
        assert_eq!(
            paid,
            "prezero: paid: 5.6 us of CPU time that idled, by scrubd, for 1.0 MiB scrubbed, of which 0 B in vain"
        );
    }

    #[test]
    fn reuse_and_moves_are_gains_without_any_zero() {
        let told = lines(&counted(&[
            (Counter::PlainRequests, 1),
            (Counter::PlainBytes, 8 * MIB),
            (Counter::PlainAbsentBytes, 4 * MIB),
            (Counter::MovedBytes, 64 * MIB),
        ]));
        let [asked, got, paid] = told.try_into().unwrap();
        assert_eq!(
            asked,
            "prezero: no request for zeroed memory, 1 request for memory as it is, 8.0 MiB"
        );
        assert_eq!(
            got,
            "prezero: got: 4.0 MiB reused (`prezero try` counts the page faults that this spares); \
             64.0 MiB of growing blocks moved and not copied"
        );
        assert_eq!(paid, "prezero: paid: nothing, since scrubd did not run");
    }

    #[test]
    fn a_poor_trade_leads_to_a_trial_and_no_scrubbing_is_no_scrubbing() {
        let costs = |ns, scrubbed, never| {
            let mut counted = counted(&[
                (Counter::ZeroRequests, 1),
                (Counter::HitBytes, 1024 * MIB),
                (Counter::ScrubCpuNs, ns),
                (Counter::ScrubbedBytes, scrubbed),
                (Counter::WasteBytes, 4096),
                (Counter::ReleasedBytes, 3 * MIB),
            ]);
            counted.gauges.never_scrubs = never;
            lines(&counted).remove(2)
        };
        let poor = costs(500_000_000, MIB, false);
        assert!(poor.ends_with(
            "4.0 KiB in vain; `prezero try` says whether --scrub-start never is better"
        ));
        assert!(costs(50_000_000, MIB, false).ends_with("4.0 KiB in vain"), "a fair one");
        let scrubbed = [(Counter::ZeroRequests, 1), (Counter::ScrubbedBytes, 36 * MIB)];
        let mut unused = counted(&[&scrubbed[..], &[(Counter::ScrubdCpuNs, 9)]].concat());
        unused.gauges.resident_zero_bytes = 36 * MIB;
        let told = lines(&unused).remove(2);
        assert!(told.ends_with("for 36.0 MiB scrubbed, of which 36.0 MiB in vain"), "{told}");
        let never = "prezero: paid: 500.0 ms of CPU time that idled, by scrubd, which gave 3.0 MiB back; scrubbing is off";
        assert_eq!(costs(500_000_000, 0, true), never);
    }

    #[test]
    fn the_summary_does_not_invent_what_was_not_measured() {
        let mut snapshot = counted(&[(Counter::ZeroRequests, 1), (Counter::HitBytes, MIB)]);
        snapshot.gauges.clear_ns_per_page = 0.0;
        let told = lines(&snapshot);
        assert!(told[0].starts_with("prezero: 1 request for zeroed memory"), "{told:?}");
        let got = "prezero: got: clears spared (256 pages); 1.0 MiB reused (`prezero try` counts the page faults \
                   that this spares)";
        assert_eq!(told[1], got);
    }

    #[test]
    fn where_scrubbing_did_little_the_summary_says_why() {
        let why = |values: &[(Counter, u64)], never| {
            let asked = [(Counter::ZeroRequests, 9), (Counter::MissBytes, 64 * MIB)];
            let mut counted = counted(&[&asked[..], values].concat());
            counted.gauges.never_scrubs = never;
            let got = lines(&counted).remove(1);
            got.split_once("; scrubbing did little: ").map(|(_, why)| why.to_string())
        };
        let (freed, ran) = ((Counter::FreeBytes, 64 * MIB), (Counter::ScrubdWakeups, 10));
        assert_eq!(why(&[], true).unwrap(), "it is off (--scrub-start never)");
        assert_eq!(why(&[], false).unwrap(), "the program freed too little");
        assert_eq!(why(&[freed], false).unwrap(), "no CPU idled");
        assert_eq!(why(&[freed, ran, (Counter::BusyLooks, 9)], false).unwrap(), "no CPU idled");
        assert_eq!(why(&[ran], false).unwrap(), "the program keeps what it asks for");
        let soon = "the program asks again too soon after it frees";
        assert_eq!(why(&[freed, ran], false).unwrap(), soon);
        assert_eq!(why(&[freed, ran, (Counter::HitBytes, 64 * MIB)], false), None);
        let little = counted(&[(Counter::ZeroRequests, 1), (Counter::MissBytes, MIB)]);
        assert!(lines(&little)[1].ends_with("the program asks for too little"));
    }

    #[test]
    fn a_zone_without_room_says_how_to_get_it() {
        let told = lines(&counted(&[(Counter::ZeroRequests, 2), (Counter::Refused, 1)]));
        assert!(told[1].ends_with("got nothing"), "{told:?}");
        assert!(told[2].ends_with("; 1 request found no room: raise --limit"), "{told:?}");
    }

    #[test]
    fn a_zone_without_requests_says_which_sizes_are_its_own() {
        let lines = lines(&counted(&[]));

        assert_eq!(lines.len(), 1, "{lines:?}");
        assert!(
            lines[0].ends_with("no block from --threshold (128 KiB unless set) to 1.0 GiB"),
            "{lines:?}"
        );
    }

    #[test]
    fn a_verification_failure_is_told_whatever_else_happened() {
        let failed = [(Counter::VerifyFailures, 3), (Counter::VerifiedPages, 4_096)];

        let (quiet, busy) = (lines(&counted(&failed)), lines(&everything()));

        let warning = "prezero: WARNING: 3 of 4,096 verified pages were not zero";
        assert!(quiet.last().unwrap().starts_with(warning), "{quiet:?}");
        assert!(busy.len() == 4 && busy[3].contains("WARNING"), "{busy:?}");
        let none = summary(&counted(&[(Counter::VerifiedPages, 4_096)]));
        assert!(!none.contains("WARNING"), "{none}");
    }

    /// Every counter counts something.
    fn everything() -> Snapshot {
        counted(&Counter::ALL.iter().map(|&c| (c, 1_234_567_890)).collect::<Vec<_>>())
    }
}
