//! A pool with its thread, and owners that race: every slot that `take` calls zero is read.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use prezero_pool::{Pool, Slot};
use prezero_testing::until;

const BYTES: usize = 1 << 18;

fn assert_zero(slot: &Slot<'_>) {
    let bytes = slot.bytes();
    let other = bytes.iter().position(|&byte| byte != 0);
    assert_eq!(other, None, "a false zero");
}

/// Writes in one of the ways that there are, and gives the slot back.
fn use_up(pool: &Pool, mut slot: Slot<'_>, seed: usize) {
    let first = (seed * 7919) % (BYTES - 9000);
    match seed % 4 {
        0 => slot.bytes_mut(first..first + 9000).fill(1),
        1 => slot.bytes_mut(0..BYTES).fill(2),
        // SAFETY: the slot is this thread's.
        2 => unsafe { slot.as_mut_ptr().add(first).write_bytes(3, 9000) },
        // SAFETY: the slot is this thread's, and the ranges have all that is written.
        _ => unsafe {
            slot.as_mut_ptr().add(first).write_bytes(4, 8000);
            pool.give(slot, [0..1, first..first + 8000]);
        },
    }
}

#[test]
fn racing_owners_find_zeroes_and_as_many_slots_as_were_asked_for() {
    const OWNERS: usize = 4;
    let pool = Pool::new(OWNERS, BYTES, 0).unwrap();
    let end = Instant::now() + Duration::from_secs(2);
    std::thread::scope(|scope| {
        for owner in 0..OWNERS {
            let pool = &pool;
            scope.spawn(move || {
                let mut seed = owner;
                while Instant::now() < end {
                    let slot = pool.take().expect("each owner has one at a time");
                    assert_zero(&slot);
                    use_up(pool, slot, seed);
                    seed += 1;
                    if seed.is_multiple_of(64) {
                        std::thread::sleep(Duration::from_millis(1));
                    }
                }
            });
        }
    });
    let stats = pool.stats();
    assert!(stats.zero + stats.cleared > stats.fresh, "{stats:?}");
    until("a slot that was cleared ahead", || {
        use_up(&pool, pool.take().unwrap(), 1);
        pool.stats().zero > 0
    });
}

#[test]
fn slots_keep_their_addresses_and_guards_end_the_program() {
    let pool = Pool::new(2, 10_000, 4096).unwrap();
    assert_eq!(pool.slot_bytes(), 12_288);
    let mut seen = std::collections::BTreeSet::new();
    for _ in 0..100 {
        let mut slot = pool.take().unwrap();
        seen.insert(slot.as_mut_ptr().addr().get());
    }
    assert!(seen.len() <= 3, "{seen:?}");
    let first = *seen.first().unwrap();
    for at in [first - 1, first + 12_288] {
        // SAFETY: the child touches one byte and ends.
        let child = unsafe { libc::fork() };
        if child == 0 {
            // SAFETY: no byte of this program's lies there, which is what is tried.
            unsafe {
                std::ptr::without_provenance_mut::<u8>(at).write_volatile(1);
                libc::_exit(0);
            }
        }
        let mut status = 0;
        // SAFETY: a child of this process.
        unsafe { libc::waitpid(child, &mut status, 0) };
        assert!(libc::WIFSIGNALED(status), "a guard let a write by");
    }
}

#[test]
fn more_slots_than_there_are_get_none() {
    let pool = Pool::new(2, BYTES, 0).unwrap();
    let out: Vec<_> = std::iter::from_fn(|| pool.take()).take(9).collect();
    assert!((2..=3).contains(&out.len()), "{}", out.len());
    for (slots, bytes, error) in
        [(0, 1, libc::EINVAL), (1, 0, libc::EINVAL), (9, 1 << 60, libc::ENOMEM)]
    {
        let refused = Pool::new(slots, bytes, 0).unwrap_err();
        assert_eq!(refused.raw_os_error(), Some(error), "{slots} of {bytes}");
    }
}

#[test]
fn an_address_is_a_slot_again_while_the_slot_is_out() {
    let pool = Pool::new(2, BYTES, 0).unwrap();
    let address = pool.take().unwrap().into_raw();
    // SAFETY: the slot is this test's; it comes back once, and the other two addresses are no slot's.
    unsafe {
        address.add(5).write(1);
        assert!(pool.slot_at(address.add(4096)).is_none());
        assert!(pool.slot_at(address.sub(64 * BYTES)).is_none());
        drop(pool.slot_at(address).unwrap());
    }
    // Both that may be out at a time.
    let (one, other) = (pool.take().unwrap(), pool.take().unwrap());
    assert_zero(&one);
    assert_zero(&other);
}

#[test]
#[should_panic(expected = "another pool's")]
fn another_pools_slot_is_refused() {
    let [one, other] = [0, 1].map(|_| Pool::new(1, BYTES, 0).unwrap());
    // SAFETY: nothing was written.
    unsafe { one.give(other.take().unwrap(), []) };
}

#[test]
fn a_child_of_a_fork_clears_for_itself() {
    let pool = Pool::new(3, BYTES, 0).unwrap();
    for seed in 0..20 {
        use_up(&pool, pool.take().unwrap(), seed);
    }
    // SAFETY: the child calls nothing that a lock of another thread could stop.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let good = (0..50).all(|seed| {
            let Some(slot) = pool.take() else { return false };
            let zero = slot.bytes().iter().all(|&byte| byte == 0);
            use_up(&pool, slot, seed);
            zero
        });
        drop(pool);
        // SAFETY: ends the child.
        unsafe { libc::_exit(if good { 0 } else { 1 }) };
    }
    let mut status = 0;
    // SAFETY: a child of this process.
    unsafe { libc::waitpid(child, &mut status, 0) };
    assert_eq!(status, 0);
}

/// The kernel ends a thread in strict mode at its first call, but for read, write and exit.
#[test]
fn take_and_give_call_no_kernel_in_a_steady_state() {
    static ROUNDS: AtomicBool = AtomicBool::new(false);
    let pool: &'static Pool = Box::leak(Box::new(Pool::new(8, BYTES, 0).unwrap()));
    std::thread::spawn(move || {
        // SAFETY: binds this thread alone.
        unsafe { libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_STRICT) };
        let mut rounds = 0u64;
        while rounds < 2_000 || pool.stats().zero < 20 {
            let mut slot = pool.take().unwrap();
            slot.bytes_mut(0..5000).fill(1);
            drop(slot);
            rounds += 1;
        }
        ROUNDS.store(true, Ordering::Release);
        loop {
            std::hint::spin_loop();
        }
    });
    until("all rounds", || ROUNDS.load(Ordering::Acquire));
}
