//! The claim under loom: every interleaving of scrubd and an allocation.

use super::*;
use loom::sync::atomic::{AtomicBool, AtomicUsize};
use loom::sync::{Arc, Mutex};
use loom::thread;

struct World {
    claim: Claim,
    /// A restartable sequence runs wholly before or wholly after a fence.
    sequence: Mutex<()>,
    /// How many parties believe that the block is theirs.
    owners: AtomicUsize,
    /// The allocation has the block: a write of scrubd's now is a corruption.
    in_use: AtomicBool,
}

/// scrubd clears two pieces while an allocation seizes: the block has one owner in
/// the end, and scrubd never writes into memory that was handed out.
fn race(fence_works: bool) {
    loom::model(move || {
        let world = Arc::new(World {
            claim: Claim::new(),
            sequence: Mutex::new(()),
            owners: AtomicUsize::new(0),
            in_use: AtomicBool::new(false),
        });
        let session = world.claim.begin(Span::new(PageId(4), 2), Work::Scrub, 0);
        let busy = session.busy();
        let allocator = {
            let world = world.clone();
            thread::spawn(move || {
                let seized = world.claim.seize(|| {
                    drop(world.sequence.lock().unwrap());
                    fence_works
                });
                if let Answer::Seized(seized) = seized {
                    assert!(fence_works);
                    assert!(seized.block.done <= 2 && seized.block.first == PageId(4));
                    assert_eq!(world.owners.fetch_add(1, AcqRel), 0);
                    world.in_use.store(true, Release);
                    seized.release();
                }
            })
        };
        for piece in 1..=2 {
            let running = world.sequence.lock().unwrap();
            if session.word().load(Acquire) != busy {
                break;
            }
            assert!(!world.in_use.load(Acquire), "wrote into a block that was handed out");
            session.progress().store(piece, Release);
            drop(running);
        }
        if let Some(claimed) = session.close() {
            assert_eq!(world.owners.fetch_add(1, AcqRel), 0);
            assert!(claimed.done <= 2);
            session.release();
        }
        allocator.join().unwrap();
        assert_eq!(world.owners.load(Acquire), 1);
    });
}

#[test]
fn one_owner_and_no_late_write() {
    race(true);
}

#[test]
fn without_a_fence_nothing_is_taken() {
    race(false);
}
