//! The measurements of EXPLAIN ANALYZE.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use forebay_planner::units::bytes_text;
use forebay_runtime::cpu::cpu_time;
use forebay_runtime::fragment::NodeTotals;
use forebay_runtime::run::{JobRun, JobWork};
use forebay_runtime::tail::RunStats;
use serde_json::{Value, json};

use crate::error::Result;

/// Measurements of the run of `EXPLAIN ANALYZE`.
#[derive(Debug, Clone)]
pub(super) struct Analysis {
    nodes: Vec<NodeTotals>,
    reading: Duration,
    read_bytes: u64,
    wall: Duration,
    /// CPU time of the process from the start of the run to its end.
    pub(super) cpu: Duration,
    first_batch: Duration,
    /// Memory of the process's seek indexes after the run, in bytes; `None` if the run used none.
    seek_index_bytes: Option<u64>,
    stats: RunStats,
    /// Fraction of the stored rows that the run read, if the run was limited to a number of
    /// batches; else 1.
    pub(super) share: f64,
}

impl Analysis {
    pub(super) async fn of(opened: JobRun) -> Result<Self> {
        let job = Arc::clone(&opened.job);
        let limited = opened.limit_batches.is_some();
        let meter = opened.work_meter();
        let (start, cpu) = (Instant::now(), cpu_time());
        let mut run = opened.start();
        let mut first_batch = Duration::ZERO;
        while let Some(batch) = run.next().await {
            batch?;
            if first_batch.is_zero() {
                first_batch = start.elapsed();
            }
        }
        let JobWork {
            nodes,
            reading,
            read_bytes,
        } = meter();
        let scans = nodes
            .iter()
            .filter(|n| n.text.starts_with("SegmentScanExec"));
        let rows: u64 = scans.map(|n| n.rows).sum();
        let share = if limited {
            (rows as f64 / job.rows().max(1) as f64).min(1.0)
        } else {
            1.0
        };
        Ok(Self {
            nodes,
            share,
            reading,
            read_bytes,
            wall: start.elapsed(),
            cpu: cpu_time().saturating_sub(cpu),
            first_batch,
            seek_index_bytes: job.seek_index_bytes(),
            stats: run.stats(),
        })
    }

    /// Names the bottleneck: reading, or the plan node with the most CPU time. The CPU time of a
    /// node does not include the CPU time of the node's inputs.
    fn bottleneck(&self) -> String {
        let total: Duration = self.nodes.iter().map(|n| n.cpu).sum();
        let seconds = self.wall.as_secs_f64().max(1e-9);
        let Some(most) = self.nodes.iter().max_by_key(|n| n.cpu) else {
            return "Nothing was computed.".to_owned();
        };
        if self.reading > total {
            return format!(
                "Bottleneck: reading, {:.2} s against {:.2} s of computing; faster storage or fewer \
                 columns would help.",
                self.reading.as_secs_f64(),
                total.as_secs_f64()
            );
        }
        let share = 100.0 * most.cpu.as_secs_f64() / total.as_secs_f64().max(1e-9);
        let node = most.text.split(':').next().unwrap_or(&most.text);
        format!(
            "Bottleneck: {node} takes {share:.0} % of the computing ({:.2} s of CPU, {:.0} rows/s).",
            most.cpu.as_secs_f64(),
            self.stats.rows as f64 / seconds
        )
    }

    pub(super) fn to_json(&self) -> Value {
        let nodes = self.nodes.iter().map(|n| {
            json!({
                "operator": n.text, "depth": n.depth, "rows": n.rows, "bytes": n.bytes,
                "cpu_seconds": n.cpu.as_secs_f64(), "wall_seconds": n.wall.as_secs_f64(),
            })
        });
        json!({
            "operators": nodes.collect::<Vec<_>>(),
            "read_seconds": self.reading.as_secs_f64(),
            "read_bytes": self.read_bytes,
            "wall_seconds": self.wall.as_secs_f64(),
            "cpu_seconds": self.cpu.as_secs_f64(),
            "first_batch_seconds": self.first_batch.as_secs_f64(),
            "seek_index_bytes": self.seek_index_bytes,
            "rows": self.stats.rows,
            "batches": self.stats.batches,
            "skipped": self.stats.skipped,
            "bottleneck": self.bottleneck(),
        })
    }
}

impl fmt::Display for Analysis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "Measured ({:.2} s, first batch after {:.2} s, {} rows, {} batches, {} skipped)",
            self.wall.as_secs_f64(),
            self.first_batch.as_secs_f64(),
            self.stats.rows,
            self.stats.batches,
            self.stats.skipped
        )?;
        writeln!(
            f,
            "  {:>10} {:>10} {:>9} {:>9}  operator",
            "rows", "bytes", "CPU s", "wall s"
        )?;
        for node in &self.nodes {
            let indent = "  ".repeat(node.depth);
            let (cpu, wall) = (node.cpu.as_secs_f64(), node.wall.as_secs_f64());
            let bytes = bytes_text(node.bytes.into());
            writeln!(
                f,
                "  {:>10} {bytes:>10} {cpu:>9.3} {wall:>9.3}  {indent}{}",
                node.rows, node.text
            )?;
        }
        let bytes = bytes_text(self.read_bytes.into());
        let reading = self.reading.as_secs_f64();
        writeln!(
            f,
            "  {:>10} {bytes:>10} {:>9} {reading:>9.3}  reading",
            "", ""
        )?;
        if let Some(bytes) = self.seek_index_bytes.filter(|bytes| *bytes > 0) {
            let bytes = bytes_text(bytes.into());
            writeln!(
                f,
                "  {:>10} {bytes:>10} {:>9} {:>9}  seek indexes",
                "", "", ""
            )?;
        }
        writeln!(f, "{}", self.bottleneck())
    }
}
