//! Each of these relies on a promise of its caller's.

use prezero::clear::{self, ClearEngine};
use prezero::{Anonymous, Backing, Block, Dirty, Global, PageId, Zone};

fn promises(zone: &Zone<Anonymous>, page: PageId, block: Block<Dirty>) {
    zone.before_fork();
    zone.after_fork_in_parent();
    zone.after_fork_in_child();
    zone.free(zone.adopt(page, 1));
    zone.mark_remapped(page, 1);
    zone.free_zeroed(block.assume_zero());
    let _ = zone.check();
    zone.shrink(0);
    zone.report_to(|_| ());
}

fn promises_of_others(backing: &Anonymous, engine: &'static dyn ClearEngine) {
    let _ = backing.hide(0, 4096);
    let _ = clear::register(engine);
    let _ = Global::over(std::alloc::System);
}

fn main() {}
