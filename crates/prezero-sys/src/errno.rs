//! What libc's wrapper of a system call said last.

use rustix::io::Errno;

pub(crate) fn last_error() -> Errno {
    let raw = std::io::Error::last_os_error().raw_os_error();
    Errno::from_raw_os_error(raw.unwrap_or(libc::EINVAL))
}
