//! glibc, for what is preloaded into other people's programs: names that an older one lacks, and how to link with it.
//!
//! | part | what |
//! |---|---|
//! | [`names!`] | a library that loads with each glibc from 2.17 on |
//! | [`names`] | what a newer name does where glibc lacks it |
//! | [`link`] | for build scripts: without the shared unwinder, and without glibc's dynamic linker by name |
//!
//! A linker notes the version of each of glibc's names that a library uses, and glibc's loader ends a program whose
//! library asks for a version that it lacks. So [`names!`] makes each newer name a function of the library, hidden from
//! all others, which jumps to the oldest version of that name where the program has one, and to a function of [`names`]
//! where not. `tests/library.sh` reads which versions a built library asks for.
//!
//! Layers: link, names

pub mod link;
#[cfg(target_env = "gnu")]
pub mod names;

/// The newer names that a library uses, as functions of its own. `dlsym` and `pthread_create` are given by those that
/// export no function of that name: `names!(dlsym pthread_create)`.
#[macro_export]
macro_rules! names {
    (@ dlsym) => { $crate::oldest! { "dlsym" = "GLIBC_2.2.5" | $crate::names::find; } };
    (@ pthread_create) => { $crate::oldest! { "pthread_create" = "GLIBC_2.2.5" | $crate::names::refuse; } };
    ($($too:ident)*) => {
        $($crate::names! { @ $too })*
        $crate::oldest! {
            "dlerror" = "GLIBC_2.2.5" | $crate::names::nothing;
            "dladdr" = "GLIBC_2.2.5" | $crate::names::nothing;
            "dlclose" = "GLIBC_2.2.5" | $crate::names::nothing;
            "pthread_attr_setstacksize" = "GLIBC_2.2.5" | $crate::names::refuse;
            "pthread_join" = "GLIBC_2.2.5" | $crate::names::refuse;
            "pthread_detach" = "GLIBC_2.2.5" | $crate::names::refuse;
            "pthread_setname_np" = "GLIBC_2.12" | $crate::names::refuse;
            "pthread_key_create" = "GLIBC_2.2.5" | $crate::names::make_key;
            "__pthread_key_create" = "GLIBC_2.2.5" | $crate::names::make_key;
            "pthread_key_delete" = "GLIBC_2.2.5" | $crate::names::nothing;
            "pthread_setspecific" = "GLIBC_2.2.5" | $crate::names::nothing;
            "pthread_once" = "GLIBC_2.2.5" | $crate::names::once;
        }
        // For x86-64 the library that opens others exports a `dlopen` of its own.
        #[cfg(target_arch = "aarch64")]
        $crate::oldest! { "dlopen" = "GLIBC_2.17" | $crate::names::nothing; }
        $crate::own! {
            "_dl_find_object" = $crate::names::find_object;
            "__cxa_thread_atexit_impl" = $crate::names::at_thread_exit;
            "pthread_sigmask" = $crate::names::sigmask;
            "gettid" = $crate::names::gettid;
            "statx" = $crate::names::statx;
            "stat64" = $crate::names::stat;
            "fstat64" = $crate::names::fstat;
        }
    };
}

/// `NAME = VERSION | FUNCTION`: glibc's name of that version, which may be missing, or the function.
#[cfg(target_arch = "x86_64")]
#[doc(hidden)]
#[macro_export]
macro_rules! oldest {
    ($($name:literal = $version:literal | $otherwise:path;)*) => {$(
        ::std::arch::global_asm!(
            concat!(".weak glibcs_", $name),
            concat!(".symver glibcs_", $name, ", ", $name, "@", $version),
            concat!(".globl ", $name, "\n.hidden ", $name, "\n.type ", $name, ", %function"),
            concat!($name, ":"),
            concat!("mov r11, qword ptr [rip + glibcs_", $name, "@GOTPCREL]"),
            "test r11, r11",
            "je {otherwise}",
            "jmp r11",
            concat!(".size ", $name, ", . - ", $name),
            otherwise = sym $otherwise,
        );
    )*};
}

/// As above. 2.17 is the first version of this machine.
#[cfg(target_arch = "aarch64")]
#[doc(hidden)]
#[macro_export]
macro_rules! oldest {
    ($($name:literal = $version:literal | $otherwise:path;)*) => {$(
        ::std::arch::global_asm!(
            concat!(".weak glibcs_", $name),
            concat!(".symver glibcs_", $name, ", ", $name, "@GLIBC_2.17"),
            concat!(".globl ", $name, "\n.hidden ", $name, "\n.type ", $name, ", %function"),
            concat!($name, ":"),
            concat!("adrp x16, :got:glibcs_", $name),
            concat!("ldr x16, [x16, :got_lo12:glibcs_", $name, "]"),
            "cbz x16, 1f",
            "br x16",
            "1: b {otherwise}",
            concat!(".size ", $name, ", . - ", $name),
            otherwise = sym $otherwise,
        );
    )*};
}

/// `NAME = FUNCTION`: glibc's name is newer than all that a library may ask for.
#[doc(hidden)]
#[macro_export]
macro_rules! own {
    ($($name:literal = $function:path;)*) => {$(
        ::std::arch::global_asm!(
            concat!(".weak ", $name, "\n.hidden ", $name, "\n.type ", $name, ", %function"),
            concat!($name, ":"),
            $crate::jump!(),
            concat!(".size ", $name, ", . - ", $name),
            function = sym $function,
        );
    )*};
}

/// A jump of this machine.
#[cfg(target_arch = "x86_64")]
#[doc(hidden)]
#[macro_export]
macro_rules! jump {
    () => {
        "jmp {function}"
    };
}

/// A jump of this machine.
#[cfg(target_arch = "aarch64")]
#[doc(hidden)]
#[macro_export]
macro_rules! jump {
    () => {
        "b {function}"
    };
}
