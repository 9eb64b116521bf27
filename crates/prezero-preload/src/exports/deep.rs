//! What a library that was opened with `RTLD_DEEPBIND` found of libc's, led to this library's functions.
//!
//! The dynamic linker fills a *slot* for each function that an object calls or keeps the address of. A slot that holds the
//! next allocator's function of a name that this library has gets this library's. So does one that is filled at its
//! first call, where the object would find that function. An object that brings a `malloc` of its own, or depends on one,
//! has found that, and keeps it: without prezero it would use it too.
//!
//! Looked at are the opened library and all that were loaded after it: its dependencies, and what its constructors
//! opened. What constructors allocated or kept comes from the next allocator, which `free` knows by its address.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::slice;
use std::sync::atomic::{AtomicUsize, Ordering};

use libc::Elf64_Sym;
use prezero_core::PAGE;
use prezero_sys::objects::{self, Object};

use super::dlopen;
use crate::compat::next;

/// The names of this library that [`next`] does not have.
const OTHERS: [&CStr; 8] = [
    c"cfree",
    c"dlopen",
    c"dlmopen",
    c"vfork",
    c"mmap64",
    c"reallocarray",
    c"free_sized",
    c"free_aligned_sized",
];

/// A name, and what it leads to.
struct Name {
    name: &'static CStr,
    /// The function in this library.
    ours: usize,
    /// That of the next allocator, or of libc.
    theirs: usize,
}

/// Leads the slots of the library that was just opened, and of all that came with it.
pub(super) fn lead_here(handle: *mut c_void) {
    let here = lead_here as *const () as usize;
    let Some(own) = objects::find(|each| each.has(libc::PT_LOAD, here)) else { return };
    let names = names(&own);
    // SAFETY: in glibc a handle begins with the address at which the object is loaded.
    let base = unsafe { *handle.cast::<usize>() };
    let mut index = 0;
    let mut reached = false;
    while let Some((each, name)) = object_at(index) {
        index += 1;
        reached |= each.base == base;
        if reached && !name.is_empty() {
            // Held while it is looked at: another thread may close it.
            let held = dlopen::next(&name, libc::RTLD_LAZY | libc::RTLD_NOLOAD);
            if !held.is_null() {
                // SAFETY: the object is loaded, and stays.
                unsafe { Held(each).lead(held, &names) };
                // SAFETY: opened above.
                unsafe { libc::dlclose(held) };
            }
        }
    }
    // SAFETY: no terms. What was not found is no error that the program should hear of.
    unsafe { libc::dlerror() };
}

/// The names that lead to this library in the program, whose objects see those of `own`.
fn names(own: &Object) -> Vec<Name> {
    let find = |within: *mut c_void, name: &CStr| {
        // SAFETY: the name ends in NUL.
        unsafe { libc::dlsym(within, name.as_ptr()) as usize }
    };
    let both = |name: &'static CStr| Name {
        name,
        ours: find(libc::RTLD_DEFAULT, name),
        theirs: find(libc::RTLD_NEXT, name),
    };
    let known = next::names().chain(OTHERS).map(both);
    known.filter(|name| own.has(libc::PT_LOAD, name.ours) && name.theirs != 0).collect()
}

/// The object of that number, in the order in which they were loaded, and its name.
fn object_at(index: usize) -> Option<(Object, CString)> {
    let (mut before, mut name) = (index, None);
    let object = objects::find(|object| {
        name = (before == 0).then(|| object.name().to_owned());
        before = before.wrapping_sub(1);
        name.is_some()
    });
    object.zip(name)
}

/// An entry of a table of slots.
#[repr(C)]
struct Entry {
    place: usize,
    symbol_and_kind: u64,
    addend: usize,
}

/// What an object's dynamic section says of its slots.
#[derive(Default)]
struct Dynamic {
    texts: usize,
    symbols: usize,
    /// Address and bytes.
    tables: [(usize, usize); 2],
}

/// An object that is held while it is changed.
struct Held(Object);

