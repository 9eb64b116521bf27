//! Which QEMU `prezero-qemu` becomes.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use prezero_command::program;

/// Names the QEMU to become.
const VARIABLE: &str = "PREZERO_QEMU";
/// What our own names begin with.
const OURS: &str = "prezero-";
/// Where a QEMU lies that is not in `PATH`.
const PLACES: &str = "/usr/local/bin:/usr/bin:/usr/libexec";

/// The program, for a process that was started by this name.
pub fn find(name: &OsStr) -> Result<PathBuf, String> {
    let own = std::env::current_exe().and_then(|path| path.canonicalize()).ok();
    if let Some(path) = std::env::var_os(VARIABLE).filter(|path| !path.is_empty()) {
        let named = program::find(&path, std::env::var_os("PATH"))
            .map_err(|missing| format!("{VARIABLE}: {missing}"))?;
        // It would become itself without end.
        if own.is_some() && named.canonicalize().ok() == own {
            return Err(format!(
                "{VARIABLE}: {} is prezero-qemu itself; name a QEMU",
                named.display()
            ));
        }
        return Ok(named);
    }
    let path = std::env::var_os("PATH").filter(|path| !path.is_empty());
    let found = names(name).into_iter().find_map(|name| {
        let mut places = path.clone().unwrap_or_default();
        places.push(":");
        places.push(PLACES);
        let found = std::env::split_paths(&places)
            .filter_map(|place| program::find(place.join(&name).as_os_str(), None).ok());
        let mut others = found.filter(|path| path.canonicalize().ok() != own);
        others.next()
    });
    found.ok_or_else(|| {
        let names = names(name).join(", ");
        format!("no {names} in PATH or {PLACES}; {VARIABLE} names another place")
    })
}

/// What it may be called.
fn names(own: &OsStr) -> Vec<String> {
    let own = Path::new(own).file_name().and_then(OsStr::to_str).unwrap_or_default();
    match own.strip_prefix(OURS) {
        Some("qemu") | None => {
            let here = format!("qemu-system-{}", std::env::consts::ARCH);
            vec![here, "qemu-kvm".into(), "kvm".into()]
        }
        Some(name) => vec![name.into()],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn its_name_tells_which_qemu_it_becomes() {
        let names = |name: &str| names(OsStr::new(name));
        assert_eq!(names("/usr/bin/prezero-qemu-system-aarch64"), ["qemu-system-aarch64"]);
        assert_eq!(names("prezero-qemu")[1..], ["qemu-kvm", "kvm"]);
        assert_eq!(names("/usr/bin/prezero-qemu-kvm"), ["qemu-kvm"]);
        assert!(names("renamed")[0].starts_with("qemu-system-"));
    }
}
