//! The command `prezero`.

use std::process::ExitCode;

fn main() -> ExitCode {
    prezero_cli::main()
}
