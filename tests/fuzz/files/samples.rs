//! Small valid files of each format.

use std::io::Cursor;
use std::sync::Arc;

use arrow::array::{
    ArrayRef, BinaryArray, BooleanArray, Decimal128Array, DictionaryArray, FixedSizeBinaryArray,
    Float64Array, Int64Array, ListArray, RecordBatch, StringArray, StringViewArray, StructArray,
    TimestampMicrosecondArray,
};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Int8Type, Int64Type};
use arrow::ipc::CompressionType;
use arrow::ipc::writer::{FileWriter, IpcWriteOptions};
use arrow_avro::compression::CompressionCodec;
use arrow_avro::writer::{WriterBuilder, format::AvroOcfFormat};
use image::{ImageFormat, Rgb, RgbImage};
use parquet::arrow::ArrowWriter;
use parquet::basic::{Compression, Encoding, GzipLevel, ZstdLevel};
use parquet::file::properties::{EnabledStatistics, WriterProperties, WriterVersion};

use crate::tar::{gzip, tar};

/// A format that Forebay reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Format {
    Csv,
    Json,
    Avro,
    Arrow,
    Parquet,
    Image,
    WebDataset,
}

impl Format {
    pub(super) const ALL: [Self; 7] = [
        Self::Csv,
        Self::Json,
        Self::Avro,
        Self::Arrow,
        Self::Parquet,
        Self::Image,
        Self::WebDataset,
    ];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Csv => "csv",
            Self::Json => "json",
            Self::Avro => "avro",
            Self::Arrow => "arrow",
            Self::Parquet => "parquet",
            Self::Image => "image",
            Self::WebDataset => "webdataset",
        }
    }

    /// Returns the table function that reads the format.
    pub(super) const fn function(self) -> &'static str {
        match self {
            Self::Image => "images",
            _ => self.name(),
        }
    }

    /// Returns a file extension that the reader of the format accepts.
    pub(super) const fn extension(self) -> &'static str {
        match self {
            Self::Image => "png",
            Self::WebDataset => "tar",
            _ => self.name(),
        }
    }
}

const ROWS: i64 = 60;

pub(super) fn samples(format: Format) -> Vec<Vec<u8>> {
    match format {
        Format::Csv => csv(),
        Format::Json => json(),
        Format::Avro => avro(),
        Format::Arrow => arrow(),
        Format::Parquet => parquet_files(),
        Format::Image => images(),
        Format::WebDataset => shards(),
    }
}

fn name(i: i64) -> Option<String> {
    (i % 7 != 0).then(|| format!("n{}", i % 11))
}

fn columns() -> Vec<(&'static str, ArrayRef)> {
    let id = Int64Array::from_iter_values(0..ROWS);
    let x = Float64Array::from_iter((0..ROWS).map(|i| (i % 5 != 3).then_some(i as f64 * 0.37)));
    let names = StringArray::from_iter((0..ROWS).map(name));
    let data = BinaryArray::from_iter_values((0..ROWS).map(|i| vec![i as u8; i as usize % 9]));
    let flag = BooleanArray::from_iter((0..ROWS).map(|i| (i % 4 != 0).then_some(i % 3 == 0)));
    let item =
        |i: i64| (i % 6 != 0).then(|| (0..i % 4).map(|j| Some(i * 10 + j)).collect::<Vec<_>>());
    let list = ListArray::from_iter_primitive::<Int64Type, _, _>((0..ROWS).map(item));
    vec![
        ("id", Arc::new(id)),
        ("x", Arc::new(x)),
        ("name", Arc::new(names)),
        ("data", Arc::new(data)),
        ("flag", Arc::new(flag)),
        ("list", Arc::new(list)),
    ]
}

