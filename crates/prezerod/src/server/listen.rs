//! The socket for clients: where it is, and that only one broker serves on it.

use std::fmt;
use std::fs::{self, File, Permissions};
use std::io::ErrorKind;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, OFlags, flock};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, connect, listen, socket_with,
};

use prezero_sys::peer;

use super::Options;
use crate::client::SOCKET;
use crate::settings::Settings;

/// Connections that may wait to be accepted: a client waits for that number of others.
/// Moved by: `tests/system/attack.py`.
pub const BACKLOG: i32 = 64;

/// See the module.
#[derive(Debug)]
pub struct Listener {
    socket: OwnedFd,
    /// No connection brings descriptors.
    refuses_rights: bool,
    /// What was bound here, and the lock that keeps others from it.
    bound: Option<(PathBuf, File)>,
}

/// Endings of the broker's own files beside its socket.
const OWN: [&str; 5] = ["lock", "state", "new", "unread", "drained"];

/// Where clients look for the broker of this user; `None`: nowhere unless it is said.
///
/// # Errors
/// The broker's own files, or its metrics, would lie there.
pub fn place(options: &Options, settings: &Settings) -> Result<Option<PathBuf>, String> {
    let runtime = || std::env::var_os("XDG_RUNTIME_DIR").filter(|dir| !dir.is_empty());
    let path = match options.socket.as_ref().or(settings.socket.as_ref()) {
        Some(path) => path.clone(),
        None if rustix::process::getuid().is_root() => Path::new("/run").join(SOCKET),
        None => match runtime() {
            Some(dir) => Path::new(&dir).join(SOCKET),
            None => return Ok(None),
        },
    };
    if path.extension().is_some_and(|end| OWN.iter().any(|own| end == *own)) {
        let path = path.display();
        return Err(format!("socket = {path}: prezerod has a file of that name; give another"));
    }
    let own = OWN.iter().map(|end| path.with_extension(end)).chain([path.clone()]);
    if let Some(metrics) = settings.metrics.as_ref()
        && own.into_iter().any(|own| own == Path::new(metrics))
    {
        return Err(format!("metrics = {metrics}: the socket or a file of prezerod; give another"));
    }
    Ok(Some(path))
}

/// The same, of a broker that has to be somewhere.
///
/// # Errors
/// The same.
pub fn path(options: &Options, settings: &Settings) -> Result<PathBuf, String> {
    place(options, settings)?.ok_or_else(|| {
        "XDG_RUNTIME_DIR is not set; give --socket PATH, and clients PREZERO_SOCKET".into()
    })
}

impl Listener {
    /// What the service manager listens on.
    pub fn inherited(socket: OwnedFd) -> Result<Listener, String> {
        rustix::io::ioctl_fionbio(&socket, true).map_err(|error| format!("socket: {error}"))?;
        match rustix::net::sockopt::socket_type(&socket) {
            Ok(SocketType::SEQPACKET) => {
                // The manager's own queue may be longer.
                listen(&socket, BACKLOG).map_err(|error| format!("socket: {error}"))?;
                // A client that connected before may have sent some.
                let _ = peer::refuse_rights(socket.as_fd());
                Ok(Listener { socket, refuses_rights: false, bound: None })
            }
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
        let refuses_rights = peer::refuse_rights(socket.as_fd()).is_ok();
        bind(&socket, &SocketAddrUnix::new(path).map_err(failed)?).map_err(failed)?;
        let permissions = Permissions::from_mode(mode);
        fs::set_permissions(path, permissions)
            .map_err(|error| format!("{}: {error}", path.display()))?;
        listen(&socket, BACKLOG).map_err(failed)?;
        Ok(Listener { socket, refuses_rights, bound: Some((path.to_owned(), lock)) })
    }

    /// Where it was bound; `None`: by the service manager.
    pub fn path(&self) -> Option<&Path> {
        self.bound.as_ref().map(|(path, _)| path.as_path())
    }

    /// Whether no connection can have brought a descriptor.
    pub fn refuses_rights(&self) -> bool {
        self.refuses_rights
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
    // One folder, as below a run-time directory. A path with more that are missing is mistyped.
    let made = match fs::DirBuilder::new().mode(mode).create(dir) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(()),
        made => made,
    };
    made.map_err(|error| format!("{}: {error}; give --socket PATH", dir.display()))?;
    let lock_path = path.with_extension("lock");
    let lock = open_lock(&lock_path)
        .map_err(|error| format!("{}: {error}; give --socket PATH", lock_path.display()))?;
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

/// The file beside the socket, made or left behind by this user. Where others may write, one of them
/// may have put something else there: a link that leads elsewhere, or a file that they lock.
fn open_lock(path: &Path) -> Result<File, String> {
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let mut options = File::options();
    options.create(true).truncate(false).write(true).mode(0o600);
    let file = options.custom_flags(flags.bits() as i32).open(path);
    let file = file.map_err(|error| match fs::symlink_metadata(path) {
        Ok(info) if info.is_symlink() => "it is a link; remove it".into(),
        _ => error.to_string(),
    })?;
    let info = file.metadata().map_err(|error| error.to_string())?;
    if !info.is_file() || info.uid() != rustix::process::geteuid().as_raw() {
        return Err("it is another user's, or no file; remove it".into());
    }
    Ok(file)
}

/// Removes the socket that an earlier broker left. What a program listens on, and anything else at a path that a user
/// mistyped, is not ours to remove.
fn clear(path: &Path) -> Result<(), String> {
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        Ok(info) if !info.file_type().is_socket() => {
            return Err("it exists and is no socket".into());
        }
        _ => {}
    }
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None);
    let address = SocketAddrUnix::new(path);
    match socket.and_then(|socket| connect(socket, &address?)) {
        // No program has it any more.
        Err(Errno::CONNREFUSED) => {}
        Err(Errno::NOENT) => return Ok(()),
        _ => return Err("another program serves there".into()),
    }
    match fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error.to_string()),
        _ => Ok(()),
    }
}

