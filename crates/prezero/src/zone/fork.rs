//! Fork: what the child may believe.
//!
//! A fork copies page after page while other threads of the parent go on. So the child may see a record that is
//! younger than a clear, and a page that is older. No thread is stopped for it. A thread that is about to record
//! pages as zero looks whether a fork began since the clear, and if so leaves them dirty.

use prezero_sys::birth;
use prezero_sys::thread::SchedClass;

use crate::count::counters::{COUNT, Counters};
use crate::mem::backing::Backing;
use crate::sync::Ordering::{AcqRel, Relaxed, Release};
use crate::zone::Zone;

impl<B: Backing> Zone<B> {
    /// A fork is about to copy this zone. A page that is cleared from here on must not count
    /// as zero in the child: the copy of a page may be older than the copy of its record.
    /// No thread stops; the publishers of zero look at the count of forks. The child gets no
    /// idle memory.
    ///
    /// These are three calls and not one guard because `pthread_atfork` makes them: three handlers that share no value.
    /// A child that uses the zone without them takes bytes for zero that are not.
    ///
    /// # Safety
    /// The calling thread forks next. It then calls [`after_fork_in_parent`](Zone::after_fork_in_parent) once in the
    /// parent, where the fork failed too, and [`after_fork_in_child`](Zone::after_fork_in_child) once in the child.
    #[allow(unsafe_code)]
    pub unsafe fn before_fork(&self) {
        self.pool.scrubbing.fork_begins();
        self.pool.hide_before_fork();
        self.waker.hurry(SchedClass::Normal);
    }

    /// The fork is over, in the parent.
    ///
    /// # Safety
    /// The calling thread called [`before_fork`](Zone::before_fork) once for this call. One call too many hides a
    /// fork that is under way on another thread.
    #[allow(unsafe_code)]
    pub unsafe fn after_fork_in_parent(&self) {
        self.pool.scrubbing.fork_is_over();
        self.waker.hurry(SchedClass::Idle);
    }

    /// The process is about to end, and its end waits for every thread's.
    pub fn before_exit(&self) {
        self.waker.hurry(SchedClass::Normal);
    }

    /// The fork is over, in the child: it has no scrubd, and the block that the parent's was
    /// clearing, whose content it knows nothing of. It writes to little here: most children
    /// call `exec` next, and each page that they write to is copied first.
    ///
    /// # Safety
    /// This is the child of a fork that began with [`before_fork`](Zone::before_fork), and it has requested and freed
    /// nothing yet. In the parent the call frees a block that scrubd is clearing.
    #[allow(unsafe_code)]
    pub unsafe fn after_fork_in_child(&self) {
        self.begin_stats();
        self.waker.after_fork_in_child();
        if let Some(run) = self.pool.scrubbing.inherit() {
            self.pool.put_as_it_was(run);
        }
    }

    /// This is a child that was made without [`before_fork`](Zone::before_fork), and it has requested and freed nothing
    /// yet. What is counted so far is its parent's, and is kept apart if a listener reports the counts.
    /// Nothing in the process whose counts they are.
    pub fn begins_its_stats(&self) {
        if self.counts_of.load(Relaxed) != birth::current() {
            self.begin_stats();
        }
    }

    fn begin_stats(&self) {
        if self.waker.listener.get().is_some() {
            self.before_fork.set(&self.counts());
        }
        self.inherited.store(1, Release);
    }

    /// Once in the child of a fork, when it first needs memory: counters of its own, and what its
    /// parent kept from it.
    #[inline]
    pub(crate) fn take_over(&self) {
        if self.has_parents_stats() {
            let (announced, birth) = (self.inherited.swap(0, AcqRel) != 0, birth::current());
            if self.counts_of.swap(birth, AcqRel) != birth || announced {
                self.take_over_now(announced);
            }
        }
    }

    /// Whether this is a child before it took over. A fork that was not announced is seen by the birth.
    pub(crate) fn has_parents_stats(&self) -> bool {
        self.inherited.load(Relaxed) != 0 || self.counts_of.load(Relaxed) != birth::current()
    }

    /// Whether this process has counted anything.
    pub fn has_own_stats(&self) -> bool {
        let noted = || self.inherited.load(Relaxed) != 0 && self.waker.listener.get().is_some();
        !self.has_parents_stats() || noted() && self.since_fork().iter().any(|count| *count > 0)
    }

    /// What was counted since the latest fork that was announced.
    #[inline(never)]
    fn since_fork(&self) -> [u64; COUNT] {
        let mut counts = self.counts();
        for (count, before) in counts.iter_mut().zip(self.before_fork.all()) {
            *count = count.saturating_sub(before);
        }
        counts
    }

    /// The counters of all CPUs, and those of the pool and scrubd.
    #[inline(never)]
    pub(crate) fn counts(&self) -> [u64; COUNT] {
        Counters::sums(self.cpus.iter().map(|cpu| &cpu.counters).chain([&self.pool.counters]))
    }

    /// Without an announcement, what this process counted before cannot be told from its parent's.
    #[cold]
    #[inline(never)]
    fn take_over_now(&self, announced: bool) {
        let noted = announced && self.waker.listener.get().is_some();
        let own = noted.then(|| self.since_fork());
        for cpu in self.cpus.iter() {
            cpu.counters.set(&[0; COUNT]);
            cpu.demand.reset();
        }
        self.pool.counters.set(&[0; COUNT]);
        if let Some(own) = own {
            self.cpus.here().counters.set(&own);
        }
        self.pool.forget_hidden();
    }
}
