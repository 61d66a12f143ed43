use std::sync::Arc;

use arrow::array::{
    ArrayRef, BinaryArray, BooleanArray, DictionaryArray, FixedSizeBinaryArray, Float32Array,
    Float64Array, Int16Array, Int64Array, IntervalDayTimeArray, ListArray, NullArray, RecordBatch,
    StringArray, StringViewArray, StructArray, TimestampMicrosecondArray, UInt8Array, UInt64Array,
};
use arrow::compute::{concat_batches, take_record_batch};
use arrow::datatypes::{
    DataType, Field, Fields, Float32Type, Float64Type, Int32Type, IntervalDayTime, Schema,
};
use arrow::util::display::{ArrayFormatter, FormatOptions};
use datafusion::execution::memory_pool::{GreedyMemoryPool, MemoryPool};
use proptest::prelude::*;

use super::*;
use crate::order::row_bitmap::RowBitmap;

impl RowStage {
    /// Returns the size of the temporary file, in bytes.
    fn spilled_bytes(&self) -> u64 {
        self.spill.as_ref().map_or(0, Spill::bytes)
    }
}

fn stage(schema: &SchemaRef, limit: usize) -> (RowStage, Arc<dyn MemoryPool>) {
    let pool: Arc<dyn MemoryPool> = Arc::new(GreedyMemoryPool::new(limit));
    let space = Arc::new(SpillSpace::default());
    (RowStage::new(Arc::clone(schema), &pool, space), pool)
}

