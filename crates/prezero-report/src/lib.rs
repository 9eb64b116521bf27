//! What is told of a zone: the lines that end `prezero run`, everything as text, everything as JSON, and the panel while it runs.
//!
//! | module | noun |
//! |---|---|
//! | [`panel`] | what a running process shows, and its knobs |
//! | [`figures`] | a number as people read it |
//! | [`sums`] | counts of several processes together |
//! | [`processes`] | the processes of a run |
//! | [`whole`] | every counter and gauge: text and JSON |
//! | [`summary`] | what the program got, what that cost, and why where it got nothing |
//!
//! Each `write_*` writes into any [`fmt::Write`](std::fmt::Write) and allocates nothing: the preloaded library
//! reports where the program's allocator must not be entered.
//!
//! ```
//! let mut json = String::new();
//! if let Some(snapshot) = prezero::Global::system().snapshot() {
//!     prezero_report::write_json(&snapshot, &Default::default(), &mut json)?;
//! }
//! # Ok::<(), std::fmt::Error>(())
//! ```
//!
//! Layers: panel, figures, sums, processes, whole, summary
#![forbid(unsafe_code)]
#![warn(missing_debug_implementations)]

pub mod figures;
pub mod panel;
pub mod processes;
pub mod summary;
pub mod sums;
pub mod whole;

pub use processes::{Member, Processes};
pub use summary::write_summary;
pub use whole::{write_json, write_text};
