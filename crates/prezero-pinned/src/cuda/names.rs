//! The functions of CUDA and HIP that allocate and register host memory, with this library's in front of them.
//!
//! | a program finds them by | seen by |
//! |---|---|
//! | linking `libcudart` or `libcuda` | the names that this library exports |
//! | `dlsym` | [`dlsym`] |
//! | `cuGetProcAddress`, `cudaGetDriverEntryPoint` | the functions below |
//! | linking `libcudart_static` | its own look at `libcuda`, which is one of the two above |

use std::ffi::{CStr, c_char, c_int, c_uint, c_ulonglong, c_void};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, Ordering::Relaxed};

use super::{dlsym, pinned};

/// Whose function it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Api {
    Runtime,
    Driver,
    Hip,
}

impl Api {
    /// The libraries that have it, the newest first.
    fn libraries(self) -> &'static [&'static CStr] {
        match self {
            Api::Runtime => &[c"libcudart.so.13", c"libcudart.so.12", c"libcudart.so.11.0"],
            Api::Driver => &[c"libcuda.so.1"],
            Api::Hip => {
                &[c"libamdhip64.so.7", c"libamdhip64.so.6", c"libamdhip64.so.5", c"libamdhip64.so"]
            }
        }
    }
}

/// The library's own function of a name.
#[derive(Debug)]
pub struct Slot {
    pub symbol: &'static CStr,
    pub api: Api,
    real: AtomicPtr<c_void>,
}

impl Slot {
    const fn new(symbol: &'static CStr, api: Api) -> Slot {
        Slot { symbol, api, real: AtomicPtr::new(null_mut()) }
    }

    /// It lies there.
    pub fn learn(&self, address: *mut c_void) {
        self.real.store(address, Relaxed);
    }

    /// Where it lies: where the program found it, or in what is loaded.
    pub fn real(&self) -> Option<*mut c_void> {
        let known = self.real.load(Relaxed);
        if !known.is_null() {
            return Some(known);
        }
        let mut found = dlsym::look_up(libc::RTLD_NEXT, self.symbol);
        for library in self.api.libraries() {
            if !found.is_null() {
                break;
            }
            let handle = loaded(library);
            if !handle.is_null() {
                found = dlsym::look_up(handle, self.symbol);
            }
        }
        self.learn(found);
        (!found.is_null()).then_some(found)
    }
}

/// A library that is loaded; null: it is not. Each glibc has `dlopen`, of another version.
fn loaded(library: &CStr) -> *mut c_void {
    type Open = unsafe extern "C" fn(*const c_char, c_int) -> *mut c_void;
    let open = dlsym::look_up(libc::RTLD_NEXT, c"dlopen");
    if open.is_null() {
        return null_mut();
    }
    // SAFETY: glibc's function of that name has this type. A name that ends in NUL; nothing is loaded.
    unsafe {
        std::mem::transmute::<*mut c_void, Open>(open)(
            library.as_ptr(),
            libc::RTLD_LAZY | libc::RTLD_NOLOAD,
        )
    }
}

/// One of the names.
pub struct Known {
    pub slot: &'static Slot,
    pub ours: *const (),
}

// SAFETY: addresses of functions.
unsafe impl Sync for Known {}

/// What CUDA answers where a function is missing: `cudaErrorInitializationError`, `CUDA_ERROR_NOT_INITIALIZED`.
const NOT_INITIALIZED: c_int = 3;
/// Room for a PCI address, with a domain of eight digits.
const ADDRESS: usize = 32;

macro_rules! call {
    ($slot:expr, ($($type:ty),*), $($value:expr),*) => {
        match $slot.real() {
            None => NOT_INITIALIZED,
            Some(real) => {
                // SAFETY: the function of that name has this type.
                let real: unsafe extern "C" fn($($type),*) -> c_int = unsafe { std::mem::transmute(real) };
                // SAFETY: called as this library's.
                unsafe { real($($value),*) }
            }
        }
    };
}