/// Returns a column of `rows` rows whose type `kind` selects. `seed` decides values and nulls.
fn column(kind: usize, rows: usize, seed: u64) -> ArrayRef {
    let draw = |row: usize| {
        let mut x = seed ^ (row as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        x ^= x >> 29;
        x.wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 7
    };
    let text = |row: usize| {
        let n = draw(row);
        (n % 5 != 0).then(|| "öx".repeat((n % 37) as usize))
    };
    let floats = [
        0.0,
        -0.0,
        f64::NAN,
        -f64::NAN,
        f64::INFINITY,
        1.5,
        f64::MIN_POSITIVE / 4.0,
    ];
    let range = 0..rows;
    match kind {
        0 => Arc::new(Int64Array::from_iter(
            range.map(|r| (draw(r) % 3 != 0).then(|| draw(r) as i64)),
        )),
        1 => Arc::new(StringArray::from_iter(range.map(text))),
        2 => Arc::new(BinaryArray::from_iter(
            range.map(|r| text(r).map(String::into_bytes)),
        )),
        3 => Arc::new(Float64Array::from_iter_values(
            range.map(|r| floats[draw(r) as usize % 7]),
        )),
        4 => Arc::new(Float32Array::from_iter_values(
            range.map(|r| floats[draw(r) as usize % 7] as f32),
        )),
        5 => Arc::new(BooleanArray::from_iter(
            range.map(|r| [None, Some(true), Some(false)][draw(r) as usize % 3]),
        )),
        6 => Arc::new(ListArray::from_iter_primitive::<Float32Type, _, _>(
            range.map(|r| {
                let n = draw(r) % 6;
                (n != 5).then(|| {
                    (0..n).map(move |i| (i != 2).then_some(if i == 0 { -0.0 } else { i as f32 }))
                })
            }),
        )),
        7 => Arc::new(DictionaryArray::<Int32Type>::from_iter(range.map(|r| {
            ["a", "b", "long enough to matter"]
                .get(draw(r) as usize % 4)
                .copied()
        }))),
        8 => Arc::new(StringViewArray::from_iter(range.map(text))),
        9 => Arc::new(
            FixedSizeBinaryArray::try_from_sparse_iter_with_size(
                range.map(|r| (draw(r) % 4 != 0).then(|| draw(r).to_le_bytes())),
                8,
            )
            .unwrap(),
        ),
        10 => Arc::new(NullArray::new(rows)),
        11 => Arc::new(
            TimestampMicrosecondArray::from_iter_values(range.map(|r| draw(r) as i64))
                .with_timezone("UTC"),
        ),
        12 => {
            let fields: Fields = vec![
                Field::new("s", DataType::Utf8, true),
                Field::new("u", DataType::UInt8, false),
            ]
            .into();
            let u = UInt8Array::from_iter_values(range.clone().map(|r| draw(r) as u8));
            let nulls = range
                .clone()
                .map(|r| draw(r) % 3 != 0)
                .collect::<Vec<_>>()
                .into();
            let s = StringArray::from_iter(range.map(text));
            Arc::new(StructArray::new(
                fields,
                vec![Arc::new(s), Arc::new(u)],
                Some(nulls),
            ))
        }
        13 => Arc::new(UInt64Array::from_iter_values(range.map(draw))),
        14 => Arc::new(UInt8Array::from_iter_values(range.map(|r| draw(r) as u8))),
        15 => Arc::new(Int16Array::from_iter_values(range.map(|r| draw(r) as i16))),
        _ => Arc::new(IntervalDayTimeArray::from_iter_values(
            range.map(|r| IntervalDayTime::new(draw(r) as i32, r as i32)),
        )),
    }
}

const KINDS: usize = 17;

fn batch(kinds: &[usize], rows: usize, seed: u64) -> RecordBatch {
    let columns: Vec<ArrayRef> = kinds
        .iter()
        .enumerate()
        .map(|(i, &k)| column(k, rows, seed + i as u64))
        .collect();
    let fields: Vec<Field> = columns
        .iter()
        .enumerate()
        .map(|(i, c)| Field::new(format!("c{i}"), c.data_type().clone(), true))
        .collect();
    record_batch(Arc::new(Schema::new(fields)), columns, rows).unwrap()
}

/// Returns a part with the rows of `batch`, and a place without a row after each `gaps` rows; none
/// if `gaps` is 0.
fn part(batch: &RecordBatch, gaps: u32) -> StagePart {
    let rows = batch.num_rows() as u32;
    let place = |row: u32| row + row.checked_div(gaps).unwrap_or(0);
    StagePart {
        places: place(rows).into(),
        taken: (gaps > 0).then(|| Arc::new(RowBitmap::new((0..rows).map(place)))),
    }
}

/// Returns the number of each row of `parts` in a stage.
fn numbers(parts: &[StagePart], is_spread: bool) -> Vec<u64> {
    let (mut numbers, mut base) = (Vec::new(), 0);
    for part in parts {
        let places = 0..part.places as u32;
        let has_row =
            |place: &u32| { part.taken.as_ref() }.is_none_or(|t| t.rank(*place).is_some());
        let of_part = places.filter(has_row).map(|place| base + u64::from(place));
        numbers.extend(of_part);
        base += part.places;
    }
    if !is_spread {
        numbers = (0..numbers.len() as u64).collect();
    }
    numbers
}

/// Formats the logical values of `batch` as text, to compare batches. `==` on arrays treats NaN as
/// unequal to itself, does not distinguish signed zeros, and compares values beneath the null of a
/// struct.
fn shown(batch: &RecordBatch) -> String {
    let options = FormatOptions::new().with_null("null");
    let mut text = String::new();
    for column in batch.columns() {
        if let Some(floats) = column.as_primitive_opt::<Float64Type>() {
            let bits: Vec<u64> = floats
                .values()
                .iter()
                .map(|value| value.to_bits())
                .collect();
            text += &format!("{bits:x?}");
            continue;
        }
        let values = ArrayFormatter::try_new(column, &options).unwrap();
        for row in 0..column.len() {
            text += &format!("{:?}", values.value(row).to_string());
        }
    }
    text
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(120))]

    #[test]
    fn gather_is_take(
        kinds in prop_oneof![
            prop::collection::vec(0..KINDS, 1..5),
            // Mostly columns that are packed, and more of them than fit into a row.
            prop::collection::vec(prop::sample::select(vec![0, 1, 3, 4, 11, 13, 14, 15, 16]), 2..40),
        ],
        sizes in prop::collection::vec(prop_oneof![0usize..90, 0usize..400], 1..8),
        limit in prop_oneof![Just(0usize), 0usize..60_000, Just(usize::MAX)],
        seed in any::<u32>(),
        picks in prop::collection::vec(any::<u32>(), 0..200),
        // Rows that follow one another are copied as slices.
        run in prop_oneof![Just(1_u64), 1_u64..500],
        cut in 0usize..4,
        joins in any::<bool>(),
        gaps in 0_u32..4,
    ) {
        let whole: Vec<_> =
            sizes.iter().zip(0..).map(|(&n, i)| batch(&kinds, n, u64::from(seed) + i * 31)).collect();
        let pieces: Vec<_> = whole.iter().map(|b| b.slice(cut.min(b.num_rows()), b.num_rows() - cut.min(b.num_rows()))).collect();
        let schema = whole[0].schema();
        let (mut stage, pool) = stage(&schema, limit);
        for piece in &pieces {
            stage.push(piece.clone()).unwrap();
        }
        let parts: Vec<StagePart> = pieces.iter().map(|piece| part(piece, gaps)).collect();
        let is_joined = joins && stage.is_simple() && join::is_worth(&stage.batches);
        let is_spread = is_joined && stage.join(&parts).unwrap();
        let numbers = numbers(&parts, is_spread);
        let all = concat_batches(&schema, &pieces).unwrap();
        prop_assert_eq!(numbers.len(), all.num_rows());
        let end = if is_spread { parts.iter().map(|part| part.places).sum() } else { numbers.len() as u64 };
        prop_assert_eq!(stage.rows(), end);
        prop_assert_eq!(pool.reserved(), stage.reserved_bytes());
        if all.num_rows() > 0 {
            let rows = all.num_rows() as u64;
            let runs = picks.iter().map(|p| u64::from(*p) % rows).flat_map(|p| p..rows.min(p + run));
            let order: Vec<u64> = runs.take(1000).collect();
            let placed: Vec<u64> = order.iter().map(|&row| numbers[row as usize]).collect();
            let got = stage.gather(&placed).unwrap();
            let expected = take_record_batch(&all, &UInt64Array::from(order)).unwrap();
            prop_assert_eq!(got.schema(), expected.schema());
            prop_assert_eq!(shown(&got), shown(&expected));
        }
        prop_assert!(stage.gather(&[end]).is_err());
        drop(stage);
        prop_assert_eq!(pool.reserved(), 0);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(120))]

    /// Splits of a window: some were packed by a window before, some are packed now, some are not.
    #[test]
    fn gather_is_take_of_packed_splits(
        kinds in prop_oneof![
            prop::collection::vec(prop::sample::select(vec![3, 4, 11, 13, 14, 15]), 1..25),
            prop::collection::vec(prop::sample::select(vec![0, 1, 3, 13]), 1..4),
        ],
        splits in prop::collection::vec((0usize..300, 0usize..300, 0..3), 1..8),
        limit in prop_oneof![0usize..100_000, Just(usize::MAX)],
        seed in any::<u32>(),
        picks in prop::collection::vec(any::<u32>(), 1..300),
    ) {
        let schema = batch(&kinds, 0, 0).schema();
        let (mut stage, pool) = stage(&schema, limit);
        let (mut numbers, mut all) = (Vec::new(), Vec::new());
        for ((first, second, how), nth) in splits.into_iter().zip(0..) {
            let rows = batch(&kinds, first + second, u64::from(seed) + nth * 31);
            let halves = [rows.slice(0, first), rows.slice(first, second)];
            let packed = PackedRows::of(&halves).map(Arc::new);
            let base = match packed {
                Some(packed) if how == 0 => stage.push_packed(&packed).unwrap(),
                _ => {
                    let base = stage.rows();
                    for half in halves {
                        stage.push(half).unwrap();
                    }
                    let packed = if how == 1 { stage.pack(base) } else { None };
                    packed.map_or(base, |(_, base)| base)
                }
            };
            prop_assert_eq!(pool.reserved(), stage.reserved_bytes());
            numbers.extend(base..base + rows.num_rows() as u64);
            all.push(rows);
        }
        let all = concat_batches(&schema, &all).unwrap();
        prop_assume!(all.num_rows() > 0);
        let order: Vec<u64> = picks.iter().map(|&p| u64::from(p) % all.num_rows() as u64).collect();
        let placed: Vec<u64> = order.iter().map(|&row| numbers[row as usize]).collect();
        let expected = take_record_batch(&all, &UInt64Array::from(order)).unwrap();
        prop_assert_eq!(shown(&stage.gather(&placed).unwrap()), shown(&expected));
        let past = numbers.iter().max().unwrap() + 1;
        prop_assert!(stage.gather(&[placed[0], past]).is_err());
        drop(stage);
        prop_assert_eq!(pool.reserved(), 0);
    }
}

