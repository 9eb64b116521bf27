//! Debts: memory of leases that were given back, and that the kernel has not got back.
//!
//! A page that a pipe (`vmsplice`), `io_uring` or RDMA pins outlives its inode. The lease ends with
//! the inode; the page stays in use. Such pages are *unaccounted*: charged, on no file, mapped nowhere.
//! The kernel tells how many there are, and not whose they were.
//!
//! So a rise of that number is a *claim*, which stands until the number falls. Each tenant that may have
//! caused the rise is charged for it, up to what it gave back: one suspect for certain, several each.
//! The tenant that pins is always a suspect, so it never holds more than its quota. It costs another
//! suspect no more than it holds itself.
//!
//! Told the time and the numbers; reads no clock and no file.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Memory less than a huge page is nothing: counters of the kernel lag by that much.
/// Moved by: `crates/prezerod/tests/pins.rs`.
const SLACK: u64 = 2 << 20;
/// The kernel may count what happened only after this time, ns: a lease that ended stays a suspect.
/// Fixed: two seconds, `FLUSH_TIME` of `mm/memcontrol.c`.
pub const LAG_NS: u64 = 2_500_000_000;
/// A debt that is younger than this may be I/O that ends by itself, ns. It counts, and refuses nothing.
/// Moved by: `crates/prezerod/tests/pins.rs`.
const GRACE_NS: u64 = 1_000_000_000;
/// Claims that are told apart; older ones become one.
const MOST_CLAIMS: usize = 64;

/// Pages that are counted together.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Pages {
    /// Ordinary memory of the broker's cgroup.
    Memory,
    /// The pool of such pages.
    Pool(crate::protocol::Page),
}

/// What the kernel counts unaccounted, bytes: at least, and at most where inodes are being made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Unaccounted {
    /// So much for certain.
    pub least: u64,
    /// No more than this.
    pub most: u64,
}

/// A rise that tenants may have caused.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Claim {
    since: u64,
    bytes: u64,
    /// What each suspect gave back; one with leases that live gives back later.
    suspects: BTreeMap<String, u64>,
}

impl Claim {
    fn of(&self, tenant: &str) -> u64 {
        self.suspects.get(tenant).map_or(0, |given| self.bytes.min(*given))
    }
}

/// Leases that a tenant gave back at one time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Ended {
    at: u64,
    tenant: String,
    bytes: u64,
    /// A number has come since.
    judged: bool,
}

/// One number of the kernel, and what explains it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Book {
    /// Unaccounted for other reasons: before the broker came, or in its cgroup by others. `None`: never
    /// looked.
    foreign: Option<u64>,
    ended: Vec<Ended>,
    claims: Vec<Claim>,
}

/// Debts as they are saved, for the same boot of the host: pages of this size (0: ordinary memory), and what is astray.
pub type Saved = Vec<(u64, Book)>;

/// See the module.
#[derive(Clone, Debug, Default)]
pub struct Debts {
    books: BTreeMap<Pages, Book>,
    /// When a number came last, ns.
    looked: u64,
    /// When the numbers were read last, ns; 0: never.
    pub reconciled_at: u64,
    /// Whether a lease ended since.
    pub is_behind: bool,
}

impl Debts {
    /// What is to be saved.
    pub fn saved(&self) -> Saved {
        let bytes = |pages: &Pages| match pages {
            Pages::Memory => 0,
            Pages::Pool(page) => page.bytes(),
        };
        self.books.iter().map(|(pages, book)| (bytes(pages), book.clone())).collect()
    }

    /// What was saved on this boot comes back.
    pub fn restore(&mut self, saved: &Saved) {
        for (bytes, book) in saved {
            let pages = match bytes {
                0 => Some(Pages::Memory),
                bytes => crate::protocol::Page::of(*bytes).map(Pages::Pool),
            };
            let mut book = book.clone();
            book.claims.truncate(MOST_CLAIMS);
            self.books.extend(pages.map(|pages| (pages, book)));
        }
    }

    /// A lease ended.
    pub fn ended(&mut self, now: u64, pages: Pages, tenant: &str, bytes: u64) {
        let book = self.books.entry(pages).or_default();
        for claim in &mut book.claims {
            if let Some(given) = claim.suspects.get_mut(tenant) {
                *given = given.saturating_add(bytes);
            }
        }
        match book.ended.iter_mut().find(|ended| ended.at == now && ended.tenant == tenant) {
            Some(ended) => ended.bytes = ended.bytes.saturating_add(bytes),
            None => {
                let tenant = tenant.to_owned();
                book.ended.push(Ended { at: now, tenant, bytes, judged: false });
            }
        }
    }

