//! Links `libprezero_numpy.so` so that `dlclose` never unmaps it: arrays and scrubd outlive the module that loaded it.

fn main() {
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
    println!("cargo::rerun-if-changed=build.rs");
}
