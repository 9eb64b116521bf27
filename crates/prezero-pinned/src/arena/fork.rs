//! A fork: the child has descriptions of its own, and holds what it shares with its parent.
//!
//! Private parts are not mapped in the child (`MADV_DONTFORK`). The child's locks are taken before the fork: the parent
//! may give a part back while the child still comes into being.

use std::sync::atomic::Ordering::Relaxed;

use super::Arena;
use crate::{lease, raw};

impl Arena {
    /// Before a fork: the child's descriptions hold what it will have mapped.
    pub fn before_fork(&self) {
        // SAFETY: unlocked by the two calls below, which follow on this thread.
        unsafe { libc::pthread_mutex_lock(self.mutex.get()) };
        // SAFETY: behind the mutex.
        let table = unsafe { &*self.table.get() };
        let file = self.file.again();
        for each in table.all().iter().filter(|each| each.at != 0 && !each.kind.is_private()) {
            let from = each.offset - each.offset % self.page;
            let to = (each.offset + each.len).next_multiple_of(self.page);
            lease::hold(file, from, to - from);
        }
        self.child[0].store(file, Relaxed);
        self.child[1].store(self.board.file.again(), Relaxed);
    }

    /// After it, in the process that forked.
    pub fn after_fork(&self) {
        for file in self.child.iter().map(|each| each.swap(-1, Relaxed)).filter(|&file| file >= 0) {
            raw::close(file);
        }
        // SAFETY: locked by `before_fork`.
        unsafe { libc::pthread_mutex_unlock(self.mutex.get()) };
    }

    /// After it, in the child: what is private is not here.
    pub fn in_child(&self) {
        self.file.become_other(self.child[0].swap(-1, Relaxed));
        self.board.file.become_other(self.child[1].swap(-1, Relaxed));
        // SAFETY: behind the mutex, which this thread's copy holds.
        let table = unsafe { &mut *self.table.get() };
        table.keep(|each| each.at != 0 && !each.kind.is_private());
        // SAFETY: locked by `before_fork`.
        unsafe { libc::pthread_mutex_unlock(self.mutex.get()) };
    }
}
