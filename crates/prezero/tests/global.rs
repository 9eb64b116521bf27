//! A Rust program whose global allocator is prezero's: this one.

use std::alloc::{GlobalAlloc, Layout, System};
use std::collections::HashMap;
use std::process::Command;
use std::time::Duration;

use prezero::internal::DEFAULT_THRESHOLD;
use prezero::{Counter, Global};

mod common;
use common::until;

#[global_allocator]
static ALLOCATOR: Global = Global::system();

const LARGE: usize = 4 << 20;

fn in_zone(address: *const u8) -> bool {
    Global::<System>::owner(address).is_some()
}

/// The heap, made. While one thread makes it, what the others ask for is the inner allocator's.
fn heap() -> &'static prezero::Heap {
    until("the heap is made", || in_zone(vec![0u8; LARGE].as_ptr()));
    Global::<System>::owner(vec![0u8; LARGE].as_ptr()).unwrap()
}

/// Compared as a whole: a debug build looks at each byte for long.
fn is_all(block: &[u8], byte: u8) -> bool {
    block.first() == Some(&byte) && block[1..] == block[..block.len() - 1]
}

#[test]
fn large_blocks_are_the_zones_and_small_ones_are_not() {
    heap();
    assert!(in_zone(vec![1u8; LARGE].as_ptr()));
    assert!(in_zone(vec![0u8; DEFAULT_THRESHOLD].as_ptr()));
    assert!(!in_zone(vec![0u8; 1000].as_ptr()));
    assert!(!in_zone(Box::new(1u64).as_ref() as *const u64 as *const u8));
}

/// Run by the next test, in a process of its own.
#[test]
#[ignore = "needs an environment of its own"]
fn a_request_finds_memory_that_was_cleared_ahead() {
    until("a request finds memory that was cleared ahead", || {
        let mut blocks: Vec<_> = (0..8).map(|_| vec![0u8; LARGE]).collect();
        for block in &mut blocks {
            assert!(is_all(block, 0));
            block.fill(0xAB);
        }
        drop(blocks);
        // The pause is the program's own: without one it gets its hot blocks back, and asks for nothing ahead.
        std::thread::sleep(Duration::from_millis(20));
        ALLOCATOR.hit_bytes() > 0
    });
    let now = ALLOCATOR.snapshot().unwrap();
    assert_eq!(now.get(Counter::VerifyFailures), 0);
}

/// Neither what zeroes repay in a build for tests nor whether a CPU idles keeps scrubd from clearing there.
#[test]
fn zeroed_memory_is_zero_and_comes_from_what_was_cleared_ahead() {
    let test = "a_request_finds_memory_that_was_cleared_ahead";
    in_a_process(test, "PREZERO_ABLATE", "backoff,cost-model");
}

#[test]
fn a_vector_that_grows_and_shrinks_keeps_its_content() {
    heap();
    let mut numbers = vec![];
    for n in 0..4u64 << 20 {
        numbers.push(n);
    }
    assert!(in_zone(numbers.as_ptr().cast()));
    assert!(numbers.iter().enumerate().all(|(at, &n)| at as u64 == n));
    numbers.truncate(300_000);
    numbers.shrink_to_fit();
    assert!(in_zone(numbers.as_ptr().cast()), "well above the threshold it stays");
    numbers.truncate(100);
    numbers.shrink_to_fit();
    assert!(!in_zone(numbers.as_ptr().cast()), "well below it leaves");
    assert!(numbers.iter().enumerate().all(|(at, &n)| at as u64 == n));
}

#[test]
fn alignments_hold_at_each_size() {
    for size in [1, 4096, 70_000, LARGE, LARGE + 1] {
        for align in [1, 64, 4096, 64 << 10, 128 << 10, 2 << 20, 64 << 20] {
            let layout = Layout::from_size_align(size, align).unwrap();
            // SAFETY: the size is not 0; each block is freed once, with the layout that it has, and its bytes are
            // within it.
            unsafe {
                for zeroed in [false, true] {
                    let whole = |block: *const u8, byte| {
                        is_all(std::slice::from_raw_parts(block, size), byte)
                    };
                    let block = if zeroed {
                        ALLOCATOR.alloc_zeroed(layout)
                    } else {
                        ALLOCATOR.alloc(layout)
                    };
                    assert!(!block.is_null() && block.addr().is_multiple_of(align), "{layout:?}");
                    assert!(!zeroed || whole(block, 0), "{layout:?}");
                    block.write_bytes(7, size);
                    let larger = ALLOCATOR.realloc(block, layout, size * 2);
                    assert!(!larger.is_null() && larger.addr().is_multiple_of(align), "{layout:?}");
                    assert!(whole(larger, 7), "{layout:?}");
                    let layout = Layout::from_size_align(size * 2, align).unwrap();
                    let smaller = ALLOCATOR.realloc(larger, layout, size);
                    assert!(whole(smaller, 7), "{layout:?}");
                    ALLOCATOR.dealloc(smaller, Layout::from_size_align(size, align).unwrap());
                }
            }
        }
    }
}

