//! What the owner of a zeroed block does with it first.

/// See the module.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Use {
    /// Touch little of it: a zero block is worth more then, however cold.
    Sparse,
    /// The owner did not say.
    #[default]
    Unknown,
}
