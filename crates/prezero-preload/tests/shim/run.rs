//! Child processes with the shim in front of them.

use std::ffi::OsStr;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

pub use prezero_testing::until;

/// Where this crate lies.
pub const HERE: &str = env!("CARGO_MANIFEST_DIR");

/// The built library: the one named by `PREZERO_TEST_SO`, or made now, in the profile of
/// the tests.
pub fn shim() -> &'static Path {
    static SHIM: OnceLock<PathBuf> = OnceLock::new();
    SHIM.get_or_init(|| {
        if let Some(given) = std::env::var_os("PREZERO_TEST_SO") {
            return given.into();
        }
        // target/<profile>/deps/<test>
        let test = std::env::current_exe().expect("the test knows where it lies");
        let built = test.parent().and_then(Path::parent).expect("two folders up");
        let profile = match built.file_name().and_then(OsStr::to_str) {
            Some("debug") | None => "dev",
            Some(other) => other,
        };
        build(&["--profile", profile], built.parent().expect("three folders up"));
        built.join("libprezero.so")
    })
}

/// Builds the library with these options, below that folder.
pub fn build(options: &[&str], target: &Path) {
    let status = Command::new(env!("CARGO"))
        .args(["build", "--quiet", "--package", "prezero-preload"])
        .args(options)
        .arg("--manifest-path")
        .arg(Path::new(HERE).join("Cargo.toml"))
        .arg("--target-dir")
        .arg(target)
        .status()
        .expect("cargo runs");
    assert!(status.success(), "the shim does not build");
}

/// Compiles `tests/c/<source>` and says where the result lies.
pub fn compile(source: &str, flags: &[&str]) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(std::process::id().to_string());
    std::fs::create_dir_all(&folder).expect("a folder for what is compiled");
    // A name for each call: tests run side by side, and one may run what another compiles.
    static CALLS: AtomicUsize = AtomicUsize::new(0);
    let output = folder.join(format!("{source}.{}", CALLS.fetch_add(1, Ordering::Relaxed)));
    // -O1 and no builtins: the compiler must not reason about malloc for us.
    let done = Command::new("cc")
        .args(["-std=gnu11", "-Wall", "-Wno-unused-result", "-Wno-use-after-free", "-O1", "-g"])
        .args(["-fno-builtin", "-pthread", "-I"])
        .arg(Path::new(HERE).join("include"))
        .args(flags)
        .arg("-o")
        .arg(&output)
        .arg(Path::new(HERE).join("tests/c").join(source))
        .arg("-ldl")
        .output()
        .expect("a C compiler is installed");
    assert!(done.status.success(), "{source}: {}", String::from_utf8_lossy(&done.stderr));
    output
}

/// A command with a clean slate of our variables and no shim. A hang is an end too, after
/// the patience of `until` has ended.
pub fn bare(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new("timeout");
    command.args(["--signal=ABRT", "600"]).arg(program);
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("PREZERO_") {
            command.env_remove(name);
        }
    }
    command.env_remove("LD_PRELOAD").env("LC_ALL", "C");
    // The programs show what becomes of blocks, be they few or small: from 64 KiB on, whether they pay or not, and also where
    // no CPU idles.
    command.env("PREZERO_THRESHOLD", "64K").env("PREZERO_ABLATE", "backoff,cost-model");
    command
}

/// A command behind the shim. Every zero block is checked before it is handed out.
pub fn shimmed(program: impl AsRef<OsStr>) -> Command {
    let mut command = bare(program);
    command.env("LD_PRELOAD", shim()).env("PREZERO_VERIFY", "full");
    command
}

/// Runs a command that must end well and say nothing on stderr; its stdout.
pub fn run(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(output.status.success(), "{command:?}: {}", describe(&output));
    assert_eq!(text(&output.stderr), "", "{command:?}");
    text(&output.stdout)
}

/// Runs a command whatever its end.
pub fn ends(command: &mut Command) -> Output {
    command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"))
}

/// Bytes as text.
pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// An end in words.
pub fn describe(output: &Output) -> String {
    format!(
        "code {:?}, signal {:?}\n{}{}",
        output.status.code(),
        output.status.signal(),
        text(&output.stdout),
        text(&output.stderr)
    )
}

/// Runs a C test, compiled from this source, behind the shim.
pub fn run_c(source: &str) -> String {
    run(&mut shimmed(compile(source, &[])))
}
