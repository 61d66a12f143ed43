//! Leaves of the e-graph: indices into the arena. Indices keep the e-graph's nodes small, and order
//! the nodes by their plan alone.

use std::fmt;
use std::str::FromStr;

/// Defines an index type that is written and parsed as `$letter` followed by the index, such as
/// `p3`.
macro_rules! leaf {
    ($(#[$doc:meta])* $name:ident, $letter:literal) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub u32);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!($letter, "{}"), self.0)
            }
        }

        impl FromStr for $name {
            type Err = ();

            fn from_str(text: &str) -> Result<Self, ()> {
                let index = text.strip_prefix($letter).ok_or(())?;
                index.parse().map(Self).map_err(|_| ())
            }
        }
    };
}

leaf!(
    /// Index of an operator's [`OpSpec`](super::spec::OpSpec) in the arena.
    ParamId,
    "p"
);
leaf!(
    /// Index, in the arena, of the set of slots that an operator passes on to the operators above.
    LiveSlotsId,
    "k"
);
leaf!(
    /// Index of a scan's [`ScanSpec`](super::arena::ScanSpec) in the arena.
    ScanId,
    "s"
);

/// Index of a slot's type in the arena.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TypeId(pub(super) u32);
