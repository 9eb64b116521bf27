//! Compiles the benchmark's worker, `bench/touch.c`, so that the command carries it inside.

use std::path::PathBuf;
use std::process::Command;

fn main() {
    let source = PathBuf::from(env("CARGO_MANIFEST_DIR")).join("../../bench/touch.c");
    println!("cargo::rerun-if-changed={}", source.display());
    println!("cargo::rerun-if-env-changed=CC");

    let compiler = std::env::var("CC").unwrap_or_else(|_| "cc".into());
    let worker = PathBuf::from(env("OUT_DIR")).join("touch");
    let status = Command::new(&compiler).arg("-O2").arg("-o").arg(worker).arg(&source).status();
    match status {
        Ok(status) if status.success() => {}
        Ok(status) => println!("cargo::error={compiler} {}: {status}", source.display()),
        Err(error) => println!("cargo::error={compiler}: {error}; install a C compiler or set CC"),
    }
}

fn env(name: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| panic!("cargo sets {name}"))
}
