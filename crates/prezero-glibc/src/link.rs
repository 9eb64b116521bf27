//! What the build scripts of programs and preloaded libraries ask of the linker.
//!
//! The scripts for it lie in `link/` of this package, so that each crate links in the same way in the repository and
//! by itself.
#![expect(clippy::print_stdout, reason = "that is how a build script tells cargo")]

const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/link");

/// A program without the shared unwinder.
pub fn program() {
    println!("cargo::rustc-link-arg-bins=-L{FOLDER}/gcc");
    println!("cargo::rerun-if-changed={FOLDER}");
}

/// A library that `dlclose` never unmaps: what it exports stays called, and its threads stay. Without the shared unwinder,
/// and in a program of glibc without its dynamic linker by name.
pub fn library() {
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
    println!("cargo::rustc-cdylib-link-arg=-L{FOLDER}/gcc");
    if std::env::var("CARGO_CFG_TARGET_ENV").is_ok_and(|libc| libc == "gnu") {
        println!("cargo::rustc-cdylib-link-arg=-L{FOLDER}/glibc");
    }
    println!("cargo::rerun-if-changed={FOLDER}");
}
