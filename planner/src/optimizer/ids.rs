//! Leaves of the e-graph: indices into the arena. They keep nodes small, and make the order of
//! nodes depend on this plan alone.

use std::fmt;
use std::str::FromStr;

/// Defines an index type with a letter, by which terms are written and parsed.
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
    /// An operator, as the index of its [`OpSpec`](super::spec::OpSpec).
    ParamId,
    "p"
);
leaf!(
    /// The slots that an operator passes on, as an index.
    LiveSlotsId,
    "k"
);
leaf!(
    /// A scan, as the index of its [`ScanSpec`](super::arena::ScanSpec).
    ScanId,
    "s"
);

/// The type of a slot, as an index.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TypeId(pub(super) u32);
