//! The library or program that opens another: where it lies, and where it looks.
//!
//! The dynamic linker answers for the object at an address. What it does not answer, as under another libc, is not known.

use std::ffi::{CStr, CString, OsStr, c_char, c_int, c_uint, c_void};
use std::mem::MaybeUninit;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::ptr;

use prezero_sys::process;
use rustix::fs::{CWD, readlinkat};

/// An object that is loaded, by its handle.
pub(super) struct Caller {
    object: *mut LinkMap,
    dlinfo: Info,
}

type Info = unsafe extern "C" fn(*mut c_void, c_int, *mut c_void) -> c_int;

/// What glibc tells of an object.
#[repr(C)]
struct LinkMap {
    base: usize,
    /// Empty in the program itself.
    name: *const c_char,
}

/// glibc's `Dl_serinfo`, with the first of its folders.
#[repr(C)]
struct SearchInfo {
    size: usize,
    count: c_uint,
    first: SearchPath,
}

#[repr(C)]
struct SearchPath {
    name: *const c_char,
    flags: c_uint,
}

impl Caller {
    /// The object at an address.
    ///
    /// # Safety
    /// It stays loaded while this value is in use.
    pub(super) unsafe fn at(address: *const c_void) -> Option<Self> {
        type Address = unsafe extern "C" fn(
            *const c_void,
            *mut libc::Dl_info,
            *mut *mut LinkMap,
            c_int,
        ) -> c_int;
        const LINK_MAP: c_int = 2;
        // SAFETY: the names end in NUL.
        let find = |name: &CStr| unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
        let (dladdr1, dlinfo) = (find(c"dladdr1"), find(c"dlinfo"));
        if dladdr1.is_null() || dlinfo.is_null() {
            return None;
        }
        let mut found = MaybeUninit::<libc::Dl_info>::uninit();
        let mut object = ptr::null_mut();
        // SAFETY: glibc's functions of those names have these types. The first answers with the object, which is a handle too.
        unsafe {
            let dladdr1 = std::mem::transmute::<*mut c_void, Address>(dladdr1);
            let dlinfo = std::mem::transmute::<*mut c_void, Info>(dlinfo);
            let known = dladdr1(address, found.as_mut_ptr(), &raw mut object, LINK_MAP) != 0;
            (known && !object.is_null()).then_some(Self { object, dlinfo })
        }
    }

    /// The folders in which it looks for what it opens by name.
    pub(super) fn folders(&self) -> Vec<PathBuf> {
        const SEARCH: c_int = 4;
        const SEARCH_SIZE: c_int = 5;
        let mut size =
            SearchInfo { size: 0, count: 0, first: SearchPath { name: ptr::null(), flags: 0 } };
        // SAFETY: `dlinfo` writes the head of the structure, and then as many bytes as that says.
        unsafe {
            if (self.dlinfo)(self.object.cast(), SEARCH_SIZE, (&raw mut size).cast()) != 0 {
                return Vec::new();
            }
            let mut room = vec![0u64; size.size.div_ceil(8).max(size_of::<SearchInfo>() / 8)];
            let info = room.as_mut_ptr().cast::<SearchInfo>();
            (*info).size = size.size;
            (*info).count = size.count;
            if (self.dlinfo)(self.object.cast(), SEARCH, info.cast()) != 0 {
                return Vec::new();
            }
            let first = (&raw const (*info).first).cast::<SearchPath>();
            (0..(*info).count as usize)
                .map(|index| CStr::from_ptr((*first.add(index)).name).to_bytes())
                .map(|name| PathBuf::from(OsStr::from_bytes(name)))
                .collect()
        }
    }

    /// A path with `$ORIGIN` in it, as this object means it. What else begins with `$` means the same everywhere.
    /// `None` where that place is not known, or the program has rights that its caller lacks.
    pub(super) fn expands(&self, path: &[u8]) -> Option<CString> {
        if process::has_more_rights_than_its_caller() {
            return None;
        }
        let mut whole = Vec::new();
        let mut rest = path;
        while let Some(at) = rest.iter().position(|&byte| byte == b'$') {
            let (before, token) = rest.split_at(at);
            whole.extend_from_slice(before);
            let len = token_len(token);
            if len == 0 {
                whole.push(b'$');
                rest = &token[1..];
            } else {
                whole.extend_from_slice(&self.origin()?);
                rest = &token[len..];
            }
        }
        whole.extend_from_slice(rest);
        CString::new(whole).ok()
    }

    /// The folder in which it lies.
    fn origin(&self) -> Option<Vec<u8>> {
        const ORIGIN: c_int = 6;
        // SAFETY: an object that is loaded; its name ends in NUL.
        let name = unsafe {
            let name = (*self.object).name;
            if name.is_null() { c"" } else { CStr::from_ptr(name) }
        };
        if name.is_empty() {
            // Some versions of libc do not know the program's own until they used it.
            let file = readlinkat(CWD, c"/proc/self/exe", Vec::new()).ok()?;
            let file = Path::new(OsStr::from_bytes(file.to_bytes()));
            return file.parent().map(|folder| folder.as_os_str().as_bytes().to_vec());
        }
        if name.to_bytes()[0] == b'/' {
            let folder = Path::new(OsStr::from_bytes(name.to_bytes())).parent()?;
            return Some(folder.as_os_str().as_bytes().to_vec());
        }
        // Relative to where the program was when it was opened: libc has noted that.
        let mut room = vec![0u8; libc::PATH_MAX as usize + name.count_bytes() + 2];
        // SAFETY: libc writes a path of the folder of then and the name at most, and a NUL.
        if unsafe { (self.dlinfo)(self.object.cast(), ORIGIN, room.as_mut_ptr().cast()) } != 0 {
            return None;
        }
        Some(CStr::from_bytes_until_nul(&room).ok()?.to_bytes().to_vec())
    }
}

/// Bytes of the token that stands for the origin, at whose `$` the text begins. 0: it begins with another.
fn token_len(text: &[u8]) -> usize {
    const CURLY: &[u8] = b"${ORIGIN}";
    const PLAIN: &[u8] = b"$ORIGIN";
    if text.starts_with(CURLY) {
        return CURLY.len();
    }
    let ends =
        |next: Option<&u8>| next.is_none_or(|byte| !byte.is_ascii_alphanumeric() && *byte != b'_');
    if text.starts_with(PLAIN) && ends(text.get(PLAIN.len())) { PLAIN.len() } else { 0 }
}