#[test]
fn splits_are_packed_if_all_columns_are_numbers_without_nulls_and_memory_is_left() {
    let numbers = batch(&[3, 13, 14], 3000, 9);
    // 17 bytes a row, without padding.
    let limit = numbers.get_array_memory_size() + 17 * 3000;
    for (rows, limit, packs) in [
        (&numbers, usize::MAX, true),
        (&numbers, limit, true),
        (&numbers, limit - 1, false),
        (&batch(&[3, 13, 1], 3000, 9), usize::MAX, false),
        (&batch(&[3, 13, 0], 3000, 9), usize::MAX, false),
        (&batch(&[3], 3000, 9), usize::MAX, false),
        (&batch(&[3; 17], 3000, 9), usize::MAX, false),
    ] {
        let (mut stage, pool) = stage(&rows.schema(), limit);
        stage.push(rows.clone()).unwrap();
        let packed = stage.pack(0);
        assert_eq!(packed.is_some(), packs);
        assert_eq!(pool.reserved(), stage.reserved_bytes());
        assert_eq!(stage.rows(), if packs { 0 } else { 3000 });
        let base = packed.map_or(0, |(packed, base)| {
            assert_eq!(packed.memory_size(), 51_000);
            assert!(!stage.join(&[part(rows, 0)]).unwrap() && stage.joined.is_none());
            assert_eq!(pool.reserved(), 51_000);
            base
        });
        let expected = take_record_batch(rows, &UInt64Array::from(vec![2999, 0])).unwrap();
        let got = stage.gather(&[base + 2999, base]).unwrap();
        assert_eq!(shown(&got), shown(&expected));
    }
}

