//! Figures: what every benchmark returns, and all that tables, JSON and HTML are made of.
//!
//! | word | meaning |
//! |---|---|
//! | figure | one number, what it is, of which case, under what, how sure, which way is better |
//! | against | the same in comparison with a peer, and how good that has to be |
//! | sheet | figures that are read together: one table |
//! | report | all sheets of one run of a benchmark, and where and how they were taken |
//!
//! A comparison is told in one way everywhere: how many times as good as the peer a figure is. More than
//! one is better, whether less or more of the figure itself is.

mod layout;
mod sheet;
mod verdict;

pub use layout::{MARKS, named};
pub use sheet::{Across, Against, Better, Case, Figure, Report, Sheet};
