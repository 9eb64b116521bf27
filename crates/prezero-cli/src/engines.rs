//! `prezero engines`: how this CPU can clear memory, and how fast each way is.

use comfy_table::{CellAlignment, Table, presets::UTF8_BORDERS_ONLY};
use prezero::clear::{self, Cache};

use crate::bare::{self, Memory};
use crate::letters;

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
    table.set_header(["engine", "leaves the lines", "1M GB/s", "256M GB/s", "chosen"]);
    for engine in clear::engines() {
        let chosen = clear::preferred(engine.cache()).name() == engine.name();
        table.add_row([
            engine.name().to_string(),
            place(engine.cache()).to_string(),
            format!("{:.1}", bare::rate(engine, &memory, HOT)),
            format!("{:.1}", bare::rate(engine, &memory, LARGE)),
            if chosen { "yes" } else { "" }.to_string(),
        ]);
    }
    for column in table.column_iter_mut().skip(2).take(2) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    prezero_sys::print!("{}\n", letters::shown(table.to_string()))
}

fn place(cache: Cache) -> &'static str {
    match cache {
        Cache::Cached => "in the core's cache",
        Cache::Bypassing => "in memory",
    }
}
