//! Progress of a run on standard error: a bar on a terminal, and a line every few seconds
//! elsewhere.

use std::io::{self, IsTerminal};
use std::time::{Duration, Instant};

use forebay::RunStats;
use forebay::calibrate::CalibrationStep;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::console;
use super::units;

/// Time between two lines of progress, if standard error is not a terminal.
const LINE_INTERVAL: Duration = Duration::from_secs(5);
/// Time between two redraws of a bar while its counts do not change.
const TICK: Duration = Duration::from_millis(500);

/// Shows a run's progress on standard error.
pub(crate) struct Progress {
    started: Instant,
    steps: Option<u64>,
    shown: Shown,
}

enum Shown {
    Nothing,
    Bar(ProgressBar),
    Lines { next: Instant },
}

impl Progress {
    /// Starts the display; `steps` is the expected number of batches, `None` if unknown.
    pub(crate) fn new(quiet: bool, steps: Option<u64>) -> Self {
        let started = Instant::now();
        let shown = if quiet {
            Shown::Nothing
        } else if io::stderr().is_terminal() {
            Shown::Bar(bar(
                steps,
                "{pos}/{len} batches  {msg}  ETA {eta}",
                "{pos} batches  {msg}",
            ))
        } else {
            Shown::Lines {
                next: started + LINE_INTERVAL,
            }
        };
        Self {
            started,
            steps,
            shown,
        }
    }

    /// Shows the counts so far.
    pub(crate) fn update(&mut self, stats: &RunStats) {
        match &mut self.shown {
            Shown::Nothing => {}
            Shown::Bar(bar) => {
                bar.set_position(stats.batches);
                bar.set_message(rates(stats, self.started.elapsed()));
            }
            Shown::Lines { next } => {
                let now = Instant::now();
                if now < *next {
                    return;
                }
                *next = now + LINE_INTERVAL;
                let elapsed = self.started.elapsed();
                let of = self
                    .steps
                    .map(|n| format!("/{}", units::count(n)))
                    .unwrap_or_default();
                let eta = eta(stats.batches, self.steps, elapsed);
                console::message(&format!(
                    "{}{of} batches  {}{eta}",
                    units::count(stats.batches),
                    rates(stats, elapsed)
                ));
            }
        }
    }

    /// Removes the bar from the terminal.
    pub(crate) fn finish(&self) {
        if let Shown::Bar(bar) = &self.shown {
            bar.finish_and_clear();
        }
    }
}

/// Shows the stages of a long command on standard error: a bar on a terminal, one line per stage
/// elsewhere.
pub(crate) struct Steps {
    is_quiet: bool,
    bar: Option<ProgressBar>,
}

impl Steps {
    pub(crate) const fn new(is_quiet: bool) -> Self {
        Self {
            is_quiet,
            bar: None,
        }
    }

    /// Shows that the stage `step` begins.
    pub(crate) fn begin(&mut self, step: CalibrationStep<'_>) {
        if self.is_quiet {
            return;
        }
        if !io::stderr().is_terminal() {
            let CalibrationStep { number, of, what } = step;
            console::message(&format!("{}/{of}  measuring {what}", number + 1));
            return;
        }
        let bar = self.bar.get_or_insert_with(|| {
            let bar = bar(Some(step.of), "{pos}/{len}  measuring {msg}  ETA {eta}", "");
            bar.enable_steady_tick(TICK);
            bar
        });
        bar.set_position(step.number);
        bar.set_message(step.what.to_owned());
    }

    /// Removes the bar from the terminal.
    pub(crate) fn finish(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

/// Returns a bar on standard error that counts items such as files or rows. The bar is hidden if
/// standard error is not a terminal.
pub(crate) fn counter(quiet: bool, total: u64, things: &str) -> ProgressBar {
    let text = format!("{{pos}}/{{len}} {things}  ETA {{eta}}");
    let bar = bar(Some(total), &text, "{pos}");
    if quiet {
        bar.set_draw_target(ProgressDrawTarget::hidden());
    }
    bar
}

fn bar(steps: Option<u64>, with_total: &str, without: &str) -> ProgressBar {
    let (bar, template) = match steps {
        Some(steps) => (ProgressBar::new(steps), format!("{{bar:30}} {with_total}")),
        None => (ProgressBar::no_length(), format!("{{spinner}} {without}")),
    };
    match ProgressStyle::with_template(&template) {
        Ok(style) => bar.with_style(style),
        // All templates are constants. If a template is invalid, the bar has the default style.
        Err(_) => bar,
    }
}

/// Formats rows, rates and skipped rows in one line.
pub(crate) fn rates(stats: &RunStats, elapsed: Duration) -> String {
    let seconds = elapsed.as_secs_f64().max(1e-9);
    let mut text = format!(
        "{}  {} rows/s  {:.1} MB/s",
        units::counted(stats.rows, "row", "rows"),
        units::count((stats.rows as f64 / seconds) as u64),
        stats.bytes as f64 / 1e6 / seconds
    );
    for (count, name) in [
        (stats.skipped, "skipped"),
        (stats.replaced, "replaced"),
        (stats.nulled, "nulled"),
    ] {
        if count > 0 {
            text.push_str(&format!("  {} {name}", units::count(count)));
        }
    }
    text
}

fn eta(done: u64, steps: Option<u64>, elapsed: Duration) -> String {
    match steps {
        Some(steps) if done > 0 && steps > done => {
            let left = elapsed.as_secs_f64() / done as f64 * (steps - done) as f64;
            format!("  ETA {}s", left.ceil() as u64)
        }
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_name_what_was_lost() {
        let mut stats = RunStats::default();
        (stats.rows, stats.bytes, stats.skipped) = (3000, 5_000_000, 2);
        let text = rates(&stats, Duration::from_secs(2));
        assert_eq!(text, "3,000 rows  1,500 rows/s  2.5 MB/s  2 skipped");
        assert_eq!(eta(10, Some(40), Duration::from_secs(2)), "  ETA 6s");
        assert_eq!(eta(0, Some(40), Duration::from_secs(2)), "");
    }
}