/// A stream socket at a path; one that an earlier broker left there is removed.
pub fn bind_stream(path: &Path) -> Result<OwnedFd, String> {
    if let Some(dir) = path.parent() {
        let _ = fs::create_dir(dir);
    }
    clear(path).map_err(|error| format!("metrics: {}: {error}; give another", path.display()))?;
    let socket = UnixListener::bind(path);
    socket.map(OwnedFd::from).map_err(|error| format!("metrics: {}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use prezero_testing::alone;

    #[test]
    fn a_lock_that_is_a_link_or_no_file_is_neither_followed_nor_taken() {
        let _alone = alone();
        let dir = tempfile::tempdir().unwrap();
        let (path, victim) = (dir.path().join("s"), dir.path().join("victim"));
        let lock = dir.path().join("s.lock");
        std::os::unix::fs::symlink(&victim, &lock).unwrap();
        let refused = Listener::bind(&path, 0o600).unwrap_err();
        assert!(refused.contains("s.lock: it is a link; remove it"), "{refused}");
        assert!(!victim.exists(), "it was made through the link");
        fs::write(&victim, "root").unwrap();
        assert!(Listener::bind(&path, 0o600).is_err());
        assert_eq!(fs::read(&victim).unwrap(), b"root");

        fs::remove_file(&lock).unwrap();
        fs::create_dir(&lock).unwrap();
        assert!(Listener::bind(&path, 0o600).is_err());
        fs::remove_dir(&lock).unwrap();
        rustix::fs::mknodat(
            rustix::fs::CWD,
            &lock,
            rustix::fs::FileType::Fifo,
            rustix::fs::Mode::RWXU,
            0,
        )
        .unwrap();
        assert!(Listener::bind(&path, 0o600).is_err(), "a pipe is opened, and waits for nobody");
        fs::remove_file(&lock).unwrap();
        if rustix::process::geteuid().is_root() {
            fs::write(&lock, "").unwrap();
            std::os::unix::fs::chown(&lock, Some(65534), None).unwrap();
            let refused = Listener::bind(&path, 0o600).unwrap_err();
            assert!(refused.contains("another user's"), "{refused}");
        }
    }

    #[test]
    fn a_socket_on_which_a_program_listens_is_no_left_one() {
        let _alone = alone();
        let dir = tempfile::tempdir().unwrap();
        for kind in [SocketType::STREAM, SocketType::SEQPACKET, SocketType::DGRAM] {
            let path = dir.path().join(format!("{kind:?}"));
            let theirs =
                socket_with(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None).unwrap();
            bind(&theirs, &SocketAddrUnix::new(&path).unwrap()).unwrap();
            let _ = listen(&theirs, 1);
            let own = fs::symlink_metadata(&path).unwrap().ino();
            for refused in
                [Listener::bind(&path, 0o600).unwrap_err(), bind_stream(&path).unwrap_err()]
            {
                assert!(refused.contains("another program serves there; give"), "{refused}");
            }
            assert_eq!(fs::symlink_metadata(&path).unwrap().ino(), own);
            drop(theirs);
            drop(Listener::bind(&path, 0o600).unwrap());
        }
    }

    #[test]
    fn a_socket_that_was_left_is_replaced_and_nothing_else_is() {
        let _alone = alone();
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a");
        drop(UnixListener::bind(&path).unwrap());
        drop(Listener::bind(&path, 0o600).unwrap());
        drop(Listener::bind(&dir.path().join("one/a"), 0o600).unwrap());
        let far = dir.path().join("mistyped/two/a");
        let refused = Listener::bind(&far, 0o600).unwrap_err();
        assert!(
            refused.contains("mistyped/two: No such file")
                && refused.ends_with("give --socket PATH")
        );
        assert!(!dir.path().join("mistyped").exists(), "a folder of a mistyped path");
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
