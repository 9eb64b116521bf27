//! The command `prezero-qemu`: see `prezero_cli::emulator`.

use std::process::ExitCode;

fn main() -> ExitCode {
    prezero_cli::emulator::main()
}
