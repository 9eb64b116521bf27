//! Mechanisms that can be left out, to measure what each is worth.
//!
//! Set by the hidden knob `PREZERO_ABLATE`: names with commas between them. `prezero bench ablate` runs programs
//! with each mechanism and without it. A mechanism that shows nothing there goes, and its name with it.

use core::fmt;

/// A set of mechanisms that are left out.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Ablation(pub(crate) u64);

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
    Headroom "headroom" "Gives blocks that grow a place with room behind it.",
    PreferredCpu "preferred-cpu" "Moves scrubd to the CPU on which a block was freed.",
    CostModel "cost-model" "Scrubs only size classes whose hits repay the CPU time spent; without: all.",
    Ready "ready" "Keeps several small blocks ready for any CPU, and wakes scrubd when half of them are used.",
    Suppress "suppress" "Does not replace zero pages that plain requests consumed until the next zeroed request.",
    Backoff "backoff" "Backs off while scrubd is kept from its CPU or all CPUs are busy.",
    Thin "thin" "Returns large blocks of which little was touched to the kernel.",
    Untouched "untouched" "Remembers blocks whose owners leave pages untouched, and counts those as touched.",
    Hide "hide" "Keeps free memory from children of a fork and from core dumps.",
    LazyFree "lazy-free" "Offers idle memory to the kernel at once below a memory limit.",
    Reclaim "reclaim" "Gives idle memory back before more is faulted in.",
}

impl Ablation {
    /// None is left out.
    pub(crate) const NONE: Ablation = Ablation(0);

    /// Whether a mechanism is in use.
    #[inline]
    pub(crate) fn has(self, mechanism: Mechanism) -> bool {
        self.0 >> mechanism as u8 & 1 == 0
    }

    /// The mechanisms with these names, with commas between them.
    pub(crate) fn read(names: &str) -> Result<Ablation, &'static str> {
        names.split(',').filter(|name| !name.is_empty()).try_fold(Ablation(0), |set, name| {
            let found = Mechanism::ALL.iter().find(|mechanism| mechanism.name() == name);
            let mechanism =
                found.ok_or("no such mechanism; `prezero bench ablate --list` has them")?;
            Ok(Ablation(set.0 | 1 << *mechanism as u8))
        })
    }
}

impl fmt::Display for Ablation {
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
        for names in ["", "thin", "thin,reclaim"] {
            assert_eq!(Ablation::read(names).unwrap().to_string(), names);
        }
        assert!(Ablation::read("thin,hand").is_err());
        let all: Vec<_> = Mechanism::ALL.iter().map(|mechanism| mechanism.name()).collect();
        let none = Ablation::read(&all.join(",")).unwrap();
        assert!(Mechanism::ALL.iter().all(|mechanism| !none.has(*mechanism)));
    }
}
