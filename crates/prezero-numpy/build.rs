//! Links `libprezero_numpy.so` so that `dlclose` never unmaps it: arrays and scrubd outlive the module that loaded it. And
//! without the shared unwinder, and glibc's dynamic linker by name: see `link/libgcc_s.so` and `link/glibc/libc.so`.

fn main() {
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
    println!("cargo::rustc-cdylib-link-arg=-L{}/../../link", env!("CARGO_MANIFEST_DIR"));
    if std::env::var("CARGO_CFG_TARGET_ENV").is_ok_and(|libc| libc == "gnu") {
        println!("cargo::rustc-cdylib-link-arg=-L{}/../../link/glibc", env!("CARGO_MANIFEST_DIR"));
    }
    println!("cargo::rerun-if-changed=../../link/libgcc_s.so");
    println!("cargo::rerun-if-changed=../../link/glibc/libc.so");
}
