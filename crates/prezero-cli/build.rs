//! Compiles the benchmarks' workers, `bench/*.c`, so that the command carries them inside.

use std::path::PathBuf;
use std::process::Command;

/// Each is one C file; `-ldl` is for C libraries that keep `dlsym` apart.
const WORKERS: [&str; 2] = ["touch", "waste"];

fn main() {
    println!("cargo::rerun-if-env-changed=CC");
    WORKERS.into_iter().for_each(compile);
}

fn compile(name: &str) {
    let folder = PathBuf::from(env("CARGO_MANIFEST_DIR")).join("../../bench");
    let source = folder.join(name).with_extension("c");
    println!("cargo::rerun-if-changed={}", source.display());

    let compiler = std::env::var("CC").unwrap_or_else(|_| "cc".into());
    let worker = PathBuf::from(env("OUT_DIR")).join(name);
    let mut command = Command::new(&compiler);
    match command.arg("-O2").arg("-o").arg(worker).arg(&source).arg("-ldl").status() {
        Ok(status) if status.success() => {}
        Ok(status) => println!("cargo::error={compiler} {}: {status}", source.display()),
        Err(error) => println!("cargo::error={compiler}: {error}; install a C compiler or set CC"),
    }
}

fn env(name: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| panic!("cargo sets {name}"))
}
