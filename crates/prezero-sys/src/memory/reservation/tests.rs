//! Reservations, and what their tests share with those of other memory.

use super::*;

const MIB: usize = 1 << 20;

pub(crate) fn resident(range: &Reservation, offset: usize, len: usize) -> usize {
    let mut pages = vec![0u8; len / GRAIN];
    // SAFETY: the range is mapped and the vector holds one byte a page.
    let rc = unsafe { libc::mincore(range.at(offset, len), len, pages.as_mut_ptr()) };
    assert_eq!(rc, 0);
    pages.iter().filter(|&&page| page & 1 == 1).count()
}

/// Keeps the kernel from touching more than was asked for, where THP is `always`.
pub(crate) fn small_pages(range: &Reservation) {
    // SAFETY: the test's own mapping; content stays.
    unsafe { madvise(range.at(0, 0), range.len(), Advice::LinuxNoHugepage) }.unwrap();
}

fn bytes(range: &mut Reservation) -> &mut [u8] {
    // SAFETY: mapped, and borrowed mutably: the only slice.
    unsafe { std::slice::from_raw_parts_mut(range.base().as_ptr(), range.len()) }
}

#[test]
fn reservation_starts_at_its_alignment_and_spans_its_length() {
    for (len, align) in [(GRAIN, GRAIN), (3 * GRAIN, 2 * MIB), (4 * MIB, 2 * MIB), (MIB, 1 << 30)] {
        let mut range = Reservation::new(len, align).unwrap();
        assert_eq!(range.base().as_ptr().addr() % align, 0);
        assert_eq!(range.len(), len);
        assert!(!range.is_empty());
        let all = bytes(&mut range);
        all[0] = 1;
        all[len - 1] = 2;
        assert_eq!((all[0], all[len - 1]), (1, 2));
    }
}

#[test]
fn reservation_refuses_what_is_no_range() {
    let refused = [(0, GRAIN), (GRAIN + 1, GRAIN), (GRAIN, 1024), (GRAIN, 3 * GRAIN)];
    for (len, align) in refused {
        assert_eq!(Reservation::new(len, align).unwrap_err(), Errno::INVAL);
    }
    let all = usize::MAX & !(GRAIN - 1);
    assert_eq!(Reservation::new(all, GRAIN).unwrap_err(), Errno::NOMEM);
}

#[test]
fn dropped_ranges_leave_the_address_space_as_it_was() {
    // 256 times 1 TiB, the slack too, is more than a process can map at once.
    for _ in 0..256 {
        let range = Reservation::new(1 << 40, 1 << 30).unwrap();
        assert_eq!(range.base().as_ptr().addr() % (1 << 30), 0);
    }
}

#[test]
fn populate_makes_pages_resident_and_keeps_content() {
    let mut range = Reservation::new(16 * GRAIN, GRAIN).unwrap();
    small_pages(&range);
    bytes(&mut range)[5 * GRAIN] = 7;
    // SAFETY: all of it is mapped.
    unsafe { range.populate(4 * GRAIN, 8 * GRAIN) };
    assert_eq!(resident(&range, 4 * GRAIN, 8 * GRAIN), 8);
    assert_eq!(resident(&range, 0, 4 * GRAIN), 0);
    assert_eq!(resident(&range, 12 * GRAIN, 4 * GRAIN), 0);
    assert_eq!(bytes(&mut range)[5 * GRAIN], 7);
    assert_eq!(bytes(&mut range)[6 * GRAIN], 0);
}

#[test]
#[should_panic(expected = "outside the reservation")]
fn populate_past_the_end_panics() {
    let range = Reservation::new(2 * GRAIN, GRAIN).unwrap();
    // SAFETY: all of it is mapped.
    unsafe { range.populate(GRAIN, 2 * GRAIN) };
}

#[test]
#[should_panic(expected = "not whole pages")]
fn populate_of_part_of_a_page_panics() {
    let range = Reservation::new(2 * GRAIN, GRAIN).unwrap();
    // SAFETY: all of it is mapped.
    unsafe { range.populate(64, GRAIN) };
}

#[test]
fn released_pages_are_absent_and_read_zero() {
    let mut range = Reservation::new(8 * GRAIN, GRAIN).unwrap();
    bytes(&mut range).fill(0xff);
    // SAFETY: this thread is the range's only user.
    unsafe { range.release(2 * GRAIN, 4 * GRAIN) }.unwrap();
    assert_eq!(resident(&range, 2 * GRAIN, 4 * GRAIN), 0);
    let all = bytes(&mut range);
    assert!(all[2 * GRAIN..6 * GRAIN].iter().all(|&b| b == 0));
    assert!(all[..2 * GRAIN].iter().chain(&all[6 * GRAIN..]).all(|&b| b == 0xff));
}

#[test]
fn replaced_pages_are_zero_and_writable_whatever_they_were() {
    let mut range = Reservation::new(4 * GRAIN, GRAIN).unwrap();
    bytes(&mut range).fill(0xff);
    // SAFETY: the test's own pages.
    let rc = unsafe { libc::mprotect(range.at(GRAIN, GRAIN), GRAIN, libc::PROT_NONE) };
    assert_eq!(rc, 0);
    // SAFETY: this thread is the range's only user.
    unsafe { range.replace(GRAIN, 2 * GRAIN) }.unwrap();
    let all = bytes(&mut range);
    assert!(all[GRAIN..3 * GRAIN].iter().all(|&b| b == 0));
    assert!(all[..GRAIN].iter().chain(&all[3 * GRAIN..]).all(|&b| b == 0xff));
    all[GRAIN] = 9;
    assert_eq!(all[GRAIN], 9);
}

#[test]
fn what_is_offered_is_zero_or_as_it_was_until_it_is_written() {
    let range = Reservation::new(4 * MIB, 2 * MIB).unwrap();
    let bytes = range.at(0, 4 * MIB).cast::<u8>();
    // SAFETY: the range is the test's.
    unsafe {
        bytes.write_bytes(7, 2 * MIB);
        range.lazy_free(0, 4 * MIB).unwrap();
        bytes.write(1);
        assert_eq!(bytes.read(), 1);
        assert!((1..2 * MIB).step_by(64).all(|at| matches!(bytes.add(at).read(), 0 | 7)));
        assert_eq!(bytes.add(3 * MIB).read(), 0);
    }
}

#[test]
fn advice_is_taken_or_refused_as_unknown() {
    let range = Reservation::new(4 * MIB, 2 * MIB).unwrap();
    for advised in [range.advise_huge(0, 4 * MIB), range.advise_small(2 * MIB, 2 * MIB)] {
        match advised {
            Ok(()) | Err(Errno::INVAL) => {}
            Err(other) => panic!("{other:?}"),
        }
    }
}
