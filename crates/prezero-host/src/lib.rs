//! What library, broker and commands share: what the machine says of itself, two nouns for demand, and
//! what a program is told.
//!
//! | module | noun |
//! |---|---|
//! | [`pressure`] | how short of memory and CPU the machine and a cgroup are |
//! | [`topology`] | CPUs online and the caches between them and memory |
//! | [`bursts`] | how large the recent bursts of a demand were |
//! | [`sizes`] | a number of bytes, as people write it |
//! | [`samples`] | medians, their noise, and changes between pairs |
//! | [`glibc`] | glibc told to keep its memory |
//! | [`jvm`] | the options of a JVM, wherever they stand |
//!
//! The crate reads files below `/proc` and `/sys` and writes none, by system calls alone ([`prezero_sys::file`]): scrubd
//! must not run into what others hook. It has no state of its own, starts no thread and needs no `unsafe`. A file that is missing or in another form is no
//! information, never an error. Each reader takes the root directory from its caller, so a test
//! brings its own.
//!
//! Layers: sizes, samples, bursts, topology, pressure, glibc, jvm
#![forbid(unsafe_code)]
#![warn(missing_debug_implementations)]

pub mod bursts;
#[cfg(feature = "commands")]
pub mod glibc;
#[cfg(feature = "commands")]
pub mod jvm;
pub mod pressure;
#[cfg(feature = "commands")]
pub mod samples;
pub mod sizes;
pub mod topology;

pub use bursts::Bursts;
pub use pressure::Pressure;
pub use sizes::Size;
pub use topology::Topology;
