//! What a newer name of glibc does where the program's lacks it.
//!
//! Before 2.34 threads and `dlsym` are in files that a program may lack. There no thread starts, and `dlsym` reads the
//! tables of what is loaded.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::ptr;

/// Null, or 0.
pub extern "C" fn nothing() -> usize {
    0
}

/// `EAGAIN`: there are no threads.
pub extern "C" fn refuse() -> c_int {
    libc::EAGAIN
}

/// A key whose value nothing keeps: its thread ends with the process.
///
/// # Safety
/// `key` can be written.
pub unsafe extern "C" fn make_key(key: *mut c_uint) -> c_int {
    // SAFETY: the caller's terms. Rust takes no key of number 0.
    unsafe { key.write(1) };
    0
}

/// In a program of one thread.
///
/// # Safety
/// As for `pthread_once`.
pub unsafe extern "C" fn once(done: *mut c_int, run: extern "C" fn()) -> c_int {
    // SAFETY: the caller's terms.
    if unsafe { done.replace(1) } == 0 {
        run();
    }
    0
}

/// Newer than 2.17, in 2.18: without it a thread's values are not dropped.
///
/// # Safety
/// As for the name.
pub unsafe extern "C" fn at_thread_exit(
    drop: unsafe extern "C" fn(*mut c_void),
    value: *mut c_void,
    library: *mut c_void,
) -> c_int {
    type Function =
        unsafe extern "C" fn(unsafe extern "C" fn(*mut c_void), *mut c_void, *mut c_void) -> c_int;
    // SAFETY: the name ends in NUL, and glibc's function of that name has this type; the caller's terms are its.
    unsafe {
        let found = libc::dlsym(libc::RTLD_DEFAULT, c"__cxa_thread_atexit_impl".as_ptr());
        if found.is_null() {
            return 0;
        }
        std::mem::transmute::<*mut c_void, Function>(found)(drop, value, library)
    }
}

/// Where the unwinder finds the table of a function, since 2.35. In a panic's way up the stack, hence never twice.
///
/// # Safety
/// As for the name.
pub unsafe extern "C" fn find_object(address: *mut c_void, result: *mut c_void) -> c_int {
    type Function = unsafe extern "C" fn(*mut c_void, *mut c_void) -> c_int;
    const NOT_FOUND: c_int = -1;
    // SAFETY: the name ends in NUL, and glibc's function of that name has this type; the caller's terms are its.
    unsafe {
        let found = libc::dlsym(libc::RTLD_DEFAULT, c"_dl_find_object".as_ptr());
        if found.is_null() {
            return NOT_FOUND;
        }
        std::mem::transmute::<*mut c_void, Function>(found)(address, result)
    }
}

/// Of a program of one thread.
///
/// # Safety
/// As for `sigprocmask`.
pub unsafe extern "C" fn sigmask(
    how: c_int,
    set: *const libc::sigset_t,
    old: *mut libc::sigset_t,
) -> c_int {
    // SAFETY: the caller's terms. In glibc it is that of the calling thread.
    match unsafe { libc::sigprocmask(how, set, old) } {
        0 => 0,
        // SAFETY: this thread's own.
        _ => unsafe { *libc::__errno_location() },
    }
}

/// By the system call.
///
/// # Safety
/// None: its type is that of the name.
pub unsafe extern "C" fn gettid() -> libc::pid_t {
    // SAFETY: no terms.
    unsafe { libc::syscall(libc::SYS_gettid) as libc::pid_t }
}

/// By the system call.
///
/// # Safety
/// As for the system call.
pub unsafe extern "C" fn statx(
    folder: c_int,
    path: *const c_char,
    flags: c_int,
    mask: c_uint,
    to: *mut c_void,
) -> c_int {
    // SAFETY: the caller's terms are those of the system call.
    unsafe { libc::syscall(libc::SYS_statx, folder, path, flags, mask, to) as c_int }
}

/// The kernel's structure is glibc's on both machines.
///
/// # Safety
/// As for the system call.
pub unsafe extern "C" fn stat(path: *const c_char, to: *mut c_void) -> c_int {
    // SAFETY: the caller's terms are those of the system call.
    unsafe { libc::syscall(libc::SYS_newfstatat, libc::AT_FDCWD, path, to, 0) as c_int }
}

/// As [`stat`].
///
/// # Safety
/// As for the system call.
pub unsafe extern "C" fn fstat(file: c_int, to: *mut c_void) -> c_int {
    // SAFETY: the caller's terms are those of the system call.
    unsafe { libc::syscall(libc::SYS_fstat, file, to) as c_int }
}

/// What [`find`] looks for.
struct Sought<'a> {
    name: &'a CStr,
    /// In what is loaded behind this library only.
    behind: bool,
    found: *mut c_void,
}

