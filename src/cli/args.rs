//! Arguments of the command line, and their help.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::{Args as ClapArgs, Parser, Subcommand, ValueEnum};
use forebay::RunConfig;
use forebay::clauses::Optimize;
use forebay::generate::{MAX_CLASSES, MAX_PAYLOAD};

use super::failure::CommandFailure;
use super::input;
use super::units::{parse_bytes, parse_size};

/// A query compiler for ML input pipelines: SQL to shuffled, augmented, batched tensors.
#[derive(Debug, Parser)]
#[command(
    name = "forebay",
    version,
    after_help = "Data goes to standard output, messages to standard error. \
                  Exit codes: 0 success, 1 data cannot be read or the run failed, 2 the command line \
                  or the SQL is at fault, 128 + n if signal n ended the command (130 Ctrl-C, 143 SIGTERM, 129 SIGHUP).\n\
                  New here? Start with `forebay demo`."
)]
pub(crate) struct Args {
    /// Print only errors on standard error
    #[arg(long, short, global = true, display_order = 900)]
    pub(crate) quiet: bool,
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run a pipeline and report its throughput; optionally, write or digest the batches
    Run(RunArgs),
    /// Show how a pipeline is computed, with its hashes and step counts
    Explain(ExplainArgs),
    /// Save the plan of a pipeline for later runs, or show a saved plan
    #[command(subcommand)]
    Plan(PlanArgs),
    /// Show a resume token written by `forebay run --save-token`
    #[command(subcommand)]
    Token(TokenArgs),
    /// Compute a batch again, and show its rows, files, random draws and plan
    Which(WhichArgs),
    /// Run the rows of a dead-letter table again, with the random draws of the failed run
    Replay(ReplayArgs),
    /// Draw a contact sheet (PNG) of a batch, with labels
    Preview(PreviewArgs),
    /// Show the columns of pipelines, sources and files
    Schema(SchemaArgs),
    /// List the functions, or describe one
    Functions(FunctionsArgs),
    /// Show, check or remove the computed rows in a cache directory
    #[command(subcommand)]
    Cache(CacheArgs),
    /// Measure this machine, so that the optimiser compares plans by the machine's actual costs
    Calibrate(CalibrateArgs),
    /// Generate photos or tables for trials
    #[command(subcommand)]
    Generate(GenerateArgs),
    /// Generate photos, run an ImageNet-style pipeline on the photos, and show the results
    Demo(DemoArgs),
    /// Start the scheduler of a cluster
    #[cfg(feature = "cluster")]
    Scheduler(super::cluster_args::SchedulerArgs),
    /// Start a worker of a cluster, which computes rows for clients
    #[cfg(feature = "cluster")]
    Worker(super::cluster_args::WorkerArgs),
    /// Start a scheduler and workers on this machine
    #[cfg(feature = "cluster")]
    Cluster(super::cluster_args::ClusterArgs),
    /// Show the clients, jobs and workers of a cluster
    #[cfg(feature = "cluster-client")]
    Status(super::access_args::StatusArgs),
    /// Run SQL statements: in a shell with history and completion, or from a file or pipe
    Sql(SqlArgs),
}

/// Arguments that select the SQL statements and the pipeline.
#[derive(Debug, ClapArgs)]
pub(crate) struct Statements {
    /// File with SQL statements; `-` reads standard input
    #[arg(short, long, value_name = "FILE", conflicts_with = "sql")]
    pub(crate) file: Option<PathBuf>,
    /// SQL statements; a query without CREATE PIPELINE defines a pipeline, too
    #[arg(short = 'e', long = "execute", value_name = "SQL")]
    pub(crate) sql: Option<String>,
    /// The pipeline to use, if the statements define several
    #[arg(long, value_name = "NAME")]
    pub(crate) pipeline: Option<String>,
    #[command(flatten)]
    pub(crate) machines: Machines,
}

