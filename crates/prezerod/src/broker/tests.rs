//! The broker on a made-up host, with made-up inodes and time: which client gets what, and why not.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use prezero_host::pressure::Memory;

use super::*;
use crate::filler::{Done, Outcome, Priority};
use crate::inode::Kind;
use crate::planner::Job;
use crate::protocol::{Backing, Charged, MAX_PART, Page, Report, Request, Want};
use crate::settings::Stocked;
use crate::tenant::{Peer, Rank};

mod any_order;
mod bounds;
mod drains;
mod expected;
mod leases;
mod limits;
mod log;
mod parties;
mod payers;
mod persist;
mod plain;
mod shortages;
mod stock;
mod yields;

const MIB: u64 = 1 << 20;
const S: u64 = 1_000_000_000;

/// Remembers what was done to it, also after it is gone.
#[derive(Debug, Default)]
struct Fake {
    sealed: Rc<Cell<u32>>,
    dirty: bool,
    stale: bool,
    bytes: Rc<RefCell<Vec<u64>>>,
    discarded: Rc<Cell<u32>>,
}

impl Inode for Fake {
    fn is_fresh(&self, _: u64) -> bool {
        !self.stale && self.sealed.get() == 0
    }

    fn audit(&self, _: u64, _: Depth, pick: &mut dyn FnMut(u64) -> u64) -> Finding {
        assert!(pick(5) < 5);
        if self.dirty { Finding::Dirty(7) } else { Finding::Clean(4096) }
    }

    fn truncate(&self, bytes: u64) -> bool {
        assert_eq!(self.sealed.get(), 0, "cut after it was sealed");
        self.bytes.borrow_mut().push(bytes);
        true
    }

    fn seal(&self) -> Option<u64> {
        self.sealed.set(self.sealed.get() + 1);
        (self.sealed.get() == 1).then_some(99)
    }

    fn discard(self) {
        self.discarded.set(self.discarded.get() + 1);
    }
}

/// A host with transparent huge pages, 64 GiB of memory and two nodes.
struct Rig {
    broker: Broker<Fake>,
    now: u64,
    _root: tempfile::TempDir,
}

impl Rig {
    fn new(change: impl FnOnce(&mut Settings)) -> Rig {
        Rig::on(&[("sys/kernel/mm/transparent_hugepage/shmem_enabled", "[never]")], change)
    }

    fn on(files: &[(&str, &str)], change: impl FnOnce(&mut Settings)) -> Rig {
        let root = tempfile::tempdir().unwrap();
        let memory = "MemTotal: 67108864 kB\nMemAvailable: 60000000 kB\n";
        let common = [("proc/meminfo", memory), ("sys/devices/system/node/online", "0-1\n")];
        for (path, text) in files.iter().chain(&common) {
            let path = root.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        let mut settings = Settings::default();
        change(&mut settings);
        let broker = Broker::new(0, Host::new(root.path()), settings, 1000);
        Rig { broker, now: 0, _root: root }
    }

    fn client(&mut self, pid: i32, uid: u32) -> ClientId {
        self.broker.connect(peer(pid, uid)).unwrap()
    }

    fn stock(&mut self, mib: u64, inode: Fake) {
        let kind = Kind { page: Page::Huge, backing: Backing::Thp, node: 0, payer: Payer::BROKER };
        let inode =
            StockInode { file: inode, kind, bytes: mib * MIB, made_ns: self.now, cost_ns: 5 };
        self.broker.stock.put(inode);
    }

    fn ask(&mut self, client: ClientId, request: Request) -> Option<Out<Fake>> {
        self.broker.request(self.now, client, 1, request)
    }

    fn lease(&mut self, client: ClientId, mib: u64, wait_ms: u32) -> Option<Out<Fake>> {
        self.ask(client, Request::Lease { want: want(mib), wait_ms })
    }

    fn answer(&mut self, client: ClientId, request: Request) -> Answer {
        self.ask(client, request).expect("an answer at once").answer
    }

    /// All parts of a report.
    fn parts(&mut self, client: ClientId, report: Report) -> Vec<String> {
        let (mut parts, mut from) = (vec![], 0);
        loop {
            let Answer::Part { next, text } = self.answer(client, Request::Report { report, from })
            else {
                panic!("no part")
            };
            assert!(text.len() <= MAX_PART);
            parts.push(text);
            if next == 0 {
                return parts;
            }
            from = next;
        }
    }

    fn report(&mut self, client: ClientId) -> serde_json::Value {
        let text = self.parts(client, Report::Stock).concat();
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"))
    }

    fn plan(&mut self, memory: Memory) -> Plan<Fake> {
        self.broker.plan(self.now, 0, memory)
    }

    fn made(&mut self, job: &Job) {
        let outcome = Outcome::Made { cpu_ns: S, wall_ns: S };
        let done = Done { serial: job.serial, outcome };
        self.broker.done(self.now, done, Some(Fake::default()));
    }
}

fn peer(pid: i32, uid: u32) -> Peer {
    Peer { pid, uid, gid: uid, groups: vec![], cgroups: vec![], began: 0, contained: false }
}

fn want(mib: u64) -> Want {
    Want { bytes: mib * MIB, page: Page::Huge, node: None }
}

fn reason(out: Option<Out<Fake>>) -> Reason {
    let out = out.expect("an answer at once");
    assert!(out.inode.is_none(), "a refusal brings nothing");
    match out.answer {
        Answer::No(reason, text) | Answer::When { reason, text, .. } => {
            assert!(!text.is_empty() && !text.contains('\n'), "{text:?}");
            reason
        }
        other => panic!("{other:?}"),
    }
}
