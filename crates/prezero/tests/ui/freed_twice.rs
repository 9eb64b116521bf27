//! A block goes back once.

use prezero::{Anonymous, Block, Dirty, Zone};

fn twice(zone: &Zone<Anonymous>, block: Block<Dirty>) {
    zone.free(block);
    zone.free(block);
}

fn main() {}