fn more_columns() -> Vec<(&'static str, ArrayRef)> {
    let time = TimestampMicrosecondArray::from_iter_values((0..ROWS).map(|i| i * 1_000_003));
    let price = Decimal128Array::from_iter_values((0..ROWS).map(i128::from));
    let price = price.with_precision_and_scale(10, 2).unwrap();
    let fixed = FixedSizeBinaryArray::try_from_iter((0..ROWS).map(|i| [i as u8; 5])).unwrap();
    let of: ArrayRef = Arc::new(Int64Array::from_iter(
        (0..ROWS).map(|i| (i % 3 != 0).then_some(i)),
    ));
    let nested = StructArray::try_from(vec![("of", of)]).unwrap();
    vec![
        ("time", Arc::new(time)),
        ("price", Arc::new(price)),
        ("fixed", Arc::new(fixed)),
        ("nested", Arc::new(nested)),
    ]
}

fn batch(columns: Vec<(&'static str, ArrayRef)>) -> RecordBatch {
    RecordBatch::try_from_iter_with_nullable(columns.into_iter().map(|(n, c)| (n, c, true)))
        .unwrap()
}

fn csv() -> Vec<Vec<u8>> {
    let plain = (0..ROWS).map(|i| format!("{i},{},n{},{}\n", i as f64 / 3.0, i % 11, i % 2 == 0));
    let plain = format!("id,x,name,flag\n{}", plain.collect::<String>());
    let quoted = (0..ROWS).map(|i| format!("{i},\"a \"\"{i}\"\"\nb\",\"n{i}\"\r\n"));
    let quoted = format!("\u{feff}id,text,name\r\n{}", quoted.collect::<String>());
    vec![plain.into_bytes(), quoted.into_bytes()]
}

fn shards() -> Vec<Vec<u8>> {
    let files = (0..ROWS).flat_map(|i| {
        let text = format!("n{}", i % 11).into_bytes();
        [
            (format!("{i:03}.txt"), text),
            (format!("{i:03}.bin"), vec![i as u8; i as usize * 9]),
        ]
    });
    let archive = tar(&files.collect::<Vec<_>>());
    vec![gzip(&archive), archive]
}

fn json() -> Vec<Vec<u8>> {
    let flat = (0..ROWS).map(|i| {
        format!(
            "{{\"id\": {i}, \"name\": \"n{i}\", \"x\": {}}}\n",
            i as f64 / 7.0
        )
    });
    let nested = (0..ROWS).map(|i| {
        format!("{{\"id\": {i}, \"name\": null, \"of\": {{\"a\": [{i}, 2], \"b\": {{\"c\": \"\\u00e9\"}}}}}}\n")
    });
    vec![
        flat.collect::<String>().into_bytes(),
        nested.collect::<String>().into_bytes(),
    ]
}

fn avro() -> Vec<Vec<u8>> {
    let rows = batch(columns());
    let codecs = [
        None,
        Some(CompressionCodec::Deflate),
        Some(CompressionCodec::Snappy),
        Some(CompressionCodec::ZStandard),
        Some(CompressionCodec::Bzip2),
        Some(CompressionCodec::Xz),
    ];
    let file = |codec| {
        let mut writer = WriterBuilder::new(rows.schema().as_ref().clone())
            .with_compression(codec)
            .build::<_, AvroOcfFormat>(Vec::new())
            .unwrap();
        for start in [0, 20, 40] {
            writer.write(&rows.slice(start, 20)).unwrap();
        }
        writer.finish().unwrap();
        writer.into_inner()
    };
    codecs.into_iter().map(file).collect()
}

fn arrow() -> Vec<Vec<u8>> {
    let mut all = columns();
    all.extend(more_columns());
    let values: ArrayRef = Arc::new(StringArray::from(vec!["a", "b", "c"]));
    let keys = (0..ROWS)
        .map(|i| (i % 4 != 3).then_some((i % 4) as i8))
        .collect();
    all.push((
        "kind",
        Arc::new(DictionaryArray::<Int8Type>::new(keys, values)),
    ));
    all.push((
        "view",
        Arc::new(StringViewArray::from_iter((0..ROWS).map(name))),
    ));
    let large = cast(&all[2].1, &DataType::LargeUtf8).unwrap();
    all.push(("large", large));
    let rows = batch(all);
    let file = |compression: Option<CompressionType>| {
        let options = IpcWriteOptions::default()
            .try_with_compression(compression)
            .unwrap();
        let mut bytes = Vec::new();
        let mut writer =
            FileWriter::try_new_with_options(&mut bytes, &rows.schema(), options).unwrap();
        for start in [0, 30] {
            writer.write(&rows.slice(start, 30)).unwrap();
        }
        writer.finish().unwrap();
        drop(writer);
        bytes
    };
    let codecs = [
        None,
        Some(CompressionType::LZ4_FRAME),
        Some(CompressionType::ZSTD),
    ];
    codecs.into_iter().map(file).collect()
}

fn parquet_files() -> Vec<Vec<u8>> {
    let mut all = columns();
    all.extend(more_columns());
    let rows = batch(all);
    let file = |compression: Compression, version, encoding: Option<Encoding>| {
        let mut props = WriterProperties::builder()
            .set_compression(compression)
            .set_writer_version(version)
            .set_statistics_enabled(EnabledStatistics::Page)
            .set_data_page_row_count_limit(10)
            .set_write_batch_size(10)
            .set_max_row_group_row_count(Some(30));
        if let Some(encoding) = encoding {
            props = props.set_dictionary_enabled(false);
            let (numbers, text) = match encoding {
                Encoding::BYTE_STREAM_SPLIT => (
                    Encoding::BYTE_STREAM_SPLIT,
                    Encoding::DELTA_LENGTH_BYTE_ARRAY,
                ),
                Encoding::DELTA_BINARY_PACKED => (encoding, Encoding::DELTA_BYTE_ARRAY),
                _ => (Encoding::PLAIN, Encoding::PLAIN),
            };
            props = props
                .set_column_encoding("id".into(), numbers)
                .set_column_encoding("name".into(), text)
                .set_column_encoding("data".into(), text);
        }
        let mut bytes = Vec::new();
        let mut writer =
            ArrowWriter::try_new(&mut bytes, rows.schema(), Some(props.build())).unwrap();
        writer.write(&rows).unwrap();
        writer.close().unwrap();
        bytes
    };
    use WriterVersion::{PARQUET_1_0 as V1, PARQUET_2_0 as V2};
    vec![
        file(Compression::UNCOMPRESSED, V1, None),
        file(Compression::SNAPPY, V1, None),
        file(
            Compression::GZIP(GzipLevel::default()),
            V1,
            Some(Encoding::PLAIN),
        ),
        file(
            Compression::LZ4_RAW,
            V2,
            Some(Encoding::DELTA_BINARY_PACKED),
        ),
        file(Compression::ZSTD(ZstdLevel::default()), V2, None),
        file(
            Compression::UNCOMPRESSED,
            V2,
            Some(Encoding::DELTA_BINARY_PACKED),
        ),
        file(Compression::SNAPPY, V2, Some(Encoding::BYTE_STREAM_SPLIT)),
    ]
}

fn images() -> Vec<Vec<u8>> {
    let pixel = |x: u32, y: u32| Rgb([(x * 5) as u8, (y * 6) as u8, (x ^ y) as u8]);
    let photo = RgbImage::from_fn(33, 25, pixel);
    let formats = [
        ImageFormat::Jpeg,
        ImageFormat::Png,
        ImageFormat::Gif,
        ImageFormat::Bmp,
        ImageFormat::Tiff,
        ImageFormat::WebP,
    ];
    let file = |format| {
        let mut bytes = Cursor::new(Vec::new());
        photo.write_to(&mut bytes, format).unwrap();
        bytes.into_inner()
    };
    formats.into_iter().map(file).collect()
}
