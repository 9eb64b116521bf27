//! The map beside a plain vector, and its races under loom.

use super::*;

fn span(first: u32, slices: u32) -> Span {
    Span::new(PageId(first * SLICE), slices * SLICE)
}

#[cfg(not(loom))]
mod vector {
    use proptest::prelude::*;

    use super::*;
    use crate::map::search::{Price, Wanted};
    use crate::units::Order;

    const HUGES: u32 = 20;
    const ALL: u32 = HUGES * SLICES;
    /// Huge blocks of the largest zone.
    const FAR: u32 = 2 << 20;

    /// A slice as the model knows it.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    struct Known {
        free: bool,
        state: PageState,
    }

    #[derive(Clone, Copy, Debug)]
    enum Op {
        Put(u32, u32),
        Take(u32, u32),
        Set(u32, u32, PageState),
    }

    fn state() -> impl Strategy<Value = PageState> {
        use PageState::*;
        prop_oneof![4 => Just(Absent), 4 => Just(Dirty), 4 => Just(Zero), 1 => Just(Remapped)]
    }

    fn op() -> impl Strategy<Value = Op> {
        let place = || (0..ALL, prop_oneof![3 => 1..12u32, 1 => 1..4 * SLICES]);
        prop_oneof![
            place().prop_map(|(first, len)| Op::Put(first, len)),
            place().prop_map(|(first, len)| Op::Take(first, len)),
            (place(), state()).prop_map(|((first, len), state)| Op::Set(first, len, state)),
        ]
    }

    /// Does to the map and to the model what the owners of its slices may do.
    fn apply(map: &Map, model: &mut [Known], op: Op) {
        let (first, len) = match op {
            Op::Put(first, len) | Op::Take(first, len) | Op::Set(first, len, _) => (first, len),
        };
        let len = len.min(ALL - first);
        let range = first as usize..(first + len) as usize;
        let free = |is: bool| model[range.clone()].iter().all(|known| known.free == is);
        let owned = free(false);
        match op {
            Op::Put(..) if owned => map.put(Run::taken(span(first, len))),
            Op::Set(.., state) if owned => map.set(span(first, len), state),
            Op::Take(..) => {
                assert_eq!(map.take(span(first, len)).map(Run::into_span).is_some(), free(true));
            }
            _ => return,
        }
        let taken = free(true);
        for known in &mut model[range] {
            match op {
                Op::Put(..) => known.free = true,
                Op::Take(..) => known.free = known.free && !taken,
                Op::Set(.., state) => known.state = state,
            }
        }
    }

    fn tally(model: &[Known]) -> Tally {
        let pages =
            |state| model.iter().filter(|known| known.state == state).count() as u32 * SLICE;
        Tally {
            absent: pages(PageState::Absent),
            zero: pages(PageState::Zero),
            dirty: pages(PageState::Dirty),
            remapped: pages(PageState::Remapped),
        }
    }

    /// The maximal runs for which something holds, as first slices and lengths.
    fn runs(is: impl Fn(usize) -> bool) -> Vec<Span> {
        let mut runs: Vec<Span> = Vec::new();
        for at in (0..ALL as usize).filter(|&at| is(at)) {
            match runs.last_mut().filter(|run| run.end() == at as u32 * SLICE) {
                Some(run) => run.pages += SLICE,
                None => runs.push(span(at as u32, 1)),
            }
        }
        runs
    }

    fn check(map: &Map, model: &[Known]) {
        let free: Vec<Known> = model.iter().copied().filter(|known| known.free).collect();
        let sums = tally(&free);
        assert_eq!((map.sums.zero(), map.sums.dirty()), (sums.zero, sums.dirty));
        assert_eq!(map.sums.free(), sums.zero + sums.dirty + sums.absent);
        assert!(map.free_runs().eq(runs(|at| model[at].free)));
        for state in [PageState::Absent, PageState::Dirty, PageState::Zero, PageState::Remapped] {
            let expected = runs(|at| model[at].state == state);
            assert!(map.runs_of(span(0, ALL), state).eq(expected), "{state:?}");
        }
        for at in 0..HUGES {
            let part = &model[(at * SLICES) as usize..((at + 1) * SLICES) as usize];
            let has = |n: u32| part.windows(1 << n).any(|run| run.iter().all(|known| known.free));
            let lies = |is: fn(PageState) -> bool| part.iter().any(|k| k.free && is(k.state));
            let mut summary = (0..6).fold(0, |bits, n| bits | u8::from(has(n)) << n);
            let resident = |state| matches!(state, PageState::Dirty | PageState::Zero);
            summary |= if lies(resident) { RESIDENT } else { 0 };
            summary |= if lies(|state| state == PageState::Zero) { ZERO } else { 0 };
            assert_eq!(map.summary(at), summary, "huge block {at}");
        }
    }

    fn whole(model: &[Known], huge: u32) -> bool {
        let part = (huge * SLICES) as usize..((huge + 1) * SLICES) as usize;
        model[part].iter().all(|known| known.free)
    }

    /// A thread that the child of a fork has lost may have stopped between a slice and its summary.
    #[test]
    fn a_take_that_fails_mends_the_summary() {
        let map = Map::new(1).unwrap();
        map.put(Run::taken(span(0, SLICES)));
        map.huge[0].free.fetch_and(!1, Relaxed);
        assert_eq!(map.summary(0) & WHOLE, WHOLE, "stale");
        assert!(map.take(span(0, SLICES)).is_none());
        assert_eq!(map.summary(0), map.summary_of(0));
        assert!(map.whole_runs(1, 1).next().is_none());
    }

    const PRICES: [Price; 6] = [
        Price::FOR_ZERO,
        Price::CLEARABLE,
        Price::ALL_ZERO,
        Price::PLAIN_RESIDENT,
        Price::PLAIN_ANY,
        Price::BENEATH,
    ];

    proptest! {
        #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn map_agrees_with_a_vector(ops in prop::collection::vec(op(), 0..80)) {
            let map = Map::new(HUGES).unwrap();
            let mut model = vec![Known { free: false, state: PageState::Absent }; ALL as usize];
            for op in ops {
                apply(&map, &mut model, op);
                check(&map, &model);
            }
        }

        /// Free memory in a zone of 4 TiB is found wherever it lies, and what was free once is no more.
        #[test]
        fn what_is_free_is_found_far_from_the_rest(
            free in prop::collection::btree_map(0..FAR / 4, 1..4 * SLICES, 0..12),
            gone in prop::collection::btree_set(0..FAR / 4, 0..3),
        ) {
            let map = Map::new(FAR).unwrap();
            let runs: Vec<Span> = free.iter().map(|(&at, &len)| span(at * 4 * SLICES, len)).collect();
            runs.iter().for_each(|&run| map.put(Run::taken(run)));
            for huge in gone.iter().filter(|huge| !free.contains_key(huge)) {
                let run = span(huge * 4 * SLICES, 1);
                map.put(Run::taken(run));
                prop_assert!(map.take(run).is_some());
            }
            prop_assert!(map.free_runs().eq(runs.iter().copied()));
            let whole = runs.iter().map(|run| run.first.huge() as u32..run.end() / HUGE_PAGES);
            let whole: Vec<_> = whole.filter(|run| !run.is_empty()).collect();
            prop_assert!(map.whole_runs(1, u32::MAX).eq(whole));
            let wanted = Wanted { pages: SLICE, align: Order::SLICE, price: Price::BENEATH, places: FAR };
            let best = map.best(wanted).map(|best| best.span.first);
            prop_assert_eq!(best.is_some(), !runs.is_empty());
            prop_assert!(best.is_none_or(|first| map.is_free(Span::new(first, SLICE))));
        }

        /// The walk over long runs tells each place of `least` huge blocks once at least, whatever the parts.
        #[test]
        fn whole_runs_have_every_place(
            ops in prop::collection::vec(op(), 0..60),
            (least, most) in (1..6u32, 1..9u32),
        ) {
            let map = Map::new(HUGES).unwrap();
            let mut model = vec![Known { free: false, state: PageState::Absent }; ALL as usize];
            ops.into_iter().for_each(|op| apply(&map, &mut model, op));
            let fits = |at: &u32| (*at..at + least).all(|huge| whole(&model, huge));
            let expected: Vec<u32> = (0..=HUGES - least).filter(fits).collect();
            let places = map.whole_runs(least, most).flat_map(|run| run.start..=run.end - least);
            let mut places: Vec<u32> = places.collect();
            places.dedup();
            prop_assert_eq!(places, expected);
        }

        /// Within a huge block no other place is cheaper than the one that is found; the first of them is it.
        #[test]
        fn search_finds_the_cheapest_place(
            ops in prop::collection::vec(op(), 0..60),
            len in 1..SLICES,
            align in 0..10u32,
            price in 0..PRICES.len(),
            places in 0..=HUGES,
        ) {
            let map = Map::new(HUGES).unwrap();
            let mut model = vec![Known { free: false, state: PageState::Absent }; ALL as usize];
            ops.into_iter().for_each(|op| apply(&map, &mut model, op));
            let (price, align) = (PRICES[price], Order::new(align).unwrap());
            let cost = |at: u32| {
                let part = &model[at as usize..(at + len) as usize];
                let serves = at % SLICES + len <= SLICES && PageId(at * SLICE).is_aligned(align);
                let free = part.iter().all(|known| known.free);
                if serves && free { price.of(tally(part)) } else { None }
            };
            let least = (0..=ALL - len).filter_map(cost).min();
            let wanted = Wanted { pages: len * SLICE, align, price, places };
            let found = map.best(wanted);
            let found = found.map(|best| cost(best.span.first.0 / SLICE).expect("it serves"));
            prop_assert_eq!(found, least);
            let any = (0..=ALL - len).any(|at| {
                let part = &model[at as usize..(at + len) as usize];
                let serves = at % SLICES + len <= SLICES && PageId(at * SLICE).is_aligned(align);
                serves && part.iter().all(|k| k.free && k.state != PageState::Remapped)
            });
            prop_assert_eq!(map.has_room(wanted), any);
        }

        /// So does a search for huge blocks, at the places that it looks at.
        #[test]
        fn search_of_huge_blocks_finds_what_serves(
            ops in prop::collection::vec(op(), 0..30),
            pages in 1..5 * HUGE_PAGES,
            align in 9..12u32,
            price in 0..PRICES.len(),
        ) {
            let map = Map::new(HUGES).unwrap();
            let mut model = vec![Known { free: true, state: PageState::Absent }; ALL as usize];
            map.put(Run::taken(span(0, ALL)));
            ops.into_iter().for_each(|op| apply(&map, &mut model, op));
            let pages = crate::units::whole(pages.max(HUGE_PAGES));
            let (price, align) = (PRICES[price], Order::new(align).unwrap());
            let found = map.best(Wanted { pages, align, price, places: HUGES });
            let serves = |huge: u32| {
                let blocks = pages.div_ceil(HUGE_PAGES);
                let first = (huge * SLICES) as usize;
                let ends = huge + blocks <= HUGES && (huge * HUGE_PAGES).is_multiple_of(align.pages());
                ends && (huge..huge + blocks).all(|at| whole(&model, at))
                    && price.of(tally(&model[first..first + (pages / SLICE) as usize])).is_some()
            };
            if let Some(best) = found {
                prop_assert!(serves(best.span.first.huge() as u32) && best.span.pages == pages);
            } else {
                prop_assert!(!(0..HUGES).any(serves));
            }
        }
    }
}

