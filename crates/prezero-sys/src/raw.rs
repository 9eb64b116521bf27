//! A system call by the instruction itself.
//!
//! libc's functions may be another library's: a profiler or a spy of files hooks `open`, `read`, `close`, `syscall`, and
//! takes locks there. scrubd runs on a thread that libc does not know, where such a lock may stay locked. So whatever
//! scrubd calls comes by here or through rustix, which does the same. Neither changes `errno`.

use std::ffi::c_long;

/// Makes a call; a negative answer is minus an error's number.
///
/// # Safety
/// As for that call.
#[cfg(target_arch = "x86_64")]
pub unsafe fn syscall<const N: usize>(number: c_long, arguments: [usize; N]) -> isize {
    let all = padded(arguments);
    let answer;
    // SAFETY: the kernel's convention of calls; the caller's promise.
    unsafe {
        std::arch::asm!(
            "syscall",
            inlateout("rax") number as isize => answer,
            in("rdi") all[0],
            in("rsi") all[1],
            in("rdx") all[2],
            in("r10") all[3],
            in("r8") all[4],
            in("r9") all[5],
            lateout("rcx") _,
            lateout("r11") _,
            options(nostack),
        );
    }
    answer
}

/// Makes a call; a negative answer is minus an error's number.
///
/// # Safety
/// As for that call.
#[cfg(target_arch = "aarch64")]
pub unsafe fn syscall<const N: usize>(number: c_long, arguments: [usize; N]) -> isize {
    let all = padded(arguments);
    let answer;
    // SAFETY: the kernel's convention of calls; the caller's promise.
    unsafe {
        std::arch::asm!(
            "svc 0",
            in("x8") number,
            inlateout("x0") all[0] => answer,
            in("x1") all[1],
            in("x2") all[2],
            in("x3") all[3],
            in("x4") all[4],
            in("x5") all[5],
            options(nostack),
        );
    }
    answer
}

/// Makes a call through libc; a negative answer is minus an error's number. On these machines libc knows scrubd.
///
/// # Safety
/// As for that call.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
pub unsafe fn syscall<const N: usize>(number: c_long, arguments: [usize; N]) -> isize {
    let all = padded(arguments);
    // SAFETY: the caller's promise. `errno` is this thread's own.
    unsafe {
        let errno = *libc::__errno_location();
        let answer = libc::syscall(number, all[0], all[1], all[2], all[3], all[4], all[5]);
        let error = *libc::__errno_location();
        *libc::__errno_location() = errno;
        if answer == -1 { -(error as isize) } else { answer as isize }
    }
}

/// The arguments of a call, as many as the kernel has room for.
fn padded<const N: usize>(arguments: [usize; N]) -> [usize; 6] {
    let mut all = [0; 6];
    all[..N].copy_from_slice(&arguments);
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_the_kernels_and_errno_stays() {
        // SAFETY: these calls read and write no memory. `errno` is this thread's own.
        unsafe {
            *libc::__errno_location() = 77;
            assert_eq!(syscall(libc::SYS_getpid, []), libc::getpid() as isize);
            assert_eq!(syscall(libc::SYS_close, [usize::MAX]), -(libc::EBADF as isize));
            assert_eq!(*libc::__errno_location(), 77);
        }
    }
}
