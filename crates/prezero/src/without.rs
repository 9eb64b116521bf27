//! Mechanisms that can be left out, to measure what each is worth.
//!
//! Set by the hidden knob `PREZERO_WITHOUT`: names with commas between them. `prezero bench ablate` runs programs
//! with each mechanism and without it. A mechanism that shows nothing there goes, and its name with it.

use core::fmt;

/// A set of mechanisms that are left out.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Without(u64);

macro_rules! mechanisms {
    ($($mechanism:ident $name:literal $does:literal,)*) => {
        /// Something that the zone or scrubd does beyond what a zone cannot do without.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        #[repr(u8)]
        pub enum Mechanism {
            $(#[doc = $does] $mechanism,)*
        }

        impl Mechanism {
            /// All of them.
            pub const ALL: &[Mechanism] = &[$(Mechanism::$mechanism,)*];

            /// Its name in the knob.
            pub fn name(self) -> &'static str {
                match self { $(Mechanism::$mechanism => $name,)* }
            }

            /// What it does.
            pub fn does(self) -> &'static str {
                match self { $(Mechanism::$mechanism => $does,)* }
            }
        }
    };
}

mechanisms! {
    Gather "gather" "Moves a CPU's cold listed blocks to the buddy before the buddy is searched.",
    Assemble "assemble" "Moves free huge blocks together for a large request.",
    Places "places" "Gives blocks that grow a place with room behind it.",
    Home "home" "Moves scrubd to the CPU on which a block was freed.",
    CostModel "cost-model" "Scrubs only size classes whose hits repay the CPU time spent; without: all.",
    Ready "ready" "Keeps several small blocks ready for any CPU, and wakes scrubd when half of them are used.",
    Forgo "forgo" "Does not replace zero pages that plain requests consumed until the next zeroed request.",
    Backoff "backoff" "Backs off while scrubd is kept from its CPU or all CPUs are busy.",
    Thin "thin" "Returns large blocks of which little was touched to the kernel.",
    Untouched "untouched" "Remembers blocks whose owners leave pages untouched, and counts those as touched.",
    Learn "learn" "Keeps idle memory longer each time that it is faulted in again soon.",
    Hide "hide" "Keeps free memory from children of a fork and from core dumps.",
    Offer "offer" "Offers idle memory to the kernel at once below a memory limit.",
    MakeWay "make-way" "Gives idle memory back before more is faulted in.",
}

impl Without {
    /// Whether a mechanism is in use.
    #[inline]
    pub(crate) fn has(self, mechanism: Mechanism) -> bool {
        self.0 >> mechanism as u8 & 1 == 0
    }

    /// The mechanisms with these names, with commas between them.
    pub(crate) fn read(names: &str) -> Result<Without, &'static str> {
        names.split(',').filter(|name| !name.is_empty()).try_fold(Without(0), |set, name| {
            let found = Mechanism::ALL.iter().find(|mechanism| mechanism.name() == name);
            let mechanism =
                found.ok_or("no such mechanism; `prezero bench ablate --list` has them")?;
            Ok(Without(set.0 | 1 << *mechanism as u8))
        })
    }
}

impl fmt::Display for Without {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut left_out = Mechanism::ALL.iter().filter(|mechanism| !self.has(**mechanism));
        if let Some(first) = left_out.next() {
            f.write_str(first.name())?;
        }
        left_out.try_for_each(|mechanism| write!(f, ",{}", mechanism.name()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_and_shown_alike() {
        for names in ["", "gather", "gather,make-way"] {
            assert_eq!(Without::read(names).unwrap().to_string(), names);
        }
        assert!(Without::read("gather,hand").is_err());
        let all: Vec<_> = Mechanism::ALL.iter().map(|mechanism| mechanism.name()).collect();
        let none = Without::read(&all.join(",")).unwrap();
        assert!(Mechanism::ALL.iter().all(|mechanism| !none.has(*mechanism)));
    }
}
