//! What the commands of prezero share: `prezero`, `prezero-bench` and `prezero-qemu`.
//!
//! | module | noun |
//! |---|---|
//! | [`program`] | a program to run, and whether a preloaded library reaches it |
//! | [`library`] | the libraries, and how they get in front of a program's own |
//! | [`companion`] | the other programs of prezero |
//! | [`spent`] | one run of a program, and what it used |
//! | [`outcome`] | how a command ends: a status, and one line |
//! | [`help`] | `--help` that fits a screen |
//! | `pages` | man pages (feature `pages`) |
//!
//! Layers: program, library, companion, spent, outcome, help, pages

pub mod companion;
pub mod help;
pub mod library;
pub mod outcome;
#[cfg(feature = "pages")]
pub mod pages;
pub mod program;
pub mod spent;