/// `dlsym`, of `RTLD_DEFAULT` and `RTLD_NEXT`.
///
/// # Safety
/// The name ends in NUL.
pub unsafe extern "C" fn find(handle: *mut c_void, name: *const c_char) -> *mut c_void {
    // SAFETY: the caller's terms.
    let name = unsafe { CStr::from_ptr(name) };
    let mut sought = Sought { name, behind: handle == libc::RTLD_NEXT, found: ptr::null_mut() };
    // SAFETY: `look` takes what it is given here.
    unsafe { libc::dl_iterate_phdr(Some(look), (&raw mut sought).cast()) };
    sought.found
}

/// One object that is loaded; not 0: no more.
unsafe extern "C" fn look(
    object: *mut libc::dl_phdr_info,
    _size: usize,
    sought: *mut c_void,
) -> c_int {
    // SAFETY: `find`'s.
    let sought = unsafe { &mut *sought.cast::<Sought>() };
    // SAFETY: the loader describes an object that is loaded, with its headers.
    let (base, headers) = unsafe {
        let object = &*object;
        (
            object.dlpi_addr as usize,
            std::slice::from_raw_parts(object.dlpi_phdr, object.dlpi_phnum.into()),
        )
    };
    let here = look as *const () as usize;
    let holds = |header: &&libc::Elf64_Phdr| {
        header.p_type == libc::PT_LOAD
            && here.wrapping_sub(base + header.p_vaddr as usize) < header.p_memsz as usize
    };
    if sought.behind {
        sought.behind = headers.iter().find(holds).is_none();
        return 0;
    }
    if let Some(dynamic) = headers.iter().find(|header| header.p_type == libc::PT_DYNAMIC) {
        // SAFETY: the object's dynamic section, which ends in a tag of 0.
        sought.found = unsafe { Tables::of(base, (base + dynamic.p_vaddr as usize) as *const _) }
            // SAFETY: the tables of an object that is loaded.
            .map_or(ptr::null_mut(), |tables| unsafe { tables.find(base, sought.name) });
    }
    (!sought.found.is_null()).into()
}

/// An object's names.
struct Tables {
    symbols: *const libc::Elf64_Sym,
    texts: *const c_char,
    versions: *const u16,
    hashes: *const u32,
}

impl Tables {
    /// # Safety
    /// The dynamic section of an object that is loaded at `base`.
    unsafe fn of(base: usize, mut dynamic: *const [usize; 2]) -> Option<Tables> {
        const STRTAB: usize = 5;
        const SYMTAB: usize = 6;
        const GNU_HASH: usize = 0x6fff_fef5;
        const VERSYM: usize = 0x6fff_fff0;
        let mut found = [0; 4];
        loop {
            // SAFETY: the caller's promise.
            let [tag, value] = unsafe { *dynamic };
            // The loader has made addresses of most; those of the kernel's own object it leaves.
            let address = if value < base { base + value } else { value };
            match tag {
                0 => break,
                STRTAB => found[0] = address,
                SYMTAB => found[1] = address,
                VERSYM => found[2] = address,
                GNU_HASH => found[3] = address,
                _ => {}
            }
            // SAFETY: the section goes on.
            dynamic = unsafe { dynamic.add(1) };
        }
        let [texts, symbols, versions, hashes] = found;
        (texts != 0 && symbols != 0 && hashes != 0).then_some(Tables {
            symbols: symbols as *const _,
            texts: texts as *const _,
            versions: versions as *const _,
            hashes: hashes as *const _,
        })
    }

    /// The address of a name's default version; null: it has none.
    ///
    /// # Safety
    /// The tables are those of an object that is loaded at `base`.
    unsafe fn find(&self, base: usize, name: &CStr) -> *mut c_void {
        const HIDDEN: u16 = 0x8000;
        const INDIRECT: u8 = 10;
        let bytes = name.to_bytes().iter();
        let hash = bytes.fold(5381u32, |sum, &byte| sum.wrapping_mul(33).wrapping_add(byte.into()));
        // SAFETY: the layout of DT_GNU_HASH: four words, the filter (of 8 bytes each), buckets, chains that end in
        // an odd hash. An index of a chain is one of a symbol.
        unsafe {
            let (buckets, first, filter) = (*self.hashes, *self.hashes.add(1), *self.hashes.add(2));
            let bucket = self.hashes.add(4 + 2 * filter as usize);
            let chain = bucket.add(buckets as usize);
            let mut index = if buckets == 0 { 0 } else { *bucket.add((hash % buckets) as usize) };
            while index >= first && index != 0 {
                let each = *chain.add((index - first) as usize);
                let symbol = &*self.symbols.add(index as usize);
                let visible =
                    self.versions.is_null() || *self.versions.add(index as usize) & HIDDEN == 0;
                if each | 1 == hash | 1
                    && symbol.st_shndx != 0
                    && visible
                    && CStr::from_ptr(self.texts.add(symbol.st_name as usize)) == name
                {
                    let address = (base + symbol.st_value as usize) as *mut c_void;
                    return if symbol.st_info & 15 == INDIRECT {
                        std::mem::transmute::<*mut c_void, extern "C" fn() -> *mut c_void>(address)(
                        )
                    } else {
                        address
                    };
                }
                index = if each & 1 == 1 { 0 } else { index + 1 };
            }
        }
        ptr::null_mut()
    }
}
