//! Of which pages each size would be made, and how much of such may lie ready: for all sizes at once,
//! so that the host's files are read once.

use std::collections::BTreeMap;

use super::choose::SPARE;
use super::{Broker, Inode};
use crate::demand::Target;
use crate::inode::Kind;
use crate::protocol::{Backing, Page};
use crate::settings::Source;
use crate::stock::Need;

/// What was read.
#[derive(Default)]
struct Read {
    /// Bytes free in the pool of a node.
    free: BTreeMap<(u16, Page), u64>,
    /// Bytes of the largest that ordinary memory has room for now; 0 where it has no huge pages.
    ordinary: Option<u64>,
    limits: BTreeMap<(Backing, Page), u64>,
}

impl<I: Inode> Broker<I> {
    /// What should lie ready of each size, and how much of that fits the limits.
    pub(super) fn targets(&self) -> Vec<Target> {
        let mut read = Read::default();
        self.planner.demand.targets(|need| {
            // What lies ready may be all that there was.
            let usual = || Some(self.usual(need)).filter(|_| self.stock.have(need) > 0);
            let kind = self.affords(need, &mut read).or_else(usual)?;
            let pages = self.stands_in(kind);
            Some((pages, *read.limits.entry(pages).or_insert_with(|| self.limit_of_all(kind))))
        })
    }

    /// The pages that stand for all which a piece of stock like this may be made of.
    pub(super) fn stands_in(&self, kind: Kind) -> (Backing, Page) {
        let backing = if self.has_both(kind.page) { Backing::Thp } else { kind.backing };
        (backing, kind.page)
    }

    /// Most bytes of stock in all such pages.
    pub(super) fn limit_of_all(&self, kind: Kind) -> u64 {
        if !self.has_both(kind.page) {
            return self.limit(kind);
        }
        let pools = self.view.nodes.iter().map(|&node| self.view.host.pool(node, kind.page).total);
        let pools = pools.sum::<u64>() * kind.page.bytes();
        let of_pools = self.limit(Kind { backing: Backing::Hugetlb, ..kind }).min(pools);
        self.limit(Kind { backing: Backing::Thp, ..kind }).saturating_add(of_pools)
    }

    /// What it would be made of, as far as the host goes: cgroups are asked when it is made.
    fn affords(&self, need: &Need, read: &mut Read) -> Option<Kind> {
        self.check_node(need.want.node).ok()?;
        let (bytes, page, usual) = (need.want.bytes, need.want.page, self.usual(need));
        let pooled = matches!(self.source(need).ok()?, Source::Auto | Source::Hugetlb);
        let mut free = |node: u16| {
            let free = || self.view.host.pool(node, page).free * page.bytes();
            *read.free.entry((node, page)).or_insert_with(free)
        };
        let on = |node: &u16| need.want.node.is_none_or(|wanted| wanted == *node);
        if pooled && self.view.nodes.iter().filter(|node| on(node)).any(|node| free(*node) >= bytes)
        {
            return Some(Kind { backing: Backing::Hugetlb, ..usual });
        }
        let ordinary = *read.ordinary.get_or_insert_with(|| {
            let (total, available) = self.view.host.memory();
            if self.view.host.thp() { available.saturating_sub(total / SPARE) } else { 0 }
        });
        (usual.backing != Backing::Hugetlb && ordinary >= bytes).then_some(usual)
    }

    /// What it would be made of if there were enough.
    pub(super) fn usual(&self, need: &Need) -> Kind {
        let Need { want, payer } = *need;
        let backing = match self.source(need).unwrap_or(self.settings.backing) {
            _ if want.page == Page::Giant => Backing::Hugetlb,
            Source::Auto | Source::Thp => Backing::Thp,
            Source::Tmpfs => Backing::Tmpfs,
            Source::Hugetlb => Backing::Hugetlb,
        };
        let node = want.node.or(self.view.nodes.first().copied()).unwrap_or(0);
        Kind { page: want.page, backing, node, payer }
    }
}
