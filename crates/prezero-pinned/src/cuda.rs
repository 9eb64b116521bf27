//! CUDA and HIP: the functions that make and register host memory, however a program finds them.

mod dlsym;
mod names;
mod pinned;

pub use dlsym::{OF_LIBC, look_up};
pub use pinned::is_inside;
