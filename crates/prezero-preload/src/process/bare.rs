//! A thread that the C library does not know of.
//!
//! To libc a program with one `pthread` beside the first has several threads. From then
//! on `putc` locks its stream, `malloc` its arena and `std::shared_ptr` its counts; `fork` takes
//! the locks of `malloc`; a program that ends its last own thread does not end. So scrubd is made
//! by `clone`, and the price is paid by it alone: a bare thread must call nothing in libc that
//! relies on a lock (`malloc`, stdio, `opendir`, `dlsym`, locales), because libc, sure that there
//! is one thread, leaves the lock out. The entry of a [`Spawner`] keeps to that, apart from Rust's
//! global allocator, of which [`Bare::prepare`] demands that it is not libc's.
//!
//! What libc keeps for each thread (`errno`, the sequence area, the thread-locals of all libraries)
//! a bare thread has all the same: `_dl_allocate_tls`, by which glibc makes its own, makes a block
//! of it, and the head is filled in as `pthread_create` would. Both are glibc's private matters;
//! the name has been there since 2.3, and each offset used is checked on the calling thread first.
//! Where anything is not as expected there is no bare thread, and a `pthread` has to do.
//!
//! Block and stack are made once and used again by the next thread, in the child of a fork too:
//! to give them back would call `free`, maybe inside a signal handler.

use std::ffi::c_void;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicPtr, Ordering};

use prezero_sys::raw::syscall;
use prezero_sys::thread::{Entry, Life, Spawner};

/// The spawner of bare threads: where one at a time runs.
#[derive(Debug)]
pub struct Bare {
    /// The thread pointer that its thread has; null until [`prepare`](Bare::prepare).
    pointer: AtomicPtr<u8>,
    /// One past the highest byte of its stack; null until the first thread starts.
    stack: AtomicPtr<u8>,
}

impl Default for Bare {
    fn default() -> Bare {
        Bare::new()
    }
}

/// The thread pointer of the latest bare thread, for [`is_current`].
static LATEST: AtomicPtr<u8> = AtomicPtr::new(ptr::null_mut());

/// Whether the calling thread is a bare one: the latest that was started.
pub fn is_current() -> bool {
    let latest = LATEST.load(Ordering::Relaxed);
    !latest.is_null() && latest == arch::thread_pointer()
}

impl Bare {
    /// One that is not prepared.
    pub const fn new() -> Bare {
        Bare { pointer: AtomicPtr::new(ptr::null_mut()), stack: AtomicPtr::new(ptr::null_mut()) }
    }

    /// Makes what libc has for each of its threads; false where this is not a libc that can be
    /// told to. Asks the dynamic linker, which locks and allocates (some four kilobytes for good);
    /// once is enough. Changes `errno`.
    ///
    /// # Safety
    /// 1. What Rust allocates in this program does not come from libc's `malloc`, or libc knows of
    ///    two threads at least: without its locks it would hand memory out twice.
    /// 2. All threads that are started here have the same [`Life`]: there is one block and one
    ///    stack.
    pub unsafe fn prepare(&self) -> bool {
        if !self.is_prepared()
            && let Some(pointer) = arch::new_thread_block()
        {
            // SAFETY: a new block, laid out as libc's own.
            unsafe { arch::blank(pointer) };
            self.pointer.store(pointer.as_ptr(), Ordering::Release);
        }
        self.is_prepared()
    }

    fn is_prepared(&self) -> bool {
        !self.pointer.load(Ordering::Acquire).is_null()
    }

    /// The stack, made at the first call with a page below it that no access reaches.
    fn stack(&self, bytes: usize) -> Result<*mut u8, i32> {
        use rustix::mm::{MapFlags, MprotectFlags, ProtFlags, mmap_anonymous, mprotect, munmap};
        let made = self.stack.load(Ordering::Acquire);
        if !made.is_null() {
            return Ok(made);
        }
        let guard = prezero_sys::memory::GRAIN;
        let flags = MapFlags::PRIVATE | MapFlags::STACK | MapFlags::NORESERVE;
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping touches no other memory. No other code knows it yet, so its first page may be
        // forbidden, and all of it given back where that fails.
        unsafe {
            let base = mmap_anonymous(ptr::null_mut(), guard + bytes, access, flags)
                .map_err(|error| error.raw_os_error())?;
            if let Err(error) = mprotect(base, guard, MprotectFlags::empty()) {
                let _ = munmap(base, guard + bytes);
                return Err(error.raw_os_error());
            }
            let top = base.cast::<u8>().add(guard + bytes);
            self.stack.store(top, Ordering::Release);
            Ok(top)
        }
    }
}