/// The machines that read the data and compute rows.
#[derive(Debug, Default, ClapArgs)]
#[cfg_attr(feature = "cluster-client", command(mut_args(needs_cluster)))]
pub(crate) struct Machines {
    /// Have the workers of a cluster read the data and compute the rows: host and port of its
    /// scheduler
    #[cfg(feature = "cluster-client")]
    #[arg(long, value_name = "HOST:PORT")]
    pub(crate) cluster: Option<String>,
    /// Compression of rows on their way from the workers: none, lz4 or zstd
    #[cfg(feature = "cluster-client")]
    #[arg(
        long,
        value_name = "CODEC",
        default_value_t,
        value_parser = <forebay::Compression as std::str::FromStr>::from_str,
        requires = "cluster"
    )]
    pub(crate) cluster_compression: forebay::Compression,
    #[cfg(feature = "cluster-client")]
    #[command(flatten)]
    pub(crate) security: super::access_args::SecurityArgs,
}

/// Refuses the arguments of `SecurityArgs` without `--cluster`. Other commands have them, too, so they do not say so
/// themselves.
#[cfg(feature = "cluster-client")]
fn needs_cluster(argument: clap::Arg) -> clap::Arg {
    match argument.get_id().as_str() {
        "tls_cert" | "tls_key" | "tls_ca" | "insecure" => argument.requires("cluster"),
        _ => argument,
    }
}

/// Settings of a run. With relax = 'none', the stream depends on no setting but the seed and the
/// epochs; otherwise the stream also depends on the plan.
#[derive(Debug, Default, Clone, ClapArgs)]
pub(crate) struct Engine {
    /// Number of epochs, instead of the pipeline's REPEAT
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) epochs: Option<u64>,
    /// Number of the first epoch
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) first_epoch: u64,
    /// Seed, instead of the pipeline's SEED
    #[arg(long, value_name = "N")]
    pub(crate) seed: Option<u64>,
    /// This consumer's rank among --world consumers
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) rank: u64,
    /// Number of consumers that share the stream
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) world: u64,
    /// Number of computing threads; all cores by default
    #[arg(long, value_name = "N")]
    pub(crate) threads: Option<std::num::NonZeroUsize>,
    /// Memory limit for windows, prefetch and outputs, such as 300MiB
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes)]
    pub(crate) memory_limit: Option<u64>,
    /// Optimisation level: rewrite the written plan, or run it unchanged
    #[arg(long, value_name = "LEVEL", value_enum)]
    pub(crate) optimize: Option<OptimizeLevel>,
    /// Saved plan (from `forebay plan save`) whose facts are used for planning. With relax other
    /// than 'none', the run is refused if planning from these facts gives another plan
    #[arg(long, value_name = "FILE")]
    pub(crate) plan: Option<PathBuf>,
}

impl Engine {
    /// Converts the arguments to the library's configuration.
    pub(crate) fn config(&self, limit_batches: Option<u64>) -> Result<RunConfig, CommandFailure> {
        Ok(RunConfig {
            epochs: self.epochs,
            first_epoch: self.first_epoch,
            seed: self.seed,
            rank: self.rank,
            world: self.world,
            threads: self.threads.map(std::num::NonZeroUsize::get),
            memory_limit: self.memory_limit,
            optimize: self.optimize.map(|level| match level {
                OptimizeLevel::Off => Optimize::Off,
                OptimizeLevel::Default => Optimize::Default,
            }),
            limit_batches,
            plan: self
                .plan
                .as_deref()
                .map(input::plan)
                .transpose()?
                .map(Arc::new),
            ..RunConfig::default()
        })
    }
}