macro_rules! names {
    ($($api:ident $form:ident $name:ident = $symbol:literal;)*) => {
        #[allow(non_upper_case_globals)]
        mod slots {
            use super::{Api, Slot};
            $(pub static $name: Slot = Slot::new($symbol, Api::$api);)*
        }
        static ALL: &[Known] = &[$(Known { slot: &slots::$name, ours: $name as *const () }),*];
        $(names!(@$form $name);)*
    };
    (@allocates_flags $name:ident) => {
        /// # Safety
        /// As for the function of that name.
        #[unsafe(no_mangle)]
        #[allow(non_snake_case)]
        pub unsafe extern "C" fn $name(out: *mut *mut c_void, len: usize, flags: c_uint) -> c_int {
            let real = || call!(slots::$name, (*mut *mut c_void, usize, c_uint), out, len, flags);
            // SAFETY: the caller's room for the address.
            unsafe { pinned::allocate(slots::$name.api, out, len, flags, real) }
        }
    };
    (@allocates $name:ident) => {
        /// # Safety
        /// As for the function of that name.
        #[unsafe(no_mangle)]
        #[allow(non_snake_case)]
        pub unsafe extern "C" fn $name(out: *mut *mut c_void, len: usize) -> c_int {
            let real = || call!(slots::$name, (*mut *mut c_void, usize), out, len);
            // SAFETY: the caller's room for the address.
            unsafe { pinned::allocate(slots::$name.api, out, len, 0, real) }
        }
    };
    (@frees $name:ident) => {
        /// # Safety
        /// As for the function of that name.
        #[unsafe(no_mangle)]
        #[allow(non_snake_case)]
        pub unsafe extern "C" fn $name(at: *mut c_void) -> c_int {
            pinned::free(slots::$name.api, at, || call!(slots::$name, (*mut c_void), at))
        }
    };
    (@registers $name:ident) => {
        /// # Safety
        /// As for the function of that name.
        #[unsafe(no_mangle)]
        #[allow(non_snake_case)]
        pub unsafe extern "C" fn $name(at: *mut c_void, len: usize, flags: c_uint) -> c_int {
            let real = || call!(slots::$name, (*mut c_void, usize, c_uint), at, len, flags);
            pinned::register(at, len, real)
        }
    };
    (@unregisters $name:ident) => {
        /// # Safety
        /// As for the function of that name.
        #[unsafe(no_mangle)]
        #[allow(non_snake_case)]
        pub unsafe extern "C" fn $name(at: *mut c_void) -> c_int {
            pinned::unregister(at, |at| call!(slots::$name, (*mut c_void), at))
        }
    };
    (@looks_up $name:ident) => {
        /// # Safety
        /// As for the function of that name, whose later arguments older versions do not have.
        #[unsafe(no_mangle)]
        #[allow(non_snake_case)]
        pub unsafe extern "C" fn $name(
            symbol: *const c_char,
            out: *mut *mut c_void,
            third: c_ulonglong,
            fourth: c_ulonglong,
            fifth: *mut c_int,
        ) -> c_int {
            let code = call!(
                slots::$name,
                (*const c_char, *mut *mut c_void, c_ulonglong, c_ulonglong, *mut c_int),
                symbol, out, third, fourth, fifth
            );
            if code == 0 && !symbol.is_null() && !out.is_null() {
                // SAFETY: the caller's string, and its room for the address, which the function has filled.
                unsafe { put_in_front(CStr::from_ptr(symbol), &mut *out) };
            }
            code
        }
    };
}

names! {
    Runtime allocates_flags cudaHostAlloc = c"cudaHostAlloc";
    Runtime allocates cudaMallocHost = c"cudaMallocHost";
    Runtime frees cudaFreeHost = c"cudaFreeHost";
    Runtime registers cudaHostRegister = c"cudaHostRegister";
    Runtime unregisters cudaHostUnregister = c"cudaHostUnregister";
    Runtime looks_up cudaGetDriverEntryPoint = c"cudaGetDriverEntryPoint";
    Runtime looks_up cudaGetDriverEntryPointByVersion = c"cudaGetDriverEntryPointByVersion";
    Driver allocates_flags cuMemHostAlloc = c"cuMemHostAlloc";
    Driver allocates cuMemAllocHost_v2 = c"cuMemAllocHost_v2";
    Driver frees cuMemFreeHost = c"cuMemFreeHost";
    Driver registers cuMemHostRegister = c"cuMemHostRegister";
    Driver registers cuMemHostRegister_v2 = c"cuMemHostRegister_v2";
    Driver unregisters cuMemHostUnregister = c"cuMemHostUnregister";
    Driver looks_up cuGetProcAddress = c"cuGetProcAddress";
    Driver looks_up cuGetProcAddress_v2 = c"cuGetProcAddress_v2";
    Hip allocates_flags hipHostMalloc = c"hipHostMalloc";
    Hip allocates_flags hipHostAlloc = c"hipHostAlloc";
    Hip allocates hipMallocHost = c"hipMallocHost";
    Hip frees hipHostFree = c"hipHostFree";
    Hip frees hipFreeHost = c"hipFreeHost";
    Hip registers hipHostRegister = c"hipHostRegister";
    Hip unregisters hipHostUnregister = c"hipHostUnregister";
}

