//! `forebay cache`.

use std::collections::BTreeSet;

use forebay_runtime::cache::{
    Bandwidth, CacheError, CacheOptions, CacheStore, Damage, SegmentSummary, Stores, Summary,
    Verified,
};
use serde_json::{Value, json};

use super::args::{CacheArgs, CachePlace};
use super::failure::CommandFailure;
use super::{console, table, units};

/// Maximum number of characters that are shown of a plan prefix in the list; further characters are
/// cut off.
const MAX_PREFIX: usize = 60;

/// Shows the contents of a cache directory, or removes entries from the directory.
pub(crate) async fn execute(args: CacheArgs) -> Result<(), CommandFailure> {
    match args {
        CacheArgs::Ls(place) => list(&place).await,
        CacheArgs::Rm { key, place, .. } => remove(&place, key.as_deref()).await,
        CacheArgs::Verify { repair, place } => verify(&place, repair).await,
        CacheArgs::Why { key, place } => why(&place, &key).await,
    }
}

async fn open(place: &CachePlace) -> Result<CacheStore, CommandFailure> {
    let stores = Stores::default();
    let found = stores.existing(&place.dir, CacheOptions::default()).await?;
    found.ok_or_else(|| {
        let (location, cause) = (place.dir.clone(), "no such directory: check the path");
        let cause = cause.to_owned();
        CacheError::Location { location, cause }.into()
    })
}

async fn list(place: &CachePlace) -> Result<(), CommandFailure> {
    let entries = open(place).await?.list().await?;
    if place.json {
        return console::json(&entries.iter().map(entry_json).collect());
    }
    let total = units::counted(entries.len() as u64, "entry", "entries");
    let bytes = entries
        .iter()
        .fold(0u64, |sum, entry| sum.saturating_add(entry.bytes));
    let now = units::unix_ms();
    let header = [
        "key",
        "rows",
        "bytes",
        "segments",
        "compression",
        "last used",
        "benefit",
        "prefix",
    ];
    let rows = entries.iter().map(|entry| {
        [
            entry.key.short(),
            units::count(entry.rows),
            units::bytes(entry.bytes),
            units::count(entry.segments.len() as u64),
            compressions(&entry.segments),
            units::ago(entry.last_used_ms, now),
            benefit(entry.benefit),
            prefix(entry),
        ]
    });
    let table = table::aligned(&header.map(str::to_owned), rows.collect());
    console::data(&format!("{table}({total}, {})", units::bytes(bytes)))
}

async fn remove(place: &CachePlace, key: Option<&str>) -> Result<(), CommandFailure> {
    let store = open(place).await?;
    let removed = match key {
        Some(key) => {
            let key = store.resolve(key).await?;
            store.remove(&key).await?;
            1
        }
        None => store.remove_all().await?,
    };
    if place.json {
        return console::json(&json!({ "removed": removed }));
    }
    console::message(&format!(
        "removed {}",
        units::counted(removed, "entry", "entries")
    ));
    Ok(())
}

async fn verify(place: &CachePlace, repair: bool) -> Result<(), CommandFailure> {
    let verified = open(place).await?.verify(repair).await?;
    if place.json {
        console::json(&verified_json(&verified))?;
    } else {
        console::data(&verified_text(&verified))?;
    }
    let left = (verified.damaged.len() as u64).saturating_sub(verified.removed);
    match left {
        0 => Ok(()),
        left => Err(CommandFailure::Run(format!(
            "{} damaged: the rows in question will be computed again; `forebay cache verify --repair` removes the damaged data",
            units::counted(left, "segment or manifest is", "segments or manifests are"),
        ))),
    }
}

async fn why(place: &CachePlace, key: &str) -> Result<(), CommandFailure> {
    let store = open(place).await?;
    let key = store.resolve(key).await?;
    let Some(entry) = store.explain(&key).await? else {
        return Err(CommandFailure::Run(format!(
            "the cache entry {} was removed while this command ran",
            key.short()
        )));
    };
    if place.json {
        console::json(&entry_json(&entry))
    } else {
        console::data(&explained(&entry, store.bandwidth(), units::unix_ms()))
    }
}

