//! The command `prezero`.

use std::process::ExitCode;

/// See `prezero_cli::given`.
#[used]
#[unsafe(link_section = ".init_array")]
static NOTE: extern "C" fn() = prezero_cli::given::note;

fn main() -> ExitCode {
    prezero_cli::main()
}