    /// The kernel counts so much unaccounted, while these tenants have leases of such pages.
    pub fn measured<'a>(
        &mut self,
        now: u64,
        pages: Pages,
        unaccounted: Unaccounted,
        holders: impl Iterator<Item = &'a str>,
    ) {
        self.looked = now;
        let book = self.books.entry(pages).or_default();
        let foreign = *book.foreign.get_or_insert(unaccounted.most);
        let claimed: u64 = book.claims.iter().map(|claim| claim.bytes).sum();
        let known = foreign + claimed;
        // What was judged stays a suspect for as long as the kernel's number may lag.
        book.ended.retain(|ended| !ended.judged || now.saturating_sub(ended.at) < LAG_NS);
        if unaccounted.least >= known.saturating_add(SLACK) {
            book.rise(now, pages, unaccounted.least - known, holders);
        } else if unaccounted.most < known {
            book.fall(known - unaccounted.most);
        }
        if pages != Pages::Memory && unaccounted.least == unaccounted.most {
            // A pool's number is of this moment, unless inodes are being made.
            book.ended.clear();
        }
        book.ended.iter_mut().for_each(|ended| ended.judged = pages == Pages::Memory);
    }

    /// Bytes that count against a tenant's quota.
    pub fn of(&self, tenant: &str) -> u64 {
        self.claims().map(|claim| claim.of(tenant)).sum()
    }

    /// Bytes that this tenant owes, and no other may, for longer than a moment.
    pub fn owed_alone(&self, tenant: &str) -> u64 {
        let alone = |claim: &&Claim| {
            claim.suspects.len() == 1 && self.looked.saturating_sub(claim.since) >= GRACE_NS
        };
        self.claims().filter(alone).map(|claim| claim.of(tenant)).sum()
    }

    /// Bytes that any tenant owes.
    pub fn all(&self) -> u64 {
        self.claims().map(|claim| claim.bytes).sum()
    }

    /// Bytes by tenant.
    pub fn tenants(&self) -> BTreeMap<&str, u64> {
        let names = self.claims().flat_map(|claim| claim.suspects.keys());
        names.map(|name| (name.as_str(), self.of(name))).filter(|(_, bytes)| *bytes > 0).collect()
    }

    fn claims(&self) -> impl Iterator<Item = &Claim> {
        self.books.values().flat_map(|book| &book.claims)
    }
}

