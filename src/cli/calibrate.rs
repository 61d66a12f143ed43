//! `forebay calibrate`.

use forebay::calibrate::{Effort, calibrate};

use super::args::CalibrateArgs;
use super::failure::CommandFailure;
use super::interrupt::Ending;
use super::progress::Steps;
use super::{console, export, session};

/// Measures this machine and writes its prices to a file.
pub(crate) async fn execute(
    args: CalibrateArgs,
    ending: &Ending,
    quiet: bool,
) -> Result<(), CommandFailure> {
    let out = match args.out.or_else(session::prices_path) {
        Some(out) => out,
        None => {
            let why = "no file to write the prices to: neither HOME nor XDG_CONFIG_HOME is set; name a file with --out";
            return Err(CommandFailure::Usage(why.to_owned()));
        }
    };
    let folder = tempfile::tempdir()?;
    ending.remove(folder.path());
    let effort = if args.quick {
        Effort::Quick
    } else {
        Effort::Full
    };
    if !quiet {
        console::message(match effort {
            Effort::Full => {
                "calibrating: this takes about 4 minutes on an otherwise idle machine, and 100 MB of temporary files; \
                 --quick takes less time for rougher prices"
            }
            Effort::Quick => {
                "calibrating with fewer repetitions, for rougher prices than those of a full calibration; \
                this takes about 100 MB of temporary files"
            }
        });
    }
    let mut steps = Steps::new(quiet);
    let calibrated = calibrate(folder.path(), effort, &mut |step| steps.begin(step)).await;
    steps.finish();
    let prices = calibrated?;
    let text = serde_json::to_string_pretty(&prices);
    let text = text.map_err(|error| CommandFailure::Run(error.to_string()))? + "\n";
    if let Some(parent) = out.parent() {
        std::fs::create_dir_all(parent)
            .map_err(|error| CommandFailure::file("make", parent, &error))?;
    }
    export::text(&out, &text)?;
    console::data(&format!("wrote {}", out.display()))
}
