//! Leases of reserved pages: the drills that need a hugetlb pool. Run as root on a host that
//! has some memory free; the pool is left as it was found.
//!
//! One test, because the pool is the machine's.

mod common;

use std::os::fd::OwnedFd;
use std::time::Duration;

use common::{Daemon, PATIENCE, Reserved, ended, free_pages, use_up, wait_for_free, want, watch};
use prezerod::client::ClientError;
use prezerod::protocol::{Backing, Page, Reason, Want};
use rustix::process::{Signal, kill_process};

const PAGES: u64 = 64;

#[test]
fn pages_of_a_pool_are_leased_and_none_is_lost_whoever_is_killed() {
    let Some(_reserved) = Reserved::new(Page::Huge, PAGES) else {
        prezero_sys::tell!(
            "skipped: no hugetlb pages can be reserved here (not root, or no memory)"
        );
        return;
    };
    let start = free_pages();
    let config = "backing = \"hugetlb\"\n[[stock]]\nsize = \"8M\"\nkeep = 4\nmost = 4\n";
    let mut daemon = Daemon::start(config);

    // In stock; leased and used; dropped.
    daemon.wait_for_ready(4);
    assert_eq!(free_pages(), start - 16);
    let lease = daemon.client().lease(want(8), Duration::ZERO).unwrap();
    assert_eq!((lease.granted.backing, lease.granted.page), (Backing::Hugetlb, Page::Huge));
    use_up(&lease);

    // The stock is made, and a lease: the broker dies.
    daemon.kill();
    wait_for_free(start - 4);
    use_up_again(&lease);
    drop(lease);
    wait_for_free(start);

    // It dies while a lease is being made for a client that waits.
    daemon.configure("backing = \"hugetlb\"\n");
    daemon.again();
    let mut waiting = daemon.client();
    let patient = std::thread::spawn(move || waiting.lease(want(120), PATIENCE));
    let fillers: Vec<OwnedFd> = daemon.wait_for_fillers(1).into_iter().map(watch).collect();
    daemon.kill();
    fillers.iter().for_each(ended);
    drop(patient.join().unwrap());
    wait_for_free(start);

    // Its filler is stopped in the middle of it, and goes on: interrupted is not refused.
    daemon.again();
    let mut waiting = daemon.client();
    let patient = std::thread::spawn(move || waiting.lease(want(120), PATIENCE));
    let mut stops = 0;
    while !patient.is_finished() {
        for filler in daemon.fillers() {
            for signal in [Signal::STOP, Signal::CONT] {
                stops += u32::from(kill_process(filler, signal).is_ok());
            }
        }
    }
    use_up(&patient.join().unwrap().unwrap());
    assert!(stops > 0 && daemon.counter("make_failures_total") == 0, "{stops} signals");
    daemon.kill();
    wait_for_free(start);

    // More than the pool has.
    daemon.again();
    let much = Want { bytes: (start + 1) * Page::Huge.bytes(), ..want(0) };
    match daemon.client().lease(much, PATIENCE) {
        Err(ClientError::No(Reason::Host, text)) => {
            assert!(text.contains("nr_hugepages"), "{text}")
        }
        other => panic!("{other:?}"),
    }
    daemon.kill();

    giant();
}

fn use_up_again(lease: &prezerod::client::Lease) {
    let map = lease.map().unwrap();
    // SAFETY: as in `use_up`.
    let bytes = unsafe { std::slice::from_raw_parts_mut(map.base().as_ptr(), map.len()) };
    assert!(bytes.iter().all(|&byte| byte == 0xa5), "the lease lost its content");
}

/// Pages of 1 GiB, where the kernel finds one.
fn giant() {
    let Some(_reserved) = Reserved::new(Page::Giant, 1) else {
        prezero_sys::tell!("skipped: no page of 1 GiB can be reserved here");
        return;
    };
    let daemon = Daemon::start("");
    let want = Want { bytes: 1 << 30, page: Page::Giant, node: None };
    let lease = daemon.client().lease(want, PATIENCE).unwrap();
    assert_eq!(lease.granted.backing, Backing::Hugetlb);
    let map = lease.map().unwrap();
    assert_eq!(map.base().as_ptr().addr() % (1 << 30), 0);
    map.touch(0, map.len(), 4096);
    let again = daemon.client().lease(want, Duration::ZERO);
    assert!(matches!(again, Err(ClientError::No(Reason::Host, _))), "{again:?}");
}