impl Book {
    fn rise<'a>(
        &mut self,
        now: u64,
        pages: Pages,
        rise: u64,
        holders: impl Iterator<Item = &'a str>,
    ) {
        let mut suspects: BTreeMap<String, u64> = BTreeMap::new();
        // A page may leave a file that lives (`FALLOC_FL_PUNCH_HOLE`), and is charged as the lease until
        // that ends. A pool's pages stay in use by then, so only an end shows there.
        if pages == Pages::Memory {
            suspects.extend(holders.map(|tenant| (tenant.to_owned(), 0)));
        }
        for ended in &self.ended {
            *suspects.entry(ended.tenant.clone()).or_default() += ended.bytes;
        }
        if suspects.is_empty() {
            self.foreign = self.foreign.map(|foreign| foreign + rise);
            return;
        }
        self.claims.push(Claim { since: now, bytes: rise, suspects });
        if self.claims.len() > MOST_CLAIMS {
            let oldest = self.claims.remove(0);
            let into = &mut self.claims[0];
            into.bytes += oldest.bytes;
            into.since = oldest.since;
            for (tenant, given) in oldest.suspects {
                *into.suspects.entry(tenant).or_default() += given;
            }
        }
    }

    /// What came back pays off the oldest claims first.
    fn fall(&mut self, mut fall: u64) {
        for claim in &mut self.claims {
            let paid = claim.bytes.min(fall);
            claim.bytes -= paid;
            fall -= paid;
        }
        self.claims.retain(|claim| claim.bytes > 0);
        self.foreign = self.foreign.map(|foreign| foreign.saturating_sub(fall));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::Page;

    const MIB: u64 = 1 << 20;
    const MS: u64 = 1_000_000;

    fn exactly(mib: u64) -> Unaccounted {
        Unaccounted { least: mib * MIB, most: mib * MIB }
    }

    #[test]
    fn what_stays_astray_after_a_lease_is_its_tenants_until_it_is_back() {
        for pages in [Pages::Memory, Pages::Pool(Page::Huge)] {
            let mut debts = Debts::default();
            let measured = |debts: &mut Debts, now, mib| {
                debts.measured(now, pages, exactly(mib), [].into_iter());
            };
            measured(&mut debts, 0, 7);
            debts.ended(MS, pages, "a", 32 * MIB);
            measured(&mut debts, MS, 7 + 20);
            assert_eq!((debts.of("a"), debts.of("b")), (20 * MIB, 0));
            assert_eq!(debts.owed_alone("a"), 0, "it may be over in a moment");
            debts.ended(2 * MS, pages, "b", 64 * MIB);
            measured(&mut debts, 2 * MS, 7 + 20);
            assert_eq!((debts.of("a"), debts.of("b")), (20 * MIB, 0), "all of that came back");
            measured(&mut debts, 3 * MS + GRACE_NS, 7 + 4);
            assert_eq!((debts.of("a"), debts.owed_alone("a")), (4 * MIB, 4 * MIB));
            measured(&mut debts, 4 * MS + GRACE_NS, 3);
            assert_eq!(debts.of("a"), 0);
            assert!(debts.tenants().is_empty());
        }
    }

    #[test]
    fn however_often_a_tenant_pins_it_is_charged_for_all_that_is_pinned() {
        let mut debts = Debts::default();
        debts.measured(0, Pages::Memory, exactly(0), [].into_iter());
        for nth in 1..200 {
            let now = nth * LAG_NS;
            debts.ended(now, Pages::Memory, "other", 512 * MIB);
            debts.ended(now, Pages::Memory, "pins", 32 * MIB);
            debts.measured(now + MS, Pages::Memory, exactly(32 * nth), ["third"].into_iter());
            assert_eq!(debts.of("pins"), 32 * nth * MIB);
            assert_eq!(debts.of("third"), 0, "it gave nothing back");
            assert!(debts.of("other") <= 32 * nth * MIB, "no more than is pinned");
        }
    }

    #[test]
    fn a_page_that_left_a_lease_that_lives_is_charged_when_the_lease_ends() {
        let mut debts = Debts::default();
        debts.measured(0, Pages::Memory, exactly(0), [].into_iter());
        debts.measured(MS, Pages::Memory, exactly(30), ["a", "b"].into_iter());
        assert_eq!(debts.of("a"), 0, "the lease itself counts");
        debts.ended(9 * LAG_NS, Pages::Memory, "a", 64 * MIB);
        debts.measured(9 * LAG_NS, Pages::Memory, exactly(30), ["b"].into_iter());
        assert_eq!((debts.of("a"), debts.of("b")), (30 * MIB, 0));
        assert_eq!(debts.owed_alone("a"), 0, "b may have them");
    }

    #[test]
    fn less_than_a_huge_page_is_nothing_and_what_nobody_gave_back_is_nobodys() {
        let mut debts = Debts::default();
        debts.measured(0, Pages::Memory, exactly(0), [].into_iter());
        debts.ended(1, Pages::Memory, "a", 64 * MIB);
        debts.measured(1, Pages::Memory, exactly(1), [].into_iter());
        assert_eq!(debts.of("a"), 0);
        debts.measured(3 * LAG_NS, Pages::Memory, exactly(40), [].into_iter());
        debts.ended(4 * LAG_NS, Pages::Memory, "a", 64 * MIB);
        debts.measured(4 * LAG_NS, Pages::Memory, exactly(40), [].into_iter());
        assert_eq!(debts.of("a"), 0);
    }

    #[test]
    fn while_inodes_are_made_of_a_pool_only_what_is_certain_counts() {
        let pool = Pages::Pool(Page::Huge);
        let mut debts = Debts::default();
        debts.measured(0, pool, exactly(0), [].into_iter());
        debts.ended(1, pool, "a", 32 * MIB);
        let unsure = Unaccounted { least: 0, most: 64 * MIB };
        debts.measured(1, pool, unsure, [].into_iter());
        assert_eq!(debts.of("a"), 0);
        debts.measured(9 * LAG_NS, pool, exactly(32), [].into_iter());
        assert_eq!(debts.of("a"), 32 * MIB, "it is remembered until then");
        debts.measured(10 * LAG_NS, pool, unsure, [].into_iter());
        assert_eq!(debts.of("a"), 32 * MIB, "an inode that is begun pays nothing off");
    }
}
