//! Links the library so that `dlclose` never unmaps it: what it exports stays called. And without
//! the shared unwinder, and glibc's dynamic linker by name: see `link/libgcc_s.so` and `link/glibc/libc.so`.

fn main() {
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
    println!("cargo::rustc-cdylib-link-arg=-L{}/../../link", env!("CARGO_MANIFEST_DIR"));
    if std::env::var("CARGO_CFG_TARGET_ENV").is_ok_and(|libc| libc == "gnu") {
        println!("cargo::rustc-cdylib-link-arg=-L{}/../../link/glibc", env!("CARGO_MANIFEST_DIR"));
    }
    // `dlsym` is this library's own, and exported.
    println!("cargo::rustc-cfg=own_dlsym");
    println!("cargo::rerun-if-changed=../../link/libgcc_s.so");
    println!("cargo::rerun-if-changed=../../link/glibc/libc.so");
}
