//! `prezero engines`: how this CPU can clear memory, and how fast each way is.

use comfy_table::{CellAlignment, Table, presets::UTF8_BORDERS_ONLY};
use prezero::clear::{self, Cache, ClearEngine};

use crate::bare::{self, Memory};

/// What fits into a core's own cache.
const HOT: usize = 1 << 20;
/// What fits into no cache's fair share.
const LARGE: usize = 256 << 20;

/// Measures and prints every engine.
///
/// # Errors
/// Standard output takes no more.
pub fn list() -> std::io::Result<()> {
    let memory = Memory::new(LARGE);
    let mut table = Table::new();
    table.load_style(UTF8_BORDERS_ONLY);
    table.set_header(["engine", "leaves the lines", "revocable", "1M GB/s", "256M GB/s", "chosen"]);
    let chosen = memory.calibrated();
    for engine in clear::engines() {
        let is = |other: &dyn ClearEngine| other.name() == engine.name();
        let roles = [
            is(chosen.cached).then_some("cached"),
            is(chosen.bypassing).then_some("bypassing"),
            chosen.demoting.is_some_and(is).then_some("demoting"),
        ];
        table.add_row([
            engine.name().to_string(),
            place(engine.cache()).to_string(),
            if engine.revocable() { "yes" } else { "no" }.to_string(),
            format!("{:.1}", bare::rate(engine, &memory, HOT)),
            format!("{:.1}", bare::rate(engine, &memory, LARGE)),
            roles.into_iter().flatten().collect::<Vec<_>>().join(", "),
        ]);
    }
    for column in table.column_iter_mut().skip(3).take(2) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    prezero_sys::print!("{table}\n")
}

fn place(cache: Cache) -> &'static str {
    match cache {
        Cache::Cached => "in the core's cache",
        Cache::Bypassing => "in memory",
        Cache::Demoted => "in the shared cache",
    }
}
