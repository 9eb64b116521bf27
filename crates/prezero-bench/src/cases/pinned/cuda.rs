//! `libcudart`, as far as host memory goes, opened at run time.

use std::ffi::{CStr, c_int, c_uint, c_void};
use std::ptr::null_mut;

use anyhow::{Result, ensure};

/// The runtimes whose host functions are these.
const NAMES: [&CStr; 3] = [c"libcudart.so.13", c"libcudart.so.12", c"libcudart.so.11.0"];
/// `cudaMemcpyKind`.
const TO_DEVICE: c_int = 1;
const FROM_DEVICE: c_int = 2;

/// See the module.
pub struct Cuda {
    library: *mut c_void,
    /// Whether it is that of tests/standin.
    pub is_standin: bool,
}

macro_rules! call {
    ($cuda:expr, $name:literal, ($($type:ty),*), $($value:expr),*) => {{
        let name: &CStr = $name;
        // SAFETY: a name that ends in NUL, of a library that stays open.
        let found = unsafe { libc::dlsym($cuda.library, name.as_ptr()) };
        ensure!(!found.is_null(), "{} is not in this libcudart", name.to_string_lossy());
        // SAFETY: cuda_runtime_api.h gives the function of that name this type.
        let function: unsafe extern "C" fn($($type),*) -> c_int = unsafe { std::mem::transmute(found) };
        // SAFETY: addresses are of room that lives as long as the call, or were made by this library.
        let code = unsafe { function($($value),*) };
        ensure!(code == 0, "{}: error {code}", name.to_string_lossy());
    }};
}

impl Cuda {
    /// Opens it.
    pub fn find() -> Result<Cuda> {
        for name in NAMES {
            // SAFETY: a name that ends in NUL; the library's constructors are NVIDIA's, or the stand-in's.
            let library =
                unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_GLOBAL) };
            if library.is_null() {
                continue;
            }
            // SAFETY: as above, of a library that may be there already.
            let driver = unsafe { libc::dlopen(c"libcuda.so.1".as_ptr(), libc::RTLD_NOW) };
            // SAFETY: a name that ends in NUL.
            let is_standin = !driver.is_null()
                && unsafe { !libc::dlsym(driver, c"standin_copy".as_ptr()).is_null() };
            return Ok(Cuda { library, is_standin });
        }
        anyhow::bail!(
            "no libcudart here: install CUDA, or name a folder that has it by LD_LIBRARY_PATH; \
             tests/standin has one for machines without a GPU"
        )
    }

    /// Has the context made, which takes its time once.
    pub fn begin(&self) -> Result<()> {
        call!(self, c"cudaFree", (*mut c_void), null_mut());
        Ok(())
    }

    pub fn host_alloc(&self, len: usize) -> Result<*mut c_void> {
        let mut at = null_mut();
        call!(self, c"cudaHostAlloc", (*mut *mut c_void, usize, c_uint), &raw mut at, len, 0);
        Ok(at)
    }

    pub fn register(&self, at: *mut c_void, len: usize) -> Result<()> {
        call!(self, c"cudaHostRegister", (*mut c_void, usize, c_uint), at, len, 0);
        Ok(())
    }

    pub fn device(&self, len: usize) -> Result<*mut c_void> {
        let mut at = null_mut();
        call!(self, c"cudaMalloc", (*mut *mut c_void, usize), &raw mut at, len);
        Ok(at)
    }

    pub fn to_device(&self, device: *mut c_void, host: *const c_void, len: usize) -> Result<()> {
        let types = (device, host);
        call!(
            self,
            c"cudaMemcpy",
            (*mut c_void, *const c_void, usize, c_int),
            types.0,
            types.1,
            len,
            TO_DEVICE
        );
        Ok(())
    }

    pub fn to_host(&self, host: *mut c_void, device: *const c_void, len: usize) -> Result<()> {
        call!(
            self,
            c"cudaMemcpy",
            (*mut c_void, *const c_void, usize, c_int),
            host,
            device,
            len,
            FROM_DEVICE
        );
        Ok(())
    }

    /// What servers beside this one ask.
    pub fn info(&self) -> Result<()> {
        let (mut free, mut total) = (0usize, 0usize);
        call!(self, c"cudaMemGetInfo", (*mut usize, *mut usize), &raw mut free, &raw mut total);
        Ok(())
    }
}
