//! Links `prezero` without the shared unwinder: see `link/libgcc_s.so`.

fn main() {
    println!("cargo::rustc-link-arg-bins=-L{}/../../link", env!("CARGO_MANIFEST_DIR"));
    println!("cargo::rerun-if-changed=../../link/libgcc_s.so");
}
