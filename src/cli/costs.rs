//! The prices of this machine: where they are kept, and `forebay calibrate`.

use std::path::PathBuf;

use forebay::calibrate::{Effort, calibrate};
use forebay::{Coefficients, Session};

use super::args::CalibrateArgs;
use super::failure::Failure;
use super::interrupt::Ending;
use super::progress::Steps;
use super::{input, out, output};

/// Names the file of prices, instead of the one in the user's configuration.
const VARIABLE: &str = "FOREBAY_COSTS";

/// Most bytes of prices: a hundred times those of all functions that there are.
const MAX_BYTES: u64 = 1 << 20;

/// Where this machine's prices are: `$FOREBAY_COSTS`, else `forebay/costs.json` among the user's
/// configuration.
fn path() -> Option<PathBuf> {
    let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
    if let Some(path) = set(VARIABLE) {
        return Some(PathBuf::from(path));
    }
    let config = set("XDG_CONFIG_HOME").map(PathBuf::from);
    let config = config.or_else(|| set("HOME").map(|home| PathBuf::from(home).join(".config")))?;
    Some(config.join("forebay").join("costs.json"))
}

/// A session with the prices of this machine, if it was measured.
pub(crate) fn session() -> Result<Session, Failure> {
    let Some(path) = path() else {
        return Ok(Session::new());
    };
    let text = match input::text(&path, "prices", MAX_BYTES) {
        Ok(text) => text,
        // Who asked for no file misses none.
        Err(_) if std::env::var_os(VARIABLE).is_none() && !path.exists() => {
            return Ok(Session::new());
        }
        Err(failure) => return Err(failure),
    };
    let prices = Coefficients::from_json(&text).map_err(|why| {
        let path = path.display();
        Failure::Usage(format!(
            "{path} is no file of prices: {why}; run `forebay calibrate` again, or remove it"
        ))
    })?;
    Ok(Session::with_prices(prices))
}

/// Measures this machine and writes its prices.
pub(crate) async fn execute(
    args: CalibrateArgs,
    ending: &Ending,
    quiet: bool,
) -> Result<(), Failure> {
    let out = match args.out.or_else(path) {
        Some(out) => out,
        None => {
            let why = "there is no place for the prices; name one by --out";
            return Err(Failure::Usage(why.to_owned()));
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
        output::message(match effort {
            Effort::Full => {
                "calibrating: this takes some 4 minutes of an otherwise idle machine, and 100 MB for a while; \
                 --quick repeats measurements less, for rougher prices"
            }
            Effort::Quick => {
                "calibrating with fewer repetitions: prices are rougher than those of a full calibration; this takes \
                 some 100 MB for a while"
            }
        });
    }
    let mut steps = Steps::new(quiet);
    let calibrated = calibrate(folder.path(), effort, &mut |step| steps.begin(step)).await;
    steps.finish();
    let prices = calibrated?;
    let text = serde_json::to_string_pretty(&prices);
    let text = text.map_err(|error| Failure::Run(error.to_string()))? + "\n";
    if let Some(parent) = out.parent() {
        std::fs::create_dir_all(parent).map_err(|error| Failure::file("make", parent, &error))?;
    }
    out::text(&out, &text)?;
    output::data(&format!("wrote {}", out.display()))
}
