//! The program's `errno`, which the library leaves alone.

/// The calling thread's `errno`, to be put back: what happens inside an allocation is
/// no business of the program's.
pub struct Errno(i32);

impl Errno {
    /// Remembers it.
    pub fn save() -> Errno {
        // SAFETY: the calling thread's own variable.
        Errno(unsafe { *libc::__errno_location() })
    }

    /// Its number.
    pub fn number(&self) -> i32 {
        self.0
    }

    /// Puts it back.
    pub fn restore(self) {
        Errno::set(self.0);
    }

    /// Sets it.
    pub fn set(errno: i32) {
        // SAFETY: the calling thread's own variable.
        unsafe { *libc::__errno_location() = errno };
    }
}