fn explained(entry: &Summary, bandwidth: Bandwidth, now: u64) -> String {
    let mut lines = vec![
        ("key", entry.key.to_string()),
        (
            "prefix",
            units::printable(&entry.text).replace('\n', "\n              "),
        ),
    ];
    if let Some(cause) = &entry.damage {
        lines.push((
            "damaged",
            format!(
                "the manifest of the entry cannot be read: {}",
                units::printable(cause)
            ),
        ));
    }
    let dropped = match entry.dropped {
        0 => String::new(),
        dropped => format!(", and {} dropped by the filter", units::count(dropped)),
    };
    lines.push(("rows", format!("{}{dropped}", units::count(entry.rows))));
    lines.push((
        "bytes",
        format!(
            "{} stored, {} in memory, in {}",
            units::bytes(entry.bytes),
            units::bytes(entry.row_bytes),
            units::counted(entry.segments.len() as u64, "segment", "segments"),
        ),
    ));
    lines.push((
        "saves",
        format!(
            "{} of computing a row, {} in all",
            units::duration(entry.compute_ps_per_row),
            units::duration(entry.saved_ps)
        ),
    ));
    if let (Some(bps), 1..) = (bandwidth.read_bps, entry.rows) {
        let ps = u128::from(entry.bytes / entry.rows) * 1_000_000_000_000 / u128::from(bps.max(1));
        let ps = u64::try_from(ps).unwrap_or(u64::MAX);
        let rate = units::bytes(bps);
        lines.push((
            "costs",
            format!("{} to read a row, at {rate}/s", units::duration(ps)),
        ));
    }
    lines.push(("last used", units::ago(entry.last_used_ms, now)));
    lines.push((
        "benefit",
        format!(
            "{} saved, halved for each day without use",
            benefit(entry.benefit)
        ),
    ));
    let mut text: String = lines
        .iter()
        .map(|(name, value)| format!("{name:12}  {value}\n"))
        .collect();
    let header = ["segment", "rows", "bytes", "compression", "written", "by"];
    let rows = entry.segments.iter().map(|segment| {
        [
            segment.name.chars().take(12).collect(),
            units::count(segment.rows),
            units::bytes(segment.bytes),
            segment.compression.to_string(),
            units::ago(segment.written_ms, now),
            units::printable(&segment.writer),
        ]
    });
    text.push('\n');
    text.push_str(&table::aligned(&header.map(str::to_owned), rows.collect()));
    text
}

fn verified_text(verified: &Verified) -> String {
    let mut text = format!(
        "{}, {}, {} read\n",
        units::counted(verified.entries, "entry", "entries"),
        units::counted(verified.segments, "segment", "segments"),
        units::bytes(verified.bytes)
    );
    for Damage {
        key,
        segment,
        cause,
    } in &verified.damaged
    {
        let what = segment
            .as_ref()
            .map_or("manifest".to_owned(), |name| format!("segment {name}"));
        text.push_str(&format!(
            "damaged: {what} of entry {}: {}\n",
            key.short(),
            units::printable(cause)
        ));
    }
    if verified.removed > 0 {
        text.push_str(&format!(
            "removed {} of them\n",
            units::count(verified.removed)
        ));
    }
    text
}

fn entry_json(entry: &Summary) -> Value {
    let segment = |segment: &SegmentSummary| {
        json!({
            "name": segment.name,
            "rows": segment.rows,
            "bytes": segment.bytes,
            "compression": segment.compression.to_string(),
            "written_ms": segment.written_ms,
            "writer": segment.writer,
        })
    };
    json!({
        "key": entry.key.to_string(),
        "prefix": entry.text,
        "rows": entry.rows,
        "dropped": entry.dropped,
        "bytes": entry.bytes,
        "row_bytes": entry.row_bytes,
        "compute_ps_per_row": entry.compute_ps_per_row,
        "saved_ps": entry.saved_ps,
        "last_used_ms": entry.last_used_ms,
        "benefit_ps_per_byte": entry.benefit,
        "damage": entry.damage,
        "segments": entry.segments.iter().map(segment).collect::<Vec<_>>(),
    })
}

fn verified_json(verified: &Verified) -> Value {
    let damage = |damage: &Damage| {
        json!({
            "key": damage.key.to_string(),
            "segment": damage.segment,
            "cause": damage.cause,
        })
    };
    json!({
        "entries": verified.entries,
        "segments": verified.segments,
        "bytes": verified.bytes,
        "damaged": verified.damaged.iter().map(damage).collect::<Vec<_>>(),
        "removed": verified.removed,
    })
}

fn compressions(segments: &[SegmentSummary]) -> String {
    let names: BTreeSet<String> = segments.iter().map(|s| s.compression.to_string()).collect();
    names.into_iter().collect::<Vec<_>>().join(", ")
}

fn prefix(entry: &Summary) -> String {
    if entry.damage.is_some() {
        return "(the manifest is damaged)".to_owned();
    }
    let text = units::printable(&entry.text);
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    match line.char_indices().nth(MAX_PREFIX) {
        Some((end, _)) => format!("{}..", &line[..end]),
        None => line,
    }
}

/// Formats picoseconds per byte as time per megabyte.
fn benefit(ps_per_byte: f64) -> String {
    let ps_per_mb = ps_per_byte * 1e6;
    format!(
        "{}/MB",
        units::duration(if ps_per_mb < 1e19 {
            ps_per_mb as u64
        } else {
            u64::MAX
        })
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn benefit_is_a_time_per_megabyte() {
        assert_eq!(benefit(13_300.0), "13.3 ms/MB");
        assert_eq!(benefit(f64::MAX), benefit(1e300));
    }
}
