//! A fork: the child has descriptions of its own, and holds what it shares with its parent.
//!
//! Private parts are not mapped in the child (`MADV_DONTFORK`). The child's locks are taken before the fork: the parent
//! may give a part back while the child still comes into being.

use super::Arena;
use crate::lease::File;

impl Arena {
    /// Before a fork: the child's descriptions hold what it will have mapped.
    pub fn before_fork(&self) {
        // SAFETY: unlocked by the two calls below, which follow on this thread.
        unsafe { libc::pthread_mutex_lock(self.mutex.get()) };
        // SAFETY: behind the mutex.
        let table = unsafe { &*self.table.get() };
        self.lease.files().iter().for_each(File::before_fork);
        for each in table.all().iter().filter(|each| !each.kind.is_private()) {
            let from = each.offset - each.offset % self.page;
            let to = (each.offset + each.len).next_multiple_of(self.page);
            for (file, begin, len) in self.lease.pieces(from, to - from) {
                file.hold_for_child(begin, len);
            }
        }
        self.board.file.before_fork();
    }

    /// After it, in the process that forked.
    pub fn after_fork(&self) {
        self.lease.files().iter().for_each(File::after_fork);
        self.board.file.after_fork();
        // SAFETY: locked by `before_fork`.
        unsafe { libc::pthread_mutex_unlock(self.mutex.get()) };
    }

    /// After it, in the child: what is private is not here.
    pub fn in_child(&self) {
        self.lease.files().iter().for_each(File::in_child);
        self.board.file.in_child();
        // SAFETY: behind the mutex, which this thread's copy holds.
        let table = unsafe { &mut *self.table.get() };
        table.inherit();
        // SAFETY: locked by `before_fork`.
        unsafe { libc::pthread_mutex_unlock(self.mutex.get()) };
    }
}
