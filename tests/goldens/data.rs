//! The data that the pipelines of the corpus read, which each run of the test generates.

use std::fmt::{self, Write as _};
use std::fs::File;
use std::path::{Path, PathBuf};

use arrow::array::RecordBatch;
use arrow_avro::writer::AvroWriter;
use forebay::Session;
use tempfile::TempDir;

use crate::common::{parquet, table};
use crate::{odd, rows};

/// Number of rows in the tables of all formats.
const ROWS: i64 = 60;
/// Name of the folder with the data.
const DATA: &str = "bucket";

/// A temporary folder with the data of the corpus.
pub(crate) struct Data {
    folder: TempDir,
    /// The statements that create tables over the data. `{data}` stands for its location.
    tables: String,
    /// The location at which pipelines find the data.
    location: String,
    /// Creates a session that reads the data.
    session: Box<dyn Fn() -> Session + Send + Sync>,
}

impl fmt::Debug for Data {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Data").field(&self.location).finish()
    }
}

impl Data {
    /// Writes the data to a new temporary folder.
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let dir = &folder.path().join(DATA);
        std::fs::create_dir(dir).unwrap();
        let mut tables = rows::written(dir);
        formats(dir);
        lists(dir, "a", 3, 25);
        lists(dir, "b", 2, 11);
        lists(dir, "c", 1, 1);
        let keys = (0..300).filter(|key| key % 4 != 3);
        let keys: String = keys.map(|key| format!("{{\"key\": {key}}}\n")).collect();
        std::fs::write(dir.join("k.json"), keys).unwrap();
        numbers(&dir.join("num.json"), 90, |id| 1 + id * 7 % 9);
        numbers(&dir.join("few.json"), 9, |id| 1 + id);
        std::fs::write(dir.join("twice.csv"), "key,label\n0,zero\n0,nought\n").unwrap();
        let six = [3, 4, 2, 1, 5, 2].into_iter().enumerate();
        let six = six.map(|(id, length)| {
            let ids: Vec<usize> = (1..=length).map(|n| id * 10 + n).collect();
            format!("{{\"id\": {id}, \"ids\": {ids:?}}}\n")
        });
        std::fs::write(dir.join("six.json"), six.collect::<String>()).unwrap();
        odd::write(dir);
        let own = [
            ("rows", "PARQUET", "rows"),
            ("ipc", "ARROW", "ipc"),
            ("comma", "CSV", "comma.csv"),
            ("lines", "JSON", "lines.json"),
            ("blocks", "AVRO", "blocks.avro"),
            ("a", "JSON", "a"),
            ("b", "JSON", "b"),
            ("c", "JSON", "c"),
            ("k", "JSON", "k.json"),
            ("num", "JSON", "num.json"),
            ("few", "JSON", "few.json"),
            ("twice", "CSV", "twice.csv"),
            ("six", "JSON", "six.json"),
        ];
        for (name, format, location) in own.into_iter().chain(odd::TABLES) {
            write!(
                tables,
                ";\nCREATE EXTERNAL TABLE {name} STORED AS {format} LOCATION '{{data}}/{location}'"
            )
            .unwrap();
        }
        let location = dir.display().to_string();
        Self {
            tables: tables.replace(&location, "{data}"),
            folder,
            location,
            session: Box::new(Session::new),
        }
    }

    /// Has pipelines read a copy of the data at `location`, in the sessions that `session` creates.
    #[allow(dead_code, reason = "the goldens themselves are recorded from files")]
    pub(crate) fn served(
        self,
        location: &str,
        session: impl Fn() -> Session + Send + Sync + 'static,
    ) -> Self {
        Self {
            location: location.to_owned(),
            session: Box::new(session),
            ..self
        }
    }

    /// Returns the folder with the data.
    pub(crate) fn dir(&self) -> PathBuf {
        self.folder.path().join(DATA)
    }

    /// Creates a session with the tables.
    pub(crate) async fn session(&self) -> Session {
        let session = (self.session)();
        let tables = self.tables.replace("{data}", &self.location);
        session.execute(&tables).await.unwrap();
        session
    }

    /// Replaces the placeholders in a query by the location of the data, and by the paths of the
    /// cache and dead-letter folders of the pipeline `name`.
    pub(crate) fn placed(&self, name: &str, query: &str) -> String {
        let at = |folder: &Path| folder.display().to_string();
        query
            .replace("{data}", &self.location)
            .replace("{cache}", &at(&self.cache(name)))
            .replace("{dead}", &at(&self.dead(name)))
    }

    /// Replaces the location and the path of the data and the working directory in a text by fixed
    /// names.
    pub(crate) fn masked(&self, text: &str) -> String {
        let whole = self.dir().canonicalize().unwrap();
        let here = std::env::current_dir().unwrap();
        text.replace(&self.location, "{data}")
            .replace(&whole.display().to_string(), "{data}")
            .replace(&self.dir().display().to_string(), "{data}")
            .replace(&here.display().to_string(), "{here}")
    }

    /// Returns the cache folder of a pipeline.
    pub(crate) fn cache(&self, name: &str) -> PathBuf {
        self.dir().join("caches").join(name)
    }

    /// Returns the dead-letter folder of a pipeline.
    pub(crate) fn dead(&self, name: &str) -> PathBuf {
        self.dir().join("letters").join(name)
    }
}

