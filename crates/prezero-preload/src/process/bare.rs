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
//! What libc keeps for each thread (`errno`, the sequence area, the thread-locals of all libraries) a bare thread has all
//! the same, at the distances from its thread pointer at which every thread has them, in a mapping of its own. The head is
//! filled in as `pthread_create` would. What is zero in the beginning takes no memory, and what is much is left zero: it is the
//! program's own. All this is glibc's private matter; each offset used is checked on the calling thread first.
//! Where anything is not as expected there is no bare thread, and a `pthread` has to do.
//!
//! The dynamic linker is asked when the library is loaded ([`look`]): a thread that is in `dlopen` may wait for the one
//! that asks for memory. Block and stack are made once and used again by the next thread, in the child of a fork too.

use std::ffi::c_void;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicPtr, Ordering};

use prezero_sys::memory::GRAIN;
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

/// Asks the dynamic linker where each thread has what is its own.
pub fn look() {
    arch::look();
    prezero_sys::cpu::look_up();
}

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

    /// Makes what libc has for each of its threads; false where this is not a libc whose threads are known, or nothing was
    /// [looked at](look). Once is enough.
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
            self.pointer.store(pointer.as_ptr(), Ordering::Release);
        }
        self.is_prepared()
    }

    fn is_prepared(&self) -> bool {
        !self.pointer.load(Ordering::Acquire).is_null()
    }

    /// The stack, made at the first call with a page below it that no access reaches.
    fn stack(&self, bytes: usize) -> Result<*mut u8, i32> {
        use rustix::mm::{MprotectFlags, mprotect, munmap};
        let made = self.stack.load(Ordering::Acquire);
        if !made.is_null() {
            return Ok(made);
        }
        let base = map(GRAIN + bytes)?;
        // SAFETY: No other code knows it yet, so its first page may be forbidden, and all of it given back where that fails.
        unsafe {
            if let Err(error) = mprotect(base.cast(), GRAIN, MprotectFlags::empty()) {
                let _ = munmap(base.cast(), GRAIN + bytes);
                return Err(error.raw_os_error());
            }
            let top = base.add(GRAIN + bytes);
            self.stack.store(top, Ordering::Release);
            Ok(top)
        }
    }
}

