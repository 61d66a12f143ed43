//! Changes that damage files.

use proptest::prelude::*;

/// A change of a file: at a place in 65536ths of it, and the bytes to put there.
#[derive(Debug, Clone)]
pub(crate) enum Change {
    Set(u16, u8),
    Insert(u16, Vec<u8>),
    Remove(u16, u8),
}

/// Any change.
pub(crate) fn change() -> impl Strategy<Value = Change> {
    let bytes = prop_oneof![
        prop::collection::vec(any::<u8>(), 1..6),
        (0xc0u8..=0xff).prop_map(|kind| vec![0xff, kind]),
        Just(vec![0xff, 0xdd, 0, 4, 0, 3]),
    ];
    prop_oneof![
        (any::<u16>(), any::<u8>()).prop_map(|(at, byte)| Change::Set(at, byte)),
        (any::<u16>(), bytes).prop_map(|(at, bytes)| Change::Insert(at, bytes)),
        (any::<u16>(), 1u8..40).prop_map(|(at, count)| Change::Remove(at, count)),
    ]
}

/// Changes a file, which is not empty.
pub(crate) fn apply(file: &mut Vec<u8>, change: &Change) {
    let place = |at: u16| (usize::from(at) * file.len()) >> 16;
    match change {
        Change::Set(at, byte) => {
            let at = place(*at);
            file[at] = *byte;
        }
        Change::Insert(at, bytes) => {
            let at = place(*at);
            file.splice(at..at, bytes.iter().copied());
        }
        Change::Remove(at, count) => {
            let at = place(*at);
            let end = (at + usize::from(*count)).min(file.len() - 1).max(at);
            file.drain(at..end);
        }
    }
}
