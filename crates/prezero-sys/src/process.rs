//! What a process was given: environment, limits, memory of the machine. Nothing here uses a heap.

use std::ffi::{CStr, c_char};

use crate::{file, raw};

unsafe extern "C" {
    static environ: *const *const c_char;
}

/// Limits by their numbers, whose type differs between libcs.
pub const RLIMIT_AS: usize = libc::RLIMIT_AS as usize;
/// Of data.
pub const RLIMIT_DATA: usize = libc::RLIMIT_DATA as usize;
/// Of CPU time.
pub const RLIMIT_CPU: usize = libc::RLIMIT_CPU as usize;
/// Of a file's size.
pub const RLIMIT_FSIZE: usize = libc::RLIMIT_FSIZE as usize;
/// Of the user's tasks.
pub const RLIMIT_NPROC: usize = libc::RLIMIT_NPROC as usize;

/// Bytes that the name of a variable may have.
const NAME: usize = 64;

/// Whether libc has been given its environment: not so while the dynamic linker is
/// still starting it, and an empty one must not be taken for "nothing is set".
pub fn has_environment() -> bool {
    // SAFETY: libc's own variable; a word that is read whole.
    unsafe { !(&raw const environ).read().is_null() }
}

/// Whether the program has rights that the user who started it lacks (setuid, setgid, file capabilities). Its
/// environment is that user's, and must not name files to write or turn checks off.
pub fn has_more_rights_than_its_caller() -> bool {
    // SAFETY: looks a word up that the kernel passed.
    unsafe { libc::getauxval(libc::AT_SECURE) != 0 }
}

/// A variable of the environment. One that is not UTF-8 reads as U+FFFD, which no knob takes.
/// Nothing is set for a setuid program, which has the library by `/etc/ld.so.preload`.
pub fn environment(name: &str) -> Option<&'static str> {
    if has_more_rights_than_its_caller() {
        return None;
    }
    let mut buffer = [0u8; NAME];
    buffer.get_mut(..name.len())?.copy_from_slice(name.as_bytes());
    let name = CStr::from_bytes_until_nul(&buffer).ok()?;
    // SAFETY: the name ends in NUL. The value lies in the environment, which the
    // program must not change while others read it; libc's own terms.
    let value = unsafe {
        let value = libc::getenv(name.as_ptr());
        if value.is_null() {
            return None;
        }
        CStr::from_ptr(value)
    };
    Some(value.to_str().unwrap_or("\u{fffd}"))
}

/// The process's number, from the kernel.
pub fn id() -> u32 {
    rustix::process::getpid().as_raw_nonzero().get().cast_unsigned()
}

/// Whether the kernel counts reserved memory as used (`vm.overcommit_memory` = 2): a zone as
/// large as the machine would leave nothing to others.
pub fn overcommits_never() -> bool {
    file::read(c"/proc/sys/vm/overcommit_memory", &mut [0]) == Ok(b"2")
}

/// Bytes of address space that the process may use for private memory, untouched or not;
/// `usize::MAX`: no limit.
pub fn address_space() -> usize {
    let limits = [RLIMIT_AS, RLIMIT_DATA].map(limit);
    limits.into_iter().flatten().min().map_or(usize::MAX, |least| least as usize)
}

/// A limit of the process's resources; `None`: there is none, or the kernel does not say.
pub fn limit(which: usize) -> Option<u64> {
    let none = libc::RLIM_INFINITY;
    let mut limit = libc::rlimit { rlim_cur: none, rlim_max: none };
    // SAFETY: the struct is there for the call to fill.
    unsafe { raw::syscall(libc::SYS_prlimit64, [0, which, 0, (&raw mut limit).addr()]) };
    Some(limit.rlim_cur).filter(|most| *most != none)
}

/// Physical memory of the machine in bytes.
pub fn physical_memory() -> usize {
    let info = system();
    (info.totalram as usize).saturating_mul(info.mem_unit as usize)
}

/// Whether the kernel has anywhere to swap to. One that does not say has.
pub fn has_swap() -> bool {
    let info = system();
    info.totalram == 0 || info.totalswap != 0
}

/// What the kernel says of the machine's memory; zeroes where a filter of system calls answers with an error.
fn system() -> libc::sysinfo {
    // Not sysconf: older versions of it open /proc with stdio, which allocates.
    // SAFETY: a struct of integers, for which zero is valid, that the call fills. `errno` is this thread's own.
    unsafe {
        let errno = *libc::__errno_location();
        let mut info: libc::sysinfo = std::mem::zeroed();
        libc::sysinfo(&mut info);
        *libc::__errno_location() = errno;
        info
    }
}

/// Bytes of a CPU's second-level cache, as libc found them when it was loaded; 0: it does not say. No system call.
pub fn private_cache() -> usize {
    // Elsewhere sysconf opens files, or knows nothing.
    #[cfg(all(target_arch = "x86_64", target_env = "gnu"))]
    // SAFETY: reads a figure of libc's own.
    return unsafe { libc::sysconf(libc::_SC_LEVEL2_CACHE_SIZE) }.try_into().unwrap_or(0);
    #[cfg(not(all(target_arch = "x86_64", target_env = "gnu")))]
    return 0;
}

/// The second number of glibc's version; `None`: another libc. Asks the dynamic linker.
pub fn glibc_minor() -> Option<u32> {
    type Version = unsafe extern "C" fn() -> *const c_char;
    // SAFETY: the name ends in NUL; what has it is glibc's function of that type, whose text stays. What was not found is
    // no error that the program should hear of.
    let version = unsafe {
        let found = libc::dlsym(libc::RTLD_DEFAULT, c"gnu_get_libc_version".as_ptr());
        if found.is_null() {
            libc::dlerror();
            return None;
        }
        CStr::from_ptr(std::mem::transmute::<*mut libc::c_void, Version>(found)())
    };
    version.to_str().ok()?.split('.').nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_variable_that_is_set_is_read_and_no_other() {
        assert_eq!(environment("PATH"), std::env::var("PATH").ok().as_deref());
        assert_eq!(environment("PREZERO_NO_SUCH_VARIABLE"), None);
        assert_eq!(environment(&"N".repeat(NAME)), None);
        assert!(has_environment());
    }

    #[test]
    fn the_machine_has_memory() {
        assert!(physical_memory() > 1 << 20);
        assert!(address_space() > 1 << 20);
        assert!(private_cache() < 1 << 30);
    }
}
