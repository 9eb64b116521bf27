//! What the library gets along with: libc, and the allocator that the program had.
//!
//! | module | holds |
//! |---|---|
//! | [`next`] | the functions behind the exported ones; [`arena`] until they are known |
//! | [`learn`] | large blocks, shown to glibc |
//! | [`company`] | what else is in the program |
//! | [`whole`] | whether the malloc family is of one object |
//! | [`errno`] | the program's `errno`, left alone |
//! | [`message`] | text without stdio |

pub mod arena;
pub mod company;
pub mod errno;
pub mod learn;
pub mod message;
pub mod next;
pub mod whole;

#[cfg(target_env = "gnu")]
prezero_glibc::names!(dlsym);
