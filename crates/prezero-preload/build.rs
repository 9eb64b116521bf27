//! Links `libprezero.so` so that `dlclose` never unmaps it: blocks, exit handlers and
//! scrubd outlive the code that loaded it by hand. And without the shared unwinder, and glibc's
//! dynamic linker by name: see `link/libgcc_s.so` and `link/glibc/libc.so`.

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
    println!("cargo::rustc-cfg=own_pthread_create");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
    // The number counts changes of `prezero.h` after which a program must be built anew.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libprezero.so.0");
    println!("cargo::rustc-cdylib-link-arg=-L{}/../../link", env!("CARGO_MANIFEST_DIR"));
    println!(
        "cargo::rustc-cdylib-link-arg=-Wl,-T,{}/../../link/hot.ld",
        env!("CARGO_MANIFEST_DIR")
    );
    if std::env::var("CARGO_CFG_TARGET_ENV").is_ok_and(|libc| libc == "gnu") {
        println!("cargo::rustc-cdylib-link-arg=-L{}/../../link/glibc", env!("CARGO_MANIFEST_DIR"));
    }
    println!("cargo::rerun-if-changed=../../link/libgcc_s.so");
    println!("cargo::rerun-if-changed=../../link/glibc/libc.so");
    println!("cargo::rerun-if-changed=../../link/hot.ld");
}
