//! Links `libprezero.so`, which has a name for programs that are built with it, and what a hit runs through in one place.

use std::path::Path;

fn main() {
    // Cargo names a profile in no other place: target/PROFILE/build/PACKAGE/out.
    let out = std::env::var("OUT_DIR").unwrap_or_default();
    let profile = Path::new(&out).ancestors().nth(3).and_then(Path::file_name);
    if profile.is_some_and(|profile| profile == "release") {
        println!(
            "cargo::warning=without link-time optimisation: users get --profile library, by make build"
        );
    }
    prezero_glibc::link::library();
    // The number counts changes of `prezero.h` after which a program must be built anew.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libprezero.so.0");
    let hot = concat!(env!("CARGO_MANIFEST_DIR"), "/link/hot.ld");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-T,{hot}");
    println!("cargo::rerun-if-changed={hot}");
}
