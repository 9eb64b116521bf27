//! A block that counts as zero is not written to, and one that was written to does not count as zero.

use prezero::{Anonymous, Block, Zero, Zone};

fn written(zone: &Zone<Anonymous>, block: Block<Zero>) {
    let first: *mut u8 = zone.address(&block);
    unsafe { first.write(1) };
    zone.free_zeroed(block);
}

fn written_as_dirty(zone: &Zone<Anonymous>, block: Block<Zero>) {
    let block = block.into_dirty();
    unsafe { zone.address(&block).write(1) };
    let block: Block<Zero> = block;
    zone.free_zeroed(block);
}

fn main() {}
