//! The socket for clients: where it is, and that only one broker serves on it.

use std::fmt;
use std::fs::{self, File, Permissions};
use std::io::ErrorKind;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, PermissionsExt};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, listen, socket_with,
};

use super::Options;
use crate::client::SOCKET;
use crate::settings::Settings;

/// Connections that may wait to be accepted.
const BACKLOG: i32 = 512;

/// See the module.
#[derive(Debug)]
pub struct Listener {
    socket: OwnedFd,
    /// What was bound here, and the lock that keeps others from it.
    bound: Option<(PathBuf, File)>,
}

/// Where clients look for the broker of this user.
pub fn path(options: &Options, settings: &Settings) -> Result<PathBuf, String> {
    if let Some(path) = options.socket.as_ref().or(settings.socket.as_ref()) {
        return Ok(path.clone());
    }
    if rustix::process::getuid().is_root() {
        return Ok(Path::new("/run").join(SOCKET));
    }
    let dir = std::env::var_os("XDG_RUNTIME_DIR").filter(|dir| !dir.is_empty());
    let dir =
        dir.ok_or("XDG_RUNTIME_DIR is not set; give --socket PATH, and clients PREZERO_SOCKET")?;
    Ok(Path::new(&dir).join(SOCKET))
}

impl Listener {
    /// What the service manager listens on.
    pub fn inherited(socket: OwnedFd) -> Result<Listener, String> {
        rustix::io::ioctl_fionbio(&socket, true).map_err(|error| format!("socket: {error}"))?;
        match rustix::net::sockopt::socket_type(&socket) {
            Ok(SocketType::SEQPACKET) => Ok(Listener { socket, bound: None }),
            _ => Err(
                "the socket that was handed over is no SOCK_SEQPACKET; set ListenSequentialPacket="
                    .into(),
            ),
        }
    }

    /// Binds `path`, which an earlier broker may have left behind.
    pub fn bind(path: &Path, mode: u32) -> Result<Listener, String> {
        let lock = reserve(path)?;
        let failed = |error| format!("{}: {error}; give --socket PATH", path.display());
        let (kind, flags) = (SocketType::SEQPACKET, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK);
        let socket = socket_with(AddressFamily::UNIX, kind, flags, None).map_err(failed)?;
        bind(&socket, &SocketAddrUnix::new(path).map_err(failed)?).map_err(failed)?;
        let permissions = Permissions::from_mode(mode);
        fs::set_permissions(path, permissions)
            .map_err(|error| format!("{}: {error}", path.display()))?;
        listen(&socket, BACKLOG).map_err(failed)?;
        Ok(Listener { socket, bound: Some((path.to_owned(), lock)) })
    }

    /// No more connections; the path is gone.
    pub fn close(&mut self) {
        if let Some((path, _lock)) = self.bound.take() {
            let _ = fs::remove_file(path);
        }
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl fmt::Display for Listener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.bound {
            Some((path, _)) => path.display().fmt(f),
            None => f.write_str("the service manager's socket"),
        }
    }
}

/// Makes the directory, keeps others from the path, and clears it of what they left.
fn reserve(path: &Path) -> Result<File, String> {
    let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mode = if rustix::process::getuid().is_root() { 0o755 } else { 0o700 };
    let made = fs::DirBuilder::new().recursive(true).mode(mode).create(dir);
    made.map_err(|error| format!("{}: {error}; give --socket PATH", dir.display()))?;
    let lock_path = path.with_extension("lock");
    let lock = File::options().create(true).truncate(false).write(true).open(&lock_path);
    let lock =
        lock.map_err(|error| format!("{}: {error}; give --socket PATH", lock_path.display()))?;
    if flock(&lock, FlockOperation::NonBlockingLockExclusive).is_err() {
        return Err(format!(
            "another prezerod serves on {}; stop it, or give --socket PATH",
            path.display()
        ));
    }
    match clear(path) {
        Err(error) => Err(format!("{}: {error}; give --socket PATH", path.display())),
        Ok(()) => Ok(lock),
    }
}

/// Removes the socket that an earlier broker left; anything else at a path that somebody
/// mistyped is not ours to remove.
fn clear(path: &Path) -> Result<(), String> {
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        Ok(info) if !info.file_type().is_socket() => {
            return Err("it exists and is no socket".into());
        }
        _ => {}
    }
    match fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error.to_string()),
        _ => Ok(()),
    }
}

/// A stream socket at a path; one that an earlier broker left there is removed.
pub fn bind_stream(path: &Path) -> Result<OwnedFd, String> {
    if let Some(dir) = path.parent() {
        let _ = fs::create_dir_all(dir);
    }
    clear(path).map_err(|error| format!("metrics: {}: {error}; give another", path.display()))?;
    let socket = UnixListener::bind(path);
    socket.map(OwnedFd::from).map_err(|error| format!("metrics: {}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_socket_that_was_left_is_replaced_and_nothing_else_is() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a");
        drop(UnixListener::bind(&path).unwrap());
        drop(Listener::bind(&path, 0o600).unwrap());
        assert!(bind_stream(&path).is_ok());
        let kept = dir.path().join("passwd");
        fs::write(&kept, "root").unwrap();
        let refused = Listener::bind(&kept, 0o600).unwrap_err();
        assert!(
            refused.ends_with("passwd: it exists and is no socket; give --socket PATH"),
            "{refused}"
        );
        assert!(bind_stream(&kept).unwrap_err().contains("no socket"));
        assert_eq!(fs::read(&kept).unwrap(), b"root");
    }
}
