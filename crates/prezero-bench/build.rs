//! Compiles the benchmarks' workers, so that the command carries them inside, and the loop
//! that is timed, which the command runs too. Links the command without the shared unwinder: see
//! `link/libgcc_s.so`.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Each is a program: `bench/NAME.c` and what it shares with others.
const WORKERS: [(&str, &[&str]); 17] = [
    ("ablate", &["programs/ablate.c"]),
    ("busy", &["programs/busy.c", "loop.c"]),
    ("fork", &["programs/fork.c"]),
    ("grow", &["programs/grow.c"]),
    ("parts", &["programs/parts.c", "loop.c"]),
    ("single", &["programs/single.c"]),
    ("small", &["programs/small.c"]),
    ("thin", &["programs/thin.c"]),
    ("verify", &["programs/verify.c"]),
    ("touch", &["touch.c", "loop.c"]),
    ("pair", &["pair.c"]),
    ("disturb", &["disturb.c"]),
    ("waste", &["waste.c"]),
    ("faults", &["seeds/faults.c"]),
    ("write", &["seeds/write.c"]),
    ("lmbench", &["seeds/lmbench.c"]),
    ("resident", &["seeds/resident.c"]),
];

fn main() {
    let sources = PathBuf::from(env("CARGO_MANIFEST_DIR")).join("../../bench");
    let out = PathBuf::from(env("OUT_DIR"));
    println!("cargo::rustc-link-arg-bins=-L{}/../../link", env("CARGO_MANIFEST_DIR"));
    println!("cargo::rerun-if-changed=../../link/libgcc_s.so");
    println!("cargo::rerun-if-env-changed=CC");
    for shared in ["loop.h", "worker.h", "seeds/seed.h"] {
        println!("cargo::rerun-if-changed={}", sources.join(shared).display());
    }
    for (worker, files) in WORKERS {
        compile(&sources, files, &[], &out.join(worker));
    }
    let library = ["-shared", "-fPIC", "-fno-plt"];
    compile(&sources, &["passes_on.c"], &library, &out.join("passes_on.so"));
    let object = out.join("loop.o");
    compile(&sources, &["loop.c"], &["-c"], &object);
    println!("cargo::rustc-link-arg={}", object.display());
}

fn compile(folder: &Path, files: &[&str], how: &[&str], product: &Path) {
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
