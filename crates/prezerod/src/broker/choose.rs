//! What an inode would be made of now, or why there can be none: pool, memory, cgroups. And of which pages each size would
//! be made, and how much of such may lie ready: for all sizes at once, so that the host's files are read once.

use std::collections::BTreeMap;

use prezero_host::Size;

use super::grant::quarantine_text;
use super::{Broker, Inode, Refusal};
use crate::demand::Target;
use crate::filler::Priority;
use crate::host::cgroup::Room;
use crate::inode::Kind;
use crate::inode::named::LeaseDir;
use crate::protocol::{Backing, Page, Reason, Want};
use crate::settings::Source;
use crate::stock::Need;

/// Part of memory that stays available whatever a client waits for; at half of that scrubd
/// and the fillers call memory tight.
const SPARE: u64 = 16;
/// Part of memory that the stock may take unless told otherwise.
const SHARE_OF_MEMORY: u64 = 8;

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
    /// Most bytes of stock of such pages.
    pub(super) fn limit(&self, kind: Kind) -> u64 {
        self.settings.limit.unwrap_or_else(|| match kind.backing {
            Backing::Thp | Backing::Tmpfs => self.view.host.memory().0 / SHARE_OF_MEMORY,
            Backing::Hugetlb => {
                let pages: u64 = self
                    .view
                    .nodes
                    .iter()
                    .map(|&node| self.view.host.pool(node, kind.page).total)
                    .sum();
                let pool = pages * kind.page.bytes();
                // A pool of one page has room for that page.
                (pool / 4 * 3).max(pool.min(kind.page.bytes()))
            }
        })
    }

    /// Whether this host has the node.
    pub(super) fn check_node(&self, node: Option<u16>) -> Result<(), Refusal> {
        let Some(node) = node.filter(|node| !self.view.nodes.contains(node)) else { return Ok(()) };
        let nodes: Vec<_> = self.view.nodes.iter().map(u16::to_string).collect();
        let nodes = nodes.join(", ");
        Err((Reason::Node, format!("no node {node} here; give {nodes}, or any")))
    }

    /// Why what the configuration wants ready will not all lie there, in a line for each size of
    /// which that is so: no request is there to be answered.
    pub fn unmet(&self) -> Vec<String> {
        let line = |target: Target| {
            // What lies ready is no longer free to be made.
            if self.stock.have(&target.need) >= target.kept {
                return None;
            }
            let why = match self.choose(&target.need) {
                Err((_, why)) => why,
                Ok(kind) if target.allotted < target.kept => self.no_room(kind).why,
                Ok(_) => return None,
            };
            let Want { bytes, page, .. } = target.need.want;
            Some(format!("stock of {} in {page} pages: {why}", Size(bytes as usize)))
        };
        self.targets().into_iter().filter_map(line).collect()
    }

    /// What such an inode would be made of now.
    pub(super) fn choose(&self, need: &Need) -> Result<Kind, Refusal> {
        self.check_node(need.want.node)?;
        let source = self.source(need)?;
        let pool = match source {
            Source::Auto | Source::Hugetlb => self.pooled(need),
            Source::Thp | Source::Tmpfs => Err((Reason::Host, String::new())),
        };
        let ordinary =
            source != Source::Hugetlb && need.want.page == Page::Huge && self.view.host.thp();
        match pool {
            Ok(kind) => Ok(kind),
            Err(_) if ordinary => self.paged(need, source),
            Err((_, text)) if text.is_empty() => Err((Reason::Host, self.unpaged(need.want.page))),
            Err((Reason::Host, text)) if source == Source::Auto && need.want.page == Page::Huge => {
                let or = self
                    .view
                    .host
                    .shmem_mend()
                    .map_or(String::new(), |mend| format!("; or {mend}"));
                Err((Reason::Host, text + &or))
            }
            Err(refusal) => Err(refusal),
        }
    }

    /// What a piece of stock would be made of now. Where the pool's part of the stock is full the rest is
    /// made of ordinary memory, as where the pool is empty.
    pub(super) fn choose_for_stock(&self, need: &Need) -> Result<Kind, Refusal> {
        let kind = self.choose(need)?;
        if self.dir_shortage(need) > 0 {
            return Err((
                Reason::Host,
                "the directory of leases has no more room; mount it larger".into(),
            ));
        }
        let is_full = || {
            let limited = self.taken(kind) + need.want.bytes > self.limit(kind);
            limited || self.is_promised(kind, need.want.bytes)
        };
        // A tenant's directory for files has pages of one kind.
        let both = self.has_both(kind.page) && self.source(need)? == Source::Auto;
        match kind.backing == Backing::Hugetlb && both && is_full() {
            true => Ok(self.paged(need, Source::Auto).unwrap_or(kind)),
            false => Ok(kind),
        }
    }

    /// Whether such pages come from the pool first, and from ordinary memory where it has too few.
    pub(super) fn has_both(&self, page: Page) -> bool {
        self.settings.backing == Source::Auto && page == Page::Huge && self.view.host.thp()
    }

    /// Where such pages come from: as the settings say, or as the payer's directory for files does.
    pub(super) fn source(&self, need: &Need) -> Result<Source, Refusal> {
        let Need { want, payer } = *need;
        let files = self.ledger.files(payer);
        if files.is_empty() {
            return Ok(self.settings.backing);
        }
        let place = LeaseDir::for_page(files, want.page).map_err(|text| (Reason::Host, text))?;
        let free = place.free.saturating_sub(self.spoken_for(need));
        if free < want.bytes {
            let (dir, free) = (place.dir.display(), Size(free as usize));
            let size = Size(want.bytes as usize);
            let text = format!("{size} asked, {free} free in {dir}; mount it larger");
            return Err((Reason::Host, text));
        }
        Ok(if place.backing == Backing::Hugetlb { Source::Hugetlb } else { Source::Thp })
    }

    /// Bytes of a payer's place that are made for a client. Stock makes way for those.
    fn spoken_for(&self, need: &Need) -> u64 {
        let Need { want: Want { page, .. }, payer } = *need;
        let making =
            self.planner.making(page, None, payer).filter(|job| job.priority == Priority::Urgent);
        making.map(|job| job.bytes).sum()
    }

    /// Bytes by which a payer's directory is too small for one more beside the stock; 0: it has room.
    pub(super) fn dir_shortage(&self, need: &Need) -> u64 {
        let Need { want: Want { page, bytes, .. }, payer } = *need;
        let files = self.ledger.files(payer);
        if files.is_empty() {
            return 0;
        }
        let Ok(place) = LeaseDir::for_page(files, page) else { return 0 };
        let making =
            self.planner.making(page, None, payer).filter(|job| job.priority == Priority::Idle);
        let stock = self.stock.ready(page, None, payer) + making.map(|job| job.bytes).sum::<u64>();
        (self.spoken_for(need) + stock + bytes).saturating_sub(place.free)
    }

    /// Why no page of ordinary memory will do, with the mend.
    fn unpaged(&self, page: Page) -> String {
        match self.view.host.shmem_mend().filter(|_| page == Page::Huge) {
            Some(mend) => format!("transparent pages of shared memory are denied here; {mend}"),
            None => {
                format!("{page} pages come from a hugetlb pool only here; set backing = \"auto\"")
            }
        }
    }

    /// Such kinds, on the nodes that will do.
    fn kinds(&self, need: &Need, backing: Backing) -> Vec<Kind> {
        let Need { want, payer } = *need;
        let nodes = want.node.map_or_else(|| self.view.nodes.clone(), |node| vec![node]);
        nodes.into_iter().map(|node| Kind { page: want.page, backing, node, payer }).collect()
    }

    fn is_trusted(&self, kind: &Kind) -> bool {
        !self.stock.quarantined.contains(&kind.unpaid())
    }

    fn pooled(&self, need: &Need) -> Result<Kind, Refusal> {
        let (bytes, page) = (need.want.bytes, need.want.page);
        let free = |node: u16| self.view.host.pool(node, page).free * page.bytes();
        let kinds = self.kinds(need, Backing::Hugetlb);
        let trusted = kinds.iter().filter(|kind| self.is_trusted(kind));
        let best = trusted.max_by_key(|kind| free(kind.node));
        if let Some(kind) = best.filter(|kind| free(kind.node) >= bytes) {
            return self.affordable(need, *kind);
        }
        if kinds.iter().any(|kind| !self.is_trusted(kind)) {
            return Err(quarantine_text(&need.want));
        }
        let most = kinds.iter().map(|kind| free(kind.node)).max().unwrap_or(0);
        let enough = self.enough(need, (bytes - most).div_ceil(page.bytes()));
        let (size, most) = (Size(bytes as usize), Size(most as usize));
        let text = format!(
            "{size} asked, {most} free in the pool of {page} pages; reserve more: {enough}"
        );
        Err((Reason::Host, text))
    }

    /// The command that gives the pool the pages that are `missing`, there where they are.
    pub(super) fn enough(&self, need: &Need, missing: u64) -> String {
        let (page, nodes) = (need.want.page, self.view.nodes.len() as u64);
        let (dir, pages) = match need.want.node {
            Some(node) if nodes > 1 => (
                format!("/sys/devices/system/node/node{node}/hugepages"),
                self.view.host.pool(node, page).total + missing,
            ),
            // The kernel spreads what it is told evenly, and a lease lies on one node.
            _ => ("/sys/kernel/mm/hugepages".into(), self.view.host.pages(page) + missing * nodes),
        };
        format!("echo {pages} > {dir}/hugepages-{}kB/nr_hugepages", page.bytes() >> 10)
    }

    fn paged(&self, need: &Need, source: Source) -> Result<Kind, Refusal> {
        let bytes = need.want.bytes;
        let backing = match source {
            Source::Tmpfs => Backing::Tmpfs,
            _ => Backing::Thp,
        };
        let kinds = self.kinds(need, backing);
        let Some(kind) = kinds.into_iter().find(|kind| self.is_trusted(kind)) else {
            return Err(quarantine_text(&need.want));
        };
        let (total, available) = self.view.host.memory();
        if available >= bytes.saturating_add(total / SPARE) {
            return self.affordable(need, kind);
        }
        let (size, available) = (Size(bytes as usize), Size((available >> 20 << 20) as usize));
        let text = format!(
            "{size} asked, {available} of memory available; ask for less, or stop something"
        );
        Err((Reason::Pressure, text))
    }

    /// Whether the payer's cgroup has room for it.
    fn affordable(&self, need: &Need, kind: Kind) -> Result<Kind, Refusal> {
        match self.room(kind).refuses(need.want.bytes) {
            None => Ok(kind),
            Some(text) => Err((Reason::Quota, text)),
        }
    }

    /// What the payer's cgroup still takes of such pages.
    pub(super) fn room(&self, kind: Kind) -> Room {
        self.view.cgroups.room(self.ledger.charged(kind.payer), kind.backing, kind.page)
    }

    /// Whether it can be made at all: now, or from what lies in the stock in other sizes, or is being made for it.
    pub(super) fn can_make(&self, need: &Need) -> Result<(), Refusal> {
        let Need { want, payer } = need;
        let stocked = || {
            let making = self.planner.making(want.page, want.node, *payer);
            let making = making.filter(|job| job.priority == Priority::Idle).map(|job| job.bytes);
            self.stock.ready(want.page, want.node, *payer) + making.sum::<u64>()
        };
        match self.choose(need) {
            Ok(_) => Ok(()),
            Err((Reason::Host | Reason::Pressure | Reason::Quota, _))
                if self.stock.quarantined.is_empty() && stocked() >= want.bytes =>
            {
                Ok(())
            }
            Err(refusal) => Err(refusal),
        }
    }

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
