//! Links `libprezero.so` so that `dlclose` never unmaps it: blocks, exit handlers and
//! scrubd outlive whoever loaded it by hand.

fn main() {
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
    println!("cargo::rerun-if-changed=build.rs");
}