impl Held {
    /// # Safety
    /// It is loaded, and stays meanwhile.
    unsafe fn dynamic(&self) -> Option<Dynamic> {
        const PLT_SIZE: usize = 2;
        const STRTAB: usize = 5;
        const SYMTAB: usize = 6;
        const RELA: usize = 7;
        const RELA_SIZE: usize = 8;
        const PLT: usize = 23;
        let mut found = Dynamic::default();
        let mut at = self.0.parts(libc::PT_DYNAMIC).next()?.0 as *const [usize; 2];
        loop {
            // SAFETY: the section ends in a tag of 0. The loader has made addresses of its offsets.
            let [tag, value] = unsafe { *at };
            match tag {
                0 => break,
                STRTAB => found.texts = value,
                SYMTAB => found.symbols = value,
                RELA => found.tables[0].0 = value,
                RELA_SIZE => found.tables[0].1 = value,
                PLT => found.tables[1].0 = value,
                PLT_SIZE => found.tables[1].1 = value,
                _ => {}
            }
            // SAFETY: the section goes on.
            at = unsafe { at.add(1) };
        }
        (self.0.has(libc::PT_LOAD, found.symbols) && self.0.has(libc::PT_LOAD, found.texts))
            .then_some(found)
    }

    /// Leads its slots.
    ///
    /// # Safety
    /// It is loaded, and `handle` holds it.
    unsafe fn lead(&self, handle: *mut c_void, names: &[Name]) {
        // SAFETY: the caller's promise.
        let Some(dynamic) = (unsafe { self.dynamic() }) else { return };
        let mut opened = false;
        for (table, bytes) in dynamic.tables {
            if !self.0.has(libc::PT_LOAD, table) {
                continue;
            }
            // SAFETY: a table of the object, of that length.
            let entries =
                unsafe { slice::from_raw_parts(table as *const Entry, bytes / size_of::<Entry>()) };
            for entry in entries {
                // SAFETY: an entry of the object's.
                if let Some((slot, name)) = unsafe { self.slot(&dynamic, entry, handle, names) } {
                    if self.0.has(libc::PT_GNU_RELRO, slot) && !opened {
                        self.protect(libc::PROT_READ | libc::PROT_WRITE);
                        opened = true;
                    }
                    // SAFETY: a slot of the object's, which is aligned, and can be written to now.
                    unsafe { AtomicUsize::from_ptr(slot as *mut usize) }
                        .store(name.ours, Ordering::Release);
                }
            }
        }
        if opened {
            self.protect(libc::PROT_READ);
        }
    }

    /// The slot of an entry, and the name in whose function it is to lead.
    ///
    /// # Safety
    /// The object is loaded, and `handle` holds it.
    unsafe fn slot<'a>(
        &self,
        dynamic: &Dynamic,
        entry: &Entry,
        handle: *mut c_void,
        names: &'a [Name],
    ) -> Option<(usize, &'a Name)> {
        const ADDRESS: u32 = 1;
        const DATA: u32 = 6;
        const CALL: u32 = 7;
        let (symbol, kind) = ((entry.symbol_and_kind >> 32) as usize, entry.symbol_and_kind as u32);
        if !matches!(kind, ADDRESS | DATA | CALL) || symbol == 0 || entry.addend != 0 {
            return None;
        }
        let slot = self.0.base.wrapping_add(entry.place);
        if !slot.is_multiple_of(align_of::<usize>()) || !self.0.has(libc::PT_LOAD, slot) {
            return None;
        }
        // SAFETY: a symbol of the object's, whose name ends in NUL; a word of the object's.
        let (text, value) = unsafe {
            let symbol = &*(dynamic.symbols as *const Elf64_Sym).add(symbol);
            let text = (dynamic.texts + symbol.st_name as usize) as *const c_char;
            (
                CStr::from_ptr(text),
                AtomicUsize::from_ptr(slot as *mut usize).load(Ordering::Relaxed),
            )
        };
        let name = names.iter().find(|each| each.name == text)?;
        // A call that was not made yet leads into the object itself, and from there to the dynamic linker.
        // SAFETY: the name ends in NUL.
        let found = || unsafe { libc::dlsym(handle, text.as_ptr()) as usize };
        let waits = kind == CALL && self.0.has(libc::PT_LOAD, value);
        (value == name.theirs || waits && found() == name.theirs).then_some((slot, name))
    }

    /// Changes the protection of what the loader made read-only.
    fn protect(&self, protection: c_int) {
        for (start, header) in self.0.parts(libc::PT_GNU_RELRO) {
            // As the loader does it: whole pages, of which the last is left out if it is a part.
            let end = (start + header.p_memsz as usize) & !(PAGE - 1);
            let start = start & !(PAGE - 1);
            if end > start {
                // SAFETY: pages of an object that is held.
                unsafe { next::mprotect(start as *mut c_void, end - start, protection) };
            }
        }
    }
}