#[test]
fn a_request_that_no_memory_serves_is_refused() {
    let layout = Layout::from_size_align(isize::MAX as usize - 4096, 16).unwrap();
    // SAFETY: the size is not 0.
    unsafe {
        assert!(ALLOCATOR.alloc(layout).is_null());
        assert!(ALLOCATOR.alloc_zeroed(layout).is_null());
    }
}

#[test]
fn threads_pass_blocks_to_one_another() {
    let (sender, receiver) = std::sync::mpsc::sync_channel::<Vec<u8>>(4);
    std::thread::scope(|scope| {
        scope.spawn(move || {
            for n in 0..200 {
                let mut block = vec![0u8; LARGE / 4];
                assert!(is_all(&block, 0));
                block.fill(n);
                sender.send(block).unwrap();
            }
        });
        for (n, block) in receiver.into_iter().enumerate() {
            assert!(is_all(&block, n as u8));
        }
    });
}

#[test]
fn the_child_of_a_fork_finds_its_blocks_and_zeroes() {
    let mut kept = vec![0u8; LARGE];
    kept.fill(0x5A);
    for _ in 0..16 {
        vec![0u8; LARGE].fill(0xCD);
    }
    // SAFETY: the child makes vectors, looks at them and ends without a handler.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let fresh: Vec<_> = (0..8).map(|_| vec![0u8; LARGE]).collect();
        let good =
            kept.iter().all(|&byte| byte == 0x5A) && fresh.iter().flatten().all(|&byte| byte == 0);
        // SAFETY: it ends here.
        unsafe { libc::_exit(if good { 0 } else { 1 }) };
    }
    let mut status = 0;
    // SAFETY: the status is there for the call to fill.
    assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
    assert_eq!(status, 0);
    assert!(is_all(&kept, 0x5A));
}

/// Run by the next test, in a process of its own.
#[test]
#[ignore = "needs an environment of its own"]
fn nothing_is_the_zones() {
    assert!(!in_zone(vec![0u8; LARGE].as_ptr()));
    assert!(ALLOCATOR.snapshot().is_none());
    let words: HashMap<_, _> = (0..100_000).map(|n| (n, n.to_string())).collect();
    assert_eq!(words[&77_777], "77777");
}

/// Runs an ignored test with this variable: what it says on standard error.
fn in_a_process(test: &str, variable: &str, value: &str) -> String {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", test, "--ignored"]).env(variable, value);
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && said.contains("1 passed"), "{output:?}");
    String::from_utf8(output.stderr).unwrap()
}

#[test]
fn a_user_turns_it_off_and_a_wrong_knob_does_so_with_a_line() {
    let run = |variable, value| in_a_process("nothing_is_the_zones", variable, value);
    assert_eq!(run("PREZERO_DISABLE", "1"), "");
    let told = run("PREZERO_LIMIT", "much");
    assert!(
        told.starts_with("prezero: PREZERO_LIMIT=much: ") && told.lines().count() == 1,
        "{told}"
    );
}

/// Gives memory of its own, and counts what comes back.
struct Elsewhere(std::sync::atomic::AtomicUsize);

// SAFETY: hands out what the system's allocator does, and takes back what lies in the tests' own mapping.
unsafe impl GlobalAlloc for Elsewhere {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as the caller promised.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, _: *mut u8, _: Layout) {
        self.0.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    }
}

/// A zone numbers more addresses than it has mapped. Where the kernel puts other mappings there, their blocks are not
/// the zone's.
#[test]
fn a_block_of_the_inner_allocator_where_the_zone_has_mapped_nothing_goes_back_to_it() {
    let heap = heap();
    let page = std::ptr::without_provenance_mut(heap.base() + heap.bytes() - 4096);
    let (rights, flags) = (
        libc::PROT_READ | libc::PROT_WRITE,
        libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE,
    );
    // SAFETY: nothing is mapped there, or it fails.
    let mapped = unsafe { libc::mmap(page, 4096, rights, flags, -1, 0) };
    assert_eq!(mapped, page);
    // SAFETY: its blocks lie in a mapping of the test's, or are the system's.
    let allocator = unsafe { Global::over(Elsewhere(0.into())) };
    let layout = Layout::from_size_align(4096, 4096).unwrap();
    assert!(!in_zone(mapped.cast()));
    // SAFETY: the block is the inner allocator's, and given back once by each call.
    unsafe {
        allocator.dealloc(mapped.cast(), layout);
        let moved = allocator.realloc(mapped.cast(), layout, 8192);
        System.dealloc(moved, Layout::from_size_align(8192, 4096).unwrap());
    }
    assert_eq!(allocator.inner().0.load(std::sync::atomic::Ordering::Relaxed), 2);
    // SAFETY: mapped above.
    unsafe { libc::munmap(mapped, 4096) };
}
