//! What the dynamic linker has loaded: the program, its libraries, and what they opened.
//!
//! To ask takes a lock of the dynamic linker's, so nothing here is for a request.

use std::ffi::{CStr, c_int, c_void};
use std::slice;

use libc::{Elf64_Phdr, dl_phdr_info};

/// An object that is loaded.
#[derive(Clone, Copy)]
pub struct Object {
    /// The address that its own count from.
    pub base: usize,
    /// Its number among those that have thread-locals, and where the calling thread has them; null: not yet.
    pub locals: (usize, *const u8),
    headers: &'static [Elf64_Phdr],
    name: &'static CStr,
}

impl Object {
    /// Its path; empty in the program itself. Both stay while it is loaded.
    pub fn name(&self) -> &CStr {
        self.name
    }

    /// Its parts of that kind, and where they begin.
    pub fn parts(&self, kind: u32) -> impl Iterator<Item = (usize, &Elf64_Phdr)> {
        let parts = self.headers.iter().filter(move |header| header.p_type == kind);
        parts.map(|header| (self.base.wrapping_add(header.p_vaddr as usize), header))
    }

    /// Whether an address lies in a part of that kind.
    pub fn has(&self, kind: u32, address: usize) -> bool {
        let within = |(start, header): (usize, &Elf64_Phdr)| {
            address.wrapping_sub(start) < header.p_memsz as usize
        };
        self.parts(kind).any(within)
    }
}

/// The first object of which that is true, in the order in which they were loaded.
pub fn find(mut is_it: impl FnMut(&Object) -> bool) -> Option<Object> {
    struct Search<'a> {
        is_it: &'a mut dyn FnMut(&Object) -> bool,
        found: Option<Object>,
    }
    unsafe extern "C" fn look(info: *mut dl_phdr_info, _: usize, search: *mut c_void) -> c_int {
        // SAFETY: the loader describes an object, with its headers and its name; `search` is what is given below.
        let (object, search) = unsafe {
            let info = &*info;
            let object = Object {
                base: info.dlpi_addr as usize,
                locals: (info.dlpi_tls_modid, info.dlpi_tls_data.cast()),
                headers: slice::from_raw_parts(info.dlpi_phdr, info.dlpi_phnum.into()),
                name: if info.dlpi_name.is_null() { c"" } else { CStr::from_ptr(info.dlpi_name) },
            };
            (object, &mut *search.cast::<Search>())
        };
        search.found = (search.is_it)(&object).then_some(object);
        search.found.is_some().into()
    }
    let mut search = Search { is_it: &mut is_it, found: None };
    // SAFETY: `look` takes what it is given here.
    unsafe { libc::dl_iterate_phdr(Some(look), (&raw mut search).cast()) };
    search.found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_program_comes_first_and_holds_its_functions() {
        let here = find as fn(fn(&Object) -> bool) -> Option<Object> as usize;
        let mut count = 0;
        let own = find(|object| {
            count += 1;
            object.has(libc::PT_LOAD, here)
        });
        assert!(count == 1 && own.is_some_and(|own| own.name().is_empty()));
    }
}