#[test]
fn numbers_of_packed_rows_that_do_not_exist_are_errors() {
    let rows = batch(&[3, 13], 100, 4);
    let none = batch(&[], 100, 4);
    for (batches, joins) in [
        (vec![&rows], false),
        (vec![&rows, &rows], false),
        (vec![&rows, &rows], true),
        (vec![&none], false),
    ] {
        let (mut stage, _) = stage(&batches[0].schema(), usize::MAX);
        for batch in batches {
            stage.push(batch.clone()).unwrap();
        }
        if joins {
            stage.join(&[part(&rows, 0), part(&rows, 0)]).unwrap();
            assert!(stage.joined.is_some());
        }
        assert!(stage.gather(&[3, 1 << 63]).is_err() && stage.gather(&[u64::MAX]).is_err());
    }
}

#[test]
fn the_file_goes_with_the_stage() {
    let rows = batch(&[1, 2], 500, 1);
    let pool: Arc<dyn MemoryPool> = Arc::new(GreedyMemoryPool::new(0));
    let space = Arc::new(SpillSpace::default());
    let mut stage = RowStage::new(rows.schema(), &pool, Arc::clone(&space));
    stage.push(rows).unwrap();
    assert_eq!(stage.spilled_rows(), 500);
    assert_eq!(space.used(), stage.spilled_bytes());
    drop(stage);
    assert_eq!(space.used(), 0);
}

#[test]
fn several_threads_gather_at_once() {
    let rows = batch(&[0, 1, 13], 3000, 5);
    let (mut stage, _) = stage(&rows.schema(), 40_000);
    for start in (0..3000).step_by(100) {
        stage.push(rows.slice(start, 100)).unwrap();
    }
    assert!(stage.spilled_rows() > 0 && stage.spilled_rows() < 3000);
    std::thread::scope(|scope| {
        for thread in 0..4u64 {
            let (stage, rows) = (&stage, &rows);
            scope.spawn(move || {
                for step in 1..20u64 {
                    let order: Vec<u64> =
                        (0..500).map(|i| (i * step * 7 + thread) % 3000).collect();
                    let got = stage.gather(&order).unwrap();
                    assert_eq!(
                        got,
                        take_record_batch(rows, &UInt64Array::from(order)).unwrap()
                    );
                }
            });
        }
    });
}

#[test]
fn slices_of_a_large_batch_do_not_hold_it() {
    let rows = batch(&[1, 8], 40_000, 3);
    let (mut stage, _) = stage(&rows.schema(), usize::MAX);
    for start in (0..40_000).step_by(4000) {
        stage.push(rows.slice(start, 4000)).unwrap();
    }
    assert_eq!(stage.rows(), 40_000);
    assert!(stage.reserved_bytes() < 2 * rows.get_array_memory_size());
}