/// Writes tables with the same rows in every format.
fn formats(dir: &Path) {
    let rows = table(ROWS);
    let plain = rows.project(&[0, 1, 2, 3]).unwrap();
    parquet(&dir.join("rows/a.parquet"), &rows.slice(0, 35), 10);
    parquet(&dir.join("rows/b.parquet"), &rows.slice(35, 25), 25);
    std::fs::create_dir_all(dir.join("ipc")).unwrap();
    let schema = rows.schema();
    let file = File::create(dir.join("ipc/rows.arrow")).unwrap();
    let mut writer = arrow::ipc::writer::FileWriter::try_new(file, &schema).unwrap();
    for start in (0..rows.num_rows()).step_by(17) {
        let length = 17.min(rows.num_rows() - start);
        writer.write(&rows.slice(start, length)).unwrap();
    }
    writer.finish().unwrap();
    let file = File::create(dir.join("comma.csv")).unwrap();
    arrow::csv::Writer::new(file).write(&plain).unwrap();
    let file = File::create(dir.join("lines.json")).unwrap();
    let mut writer = arrow::json::LineDelimitedWriter::new(file);
    writer.write(&plain).unwrap();
    writer.finish().unwrap();
    avro(&dir.join("blocks.avro"), &plain);
}

/// Writes an Avro file, and replaces its random sync marker by a fixed one, so that the file is the
/// same in every run.
fn avro(path: &Path, rows: &RecordBatch) {
    let schema = rows.schema().as_ref().clone();
    let mut writer = AvroWriter::new(Vec::new(), schema).unwrap();
    for start in (0..rows.num_rows()).step_by(25) {
        let length = 25.min(rows.num_rows() - start);
        writer.write(&rows.slice(start, length)).unwrap();
    }
    writer.finish().unwrap();
    let mut bytes = writer.into_inner();
    let marker: Vec<u8> = bytes[bytes.len() - 16..].to_vec();
    for at in 0..=bytes.len() - 16 {
        if bytes[at..at + 16] == marker[..] {
            bytes[at..at + 16].copy_from_slice(b"sixteen chars ok");
        }
    }
    std::fs::write(path, bytes).unwrap();
}

/// Writes rows with lists of different lengths to `files` JSON files with different numbers of
/// rows.
fn lists(dir: &Path, name: &str, files: u64, rows: u64) {
    let folder = dir.join(name);
    std::fs::create_dir_all(&folder).unwrap();
    for file in 0..files {
        let mut lines = String::new();
        for row in 0..rows + 3 * file {
            let id = file * 100 + row;
            let ids: Vec<u64> = (0..1 + id * 31 % 9).map(|i| id * 10 + i).collect();
            writeln!(lines, r#"{{"id": {id}, "ids": {ids:?}}}"#).unwrap();
        }
        std::fs::write(folder.join(format!("{file}.json")), lines).unwrap();
    }
}

/// Writes a JSON file of rows, each with a number `id` and `value(id)`.
fn numbers(file: &Path, rows: u64, value: impl Fn(u64) -> u64) {
    let mut lines = String::new();
    for id in 0..rows {
        writeln!(lines, r#"{{"id": {id}, "value": {}}}"#, value(id)).unwrap();
    }
    std::fs::write(file, lines).unwrap();
}
