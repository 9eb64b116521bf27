//! Compiles the benchmarks' workers, so that the command carries them inside, and the loop
//! that is timed, which the command runs too.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Each is a program: `bench/NAME.c`, in a folder or not, and what it shares with others.
const WORKERS: &str = "programs/ablate,programs/busy loop,programs/fork,programs/grow,programs/parts loop,\
    programs/single,programs/small,programs/thin,programs/verify,touch loop,pair,disturb,waste,lease,pinned,\
    restore,seeds/faults,seeds/write,seeds/lmbench,seeds/resident";

fn main() {
    let sources = PathBuf::from(env("CARGO_MANIFEST_DIR")).join("../../bench");
    let out = PathBuf::from(env("OUT_DIR"));
    prezero_glibc::link::program();
    println!("cargo::rerun-if-env-changed=CC");
    for shared in
        ["loop.h", "worker.h", "seeds/seed.h", "../crates/prezerod/include/prezero_lease.h"]
    {
        println!("cargo::rerun-if-changed={}", sources.join(shared).display());
    }
    let mut carried = String::from("&[");
    for files in WORKERS.split(',') {
        let files: Vec<_> = files.split(' ').map(|file| format!("{file}.c")).collect();
        let name = files[0].rsplit('/').next().unwrap_or_default().trim_end_matches(".c");
        compile(&sources, &files, &[], &out.join(name));
        carried += &format!("({name:?}, include_bytes!({:?})),", out.join(name));
    }
    std::fs::write(out.join("workers.rs"), carried + "]").expect("a file in OUT_DIR");
    let library = ["-shared", "-fPIC", "-fno-plt"];
    compile(&sources, &["passes_on.c"], &library, &out.join("passes_on.so"));
    let object = out.join("loop.o");
    compile(&sources, &["loop.c"], &["-c"], &object);
    println!("cargo::rustc-link-arg={}", object.display());
}

fn compile<S: AsRef<Path>>(folder: &Path, files: &[S], how: &[&str], product: &Path) {
    let files: Vec<_> = files.iter().map(|file| folder.join(file)).collect();
    for file in &files {
        println!("cargo::rerun-if-changed={}", file.display());
    }
    let compiler = std::env::var("CC").unwrap_or_else(|_| "cc".into());
    let mut command = Command::new(&compiler);
    command.args(["-O2", "-pthread"]).args(how).arg("-o").arg(product).args(&files);
    if files.iter().any(|file| file.parent().is_some_and(|folder| folder.ends_with("programs"))) {
        // Blocks that are not read must not be left out.
        command.arg("-fno-builtin");
    }
    if how.is_empty() {
        // For C libraries that keep `dlsym` apart.
        command.arg("-ldl");
    }
    match command.status() {
        Ok(status) if status.success() => {}
        Ok(status) => println!("cargo::error={compiler} {}: {status}", product.display()),
        Err(error) => println!("cargo::error={compiler}: {error}; install a C compiler or set CC"),
    }
}

fn env(name: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| panic!("cargo sets {name}"))
}