// SAFETY: 1.: `enter` calls the entry once, on a stack of this size. 2.: the thread inherits the
// mask of its maker, which has all signals blocked. 3.: the life begins before the thread is made,
// and the kernel ends it when the thread has left its memory.
unsafe impl Spawner for Bare {
    /// The thread has its own working directory, which begins as the caller's, and shares its
    /// descriptors. `ENOSYS` where nothing is prepared.
    unsafe fn start(
        &self,
        stack: usize,
        entry: Entry,
        arg: *mut c_void,
        life: &'static Life,
    ) -> Result<(), i32> {
        let pointer = NonNull::new(self.pointer.load(Ordering::Acquire)).ok_or(libc::ENOSYS)?;
        let top = self.stack(stack)?;
        LATEST.store(pointer.as_ptr(), Ordering::Relaxed);
        life.begin();
        // SAFETY: stack and thread pointer are of this room alone, whose last thread is gone, and
        // stay for good; the words of `life` are never dropped; entry and arg are the caller's
        // promise.
        let answer = unsafe { arch::clone(top, pointer, entry, arg, life) };
        if answer < 0 {
            life.forget();
            return Err(answer.unsigned_abs() as i32);
        }
        Ok(())
    }

    /// Gives up what the thread would keep when the program gives it up.
    fn arrive(&self, _: &Life) {
        settle();
    }

    /// Nothing: the kernel ends the life.
    fn leave(&self, _: &Life) {}
}

/// Leaves the working directory, whose file system the program may want to unmount, and gives up
/// every capability. What a program drops later (`capset`, `prctl`) would stay with a thread that
/// libc cannot tell. Under a seccomp filter it keeps them: a filter for services (systemd's
/// `@system-service`) ends a process that calls `capset`.
fn settle() {
    /// `struct __user_cap_header_struct`, its third version: two words for each set.
    #[repr(C)]
    struct Header {
        version: u32,
        thread: i32,
    }
    const VERSION: u32 = 0x2008_0522;
    let (header, none) = (Header { version: VERSION, thread: 0 }, [0u32; 6]);
    // Where a filter forbids it the thread is what any other of the process is.
    let _ = rustix::process::chdir(c"/");
    // SAFETY: reads no memory. A filter that forbids `prctl` ends the process at scrubd's name anyway.
    if unsafe { syscall(libc::SYS_prctl, [libc::PR_GET_SECCOMP as usize]) } != 0 {
        return;
    }
    // SAFETY: the kernel reads one header and two times three words; 0 is the calling thread.
    // With nothing permitted, what is ambient goes as well.
    unsafe { syscall(libc::SYS_capset, [(&raw const header).addr(), none.as_ptr().addr()]) };
}

#[cfg(all(target_arch = "x86_64", target_env = "gnu"))]
mod arch {
    use super::*;
    pub(super) use prezero_sys::cpu::blank;
    use std::arch::{asm, naked_asm};

    /// Words of glibc's `tcbhead_t`, which every program's stack protector goes by.
    const SELF: usize = 0;
    const VECTOR: usize = 1;
    const THREAD: usize = 2;
    const STACK_GUARD: usize = 5;
    const POINTER_GUARD: usize = 6;
    /// Bytes from its beginning: whether libc's own locks lock; what shadow stacks there are.
    const SEVERAL_THREADS: usize = 0x18;
    const FEATURES: usize = 0x48;
    const ARCH_GET_FS: i32 = 0x1003;

    const FLAGS: i32 = libc::CLONE_VM
        | libc::CLONE_FILES
        | libc::CLONE_SIGHAND
        | libc::CLONE_THREAD
        | libc::CLONE_SETTLS
        | libc::CLONE_PARENT_SETTID
        | libc::CLONE_CHILD_CLEARTID;

    pub(super) fn thread_pointer() -> *mut u8 {
        let pointer: *mut u8;
        // SAFETY: the ABI keeps the thread pointer's own address in its first word.
        unsafe {
            asm!("mov {}, fs:[0]", out(reg) pointer, options(nostack, preserves_flags, readonly));
        }
        pointer
    }

