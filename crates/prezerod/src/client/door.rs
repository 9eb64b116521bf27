//! Where a client finds its broker, and whose broker it takes.
//!
//! Contract: a broker that the caller names may be any user's. One that the client finds by itself is root's or the
//! caller's own: another user's would hand out memory that is not zero, and read what is written to it. PROTOCOL.md
//! has the rule, which all clients follow.

use std::ffi::OsString;
use std::os::fd::BorrowedFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use prezero_sys::peer::peer_credentials;

use super::ClientError;

/// The socket's name below the run-time directory.
pub const SOCKET: &str = "prezero/prezerod.sock";

/// See the module.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Door {
    path: PathBuf,
    is_named: bool,
}

impl Door {
    /// The one at this path, whichever user's it is.
    pub fn named(path: &Path) -> Door {
        Door { path: path.to_owned(), is_named: true }
    }

    /// The one that was named, here or in `$PREZERO_SOCKET`; the user's own, if there is one; the system's.
    pub fn find(named: Option<&Path>) -> Door {
        let set = |name| std::env::var_os(name).filter(|value| !value.is_empty());
        let named = named.map(Path::to_owned).or_else(|| set("PREZERO_SOCKET").map(PathBuf::from));
        named.map_or_else(|| Door::found(set("XDG_RUNTIME_DIR")), |path| Door::named(&path))
    }

    /// The one below this run-time directory, or the system's. `su` and `sudo -E` keep the directory of another user,
    /// which is ignored.
    pub fn found(runtime: Option<OsString>) -> Door {
        let own =
            runtime.map(PathBuf::from).filter(|dir| dir.is_absolute() && is_owned(dir, own_user()));
        let own = own.map(|dir| dir.join(SOCKET)).filter(|path| path.exists());
        Door { path: own.unwrap_or_else(|| Path::new("/run").join(SOCKET)), is_named: false }
    }

    /// Its socket.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether the process at the other end may be the broker of this door.
    ///
    /// # Errors
    /// [`ClientError::Stranger`].
    pub(super) fn check(&self, socket: BorrowedFd<'_>) -> Result<(), ClientError> {
        let peer = peer_credentials(socket).map_err(ClientError::Gone)?.uid;
        // A service of a user without rights may listen for root: in a directory of root's it was root that bound it.
        let is_system = || {
            self.path == Path::new("/run").join(SOCKET)
                && self.path.parent().is_some_and(|dir| is_owned(dir, 0))
        };
        match self.is_named || peer == 0 || peer == own_user() || is_system() {
            true => Ok(()),
            false => Err(ClientError::Stranger(self.path.clone(), peer)),
        }
    }
}

fn own_user() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// Whether a directory is of that user.
fn is_owned(dir: &Path, uid: u32) -> bool {
    dir.metadata().is_ok_and(|info| info.is_dir() && info.uid() == uid)
}
