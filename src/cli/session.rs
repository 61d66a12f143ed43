//! Opens the sessions of commands. These sessions plan with the measured prices of this machine.

use std::path::{Path, PathBuf};

#[cfg(feature = "cluster-client")]
use forebay::ClusterAccess;
use forebay::{Coefficients, Session};

use super::args::Machines;
use super::failure::CommandFailure;
use super::input;

/// Environment variable that contains the path of the file of this machine's prices.
const VARIABLE: &str = "FOREBAY_COSTS";

/// Maximum size of the file of prices, in bytes; a larger file is refused. The limit is about a
/// hundred times the size of a file with the prices of all functions.
const MAX_BYTES: u64 = 1 << 20;

/// Returns the path of this machine's prices: `$FOREBAY_COSTS`, else `forebay/costs.json` in the
/// user's configuration folder. `None` if the environment variables determine neither path.
pub(crate) fn prices_path() -> Option<PathBuf> {
    let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
    if let Some(path) = set(VARIABLE) {
        return Some(PathBuf::from(path));
    }
    let config = set("XDG_CONFIG_HOME").map(PathBuf::from);
    let config = config.or_else(|| set("HOME").map(|home| PathBuf::from(home).join(".config")))?;
    Some(config.join("forebay").join("costs.json"))
}

/// Opens a session on `machines`. The session uses the prices of this machine if the machine was
/// calibrated, else the built-in prices.
pub(crate) fn open(machines: &Machines) -> Result<Session, CommandFailure> {
    let session = empty(machines)?;
    Ok(match prices()? {
        Some(prices) => session.with_prices(prices),
        None => session,
    })
}

/// Creates a session on `machines`.
fn empty(machines: &Machines) -> Result<Session, CommandFailure> {
    #[cfg(feature = "cluster-client")]
    if let Some(address) = &machines.cluster {
        let access = ClusterAccess {
            compression: machines.cluster_compression,
            ..machines.security.access()
        };
        let cluster = access.connect(address);
        let cluster = cluster.map_err(|error| CommandFailure::Usage(error.to_string()))?;
        return Ok(Session::on_cluster(cluster));
    }
    let _ = machines;
    Ok(Session::new())
}

/// Reads the prices of this machine; `None` if it was not calibrated.
fn prices() -> Result<Option<Coefficients>, CommandFailure> {
    let Some(path) = prices_path() else {
        return Ok(None);
    };
    let text = match input::text(&path, "prices", MAX_BYTES) {
        Ok(text) => text,
        // A missing file of prices is an error only if the user named the file.
        Err(_) if std::env::var_os(VARIABLE).is_none() && !path.exists() => {
            return Ok(None);
        }
        Err(failure) => return Err(failure),
    };
    let prices = Coefficients::from_json(&text).map_err(|why| {
        let path = path.display();
        CommandFailure::Usage(format!(
            "{path}: not a file of prices: {why}; run `forebay calibrate` again, or remove the file"
        ))
    })?;
    Ok(Some(prices))
}

/// Opens a session that refuses to read the files `outputs` as sources. Files that the command
/// itself reads are checked by [`refuse_inputs`](super::export::refuse_inputs).
pub(crate) fn guarding<'a>(
    outputs: impl IntoIterator<Item = &'a Path>,
    machines: &Machines,
) -> Result<Session, CommandFailure> {
    let session = open(machines)?;
    for output in outputs {
        session.declare_output(output);
    }
    Ok(session)
}