#[cfg(loom)]
mod race {
    use loom::sync::Arc;
    use loom::thread;

    use super::*;

    /// Runs `one` and `other` at once on a map of one huge block on which `before` was run, and shows what came of it
    /// to `after`. The summary then agrees with the slices.
    fn race<A: Send + 'static>(
        before: fn(&Map),
        one: fn(&Map) -> A,
        other: fn(&Map) -> A,
        after: fn(u32, A, A),
    ) {
        loom::model(move || {
            let map = Arc::new(Map::new(1).unwrap());
            before(&map);
            let theirs = {
                let map = map.clone();
                thread::spawn(move || other(&map))
            };
            let ours = one(&map);
            let theirs = theirs.join().unwrap();
            assert_eq!(map.summary(0), map.summary_of(0), "no search misses what is free");
            after(map.free_in(0), ours, theirs);
        });
    }

    fn put(map: &Map, first: u32, slices: u32) {
        map.put(Run::taken(span(first, slices)));
    }

    fn take(map: &Map, first: u32, slices: u32) -> bool {
        map.take(span(first, slices)).map(Run::into_span).is_some()
    }

    #[test]
    fn neighbours_that_come_back_at_once_are_one_run() {
        race(
            |_| (),
            |map| put(map, 0, 2),
            |map| put(map, 2, 2),
            |free, (), ()| assert_eq!(free, 0xF),
        );
    }

    #[test]
    fn a_slice_is_taken_while_its_neighbour_comes_back() {
        race(
            |map| put(map, 0, 1),
            |map| take(map, 0, 1),
            |map| {
                put(map, 1, 1);
                true
            },
            |free, taken, _| assert!(taken && free == 2),
        );
    }

    #[test]
    fn spans_that_overlap_have_one_owner() {
        race(
            |map| put(map, 0, 4),
            |map| take(map, 0, 3),
            |map| take(map, 1, 3),
            |free, one, other| assert!(one != other && free == if one { 8 } else { 1 }),
        );
    }

    #[test]
    fn what_is_recorded_comes_with_the_slice() {
        race(
            |_| (),
            |map| {
                map.set(span(0, 1), PageState::Zero);
                put(map, 0, 1);
                true
            },
            |map| !take(map, 0, 1) || map.state(PageId(0)) == PageState::Zero,
            |_, _, good| assert!(good),
        );
    }
}
