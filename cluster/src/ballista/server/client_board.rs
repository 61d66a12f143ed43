//! The clients of a scheduler, as they describe themselves.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use crate::ballista::lock::lock;
use crate::ballista::wire::ClientReport;

/// Number of clients that are remembered. A client that comes when there are as many is not shown.
const CLIENTS: usize = 1024;

/// Time after its last report for which a client is remembered. Clients report every second.
const FORGET: Duration = Duration::from_secs(10);

/// Limits of a report: workers that are set aside, jobs, and bytes of a text.
const MAX_SET_ASIDE: usize = 16;
const MAX_JOBS: usize = 16;
const MAX_TEXT: usize = 512;

/// The last reports of clients by the clients' names, bounded.
#[derive(Debug, Default)]
pub(crate) struct ClientBoard(Mutex<BTreeMap<String, (ClientReport, Instant)>>);

impl ClientBoard {
    /// Notes the report of a client at the time `now`.
    pub(crate) fn note(&self, mut report: ClientReport, now: Instant) {
        if report.client.is_empty() || report.client.len() > MAX_TEXT {
            return;
        }
        report.set_aside.truncate(MAX_SET_ASIDE);
        for aside in &mut report.set_aside {
            shorten(&mut aside.worker);
            shorten(&mut aside.cause);
        }
        report.jobs.truncate(MAX_JOBS);
        report.jobs.iter_mut().for_each(shorten);
        shorten(&mut report.release);
        let mut clients = lock(&self.0);
        clients.retain(|_, (_, at)| now.saturating_duration_since(*at) < FORGET);
        if clients.len() < CLIENTS || clients.contains_key(&report.client) {
            clients.insert(report.client.clone(), (report, now));
        }
    }

    /// Returns the last reports of the clients that run at the time `now`.
    pub(crate) fn reports(&self, now: Instant) -> Vec<ClientReport> {
        let mut clients = lock(&self.0);
        clients.retain(|_, (_, at)| now.saturating_duration_since(*at) < FORGET);
        clients.values().map(|(report, _)| report.clone()).collect()
    }
}

/// Cuts off what a text has too much.
pub(crate) fn shorten(text: &mut String) {
    if text.len() > MAX_TEXT {
        let end = (0..=MAX_TEXT).rev().find(|at| text.is_char_boundary(*at));
        text.truncate(end.unwrap_or(0));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ballista::wire::SetAsideWorker;

    fn report(client: &str) -> ClientReport {
        ClientReport {
            client: client.to_owned(),
            ..ClientReport::default()
        }
    }

    #[test]
    fn clients_that_are_silent_are_forgotten() {
        let (board, start) = (ClientBoard::default(), Instant::now());
        board.note(report("a"), start);
        board.note(report("b"), start + FORGET / 2);
        assert_eq!(board.reports(start + FORGET / 2).len(), 2);
        let left = board.reports(start + FORGET);
        assert_eq!(left.len(), 1);
        assert_eq!(left[0].client, "b");
    }

    #[test]
    fn reports_are_bounded() {
        let (board, now) = (ClientBoard::default(), Instant::now());
        for client in 0..CLIENTS + 10 {
            board.note(report(&client.to_string()), now);
        }
        board.note(report(""), now);
        board.note(report(&"c".repeat(1 << 20)), now);
        assert_eq!(board.reports(now).len(), CLIENTS);
        let aside = SetAsideWorker {
            worker: "w".repeat(1 << 20),
            cause: "ü".repeat(1 << 20),
        };
        let long = ClientReport {
            set_aside: vec![aside; 1000],
            jobs: vec!["j".repeat(1 << 20); 1000],
            release: "r".repeat(1 << 20),
            ..report("0")
        };
        board.note(long, now);
        let reports = board.reports(now);
        let bytes = prost::Message::encoded_len(&reports[0]);
        assert!(bytes < 32 << 10, "{bytes} bytes");
    }
}
