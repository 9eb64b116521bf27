//! What the governor is shown of a zone: sums over its CPUs.

use crate::count::counters::Counter;
use crate::cpu::demand::BANDS;
use crate::mem::backing::Backing;
use crate::policy::governor::Seen;
use crate::units::PAGE;
use crate::zone::Zone;

/// The sums that the governor looks at.
pub(crate) fn seen<B: Backing>(zone: &Zone<B>) -> Seen {
    let mut demand = [0; BANDS];
    let mut listed = 0;
    let (mut plain, mut missed, mut freed, mut returned) = (0, 0, 0, 0);
    let (mut requests, mut absent, mut hit, mut wasted) = (0, 0, 0, 0);
    for cpu in zone.cpus.iter().filter(|cpu| cpu.was_used()) {
        cpu.demand.add_to(&mut demand);
        returned += cpu.demand.returned();
        listed += cpu.blocks().map(|(class, _)| u64::from(class.pages())).sum::<u64>();
        let sum = |c| cpu.counters.get(c);
        requests += cpu.counters.get(Counter::ZeroRequests);
        requests += cpu.counters.get(Counter::OnlyZeroRequests);
        plain += sum(Counter::PlainBytes);
        missed += sum(Counter::MissBytes);
        freed += sum(Counter::FreeBytes);
        absent += cpu.counters.get(Counter::AbsentBytes);
        hit += cpu.counters.get(Counter::HitBytes);
        wasted += cpu.counters.get(Counter::WasteBytes);
    }
    let own = |c| zone.daemon.counters.get(c);
    let pages = |bytes: u64| bytes / PAGE as u64;
    Seen {
        demand,
        requests,
        live: pages((plain + missed + hit + absent).saturating_sub(freed)),
        free: u64::from(zone.pool.stock.resident()) + listed,
        freed: pages(freed),
        returned,
        absent: pages(absent),
        hit: pages(hit),
        wasted: pages(wasted),
        scrubbed: pages(own(Counter::ScrubbedBytes)),
        prefaulted: pages(own(Counter::PrefaultedBytes)),
        unused: pages(zone.pool.counters.get(Counter::UnusedZeroBytes)),
        spent_ns: own(Counter::ScrubCpuNs) + own(Counter::PrefaultCpuNs),
        look_ns: own(Counter::LookCpuNs),
        clear_ns: zone.clear_ns_per_page(),
        fault_ns: zone.fault_ns_per_page(),
    }
}