impl Statements {
    /// Returns the input files of a command: the SQL file and the saved plan, if the command line
    /// names these files.
    pub(crate) fn files<'a>(&'a self, engine: &'a Engine) -> impl Iterator<Item = &'a Path> {
        self.file
            .as_deref()
            .into_iter()
            .chain(engine.plan.as_deref())
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum OptimizeLevel {
    /// Run the plan as written
    #[value(alias = "none")]
    Off,
    /// Apply all rewrites of the allowed tiers
    Default,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum DigestKind {
    /// Digest of the values, their order and the batch boundaries
    Batches,
    /// Digest of the values of the rows, regardless of order and batches
    Rows,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct CalibrateArgs {
    /// File to write the prices to; by default $FOREBAY_COSTS or a file in the user's configuration
    /// folder
    #[arg(long, value_name = "FILE")]
    pub(crate) out: Option<PathBuf>,
    /// Repeat each measurement less often: less time, rougher prices
    #[arg(long)]
    pub(crate) quick: bool,
}

/// A pipeline to run, and the destination of its batches.
#[derive(Debug, ClapArgs)]
pub(crate) struct DeliveryArgs {
    #[command(flatten)]
    pub(crate) statements: Statements,
    #[command(flatten)]
    pub(crate) engine: Engine,
    /// Write the batches to a file (.parquet or .arrow; .csv and .json for plain columns); `none`
    /// writes no file. The finished file replaces an existing file of this name, which must not be
    /// an input of the command
    #[arg(long, value_name = "FILE", default_value = "none")]
    pub(crate) out: PathBuf,
    /// Stop after this many batches
    #[arg(long, value_name = "N")]
    pub(crate) limit_batches: Option<u64>,
    /// Compute the digest of the stream
    #[arg(
        long,
        value_name = "KIND",
        value_enum,
        num_args = 0..=1,
        default_missing_value = "batches"
    )]
    pub(crate) digest: Option<DigestKind>,
    /// Print one JSON object instead of text
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct RunArgs {
    #[command(flatten)]
    pub(crate) delivery: DeliveryArgs,
    /// Resume at the position of this resume token; `-` reads the token from standard input
    #[arg(long, value_name = "FILE")]
    pub(crate) resume: Option<PathBuf>,
    /// Write the resume token of the last delivered batch to this file, even if the run fails or a
    /// signal stops the run. Rows written to --out count as delivered when the --out file is
    /// finished
    #[arg(long, value_name = "FILE")]
    pub(crate) save_token: Option<PathBuf>,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct ReplayArgs {
    /// Dead-letter table: a folder of dead letters, or one file of such a folder
    pub(crate) letters: PathBuf,
    #[command(flatten)]
    pub(crate) delivery: DeliveryArgs,
}

#[derive(Debug, Subcommand)]
pub(crate) enum TokenArgs {
    /// Show the stream and the position of a token
    Show {
        /// File of the token; `-` reads standard input
        file: PathBuf,
    },
}

#[derive(Debug, ClapArgs)]
pub(crate) struct WhichArgs {
    #[command(flatten)]
    pub(crate) statements: Statements,
    #[command(flatten)]
    pub(crate) engine: Engine,
    /// Select the last batch that was received before the position of this resume token
    #[arg(long, value_name = "FILE", conflicts_with = "step")]
    pub(crate) token: Option<PathBuf>,
    /// Number of the epoch of --step, from 0
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) epoch: u64,
    /// Select the batch at this step of the epoch, from 0, for --rank of --world
    #[arg(long, value_name = "N")]
    pub(crate) step: Option<u64>,
    /// Write the batch to a file (.parquet or .arrow)
    #[arg(long, value_name = "FILE")]
    pub(crate) out: Option<PathBuf>,
    /// Print one JSON object instead of text
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ExplainFormat {
    Text,
    Json,
    /// Both plans, in Graphviz's DOT language
    Dot,
    /// Both plans, as an SVG picture
    Svg,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct ExplainArgs {
    #[command(flatten)]
    pub(crate) statements: Statements,
    #[command(flatten)]
    pub(crate) engine: Engine,
    /// Run the pipeline, and also show the rows, bytes and times of each operator
    #[arg(long)]
    pub(crate) analyze: bool,
    /// With --analyze: stop after this many batches
    #[arg(long, value_name = "N", requires = "analyze")]
    pub(crate) limit_batches: Option<u64>,
    /// Also show each step of the optimiser, the refused rewrites, and every possible cache point
    #[arg(long)]
    pub(crate) verbose: bool,
    /// Show where a rewrite rule, or a family of rules, was refused, and by which condition
    #[arg(long, value_name = "RULE", conflicts_with_all = ["analyze", "verbose"])]
    pub(crate) why_not: Option<String>,
    /// Output format
    #[arg(long, value_enum, default_value = "text")]
    pub(crate) format: ExplainFormat,
    /// The same as --format json
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum PlanArgs {
    /// Plan the pipeline, and write the plan with all facts by which the plan was chosen
    Save(Box<PlanSaveArgs>),
    /// Show a saved plan
    Show {
        /// File of the saved plan
        file: PathBuf,
        /// Print the plan as JSON instead of text
        #[arg(long)]
        json: bool,
    },
}

#[derive(Debug, ClapArgs)]
pub(crate) struct PlanSaveArgs {
    #[command(flatten)]
    pub(crate) statements: Statements,
    #[command(flatten)]
    pub(crate) engine: Engine,
    /// File to write the plan to
    #[arg(short, long, value_name = "FILE")]
    pub(crate) out: PathBuf,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct PreviewArgs {
    #[command(flatten)]
    pub(crate) statements: Statements,
    #[command(flatten)]
    pub(crate) engine: Engine,
    /// PNG file to write
    #[arg(short, long, value_name = "FILE", default_value = "preview.png")]
    pub(crate) out: PathBuf,
    /// Number of the batch, from 0
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) batch: u64,
    /// Maximum number of rows to show
    #[arg(long, value_name = "N", default_value_t = 64)]
    pub(crate) rows: usize,
    /// Number of the batch's rows per line of the sheet
    #[arg(long, value_name = "N")]
    pub(crate) columns: Option<u32>,
    /// Pixels per side of the tile that each image is fitted into
    #[arg(long, value_name = "PIXELS", default_value_t = 160)]
    pub(crate) tile: u32,
    /// Print one JSON object instead of text
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct SchemaArgs {
    /// Source or pipeline; by default all pipelines of the statements
    pub(crate) name: Option<String>,
    #[command(flatten)]
    pub(crate) statements: Statements,
    /// Print JSON instead of text
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct FunctionsArgs {
    /// Name of a function, or a word to search for
    pub(crate) name: Option<String>,
    /// Print JSON instead of text
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum CacheArgs {
    /// List the entries in order of decreasing benefit
    Ls(CachePlace),
    /// Remove one entry, or all entries
    Rm {
        /// Key of the entry, or the first digits of the key
        #[arg(required_unless_present = "all", conflicts_with = "all")]
        key: Option<String>,
        /// Remove all entries
        #[arg(long)]
        all: bool,
        #[command(flatten)]
        place: CachePlace,
    },
    /// Read and check all entries; the exit code is 1 if anything is damaged
    Verify {
        /// Remove damaged segments and manifests, so that their rows are computed again; the exit
        /// code is 0 on success
        #[arg(long)]
        repair: bool,
        #[command(flatten)]
        place: CachePlace,
    },
    /// Show the contents, the benefit and the origin of an entry
    Why {
        /// Key of the entry, or the first digits of the key
        key: String,
        #[command(flatten)]
        place: CachePlace,
    },
}

/// Arguments that select a cache directory and the output format.
#[derive(Debug, ClapArgs)]
pub(crate) struct CachePlace {
    /// Directory of the cache, or the URL of its place in an object store
    #[arg(long, value_name = "DIR")]
    pub(crate) dir: String,
    /// Print JSON instead of text
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum GenerateArgs {
    /// A folder of JPEG photos with one directory per class
    Photos(PhotosArgs),
    /// A table with ids, times, categories, numbers, text and nulls
    Table(TableArgs),
}

#[derive(Debug, ClapArgs)]
pub(crate) struct PhotosArgs {
    /// Folder to write to; created if missing
    pub(crate) folder: PathBuf,
    /// Number of photos
    #[arg(long, value_name = "N", default_value_t = 300)]
    pub(crate) count: u64,
    /// Number of classes
    #[arg(
        long,
        value_name = "N",
        default_value_t = 10,
        value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_CLASSES))
    )]
    pub(crate) classes: u32,
    /// Mean width and height in pixels
    #[arg(long, value_name = "WxH", default_value = "500x375", value_parser = parse_size)]
    pub(crate) size: (u32, u32),
    /// Give every photo exactly the size of --size
    #[arg(long)]
    pub(crate) same_size: bool,
    /// Make one photo in ten a PNG and one in twenty gray
    #[arg(long)]
    pub(crate) mixed: bool,
    /// JPEG quality, 1 to 100
    #[arg(long, value_name = "N", default_value_t = 90, value_parser = clap::value_parser!(u8).range(1..=100))]
    pub(crate) quality: u8,
    /// Seed of all random choices
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) seed: u64,
    /// Print one JSON object instead of text
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct TableArgs {
    /// File to write; the extension (.parquet, .csv, .json or .arrow) selects the format
    pub(crate) file: PathBuf,
    /// Number of rows
    #[arg(long, value_name = "N", default_value_t = 10_000)]
    pub(crate) rows: u64,
    /// Number of random bytes per row in an additional column `payload`, such as 100kB
    #[arg(long, value_name = "SIZE", default_value = "0", value_parser = parse_payload)]
    pub(crate) payload: u64,
    /// Seed of all random choices
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) seed: u64,
    /// Print one JSON object instead of text
    #[arg(long)]
    pub(crate) json: bool,
}

fn parse_payload(text: &str) -> Result<u64, String> {
    match parse_bytes(text)? {
        bytes if bytes > MAX_PAYLOAD => Err(format!(
            "expected at most {MAX_PAYLOAD} bytes per row, found {bytes}"
        )),
        bytes => Ok(bytes),
    }
}

#[derive(Debug, ClapArgs)]
pub(crate) struct DemoArgs {
    /// Folder that all files are written to
    #[arg(default_value = "forebay-demo")]
    pub(crate) folder: PathBuf,
    /// Number of photos
    #[arg(long, value_name = "N", default_value_t = 400, value_parser = clap::value_parser!(u64).range(8..))]
    pub(crate) count: u64,
    /// Mean width and height of the photos in pixels
    #[arg(long, value_name = "WxH", default_value = "500x375", value_parser = parse_size)]
    pub(crate) size: (u32, u32),
}

#[derive(Debug, ClapArgs)]
pub(crate) struct SqlArgs {
    /// File with SQL statements; `-` reads standard input
    #[arg(short, long, value_name = "FILE", conflicts_with = "sql")]
    pub(crate) file: Option<PathBuf>,
    /// SQL statements
    #[arg(short = 'e', long = "execute", value_name = "SQL")]
    pub(crate) sql: Option<String>,
    /// Write the rows of the last query to a file (.parquet or .arrow; .csv and .json for plain
    /// columns) instead of showing the rows
    #[arg(short, long, value_name = "FILE")]
    pub(crate) out: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) machines: Machines,
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_definitions_are_consistent() {
        Args::command().debug_assert();
    }

    #[test]
    #[cfg(feature = "cluster-client")]
    fn compression_is_one_that_exists() {
        let parse = |words: &[&str]| {
            let words = ["forebay", "run", "-e", "SELECT 1"].iter().chain(words);
            Args::try_parse_from(words)
        };
        let Command::Run(args) = parse(&[]).unwrap().command else {
            panic!("not a run")
        };
        let compression = args.delivery.statements.machines.cluster_compression;
        assert_eq!(compression, forebay::Compression::None);
        let cluster = ["--cluster", "node1:7100", "--cluster-compression"];
        assert!(parse(&[&cluster[..], &["lz4"]].concat()).is_ok());
        let unknown = parse(&[&cluster[..], &["gzip"]].concat()).unwrap_err();
        assert!(unknown.to_string().contains("none, lz4 or zstd"));
    }

    #[test]
    #[cfg(feature = "cluster-client")]
    fn arguments_about_a_cluster_need_one() {
        for argument in [
            &["--cluster-compression", "lz4"][..],
            &["--tls-cert", "me.pem"],
            &["--tls-key", "me.key"],
            &["--tls-ca", "ca.pem"],
            &["--insecure"],
        ] {
            for command in ["run", "explain", "sql"] {
                let words = [&["forebay", command, "-e", "SELECT 1"], argument].concat();
                let alone = Args::try_parse_from(&words).unwrap_err().to_string();
                assert!(alone.contains("--cluster <HOST:PORT>"), "{alone}");
                let words = [&words[..], &["--cluster", "node1:7100"]].concat();
                assert!(Args::try_parse_from(words).is_ok());
            }
        }
        // The scheduler of `status` has a default.
        assert!(Args::try_parse_from(["forebay", "status", "--insecure"]).is_ok());
    }

    #[test]
    fn a_digest_has_a_kind_by_default() {
        let digest = |words: &[&str]| {
            let words = ["forebay", "run", "-e", "SELECT 1"].iter().chain(words);
            match Args::try_parse_from(words).unwrap().command {
                Command::Run(args) => args.delivery.digest,
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(digest(&[]), None);
        assert_eq!(digest(&["--digest"]), Some(DigestKind::Batches));
        assert_eq!(digest(&["--digest=rows"]), Some(DigestKind::Rows));
        assert_eq!(digest(&["--digest", "rows"]), Some(DigestKind::Rows));
        assert_eq!(digest(&["--digest", "--json"]), Some(DigestKind::Batches));
    }
}
