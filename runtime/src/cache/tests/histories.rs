//! Tests that after any history of a store, all rows that are read are right, and lost rows can be
//! written again.

use proptest::prelude::*;

use super::*;

/// Number of writers that fill the entry at the same time.
const WRITERS: usize = 2;

#[derive(Debug, Clone)]
enum Event {
    /// Appends rows. The fields are the writer, the first row, the number of rows, and `nth`: rows
    /// whose number is a multiple of `nth` are left out.
    Append(usize, u64, u64, u64),
    Flush(usize),
    /// A writer finishes; the next `Append` creates a new one.
    Finish(usize),
    /// A writer is dropped without being finished.
    Crash(usize),
    /// Continues as another process, which knows only what is stored.
    Restart,
    Refresh,
    /// Flips a byte of a segment.
    Flip(usize, usize),
    /// Truncates a segment.
    Cut(usize, usize),
    Delete(usize),
    Remove,
    Repair,
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        6 => (0..WRITERS, 0..200u64, 1..60u64, 2..5u64)
            .prop_map(|(writer, row, rows, nth)| Event::Append(writer, row, rows, nth)),
        3 => (0..WRITERS).prop_map(Event::Flush),
        2 => (0..WRITERS).prop_map(Event::Finish),
        1 => (0..WRITERS).prop_map(Event::Crash),
        2 => Just(Event::Restart),
        2 => Just(Event::Refresh),
        1 => (0..9usize, 0..100_000usize).prop_map(|(segment, at)| Event::Flip(segment, at)),
        1 => (0..9usize, 0..100_000usize).prop_map(|(segment, at)| Event::Cut(segment, at)),
        1 => (0..9usize).prop_map(Event::Delete),
        1 => Just(Event::Remove),
        1 => Just(Event::Repair),
    ]
}

/// True for the rows that the filter of these tests drops.
fn is_dropped(row: u64) -> bool {
    row % 5 == 4
}

async fn append_filtered(writer: &mut Writer, rows: impl Iterator<Item = u64>) {
    let (dropped, kept): (Vec<u64>, Vec<u64>) = rows.partition(|row| is_dropped(*row));
    let batch = batch(kept.iter().copied());
    writer
        .append(&addresses(kept), &batch, &addresses(dropped))
        .await
        .unwrap();
}

/// Checks every row that `entry` can read or has recorded as dropped, and returns the number of
/// these rows.
async fn check(entry: &Entry) -> usize {
    let all: Vec<u64> = shuffled(260);
    let found = entry.find(&addresses(all.iter().copied()));
    let (mut kept, mut dropped) = (Vec::new(), 0);
    for (row, location) in all.into_iter().zip(found) {
        match location {
            Some(Location::Dropped) => {
                assert!(is_dropped(row), "{row}");
                dropped += 1;
            }
            Some(Location::Stored(_)) => kept.push(row),
            None => {}
        }
    }
    there(entry, &kept).await.len() + dropped
}

async fn live(events: Vec<Event>) {
    let folder = tempfile::tempdir().unwrap();
    let mut entry = entry(&directory(&folder, small()).await).await;
    let mut writers: [Option<Writer>; WRITERS] = Default::default();
    for event in events {
        let segments = files(folder.path(), ".arrows");
        let segment = |number: usize| segments.get(number % segments.len().max(1));
        match event {
            Event::Append(nth_writer, row, rows, nth) => {
                let writer = &mut writers[nth_writer];
                if writer.is_none() {
                    *writer = entry.shared_writer().await.unwrap();
                }
                let rows = (row..row + rows).filter(|row| row % nth != 0);
                append_filtered(writer.as_mut().unwrap(), rows).await;
            }
            Event::Flush(nth) => {
                if let Some(writer) = &mut writers[nth] {
                    writer.flush().await.unwrap();
                }
            }
            Event::Finish(nth) => {
                if let Some(writer) = writers[nth].take() {
                    writer.finish().await.unwrap();
                }
            }
            Event::Crash(nth) => writers[nth] = None,
            Event::Restart => {
                writers = Default::default();
                entry = self::entry(&directory(&folder, small()).await).await;
            }
            Event::Refresh => entry.refresh().await.unwrap(),
            Event::Flip(number, at) => {
                if let Some(path) = segment(number) {
                    let mut bytes = std::fs::read(path).unwrap();
                    let at = at % bytes.len().max(1);
                    if let Some(byte) = bytes.get_mut(at) {
                        *byte ^= 0x21;
                    }
                    std::fs::write(path, bytes).unwrap();
                }
            }
            Event::Cut(number, at) => {
                if let Some(path) = segment(number) {
                    let file = std::fs::File::options().write(true).open(path).unwrap();
                    let length = file.metadata().unwrap().len();
                    file.set_len(at as u64 % length.max(1)).unwrap();
                }
            }
            Event::Delete(number) => {
                if let Some(path) = segment(number) {
                    std::fs::remove_file(path).unwrap();
                }
            }
            Event::Remove => {
                writers = Default::default();
                directory(&folder, small())
                    .await
                    .remove(&KEY)
                    .await
                    .unwrap();
            }
            Event::Repair => {
                writers = Default::default();
                directory(&folder, small())
                    .await
                    .verify(true)
                    .await
                    .unwrap();
            }
        }
        check(&entry).await;
    }
    // After two more epochs all rows are stored and sound: the first epoch finds the damage, the
    // second writes the missing rows.
    drop(writers);
    let store = directory(&folder, small()).await;
    check(&self::entry(&store).await).await;
    let entry = self::entry(&store).await;
    let mut writer = entry.writer().await.unwrap().unwrap();
    append_filtered(&mut writer, 0..260).await;
    writer.finish().await.unwrap();
    assert_eq!(check(&entry).await, 260);
    assert_eq!(
        check(&self::entry(&directory(&folder, small()).await).await).await,
        260
    );
    let known = store.verify(true).await.unwrap();
    // Nothing is damaged any more, except perhaps the schema message and the end marker of a
    // segment, which the cache never reads.
    assert_eq!(known.damaged, []);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn whatever_happens_rows_are_right(events in prop::collection::vec(event(), 1..25)) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(live(events));
    }
}