/// Zeroed memory, of which what is not touched is not there: in small pages.
fn map(bytes: usize) -> Result<*mut u8, i32> {
    use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous};
    let flags = MapFlags::PRIVATE | MapFlags::STACK | MapFlags::NORESERVE;
    let access = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: a new mapping touches no other memory, and no page of it was touched. A kernel without huge pages gives none.
    unsafe {
        let base = mmap_anonymous(ptr::null_mut(), bytes, access, flags)
            .map_err(|error| error.raw_os_error())?;
        let _ = madvise(base, bytes, Advice::LinuxNoHugepage);
        Ok(base.cast())
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
    use prezero_sys::{cpu, objects};
    use std::arch::{asm, naked_asm};
    use std::slice;
    use std::sync::OnceLock;

    /// Words of glibc's `tcbhead_t`, which every program's stack protector goes by.
    const SELF: usize = 0;
    const VECTOR: usize = 1;
    const THREAD: usize = 2;
    const STACK_GUARD: usize = 5;
    const POINTER_GUARD: usize = 6;
    /// Bytes from its beginning: whether libc's own locks lock; what shadow stacks there are.
    const SEVERAL_THREADS: usize = 0x18;
    const FEATURES: usize = 0x48;
    const ARCH_GET_FS: usize = 0x1003;

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
        // SAFETY: the kernel writes one word.
        let asked = unsafe { syscall(libc::SYS_arch_prctl, [ARCH_GET_FS, (&raw mut base).addr()]) };
        // SAFETY: the calling thread's own head, of which every libc has these words.
        let (own, vector, thread, guard) = unsafe {
            (*head.add(SELF), *head.add(VECTOR), *head.add(THREAD), *head.add(STACK_GUARD))
        };
        // The lowest byte of the guard is 0, so that no string goes past it.
        let known = asked == 0 && own == base && thread == base && vector != 0;
        (known && guard != 0 && guard & 0xff == 0).then_some(head)
    }

    /// The most bytes below the thread pointer: an object that lies farther off has its locals elsewhere.
    /// Fixed: a program with more has no bare thread.
    const MOST: usize = 1 << 30;
    /// Bytes above it: glibc's own structure for a thread, and from half of it on the vector of modules.
    /// Fixed: the structure takes 2,304 bytes in glibc 2.36.
    const HEAD: usize = 2 * GRAIN;
    /// Bytes that are copied of what an object begins with.
    /// Fixed: libc has some hundred.
    const LARGEST: usize = 16 * GRAIN;
    /// Modules in the vector, each of two words. Before the first are their number and the generation, which is the last
    /// there is: nothing about it is ever old.
    const MODULES: usize = GRAIN / 16 - 2;
    /// What glibc writes for a module that has nothing in this thread yet.
    const UNALLOCATED: usize = usize::MAX;

    /// Where an object has what is each thread's.
    struct Locals {
        /// Its number among the objects that have thread-locals.
        module: usize,
        /// Bytes from its beginning to the thread pointer.
        below: usize,
        /// What it begins with; behind that it is zero.
        image: Vec<u8>,
    }

    /// Of what was loaded when it was looked.
    static LOCALS: OnceLock<Vec<Locals>> = OnceLock::new();

    pub(super) fn look() {
        LOCALS.get_or_init(|| {
            let mut found = Vec::new();
            objects::find(|object| {
                let (module, own) = object.locals;
                let below = thread_pointer().addr().wrapping_sub(own.addr());
                if let Some((from, header)) = object.parts(libc::PT_TLS).next()
                    && below <= MOST
                    && module <= MODULES
                {
                    let len = (header.p_filesz as usize).min(LARGEST);
                    // SAFETY: a part of the object, which is loaded.
                    let image = unsafe { slice::from_raw_parts(from as *const u8, len) }.to_vec();
                    found.push(Locals { module, below, image });
                }
                false
            });
            found
        });
    }

    pub(super) fn new_thread_block() -> Option<NonNull<u8>> {
        let own = own_head()?;
        let locals = LOCALS.get()?;
        let area = cpu::area_offset().unwrap_or(0);
        let areas_end = usize::try_from(area).unwrap_or(0) + cpu::AREA;
        let below = locals.iter().map(|locals| locals.below).max()?;
        let below = below.max(usize::try_from(-area).unwrap_or(0)).next_multiple_of(GRAIN);
        if areas_end > HEAD / 2 {
            return None;
        }
        // SAFETY: a new mapping, which no other code knows. The thread pointer lies so far in it that the locals begin
        // there, the head and the vector end there; both heads are laid out alike.
        unsafe {
            let base = map(below + HEAD).ok()?;
            let block = base.add(below).cast::<usize>();
            let vector = block.byte_add(HEAD / 2).add(2);
            vector.sub(2).write(MODULES);
            vector.write(usize::MAX);
            for module in 1..=MODULES {
                vector.add(2 * module).write(UNALLOCATED);
            }
            for Locals { module, below, image } in locals {
                let own = block.cast::<u8>().sub(*below);
                own.copy_from_nonoverlapping(image.as_ptr(), image.len());
                vector.add(2 * module).write(own.addr());
            }
            block.add(SELF).write(block.addr());
            block.add(VECTOR).write(vector.addr());
            block.add(THREAD).write(block.addr());
            block.add(STACK_GUARD).write(*own.add(STACK_GUARD));
            block.add(POINTER_GUARD).write(*own.add(POINTER_GUARD));
            block.byte_add(SEVERAL_THREADS).cast::<u32>().write(1);
            let features = own.byte_add(FEATURES).cast::<u32>().read();
            block.byte_add(FEATURES).cast::<u32>().write(features);
            let block = NonNull::new(block.cast())?;
            cpu::blank(block);
            Some(block)
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

    pub(super) fn look() {}

    pub(super) fn new_thread_block() -> Option<NonNull<u8>> {
        None
    }

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
