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

/// Adds the counts of another process. Gauges stay, but for the price of a clear, which is weighed by the hits.
pub fn add(to: &mut Snapshot, other: &Snapshot) {
    let price = |of: &Snapshot| of.gauges.clear_ns_per_page;
    let known =
        |of: &Snapshot| if price(of) > 0.0 { of.get(Counter::HitBytes) as f64 } else { 0.0 };
    let all = known(to) + known(other);
    // Without anything to weigh by, either.
    to.gauges.clear_ns_per_page = match all {
        0.0 => price(to).max(price(other)),
        all => (price(to) * known(to) + price(other) * known(other)) / all,
    };
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
    fn a_sum_weighs_the_price_by_the_hits() {
        let of = |hit: u64, plain: u64, clear_ns_per_page: f64| {
            let mut counters = [0; COUNT];
            counters[Counter::HitBytes as usize] = hit;
            counters[Counter::PlainBytes as usize] = plain;
            counters[Counter::PlainAbsentBytes as usize] = plain / 2;
            let prices = Gauges { clear_ns_per_page, ..Gauges::default() };
            Snapshot { counters, gauges: prices }
        };
        let mut sum = of(3_000, 100, 40.0);
        add(&mut sum, &of(1_000, 0, 80.0));
        add(&mut sum, &of(9_000, 0, 0.0));
        assert_eq!(sum.gauges.clear_ns_per_page, 50.0, "what is not known weighs nothing");
        assert_eq!(sum.get(Counter::HitBytes), 13_000);
        assert_eq!((reused_bytes(&sum), requested_bytes(&sum)), (13_050, 13_100));
    }
}
