//! A training loop over a folder of photos. Builder calls define the pipeline, and the loop gets
//! its batches one by one.
//!
//! ```sh
//! cargo run --release -- demo
//! cargo run --release --example train -- forebay-demo/photos
//! ```
//!
//! The folder has one subfolder per class.

use std::env;
use std::error::Error;
use std::io::{self, Write};

use arrow::array::AsArray;
use arrow::datatypes::Int32Type;
use forebay::builder::{WindowSize, call, col, images, lit};
use forebay::{Pipeline, RunConfig, Session};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let folder = env::args().nth(1);
    let folder = folder.ok_or("expected a folder of photos, with a subfolder per class")?;

    let pixels = call("decode_image", [col("image")]);
    let pixels = call("random_resized_crop", [pixels, lit(224), lit(224)]);
    let pixels = call("random_hflip", [pixels]);
    let pixels = call("normalize", [pixels, lit("imagenet")]);
    let pipeline = Pipeline::from(images(folder)?)
        .with_column("pixels", pixels)
        .select([col("label"), col("pixels")])
        .shuffle(WindowSize::rows(10_000), 42)
        .batch(32)
        .drop_remainder()
        .repeat(2);

    let session = Session::new();
    session.register("train", pipeline).await?;
    let mut run = session.run("train", RunConfig::default()).await?;
    let mut out = io::stdout().lock();
    while let Some(batch) = run.next().await {
        let batch = batch?;
        // A model would train on the batch here. The column `pixels` is an Arrow tensor column;
        // together, its 32 rows are f32[32, 224, 224, 3].
        let labels = batch.batch.column(0).as_primitive::<Int32Type>();
        writeln!(
            out,
            "epoch {} step {}: labels {:?}",
            batch.epoch,
            batch.step,
            labels.values()
        )?;
    }
    Ok(())
}
