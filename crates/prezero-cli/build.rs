//! Compiles the benchmarks' workers, `bench/*.c`, so that the command carries them inside.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Each becomes a program of its own.
const WORKERS: [&str; 2] = ["touch", "pair"];

fn main() {
    let sources = PathBuf::from(env("CARGO_MANIFEST_DIR")).join("../../bench");
    println!("cargo::rerun-if-changed={}", sources.join("worker.h").display());
    println!("cargo::rerun-if-env-changed=CC");
    for worker in WORKERS {
        compile(&sources, worker);
    }
}

fn compile(sources: &Path, worker: &str) {
    let source = sources.join(worker).with_extension("c");
    println!("cargo::rerun-if-changed={}", source.display());
    let compiler = std::env::var("CC").unwrap_or_else(|_| "cc".into());
    let program = PathBuf::from(env("OUT_DIR")).join(worker);
    let mut command = Command::new(&compiler);
    match command.args(["-O2", "-pthread", "-o"]).arg(program).arg(&source).status() {
        Ok(status) if status.success() => {}
        Ok(status) => println!("cargo::error={compiler} {}: {status}", source.display()),
        Err(error) => println!("cargo::error={compiler}: {error}; install a C compiler or set CC"),
    }
}

fn env(name: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| panic!("cargo sets {name}"))
}
