//! Links `prezerod` without the shared unwinder, in the repository: see `link/libgcc_s.so`. A package of the crate has no
//! such folder, and links as any program does.

fn main() {
    let link = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../link");
    if link.is_dir() {
        println!("cargo::rustc-link-arg-bins=-L{}", link.display());
        println!("cargo::rerun-if-changed=../../link/libgcc_s.so");
    } else {
        println!("cargo::rerun-if-changed=build.rs");
    }
}
