//! Values that are built where they stay.
//!
//! The first large request of a program may come on a stack of a few KiB: a coroutine's, a signal handler's. A zone is
//! as large as such a stack, and a value that a function returns is copied from frame to frame. So a zone is written
//! field by field into the memory where it stays.

/// The slot of a field in the slot of a struct, to build the field there.
macro_rules! field_of {
    ($slot:expr, $field:ident) => {{
        let slot: &mut std::mem::MaybeUninit<Self> = $slot;
        // SAFETY: a field of the slot, which is lent for as long; what is not initialised is as good in one as in the
        // other.
        #[allow(unsafe_code)]
        unsafe {
            &mut *(&raw mut (*slot.as_mut_ptr()).$field).cast::<std::mem::MaybeUninit<_>>()
        }
    }};
}
pub(crate) use field_of;

/// Builds a value of a struct in a slot, a `&mut MaybeUninit`, and lends it. Each field is named once, or it does not
/// compile; those after `and built` were built there before. A value that may fail is made before, outside: what is
/// written already would be lost.
macro_rules! build_in {
    ($slot:expr, $name:ident { $($field:ident: $value:expr,)* } $(and built { $($there:ident),* })?) => {{
        let slot: &mut std::mem::MaybeUninit<_> = $slot;
        let to = slot.as_mut_ptr();
        // Each in a block of its own, so that all use the same part of the stack.
        $({
            let value = $value;
            // SAFETY: a field of the slot, which nothing refers to yet.
            #[allow(unsafe_code)]
            unsafe {
                (&raw mut (*to).$field).write(value);
            }
        })*
        // SAFETY: each field was written: the closure names all of them, and would not compile without one.
        #[allow(unsafe_code)]
        let built = unsafe { slot.assume_init_mut() };
        let _ = |whole: &Self| {
            let $name { $($field: _,)* $($($there: _,)*)? } = whole;
        };
        built
    }};
}
pub(crate) use build_in;
