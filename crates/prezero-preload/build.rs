//! Links `libprezero.so` so that `dlclose` never unmaps it: blocks, exit handlers and
//! scrubd outlive whoever loaded it by hand. And without the shared unwinder: see
//! `link/libgcc_s.so`.

fn main() {
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
    println!("cargo::rustc-cdylib-link-arg=-L{}/../../link", env!("CARGO_MANIFEST_DIR"));
    println!(
        "cargo::rustc-cdylib-link-arg=-Wl,-T,{}/../../link/hot.ld",
        env!("CARGO_MANIFEST_DIR")
    );
    println!("cargo::rerun-if-changed=../../link/libgcc_s.so");
    println!("cargo::rerun-if-changed=../../link/hot.ld");
}
