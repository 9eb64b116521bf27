//! What one CPU's lists do for another.

use prezero_sys::thread;

use super::super::fake::pass;
use super::super::world::{World, is_zero};
use super::SMALL;
use crate::class::Class;
use crate::cpu::list::{Entry, Held};
use crate::map::state::PageState;
use crate::units::Span;
use crate::zone::request::HOT_NS;

#[test]
fn another_cpus_lists_are_drained_before_memory_is_faulted_in() {
    let world = World::new(4);
    let class = Class::of(SMALL).unwrap();
    let other = (thread::current_cpu() + 1) % world.zone.cpus.len();
    if other == thread::current_cpu() {
        return; // a machine with one CPU
    }
    let blocks = [(); 3].map(|()| world.plain(SMALL));
    let there = blocks.map(|block| {
        world.fill(block.first(), SMALL, 1);
        world.zone.pool.map.set(Span::new(block.first(), SMALL), PageState::Dirty);
        let entry = Entry::new(block.first(), Held::Mixed, world.zone.pool.clock.tick());
        world.zone.file(&world.zone.cpus[other], class, entry);
        block.first()
    });

    pass(2 * HOT_NS);
    let plain = world.plain(SMALL);
    let zero = world.zero(SMALL);

    let came = |first| there.contains(&first);
    assert!(came(plain.first()) && came(zero.first()), "they were drained into the pool");
    assert!(is_zero(&world.zone, &zero));
    world.zone.free(plain);
    world.zone.free(zero);
    world.assert_sound();
}