/// One of the names, by what `dlsym` is asked for.
pub fn known(symbol: &CStr) -> Option<&'static Known> {
    let bytes = symbol.to_bytes();
    if !bytes.starts_with(b"cu") && !bytes.starts_with(b"hip") {
        return None;
    }
    ALL.iter().find(|each| each.slot.symbol == symbol)
}

/// The driver's functions are asked for without the ending of their version: the newest is what comes.
fn put_in_front(symbol: &CStr, out: &mut *mut c_void) {
    let base = symbol.to_bytes();
    let is_it = |each: &&Known| {
        let name = each.slot.symbol.to_bytes();
        each.slot.api == Api::Driver && name.strip_suffix(b"_v2").unwrap_or(name) == base
    };
    // The later of two is that of the newer version.
    if let Some(known) = ALL.iter().rfind(is_it)
        && !out.is_null()
        && *out != known.ours.cast_mut().cast()
    {
        known.slot.learn(*out);
        *out = known.ours.cast_mut().cast();
    }
}

/// Functions of a library that this one calls by itself.
pub struct Own {
    register: &'static Slot,
    unregister: &'static Slot,
    device_pointer: Slot,
    /// Of the calling thread, and where it is plugged in.
    device: Slot,
    bus_address: Slot,
    last_error: Option<Slot>,
}

static OWN: [Own; 3] = [
    Own {
        register: &slots::cudaHostRegister,
        unregister: &slots::cudaHostUnregister,
        device_pointer: Slot::new(c"cudaHostGetDevicePointer", Api::Runtime),
        device: Slot::new(c"cudaGetDevice", Api::Runtime),
        bus_address: Slot::new(c"cudaDeviceGetPCIBusId", Api::Runtime),
        last_error: Some(Slot::new(c"cudaGetLastError", Api::Runtime)),
    },
    Own {
        register: &slots::cuMemHostRegister_v2,
        unregister: &slots::cuMemHostUnregister,
        device_pointer: Slot::new(c"cuMemHostGetDevicePointer_v2", Api::Driver),
        device: Slot::new(c"cuCtxGetDevice", Api::Driver),
        bus_address: Slot::new(c"cuDeviceGetPCIBusId", Api::Driver),
        last_error: None,
    },
    Own {
        register: &slots::hipHostRegister,
        unregister: &slots::hipHostUnregister,
        device_pointer: Slot::new(c"hipHostGetDevicePointer", Api::Hip),
        device: Slot::new(c"hipGetDevice", Api::Hip),
        bus_address: Slot::new(c"hipDeviceGetPCIBusId", Api::Hip),
        last_error: Some(Slot::new(c"hipGetLastError", Api::Hip)),
    },
];

impl Own {
    /// Those of a library.
    pub fn of(api: Api) -> &'static Own {
        &OWN[api as usize]
    }

    /// Pins memory that is there.
    pub fn register(&self, at: *mut c_void, len: usize, flags: c_uint) -> c_int {
        call!(self.register, (*mut c_void, usize, c_uint), at, len, flags)
    }

    /// Ends that.
    pub fn unregister(&self, at: *mut c_void) -> c_int {
        call!(self.unregister, (*mut c_void), at)
    }

    /// The PCI address of this thread's GPU, which ends in NUL; `None`: it has none.
    pub fn gpu(&self) -> Option<[u8; ADDRESS]> {
        let (mut device, mut address): (c_int, _) = (0, [0; ADDRESS]);
        let mut code = call!(self.device, (*mut c_int), &raw mut device);
        if code == 0 {
            let out = address.as_mut_ptr().cast();
            code =
                call!(self.bus_address, (*mut c_char, c_int, c_int), out, ADDRESS as c_int, device);
        }
        if code != 0 {
            self.clear_error();
        }
        (code == 0).then_some(address)
    }

    /// Whether a device sees this memory at another address than the host.
    pub fn is_elsewhere(&self, at: *mut c_void) -> bool {
        let mut address: *mut c_void = null_mut();
        let out = &raw mut address;
        let code = call!(self.device_pointer, (*mut *mut c_void, *mut c_void, c_uint), out, at, 0);
        if code != 0 {
            self.clear_error();
        }
        code == 0 && address != at
    }

    /// Takes the error that a failed call left for the thread's next question.
    pub fn clear_error(&self) {
        if let Some(last) = &self.last_error {
            call!(last, (),);
        }
    }
}
