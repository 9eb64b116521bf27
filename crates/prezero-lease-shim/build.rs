//! Links the library so that `dlclose` never unmaps it: what it exports stays called. And without
//! the shared unwinder: see `link/libgcc_s.so`.

fn main() {
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
    println!("cargo::rustc-cdylib-link-arg=-L{}/../../link", env!("CARGO_MANIFEST_DIR"));
    println!("cargo::rerun-if-changed=../../link/libgcc_s.so");
}