#[test]
fn batches_of_narrow_rows_are_joined_while_memory_is_left() {
    let narrow = batch(&[0, 1, 4, 5, 13], 5000, 2);
    let wide = batch(&[0, 6], 5000, 2);
    for (rows, limit, joins) in [
        (&narrow, usize::MAX, true),
        (&narrow, 5 * narrow.get_array_memory_size(), false),
        // Four times the memory of the rows, and twice as much for the copy.
        (&narrow, 11 * narrow.get_array_memory_size(), false),
        (&narrow, 13 * narrow.get_array_memory_size(), true),
        (&wide, usize::MAX, false),
    ] {
        let (mut stage, pool) = stage(&rows.schema(), limit);
        for start in 0..4 {
            stage.push(rows.slice(start, 4996)).unwrap();
        }
        let parts = [part(rows, 0)];
        if stage.is_simple() && join::is_worth(&stage.batches) {
            assert!(!stage.join(&parts).unwrap());
        }
        assert_eq!(stage.joined.is_some(), joins);
        assert_eq!(pool.reserved(), stage.reserved_bytes());
        let picks: Vec<u64> = (0..9000).map(|i| i * 7919 % stage.rows()).collect();
        let of_row = picks.iter().map(|pick| pick % 4996 + pick / 4996);
        let expected = take_record_batch(rows, &UInt64Array::from_iter_values(of_row)).unwrap();
        assert_eq!(shown(&stage.gather(&picks).unwrap()), shown(&expected));
    }
}

#[test]
fn rows_are_spread_if_all_columns_are_packed_and_most_places_have_a_row() {
    let packed = batch(&[3, 13, 4], 3000, 9);
    let with_text = batch(&[3, 13, 1], 3000, 9);
    for (rows, gaps, spreads) in [
        (&packed, 0, false),
        (&packed, 1, true),
        (&packed, 4, true),
        (&with_text, 4, false),
    ] {
        let pieces = [
            rows.slice(0, 1000),
            rows.slice(1000, 1500),
            rows.slice(2500, 500),
        ];
        let (mut stage, pool) = stage(&rows.schema(), usize::MAX);
        for piece in &pieces {
            // A part may have several batches.
            stage.push(piece.slice(0, 200)).unwrap();
            stage
                .push(piece.slice(200, piece.num_rows() - 200))
                .unwrap();
        }
        let parts = pieces.map(|piece| part(&piece, gaps));
        assert_eq!(stage.join(&parts).unwrap(), spreads);
        assert_eq!(pool.reserved(), stage.reserved_bytes());
        assert!(stage.push(rows.clone()).is_err());
        let numbers = numbers(&parts, spreads);
        let picks: Vec<u64> = (0..5000).map(|i| i * 7919 % 3000).collect();
        let placed: Vec<u64> = picks.iter().map(|&row| numbers[row as usize]).collect();
        let expected = take_record_batch(rows, &UInt64Array::from(picks)).unwrap();
        assert_eq!(shown(&stage.gather(&placed).unwrap()), shown(&expected));
    }
    // Rows of 20 bytes may take twice the memory of their batches.
    let most = 2 * packed.get_array_memory_size() as u64 / 20;
    let of_places = |places| StagePart {
        places,
        ..part(&packed, 1)
    };
    let (mut fits, _) = stage(&packed.schema(), usize::MAX);
    fits.push(packed.clone()).unwrap();
    assert!(fits.join(&[of_places(most)]).unwrap());
    let sparse = of_places(most + 1);
    let misfits = vec![part(&packed.slice(0, 10), 2), part(&packed, 2)];
    for parts in [vec![sparse], misfits, Vec::new()] {
        let (mut stage, _) = stage(&packed.schema(), usize::MAX);
        stage.push(packed.clone()).unwrap();
        assert!(!stage.join(&parts).unwrap());
        let expected = take_record_batch(&packed, &UInt64Array::from(vec![2999, 0])).unwrap();
        assert_eq!(shown(&stage.gather(&[2999, 0]).unwrap()), shown(&expected));
    }
}

#[test]
fn a_full_disk_and_wrong_columns_are_errors() {
    let rows = batch(&[1], 500, 1);
    let pool: Arc<dyn MemoryPool> = Arc::new(GreedyMemoryPool::new(0));
    let mut stage = RowStage::new(rows.schema(), &pool, Arc::new(SpillSpace::new(100)));
    assert!(
        stage
            .push(rows)
            .unwrap_err()
            .to_string()
            .contains("cannot write rows")
    );
    assert!(stage.push(batch(&[0], 5, 1)).is_err());
}

#[test]
fn rows_without_columns_are_counted() {
    let rows = batch(&[], 7, 0);
    let (mut stage, _) = stage(&rows.schema(), 0);
    stage.push(rows.clone()).unwrap();
    stage.push(rows).unwrap();
    assert_eq!(stage.rows(), 14);
    assert_eq!(stage.gather(&[13, 0, 13]).unwrap().num_rows(), 3);
    assert!(stage.gather(&[14]).is_err());
}