    /// The head of a thread's block, if the calling thread's is laid out as expected.
    fn own_head() -> Option<*mut usize> {
        let head = thread_pointer().cast::<usize>();
        let mut base = 0usize;
        // SAFETY: the kernel writes one word. `errno` may change (`prepare`).
        let asked = unsafe { libc::syscall(libc::SYS_arch_prctl, ARCH_GET_FS, &raw mut base) };
        // SAFETY: the calling thread's own head, of which every libc has these words.
        let (own, vector, thread, guard) = unsafe {
            (*head.add(SELF), *head.add(VECTOR), *head.add(THREAD), *head.add(STACK_GUARD))
        };
        // The lowest byte of the guard is 0, so that no string goes past it.
        let known = asked == 0 && own == base && thread == base && vector != 0;
        (known && guard != 0 && guard & 0xff == 0).then_some(head)
    }

    pub(super) fn new_thread_block() -> Option<NonNull<u8>> {
        type Allocate = unsafe extern "C" fn(*mut c_void) -> *mut usize;
        let own = own_head()?;
        // SAFETY: the names end in NUL. What is not there is no error that the program should
        // hear of.
        let allocate = unsafe {
            let is_glibc = libc::dlsym(libc::RTLD_DEFAULT, c"gnu_get_libc_version".as_ptr());
            let name: *const std::ffi::c_char = c"_dl_allocate_tls".as_ptr();
            let allocate = libc::dlsym(libc::RTLD_DEFAULT, name);
            libc::dlerror();
            if is_glibc.is_null() || allocate.is_null() {
                return None;
            }
            std::mem::transmute::<*mut c_void, Allocate>(allocate)
        };
        // SAFETY: glibc's function of that name, which with null makes a new block: the
        // thread-locals of all libraries, behind them a cleared head and what else glibc has of
        // a thread. Both heads are laid out alike.
        unsafe {
            let block = allocate(ptr::null_mut());
            if block.is_null() || *block.add(VECTOR) == 0 || *block.add(VECTOR) == *own.add(VECTOR)
            {
                return None;
            }
            block.add(SELF).write(block.addr());
            block.add(THREAD).write(block.addr());
            block.add(STACK_GUARD).write(*own.add(STACK_GUARD));
            block.add(POINTER_GUARD).write(*own.add(POINTER_GUARD));
            block.byte_add(SEVERAL_THREADS).cast::<u32>().write(1);
            let features = own.byte_add(FEATURES).cast::<u32>().read();
            block.byte_add(FEATURES).cast::<u32>().write(features);
            NonNull::new(block.cast())
        }
    }

    /// The new thread's number, or minus an error's.
    ///
    /// # Safety
    /// `stack` is the upper end of a stack, and `pointer` a block for a thread, both for this thread
    /// alone and for good; `entry` takes `arg` on another thread.
    pub(super) unsafe fn clone(
        stack: *mut u8,
        pointer: NonNull<u8>,
        entry: Entry,
        arg: *mut c_void,
        life: &'static Life,
    ) -> isize {
        let [number, alive] = life.words();
        // SAFETY: the caller's promise; two words fit in any stack.
        unsafe {
            let stack = stack.cast::<*mut c_void>().sub(2);
            stack.write(arg);
            enter(FLAGS as usize, stack.cast(), number, alive, pointer.as_ptr(), entry)
        }
    }

    /// The system call, and what the new thread does: `entry`, with what lies on the stack.
    #[unsafe(naked)]
    unsafe extern "C" fn enter(
        flags: usize,
        stack: *mut u8,
        number: *mut u32,
        alive: *mut u32,
        pointer: *mut u8,
        entry: Entry,
    ) -> isize {
        naked_asm!(
            ".cfi_startproc",
            "mov r10, rcx",
            "mov eax, {clone}",
            "syscall",
            "test rax, rax",
            "jz 2f",
            "ret",
            "2:",
            // Here a debugger's walk up the stack ends.
            ".cfi_undefined rip",
            "xor ebp, ebp",
            "mov rdi, [rsp]",
            "call r9",
            "xor edi, edi",
            "mov eax, {exit}",
            "syscall",
            "ud2",
            ".cfi_endproc",
            clone = const libc::SYS_clone,
            exit = const libc::SYS_exit,
        )
    }
}

/// No block can be made; scrubd is a `pthread`.
#[cfg(not(all(target_arch = "x86_64", target_env = "gnu")))]
mod arch {
    use super::*;

    pub(super) fn thread_pointer() -> *mut u8 {
        ptr::dangling_mut()
    }

    pub(super) fn new_thread_block() -> Option<NonNull<u8>> {
        None
    }

    pub(super) unsafe fn blank(_: NonNull<u8>) {}

    pub(super) unsafe fn clone(
        _: *mut u8,
        _: NonNull<u8>,
        _: Entry,
        _: *mut c_void,
        _: &'static Life,
    ) -> isize {
        -(libc::ENOSYS as isize)
    }
}
