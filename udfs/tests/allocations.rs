//! Decoding and augmenting a baseline JPEG allocates no memory in the steady state: buffers stay from image to image.
//!
//! The only test of this binary, since the allocations of all threads are counted.

#![allow(clippy::unwrap_used, reason = "a test panics")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::io::Cursor;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use arrow::array::{ArrayRef, BinaryArray, RecordBatch, UInt32Array, UInt64Array};
use arrow::datatypes::{DataType, Field, Schema};
use datafusion::common::{DFSchema, ScalarValue};
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::{Expr, col, lit};
use datafusion::physical_plan::PhysicalExpr;
use datafusion::prelude::SessionContext;
use forebay_udfs::decode_scope::DecodeScope;
use forebay_udfs::room::DecodeRoom;
use forebay_udfs::row::{RowColumn, row_field};
use forebay_udfs::seek_index_store::{SeekIndexAccess, SeekIndexStore};
use forebay_udfs::{bind_stream, functions, fuse, is_random};

/// The system's allocator, which counts.
struct Counting;

static ALLOCATIONS: AtomicUsize = AtomicUsize::new(0);

// SAFETY: all calls are those of the system's allocator.
#[allow(unsafe_code, reason = "an allocator is unsafe to implement")]
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: as the caller's.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: as the caller's.
        unsafe { System.dealloc(memory, layout) }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: as the caller's.
        unsafe { System.realloc(memory, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// A photo of noisy gradients, of a size that depends on its number.
fn photo(number: u32) -> Vec<u8> {
    let (width, height) = (300 + number * 7 % 64, 260 + number * 5 % 64);
    let image = image::RgbImage::from_fn(width, height, |x, y| {
        let noise = (x * 7919 + y * 104_729 + number) % 13;
        image::Rgb([x + noise, y + noise, (x + y) / 2 + noise].map(|v| v as u8))
    });
    let mut file = Cursor::new(Vec::new());
    image.write_to(&mut file, image::ImageFormat::Jpeg).unwrap();
    file.into_inner()
}

/// A batch of photos with the hidden row column. Equal rows have equal draws.
fn batch(photos: &[Vec<u8>]) -> RecordBatch {
    let n = photos.len() as u64;
    let rows = RowColumn {
        position: UInt64Array::from_iter_values(0..n),
        file: UInt32Array::from_iter_values((0..n).map(|_| 0)),
        row: UInt64Array::from_iter_values(0..n),
        child: UInt32Array::from_iter_values((0..n).map(|_| 0)),
        hash: UInt64Array::from_iter_values(
            (0..n).map(|row| row.wrapping_mul(0x9e37_79b9_7f4a_7c15)),
        ),
        pass: UInt64Array::from_iter_values((0..n).map(|_| 1)),
    };
    let image = Field::new("image", DataType::Binary, true);
    let schema = Schema::new(vec![Arc::new(image), row_field()]);
    let images: ArrayRef = Arc::new(BinaryArray::from_iter_values(photos));
    RecordBatch::try_new(Arc::new(schema), vec![images, rows.to_array().unwrap()]).unwrap()
}

fn call(name: &str, args: Vec<Expr>) -> Expr {
    let func = functions().into_iter().find(|f| f.name() == name).unwrap();
    let call = ScalarFunction { func, args };
    if is_random(name) {
        bind_stream(call, name.len() as u64).unwrap()
    } else {
        Expr::ScalarFunction(call)
    }
}

fn list(values: [f64; 3]) -> Expr {
    let values = values.map(ScalarValue::from);
    lit(ScalarValue::List(ScalarValue::new_list_nullable(
        &values,
        &DataType::Float64,
    )))
}

/// The usual program of training on photos, fused.
fn program() -> Expr {
    let image = call("decode_image", vec![col("image")]);
    let image = call("random_resized_crop", vec![image, lit(224), lit(224)]);
    let image = call("random_hflip", vec![image]);
    let image = call(
        "normalize",
        vec![
            image,
            list([0.485, 0.456, 0.406]),
            list([0.229, 0.224, 0.225]),
        ],
    );
    fuse(call("to_chw", vec![image])).unwrap().data
}

/// Runs the program on a batch, and returns the number of allocations.
fn allocations(program: &dyn PhysicalExpr, batch: &RecordBatch) -> usize {
    let before = ALLOCATIONS.load(Ordering::Relaxed);
    let result = program.evaluate(batch).unwrap();
    let count = ALLOCATIONS.load(Ordering::Relaxed) - before;
    drop(result);
    count
}

#[test]
fn images_need_no_allocations() {
    let photos: Vec<_> = (0..96).map(photo).collect();
    let (few, many) = (batch(&photos[..16]), batch(&photos));
    let schema = DFSchema::try_from(few.schema()).unwrap();
    let program = SessionContext::new()
        .create_physical_expr(program(), &schema)
        .unwrap();
    // With one thread, the buffers are the same in each run.
    let pool = rayon::ThreadPoolBuilder::new()
        .num_threads(1)
        .build()
        .unwrap();
    let store = Arc::new(SeekIndexStore::default());
    for indexes in [None, Some(SeekIndexAccess::new(store, 1 << 30, true))] {
        let name = if indexes.is_some() { "with" } else { "without" };
        let scope = DecodeScope {
            room: Arc::new(DecodeRoom::new(1 << 30, false)),
            indexes,
        };
        let counts = pool.install(|| {
            scope.within(|| {
                for batch in [&many, &few, &many] {
                    allocations(&*program, batch);
                }
                [&few, &many].map(|batch| allocations(&*program, batch))
            })
        });
        // Lists of the batch's rows grow a few times.
        let more = counts[1].saturating_sub(counts[0]);
        assert!(
            more < 16,
            "80 more images need {more} more allocations {name} seek indexes"
        );
        assert!(counts[0] > 0, "nothing is counted");
    }
}
