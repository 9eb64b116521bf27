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
/// Leases of a tenant that ended within this time are one suspect, ns: it may give back thousands a second.
/// Fixed: a tenth of the lag, by which they stay suspects for longer.
const TOGETHER_NS: u64 = LAG_NS / 10;
/// Most bytes that a number of a file stands for, and most leases that ended at a time.
/// Fixed: more than a host has.
const MOST_BYTES: u64 = 1 << 44;
const MOST_ENDED: usize = 4096;
/// Stands for programs that are no tenant's, where their pages are counted, too.
pub const OTHERS: &str = "";
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

    /// One claim in place of two.
    fn absorb(&mut self, other: Claim) {
        let names = self.suspects.keys().chain(other.suspects.keys()).cloned();
        let owed = |name: String| (self.of(&name) + other.of(&name), name);
        let suspects = names.map(owed).map(|(owed, name)| (name, owed)).collect();
        (self.suspects, self.bytes) = (suspects, self.bytes + other.bytes);
        self.since = self.since.max(other.since);
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
            book.ended.truncate(MOST_ENDED);
            let ended = book.ended.iter_mut().map(|ended| &mut ended.bytes);
            let claims = book.claims.iter_mut().flat_map(|claim| {
                claim.suspects.values_mut().chain(std::iter::once(&mut claim.bytes))
            });
            for bytes in book.foreign.iter_mut().chain(ended).chain(claims) {
                *bytes = (*bytes).min(MOST_BYTES);
            }
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
        // A pool's suspects are cleared, all at once, by a number that is exact.
        let is_one = |ended: &&mut Ended| {
            let together = now.saturating_sub(ended.at) < TOGETHER_NS;
            ended.tenant == tenant && (together || pages != Pages::Memory)
        };
        match book.ended.iter_mut().rev().find(is_one) {
            Some(ended) => {
                (ended.bytes, ended.judged) = (ended.bytes.saturating_add(bytes), false);
            }
            None => {
                let tenant = tenant.to_owned();
                book.ended.push(Ended { at: now, tenant, bytes, judged: false });
            }
        }
    }

    /// The kernel counts so much unaccounted, while these have such pages besides: tenants their leases, or [`OTHERS`].
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
        book.ended
            .retain(|ended| !ended.judged || now.saturating_sub(ended.at) < LAG_NS + TOGETHER_NS);
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
        for ended in &self.ended {
            *suspects.entry(ended.tenant.clone()).or_default() += ended.bytes;
        }
        // A page may leave a file that lives (`FALLOC_FL_PUNCH_HOLE`), and is charged as the lease until
        // that ends. A pool's pages stay in use by then, so only an end shows there.
        if pages == Pages::Memory || !suspects.is_empty() {
            for holder in holders {
                suspects.entry(holder.to_owned()).or_default();
            }
        }
        if suspects.is_empty() {
            self.foreign = self.foreign.map(|foreign| foreign + rise);
            return;
        }
        self.claims.push(Claim { since: now, bytes: rise, suspects });
        if self.claims.len() > MOST_CLAIMS {
            let oldest = self.claims.remove(0);
            let since = oldest.since;
            self.claims[0].absorb(oldest);
            self.claims[0].since = since;
        }
    }

    /// What came back pays claims off. Whose it was the kernel does not say: where that makes a difference, all become
    /// one claim, and each suspect stays charged for what may be its own.
    fn fall(&mut self, mut fall: u64) {
        let claimed: u64 = self.claims.iter().map(|claim| claim.bytes).sum();
        let alike = |pair: &[Claim]| pair[0].suspects.keys().eq(pair[1].suspects.keys());
        if fall < claimed && !self.claims.windows(2).all(alike) {
            let all = self.claims.drain(..).reduce(|mut one, other| {
                one.absorb(other);
                one
            });
            self.claims.extend(all);
        }
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
mod tests;
