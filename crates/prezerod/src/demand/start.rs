//! A client starts undisturbed, with a lease or without: the making of the next one is put off.
//!
//! Told the time; reads no clock.

/// The making of the next lease is put off by this time, ns, so that the client of the last one can
/// start. That holds only after some time without a lease, lest a stream of leases stops the stock.
/// Moved by: `bench start`.
const START_NS: u64 = 200_000_000;
const ALONE_NS: u64 = 1_000_000_000;

/// See the module.
#[derive(Clone, Copy, Default, Debug)]
pub struct Start {
    granted_at: Option<u64>,
    until: u64,
}

impl Start {
    /// A client got a lease, or goes without.
    pub fn begins(&mut self, now_ns: u64) {
        if self.granted_at.is_none_or(|at| now_ns.saturating_sub(at) > ALONE_NS) {
            self.until = now_ns + START_NS;
        }
        self.granted_at = Some(now_ns);
    }

    /// Nothing is made for stock before this, ns.
    pub fn until(&self) -> u64 {
        self.until
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_client_is_left_to_start_and_a_stream_of_them_holds_nothing_up() {
        let mut start = Start::default();
        assert_eq!(start.until(), 0);
        start.begins(5);
        assert_eq!(start.until(), 5 + START_NS);
        start.begins(5 + ALONE_NS);
        assert_eq!(start.until(), 5 + START_NS, "beside others");
        start.begins(6 + 2 * ALONE_NS);
        assert_eq!(start.until(), 6 + 2 * ALONE_NS + START_NS);
    }
}
