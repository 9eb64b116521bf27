//! Counts of several processes together, and sums of counters that belong together.

use prezero::{Counter, Snapshot};

/// Bytes handed out that were resident already: fresh memory of the kernel would fault at each page.
pub fn reused_bytes(of: &Snapshot) -> u64 {
    let zeroed = of.get(Counter::HitBytes) + of.get(Counter::MissBytes);
    let plain = of.get(Counter::PlainBytes);
    zeroed + plain.saturating_sub(of.get(Counter::PlainAbsentBytes))
}

/// Bytes handed out.
pub fn requested_bytes(of: &Snapshot) -> u64 {
    let all = [Counter::HitBytes, Counter::MissBytes, Counter::AbsentBytes, Counter::PlainBytes];
    all.map(|counter| of.get(counter)).iter().sum()
}

/// Adds the counts of another process. Gauges stay, but for prices, which are weighed by what they are of.
pub fn add(to: &mut Snapshot, other: &Snapshot) {
    let weighed = |own: (f64, u64), other: (f64, u64)| {
        let known =
            |(price, n): (f64, u64)| if price > 0.0 { (price, n as f64) } else { (0.0, 0.0) };
        let (own, other) = (known(own), known(other));
        let all = own.1 + other.1;
        // Without anything to weigh by, either.
        if all > 0.0 { (own.0 * own.1 + other.0 * other.1) / all } else { own.0.max(other.0) }
    };
    let clears = |of: &Snapshot| (of.gauges.clear_ns_per_page, of.get(Counter::HitBytes));
    let faults = |of: &Snapshot| (of.gauges.fault_ns_per_page, reused_bytes(of));
    let clear = weighed(clears(to), clears(other));
    let fault = weighed(faults(to), faults(other));
    (to.gauges.clear_ns_per_page, to.gauges.fault_ns_per_page) = (clear, fault);
    for (sum, n) in to.counters.iter_mut().zip(other.counters) {
        *sum = sum.wrapping_add(n);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use prezero::Gauges;
    use prezero::internal::COUNT;

    #[test]
    fn a_sum_weighs_prices_by_what_they_are_of() {
        let of = |hit: u64, plain: u64, clear_ns_per_page: f64| {
            let mut counters = [0; COUNT];
            counters[Counter::HitBytes as usize] = hit;
            counters[Counter::PlainBytes as usize] = plain;
            counters[Counter::PlainAbsentBytes as usize] = plain / 2;
            let prices =
                Gauges { clear_ns_per_page, fault_ns_per_page: 500.0, ..Gauges::default() };
            Snapshot { counters, gauges: prices }
        };
        let mut sum = of(3_000, 100, 40.0);
        add(&mut sum, &of(1_000, 0, 80.0));
        add(&mut sum, &of(9_000, 0, 0.0));
        assert_eq!(sum.gauges.clear_ns_per_page, 50.0, "what is not known weighs nothing");
        assert_eq!((sum.get(Counter::HitBytes), sum.gauges.fault_ns_per_page), (13_000, 500.0));
        assert_eq!((reused_bytes(&sum), requested_bytes(&sum)), (13_050, 13_100));
    }
}
